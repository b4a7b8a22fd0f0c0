//! The Accept-Encoding field of a request into the coding of its answer (RFC 9110 §12.5.3).

use memchr::memchr;

use crate::fields::{FieldName, Fields};
use crate::grammar::{members, trim};

/// A content coding that a file may be kept in (RFC 9110 §8.4.1), in the order of our preference: of two that a client
/// likes equally, it gets the greater one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContentCoding {
    /// None: the file as it is.
    Identity,
    /// RFC 9110 §8.4.1.3.
    Gzip,
    /// RFC 8878, within the window of RFC 9659.
    Zstd,
    /// RFC 7932.
    Brotli,
}

impl ContentCoding {
    /// How many there are.
    const COUNT: usize = 4;

    /// Those that change the content, the preferred one first.
    pub const COMPRESSIONS: [ContentCoding; ContentCoding::COUNT - 1] =
        [ContentCoding::Brotli, ContentCoding::Zstd, ContentCoding::Gzip];

    /// Its name in Accept-Encoding and Content-Encoding.
    pub fn name(self) -> &'static str {
        match self {
            ContentCoding::Identity => "identity",
            ContentCoding::Gzip => "gzip",
            ContentCoding::Zstd => "zstd",
            ContentCoding::Brotli => "br",
        }
    }

    /// What stands behind the name of a file, its dot included, when the content is kept in this coding.
    pub fn file_extension(self) -> &'static str {
        match self {
            ContentCoding::Identity => "",
            ContentCoding::Gzip => ".gz",
            ContentCoding::Zstd => ".zst",
            ContentCoding::Brotli => ".br",
        }
    }

    /// The path of the file that the one at `path` holds in a coding, by its ending; `None` when it has no such ending.
    pub fn strip_file_extension(path: &[u8]) -> Option<&[u8]> {
        ContentCoding::COMPRESSIONS.iter().find_map(|coding| path.strip_suffix(coding.file_extension().as_bytes()))
    }

    /// The coding of this name, in whatever case (RFC 9110 §8.4.1).
    fn of(name: &[u8]) -> Option<ContentCoding> {
        // RFC 9110 §8.4.1.3: the older name of gzip means the same.
        if name.eq_ignore_ascii_case(b"x-gzip") {
            return Some(ContentCoding::Gzip);
        }
        let all = [ContentCoding::Identity].into_iter().chain(ContentCoding::COMPRESSIONS);
        all.into_iter().find(|coding| name.eq_ignore_ascii_case(coding.name().as_bytes()))
    }
}

/// The coding that a request likes best of `codings` and of [`ContentCoding::Identity`], which is always there.
///
/// Whoever wants none of them gets the file as it is: RFC 9110 §12.5.3 asks for that, but where `identity` is refused as
/// well; even then a client can do more with it than with a page of status 406.
pub fn negotiate_coding(fields: &Fields<'_>, codings: impl IntoIterator<Item = ContentCoding>) -> ContentCoding {
    // §12.5.3 would let us send any coding to a client that says nothing. Those are simple, and may know none.
    if !fields.contains(FieldName::AcceptEncoding) {
        return ContentCoding::Identity;
    }
    let weights = Weights::parse(fields.values(FieldName::AcceptEncoding));
    let rank = |coding| (weights.of(coding), coding);
    let acceptable = codings.into_iter().filter(|&coding| weights.of(coding) > Weight::ZERO);
    acceptable.fold(ContentCoding::Identity, |best, coding| if rank(coding) > rank(best) { coding } else { best })
}

/// How much a client likes a coding, in thousandths (RFC 9110 §12.4.2); zero: it refuses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Weight(u16);

impl Weight {
    const ZERO: Weight = Weight(0);
    const ONE: Weight = Weight(1000);

    /// `"0" [ "." 0*3DIGIT ]` or `"1" [ "." 0*3("0") ]`.
    fn parse(text: &[u8]) -> Option<Weight> {
        let (whole, digits): (u8, &[u8]) = match *text {
            [whole] => (whole, &[]),
            [whole, b'.', ref digits @ ..] if digits.len() <= 3 => (whole, digits),
            _ => return None,
        };
        let thousandths = digits
            .iter()
            .zip([100, 10, 1])
            .try_fold(0, |sum, (digit, place)| digit.is_ascii_digit().then(|| sum + place * u16::from(digit - b'0')))?;
        match (whole, thousandths) {
            (b'0', _) => Some(Weight(thousandths)),
            (b'1', 0) => Some(Weight::ONE),
            _ => None,
        }
    }
}

/// The weights of all codings, as a client told them.
#[derive(Debug, Default)]
struct Weights {
    /// Of those that it named.
    named: [Option<Weight>; ContentCoding::COUNT],
    /// Of those that it did not, by `*`.
    others: Option<Weight>,
}

impl Weights {
    /// The weights in the lists of all lines of a field. Members that do not follow the grammar are passed over.
    fn parse<'b>(lists: impl Iterator<Item = &'b [u8]>) -> Weights {
        let mut weights = Weights::default();
        for (name, weight) in lists.flat_map(members).filter_map(parse_member) {
            let slot = match ContentCoding::of(name) {
                Some(coding) => &mut weights.named[coding as usize],
                None if name == b"*" => &mut weights.others,
                None => continue,
            };
            // Who names a coding twice, and refuses it once, is not sent it.
            *slot = Some(slot.map_or(weight, |before| before.min(weight)));
        }
        weights
    }

    /// A coding that is not listed is refused (RFC 9110 §12.5.3, rule 3). The file as it is may be sent all the same
    /// (rule 2), to a client that likes nothing else: zero is right for it too.
    fn of(&self, coding: ContentCoding) -> Weight {
        self.named[coding as usize].or(self.others).unwrap_or(Weight::ZERO)
    }
}

/// `codings [ OWS ";" OWS "q=" qvalue ]`; `None` for anything else.
fn parse_member(member: &[u8]) -> Option<(&[u8], Weight)> {
    let Some(semicolon) = memchr(b';', member) else { return Some((member, Weight::ONE)) };
    match trim(&member[semicolon + 1..]) {
        [b'q' | b'Q', b'=', weight @ ..] => Some((trim(&member[..semicolon]), Weight::parse(weight)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codings_stand_in_the_order_of_preference_and_are_found_by_their_names() {
        assert!(ContentCoding::COMPRESSIONS.is_sorted_by(|left, right| left > right));
        assert!(ContentCoding::COMPRESSIONS.iter().all(|&coding| coding > ContentCoding::Identity));
        for coding in ContentCoding::COMPRESSIONS {
            assert_eq!(ContentCoding::of(coding.name().to_uppercase().as_bytes()), Some(coding));
        }
        assert_eq!(ContentCoding::of(b"X-GZip"), Some(ContentCoding::Gzip));
        for name in ["", "b", "brotli", "deflate", "*", "gzip "] {
            assert_eq!(ContentCoding::of(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn a_coded_file_stands_beside_the_one_that_it_holds() {
        for (path, plain) in [
            ("a/app.js.br", Some("a/app.js")),
            ("a/app.js.zst", Some("a/app.js")),
            ("a/app.js.gz", Some("a/app.js")),
            ("a/app.js.gz.br", Some("a/app.js.gz")),
            ("a/app.js", None),
            ("a/app.js.BR", None),
            ("a/br", None),
            ("", None),
        ] {
            assert_eq!(ContentCoding::strip_file_extension(path.as_bytes()), plain.map(str::as_bytes), "{path}");
        }
    }

    #[test]
    fn weights_are_those_of_the_grammar_and_no_others() {
        for (text, thousandths) in [
            ("0", Some(0)),
            ("0.", Some(0)),
            ("0.000", Some(0)),
            ("0.001", Some(1)),
            ("0.01", Some(10)),
            ("0.5", Some(500)),
            ("0.999", Some(999)),
            ("1", Some(1000)),
            ("1.", Some(1000)),
            ("1.000", Some(1000)),
            ("1.001", None),
            ("0.0001", None),
            ("1.0000", None),
            ("2", None),
            ("00", None),
            ("", None),
            (".5", None),
            ("-0", None),
            ("0,5", None),
            ("0.5a", None),
            ("0. 5", None),
            ("1e0", None),
        ] {
            assert_eq!(Weight::parse(text.as_bytes()), thousandths.map(Weight), "{text:?}");
        }
    }
}

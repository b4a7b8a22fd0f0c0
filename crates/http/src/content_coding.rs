//! Selects the content coding of a response by Accept-Encoding (RFC 9110 §12.5.3).

use memchr::memchr;

use crate::fields::{FieldName, Fields};
use crate::grammar::{list_members, trim};

/// A content coding (RFC 9110 §8.4.1), in the order of preference: of two with the same weight the greater one is
/// chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContentCoding {
    /// No coding.
    Identity,
    /// RFC 9110 §8.4.1.3.
    Gzip,
    /// RFC 8878, within the window of RFC 9659.
    Zstd,
    /// RFC 7932.
    Brotli,
}

impl ContentCoding {
    const COUNT: usize = 4;

    /// All codings but identity, the preferred one first.
    pub const COMPRESSED: [ContentCoding; ContentCoding::COUNT - 1] =
        [ContentCoding::Brotli, ContentCoding::Zstd, ContentCoding::Gzip];

    /// The name in Accept-Encoding and Content-Encoding.
    pub fn name(self) -> &'static str {
        match self {
            ContentCoding::Identity => "identity",
            ContentCoding::Gzip => "gzip",
            ContentCoding::Zstd => "zstd",
            ContentCoding::Brotli => "br",
        }
    }

    /// The extension, with its dot, that the name of a file in this coding has after that of the plain file.
    pub fn file_extension(self) -> &'static str {
        match self {
            ContentCoding::Identity => "",
            ContentCoding::Gzip => ".gz",
            ContentCoding::Zstd => ".zst",
            ContentCoding::Brotli => ".br",
        }
    }

    /// The path of the plain file of the coded file at `path`; `None` if `path` has no extension of a coding.
    pub fn strip_file_extension(path: &[u8]) -> Option<&[u8]> {
        ContentCoding::COMPRESSED.iter().find_map(|coding| path.strip_suffix(coding.file_extension().as_bytes()))
    }

    /// The coding with this name, in any letter case (RFC 9110 §8.4.1).
    fn from_name(name: &[u8]) -> Option<ContentCoding> {
        // RFC 9110 §8.4.1.3: the older name of gzip.
        if name.eq_ignore_ascii_case(b"x-gzip") {
            return Some(ContentCoding::Gzip);
        }
        let all = [ContentCoding::Identity].into_iter().chain(ContentCoding::COMPRESSED);
        all.into_iter().find(|coding| name.eq_ignore_ascii_case(coding.name().as_bytes()))
    }
}

/// The coding with the highest weight of `codings` and [`ContentCoding::Identity`], which is always available.
///
/// If none is acceptable it is identity, as RFC 9110 §12.5.3 recommends; even if the client refuses identity too,
/// because that is more useful to it than a 406.
pub fn negotiate_coding(fields: &Fields<'_>, codings: impl IntoIterator<Item = ContentCoding>) -> ContentCoding {
    // §12.5.3 permits any coding without the field, but such clients are simple and may support none.
    if !fields.contains(FieldName::AcceptEncoding) {
        return ContentCoding::Identity;
    }
    let weights = Weights::parse(fields.values(FieldName::AcceptEncoding));
    let rank = |coding| (weights.of(coding), coding);
    let acceptable = codings.into_iter().filter(|&coding| weights.of(coding) > Weight::ZERO);
    acceptable.fold(ContentCoding::Identity, |best, coding| if rank(coding) > rank(best) { coding } else { best })
}

/// The codings but identity that the client accepts, in the order of our preference.
pub(crate) fn accepted_codings(fields: &Fields<'_>) -> impl Iterator<Item = ContentCoding> {
    let weights = Weights::parse(fields.values(FieldName::AcceptEncoding));
    ContentCoding::COMPRESSED.into_iter().filter(move |&coding| weights.of(coding) > Weight::ZERO)
}

/// Whether the client accepts content without a coding, which it does unless it says the contrary (RFC 9110 §12.5.3,
/// rule 2).
pub fn accepts_identity(fields: &Fields<'_>) -> bool {
    let weights = Weights::parse(fields.values(FieldName::AcceptEncoding));
    weights.named[ContentCoding::Identity as usize].or(weights.others) != Some(Weight::ZERO)
}

/// A weight in thousandths (RFC 9110 §12.4.2); 0 means not acceptable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Weight(u16);

impl Weight {
    pub(crate) const ZERO: Weight = Weight(0);
    pub(crate) const ONE: Weight = Weight(1000);

    /// Parses `"0" [ "." 0*3DIGIT ]` or `"1" [ "." 0*3("0") ]`.
    pub(crate) fn parse(text: &[u8]) -> Option<Weight> {
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

/// The weights of all codings in an Accept-Encoding field.
#[derive(Debug, Default)]
struct Weights {
    /// Of the listed codings.
    named: [Option<Weight>; ContentCoding::COUNT],
    /// Of the others, by `*`.
    others: Option<Weight>,
}

impl Weights {
    /// Parses all lines of the field. Invalid members are ignored.
    fn parse<'b>(lists: impl Iterator<Item = &'b [u8]>) -> Weights {
        let mut weights = Weights::default();
        for (name, weight) in lists.flat_map(list_members).filter_map(parse_member) {
            let entry = match ContentCoding::from_name(name) {
                Some(coding) => &mut weights.named[coding as usize],
                None if name == b"*" => &mut weights.others,
                None => continue,
            };
            // A coding that is listed twice and refused once is refused.
            *entry = Some(entry.map_or(weight, |before| before.min(weight)));
        }
        weights
    }

    /// A coding that is not listed is not acceptable (RFC 9110 §12.5.3, rule 3). Identity is (rule 2), but only as the
    /// last resort, so 0 is right for it too.
    fn of(&self, coding: ContentCoding) -> Weight {
        self.named[coding as usize].or(self.others).unwrap_or(Weight::ZERO)
    }
}

/// Parses `codings [ OWS ";" OWS "q=" qvalue ]`.
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
    fn coding_is_found_by_its_name() {
        assert!(ContentCoding::COMPRESSED.is_sorted_by(|left, right| left > right));
        assert!(ContentCoding::COMPRESSED.iter().all(|&coding| coding > ContentCoding::Identity));
        for coding in ContentCoding::COMPRESSED {
            assert_eq!(ContentCoding::from_name(coding.name().to_uppercase().as_bytes()), Some(coding));
        }
        assert_eq!(ContentCoding::from_name(b"X-GZip"), Some(ContentCoding::Gzip));
        for name in ["", "b", "brotli", "deflate", "*", "gzip "] {
            assert_eq!(ContentCoding::from_name(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn file_extension_of_coding_is_stripped() {
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
    fn weight_is_parsed_by_the_grammar() {
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

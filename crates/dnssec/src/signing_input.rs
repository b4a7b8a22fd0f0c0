//! The input of a signature of a zone (RFC 4034 §3.1.8.1): the RDATA of the RRSIG record without the signature, and the
//! records in canonical form. The signer writes it, and the process with the private keys checks it before it signs.

use crate::key::Algorithm;
use sanderling_dns::rdata::{has_folded_names, put_canonical_rdata};
use sanderling_dns::{Name, Rtype};

/// Bytes of the longest input: an RRset fits into a message of 64 KiB, and here each record is preceded by its owner.
pub const SIGNING_INPUT_BYTES_MAX: usize = 1 << 20;
/// The most seconds between inception and expiration: twice the usual time.
pub const VALIDITY_S_MAX: u32 = 30 * 24 * 3600;

const CLASS_IN: u16 = 1;
/// Bytes of the fields of RRSIG RDATA before the signer's name.
const HEAD_BYTES: usize = 18;
/// Bytes of type, class and TTL of a record.
const RECORD_HEAD_BYTES: usize = 8;

/// The fields of an RRSIG record before the name of the signer (RFC 4034 §3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RrsigHead {
    pub(crate) type_covered: Rtype,
    pub(crate) algorithm: u8,
    pub(crate) label_count: u8,
    pub(crate) original_ttl_s: u32,
    pub(crate) expiration: u32,
    pub(crate) inception: u32,
    pub(crate) key_tag: u16,
}

impl RrsigHead {
    /// The fields at the start of `rdata`, and the bytes after them.
    pub(crate) fn read(rdata: &[u8]) -> Option<(RrsigHead, &[u8])> {
        let (head, rest) = rdata.split_first_chunk::<HEAD_BYTES>()?;
        let u16_at = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let u32_at = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let head = RrsigHead {
            type_covered: Rtype(u16_at(0)),
            algorithm: head[2],
            label_count: head[3],
            original_ttl_s: u32_at(4),
            expiration: u32_at(8),
            inception: u32_at(12),
            key_tag: u16_at(16),
        };
        Some((head, rest))
    }

    /// Appends the fields and the name of the signer, which is in lower case.
    pub(crate) fn put(&self, signer: Name<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.type_covered.0.to_be_bytes());
        out.extend_from_slice(&[self.algorithm, self.label_count]);
        for number in [self.original_ttl_s, self.expiration, self.inception] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out.extend_from_slice(&self.key_tag.to_be_bytes());
        out.extend_from_slice(signer.as_bytes());
    }
}

/// The labels of an owner that a signature counts: neither the root nor a leading `*` (RFC 4034 §3.1.3).
pub(crate) fn label_count(owner: Name<'_>) -> u8 {
    let count = owner.labels().count() - usize::from(owner.is_wildcard());
    u8::try_from(count).expect("a name has at most 127 labels")
}

/// Appends a record in canonical form. `owner` is in lower case.
pub(crate) fn put_record(owner: Name<'_>, rtype: Rtype, ttl_s: u32, rdata: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(owner.as_bytes());
    out.extend_from_slice(&rtype.0.to_be_bytes());
    out.extend_from_slice(&CLASS_IN.to_be_bytes());
    out.extend_from_slice(&ttl_s.to_be_bytes());
    let length = u16::try_from(rdata.len()).expect("RDATA has at most 65,535 bytes");
    out.extend_from_slice(&length.to_be_bytes());
    put_canonical_rdata(rtype, rdata, out);
}

/// The reason why bytes are not signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// The input has more than [`SIGNING_INPUT_BYTES_MAX`].
    #[error("it has more than {SIGNING_INPUT_BYTES_MAX} bytes")]
    TooLong,
    /// The fields of the RRSIG record are incomplete, or of a type that is not signed.
    #[error("it does not begin with the fields of an RRSIG record")]
    Head,
    /// The fields name another key or zone.
    #[error("it belongs to another key or zone")]
    OtherKey,
    /// The signature would be valid for longer than [`VALIDITY_S_MAX`], or would never be valid.
    #[error("the signature would be valid for more than {VALIDITY_S_MAX} s, or not at all")]
    Validity,
    /// The rest is not an RRset of the zone in canonical form.
    #[error("it does not have the records of one RRset of the zone in canonical form")]
    Records,
}

/// Checks that `input` is the data that an RRSIG record of the zone `apex`, made with a key of this algorithm and tag,
/// covers: one RRset at or below the apex, in canonical form and order, with a signature that is valid for at most
/// [`VALIDITY_S_MAX`].
///
/// # Errors
/// Returns the reason why the input must not be signed.
pub fn check(input: &[u8], apex: Name<'_>, algorithm: Algorithm, key_tag: u16) -> Result<(), InputError> {
    if input.len() > SIGNING_INPUT_BYTES_MAX {
        return Err(InputError::TooLong);
    }
    let (head, rest) = RrsigHead::read(input).ok_or(InputError::Head)?;
    let signer = Name::parse(rest).map_err(|_| InputError::Head)?;
    if !head.type_covered.is_data() || head.type_covered == Rtype::RRSIG {
        return Err(InputError::Head);
    }
    if (head.algorithm, head.key_tag) != (algorithm.number(), key_tag) || signer != apex.to_lowercase().as_name() {
        return Err(InputError::OtherKey);
    }
    let validity_s = head.expiration.wrapping_sub(head.inception);
    if validity_s == 0 || validity_s > VALIDITY_S_MAX {
        return Err(InputError::Validity);
    }
    check_records(&rest[signer.length_bytes()..], &head, apex).ok_or(InputError::Records)
}

/// The records of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputRecords<'i> {
    /// The owner of all records.
    pub owner: Name<'i>,
    /// The records' type.
    pub rtype: Rtype,
    /// The records' RDATA.
    pub rdatas: Vec<&'i [u8]>,
}

/// The records in an input that [`check`] accepts; `None` for any other.
pub fn records(input: &[u8]) -> Option<InputRecords<'_>> {
    let (head, rest) = RrsigHead::read(input)?;
    let mut rest = rest.get(Name::parse(rest).ok()?.length_bytes()..)?;
    let first = Name::parse(rest).ok()?;
    let mut rdatas = Vec::new();
    while !rest.is_empty() {
        let owner = Name::parse(rest).ok().filter(|owner| *owner == first)?;
        let (length, tail) = rest.get(owner.length_bytes() + RECORD_HEAD_BYTES..)?.split_first_chunk()?;
        let (rdata, tail) = tail.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        rdatas.push(rdata);
        rest = tail;
    }
    Some(InputRecords { owner: first, rtype: head.type_covered, rdatas })
}

fn check_records(mut rest: &[u8], head: &RrsigHead, apex: Name<'_>) -> Option<()> {
    let owner = Name::parse(rest).ok()?;
    let is_lowercase = !owner.as_bytes().iter().any(u8::is_ascii_uppercase);
    if !is_lowercase || !owner.is_at_or_below(apex) || label_count(owner) != head.label_count {
        return None;
    }
    let mut start = owner.as_bytes().to_vec();
    start.extend_from_slice(&head.type_covered.0.to_be_bytes());
    start.extend_from_slice(&CLASS_IN.to_be_bytes());
    start.extend_from_slice(&head.original_ttl_s.to_be_bytes());
    debug_assert_eq!(start.len(), owner.length_bytes() + RECORD_HEAD_BYTES);
    let mut before: Option<&[u8]> = None;
    while !rest.is_empty() {
        let (length, tail) = rest.strip_prefix(&start[..])?.split_first_chunk()?;
        let (rdata, tail) = tail.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        sanderling_dns::rdata::check(head.type_covered, rdata).ok()?;
        if before.is_some_and(|before| before >= rdata) || !is_canonical(head.type_covered, rdata) {
            return None;
        }
        before = Some(rdata);
        rest = tail;
    }
    Some(())
}

fn is_canonical(rtype: Rtype, rdata: &[u8]) -> bool {
    if !has_folded_names(rtype) {
        return true;
    }
    let mut canonical = Vec::with_capacity(rdata.len());
    put_canonical_rdata(rtype, rdata, &mut canonical);
    canonical == rdata
}

#[cfg(test)]
mod tests {
    use super::*;

    const APEX: &[u8] = b"\x01z\0";

    fn head() -> RrsigHead {
        RrsigHead {
            type_covered: Rtype::A,
            algorithm: 13,
            label_count: 2,
            original_ttl_s: 60,
            expiration: 2000,
            inception: 1000,
            key_tag: 7,
        }
    }

    fn input(head: RrsigHead, owner: &[u8], rtype: Rtype, rdatas: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        head.put(Name::parse(APEX).expect("a name"), &mut out);
        for rdata in rdatas {
            put_record(Name::parse(owner).expect("a name"), rtype, 60, rdata, &mut out);
        }
        out
    }

    fn check_input(input: &[u8]) -> Result<(), InputError> {
        check(input, Name::parse(b"\x01Z\0").expect("a name"), Algorithm::EcdsaP256, 7)
    }

    #[test]
    fn an_rrset_of_the_zone_is_accepted_and_nothing_else() {
        let owner = b"\x01w\x01z\0";
        let two: [&[u8]; 2] = [&[192, 0, 2, 1], &[192, 0, 2, 2]];
        let good = input(head(), owner, Rtype::A, &two);
        assert_eq!(check_input(&good), Ok(()));
        let name = Name::parse(owner).expect("a name");
        assert_eq!(records(&good), Some(InputRecords { owner: name, rtype: Rtype::A, rdatas: two.to_vec() }));
        assert_eq!(records(&good[..good.len() - 1]), None);
        for length in 0..good.len() {
            assert!(check_input(&good[..length]).is_err() || length == good.len() - 19, "{length}");
        }
        assert_eq!(check_input(&[&good[..], b"x"].concat()), Err(InputError::Records));
        let check = |head: RrsigHead, owner: &[u8], rtype, rdatas: &[&[u8]], expected| {
            assert_eq!(check_input(&input(head, owner, rtype, rdatas)), expected);
        };
        let wildcard = RrsigHead { label_count: 1, ..head() };
        check(wildcard, b"\x01*\x01z\0", Rtype::A, &two, Ok(()));
        check(head(), b"\x01*\x01z\0", Rtype::A, &two, Err(InputError::Records));
        check(head(), owner, Rtype::A, &[two[1], two[0]], Err(InputError::Records));
        check(head(), owner, Rtype::A, &[two[0], two[0]], Err(InputError::Records));
        check(head(), owner, Rtype::AAAA, &[&[0; 16]], Err(InputError::Records));
        check(head(), owner, Rtype::A, &[&[1, 2, 3]], Err(InputError::Records));
        check(head(), owner, Rtype::A, &[], Err(InputError::Records));
        check(head(), b"\x01w\x01y\0", Rtype::A, &two, Err(InputError::Records));
        check(head(), b"\x01W\x01z\0", Rtype::A, &two, Err(InputError::Records));
        check(RrsigHead { key_tag: 8, ..head() }, owner, Rtype::A, &two, Err(InputError::OtherKey));
        check(RrsigHead { algorithm: 8, ..head() }, owner, Rtype::A, &two, Err(InputError::OtherKey));
        check(RrsigHead { expiration: 1000, ..head() }, owner, Rtype::A, &two, Err(InputError::Validity));
        let too_long = 1001 + VALIDITY_S_MAX;
        check(RrsigHead { expiration: too_long, ..head() }, owner, Rtype::A, &two, Err(InputError::Validity));
        check(RrsigHead { type_covered: Rtype::RRSIG, ..head() }, owner, Rtype::A, &two, Err(InputError::Head));
        check(RrsigHead { type_covered: Rtype::ANY, ..head() }, owner, Rtype::A, &two, Err(InputError::Head));
        let mut upper = input(RrsigHead { type_covered: Rtype::NS, ..head() }, owner, Rtype::NS, &[b"\x01w\x01z\0"]);
        assert_eq!(check_input(&upper), Ok(()));
        let at = upper.len() - 4;
        upper[at] = b'W';
        assert_eq!(check_input(&upper), Err(InputError::Records));
        assert_eq!(check_input(&vec![0; SIGNING_INPUT_BYTES_MAX + 1]), Err(InputError::TooLong));
    }
}

//! The canonical form of RDATA (RFC 4034 §6.2), which is signed and compared.
//!
//! Names in RDATA of the types of RFC 1035, and of some others, are compared as names: without regard to case (RFC 4343
//! §3). RDATA of all other types is compared byte by byte, whether a server knows the type or not (RFC 3597 §6).

use crate::text::name::Name;
use crate::text::rtype::Rtype;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::Range;

/// A field of RDATA before or between names.
enum Part {
    Bytes(usize),
    /// A length byte and bytes.
    String,
    Name,
}

/// The fields up to the last name whose letters are in lower case in canonical form (RFC 4034 §6.2, RFC 6840 §5.1).
/// The names follow one another.
fn parts(rtype: Rtype) -> &'static [Part] {
    use Part::{Bytes, Name, String};
    match rtype {
        Rtype::NS
        | Rtype::MD
        | Rtype::MF
        | Rtype::CNAME
        | Rtype::MB
        | Rtype::MG
        | Rtype::MR
        | Rtype::PTR
        | Rtype::NXT
        | Rtype::DNAME => &[Name],
        Rtype::SOA | Rtype::MINFO | Rtype::RP => &[Name, Name],
        Rtype::MX | Rtype::AFSDB | Rtype::RT | Rtype::KX => &[Bytes(2), Name],
        Rtype::PX => &[Bytes(2), Name, Name],
        Rtype::SRV => &[Bytes(6), Name],
        Rtype::NAPTR => &[Bytes(4), String, String, String, Name],
        Rtype::SIG | Rtype::RRSIG => &[Bytes(18), Name],
        _ => &[],
    }
}

/// Whether the canonical form of RDATA may have other letters than the RDATA.
pub fn has_folded_names(rtype: Rtype) -> bool {
    !parts(rtype).is_empty()
}

/// The ranges of names in RDATA that are in lower case in canonical form. For malformed RDATA, the names up to the
/// fault.
fn folded_names(rtype: Rtype, rdata: &[u8]) -> Range<usize> {
    let (mut start, mut end) = (0, 0);
    let mut has_name = false;
    for part in parts(rtype) {
        let rest = &rdata[end..];
        let length_bytes = match part {
            Part::Bytes(length_bytes) => Some(*length_bytes),
            Part::String => rest.first().map(|&length_bytes| 1 + usize::from(length_bytes)),
            Part::Name => Name::parse(rest).ok().map(Name::length_bytes),
        };
        let Some(length_bytes) = length_bytes.filter(|&length_bytes| length_bytes <= rest.len()) else { break };
        if matches!(part, Part::Name) && !has_name {
            (start, has_name) = (end, true);
        }
        end += length_bytes;
    }
    if has_name { start..end } else { 0..0 }
}

/// Appends RDATA in canonical form.
pub fn put_canonical_rdata(rtype: Rtype, rdata: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(rdata);
    let names = folded_names(rtype, rdata);
    // The length of a label is below 64, so it is not a letter.
    out[start..][names].make_ascii_lowercase();
}

/// Orders RDATA of one type by its canonical form (RFC 4034 §6.3). Records of a name with equal forms are one record.
pub(crate) fn compare(rtype: Rtype, left: &[u8], right: &[u8]) -> Ordering {
    if !has_folded_names(rtype) {
        return left.cmp(right);
    }
    folded_bytes(rtype, left).cmp(folded_bytes(rtype, right))
}

/// Whether RDATA of one type has equal canonical forms.
pub(crate) fn is_same(rtype: Rtype, left: &[u8], right: &[u8]) -> bool {
    left == right || left.len() == right.len() && compare(rtype, left, right).is_eq()
}

fn folded_bytes(rtype: Rtype, rdata: &[u8]) -> impl Iterator<Item = u8> {
    let names = folded_names(rtype, rdata);
    let fold = move |(index, byte): (usize, &u8)| {
        if names.contains(&index) { byte.to_ascii_lowercase() } else { *byte }
    };
    rdata.iter().enumerate().map(fold)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_rdata_of_old_types_are_in_lower_case() {
        let check = |rtype, rdata: &[u8], expected: &[u8]| {
            let mut out = b"X".to_vec();
            put_canonical_rdata(rtype, rdata, &mut out);
            assert_eq!(out, [b"X", expected].concat(), "{rtype}");
            assert!(is_same(rtype, rdata, expected) && compare(rtype, rdata, expected).is_eq(), "{rtype}");
            assert_eq!(has_folded_names(rtype), rdata != expected || matches!(rtype, Rtype::MX), "{rtype}");
        };
        check(Rtype::MX, b"\0A\x01B\0", b"\0A\x01b\0");
        check(Rtype::NAPTR, b"\0A\0B\x01U\x03E2U\x02!A\x01B\0", b"\0A\0B\x01U\x03E2U\x02!A\x01b\0");
        check(Rtype::SOA, b"\x01A\0\x01B\0ABCDEFGHIJKLMNOPQRST", b"\x01a\0\x01b\0ABCDEFGHIJKLMNOPQRST");
        check(Rtype::SRV, b"ABCDEF\x01B\0", b"ABCDEF\x01b\0");
        check(Rtype::SVCB, b"\0A\x01B\0", b"\0A\x01B\0");
        check(Rtype::NSEC, b"\x01B\0\0\x01A", b"\x01B\0\0\x01A");
        check(Rtype::TXT, b"\x01B", b"\x01B");
        check(Rtype::MX, b"A", b"A");
    }

    #[test]
    fn rdata_is_ordered_by_its_canonical_form() {
        assert!(compare(Rtype::MX, b"\0a\x01B\0", b"\0A\x01b\0").is_gt(), "the preference is no name");
        assert!(compare(Rtype::NS, b"\x01A\x01b\0", b"\x01a\x01C\0").is_lt());
        assert!(!is_same(Rtype::SVCB, b"\0\x01\x01B\0", b"\0\x01\x01b\0"), "RFC 3597 §6");
        assert!(!is_same(Rtype::MINFO, b"\x01a\0\x01b\0", b"\x01a\0\x01c\0"));
    }
}

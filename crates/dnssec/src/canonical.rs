//! The canonical order of names and the canonical form of RDATA (RFC 4034 §6).

use sanderling_dns::{Name, Rtype};

/// Precedes each label of a key.
const LABEL: u8 = 1;
/// Precedes a byte of a label that is not greater.
const ESCAPE: u8 = 2;

/// Appends a key of `name` to `out`: keys, compared as bytes, have the canonical order of their names. A key has no
/// byte 0 except after [`ESCAPE`], and the key of a name begins with that of each ancestor.
pub(crate) fn put_order_key(name: Name<'_>, out: &mut Vec<u8>) {
    let mut labels = [&[][..]; sanderling_dns::name::LABEL_COUNT_MAX];
    let mut count = 0;
    for label in name.labels() {
        labels[count] = label;
        count += 1;
    }
    for label in labels[..count].iter().rev() {
        out.push(LABEL);
        for &byte in *label {
            if byte <= ESCAPE {
                out.push(ESCAPE);
            }
            out.push(byte.to_ascii_lowercase());
        }
    }
}

/// Whether the name with the key `key` is below the one with the key `ancestor`.
pub(crate) fn is_below(key: &[u8], ancestor: &[u8]) -> bool {
    key.strip_prefix(ancestor).is_some_and(|rest| rest.first() == Some(&LABEL))
}

/// The keys of the names above the one with the key `key`, from the one below the name with the key `apex` on; `key` is
/// below `apex`.
pub(crate) fn keys_between<'k>(apex: &[u8], key: &'k [u8]) -> impl Iterator<Item = &'k [u8]> {
    let mut at = apex.len();
    std::iter::from_fn(move || {
        // The byte of `LABEL` at `at`.
        at += 1;
        loop {
            match *key.get(at)? {
                LABEL => return Some(&key[..at]),
                ESCAPE => at += 2,
                _ => at += 1,
            }
        }
    })
}

/// What is greater than the keys of all names below the one with the key `key`, and not greater than that of any other
/// name after it.
pub(crate) fn end_of_names_below(key: &[u8]) -> Vec<u8> {
    [key, &[LABEL + 1]].concat()
}

/// The length of a field of RDATA before or between names.
enum Part {
    Bytes(usize),
    /// A length byte and bytes.
    String,
    Name,
}

/// The fields up to the last name whose letters are in lower case in canonical form (RFC 4034 §6.2, RFC 6840 §5.1).
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
pub(crate) fn has_folded_names(rtype: Rtype) -> bool {
    !parts(rtype).is_empty()
}

/// Appends RDATA in canonical form. Malformed RDATA is appended as it is, from the fault on.
pub(crate) fn put_canonical_rdata(rtype: Rtype, rdata: &[u8], out: &mut Vec<u8>) {
    let mut rest = rdata;
    for part in parts(rtype) {
        let length = match part {
            Part::Bytes(length) => Some(*length),
            Part::String => rest.first().map(|&length| 1 + usize::from(length)),
            Part::Name => Name::parse(rest).ok().map(Name::length_bytes),
        };
        let Some((bytes, tail)) = length.and_then(|length| rest.split_at_checked(length)) else { break };
        match part {
            // The length of a label is below 64, so it is not a letter.
            Part::Name => out.extend(bytes.iter().map(u8::to_ascii_lowercase)),
            Part::Bytes(_) | Part::String => out.extend_from_slice(bytes),
        }
        rest = tail;
    }
    out.extend_from_slice(rest);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(wire: &[u8]) -> Vec<u8> {
        let mut key = Vec::new();
        put_order_key(Name::parse(wire).expect("a name"), &mut key);
        key
    }

    #[test]
    fn keys_have_the_canonical_order() {
        // RFC 4034 §6.1.
        let names: [&[u8]; 9] = [
            b"\x07example\0",
            b"\x01a\x07example\0",
            b"\x08yljkjljk\x01a\x07example\0",
            b"\x01Z\x01a\x07example\0",
            b"\x04zABC\x01a\x07EXAMPLE\0",
            b"\x01z\x07example\0",
            b"\x01\x01\x01z\x07example\0",
            b"\x01*\x01z\x07example\0",
            b"\x01\xc8\x01z\x07example\0",
        ];
        assert!(names.iter().map(|name| key(name)).is_sorted());
        let bytes: Vec<Vec<u8>> = (0..=255).map(|byte| key(&[2, b'@', byte, 1, b'z', 0])).collect();
        let is_upper = |byte: &usize| (*byte as u8).is_ascii_uppercase();
        let ordered: Vec<&Vec<u8>> = (0..=255).filter(|byte| !is_upper(byte)).map(|byte| &bytes[byte]).collect();
        assert!(ordered.is_sorted());
        assert!(is_below(&key(b"\x01b\x01a\0"), &key(b"\x01A\0")));
        assert!(!is_below(&key(b"\x02ab\0"), &key(b"\x01a\0")) && !is_below(&key(b"\x01a\0"), &key(b"\x01a\0")));
        assert!(!is_below(&key(b"\x02a\x01\0"), &key(b"\x01a\0")));
        assert!(key(b"\x01a\0") < key(b"\x01\0\x01a\0"));
        let apex = key(b"\x01a\0");
        let deep = key(b"\x01b\x03\x01\x02\x01\x01c\x01a\0");
        let between: Vec<&[u8]> = keys_between(&apex, &deep).collect();
        assert_eq!(between, [key(b"\x01c\x01a\0"), key(b"\x03\x01\x02\x01\x01c\x01a\0")]);
        assert_eq!(keys_between(&apex, &key(b"\x01c\x01a\0")).count(), 0);
        let end = end_of_names_below(&apex);
        assert!(deep < end && key(b"\x02\xff\xff\x01a\0") < end && key(b"\x02a\0\0") > end);
        assert!(key(b"\x01\0\x01a\0") < key(b"\x02a\0\0"));
    }

    #[test]
    fn names_in_rdata_of_old_types_are_in_lower_case() {
        let check = |rtype, rdata: &[u8], expected: &[u8]| {
            let mut out = Vec::new();
            put_canonical_rdata(rtype, rdata, &mut out);
            assert_eq!(out, expected, "{rtype}");
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
}

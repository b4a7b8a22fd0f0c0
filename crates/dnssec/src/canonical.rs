//! The canonical order of names (RFC 4034 §6.1). The canonical form of RDATA is in [`sanderling_dns::rdata`].

use sanderling_dns::Name;

/// Precedes each label of a key.
const LABEL: u8 = 1;
/// Precedes a byte of a label that is not greater.
const ESCAPE: u8 = 2;

/// Appends a key of `name` to `out`: keys, compared as bytes, have the canonical order of their names. A key has no
/// byte 0 except after [`ESCAPE`], and a name's key begins with the key of each ancestor.
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

/// Whether the name with the key `key` is below the name with the key `ancestor`.
pub(crate) fn is_below(key: &[u8], ancestor: &[u8]) -> bool {
    key.strip_prefix(ancestor).is_some_and(|rest| rest.first() == Some(&LABEL))
}

/// The keys of the names above `key`, starting just below `apex`; `key` is below `apex`.
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

/// A value greater than the keys of all names below the name with `key`, and not greater than the key of any later
/// name.
pub(crate) fn end_of_names_below(key: &[u8]) -> Vec<u8> {
    [key, &[LABEL + 1]].concat()
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
}

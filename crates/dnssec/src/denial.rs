//! The RDATA of NSEC and NSEC3 records (RFC 4034 §4, RFC 5155 §3), with the parameters of RFC 9276: no iterations, no
//! salt.

use data_encoding::BASE32_DNSSEC;
use sanderling_dns::{Name, NameBuf, Rtype};
use sha1::{Digest, Sha1};

/// The RDATA of the NSEC3PARAM record: SHA-1, no flags, no iterations, no salt.
pub(crate) const NSEC3PARAM: [u8; 5] = [1, 0, 0, 0, 0];
const HASH_BYTES: usize = 20;

/// The hash of the owner of an NSEC3 record.
pub(crate) type Hash = [u8; HASH_BYTES];

/// The hash of a name.
pub(crate) fn hash(name: Name<'_>) -> Hash {
    Sha1::digest(name.to_lowercase().as_name().as_bytes()).into()
}

/// The owner of the NSEC3 record with this hash; `None` if it would be too long.
pub(crate) fn nsec3_owner(hash: &Hash, apex: Name<'_>) -> Option<NameBuf> {
    let label = BASE32_DNSSEC.encode(hash);
    NameBuf::child(label.as_bytes(), apex).ok()
}

/// Writes the RDATA of an NSEC record. `next` is in lower case, `types` ascend.
pub(crate) fn put_nsec(next: Name<'_>, types: &[Rtype], out: &mut Vec<u8>) {
    out.extend_from_slice(next.as_bytes());
    put_bitmap(types, out);
}

/// The hash in the owner of an NSEC3 record.
pub(crate) fn hash_of_owner(owner: Name<'_>) -> Option<Hash> {
    let label = owner.labels().next()?.to_ascii_lowercase();
    BASE32_DNSSEC.decode(&label).ok()?.try_into().ok()
}

/// Writes the RDATA of an NSEC3 record, with a bit map of types.
pub(crate) fn put_nsec3(next: &Hash, bitmap: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&NSEC3PARAM);
    out.push(HASH_BYTES as u8);
    out.extend_from_slice(next);
    out.extend_from_slice(bitmap);
}

/// The bit map of types in the RDATA of an NSEC3 record that [`put_nsec3`] has written.
pub(crate) fn bitmap_of_nsec3(rdata: &[u8]) -> Option<&[u8]> {
    rdata.get(NSEC3PARAM.len() + 1 + HASH_BYTES..)
}

/// Appends a bit map of types, which ascend (RFC 4034 §4.1.2).
pub(crate) fn put_bitmap(types: &[Rtype], out: &mut Vec<u8>) {
    for window_types in types.chunk_by(|left, right| left.0 >> 8 == right.0 >> 8) {
        let mut bits = [0_u8; 32];
        let mut length = 0;
        for rtype in window_types {
            let bit = rtype.0 & 0xff;
            bits[usize::from(bit / 8)] |= 0x80 >> (bit % 8);
            length = usize::from(bit / 8) + 1;
        }
        out.extend_from_slice(&[(window_types[0].0 >> 8) as u8, length as u8]);
        out.extend_from_slice(&bits[..length]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_dns::rdata::PresentationFormat;

    #[test]
    fn bit_maps_are_those_of_the_rfc() {
        // RFC 4034 §4.3.
        let types = [Rtype::A, Rtype::MX, Rtype::RRSIG, Rtype::NSEC, Rtype(1234)];
        let mut rdata = Vec::new();
        put_nsec(Name::parse(b"\x04host\x07example\x03com\0").expect("a name"), &types, &mut rdata);
        let mut expected = b"\x04host\x07example\x03com\0\0\x06\x40\x01\0\0\0\x03\x04\x1b".to_vec();
        expected.extend_from_slice(&[0; 26]);
        expected.push(0x20);
        assert_eq!(rdata, expected);
        let text = PresentationFormat::new(Rtype::NSEC, &rdata).to_string();
        assert_eq!(text, "host.example.com. A MX RRSIG NSEC TYPE1234");
    }

    #[test]
    fn an_nsec3_record_has_no_salt_and_no_iterations() {
        let mut rdata = Vec::new();
        put_nsec3(&hash(Name::parse(b"\x07EXAMPLE\0").expect("a name")), &[], &mut rdata);
        let text = PresentationFormat::new(Rtype::NSEC3, &rdata).to_string();
        // `ldns-nsec3-hash -t 0 example`
        assert_eq!(text, "1 0 0 - 3msev9usmd4br9s97v51r2tdvmr9iqo1");
        let owner = nsec3_owner(&hash(Name::parse(b"\x07example\0").expect("a name")), Name::ROOT).expect("short");
        assert_eq!(owner.as_name().to_string(), "3msev9usmd4br9s97v51r2tdvmr9iqo1.");
        assert_eq!(hash_of_owner(owner.as_name()), Some(hash(Name::parse(b"\x07example\0").expect("a name"))));
        assert_eq!(bitmap_of_nsec3(&rdata), Some(&[][..]));
    }
}

//! The digest of all records of a zone (RFC 8976): with SHA-384 over the records in canonical order.

use crate::records::{Record, Records};
use crate::signing_input::{RrsigHead, put_record};
use sanderling_dns::rdata::serial_of;
use sanderling_dns::{Name, Rtype};
use sha2::{Digest, Sha384};

/// The scheme SIMPLE and the hash algorithm SHA-384.
const SCHEME_SIMPLE: u8 = 1;
const SHA384: u8 = 1;
const HEAD_BYTES: usize = 6;

/// Checks whether a zone matches its ZONEMD record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZonemdResult {
    /// The apex has no ZONEMD record with a known scheme and hash algorithm for the serial.
    Absent,
    /// The digest matches the zone.
    Verified,
    /// The digest differs.
    Mismatch,
}

/// Checks the ZONEMD records with SHA-384 at the apex (RFC 8976 §4). The signatures are not checked.
pub fn verify(records: &Records, apex: Name<'_>) -> ZonemdResult {
    let soa = records.rrset(apex, Rtype::SOA).and_then(|rrset| rrset.rdatas().next());
    let Some(serial) = soa.and_then(serial_of) else { return ZonemdResult::Absent };
    let Some(rrset) = records.rrset(apex, Rtype::ZONEMD) else { return ZonemdResult::Absent };
    let expected = rdata(records.iter(), apex, serial);
    let is_known = |rdata: &&[u8]| rdata.get(..HEAD_BYTES) == Some(&expected[..HEAD_BYTES]);
    let mut known = rrset.rdatas().filter(is_known);
    match (known.next(), known.next()) {
        (Some(rdata), None) if rdata == expected => ZonemdResult::Verified,
        (Some(_), None) => ZonemdResult::Mismatch,
        // RFC 8976 §2: several records with the same scheme and hash algorithm are not used.
        (None, _) | (Some(_), Some(_)) => ZonemdResult::Absent,
    }
}

/// The RDATA of the ZONEMD record of a zone with this serial and these records, in canonical order.
pub(crate) fn rdata<'r>(records: impl Iterator<Item = Record<'r>>, apex: Name<'_>, serial: u32) -> Vec<u8> {
    let mut hash = Sha384::new();
    let mut buffer = Vec::new();
    for record in records {
        let covered = RrsigHead::read(record.rdata).filter(|_| record.rtype == Rtype::RRSIG);
        let rtype = covered.map_or(record.rtype, |(head, _)| head.type_covered);
        // RFC 8976 §3.3.1: the record cannot cover itself or its signature.
        if rtype == Rtype::ZONEMD && record.owner.eq_ignore_case(apex) {
            continue;
        }
        buffer.clear();
        put_record(record.owner.to_lowercase().as_name(), record.rtype, record.ttl_s, record.rdata, &mut buffer);
        hash.update(&buffer);
    }
    let mut rdata = serial.to_be_bytes().to_vec();
    rdata.extend_from_slice(&[SCHEME_SIMPLE, SHA384]);
    rdata.extend_from_slice(&hash.finalize());
    rdata
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{apex, records};

    /// RFC 8976 appendix A.1 and A.2.
    #[test]
    fn digests_are_those_of_the_rfc() {
        let simple = "example. 86400 IN SOA ns1 admin 2018031900 1800 900 604800 86400\n\
            example. 86400 IN NS ns1\nexample. 86400 IN NS ns2\nns1 3600 IN A 203.0.113.63\nns2 3600 IN AAAA 2001:db8::63\n";
        let digest = "c68090d90a7aed716bc459f9340e3d7c1370d4d24b7e2fc3a1ddc0b9a87153b9a9713b3c9ae5cc27777f98b8e730044c";
        let zonemd = format!("example. 86400 IN ZONEMD 2018031900 1 1 {digest}\n");
        let apex = apex("example.");
        let check = |text: &str, expected| assert_eq!(verify(&records(apex.as_name(), text), apex.as_name()), expected);
        check(simple, ZonemdResult::Absent);
        check(&format!("{simple}{zonemd}"), ZonemdResult::Verified);
        check(&format!("{simple}{zonemd}x TXT x\n"), ZonemdResult::Mismatch);
        check(&format!("{simple}{}", zonemd.replace("1900", "1901")), ZonemdResult::Absent);
    }
}

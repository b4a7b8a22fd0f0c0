//! The inputs that the keeper signs for a zone: RRSIG data without the signature, followed by the records of one RRset
//! (RFC 4034 §3.1.8.1). All else is refused, so that a key of a zone signs neither a handshake nor a record of another
//! zone.

use sanderling_config::DomainName;
use sanderling_dns::{Name, NameBuf, RecordSource, Rtype};
use sanderling_dnssec::signing_input::{self, InputRecords, VALIDITY_S_MAX};
use sanderling_dnssec::zone_keys::{CDNSKEY_DELETE, CDS_DELETE};
use sanderling_dnssec::{Algorithm, KeyRole, PublicKey};
use sanderling_ipc::zone_signing::ZoneKey;

/// The position of the expiration in RRSIG data.
const EXPIRATION_AT: usize = 8;

/// A key, as its signatures name it.
#[derive(Clone, Debug)]
pub(crate) struct SigningKeyName {
    apex: NameBuf,
    algorithm: Algorithm,
    /// The tag of a key depends on its role.
    tags: [u16; 2],
}

impl SigningKeyName {
    /// `None` for an algorithm that does not sign zones.
    pub(crate) fn new(zone: &DomainName, key: &ZoneKey) -> Option<SigningKeyName> {
        let labels: Vec<&[u8]> = zone.labels().map(str::as_bytes).collect();
        let apex = NameBuf::joined(&labels, Name::ROOT).ok()?;
        let keys = public_keys(key)?;
        Some(SigningKeyName { apex, algorithm: keys[0].algorithm, tags: keys.map(|key| key.tag()) })
    }

    /// Checks that this key may sign `input`, and that the signature will not be valid for too long from now on.
    ///
    /// # Errors
    /// Returns the reason why the key does not sign the input.
    pub(crate) fn check(&self, input: &[u8], now_unix_s: u64) -> Result<(), String> {
        let check = |tag| signing_input::check(input, self.apex.as_name(), self.algorithm, tag);
        check(self.tags[0]).or_else(|_| check(self.tags[1])).map_err(|error| error.to_string())?;
        let expiration = input[EXPIRATION_AT..].first_chunk().expect("it has the form of RRSIG data");
        // Times wrap around (RFC 4034 §3.1.5).
        let from_now = u32::from_be_bytes(*expiration).wrapping_sub(now_unix_s as u32).cast_signed();
        match from_now {
            ..=0 => Err("the signature would have expired".to_owned()),
            1.. if from_now.cast_unsigned() > VALIDITY_S_MAX => {
                Err("the signature would be valid for too long".to_owned())
            }
            1.. => Ok(()),
        }
    }

    /// The records in `input` if they name keys of the zone: DNSKEY, CDS and CDNSKEY records of the apex. At other
    /// names they are data, which no resolver takes for keys of this zone (RFC 4035 §5.3.1).
    pub(crate) fn naming_keys<'i>(&self, input: &'i [u8]) -> Option<InputRecords<'i>> {
        let records = signing_input::records(input)?;
        let is_apex = records.owner.eq_ignore_case(self.apex.as_name());
        (RecordSource::of(records.rtype, is_apex) == RecordSource::Keys).then_some(records)
    }

    /// Checks that `records` of [`naming_keys`](Self::naming_keys) name only keys in `known`: if the keeper signed
    /// another key, its owner could sign the zone without the keeper.
    ///
    /// # Errors
    /// Returns an error if the records name another key.
    pub(crate) fn check_named_keys(&self, records: &InputRecords<'_>, known: &[ZoneKey]) -> Result<(), String> {
        let known = || known.iter().filter_map(public_keys).flatten();
        let is_known = |rdata: &&[u8]| match records.rtype {
            Rtype::CDS => known().any(|key| key.ds(self.apex.as_name()).rdata() == **rdata),
            _ => known().any(|key| key.rdata() == **rdata),
        };
        if records.rdatas.iter().all(is_known) {
            return Ok(());
        }
        Err(format!(
            "a {} record refers to a key that the keeper does not have; remove that record, or add the servers of the \
                other signer to `other_signers`",
            records.rtype
        ))
    }
}

/// Whether an input may be of records that name keys of the zone, so that these keys must be known.
pub(crate) fn may_name_keys(input: &[u8]) -> bool {
    let rtype = input.first_chunk().map(|rtype| Rtype(u16::from_be_bytes(*rtype)));
    rtype.is_some_and(|rtype| RecordSource::of(rtype, true) == RecordSource::Keys)
}

/// Whether records that name keys ask the parent zone to remove all DS records (RFC 8078 §4), and nothing else.
pub(crate) fn asks_for_removal(records: &InputRecords<'_>) -> bool {
    match records.rtype {
        Rtype::CDS => records.rdatas == [&CDS_DELETE[..]],
        Rtype::CDNSKEY => records.rdatas == [&CDNSKEY_DELETE[..]],
        _ => false,
    }
}

/// The key as one with the flag SEP, and as one without; `None` for an algorithm that does not sign zones.
fn public_keys(key: &ZoneKey) -> Option<[PublicKey; 2]> {
    let algorithms = [Algorithm::RsaSha256, Algorithm::EcdsaP256, Algorithm::Ed25519];
    let algorithm = algorithms.into_iter().find(|known| known.number() == key.algorithm)?;
    let of_role = |role| PublicKey { algorithm, role, bytes: key.public_key.clone() };
    Some([KeyRole::Csk, KeyRole::Zsk].map(of_role))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;
    const PUBLIC_KEY: &[u8] = &[7; 64];

    fn zone_key(algorithm: u8, public_key: &[u8]) -> ZoneKey {
        ZoneKey { id: [0; 32], algorithm, public_key: public_key.to_vec() }
    }

    /// A TXT record of `owner` in `a.test`, signed from `now` on.
    fn input(owner: &[u8], labels: u8, role: KeyRole, now: u64) -> Vec<u8> {
        let tag = PublicKey { algorithm: Algorithm::EcdsaP256, role, bytes: PUBLIC_KEY.to_vec() }.tag();
        let times = [now as u32 + 14 * 24 * 3600, now as u32 - 3600].map(u32::to_be_bytes).concat();
        let head = [&[0, 16, 13, labels, 0, 0, 1, 44][..], &times, &tag.to_be_bytes(), b"\x01a\x04test\0"].concat();
        [&head, owner, &[0, 16, 0, 1, 0, 0, 1, 44, 0, 2, 1, b'x']].concat()
    }

    #[test]
    fn records_of_the_zone_are_signed_and_nothing_else() {
        let zone = DomainName::parse("a.test").expect("a name");
        assert!(SigningKeyName::new(&zone, &zone_key(5, PUBLIC_KEY)).is_none());
        let key = SigningKeyName::new(&zone, &zone_key(13, PUBLIC_KEY)).expect("a known algorithm");
        for role in [KeyRole::Csk, KeyRole::Ksk, KeyRole::Zsk] {
            assert_eq!(key.check(&input(b"\x03www\x01a\x04test\0", 3, role, NOW), NOW), Ok(()));
        }
        let of_another_zone = input(b"\x01b\x04test\0", 2, KeyRole::Csk, NOW);
        let handshake = [&[b' '; 64][..], b"TLS 1.3, server CertificateVerify\0", &[7; 32]].concat();
        for wrong in [&of_another_zone[..], &handshake, b""] {
            key.check(wrong, NOW).expect_err("refused");
        }
        let other = SigningKeyName::new(&zone, &zone_key(13, &[8; 64])).expect("a known algorithm");
        other.check(&input(b"\x01a\x04test\0", 2, KeyRole::Csk, NOW), NOW).expect_err("another key");
    }

    #[test]
    fn signature_of_the_distant_future_is_refused() {
        let zone = DomainName::parse("a.test").expect("a name");
        let key = SigningKeyName::new(&zone, &zone_key(13, PUBLIC_KEY)).expect("known");
        let (later, problem) = (NOW + u64::from(VALIDITY_S_MAX), "the signature would be valid for too long");
        let input = input(b"\x01a\x04test\0", 2, KeyRole::Csk, later);
        assert_eq!(key.check(&input, NOW), Err(problem.to_owned()));
        assert_eq!(key.check(&input, later), Ok(()));
        for over in [14 * 24 * 3600, 1 << 31] {
            key.check(&input, later + over).expect_err("expired, or so far ahead that it seems so");
        }
    }

    #[test]
    fn records_name_only_keys_of_the_keeper() {
        let (zone, ours) = (DomainName::parse("a.test").expect("a name"), zone_key(13, PUBLIC_KEY));
        let key = SigningKeyName::new(&zone, &ours).expect("known");
        let [public, _] = public_keys(&ours).expect("known");
        let [other, _] = public_keys(&zone_key(13, &[8; 64])).expect("known");
        let input_of = |owner: &[u8], rtype: Rtype, rdatas: &[Vec<u8>]| {
            let head = [&rtype.0.to_be_bytes()[..], &[13, 2], &[0; 14], b"\x01a\x04test\0"].concat();
            let record = |rdata: &Vec<u8>| {
                let start = [owner, &rtype.0.to_be_bytes()[..], &[0, 1, 0, 0, 0, 0]].concat();
                [&start[..], &(rdata.len() as u16).to_be_bytes(), rdata].concat()
            };
            [head, rdatas.iter().flat_map(record).collect()].concat()
        };
        let input = |rtype: Rtype, rdatas: &[Vec<u8>]| input_of(b"\x01a\x04test\0", rtype, rdatas);
        let check = |input: &[u8]| {
            let naming = key.naming_keys(input).expect("they name keys");
            key.check_named_keys(&naming, std::slice::from_ref(&ours))
        };
        let ds = |public: &PublicKey| public.ds(key.apex.as_name()).rdata();
        for (rtype, good, bad) in [
            (Rtype::DNSKEY, public.rdata(), other.rdata()),
            (Rtype::CDNSKEY, public.rdata(), other.rdata()),
            (Rtype::CDS, ds(&public), ds(&other)),
        ] {
            // At another name they are data (RFC 9615), which need no key.
            let of_other_name = input_of(b"\x01b\x01a\x04test\0", rtype, std::slice::from_ref(&bad));
            assert_eq!(key.naming_keys(&of_other_name), None, "{rtype}");
            let (good, both) = (input(rtype, std::slice::from_ref(&good)), input(rtype, &[good, bad]));
            assert!(may_name_keys(&good));
            assert_eq!(check(&good), Ok(()));
            check(&both).expect_err("a key of another");
        }
        let txt = input(Rtype::TXT, &[b"\x01x".to_vec()]);
        assert!(!may_name_keys(&txt) && key.naming_keys(&txt).is_none());
        let delete = [0, 0, 3, 0, 0].to_vec();
        for (rtype, rdatas, expected) in [
            (Rtype::CDS, vec![vec![0; 5]], true),
            (Rtype::CDNSKEY, vec![delete.clone()], true),
            (Rtype::CDS, vec![vec![0; 5], ds(&public)], false),
            (Rtype::CDS, vec![ds(&public)], false),
            (Rtype::DNSKEY, vec![delete], false),
        ] {
            let input = input(rtype, &rdatas);
            assert_eq!(asks_for_removal(&key.naming_keys(&input).expect("they name keys")), expected, "{rtype}");
        }
    }
}

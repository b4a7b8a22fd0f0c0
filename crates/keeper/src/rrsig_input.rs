//! What the keeper signs for a zone: RRSIG data without the signature, followed by the records of one RRset (RFC 4034 §3.1.8.1). All else is
//! refused, so that a key of a zone signs neither a handshake nor a record of another zone.

use sanderling_config::DomainName;
use sanderling_dns::{Name, NameBuf};
use sanderling_dnssec::signing_input::{self, VALIDITY_S_MAX};
use sanderling_dnssec::{Algorithm, KeyRole, PublicKey};

/// Where RRSIG data has the expiration.
const EXPIRATION_AT: usize = 8;

/// A key, as its signatures name it.
#[derive(Clone, Debug)]
pub(crate) struct SigningKeyName {
    apex: NameBuf,
    algorithm: Algorithm,
    /// The tag of a key depends on what it is used for.
    tags: [u16; 2],
}

impl SigningKeyName {
    /// `None` for an algorithm that does not sign zones.
    pub(crate) fn new(zone: &DomainName, algorithm: u8, public_key: &[u8]) -> Option<SigningKeyName> {
        let algorithms = [Algorithm::RsaSha256, Algorithm::EcdsaP256, Algorithm::Ed25519];
        let algorithm = algorithms.into_iter().find(|known| known.number() == algorithm)?;
        let labels: Vec<&[u8]> = zone.labels().map(str::as_bytes).collect();
        let tag = |role| PublicKey { algorithm, role, bytes: public_key.to_vec() }.tag();
        let apex = NameBuf::joined(&labels, Name::ROOT).ok()?;
        Some(SigningKeyName { apex, algorithm, tags: [KeyRole::Csk, KeyRole::Zsk].map(tag) })
    }

    /// Checks that `input` is what this key signs, and that the signature will not be valid for too long from now on.
    ///
    /// # Errors
    /// Why it is not.
    pub(crate) fn check(&self, input: &[u8], now_unix_s: u64) -> Result<(), String> {
        let check = |tag| signing_input::check(input, self.apex.as_name(), self.algorithm, tag);
        check(self.tags[0]).or_else(|_| check(self.tags[1])).map_err(|error| error.to_string())?;
        let expiration = input[EXPIRATION_AT..].first_chunk().expect("it has the form of RRSIG data");
        // Times wrap around (RFC 4034 §3.1.5).
        let from_now = u32::from_be_bytes(*expiration).wrapping_sub(now_unix_s as u32).cast_signed();
        match i64::from(from_now) <= i64::from(VALIDITY_S_MAX) {
            true => Ok(()),
            false => Err("the signature would be valid for too long".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;
    const PUBLIC_KEY: &[u8] = &[7; 64];

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
        assert!(SigningKeyName::new(&zone, 5, PUBLIC_KEY).is_none());
        let key = SigningKeyName::new(&zone, 13, PUBLIC_KEY).expect("a known algorithm");
        for role in [KeyRole::Csk, KeyRole::Ksk, KeyRole::Zsk] {
            assert_eq!(key.check(&input(b"\x03www\x01a\x04test\0", 3, role, NOW), NOW), Ok(()));
        }
        let of_another_zone = input(b"\x01b\x04test\0", 2, KeyRole::Csk, NOW);
        let handshake = [&[b' '; 64][..], b"TLS 1.3, server CertificateVerify\0", &[7; 32]].concat();
        for wrong in [&of_another_zone[..], &handshake, b""] {
            key.check(wrong, NOW).expect_err("refused");
        }
        let other = SigningKeyName::new(&zone, 13, &[8; 64]).expect("a known algorithm");
        other.check(&input(b"\x01a\x04test\0", 2, KeyRole::Csk, NOW), NOW).expect_err("another key");
    }

    #[test]
    fn signature_of_the_distant_future_is_refused() {
        let key = SigningKeyName::new(&DomainName::parse("a.test").expect("a name"), 13, PUBLIC_KEY).expect("known");
        let (later, problem) = (NOW + u64::from(VALIDITY_S_MAX), "the signature would be valid for too long");
        let input = input(b"\x01a\x04test\0", 2, KeyRole::Csk, later);
        assert_eq!(key.check(&input, NOW), Err(problem.to_owned()));
        assert_eq!(key.check(&input, later), Ok(()));
    }
}

//! A certificate for this machine, for trials without a certificate authority. Clients do not trust it.

use crate::certificate::Certificate;
use crate::certificate_error::CertificateError;
use crate::der::{
    self, BIT_STRING, COMMON_NAME, DNS_NAME, INTEGER, IP_ADDRESS, OBJECT_ID, OCTET_STRING, SEQUENCE, SET,
    SUBJECT_ALTERNATIVE_NAME, UTF8_STRING, element,
};
use crate::provider::library::rand::{SecureRandom, SystemRandom};
use crate::provider::library::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use crate::provider::load_key;
use rustls::SignatureScheme;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The validity of the certificate in seconds.
const VALID_S: u64 = 30 * 86_400;
/// The time in seconds for which it is already valid, for clients whose clock is behind.
const VALID_BEFORE_S: u64 = 86_400;
/// ecdsa-with-SHA256 (RFC 5758 §3.2).
const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
/// This machine's addresses.
const LOOPBACK: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// A new ECDSA key, and a certificate for `localhost`, 127.0.0.1 and ::1 that is signed by it.
pub fn localhost(now_unix_s: u64) -> Result<Certificate, CertificateError> {
    localhost_with(now_unix_s, &LOOPBACK)
}

/// A certificate for `localhost` and these addresses.
pub(crate) fn localhost_with(now_unix_s: u64, addresses: &[IpAddr]) -> Result<Certificate, CertificateError> {
    let random = SystemRandom::new();
    let no_random = |_| CertificateError::UnsupportedKey("there are no random numbers".into());
    let mut serial = [0; 16];
    random.fill(&mut serial).map_err(no_random)?;
    // Positive, and without a leading zero (RFC 5280 §4.1.2.2).
    serial[0] = serial[0] & 0x7f | 0x40;
    let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).map_err(no_random)?;
    let unsupported = |error: rustls::Error| CertificateError::UnsupportedKey(error.to_string());
    let key = load_key(&PrivateKeyDer::from(PrivatePkcs8KeyDer::from(pkcs8.as_ref()))).map_err(unsupported)?;
    let public_key = key.public_key().expect("the key is in this process");

    let algorithm = element(SEQUENCE, &[&element(OBJECT_ID, &[ECDSA_WITH_SHA256])]);
    let name = element(SEQUENCE, &[&element(OBJECT_ID, &[COMMON_NAME]), &element(UTF8_STRING, &[b"localhost"])]);
    let name = element(SEQUENCE, &[&element(SET, &[&name])]);
    let validity =
        [der::time(now_unix_s.saturating_sub(VALID_BEFORE_S)), der::time(now_unix_s.saturating_add(VALID_S))];
    let to_be_signed = element(
        SEQUENCE,
        &[
            // Version 3.
            &element(0xa0, &[&element(INTEGER, &[&[2]])]),
            &element(INTEGER, &[&serial]),
            &algorithm,
            &name,
            &element(SEQUENCE, &[&validity[0], &validity[1]]),
            &name,
            public_key.as_ref(),
            &element(0xa3, &[&element(SEQUENCE, &[&alternative_names(addresses)])]),
        ],
    );
    let signer = key.choose_scheme(&[SignatureScheme::ECDSA_NISTP256_SHA256]).expect("the scheme of the key");
    let signature = signer.sign(&to_be_signed).map_err(unsupported)?;
    let certificate = element(SEQUENCE, &[&to_be_signed, &algorithm, &element(BIT_STRING, &[&[0], &signature])]);
    Certificate::new(vec![CertificateDer::from(certificate)], key)
}

fn alternative_names(addresses: &[IpAddr]) -> Vec<u8> {
    let of_address = |address: &IpAddr| match address {
        IpAddr::V4(address) => element(IP_ADDRESS, &[&address.octets()]),
        IpAddr::V6(address) => element(IP_ADDRESS, &[&address.octets()]),
    };
    let names: Vec<u8> = addresses.iter().flat_map(of_address).collect();
    let names = element(SEQUENCE, &[&element(DNS_NAME, &[b"localhost"]), &names]);
    element(SEQUENCE, &[&element(OBJECT_ID, &[SUBJECT_ALTERNATIVE_NAME]), &element(OCTET_STRING, &[&names])])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate_error::CertificateProblem;

    const NOW_UNIX_S: u64 = 1_800_000_000;

    #[test]
    fn certificate_is_valid_for_this_machine_alone() {
        let certificate = localhost(NOW_UNIX_S).expect("random numbers");
        assert_eq!(certificate.problems(NOW_UNIX_S, ["localhost", "127.0.0.1", "::1"]), []);
        let elsewhere = certificate.problems(NOW_UNIX_S, ["example.com", "127.0.0.2"]);
        let missing = ["example.com", "127.0.0.2"].map(|name| CertificateProblem::MissingName(name.into()));
        assert_eq!(elsewhere, missing);
        assert_eq!((certificate.key_type(), certificate.issuer()), ("ECDSA", "localhost"));
        assert_eq!(certificate.names().collect::<Vec<_>>(), ["localhost", "127.0.0.1", "::1"]);
        assert_eq!(certificate.not_after_unix_s(), NOW_UNIX_S + VALID_S);
    }

    #[test]
    fn certificate_is_valid_for_a_time() {
        let certificate = localhost(NOW_UNIX_S).expect("random numbers");
        let problems = |unix_s| certificate.problems(unix_s, []);
        assert_eq!(problems(NOW_UNIX_S - VALID_BEFORE_S), []);
        assert_eq!(problems(NOW_UNIX_S - VALID_BEFORE_S - 5), [CertificateProblem::NotYetValid { in_s: 5 }]);
        let lifetime_s = VALID_BEFORE_S + VALID_S;
        assert_eq!(problems(NOW_UNIX_S + VALID_S - lifetime_s / 3), []);
        let soon = |in_s| [CertificateProblem::ExpiresSoon { in_s }];
        assert_eq!(problems(NOW_UNIX_S + VALID_S - lifetime_s / 3 + 1), soon(lifetime_s / 3 - 1));
        assert_eq!(problems(NOW_UNIX_S + VALID_S), soon(0));
        assert_eq!(problems(NOW_UNIX_S + VALID_S + 5), [CertificateProblem::Expired { since_s: 5 }]);
    }

    #[test]
    fn each_certificate_has_a_key_of_its_own() {
        let spki = || localhost(NOW_UNIX_S).expect("random numbers").certified().key.public_key().map(|it| it.to_vec());
        assert_ne!(spki(), spki());
    }
}

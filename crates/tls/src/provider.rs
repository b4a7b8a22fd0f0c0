//! The cryptography: one of two libraries behind rustls, chosen when the program is built.

#[cfg(feature = "aws-lc-rs")]
pub(crate) use aws_lc_rs as library;
#[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
pub(crate) use ring as library;
#[cfg(feature = "aws-lc-rs")]
use rustls::crypto::aws_lc_rs as backend;
#[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
use rustls::crypto::ring as backend;

use rustls::CipherSuite;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::SigningKey;
use std::sync::Arc;

/// The order in which a session prefers cipher suites. All have authenticated encryption (AEAD).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SuiteOrder {
    /// AES with 128-bit keys: the hash for 256-bit keys, SHA-384, makes a handshake 40 to 57 µs longer.
    Aes128First,
    /// ChaCha20, for clients that prefer it because their processors have no AES.
    ChaCha20First,
}

impl SuiteOrder {
    pub(crate) const ALL: [SuiteOrder; 2] = [SuiteOrder::Aes128First, SuiteOrder::ChaCha20First];

    /// The order for a client with these suites, the preferred one first.
    pub(crate) fn for_client(suites: &[CipherSuite]) -> SuiteOrder {
        match suites.iter().find_map(|suite| Aead::of(*suite)) {
            Some(Aead::ChaCha20) => SuiteOrder::ChaCha20First,
            Some(Aead::Aes128 | Aead::Aes256) | None => SuiteOrder::Aes128First,
        }
    }

    fn rank(self, aead: Option<Aead>) -> u8 {
        match (aead, self) {
            (Some(Aead::ChaCha20), SuiteOrder::ChaCha20First) => 0,
            (Some(Aead::Aes128), _) => 1,
            (Some(Aead::Aes256), _) => 2,
            (Some(Aead::ChaCha20), SuiteOrder::Aes128First) => 3,
            (None, _) => 4,
        }
    }
}

/// The encryption of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aead {
    Aes128,
    Aes256,
    ChaCha20,
}

impl Aead {
    /// `None`: the suite is not one of the server's.
    fn of(suite: CipherSuite) -> Option<Aead> {
        match suite {
            CipherSuite::TLS13_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => Some(Aead::Aes128),
            CipherSuite::TLS13_AES_256_GCM_SHA384
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
            | CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => Some(Aead::Aes256),
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
            | CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
            | CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => Some(Aead::ChaCha20),
            _ => None,
        }
    }
}

/// The cipher suites in this order, and the key exchanges. A session uses the first key exchange of the client that is
/// among them: most clients that have X25519MLKEM768 ask for it first.
pub(crate) fn provider(order: SuiteOrder) -> Arc<CryptoProvider> {
    let mut provider = backend::default_provider();
    // The sort is stable: TLS 1.3 suites stay before TLS 1.2 suites.
    provider.cipher_suites.sort_by_key(|suite| order.rank(Aead::of(suite.suite())));
    Arc::new(provider)
}

/// A key of any supported type and format.
pub(crate) fn load_key(der: &PrivateKeyDer<'_>) -> Result<Arc<dyn SigningKey>, rustls::Error> {
    backend::sign::any_supported_type(der)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_suite_of_the_library_has_a_rank() {
        for suite in provider(SuiteOrder::Aes128First).cipher_suites.iter() {
            assert!(Aead::of(suite.suite()).is_some(), "{suite:?}");
        }
    }
}

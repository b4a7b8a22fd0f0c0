//! TLS clients that accept every certificate: the certificate itself, or the clock that it is compared with, is what is
//! looked at. Nothing else may rely on their connections.

use rustls::ClientConfig;
use rustls::crypto::CryptoProvider;
use sanderling_tls::{ClientTls, Trust};
use std::sync::Arc;

/// The library with the cryptography.
pub(crate) fn crypto_provider() -> CryptoProvider {
    #[cfg(feature = "aws-lc-rs")]
    return rustls::crypto::aws_lc_rs::default_provider();
    #[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
    return rustls::crypto::ring::default_provider();
}

/// The configuration of a client that accepts every certificate.
pub(crate) fn unverified_config() -> Arc<ClientConfig> {
    ClientTls::new(Trust::Anything, None).expect("only roots can be missing").config()
}

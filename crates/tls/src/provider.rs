//! The cryptography: one of two libraries behind rustls, chosen when the program is built.

#[cfg(feature = "aws-lc-rs")]
pub(crate) use aws_lc_rs as library;
#[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
pub(crate) use ring as library;
#[cfg(feature = "aws-lc-rs")]
use rustls::crypto::aws_lc_rs as backend;
#[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
use rustls::crypto::ring as backend;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::PrivateKeyDer;
use rustls::sign::SigningKey;
use std::sync::Arc;

/// The cipher suites, all with authenticated encryption (AEAD), and the key exchanges. A session uses the first ones of
/// the client that are among them, in the client's order: most that have X25519MLKEM768 ask for it first.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(backend::default_provider())
}

/// A key of any supported type and format.
pub(crate) fn load_key(der: &PrivateKeyDer<'_>) -> Result<Arc<dyn SigningKey>, rustls::Error> {
    backend::sign::any_supported_type(der)
}

//! The cryptography of zone keys: one of two libraries with the same interface, chosen when the program is built.

#[cfg(feature = "aws-lc-rs")]
pub(crate) use aws_lc_rs as library;
#[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
pub(crate) use ring as library;

use library::error::KeyRejected;
use library::signature::{EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, RsaKeyPair};
use zeroize::Zeroizing;

/// A new RSA key of 2048 bits, as PKCS#8.
#[cfg(feature = "aws-lc-rs")]
pub(crate) fn make_rsa_key() -> Result<Zeroizing<Vec<u8>>, String> {
    use aws_lc_rs::encoding::AsDer;
    use aws_lc_rs::rsa::KeySize;
    let failed = |_| "the key could not be generated".to_owned();
    let pair = RsaKeyPair::generate(KeySize::Rsa2048).map_err(failed)?;
    let der: aws_lc_rs::encoding::Pkcs8V1Der<'_> = pair.as_der().map_err(failed)?;
    Ok(Zeroizing::new(der.as_ref().to_vec()))
}

/// The library makes no RSA keys.
#[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
pub(crate) fn make_rsa_key() -> Result<Zeroizing<Vec<u8>>, String> {
    Err("this program's cryptography library cannot generate RSA keys; use ecdsap256sha256 or ed25519".to_owned())
}

#[cfg(feature = "aws-lc-rs")]
pub(crate) fn rsa_signature_bytes(pair: &RsaKeyPair) -> usize {
    pair.public_modulus_len()
}

#[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
pub(crate) fn rsa_signature_bytes(pair: &RsaKeyPair) -> usize {
    pair.public().modulus_len()
}

#[cfg(feature = "aws-lc-rs")]
pub(crate) fn ecdsa_key(algorithm: &'static EcdsaSigningAlgorithm, der: &[u8]) -> Result<EcdsaKeyPair, KeyRejected> {
    EcdsaKeyPair::from_pkcs8(algorithm, der)
}

#[cfg(all(feature = "ring", not(feature = "aws-lc-rs")))]
pub(crate) fn ecdsa_key(algorithm: &'static EcdsaSigningAlgorithm, der: &[u8]) -> Result<EcdsaKeyPair, KeyRejected> {
    EcdsaKeyPair::from_pkcs8(algorithm, der, &ring::rand::SystemRandom::new())
}

/// Other programs write keys without their public part.
pub(crate) fn ed25519_key(der: &[u8]) -> Result<Ed25519KeyPair, KeyRejected> {
    Ed25519KeyPair::from_pkcs8_maybe_unchecked(der)
}

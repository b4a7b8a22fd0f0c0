//! A private key of a zone: made, read from its PKCS#8 file, and used.

use crate::der::{INTEGER, SEQUENCE, split};
use crate::provider::library::error::KeyRejected;
use crate::provider::library::rand::SystemRandom;
use crate::provider::library::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use crate::provider::{self, library};
use sanderling_ipc::zone_signing::{ZoneKey, ZoneKeyId};
use zeroize::Zeroizing;

/// The numbers of the algorithms (RFC 8624 §3.1).
const RSASHA256: u8 = 8;
const ECDSAP256SHA256: u8 = 13;
const ED25519: u8 = 15;

/// A private key. The key is erased when it is dropped, by aws-lc-rs.
#[derive(Debug)]
pub(crate) struct ZonePrivateKey {
    algorithm: u8,
    pair: Pair,
}

#[derive(Debug)]
enum Pair {
    Rsa(Box<RsaKeyPair>),
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl ZonePrivateKey {
    /// A new key, as PKCS#8.
    ///
    /// # Errors
    /// Returns an error if no such key can be made.
    pub(crate) fn make(algorithm: u8) -> Result<Zeroizing<Vec<u8>>, String> {
        let random = SystemRandom::new();
        let failed = |_| "the key could not be generated".to_owned();
        let made = match algorithm {
            RSASHA256 => return provider::make_rsa_key(),
            ECDSAP256SHA256 => EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random),
            ED25519 => Ed25519KeyPair::generate_pkcs8(&random),
            other => return Err(format!("the algorithm {other} is not supported; use 8, 13 or 15")),
        };
        made.map(|document| Zeroizing::new(document.as_ref().to_vec())).map_err(failed)
    }

    /// A file's key.
    ///
    /// # Errors
    /// Returns an error if the bytes are not a key of this algorithm.
    pub(crate) fn from_pkcs8(algorithm: u8, der: &[u8]) -> Result<ZonePrivateKey, String> {
        let rejected = |error: KeyRejected| format!("it is not a private key for algorithm {algorithm}: {error}");
        let pair = match algorithm {
            RSASHA256 => Pair::Rsa(Box::new(RsaKeyPair::from_pkcs8(der).map_err(rejected)?)),
            ECDSAP256SHA256 => {
                Pair::Ecdsa(provider::ecdsa_key(&ECDSA_P256_SHA256_FIXED_SIGNING, der).map_err(rejected)?)
            }
            ED25519 => Pair::Ed25519(provider::ed25519_key(der).map_err(rejected)?),
            other => return Err(format!("the algorithm {other} is not supported")),
        };
        Ok(ZonePrivateKey { algorithm, pair })
    }

    /// The public part.
    pub(crate) fn public(&self) -> ZoneKey {
        let public_key = match &self.pair {
            Pair::Rsa(pair) => rsa_public_key(pair.public_key().as_ref()).expect("the library writes DER"),
            // The point without the byte that marks it as uncompressed (RFC 6605 §4).
            Pair::Ecdsa(pair) => pair.public_key().as_ref()[1..].to_vec(),
            Pair::Ed25519(pair) => pair.public_key().as_ref().to_vec(),
        };
        ZoneKey { id: key_id(&public_key), algorithm: self.algorithm, public_key }
    }

    /// The signature of `input`, as RRSIG records have it.
    pub(crate) fn sign(&self, input: &[u8]) -> Result<Vec<u8>, String> {
        let random = SystemRandom::new();
        let failed = |_| "the signature could not be made".to_owned();
        match &self.pair {
            Pair::Rsa(pair) => {
                let mut signature = vec![0; provider::rsa_signature_bytes(pair)];
                pair.sign(&RSA_PKCS1_SHA256, &random, input, &mut signature).map_err(failed)?;
                Ok(signature)
            }
            Pair::Ecdsa(pair) => pair.sign(&random, input).map(|it| it.as_ref().to_vec()).map_err(failed),
            Pair::Ed25519(pair) => Ok(pair.sign(input).as_ref().to_vec()),
        }
    }
}

fn key_id(public_key: &[u8]) -> ZoneKeyId {
    let hash = library::digest::digest(&library::digest::SHA256, public_key);
    hash.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// An `RSAPublicKey` (RFC 8017 §A.1.1) as DNSKEY records have it (RFC 3110 §2): the length of the exponent, the
/// exponent, the modulus.
fn rsa_public_key(der: &[u8]) -> Option<Vec<u8>> {
    let (content, []) = split(der, SEQUENCE)? else { return None };
    let (modulus, rest) = split(content, INTEGER)?;
    let (exponent, []) = split(rest, INTEGER)? else { return None };
    let [modulus, exponent] = [modulus, exponent].map(|number| number.strip_prefix(&[0]).unwrap_or(number));
    let length = u8::try_from(exponent.len()).ok()?;
    Some([&[length], exponent, modulus].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::library::signature::{
        ECDSA_P256_SHA256_FIXED, ED25519 as VERIFY_ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
        UnparsedPublicKey,
    };

    #[test]
    fn keys_sign_and_their_public_parts_verify() {
        for algorithm in [ECDSAP256SHA256, ED25519, RSASHA256] {
            let Ok(pkcs8) = ZonePrivateKey::make(algorithm) else {
                assert!(cfg!(not(feature = "aws-lc-rs")) && algorithm == RSASHA256);
                continue;
            };
            let key = ZonePrivateKey::from_pkcs8(algorithm, &pkcs8).expect("a key");
            let (public, signature) = (key.public(), key.sign(b"input").expect("signed"));
            assert_eq!(public, ZonePrivateKey::from_pkcs8(algorithm, &pkcs8).expect("the same").public());
            let verified = match algorithm {
                ECDSAP256SHA256 => {
                    let point = [&[4][..], &public.public_key].concat();
                    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(b"input", &signature)
                }
                ED25519 => UnparsedPublicKey::new(&VERIFY_ED25519, &public.public_key).verify(b"input", &signature),
                _ => {
                    let [3, e @ ..] = &public.public_key[..] else { panic!("{public:?}") };
                    let (e, n) = e.split_at(3);
                    RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, b"input", &signature)
                }
            };
            assert!(verified.is_ok(), "{algorithm}");
            for other in [RSASHA256, ECDSAP256SHA256, ED25519].into_iter().filter(|other| *other != algorithm) {
                ZonePrivateKey::from_pkcs8(other, &pkcs8).expect_err("another algorithm");
            }
        }
        ZonePrivateKey::make(5).expect_err("obsolete");
    }
}

//! Private keys in another process: a server's requests, and the signer in the other process.

use crate::certificate_error::CertificateError;
use crate::pem_files::key_from_pem;
use crate::provider::library::digest::{SHA256, digest};
use rustls::pki_types::{AlgorithmIdentifier, SubjectPublicKeyInfoDer, alg_id};
use rustls::sign::{Signer, SigningKey};
use rustls::{OtherError, SignatureAlgorithm, SignatureScheme};
use std::fmt;
use std::sync::Arc;

/// Bytes of a [`KeyId`].
pub const KEY_ID_BYTES: usize = 32;

/// The name of a private key: the SHA-256 of its public key as SubjectPublicKeyInfo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyId(pub [u8; KEY_ID_BYTES]);

impl KeyId {
    /// The ID of the key that belongs to `public_key`, a SubjectPublicKeyInfo.
    pub fn of(public_key: &[u8]) -> KeyId {
        let hash = digest(&SHA256, public_key);
        KeyId(hash.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

/// Hexadecimal digits.
impl fmt::Display for KeyId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

/// Asks the process that has the private keys. A call blocks.
pub trait RemoteSigner: fmt::Debug + Send + Sync {
    /// The signature of `input` by `key` with a signature scheme of TLS.
    fn sign(&self, key: &KeyId, scheme: u16, input: &[u8]) -> Result<Vec<u8>, SignError>;
}

/// The reason why there is no signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// The process does not answer now: the handshake waits and asks again.
    #[error("{0}")]
    Unavailable(&'static str),
    /// The process will not sign: the handshake fails.
    #[error("{0}")]
    Refused(&'static str),
}

/// Whether rustls has failed because the process with the key does not answer now.
pub(crate) fn is_unavailable(error: &rustls::Error) -> bool {
    let rustls::Error::Other(OtherError(cause)) = error else { return false };
    matches!(cause.downcast_ref(), Some(SignError::Unavailable(_)))
}

/// A private key in another process, as rustls uses it.
#[derive(Clone, Debug)]
pub(crate) struct RemoteKey {
    id: KeyId,
    public_key: SubjectPublicKeyInfoDer<'static>,
    algorithm: SignatureAlgorithm,
    /// The most preferred one first.
    schemes: &'static [SignatureScheme],
    signer: Arc<dyn RemoteSigner>,
}

impl RemoteKey {
    /// The key that belongs to `public_key`, of this `algorithm`.
    pub(crate) fn new(
        public_key: SubjectPublicKeyInfoDer<'static>,
        algorithm: &[u8],
        signer: Arc<dyn RemoteSigner>,
    ) -> Result<RemoteKey, CertificateError> {
        let of_algorithm = ALGORITHMS.iter().find(|(id, ..)| id.as_ref() == algorithm);
        let unsupported = || CertificateError::UnsupportedKey("it has an unknown type".to_owned());
        let (_, algorithm, schemes) = of_algorithm.ok_or_else(unsupported)?;
        Ok(RemoteKey { id: KeyId::of(&public_key), public_key, algorithm: *algorithm, schemes, signer })
    }
}

/// The schemes of each type of key that rustls loads.
const ALGORITHMS: [(AlgorithmIdentifier, SignatureAlgorithm, &[SignatureScheme]); 5] = [
    (alg_id::ECDSA_P256, SignatureAlgorithm::ECDSA, &[SignatureScheme::ECDSA_NISTP256_SHA256]),
    (alg_id::ECDSA_P384, SignatureAlgorithm::ECDSA, &[SignatureScheme::ECDSA_NISTP384_SHA384]),
    (alg_id::ECDSA_P521, SignatureAlgorithm::ECDSA, &[SignatureScheme::ECDSA_NISTP521_SHA512]),
    (alg_id::ED25519, SignatureAlgorithm::ED25519, &[SignatureScheme::ED25519]),
    (
        alg_id::RSA_ENCRYPTION,
        SignatureAlgorithm::RSA,
        &[
            SignatureScheme::RSA_PSS_SHA512,
            SignatureScheme::RSA_PSS_SHA384,
            SignatureScheme::RSA_PSS_SHA256,
            SignatureScheme::RSA_PKCS1_SHA512,
            SignatureScheme::RSA_PKCS1_SHA384,
            SignatureScheme::RSA_PKCS1_SHA256,
        ],
    ),
];

impl SigningKey for RemoteKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let scheme = *self.schemes.iter().find(|scheme| offered.contains(scheme))?;
        Some(Box::new(RemoteSignature { key: self.clone(), scheme }))
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(self.public_key.clone())
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.algorithm
    }
}

/// A signature that is being made.
#[derive(Debug)]
struct RemoteSignature {
    key: RemoteKey,
    scheme: SignatureScheme,
}

impl Signer for RemoteSignature {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        let signature = self.key.signer.sign(&self.key.id, self.scheme.into(), message);
        signature.map_err(|error| match error {
            SignError::Unavailable(_) => OtherError(Arc::new(error)).into(),
            SignError::Refused(cause) => rustls::Error::General(cause.to_owned()),
        })
    }

    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }
}

/// A private key for the process that has it. The key is erased when it is dropped, by aws-lc-rs.
#[derive(Clone)]
pub struct PrivateKey(pub(crate) Arc<dyn SigningKey>);

impl PrivateKey {
    /// A key as PKCS#8, SEC1 or PKCS#1, as PEM. The decoded key is erased after it is loaded. The caller erases `key`.
    pub fn from_pem(key: &[u8]) -> Result<PrivateKey, CertificateError> {
        key_from_pem(key).map(PrivateKey)
    }

    /// The key's ID.
    pub fn id(&self) -> KeyId {
        KeyId::of(&self.0.public_key().expect("the key is in this process"))
    }

    /// The signature of `input` with a signature scheme of TLS; `None` if the key does not have it.
    pub fn sign(&self, scheme: u16, input: &[u8]) -> Option<Vec<u8>> {
        self.0.choose_scheme(&[SignatureScheme::from(scheme)])?.sign(input).ok()
    }
}

/// Without the key.
impl fmt::Debug for PrivateKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("PrivateKey")
    }
}

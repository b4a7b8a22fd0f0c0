//! A certificate chain with its private key: read from PEM, refused if clients could not use it, and checked for what
//! they might refuse.

use crate::der::{self, Elements};
use crate::provider::load_key;
use rustls::SignatureAlgorithm;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SigningKey};
use std::fmt;
use std::sync::Arc;
use webpki::EndEntityCert;
use zeroize::Zeroize;

const SECONDS_PER_DAY: u64 = 86_400;

/// A certificate chain and the key of its first certificate. A clone shares them.
#[derive(Clone, Debug)]
pub struct Certificate {
    certified: Arc<CertifiedKey>,
    facts: Arc<Facts>,
}

/// What the first certificate says.
#[derive(Debug)]
struct Facts {
    dns_names: Vec<String>,
    issuer: String,
    not_before_unix_s: u64,
    not_after_unix_s: u64,
}

/// Why a chain or a key cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// The chain has a broken PEM section.
    #[error("the chain is not PEM: {0}")]
    ChainSyntax(String),
    /// The chain has no PEM section of a certificate.
    #[error("the chain has no certificate")]
    NoCertificate,
    /// A certificate of the chain, from 1, cannot be parsed.
    #[error("certificate {number} of the chain is invalid: {reason}")]
    InvalidCertificate {
        /// Its place in the chain, from 1.
        number: usize,
        /// Why.
        reason: String,
    },
    /// The key has a broken PEM section.
    #[error("the key is not PEM: {0}")]
    KeySyntax(String),
    /// The key has no PEM section of a key.
    #[error("the key file has no private key")]
    NoKey,
    /// The key is encrypted by a passphrase.
    #[error("the private key is encrypted")]
    EncryptedKey,
    /// The key is damaged, or of a type that is not supported.
    #[error("the private key cannot be used: {0}")]
    UnsupportedKey(String),
    /// The certificate of the key is in the chain, but not first.
    #[error("the private key belongs to certificate {number} of the chain, not to the first one")]
    NotFirst {
        /// Its place in the chain, from 1.
        number: usize,
    },
    /// The key is that of another certificate.
    #[error("the private key does not match the certificate")]
    KeyMismatch,
}

impl CertificateError {
    /// How to fix it.
    pub fn remedy(&self) -> &'static str {
        match self {
            CertificateError::ChainSyntax(_) | CertificateError::NoCertificate => {
                "write the certificates as PEM (-----BEGIN CERTIFICATE-----); `openssl x509 -inform der` converts DER"
            }
            CertificateError::InvalidCertificate { .. } => "copy the chain again from the certificate authority",
            CertificateError::KeySyntax(_) | CertificateError::NoKey => {
                "write the key as PEM (-----BEGIN PRIVATE KEY-----); `openssl pkey -inform der` converts DER"
            }
            CertificateError::EncryptedKey => "remove the passphrase with `openssl pkey -in KEY -out NEW`",
            CertificateError::UnsupportedKey(_) => {
                "use an ECDSA key (P-256, P-384), an RSA key of 2048 to 8192 bits, or an Ed25519 key, \
                 as PKCS#8, SEC1 or PKCS#1"
            }
            CertificateError::NotFirst { .. } => {
                "put the certificate of the server first, and then those of its issuers"
            }
            CertificateError::KeyMismatch => "use the key that the certificate was requested with",
        }
    }
}

/// Why clients may refuse a certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateProblem {
    /// Its time is over.
    #[error("the certificate expired {} ago", Days(*.since_s))]
    Expired {
        /// For how long.
        since_s: u64,
    },
    /// Its time has not begun.
    #[error("the certificate becomes valid in {}", Days(*.in_s))]
    NotYetValid {
        /// When.
        in_s: u64,
    },
    /// A certificate of the chain is not followed by that of its issuer, which is elsewhere in the chain.
    #[error("certificate {number} of the chain is not followed by the certificate of its issuer")]
    ChainOutOfOrder {
        /// Its place in the chain, from 1.
        number: usize,
    },
    /// The issuer of a certificate is not in the chain, where clients need it.
    #[error("the issuer of certificate {number}, {issuer}, is not in the chain")]
    ChainIncomplete {
        /// Its place in the chain, from 1.
        number: usize,
        /// The issuer's name.
        issuer: String,
    },
    /// A name that is served is not in the certificate.
    #[error("the certificate is not valid for {0}")]
    MissingName(String),
}

impl CertificateProblem {
    /// How to fix it.
    pub fn remedy(&self) -> &'static str {
        match self {
            CertificateProblem::Expired { .. } => "renew the certificate",
            CertificateProblem::NotYetValid { .. } => {
                "check the clock of this machine, or use the previous certificate"
            }
            CertificateProblem::ChainOutOfOrder { .. } => "put each certificate before that of its issuer",
            CertificateProblem::ChainIncomplete { .. } => {
                "add the intermediate certificates of the certificate authority (often called fullchain)"
            }
            CertificateProblem::MissingName(_) => "request a certificate with this name, or serve it without HTTPS",
        }
    }
}

struct Days(u64);

impl fmt::Display for Days {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 / SECONDS_PER_DAY {
            0 => out.write_str("less than a day"),
            1 => out.write_str("1 day"),
            days => write!(out, "{days} days"),
        }
    }
}

impl Certificate {
    /// A chain of certificates, that of the server first, and its key as PKCS#8, SEC1 or PKCS#1, both as PEM.
    ///
    /// The decoded key is erased after it is loaded. The caller erases `key`.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Certificate, CertificateError> {
        let chain = CertificateDer::pem_slice_iter(chain)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| CertificateError::ChainSyntax(error.to_string()))?;
        Certificate::new(chain, key_from_pem(key)?)
    }

    /// A chain, and a key that may be in another process. A key that does not know its public key is not compared with
    /// the certificate.
    pub fn new(chain: Vec<CertificateDer<'static>>, key: Arc<dyn SigningKey>) -> Result<Certificate, CertificateError> {
        let leaf = chain.first().ok_or(CertificateError::NoCertificate)?;
        let invalid = |index, reason| CertificateError::InvalidCertificate { number: index + 1, reason };
        let mut of_key = None;
        for (index, certificate) in chain.iter().enumerate() {
            let parsed = EndEntityCert::try_from(certificate).map_err(|error| invalid(index, error.to_string()))?;
            if of_key.is_none() && key.public_key().is_none_or(|public| public == parsed.subject_public_key_info()) {
                of_key = Some(index);
            }
        }
        match of_key {
            Some(0) => {}
            Some(index) => return Err(CertificateError::NotFirst { number: index + 1 }),
            None => return Err(CertificateError::KeyMismatch),
        }
        let facts = Facts::of(leaf).ok_or_else(|| invalid(0, "a field is missing".into()))?;
        Ok(Certificate { certified: Arc::new(CertifiedKey::new(chain, key)), facts: Arc::new(facts) })
    }

    /// The certificates, that of the server first.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        &self.certified.cert
    }

    /// The names and wildcards for which it is valid, in lower case.
    pub fn dns_names(&self) -> &[String] {
        &self.facts.dns_names
    }

    /// Whether it is valid for `host`, a name in any case with or without a dot at its end. A wildcard holds for one label (RFC
    /// 9525 §6.3).
    pub fn is_valid_for_host(&self, host: &[u8]) -> bool {
        let host = host.strip_suffix(b".").unwrap_or(host);
        let first_label_bytes = host.iter().position(|&byte| byte == b'.').filter(|&bytes| bytes > 0);
        let parent = first_label_bytes.map(|bytes| &host[bytes..]);
        self.facts.dns_names.iter().any(|name| match name.strip_prefix('*') {
            Some(dot_and_name) => parent.is_some_and(|parent| parent.eq_ignore_ascii_case(dot_and_name.as_bytes())),
            None => host.eq_ignore_ascii_case(name.as_bytes()),
        })
    }

    /// The name of the issuer.
    pub fn issuer(&self) -> &str {
        &self.facts.issuer
    }

    /// The last second in which it is valid, since 1970.
    pub fn not_after_unix_s(&self) -> u64 {
        self.facts.not_after_unix_s
    }

    /// The type of its key: `ECDSA`, `RSA` or `Ed25519`.
    pub fn key_type(&self) -> &'static str {
        match self.certified.key.algorithm() {
            SignatureAlgorithm::ECDSA => "ECDSA",
            SignatureAlgorithm::ED25519 => "Ed25519",
            _ => "RSA",
        }
    }

    /// Why clients may refuse it at `now_unix_s` as the certificate of `names`: host names, wildcards and addresses.
    pub fn problems<'n>(&self, now_unix_s: u64, names: impl IntoIterator<Item = &'n str>) -> Vec<CertificateProblem> {
        let mut problems = Vec::new();
        let Facts { not_before_unix_s, not_after_unix_s, .. } = *self.facts;
        if now_unix_s < not_before_unix_s {
            problems.push(CertificateProblem::NotYetValid { in_s: not_before_unix_s - now_unix_s });
        }
        if now_unix_s > not_after_unix_s {
            problems.push(CertificateProblem::Expired { since_s: now_unix_s - not_after_unix_s });
        }
        problems.extend(chain_problem(&self.certified.cert));
        let missing = names.into_iter().filter(|name| !self.is_valid_for(name));
        problems.extend(missing.map(|name| CertificateProblem::MissingName(name.to_owned())));
        problems
    }

    fn is_valid_for(&self, name: &str) -> bool {
        if name.starts_with("*.") {
            return self.facts.dns_names.iter().any(|valid| valid.eq_ignore_ascii_case(name));
        }
        let parsed = EndEntityCert::try_from(&self.certified.cert[0]).expect("was parsed before");
        ServerName::try_from(name).is_ok_and(|name| parsed.verify_is_valid_for_subject_name(&name).is_ok())
    }

    pub(crate) fn certified(&self) -> &Arc<CertifiedKey> {
        &self.certified
    }
}

fn key_from_pem(key: &[u8]) -> Result<Arc<dyn SigningKey>, CertificateError> {
    let is_encrypted = [&b"-----BEGIN ENCRYPTED PRIVATE KEY"[..], b"Proc-Type: 4,ENCRYPTED"]
        .iter()
        .any(|mark| key.windows(mark.len()).any(|window| window == *mark));
    if is_encrypted {
        return Err(CertificateError::EncryptedKey);
    }
    let mut der = PrivateKeyDer::from_pem_slice(key).map_err(|error| match error {
        pem::Error::NoItemsFound => CertificateError::NoKey,
        error => CertificateError::KeySyntax(error.to_string()),
    })?;
    let loaded = load_key(&der).map_err(|error| CertificateError::UnsupportedKey(error.to_string()));
    der.zeroize();
    loaded
}

/// The first place where the issuer does not follow.
fn chain_problem(chain: &[CertificateDer<'_>]) -> Option<CertificateProblem> {
    let names: Vec<_> = chain.iter().filter_map(|certificate| Names::of(certificate)).collect();
    for (index, certificate) in names.iter().enumerate() {
        let number = index + 1;
        match names.get(number) {
            Some(next) if next.subject == certificate.issuer => {}
            Some(_) if names.iter().any(|other| other.subject == certificate.issuer) => {
                return Some(CertificateProblem::ChainOutOfOrder { number });
            }
            // Clients have the root certificate that issued the last intermediate one.
            None if index > 0 || certificate.subject == certificate.issuer => {}
            _ => {
                let issuer = name_text(certificate.issuer);
                return Some(CertificateProblem::ChainIncomplete { number, issuer });
            }
        }
    }
    None
}

/// The fields of a certificate that follow one another (RFC 5280 §4.1).
struct Names<'d> {
    issuer: &'d [u8],
    validity: &'d [u8],
    subject: &'d [u8],
}

impl<'d> Names<'d> {
    fn of(certificate: &'d [u8]) -> Option<Names<'d>> {
        const VERSION: u8 = 0xa0;
        let mut fields =
            Elements(Elements(Elements(certificate).take_tagged(der::SEQUENCE)?).take_tagged(der::SEQUENCE)?);
        fields.take_tagged(VERSION);
        fields.take_tagged(der::INTEGER)?;
        let _algorithm = fields.take_tagged(der::SEQUENCE)?;
        let mut next = || fields.take_tagged(der::SEQUENCE);
        Some(Names { issuer: next()?, validity: next()?, subject: next()? })
    }
}

impl Facts {
    fn of(certificate: &CertificateDer<'_>) -> Option<Facts> {
        let names = Names::of(certificate)?;
        let mut validity = Elements(names.validity).map(|(tag, text)| der::unix_s(tag, text));
        let parsed = EndEntityCert::try_from(certificate).ok()?;
        Some(Facts {
            dns_names: parsed.valid_dns_names().map(str::to_ascii_lowercase).collect(),
            issuer: name_text(names.issuer),
            not_before_unix_s: validity.next()??,
            not_after_unix_s: validity.next()??,
        })
    }
}

/// The common name of a distinguished name, or else its organization.
fn name_text(name: &[u8]) -> String {
    const COMMON_NAME: &[u8] = &[0x55, 4, 3];
    const ORGANIZATION: &[u8] = &[0x55, 4, 10];
    let attribute = |wanted: &[u8]| {
        Elements(name).flat_map(|(_, set)| Elements(set)).find_map(|(_, attribute)| {
            let mut parts = Elements(attribute);
            (parts.take_tagged(der::OBJECT_ID)? == wanted).then(|| parts.next()).flatten()
        })
    };
    let text = attribute(COMMON_NAME).or_else(|| attribute(ORGANIZATION)).map_or(&[][..], |(_, text)| text);
    text.utf8_chunks().flat_map(|chunk| chunk.valid().chars()).filter(|character| !character.is_control()).collect()
}

//! The reason why a certificate cannot be used, or clients may refuse it, and the remedy.

use std::fmt;

const SECONDS_PER_DAY: u64 = 86_400;

/// A file of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PemFile {
    /// The certificates.
    Chain,
    /// The private key.
    Key,
}

impl fmt::Display for PemFile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            PemFile::Chain => "the chain",
            PemFile::Key => "the key file",
        })
    }
}

/// The unexpected content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileContent {
    /// Nothing.
    #[error("is empty")]
    Nothing,
    /// A certificate's key, as PEM.
    #[error("has a private key")]
    Key,
    /// A certificate, as PEM.
    #[error("has a certificate")]
    Certificate,
    /// A public key, as PEM.
    #[error("has a public key")]
    PublicKey,
    /// A request for a certificate, as PEM.
    #[error("has a certificate request")]
    Request,
    /// PKCS#7, as PEM.
    #[error("is PKCS#7")]
    Pkcs7,
    /// PKCS#12 (RFC 7292).
    #[error("is PKCS#12 (.p12, .pfx)")]
    Pkcs12,
    /// DER: a certificate or a key without PEM.
    #[error("is DER, which is not PEM")]
    Der,
    /// Something else.
    #[error("is not PEM")]
    Unknown,
}

/// The reason why a chain or a key cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// A PEM section of a file has no end.
    #[error("{0} ends in the middle: the line -----END …----- is missing")]
    Cut(PemFile),
    /// A PEM section of a file is not base64.
    #[error("{file} is damaged: {reason}")]
    Damaged {
        /// The file.
        file: PemFile,
        /// The reason why.
        reason: String,
    },
    /// A section of a file is indented, which PEM does not allow.
    #[error("{file} has white space before -----BEGIN in line {line}")]
    Indented {
        /// The file.
        file: PemFile,
        /// The line, from 1.
        line: usize,
    },
    /// The chain has no certificate.
    #[error("the chain has no certificate: it {0}")]
    NoCertificate(FileContent),
    /// The key is in the chain file, and the certificate in the key file.
    #[error("the chain has a private key, and the key file has a certificate")]
    Swapped,
    /// A certificate of the chain, from 1, cannot be parsed.
    #[error("certificate {number} of the chain is damaged or cut ({reason})")]
    InvalidCertificate {
        /// The certificate's place in the chain, from 1.
        number: usize,
        /// The reason why.
        reason: String,
    },
    /// The key file has no private key.
    #[error("the key file has no private key: it {0}")]
    NoKey(FileContent),
    /// The key is encrypted by a passphrase.
    #[error("the private key is encrypted")]
    EncryptedKey,
    /// The key is damaged, or of a type that is not supported.
    #[error("the private key cannot be used: {0}")]
    UnsupportedKey(String),
    /// The key's certificate is in the chain, but not first.
    #[error("the private key belongs to certificate {number} of the chain, not to the first one")]
    NotFirst {
        /// The certificate's place in the chain, from 1.
        number: usize,
    },
    /// The key belongs to another certificate.
    #[error("the private key does not match the certificate")]
    KeyMismatch,
}

impl CertificateError {
    /// The remedy, for the operator.
    pub fn remedy(&self) -> &'static str {
        match self {
            CertificateError::Cut(PemFile::Chain)
            | CertificateError::Damaged { file: PemFile::Chain, .. }
            | CertificateError::InvalidCertificate { .. } => {
                "copy the whole chain again from the certificate authority, from -----BEGIN CERTIFICATE----- to the last line"
            }
            CertificateError::Cut(PemFile::Key) | CertificateError::Damaged { file: PemFile::Key, .. } => {
                "copy the whole key again, from -----BEGIN PRIVATE KEY----- to the last line, or request a new certificate"
            }
            CertificateError::Indented { .. } => {
                "remove the white space at the start of all lines, for example with `sed -i 's/^[ \\t]*//' FILE`"
            }
            CertificateError::NoCertificate(content) => match content {
                FileContent::Pkcs12 => "convert it with `openssl pkcs12 -in FILE -nokeys -out chain.pem`",
                FileContent::Pkcs7 => "convert it with `openssl pkcs7 -print_certs -in FILE -out chain.pem`",
                FileContent::Der => "convert it with `openssl x509 -inform der -in FILE -out chain.pem`",
                FileContent::Request => "specify the file with the certificate that the authority has issued for it",
                _ => {
                    "specify the file with the certificates as PEM (-----BEGIN CERTIFICATE-----), often called fullchain.pem"
                }
            },
            CertificateError::NoKey(content) => match content {
                FileContent::Pkcs12 => "convert it with `openssl pkcs12 -in FILE -nocerts -nodes -out key.pem`",
                FileContent::Der => "convert it with `openssl pkey -inform der -in FILE -out key.pem`",
                _ => {
                    "specify the file with the private key as PEM (-----BEGIN PRIVATE KEY-----), often called privkey.pem"
                }
            },
            CertificateError::Swapped => "swap `chain` and `key`",
            CertificateError::EncryptedKey => "remove the passphrase with `openssl pkey -in KEY -out NEW`",
            CertificateError::UnsupportedKey(_) => {
                "request a certificate with an ECDSA key (P-256, P-384), an RSA key of 2048 to 8192 bits, or an Ed25519 key, \
                 as PKCS#8, SEC1 or PKCS#1"
            }
            CertificateError::NotFirst { .. } => "put the server certificate first, and then its issuers' certificates",
            CertificateError::KeyMismatch => "use the key that the certificate was requested with",
        }
    }
}

/// The reason why clients may refuse a certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateProblem {
    /// The certificate has expired.
    #[error("the certificate expired {} ago", Days(*.since_s))]
    Expired {
        /// Seconds since it expired.
        since_s: u64,
    },
    /// The certificate is not valid yet.
    #[error("the certificate becomes valid in {}", Days(*.in_s))]
    NotYetValid {
        /// When.
        in_s: u64,
    },
    /// The certificate is in the last part of its lifetime.
    #[error("the certificate expires in {}", Days(*.in_s))]
    ExpiresSoon {
        /// When.
        in_s: u64,
    },
    /// A certificate of the chain is not followed by its issuer's certificate, which is elsewhere in the chain.
    #[error("certificate {number} of the chain is not followed by its issuer's certificate")]
    ChainOutOfOrder {
        /// The certificate's place in the chain, from 1.
        number: usize,
    },
    /// A certificate's issuer is not in the chain, where clients need it.
    #[error("the issuer of certificate {number}, {issuer}, is not in the chain")]
    ChainIncomplete {
        /// The certificate's place in the chain, from 1.
        number: usize,
        /// The issuer's name.
        issuer: String,
    },
    /// The certificate has no name except its subject's.
    #[error("the certificate has no subject alternative name, and clients ignore its common name, {subject}")]
    NoAlternativeName {
        /// The name of its subject.
        subject: String,
    },
    /// The certificate has names for which clients do not accept it.
    #[error("clients do not accept these subject alternative names of the certificate: {names}")]
    UnusableNames {
        /// The names.
        names: String,
    },
    /// The extended key usage does not include servers.
    #[error("the certificate is not for servers: its extended key usage lacks serverAuth")]
    NotForServers,
    /// The certificate demands a stapled response about its revocation, which the server does not send.
    #[error(
        "the certificate demands OCSP stapling (must-staple), which this server does not support, and some browsers refuse it"
    )]
    MustStaple,
    /// The certificate was signed with a broken hash.
    #[error("certificate {number} of the chain has a signature with {hash}, which browsers refuse")]
    WeakSignature {
        /// The certificate's place in the chain, from 1.
        number: usize,
        /// The hash.
        hash: &'static str,
    },
    /// Only some clients support the certificate's key.
    #[error("the key is {key_type}, which browsers do not support")]
    UnsupportedByBrowsers {
        /// The key's type.
        key_type: &'static str,
    },
    /// A name that is served is not in the certificate.
    #[error("the certificate is not valid for {0}")]
    MissingName(String),
}

impl CertificateProblem {
    /// Whether the problem is that the certificate is not valid for a name.
    pub fn is_of_name(&self) -> bool {
        matches!(self, CertificateProblem::MissingName(_))
    }

    /// Whether it depends only on the certificate's validity, and so can appear and disappear.
    pub fn is_of_time(&self) -> bool {
        matches!(
            self,
            CertificateProblem::Expired { .. }
                | CertificateProblem::NotYetValid { .. }
                | CertificateProblem::ExpiresSoon { .. }
        )
    }

    /// Whether it makes all clients refuse the certificate, and not only some: those that do not find the issuer
    /// elsewhere, or are browsers.
    pub fn is_of_all_clients(&self) -> bool {
        match self {
            CertificateProblem::Expired { .. }
            | CertificateProblem::NotYetValid { .. }
            | CertificateProblem::NoAlternativeName { .. }
            | CertificateProblem::NotForServers
            | CertificateProblem::MissingName(_) => true,
            CertificateProblem::ExpiresSoon { .. }
            | CertificateProblem::ChainOutOfOrder { .. }
            | CertificateProblem::ChainIncomplete { .. }
            | CertificateProblem::UnusableNames { .. }
            | CertificateProblem::MustStaple
            | CertificateProblem::WeakSignature { .. }
            | CertificateProblem::UnsupportedByBrowsers { .. } => false,
        }
    }

    /// The remedy, for the operator.
    pub fn remedy(&self) -> &'static str {
        match self {
            CertificateProblem::Expired { .. } => "renew the certificate",
            CertificateProblem::ExpiresSoon { .. } => {
                "renew the certificate, and find out why it was not renewed \
                automatically"
            }
            CertificateProblem::NotYetValid { .. } => "check the system clock, or use the previous certificate",
            CertificateProblem::ChainOutOfOrder { .. } => "put each certificate before its issuer's certificate",
            CertificateProblem::ChainIncomplete { .. } => {
                "add the intermediate certificates of the certificate authority (often called fullchain), unless all clients \
                 have the issuer's certificate"
            }
            CertificateProblem::NoAlternativeName { .. } => {
                "request a certificate with the names as subject alternative names (of `openssl req`: \
                 -addext subjectAltName=DNS:NAME)"
            }
            CertificateProblem::UnusableNames { .. } => {
                "request a certificate with the host names, without a dot at their end; `*` matches the first label \
                    of a name that has two more"
            }
            CertificateProblem::NotForServers => "request a certificate for a server",
            CertificateProblem::MustStaple => "request a certificate without the TLS feature status_request",
            CertificateProblem::WeakSignature { .. } => "request a certificate with a signature by SHA-256",
            CertificateProblem::UnsupportedByBrowsers { .. } => {
                "request a certificate with a key of ECDSA with P-256, or add one to the domain"
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

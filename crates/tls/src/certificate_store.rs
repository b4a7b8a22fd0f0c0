//! Chooses the certificate for a connection by the name that the client asks for (SNI, RFC 6066 §3).

use crate::certificate::Certificate;
use rustls::SignatureAlgorithm;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::collections::HashMap;
use std::sync::Arc;

/// Certificates by name.
#[derive(Debug, Default)]
pub struct CertificateStore {
    /// By lower-case name.
    exact: HashMap<Box<str>, Alternatives>,
    /// By the name below `*.`, in lower case.
    wildcard: HashMap<Box<str>, Alternatives>,
    /// For other names, and for clients that ask for none. If it is empty, the handshake is refused.
    default: Alternatives,
}

/// Certificates for the same name with different types of keys, in the order of preference.
#[derive(Debug, Default)]
struct Alternatives(Vec<Arc<CertifiedKey>>);

impl CertificateStore {
    /// A store without a certificate, which refuses all handshakes.
    pub fn new() -> CertificateStore {
        CertificateStore::default()
    }

    /// Uses `certificate` for `name`, a host name or a wildcard such as `*.example.com`, which holds for one more label.
    /// A name can have several certificates: clients that support it get one with an ECDSA key, others RSA.
    pub fn add(&mut self, name: &str, certificate: &Certificate) {
        let name = name.to_ascii_lowercase();
        let alternatives = match name.strip_prefix("*.") {
            Some(parent) => self.wildcard.entry(parent.into()).or_default(),
            None => self.exact.entry(name.into()).or_default(),
        };
        alternatives.add(certificate);
    }

    /// Uses `certificate` for clients that ask for another name or for none. Without a default, their handshake fails.
    pub fn add_default(&mut self, certificate: &Certificate) {
        self.default.add(certificate);
    }

    /// Whether a client that asks for `name` gets a certificate, if it supports its key.
    pub(crate) fn has_certificate_for(&self, name: Option<&str>) -> bool {
        !self.find(name).0.is_empty()
    }

    /// The certificates of a name in lower case.
    fn find(&self, name: Option<&str>) -> &Alternatives {
        let found = name.and_then(|name| {
            let in_wildcard = || self.wildcard.get(name.split_once('.')?.1);
            self.exact.get(name).or_else(in_wildcard)
        });
        found.unwrap_or(&self.default)
    }
}

impl Alternatives {
    fn add(&mut self, certificate: &Certificate) {
        self.0.push(Arc::clone(certificate.certified()));
        // Stable: of two with the same type, the first is used.
        self.0.sort_by_key(|certified| match certified.key.algorithm() {
            SignatureAlgorithm::ECDSA => 0,
            SignatureAlgorithm::ED25519 => 1,
            _ => 2,
        });
    }
}

impl ResolvesServerCert for CertificateStore {
    fn resolve(&self, client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let Alternatives(certified) = self.find(client_hello.server_name());
        let schemes = client_hello.signature_schemes();
        certified.iter().find(|certified| certified.key.choose_scheme(schemes).is_some()).cloned()
    }
}

//! Chooses the certificate for a connection by the name that the client asks for (SNI, RFC 6066 §3).

use crate::certificate::Certificate;
use rustls::SignatureAlgorithm;
use rustls::pki_types::UnixTime;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::collections::HashMap;
use std::sync::Arc;

/// Certificates by name. A clone shares them.
#[derive(Clone, Debug, Default)]
pub struct CertificateStore {
    /// The certificates by lower-case name.
    exact: HashMap<Box<str>, Alternatives>,
    /// The wildcard certificates by the name below `*.`, in lower case.
    wildcard: HashMap<Box<str>, Alternatives>,
    /// The certificates for other names. If the list is empty, the handshake is refused.
    for_unknown_names: Alternatives,
    /// The certificates for clients that send no server name.
    for_no_name: Alternatives,
    /// The certificates that are also valid for an address: a client that asks for no name has usually connected to an
    /// address.
    for_addresses: Alternatives,
}

/// The certificates for a client, which gets one whose key it supports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Candidates {
    pub(crate) certificates: Alternatives,
    /// The client sends no server name, or one without its own certificate.
    pub(crate) are_default: bool,
}

/// Certificates for the same name with different types of keys, in the order of preference. A clone shares them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Alternatives(Arc<Vec<Certificate>>);

impl CertificateStore {
    /// A store without a certificate, which refuses all handshakes.
    pub fn new() -> CertificateStore {
        CertificateStore::default()
    }

    /// Uses `certificate` for `name`, a host name or a wildcard such as `*.example.com`, which holds for one more
    /// label. A name can have several certificates: clients that support it get one with an ECDSA key, others RSA, and
    /// a certificate that is currently invalid only if no other is valid.
    pub fn add(&mut self, name: &str, certificate: &Certificate) {
        let name = name.to_ascii_lowercase();
        let alternatives = match name.strip_prefix("*.") {
            Some(parent) => self.wildcard.entry(parent.into()).or_default(),
            None => self.exact.entry(name.into()).or_default(),
        };
        alternatives.add(certificate);
        if certificate.has_addresses() && !self.for_addresses.contains(certificate) {
            self.for_addresses.add(certificate);
        }
    }

    /// Uses `certificate` for clients that ask for another name, or for none while no certificate is for an address.
    /// Without a default, their handshake fails.
    pub fn add_default(&mut self, certificate: &Certificate) {
        self.for_unknown_names.add(certificate);
        self.for_no_name.add(certificate);
    }

    /// Refuses clients that ask for another name. Clients that send no name still get the default.
    pub fn refuse_unknown_names(&mut self) {
        self.for_unknown_names = Alternatives::default();
    }

    /// Whether the store has no certificate at all.
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.wildcard.is_empty() && self.for_no_name.is_empty()
    }

    /// Whether a client that asks for `host` gets a certificate that is valid for it and was added for it.
    pub fn has_valid_certificate_for(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
        self.find_named(&host).is_some_and(|found| found.are_valid_for_host(host.as_bytes()))
    }

    /// The certificates for a client that asks for a name in lower case.
    pub(crate) fn find(&self, name: Option<&str>) -> Candidates {
        let named = name.and_then(|name| self.find_named(name));
        let certificates = named.unwrap_or(match name {
            Some(_) => &self.for_unknown_names,
            None if self.for_addresses.is_empty() => &self.for_no_name,
            None => &self.for_addresses,
        });
        Candidates { certificates: certificates.clone(), are_default: named.is_none() }
    }

    fn find_named(&self, name: &str) -> Option<&Alternatives> {
        let in_wildcard = || self.wildcard.get(name.split_once('.')?.1);
        self.exact.get(name).or_else(in_wildcard)
    }
}

impl Alternatives {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of the certificates is valid for `host`. The client's key types decide which certificate it gets,
    /// and a client with another certificate does not send a request for `host`.
    pub(crate) fn are_valid_for_host(&self, host: &[u8]) -> bool {
        self.0.iter().any(|certificate| certificate.is_valid_for_host(host))
    }

    fn contains(&self, certificate: &Certificate) -> bool {
        self.0.iter().any(|own| Arc::ptr_eq(own.certified(), certificate.certified()))
    }

    fn add(&mut self, certificate: &Certificate) {
        let certificates = Arc::make_mut(&mut self.0);
        certificates.push(certificate.clone());
        // The sort is stable: of two certificates with the same type, the first is used.
        certificates.sort_by_key(|certificate| match certificate.certified().key.algorithm() {
            SignatureAlgorithm::ECDSA => 0,
            SignatureAlgorithm::ED25519 => 1,
            _ => 2,
        });
    }
}

impl Alternatives {
    /// The first certificate that the client supports, if possible one that is valid now.
    fn choose(
        &self,
        is_supported: impl Fn(&Certificate) -> bool,
        now_unix_s: impl FnOnce() -> u64,
    ) -> Option<&Certificate> {
        let mut supported = self.0.iter().filter(|certificate| is_supported(certificate));
        let first = supported.next()?;
        let Some(second) = supported.next() else { return Some(first) };
        let now_unix_s = now_unix_s();
        let valid =
            [first, second].into_iter().chain(supported).find(|certificate| certificate.is_valid_at(now_unix_s));
        valid.or(Some(first))
    }
}

impl ResolvesServerCert for CertificateStore {
    fn resolve(&self, client_hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let candidates = self.find(client_hello.server_name());
        let schemes = client_hello.signature_schemes();
        let is_supported = |certificate: &Certificate| certificate.certified().key.choose_scheme(schemes).is_some();
        // The vDSO has the time without a system call.
        let chosen = candidates.certificates.choose(is_supported, || UnixTime::now().as_secs());
        chosen.map(Certificate::certified).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::self_signed::{localhost, localhost_with};
    use std::net::{IpAddr, Ipv4Addr};

    const DAY_S: u64 = 86_400;
    const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[test]
    fn certificate_that_is_valid_at_the_time_is_preferred() {
        // Each is valid from a day before until 30 days after.
        let certificates = [0, 100, 200].map(|day| localhost((1000 + day) * DAY_S).expect("random numbers"));
        let mut store = CertificateStore::new();
        certificates.iter().for_each(|certificate| store.add("localhost", certificate));
        let alternatives = store.find(Some("localhost")).certificates;
        let check = |day: u64, expected: usize| {
            let chosen = alternatives.choose(|_| true, || (1000 + day) * DAY_S).expect("one of them");
            assert!(Arc::ptr_eq(chosen.certified(), certificates[expected].certified()), "{day}");
        };
        check(0, 0);
        check(100, 1);
        check(229, 2);
        // No certificate is valid.
        check(50, 0);
        check(300, 0);
        let supported = |certificate: &Certificate| !Arc::ptr_eq(certificate.certified(), certificates[0].certified());
        let chosen = alternatives.choose(supported, || 1000 * DAY_S).expect("an expired one rather than none");
        assert!(Arc::ptr_eq(chosen.certified(), certificates[1].certified()));
        assert!(alternatives.choose(|_| false, || 0).is_none());
    }

    #[test]
    fn time_is_not_needed_for_a_single_certificate() {
        let mut store = CertificateStore::new();
        store.add_default(&localhost(0).expect("random numbers"));
        assert!(store.find(None).certificates.choose(|_| true, || panic!("asked")).is_some());
    }

    #[test]
    fn client_that_asks_for_no_name_gets_a_certificate_for_an_address() {
        let certificate = |addresses| localhost_with(0, addresses).expect("random numbers");
        let (default, other, of_address) = (certificate(&[]), certificate(&[]), certificate(&[LOOPBACK]));
        let mut store = CertificateStore::new();
        let check = |store: &CertificateStore, name: Option<&str>, expected: &Certificate| {
            let found = store.find(name);
            assert!(found.are_default);
            assert!(found.certificates.contains(expected), "{name:?}");
        };
        store.add("default.example", &default);
        store.add_default(&default);
        store.add("other.example", &other);
        check(&store, None, &default);
        ["a.example", "b.example"].iter().for_each(|name| store.add(name, &of_address));
        check(&store, None, &of_address);
        check(&store, Some("unknown.example"), &default);
        store.refuse_unknown_names();
        check(&store, None, &of_address);
        assert!(store.find(Some("unknown.example")).certificates.is_empty());
    }

    #[test]
    fn certificate_is_valid_for_its_addresses() {
        let certificate = localhost(0).expect("random numbers");
        for (host, expected) in [
            ("127.0.0.1", true),
            ("::1", true),
            ("[::1]", true),
            ("[0:0::1]", true),
            ("127.0.0.2", false),
            ("[::2]", false),
            ("LOCALHOST.", true),
            ("[localhost]", false),
            ("", false),
        ] {
            assert_eq!(certificate.is_valid_for_host(host.as_bytes()), expected, "{host}");
        }
    }
}

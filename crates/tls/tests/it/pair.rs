//! A client of rustls and a session, connected by memory.

use crate::pki::pki;
use rustls::client::{ClientConfig, ClientConnection};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{RootCertStore, SupportedProtocolVersion};
use sanderling_tls::{
    Alpn, Certificate, CertificateStore, ServerTls, Session, SessionError, TICKET_KEY_BYTES, TicketKeys,
};
use std::io::{Read, Write};
use std::sync::Arc;

pub(crate) const VERSIONS: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS12, &rustls::version::TLS13];

/// The certificate `name`, with its intermediate one.
pub(crate) fn certificate(name: &str) -> Certificate {
    Certificate::from_pem(&pki().chain(&[name, "intermediate"]), &pki().read(&format!("{name}.key"))).unwrap()
}

/// A store with the ECDSA certificate for its names, and no default.
pub(crate) fn store() -> CertificateStore {
    let mut store = CertificateStore::new();
    let certificate = certificate("ecdsa");
    certificate.names().for_each(|name| store.add(&name, &certificate));
    store
}

/// Ticket keys that are made of these bytes.
pub(crate) fn tickets(current: u8, previous: Option<u8>) -> Arc<TicketKeys> {
    Arc::new(TicketKeys::new(&[current; TICKET_KEY_BYTES], previous.map(|byte| [byte; TICKET_KEY_BYTES]).as_ref()))
}

/// With [`store`], for HTTP.
pub(crate) fn server_tls() -> ServerTls {
    ServerTls::new(Arc::new(store()), tickets(1, None), &[Alpn::H2, Alpn::Http1, Alpn::Http10])
}

/// A client's algorithms: as in browsers, the hybrid key exchange first.
pub(crate) fn provider() -> CryptoProvider {
    #[cfg(feature = "aws-lc-rs")]
    let provider = {
        use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
        let kx_groups = vec![kx_group::X25519MLKEM768, kx_group::X25519, kx_group::SECP256R1];
        CryptoProvider { kx_groups, ..default_provider() }
    };
    #[cfg(not(feature = "aws-lc-rs"))]
    let provider = rustls::crypto::ring::default_provider();
    provider
}

/// A client that trusts the test authority.
pub(crate) fn client_config(versions: &[&'static SupportedProtocolVersion], provider: CryptoProvider) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&pki().read("root.pem")).unwrap()).unwrap();
    ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// A client of one version, for both versions of HTTP.
pub(crate) fn http_client(version: &'static SupportedProtocolVersion) -> ClientConfig {
    let mut config = client_config(&[version], provider());
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

pub(crate) struct Pair {
    pub(crate) client: ClientConnection,
    pub(crate) session: Session,
    /// Bytes that a side receives at once.
    pub(crate) piece_bytes: usize,
    /// The bytes that the session and the client have decrypted.
    pub(crate) to_server: Vec<u8>,
    pub(crate) to_client: Vec<u8>,
    pub(crate) client_error: Option<rustls::Error>,
    pub(crate) now_ms: u64,
}

impl Pair {
    pub(crate) fn new(config: &Arc<ClientConfig>, name: &str, tls: &ServerTls) -> Pair {
        let name = ServerName::try_from(name).unwrap().to_owned();
        Pair {
            client: ClientConnection::new(Arc::clone(config), name).unwrap(),
            session: Session::new(tls),
            piece_bytes: usize::MAX,
            to_server: Vec::new(),
            to_client: Vec::new(),
            client_error: None,
            now_ms: 1_000_000,
        }
    }

    /// Exchanges bytes until neither side has any. An error of the client is kept.
    pub(crate) fn run(&mut self) -> Result<(), SessionError> {
        loop {
            let to_server = self.client_bytes();
            let fed = self.feed(&to_server);
            let to_client = self.session_bytes();
            self.feed_client(&to_client);
            fed?;
            if to_server.is_empty() && to_client.is_empty() {
                return Ok(());
            }
        }
    }

    /// The bytes from the client.
    pub(crate) fn client_bytes(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.client.wants_write() {
            self.client.write_tls(&mut bytes).unwrap();
        }
        bytes
    }

    /// The bytes from the session.
    pub(crate) fn session_bytes(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.session.has_unsent() {
            self.session.send(&mut bytes).unwrap();
        }
        bytes
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<(), SessionError> {
        for mut piece in bytes.chunks(self.piece_bytes.min(bytes.len().max(1))) {
            while !piece.is_empty() {
                let fed = self.session.feed(piece)?;
                assert!(fed > 0 || self.session.is_readable());
                piece = &piece[fed..];
                let mut plaintext = [0; 1000];
                while self.session.is_readable() {
                    let taken = self.session.take(&mut plaintext);
                    self.to_server.extend_from_slice(&plaintext[..taken]);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn feed_client(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.client_error.is_none() {
            let length = bytes.len().min(self.piece_bytes);
            let read = self.client.read_tls(&mut &bytes[..length]).unwrap();
            bytes = &bytes[read..];
            self.client_error = self.client.process_new_packets().err();
            // At the end of what has arrived the reader says that it would block.
            let _ = self.client.reader().read_to_end(&mut self.to_client);
            if read == 0 {
                break;
            }
        }
    }

    /// The client sends `request`, which must arrive, and the session `response`.
    pub(crate) fn exchange(&mut self, request: &[u8], response: &[u8]) {
        let mut unsent = request;
        while !unsent.is_empty() {
            unsent = &unsent[self.client.writer().write(unsent).unwrap()..];
            self.run().unwrap();
        }
        assert!(std::mem::take(&mut self.to_server) == request);
        let mut unsent = response;
        while !unsent.is_empty() {
            let written = self.session.write(&[unsent], self.now_ms);
            assert!(written > 0);
            unsent = &unsent[written..];
            self.run().unwrap();
        }
        assert!(std::mem::take(&mut self.to_client) == response);
    }
}

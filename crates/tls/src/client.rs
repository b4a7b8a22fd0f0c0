//! The client's side of TLS, for connections to other servers: what it trusts, and one connection, without I/O as the
//! server's side.

use crate::alpn::Alpn;
use crate::certificate::{Certificate, PresentedChain};
use crate::certificate_error::{CertificateError, CertificateProblem};
use crate::pem_files::certificates_from_pem;
use crate::provider::{SuiteOrder, provider};
use crate::session::UNSENT_BYTES_MAX;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConnection, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};
use rustls::{
    AlertDescription, CertificateError as Refusal, ClientConfig, DigitallySignedStruct, Error, RootCertStore,
    SignatureScheme,
};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::sync::Arc;

/// The certificates that a client accepts.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Those for the name of the server that one of these roots has issued, and these themselves.
    Roots {
        /// The roots.
        store: Arc<RootCertStore>,
        /// Certificates that a server may have itself, as self-signed ones often are made.
        own: Vec<CertificateDer<'static>>,
    },
    /// All: a server in between is not noticed.
    Anything,
}

impl Trust {
    /// The roots of a PEM file.
    ///
    /// # Errors
    /// Why it has none.
    pub fn from_pem(roots: &[u8]) -> Result<Trust, CertificateError> {
        let mut store = RootCertStore::empty();
        let own = certificates_from_pem(roots)?;
        for (index, certificate) in own.iter().enumerate() {
            let added = store.add(certificate.clone());
            added.map_err(|error| CertificateError::InvalidCertificate {
                number: index + 1,
                reason: error.to_string(),
            })?;
        }
        Ok(Trust::Roots { store: Arc::new(store), own })
    }

    /// The roots of the system, as DER; those that cannot be parsed are left out.
    pub fn from_der(roots: impl IntoIterator<Item = Vec<u8>>) -> Trust {
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(roots.into_iter().map(CertificateDer::from));
        Trust::Roots { store: Arc::new(store), own: Vec::new() }
    }
}

/// Everything that connections to a server have in common, and the sessions that they resume. A clone shares it.
#[derive(Clone, Debug)]
pub struct ClientTls(Arc<ClientConfig>);

impl ClientTls {
    /// The configuration, for another client of rustls.
    pub fn config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.0)
    }

    /// A client that has `certificate`, if a server asks for one.
    ///
    /// # Errors
    /// There are no roots.
    pub fn new(trust: Trust, certificate: Option<&Certificate>) -> Result<ClientTls, ClientError> {
        let provider = provider(SuiteOrder::Aes128First);
        let verifier: Arc<dyn ServerCertVerifier> = match trust {
            Trust::Roots { store, own } => {
                let builder = WebPkiServerVerifier::builder_with_provider(store, Arc::clone(&provider));
                Arc::new(IssuedOrOwn { issued: builder.build().map_err(|_| ClientError::NoRoots)?, own })
            }
            Trust::Anything => Arc::new(AnyCertificate(Arc::clone(&provider))),
        };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13, &TLS12])
            .expect("the provider has suites for both versions")
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let config = match certificate {
            Some(certificate) => {
                let resolver = SingleCertAndKey::from(Arc::clone(certificate.certified()));
                builder.with_client_cert_resolver(Arc::new(resolver))
            }
            None => builder.with_no_client_auth(),
        };
        Ok(ClientTls(Arc::new(config)))
    }
}

/// Accepts what the roots have issued, and each of these certificates itself, although it may be one of an authority,
/// which webpki does not accept for a server.
#[derive(Debug)]
struct IssuedOrOwn {
    issued: Arc<WebPkiServerVerifier>,
    own: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for IssuedOrOwn {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !self.own.iter().any(|own| own == certificate) {
            return self.issued.verify_server_cert(certificate, others, name, ocsp, now);
        }
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
        let chain = PresentedChain::new(vec![certificate.to_vec()]);
        let chain = chain.map_err(|_| Error::InvalidCertificate(Refusal::BadEncoding))?;
        match chain.time_problem(now.as_secs()) {
            Some(CertificateProblem::NotYetValid { .. }) => Err(Error::InvalidCertificate(Refusal::NotValidYet)),
            Some(CertificateProblem::Expired { .. }) => Err(Error::InvalidCertificate(Refusal::Expired)),
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.issued.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.issued.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.issued.supported_verify_schemes()
    }
}

/// Accepts every certificate whose key the server has.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// The name of a server: a DNS name, or an IP address, which is not sent to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerName(ServerName<'static>);

impl PeerName {
    /// The name `text`; `None` if it is neither a DNS name nor an IP address.
    pub fn parse(text: &str) -> Option<PeerName> {
        ServerName::try_from(text).ok().map(|name| PeerName(name.to_owned()))
    }

    /// An address.
    pub fn address(address: IpAddr) -> PeerName {
        PeerName(ServerName::IpAddress(address.into()))
    }
}

/// The reason why there is no session with a server; the text follows its name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// Its certificate is for other names.
    #[error("has a certificate for another name")]
    WrongName,
    /// None of the roots has issued its certificate.
    #[error("has a certificate that is not trusted")]
    Untrusted,
    /// Its certificate has expired.
    #[error("has a certificate that has expired")]
    Expired,
    /// Its certificate is not valid yet.
    #[error("has a certificate that is not valid yet")]
    NotYetValid,
    /// Its certificate cannot be used for another reason.
    #[error("has a certificate that cannot be used: {0}")]
    InvalidCertificate(String),
    /// It has ended the session by an alert.
    #[error("ended TLS with the alert {0}")]
    Alert(String),
    /// It does not speak TLS.
    #[error("does not speak TLS")]
    NotTls,
    /// It does not speak the wanted protocol above TLS.
    #[error("does not speak {0} above TLS")]
    NoProtocol(&'static str),
    /// It has closed the connection in the handshake.
    #[error("closed the connection in the TLS handshake")]
    Closed,
    /// There are no roots.
    #[error("cannot be verified, as there are no trusted root certificates")]
    NoRoots,
    /// The settings of TLS could not be loaded.
    #[error("is not asked, as the files of its TLS settings cannot be used")]
    NoSettings,
    /// Another error.
    #[error("cannot speak TLS with this server: {0}")]
    Other(String),
}

impl From<Error> for ClientError {
    fn from(error: Error) -> ClientError {
        match error {
            Error::InvalidCertificate(Refusal::NotValidForName | Refusal::NotValidForNameContext { .. }) => {
                ClientError::WrongName
            }
            Error::InvalidCertificate(Refusal::UnknownIssuer) => ClientError::Untrusted,
            Error::InvalidCertificate(Refusal::Expired | Refusal::ExpiredContext { .. }) => ClientError::Expired,
            Error::InvalidCertificate(Refusal::NotValidYet | Refusal::NotValidYetContext { .. }) => {
                ClientError::NotYetValid
            }
            // The certificate could issue others, as a self-signed one of `openssl req -x509` could.
            Error::InvalidCertificate(Refusal::Other(other))
                if other.0.downcast_ref() == Some(&webpki::Error::CaUsedAsEndEntity) =>
            {
                ClientError::Untrusted
            }
            Error::InvalidCertificate(other) => ClientError::InvalidCertificate(other.to_string()),
            Error::AlertReceived(alert) => ClientError::Alert(format!("{alert:?}")),
            Error::InvalidMessage(_) => ClientError::NotTls,
            other => ClientError::Other(other.to_string()),
        }
    }
}

/// The client's side of a TLS connection.
///
/// A session has no deadline: the caller closes connections whose handshake takes too long.
#[derive(Debug)]
pub struct ClientSession {
    connection: ClientConnection,
    alpn: Alpn,
    /// Plaintext that was decrypted and not taken.
    readable_bytes: usize,
    /// The server has sent `close_notify`.
    has_peer_closed: bool,
}

impl ClientSession {
    /// A session with the server `name`, for the protocol `alpn`. Its first message is unsent.
    ///
    /// # Errors
    /// There are no random numbers.
    pub fn new(tls: &ClientTls, name: &PeerName, alpn: Alpn) -> Result<ClientSession, ClientError> {
        let connection = ClientConnection::new_with_alpn(Arc::clone(&tls.0), name.0.clone(), vec![alpn.id().to_vec()])?;
        Ok(ClientSession { connection, alpn, readable_bytes: 0, has_peer_closed: false })
    }

    /// Whether nothing can be read or written yet.
    pub fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether there is plaintext to take.
    pub fn is_readable(&self) -> bool {
        self.readable_bytes > 0
    }

    /// Whether the server sends no more, and has said so: what has arrived is whole.
    pub fn has_peer_closed(&self) -> bool {
        self.has_peer_closed
    }

    /// Whether there is something for [`ClientSession::send`] to send.
    pub fn has_unsent(&self) -> bool {
        self.connection.wants_write()
    }

    /// Takes plaintext, as much as there is and fits, and returns how much.
    pub fn take(&mut self, plaintext: &mut [u8]) -> usize {
        if self.readable_bytes == 0 {
            return 0;
        }
        let taken = self.connection.reader().read(plaintext).unwrap_or(0);
        self.readable_bytes -= taken;
        taken
    }

    /// Replaces the received bytes at the start of `buffer` with the plaintext, and returns its length. Afterwards some
    /// can be left, if the buffer is full.
    ///
    /// # Errors
    /// After an error, the unsent alert is sent, and the connection closed.
    pub fn decrypt_in_place(&mut self, buffer: &mut [u8], ciphertext_bytes: usize) -> Result<usize, ClientError> {
        let (mut fed, mut taken) = (0, 0);
        while fed < ciphertext_bytes {
            fed += self.feed(&buffer[fed..ciphertext_bytes])?;
            taken += self.take(&mut buffer[taken..fed]);
        }
        taken += self.take(&mut buffer[taken..]);
        Ok(taken)
    }

    /// Takes bytes of the handshake from the network, and perhaps data after its last message, which is taken by
    /// [`ClientSession::take`].
    ///
    /// # Errors
    /// As [`ClientSession::decrypt_in_place`].
    pub fn feed_all(&mut self, ciphertext: &[u8]) -> Result<(), ClientError> {
        let mut fed = 0;
        while fed < ciphertext.len() {
            fed += self.feed(&ciphertext[fed..])?;
        }
        Ok(())
    }

    /// Takes the start of what was received, and returns how much, at least one byte.
    fn feed(&mut self, ciphertext: &[u8]) -> Result<usize, ClientError> {
        let mut rest = ciphertext;
        let was_handshaking = self.connection.is_handshaking();
        match self.connection.read_tls(&mut rest) {
            Ok(1..) => {}
            _ => return Err(ClientError::Other("a message is too long".to_owned())),
        }
        let state = self.connection.process_new_packets().map_err(|error| match error {
            Error::AlertReceived(AlertDescription::NoApplicationProtocol) => self.no_protocol(),
            error => error.into(),
        })?;
        self.readable_bytes = state.plaintext_bytes_to_read();
        self.has_peer_closed |= state.peer_has_closed();
        if was_handshaking && !self.connection.is_handshaking() {
            self.check_protocol()?;
        }
        Ok(ciphertext.len() - rest.len())
    }

    /// A server that knows no ALPN speaks HTTP/1.1.
    fn check_protocol(&self) -> Result<(), ClientError> {
        match (self.alpn, self.connection.alpn_protocol()) {
            (Alpn::Http1, None) => Ok(()),
            (expected, Some(chosen)) if chosen == expected.id() => Ok(()),
            _ => Err(self.no_protocol()),
        }
    }

    fn no_protocol(&self) -> ClientError {
        ClientError::NoProtocol(if self.alpn == Alpn::H2 { "HTTP/2" } else { "HTTP/1.1" })
    }

    /// Encrypts the start of `parts`, as much as may be unsent, and returns how many bytes.
    pub fn write(&mut self, parts: [&[u8]; 2]) -> usize {
        if self.is_handshaking() || self.has_unsent() {
            return 0;
        }
        let [head, body] = parts;
        let head = &head[..head.len().min(UNSENT_BYTES_MAX)];
        let body = &body[..body.len().min(UNSENT_BYTES_MAX - head.len())];
        let slices = [io::IoSlice::new(head), io::IoSlice::new(body)];
        self.connection.writer().write_vectored(&slices).unwrap_or(0)
    }

    /// Sends the unsent output with one vectored write, and returns the amount written. Errors come from `sink`.
    ///
    /// # Errors
    /// Those of `sink`.
    pub fn send(&mut self, sink: &mut dyn Write) -> io::Result<usize> {
        self.connection.write_tls(sink)
    }

    /// Adds `close_notify` to the unsent output.
    pub fn close(&mut self) {
        self.connection.send_close_notify();
    }

    /// Whether the session resumes an earlier one.
    pub fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(rustls::HandshakeKind::Resumed)
    }
}

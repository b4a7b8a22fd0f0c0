//! The client's side of TLS: any certificate is accepted, but its key must have signed the handshake.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{self, CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

/// The encryption of connections to a host. Sessions are resumed.
#[derive(Clone)]
pub(crate) struct Tls {
    connector: TlsConnector,
    host: ServerName<'static>,
}

impl Tls {
    /// `alpn`: the requested protocol.
    pub(crate) fn new(host: &str, alpn: &[u8]) -> io::Result<Tls> {
        let host = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        Ok(Tls { connector: Arc::new(config(alpn)).into(), host })
    }

    pub(crate) async fn connect(&self, server: SocketAddr) -> io::Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(server).await?;
        self.connector.connect(self.host.clone(), stream).await
    }
}

/// The configuration of a client that asks for a protocol.
pub fn config(alpn: &[u8]) -> ClientConfig {
    config_with(aws_lc_rs::default_provider(), alpn)
}

/// A client configuration with the given cryptography.
pub fn config_with(provider: CryptoProvider, alpn: &[u8]) -> ClientConfig {
    let provider = Arc::new(provider);
    let verifier = Arc::new(AnyCertificate(Arc::clone(&provider)));
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("the provider has suites").dangerous().with_custom_certificate_verifier(verifier);
    let mut config = config.with_no_client_auth();
    config.alpn_protocols = vec![alpn.to_vec()];
    config
}

/// A connection, perhaps encrypted.
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    pub(crate) async fn connect(server: SocketAddr, tls: Option<&Tls>) -> io::Result<Stream> {
        Ok(match tls {
            None => Stream::Plain(TcpStream::connect(server).await?),
            Some(tls) => Stream::Tls(Box::new(tls.connect(server).await?)),
        })
    }

    pub(crate) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.write_all(bytes).await,
            Stream::Tls(stream) => {
                stream.write_all(bytes).await?;
                stream.flush().await
            }
        }
    }

    pub(crate) async fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(stream) => stream.read(into).await,
            Stream::Tls(stream) => stream.read(into).await,
        }
    }

    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => stream.get_ref().0,
        }
    }
}

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
        crypto::verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        crypto::verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

//! The certificates that a server presents, and whether clients trust their issuer.

use crate::https_client::read_root;
use crate::unverified_tls::{crypto_provider, unverified_config};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, Error, RootCertStore};
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The certificates of a server.
#[derive(Clone, Debug)]
pub struct Presented {
    /// As DER, that of the server first.
    pub chain: Vec<Vec<u8>>,
    /// Whether clients find a trusted root.
    pub trust: Trust,
}

/// Whether a chain leads to a trusted root: of this machine, or of an authority in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// It does. The certificate may be invalid for another reason.
    Trusted,
    /// No trusted root has issued it, or a certificate between them is missing.
    UnknownIssuer,
    /// This machine has no roots.
    NoRoots,
}

/// Reads the chains of servers.
pub(super) struct ChainReader {
    tls: TlsConnector,
    trusted: Option<Arc<WebPkiServerVerifier>>,
}

impl ChainReader {
    /// With the roots of this machine, and those in the files `roots`.
    pub(super) fn new(roots: &[&Path]) -> ChainReader {
        let provider = Arc::new(crypto_provider());
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        for path in roots {
            // `check` reports one that cannot be read.
            store.add_parsable_certificates(read_root(path).unwrap_or_default());
        }
        let trusted = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider).build().ok();
        ChainReader { tls: TlsConnector::from(unverified_config()), trusted }
    }

    /// The chain for `host`.
    ///
    /// # Errors
    /// Why there is no TLS connection.
    pub(super) async fn read(&self, stream: TcpStream, host: &str) -> Result<Presented, String> {
        let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
        let stream = self.tls.connect(name.clone(), stream).await.map_err(|error| error.to_string())?;
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default().to_vec();
        let trust = self.trust(&chain, &name);
        Ok(Presented { chain: chain.into_iter().map(|certificate| certificate.to_vec()).collect(), trust })
    }

    fn trust(&self, chain: &[CertificateDer<'_>], name: &ServerName<'_>) -> Trust {
        let Some(verifier) = &self.trusted else { return Trust::NoRoots };
        let Some((leaf, others)) = chain.split_first() else { return Trust::UnknownIssuer };
        match verifier.verify_server_cert(leaf, others, name, &[], UnixTime::now()) {
            Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => Trust::UnknownIssuer,
            _ => Trust::Trusted,
        }
    }
}

//! The settings for the encryption of connections to backends, loaded from the files of the configuration.

use sanderling_site_rules::{BackendAddress, BackendProtocol, BackendTls, TlsFiles};
use sanderling_tls::{Alpn, ClientError, ClientSession, ClientTls, PeerName};

/// The settings for each set of files. All workers share them, and the sessions that they resume.
#[derive(Debug, Default)]
pub struct BackendTlsSettings(Vec<(TlsFiles, ClientTls)>);

impl BackendTlsSettings {
    /// These settings. Backends whose files are not among them are not connected.
    pub fn new(settings: Vec<(TlsFiles, ClientTls)>) -> BackendTlsSettings {
        BackendTlsSettings(settings)
    }

    /// The settings for these files.
    pub fn find(&self, files: &TlsFiles) -> Option<&ClientTls> {
        self.0.iter().find(|(own, _)| own == files).map(|(_, settings)| settings)
    }

    /// A session with the server that the configuration has at `address`.
    pub(crate) fn session(
        &self,
        tls: &BackendTls,
        address: &BackendAddress,
        protocol: &BackendProtocol,
    ) -> Result<ClientSession, ClientError> {
        let settings = self.find(&tls.files).ok_or(ClientError::NoSettings)?;
        let name = match (&tls.name, address) {
            (Some(name), _) => PeerName::parse(name),
            (None, BackendAddress::Tcp(address)) => Some(PeerName::address(address.ip())),
            (None, BackendAddress::Host { name, .. }) => PeerName::parse(name),
            (None, BackendAddress::Unix(_)) => None,
        };
        let alpn = match protocol {
            BackendProtocol::Http2 => Alpn::H2,
            BackendProtocol::Http1 | BackendProtocol::FastCgi(_) => Alpn::Http1,
        };
        ClientSession::new(settings, &name.ok_or(ClientError::WrongName)?, alpn)
    }
}

//! Everything that a listener needs for TLS: an immutable value, replaced as a whole.

use crate::alpn::Alpn;
use crate::certificate_store::CertificateStore;
use crate::provider::{SuiteOrder, provider};
use crate::tickets::TicketKeys;
use rustls::CipherSuite;
use rustls::server::{NoServerSessionStorage, ServerConfig};
use rustls::version::{TLS12, TLS13};
use std::sync::Arc;

/// Certificates, ticket keys and protocols of a listener. A clone shares them.
///
/// A connection keeps the value that it began with. After a change, a new value is made for new connections, from the
/// parts that stay the same: sessions are resumed as long as the ticket keys stay, or stay as the previous ones.
#[derive(Clone, Debug)]
pub struct ServerTls(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// The configurations, by the order of their suites.
    configs: [(SuiteOrder, Arc<ServerConfig>); SuiteOrder::ALL.len()],
    certificates: Arc<CertificateStore>,
}

impl ServerTls {
    /// `alpn`: the listener's protocols, the preferred one first. A client that asks only for others is refused; one
    /// that asks for none is served.
    #[expect(clippy::needless_pass_by_value, reason = "the configurations keep the parts")]
    pub fn new(certificates: Arc<CertificateStore>, tickets: Arc<TicketKeys>, alpn: &[Alpn]) -> ServerTls {
        let configs = SuiteOrder::ALL.map(|order| (order, Arc::new(config_of(order, &certificates, &tickets, alpn))));
        ServerTls(Arc::new(Shared { configs, certificates }))
    }

    /// Draws a random number: the first one of a process takes tens of milliseconds, which no client should wait for.
    /// Returns `false` if there are none, and then no handshake can succeed.
    #[must_use]
    pub fn warm_up(&self) -> bool {
        self.0.configs[0].1.crypto_provider().secure_random.fill(&mut [0; 32]).is_ok()
    }

    /// The certificates.
    pub fn certificates(&self) -> &Arc<CertificateStore> {
        &self.0.certificates
    }

    /// The configuration for a client with these suites, the preferred one first.
    pub(crate) fn config_for(&self, suites: &[CipherSuite]) -> Arc<ServerConfig> {
        let order = SuiteOrder::for_client(suites);
        let (_, config) = self.0.configs.iter().find(|(of_config, _)| *of_config == order).expect("one of each order");
        Arc::clone(config)
    }
}

fn config_of(
    order: SuiteOrder,
    certificates: &Arc<CertificateStore>,
    tickets: &Arc<TicketKeys>,
    alpn: &[Alpn],
) -> ServerConfig {
    // RFC 8996 deprecates TLS 1.0 and 1.1. rustls has no renegotiation, no compression and no suite without AEAD.
    let mut config = ServerConfig::builder_with_provider(provider(order))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .expect("the provider has suites for both versions")
        .with_no_client_auth()
        .with_cert_resolver(Arc::clone(certificates) as _);
    config.ignore_client_order = true;
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.id().to_vec()).collect();
    config.ticketer = Arc::clone(tickets) as _;
    config.send_tls13_tickets = 1;
    // Sessions in memory could not be resumed by another process.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    // A request in the first flight (0-RTT) could be replayed (RFC 8446 §8).
    config.max_early_data_size = 0;
    config
}

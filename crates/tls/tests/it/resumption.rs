//! Resumed sessions, across changes of keys and certificates.

use crate::pair::{Pair, VERSIONS, certificate, http_client, store, tickets};
use rustls::client::ClientConfig;
use rustls::{AlertDescription, Error};
use sanderling_tls::{Alpn, CertificateStore, ServerTls, TicketKeys};
use std::sync::Arc;

fn tls(tickets: Arc<TicketKeys>) -> ServerTls {
    ServerTls::new(Arc::new(store()), tickets, &[Alpn::H2, Alpn::Http1])
}

/// Whether a client, which keeps its tickets in `config`, resumes a session.
fn is_resumed(config: &Arc<ClientConfig>, name: &str, tls: &ServerTls) -> bool {
    let mut pair = Pair::new(config, name, tls);
    pair.run().unwrap();
    pair.exchange(b"a request", b"a response");
    pair.session.is_resumed()
}

#[test]
fn session_is_resumed_until_its_key_is_neither_current_nor_previous() {
    for version in VERSIONS {
        let config = Arc::new(http_client(version));
        assert!(!is_resumed(&config, "example.com", &tls(tickets(1, None))));
        assert!(is_resumed(&config, "example.com", &tls(tickets(1, None))), "another process with the same keys");
        assert!(is_resumed(&config, "example.com", &tls(tickets(2, Some(1)))), "after a rotation");
        assert!(is_resumed(&config, "example.com", &tls(tickets(3, Some(2)))), "by the ticket that came with it");
        assert!(!is_resumed(&config, "example.com", &tls(tickets(5, Some(4)))), "with other keys");
    }
}

#[test]
fn client_has_one_ticket_of_each_handshake() {
    let config = Arc::new(http_client(VERSIONS[1]));
    let tls = tls(tickets(1, None));
    let mut pair = Pair::new(&config, "example.com", &tls);
    pair.run().unwrap();
    assert_eq!(pair.client.tls13_tickets_received(), 1);
}

#[test]
fn session_goes_on_after_its_certificate_was_replaced() {
    let tickets = tickets(1, None);
    for version in VERSIONS {
        let config = Arc::new(http_client(version));
        assert!(!is_resumed(&config, "example.com", &tls(Arc::clone(&tickets))));
        let mut others = CertificateStore::new();
        ["ed25519", "rsa"].iter().for_each(|name| others.add("example.com", &certificate(name)));
        let tls = ServerTls::new(Arc::new(others), Arc::clone(&tickets), &[Alpn::H2]);
        assert!(is_resumed(&config, "example.com", &tls));
    }
}

#[test]
fn name_that_is_no_longer_served_is_refused_in_spite_of_a_ticket() {
    for version in VERSIONS {
        let config = Arc::new(http_client(version));
        assert!(!is_resumed(&config, "example.org", &tls(tickets(1, None))));
        let mut other = CertificateStore::new();
        other.add("other.example.com", &certificate("other"));
        let tls = ServerTls::new(Arc::new(other), tickets(1, None), &[Alpn::H2]);
        let mut pair = Pair::new(&config, "example.org", &tls);
        assert!(pair.run().is_err());
        assert_eq!(pair.client_error, Some(Error::AlertReceived(AlertDescription::UnrecognisedName)));
    }
}

#[test]
fn ticket_of_one_name_does_not_resume_a_session_with_another() {
    use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
    use rustls::pki_types::ServerName;
    use std::sync::Mutex;

    /// Tickets without regard to the name: what an attacker would do.
    #[derive(Debug, Default)]
    struct AnyName(Mutex<Vec<Tls13ClientSessionValue>>, Mutex<Option<Tls12ClientSessionValue>>);

    impl ClientSessionStore for AnyName {
        fn set_kx_hint(&self, _: ServerName<'static>, _: rustls::NamedGroup) {}
        fn kx_hint(&self, _: &ServerName<'_>) -> Option<rustls::NamedGroup> {
            None
        }
        fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
            *self.1.lock().unwrap() = Some(value);
        }
        fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
            self.1.lock().unwrap().clone()
        }
        fn remove_tls12_session(&self, _: &ServerName<'static>) {}
        fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
            self.0.lock().unwrap().push(value);
        }
        fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
            self.0.lock().unwrap().pop()
        }
    }

    for version in VERSIONS {
        let mut config = http_client(version);
        config.resumption = rustls::client::Resumption::store(Arc::new(AnyName::default()));
        let config = Arc::new(config);
        let tls = tls(tickets(1, None));
        assert!(!is_resumed(&config, "example.com", &tls));
        assert!(is_resumed(&config, "example.com", &tls));
        assert!(!is_resumed(&config, "example.org", &tls));
    }
}

/// A server of rustls that takes requests in the first flight (0-RTT).
fn server_with_early_data() -> rustls::ServerConnection {
    use crate::pair::provider;
    use crate::pki::pki;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let chain = pki().chain(&["ecdsa", "intermediate"]);
    let chain = CertificateDer::pem_slice_iter(&chain).collect::<Result<_, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(&pki().read("ecdsa.key")).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(provider()));
    let config = config.with_protocol_versions(&[&rustls::version::TLS13]).unwrap().with_no_client_auth();
    let mut config = config.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    config.max_early_data_size = 1_000;
    rustls::ServerConnection::new(Arc::new(config)).unwrap()
}

#[test]
fn request_in_the_first_flight_is_rejected_and_the_handshake_goes_on() {
    use std::io::Write;
    let mut config = http_client(VERSIONS[1]);
    config.enable_early_data = true;
    let config = Arc::new(config);
    // Another server gives a ticket that allows early data.
    let (mut server, mut to_server, mut to_client) = (server_with_early_data(), Vec::new(), Vec::new());
    let mut client = rustls::ClientConnection::new(Arc::clone(&config), "example.com".try_into().unwrap()).unwrap();
    while client.wants_write() || server.wants_write() {
        client.write_tls(&mut to_server).unwrap();
        server.read_tls(&mut std::mem::take(&mut to_server).as_slice()).unwrap();
        server.process_new_packets().unwrap();
        server.write_tls(&mut to_client).unwrap();
        client.read_tls(&mut std::mem::take(&mut to_client).as_slice()).unwrap();
        client.process_new_packets().unwrap();
    }

    let mut pair = Pair::new(&config, "example.com", &tls(tickets(1, None)));
    pair.client.early_data().expect("the ticket allows it").write_all(b"a request that could be replayed").unwrap();
    pair.run().unwrap();
    assert!(!pair.client.is_early_data_accepted());
    assert_eq!(pair.to_server, b"");
    pair.exchange(b"a request", b"a response");
}

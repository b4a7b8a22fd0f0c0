//! Versions, protocols, and the choice of the certificate.

use crate::pair::{Pair, VERSIONS, certificate, client_config, http_client, provider, server_tls, store, tickets};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, Resumption};
use rustls::crypto::{ActiveKeyExchange, SharedSecret, SupportedKxGroup};
use rustls::pki_types::CertificateDer;
use rustls::{AlertDescription, CipherSuite, DigitallySignedStruct, Error, HandshakeKind, NamedGroup, SignatureScheme};
use sanderling_tls::{
    Alpn, Certificate, CertificateStore, KeyId, PrivateKey, RemoteSigner, ServerTls, SessionError, SignError, State,
    Version,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

#[test]
fn request_and_response_pass_in_pieces_of_any_length() {
    for version in VERSIONS {
        for piece_bytes in [1, 2, 5, 100, usize::MAX] {
            let mut pair = Pair::new(&Arc::new(http_client(version)), "example.com", &server_tls());
            pair.piece_bytes = piece_bytes;
            pair.run().unwrap();
            assert_eq!(pair.session.state(), State::Open);
            assert_eq!(pair.session.alpn(), Some(Alpn::H2));
            assert_eq!(
                pair.session.version(),
                Some(if version == VERSIONS[0] { Version::Tls12 } else { Version::Tls13 })
            );
            assert!(!pair.session.is_resumed());
            pair.exchange(b"a request", b"a response");
            pair.exchange(&[1; 3000], &[2; 3000]);
        }
    }
}

#[test]
fn request_in_the_last_flight_of_the_handshake_is_decrypted_in_place() {
    use std::io::Write;
    for version in VERSIONS {
        let mut pair = Pair::new(&Arc::new(http_client(version)), "example.com", &server_tls());
        // Held back by the client until the handshake is complete.
        pair.client.writer().write_all(b"a request").unwrap();
        let mut decrypted = Vec::new();
        for _ in 0..3 {
            let mut buffer = vec![0; 20_000];
            let arrived = pair.client_bytes();
            buffer[..arrived.len()].copy_from_slice(&arrived);
            let length = pair.session.decrypt_in_place(&mut buffer, arrived.len()).unwrap();
            decrypted.extend_from_slice(&buffer[..length]);
            let answer = pair.session_bytes();
            pair.feed_client(&answer);
        }
        assert_eq!(decrypted, b"a request");
    }
}

#[test]
fn random_numbers_are_drawn_before_the_first_handshake() {
    assert!(server_tls().warm_up());
}

#[test]
fn hybrid_key_exchange_is_used() {
    let mut pair = Pair::new(&Arc::new(client_config(&VERSIONS, provider())), "example.com", &server_tls());
    pair.run().unwrap();
    let group = pair.client.negotiated_key_exchange_group().unwrap().name();
    let expected =
        if cfg!(feature = "aws-lc-rs") { rustls::NamedGroup::X25519MLKEM768 } else { rustls::NamedGroup::X25519 };
    assert_eq!(group, expected);
}

/// rustls ignores the order of the server.
#[cfg(feature = "aws-lc-rs")]
#[test]
fn key_exchange_is_the_first_one_of_the_client() {
    use rustls::NamedGroup::{X25519, X25519MLKEM768, secp256r1};
    use rustls::crypto::aws_lc_rs::kx_group;
    let check = |groups: &[&'static dyn rustls::crypto::SupportedKxGroup], expected| {
        let provider = rustls::crypto::CryptoProvider { kx_groups: groups.to_vec(), ..provider() };
        let mut pair = Pair::new(&Arc::new(client_config(&VERSIONS, provider)), "example.com", &server_tls());
        pair.run().unwrap();
        assert_eq!(pair.client.negotiated_key_exchange_group().unwrap().name(), expected);
    };
    check(&[kx_group::X25519MLKEM768, kx_group::X25519], X25519MLKEM768);
    check(&[kx_group::X25519, kx_group::X25519MLKEM768], X25519);
    check(&[kx_group::SECP256R1, kx_group::X25519MLKEM768], secp256r1);
}

#[test]
fn protocol_is_the_first_of_the_server_that_the_client_knows() {
    let check = |client: &[&str], expected: Option<Alpn>| {
        let mut config = client_config(&VERSIONS, provider());
        config.alpn_protocols = client.iter().map(|id| id.as_bytes().to_vec()).collect();
        let mut pair = Pair::new(&Arc::new(config), "example.com", &server_tls());
        pair.run().unwrap();
        assert_eq!(pair.session.alpn(), expected, "{client:?}");
    };
    check(&["http/1.1", "h2"], Some(Alpn::H2));
    check(&["http/1.1", "unknown"], Some(Alpn::Http1));
    check(&["http/1.0", "http/1.1"], Some(Alpn::Http1));
    check(&["http/1.0"], Some(Alpn::Http10));
    check(&[], None);
}

#[test]
fn client_without_a_protocol_in_common_gets_an_alert() {
    let mut config = client_config(&VERSIONS, provider());
    config.alpn_protocols = vec![b"dot".to_vec()];
    let mut pair = Pair::new(&Arc::new(config), "example.com", &server_tls());
    assert!(matches!(pair.run(), Err(SessionError::NoCommonProtocol)));
    assert_eq!(pair.client_error, Some(Error::AlertReceived(AlertDescription::NoApplicationProtocol)));
    assert_eq!((pair.session.state(), pair.session.writable_bytes()), (State::Failed, 0));
}

/// The certificate that a client gets for a name, or the alert.
fn certificate_for(
    store: CertificateStore,
    config: ClientConfig,
    name: &str,
) -> Result<CertificateDer<'static>, Error> {
    let tls = ServerTls::new(Arc::new(store), tickets(1, None), &[]);
    let mut pair = Pair::new(&Arc::new(config), name, &tls);
    let result = pair.run();
    match pair.client_error {
        Some(error) => Err(error),
        None => {
            result.unwrap();
            Ok(pair.client.peer_certificates().unwrap()[0].clone().into_owned())
        }
    }
}

fn first(name: &str) -> CertificateDer<'static> {
    use rustls::pki_types::pem::PemObject;
    CertificateDer::from_pem_slice(&crate::pki::pki().read(&format!("{name}.pem"))).unwrap()
}

#[test]
fn certificate_is_chosen_by_exact_name_then_by_wildcard() {
    let stores = || {
        let mut store = store();
        store.add("Other.example.com", &certificate("other"));
        store
    };
    let check = |name: &str, expected: &str| {
        for version in VERSIONS {
            let found = certificate_for(stores(), client_config(&[version], provider()), name);
            assert_eq!(found, Ok(first(expected)), "{name}");
        }
    };
    check("example.com", "ecdsa");
    check("EXAMPLE.org", "ecdsa");
    check("www.example.com", "ecdsa");
    check("other.example.com", "other");
}

#[test]
fn session_knows_for_which_hosts_its_certificate_is() {
    // For example.com, *.example.com and example.org.
    let mut store = store();
    store.add_default(&certificate("other"));
    let tls = ServerTls::new(Arc::new(store), tickets(1, None), &[Alpn::H2, Alpn::Http1]);
    let check = |version, name: &str, is_default: bool, expected: &[(&str, bool)]| {
        let mut config = http_client(version);
        // The client does not ask for an address.
        config.dangerous().set_certificate_verifier(Arc::new(Trusting));
        let mut pair = Pair::new(&Arc::new(config), name, &tls);
        assert!(!pair.session.has_certificate_for(b"example.com"));
        pair.run().unwrap();
        assert_eq!(pair.session.has_default_certificate(), is_default, "{name}");
        for (host, is_valid) in expected {
            assert_eq!(pair.session.has_certificate_for(host.as_bytes()), *is_valid, "{name}: {host}");
        }
    };
    for version in VERSIONS {
        let of_ecdsa = [
            ("example.com", true),
            ("EXAMPLE.com.", true),
            ("any.example.com", true),
            ("example.org", true),
            ("a.b.example.com", false),
            (".example.com", false),
            ("other.example", false),
            ("192.0.2.1", false),
            ("", false),
        ];
        check(version, "www.example.com", false, &of_ecdsa);
        let of_other = [("other.example.com", true), ("example.com", false)];
        check(version, "unknown.example.net", true, &of_other);
        check(version, "192.0.2.1", true, &of_other);
    }
}

/// Accepts each certificate.
#[derive(Debug)]
struct Trusting;

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &rustls::pki_types::ServerName<'_>,
        _: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

#[test]
fn store_knows_names_with_a_valid_certificate() {
    let mut store = store();
    store.add("example.net", &certificate("other"));
    store.add_default(&certificate("other"));
    let check = |host: &str, expected: bool| assert_eq!(store.has_valid_certificate_for(host), expected, "{host}");
    check("example.com", true);
    check("Any.EXAMPLE.com.", true);
    // The client has another certificate, or the default.
    check("example.net", false);
    check("other.example.com", true);
    check("default.example.net", false);
}

#[test]
fn unknown_name_is_refused_with_its_alert() {
    let unknown = Err(Error::AlertReceived(AlertDescription::UnrecognisedName));
    // A wildcard holds for one label.
    for name in ["example.net", "a.b.example.com", "com"] {
        for version in VERSIONS {
            assert_eq!(certificate_for(store(), client_config(&[version], provider()), name), unknown, "{name}");
        }
    }
    // Without a name.
    assert_eq!(certificate_for(store(), client_config(&VERSIONS, provider()), "192.0.2.1"), unknown);

    let mut pair = Pair::new(&Arc::new(http_client(VERSIONS[1])), "example.net", &server_tls());
    assert!(matches!(pair.run(), Err(SessionError::UnknownName)));
}

#[test]
fn default_certificate_is_for_other_names_and_for_none() {
    let mut store = CertificateStore::new();
    store.add_default(&certificate("other"));
    assert_eq!(certificate_for(store, client_config(&VERSIONS, provider()), "192.0.2.1"), Ok(first("other")));

    let mut store = CertificateStore::new();
    store.add_default(&certificate("ecdsa"));
    assert_eq!(certificate_for(store, client_config(&VERSIONS, provider()), "example.org"), Ok(first("ecdsa")));
}

#[test]
fn unknown_names_are_refused_although_there_is_a_default() {
    let stores = || {
        let mut store = store();
        store.add_default(&certificate("other"));
        store.refuse_unknown_names();
        store
    };
    let unknown = Err(Error::AlertReceived(AlertDescription::UnrecognisedName));
    assert_eq!(certificate_for(stores(), client_config(&VERSIONS, provider()), "other.example.net"), unknown);
    assert_eq!(certificate_for(stores(), client_config(&VERSIONS, provider()), "192.0.2.1"), Ok(first("other")));
    assert_eq!(certificate_for(stores(), client_config(&VERSIONS, provider()), "example.com"), Ok(first("ecdsa")));
}

#[test]
fn client_gets_the_preferred_key_type_that_it_supports() {
    let store = || {
        let mut store = CertificateStore::new();
        ["rsa", "ed25519", "ecdsa"].iter().for_each(|name| store.add("example.com", &certificate(name)));
        store
    };
    let full = client_config(&VERSIONS, provider());
    assert_eq!(certificate_for(store(), full, "example.com"), Ok(first("ecdsa")));

    let mut rsa_alone = provider();
    rsa_alone.cipher_suites.retain(|suite| suite.suite() == CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256);
    let rsa_alone = client_config(&[VERSIONS[0]], rsa_alone);
    assert_eq!(certificate_for(store(), rsa_alone.clone(), "example.com"), Ok(first("rsa")));

    let mut ecdsa_store = CertificateStore::new();
    ecdsa_store.add("example.com", &certificate("ecdsa"));
    let failure = Err(Error::AlertReceived(AlertDescription::HandshakeFailure));
    assert_eq!(certificate_for(ecdsa_store, rsa_alone, "example.com"), failure);
}

/// A process that has a key, and may fail.
#[derive(Debug)]
struct OtherProcess {
    key: PrivateKey,
    fails: bool,
    /// Requests that are not answered.
    unanswered: AtomicU32,
}

impl OtherProcess {
    fn new(key: &PrivateKey, fails: bool) -> OtherProcess {
        OtherProcess { key: key.clone(), fails, unanswered: AtomicU32::new(0) }
    }
}

impl RemoteSigner for OtherProcess {
    fn sign(&self, key: &KeyId, scheme: u16, input: &[u8]) -> Result<Vec<u8>, SignError> {
        assert_eq!(*key, self.key.id());
        if self.unanswered.fetch_update(Relaxed, Relaxed, |count| count.checked_sub(1)).is_ok() {
            return Err(SignError::Unavailable("the other process does not answer"));
        }
        self.key.sign(scheme, input).filter(|_| !self.fails).ok_or(SignError::Refused("the other process is gone"))
    }
}

#[test]
fn key_may_be_in_another_process() {
    for (version, name, fails) in [
        (VERSIONS[0], "ecdsa", false),
        (VERSIONS[1], "ecdsa", false),
        (VERSIONS[0], "rsa", false),
        (VERSIONS[1], "rsa", false),
        (VERSIONS[1], "ed25519", false),
        (VERSIONS[0], "ecdsa", true),
        (VERSIONS[1], "ecdsa", true),
    ] {
        let key = PrivateKey::from_pem(&crate::pki::pki().read(&format!("{name}.key"))).unwrap();
        let chain = [name, "intermediate"].map(|name| first(name).to_vec()).to_vec();
        let signer: Arc<dyn RemoteSigner> = Arc::new(OtherProcess::new(&key, fails));
        let remote = Certificate::with_remote_key(chain.clone(), &signer).unwrap();
        assert_eq!(Certificate::key_id_of(&chain[0]), Some(key.id()));
        assert_eq!(remote.key_type(), certificate(name).key_type());
        let mut store = CertificateStore::new();
        store.add_default(&remote);
        let tls = ServerTls::new(Arc::new(store), tickets(1, None), &[]);
        let mut pair = Pair::new(&Arc::new(client_config(&[version], provider())), "example.com", &tls);
        match pair.run() {
            Ok(()) => pair.exchange(b"a request", b"a response"),
            Err(error) => {
                assert!(fails && matches!(error, SessionError::Internal(_)), "{name}: {error}");
                assert_eq!(
                    pair.client_error,
                    Some(Error::AlertReceived(AlertDescription::InternalError)),
                    "{version:?}"
                );
            }
        }
        assert_eq!(pair.session.state(), if fails { State::Failed } else { State::Open }, "{name}");
    }
}

#[test]
fn key_in_another_process_has_the_schemes_of_the_same_key_here() {
    let all = (0..=0xffff).map(SignatureScheme::from);
    for name in ["ecdsa", "rsa", "ed25519"] {
        let certificate = certificate(name);
        let here = certificate.private_key();
        let chain = certificate.chain().iter().map(|certificate| certificate.to_vec()).collect();
        let signer: Arc<dyn RemoteSigner> = Arc::new(OtherProcess::new(&here, false));
        let there = Certificate::with_remote_key(chain, &signer).unwrap().private_key();
        for scheme in all.clone() {
            let scheme = u16::from(scheme);
            assert_eq!(here.sign(scheme, b"x").is_some(), there.sign(scheme, b"x").is_some(), "{name} {scheme:#06x}");
        }
    }
}

/// A key exchange that the server does not have: it asks for another one (HelloRetryRequest).
#[derive(Debug)]
struct UnknownGroup;

struct UnknownExchange(Box<dyn ActiveKeyExchange>);

impl SupportedKxGroup for UnknownGroup {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let other = provider().kx_groups.into_iter().find(|group| group.name() == NamedGroup::X25519);
        Ok(Box::new(UnknownExchange(other.expect("it has X25519").start()?)))
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X448
    }
}

impl ActiveKeyExchange for UnknownExchange {
    fn complete(self: Box<Self>, _: &[u8]) -> Result<SharedSecret, Error> {
        panic!("the server does not have it")
    }

    fn pub_key(&self) -> &[u8] {
        self.0.pub_key()
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X448
    }
}

#[test]
fn handshake_waits_until_the_other_process_signs() {
    let key = PrivateKey::from_pem(&crate::pki::pki().read("ecdsa.key")).unwrap();
    let chain = ["ecdsa", "intermediate"].map(|name| first(name).to_vec()).to_vec();
    let mut asked_again = provider();
    asked_again.kx_groups.insert(0, &UnknownGroup);
    let configs = [
        client_config(&[VERSIONS[0]], provider()),
        client_config(&[VERSIONS[1]], provider()),
        client_config(&[VERSIONS[1]], asked_again),
    ];
    for (mut config, is_asked_again) in configs.into_iter().zip([false, false, true]) {
        // A resumed session needs no key.
        config.resumption = Resumption::disabled();
        let config = Arc::new(config);
        for (piece_bytes, unanswered_count) in [(1, 1), (usize::MAX, 1), (100, 3), (usize::MAX, 0)] {
            let process = Arc::new(OtherProcess::new(&key, false));
            process.unanswered.store(unanswered_count, Relaxed);
            let signer: Arc<dyn RemoteSigner> = Arc::clone(&process) as _;
            let mut store = CertificateStore::new();
            store.add_default(&Certificate::with_remote_key(chain.clone(), &signer).unwrap());
            let tls = ServerTls::new(Arc::new(store), tickets(1, None), &[]);
            let mut pair = Pair::new(&config, "example.com", &tls);
            pair.piece_bytes = piece_bytes;
            pair.run().unwrap();
            for _ in 0..unanswered_count {
                assert!(pair.session.awaits_key(), "{is_asked_again} {piece_bytes} {unanswered_count}");
                assert_eq!((pair.session.state(), pair.session.has_unsent()), (State::Handshaking, false));
                assert!(pair.session.held_bytes() > 100, "what has arrived is kept");
                pair.session.try_key_again().unwrap();
                pair.run().unwrap();
            }
            assert_eq!((pair.session.awaits_key(), pair.session.state()), (false, State::Open), "{piece_bytes}");
            let kind = pair.client.handshake_kind();
            assert_eq!(kind == Some(HandshakeKind::FullWithHelloRetryRequest), is_asked_again, "{kind:?}");
            pair.exchange(b"a request", b"a response");
        }
    }
}

#[test]
fn what_arrives_while_the_key_is_awaited_is_bounded() {
    let key = PrivateKey::from_pem(&crate::pki::pki().read("ecdsa.key")).unwrap();
    let process = OtherProcess::new(&key, false);
    process.unanswered.store(u32::MAX, Relaxed);
    let signer: Arc<dyn RemoteSigner> = Arc::new(process);
    let chain = ["ecdsa", "intermediate"].map(|name| first(name).to_vec()).to_vec();
    let mut store = CertificateStore::new();
    store.add_default(&Certificate::with_remote_key(chain, &signer).unwrap());
    let tls = ServerTls::new(Arc::new(store), tickets(1, None), &[]);
    let mut pair = Pair::new(&Arc::new(http_client(VERSIONS[1])), "example.com", &tls);
    pair.run().unwrap();
    let refused = (0..100).find_map(|_| pair.feed(&[0; 1_000]).err());
    assert!(matches!(refused, Some(SessionError::Invalid(_))), "{refused:?}");
}

#[test]
fn suite_is_aes_128_unless_the_client_prefers_chacha20_or_does_not_have_it() {
    use CipherSuite as Suite;
    let check = |version, offered: &[Suite], expected: Suite| {
        let mut provider = provider();
        let found = offered.iter().map(|suite| provider.cipher_suites.iter().find(|it| it.suite() == *suite));
        provider.cipher_suites = found.map(|suite| *suite.expect("the library has it")).collect();
        let mut pair = Pair::new(&Arc::new(client_config(&[version], provider)), "example.com", &server_tls());
        pair.run().unwrap();
        assert_eq!(pair.client.negotiated_cipher_suite().unwrap().suite(), expected, "{offered:?}");
    };
    let of_versions = [
        [
            Suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            Suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
            Suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        ],
        [Suite::TLS13_AES_128_GCM_SHA256, Suite::TLS13_AES_256_GCM_SHA384, Suite::TLS13_CHACHA20_POLY1305_SHA256],
    ];
    for (version, [aes_128, aes_256, chacha20]) in VERSIONS.into_iter().zip(of_versions) {
        check(version, &[aes_128, aes_256, chacha20], aes_128);
        // As OpenSSL.
        check(version, &[aes_256, chacha20, aes_128], aes_128);
        check(version, &[chacha20, aes_128, aes_256], chacha20);
        check(version, &[chacha20, aes_256], chacha20);
        check(version, &[aes_256, chacha20], aes_256);
        check(version, &[aes_256], aes_256);
    }
}

//! Connections over TLS, with a client of rustls.

use super::*;
use crate::site::sites::{BuiltinFile, DefaultSite, Root, Site, SiteOptions, Sites};
use rustls::client::{ClientConfig, ClientConnection, Resumption};
use sanderling_dns::{HashSeed, ZoneMap};
use sanderling_os::counters::thread_counts;
use sanderling_os::directory::Directory;
use sanderling_os::tcp::Listener;
use sanderling_testkit::{TestDirectory, random_bytes, seed};
use sanderling_tls::{
    Alpn, Certificate, CertificateStore, KeyId, PrivateKey, RemoteSigner, SignError, TICKET_KEY_BYTES, TicketKeys,
    self_signed,
};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::SystemTime;

const CONTENT: &str = "a file in the program itself";
const GET: &str = "GET /file HTTP/1.1\r\nHost: example\r\n\r\n";
const GET_AND_CLOSE: &str = "GET /file HTTP/1.1\r\nHost: example\r\nConnection: close\r\n\r\n";
const UNLIMITED: usize = usize::MAX;
const ITERATIONS_MAX: usize = 1_000;
/// The most that an encrypted connection keeps unsent, and how much longer it is as ciphertext.
const UNSENT_BYTES_MAX: usize = 132 * 1024;

/// What server and clients begin their sessions with.
pub(super) struct Configs {
    pub(super) server: ServerTls,
    client: Arc<ClientConfig>,
}

impl Configs {
    fn new() -> Configs {
        let certificate = localhost_certificate();
        let mut store = CertificateStore::new();
        store.add("localhost", &certificate);
        Configs::with(store, &certificate)
    }

    /// With the certificates of `store`; the client trusts `certificate`.
    pub(super) fn with(store: CertificateStore, certificate: &Certificate) -> Configs {
        let tickets = TicketKeys::new(&[1; TICKET_KEY_BYTES], None);
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate.chain()[0].clone()).expect("a certificate");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let client = client.expect("suites for both").with_root_certificates(roots).with_no_client_auth();
        let server = ServerTls::new(Arc::new(store), Arc::new(tickets), &[Alpn::H2, Alpn::Http1]);
        Configs { server, client: Arc::new(client) }
    }

    fn client(&self) -> ClientConnection {
        self.client_of("localhost")
    }

    fn client_of(&self, name: &str) -> ClientConnection {
        let name = name.to_owned().try_into().expect("a name");
        let mut client = ClientConnection::new(Arc::clone(&self.client), name).expect("a configuration");
        client.set_buffer_limit(None);
        client
    }
}

pub(super) fn localhost_certificate() -> Certificate {
    let now_unix_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
    self_signed::localhost(now_unix_s).expect("random numbers")
}

/// A client in the simulation.
pub(super) struct TlsClient {
    index: usize,
    connection: ClientConnection,
    received: Vec<u8>,
    has_end: bool,
}

impl TlsClient {
    fn new(simulation: &mut Simulation<'_>, configs: &Configs) -> TlsClient {
        let index = simulation.connect_tls(Protocol::Http, &configs.server, b"", UNLIMITED).expect("accepted");
        TlsClient { index, connection: configs.client(), received: Vec::new(), has_end: false }
    }

    /// A client that asks for the certificate of `name`.
    pub(super) fn of(name: &str, simulation: &mut Simulation<'_>, configs: &Configs) -> TlsClient {
        TlsClient { connection: configs.client_of(name), ..TlsClient::new(simulation, configs) }
    }

    /// The same, which speaks HTTP/2.
    pub(super) fn of_http2(name: &str, simulation: &mut Simulation<'_>, configs: &Configs) -> TlsClient {
        let mut config = ClientConfig::clone(&configs.client);
        config.alpn_protocols = vec![b"h2".to_vec()];
        let configs = Configs { server: configs.server.clone(), client: Arc::new(config) };
        TlsClient::of(name, simulation, &configs)
    }

    /// The responses to these requests.
    pub(super) fn ask(&mut self, requests: &str, simulation: &mut Simulation<'_>) -> String {
        String::from_utf8_lossy(&self.ask_bytes(requests.as_bytes(), simulation)).into_owned()
    }

    /// The same, as bytes.
    pub(super) fn ask_bytes(&mut self, requests: &[u8], simulation: &mut Simulation<'_>) -> Vec<u8> {
        self.write(requests);
        self.run(simulation, UNLIMITED);
        std::mem::take(&mut self.received)
    }

    fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.connection.writer().write_all(bytes.as_ref()).expect("without a limit");
    }

    /// Exchanges bytes until neither side has any; the client's in pieces.
    fn run(&mut self, simulation: &mut Simulation<'_>, piece_bytes: usize) {
        loop {
            let mut sent = Vec::new();
            while self.connection.wants_write() {
                self.connection.write_tls(&mut sent).expect("a vector takes all");
            }
            for piece in sent.chunks(piece_bytes) {
                simulation.send(self.index, piece);
                simulation.run(ITERATIONS_MAX);
            }
            simulation.run(ITERATIONS_MAX);
            let arrived = simulation.take_received(self.index);
            self.take(&arrived);
            if sent.is_empty() && arrived.is_empty() {
                return;
            }
        }
    }

    /// Decrypts what has arrived.
    fn take(&mut self, mut arrived: &[u8]) {
        while !arrived.is_empty() {
            self.connection.read_tls(&mut arrived).expect("there is room");
            let state = self.connection.process_new_packets().expect("the server is correct");
            let _ = self.connection.reader().read_to_end(&mut self.received);
            self.has_end |= state.peer_has_closed();
            if self.has_end {
                break;
            }
        }
    }

    fn text(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.received)).into_owned()
    }
}

fn options() -> Options {
    let mut options = Options::default();
    options.http.connections_max = 20;
    options.http.request_timeout = Duration::from_secs(10);
    options.http.idle_timeout = Duration::from_secs(60);
    options
}

fn simulate_root(root: Root, act: impl FnOnce(&mut Simulation<'_>, &Configs)) {
    let sites = Sites::new(
        vec![Site { id: 0, hosts: Vec::new(), root, options: SiteOptions::default() }],
        DefaultSite::EveryHost(0),
    );
    let snapshot = Snapshot::new(sites, ZoneMap::new(HashSeed(1), []));
    let configs = Configs::new();
    simulate(snapshot, options(), |simulation| act(simulation, &configs));
}

const FILES: &[BuiltinFile] = &[BuiltinFile { path: "file", bytes: CONTENT.as_bytes() }];

fn simulate_file(act: impl FnOnce(&mut Simulation<'_>, &Configs)) {
    simulate_root(Root::Builtin(FILES), act);
}

fn folder_root(folder: &TestDirectory) -> Root {
    Root::Directory(Arc::new(Directory::open(folder.path()).expect("opened")))
}

#[test]
fn requests_in_pieces_of_any_size_are_answered() {
    simulate_file(|simulation, configs| {
        for piece_bytes in [1, 3, 50, UNLIMITED] {
            let mut client = TlsClient::new(simulation, configs);
            client.write(GET.repeat(3));
            client.run(simulation, piece_bytes);
            assert_eq!(client.text().matches(CONTENT).count(), 3);
            client.write(GET);
            client.run(simulation, piece_bytes);
            assert_eq!(client.text().matches(CONTENT).count(), 1);
        }
    });
}

#[test]
fn end_of_the_last_response_is_authentic() {
    simulate_file(|simulation, configs| {
        let mut client = TlsClient::new(simulation, configs);
        client.write(GET_AND_CLOSE);
        client.run(simulation, UNLIMITED);
        assert!(client.text().contains(CONTENT) && client.has_end);
        simulation.close(client.index);
        simulation.run(ITERATIONS_MAX);
        assert!(!simulation.is_open(client.index));

        let mut idle = TlsClient::new(simulation, configs);
        idle.write(GET);
        idle.run(simulation, UNLIMITED);
        simulation.advance(Duration::from_secs(61));
        idle.run(simulation, UNLIMITED);
        assert!(idle.has_end && !simulation.is_open(idle.index));
    });
}

#[test]
fn client_that_has_closed_its_side_gets_its_response() {
    simulate_file(|simulation, configs| {
        let mut client = TlsClient::new(simulation, configs);
        client.run(simulation, UNLIMITED);
        client.write(GET);
        client.connection.send_close_notify();
        client.run(simulation, UNLIMITED);
        assert!(client.text().contains(CONTENT) && client.has_end);
        assert!(!simulation.is_open(client.index));
    });
}

#[test]
fn client_that_closes_its_side_with_its_last_message_of_the_handshake_is_not_waited_for() {
    simulate_file(|simulation, configs| {
        for request in ["", GET] {
            let mut client = TlsClient::new(simulation, configs);
            let mut hello = Vec::new();
            client.connection.write_tls(&mut hello).expect("a vector takes all");
            simulation.send(client.index, &hello);
            simulation.run(ITERATIONS_MAX);
            let arrived = simulation.take_received(client.index);
            client.take(&arrived);
            // Finished, a request and close_notify arrive at once.
            client.write(request);
            client.connection.send_close_notify();
            client.run(simulation, UNLIMITED);
            assert_eq!(client.text().contains(CONTENT), !request.is_empty());
            assert!(!simulation.is_open(client.index), "{request}");
        }
    });
}

#[test]
fn files_of_any_length_arrive_through_windows_of_any_size() {
    let mut random = fastrand::Rng::with_seed(seed());
    let folder = TestDirectory::new();
    let lengths = [1, 16_000, 40_000, 300_000, 3_000_000];
    let files = lengths.map(|length| random_bytes(&mut random, length));
    for (length, content) in lengths.iter().zip(&files) {
        folder.write(&length.to_string(), content);
    }
    simulate_root(folder_root(&folder), |simulation, configs| {
        for (length, content) in lengths.iter().zip(&files) {
            let index = simulation.connect_tls(Protocol::Http, &configs.server, b"", 10_000).expect("accepted");
            let mut client = TlsClient { index, connection: configs.client(), received: Vec::new(), has_end: false };
            client.write(format!("GET /{length} HTTP/1.1\r\nHost: example\r\n\r\n"));
            while client.received.len() < *length {
                client.run(simulation, UNLIMITED);
                simulation.open_window(index, 1 + random.usize(..200_000));
            }
            client.run(simulation, UNLIMITED);
            assert!(client.received.ends_with(content), "{length}");
            assert!(client.received.len() < length + 1_000, "{length}");
            simulation.break_off(index);
            simulation.run(ITERATIONS_MAX);
        }
    });
}

#[test]
fn connection_that_sends_nothing_keeps_a_bounded_amount() {
    let folder = TestDirectory::with(&[("large", &[b'x'; 3_000_000])]);
    simulate_root(folder_root(&folder), |simulation, configs| {
        let index = simulation.connect_tls(Protocol::Http, &configs.server, b"", 10_000).expect("accepted");
        let mut client = TlsClient { index, connection: configs.client(), received: Vec::new(), has_end: false };
        client.write("GET /large HTTP/1.1\r\nHost: example\r\n\r\n");
        // The file is left to settle first.
        while client.received.is_empty() {
            client.run(simulation, UNLIMITED);
        }
        let before = client.received.len();
        // What is encrypted already does not need the file.
        folder.write("large", b"changed");
        simulation.open_window(index, UNLIMITED);
        simulation.run(ITERATIONS_MAX);
        assert_eq!(simulation.ending(index), Ending::Reset);
        let arrived = simulation.take_received(index);
        assert!(arrived.len() <= UNSENT_BYTES_MAX, "{}", arrived.len());
        client.take(&arrived);
        assert!(client.received.len() >= before && !client.has_end, "a client must not take it for complete");
    });
}

#[test]
fn handshake_has_a_deadline_of_its_own() {
    simulate_file(|simulation, configs| {
        for (protocol, sent) in [Protocol::Http, Protocol::Dns].into_iter().flat_map(|it| [(it, 0), (it, 1), (it, 100)])
        {
            let mut hello = Vec::new();
            configs.client().write_tls(&mut hello).expect("a vector takes all");
            let hello = &hello[..sent];
            let index = simulation.connect_tls(protocol, &configs.server, hello, UNLIMITED).expect("accepted");
            simulation.advance(Duration::from_secs(9));
            assert!(simulation.is_open(index));
            simulation.advance(Duration::from_secs(2));
            assert!(!simulation.is_open(index));
            assert_eq!(simulation.take_received(index), b"");
        }
        assert_eq!(simulation.count(Counter::TlsTimeouts), 6);
    });
}

#[test]
fn client_that_is_refused_gets_an_alert() {
    simulate_file(|simulation, configs| {
        let clear = simulation.connect_tls(Protocol::Http, &configs.server, GET.as_bytes(), UNLIMITED);
        let clear = clear.expect("accepted");
        assert!(!simulation.is_open(clear));
        const FATAL_ALERT: [u8; 6] = [21, 3, 3, 0, 2, 2];
        assert_eq!(simulation.take_received(clear)[..6], FATAL_ALERT);
    });
}

#[test]
fn failed_handshakes_are_counted_by_their_cause() {
    simulate_file(|simulation, configs| {
        let mut check =
            |cause: Counter, client: &dyn Fn(ClientConfig) -> ClientConfig, name: &str, act: &dyn Fn(&mut Vec<u8>)| {
                let mut config = client((*configs.client).clone());
                config.resumption = rustls::client::Resumption::disabled();
                let name = name.to_owned().try_into().expect("a name");
                let mut client = ClientConnection::new(Arc::new(config), name).expect("a configuration");
                let index = simulation.connect_tls(Protocol::Http, &configs.server, b"", UNLIMITED).expect("accepted");
                for _ in 0..3 {
                    let mut sent = Vec::new();
                    while client.wants_write() {
                        client.write_tls(&mut sent).expect("a vector takes all");
                    }
                    act(&mut sent);
                    simulation.send(index, &sent);
                    simulation.run(ITERATIONS_MAX);
                    let arrived = simulation.take_received(index);
                    client.read_tls(&mut &arrived[..]).expect("there is room");
                    let _ = client.process_new_packets();
                }
                simulation.close(index);
                simulation.run(ITERATIONS_MAX);
                assert!(!simulation.is_open(index));
                assert_eq!(simulation.count(cause), 1, "{cause:?}");
            };
        let same = |config| config;
        let keep = |_: &mut Vec<u8>| {};
        let with_alpn = |mut config: ClientConfig| {
            config.alpn_protocols = vec![b"unknown".to_vec()];
            config
        };
        let without_roots = |mut config: ClientConfig| {
            let provider = Arc::clone(config.crypto_provider());
            let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
            config =
                builder.expect("suites").with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth();
            config
        };
        let with_unknown_suites = |hello: &mut Vec<u8>| {
            // The list of suites follows the session ID.
            if let Some(id_bytes) = hello.get(43).copied().map(usize::from) {
                let start = 44 + id_bytes;
                let length = usize::from(u16::from_be_bytes([hello[start], hello[start + 1]]));
                hello[start + 2..start + 2 + length].fill(0xee);
            }
        };
        check(Counter::TlsIncompatible, &same, "localhost", &with_unknown_suites);
        check(Counter::TlsNoCommonProtocol, &with_alpn, "localhost", &keep);
        check(Counter::TlsUnknownName, &same, "unknown.example", &keep);
        check(Counter::TlsInvalid, &same, "localhost", &|sent| sent.splice(.., *b"GET / HTTP/1.1\r\n").for_each(drop));
        check(Counter::TlsClientAlert, &without_roots, "localhost", &keep);
        check(Counter::TlsClientClosed, &same, "localhost", &Vec::clear);
        assert_eq!(simulation.count(Counter::TlsFailed), 6);
    });
}

#[test]
fn handshakes_of_one_iteration_are_limited() {
    simulate_file(|simulation, configs| {
        let mut hello = Vec::new();
        configs.client().write_tls(&mut hello).expect("a vector takes all");
        let clients: Vec<usize> = (0..20)
            .map(|_| simulation.connect_tls(Protocol::Http, &configs.server, &hello, UNLIMITED).expect("accepted"))
            .collect();
        let mut answered = Vec::new();
        for _ in 0..4 {
            answered.push(clients.iter().filter(|client| !simulation.take_received(**client).is_empty()).count());
            simulation.run_once();
        }
        assert_eq!(answered, [8, 8, 4, 0]);
    });
}

/// The system calls of the last of `request_count` requests over a socket, for a file of `file_bytes`.
fn calls_of_a_request(root: Root, request: &str, file_bytes: usize, request_count: usize) -> String {
    let mut calls = String::new();
    simulate_root(root, |simulation, configs| {
        let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into()).expect("bound");
        let mut socket = TcpStream::connect(listener.local_address().expect("bound")).expect("connected");
        socket.set_nonblocking(true).expect("set");
        let (stream, address) = listener.accept().expect("no error").expect("a connection");
        let permit = simulation.connections.permit(Protocol::Http, address).expect("none is used");
        let transport = Transport::plain(stream).with_tls(Session::new(&configs.server));
        let key = simulation.connections.insert(Protocol::Http, transport, permit).expect("waits");
        let mut client = configs.client();
        for _ in 0..request_count {
            client.writer().write_all(request.as_bytes()).expect("kept");
            let mut received = 0;
            while received < file_bytes {
                while client.wants_write() {
                    client.write_tls(&mut socket).expect("there is room");
                }
                let before = thread_counts();
                simulation.connections.begin_iteration();
                simulation.connections.advance(key, Some(Readiness { readable: true, ..NOT_READY }));
                simulation.run(ITERATIONS_MAX);
                let counted = thread_counts().since(&before);
                calls = counted.nonzero().map(|(call, count)| format!("{} {count} ", call.name())).collect();
                received += receive(&mut client, &mut socket);
            }
        }
    });
    calls
}

/// Receives what has arrived; the length of its plaintext.
fn receive(client: &mut ClientConnection, socket: &mut TcpStream) -> usize {
    let mut plaintext = Vec::new();
    loop {
        match client.read_tls(socket) {
            Ok(0) => return plaintext.len(),
            Ok(_) => drop(client.process_new_packets().expect("the server is correct")),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return plaintext.len(),
            Err(error) => panic!("{error}"),
        }
        let _ = client.reader().read_to_end(&mut plaintext);
    }
}

#[test]
fn request_on_a_hit_needs_one_receive_and_one_send() {
    let folder = TestDirectory::with(&[("small", &[b'x'; 512][..]), ("large", &[b'x'; 100 * 1024])]);
    let get = |path: &str| format!("GET /{path} HTTP/1.1\r\nHost: example\r\n\r\n");
    assert_eq!(calls_of_a_request(folder_root(&folder), &get("small"), 512, 3), "recvfrom 1 sendmsg 1 ");
    // The clock of the simulation is behind: the file has just been written, and is checked once more at its end.
    let large = calls_of_a_request(folder_root(&folder), &get("large"), 100 * 1024, 3);
    let has_all = ["pread64 2 ", "recvfrom 1 ", "sendmsg 1 "].iter().all(|call| large.contains(call));
    assert!(has_all && (large.contains("fstat 1 ") || large.contains("statx 1 ")), "{large}");
    assert_eq!(large.split_whitespace().count(), 8, "{large}");
}

#[test]
fn end_of_the_handshake_and_the_first_response_leave_together() {
    let calls = calls_of_a_request(Root::Builtin(FILES), GET, CONTENT.len(), 1);
    assert_eq!(calls, "recvfrom 1 sendmsg 1 ");
}

#[test]
fn last_response_and_the_end_of_the_session_leave_together() {
    let calls = calls_of_a_request(Root::Builtin(FILES), GET_AND_CLOSE, CONTENT.len(), 1);
    assert_eq!(calls, "close 1 recvfrom 1 sendmsg 1 ");
}

#[test]
fn what_a_session_holds_counts_against_the_budget_of_all_buffers() {
    const WINDOW_BYTES: usize = 10_000;
    const LARGE: &[BuiltinFile] = &[BuiltinFile { path: "file", bytes: &[b'x'; 200_000] }];
    let held_bytes = |bytes_max| {
        let sites =
            vec![Site { id: 0, hosts: Vec::new(), root: Root::Builtin(LARGE), options: SiteOptions::default() }];
        let snapshot = Snapshot::new(Sites::new(sites, DefaultSite::EveryHost(0)), ZoneMap::new(HashSeed(1), []));
        let options = Options { connection_buffers_bytes_max: bytes_max, ..options() };
        let configs = Configs::new();
        let mut held_bytes = 0;
        simulate(snapshot, options, |simulation| {
            let mut client = TlsClient::new(simulation, &configs);
            client.run(simulation, UNLIMITED);
            assert_eq!(simulation.held_bytes(), 0, "idle");
            simulation.send(client.index, b"\x17\x03\x03\x01\x00and a part of the record");
            simulation.run(ITERATIONS_MAX);
            assert!((20..100).contains(&simulation.held_bytes()), "a part of a record");

            let index = simulation.connect_tls(Protocol::Http, &configs.server, b"", WINDOW_BYTES).expect("accepted");
            let mut client = TlsClient { index, connection: configs.client(), received: Vec::new(), has_end: false };
            client.write(GET);
            client.run(simulation, UNLIMITED);
            held_bytes = simulation.held_bytes();
            simulation.open_window(index, UNLIMITED);
            client.run(simulation, UNLIMITED);
            assert_eq!(client.received.iter().filter(|byte| **byte == b'x').count(), 200_000);
            simulation.break_off(index);
            simulation.run(ITERATIONS_MAX);
            assert!(simulation.held_bytes() < 100);
        });
        held_bytes
    };
    let usual = held_bytes(1 << 30);
    assert!((100_000..UNSENT_BYTES_MAX).contains(&usual), "{usual} bytes");
    let scarce = held_bytes(0);
    assert!((1..6_000).contains(&scarce), "{scarce} bytes");
}

/// A simulation with a budget for all buffers of `buffers_bytes_max`, and of `share_bytes_max` for each connection.
fn simulate_with_buffers(
    buffers_bytes_max: usize,
    share_bytes_max: usize,
    act: impl FnOnce(&mut Simulation<'_>, &Configs),
) {
    let sites = vec![Site { id: 0, hosts: Vec::new(), root: Root::Builtin(FILES), options: SiteOptions::default() }];
    let snapshot = Snapshot::new(Sites::new(sites, DefaultSite::EveryHost(0)), ZoneMap::new(HashSeed(1), []));
    let options = Options {
        connection_buffers_bytes_max: buffers_bytes_max,
        connection_buffer_bytes_max: share_bytes_max,
        ..options()
    };
    let configs = Configs::new();
    simulate(snapshot, options, |simulation| act(simulation, &configs));
}

/// Makes buffers scarce, if there is no budget for them: a client has sent part of a record.
fn hold_some_bytes(simulation: &mut Simulation<'_>, configs: &Configs) {
    let mut client = TlsClient::new(simulation, configs);
    client.run(simulation, UNLIMITED);
    simulation.send(client.index, b"\x17\x03\x03\x01\x00and a part of the record");
    simulation.run(ITERATIONS_MAX);
    assert!(simulation.held_bytes() > 0);
}

#[test]
fn a_record_that_is_longer_than_a_piece_is_received_without_a_further_event() {
    const FIELD_BYTES: usize = 7_000;
    let long = format!("GET /file HTTP/1.1\r\nHost: example\r\nA: {}\r\n\r\n", "a".repeat(FIELD_BYTES));
    for (buffers_bytes_max, share_bytes_max) in [(0, 64 * 1024), (1 << 30, 4 * 1024), (1 << 30, 64 * 1024)] {
        simulate_with_buffers(buffers_bytes_max, share_bytes_max, |simulation, configs| {
            hold_some_bytes(simulation, configs);
            let mut client = TlsClient::new(simulation, configs);
            client.run(simulation, UNLIMITED);
            assert_eq!(client.ask(&long, simulation).matches(CONTENT).count(), 1);
            assert_eq!(client.ask(&GET.repeat(200), simulation).matches(CONTENT).count(), 200);
            assert_eq!(simulation.count(Counter::BuffersRefused), 0);
        });
    }
}

#[test]
fn while_buffers_are_scarce_an_idle_connection_keeps_little_of_a_record() {
    simulate_with_buffers(0, 64 * 1024, |simulation, configs| {
        hold_some_bytes(simulation, configs);
        // Some of them, or all, are whole pieces.
        for (bytes, is_open) in [(1_000, true), (2_048, true), (14_000, false), (7 * 2_048, false)] {
            let mut client = TlsClient::new(simulation, configs);
            client.run(simulation, UNLIMITED);
            let mut record = b"\x17\x03\x03\x40\x00".to_vec();
            record.resize(bytes, 0);
            simulation.send(client.index, &record);
            simulation.run(ITERATIONS_MAX);
            assert_eq!(simulation.is_open(client.index), is_open, "{bytes}");
        }
        assert_eq!(simulation.count(Counter::BuffersRefused), 2);
    });
}

#[test]
fn a_client_that_sends_short_records_after_the_last_response_is_disconnected() {
    simulate_file(|simulation, configs| {
        let mut client = TlsClient::new(simulation, configs);
        assert!(client.ask("nonsense\r\n\r\n", simulation).starts_with("HTTP/1.1 400 "));
        assert!(client.has_end && simulation.is_open(client.index));
        // 23 bytes each, with a byte of content.
        for (count, is_open) in [(180_000, true), (5_000, false)] {
            (0..count).for_each(|_| client.write("x"));
            client.run(simulation, UNLIMITED);
            assert_eq!(simulation.is_open(client.index), is_open);
        }
    });
}

#[test]
fn a_record_that_is_longer_than_a_piece_takes_several_iterations_of_a_server_that_drains() {
    const PIECE_BYTES: usize = 4 * 1024;
    simulate_with_buffers(1 << 30, PIECE_BYTES, |simulation, configs| {
        let mut client = TlsClient::new(simulation, configs);
        client.run(simulation, UNLIMITED);
        simulation.drain(Duration::from_secs(60));
        client.write(GET.repeat(350));
        let mut record = Vec::new();
        client.connection.write_tls(&mut record).expect("a vector takes all");
        simulation.send(client.index, &record);
        simulation.run_once();
        assert_eq!(simulation.unreceived_bytes(client.index), record.len() - PIECE_BYTES);
        client.run(simulation, UNLIMITED);
        assert_eq!(client.text().matches(CONTENT).count(), 350);
    });
}

#[test]
fn a_client_that_sends_too_much_in_a_handshake_is_disconnected() {
    simulate_file(|simulation, configs| {
        let client = simulation.connect_tls(Protocol::Http, &configs.server, b"", UNLIMITED).expect("accepted");
        // A ClientHello of 65,000 bytes in records of 16,000.
        simulation.send(client, b"\x16\x03\x01\x3e\x80\x01\x00\xfd\xe8");
        simulation.send(client, &[0; 15_996]);
        simulation.run(ITERATIONS_MAX);
        assert!(simulation.is_open(client) && simulation.held_bytes() > 15_000);
        simulation.send(client, b"\x16\x03\x01\x3e\x80");
        simulation.send(client, &[0; 1_000]);
        simulation.run(ITERATIONS_MAX);
        assert!(!simulation.is_open(client));
        assert_eq!((simulation.held_bytes(), simulation.count(Counter::TlsFailed)), (0, 1));
    });
}

#[test]
fn at_the_limit_the_oldest_handshake_gives_way_to_a_new_connection() {
    simulate_file(|simulation, configs| {
        let mut connect = || simulation.connect_tls(Protocol::Http, &configs.server, b"\x16\x03\x01", UNLIMITED);
        let clients: Vec<usize> = (0..21).map(|_| connect().expect("accepted")).collect();
        assert!(!simulation.is_open(clients[0]) && simulation.is_open(clients[1]));
        assert_eq!(simulation.count(Counter::HttpPartialEvicted), 1);
    });
}

#[test]
fn handshakes_beyond_their_limit_replace_the_oldest_ones() {
    const COUNT_MAX: usize = 3;
    let configs = Configs::new();
    let sites = vec![Site { id: 0, hosts: Vec::new(), root: Root::Builtin(FILES), options: SiteOptions::default() }];
    let snapshot = Snapshot::new(Sites::new(sites, DefaultSite::EveryHost(0)), ZoneMap::new(HashSeed(1), []));
    simulate(snapshot, Options { tls_handshakes_max: COUNT_MAX, ..options() }, |simulation| {
        let begin = |simulation: &mut Simulation<'_>, protocol| {
            simulation.connect_tls(protocol, &configs.server, b"\x16\x03\x01", UNLIMITED).expect("accepted")
        };
        let open = |simulation: &mut Simulation<'_>, clients: &[usize]| {
            clients.iter().map(|client| simulation.is_open(*client)).collect::<Vec<bool>>()
        };
        // Connections whose handshake is complete, one of them at once, do not count; nor does one that was closed.
        let mut client = TlsClient::new(simulation, &configs);
        client.run(simulation, UNLIMITED);
        for _ in 0..2 * COUNT_MAX {
            TlsClient::new(simulation, &configs).run(simulation, UNLIMITED);
            let mut closed = TlsClient::new(simulation, &configs);
            closed.write(GET_AND_CLOSE);
            closed.run(simulation, UNLIMITED);
            simulation.close(closed.index);
            let given_up = begin(simulation, Protocol::Http);
            simulation.break_off(given_up);
            simulation.run(ITERATIONS_MAX);
        }
        let clients: Vec<usize> = (0..COUNT_MAX).map(|_| begin(simulation, Protocol::Http)).collect();
        assert!(clients.iter().all(|client| simulation.is_open(*client)));
        assert_eq!(simulation.count(Counter::TlsEvicted), 0);
        // Those of DNS have their own count.
        let dns: Vec<usize> = (0..COUNT_MAX).map(|_| begin(simulation, Protocol::Dns)).collect();
        assert_eq!(simulation.count(Counter::TlsEvicted), 0);
        // What arrives later does not make a handshake newer.
        simulation.send(clients[0], b"\x00");
        simulation.run(ITERATIONS_MAX);
        begin(simulation, Protocol::Http);
        assert_eq!(open(simulation, &clients), [false, true, true]);
        begin(simulation, Protocol::Http);
        assert_eq!(open(simulation, &clients), [false, false, true]);
        begin(simulation, Protocol::Dns);
        assert_eq!(open(simulation, &dns), [false, true, true]);
        assert_eq!(simulation.count(Counter::TlsEvicted), 3);
        assert!(client.ask(GET, simulation).contains(CONTENT), "an open connection is not closed for a handshake");
    });
}

#[test]
fn mutated_client_hellos_leave_nothing_behind() {
    const SIMULATIONS: usize = 20;
    const CLIENTS: usize = 500;
    let mut random = fastrand::Rng::with_seed(sanderling_testkit::seed());
    for _ in 0..SIMULATIONS {
        let mut options = options();
        // A permit that is not given back is noticed.
        options.http.connections_max = 1;
        let snapshot = Snapshot::new(Sites::new(Vec::new(), DefaultSite::None), ZoneMap::new(HashSeed(1), []));
        simulate(snapshot, options, |server| {
            let configs = Configs::new();
            let mut hello = Vec::new();
            configs.client().write_tls(&mut hello).expect("a vector takes all");
            for _ in 0..CLIENTS {
                let mut bytes = hello.clone();
                for _ in 0..random.usize(1..4) {
                    let at = random.usize(..bytes.len());
                    match random.u8(..3) {
                        0 => bytes[at] = random.u8(..),
                        1 => drop(bytes.drain(at..bytes.len().min(at + random.usize(1..20)))),
                        _ => bytes.insert(at, random.u8(..)),
                    }
                    bytes.resize(bytes.len().max(1), 0);
                }
                let client =
                    server.connect_tls(Protocol::Http, &configs.server, b"", UNLIMITED).expect("a permit is free");
                for piece in bytes.chunks(random.usize(1..=bytes.len())) {
                    server.send(client, piece);
                    server.run_once();
                }
                if random.bool() {
                    server.break_off(client);
                } else {
                    server.close(client);
                }
                server.run(ITERATIONS_MAX);
                assert!(!server.is_open(client));
            }
            assert_eq!(server.held_bytes(), 0);
            assert_eq!((server.count(Counter::HttpClosed), server.count(Counter::Panics)), (CLIENTS as u64, 0));
        });
    }
}

/// A process with the key of a certificate, which may not answer.
#[derive(Debug)]
struct OtherProcess {
    key: PrivateKey,
    answers: AtomicBool,
    request_count: AtomicU32,
}

impl RemoteSigner for OtherProcess {
    fn sign(&self, _: &KeyId, scheme: u16, input: &[u8]) -> Result<Vec<u8>, SignError> {
        self.request_count.fetch_add(1, Ordering::Relaxed);
        match self.answers.load(Ordering::Relaxed) {
            true => self.key.sign(scheme, input).ok_or(SignError::Refused("it cannot sign")),
            false => Err(SignError::Unavailable("it does not answer")),
        }
    }
}

#[test]
fn handshakes_wait_for_their_key_and_other_connections_are_served() {
    let certificate = localhost_certificate();
    let (answers, request_count) = (AtomicBool::new(true), AtomicU32::new(0));
    let process = Arc::new(OtherProcess { key: certificate.private_key(), answers, request_count });
    let signer: Arc<dyn RemoteSigner> = Arc::clone(&process) as _;
    let chain = certificate.chain().iter().map(|certificate| certificate.to_vec()).collect();
    let mut store = CertificateStore::new();
    store.add("localhost", &Certificate::with_remote_key(chain, &signer).expect("a certificate"));
    let Configs { server, client } = Configs::with(store, &certificate);
    let mut client = ClientConfig::clone(&client);
    // A resumed session needs no key.
    client.resumption = Resumption::disabled();
    let configs = Configs { server, client: Arc::new(client) };
    simulate_file(|simulation, _| {
        let mut before = TlsClient::new(simulation, &configs);
        assert!(before.ask(GET, simulation).contains(CONTENT));
        process.answers.store(false, Ordering::Relaxed);
        let mut clients: Vec<TlsClient> = (0..10).map(|_| TlsClient::new(simulation, &configs)).collect();
        clients.iter_mut().for_each(|client| client.run(simulation, UNLIMITED));
        // One that goes away meanwhile does not hold up the others.
        simulation.break_off(clients.remove(0).index);
        let asked_before = process.request_count.load(Ordering::Relaxed);
        simulation.advance(Duration::from_secs(5));
        assert!(before.ask(GET, simulation).contains(CONTENT));
        for client in &mut clients {
            client.run(simulation, UNLIMITED);
            assert!(client.connection.is_handshaking() && simulation.is_open(client.index));
        }
        // Only the first one asks again.
        let asked = process.request_count.load(Ordering::Relaxed) - asked_before;
        assert!(asked <= 1 + clients.len() as u32, "{asked}");
        process.answers.store(true, Ordering::Relaxed);
        simulation.advance(Duration::from_secs(1));
        for client in &mut clients {
            assert!(client.ask(GET, simulation).contains(CONTENT));
        }
        assert_eq!([Counter::TlsFailed, Counter::TlsClientClosed].map(|it| simulation.count(it)), [1, 1]);

        process.answers.store(false, Ordering::Relaxed);
        let mut late = TlsClient::new(simulation, &configs);
        late.run(simulation, UNLIMITED);
        simulation.advance(Duration::from_secs(11));
        assert!(!simulation.is_open(late.index));
        assert_eq!(simulation.count(Counter::TlsTimeouts), 1);
    });
}

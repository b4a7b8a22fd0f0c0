//! Listeners and datagrams while a server drains, and the report of a hung thread.
//!
//! A test stops all threads of a server, lets its clients act, drains the server, and lets the threads go on, so that
//! nothing depends on which of them is quicker.

use super::*;
use crate::metrics::Counter;
use crate::site::sites::{BuiltinFile, DefaultSite, Root, Site, SiteOptions, Sites};
use sanderling_dns::{HashSeed, ZoneMap};
use sanderling_os::directory::Directory;
use sanderling_os::tcp::Listener;
use sanderling_os::udp::Socket;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};

const DEADLINE: Duration = Duration::from_secs(20);
/// Short, since a test waits for it.
const GRACE: Duration = Duration::from_millis(200);
const FILE: &[u8] = b"a file in the program itself";
const LARGE_BYTES: usize = 24 * 1024 * 1024;

const GET: &str = "GET /file HTTP/1.1\r\nHost: example\r\n\r\n";
/// Asks for an address of `example`, in no zone of this server.
const QUERY: &[u8] = b"\0\x07\0\0\0\x01\0\0\0\0\0\0\x07example\0\0\x01\0\x01";

/// What the clients of a test have.
struct Scene<'s> {
    server: &'s Server,
    sockets: &'s SocketSet,
    http: SocketAddr,
    dns: SocketAddr,
}

fn sockets() -> SocketSet {
    let any = "127.0.0.1:0".parse().expect("an address");
    SocketSet {
        streams: [Role::HTTP, Role::DNS].map(|role| (role, Arc::new(Listener::bind(any).expect("bound")))).to_vec(),
        datagrams: vec![(Role::DNS, Arc::new(Socket::bind(any).expect("bound")))],
    }
}

fn snapshot(root: Root) -> Snapshot {
    let sites = Sites::new(
        vec![Site { id: 0, hosts: Vec::new(), root, options: SiteOptions::default() }],
        DefaultSite::EveryHost(0),
    );
    Snapshot::new(sites, ZoneMap::new(HashSeed(1), []))
}

fn builtin() -> Snapshot {
    const FILES: &[BuiltinFile] = &[BuiltinFile { path: "file", bytes: FILE }];
    snapshot(Root::Builtin(FILES))
}

fn options() -> Options {
    Options { drain_grace: GRACE, ..Options::default() }
}

/// Serves on `sockets` while `act` plays the clients; then drains, and ends.
fn serve<R>(snapshot: Snapshot, sockets: &[SocketSet], worker_count: usize, act: impl FnOnce(&Scene<'_>) -> R) -> R {
    let server = Server::new(snapshot, options(), DEADLINE);
    let served = server.run(sockets, worker_count, |server| {
        let http = sockets[0].streams[0].1.local_address().expect("bound");
        let dns = sockets[0].streams[1].1.local_address().expect("bound");
        act(&Scene { server, sockets: &sockets[0], http, dns })
    });
    served.expect("served")
}

/// The same on one set of sockets with one worker.
fn serve_builtin<R>(act: impl FnOnce(&Scene<'_>) -> R) -> R {
    serve(builtin(), &[sockets()], 1, act)
}

impl Scene<'_> {
    /// Lets `act` happen while all threads are stopped; then they drain, and accept nothing new.
    fn act_before_drain(&self, drain: DrainMode, act: impl FnOnce()) {
        self.act_around_drain(drain, |begin_drain| {
            act();
            begin_drain();
        });
    }

    /// The same, where what `act` does behind the call that it is given happens while the threads go on.
    fn act_around_drain(&self, drain: DrainMode, act: impl FnOnce(&mut dyn FnMut())) {
        thread::scope(|scope| {
            let mut stopped = Some(self.server.shared.stop_all_threads());
            self.server.wake_all();
            act(&mut || {
                scope.spawn(|| self.server.drain(drain));
                wait_until(|| self.server.is_draining());
                stopped = None;
            });
        });
    }

    /// A client that has been let in.
    fn http(&self) -> Client {
        self.accepted(self.http, Counter::HttpConnections)
    }

    fn dns(&self) -> Client {
        self.accepted(self.dns, Counter::DnsStreams)
    }

    fn accepted(&self, address: SocketAddr, counter: Counter) -> Client {
        let before = self.server.status().sum(counter);
        let client = Client::connect(address);
        wait_until(|| self.server.status().sum(counter) > before);
        client
    }
}

fn wait_until(is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < DEADLINE, "it does not come to be");
        thread::yield_now();
    }
}

struct Client(TcpStream);

impl Client {
    fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("connected");
        stream.set_read_timeout(Some(DEADLINE)).expect("set");
        stream.set_nodelay(true).expect("set");
        Client(stream)
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).expect("sent");
    }

    /// Receives what is sent until the server ends the connection, in an orderly way.
    fn read_to_the_end(&mut self) -> String {
        let mut received = Vec::new();
        self.0.read_to_end(&mut received).expect("ended, and not reset");
        String::from_utf8_lossy(&received).into_owned()
    }

    /// Receives one response with [`FILE`].
    fn response(&mut self) -> String {
        let mut received = Vec::new();
        while !received.ends_with(FILE) {
            let mut byte = [0];
            self.0.read_exact(&mut byte).expect("answered");
            received.push(byte[0]);
        }
        String::from_utf8_lossy(&received).into_owned()
    }

    fn query(&mut self) {
        self.send([&(QUERY.len() as u16).to_be_bytes(), QUERY].concat());
    }

    /// Receives one reply.
    fn reply(&mut self) {
        let mut length = [0; 2];
        self.0.read_exact(&mut length).expect("answered");
        let mut reply = vec![0; usize::from(u16::from_be_bytes(length))];
        self.0.read_exact(&mut reply).expect("whole");
        assert_eq!(reply[..2], QUERY[..2]);
    }

    fn sees_the_end(&mut self) {
        assert_eq!(self.read_to_the_end(), "");
    }
}

const CLOSE: &str = "\r\nConnection: close\r\n";

#[test]
fn bytes_after_the_last_request_do_not_reset_the_connection() {
    serve_builtin(|scene| {
        let mut client = scene.http();
        scene.act_before_drain(DrainMode::Replaced, || client.send(GET));
        // A request that arrived before this response would still be answered.
        assert!(client.response().contains(CLOSE));
        client.send(vec![b'x'; 100 * 1024]);
        client.sees_the_end();
    });
}

#[test]
fn the_fin_of_a_draining_dns_connection_arrives_with_the_answer() {
    serve_builtin(|scene| {
        let mut client = scene.dns();
        client.query();
        client.reply();
        scene.server.drain(DrainMode::Replaced);
        client.query();
        client.reply();
        // At once: it must not have to be waited for.
        client.0.set_nonblocking(true).expect("set");
        assert_eq!(client.0.read(&mut [0]).map_err(|error| error.kind()), Ok(0));
    });
}

#[test]
fn a_long_response_is_sent_whole_while_the_server_drains() {
    let directory = tempfile::tempdir().expect("created");
    std::fs::write(directory.path().join("large"), vec![b'l'; LARGE_BYTES]).expect("written");
    let root = Root::Directory(Arc::new(Directory::open(directory.path()).expect("opened")));
    serve(snapshot(root), &[sockets()], 1, |scene| {
        let mut client = scene.http();
        client.send(GET.replace("file", "large"));
        let mut start = [0; 1000];
        client.0.read_exact(&mut start).expect("answered");
        scene.server.drain(DrainMode::Replaced);
        let rest = client.read_to_the_end();
        let head = String::from_utf8_lossy(&start).find("\r\n\r\n").expect("a head") + 4;
        assert_eq!(start.len() + rest.len() - head, LARGE_BYTES);
    });
}

#[test]
fn a_connection_is_cut_off_after_the_drain_timeout() {
    let server = Server::new(builtin(), options(), Duration::from_millis(50));
    let sockets = [sockets()];
    let http = sockets[0].streams[0].1.local_address().expect("bound");
    let mut client = server.run(&sockets, 1, |server| {
        let mut client = Client::connect(http);
        client.send(&GET[..10]);
        wait_until(|| server.status().sum(Counter::HttpConnections) == 1);
        client
    });
    let client = client.as_mut().expect("served");
    assert!(matches!(client.0.read(&mut [0]).map_err(|error| error.kind()), Ok(0) | Err(ErrorKind::ConnectionReset)));
}

#[test]
fn connections_in_a_listener_are_left_to_the_replacing_process() {
    serve_builtin(|scene| {
        let mut clients = Vec::new();
        scene.act_before_drain(DrainMode::Replaced, || clients.extend([scene.http, scene.dns].map(Client::connect)));
        for (_, listener) in &scene.sockets.streams {
            assert!(listener.accept().expect("asked").is_some(), "still there");
        }
    });
}

#[test]
fn connections_in_a_shared_listener_are_accepted_by_a_draining_server() {
    serve(builtin(), &[sockets()], 4, |scene| {
        let mut clients = Vec::new();
        scene.act_before_drain(DrainMode::Replaced, || clients.extend((0..20).map(|_| Client::connect(scene.http))));
        for client in &mut clients {
            client.send(GET);
            assert!(client.read_to_the_end().contains(CLOSE));
        }
    });
}

#[test]
fn connections_in_a_listener_are_accepted_by_a_stopping_server() {
    serve_builtin(|scene| {
        let (mut http, mut dns) = (Vec::new(), Vec::new());
        scene.act_around_drain(DrainMode::Stopping, |begin_drain| {
            // More than one turn lets in.
            http.extend((0..100).map(|_| Client::connect(scene.http)));
            dns.extend((0..100).map(|_| Client::connect(scene.dns)));
            begin_drain();
            http.iter_mut().for_each(|client| client.send(GET));
            dns.iter_mut().for_each(Client::query);
        });
        scene.sockets.streams.iter().try_for_each(|(_, listener)| listener.shutdown()).expect("shut down");
        for client in &mut http {
            assert!(client.read_to_the_end().contains(CLOSE));
        }
        for client in &mut dns {
            client.reply();
            client.sees_the_end();
        }
        assert_eq!(
            TcpStream::connect(scene.http).map_err(|error| error.kind()).err(),
            Some(ErrorKind::ConnectionRefused)
        );
    });
}

/// The grace is 200 ms, in which all of this happens.
#[test]
fn a_stopping_server_accepts_connections_within_the_final_window() {
    let sockets = sockets();
    sockets.streams[0].1.set_defer_accept();
    serve(builtin(), &[sockets], 1, |scene| {
        let mut silent = Client::connect(scene.http);
        let mut clients = Vec::new();
        scene.act_around_drain(DrainMode::Stopping, |begin_drain| {
            begin_drain();
            let mut other = Client::connect(scene.http);
            other.send(GET);
            assert!(other.read_to_the_end().contains(CLOSE), "the drain has begun");
            silent.send(GET);
            clients.push(Client::connect(scene.dns));
            clients[0].query();
        });
        assert!(silent.read_to_the_end().contains(CLOSE));
        clients[0].reply();
        clients[0].sees_the_end();
    });
}

#[test]
fn a_connection_at_the_limit_is_accepted_when_another_closes_while_the_server_stops() {
    let mut options = options();
    options.http.connections_max = 1;
    let sockets = [sockets()];
    let http = sockets[0].streams[0].1.local_address().expect("bound");
    let file = BuiltinFile { path: "file", bytes: vec![b'l'; LARGE_BYTES].leak() };
    let server = Server::new(snapshot(Root::Builtin(vec![file].leak())), options, DEADLINE);
    let answer = server.run(&sockets, 1, |server| {
        let dns = sockets[0].streams[1].1.local_address().expect("bound");
        let scene = Scene { server, sockets: &sockets[0], http, dns };
        let mut first = scene.http();
        first.send(GET);
        // The worker has received the request before the query that arrives after it. The response is more than the
        // sockets hold, so that the connection is not closed for another one.
        let mut other = scene.dns();
        other.query();
        other.reply();
        let mut second = Client::connect(http);
        second.send(GET);
        scene.act_before_drain(DrainMode::Stopping, || ());
        assert!(first.read_to_the_end().len() > LARGE_BYTES);
        drop(first);
        second.read_to_the_end()
    });
    assert!(answer.expect("served").contains(CLOSE));
}

/// Datagrams that wait in the socket when the server drains; how many are answered, and how many still wait.
fn drain_before_datagrams(drain: DrainMode) -> (usize, usize) {
    const COUNT: usize = 100;
    serve_builtin(|scene| {
        let socket = &scene.sockets.datagrams[0].1;
        let client = UdpSocket::bind("127.0.0.1:0").expect("bound");
        client.connect(socket.local_address().expect("bound")).expect("connected");
        client.set_read_timeout(Some(DEADLINE)).expect("set");
        scene.act_before_drain(drain, || (0..COUNT).for_each(|_| assert!(client.send(QUERY).is_ok())));
        // Nothing is received by it any more, and all answers have been sent.
        client.set_nonblocking(true).expect("set");
        let answered = (0..COUNT).take_while(|_| client.recv(&mut [0; 512]).is_ok()).count();
        let mut batch = sanderling_os::udp::Batch::new();
        let batches = std::iter::from_fn(|| socket.receive(&mut batch).ok().filter(|count| *count != 0));
        (answered, batches.sum())
    })
}

#[test]
fn datagrams_are_left_to_the_replacing_process() {
    let (answered, left) = drain_before_datagrams(DrainMode::Replaced);
    assert_eq!(answered + left, 100);
}

#[test]
fn waiting_datagrams_are_answered_by_a_stopping_server() {
    assert_eq!(drain_before_datagrams(DrainMode::Stopping), (100, 0));
}

#[test]
fn a_hung_thread_is_named() {
    serve_builtin(|scene| {
        let mut now = Instant::now();
        let mut look = || {
            now += Duration::from_secs(1);
            scene.server.hung_thread_at(now)
        };
        let all_wait = || scene.server.shared.metrics.threads().iter().all(|thread| !thread.heartbeat.is_working());
        // One that serves datagrams asks for them before it waits.
        wait_until(|| scene.server.status().threads[1].iteration_count > 0 && all_wait());
        for _ in 0..20 {
            assert_eq!(look(), None);
        }
        let stopped = scene.server.shared.stop_all_threads();
        scene.server.wake_all();
        let mut hung = None;
        let start = Instant::now();
        while hung.is_none() && start.elapsed() < DEADLINE {
            hung = look();
            thread::yield_now();
        }
        let hung = hung.expect("a hung thread");
        assert!(matches!(hung.name.as_str(), "worker 0" | "datagrams 0") && !hung.waits_for_disk, "{hung:?}");
        drop(stopped);
        wait_until(all_wait);
        assert_eq!(look(), None);
    });
}

#[test]
fn the_status_counts_connections_and_requests() {
    serve(builtin(), &[sockets(), sockets()], 1, |scene| {
        let mut clients = [scene.http(), scene.http()];
        for client in &mut clients {
            client.send(GET);
            client.response();
        }
        let mut stream = scene.dns();
        stream.query();
        stream.reply();
        let status = scene.server.status();
        assert_eq!((status.state, status.snapshot_version), (State::Serving, 0));
        let names: Vec<_> =
            status.threads.iter().map(|thread| (thread.name.as_str(), &thread.socket_sets[..])).collect();
        assert_eq!(names, [("worker 0", &[0, 1][..]), ("datagrams 0", &[0, 1])]);
        let worker = &status.threads[0];
        assert_eq!((worker.http_open_count(), worker.dns_open_count(), worker.accepted_count()), (2, 1, 3));
        assert_eq!(worker.count(Counter::HttpRequests), 2);
        assert!(worker.iteration_count > 0 && worker.calls().count() > 0);
        drop(clients);
        wait_until(|| scene.server.status().threads[0].http_open_count() == 0);
        scene.server.drain(DrainMode::Replaced);
        assert_eq!(scene.server.status().state, State::Draining(DrainMode::Replaced));
    });
}

#[test]
fn a_server_needs_a_worker() {
    let server = Server::new(builtin(), options(), DEADLINE);
    let error = server.run(&[sockets()], 0, |_| ()).expect_err("nobody would answer");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

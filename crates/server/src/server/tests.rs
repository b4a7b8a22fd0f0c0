//! What clients that do not ask again see of a server that drains, and what is seen of a thread that hangs.
//!
//! A test stops all threads of a server, lets its clients act, tells the server to drain, and lets the threads go on: so
//! nothing depends on who is quicker.

use super::*;
use crate::content::{BuiltinFile, DefaultSite, Root, Site};
use crate::tally::Counter;
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
/// Asks for an address of `example`, which nobody here knows.
const QUERY: &[u8] = b"\0\x07\0\0\0\x01\0\0\0\0\0\0\x07example\0\0\x01\0\x01";

/// What the clients of a test have.
struct Scene<'s> {
    server: &'s Server,
    siblings: &'s Siblings,
    http: SocketAddr,
    dns: SocketAddr,
}

fn siblings() -> Siblings {
    let any = "127.0.0.1:0".parse().expect("an address");
    Siblings {
        http: vec![Listener::bind(any).expect("bound")],
        dns_streams: vec![Listener::bind(any).expect("bound")],
        dns_datagrams: vec![Socket::bind(any).expect("bound")],
    }
}

fn content(root: Root) -> Content {
    let zones = ZoneMap::new(HashSeed(1), []);
    Content::new(vec![Site { id: 0, hosts: Vec::new(), root }], DefaultSite::EveryHost(0), zones)
}

fn builtin() -> Content {
    const FILES: &[BuiltinFile] = &[BuiltinFile { path: "file", bytes: FILE }];
    content(Root::Builtin(FILES))
}

fn options() -> Options {
    Options { drain_grace: GRACE, ..Options::default() }
}

/// Serves on `siblings` while `act` plays the clients; then drains, and ends.
fn serve<R>(content: Content, siblings: &[Siblings], worker_count: usize, act: impl FnOnce(&Scene<'_>) -> R) -> R {
    let server = Server::new(content, options(), DEADLINE);
    let served = server.run(siblings, worker_count, |server| {
        let http = siblings[0].http[0].local_address().expect("bound");
        let dns = siblings[0].dns_streams[0].local_address().expect("bound");
        act(&Scene { server, siblings: &siblings[0], http, dns })
    });
    served.expect("served")
}

/// The same on one set of siblings with one worker.
fn serve_builtin<R>(act: impl FnOnce(&Scene<'_>) -> R) -> R {
    serve(builtin(), &[siblings()], 1, act)
}

impl Scene<'_> {
    /// Lets `act` happen while all threads stand still, after which they find themselves told to drain. Nobody takes
    /// anything new any more then.
    fn drain_behind(&self, drain: Drain, act: impl FnOnce()) {
        self.drain_amid(drain, |begin_drain| {
            act();
            begin_drain();
        });
    }

    /// The same, where what `act` does behind the call that it is given happens while the threads go on.
    fn drain_amid(&self, drain: Drain, act: impl FnOnce(&mut dyn FnMut())) {
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
        self.let_in(self.http, Counter::HttpConnections)
    }

    fn dns(&self) -> Client {
        self.let_in(self.dns, Counter::DnsStreams)
    }

    fn let_in(&self, address: SocketAddr, counter: Counter) -> Client {
        let before = self.server.tallies().sum(counter);
        let client = Client::connect(address);
        wait_until(|| self.server.tallies().sum(counter) > before);
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
            let mut octet = [0];
            self.0.read_exact(&mut octet).expect("answered");
            received.push(octet[0]);
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

const BOTH: [Drain; 2] = [Drain::ForAnother, Drain::ForGood];

#[test]
fn a_request_that_was_sent_is_answered_with_the_end() {
    for drain in BOTH {
        serve_builtin(|scene| {
            let mut client = scene.http();
            client.send(GET);
            assert!(!client.response().contains(CLOSE));
            scene.drain_behind(drain, || client.send(GET));
            let answer = client.read_to_the_end();
            assert!(answer.contains(CLOSE) && answer.ends_with("itself"), "{drain:?}: {answer}");
        });
    }
}

#[test]
fn a_request_of_which_part_was_sent_is_answered_whole() {
    for drain in BOTH {
        serve_builtin(|scene| {
            let mut client = scene.http();
            let (start, rest) = GET.split_at(20);
            scene.drain_amid(drain, |begin_drain| {
                client.send(start);
                begin_drain();
                client.send(rest);
            });
            let answer = client.read_to_the_end();
            assert!(answer.contains(CLOSE) && answer.ends_with("itself"), "{drain:?}: {answer}");
        });
    }
}

#[test]
fn a_request_whose_content_is_under_way_is_answered_behind_it() {
    serve_builtin(|scene| {
        let mut client = scene.http();
        let head = GET.replace("\r\n\r\n", "\r\nContent-Length: 10\r\n\r\n");
        scene.drain_behind(Drain::ForAnother, || client.send(format!("{head}01234")));
        client.send("56789");
        assert!(client.read_to_the_end().contains(CLOSE));
    });
}

#[test]
fn all_requests_that_were_sent_are_answered_and_the_last_says_that_it_is() {
    // More than one turn answers.
    const COUNT: usize = 300;
    for drain in BOTH {
        serve_builtin(|scene| {
            let mut client = scene.http();
            scene.drain_behind(drain, || client.send(GET.repeat(COUNT)));
            let answers = client.read_to_the_end();
            assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), COUNT, "{drain:?}");
            assert_eq!(answers.matches(CLOSE).count(), 1, "{drain:?}");
            let last = answers.rfind("HTTP/1.1 200 OK").expect("answers");
            assert!(answers[last..].contains(CLOSE), "{drain:?}");
        });
    }
}

#[test]
fn the_start_of_another_request_is_not_cut_off_by_the_answer_before() {
    serve_builtin(|scene| {
        let mut client = scene.http();
        let (start, rest) = GET.split_at(30);
        scene.drain_behind(Drain::ForAnother, || client.send(format!("{GET}{start}")));
        assert!(!client.response().contains(CLOSE));
        client.send(rest);
        let answer = client.read_to_the_end();
        assert!(answer.contains(CLOSE) && answer.ends_with("itself"), "{answer}");
    });
}

#[test]
fn what_comes_behind_the_last_request_does_not_reset_its_answer() {
    serve_builtin(|scene| {
        let mut client = scene.http();
        scene.drain_behind(Drain::ForAnother, || client.send(GET));
        // Nobody answers these any more; they are read all the same. More would fill no socket's buffer on our side.
        client.send(vec![b'x'; 100 * 1024]);
        let answer = client.read_to_the_end();
        assert!(answer.contains(CLOSE) && answer.ends_with("itself"), "{answer}");
    });
}

#[test]
fn who_sends_no_more_is_told_the_end_as_well() {
    serve_builtin(|scene| {
        let mut client = scene.http();
        scene.drain_behind(Drain::ForAnother, || {
            client.send(GET.repeat(3));
            client.0.shutdown(std::net::Shutdown::Write).expect("ended");
        });
        let answers = client.read_to_the_end();
        assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 3);
        assert_eq!(answers.matches(CLOSE).count(), 1);
    });
}

#[test]
fn an_idle_connection_may_ask_once_more_within_the_grace() {
    for drain in BOTH {
        serve_builtin(|scene| {
            let mut client = scene.http();
            client.send(GET);
            client.response();
            let mut fresh = scene.http();
            scene.drain_amid(drain, |begin_drain| {
                begin_drain();
                [&mut client, &mut fresh].into_iter().for_each(|client| client.send(GET));
            });
            for client in [&mut client, &mut fresh] {
                assert!(client.read_to_the_end().contains(CLOSE), "{drain:?}");
            }
        });
    }
}

#[test]
fn an_idle_connection_is_closed_after_the_grace() {
    serve_builtin(|scene| {
        let (mut http, mut dns) = (scene.http(), scene.dns());
        http.send(GET);
        http.response();
        dns.query();
        dns.reply();
        let start = Instant::now();
        scene.server.drain(Drain::ForAnother);
        http.sees_the_end();
        dns.sees_the_end();
        assert!(start.elapsed() >= GRACE, "closed after {:?}", start.elapsed());
        assert_eq!(scene.server.tallies().sum(Counter::HttpTimeouts), 0);
    });
}

#[test]
fn queries_that_were_sent_are_answered_and_then_the_stream_ends() {
    for drain in BOTH {
        serve_builtin(|scene| {
            let mut client = scene.dns();
            client.query();
            client.reply();
            scene.drain_behind(drain, || (0..3).for_each(|_| client.query()));
            let start = Instant::now();
            (0..3).for_each(|_| client.reply());
            client.sees_the_end();
            assert!(start.elapsed() < GRACE.max(Duration::from_secs(1)), "ended after {:?}", start.elapsed());
        });
    }
}

#[test]
fn an_idle_stream_may_ask_once_more_and_sees_the_end_with_the_answer() {
    serve_builtin(|scene| {
        let mut client = scene.dns();
        client.query();
        client.reply();
        scene.server.drain(Drain::ForAnother);
        client.query();
        client.reply();
        // At once: it must not have to be waited for.
        client.0.set_nonblocking(true).expect("set");
        assert_eq!(client.0.read(&mut [0]).map_err(|error| error.kind()), Ok(0));
    });
}

#[test]
fn a_long_response_is_sent_to_its_end() {
    let folder = std::env::temp_dir().join(format!("sanderling-drain-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("made");
    std::fs::write(folder.join("large"), vec![b'l'; LARGE_BYTES]).expect("written");
    let root = Root::Folder(Directory::open(&folder).expect("opened"));
    serve(content(root), &[siblings()], 1, |scene| {
        let mut client = scene.http();
        client.send(GET.replace("file", "large"));
        let mut start = [0; 1000];
        client.0.read_exact(&mut start).expect("answered");
        scene.server.drain(Drain::ForAnother);
        let rest = client.read_to_the_end();
        let head = String::from_utf8_lossy(&start).find("\r\n\r\n").expect("a head") + 4;
        assert_eq!(start.len() + rest.len() - head, LARGE_BYTES);
    });
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn who_does_not_end_is_cut_off_in_time() {
    let server = Server::new(builtin(), options(), Duration::from_millis(50));
    let siblings = [siblings()];
    let http = siblings[0].http[0].local_address().expect("bound");
    let mut client = server.run(&siblings, 1, |server| {
        let mut client = Client::connect(http);
        client.send(&GET[..10]);
        wait_until(|| server.standing().sum(Counter::HttpConnections) == 1);
        client
    });
    let client = client.as_mut().expect("served");
    assert!(matches!(client.0.read(&mut [0]).map_err(|error| error.kind()), Ok(0) | Err(ErrorKind::ConnectionReset)));
}

#[test]
fn who_waits_in_a_listener_is_left_to_whoever_serves_on() {
    serve_builtin(|scene| {
        let mut clients = Vec::new();
        scene.drain_behind(Drain::ForAnother, || clients.extend([scene.http, scene.dns].map(Client::connect)));
        for listener in [&scene.siblings.http[0], &scene.siblings.dns_streams[0]] {
            assert!(listener.accept().expect("asked").is_some(), "still there");
        }
    });
}

#[test]
fn who_waits_in_a_shared_listener_is_let_in_as_nobody_else_may_have_been_woken() {
    serve(builtin(), &[siblings()], 4, |scene| {
        let mut clients = Vec::new();
        scene.drain_behind(Drain::ForAnother, || clients.extend((0..20).map(|_| Client::connect(scene.http))));
        for client in &mut clients {
            client.send(GET);
            assert!(client.read_to_the_end().contains(CLOSE));
        }
    });
}

#[test]
fn who_waits_in_a_listener_is_let_in_where_nobody_serves_on() {
    serve_builtin(|scene| {
        let (mut http, mut dns) = (Vec::new(), Vec::new());
        scene.drain_amid(Drain::ForGood, |begin_drain| {
            // More than one turn lets in.
            http.extend((0..100).map(|_| Client::connect(scene.http)));
            dns.extend((0..100).map(|_| Client::connect(scene.dns)));
            begin_drain();
            http.iter_mut().for_each(|client| client.send(GET));
            dns.iter_mut().for_each(Client::query);
        });
        scene.siblings.shut_down().expect("shut down");
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
fn where_nobody_serves_on_who_asks_soon_is_let_in() {
    let siblings = siblings();
    siblings.http[0].set_defer_accept();
    serve(builtin(), &[siblings], 1, |scene| {
        let mut silent = Client::connect(scene.http);
        let mut clients = Vec::new();
        scene.drain_amid(Drain::ForGood, |begin_drain| {
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
fn who_found_no_room_is_let_in_when_another_leaves_at_the_end() {
    let mut options = options();
    options.http.connections_max = 1;
    let siblings = [siblings()];
    let http = siblings[0].http[0].local_address().expect("bound");
    let server = Server::new(builtin(), options, DEADLINE);
    let answer = server.run(&siblings, 1, |server| {
        let dns = siblings[0].dns_streams[0].local_address().expect("bound");
        let scene = Scene { server, siblings: &siblings[0], http, dns };
        let mut first = scene.http();
        let mut second = Client::connect(http);
        second.send(GET);
        scene.drain_behind(Drain::ForGood, || first.send(GET));
        assert!(first.read_to_the_end().contains(CLOSE));
        drop(first);
        second.read_to_the_end()
    });
    assert!(answer.expect("served").contains(CLOSE));
}

/// Datagrams that wait in the socket when the server drains; how many are answered, and how many still wait.
fn drain_before_datagrams(drain: Drain) -> (usize, usize) {
    const COUNT: usize = 100;
    serve_builtin(|scene| {
        let socket = &scene.siblings.dns_datagrams[0];
        let client = UdpSocket::bind("127.0.0.1:0").expect("bound");
        client.connect(socket.local_address().expect("bound")).expect("connected");
        client.set_read_timeout(Some(DEADLINE)).expect("set");
        scene.drain_behind(drain, || (0..COUNT).for_each(|_| assert!(client.send(QUERY).is_ok())));
        // Nothing is received by it any more, and all answers have been sent.
        client.set_nonblocking(true).expect("set");
        let answered = (0..COUNT).take_while(|_| client.recv(&mut [0; 512]).is_ok()).count();
        let mut batch = sanderling_os::udp::Batch::new();
        let batches = std::iter::from_fn(|| socket.receive(&mut batch).ok().filter(|count| *count != 0));
        (answered, batches.sum())
    })
}

#[test]
fn datagrams_are_left_to_whoever_serves_on() {
    let (answered, left) = drain_before_datagrams(Drain::ForAnother);
    assert_eq!(answered + left, 100);
}

#[test]
fn datagrams_are_answered_where_nobody_serves_on() {
    assert_eq!(drain_before_datagrams(Drain::ForGood), (100, 0));
}

#[test]
fn a_thread_that_hangs_is_named() {
    serve_builtin(|scene| {
        let mut now = Instant::now();
        let mut look = || {
            now += Duration::from_secs(1);
            scene.server.hung_thread_at(now)
        };
        let all_wait = || scene.server.tallies().all().iter().all(|tally| !tally.beat.is_in_a_turn());
        // One that serves datagrams asks for them before it waits.
        wait_until(|| scene.server.standing().threads[1].turn_count > 0 && all_wait());
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
        assert!(matches!(hung.as_deref(), Some("worker 0" | "datagrams 0")), "{hung:?}");
        drop(stopped);
        wait_until(all_wait);
        assert_eq!(look(), None);
    });
}

#[test]
fn a_server_tells_how_it_stands() {
    serve(builtin(), &[siblings(), siblings()], 1, |scene| {
        let mut clients = [scene.http(), scene.http()];
        for client in &mut clients {
            client.send(GET);
            client.response();
        }
        let mut stream = scene.dns();
        stream.query();
        stream.reply();
        let standing = scene.server.standing();
        assert_eq!((standing.stage, standing.content_version), (Stage::Serving, 0));
        let names: Vec<_> =
            standing.threads.iter().map(|thread| (thread.name.as_str(), &thread.siblings[..])).collect();
        assert_eq!(names, [("worker 0", &[0, 1][..]), ("datagrams 0", &[0, 1])]);
        let worker = &standing.threads[0];
        assert_eq!((worker.http_open_count(), worker.dns_open_count(), worker.accepted_count()), (2, 1, 3));
        assert_eq!(worker.of(Counter::HttpRequests), 2);
        assert!(worker.turn_count > 0 && worker.calls().count() > 0);
        drop(clients);
        wait_until(|| scene.server.standing().threads[0].http_open_count() == 0);
        scene.server.drain(Drain::ForAnother);
        assert_eq!(scene.server.standing().stage, Stage::Draining(Drain::ForAnother));
    });
}

#[test]
fn a_server_without_workers_is_refused() {
    let server = Server::new(builtin(), options(), DEADLINE);
    let error = server.run(&[siblings()], 0, |_| ()).expect_err("nobody would answer");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

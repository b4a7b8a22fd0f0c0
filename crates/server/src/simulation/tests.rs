//! Connections as a client sees them: pipelining, partial writes, timeouts, graceful shutdown and eviction.

mod bodies;

use super::*;
use crate::options::{DnsOptions, HttpOptions};
use crate::site::sites::{BuiltinFile, DefaultSite, Root, Site, SiteOptions, Sites};
use sanderling_dns::{HashSeed, ZoneMap};
use sanderling_os::directory::Directory;

const FILE: &str = "a file in the program itself";
const GET: &str = "GET /file HTTP/1.1\r\nHost: example\r\n\r\n";
/// Asks for an address of `example`, in no zone of this server.
const QUERY: &[u8] = b"\0\x19\0\x07\0\0\0\x01\0\0\0\0\0\0\x07example\0\0\x01\0\x01";
const QUERY_COUNT: usize = 3;
const UNLIMITED: usize = usize::MAX;
const ITERATIONS_MAX: usize = 1_000;
const CLOSE: &str = "\r\nConnection: close\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\n";
const GRACE: Duration = Duration::from_secs(2);
const ALMOST: Duration = Duration::from_millis(1);

/// Short timeouts, all different, and no least rates.
fn options() -> Options {
    Options {
        http: HttpOptions {
            connections_max: 3,
            request_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            send_timeout: Duration::from_secs(30),
            send_rate_min: 0,
            receive_rate_min: 0,
            ..HttpOptions::default()
        },
        dns: DnsOptions { tcp_connections_max: 3, tcp_idle_timeout: Duration::from_secs(5), ..DnsOptions::default() },
        ..Options::default()
    }
}

fn snapshot(root: Root) -> Snapshot {
    let sites = Sites::new(
        vec![Site { id: 0, hosts: Vec::new(), root, options: SiteOptions::default() }],
        DefaultSite::EveryHost(0),
    );
    Snapshot::new(sites, ZoneMap::new(HashSeed(1), []))
}

fn simulate_with(options: Options, act: impl FnOnce(&mut Simulation<'_>)) {
    const FILES: &[BuiltinFile] = &[BuiltinFile { path: "file", bytes: FILE.as_bytes() }];
    simulate(snapshot(Root::Builtin(FILES)), options, act);
}

fn simulate_default(act: impl FnOnce(&mut Simulation<'_>)) {
    simulate_with(options(), act);
}

impl Simulation<'_> {
    fn http(&mut self, bytes: impl AsRef<[u8]>) -> usize {
        self.connect(Protocol::Http, bytes.as_ref(), UNLIMITED).expect("accepted")
    }

    fn dns(&mut self, bytes: impl AsRef<[u8]>) -> usize {
        self.connect(Protocol::Dns, bytes.as_ref(), UNLIMITED).expect("accepted")
    }

    /// Sends `bytes`, and runs until they are processed.
    fn ask(&mut self, client: usize, bytes: impl AsRef<[u8]>) -> String {
        self.send(client, bytes.as_ref());
        self.received(client)
    }

    /// Runs until nothing is left to do; what the client has received since.
    fn received(&mut self, client: usize) -> String {
        self.run(ITERATIONS_MAX);
        String::from_utf8_lossy(&self.take_received(client)).into_owned()
    }

    /// The client sees an orderly end, and closes its side.
    #[track_caller]
    fn check_ends(&mut self, client: usize) {
        assert_eq!(self.ending(client), Ending::ShutDown);
        self.close(client);
        self.run(ITERATIONS_MAX);
        assert!(!self.is_open(client));
    }
}

fn count(text: &str, part: &str) -> usize {
    text.matches(part).count()
}

#[test]
fn a_request_in_pieces_of_any_size_is_answered_once() {
    for size in 1..=GET.len() {
        simulate_default(|simulation| {
            let client = simulation.http("");
            let pieces: Vec<&[u8]> = GET.as_bytes().chunks(size).collect();
            let (last, others) = pieces.split_last().expect("pieces");
            for piece in others {
                assert_eq!(simulation.ask(client, piece), "", "pieces of {size}");
            }
            let answer = simulation.ask(client, last);
            assert!(answer.starts_with(OK) && answer.ends_with(FILE), "{answer}");
            assert!(simulation.is_open(client));
        });
    }
}

#[test]
fn pipelined_requests_in_single_bytes_are_each_answered() {
    const COUNT: usize = 16;
    simulate_default(|simulation| {
        let client = simulation.http("");
        let answers: String = GET.repeat(COUNT).bytes().map(|byte| simulation.ask(client, [byte])).collect();
        assert_eq!((answers.matches(OK).count(), answers.matches(FILE).count()), (COUNT, COUNT));
    });
}

#[test]
fn pipelined_requests_are_answered_in_order_over_several_iterations() {
    const COUNT: usize = 300;
    simulate_default(|simulation| {
        let client = simulation.http("");
        simulation.send(client, GET.repeat(COUNT).as_bytes());
        simulation.run_once();
        let first = String::from_utf8_lossy(&simulation.take_received(client)).into_owned();
        assert_eq!(count(&first, OK), crate::protocols::http1::REQUESTS_PER_ITERATION_MAX);
        let rest = simulation.received(client);
        assert_eq!(count(&first, OK) + count(&rest, OK), COUNT);
        assert_eq!(simulation.count(Counter::HttpRequests), COUNT as u64);
    });
}

/// Simulates a site whose only file has this length, in memory.
fn simulate_large(act: impl FnOnce(&mut Simulation<'_>)) {
    const FILES: &[BuiltinFile] = &[BuiltinFile { path: "file", bytes: &[b'f'; LARGE_BYTES] }];
    simulate(snapshot(Root::Builtin(FILES)), Options { http: HttpOptions::default(), ..options() }, act);
}

const LARGE_BYTES: usize = 16_000;

#[test]
fn pipelined_responses_are_limited_by_their_bytes_in_an_iteration() {
    simulate_large(|simulation| {
        let client = simulation.http(GET.repeat(50));
        let mut received_bytes = Vec::new();
        while received_bytes.iter().sum::<usize>() < 50 * LARGE_BYTES {
            received_bytes.push(simulation.take_received(client).len());
            simulation.run_once();
        }
        let piece_bytes = Options::default().connection_buffer_bytes_max + 2 * LARGE_BYTES;
        // The first time, others may wait in the listener.
        assert!(received_bytes[0] <= piece_bytes, "{received_bytes:?}");
        assert!(received_bytes.iter().all(|&bytes| bytes <= 128 * 1024 + piece_bytes), "{received_bytes:?}");
    });
}

#[test]
fn connections_with_work_left_do_not_delay_a_new_one() {
    simulate_large(|simulation| {
        let others: Vec<usize> = (0..100).map(|_| simulation.http(GET.repeat(200))).collect();
        for _ in 0..5 {
            others.iter().for_each(|other| drop(simulation.take_received(*other)));
            simulation.run_once();
            let served = others.iter().filter(|other| !simulation.take_received(**other).is_empty()).count();
            assert!((1..=16).contains(&served), "{served} connections in one iteration");
            let new = simulation.http(GET);
            assert!(simulation.take_received(new).len() > LARGE_BYTES);
        }
    });
}

#[test]
fn a_response_leaves_in_pieces_as_the_window_opens() {
    for window in [1, 7, 100, 1_000] {
        simulate_default(|simulation| {
            let requests = GET.repeat(20);
            let client = simulation.connect(Protocol::Http, requests.as_bytes(), window).expect("accepted");
            let mut answers = simulation.received(client);
            while count(&answers, FILE) < 20 {
                simulation.open_window(client, window);
                let more = simulation.received(client);
                assert!(!more.is_empty() && more.len() <= window, "{} bytes", more.len());
                answers += &more;
            }
            assert_eq!(count(&answers, OK), 20);
            simulation.open_window(client, UNLIMITED);
            assert!(simulation.ask(client, GET).ends_with(FILE));
        });
    }
}

#[test]
fn a_file_on_disk_is_opened_by_a_job_and_sent_in_pieces() {
    const BYTES: usize = 3_000_000;
    let directory = tempfile::tempdir().expect("made");
    std::fs::write(directory.path().join("large"), vec![b'l'; BYTES]).expect("written");
    let root = Root::Directory(Arc::new(Directory::open(directory.path()).expect("opened")));
    simulate(snapshot(root), options(), |simulation| {
        let get = GET.replace("file", "large");
        let client = simulation.connect(Protocol::Http, get.as_bytes(), 1_000_000).expect("accepted");
        let mut received = 0;
        // The file has just changed and is read later.
        while received == 0 {
            received += simulation.received(client).len();
        }
        while received < BYTES {
            simulation.open_window(client, 700_001);
            received += simulation.received(client).len();
        }
        assert!(simulation.is_open(client));
        assert_eq!(simulation.count(Counter::HttpRequests), 1);
    });
}

/// From memory in one piece and in several, and from a descriptor.
#[test]
fn several_ranges_of_a_file_are_sent_in_pieces() {
    let directory = tempfile::tempdir().expect("made");
    for (bytes, window) in
        [(2_000, UNLIMITED), (30_000, UNLIMITED), (30_000, 777), (3_000_000, UNLIMITED), (3_000_000, 70_001)]
    {
        let content: Vec<u8> = (0..bytes).map(|index| b'a' + (index % 23) as u8).collect();
        std::fs::write(directory.path().join("large"), &content).expect("written");
        let root = Root::Directory(Arc::new(Directory::open(directory.path()).expect("opened")));
        simulate(snapshot(root), options(), |simulation| {
            let ranges = [0..bytes / 4, bytes - 5..bytes, bytes / 2..bytes / 2 + bytes / 3];
            let list = ranges.clone().map(|range| format!("{}-{}", range.start, range.end - 1)).join(",");
            let get = GET.replace("file", "large").replace("Host", &format!("Range: bytes={list}\r\nHost"));
            let client = simulation.connect(Protocol::Http, get.as_bytes(), window).expect("accepted");
            let mut answer = String::new();
            while !answer.ends_with("--\r\n") {
                simulation.open_window(client, window);
                answer += &simulation.received(client);
            }
            let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
            assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{head}, not {}", body.len());
            let boundary =
                head.split("boundary=").nth(1).and_then(|rest| rest.split("\r\n").next()).expect("a boundary");
            let parts: Vec<&str> = body.split(&format!("\r\n--{boundary}")).collect();
            assert_eq!((parts.len(), parts[0], parts[4]), (5, "", "--\r\n"));
            for (part, range) in parts[1..].iter().zip(ranges) {
                let (head, part) = part.split_once("\r\n\r\n").expect("an empty line");
                assert!(head.ends_with(&format!("bytes {}-{}/{bytes}", range.start, range.end - 1)), "{head}");
                assert!(part.as_bytes() == &content[range], "another content");
            }
            simulation.open_window(client, UNLIMITED);
            assert!(simulation.ask(client, GET).starts_with("HTTP/1.1 404 "));
        });
    }
}

/// Simulates a site with the file `large` of so many bytes.
fn simulate_with_file(bytes: usize, act: impl FnOnce(&mut Simulation<'_>, &std::path::Path)) {
    let directory = tempfile::tempdir().expect("made");
    let path = directory.path().join("large");
    std::fs::write(&path, vec![b'l'; bytes]).expect("written");
    std::fs::write(directory.path().join("small"), FILE).expect("written");
    let root = Root::Directory(Arc::new(Directory::open(directory.path()).expect("opened")));
    let mut options = options();
    options.open_files.sendfile_after = Duration::ZERO;
    // Jobs take the time of the system, so that their results would be out of date in a simulation whose time has
    // passed.
    options.open_files.watched_valid_for = Duration::from_secs(3_600);
    options.open_files.valid_for = Duration::from_secs(3_600);
    simulate(snapshot(root), options, |simulation| act(simulation, &path));
}

impl Simulation<'_> {
    /// Asks for `/large` while the disk is stalled, until the client has received the head.
    fn ask_stalled(&mut self) -> usize {
        self.stall_disk(true);
        let client = self.http(GET.replace("file", "large"));
        self.first_received(client);
        client
    }

    /// What the client receives first. A file that has just changed is read later.
    fn first_received(&mut self, client: usize) -> String {
        loop {
            let received = self.received(client);
            if !received.is_empty() {
                return received;
            }
        }
    }
}

#[test]
fn content_that_is_not_in_the_page_cache_delays_its_own_connection_alone() {
    const BYTES: usize = 2_500_000;
    simulate_with_file(BYTES, |simulation, _| {
        let waiting = simulation.ask_stalled();
        for _ in 0..3 {
            let other = simulation.http(GET.replace("file", "small"));
            assert!(simulation.first_received(other).ends_with(FILE));
            assert_eq!(simulation.received(waiting), "");
            simulation.close(other);
        }
        simulation.stall_disk(false);
        let mut received = simulation.received(waiting);
        // Each window of the file is read by a job.
        while let more = simulation.received(waiting)
            && !more.is_empty()
        {
            received += &more;
        }
        assert_eq!((received.len(), simulation.is_open(waiting)), (BYTES, true));
    });
}

#[test]
fn a_connection_whose_content_cannot_be_read_is_closed_after_the_send_timeout() {
    simulate_with_file(100_000, |simulation, _| {
        let waiting = simulation.ask_stalled();
        simulation.advance(Duration::from_secs(30) - ALMOST);
        assert!(simulation.is_open(waiting));
        simulation.advance(ALMOST);
        assert!(!simulation.is_open(waiting));
        let next = simulation.ask_stalled();
        simulation.stall_disk(false);
        assert_eq!(simulation.received(next).len(), 100_000);
    });
}

#[test]
fn a_request_whose_file_is_not_found_in_time_gets_503() {
    simulate_with_file(1, |simulation, _| {
        let requests = [GET.replace("file", "small"), GET.replace("file", "large")].concat();
        let waiting = simulation.connect(Protocol::Http, requests.as_bytes(), UNLIMITED).expect("accepted");
        // No job is done.
        simulation.advance(Duration::from_secs(30) - ALMOST);
        assert!(simulation.take_received(waiting).is_empty() && simulation.is_open(waiting));
        simulation.advance(ALMOST);
        let received = simulation.received(waiting);
        assert!(received.starts_with("HTTP/1.1 503 ") && received.contains(CLOSE), "{received}");
        assert_eq!(count(&received, "HTTP/1.1"), 1);
        simulation.check_ends(waiting);
    });
}

#[test]
fn a_file_that_changes_while_it_is_read_is_cut_off() {
    for content in ["short".to_owned(), "x".repeat(100_000)] {
        simulate_with_file(100_000, |simulation, path| {
            let waiting = simulation.ask_stalled();
            std::fs::write(path, &content).expect("written");
            simulation.stall_disk(false);
            assert!(simulation.received(waiting).len() < 100_000);
            assert_eq!(simulation.ending(waiting), Ending::Reset);
        });
    }
}

#[test]
fn a_connection_times_out_in_each_state() {
    let check = |what: &str, sent: &str, window: usize, timeout_ms: u64, expected_start: &str| {
        simulate_default(|simulation| {
            let client = simulation.connect(Protocol::Http, sent.as_bytes(), window).expect("accepted");
            simulation.run(ITERATIONS_MAX);
            simulation.take_received(client);
            simulation.advance(Duration::from_millis(timeout_ms) - ALMOST);
            assert!(simulation.is_open(client) && simulation.ending(client) == Ending::Open, "{what}: too early");
            simulation.advance(ALMOST);
            let end = simulation.received(client);
            assert!(end.starts_with(expected_start) && (end.is_empty() == expected_start.is_empty()), "{what}: {end}");
            if !expected_start.is_empty() {
                assert!(end.contains(CLOSE));
                simulation.check_ends(client);
            }
            assert!(!simulation.is_open(client), "{what}");
            assert_eq!(simulation.count(Counter::HttpTimeouts), 1, "{what}");
        });
    };
    check("before the first byte", "", UNLIMITED, 10_000, "");
    check("in the first head", &GET[..20], UNLIMITED, 10_000, "HTTP/1.1 408 ");
    check("between requests", GET, UNLIMITED, 60_000, "");
    check("in a later head", &format!("{GET}{}", &GET[..20]), UNLIMITED, 10_000, "HTTP/1.1 408 ");
    let post = "POST /file HTTP/1.1\r\nHost: example\r\nContent-Length: 9\r\n\r\n1234";
    check("in the content, after the response", post, UNLIMITED, 10_000, "");
    check("while nothing is received", GET, 10, 30_000, "");
}

#[test]
fn each_request_of_a_pipeline_in_pieces_has_a_deadline_of_its_own() {
    simulate_default(|simulation| {
        let (start, rest) = GET.split_at(20);
        let client = simulation.http(format!("{GET}{start}"));
        for _ in 0..10 {
            simulation.advance(Duration::from_secs(6));
            let answer = simulation.ask(client, format!("{rest}{start}"));
            assert!(answer.contains(OK) && !answer.contains(CLOSE), "{answer}");
        }
        simulation.advance(Duration::from_secs(10));
        assert!(simulation.received(client).starts_with("HTTP/1.1 408 "));
    });
}

#[test]
fn received_bytes_of_a_response_move_the_send_deadline() {
    simulate_default(|simulation| {
        let client = simulation.connect(Protocol::Http, GET.as_bytes(), 10).expect("accepted");
        for _ in 0..5 {
            simulation.advance(Duration::from_secs(29));
            simulation.open_window(client, 10);
            assert!(!simulation.received(client).is_empty());
        }
        simulation.advance(Duration::from_secs(30));
        assert!(!simulation.is_open(client));
    });
}

/// Simulates least rates of 100 bytes a second, under which a request may take ten minutes.
fn simulate_rates(act: impl FnOnce(&mut Simulation<'_>)) {
    let mut options = options();
    options.http.send_rate_min = 100;
    options.http.receive_rate_min = 100;
    options.http.request_timeout = Duration::from_secs(600);
    options.http.request.body_bytes_max = 1_000_000;
    simulate_with(options, act);
}

#[test]
fn a_client_that_receives_a_response_below_the_least_rate_is_reset() {
    const SECONDS: u64 = 120;
    let check = |bytes_per_s: usize, expected_ms: Option<u64>| {
        simulate_rates(|simulation| {
            // More than the client takes.
            let client = simulation.connect(Protocol::Http, GET.repeat(100).as_bytes(), 1).expect("accepted");
            for _ in 0..SECONDS {
                simulation.advance(Duration::from_secs(1));
                if !simulation.is_open(client) {
                    break;
                }
                simulation.open_window(client, bytes_per_s);
                simulation.run(ITERATIONS_MAX);
            }
            assert_eq!(simulation.is_open(client), expected_ms.is_none(), "{bytes_per_s} bytes/s");
            assert_eq!(simulation.count(Counter::HttpSlowResponses), u64::from(expected_ms.is_some()));
            if let Some(expected_ms) = expected_ms {
                assert_eq!(simulation.ending(client), Ending::Reset);
                assert_eq!(simulation.connections.clock().now_ms(), expected_ms, "{bytes_per_s} bytes/s");
            }
        });
    };
    // The first window of 30 seconds is not measured.
    check(1, Some(60_000));
    check(99, Some(60_000));
    check(100, None);
}

#[test]
fn a_response_that_waits_for_a_disk_has_no_least_rate() {
    simulate_with_file(100_000, |simulation, _| {
        let waiting = simulation.ask_stalled();
        simulation.advance(Duration::from_secs(29));
        simulation.stall_disk(false);
        assert_ne!(simulation.received(waiting).len(), 0);
        assert_eq!(simulation.count(Counter::HttpSlowResponses), 0);
    });
}

#[test]
fn a_client_that_sends_a_request_below_the_least_rate_gets_408() {
    let head = GET.replace("\r\n\r\n", "\r\nCookie: ");
    let body = "POST /file HTTP/1.1\r\nHost: example\r\nContent-Length: 900000\r\n\r\n";
    let check = |start: &str, bytes_per_s: usize, expected_s: Option<u64>| {
        simulate_rates(|simulation| {
            // The request is not the first one.
            let client = simulation.http(GET);
            simulation.run(ITERATIONS_MAX);
            simulation.take_received(client);
            let is_answered = simulation.ask(client, start).starts_with("HTTP/1.1 405 ");
            let mut answered_s = None;
            for second in 1..=100 {
                simulation.advance(Duration::from_secs(1));
                let answer = simulation.received(client);
                if !answer.is_empty() || !simulation.is_open(client) {
                    let is_408 = answer.starts_with("HTTP/1.1 408 ") && answer.contains(CLOSE);
                    assert_eq!((is_408, answer.is_empty()), (!is_answered, is_answered), "{answer}");
                    answered_s = Some(second);
                    break;
                }
                simulation.ask(client, "x".repeat(bytes_per_s));
            }
            assert_eq!(answered_s, expected_s, "{bytes_per_s} bytes/s");
            assert_eq!(simulation.count(Counter::HttpSlowRequests), u64::from(expected_s.is_some()));
        });
    };
    for start in [&head, body] {
        check(start, 1, Some(20));
        check(start, 90, Some(20));
        check(start, 105, None);
    }
    // A fast start does not pay for the rest.
    check(&format!("{body}{}", "x".repeat(50_000)), 1, Some(40));
}

#[test]
fn a_client_that_sends_on_after_the_last_response_reads_it_to_the_end() {
    simulate_default(|simulation| {
        let client = simulation.http(GET.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"));
        assert!(simulation.received(client).ends_with(FILE));
        assert_ne!(simulation.ending(client), Ending::Reset);
        let malformed = simulation.http("nonsense\r\n\r\n");
        assert!(simulation.received(malformed).starts_with("HTTP/1.1 400 "));
        assert_eq!(simulation.ask(malformed, vec![b'x'; 3 * 1024 * 1024]), "");
        assert_eq!(simulation.ending(malformed), Ending::ShutDown);
        assert!(simulation.is_open(malformed));
        // No client makes the server discard without end.
        simulation.ask(malformed, vec![b'x'; 1024 * 1024]);
        assert!(!simulation.is_open(malformed));
        let silent = simulation.http("nonsense\r\n\r\n");
        simulation.advance(Duration::from_secs(2));
        assert!(!simulation.is_open(silent));
    });
}

#[test]
fn a_client_that_closes_its_side_gets_the_answers_to_what_it_sent() {
    simulate_default(|simulation| {
        let client = simulation.http("");
        simulation.send(client, GET.repeat(3).as_bytes());
        simulation.close(client);
        assert_eq!(count(&simulation.received(client), OK), 3);
        assert!(!simulation.is_open(client));
    });
}

#[test]
fn a_broken_connection_is_closed_at_once() {
    simulate_default(|simulation| {
        let clients =
            [simulation.http(""), simulation.http(&GET[..9]), simulation.dns(QUERY), simulation.dns(&QUERY[..9])];
        for client in clients {
            simulation.break_off(client);
            simulation.run(ITERATIONS_MAX);
            assert!(!simulation.is_open(client));
        }
    });
}

#[test]
fn requests_sent_before_a_drain_are_answered_and_the_last_says_close() {
    for requests in [1, 3, 300] {
        simulate_default(|simulation| {
            let client = simulation.http(GET);
            assert!(!simulation.received(client).contains(CLOSE));
            simulation.send(client, GET.repeat(requests).as_bytes());
            simulation.drain(GRACE);
            let answers = simulation.received(client);
            assert_eq!((count(&answers, OK), count(&answers, CLOSE)), (requests, 1));
            assert!(answers[answers.rfind(OK).expect("answers")..].contains(CLOSE));
            simulation.check_ends(client);
        });
    }
}

#[test]
fn a_partial_request_is_answered_after_the_drain_has_begun() {
    let (start, rest) = GET.split_at(20);
    simulate_default(|simulation| {
        let client = simulation.http(start);
        simulation.drain(GRACE);
        let answer = simulation.ask(client, rest);
        assert!(answer.contains(CLOSE) && answer.ends_with(FILE), "{answer}");
        simulation.check_ends(client);
    });
    simulate_default(|simulation| {
        let client = simulation.http(format!("{GET}{start}"));
        simulation.drain(GRACE);
        assert!(!simulation.received(client).contains(CLOSE), "another request has begun");
        assert!(simulation.ask(client, rest).contains(CLOSE));
        simulation.check_ends(client);
    });
    simulate_default(|simulation| {
        // The request was answered before, and its body is skipped.
        let head = GET.replace("\r\n\r\n", "\r\nContent-Length: 10\r\n\r\n");
        let client = simulation.http(format!("{head}01234"));
        assert!(simulation.received(client).starts_with(OK));
        simulation.drain(GRACE);
        assert!(simulation.ask(client, format!("56789{GET}")).contains(CLOSE));
        simulation.check_ends(client);
        // Without another request, the connection closes as one that is idle.
        let client = simulation.http(format!("{head}01234"));
        assert!(simulation.received(client).contains(CLOSE));
        simulation.check_ends(client);
    });
}

#[test]
fn an_idle_connection_may_send_one_request_within_the_grace_of_a_drain() {
    simulate_default(|simulation| {
        let (used, fresh, silent) = (simulation.http(GET), simulation.http(""), simulation.http(GET));
        let (dns, silent_dns) = (simulation.dns(QUERY), simulation.dns(QUERY));
        simulation.run(ITERATIONS_MAX);
        simulation.drain(GRACE);
        simulation.advance(GRACE - ALMOST);
        for client in [used, fresh] {
            simulation.take_received(client);
            assert!(simulation.ask(client, GET).contains(CLOSE));
            simulation.check_ends(client);
        }
        simulation.take_received(dns);
        assert_ne!(simulation.ask(dns, QUERY), "");
        simulation.check_ends(dns);
        assert!(simulation.is_open(silent) && simulation.is_open(silent_dns));
        simulation.advance(ALMOST);
        assert!(!simulation.is_open(silent) && !simulation.is_open(silent_dns));
        assert_eq!(simulation.count(Counter::HttpTimeouts), 0);
    });
}

#[test]
fn a_request_in_the_last_moment_of_the_grace_is_answered() {
    simulate_default(|simulation| {
        let (http, dns) = (simulation.http(GET), simulation.dns(QUERY));
        simulation.run(ITERATIONS_MAX);
        simulation.drain(GRACE);
        // They arrive without a report.
        simulation.clients[http].stream.arrive(GET.as_bytes());
        simulation.clients[dns].stream.arrive(QUERY);
        simulation.take_received(http);
        simulation.take_received(dns);
        simulation.advance(GRACE);
        assert!(simulation.received(http).contains(CLOSE));
        assert_ne!(simulation.received(dns), "");
    });
}

#[test]
fn a_blocked_response_is_sent_whole_after_the_drain_has_begun() {
    simulate_default(|simulation| {
        let client = simulation.connect(Protocol::Http, GET.as_bytes(), 10).expect("accepted");
        simulation.drain(GRACE);
        simulation.advance(GRACE * 2);
        assert!(simulation.is_open(client));
        simulation.open_window(client, UNLIMITED);
        assert!(simulation.received(client).ends_with(FILE));
        simulation.advance(GRACE);
        assert!(!simulation.is_open(client));
    });
}

#[test]
fn a_connection_closes_after_its_last_request() {
    let mut options = options();
    options.http.requests_per_connection_max = 3;
    simulate_with(options, |simulation| {
        let client = simulation.http(GET.repeat(5));
        let answers = simulation.received(client);
        assert_eq!((count(&answers, OK), count(&answers, CLOSE)), (3, 1));
        simulation.check_ends(client);
    });
}

#[test]
fn at_the_limit_the_least_recently_used_idle_connection_is_closed() {
    simulate_default(|simulation| {
        let clients = [(); 3].map(|()| simulation.http(GET));
        simulation.ask(clients[0], GET);
        simulation.send(clients[2], &GET.as_bytes()[..5]);
        simulation.run(ITERATIONS_MAX);
        let fourth = simulation.http(GET);
        assert!(simulation.received(fourth).ends_with(FILE));
        assert_eq!(clients.map(|client| simulation.is_open(client)), [true, false, true]);
        assert_eq!(simulation.count(Counter::HttpEvicted), 1);
    });
}

#[test]
fn at_the_limit_without_an_idle_connection_the_one_that_receives_a_request_for_longest_is_closed() {
    simulate_default(|simulation| {
        let blocked = simulation.connect(Protocol::Http, GET.as_bytes(), 10).expect("accepted");
        let (first, second) = (simulation.http(GET), simulation.http(&GET[..5]));
        simulation.ask(first, &GET[..5]);
        // Further bytes do not make the request a newer one.
        simulation.ask(second, &GET[5..6]);
        simulation.http(GET);
        assert_eq!([blocked, first, second].map(|client| simulation.is_open(client)), [true, true, false]);
        assert_eq!((simulation.count(Counter::HttpEvicted), simulation.count(Counter::HttpPartialEvicted)), (0, 1));
        // An idle one comes before one that receives.
        simulation.http(&GET[..5]);
        assert!(simulation.is_open(first));
        assert!(simulation.ask(first, &GET[5..]).ends_with(FILE));
        simulation.open_window(blocked, UNLIMITED);
        simulation.run(ITERATIONS_MAX);
        let others = [(); 3].map(|()| simulation.http(&GET[..5]));
        assert!(!simulation.is_open(first) && !simulation.is_open(blocked));
        assert!(others.into_iter().all(|client| simulation.is_open(client)));
        assert_eq!(simulation.count(Counter::HttpPartialEvicted), 2);
    });
}

#[test]
fn at_the_limit_a_connection_that_lingers_is_closed_first() {
    simulate_default(|simulation| {
        let idle = simulation.http(GET);
        let late = simulation.http(&GET[..5]);
        simulation.advance(Duration::from_secs(10));
        assert!(simulation.received(late).starts_with("HTTP/1.1 408 "));
        simulation.http(GET);
        assert!(simulation.is_open(late));
        simulation.http(GET);
        assert!(!simulation.is_open(late) && simulation.is_open(idle));
    });
}

#[test]
fn a_client_has_no_more_connections_than_its_limit() {
    let mut options = options();
    options.http.connections_per_client_max = 2;
    options.dns.tcp_connections_per_client_max = 2;
    let check = |protocol: Protocol, counter: Counter, evicted: Counter| {
        simulate_with(options, |simulation| {
            let mut connect = |address: &str| {
                let client = address.parse().expect("an address");
                simulation.connect_from(client, protocol, b"", UNLIMITED)
            };
            let first = connect("2001:db8::1").expect("accepted");
            assert!(connect("2001:db8::2").is_some());
            let other = connect("2001:db8:0:1::1").expect("accepted");
            let third = connect("2001:db8::3").expect("in exchange for the first");
            assert_eq!([first, other, third].map(|client| simulation.is_open(client)), [false, true, true]);
            assert_eq!((simulation.count(counter), simulation.count(evicted)), (1, 0));
        });
    };
    check(Protocol::Http, Counter::HttpClientEvicted, Counter::HttpEvicted);
    check(Protocol::Dns, Counter::DnsStreamsClientEvicted, Counter::DnsStreamsEvicted);
}

#[test]
fn a_client_at_its_limit_without_an_idle_connection_gets_no_more() {
    let mut options = options();
    options.http.connections_per_client_max = 2;
    simulate_with(options, |simulation| {
        let blocked = simulation.connect(Protocol::Http, GET.as_bytes(), 10).expect("accepted");
        let receiving = simulation.http(&GET[..5]);
        assert_eq!(simulation.connect(Protocol::Http, GET.as_bytes(), UNLIMITED), None);
        assert_eq!(simulation.count(Counter::HttpOverClientLimit), 1);
        assert!(simulation.is_open(blocked) && simulation.ask(receiving, &GET[5..]).ends_with(FILE));
        simulation.http(GET);
        assert!(simulation.is_open(blocked) && !simulation.is_open(receiving));
    });
}

#[test]
fn beyond_the_budget_of_all_buffers_a_connection_holds_little() {
    const CLIENT_COUNT: usize = 20;
    const PIPELINE_BYTES: usize = 20_000;
    const BUDGET_BYTES: usize = 100_000;
    const FILES: &[BuiltinFile] = &[BuiltinFile { path: "file", bytes: &[b'x'; 16_000] }];
    let mut options = options();
    options.http.connections_max = CLIENT_COUNT;
    options.connection_buffers_bytes_max = BUDGET_BYTES;
    simulate(snapshot(Root::Builtin(FILES)), options, |simulation| {
        let pipeline = GET.repeat(PIPELINE_BYTES / GET.len());
        let mut connect = |window| simulation.connect(Protocol::Http, pipeline.as_bytes(), window).expect("accepted");
        let clients: Vec<usize> = (0..CLIENT_COUNT).map(|number| connect(number * 1_000)).collect();
        simulation.run(ITERATIONS_MAX);
        let held = simulation.held_bytes();
        assert!((BUDGET_BYTES..BUDGET_BYTES + CLIENT_COUNT * 4_096).contains(&held), "{held} bytes");
        // All requests are answered all the same, as the clients take the answers.
        for client in clients {
            simulation.take_received(client);
            simulation.open_window(client, UNLIMITED);
        }
        simulation.run(ITERATIONS_MAX);
        assert_eq!(simulation.count(Counter::HttpRequests), (CLIENT_COUNT * (PIPELINE_BYTES / GET.len())) as u64);
        assert_eq!(simulation.held_bytes(), 0);
    });
}

#[test]
fn while_buffers_are_scarce_a_request_in_pieces_takes_little_and_a_whole_one_may_be_long() {
    let mut options = options();
    options.connection_buffers_bytes_max = 0;
    simulate_with(options, |simulation| {
        let long = GET.replace("\r\n\r\n", &format!("\r\nCookie: {}\r\n\r\n", "c".repeat(10_000)));
        let client = simulation.http(&long);
        assert!(simulation.received(client).ends_with(FILE), "it has arrived whole");
        let (start, rest) = GET.split_at(20);
        assert_eq!(simulation.ask(client, start), "");
        assert!(simulation.ask(client, rest).ends_with(FILE), "little is left of it");
        assert_eq!(simulation.ask(client, &long[..5_000]), "");
        assert!(!simulation.is_open(client));
        assert_eq!((simulation.count(Counter::BuffersRefused), simulation.held_bytes()), (1, 0));
    });
}

#[test]
fn a_connection_that_is_sending_is_not_idle() {
    let mut options = options();
    options.http.connections_max = 1;
    simulate_with(options, |simulation| {
        let client = simulation.connect(Protocol::Http, GET.as_bytes(), 10).expect("accepted");
        simulation.run(ITERATIONS_MAX);
        assert_eq!(simulation.connect(Protocol::Http, b"", UNLIMITED), None);
        simulation.open_window(client, UNLIMITED);
        simulation.run(ITERATIONS_MAX);
        simulation.http(GET);
        assert!(!simulation.is_open(client));
    });
}

#[test]
fn at_the_limit_the_dns_connection_without_an_answer_for_longest_is_closed() {
    simulate_default(|simulation| {
        let clients = [(); 3].map(|()| simulation.dns(QUERY));
        simulation.ask(clients[0], QUERY);
        // Part of a query is no use of the connection (RFC 7766 section 6.2.3).
        simulation.ask(clients[1], &QUERY[..9]);
        let fourth = simulation.dns(QUERY);
        assert_ne!(simulation.received(fourth), "");
        assert_eq!(clients.map(|client| simulation.is_open(client)), [true, false, true]);
        simulation.dns("");
        assert_eq!(clients.map(|client| simulation.is_open(client)), [true, false, false]);
        assert_eq!(simulation.count(Counter::DnsStreamsEvicted), 2);
    });
}

#[test]
fn dns_queries_are_answered_in_pieces_and_in_batches() {
    simulate_default(|simulation| {
        let queries = QUERY.repeat(QUERY_COUNT);
        let whole = simulation.dns(&queries);
        let expected = simulation.received(whole);
        let pieces = simulation.dns("");
        let mut received = String::new();
        for byte in &queries {
            received += &simulation.ask(pieces, [*byte]);
        }
        assert_eq!(received, expected);
        assert_eq!(simulation.count(Counter::DnsTcpQueries), 2 * QUERY_COUNT as u64);
    });
}

#[test]
fn a_dns_connection_times_out_after_the_last_query_and_not_after_part_of_one() {
    const TIMEOUT: Duration = Duration::from_secs(5);
    simulate_default(|simulation| {
        let client = simulation.dns(QUERY);
        simulation.advance(TIMEOUT - ALMOST);
        simulation.ask(client, &QUERY[..5]);
        simulation.advance(ALMOST);
        assert!(!simulation.is_open(client), "part of a query gives no more time");
        let client = simulation.dns("");
        simulation.advance(TIMEOUT - ALMOST);
        simulation.ask(client, QUERY);
        simulation.advance(TIMEOUT - ALMOST);
        assert!(simulation.is_open(client));
        simulation.advance(ALMOST);
        assert!(!simulation.is_open(client));
    });
}

#[test]
fn a_dns_message_without_bytes_closes_the_connection_after_the_answers_before_it() {
    simulate_default(|simulation| {
        let client = simulation.dns([QUERY, b"\0\0", QUERY].concat());
        simulation.run(ITERATIONS_MAX);
        assert!(!simulation.is_open(client));
        assert_eq!(simulation.count(Counter::DnsTcpQueries), 1);
        assert!(!simulation.take_received(client).is_empty());
    });
}

#[test]
fn a_new_snapshot_is_used_from_the_next_request_on() {
    const OTHER: &[BuiltinFile] = &[BuiltinFile { path: "file", bytes: b"another file" }];
    simulate_default(|simulation| {
        let client = simulation.http(GET);
        assert!(simulation.received(client).ends_with(FILE));
        simulation.update_snapshot(|snapshot| {
            let site = Site { id: 1, hosts: Vec::new(), root: Root::Builtin(OTHER), options: SiteOptions::default() };
            snapshot.sites = Arc::new(Sites::new(vec![site], DefaultSite::EveryHost(0)));
        });
        assert!(simulation.ask(client, GET).ends_with("another file"));
        simulation.update_snapshot(|snapshot| {
            let site = Site { id: 2, hosts: Vec::new(), root: Root::Unavailable, options: SiteOptions::default() };
            snapshot.sites = Arc::new(Sites::new(vec![site], DefaultSite::EveryHost(0)));
        });
        assert!(simulation.ask(client, GET).starts_with("HTTP/1.1 503 "));
    });
}

//! Limits that clients reach: the effect is limited to those clients.

use std::time::{Duration, Instant};

use crate::dns_messages::{A, Question, Reply};
use crate::domain::{Domain, Setup, ZONE};
use crate::http_answers::{HttpConnection, check_serves, get};
use sanderling_testkit::{Folder, ListenerCounts, RawConnection, TestServer, framed};

const SITE: &[(&str, &[u8])] = &[("index.html", b"hi\n")];

/// Tolerance for a busy machine.
const SLACK: Duration = Duration::from_secs(5);

#[track_caller]
fn check_about(took: Duration, expected_ms: u64) {
    let expected = Duration::from_millis(expected_ms);
    assert!(took + Duration::from_millis(20) >= expected, "too early: {took:?} of {expected:?}");
    assert!(took < expected + SLACK, "too late: {took:?} of {expected:?}");
}

#[test]
fn silent_connections_do_not_block_others() {
    let domain = Domain::serve(Setup { site: SITE, zone: ZONE, ..Setup::default() });
    let mut silent: Vec<RawConnection> = (0..200).map(|_| RawConnection::open(domain.server.http())).collect();
    // With deferred accepts the kernel keeps them.
    silent.iter_mut().for_each(|connection| connection.send(b"G"));
    let dns: Vec<RawConnection> = (0..200).map(|_| RawConnection::open(domain.server.dns())).collect();
    let start = Instant::now();
    check_serves(domain.server.http());
    assert_eq!(Question::new("example.com", A).ask_tcp(domain.server.dns()).answer.len(), 1);
    assert!(start.elapsed() < SLACK, "{:?}", start.elapsed());
    drop((silent, dns));
}

/// The deadline of a head does not depend on when bytes arrive.
#[test]
fn slow_head_is_closed_at_its_deadline() {
    let limits = "http_header_deadline_ms = 500\nhttp_idle_timeout_ms = 60000";
    let domain = Domain::serve(Setup { site: SITE, limits, ..Setup::default() });
    for is_first in [true, false] {
        let mut connection = HttpConnection::open(domain.server.http());
        if !is_first {
            connection.get("/");
        }
        let start = Instant::now();
        drip(connection.raw(), get("/").as_bytes());
        let answer = connection.answer();
        check_about(start.elapsed(), 500);
        assert_eq!((answer.status, answer.field("Connection")), (408, Some("close")));
    }
}

/// Sends a byte whenever the peer has been silent for a while, until it sends something or closes.
#[track_caller]
fn drip(raw: &mut RawConnection, bytes: &[u8]) {
    for byte in bytes {
        if raw.try_send(&[*byte]).is_err() || !raw.is_silent_for(Duration::from_millis(100)) {
            return;
        }
    }
    panic!("{} bytes were accepted", bytes.len());
}

#[test]
fn slow_content_is_closed_at_its_deadline() {
    let limits = "http_header_deadline_ms = 1500";
    let domain = Domain::serve(Setup { site: SITE, limits, ..Setup::default() });
    let mut connection = HttpConnection::open(domain.server.http());
    let start = Instant::now();
    connection.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc");
    assert_eq!(connection.answer().status, 408);
    check_about(start.elapsed(), 1500);
}

#[test]
fn silent_connection_is_closed_at_the_deadline() {
    let domain = Domain::serve(Setup { site: SITE, limits: "http_header_deadline_ms = 400", ..Setup::default() });
    let start = Instant::now();
    let mut connection = HttpConnection::open(domain.server.http());
    connection.check_closed();
    check_about(start.elapsed(), 400);
}

#[test]
fn idle_connection_is_closed_after_timeout() {
    let limits = "http_idle_timeout_ms = 400\nhttp_header_deadline_ms = 60000";
    let domain = Domain::serve(Setup { site: SITE, limits, ..Setup::default() });
    let mut connection = HttpConnection::open(domain.server.http());
    for _ in 0..3 {
        connection.get("/");
    }
    let start = Instant::now();
    connection.check_closed();
    check_about(start.elapsed(), 400);
}

#[test]
fn client_that_does_not_read_is_closed() {
    let huge = vec![b'x'; 50_000_000];
    let site: &[(&str, &[u8])] = &[("huge.bin", &huge)];
    let domain = Domain::serve(Setup { site, limits: "http_send_timeout_ms = 500", ..Setup::default() });
    let mut connection = HttpConnection::open(domain.server.http());
    connection.send(get("/huge.bin"));
    // Sending fails after the server has closed the connection.
    let start = Instant::now();
    while connection.raw().try_send(b"\r\n").is_ok() {
        assert!(start.elapsed() < SLACK, "the server still waits");
        std::thread::yield_now();
    }
    assert!(connection.raw().read_to_close().len() < huge.len());
}

#[test]
fn idle_dns_connection_is_closed_after_timeout() {
    let domain = Domain::serve(Setup { zone: ZONE, limits: "dns_tcp_idle_timeout_ms = 400", ..Setup::default() });
    let server = domain.server.dns();
    let start = Instant::now();
    assert_eq!(RawConnection::open(server).read_to_close(), b"");
    check_about(start.elapsed(), 400);

    let mut raw = RawConnection::open(server);
    ask(&mut raw);
    let start = Instant::now();
    assert_eq!(raw.read_to_close(), b"");
    check_about(start.elapsed(), 400);

    // A query that arrives slowly does not extend the timeout.
    let mut raw = RawConnection::open(server);
    let start = Instant::now();
    drip(&mut raw, &query());
    assert_eq!(raw.read_to_close(), b"");
    check_about(start.elapsed(), 400);
}

#[test]
fn new_http_connection_at_the_limit_replaces_the_one_idle_for_longest() {
    let limits = "http_connections_max = 5";
    let domain = Domain::serve(Setup { site: SITE, limits, worker_count: 1, ..Setup::default() });
    let mut held: Vec<HttpConnection> = (0..5).map(|_| HttpConnection::open(domain.server.http())).collect();
    for _ in 0..2 {
        for connection in &mut held {
            assert_eq!(connection.get("/").status, 200);
        }
    }
    let mut further = HttpConnection::open(domain.server.http());
    assert_eq!(further.get("/").status, 200);
    held.remove(0).check_closed();
    for connection in &mut held {
        assert_eq!(connection.get("/").status, 200);
    }
}

/// A query with its length.
fn query() -> Vec<u8> {
    framed(&Question::new("example.com", A).message())
}

#[track_caller]
fn ask(raw: &mut RawConnection) {
    raw.send(&query());
    assert_eq!(Reply::read(&raw.read_message()).answer.len(), 1);
}

#[test]
fn dns_connections_at_the_limit_are_all_served() {
    let limits = "dns_tcp_connections_max = 4\ndns_tcp_idle_timeout_ms = 60000";
    let domain = Domain::serve(Setup { zone: ZONE, limits, worker_count: 1, ..Setup::default() });
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(RawConnection::open(domain.server.dns()));
        ask(held.last_mut().expect("just opened"));
    }
    for raw in &mut held {
        ask(raw);
    }
}

/// RFC 7766 §6.2.3.
#[test]
fn new_dns_connection_at_the_limit_replaces_the_one_idle_for_longest() {
    let limits = "dns_tcp_connections_max = 4\ndns_tcp_idle_timeout_ms = 60000";
    let domain = Domain::serve(Setup { zone: ZONE, limits, worker_count: 1, ..Setup::default() });
    let server = domain.server.dns();
    let mut held: Vec<RawConnection> = (0..3).map(|_| RawConnection::open(server)).collect();
    held.iter_mut().for_each(ask);
    for _ in 0..8 {
        let mut next = RawConnection::open(server);
        ask(&mut next);
        held.push(next);
        if held.len() > 4 {
            assert_eq!(held.remove(0).read_to_close(), b"");
        }
    }
}

/// The idle connections may belong to other workers.
#[test]
fn new_dns_connection_at_the_limit_replaces_one_of_another_worker() {
    let limits = "dns_tcp_connections_max = 2\ndns_tcp_idle_timeout_ms = 60000";
    let domain = Domain::serve(Setup { zone: ZONE, limits, worker_count: 4, ..Setup::default() });
    let mut held = Vec::new();
    for _ in 0..24 {
        let mut raw = RawConnection::open(domain.server.dns());
        let start = Instant::now();
        ask(&mut raw);
        assert!(start.elapsed() < SLACK, "a stream waited {:?}", start.elapsed());
        held.push(raw);
    }
}

/// A server with files of 100 bytes, named by numbers, and a control socket.
struct Cache {
    folder: Folder,
    server: TestServer,
}

impl Cache {
    #[track_caller]
    fn start(limits: &str, file_count: usize) -> Cache {
        let folder = Folder::new();
        for number in 0..file_count {
            folder.write(&format!("public/{number}"), &[b'x'; 100]);
        }
        let config = format!(
            "workers = 1\n[http]\nlisten = [\"127.0.0.1:0\"]\n[domain.\"example.com\"]\nsite = \"public\"\n[limits]\n{limits}\n"
        );
        folder.write("sanderling.toml", config.as_bytes());
        let server = TestServer::start_command(folder.serve_command(), ListenerCounts { http: 1, dns: 0 });
        Cache { folder, server }
    }

    /// The numbers of the line `open files` of the status: files, descriptors, bytes, negative entries, folders watched,
    /// evicted.
    #[track_caller]
    fn numbers(&self) -> [u64; 6] {
        let text = self.folder.control("status").text();
        let line =
            text.lines().find(|line| line.contains("open files")).unwrap_or_else(|| panic!("no such line: {text}"));
        let numbers = line.split_whitespace().filter_map(|word| word.trim_end_matches(',').parse().ok());
        let numbers: Vec<u64> = numbers.collect();
        numbers.try_into().unwrap_or_else(|numbers| panic!("{numbers:?} in {line}"))
    }
}

/// The numbers of [`Cache::numbers`] after one request for each of `paths`.
#[track_caller]
fn open_files_after(limits: &str, file_count: usize, paths: impl Iterator<Item = String>) -> [u64; 6] {
    let cache = Cache::start(limits, file_count);
    let mut connection = HttpConnection::open(cache.server.http());
    for path in paths {
        connection.get(&path);
    }
    cache.numbers()
}

fn each_file(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("/{number}"))
}

#[test]
fn open_files_stay_below_their_limits() {
    let [files, _, bytes, ..] = open_files_after("", 20, each_file(20));
    assert_eq!((files, bytes), (20, 20 * 100), "below all limits");
    let [files, .., evicted] = open_files_after("open_files_max = 4", 20, each_file(20));
    assert!(files <= 4 && evicted >= 16, "{files} files, {evicted} evicted");
    let limits = "open_file_descriptors_max = 4\nsmall_file_bytes_max = 99";
    let [files, descriptors, _, _, _, evicted] = open_files_after(limits, 20, each_file(20));
    assert!(
        files <= 5 && descriptors <= 4 && evicted >= 16,
        "{files} files, {descriptors} descriptors, {evicted} evicted"
    );
}

#[test]
fn small_files_are_kept_in_memory_up_to_the_limits() {
    let [.., bytes, _, _, _] = open_files_after("small_file_bytes_max = 99", 1, each_file(1));
    let [.., with_content, _, _, _] = open_files_after("small_file_bytes_max = 100", 1, each_file(1));
    assert!(with_content >= bytes + 100, "{bytes} bytes without the content, {with_content} with it");
    let [files, _, bytes, ..] = open_files_after("open_file_content_bytes_max = 1000", 50, each_file(50));
    assert!(files < 50 && bytes <= 1_200, "{files} files and {bytes} bytes are kept");
}

/// Content above the limit of all content is sent from its descriptor, and evicts nothing.
#[test]
fn content_above_the_limit_is_not_kept() {
    let cache = Cache::start("open_file_content_bytes_max = 1000", 5);
    let mut connection = HttpConnection::open(cache.server.http());
    for (name, length) in [("at-the-bound", 1_000), ("beyond", 1_001)] {
        cache.folder.write(&format!("public/{name}"), &vec![b'y'; length]);
    }
    for path in each_file(5) {
        connection.get(&path);
    }
    assert!(connection.get("/beyond").content == [b'y'; 1_001]);
    let [files, descriptors, bytes, _, _, evicted] = cache.numbers();
    assert_eq!((files, descriptors, bytes, evicted), (6, 1, 500, 0));
    assert!(connection.get("/at-the-bound").content == [b'y'; 1_000]);
    let [files, descriptors, bytes, _, _, evicted] = cache.numbers();
    assert_eq!((files, descriptors, bytes, evicted), (2, 1, 1_000, 5), "only as much is evicted as necessary");
}

/// A file with its precompressed variants has up to four descriptors or contents.
#[test]
fn limits_apply_to_precompressed_variants() {
    let site: &[(&str, usize)] = &[("a.js", 1_000), ("a.js.br", 300), ("a.js.zst", 200), ("a.js.gz", 100)];
    let check = |limits: &str, expected: (u64, u64)| {
        let cache = Cache::start(limits, 5);
        for (name, length) in site {
            cache.folder.write(&format!("public/{name}"), &vec![b'z'; *length]);
        }
        let mut connection = HttpConnection::open(cache.server.http());
        for path in each_file(5) {
            connection.get(&path);
        }
        connection.send("GET /a.js HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: br\r\n\r\n");
        assert_eq!(connection.answer().status, 200, "{limits}");
        let [_, descriptors, bytes, ..] = cache.numbers();
        assert_eq!((descriptors, bytes), expected, "{limits}");
    };
    check("", (0, 2_100));
    check("open_file_content_bytes_max = 1600", (0, 1_600));
    check("open_file_content_bytes_max = 600", (1, 600));
    check("small_file_bytes_max = 99\nopen_file_descriptors_max = 4", (4, 0));
    check("small_file_bytes_max = 99\nopen_file_descriptors_max = 2", (2, 0));
    check("small_file_bytes_max = 99\nopen_file_descriptors_max = 1", (1, 0));
}

/// With few files allowed, each request evicts one; not one that another request waits for.
#[test]
fn many_files_are_served_with_a_limit_of_one() {
    let cache = Cache::start("open_files_max = 1", 20);
    let mut connections: Vec<_> = (0..8).map(|_| HttpConnection::open(cache.server.http())).collect();
    let paths: Vec<_> = each_file(20).collect();
    for round in 0..100 {
        // Each requests another file.
        for (index, connection) in connections.iter_mut().enumerate() {
            connection.send(get(&paths[(round + index) % paths.len()]));
        }
        for connection in &mut connections {
            assert_eq!(connection.answer().status, 200);
        }
    }
    connections[0].get(&paths[0]);
    assert_eq!(cache.numbers()[0], 1);
}

/// Unsent data of slow clients is in memory as well, and evicting files does not free it.
#[test]
fn slow_clients_evict_no_files() {
    let cache = Cache::start("open_file_content_bytes_max = 40000", 20);
    let replace = |byte: u8| {
        cache.folder.write("public/new", &[byte; 30_000]);
        std::fs::rename(cache.folder.path().join("public/new"), cache.folder.path().join("public/large")).unwrap();
    };
    replace(b'a');
    let mut connection = HttpConnection::open(cache.server.http());
    assert_eq!(connection.get("/large").content[0], b'a');
    let mut slow = HttpConnection::open(cache.server.http());
    // More than the socket buffers: the rest waits for the client.
    slow.send(get("/large").repeat(1_000));
    // After so many iterations of the only worker the socket of the slow client is full.
    for _ in 0..100 {
        connection.get("/0");
    }
    replace(b'b');
    let start = Instant::now();
    while connection.get("/large").content[0] != b'b' {
        assert!(start.elapsed() < SLACK);
    }
    for path in each_file(20) {
        assert_eq!(connection.get(&path).status, 200);
    }
    let [files, _, bytes, _, _, evicted] = cache.numbers();
    assert!(bytes > 40_000, "{bytes} bytes: the old version is still to be sent");
    assert_eq!((files, evicted), (21, 0));
}

#[test]
fn negative_entries_stay_below_their_limit() {
    let missing = || (0..20).map(|number| format!("/missing-{number}"));
    assert_eq!(open_files_after("", 1, missing())[3], 20);
    assert!(open_files_after("missing_files_max = 8", 1, missing())[3] <= 8);
}

#[test]
fn watched_folders_stay_below_their_limit() {
    assert!(open_files_after("", 1, each_file(1))[4] >= 1);
    assert_eq!(open_files_after("watched_folders_max = 0", 1, each_file(1))[4], 0);
}

/// Without a watched folder only the age of an entry makes the server check the file.
#[test]
fn unwatched_file_is_fresh_for_its_time() {
    let limits = "watched_folders_max = 0\nopen_file_fresh_ms = 600\nhttp_requests_per_connection_max = 1000000000";
    let domain = Domain::serve(Setup { site: SITE, limits, ..Setup::default() });
    let mut connection = HttpConnection::open(domain.server.http());
    let start = Instant::now();
    assert_eq!(connection.get("/").content, b"hi\n");
    domain.folder.write("public/new", b"changed\n");
    std::fs::rename(domain.folder.path().join("public/new"), domain.folder.path().join("public/index.html")).unwrap();
    while connection.get("/").content != b"changed\n" {
        assert!(start.elapsed() < SLACK);
    }
    check_about(start.elapsed(), 600);
}

#[test]
fn idle_file_is_closed_after_its_time() {
    let limits = "watched_folders_max = 0\nopen_file_idle_timeout_ms = 1000\nsmall_file_bytes_max = 0";
    let large = [b'x'; 100];
    let domain = Domain::serve(Setup { site: &[("large", &large)], limits, ..Setup::default() });
    let mut connection = HttpConnection::open(domain.server.http());
    assert_eq!(connection.get("/large").status, 200);
    let server = domain.server.server_process_id();
    let file = domain.folder.path().join("public/large");
    let is_open = || {
        let descriptors = std::fs::read_dir(format!("/proc/{server}/fd")).expect("it runs").flatten();
        descriptors.flat_map(|entry| std::fs::read_link(entry.path())).any(|path| path == file)
    };
    let start = Instant::now();
    assert!(is_open(), "at first");
    while is_open() {
        assert!(start.elapsed() < 2 * SLACK);
        std::thread::yield_now();
    }
}

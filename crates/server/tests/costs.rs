//! What a request costs in system calls: counted by the program itself, kept as a snapshot, and checked against strace.
//!
//! A change of the snapshot is a change of the product: `UPDATE_COSTS=1 cargo test -p sanderling-server --test costs`
//! writes it anew, and the diff shows what became dearer or cheaper.

use sanderling_dns::{HashSeed, ZoneMap};
use sanderling_os::counters::{self, SyscallCounts};
use sanderling_os::tcp::Listener;
use sanderling_os::udp::Socket;
use sanderling_server::{DefaultSite, Options, Root, Server, Site, Sites, Snapshot, SocketSet};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Set in the process that strace looks at.
const TRACED: &str = "SANDERLING_COSTS_TRACED";
const DEADLINE: Duration = Duration::from_secs(20);

/// A folder with the files that are asked for.
struct Tree(PathBuf);

impl Tree {
    fn new(name: &str) -> Tree {
        let path = std::env::temp_dir().join(format!("sanderling-costs-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("made");
        std::fs::write(path.join("512"), [b'x'; 512]).expect("written");
        std::fs::write(path.join("coded.js"), [b'x'; 512]).expect("written");
        std::fs::write(path.join("coded.js.br"), [b'x'; 100]).expect("written");
        std::fs::write(path.join("16k"), vec![b'x'; 16 * 1024]).expect("written");
        std::fs::write(path.join("32k"), vec![b'x'; 32 * 1024]).expect("written");
        std::fs::write(path.join("100k"), vec![b'x'; 100 * 1024]).expect("written");
        wait_until_settled(&path.join("100k"));
        Tree(path)
    }
}

/// Waits until a file is older than those that may still be being written.
fn wait_until_settled(path: &Path) {
    let age = || std::fs::metadata(path).and_then(|facts| facts.modified()).expect("a time").elapsed();
    while !age().is_ok_and(|age| age > Duration::from_millis(30)) {
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a server with one worker while `act` is its client. Files are used for `fresh_for` before the file system is asked
/// again.
fn with_server(name: &str, fresh_for: Duration, act: impl FnOnce(&Path, SocketAddr, SocketAddr)) {
    let tree = Tree::new(name);
    let any = "127.0.0.1:0".parse().expect("an address");
    let sockets = SocketSet {
        http: vec![Listener::bind(any).expect("bound")],
        dns_streams: Vec::new(),
        dns_datagrams: vec![Socket::bind(any).expect("bound")],
    };
    let http = sockets.http[0].local_address().expect("bound");
    let dns = sockets.dns_datagrams[0].local_address().expect("bound");
    let root = sanderling_os::directory::Directory::open(&tree.0).expect("opened");
    let site = Site { id: 0, hosts: Vec::new(), root: Root::Folder(std::sync::Arc::new(root)) };
    let zones = ZoneMap::new(HashSeed(1), []);
    let snapshot = Snapshot::new(Sites::new(vec![site], DefaultSite::EveryHost(0)), zones);
    let mut options = Options::default();
    // The files of the test are new, and are to be served as those that nobody has touched for long.
    options.open_files.settled_after = Duration::ZERO;
    options.open_files.watched_fresh_for = fresh_for;
    let server = Server::new(snapshot, options, Duration::ZERO);
    server.run(&[sockets], 1, |_| act(&tree.0, http, dns)).expect("served");
}

/// A client that asks one thing at a time and knows when the worker waits again.
struct Client {
    stream: TcpStream,
}

impl Client {
    fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("connected");
        stream.set_read_timeout(Some(DEADLINE)).expect("set");
        stream.set_nodelay(true).expect("set");
        Client { stream }
    }

    /// Sends `request` and reads `response_count` responses, whose heads tell their length.
    fn ask(&mut self, request: &str, response_count: usize) -> Vec<u8> {
        self.stream.write_all(request.as_bytes()).expect("sent");
        let mut received = Vec::new();
        let mut chunk = [0; 65_536];
        while whole_responses(&received) < response_count {
            let count = self.stream.read(&mut chunk).expect("answered in time");
            assert_ne!(count, 0, "closed after {:?}", String::from_utf8_lossy(&received));
            received.extend_from_slice(&chunk[..count]);
        }
        received
    }
}

/// How many responses `bytes` holds from start to end.
fn whole_responses(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while let Some(head) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
        let text = String::from_utf8_lossy(&bytes[..head]).into_owned();
        let length = text.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let length =
            if text.starts_with("HTTP/1.1 304") { 0 } else { length.map_or(0, |text| text.parse().expect("a number")) };
        let Some(rest) = bytes.get(head + 4 + length..) else { return count };
        bytes = rest;
        count += 1;
    }
    count
}

/// The worker's counts, once it has gone back to waiting: when they no longer change and its last call was the wait.
fn counts_of(thread: &str, since: Option<&SyscallCounts>) -> SyscallCounts {
    let start = Instant::now();
    let mut last = None;
    loop {
        // The last of its name: those of servers that have ended are told of as well.
        let counts = counters::all_thread_counts().into_iter().rfind(|counts| counts.thread == thread);
        let has_waited = |counts: &SyscallCounts| {
            since.is_none_or(|since| {
                let new = counts.since(since);
                new.get(counters::Syscall::EpollWait) + new.get(counters::Syscall::Ppoll) > 0
            })
        };
        if let Some(counts) = counts {
            if last.as_ref() == Some(&counts) && has_waited(&counts) {
                return counts;
            }
            last = Some(counts);
        }
        assert!(start.elapsed() < DEADLINE, "{thread} does not wait again");
        // Longer than the worker needs from its answer to its wait, on any machine that is not status still.
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// One line of the snapshot: what `act` costs the thread.
fn cost(thread: &str, what: &str, act: impl FnOnce()) -> String {
    let before = counts_of(thread, None);
    act();
    let after = counts_of(thread, Some(&before));
    let mut line = format!("{what}:");
    for (call, count) in after.since(&before).nonzero() {
        let _ = write!(line, " {} {count}", call.name());
    }
    line
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: example\r\n\r\n")
}

#[test]
fn the_cost_of_a_request_is_that_of_the_snapshot() {
    if std::env::var_os(sanderling_os::fallback::FORCE_VARIABLE).is_some_and(|forced| !forced.is_empty()) {
        // The snapshot is that of the ways that are chosen; forced ones have other costs.
        return;
    }
    let mut lines = Vec::new();
    with_server("snapshot", DEADLINE, |tree, http, dns| {
        let mut client = Client::connect(http);
        let worker = "worker 0";
        // The first request of a folder is looked for by an opener, which also watches the folder.
        let etag = etag_of(&client.ask(&get("/512"), 1));
        client.ask(&get("/16k"), 1);
        client.ask(&get("/32k"), 1);
        client.ask(&get("/100k"), 1);
        client.ask(&get("/none"), 1);
        lines.push(cost(worker, "512 bytes, known", || drop(client.ask(&get("/512"), 1))));
        lines.push(cost(worker, "16 KiB, known", || drop(client.ask(&get("/16k"), 1))));
        lines.push(cost(worker, "32 KiB, known", || drop(client.ask(&get("/32k"), 1))));
        lines.push(cost(worker, "100 KiB, known", || drop(client.ask(&get("/100k"), 1))));
        let conditional = get("/512").replace("\r\n\r\n", &format!("\r\nIf-None-Match: {etag}\r\n\r\n"));
        lines.push(cost(worker, "304", || drop(client.ask(&conditional, 1))));
        lines.push(cost(worker, "404, known", || drop(client.ask(&get("/none"), 1))));
        lines.push(cost(worker, "16 pipelined, known", || drop(client.ask(&get("/512").repeat(16), 16))));
        let coded = get("/coded.js").replace("\r\n\r\n", "\r\nAccept-Encoding: gzip, br\r\n\r\n");
        client.ask(&coded, 1);
        lines.push(cost(worker, "512 bytes that are 100 in a coding, known", || drop(client.ask(&coded, 1))));
        for name in ["new.png", "new"] {
            std::fs::write(tree.join(name), [b'y'; 512]).expect("written");
        }
        wait_until_settled(&tree.join("new"));
        lines.push(cost(worker, "512 bytes of a packed type, new", || drop(client.ask(&get("/new.png"), 1))));
        // Names that nobody has asked the file system for yet, those of the codings, are left to an opener.
        lines.push(cost(worker, "512 bytes, new", || drop(client.ask(&get("/new"), 1))));
        let asker = UdpSocket::bind("127.0.0.1:0").expect("bound");
        asker.set_read_timeout(Some(DEADLINE)).expect("set");
        let query = b"\0\x01\0\0\0\x01\0\0\0\0\0\0\x07example\0\0\x01\0\x01";
        let ask = || {
            asker.send_to(query, dns).expect("sent");
            asker.recv(&mut [0; 512]).expect("answered");
        };
        ask();
        lines.push(cost("datagrams 0", "one datagram", ask));
    });
    with_server("asked-again", Duration::ZERO, |tree, http, _| {
        let mut client = Client::connect(http);
        std::fs::copy(tree.join("512"), tree.join("512.png")).expect("copied");
        for (what, path) in [
            ("512 bytes of a packed type, asked about again", "/512.png"),
            ("512 bytes, asked about again", "/512"),
            ("512 bytes that are 100 in a coding, asked about again", "/coded.js"),
            ("100 KiB, asked about again", "/100k"),
        ] {
            client.ask(&get(path), 1);
            // More than a millisecond after the answer before.
            lines.push(cost("worker 0", what, || drop(client.ask(&get(path), 1))));
        }
    });
    let found = lines.join("\n") + "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/costs.txt");
    if std::env::var_os("UPDATE_COSTS").is_some() {
        std::fs::write(&path, &found).expect("written");
    }
    let expected = std::fs::read_to_string(&path).expect("the snapshot");
    assert_eq!(found, expected, "the costs have changed; if that is meant, see the top of this file");
}

fn etag_of(response: &[u8]) -> String {
    let text = String::from_utf8_lossy(response).into_owned();
    text.lines().find_map(|line| line.strip_prefix("ETag: ")).expect("an entity tag").to_owned()
}

/// What strace looks at: some requests, and then the worker's own counts.
#[test]
fn serve_for_strace() {
    if std::env::var_os(TRACED).is_none() {
        return;
    }
    with_server("traced", DEADLINE, |tree, http, _| {
        let mut client = Client::connect(http);
        for path in ["/512", "/100k", "/none", "/512", "/100k", "/none", "/512"] {
            client.ask(&get(path), 1);
        }
        client.ask(&get("/512").repeat(16), 16);
        let counts = counts_of("worker 0", None);
        for task in std::fs::read_dir("/proc/self/task").expect("a folder") {
            let task = task.expect("a thread").path();
            let name = std::fs::read_to_string(task.join("comm")).unwrap_or_default();
            println!("\nTHREAD {} {}", task.file_name().expect("a number").display(), name.trim());
        }
        for (call, count) in counts.nonzero() {
            println!("\nCOUNT {} {count}", call.name());
        }
        // Ends here, while the client is still connected: a worker that sees it go makes calls that are not counted
        // any more.
        let _ = std::fs::remove_dir_all(tree);
        std::process::exit(0);
    });
}

#[test]
fn the_counters_are_those_of_strace() {
    let trace = std::env::temp_dir().join(format!("sanderling-trace-{}", std::process::id()));
    let program = std::env::current_exe().expect("this program");
    let output = Command::new("strace")
        .args(["-f", "-o"])
        .arg(&trace)
        .args(["-e", "trace=recvfrom,sendto,sendfile,accept4,accept,openat2,openat,readlink,readlinkat,fstat,statx,pread64,preadv2,close,epoll_ctl,newfstatat,fcntl,ioctl"])
        .arg(program)
        .args(["--exact", "serve_for_strace", "--nocapture"])
        .env(TRACED, "1")
        .output()
        .expect("strace runs (the Debian package strace)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    let threads: Vec<(&str, &str)> =
        told.lines().filter_map(|line| line.strip_prefix("THREAD ")?.split_once(' ')).collect();
    let seen = std::fs::read_to_string(&trace).expect("what strace saw");
    let _ = std::fs::remove_file(&trace);
    let calls_of = |name: &str| -> Vec<&str> {
        let is_of = |task: &str| threads.iter().any(|(number, thread)| *number == task && thread.starts_with(name));
        let calls = seen.lines().filter_map(|line| line.split_once(' ').filter(|(task, _)| is_of(task)));
        calls.map(|(_, call)| call.trim_start()).filter(|call| !call.starts_with("<...")).collect()
    };
    let mine = calls_of("worker 0");
    let mut compared = 0;
    for name in ["recvfrom", "sendto", "sendfile", "accept4", "accept", "openat2", "fstat", "preadv2", "statx"] {
        let by_strace = mine.iter().filter(|call| call.starts_with(&format!("{name}("))).count();
        let by_counter: usize = told
            .lines()
            .filter_map(|line| line.strip_prefix("COUNT ")?.split_once(' '))
            .filter(|(call, _)| *call == name)
            .map(|(_, count)| count.parse::<usize>().expect("a number"))
            .sum();
        assert_eq!(by_counter, by_strace, "{name}");
        compared += by_strace;
    }
    assert!(compared > 10, "strace saw next to nothing");
    for name in ["worker", "job", "watcher", "datagrams"] {
        let calls = calls_of(name);
        assert!(!calls.is_empty(), "{name} was not seen");
        assert!(!calls.iter().any(|call| call.starts_with("newfstatat(")), "{name} asks for facts by an empty path");
    }
    let forced = std::env::var(sanderling_os::fallback::FORCE_VARIABLE).unwrap_or_default();
    if !forced.contains("cloexec") && !forced.contains("accept=") {
        assert!(!mine.iter().any(|call| call.contains("F_SETFD")), "close-on-exec is set at creation");
    }
}

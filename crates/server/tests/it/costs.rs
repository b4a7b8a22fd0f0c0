//! The system calls of a request: counted by the program, compared with a snapshot, and checked with strace.
//!
//! `UPDATE_COSTS=1 cargo test -p sanderling-server --test it costs` writes the snapshot; the diff shows the change of
//! each cost.

use crate::encrypted::{Http1Client, Http2Client, tls};
use crate::support::{
    QUERY, backend_snapshot, command_alone, is_alone, run_alone, serve, snapshot, this_program, wait_until_readable,
};
use sanderling_os::counters::{self, Syscall, SyscallCounts};
use sanderling_os::directory::Directory;
use sanderling_os::tcp::Listener;
use sanderling_os::udp::Socket;
use sanderling_server::{Options, Role, Root, Snapshot, SocketSet, Tls};
use sanderling_testkit::http::HttpClient;
use sanderling_testkit::{DEADLINE, TestDirectory, udp_reply, wait_until};
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const WORKER: &str = "worker 0";
const TRACED: &str = "trace=recvfrom,sendto,sendfile,accept4,openat2,openat,readlink,readlinkat,fstat,statx,pread64,\
                      preadv2,close,epoll_ctl,newfstatat,fcntl,ioctl";

fn folder() -> TestDirectory {
    let folder = TestDirectory::new();
    for (name, length) in [
        ("512", 512),
        ("coded.js", 512),
        ("coded.js.br", 100),
        ("16k", 16 << 10),
        ("32k", 32 << 10),
        ("100k", 100 << 10),
    ] {
        folder.write(name, &vec![b'x'; length]);
    }
    wait_until_readable(&folder.path().join("100k"));
    folder
}

/// Serves with one worker while `act` is its client. Files are checked again after `valid_for`.
fn with_server(valid_for: Duration, act: impl FnOnce(&TestDirectory, SocketAddr, SocketAddr)) {
    with_encrypted_server(valid_for, None, |folder, http, _, dns| act(folder, http, dns));
}

/// The same with a listener for HTTPS, whose address is the second one.
fn with_encrypted_server(
    valid_for: Duration,
    tls: Option<Arc<Tls>>,
    act: impl FnOnce(&TestDirectory, SocketAddr, SocketAddr, SocketAddr),
) {
    let folder = folder();
    let any = "127.0.0.1:0".parse().expect("an address");
    let sockets = SocketSet {
        streams: [Role::HTTP, Role::HTTPS].map(|role| (role, Arc::new(Listener::bind(any).expect("bound")))).to_vec(),
        datagrams: vec![(Role::DNS, Arc::new(Socket::bind(any).expect("bound")))],
    };
    let [http, https] = [0, 1].map(|index| sockets.streams[index].1.local_address().expect("bound"));
    let dns = sockets.datagrams[0].1.local_address().expect("bound");
    let root = Root::Directory(Arc::new(Directory::open(folder.path()).expect("opened")));
    let mut options = Options::default();
    // Files that were just written are settled.
    options.open_files.sendfile_after = Duration::ZERO;
    options.open_files.watched_valid_for = valid_for;
    let snapshot = Snapshot { tls, ..snapshot(root) };
    serve(snapshot, options, &[sockets], 1, |_| act(&folder, http, https, dns));
}

/// Sends a request for `path` with a field line and CRLF, `count` times, and reads the responses.
fn request(client: &mut HttpClient, path: &str, field: &str, count: usize) -> Option<String> {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: example\r\n{field}\r\n").repeat(count));
    (0..count).map(|_| client.response()).last()?.field("ETag").map(str::to_owned)
}

/// The counts of a thread once it waits again: it is asleep, and one of its calls since then was the wait. However busy
/// the machine is, one that is yet to make a call is not asleep.
fn counts_of(thread: &str, since: Option<&SyscallCounts>) -> SyscallCounts {
    // The last of its name: those of servers that have ended are returned as well.
    let counts = || counters::all_thread_counts().into_iter().rfind(|counts| counts.thread == thread);
    let has_waited = |counts: &SyscallCounts| {
        since.is_none_or(|since| {
            let new = counts.since(since);
            new.get(Syscall::EpollPwait) + new.get(Syscall::Ppoll) > 0
        })
    };
    let start = Instant::now();
    loop {
        let before = counts();
        if is_asleep(thread)
            && let Some(after) = counts()
            && before.as_ref() == Some(&after)
            && has_waited(&after)
        {
            return after;
        }
        assert!(start.elapsed() < DEADLINE, "{thread} does not wait again");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Whether the thread is blocked in a call (proc_pid_stat(5)).
fn is_asleep(thread: &str) -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").expect("the threads of this process");
    tasks.flatten().any(|task| {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let stat = read("stat");
        read("comm").trim_end() == thread && stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
    })
}

/// A line of the snapshot: the system calls of the thread while `act` runs.
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

#[test]
fn system_calls_of_a_request_are_those_of_the_snapshot() {
    if std::env::var_os(sanderling_os::fallback::FORCE_VARIABLE).is_some_and(|forced| !forced.is_empty()) {
        // The snapshot is for the preferred variants.
        return;
    }
    if !run_alone("costs::system_calls_of_a_request_are_those_of_the_snapshot") {
        return;
    }
    let mut lines = Vec::new();
    with_server(DEADLINE, |folder, http, dns| {
        let mut client = HttpClient::connect(http);
        // The first request of a directory is answered by a job, which also watches the directory.
        let etag = request(&mut client, "/512", "", 1).expect("an entity tag");
        for path in ["/16k", "/32k", "/100k", "/none"] {
            request(&mut client, path, "", 1);
        }
        let if_none_match = format!("If-None-Match: {etag}\r\n");
        let accept = "Accept-Encoding: gzip, br\r\n";
        for (what, path, field, count) in [
            ("512 bytes, cached", "/512", "", 1),
            ("16 KiB, cached", "/16k", "", 1),
            ("32 KiB, cached", "/32k", "", 1),
            ("100 KiB, cached", "/100k", "", 1),
            ("304", "/512", &if_none_match, 1),
            ("404, cached", "/none", "", 1),
            ("16 pipelined, cached", "/512", "", 16),
        ] {
            lines.push(cost(WORKER, what, || drop(request(&mut client, path, field, count))));
        }
        request(&mut client, "/coded.js", accept, 1);
        let coded = "512 bytes that are 100 in a coding, cached";
        lines.push(cost(WORKER, coded, || drop(request(&mut client, "/coded.js", accept, 1))));
        for name in ["new.png", "new"] {
            folder.write(name, &[b'y'; 512]);
        }
        wait_until_readable(&folder.path().join("new"));
        let packed = "512 bytes of an incompressible type, new";
        lines.push(cost(WORKER, packed, || drop(request(&mut client, "/new.png", "", 1))));
        // The names of the precompressed files are not in the kernel's cache, so a job looks them up.
        lines.push(cost(WORKER, "512 bytes, new", || drop(request(&mut client, "/new", "", 1))));
        udp_reply(dns, QUERY);
        lines.push(cost("datagrams 0", "one datagram", || drop(udp_reply(dns, QUERY))));
    });
    with_server(Duration::ZERO, |folder, http, _| {
        let mut client = HttpClient::connect(http);
        std::fs::copy(folder.path().join("512"), folder.path().join("512.png")).expect("copied");
        for (what, path) in [
            ("512 bytes of an incompressible type, revalidated", "/512.png"),
            ("512 bytes, revalidated", "/512"),
            ("512 bytes that are 100 in a coding, revalidated", "/coded.js"),
            ("100 KiB, revalidated", "/100k"),
        ] {
            request(&mut client, path, "", 1);
            // The worker's clock counts milliseconds.
            let answered_at = Instant::now();
            wait_until("the next millisecond", || answered_at.elapsed() > Duration::from_millis(2));
            lines.push(cost(WORKER, what, || drop(request(&mut client, path, "", 1))));
        }
    });
    lines.extend(encrypted_costs());
    lines.push(backend_cost());
    let found = lines.join("\n") + "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/costs.txt");
    if std::env::var_os("UPDATE_COSTS").is_some() {
        std::fs::write(&path, &found).expect("written");
    }
    let expected = std::fs::read_to_string(&path).expect("the snapshot");
    assert_eq!(found, expected, "the costs have changed; if that is meant, see the top of this file");
}

/// A request that is passed on to a backend on a kept connection, and its response.
fn backend_cost() -> String {
    let backend = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = backend.local_addr().expect("bound");
    let any = "127.0.0.1:0".parse().expect("an address");
    let streams = vec![(Role::HTTP, Arc::new(Listener::bind(any).expect("bound")))];
    let sockets = SocketSet { streams, datagrams: Vec::new() };
    let http = sockets.streams[0].1.local_address().expect("bound");
    let answers = thread::spawn(move || {
        let (mut stream, _) = backend.accept().expect("a connection");
        let response = [&b"HTTP/1.1 200 OK\r\nContent-Length: 1024\r\n\r\n"[..], &[b'x'; 1024]].concat();
        let mut request = Vec::new();
        let mut piece = [0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut piece) {
            request.extend_from_slice(&piece[..count]);
            if request.ends_with(b"\r\n\r\n") {
                request.clear();
                stream.write_all(&response).expect("sent");
            }
        }
    });
    let mut line = String::new();
    serve(backend_snapshot(address), Options::default(), &[sockets], 1, |_| {
        let mut client = HttpClient::connect(http);
        request(&mut client, "/", "", 1);
        line = cost(WORKER, "1 KiB of a backend", || drop(request(&mut client, "/", "", 1)));
    });
    answers.join().expect("no panic");
    line
}

/// Requests over TLS: the head and all of the content leave by one call.
fn encrypted_costs() -> Vec<String> {
    let (server, client) = tls();
    let mut lines = Vec::new();
    with_encrypted_server(DEADLINE, Some(server), |_, _, https, _| {
        let mut http1 = Http1Client::connect(https, &client);
        for (what, path, content_bytes) in [
            ("512 bytes over TLS, cached", "/512", 512),
            ("32 KiB over TLS, cached", "/32k", 32 << 10),
            ("100 KiB over TLS, cached", "/100k", 100 << 10),
        ] {
            http1.get(path, content_bytes);
            lines.push(cost(WORKER, what, || http1.get(path, content_bytes)));
        }
        let mut http2 = Http2Client::connect(https, &client);
        http2.get("/512", 1);
        for (what, path, count) in [
            ("512 bytes over HTTP/2, cached", "/512", 1),
            ("16 requests at once over HTTP/2, cached", "/512", 16),
            ("32 KiB over HTTP/2, cached", "/32k", 1),
        ] {
            lines.push(cost(WORKER, what, || http2.get(path, count)));
        }
    });
    lines
}

/// The traced process: it serves some requests and prints the counts of the worker.
fn serve_for_strace() {
    with_server(DEADLINE, |folder, http, _| {
        let mut client = HttpClient::connect(http);
        for path in ["/512", "/100k", "/none", "/512", "/100k", "/none", "/512"] {
            request(&mut client, path, "", 1);
        }
        request(&mut client, "/512", "", 16);
        let counts = counts_of(WORKER, None);
        for task in std::fs::read_dir("/proc/self/task").expect("a directory") {
            let task = task.expect("a thread").path();
            let name = std::fs::read_to_string(task.join("comm")).unwrap_or_default();
            println!("\nTHREAD {} {}", task.file_name().expect("a number").display(), name.trim());
        }
        for (call, count) in counts.nonzero() {
            println!("\nCOUNT {} {count}", call.name());
        }
        // Exits before the client closes: the system calls after that are not in these counts.
        let _ = std::fs::remove_dir_all(folder.path());
        std::process::exit(0);
    });
}

#[test]
fn counters_are_those_of_strace() {
    if is_alone() {
        return serve_for_strace();
    }
    let trace = tempfile::NamedTempFile::new().expect("created");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-o"]).arg(trace.path()).args(["-e", TRACED]).arg(this_program());
    let output = command_alone(strace, "costs::counters_are_those_of_strace").output();
    let output = output.expect("strace runs (the Debian package strace)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let threads: Vec<(&str, &str)> =
        printed.lines().filter_map(|line| line.strip_prefix("THREAD ")?.split_once(' ')).collect();
    let traced = std::fs::read_to_string(trace.path()).expect("readable");
    let calls_of = |name: &str| -> Vec<&str> {
        let is_of = |task: &str| threads.iter().any(|(number, thread)| *number == task && thread.starts_with(name));
        let calls = traced.lines().filter_map(|line| line.split_once(' ').filter(|(task, _)| is_of(task)));
        calls.map(|(_, call)| call.trim_start()).filter(|call| !call.starts_with("<...")).collect()
    };
    let of_worker = calls_of(WORKER);
    let mut compared = 0;
    for name in ["recvfrom", "sendto", "sendfile", "accept4", "openat2", "fstat", "preadv2", "statx"] {
        let by_strace = of_worker.iter().filter(|call| call.starts_with(&format!("{name}("))).count();
        let by_counter: usize = printed
            .lines()
            .filter_map(|line| line.strip_prefix("COUNT ")?.split_once(' '))
            .filter(|(call, _)| *call == name)
            .map(|(_, count)| count.parse::<usize>().expect("a number"))
            .sum();
        assert_eq!(by_counter, by_strace, "{name}");
        compared += by_strace;
    }
    assert!(compared > 10, "strace has traced the worker");
    for name in ["worker", "job", "watcher", "datagrams"] {
        let calls = calls_of(name);
        assert!(!calls.is_empty(), "{name} was not traced");
        assert!(!calls.iter().any(|call| call.starts_with("newfstatat(")), "{name} calls newfstatat");
    }
    let forced = std::env::var(sanderling_os::fallback::FORCE_VARIABLE).unwrap_or_default();
    if !forced.contains("cloexec") {
        assert!(!of_worker.iter().any(|call| call.contains("F_SETFD")), "close-on-exec is set at creation");
    }
}

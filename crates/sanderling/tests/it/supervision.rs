//! Supervisor and server process as the system sees them: their descriptors, users and messages to a service manager,
//! and the sockets of a service manager.

use sanderling_os::poll_set::PollSet;
use sanderling_os::process::{ExitStatus, ProcessHandle};
use sanderling_os::seqpacket::{MESSAGE_BYTES_MAX, SeqpacketListener, SeqpacketSocket};
use sanderling_os::tcp::Listener;
use sanderling_os::udp::Socket;
use sanderling_testkit::http::HttpClient;
use sanderling_testkit::{
    DEADLINE, ListenerCounts, RawConnection, TestDirectory, TestServer, copy_program_to, run_to_end, send_signal,
    tcp_reply, udp_reply, wait_until,
};
use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

const ZONE: &[u8] = b"@ 3600 IN SOA ns1 host 1 3600 600 86400 300\n@ IN NS ns1\nns1 IN A 192.0.2.1\n";

/// A directory with a site, a zone, and a configuration that begins with `top`.
fn domain(top: &str, http: &str, dns: &str) -> TestDirectory {
    let directory = TestDirectory::with(&[("public/index.html", b"hi\n"), ("example.com.zone", ZONE)]);
    write_config(&directory, top, http, dns);
    directory
}

fn write_config(directory: &TestDirectory, top: &str, http: &str, dns: &str) {
    let text = format!(
        "{top}\n[http]\nlisten = [\"{http}\"]\n[dns]\nlisten = [\"{dns}\"]\n\
         [domain.\"example.com\"]\nsite = \"public\"\nzone = \"example.com.zone\"\n"
    );
    directory.write("sanderling.toml", text.as_bytes());
}

const ANY: &str = "127.0.0.1:0";
const BOTH: ListenerCounts = ListenerCounts { http: 1, dns: 1 };

/// The number of descriptors of each kind: sockets and pipes by their kind, files by their path.
fn descriptors(pid: u32) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs") {
        // The descriptor was closed in the meantime.
        let Ok(target) = fs::read_link(entry.expect("listed").path()) else { continue };
        let target = target.to_string_lossy().into_owned();
        let kind = match target.split_once(":[") {
            Some((kind, _)) => kind.to_owned(),
            None => target,
        };
        *kinds.entry(kind).or_default() += 1;
    }
    kinds
}

#[test]
fn server_process_has_the_name_of_the_program_and_only_its_descriptors() {
    let directory = domain("workers = 1\nlisteners = 2", ANY, ANY);
    // The supervisor has inherited one more, as from a careless shell.
    let serve = directory.serve_command();
    let mut command = Command::new("sh");
    command.args(["-c", "exec 9</etc/hostname; exec \"$@\"", "sh"]).arg(serve.get_program()).args(serve.get_args());
    let server = TestServer::start_command(command, BOTH);
    HttpClient::connect(server.http()).get("/");
    for pid in [server.process_id(), server.server_process_id()] {
        assert_eq!(fs::read_to_string(format!("/proc/{pid}/comm")).expect("it runs"), "sanderling\n");
    }
    let command = fs::read_to_string(format!("/proc/{}/cmdline", server.server_process_id())).expect("it runs");
    assert!(command.starts_with("sanderling: server process\0"), "{command:?}");
    let of_supervisor = descriptors(server.process_id());
    assert_eq!(of_supervisor.get("/etc/hostname"), Some(&1), "{of_supervisor:?}");
    let mut of_server = descriptors(server.server_process_id());
    // Reuseport sockets of three kinds, the control socket, the connection to the supervisor, and both ends of the
    // signal pipe.
    let sockets = of_server.remove("socket").unwrap_or(0);
    assert!((2 * 3 + 2..=2 * 3 + 2 + 12).contains(&sockets), "{sockets} sockets");
    let root = fs::canonicalize(directory.path().join("public")).expect("it is there").to_string_lossy().into_owned();
    let known = |kind: &str| {
        ["pipe", "/dev/null", "anon_inode", "anon_inode:inotify", "anon_inode:[eventpoll]", "anon_inode:[eventfd]"]
            .contains(&kind)
            || kind.starts_with("anon_inode:")
            || kind.starts_with("/memfd:configuration")
            || kind.starts_with("/memfd:zones")
            || kind.starts_with("/memfd:shared-keys")
            || kind.starts_with("/proc/") && kind.ends_with("/status")
            || kind.starts_with(&root)
    };
    of_server.retain(|kind, _| !known(kind));
    assert!(of_server.is_empty(), "not meant for it: {of_server:?}");
}

#[test]
fn reloads_and_upgrades_leak_no_descriptors() {
    let directory = domain("workers = 1", ANY, ANY);
    let server = TestServer::start_command(directory.serve_command(), BOTH);
    let look = || {
        // Waits until no process drains.
        server.server_process_id();
        HttpClient::connect(server.http()).get("/");
        descriptors(server.process_id())
    };
    let mut first: Option<BTreeMap<String, usize>> = None;
    // The first count may include the descriptors of a process that has just exited.
    for _ in 0..4 {
        for verb in ["reload", "upgrade"] {
            let ended = directory.control(verb);
            assert_eq!(ended.code(), Some(0), "{verb}: {ended}");
        }
        let first = first.get_or_insert_with(look);
        // The descriptors of a process that has just exited are closed a moment later.
        wait_until("no more descriptors", || {
            look().iter().all(|(kind, count)| first.get(kind).is_some_and(|at_first| count <= at_first))
        });
    }
}

/// A line of `/proc/PID/status`.
fn status(pid: u32, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn server_process_gives_up_its_privileges() {
    let directory = domain("workers = 1\nuser = \"nobody\"", ANY, ANY);
    if !Path::new("/proc/self/status").exists() || status(std::process::id(), "Uid") != "0 0 0 0" {
        eprintln!("skipped: only root can switch to another user");
        return;
    }
    let open_to_all = |path: &Path| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(path, mode).expect("no error");
    };
    open_to_all(directory.path());
    let server = TestServer::start_command(directory.serve_command(), BOTH);
    assert_eq!(HttpClient::connect(server.http()).get("/").status, 200);
    let check = || {
        let pid = server.server_process_id();
        let uid = status(pid, "Uid").split(' ').next().expect("four numbers").to_owned();
        assert_ne!(uid, "0");
        assert_eq!(status(pid, "Uid"), [uid.as_str(); 4].join(" "));
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(status(pid, set), "0000000000000000", "{set}");
        }
        assert_eq!((status(pid, "NoNewPrivs"), status(pid, "Seccomp")), ("1".to_owned(), "2".to_owned()));
        assert_eq!(status(server.process_id(), "Uid"), "0 0 0 0");
    };
    check();
    let ended = directory.control("reload");
    let unchanged = "reloaded; no connection was closed\nzones: 0 added, 0 changed, 0 removed\n";
    assert_eq!((ended.code(), ended.text().as_str()), (Some(0), unchanged), "{ended}");
    // An unknown user is reported, and the serving process is kept.
    write_config(&directory, "workers = 1\nuser = \"no-such-user\"", ANY, ANY);
    let ended = directory.control("reload");
    assert_eq!(ended.code(), Some(1), "{ended}");
    assert!(ended.errors.contains("no-such-user"), "{ended}");
    check();
    drop(server);
    // At a start, it is the only problem: no other process is started that would fail without the user.
    let config = fs::read_to_string(directory.path().join("sanderling.toml")).expect("written");
    let signed = config.replace("zone = ", "dnssec = true\nzone = ");
    assert_ne!(signed, config);
    directory.replace("sanderling.toml", format!("state = \"state\"\n{signed}").as_bytes());
    let ended = run_to_end(directory.serve_command(), DEADLINE);
    assert_eq!(ended.code(), Some(78), "{ended}");
    assert_eq!(ended.errors.lines().count(), 2, "{ended}");
    assert!(ended.errors.contains("no-such-user") && ended.errors.contains("1 error"), "{ended}");
}

/// Whether other processes of its user may read a process's memory: if not, its files belong to root (proc(5)).
fn is_dumpable(pid: u32) -> bool {
    let owner = fs::metadata(format!("/proc/{pid}/maps")).expect("it runs").uid();
    let user = status(pid, "Uid");
    owner.to_string() == user.split(' ').next().expect("four numbers")
}

#[test]
fn memory_with_secrets_cannot_be_read() {
    let directory = domain("workers = 1\nuser = \"nobody\"", ANY, ANY);
    if status(std::process::id(), "Uid") != "0 0 0 0" {
        eprintln!("skipped: only root can switch to another user");
        return;
    }
    fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("no error");
    let server = TestServer::start_command(directory.serve_command(), BOTH);
    assert!(is_dumpable(server.server_process_id()));
    directory.write("cookie.secret", "0123456789abcdef".repeat(2).as_bytes());
    let config = fs::read_to_string(directory.path().join("sanderling.toml")).expect("written");
    let config = config.replace("[dns]\n", "[dns]\ncookie_secret_file = \"cookie.secret\"\n");
    directory.replace("sanderling.toml", config.as_bytes());
    let ended = directory.control("reload");
    assert!(ended.code() == Some(0) && ended.text().contains("`cookie_secret_file` was added"), "{ended}");
    assert!(!is_dumpable(server.server_process_id()));
}

/// Prints the status and the output of a server if the test fails.
struct PrintOnFailure<'d> {
    directory: &'d TestDirectory,
    output: &'d Path,
}

impl Drop for PrintOnFailure<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("{}", self.directory.control_with("status", &["--verbose"]));
            println!("output:\n{}", fs::read_to_string(self.output).unwrap_or_default());
        }
    }
}

/// The sockets of a service manager, which another program than the server has bound.
struct ManagerSockets {
    http: Vec<Listener>,
    dns: Vec<(Socket, Listener)>,
}

impl ManagerSockets {
    /// `count` reuseport sockets of each kind.
    fn bind(count: usize) -> ManagerSockets {
        let any = ANY.parse().expect("an address");
        let mut http = vec![Listener::bind(any).expect("bound")];
        let mut dns = vec![Socket::bind_with_listener(any).expect("bound")];
        let http_address = http[0].local_address().expect("bound");
        let dns_address = dns[0].0.local_address().expect("bound");
        for _ in 1..count {
            http.push(Listener::bind_reuseport(http_address).expect("bound"));
            let socket = Socket::bind_reuseport(dns_address).expect("bound");
            dns.push((socket, Listener::bind_reuseport(dns_address).expect("bound")));
        }
        ManagerSockets { http, dns }
    }

    fn http_address(&self) -> SocketAddr {
        self.http[0].local_address().expect("bound")
    }

    fn dns_address(&self) -> SocketAddr {
        self.dns[0].0.local_address().expect("bound")
    }

    /// Starts a server with these sockets, with its output in `output`.
    fn start(&self, directory: &TestDirectory, output: &Path) -> ProcessHandle {
        let serve = directory.serve_command();
        let script = format!("exec \"$0\" \"$@\" >{} 2>&1", output.display());
        let mut arguments = vec!["-c".into(), script.into(), serve.get_program().to_owned()];
        arguments.extend(serve.get_args().map(ToOwned::to_owned));
        let http = self.http.iter().map(|stream| ("http".to_owned(), stream.as_fd()));
        let dns = self.dns.iter().flat_map(|(socket, stream)| [socket.as_fd(), stream.as_fd()]);
        let given: Vec<_> = http.chain(dns.map(|descriptor| ("dns".to_owned(), descriptor))).collect();
        sanderling_os::process::spawn(Path::new("/bin/sh"), "sh", &arguments, &given).expect("started")
    }

    /// The sockets that are bound to the addresses: HTTP, DNS over TCP, DNS over UDP.
    fn bound_counts(&self) -> [usize; 3] {
        const LISTEN: &str = "0A";
        const UNCONNECTED: &str = "07";
        let count = |protocol: &str, port: u16, state: &str| {
            let table = fs::read_to_string(format!("/proc/self/net/{protocol}")).expect("it is there");
            let is_bound = |line: &&str| {
                let mut fields = line.split_whitespace().skip(1);
                let (address, state_field) = (fields.next().unwrap_or(""), fields.nth(1).unwrap_or(""));
                address.ends_with(&format!(":{port:04X}")) && state_field == state
            };
            table.lines().filter(is_bound).count()
        };
        let (http, dns) = (self.http_address().port(), self.dns_address().port());
        [count("tcp", http, LISTEN), count("tcp", dns, LISTEN), count("udp", dns, UNCONNECTED)]
    }
}

fn stop_and_wait(directory: &TestDirectory, process: &ProcessHandle) {
    let ended = directory.control("stop");
    assert_eq!(ended.code(), Some(0), "{ended}");
    PollSet::new([process.as_fd()]).wait(Some(DEADLINE)).expect("waited");
    assert_eq!(process.try_wait().expect("no error"), Some(ExitStatus::Exited(0)));
}

/// Twice: after a stop, the sockets still listen.
#[test]
fn sockets_of_a_service_manager_are_used_and_left_open() {
    let sockets = ManagerSockets::bind(1);
    let (http_address, dns_address) = (sockets.http_address(), sockets.dns_address());
    let directory = domain("workers = 2", &http_address.to_string(), &dns_address.to_string());
    let output = directory.path().join("output");
    let _print = PrintOnFailure { directory: &directory, output: &output };
    for _ in 0..2 {
        fs::write(&output, "").expect("written");
        let process = sockets.start(&directory, &output);
        // A client that connects before the server is ready waits.
        HttpClient::connect(http_address).get("/");
        let announced = format!("http {http_address}\ndns {dns_address}\n");
        wait_until("the announcement", || fs::read_to_string(&output).is_ok_and(|text| text == announced));
        // There is one socket of each kind, which both workers share.
        let status = directory.control("status").text();
        assert!(status.contains(&format!("http {http_address}, 1 socket")), "{status}");
        stop_and_wait(&directory, &process);
    }
    std::net::TcpStream::connect(http_address).expect("it still listens");
}

#[test]
fn supervisor_that_adopts_a_server_process_leaves_the_sockets_of_a_service_manager_as_they_are() {
    let sockets = ManagerSockets::bind(1);
    let http = sockets.http_address();
    let directory = domain("workers = 2", &http.to_string(), &sockets.dns_address().to_string());
    let output = directory.path().join("output");
    let _print = PrintOnFailure { directory: &directory, output: &output };
    let killed = sockets.start(&directory, &output);
    HttpClient::connect(http).get("/");
    assert!(send_signal("KILL", &killed.pid().to_string()));
    PollSet::new([killed.as_fd()]).wait(Some(DEADLINE)).expect("waited");
    let adopting = sockets.start(&directory, &output);
    wait_until("the adoption", || directory.control("status").text().contains("supervisor process"));
    assert_eq!(directory.control("upgrade").code(), Some(0));
    HttpClient::connect(http).get("/");
    assert_eq!(sockets.bound_counts(), [1, 1, 1]);
    stop_and_wait(&directory, &adopting);
    std::net::TcpStream::connect(http).expect("it still listens");
}

/// A socket that the server added would be closed when it stops, with the clients in its queue.
#[test]
fn no_socket_is_added_to_those_of_a_service_manager_and_restarts_lose_no_request() {
    const ROUNDS_MIN: usize = 3;
    const REQUESTS_PER_CLIENT: usize = 500;
    let soa_query = b"\0\x19\0\0\0\x01\0\0\0\0\0\0\x07example\x03com\0\0\x06\0\x01";
    let sockets = ManagerSockets::bind(2);
    let (http, dns) = (sockets.http_address(), sockets.dns_address());
    let directory = domain("workers = 3", &http.to_string(), &dns.to_string());
    let output = directory.path().join("output");
    let _print = PrintOnFailure { directory: &directory, output: &output };
    let requests: [&(dyn Fn() + Sync); 3] = [
        &|| assert_eq!(HttpClient::connect(http).get("/").status, 200),
        &|| assert_eq!(udp_reply(dns, soa_query)[..4], *b"\0\x19\x84\0"),
        &|| assert_eq!(tcp_reply(dns, soa_query)[..4], *b"\0\x19\x84\0"),
    ];
    thread::scope(|scope| {
        let clients: Vec<_> =
            requests.map(|request| scope.spawn(|| (0..REQUESTS_PER_CLIENT).for_each(|_| request()))).into();
        let mut rounds = 0..;
        while rounds.next() < Some(ROUNDS_MIN) || !clients.iter().all(|client| client.is_finished()) {
            let process = sockets.start(&directory, &output);
            HttpClient::connect(http).get("/");
            assert_eq!(sockets.bound_counts(), [2, 2, 2]);
            stop_and_wait(&directory, &process);
        }
    });
}

#[test]
fn service_manager_is_notified() {
    let directory = domain("workers = 1", ANY, ANY);
    let path = directory.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("bound");
    manager.set_read_timeout(Some(DEADLINE)).expect("set");
    let expect_notification = |expected: &str| {
        let mut room = [0; 512];
        let length = manager.recv(&mut room).expect("received");
        let text = String::from_utf8_lossy(&room[..length]).into_owned();
        assert!(text.starts_with(expected), "{text:?}, not {expected:?}");
    };
    let mut command = directory.serve_command();
    command.env("NOTIFY_SOCKET", &path);
    let server = TestServer::start_command(command, BOTH);
    expect_notification("READY=1");
    server.signal("HUP");
    expect_notification("RELOADING=1");
    expect_notification("READY=1");
    assert_eq!(directory.control("upgrade").code(), Some(0));
    expect_notification("READY=1");
    expect_notification("READY=1");
    drop(server);
    expect_notification("STOPPING=1");
}

#[test]
fn new_address_is_announced_and_the_old_one_is_closed() {
    let directory = domain("workers = 1", ANY, ANY);
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let old = server.http();
    let new = loop {
        let free = TcpListener::bind(ANY).expect("bound").local_addr().expect("bound");
        if free != old {
            break free;
        }
    };
    write_config(&directory, "workers = 1", &new.to_string(), ANY);
    let ended = directory.control("reload");
    assert_eq!(ended.code(), Some(0), "{ended}");
    assert!(ended.text().contains("`listen` in [http] has changed"), "{ended}");
    server.wait_for(ListenerCounts { http: 2, dns: 1 });
    assert_eq!(server.http_all(), [old, new]);
    HttpClient::connect(new).get("/");
    // Clients of the old address are refused when the old server process has exited.
    server.server_process_id();
    wait_until("the old address is closed", || {
        std::net::TcpStream::connect_timeout(&old, Duration::from_secs(1)).is_err()
    });
}

#[test]
fn process_that_is_not_ready_in_time_is_killed_and_the_old_one_kept() {
    let directory = domain("workers = 1", ANY, ANY);
    let program = directory.argument("program");
    copy_program_to(Path::new(&program));
    let mut config = fs::read_to_string(directory.path().join("sanderling.toml")).expect("no error");
    config += "[limits]\nstart_timeout_ms = 300\n";
    directory.write("sanderling.toml", config.as_bytes());
    let serve = directory.serve_command();
    let mut command = Command::new(&program);
    command.args(serve.get_args()).env_clear();
    let server = TestServer::start_command(command, BOTH);
    let old = server.server_process_id();
    fs::remove_file(&program).expect("no error");
    directory.write("program", b"#!/bin/sh\nexec tail -f /dev/null\n");
    fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("no error");
    let ended = directory.control("upgrade");
    assert_eq!(ended.code(), Some(1), "{ended}");
    assert!(ended.errors.contains("upgrade failed, keeping the running program"), "{ended}");
    assert_eq!(server.server_process_id(), old);
    HttpClient::connect(server.http()).get("/");
}

#[test]
fn reload_with_an_error_changes_nothing() {
    let directory = domain("workers = 1", ANY, ANY);
    let server = TestServer::start_command(directory.serve_command(), BOTH);
    let mut client = HttpClient::connect(server.http());
    assert_eq!(client.get("/").status, 200);
    let process = server.server_process_id();
    write_config(&directory, "workers = 0", ANY, ANY);
    let ended = directory.control("reload");
    assert_eq!(ended.code(), Some(1), "{ended}");
    assert!(ended.errors.contains("reload failed, keeping the current configuration"), "{ended}");
    assert_eq!((server.server_process_id(), client.get("/").status), (process, 200));
}

#[test]
fn stop_during_a_start() {
    let directory = domain("workers = 1", ANY, ANY);
    // So many records that the stop arrives while they are read.
    let mut zone = ZONE.to_vec();
    for number in 0..200_000 {
        zone.extend_from_slice(format!("n{number} IN A 192.0.2.1\n").as_bytes());
    }
    directory.write("example.com.zone", &zone);
    let mut child = directory.serve_command().spawn().expect("started");
    let start = Instant::now();
    // A socket that does not listen yet refuses like one that does not exist.
    loop {
        let ended = directory.control("stop");
        if ended.code() == Some(0) {
            break;
        }
        assert!(ended.errors.contains("no server answers") && start.elapsed() < DEADLINE, "{ended}");
    }
    assert_eq!(child.wait().expect("a child").code(), Some(0));
}

/// The replaced process may still answer connections that it has accepted.
#[track_caller]
fn wait_for_page(server: &TestServer, content: &[u8]) {
    wait_until("the new page", || HttpClient::connect(server.http()).get("/").body == content);
}

/// A process in the sandbox can open a new directory, but read nothing in it.
#[test]
fn new_directory_in_the_configuration_is_served() {
    let directory = domain("workers = 1", ANY, ANY);
    let server = TestServer::start_command(directory.serve_command(), BOTH);
    assert_eq!(HttpClient::connect(server.http()).get("/").body, b"hi\n");
    directory.write("other/index.html", b"new\n");
    let config = fs::read_to_string(directory.path().join("sanderling.toml")).expect("no error");
    directory.write("sanderling.toml", config.replace("\"public\"", "\"other\"").as_bytes());
    let ended = directory.control("reload");
    assert_eq!(ended.code(), Some(0), "{ended}");
    let expected = format!("its sandbox does not allow {}", directory.path().join("other").display());
    assert!(ended.text().contains("no connection was closed") || ended.text().contains(&expected), "{ended}");
    wait_for_page(&server, b"new\n");
    // The path leads to another directory.
    fs::rename(directory.path().join("other"), directory.path().join("old")).expect("no error");
    directory.write("other/index.html", b"newer\n");
    let ended = directory.control("reload");
    assert_eq!(ended.code(), Some(0), "{ended}");
    wait_for_page(&server, b"newer\n");
}

#[test]
fn download_is_cut_off_after_the_drain_timeout_and_survives_an_upgrade_without_one() {
    // More than sockets hold.
    let content: Vec<u8> = (0..20_000_000u32).map(|index| (index >> 16) as u8).collect();
    for (timeout_ms, cut_off_count) in [("100", 1), ("\"unlimited\"", 0)] {
        let directory = domain("workers = 1", ANY, ANY);
        directory.write("public/huge.bin", &content);
        let config = fs::read_to_string(directory.path().join("sanderling.toml")).expect("written");
        directory.write("sanderling.toml", format!("{config}[limits]\ndrain_timeout_ms = {timeout_ms}\n").as_bytes());
        let server = TestServer::start_command(directory.serve_command(), BOTH);
        let mut client = RawConnection::open(server.http());
        client.send(b"GET /huge.bin HTTP/1.1\r\nHost: localhost\r\n\r\n");
        client.read_until(b"\r\n\r\n");
        assert_eq!(directory.control("upgrade").code(), Some(0));
        if cut_off_count > 0 {
            server.wait_for_error("responses aborted after `drain_timeout`: 1");
            // The replaced process has exited.
            server.server_process_id();
        }
        let received = client.read_to_close();
        assert_eq!(content.ends_with(&received[received.len() - 1_000..]), cut_off_count == 0, "{timeout_ms}");
        // The end of the drain, after which the process exits.
        server.server_process_id();
        let status = directory.control("status").text();
        assert!(status.contains(&format!("responses aborted by replacing it: {cut_off_count}\n")), "{status}");
    }
}

/// A packet of a later version of the protocol.
const LATER: &[u8] = b"SDLG\xffwhat a later version may send";

#[test]
fn process_without_supervisor_refuses_one_of_another_version_and_serves() {
    let directory = domain("workers = 1", ANY, ANY);
    let server = TestServer::start_command(directory.serve_command(), BOTH);
    let pid = server.server_process_id();
    server.signal("KILL");
    server.wait_for_error("lost the supervisor");
    let supervisor = SeqpacketSocket::connect(&directory.path().join("control")).expect("connected");
    assert!(supervisor.send(LATER, &[]).expect("sent"));
    PollSet::new([supervisor.as_fd()]).wait(Some(DEADLINE)).expect("waited");
    let mut buffer = [0; MESSAGE_BYTES_MAX];
    supervisor.receive(&mut buffer).expect("an answer");
    let answer = String::from_utf8_lossy(&buffer);
    assert!(answer.contains("protocol version 255, and this program version 2; use the version"), "{answer}");
    HttpClient::connect(server.http()).get("/");
    let ended = directory.control("stop");
    assert_eq!((ended.code(), ended.text().as_str()), (Some(0), "stopped\n"), "{ended}");
    server.end();
    assert!(!Path::new(&format!("/proc/{pid}/fd/0")).exists());
}

#[test]
fn removed_control_socket_is_created_again_by_sighup() {
    let directory = domain("workers = 1", ANY, ANY);
    let server = TestServer::start_command(directory.serve_command(), BOTH);
    fs::remove_file(directory.path().join("control")).expect("it is there");
    server.signal("HUP");
    wait_until("the control socket", || directory.path().join("control").exists());
    server.wait_for_error("because the control socket had been removed");
    assert_eq!(directory.control("status").code(), Some(0));
}

#[test]
fn upgrade_warns_of_a_broken_configuration() {
    let directory = domain("workers = 1", ANY, ANY);
    let _server = TestServer::start_command(directory.serve_command(), BOTH);
    directory.write("sanderling.toml", b"workers = many\n");
    let ended = directory.control("upgrade");
    assert_eq!(ended.code(), Some(0), "{ended}");
    assert!(ended.errors.contains("warning: the configuration file cannot be loaded"), "{ended}");
}

#[test]
fn server_that_cannot_listen_leaves_no_control_socket() {
    let taken = TcpListener::bind(ANY).expect("bound");
    let directory = domain("workers = 1", &taken.local_addr().expect("bound").to_string(), ANY);
    let ended = run_to_end(directory.serve_command(), DEADLINE);
    assert_eq!(ended.code(), Some(1), "{ended}");
    assert!(!directory.path().join("control").exists());
}

#[test]
fn supervisor_refuses_a_process_of_another_version() {
    let directory = domain("workers = 1", ANY, ANY);
    let listener = SeqpacketListener::bind(&directory.path().join("control"), 0o600).expect("bound");
    let process = thread::spawn(move || {
        PollSet::new([listener.as_fd()]).wait(Some(DEADLINE)).expect("waited");
        let supervisor = listener.accept().expect("accepted").expect("a supervisor");
        assert!(supervisor.send(LATER, &[]).expect("sent"));
        supervisor
    });
    let ended = run_to_end(directory.serve_command(), DEADLINE);
    let expected = "this program version 2; stop the running server with the version that it was started with";
    assert!(ended.code() == Some(1) && ended.errors.contains(expected), "{ended}");
    process.join().expect("no panic");
}

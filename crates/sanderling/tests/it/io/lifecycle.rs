//! Starting next to other servers, serving with few file descriptors, and stopping.

use std::fs;
use std::process::Command;

use crate::domain::{Domain, Setup, ZONE};
use sanderling_testkit::dns::{A, Question};
use sanderling_testkit::http::{HttpClient, check_serves, get};
use sanderling_testkit::{DEADLINE, ListenerCounts, RawConnection, TestDirectory, TestServer, run_to_end, sanderling};

const SITE: &[(&str, &[u8])] = &[("index.html", b"hi\n")];

#[test]
fn idle_server_exits_at_once_after_a_signal() {
    for signal in ["TERM", "INT"] {
        // The shutdown does not wait for the timeout of connections in use.
        let limits = "drain_timeout_ms = 600000";
        let domain = Domain::serve(Setup { site: SITE, zone: ZONE, limits, ..Setup::default() });
        let mut idle = HttpClient::connect(domain.server.http());
        idle.get("/");
        // The connection waits in the kernel if accepts are deferred.
        let silent = RawConnection::open(domain.server.http());
        let stream = RawConnection::open(domain.server.dns());
        domain.server.signal(signal);
        let ended = domain.server.end();
        let stdout = ended.text();
        assert_eq!((ended.code(), stdout.as_str()), (Some(0), ""), "SIG{signal}: {ended}");
        idle.check_closed();
        drop((silent, stream));
    }
}

#[test]
fn stopping_server_finishes_a_download_and_a_partial_request() {
    let huge: Vec<u8> = (0..20_000_000u32).map(|index| (index >> 16) as u8).collect();
    let site: &[(&str, &[u8])] = &[("index.html", b"hi\n"), ("huge.bin", &huge)];
    let domain = Domain::serve(Setup { site, ..Setup::default() });
    let mut download = HttpClient::connect(domain.server.http());
    download.send(get("/huge.bin"));
    let mut partial = HttpClient::connect(domain.server.http());
    partial.get("/");
    partial.send("GET / HTTP/1.1\r\nHo");
    let mut idle = HttpClient::connect(domain.server.http());
    idle.get("/");
    domain.server.signal("TERM");
    // Proves that the drain has begun.
    idle.check_closed();
    partial.send("st: localhost\r\n\r\n");
    let response = partial.response();
    assert_eq!((response.status, response.field("Connection")), (200, Some("close")));
    partial.check_closed();
    assert!(download.response().body == huge);
    download.check_closed();
    // The server waits for the clients' FIN.
    drop((download, partial));
    assert_eq!(domain.server.end().code(), Some(0));
}

/// With another number of workers a new process serves, and the old one ends after the response.
#[test]
fn slow_reader_of_a_large_file_receives_all_of_it_during_reloads() {
    const LARGE_BYTES: usize = 1 << 28;
    let config = |workers: u32, field: &str| {
        format!(
            "workers = {workers}\n[http]\nlisten = [\"127.0.0.1:0\"]\n[limits]\ndrain_timeout = \"unlimited\"\n\
             [domain.\"example.com\"]\nsite = \"public\"\nheaders = {{ \"/*\" = {{ X-A = \"{field}\" }} }}\n"
        )
    };
    let directory = TestDirectory::with(&[("public/index.html", b"hi\n")]);
    // Without blocks on the disk.
    let file = fs::File::create(directory.path().join("public/large")).unwrap();
    file.set_len(LARGE_BYTES as u64).unwrap();
    directory.write("sanderling.toml", config(4, "0").as_bytes());
    let server = TestServer::start_command(directory.serve_command(), ListenerCounts { http: 1, dns: 0 });
    let mut reader = RawConnection::open(server.http());
    reader.send(b"GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let head = reader.read_until(b"\r\n\r\n");
    let head_bytes = head.windows(4).position(|window| window == b"\r\n\r\n").expect("just found") + 4;
    let mut left = LARGE_BYTES - (head.len() - head_bytes);
    for (workers, field) in [(4, "1"), (1, "2"), (4, "3")] {
        directory.replace("sanderling.toml", config(workers, field).as_bytes());
        assert!(directory.control("reload").status.success());
        assert_eq!(HttpClient::connect(server.http()).get("/").field("X-A"), Some(field));
        left -= reader.read_bytes(100_000).len();
    }
    while left > 0 {
        let read_bytes = reader.try_read(1 << 20);
        assert!(read_bytes > 0, "{left} bytes are missing");
        left -= read_bytes;
    }
    assert_eq!(reader.try_read(1), 0);
}

#[test]
fn second_server_on_the_same_port_exits_with_an_error() {
    let domain = Domain::serve(Setup { site: SITE, zone: ZONE, ..Setup::default() });
    let (http, dns) = (domain.server.http().to_string(), domain.server.dns().to_string());
    let public = domain.directory.argument("public");
    let zone = format!("example.com={}", domain.directory.argument("zone"));
    for (arguments, address) in
        [(vec!["serve", &public, "--http", &http], &http), (vec!["serve", "--zone", &zone, "--dns", &dns], &dns)]
    {
        let mut second = sanderling();
        second.args(&arguments);
        let ended = run_to_end(second, DEADLINE);
        assert_eq!((ended.code(), ended.text().as_str()), (Some(1), ""), "{ended}");
        assert!(ended.errors.contains(address.as_str()), "the address is named: {ended}");
    }
    check_serves(domain.server.http());
    assert_eq!(Question::new("example.com", A).query_udp(domain.server.dns()).answer.len(), 1);
}

/// Sockets share a port by SO_REUSEPORT, but not with another server's sockets, nor DNS over TCP with HTTP.
#[test]
fn port_chosen_by_the_kernel_is_used_once() {
    const SERVER_COUNT: usize = 8;
    if !Command::new("unshare").args(["--net", "true"]).status().is_ok_and(|status| status.success()) {
        println!("skipped: no permission for a network namespace");
        return;
    }
    let directory = TestDirectory::with(&[("public/index.html", b"hi\n"), ("zone", ZONE.as_bytes())]);
    let (public, zone) = (directory.argument("public"), format!("example.com={}", directory.argument("zone")));
    // So few ports that a collision is likely.
    let script = "echo 40000 40031 >/proc/sys/net/ipv4/ip_local_port_range; trap 'kill $(jobs -p); wait; exit' TERM; \
                  for server in $(seq $1); do \
                  \"$2\" serve \"$3\" --http 0.0.0.0:0 --zone \"$4\" --dns 0.0.0.0:0 --workers 2 & done; wait";
    let mut command = Command::new("unshare");
    command.args(["--net", "bash", "-c", script, "bash", &SERVER_COUNT.to_string()]);
    command.arg(sanderling().get_program()).args([&public, &zone]);
    let server = TestServer::start_command(command, ListenerCounts { http: SERVER_COUNT, dns: SERVER_COUNT });
    let addresses = server.http_all().iter().chain(server.dns_all());
    let mut ports: Vec<u16> = addresses.map(|address| address.port()).collect();
    ports.sort_unstable();
    assert!(ports.windows(2).all(|pair| pair[0] != pair[1]), "a port is used twice: {ports:?}");
}

/// More connections than file descriptors: they wait, or take the place of idle ones.
#[test]
fn server_without_free_file_descriptors_goes_on() {
    let site: &[(&str, &[u8])] = &[("index.html", b"hi\n"), ("large.bin", &[b'x'; 100_000])];
    let domain = Domain::serve_with_descriptors(Setup { site, zone: ZONE, ..Setup::default() }, 64);
    check_serves(domain.server.http());
    let clients: Vec<RawConnection> = (0..150).map(|_| RawConnection::open(domain.server.http())).collect();
    // Datagrams need no descriptor of their own.
    assert_eq!(Question::new("example.com", A).query_udp(domain.server.dns()).answer.len(), 1);
    for _ in 0..3 {
        let response = HttpClient::connect(domain.server.http()).get("/large.bin");
        assert!(matches!(response.status, 200 | 503), "{}", response.head);
    }
    drop(clients);
    check_serves(domain.server.http());
    assert_eq!(HttpClient::connect(domain.server.http()).get("/large.bin").body.len(), 100_000);
    assert_eq!(Question::new("example.com", A).query_tcp(domain.server.dns()).answer.len(), 1);
    assert_eq!(domain.server.stop().code(), Some(0));
}

#[test]
fn server_with_forced_variants_answers() {
    let directory = TestDirectory::with(&[("public/large.bin", &[b'x'; 100_000]), ("zone", ZONE.as_bytes())]);
    let public = directory.argument("public");
    let zone = format!("example.com={}", directory.argument("zone"));
    let listeners = ["--http", "127.0.0.1:0", "--zone", &zone, "--dns", "127.0.0.1:0"];
    let force = ["--force", "open=walk", "--force", "udp-io=poll-recvmsg"];
    let arguments = [&["serve", public.as_str()], &listeners[..], &force].concat();
    let server = TestServer::start(&arguments, ListenerCounts { http: 1, dns: 1 });
    assert_eq!(HttpClient::connect(server.http()).get("/large.bin").body.len(), 100_000);
    assert_eq!(Question::new("example.com", A).query_udp(server.dns()).answer.len(), 1);
}

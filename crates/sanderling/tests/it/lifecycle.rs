//! Start, stop, and operation without free descriptors.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::dns_messages::{A, Question};
use crate::domain::{Domain, Setup, ZONE};
use crate::http_answers::{HttpConnection, check_serves, get};
use sanderling_testkit::{Folder, ListenerCounts, RawConnection, TestServer, run_to_end, sanderling};

const SITE: &[(&str, &[u8])] = &[("index.html", b"hi\n")];

/// Time in which an idle server ends, doubled for a busy machine.
const END_MAX: Duration = Duration::from_secs(2);

#[test]
fn signal_ends_an_idle_server_at_once() {
    for signal in ["TERM", "INT"] {
        let domain = Domain::serve(Setup { site: SITE, zone: ZONE, ..Setup::default() });
        // Idle connections do not delay the end.
        let mut idle = HttpConnection::open(domain.server.http());
        idle.get("/");
        // With deferred accepts the kernel keeps it; the tests run without as well.
        let fresh = RawConnection::open(domain.server.http());
        let stream = RawConnection::open(domain.server.dns());
        let start = Instant::now();
        domain.server.signal(signal);
        let ended = domain.server.end();
        assert!(start.elapsed() < END_MAX, "SIG{signal}: {:?}", start.elapsed());
        assert_eq!((ended.code(), ended.text().as_str(), ended.errors.as_str()), (Some(0), "", ""), "SIG{signal}");
        idle.check_closed();
        drop((fresh, stream));
    }
}

#[test]
fn download_is_finished_before_the_end() {
    let huge: Vec<u8> = (0..50_000_000u32).map(|index| (index >> 16) as u8).collect();
    let site: &[(&str, &[u8])] = &[("index.html", b"hi\n"), ("huge.bin", &huge)];
    let domain = Domain::serve(Setup { site, ..Setup::default() });
    let mut connection = HttpConnection::open(domain.server.http());
    connection.send(get("/huge.bin"));
    let mut idle = HttpConnection::open(domain.server.http());
    idle.get("/");
    domain.server.signal("TERM");
    // The idle connection is closed when the server drains; then the download continues.
    idle.check_closed();
    assert!(connection.answer().content == huge);
    connection.check_closed();
    assert_eq!(domain.server.end().code(), Some(0));
}

#[test]
fn received_request_is_answered_before_the_end() {
    let domain = Domain::serve(Setup { site: SITE, ..Setup::default() });
    let mut begun = HttpConnection::open(domain.server.http());
    begun.get("/");
    begun.send("GET / HTTP/1.1\r\nHo");
    // Makes sure that the bytes above have arrived.
    check_serves(domain.server.http());
    let mut idle = HttpConnection::open(domain.server.http());
    idle.get("/");
    domain.server.signal("TERM");
    idle.check_closed();
    begun.send("st: localhost\r\n\r\n");
    let answer = begun.answer();
    assert_eq!((answer.status, answer.field("Connection")), (200, Some("close")));
    begun.check_closed();
    assert_eq!(domain.server.end().code(), Some(0));
}

/// A client that does not read must not delay the end beyond the timeout.
#[test]
fn drain_timeout_ends_the_server() {
    let huge = vec![b'x'; 50_000_000];
    let site: &[(&str, &[u8])] = &[("huge.bin", &huge)];
    let domain = Domain::serve(Setup { site, limits: "drain_timeout_ms = 500", ..Setup::default() });
    let mut connection = HttpConnection::open(domain.server.http());
    connection.send(get("/huge.bin"));
    connection.raw().read_bytes(1);
    let start = Instant::now();
    domain.server.signal("TERM");
    assert_eq!(domain.server.end().code(), Some(0));
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(480) && took < Duration::from_millis(500) + END_MAX, "{took:?}");
}

#[test]
fn second_server_on_the_same_port_is_refused() {
    let domain = Domain::serve(Setup { site: SITE, zone: ZONE, ..Setup::default() });
    let (http, dns) = (domain.server.http().to_string(), domain.server.dns().to_string());
    let public = domain.folder.argument("public");
    let zone = format!("example.com={}", domain.folder.argument("zone"));
    for (arguments, address, option) in [
        (vec!["serve", &public, "--http", &http], &http, "--http"),
        (vec!["serve", "--zone", &zone, "--dns", &dns], &dns, "--dns"),
    ] {
        let mut second = sanderling();
        second.args(&arguments);
        // A server that starts would not end by itself.
        let ended = run_to_end(second, Duration::from_secs(5));
        assert_eq!((ended.code(), ended.text().as_str()), (Some(1), ""), "{ended}");
        let expected = format!(
            "sanderling: cannot listen on {address}: address already in use; stop the other program or choose another \
             port with {option}\n"
        );
        assert_eq!(ended.errors, expected);
    }
    check_serves(domain.server.http());
    assert_eq!(Question::new("example.com", A).ask_udp(domain.server.dns()).answer.len(), 1);
}

/// Port 0 selects a free port. Reuseport sockets share it with each other, but not with another server, and DNS not with
/// HTTP.
#[test]
fn port_chosen_by_the_kernel_is_not_shared() {
    const SERVER_COUNT: usize = 8;
    if !Command::new("unshare").args(["--net", "true"]).status().is_ok_and(|status| status.success()) {
        println!("no network of its own can be had here: nothing to see");
        return;
    }
    let folder = Folder::with(&[("public/index.html", b"hi\n"), ("zone", ZONE.as_bytes())]);
    let (public, zone) = (folder.argument("public"), format!("example.com={}", folder.argument("zone")));
    // Few ports, so that a collision is likely.
    let script = "echo 40000 40031 >/proc/sys/net/ipv4/ip_local_port_range; trap 'kill $(jobs -p); wait; exit' TERM; \
                  for server in $(seq $1); do \
                  \"$2\" serve \"$3\" --http 0.0.0.0:0 --zone \"$4\" --dns 0.0.0.0:0 --workers 2 & done; wait";
    let mut command = Command::new("unshare");
    command.args(["--net", "bash", "-c", script, "bash", &SERVER_COUNT.to_string()]);
    command.arg(sanderling().get_program()).args([&public, &zone]);
    let server = TestServer::start_command(command, ListenerCounts { http: SERVER_COUNT, dns: SERVER_COUNT });
    let mut ports: Vec<u16> = server.http_all().iter().chain(server.dns_all()).map(|address| address.port()).collect();
    ports.sort_unstable();
    assert!(ports.windows(2).all(|pair| pair[0] != pair[1]), "a port is there twice: {ports:?}");
}

/// Connections beyond the descriptor limit wait or are closed, and the server recovers.
#[test]
fn server_survives_the_descriptor_limit() {
    let site: &[(&str, &[u8])] = &[("index.html", b"hi\n"), ("large.bin", &[b'x'; 100_000])];
    let domain = Domain::serve_with_descriptors(Setup { site, zone: ZONE, ..Setup::default() }, 64);
    let mut first = HttpConnection::open(domain.server.http());
    first.get("/");
    let held: Vec<RawConnection> = (0..150).map(|_| RawConnection::open(domain.server.http())).collect();
    // Datagrams need no descriptor of their own.
    assert_eq!(Question::new("example.com", A).ask_udp(domain.server.dns()).answer.len(), 1);
    for _ in 0..3 {
        // An accepted connection gets an answer, perhaps 503.
        let answer = first.get("/large.bin");
        assert!(matches!(answer.status, 200 | 503), "{}", answer.head);
    }
    drop(held);
    check_serves(domain.server.http());
    assert_eq!(HttpConnection::open(domain.server.http()).get("/large.bin").content.len(), 100_000);
    assert_eq!(Question::new("example.com", A).ask_tcp(domain.server.dns()).answer.len(), 1);
    assert_eq!(domain.server.stop().code(), Some(0));
}

/// All variants of kernel features serve the same: see `--force`.
#[test]
fn all_forced_variants_serve_the_same() {
    let folder = Folder::with(&[
        ("public/index.html", b"hi\n"),
        ("public/large.bin", &[b'x'; 100_000]),
        ("zone", ZONE.as_bytes()),
    ]);
    let public = folder.argument("public");
    let zone = format!("example.com={}", folder.argument("zone"));
    for way in ["open=openat2", "open=walk", "udp-receive=poll-recvmsg"] {
        let arguments =
            ["serve", &public, "--http", "127.0.0.1:0", "--zone", &zone, "--dns", "127.0.0.1:0", "--force", way];
        let server = TestServer::start(&arguments, ListenerCounts { http: 1, dns: 1 });
        check_serves(server.http());
        let mut connection = HttpConnection::open(server.http());
        assert_eq!(connection.get("/large.bin").content.len(), 100_000, "{way}");
        assert_eq!(connection.get("/missing").status, 404, "{way}");
        assert_eq!(Question::new("example.com", A).ask_udp(server.dns()).answer.len(), 1, "{way}");
    }
}

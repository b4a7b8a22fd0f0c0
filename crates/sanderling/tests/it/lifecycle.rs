//! How a server starts beside others, lives through want of descriptors, and ends when it is told to.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::dns_messages::{A, Question};
use crate::domain::{Domain, Wanted, ZONE};
use crate::http_answers::{HttpConnection, check_serves, get};
use sanderling_testkit::clients::RawConnection;
use sanderling_testkit::process::{Folder, Listeners, Serving, run_to_end, sanderling};

const SITE: &[(&str, &[u8])] = &[("index.html", b"hi\n")];

/// What an idle server needs to end; twice, since other tests keep the machine busy.
const END_MAX: Duration = Duration::from_secs(2);

#[test]
fn a_signal_ends_an_idle_server_at_once() {
    for signal in ["TERM", "INT"] {
        let domain = Domain::serve(Wanted { site: SITE, zone: ZONE, ..Wanted::default() });
        // Connections that wait for nothing do not hold it.
        let mut idle = HttpConnection::open(domain.serving.http());
        idle.get("/");
        // The kernel keeps it, unless accepts are not deferred: the tests run that way, too.
        let fresh = RawConnection::open(domain.serving.http());
        let stream = RawConnection::open(domain.serving.dns());
        let start = Instant::now();
        domain.serving.signal(signal);
        let ended = domain.serving.end();
        assert!(start.elapsed() < END_MAX, "SIG{signal}: {:?}", start.elapsed());
        assert_eq!((ended.code(), ended.text().as_str(), ended.errors.as_str()), (Some(0), "", ""), "SIG{signal}");
        idle.check_closed();
        drop((fresh, stream));
    }
}

#[test]
fn a_download_is_finished_before_the_end() {
    let huge: Vec<u8> = (0..50_000_000u32).map(|index| (index >> 16) as u8).collect();
    let site: &[(&str, &[u8])] = &[("index.html", b"hi\n"), ("huge.bin", &huge)];
    let domain = Domain::serve(Wanted { site, ..Wanted::default() });
    let mut connection = HttpConnection::open(domain.serving.http());
    connection.send(get("/huge.bin"));
    let mut idle = HttpConnection::open(domain.serving.http());
    idle.get("/");
    domain.serving.signal("TERM");
    // The idle one is closed when draining has begun; only then the download goes on.
    idle.check_closed();
    assert!(connection.answer().content == huge);
    connection.check_closed();
    assert_eq!(domain.serving.end().code(), Some(0));
}

#[test]
fn a_request_that_has_begun_is_answered_before_the_end() {
    let domain = Domain::serve(Wanted { site: SITE, ..Wanted::default() });
    let mut begun = HttpConnection::open(domain.serving.http());
    begun.get("/");
    begun.send("GET / HTTP/1.1\r\nHo");
    // Proves that the octets above have arrived: the same worker may have to look at both.
    check_serves(domain.serving.http());
    let mut idle = HttpConnection::open(domain.serving.http());
    idle.get("/");
    domain.serving.signal("TERM");
    idle.check_closed();
    begun.send("st: localhost\r\n\r\n");
    let answer = begun.answer();
    assert_eq!((answer.status, answer.field("Connection")), (200, Some("close")));
    begun.check_closed();
    assert_eq!(domain.serving.end().code(), Some(0));
}

/// A peer that takes nothing must not hold the server for longer than it was given.
#[test]
fn draining_has_an_end() {
    let huge = vec![b'x'; 50_000_000];
    let site: &[(&str, &[u8])] = &[("huge.bin", &huge)];
    let domain = Domain::serve(Wanted { site, limits: "drain_timeout_ms = 500", ..Wanted::default() });
    let mut connection = HttpConnection::open(domain.serving.http());
    connection.send(get("/huge.bin"));
    connection.raw().read_bytes(1);
    let start = Instant::now();
    domain.serving.signal("TERM");
    assert_eq!(domain.serving.end().code(), Some(0));
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(480) && took < Duration::from_millis(500) + END_MAX, "{took:?}");
}

#[test]
fn a_second_server_on_the_same_port_is_told_so() {
    let domain = Domain::serve(Wanted { site: SITE, zone: ZONE, ..Wanted::default() });
    let (http, dns) = (domain.serving.http().to_string(), domain.serving.dns().to_string());
    let public = domain.folder.argument("public");
    let zone = format!("example.com={}", domain.folder.argument("zone"));
    for (arguments, address) in
        [(vec!["serve", &public, "--http", &http], &http), (vec!["serve", "--zone", &zone, "--dns", &dns], &dns)]
    {
        let mut second = sanderling();
        second.args(&arguments);
        // A server that starts would not end by itself.
        let ended = run_to_end(second, Duration::from_secs(5));
        assert_eq!((ended.code(), ended.text().as_str()), (Some(1), ""), "{ended}");
        assert!(ended.errors.contains(address.as_str()), "the address is named: {ended}");
    }
    check_serves(domain.serving.http());
    assert_eq!(Question::new("example.com", A).ask_udp(domain.serving.dns()).answer.len(), 1);
}

/// Port 0 asks for a port of one's own. Siblings share theirs (`SO_REUSEPORT`), but only with each other: not with another
/// server, and not the streams of DNS with HTTP.
#[test]
fn a_port_that_the_kernel_chose_is_nobody_else_s() {
    const SERVER_COUNT: usize = 8;
    if !Command::new("unshare").args(["--net", "true"]).status().is_ok_and(|status| status.success()) {
        println!("no network of its own can be had here: nothing to see");
        return;
    }
    let folder = Folder::with(&[("public/index.html", b"hi\n"), ("zone", ZONE.as_bytes())]);
    let (public, zone) = (folder.argument("public"), format!("example.com={}", folder.argument("zone")));
    // Few ports to choose from, so that a choice that does not look is seen.
    let script = "echo 40000 40031 >/proc/sys/net/ipv4/ip_local_port_range; trap 'kill $(jobs -p); wait; exit' TERM; \
                  for server in $(seq $1); do \
                  \"$2\" serve \"$3\" --http 0.0.0.0:0 --zone \"$4\" --dns 0.0.0.0:0 --workers 2 & done; wait";
    let mut command = Command::new("unshare");
    command.args(["--net", "bash", "-c", script, "bash", &SERVER_COUNT.to_string()]);
    command.arg(sanderling().get_program()).args([&public, &zone]);
    let serving = Serving::start_command(command, Listeners { http: SERVER_COUNT, dns: SERVER_COUNT });
    let mut ports: Vec<u16> =
        serving.http_all().iter().chain(serving.dns_all()).map(|address| address.port()).collect();
    ports.sort_unstable();
    assert!(ports.windows(2).all(|pair| pair[0] != pair[1]), "a port is there twice: {ports:?}");
}

/// Connections beyond the descriptors wait or are closed; none ends the server, and when they go all is well.
#[test]
fn want_of_descriptors_is_survived() {
    let site: &[(&str, &[u8])] = &[("index.html", b"hi\n"), ("large.bin", &[b'x'; 100_000])];
    let domain = Domain::serve_with_descriptors(Wanted { site, zone: ZONE, ..Wanted::default() }, 64);
    let mut first = HttpConnection::open(domain.serving.http());
    first.get("/");
    let held: Vec<RawConnection> = (0..150).map(|_| RawConnection::open(domain.serving.http())).collect();
    // Datagrams need no descriptor of their own.
    assert_eq!(Question::new("example.com", A).ask_udp(domain.serving.dns()).answer.len(), 1);
    for _ in 0..3 {
        // Whoever has been let in is answered, were it with an excuse.
        let answer = first.get("/large.bin");
        assert!(matches!(answer.status, 200 | 503), "{}", answer.head);
    }
    drop(held);
    check_serves(domain.serving.http());
    assert_eq!(HttpConnection::open(domain.serving.http()).get("/large.bin").content.len(), 100_000);
    assert_eq!(Question::new("example.com", A).ask_tcp(domain.serving.dns()).answer.len(), 1);
    assert_eq!(domain.serving.stop().code(), Some(0));
}

/// Every way that the kernel may leave to the program passes the same: see `--force`.
#[test]
fn every_way_serves_the_same() {
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
        let serving = Serving::start(&arguments, Listeners { http: 1, dns: 1 });
        check_serves(serving.http());
        let mut connection = HttpConnection::open(serving.http());
        assert_eq!(connection.get("/large.bin").content.len(), 100_000, "{way}");
        assert_eq!(connection.get("/missing").status, 404, "{way}");
        assert_eq!(Question::new("example.com", A).ask_udp(serving.dns()).answer.len(), 1, "{way}");
    }
}

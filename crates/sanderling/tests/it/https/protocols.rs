//! The negotiated protocols, and the refused ones.

use super::{BOTH, CONFIG, domain, s_client};
use sanderling_testkit::{RawConnection, TestServer, tcp_exchange, wait_until};

#[test]
fn protocol_of_a_listener_is_agreed_on_or_refused() {
    let directory = domain();
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let (https, dot) = (server.encrypted("https"), server.encrypted("dot"));
    for version in ["-tls1_2", "-tls1_3"] {
        let connect = |server, alpn: &str| s_client(server, &format!("{version} {alpn}"));
        for (server, offered, agreed) in [
            (https, "http/1.1", "http/1.1"),
            (https, "http/1.1,h2", "h2"),
            (https, "dot,h2", "h2"),
            (dot, "dot", "dot"),
            (dot, "h2,dot", "dot"),
        ] {
            let shown = connect(server, &format!("-alpn {offered}"));
            assert!(shown.contains(&format!("ALPN protocol: {agreed}\n")), "{version} {offered}: {shown}");
        }
        for server in [https, dot] {
            let shown = connect(server, "");
            assert!(shown.contains("No ALPN negotiated") && !shown.contains("Cipher is (NONE)"), "{version}: {shown}");
        }
        for (server, offered) in [(https, "dot"), (https, "h3"), (dot, "h2"), (dot, "http/1.1,doq")] {
            let shown = connect(server, &format!("-alpn {offered}"));
            assert!(shown.contains("alert no application protocol"), "{version} {offered}: {shown}");
        }
    }
}

/// A ClientHello of this version with one suite, and one signature scheme.
fn client_hello(version: [u8; 2]) -> Vec<u8> {
    let suites_and_compressions = [0, 2, 0xc0, 0x2b, 1, 0];
    let extensions = [0, 8, 0, 13, 0, 4, 0, 2, 4, 3];
    let message = [&[1, 0, 0, 51], &version[..], &[7; 32], &[0], &suites_and_compressions, &extensions].concat();
    [&[22, 3, 1, 0, 55], &message[..]].concat()
}

#[test]
fn other_protocols_get_an_alert_or_status_400() {
    /// `decode_error`, and `protocol_version` (RFC 8446 §6.2).
    const DECODE_ERROR: &[u8] = &[21, 3, 3, 0, 2, 2, 50];
    const PROTOCOL_VERSION: &[u8] = &[21, 3, 3, 0, 2, 2, 70];
    let directory = domain();
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let (http, https, dot) = (server.http(), server.encrypted("https"), server.encrypted("dot"));
    for address in [https, dot] {
        for version in [[3, 0], [3, 1], [3, 2]] {
            assert_eq!(tcp_exchange(address, &client_hello(version)), PROTOCOL_VERSION, "{version:?}");
        }
        // SSL 2.0: a length, then the type, then the version.
        let ssl2 = [&[0x80, 0x2e, 1, 0, 2, 0, 21, 0, 0, 0, 16][..], &[7; 37]].concat();
        for bytes in [&b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n"[..], b"\0\x1d\0\x07\0\0\0\x01", &ssl2] {
            assert_eq!(tcp_exchange(address, bytes), DECODE_ERROR, "{}", bytes.escape_ascii());
        }
    }
    assert!(tcp_exchange(http, &client_hello([3, 3])).starts_with(b"HTTP/1.1 400 "));
}

#[test]
fn unfinished_handshakes_hinder_no_other_client_and_are_closed() {
    const COUNT: usize = 300;
    let directory = domain();
    directory.replace("sanderling.toml", &[CONFIG, b"[limits]\ntls_handshake_timeout_ms = 2000\n"].concat());
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let https = server.encrypted("https");
    let hello = client_hello([3, 3]);
    let mut unfinished: Vec<RawConnection> = (0..COUNT)
        .map(|index| {
            let mut client = RawConnection::open(https);
            // Without a byte, the connection would not be accepted yet.
            client.send(&hello[..1 + index % (hello.len() - 1)]);
            client
        })
        .collect();
    assert!(s_client(https, "-alpn http/1.1").contains("HTTP/1.1 200 OK"));
    unfinished.iter_mut().for_each(|client| drop(client.read_to_close()));
    wait_until("all are closed", || {
        let status = directory.control_with("status", &["--verbose"]).text();
        ["worker 0", "worker 1"].iter().all(|worker| {
            status.lines().any(|line| line.trim_start().starts_with(worker) && line.contains("open 0 HTTP"))
        })
    });
    assert!(directory.control("status").text().contains(&format!("tls_timeouts {COUNT}")));
}

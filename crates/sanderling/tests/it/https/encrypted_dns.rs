//! kdig over all transports: replies differ only in their maximum size.

use super::{BOTH, domain};
use sanderling_testkit::{Ended, TestServer, kdig};
use std::net::SocketAddr;

const ZONE: &str = "$ORIGIN example.com.\n@ 3600 IN SOA ns1 host 1 3600 600 86400 300\n@ NS ns1\n@ NS ns.child\n@ MX 10 mail\n\
    ns1 A 192.0.2.1\nns1 AAAA 2001:db8::1\nmail A 192.0.2.2\nwww CNAME ns1\n*.wild TXT \"any\"\nempty.node A 192.0.2.3\n\
    child NS ns.child\nns.child A 192.0.2.4\nsvc HTTPS 1 . alpn=h2\n";

/// A reply of kdig without the time, the address and the transport.
#[track_caller]
fn reply(server: SocketAddr, options: &[&str]) -> String {
    let shown = ["+header", "+question", "+answer", "+authority", "+additional", "+opttext", "+nostats"];
    let ended = kdig(server, &[&shown[..], options].concat());
    assert_eq!(ended.code(), Some(0), "{options:?}: {ended}");
    without_transport(&ended)
}

/// The lines but those with the ID, the session of TLS, and the padding.
fn without_transport(ended: &Ended) -> String {
    let text = ended.text();
    let is_kept = |line: &&str| {
        !["TLS session", "HTTP session", ";; PADDING", ";; Padding"].iter().any(|start| line.contains(start))
    };
    let lines = text.lines().filter(is_kept).map(|line| match line.split_once("; id: ") {
        Some((before, _)) => before,
        None => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn replies_are_those_over_udp_and_tcp() {
    let directory = domain();
    let large: String = (0..100).map(|index| format!("large TXT \"{index} {}\"\n", "x".repeat(200))).collect();
    directory.write("example.com.zone", format!("{ZONE}{large}").as_bytes());
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let (plain, dot, https) = (server.dns(), server.encrypted("dot"), server.encrypted("https"));
    let questions = [
        "example.com SOA",
        "example.com NS",
        "example.com MX",
        "example.com ANY",
        "www.example.com A",
        "x.wild.example.com TXT",
        "node.example.com A",
        "missing.example.com A",
        "a.child.example.com AAAA",
        "svc.example.com HTTPS",
        "example.org A",
        "large.example.com TXT",
    ];
    let all_options = [&["+edns"][..], &["+dnssec", "+cd"], &["+noedns", "+nordflag"]];
    for (question, options) in questions.iter().zip(all_options.iter().cycle()) {
        let words: Vec<&str> = question.split(' ').chain(options.iter().copied()).collect();
        let reply = |server, transport: &[&str]| reply(server, &[&words, transport].concat());
        let over_tcp = reply(plain, &["+tcp"]);
        assert!(over_tcp.contains("status: "), "{over_tcp}");
        if !question.starts_with("large") {
            assert_eq!(reply(plain, &["+notcp"]), over_tcp, "over UDP");
        }
        assert_eq!(reply(dot, &["+tls"]), over_tcp, "over TLS");
        assert_eq!(reply(https, &["+https=/dns-query"]), over_tcp, "over HTTPS, by POST");
        assert_eq!(reply(https, &["+https=/dns-query", "+https-get"]), over_tcp, "over HTTPS, by GET");
    }
}

#[test]
fn transfers_are_refused() {
    let directory = domain();
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let ended = kdig(server.encrypted("dot"), &["+tls", "example.com", "AXFR"]);
    assert!(ended.errors.contains("REFUSED"), "{ended}");
}

#[test]
fn replies_to_padded_queries_are_padded() {
    let directory = domain();
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let (plain, dot, https) = (server.dns(), server.encrypted("dot"), server.encrypted("https"));
    let size = |server, options: &[&str]| {
        let ended = kdig(server, &[&["ns1.example.com", "A"], options].concat());
        let text = ended.text();
        let received = text.lines().find_map(|line| line.strip_prefix(";; Received ")).unwrap_or_default();
        received.split(' ').next().unwrap_or_default().to_owned()
    };
    // RFC 8467 §4.1: multiples of 468 bytes, only over encrypted transports.
    for options in [&["+tls", "+padding"][..], &["+tls", "+padding=1"], &["+tls", "+alignment=128"]] {
        assert_eq!(size(dot, options), "468", "{options:?}");
    }
    for options in [&["+https=/dns-query", "+padding"][..], &["+https=/dns-query", "+https-get", "+padding"]] {
        assert_eq!(size(https, options), "468", "{options:?}");
    }
    for (server, options) in [(plain, &["+tcp", "+padding"][..]), (dot, &["+tls", "+edns", "+nopadding"])] {
        assert_ne!(size(server, options), "468", "{options:?}");
    }
}

#[test]
fn connection_carries_several_queries() {
    let directory = domain();
    let mut server = TestServer::start_command(directory.serve_command(), BOTH);
    let dot = server.encrypted("dot");
    let ended = kdig(dot, &["+tls", "+keepopen", "+short", "ns1.example.com", "A", "ns1.example.com", "A"]);
    assert_eq!(ended.text(), "192.0.2.1\n192.0.2.1\n", "{ended}");
    let status = directory.control("status").text();
    assert!(status.contains("tls_handshakes 1"), "{status}");
}

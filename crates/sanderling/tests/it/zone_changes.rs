//! Secondary servers learn of changes at once: NOTIFY to NSD, Knot and BIND.

use super::name_servers::{NameServer, Peer, Program, SECRET, TSIG, records};
use sanderling_testkit::{ListenerCounts, TestDirectory, TestServer, dig, free_address, wait_until};
use std::net::SocketAddr;

/// A zone whose secondaries do not look for a later version on their own.
fn zone(serial: u32) -> String {
    format!(
        "$TTL 300\n@ SOA ns1 host {serial} 3600 3600 36000 60\n@ NS ns1\nns1 A 192.0.2.1\nserial TXT \"{serial}\"\n"
    )
}

/// A primary of `example.com` with a secondary at this address.
fn primary(secondary: SocketAddr) -> (TestDirectory, TestServer) {
    let directory = TestDirectory::new();
    directory.write("example.com.zone", zone(u32::MAX).as_bytes());
    directory.write("transfer.key", format!("{SECRET}\n").as_bytes());
    let config = format!(
        "workers = 1\nstate = \"state\"\n[dns]\nlisten = [\"127.0.0.1:0\"]\n[tsig.transfer]\nsecret_file = \"transfer.key\"\n\
         [domain.\"example.com\"]\nzone = \"example.com.zone\"\n\
         secondaries = [{{ address = \"{secondary}\", key = \"transfer\" }}]\n"
    );
    directory.write("sanderling.toml", config.as_bytes());
    let server = TestServer::start_command(directory.serve_command(), ListenerCounts { http: 0, dns: 1 });
    (directory, server)
}

#[track_caller]
fn wait_for_serial(secondary: &NameServer, server: &TestServer) {
    let expected = records(&dig(server.dns(), &["-y", TSIG, "example.com", "AXFR"]));
    assert!(expected.len() > 3);
    wait_until("the secondary has the version of the primary", || secondary.records() == expected);
}

#[track_caller]
fn check_notified(program: Program) {
    let address = free_address();
    let (directory, server) = primary(address);
    let mut secondary = program.start(address, Peer::Primary(server.dns()), "");
    wait_for_serial(&secondary, &server);
    // RFC 1982: 0 is after 4294967295.
    for serial in [0, 1] {
        directory.replace("example.com.zone", zone(serial).as_bytes());
        assert_eq!(directory.control_with("reload", &["example.com"]).code(), Some(0));
        wait_for_serial(&secondary, &server);
        let confirmed = format!("\"serial\":{serial},\"outcome\":\"confirmed\"");
        wait_until("the status has the confirmation", || {
            directory.control_with("status", &["--json"]).text().contains(&confirmed)
        });
    }
    secondary.kill();
    directory.replace("example.com.zone", zone(2).as_bytes());
    assert_eq!(directory.control("reload").code(), Some(0));
    secondary.restart();
    wait_for_serial(&secondary, &server);
}

#[test]
fn nsd_is_notified() {
    check_notified(Program::Nsd);
}

#[test]
fn knot_is_notified() {
    check_notified(Program::Knot);
}

#[test]
fn bind_is_notified() {
    check_notified(Program::Bind);
}

#[test]
fn notify_is_repeated_until_it_is_answered_and_then_given_up() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    silent.set_read_timeout(Some(sanderling_testkit::DEADLINE)).unwrap();
    let (directory, server) = primary(silent.local_addr().unwrap());
    let mut message = [0; 512];
    for _ in 0..2 {
        let (length, client) = silent.recv_from(&mut message).expect("a NOTIFY");
        // The opcode NOTIFY with AA, one question and a signature (RFC 1996 section 3.7).
        assert_eq!((message[2], message[5], message[11]), (0x24, 1, 1));
        assert!(message[..length].windows(13).any(|name| name == b"\x07example\x03com\0"));
        assert_eq!(client.ip(), silent.local_addr().unwrap().ip());
        // Without its signature, a confirmation is a refusal.
        message[2] |= 0x80;
        message[11] = 0;
    }
    let (_, client) = silent.recv_from(&mut message).expect("a NOTIFY");
    let mut refused = [&message[..2], &[0xa4, 5, 0, 1, 0, 0, 0, 0, 0, 0]].concat();
    refused.extend_from_slice(&message[12..29]);
    silent.send_to(&refused, client).unwrap();
    server.wait_for_error("zone example.com: giving up NOTIFY of serial 4294967295 to 127.0.0.1:");
    server.wait_for_error(": it sends a message without a signature");
    let status = directory.control("status").text();
    assert!(status.contains("zone example.com: giving up NOTIFY of serial 4294967295 to 127.0.0.1:"), "{status}");
}

//! Answers from a zone, by RFC 1034 §4.3.2 and its successors.

use std::net::{Ipv4Addr, SocketAddr};

use crate::dns_messages::{
    A, AAAA, ANY, AXFR, BADVERS, CNAME, DNAME, FORMERR, NOERROR, NS, NXDOMAIN, OPT, Question, REFUSED, Reply, TXT,
};
use crate::domain::{Domain, Setup, ZONE};
use sanderling_testkit::{
    Folder, ListenerCounts, RawConnection, TestServer, UdpClient, dig, framed, kdig, run, tcp_reply,
};

#[test]
fn dig_and_kdig_get_the_soa() {
    let domain = Domain::with_zone(ZONE);
    for transport in ["+notcp", "+tcp"] {
        let ended = dig(domain.server.dns(), &["example.com", "SOA", transport]);
        let text = ended.text();
        assert!(text.contains("status: NOERROR") && text.contains("flags: qr aa rd;"), "{ended}");
        assert!(text.contains("ns1.example.com. hostmaster.example.com. 2024010101"), "{ended}");
        assert!(!text.contains("WARNING: Message") && !text.contains("malformed"), "{ended}");
        let ended = kdig(domain.server.dns(), &["example.com", "SOA", transport]);
        let text = ended.text();
        assert!(text.contains("status: NOERROR") && text.contains("Flags: qr aa rd;"), "{ended}");
        assert!(text.contains("2024010101"), "{ended}");
    }
}

/// Queries over both transports, and compares the whole reply in the form of [`Reply::summary`].
#[track_caller]
fn check(domain: &Domain, name: &str, rtype: u16, expected: &str) {
    let question = Question { edns: Some((1232, 0)), ..Question::new(name, rtype) };
    for reply in [question.ask_udp(domain.server.dns()), question.ask_tcp(domain.server.dns())] {
        assert_eq!(reply.summary(), expected, "{name} {rtype}");
        assert_eq!((reply.id, reply.question_count), (question.id, 1));
        assert!(reply.edns.is_some(), "an OPT answers an OPT (RFC 6891 §6.1.1)");
        assert_eq!(reply.flags & 0x0100, 0x0100, "RD is copied");
        assert_eq!(reply.flags & 0x00f0, 0, "no RA, no Z, no AD, no CD");
    }
}

#[test]
fn positive_answers() {
    let domain = Domain::with_zone(ZONE);
    check(&domain, "example.com", A, "0 AA\nan example.com. 300 1 192.0.2.1");
    check(&domain, "EXAMPLE.com", A, "0 AA\nan example.com. 300 1 192.0.2.1");
    check(
        &domain,
        "example.com",
        NS,
        "0 AA\nan example.com. 300 2 ns1.example.com.\nan example.com. 300 2 ns2.example.com.\
         \nad ns1.example.com. 300 1 192.0.2.2\nad ns2.example.com. 300 1 192.0.2.3",
    );
    check(&domain, "deep.empty.terminal.example.com", TXT, TERMINAL);
}

const TERMINAL: &str = "0 AA\nan deep.empty.terminal.example.com. 300 16 below two empty non-terminals";
/// The negative TTL is the lesser of the SOA's TTL and its last field (RFC 2308 §5).
const NEGATIVE_SOA: &str = "\nau example.com. 60 6 ns1.example.com.";

#[test]
fn negative_answers_have_the_soa() {
    let domain = Domain::with_zone(ZONE);
    let no_data = format!("0 AA{NEGATIVE_SOA}");
    let name_error = format!("3 AA{NEGATIVE_SOA}");
    check(&domain, "mail.example.com", TXT, &no_data);
    check(&domain, "missing.example.com", A, &name_error);
    check(&domain, "a.b.c.missing.example.com", A, &name_error);
    check(&domain, "below.mail.example.com", A, &name_error);
    // Empty non-terminals exist (RFC 8020).
    check(&domain, "terminal.example.com", A, &no_data);
    check(&domain, "empty.terminal.example.com", TXT, &no_data);
    check(&domain, "x.empty.terminal.example.com", TXT, &name_error);
    check(&domain, "wild.example.com", A, &no_data);
}

#[test]
fn wildcards_match_names_that_do_not_exist() {
    let domain = Domain::with_zone(ZONE);
    check(&domain, "any.wild.example.com", A, "0 AA\nan any.wild.example.com. 300 1 192.0.2.5");
    check(&domain, "a.b.c.wild.example.com", A, "0 AA\nan a.b.c.wild.example.com. 300 1 192.0.2.5");
    check(&domain, "*.wild.example.com", A, "0 AA\nan *.wild.example.com. 300 1 192.0.2.5");
    check(&domain, "any.wild.example.com", AAAA, &format!("0 AA{NEGATIVE_SOA}"));
    check(&domain, "tame.wild.example.com", TXT, &format!("0 AA{NEGATIVE_SOA}"));
    // The closest encloser exists and has no wildcard (RFC 4592 §4.1).
    check(&domain, "below.tame.wild.example.com", A, &format!("3 AA{NEGATIVE_SOA}"));
}

#[test]
fn aliases_are_followed_within_the_zone() {
    let domain = Domain::with_zone(ZONE);
    let www = "an www.example.com. 300 5 example.com.";
    let apex = "an example.com. 300 1 192.0.2.1";
    check(&domain, "www.example.com", A, &format!("0 AA\n{www}\n{apex}"));
    check(
        &domain,
        "chain.example.com",
        A,
        &format!("0 AA\nan chain.example.com. 300 5 www.example.com.\n{www}\n{apex}"),
    );
    check(&domain, "www.example.com", CNAME, &format!("0 AA\n{www}"));
    check(&domain, "www.example.com", AAAA, &format!("0 AA\n{www}{NEGATIVE_SOA}"));
    check(&domain, "away.example.com", A, "0 AA\nan away.example.com. 300 5 www.example.org.");
    // RFC 6604 §3: the RCODE is that of the last name of the chain.
    let dangling = "an dangling.example.com. 300 5 missing.example.com.";
    check(&domain, "dangling.example.com", A, &format!("3 AA\n{dangling}{NEGATIVE_SOA}"));
    check(
        &domain,
        "loop1.example.com",
        A,
        "0 AA\nan loop1.example.com. 300 5 loop2.example.com.\nan loop2.example.com. 300 5 loop1.example.com.",
    );
    check(
        &domain,
        "x.tree.example.com",
        A,
        "0 AA\nan tree.example.com. 300 39 www.example.org.\nan x.tree.example.com. 300 5 x.www.example.org.",
    );
    check(&domain, "tree.example.com", DNAME, "0 AA\nan tree.example.com. 300 39 www.example.org.");
}

#[test]
fn delegations_are_referrals_with_glue() {
    let domain = Domain::with_zone(ZONE);
    let referral = "0\nau child.example.com. 300 2 ns.child.example.com.\
                    \nau child.example.com. 300 2 ns.elsewhere.example.org.\
                    \nad ns.child.example.com. 300 1 192.0.2.7";
    for (name, rtype) in [
        ("child.example.com", A),
        ("child.example.com", NS),
        ("a.b.child.example.com", TXT),
        ("ns.child.example.com", A),
    ] {
        check(&domain, name, rtype, referral);
    }
}

#[test]
fn name_outside_of_all_zones_is_refused() {
    let domain = Domain::with_zone(ZONE);
    for name in ["example.org", "com", ".", "xexample.com", "example.com.org"] {
        check(&domain, name, A, "5");
    }
    check(&domain, "example.com", AXFR, "5");
}

#[test]
fn any_query_gets_one_rrset() {
    let domain = Domain::with_zone(ZONE);
    let reply = Question::new("mail.example.com", ANY).ask_udp(domain.server.dns());
    // RFC 8482 §4.1.
    assert_eq!((reply.rcode, reply.answer.len()), (NOERROR, 1), "{}", reply.summary());
    let reply = Question::new("missing.example.com", ANY).ask_udp(domain.server.dns());
    assert_eq!(reply.rcode, NXDOMAIN);
}

#[test]
fn other_classes_are_refused() {
    let domain = Domain::with_zone(ZONE);
    for class in [0, 2, 3, 4, 254, 255, 999, 65_535] {
        let reply = Question { class, ..Question::new("example.com", A) }.ask_udp(domain.server.dns());
        assert_eq!((reply.rcode, reply.answer.len()), (REFUSED, 0), "class {class}");
    }
}

#[test]
fn edns_payload_size_is_respected() {
    let domain = Domain::with_zone(ZONE);
    let server = domain.server.dns();
    let whole = Question::new("big.example.com", TXT).ask_tcp(server);
    assert_eq!((whole.answer.len(), whole.is_truncated(), whole.edns), (5, false, None));
    assert!(whole.length_bytes > 512, "{}", whole.length_bytes);
    for (edns, is_truncated) in [
        (None, true),
        (Some((0, 0)), true),
        (Some((511, 0)), true),
        (Some((512, 0)), true),
        (Some((1232, 0)), false),
        (Some((65_535, 0)), false),
    ] {
        let reply = Question { edns, ..Question::new("big.example.com", TXT) }.ask_udp(server);
        assert_eq!(reply.is_truncated(), is_truncated, "{edns:?}");
        assert_eq!(reply.edns.is_some(), edns.is_some(), "{edns:?}");
        if is_truncated {
            assert!(reply.length_bytes <= 512 && reply.answer.is_empty(), "{edns:?}: {}", reply.summary());
        } else {
            assert_eq!(reply.answer, whole.answer);
        }
    }
    let exactly = u16::try_from(whole.length_bytes + 11).unwrap();
    for (payload, is_truncated) in [(exactly, false), (exactly - 1, true)] {
        let reply = Question { edns: Some((payload, 0)), ..Question::new("big.example.com", TXT) }.ask_udp(server);
        assert_eq!(reply.is_truncated(), is_truncated, "{payload} of {exactly}");
    }
    // RFC 6891 §6.1.3.
    for version in [1, 255] {
        let reply = Question { edns: Some((1232, version)), ..Question::new("example.com", A) }.ask_udp(server);
        assert_eq!((reply.rcode, reply.answer.len(), reply.edns), (BADVERS, 0, Some((1232, 0))));
    }
    // The client has not sent an OPT.
    assert_eq!(Question::new("example.com", OPT).ask_udp(server).rcode, FORMERR);
}

#[test]
fn dig_retries_a_truncated_reply_over_tcp() {
    let domain = Domain::with_zone(ZONE);
    let ended = dig(domain.server.dns(), &["big.example.com", "TXT", "+noedns"]);
    assert!(ended.text().contains("retrying in TCP mode") && ended.text().contains("ANSWER: 5"), "{ended}");
}

/// Replies much larger than the limit of UDP arrive completely.
#[test]
fn long_replies_are_sent_over_tcp() {
    const RECORD_COUNT: usize = 230;
    let big: String = (0..RECORD_COUNT).map(|index| format!("huge TXT \"{index:04}{}\"\n", "x".repeat(250))).collect();
    let domain = Domain::with_zone(&format!("{ZONE}{big}"));
    let reply = Question::new("huge.example.com", TXT).ask_tcp(domain.server.dns());
    assert_eq!((reply.is_truncated(), reply.answer.len()), (false, RECORD_COUNT), "{} bytes", reply.length_bytes);
    assert!(reply.length_bytes > 60_000);
    let mut texts: Vec<&[u8]> = reply.answer.iter().map(|record| &record.rdata[1..5]).collect();
    texts.sort_unstable();
    assert!(texts.iter().enumerate().all(|(index, text)| *text == format!("{index:04}").as_bytes()));
    let question = Question { edns: Some((65_535, 0)), ..Question::new("huge.example.com", TXT) };
    assert!(question.ask_udp(domain.server.dns()).is_truncated());
}

/// An RRset that fits into no reply is refused at load; all others arrive completely.
#[test]
fn rrset_larger_than_a_message_is_refused() {
    // A record has 267 bytes: the limit is between 240 and 250 records.
    for record_count in 240..=250 {
        let big: String =
            (0..record_count).map(|index| format!("huge TXT \"{index:04}{}\"\n", "x".repeat(250))).collect();
        let folder = Folder::with(&[("zone", format!("{ZONE}{big}").as_bytes())]);
        let zone = format!("example.com={}", folder.argument("zone"));
        let checked = run(&["check", "--zone", &zone]);
        if checked.code() == Some(0) {
            let server = TestServer::start(
                &["serve", "--zone", &zone, "--dns", "127.0.0.1:0"],
                ListenerCounts { http: 0, dns: 1 },
            );
            let reply = Question::new("huge.example.com", TXT).ask_tcp(server.dns());
            assert_eq!((reply.is_truncated(), reply.answer.len()), (false, record_count));
            assert!(record_count < 250);
        } else {
            assert!(record_count > 240 && checked.errors.contains("huge.example.com"), "{record_count}: {checked}");
        }
    }
}

#[test]
fn udp_reply_limit_is_respected() {
    let limits = "dns_udp_answer_bytes_max = 512";
    let domain = Domain::serve(Setup { zone: ZONE, limits, ..Setup::default() });
    let reply = Question { edns: Some((4096, 0)), ..Question::new("big.example.com", TXT) };
    let reply = reply.ask_udp(domain.server.dns());
    assert!(reply.is_truncated() && reply.length_bytes <= 512);
    assert_eq!(reply.edns, Some((512, 0)));
}

/// A hundred queries in one write: each gets its own reply.
#[test]
fn queries_may_be_pipelined_over_tcp() {
    const COUNT: u16 = 100;
    let domain = Domain::with_zone(ZONE);
    let mut raw = RawConnection::open(domain.server.dns());
    raw.send(&pipeline(COUNT));
    check_pipeline(&mut raw, COUNT);
    raw.send(&pipeline(COUNT));
    raw.finish_sending();
    check_pipeline(&mut raw, COUNT);
    assert!(raw.read_to_close().is_empty());
}

#[test]
fn query_with_fin_is_answered() {
    let limits = "dns_tcp_idle_timeout_ms = 60000";
    let domain = Domain::serve(Setup { zone: ZONE, limits, ..Setup::default() });
    for _ in 0..3 {
        let mut raw = RawConnection::open(domain.server.dns());
        raw.send(&pipeline(1));
        check_pipeline(&mut raw, 1);
        domain.server.signal("STOP");
        raw.send(&pipeline(1));
        raw.finish_sending();
        domain.server.signal("CONT");
        check_pipeline(&mut raw, 1);
        assert_eq!(raw.read_to_close(), b"");
    }
}

#[test]
fn queries_may_arrive_byte_by_byte() {
    const COUNT: u16 = 20;
    let domain = Domain::with_zone(ZONE);
    let mut raw = RawConnection::open(domain.server.dns());
    for byte in pipeline(COUNT) {
        raw.send(&[byte]);
    }
    check_pipeline(&mut raw, COUNT);
}

/// The replies exceed the socket buffers and are read after all queries have been sent.
#[test]
fn client_that_reads_late_gets_all_replies() {
    const COUNT: u16 = 20_000;
    let domain = Domain::with_zone(ZONE);
    let mut raw = RawConnection::open(domain.server.dns());
    let mut sending = raw.second_end();
    let sender = std::thread::spawn(move || sending.send(&pipeline(COUNT)));
    check_pipeline(&mut raw, COUNT);
    sender.join().expect("all was sent");
}

/// Queries with different IDs and names, with their lengths.
fn pipeline(count: u16) -> Vec<u8> {
    (0..count)
        .flat_map(|id| {
            let name = format!("n{id}.wild.example.com");
            framed(&Question { id, ..Question::new(&name, A) }.message())
        })
        .collect()
}

/// Replies may arrive in any order (RFC 7766 §6.2.1.1), each once.
#[track_caller]
fn check_pipeline(raw: &mut RawConnection, count: u16) {
    let mut is_answered = vec![false; usize::from(count)];
    for _ in 0..count {
        let reply = Reply::read(&raw.read_message());
        let owner = format!("n{}.wild.example.com.", reply.id);
        assert_eq!(reply.summary(), format!("0 AA\nan {owner} 300 1 192.0.2.5"));
        assert!(!std::mem::replace(&mut is_answered[usize::from(reply.id)], true), "{} twice", reply.id);
    }
}

/// A listener on all addresses replies from the queried address: a connected socket accepts no other.
#[test]
fn reply_comes_from_the_queried_address() {
    let folder = Folder::with(&[("zone", ZONE.as_bytes())]);
    let zone = format!("example.com={}", folder.argument("zone"));
    for (any, queried) in [("0.0.0.0:0", &["127.0.0.1", "127.0.0.7"][..]), ("[::]:0", &["::1", "127.0.0.9"])] {
        let server = TestServer::start(&["serve", "--zone", &zone, "--dns", any], ListenerCounts { http: 0, dns: 1 });
        for address in queried {
            let server = SocketAddr::new(address.parse().unwrap(), server.dns().port());
            if any == "[::]:0" && server.is_ipv4() && !takes_ipv4(server) {
                // The listener may be for IPv6 only.
                continue;
            }
            let reply = Question::new("example.com", A).ask_udp(server);
            assert_eq!(reply.answer[0].rdata, [192, 0, 2, 1]);
            assert_eq!(tcp_reply(server, &Question::new("example.com", A).message())[3] & 15, 0);
        }
    }
}

fn takes_ipv4(server: SocketAddr) -> bool {
    std::net::TcpStream::connect(server).is_ok()
}

/// Reuseport sockets share a port; the kernel selects one by the client's port.
#[test]
fn all_workers_answer() {
    let domain = Domain::serve(Setup { zone: ZONE, worker_count: 4, ..Setup::default() });
    for _ in 0..64 {
        let client = UdpClient::new(domain.server.dns());
        client.send(&Question::new("example.com", A).message());
        assert_eq!(Reply::read(&client.receive()).answer.len(), 1);
    }
}

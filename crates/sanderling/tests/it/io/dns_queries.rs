//! DNS queries over UDP and TCP. The tests of the dns crate have all cases of answers.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use crate::domain::{Domain, Setup, ZONE};
use sanderling_testkit::dns::{A, ANY, NS, Question, Reply, TXT};
use sanderling_testkit::{ListenerCounts, RawConnection, TestDirectory, TestServer, dig_udp, framed, kdig, tcp_reply};

#[test]
fn dig_and_kdig_get_the_soa() {
    let domain = Domain::with_zone(ZONE);
    for transport in ["+notcp", "+tcp"] {
        let ended = dig_udp(domain.server.dns(), &["example.com", "SOA", transport]);
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

/// Checks the replies over both transports; see [`Reply::summary`] for the form.
#[track_caller]
fn check(domain: &Domain, name: &str, rtype: u16, expected: &str) {
    let question = Question { edns: Some((1232, 0)), ..Question::new(name, rtype) };
    for reply in [question.query_udp(domain.server.dns()), question.query_tcp(domain.server.dns())] {
        assert_eq!(reply.summary(), expected, "{name} {rtype}");
        assert_eq!((reply.id, reply.question_count), (question.id, 1));
        assert!(reply.edns.is_some(), "an OPT answers an OPT (RFC 6891 §6.1.1)");
        assert_eq!(reply.flags & 0x01f0, 0x0100, "RD is copied; no RA, Z, AD or CD");
    }
}

#[test]
fn each_kind_of_answer_over_both_transports() {
    let domain = Domain::with_zone(ZONE);
    // The negative TTL is the lesser of the SOA's own and its last field (RFC 2308 §5).
    let soa = "\nau example.com. 60 6 ns1.example.com.";
    check(&domain, "EXAMPLE.com", A, "0 AA\nan example.com. 300 1 192.0.2.1");
    let name_servers = "0 AA\nan example.com. 300 2 ns1.example.com.\nan example.com. 300 2 ns2.example.com.\
                        \nad ns1.example.com. 300 1 192.0.2.2\nad ns2.example.com. 300 1 192.0.2.3";
    check(&domain, "example.com", NS, name_servers);
    check(&domain, "missing.example.com", A, &format!("3 AA{soa}"));
    check(&domain, "any.wild.example.com", A, "0 AA\nan any.wild.example.com. 300 1 192.0.2.5");
    let chain = "0 AA\nan chain.example.com. 300 5 www.example.com.\nan www.example.com. 300 5 example.com.\
                 \nan example.com. 300 1 192.0.2.1";
    check(&domain, "chain.example.com", A, chain);
    let dname = "an tree.example.com. 300 39 www.example.org.";
    check(&domain, "x.tree.example.com", A, &format!("0 AA\n{dname}\nan x.tree.example.com. 300 5 x.www.example.org."));
    let referral = "0\nau child.example.com. 300 2 ns.child.example.com.\
                    \nau child.example.com. 300 2 ns.elsewhere.example.org.\
                    \nad ns.child.example.com. 300 1 192.0.2.7";
    check(&domain, "a.b.child.example.com", TXT, referral);
    check(&domain, "example.org", A, "5");
    let any = Question::new("mail.example.com", ANY).query_udp(domain.server.dns());
    assert_eq!((any.rcode, any.answer.len()), (0, 1), "{}", any.summary());
}

#[test]
fn configured_limit_of_udp_replies_applies() {
    let limits = "dns_udp_answer_bytes_max = 512";
    let domain = Domain::serve(Setup { zone: ZONE, limits, ..Setup::default() });
    let question = Question { edns: Some((4096, 0)), ..Question::new("big.example.com", TXT) };
    let reply = question.query_udp(domain.server.dns());
    assert!(reply.is_truncated() && reply.length_bytes <= 512);
    assert_eq!(reply.edns, Some((512, 0)));
}

#[test]
fn dig_retries_over_tcp_after_a_truncated_reply() {
    let domain = Domain::with_zone(ZONE);
    let ended = dig_udp(domain.server.dns(), &["big.example.com", "TXT", "+noedns"]);
    let text = ended.text();
    assert!(text.contains("retrying in TCP mode") && text.contains("ANSWER: 5"), "{ended}");
}

#[test]
fn long_reply_over_tcp_is_whole() {
    const RECORD_COUNT: usize = 230;
    let records: String =
        (0..RECORD_COUNT).map(|index| format!("huge TXT \"{index:04}{}\"\n", "x".repeat(250))).collect();
    let domain = Domain::with_zone(&format!("{ZONE}{records}"));
    let reply = Question::new("huge.example.com", TXT).query_tcp(domain.server.dns());
    assert_eq!((reply.is_truncated(), reply.answer.len()), (false, RECORD_COUNT), "{} bytes", reply.length_bytes);
    assert!(reply.length_bytes > 60_000);
    let mut texts: Vec<&[u8]> = reply.answer.iter().map(|record| &record.rdata[1..5]).collect();
    texts.sort_unstable();
    assert!(texts.iter().enumerate().all(|(index, text)| *text == format!("{index:04}").as_bytes()));
    let question = Question { edns: Some((65_535, 0)), ..Question::new("huge.example.com", TXT) };
    assert!(question.query_udp(domain.server.dns()).is_truncated());
}

#[test]
fn pipelined_queries_are_each_answered_once() {
    const COUNT: u16 = 100;
    let domain = Domain::with_zone(ZONE);
    let mut tcp = RawConnection::open(domain.server.dns());
    tcp.send(&pipeline(COUNT));
    check_replies(&mut tcp, COUNT);
    tcp.send(&pipeline(COUNT));
    tcp.finish_sending();
    check_replies(&mut tcp, COUNT);
    assert!(tcp.read_to_close().is_empty());
}

/// The poller reports both with one event.
#[test]
fn fin_that_arrives_together_with_a_query_is_noticed() {
    let limits = "dns_tcp_idle_timeout_ms = 60000";
    let domain = Domain::serve(Setup { zone: ZONE, limits, ..Setup::default() });
    for _ in 0..3 {
        let mut tcp = RawConnection::open(domain.server.dns());
        tcp.send(&pipeline(1));
        check_replies(&mut tcp, 1);
        domain.server.signal("STOP");
        tcp.send(&pipeline(1));
        tcp.finish_sending();
        domain.server.signal("CONT");
        check_replies(&mut tcp, 1);
        assert_eq!(tcp.read_to_close(), b"");
    }
}

/// The replies are more than sockets hold.
#[test]
fn client_that_reads_late_receives_all_replies() {
    const COUNT: u16 = 20_000;
    let domain = Domain::with_zone(ZONE);
    let mut tcp = RawConnection::open(domain.server.dns());
    let mut sending = tcp.second_end();
    let sender = std::thread::spawn(move || sending.send(&pipeline(COUNT)));
    check_replies(&mut tcp, COUNT);
    sender.join().expect("all was sent");
}

/// Queries that differ in id and name.
fn pipeline(count: u16) -> Vec<u8> {
    let query = |id| framed(&Question { id, ..Question::new(&format!("n{id}.wild.example.com"), A) }.message());
    (0..count).flat_map(query).collect()
}

/// Replies may come in any order (RFC 7766 §6.2.1.1).
#[track_caller]
fn check_replies(tcp: &mut RawConnection, count: u16) {
    let mut is_answered = vec![false; usize::from(count)];
    for _ in 0..count {
        let reply = Reply::parse(&tcp.read_message());
        let owner = format!("n{}.wild.example.com.", reply.id);
        assert_eq!(reply.summary(), format!("0 AA\nan {owner} 300 1 192.0.2.5"));
        assert!(!std::mem::replace(&mut is_answered[usize::from(reply.id)], true), "{} twice", reply.id);
    }
}

/// The client's connected socket receives from no other address.
#[test]
fn reply_of_a_wildcard_listener_comes_from_the_queried_address() {
    let directory = TestDirectory::with(&[("zone", ZONE.as_bytes())]);
    let zone = format!("example.com={}", directory.argument("zone"));
    for (any, queried) in [("0.0.0.0:0", &["127.0.0.1", "127.0.0.7"][..]), ("[::]:0", &["::1", "127.0.0.9"])] {
        let arguments = ["serve", "--zone", &zone, "--dns", any];
        let server = TestServer::start(&arguments, ListenerCounts { http: 0, dns: 1 });
        for address in queried {
            let address = SocketAddr::new(address.parse().unwrap(), server.dns().port());
            if any == "[::]:0" && address.is_ipv4() && TcpStream::connect(address).is_err() {
                // The listener is for IPv6 alone.
                continue;
            }
            let reply = Question::new("example.com", A).query_udp(address);
            assert_eq!(reply.answer[0].rdata, Ipv4Addr::new(192, 0, 2, 1).octets());
            assert_eq!(tcp_reply(address, &Question::new("example.com", A).message())[3] & 15, 0);
        }
    }
}

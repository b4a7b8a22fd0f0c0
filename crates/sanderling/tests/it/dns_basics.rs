//! What resolvers ask of a zone, and the answers that RFC 1034 §4.3.2 and its successors want.

use std::net::{Ipv4Addr, SocketAddr};

use crate::dns_messages::{
    A, AAAA, ANY, AXFR, BADVERS, CNAME, DNAME, FORMERR, NOERROR, NS, NXDOMAIN, OPT, Question, REFUSED, Reply, TXT,
};
use crate::domain::{Domain, Wanted, ZONE};
use sanderling_testkit::clients::{Asker, RawConnection, dig, framed, kdig, tcp_reply};
use sanderling_testkit::process::{Folder, Listeners, Serving, run};

#[test]
fn dig_and_kdig_get_the_soa() {
    let domain = Domain::with_zone(ZONE);
    for transport in ["+notcp", "+tcp"] {
        let ended = dig(domain.serving.dns(), &["example.com", "SOA", transport]);
        let text = ended.text();
        assert!(text.contains("status: NOERROR") && text.contains("flags: qr aa rd;"), "{ended}");
        assert!(text.contains("ns1.example.com. hostmaster.example.com. 2024010101"), "{ended}");
        assert!(!text.contains("WARNING: Message") && !text.contains("malformed"), "{ended}");
        let ended = kdig(domain.serving.dns(), &["example.com", "SOA", transport]);
        let text = ended.text();
        assert!(text.contains("status: NOERROR") && text.contains("Flags: qr aa rd;"), "{ended}");
        assert!(text.contains("2024010101"), "{ended}");
    }
}

/// Asks over both transports and compares the whole reply; see [`Reply::summary`] for the form.
#[track_caller]
fn check(domain: &Domain, name: &str, rtype: u16, expected: &str) {
    let question = Question { edns: Some((1232, 0)), ..Question::new(name, rtype) };
    for reply in [question.ask_udp(domain.serving.dns()), question.ask_tcp(domain.serving.dns())] {
        assert_eq!(reply.summary(), expected, "{name} {rtype}");
        assert_eq!((reply.id, reply.question_count), (question.id, 1));
        assert!(reply.edns.is_some(), "an OPT answers an OPT (RFC 6891 §6.1.1)");
        assert_eq!(reply.flags & 0x0100, 0x0100, "RD is copied");
        assert_eq!(reply.flags & 0x00f0, 0, "no RA, no Z, no AD, no CD");
    }
}

#[test]
fn answers_are_positive() {
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

const TERMINAL: &str = "0 AA\nan deep.empty.terminal.example.com. 300 16 below two names that hold nothing";
/// The negative TTL is the lesser of the SOA's own and its last field (RFC 2308 §5).
const NEGATIVE_SOA: &str = "\nau example.com. 60 6 ns1.example.com.";

#[test]
fn answers_are_negative_with_the_soa() {
    let domain = Domain::with_zone(ZONE);
    let no_data = format!("0 AA{NEGATIVE_SOA}");
    let name_error = format!("3 AA{NEGATIVE_SOA}");
    check(&domain, "mail.example.com", TXT, &no_data);
    check(&domain, "missing.example.com", A, &name_error);
    check(&domain, "a.b.c.missing.example.com", A, &name_error);
    check(&domain, "below.mail.example.com", A, &name_error);
    // Names that hold nothing but have names below them exist (RFC 8020).
    check(&domain, "terminal.example.com", A, &no_data);
    check(&domain, "empty.terminal.example.com", TXT, &no_data);
    check(&domain, "x.empty.terminal.example.com", TXT, &name_error);
    check(&domain, "wild.example.com", A, &no_data);
}

#[test]
fn wildcards_cover_what_is_not_there() {
    let domain = Domain::with_zone(ZONE);
    check(&domain, "any.wild.example.com", A, "0 AA\nan any.wild.example.com. 300 1 192.0.2.5");
    check(&domain, "a.b.c.wild.example.com", A, "0 AA\nan a.b.c.wild.example.com. 300 1 192.0.2.5");
    check(&domain, "*.wild.example.com", A, "0 AA\nan *.wild.example.com. 300 1 192.0.2.5");
    check(&domain, "any.wild.example.com", AAAA, &format!("0 AA{NEGATIVE_SOA}"));
    check(&domain, "tame.wild.example.com", TXT, &format!("0 AA{NEGATIVE_SOA}"));
    // The closest encloser is the name that is there, and it has no wildcard (RFC 4592 §4.1).
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
    // RFC 6604 §3: the RCODE is that of the chain's last name.
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
fn delegations_are_referrals_with_their_glue() {
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
fn a_name_of_nobody_is_refused() {
    let domain = Domain::with_zone(ZONE);
    for name in ["example.org", "com", ".", "xexample.com", "example.com.org"] {
        check(&domain, name, A, "5");
    }
    check(&domain, "example.com", AXFR, "5");
}

#[test]
fn any_is_answered_with_one_rrset() {
    let domain = Domain::with_zone(ZONE);
    let reply = Question::new("mail.example.com", ANY).ask_udp(domain.serving.dns());
    // RFC 8482 §4.1.
    assert_eq!((reply.rcode, reply.answer.len()), (NOERROR, 1), "{}", reply.summary());
    let reply = Question::new("missing.example.com", ANY).ask_udp(domain.serving.dns());
    assert_eq!(reply.rcode, NXDOMAIN);
}

#[test]
fn other_classes_are_refused() {
    let domain = Domain::with_zone(ZONE);
    for class in [0, 2, 3, 4, 254, 255, 999, 65_535] {
        let reply = Question { class, ..Question::new("example.com", A) }.ask_udp(domain.serving.dns());
        assert_eq!((reply.rcode, reply.answer.len()), (REFUSED, 0), "class {class}");
    }
}

#[test]
fn edns_says_how_much_fits() {
    let domain = Domain::with_zone(ZONE);
    let server = domain.serving.dns();
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
    // An OPT is asked for by nobody.
    assert_eq!(Question::new("example.com", OPT).ask_udp(server).rcode, FORMERR);
}

#[test]
fn dig_comes_back_over_tcp_when_a_reply_is_truncated() {
    let domain = Domain::with_zone(ZONE);
    let ended = dig(domain.serving.dns(), &["big.example.com", "TXT", "+noedns"]);
    assert!(ended.text().contains("retrying in TCP mode") && ended.text().contains("ANSWER: 5"), "{ended}");
}

/// Replies of many times UDP's bound come whole, and their number is their text's.
#[test]
fn tcp_carries_long_replies() {
    const RECORD_COUNT: usize = 230;
    let big: String = (0..RECORD_COUNT).map(|index| format!("huge TXT \"{index:04}{}\"\n", "x".repeat(250))).collect();
    let domain = Domain::with_zone(&format!("{ZONE}{big}"));
    let reply = Question::new("huge.example.com", TXT).ask_tcp(domain.serving.dns());
    assert_eq!((reply.is_truncated(), reply.answer.len()), (false, RECORD_COUNT), "{} octets", reply.length_bytes);
    assert!(reply.length_bytes > 60_000);
    let mut texts: Vec<&[u8]> = reply.answer.iter().map(|record| &record.rdata[1..5]).collect();
    texts.sort_unstable();
    assert!(texts.iter().enumerate().all(|(index, text)| *text == format!("{index:04}").as_bytes()));
    let question = Question { edns: Some((65_535, 0)), ..Question::new("huge.example.com", TXT) };
    assert!(question.ask_udp(domain.serving.dns()).is_truncated());
}

/// What no reply can carry is refused when the zone is loaded; what is not refused comes whole.
#[test]
fn an_rrset_that_no_reply_can_carry_is_refused() {
    // A record takes 267 octets: the bound lies between 240 and 250 of them.
    for record_count in 240..=250 {
        let big: String =
            (0..record_count).map(|index| format!("huge TXT \"{index:04}{}\"\n", "x".repeat(250))).collect();
        let folder = Folder::with(&[("zone", format!("{ZONE}{big}").as_bytes())]);
        let zone = format!("example.com={}", folder.argument("zone"));
        let checked = run(&["check", "--zone", &zone]);
        if checked.code() == Some(0) {
            let serving =
                Serving::start(&["serve", "--zone", &zone, "--dns", "127.0.0.1:0"], Listeners { http: 0, dns: 1 });
            let reply = Question::new("huge.example.com", TXT).ask_tcp(serving.dns());
            assert_eq!((reply.is_truncated(), reply.answer.len()), (false, record_count));
            assert!(record_count < 250);
        } else {
            assert!(record_count > 240 && checked.errors.contains("huge.example.com"), "{record_count}: {checked}");
        }
    }
}

#[test]
fn the_bound_of_udp_replies_is_kept() {
    let limits = "dns_udp_answer_bytes_max = 512";
    let domain = Domain::serve(Wanted { zone: ZONE, limits, ..Wanted::default() });
    let reply = Question { edns: Some((4096, 0)), ..Question::new("big.example.com", TXT) };
    let reply = reply.ask_udp(domain.serving.dns());
    assert!(reply.is_truncated() && reply.length_bytes <= 512);
    assert_eq!(reply.edns, Some((512, 0)));
}

/// A hundred queries in one write: each reply comes, and by its id it is that of its query.
#[test]
fn queries_over_tcp_may_be_pipelined() {
    const COUNT: u16 = 100;
    let domain = Domain::with_zone(ZONE);
    let mut raw = RawConnection::open(domain.serving.dns());
    raw.send(&pipeline(COUNT));
    check_pipeline(&mut raw, COUNT);
    raw.send(&pipeline(COUNT));
    raw.finish_sending();
    check_pipeline(&mut raw, COUNT);
    assert!(raw.read_to_close().is_empty());
}

#[test]
fn an_end_that_comes_with_a_query_is_seen() {
    let limits = "dns_tcp_idle_timeout_ms = 60000";
    let domain = Domain::serve(Wanted { zone: ZONE, limits, ..Wanted::default() });
    for _ in 0..3 {
        let mut raw = RawConnection::open(domain.serving.dns());
        raw.send(&pipeline(1));
        check_pipeline(&mut raw, 1);
        domain.serving.signal("STOP");
        raw.send(&pipeline(1));
        raw.finish_sending();
        domain.serving.signal("CONT");
        check_pipeline(&mut raw, 1);
        assert_eq!(raw.read_to_close(), b"");
    }
}

#[test]
fn queries_over_tcp_may_come_octet_by_octet() {
    const COUNT: u16 = 20;
    let domain = Domain::with_zone(ZONE);
    let mut raw = RawConnection::open(domain.serving.dns());
    for octet in pipeline(COUNT) {
        raw.send(&[octet]);
    }
    check_pipeline(&mut raw, COUNT);
}

/// More replies than the socket holds, read only after all queries are sent.
#[test]
fn a_client_that_reads_late_gets_all_replies() {
    const COUNT: u16 = 20_000;
    let domain = Domain::with_zone(ZONE);
    let mut raw = RawConnection::open(domain.serving.dns());
    let mut sending = raw.second_end();
    let sender = std::thread::spawn(move || sending.send(&pipeline(COUNT)));
    check_pipeline(&mut raw, COUNT);
    sender.join().expect("all was sent");
}

/// Queries that differ in id and name, with their lengths.
fn pipeline(count: u16) -> Vec<u8> {
    (0..count)
        .flat_map(|id| {
            let name = format!("n{id}.wild.example.com");
            framed(&Question { id, ..Question::new(&name, A) }.message())
        })
        .collect()
}

/// Replies may come in any order (RFC 7766 §6.2.1.1), but each once.
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

/// A listener on every address answers from the one that was asked: a connected socket hears no other.
#[test]
fn replies_come_from_the_address_that_was_asked() {
    let folder = Folder::with(&[("zone", ZONE.as_bytes())]);
    let zone = format!("example.com={}", folder.argument("zone"));
    for (any, asked) in [("0.0.0.0:0", &["127.0.0.1", "127.0.0.7"][..]), ("[::]:0", &["::1", "127.0.0.9"])] {
        let serving = Serving::start(&["serve", "--zone", &zone, "--dns", any], Listeners { http: 0, dns: 1 });
        for address in asked {
            let server = SocketAddr::new(address.parse().unwrap(), serving.dns().port());
            if any == "[::]:0" && server.is_ipv4() && !takes_ipv4(server) {
                // The listener keeps to IPv6, which is as good.
                continue;
            }
            let reply = Question::new("example.com", A).ask_udp(server);
            assert_eq!(reply.answer[0].rdata, Ipv4Addr::new(192, 0, 2, 1).octets());
            assert_eq!(tcp_reply(server, &Question::new("example.com", A).message())[3] & 15, 0);
        }
    }
}

fn takes_ipv4(server: SocketAddr) -> bool {
    std::net::TcpStream::connect(server).is_ok()
}

/// Siblings share a port, and the kernel chooses one by the client's port: whoever answers, all do.
#[test]
fn every_worker_answers() {
    let domain = Domain::serve(Wanted { zone: ZONE, worker_count: 4, ..Wanted::default() });
    for _ in 0..64 {
        let asker = Asker::new(domain.serving.dns());
        asker.send(&Question::new("example.com", A).message());
        assert_eq!(Reply::read(&asker.receive()).answer.len(), 1);
    }
}

//! Chains of CNAME records: their limit, their ends, and loops.

use super::check;
use super::support::exchange::ask;
use super::support::question::Question;
use super::support::zone_text::zone_map;
use sanderling_dns::Rtype;
use std::fmt::Write;

const ZONE: &str = "
    $ORIGIN example.
    $TTL 60
    example. SOA ns h 1 2 3 4 5
    example. NS ns
    ns A 192.0.2.53
    www A 192.0.2.1
    www TXT text
    one CNAME Www
    two CNAME ONE
    self CNAME self
    ping CNAME pong
    pong CNAME ping
    to-ping CNAME ping
    to-apex CNAME example.
    to-root CNAME .
    cut NS ns.cut
    ns.cut A 192.0.2.54
    to-cut CNAME host.cut
    to-cut-itself CNAME cut
    to-glue CNAME ns.cut
    mail MX 10 www
    to-mail CNAME mail
";

#[test]
fn chain_of_cnames_is_written_in_order_with_the_spelling_of_the_zone() {
    check(
        ZONE,
        "TWO.example. A",
        "NOERROR aa
         answer: TWO.example. 60 CNAME ONE.example.
         answer: ONE.example. 60 CNAME Www.example.
         answer: Www.example. 60 A 192.0.2.1",
    );
}

#[test]
fn cname_is_not_followed_for_qtype_cname_and_any() {
    check(ZONE, "two.example. CNAME", "NOERROR aa\nanswer: two.example. 60 CNAME ONE.example.");
    check(ZONE, "two.example. ANY", "NOERROR aa\nanswer: two.example. 60 CNAME ONE.example.");
}

#[test]
fn cname_loop_is_written_once() {
    check(ZONE, "self.example. A", "NOERROR aa\nanswer: self.example. 60 CNAME self.example.");
    let both = "answer: ping.example. 60 CNAME pong.example.
                answer: pong.example. 60 CNAME ping.example.";
    check(ZONE, "ping.example. A", &format!("NOERROR aa\n{both}"));
    check(ZONE, "to-ping.example. A", &format!("NOERROR aa\nanswer: to-ping.example. 60 CNAME ping.example.\n{both}"));
}

#[test]
fn cname_to_the_apex_and_to_the_root() {
    check(
        ZONE,
        "to-apex.example. NS",
        "NOERROR aa
         answer: to-apex.example. 60 CNAME example.
         answer: example. 60 NS ns.example.",
    );
    check(ZONE, "to-root.example. A", "NOERROR aa\nanswer: to-root.example. 60 CNAME .");
}

#[test]
fn cname_to_a_name_below_a_delegation_point_ends_in_a_referral() {
    // AA refers to the first owner (RFC 1035 §4.1.1).
    let referral = "authority: cut.example. 60 NS ns.cut.example.
                    additional: ns.cut.example. 60 A 192.0.2.54";
    for (name, target) in [("to-cut", "host.cut"), ("to-cut-itself", "cut"), ("to-glue", "ns.cut")] {
        let answer = format!("answer: {name}.example. 60 CNAME {target}.example.");
        check(ZONE, &format!("{name}.example. A"), &format!("NOERROR aa\n{answer}\n{referral}"));
    }
}

#[test]
fn cname_below_a_delegation_point_is_not_followed() {
    check(
        ZONE,
        "x.cut.example. A",
        "NOERROR
         authority: cut.example. 60 NS ns.cut.example.
         additional: ns.cut.example. 60 A 192.0.2.54",
    );
}

#[test]
fn additional_section_is_empty_after_a_cname() {
    check(
        ZONE,
        "to-mail.example. MX",
        "NOERROR aa
         answer: to-mail.example. 60 CNAME mail.example.
         answer: mail.example. 60 MX 10 www.example.",
    );
}

/// A zone with a chain of `count` aliases whose names have `length` more bytes than the shortest.
fn chain(count: usize, length: usize) -> String {
    let pad = "x".repeat(60);
    let padding: String = (0..4).map(|_| format!("{pad}.")).collect();
    let pad = &padding[..length];
    let mut text = "$ORIGIN z.\n$TTL 60\nz. SOA ns.x. h.x. 1 2 3 4 5\nz. NS ns.x.\n".to_owned();
    for index in 0..count {
        writeln!(text, "c{index:02}.{pad}z. CNAME C{:02}.{pad}z.", index + 1).expect("a string takes what is written");
    }
    writeln!(text, "c{count:02}.{pad}z. A 192.0.2.1").expect("a string takes what is written");
    text
}

/// Checks the answer for a chain of `chain_count` aliases with the limit `limit`.
fn check_chain(chain_count: usize, pad_bytes: usize, limit: usize) {
    let text = chain(chain_count, pad_bytes);
    let zones = zone_map(&text).with_cname_chain_max(limit);
    let name = text.lines().nth(4).and_then(|line| line.split(' ').next()).expect("the chain begins in the fifth line");
    let reply = ask(&zones, &Question::parse(&format!("{name} A +tcp +edns")));
    let told: Vec<Rtype> = reply.sections[0].iter().map(|record| record.rtype).collect();
    let alias_count = chain_count.min(limit);
    let expected = vec![Rtype::CNAME; alias_count].into_iter();
    let expected: Vec<Rtype> = expected.chain((chain_count <= limit).then_some(Rtype::A)).collect();
    assert_eq!(told, expected, "{chain_count} aliases, {limit} followed");
    assert_eq!((reply.rcode, reply.sections[1].len()), (0, 0));
    for pair in reply.sections[0].windows(2) {
        assert_eq!(pair[0].rdata, pair[1].owner, "each link holds");
    }
}

#[test]
fn cname_chain_is_followed_up_to_its_limit() {
    for limit in [1, 2, 15, 16, 17, 64] {
        for chain_count in [limit - 1, limit, limit + 1] {
            check_chain(chain_count, 0, limit);
        }
    }
    // The highest limit is 64.
    check_chain(64, 0, 100);
}

#[test]
fn cname_chain_beyond_the_reach_of_pointers() {
    // 64 names of about 250 bytes: from byte 16,384 on, owners are not compressed.
    for chain_count in [60, 61, 62, 63, 64] {
        check_chain(chain_count, 4 * 61, 64);
    }
}

#[test]
fn long_cname_chain_to_nxdomain_has_the_soa() {
    let text = chain(63, 4 * 61).replace(" A 192.0.2.1", " CNAME missing.z.");
    let zones = zone_map(&text).with_cname_chain_max(64);
    let name = text.lines().nth(4).and_then(|line| line.split(' ').next()).expect("the chain begins in the fifth line");
    let reply = ask(&zones, &Question::parse(&format!("{name} A +tcp")));
    assert_eq!((reply.rcode, reply.sections[0].len(), reply.sections[1].len()), (3, 64, 1));
    assert_eq!(reply.sections[1][0].to_string(), "z. 5 SOA ns.x. h.x. 1 2 3 4 5");
}

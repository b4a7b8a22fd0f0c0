//! Errors and warnings of `ZoneBuilder`, and the records that it omits.

use super::check;
use super::support::exchange::ask;
use super::support::question::Question;
use super::support::zone_text::{built, name_bytes, zone_map};
use sanderling_dns::ZoneEntry;
use sanderling_dns::zonefile::{Diagnostic, Severity};
use std::fmt::Write;

const HEAD: &str = "$TTL 60\nexample. SOA ns.a. h.a. 7 2 3 4 5\nexample. NS ns.a.\n";

/// Builds a zone of `records`; `expected` is a line for each diagnostic.
#[track_caller]
fn check_diagnostics(records: &str, expected: &[&str]) {
    let built = built(&name_bytes("example."), records);
    let line = |diagnostic: &Diagnostic| {
        let severity = if diagnostic.severity == Severity::Error { "error" } else { "warning" };
        assert!(!diagnostic.remedy.is_empty());
        format!("{}: {severity}: {}", diagnostic.position.line, diagnostic.problem)
    };
    let diagnostics: Vec<String> = built.diagnostics.iter().map(line).collect();
    assert_eq!(diagnostics, expected);
    let is_refused = diagnostics.iter().any(|line| line.contains(": error: "));
    assert_eq!(built.zone.is_none(), is_refused, "a zone is built unless there is an error");
}

#[test]
fn soa_and_ns_are_required_at_the_apex_only() {
    check_diagnostics(
        "$TTL 60\nwww.example. A 192.0.2.1\n",
        &["3: error: the zone example. has no SOA record", "3: error: the zone example. has no NS record at its apex"],
    );
    check_diagnostics(
        &format!("{HEAD}example. SOA ns.b. h.b. 7 2 3 4 5\n"),
        &["4: error: the zone example. has a second SOA record"],
    );
    check_diagnostics(
        &format!("{HEAD}x.example. SOA ns.b. h.b. 7 2 3 4 5\n"),
        &["4: error: x.example. has an SOA record, but the apex of the zone is example."],
    );
}

#[test]
fn cname_beside_other_data_and_second_cname_or_dname_are_errors() {
    check_diagnostics(
        &format!("{HEAD}x.example. CNAME a.\nx.example. A 192.0.2.1\nX.example. CNAME b.\n"),
        &[
            "4: error: x.example. has both a CNAME record and another record, of type A",
            "6: error: x.example. has a second CNAME record",
        ],
    );
    check_diagnostics(
        &format!("{HEAD}x.example. DNAME a.\nx.example. DNAME b.\n"),
        &["5: error: x.example. has a second DNAME record"],
    );
}

#[test]
fn duplicate_records_are_served_once_with_a_warning() {
    let records = format!("{HEAD}x.example. A 192.0.2.1\nx.example. A 192.0.2.2\nX.example. A 192.0.2.1\n");
    check_diagnostics(&records, &["6: warning: duplicate A record of x.example."]);
    check(
        &format!("$ORIGIN example.\n{records}"),
        "x.example. A",
        "NOERROR aa
         answer: x.example. 60 A 192.0.2.1
         answer: x.example. 60 A 192.0.2.2",
    );
}

#[test]
fn rrset_gets_the_ttl_of_its_first_record_with_a_warning() {
    let records = format!("{HEAD}x.example. 10 A 192.0.2.1\nx.example. 20 A 192.0.2.2\n");
    check_diagnostics(
        &records,
        &["5: warning: the TTL 20 differs from the TTL 10 of the first A record of x.example. (RFC 2181 section 5.2)"],
    );
    check(
        &format!("$ORIGIN example.\n{records}"),
        "x.example. A",
        "NOERROR aa
         answer: x.example. 10 A 192.0.2.1
         answer: x.example. 10 A 192.0.2.2",
    );
}

#[test]
fn rrsigs_keep_the_ttl_of_the_rrset_that_they_cover() {
    // RFC 4034 section 3: an exception to RFC 2181 section 5.2.
    let rrsig = |covered: &str, ttl: u32| {
        format!("x.example. {ttl} RRSIG {covered} 13 2 {ttl} 20300101000000 20200101000000 1 example. AA==\n")
    };
    let records = format!("{HEAD}x.example. 10 A 192.0.2.1\n{}{}", rrsig("A", 10), rrsig("NSEC", 20));
    check_diagnostics(&records, &[SIGNED.replace('4', "5").as_str()]);
    let rdata = |covered: &str, ttl| rrsig(covered, ttl).replace("x.example.", "answer: x.example.").trim().to_owned();
    check(
        &format!("$ORIGIN example.\n{records}"),
        "x.example. RRSIG",
        &format!("NOERROR aa\n{}\n{}", rdata("A", 10), rdata("NSEC", 20)),
    );
}

const SIGNED: &str = "4: warning: the zone example. is signed, but signatures are not served yet: with a DS record in the \
                      parent zone, resolvers that validate treat the domain as bogus";

#[test]
fn signed_zone_is_reported_once_at_its_first_dnssec_record() {
    let dnskey = "example. DNSKEY 257 3 13 AAAA\nexample. DNSKEY 256 3 13 AAAB\n";
    let rrsig = "example. RRSIG SOA 13 1 60 20300101000000 20200101000000 1 example. AA==\n";
    check_diagnostics(&format!("{HEAD}{dnskey}{rrsig}"), &[SIGNED]);
    check_diagnostics(&format!("{HEAD}{rrsig}{dnskey}"), &[SIGNED]);
    check_diagnostics(&format!("{HEAD}sub.example. DS 1 13 2 {}\nsub.example. NS ns.a.\n", "00".repeat(32)), &[]);
}

#[test]
fn rrset_over_the_limit_is_an_error_that_names_the_configuration_key() {
    let mut records = String::from(HEAD);
    for index in 0..1_001 {
        writeln!(records, "x.example. AAAA 2001:db8::{index}").expect("a string takes what is written");
    }
    let built = built(&name_bytes("example."), &records);
    let [diagnostic] = &built.diagnostics[..] else { panic!("{:?}", built.diagnostics) };
    assert_eq!(diagnostic.position.line, 1_004);
    assert_eq!(diagnostic.problem, "x.example. has 1001 AAAA records, more than 1000");
    assert!(diagnostic.remedy.contains("zone_records_per_rrset_max in [limits]"), "{}", diagnostic.remedy);
}

/// `count` TXT records of 200 bytes.
fn long_records(owner: &str, count: usize) -> String {
    let mut records = String::new();
    for index in 0..count {
        writeln!(records, "{owner} TXT {}", format!("{index:08}").repeat(25)).expect("a string takes what is written");
    }
    records
}

#[test]
fn rrset_longer_than_a_message_is_an_error() {
    check_diagnostics(
        &format!("{HEAD}{}", long_records("x.example.", 400)),
        &["4: error: the TXT records of x.example. do not fit into a message of 65,535 bytes"],
    );
}

#[test]
fn longest_rrset_fits_into_the_reply_to_the_longest_question() {
    // 305 records of 213 bytes, and one that fills the rest of a message with header, longest question and OPT.
    let left = 65_535 - (12 + 255 + 4 + 11) - 305 * 213 - 12;
    let fits = |length: usize| {
        let first = length.min(256) - 1;
        let rest = "y".repeat(length.saturating_sub(257));
        let second = if length > 257 { format!(" {rest}") } else { String::new() };
        format!(
            "$ORIGIN example.\n{HEAD}{}*.example. TXT {}{second}\n",
            long_records("*.example.", 305),
            "x".repeat(first)
        )
    };
    let name = format!("{0}.{0}.{0}.{1}.example.", "a".repeat(63), "b".repeat(53));
    assert_eq!(name_bytes(&name).len(), 255);
    let reply = ask(&zone_map(&fits(left)), &Question::parse(&format!("{name} TXT +tcp +edns")));
    assert!(!reply.is_truncated());
    assert_eq!(reply.sections[0].len(), 306);
    let one_more = built(&name_bytes("example."), fits(left + 1).split_once('\n').expect("a first line").1);
    assert!(one_more.zone.is_none());
}

#[test]
fn additional_section_longer_than_a_message_is_omitted() {
    let mut records = String::from("$ORIGIN example.\n") + HEAD;
    for host in 0..3 {
        writeln!(records, "example. MX {host} host{host}.example.").expect("a string takes what is written");
        for index in 0..1000 {
            writeln!(records, "host{host}.example. AAAA 2001:db8::{host}:{index}")
                .expect("a string takes what is written");
        }
    }
    let zones = zone_map(&records);
    let reply = ask(&zones, &Question::parse("example. MX +tcp"));
    assert_eq!((reply.sections[0].len(), reply.sections[2].len()), (3, 0));
    let reply = ask(&zones, &Question::parse("host1.example. AAAA +tcp"));
    assert_eq!(reply.sections[0].len(), 1000);
}

#[test]
fn zone_reports_its_apex_serial_records_and_names() {
    let zones = zone_map(&format!("$ORIGIN example.\n{HEAD}a.b.c.example. A 192.0.2.1\na.b.c.example. A 192.0.2.1\n"));
    let [ZoneEntry::Served(zone)] = zones.entries() else { panic!("one zone is served") };
    assert_eq!((zone.record_count(), zone.name_count(), zone.serial()), (3, 4, 7));
    assert_eq!(zone.apex().to_string(), "example.");
}

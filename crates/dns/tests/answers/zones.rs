//! What the builder makes of records as a zone: errors and warnings, and what it leaves out.

use super::check;
use super::support::exchange::ask;
use super::support::question::Question;
use super::support::zone_text::{built, name_octets, zone_map};
use sanderling_dns::ZoneEntry;
use sanderling_dns::zonefile::Severity;
use std::fmt::Write;

const HEAD: &str = "$TTL 60\nexample. SOA ns.a. h.a. 7 2 3 4 5\nexample. NS ns.a.\n";

/// What is wrong with `records`, a line for each issue.
#[track_caller]
fn check_issues(records: &str, expected: &[&str]) {
    let built = built(&name_octets("example."), records);
    let line = |issue: &sanderling_dns::zonefile::Diagnostic| {
        let severity = if issue.severity == Severity::Error { "error" } else { "warning" };
        assert!(!issue.remedy.is_empty());
        format!("{}: {severity}: {}", issue.position.line, issue.problem)
    };
    let issues: Vec<String> = built.diagnostics.iter().map(line).collect();
    assert_eq!(issues, expected);
    let is_refused = issues.iter().any(|issue| issue.contains(": error: "));
    assert_eq!(built.zone.is_none(), is_refused, "a zone is made unless there is an error");
}

#[test]
fn a_zone_needs_its_apex() {
    check_issues(
        "$TTL 60\nwww.example. A 192.0.2.1\n",
        &["3: error: the zone example. has no SOA record", "3: error: the zone example. has no NS record at its apex"],
    );
    check_issues(
        &format!("{HEAD}example. SOA ns.b. h.b. 7 2 3 4 5\n"),
        &["4: error: the zone example. has a second SOA record"],
    );
    check_issues(
        &format!("{HEAD}x.example. SOA ns.b. h.b. 7 2 3 4 5\n"),
        &["4: error: x.example. has an SOA record, but the zone begins at example."],
    );
}

#[test]
fn an_alias_stands_alone() {
    check_issues(
        &format!("{HEAD}x.example. CNAME a.\nx.example. A 192.0.2.1\nX.example. CNAME b.\n"),
        &[
            "4: error: x.example. has a CNAME record beside its A record",
            "6: error: x.example. has a second CNAME record",
        ],
    );
    check_issues(
        &format!("{HEAD}x.example. DNAME a.\nx.example. DNAME b.\n"),
        &["5: error: x.example. has a second DNAME record"],
    );
}

#[test]
fn duplicates_are_served_once() {
    let records = format!("{HEAD}x.example. A 192.0.2.1\nx.example. A 192.0.2.2\nX.example. A 192.0.2.1\n");
    check_issues(&records, &["6: warning: this A record of x.example. stands in the zone already"]);
    check(
        &format!("$ORIGIN example.\n{records}"),
        "x.example. A",
        "NOERROR aa
         answer: x.example. 60 A 192.0.2.1
         answer: x.example. 60 A 192.0.2.2",
    );
}

#[test]
fn one_ttl_for_an_rrset() {
    let records = format!("{HEAD}x.example. 10 A 192.0.2.1\nx.example. 20 A 192.0.2.2\n");
    check_issues(&records, &["5: warning: the TTL 20 differs from the 10 of the other A records of x.example."]);
    check(
        &format!("$ORIGIN example.\n{records}"),
        "x.example. A",
        "NOERROR aa
         answer: x.example. 10 A 192.0.2.1
         answer: x.example. 10 A 192.0.2.2",
    );
}

/// `count` TXT records of 200 octets.
fn long_records(owner: &str, count: usize) -> String {
    let mut records = String::new();
    for index in 0..count {
        writeln!(records, "{owner} TXT {}", format!("{index:08}").repeat(25)).expect("a string takes what is written");
    }
    records
}

#[test]
fn an_rrset_that_no_message_holds_is_an_error() {
    check_issues(
        &format!("{HEAD}{}", long_records("x.example.", 400)),
        &["4: error: the TXT records of x.example. do not fit into one answer of 65,535 octets"],
    );
}

#[test]
fn the_longest_rrset_fits_any_question_that_finds_it() {
    // 305 of 213 octets, and one that fills up what the longest question, header and OPT leave of 65,535.
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
    assert_eq!(name_octets(&name).len(), 255);
    let reply = ask(&zone_map(&fits(left)), &Question::parse(&format!("{name} TXT +tcp +edns")));
    assert!(!reply.is_truncated());
    assert_eq!(reply.sections[0].len(), 306);
    let one_more = built(&name_octets("example."), fits(left + 1).split_once('\n').expect("a first line").1);
    assert!(one_more.zone.is_none());
}

#[test]
fn addresses_that_no_message_holds_are_left_out() {
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
fn a_zone_counts_itself() {
    let zones = zone_map(&format!("$ORIGIN example.\n{HEAD}a.b.c.example. A 192.0.2.1\na.b.c.example. A 192.0.2.1\n"));
    let [ZoneEntry::Served(zone)] = zones.entries() else { panic!("one zone is served") };
    assert_eq!((zone.record_count(), zone.name_count(), zone.serial()), (3, 4, 7));
    assert_eq!(zone.apex().to_string(), "example.");
}

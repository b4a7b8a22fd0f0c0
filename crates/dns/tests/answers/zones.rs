//! Zones at the limits of RRsets and messages.

use super::diagnostics;
use super::support::exchange::ask;
use super::support::question::Question;
use super::support::zone_text::{name_bytes, zone_map};
use sanderling_dns::ZoneEntry;

/// Checks that `records` are refused with one error, which contains `expected`.
#[track_caller]
fn check_error(records: &str, expected: &str) {
    let found = diagnostics(&format!("$ORIGIN example.\n{records}"));
    assert!(found.lines().count() == 1 && found.contains(expected), "{found}");
}

#[test]
fn rrset_over_the_limit_is_an_error_that_names_the_configuration_key() {
    let records: String = (0..1_001).map(|index| format!("x AAAA 2001:db8::{index}\n")).collect();
    check_error(
        &records,
        "x.example. has 1001 AAAA records, more than 1000; \
         keep at most 1000, or raise zone_records_per_rrset_max in [limits]",
    );
}

/// `count` TXT records of 200 bytes.
fn long_records(owner: &str, count: usize) -> String {
    (0..count).map(|index| format!("{owner} TXT {}\n", format!("{index:08}").repeat(25))).collect()
}

#[test]
fn rrset_longer_than_a_message_is_an_error() {
    check_error(
        &long_records("x.example.", 400),
        "the TXT records of x.example. do not fit into a message of 65,535 bytes",
    );
}

#[test]
fn longest_rrset_fits_into_the_reply_to_the_longest_question() {
    // 305 records of 213 bytes, and one that fills the rest of a message with header, longest question and OPT.
    let left = 65_535 - (12 + 255 + 4 + 11) - 305 * 213 - 12;
    // Two strings, each with a length byte.
    let records =
        |bytes: usize| format!("{}* TXT {} {}", long_records("*", 305), "x".repeat(100), "y".repeat(bytes - 102));
    let name = format!("{0}.{0}.{0}.{1}.example.", "a".repeat(63), "b".repeat(53));
    assert_eq!(name_bytes(&name).len(), 255);
    let zones = zone_map(&format!("$ORIGIN example.\n{}", records(left)));
    let reply = ask(&zones, &Question::parse(&format!("{name} TXT +tcp +edns")));
    assert!(!reply.is_truncated());
    assert_eq!(reply.sections[0].len(), 306);
    check_error(&records(left + 1), "the TXT records of *.example. do not fit");
}

#[test]
fn additional_section_longer_than_a_message_is_omitted() {
    let addresses = |host| (0..1000).map(move |index| format!("host{host} AAAA 2001:db8::{host}:{index}\n"));
    let host = |host| format!("@ MX {host} host{host}\n") + &addresses(host).collect::<String>();
    let zones = zone_map(&format!("$ORIGIN example.\n{}", (0..3).map(host).collect::<String>()));
    let reply = ask(&zones, &Question::parse("example. MX +tcp"));
    assert_eq!((reply.sections[0].len(), reply.sections[2].len()), (3, 0));
    let reply = ask(&zones, &Question::parse("host1.example. AAAA +tcp"));
    assert_eq!(reply.sections[0].len(), 1000);
}

#[test]
fn zone_reports_its_apex_serial_records_and_names() {
    let zones = zone_map("$ORIGIN example.\na.b.c A 192.0.2.1\na.b.c A 192.0.2.1");
    let [ZoneEntry::Served(zone)] = zones.entries() else { panic!("one zone is served") };
    assert_eq!((zone.record_count(), zone.name_count(), zone.serial()), (3, 4, 1));
    assert_eq!(zone.apex().to_string(), "example.");
}

//! Maps of zones: the root, parent and child zones, unavailable zones, changes of a map.

use super::check;
use super::support::exchange::ask;
use super::support::question::Question;
use super::support::zone_text::{SEED, name_bytes, served, zone_map};
use sanderling_dns::{Name, NameBuf, ZoneEntry, ZoneMap};
use std::sync::Arc;

fn zone(apex: &str, records: &str) -> String {
    format!("$ORIGIN {apex}\n$TTL 60\n{apex} SOA ns.a. h.a. 1 2 3 4 5\n{apex} NS ns.a.\n{records}\n")
}

#[test]
fn root_zone_answers_for_every_name() {
    let root = zone(".", "com. NS ns.com.\nns.com. A 192.0.2.1\n*. TXT wild");
    check(&root, ". SOA", "NOERROR aa\nanswer: . 60 SOA ns.a. h.a. 1 2 3 4 5");
    check(&root, ". A", "NOERROR aa\nauthority: . 5 SOA ns.a. h.a. 1 2 3 4 5");
    check(&root, "x.COM. A", "NOERROR\nauthority: COM. 60 NS ns.COM.\nadditional: ns.COM. 60 A 192.0.2.1");
    check(&root, "a.b. TXT", "NOERROR aa\nanswer: a.b. 60 TXT \"wild\"");
    let bare = zone(".", "");
    check(&bare, "a.b. TXT", "NXDOMAIN aa\nauthority: . 5 SOA ns.a. h.a. 1 2 3 4 5");
}

#[test]
fn zone_of_one_label_is_served() {
    let zone = zone("com.", "a.com. A 192.0.2.1");
    check(&zone, "com. NS", "NOERROR aa\nanswer: com. 60 NS ns.a.");
    check(&zone, "A.com. A", "NOERROR aa\nanswer: A.com. 60 A 192.0.2.1");
    check(&zone, "xcom. A", "REFUSED");
    check(&zone, ". NS", "REFUSED");
}

#[test]
fn name_outside_of_all_zones_is_refused() {
    let zone = zone("b.a.example.", "");
    for name in ["example.", "a.example.", "xb.a.example.", "other."] {
        check(&zone, &format!("{name} SOA"), "REFUSED");
        check(&zone, &format!("{name} SOA +edns +rd"), "REFUSED rd edns=1232");
    }
}

/// Three zones, one below another.
fn nested() -> String {
    let digest = "11".repeat(32);
    zone("z.", &format!("a.z. NS ns.a.\na.z. DS 1 13 2 {digest}\nto-a.z. CNAME www.a.z.\nx.z. A 192.0.2.1"))
        + &zone("a.z.", "www.a.z. A 192.0.2.2\nb.a.z. NS ns.b.a.z.\nns.b.a.z. A 192.0.2.3\nup.a.z. CNAME x.z.")
        + &zone("b.a.z.", "www.b.a.z. A 192.0.2.4")
}

#[test]
fn zone_with_the_longest_apex_answers() {
    check(&nested(), "x.z. A", "NOERROR aa\nanswer: x.z. 60 A 192.0.2.1");
    check(&nested(), "www.a.z. A", "NOERROR aa\nanswer: www.a.z. 60 A 192.0.2.2");
    check(&nested(), "www.b.a.z. A", "NOERROR aa\nanswer: www.b.a.z. 60 A 192.0.2.4");
    check(&nested(), "no.b.a.z. A", "NXDOMAIN aa\nauthority: b.a.z. 5 SOA ns.a. h.a. 1 2 3 4 5");
    check(&nested(), "a.z. NS", "NOERROR aa\nanswer: a.z. 60 NS ns.a.");
}

#[test]
fn cname_is_followed_within_its_zone_only() {
    check(
        &nested(),
        "to-a.z. A",
        "NOERROR aa
         answer: to-a.z. 60 CNAME www.a.z.
         authority: a.z. 60 NS ns.a.",
    );
    check(&nested(), "up.a.z. A", "NOERROR aa\nanswer: up.a.z. 60 CNAME x.z.");
}

#[test]
fn ds_of_an_apex_is_answered_by_the_parent_zone_rfc_4035_section_3_1_4_1() {
    let digest = "11".repeat(32);
    check(&nested(), "a.z. DS", &format!("NOERROR aa\nanswer: a.z. 60 DS 1 13 2 {digest}"));
    check(&nested(), "b.a.z. DS", "NOERROR aa\nauthority: a.z. 5 SOA ns.a. h.a. 1 2 3 4 5");
    // z. has no parent zone here: NODATA from its own apex.
    check(&nested(), "z. DS", "NOERROR aa\nauthority: z. 5 SOA ns.a. h.a. 1 2 3 4 5");
    check(&nested(), "www.a.z. DS", "NOERROR aa\nauthority: a.z. 5 SOA ns.a. h.a. 1 2 3 4 5");
}

#[test]
fn ds_of_an_apex_without_parent_zone_is_nodata() {
    // The parent zone a.z. is not here: z. only delegates it.
    let zones = zone("z.", "a.z. NS ns.a.") + &zone("b.a.z.", "");
    check(&zones, "b.a.z. DS", "NOERROR aa\nauthority: b.a.z. 5 SOA ns.a. h.a. 1 2 3 4 5");
}

#[test]
fn sibling_zones_are_distinguished() {
    let zones: String =
        (0..300).map(|index| zone(&format!("z{index}.example."), &format!("www A 192.0.2.{}", index % 200))).collect();
    for index in [0, 1, 77, 299] {
        let name = format!("www.z{index}.example.");
        check(&zones, &format!("{name} A"), &format!("NOERROR aa\nanswer: {name} 60 A 192.0.2.{}", index % 200));
    }
    check(&zones, "www.z300.example. A", "REFUSED");
    check(&zones, "example. A", "REFUSED");
}

fn unavailable(apex: &str) -> ZoneEntry {
    ZoneEntry::Unavailable { apex: Box::new(name(apex)) }
}

fn name(text: &str) -> NameBuf {
    Name::parse(&name_bytes(text)).expect("a name").to_owned()
}

#[track_caller]
fn check_map(zones: &ZoneMap, question: &str, expected: &str) {
    assert_eq!(ask(zones, &Question::parse(question)).to_string().trim_end(), expected, "{question}");
}

#[test]
fn unavailable_zone_is_answered_with_servfail_at_and_below_its_apex() {
    let zones = zone_map(&nested()).with_entry(unavailable("A.z."));
    for question in ["a.z. SOA", "www.a.z. A", "x.y.a.z. MX"] {
        check_map(&zones, question, "SERVFAIL");
        check_map(&zones, &format!("{question} +edns +rd"), "SERVFAIL rd edns=1232");
    }
    check_map(&zones, "x.z. A", "NOERROR aa\nanswer: x.z. 60 A 192.0.2.1");
    check_map(&zones, "www.b.a.z. A", "NOERROR aa\nanswer: www.b.a.z. 60 A 192.0.2.4");
    check_map(&zones, "other. A", "REFUSED");
    // The parent zone answers for the DS of an unavailable zone, and an unavailable parent zone for that of its child.
    check_map(&zones, "a.z. DS", &format!("NOERROR aa\nanswer: a.z. 60 DS 1 13 2 {}", "11".repeat(32)));
    check_map(&zones, "b.a.z. DS", "SERVFAIL");
}

#[test]
fn map_of_one_unavailable_zone_answers_servfail_and_refuses_other_names() {
    let zones = ZoneMap::new(SEED, [unavailable("a.z.")]);
    check_map(&zones, "www.a.z. A", "SERVFAIL");
    check_map(&zones, "z. A", "REFUSED");
    check_map(&ZoneMap::new(SEED, []), "z. A", "REFUSED");
}

#[test]
fn changed_map_shares_the_zones_that_stay() {
    let apexes: Vec<String> = (0..100).map(|index| format!("z{index}.")).collect();
    let text: String = apexes.iter().map(|apex| zone(apex, "")).collect();
    let old = zone_map(&text).with_cname_chain_max(3);
    let changed = zone("z7.", "www.z7. A 192.0.2.1");
    let new = old.with_entry(served(&name_bytes("z7."), &changed)).without(name("Z8.").as_name());
    assert_eq!((old.entries().len(), new.entries().len()), (100, 99));
    for apex in &apexes {
        let apex = name(apex);
        match (old.get(apex.as_name()), new.get(apex.as_name())) {
            (Some(ZoneEntry::Served(old)), Some(ZoneEntry::Served(new))) => {
                assert_eq!(Arc::ptr_eq(old, new), apex.to_string() != "z7.", "{apex}");
            }
            (Some(_), None) => assert_eq!(apex.to_string(), "z8."),
            other => panic!("{apex}: {other:?}"),
        }
    }
    check_map(&new, "www.z7. A", "NOERROR aa\nanswer: www.z7. 60 A 192.0.2.1");
    check_map(&new, "z8. SOA", "REFUSED");
    check_map(&old, "z8. SOA", "NOERROR aa\nanswer: z8. 60 SOA ns.a. h.a. 1 2 3 4 5");
}

#[test]
fn later_entry_replaces_an_earlier_one_with_the_same_apex() {
    let apex = name_bytes("z.");
    let zones = ZoneMap::new(SEED, [unavailable("z."), served(&apex, &zone("z.", ""))]);
    assert_eq!(zones.entries().len(), 1);
    check_map(&zones, "z. NS", "NOERROR aa\nanswer: z. 60 NS ns.a.");
}

//! Maps of zones: many zones, unavailable zones, changes of a map.

use super::check;
use super::support::zone_text::{SEED, name_bytes, served, zone_map};
use sanderling_dns::restricted::RestrictedQuery;
use sanderling_dns::{Answer, DnsTransport, Name, ParsedQuery, ReplyOptions, RequestInfo, ZoneEntry, ZoneMap};
use std::sync::Arc;

fn unavailable(apex: &str) -> ZoneEntry {
    ZoneEntry::Unavailable { apex: Box::new(Name::parse(&name_bytes(apex)).expect("a name").to_owned()) }
}

#[test]
fn unavailable_zone_is_answered_with_servfail_at_and_below_its_apex() {
    let nested =
        "$ORIGIN z.\na NS ns.a.\nx A 192.0.2.1\n$ORIGIN a.z.\nwww A 192.0.2.2\n$ORIGIN b.a.z.\nwww A 192.0.2.4";
    let zones = ZoneMap::new(SEED, zone_map(nested).entries().iter().cloned().chain([unavailable("A.z.")]));
    for question in ["a.z. SOA", "www.a.z. A", "x.y.a.z. MX"] {
        check(&zones, question, "SERVFAIL");
        check(&zones, &format!("{question} +edns +rd"), "SERVFAIL rd edns=1232");
    }
    check(&zones, "x.z. A", "NOERROR aa\nanswer: x.z. 60 A 192.0.2.1");
    check(&zones, "www.b.a.z. A", "NOERROR aa\nanswer: www.b.a.z. 60 A 192.0.2.4");
    check(&zones, "other. A", "REFUSED");
    // The parent zone answers for the DS of an unavailable zone, and an unavailable parent zone for the DS of its
    // child.
    check(&zones, "a.z. DS", "NOERROR aa\nauthority: z. 5 SOA ns.a. h.a. 1 2 3 4 5");
    check(&zones, "b.a.z. DS", "SERVFAIL");
}

#[test]
fn map_of_one_unavailable_zone_answers_servfail_and_refuses_other_names() {
    let zones = ZoneMap::new(SEED, [unavailable("a.z.")]);
    check(&zones, "www.a.z. A", "SERVFAIL");
    check(&zones, "z. A", "REFUSED");
    check(&ZoneMap::new(SEED, []), "z. A", "REFUSED");
}

#[test]
fn map_with_a_changed_zone_shares_the_others() {
    let text: String = (0..300).map(|index| format!("$ORIGIN z{index}.\n")).collect();
    let old = zone_map(&text);
    let new = old.with_entry(served(&name_bytes("z7."), "www A 192.0.2.1"));
    assert_eq!((old.entries().len(), new.entries().len()), (300, 300));
    for (old, new) in old.entries().iter().zip(new.entries()) {
        let (ZoneEntry::Served(old), ZoneEntry::Served(new)) = (old, new) else { panic!("all zones are served") };
        assert_eq!(Arc::ptr_eq(old, new), new.apex().to_string() != "z7.", "{}", new.apex());
    }
    check(&new, "www.z7. A", "NOERROR aa\nanswer: www.z7. 60 A 192.0.2.1");
    check(&new, "z299. NS", "NOERROR aa\nanswer: z299. 60 NS ns.a.");
    check(&new, "z300. NS", "REFUSED");
}

#[test]
fn later_entry_replaces_an_earlier_one_with_the_same_apex() {
    let apex = name_bytes("z.");
    let zones = ZoneMap::new(SEED, [unavailable("z."), served(&apex, "")]);
    assert_eq!(zones.entries().len(), 1);
    check(&zones, "z. NS", "NOERROR aa\nanswer: z. 60 NS ns.a.");
}

fn restricted(apex: &str, records: &str) -> ZoneEntry {
    let ZoneEntry::Served(zone) = served(&name_bytes(apex), records) else { panic!("it is served") };
    ZoneEntry::Restricted(zone)
}

#[test]
fn restricted_zone_is_refused_at_and_below_its_apex() {
    let nested = "$ORIGIN z.\na NS ns.a.\nx A 192.0.2.1\n$ORIGIN a.z.\n$ORIGIN b.a.z.\nwww A 192.0.2.4";
    let zones =
        ZoneMap::new(SEED, zone_map(nested).entries().iter().cloned().chain([restricted("a.z.", "www A 192.0.2.2")]));
    for question in ["a.z. SOA", "www.a.z. A", "x.y.a.z. MX"] {
        check(&zones, question, "REFUSED");
    }
    check(&zones, "x.z. A", "NOERROR aa\nanswer: x.z. 60 A 192.0.2.1");
    check(&zones, "www.b.a.z. A", "NOERROR aa\nanswer: www.b.a.z. 60 A 192.0.2.4");
    // The parent zone's data about its child are not disclosed.
    check(&zones, "b.a.z. DS", "NOERROR aa\nauthority: b.a.z. 5 SOA ns.a. h.a. 1 2 3 4 5");
    check(&ZoneMap::new(SEED, [restricted("z.", "")]), "z. SOA", "REFUSED");
}

#[test]
fn restricted_zone_is_answered_if_the_caller_allows_it() {
    let zones = ZoneMap::new(SEED, [restricted("a.z.", "www A 192.0.2.2"), served(&name_bytes("z."), "")]);
    let options = ReplyOptions::default();
    let info = RequestInfo {
        client: "192.0.2.9:53".parse().expect("an address"),
        transport: DnsTransport::Tcp,
        now_unix_s: 0,
    };
    let query = |name: &str, class: u8| {
        let head = [0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        [&head[..], &name_bytes(name), &[0, 1, 0, class]].concat()
    };
    for (name, class, is_restricted) in
        [("www.A.z.", 1, true), ("a.z.", 1, true), ("z.", 1, false), ("other.", 1, false), ("www.a.z.", 3, false)]
    {
        let message = query(name, class);
        let parsed = ParsedQuery::parse(&zones, &message);
        let restricted = RestrictedQuery::new(&zones, &parsed);
        assert_eq!(restricted.is_some(), is_restricted, "{name} {class}");
        let Some(restricted) = restricted else { continue };
        assert_eq!((restricted.apex().to_string().as_str(), restricted.key(&options, 0).is_some()), ("a.z.", false));
        let mut out = [0; 65_535];
        let Answer::Reply(length_bytes) = restricted.answer(&info, &options, &mut out) else { panic!("a reply") };
        // QR and AA, NOERROR; the address of the host, or the SOA of a negative answer.
        let is_host = name.starts_with("www");
        assert_eq!((out[2], out[3], out[7], out[9]), (0x84, 0, u8::from(is_host), u8::from(!is_host)), "{name}");
        assert_eq!(out[..length_bytes].ends_with(&[192, 0, 2, 2]), is_host);
    }
}

#[test]
fn map_with_changes_has_no_removed_zone_and_shares_the_others() {
    let text: String = (0..9).map(|index| format!("$ORIGIN z{index}.\n")).collect();
    let old = zone_map(&text);
    let removed = ["Z0.", "z7.", "other."].map(name_bytes);
    let removed = removed.iter().map(|name| Name::parse(name).expect("a name"));
    let new = old.with_changes(removed, [unavailable("new."), unavailable("z8.")]);
    assert_eq!(new.entries().len(), 8);
    check(&new, "z0. NS", "REFUSED");
    check(&new, "z1. NS", "NOERROR aa\nanswer: z1. 60 NS ns.a.");
    check(&new, "z8. NS", "SERVFAIL");
    check(&new, "new. NS", "SERVFAIL");
}

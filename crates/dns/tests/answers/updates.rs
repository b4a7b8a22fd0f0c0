//! Dynamic updates, in the language of nsupdate: each rule of RFC 2136 section 3.

use super::support::zone_text::{built, name_bytes};
use proptest::prelude::*;
use sanderling_dns::update::{UpdateMessage, UpdateRefusal, UpdateResult, ZoneUpdate};
use sanderling_dns::zonefile::{Entry, Parser, ParserLimits};
use sanderling_dns::{Name, Rtype, Zone, ZoneLimits, ZoneTextWriter};

const ZONE: &str = "$ORIGIN z.\n$TTL 300\nz. SOA ns.z. h.z. 7 2 3 4 60\nz. NS ns.out.\nz. NS ns2.out.\nz. TXT \"t\"\na.z. A 192.0.2.1\n\
                    a.z. A 192.0.2.2\na.z. TXT \"x\"\nc.z. CNAME a.z.\nm.z. MX 5 Mail.Z.\nb.ent.z. A 192.0.2.3\n*.w.z. A 192.0.2.4\n";
const IN: u16 = 1;
const NONE: u16 = 254;
const ANY: u16 = 255;

fn zone() -> Zone {
    built(&name_bytes("z."), ZONE).zone.expect("without errors")
}

fn lines_of(zone: &Zone) -> Vec<String> {
    let (mut writer, mut text) = (ZoneTextWriter::default(), String::new());
    while writer.write(zone, None, &mut text, usize::MAX) {}
    text.lines().map(str::to_owned).collect()
}

fn record(owner: &[u8], rtype: u16, class: u16, ttl_s: u32, rdata: &[u8]) -> Vec<u8> {
    let numbers = [rtype.to_be_bytes(), class.to_be_bytes()].concat();
    let length = (rdata.len() as u16).to_be_bytes();
    [owner, &numbers, &ttl_s.to_be_bytes(), &length, rdata].concat()
}

/// The record of a line such as `a.z. 60 A 192.0.2.1`, with this class and TTL.
fn record_of(line: &str, class: u16, ttl_s: Option<u32>) -> Vec<u8> {
    let mut parser = Parser::new("line".into(), format!("{line}\n").into_bytes(), Name::ROOT, ParserLimits::default());
    match parser.next() {
        Some(Ok(Entry::Record(found))) => {
            record(found.owner.as_bytes(), found.rtype.0, class, ttl_s.unwrap_or(found.ttl_s), found.rdata)
        }
        other => panic!("{line}: {other:?}"),
    }
}

/// A prerequisite, or an update, as nsupdate has it.
fn parse_line(line: &str) -> (usize, Vec<u8>) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let empty = |class| {
        let rtype = words.get(3).map_or(Rtype::ANY, |rtype| Rtype::from_text(rtype.as_bytes()).expect("a type"));
        record(&name_bytes(words[2]), rtype.0, class, 0, &[])
    };
    let rest = |first: &str| format!("{} {first} {}", words[2], words[3..].join(" "));
    match (words[0], words[1]) {
        ("prereq", "yxdomain") => (0, empty(ANY)),
        ("prereq", "nxdomain" | "nxrrset") => (0, empty(NONE)),
        ("prereq", "yxrrset") if words.len() == 4 => (0, empty(ANY)),
        ("prereq", "yxrrset") => (0, record_of(&rest("0"), IN, Some(0))),
        ("update", "add") => (1, record_of(&rest(""), IN, None)),
        ("update", "delete") if words.len() <= 4 => (1, empty(ANY)),
        ("update", "delete") => (1, record_of(&rest("0"), NONE, Some(0))),
        _ => panic!("{line}"),
    }
}

fn message_of(sections: &[Vec<Vec<u8>>; 2]) -> Vec<u8> {
    let [prerequisites, updates] = sections;
    let mut out = vec![0, 7, 5 << 3, 0, 0, 1, 0, prerequisites.len() as u8, 0, updates.len() as u8, 0, 0];
    out.extend(b"\x01z\0\0\x06\0\x01");
    out.extend(sections.concat().concat());
    out
}

fn message(lines: &str) -> Vec<u8> {
    let mut sections = [Vec::new(), Vec::new()];
    for (section, record) in lines.lines().map(parse_line) {
        sections[section].push(record);
    }
    message_of(&sections)
}

/// The lines that go and come; `None` if there is no other version.
fn changes_by(messages: &[Vec<u8>]) -> (Vec<Result<(), UpdateRefusal>>, Option<Vec<String>>) {
    let zone = zone();
    let mut update = ZoneUpdate::new(&zone);
    let apply = |message: &Vec<u8>| update.apply(&UpdateMessage::parse(message).expect("an update"), |_, _| true);
    let results = messages.iter().map(apply).collect();
    let changes = update.finish(ZoneLimits::default()).and_then(|built| built.zone).map(|next| {
        let (before, after) = (lines_of(&zone), lines_of(&next));
        let gone = before.iter().filter(|line| !after.contains(line)).map(|line| format!("-{line}"));
        let come = after.iter().filter(|line| !before.contains(line)).map(|line| format!("+{line}"));
        gone.chain(come)
            .filter(|line| !line.contains(" SOA ns.z. h.z. 8 ") && !line.contains(" SOA ns.z. h.z. 7 "))
            .collect()
    });
    (results, changes)
}

/// What the updates lead to, besides another serial.
#[track_caller]
fn check(lines: &str, expected: &[&str]) {
    let (results, changes) = changes_by(&[message(lines)]);
    assert_eq!(results, [Ok(())], "{lines}");
    let mut changes = changes.unwrap_or_else(|| panic!("nothing changes: {lines}"));
    changes.sort();
    let mut expected: Vec<String> = expected.iter().map(|line| (*line).to_owned()).collect();
    expected.sort();
    assert_eq!(changes, expected, "{lines}");
}

#[track_caller]
fn check_unchanged(lines: &str) {
    assert_eq!(changes_by(&[message(lines)]), (vec![Ok(())], None), "{lines}");
}

#[track_caller]
fn check_refused(message: Vec<u8>, refusal: UpdateRefusal) {
    assert_eq!(changes_by(&[message]), (vec![Err(refusal)], None));
}

#[test]
fn prerequisites_are_those_of_rfc_2136_section_3_2() {
    let add = "update add n.z. 60 A 192.0.2.9";
    for holds in [
        "yxdomain a.z.",
        "yxdomain A.Z.",
        "nxdomain q.z.",
        "nxdomain ent.z.",
        "nxdomain x.w.z.",
        "yxrrset a.z. A",
        "nxrrset a.z. MX",
        "nxrrset q.z. A",
        "yxrrset a.z. TXT \"x\"",
        "yxrrset m.z. MX 5 mail.z.",
    ] {
        check(&format!("prereq {holds}\n{add}"), &["+n.z. 60 IN A 192.0.2.9"]);
    }
    // All records of the RRset, in any order.
    check(
        &format!("prereq yxrrset a.z. A 192.0.2.2\nprereq yxrrset a.z. A 192.0.2.1\n{add}"),
        &["+n.z. 60 IN A 192.0.2.9"],
    );
    for (fails, refusal) in [
        ("yxdomain q.z.", UpdateRefusal::NameNotInUse),
        ("yxdomain ent.z.", UpdateRefusal::NameNotInUse),
        ("nxdomain a.z.", UpdateRefusal::NameInUse),
        ("yxrrset a.z. MX", UpdateRefusal::NoRrset),
        ("nxrrset a.z. A", UpdateRefusal::RrsetExists),
        ("yxrrset a.z. A 192.0.2.1", UpdateRefusal::NoRrset),
        ("yxrrset a.z. TXT \"y\"", UpdateRefusal::NoRrset),
        ("yxrrset q.z. TXT \"y\"", UpdateRefusal::NoRrset),
        ("yxdomain out.", UpdateRefusal::NotInZone),
    ] {
        check_refused(message(&format!("prereq {fails}\n{add}")), refusal);
    }
    let name = name_bytes("a.z.");
    for malformed in [
        record(&name, 1, ANY, 1, &[]),
        record(&name, 1, ANY, 0, &[1, 2, 3, 4]),
        record(&name, 1, NONE, 0, &[1, 2, 3, 4]),
        record(&name, 255, IN, 0, &[]),
        record(&name, 252, ANY, 0, &[]),
        record(&name, 1, 3, 0, &[1, 2, 3, 4]),
        record(&name, 1, IN, 0, &[1, 2, 3]),
    ] {
        check_refused(message_of(&[vec![malformed], vec![]]), UpdateRefusal::Malformed);
    }
}

#[test]
fn records_are_added_as_rfc_2136_section_3_4_2_2_says() {
    check("update add n.z. 60 TXT \"n\"", &["+n.z. 60 IN TXT \"n\""]);
    // RFC 2181 section 5.2: one TTL.
    check(
        "update add a.z. 60 A 192.0.2.3",
        &[
            "-a.z. 300 IN A 192.0.2.1",
            "-a.z. 300 IN A 192.0.2.2",
            "+a.z. 60 IN A 192.0.2.1",
            "+a.z. 60 IN A 192.0.2.2",
            "+a.z. 60 IN A 192.0.2.3",
        ],
    );
    check_unchanged("update add a.z. 300 A 192.0.2.1");
    check("update add m.z. 60 MX 5 mail.z.", &["-m.z. 300 IN MX 5 Mail.z.", "+m.z. 60 IN MX 5 mail.z."]);
    // An alias is alone at its name, and there is one.
    check_unchanged("update add a.z. 60 CNAME b.z.");
    check_unchanged("update add c.z. 60 A 192.0.2.1");
    check("update add c.z. 60 CNAME b.z.", &["-c.z. 300 IN CNAME a.z.", "+c.z. 60 IN CNAME b.z."]);
    check(
        "update delete a.z.\nupdate add a.z. 60 CNAME b.z.",
        &["-a.z. 300 IN A 192.0.2.1", "-a.z. 300 IN A 192.0.2.2", "-a.z. 300 IN TXT \"x\"", "+a.z. 60 IN CNAME b.z."],
    );
    // A SOA takes the place of that of the zone, unless it is earlier.
    check("update add z. 60 SOA ns.z. h.z. 100 2 3 4 60", &["+z. 60 IN SOA ns.z. h.z. 100 2 3 4 60"]);
    check_unchanged("update add z. 60 SOA ns.z. h.z. 6 2 3 4 60");
    check_unchanged("update add a.z. 60 SOA ns.z. h.z. 100 2 3 4 60");
}

#[test]
fn records_are_deleted_as_rfc_2136_sections_3_4_2_3_and_4_say() {
    check("update delete a.z. A", &["-a.z. 300 IN A 192.0.2.1", "-a.z. 300 IN A 192.0.2.2"]);
    check("update delete a.z. A 192.0.2.1", &["-a.z. 300 IN A 192.0.2.1"]);
    check("update delete m.z. MX 5 mail.z.", &["-m.z. 300 IN MX 5 Mail.z."]);
    check("update delete A.Z. TXT", &["-a.z. 300 IN TXT \"x\""]);
    check_unchanged("update delete a.z. A 192.0.2.9");
    check_unchanged("update delete q.z.");
    check_unchanged("update delete x.w.z. A");
    // SOA and NS of the zone stay, but for single NS records, of which one stays.
    check("update delete z.", &["-z. 300 IN TXT \"t\""]);
    check_unchanged("update delete z. NS");
    check_unchanged("update delete z. SOA");
    check_unchanged("update delete z. SOA ns.z. h.z. 7 2 3 4 60");
    check("update delete z. NS ns.out.\nupdate delete z. NS ns2.out.", &["-z. 300 IN NS ns.out."]);
    check("update add q.z. 60 A 192.0.2.1\nupdate delete q.z.", &[]);
}

#[test]
fn malformed_and_foreign_updates_change_nothing() {
    let (a, good) = (name_bytes("a.z."), record_of("n.z. 60 A 192.0.2.9", IN, None));
    for (update, refusal) in [
        (record(&name_bytes("out."), 1, IN, 0, &[1, 2, 3, 4]), UpdateRefusal::NotInZone),
        (record(&a, 255, IN, 0, &[]), UpdateRefusal::Malformed),
        (record(&a, 252, IN, 0, &[]), UpdateRefusal::Malformed),
        (record(&a, 1, ANY, 60, &[]), UpdateRefusal::Malformed),
        (record(&a, 1, ANY, 0, &[1, 2, 3, 4]), UpdateRefusal::Malformed),
        (record(&a, 252, ANY, 0, &[]), UpdateRefusal::Malformed),
        (record(&a, 1, NONE, 60, &[1, 2, 3, 4]), UpdateRefusal::Malformed),
        (record(&a, 255, NONE, 0, &[]), UpdateRefusal::Malformed),
        (record(&a, 1, 3, 0, &[1, 2, 3, 4]), UpdateRefusal::Malformed),
        (record(&a, 1, IN, 0, &[1, 2, 3]), UpdateRefusal::Malformed),
    ] {
        check_refused(message_of(&[vec![], vec![good.clone(), update]]), refusal);
    }
}

#[test]
fn permissions_are_those_of_each_name_and_type() {
    let zone = zone();
    let check = |lines: &str, expected: Result<(), UpdateRefusal>| {
        let message = message(lines);
        let txt_alone = |owner: Name<'_>, rtype: Rtype| owner.to_string() == "a.z." && rtype == Rtype::TXT;
        let result = ZoneUpdate::new(&zone).apply(&UpdateMessage::parse(&message).expect("an update"), txt_alone);
        assert_eq!(result, expected, "{lines}");
    };
    check("update add a.z. 60 TXT \"n\"", Ok(()));
    check("update delete a.z. TXT", Ok(()));
    check("update delete a.z. TXT \"x\"", Ok(()));
    check("update add a.z. 60 TXT \"n\"\nupdate add a.z. 60 A 192.0.2.9", Err(UpdateRefusal::NotAllowed));
    check("update add b.z. 60 TXT \"n\"", Err(UpdateRefusal::NotAllowed));
    // It would delete the addresses as well.
    check("update delete a.z.", Err(UpdateRefusal::NotAllowed));
    // Section 3.3: after the prerequisites.
    check("prereq nxdomain a.z.\nupdate add b.z. 60 TXT \"n\"", Err(UpdateRefusal::NameInUse));
}

#[test]
fn messages_follow_each_other_and_each_is_done_as_a_whole_or_not() {
    let (results, changes) = changes_by(&[
        message("update add n.z. 60 A 192.0.2.9"),
        message("prereq nxdomain n.z.\nupdate add n.z. 60 TXT \"lost\""),
        message("prereq yxdomain n.z.\nupdate add n.z. 60 TXT \"n\""),
    ]);
    assert_eq!(results, [Ok(()), Err(UpdateRefusal::NameInUse), Ok(())]);
    let changes = changes.expect("there are some");
    let expected = ["+z. 300 IN SOA ns.z. h.z. 9 2 3 4 60", "+n.z. 60 IN A 192.0.2.9", "+n.z. 60 IN TXT \"n\""];
    assert!(expected.iter().all(|line| changes.iter().any(|change| change == line)), "{changes:?}");
}

#[test]
fn reply_has_the_zone_section_and_the_rcode() {
    for (refusal, rcode) in [
        (UpdateRefusal::Malformed, 1),
        (UpdateRefusal::Failed, 2),
        (UpdateRefusal::NameNotInUse, 3),
        (UpdateRefusal::NotAllowed, 5),
        (UpdateRefusal::NameInUse, 6),
        (UpdateRefusal::RrsetExists, 7),
        (UpdateRefusal::NoRrset, 8),
        (UpdateRefusal::NotAuthoritative, 9),
        (UpdateRefusal::NotInZone, 10),
    ] {
        let message = message("update add n.z. 60 A 192.0.2.9");
        let update = UpdateMessage::parse(&message).expect("an update");
        let mut out = vec![0xa5; 512];
        let length_bytes = update.reply(UpdateResult::Refused(refusal), 0, &mut out).expect("it fits");
        assert_eq!(
            out[..length_bytes],
            [&[0, 7, 0xa8, rcode, 0, 1, 0, 0, 0, 0, 0, 0][..], b"\x01z\0\0\x06\0\x01"].concat()
        );
    }
}

proptest! {
    #[test]
    fn any_update_gives_a_zone_or_is_refused(
        prerequisites in prop::collection::vec(any_record(), 0..2),
        updates in prop::collection::vec(any_record(), 0..12),
    ) {
        let message = message_of(&[prerequisites, updates]);
        let (results, changes) = changes_by(std::slice::from_ref(&message));
        prop_assert!(results[0].is_ok() || changes.is_none());
    }

    #[test]
    fn any_bytes_are_no_update_or_one_that_is_answered(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let mut message = message_of(&[vec![], vec![]]);
        message[7] = 1;
        message.extend(bytes);
        if let Some(update) = UpdateMessage::parse(&message) {
            let zone = zone();
            let _ = ZoneUpdate::new(&zone).apply(&update, |_, _| true);
        }
    }
}

fn any_record() -> impl Strategy<Value = Vec<u8>> {
    let owner = prop::sample::select(vec!["z.", "a.z.", "c.z.", "m.z.", "n.z.", "ent.z.", "b.ent.z.", "x.a.z."]);
    let data = prop::sample::select(vec![
        "A 192.0.2.1",
        "A 192.0.2.7",
        "TXT \"x\"",
        "CNAME a.z.",
        "NS ns.out.",
        "DNAME y.z.",
        "MX 5 mail.z.",
        "SOA ns.z. h.z. 70 2 3 4 60",
    ]);
    let class = prop::sample::select(vec![IN, IN, IN, NONE, ANY]);
    (owner, data, class, any::<bool>()).prop_map(|(owner, data, class, whole_name)| {
        let full = record_of(&format!("{owner} 60 {data}"), class, (class != IN).then_some(0));
        let name = name_bytes(owner);
        let rtype = u16::from_be_bytes([full[name.len()], full[name.len() + 1]]);
        match (class, whole_name) {
            (ANY, true) => record(&name, 255, ANY, 0, &[]),
            (ANY, false) => record(&name, rtype, ANY, 0, &[]),
            _ => full,
        }
    })
}

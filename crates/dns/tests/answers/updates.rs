//! Dynamic updates, in the language of nsupdate: each rule of RFC 2136 section 3.

use super::support::zone_text::{built, name_bytes};
use hmac::{Hmac, KeyInit, Mac};
use proptest::prelude::*;
use sanderling_dns::difference::{DifferenceMerge, LaterFile, LaterSerial, MergeOutcome, ZoneDifference};
use sanderling_dns::update::{UpdateMessage, UpdateRefusal, UpdateResult, ZoneUpdate};
use sanderling_dns::zonefile::{Entry, Parser, ParserLimits, Position};
use sanderling_dns::{
    HashSeed, Name, Rtype, TsigAlgorithm, TsigError, TsigKey, Zone, ZoneBuilder, ZoneLimits, ZoneTextWriter,
};
use sha2::Sha256;

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

/// In any order, and with names in any spelling.
fn sorted_lines_of(zone: &Zone) -> Vec<String> {
    let mut lines: Vec<String> = lines_of(zone).iter().map(|line| line.to_lowercase()).collect();
    lines.sort();
    lines
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
    check("update add m.z. 60 MX 5 mail.z.", &["-m.z. 300 IN MX 5 Mail.z.", "+m.z. 60 IN MX 5 Mail.z."]);
    // An alias is alone at its name, and there is one.
    check_unchanged("update add a.z. 60 CNAME b.z.");
    check_unchanged("update add c.z. 60 A 192.0.2.1");
    check("update add c.z. 60 CNAME b.z.", &["-c.z. 300 IN CNAME a.z.", "+c.z. 60 IN CNAME b.z."]);
    check(
        "update delete a.z.\nupdate add a.z. 60 CNAME b.z.",
        &["-a.z. 300 IN A 192.0.2.1", "-a.z. 300 IN A 192.0.2.2", "-a.z. 300 IN TXT \"x\"", "+a.z. 60 IN CNAME b.z."],
    );
    check_unchanged("update add c.z. 300 CNAME A.Z.");
    // Also a DNAME (RFC 6672 section 5.2), WKS of an address and protocol, and the parameters of a chain of NSEC3.
    let add = "update add n.z. 60";
    check(
        &format!("{add} DNAME a.\n{add} DNAME b.\n{add} TXT \"n\""),
        &["+n.z. 60 IN DNAME b.", "+n.z. 60 IN TXT \"n\""],
    );
    check(
        &format!(
            "{add} WKS 192.0.2.1 TCP 23\n{add} WKS 192.0.2.1 TCP 25\n{add} WKS 192.0.2.1 UDP 53\n{add} WKS 192.0.2.2 TCP 80"
        ),
        &["+n.z. 60 IN WKS 192.0.2.1 6 25", "+n.z. 60 IN WKS 192.0.2.1 17 53", "+n.z. 60 IN WKS 192.0.2.2 6 80"],
    );
    check(
        &format!("{add} NSEC3PARAM 1 0 0 -\n{add} NSEC3PARAM 1 1 0 -\n{add} NSEC3PARAM 1 0 1 -"),
        &["+n.z. 60 IN NSEC3PARAM 1 1 0 -", "+n.z. 60 IN NSEC3PARAM 1 0 1 -"],
    );
    check(&format!("{add} SVCB 1 a.\n{add} SVCB 1 A."), &["+n.z. 60 IN SVCB 1 a.", "+n.z. 60 IN SVCB 1 A."]);
    // Keys may be beside an alias, as in a zone file.
    check("update add c.z. 60 KEY 0 0 0", &["+c.z. 60 IN KEY 0 0 0"]);
    // A SOA replaces the zone's SOA, unless it is earlier.
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
    // The update would delete the addresses as well.
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

/// `message`, signed with the key `k.`.
fn signed(message: &[u8], now_unix_s: u64, fudge_s: u16) -> Vec<u8> {
    let (name, algorithm) = (&b"\x01k\0"[..], &b"\x0bhmac-sha256\0"[..]);
    let time = [&now_unix_s.to_be_bytes()[2..], &fudge_s.to_be_bytes()].concat();
    let mut mac = Hmac::<Sha256>::new_from_slice(b"secret").expect("of any length");
    mac.update(&[message, name, &[0, 255, 0, 0, 0, 0], algorithm, &time, &[0; 4]].concat());
    let mac = mac.finalize().into_bytes();
    let rdata = [algorithm, &time, &[0, 32], &mac[..], &message[..2], &[0; 4]].concat();
    let mut out = message.to_vec();
    out[11] += 1;
    out.extend([name, &[0, 250, 0, 255, 0, 0, 0, 0], &(rdata.len() as u16).to_be_bytes(), &rdata].concat());
    out
}

#[test]
fn accepted_signature_tells_the_message_from_others_and_has_an_end() {
    const NOW: u64 = 1_800_000_000;
    let key = TsigKey::new(Name::parse(b"\x01k\0").expect("a name"), TsigAlgorithm::HmacSha256, b"secret");
    let signature = |message: &[u8], now_unix_s| {
        let mut update = UpdateMessage::parse(message).expect("an update");
        assert_eq!(update.signature(), None);
        let result = update.verify(std::slice::from_ref(&key), now_unix_s);
        (result, update.into_owned().signature())
    };
    let first = message("update add n.z. 60 A 192.0.2.9");
    let (result, found) = signature(&signed(&first, NOW, 300), NOW + 20);
    let found = found.expect("it is accepted");
    assert_eq!((result, found.expires_at_unix_s, found.is_long()), (Ok(()), NOW + 300, false));
    // Also with another ID, as far as the signature is the same.
    let mut other_id = signed(&first, NOW, 300);
    other_id[0] ^= 1;
    assert_eq!(signature(&other_id, NOW + 300), (Ok(()), Some(found)));
    for (message, fudge_s) in [(message("update add n.z. 60 A 192.0.2.8"), 300), (first.clone(), 600)] {
        let (_, other) = signature(&signed(&message, NOW, fudge_s), NOW);
        assert!(other.is_some_and(|other| other.mac != found.mac && other.is_long() == (fudge_s > 300)));
    }
    assert_eq!(signature(&signed(&first, NOW, 300), NOW + 301), (Err(TsigError::BadTime), None));
}

#[test]
fn second_opt_is_malformed_and_another_version_is_badvers() {
    let with_opts = |opts: &[&[u8]]| {
        let mut message = message("update add n.z. 60 A 192.0.2.9");
        message[11] = opts.len() as u8;
        message.extend(opts.concat());
        message
    };
    let (opt, other_version) = (&[0, 0, 41, 4, 0, 0, 0, 0, 0, 0, 0][..], &[0, 0, 41, 4, 0, 0, 1, 0, 0, 0, 0][..]);
    assert!(UpdateMessage::parse(&with_opts(&[opt, opt])).is_none());
    assert!(UpdateMessage::parse(&with_opts(&[opt])).expect("an update").has_known_edns());
    let message = with_opts(&[other_version]);
    let update = UpdateMessage::parse(&message).expect("an update").into_owned();
    assert!(!update.has_known_edns());
    let mut out = vec![0xa5; 512];
    let length_bytes = update.reply(UpdateResult::BadVersion, 0, &mut out).expect("it fits");
    let opt = [0, 0, 41, 2, 0, 1, 0, 0, 0, 0, 0];
    assert_eq!(
        out[..length_bytes],
        [&[0, 7, 0xa8, 0, 0, 1, 0, 0, 0, 0, 0, 1][..], b"\x01z\0\0\x06\0\x01", &opt].concat()
    );
}

/// The lines of the zone file `text`, or of a version that differs from it by `encoded`; the difference to it, encoded;
/// and what has become of the previous one.
fn merged(text: &str, encoded: &[u8]) -> (Zone, Vec<u8>, MergeOutcome) {
    let (zone, difference, outcome, _) = merged_with(text, encoded, LaterFile::Replaces);
    (zone, difference, outcome)
}

fn merged_with(
    text: &str,
    encoded: &[u8],
    later_file: LaterFile,
) -> (Zone, Vec<u8>, MergeOutcome, Option<LaterSerial>) {
    let apex = name_bytes("z.");
    let apex = Name::parse(&apex).expect("a name");
    let (difference, made_for) = ZoneDifference::decode(encoded, apex).expect("encoded");
    let mut merge = DifferenceMerge::new(apex, difference, made_for, later_file);
    let mut builder = ZoneBuilder::new(apex, HashSeed(7), ZoneLimits::default());
    let mut parser = Parser::new("zone".into(), text.as_bytes().to_vec(), apex, ParserLimits::default());
    let mut end = None;
    while let Some(entry) = parser.next() {
        let Ok(Entry::Record(record)) = entry else { panic!("{entry:?}") };
        end = Some(record.position);
        if !merge.holds_back(&record) {
            builder.add(&record);
        }
    }
    let end = end.expect("records");
    let merged = merge.finish(None, end, |record| builder.add(record));
    let zone = builder.finish(end).zone.expect("without errors");
    assert!(merged.difference.encoded_bytes() <= merged.difference.encode(apex, 0).len().max(48));
    (zone, merged.difference.encode(apex, merged.digest), merged.outcome, merged.held())
}

/// The version after these messages, with the difference to the file.
fn updated(before: &Zone, encoded: &[u8], messages: &[&str]) -> (Zone, Vec<u8>) {
    let (mut difference, _) = ZoneDifference::decode(encoded, before.apex()).expect("encoded");
    let mut update = ZoneUpdate::new(before);
    for lines in messages {
        update.apply(&UpdateMessage::parse(&message(lines)).expect("an update"), |_, _| true).expect("done");
    }
    difference.add_changes(&update);
    let next = update.finish(ZoneLimits::default()).expect("changes").zone.expect("a zone");
    (next, difference.encode(before.apex(), file_digest(ZONE)))
}

/// The digest of a zone file's records.
fn file_digest(text: &str) -> u64 {
    let apex = name_bytes("z.");
    let apex = Name::parse(&apex).expect("a name");
    let mut merge = DifferenceMerge::new(apex, ZoneDifference::default(), 0, LaterFile::Replaces);
    let mut parser = Parser::new("zone".into(), text.as_bytes().to_vec(), apex, ParserLimits::default());
    while let Some(Ok(Entry::Record(record))) = parser.next() {
        merge.holds_back(&record);
    }
    merge.finish(None, Position { file_index: 0, line: 1, column: 1 }, |_| {}).digest
}

const SEVERAL: [&str; 4] = [
    "update add n.z. 60 A 192.0.2.9\nupdate delete a.z. TXT",
    "update add a.z. 60 A 192.0.2.3\nupdate delete a.z. A 192.0.2.1",
    "update delete m.z.\nupdate delete n.z.",
    "update add m.z. 300 MX 5 mail.z.\nupdate add z. 60 SOA ns.z. other.z. 100 2 3 4 60",
];

#[test]
fn difference_leads_from_the_same_file_to_the_same_version() {
    let file = merged(ZONE, &[]).0;
    assert_eq!(lines_of(&file), lines_of(&zone()));
    let (mut served, mut stored) = (file, Vec::new());
    for lines in SEVERAL {
        (served, stored) = updated(&served, &stored, &[lines]);
        // The order of lines, and comments, do not matter.
        let reordered: Vec<&str> = ZONE.lines().rev().collect();
        let reordered = format!("$ORIGIN z.\n$TTL 300\n; edited\n{}\n", reordered[..reordered.len() - 2].join("\n"));
        for text in [ZONE, &reordered] {
            let (again, difference, outcome) = merged(text, &stored);
            let (again, expected) = (sorted_lines_of(&again), sorted_lines_of(&served));
            assert_eq!((again, difference, outcome), (expected, stored.clone(), MergeOutcome::Unchanged), "{lines}");
        }
    }
    // A record that was deleted and added again does not differ.
    let apex = name_bytes("z.");
    let (difference, _) = ZoneDifference::decode(&stored, Name::parse(&apex).expect("a name")).expect("encoded");
    assert_eq!((difference.counts(), difference.serial()), ([2, 3], Some(100)));
}

#[test]
fn difference_is_applied_to_a_changed_file_as_far_as_it_fits() {
    let (served, stored) = updated(&merged(ZONE, &[]).0, &[], &SEVERAL[..2]);
    let serial = |zone: &Zone| zone.serial();
    assert_eq!(serial(&served), 9);
    let has = |zone: &Zone, line: &str| lines_of(zone).iter().any(|other| other == line);
    // The operator has deleted a record that updates have deleted as well, and one whose TTL they have changed, and
    // added another one.
    let changed = ZONE.replace("a.z. TXT \"x\"\n", "").replace("a.z. A 192.0.2.2\n", "own.z. A 192.0.2.8\n");
    let (next, difference, outcome) = merged(&changed, &stored);
    assert_eq!((serial(&next), outcome), (10, MergeOutcome::Applied));
    for (line, is_there) in [
        ("own.z. 300 IN A 192.0.2.8", true),
        ("n.z. 60 IN A 192.0.2.9", true),
        ("a.z. 60 IN A 192.0.2.3", true),
        ("a.z. 300 IN A 192.0.2.1", false),
        ("a.z. 60 IN A 192.0.2.2", false),
        ("a.z. 300 IN TXT \"x\"", false),
    ] {
        assert_eq!(has(&next, line), is_there, "{line}: {:?}", lines_of(&next));
    }
    // The stored difference then leads from the changed file to the same version.
    let (again, same, outcome) = merged(&changed, &difference);
    assert_eq!((lines_of(&again), same, outcome), (lines_of(&next), difference, MergeOutcome::Unchanged));
    // The file has the same serial, or one that is not later than the version's.
    for (text, outcome, expected) in [
        (changed.replace(" 7 2 3", " 9 2 3"), MergeOutcome::Applied, 10),
        (changed.replace(" 7 2 3", " 10 2 3"), MergeOutcome::Superseded, 10),
    ] {
        let (next, difference, found) = merged(&text, &stored);
        assert_eq!((found, serial(&next)), (outcome, expected), "{text}");
        assert_eq!(has(&next, "n.z. 60 IN A 192.0.2.9"), outcome == MergeOutcome::Applied);
        assert_eq!(has(&next, "a.z. 300 IN A 192.0.2.1"), outcome == MergeOutcome::Superseded);
        assert_eq!(difference.is_empty(), outcome == MergeOutcome::Superseded);
    }
}

#[test]
fn later_file_replaces_the_version_if_it_has_what_updates_have_made() {
    let (served, stored) = updated(&merged(ZONE, &[]).0, &[], &SEVERAL[..2]);
    let merge = |text: &str, encoded: &[u8]| merged_with(text, encoded, LaterFile::ReplacesIfComplete);
    // Updates have added two records, deleted two, and changed the TTL of one, which is both.
    let later = ZONE.replace(" 7 2 3", " 50 2 3");
    let (held, difference, outcome, reason) = merge(&later, &stored);
    let reason = reason.expect("it is held");
    assert_eq!((held.serial(), outcome), (10, MergeOutcome::Applied));
    assert_eq!(reason, LaterSerial { of_file: 50, of_version: 9, lost_count: 5 });
    let without_soa = |zone: &Zone| -> Vec<String> {
        sorted_lines_of(zone).into_iter().filter(|line| !line.contains(" soa ")).collect()
    };
    assert_eq!(without_soa(&held), without_soa(&served));
    // The stored difference keeps this state until the operator decides.
    let (again, same, outcome, reason) = merge(&later, &difference);
    assert_eq!((lines_of(&again), same, outcome), (lines_of(&held), difference.clone(), MergeOutcome::Unchanged));
    assert_eq!(reason, Some(LaterSerial { of_file: 50, of_version: 10, lost_count: 5 }));
    let (forced, dropped, outcome) = merged(&later, &difference);
    assert_eq!((forced.serial(), dropped.len(), outcome), (50, 0, MergeOutcome::Superseded));
    // The output of `zone export`, with a later serial and another record.
    let exported = lines_of(&served).join("\n").replace(" 9 2 3", " 50 2 3") + "\nown.z. 60 IN A 192.0.2.8\n";
    let (next, dropped, outcome, reason) = merge(&exported, &stored);
    assert_eq!((next.serial(), dropped.len(), outcome, reason), (50, 0, MergeOutcome::Superseded, None));
}

#[test]
fn damaged_difference_is_not_used() {
    let (_, stored) = updated(&merged(ZONE, &[]).0, &[], &SEVERAL[..1]);
    let apex = name_bytes("z.");
    let apex = Name::parse(&apex).expect("a name");
    assert!(ZoneDifference::decode(&stored, apex).is_ok());
    for index in 0..stored.len() {
        let mut damaged = stored.clone();
        damaged[index] ^= 1;
        assert!(ZoneDifference::decode(&damaged, apex).is_err(), "byte {index}");
        assert!(index == 0 || ZoneDifference::decode(&stored[..index], apex).is_err(), "{index} bytes");
    }
    let other = name_bytes("other.");
    assert!(ZoneDifference::decode(&stored, Name::parse(&other).expect("a name")).is_err());
}

proptest! {
    #[test]
    fn any_updates_lead_to_a_version_that_is_found_again(
        groups in prop::collection::vec(prop::collection::vec(any_record(), 1..4), 1..6),
    ) {
        let (mut served, mut difference) = (merged(ZONE, &[]).0, ZoneDifference::default());
        for updates in groups {
            let message = message_of(&[vec![], updates]);
            let mut update = ZoneUpdate::new(&served);
            let _ = update.apply(&UpdateMessage::parse(&message).expect("an update"), |_, _| true);
            let mut next_difference = difference.clone();
            next_difference.add_changes(&update);
            if let Some(next) = update.finish(ZoneLimits::default()).and_then(|built| built.zone) {
                (served, difference) = (next, next_difference);
            }
        }
        let stored = difference.encode(served.apex(), file_digest(ZONE));
        let (again, same, _) = merged(ZONE, &stored);
        prop_assert_eq!(sorted_lines_of(&again), sorted_lines_of(&served));
        prop_assert_eq!(same, stored);
    }

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

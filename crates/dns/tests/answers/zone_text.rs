//! The records of a zone as text, which are read back as the same zone.

use super::support::random_zone::zone_text;
use super::support::zone_text::{SEED, name_bytes};
use proptest::prelude::*;
use sanderling_dns::zonefile::{Entry, Parser, ParserLimits};
use sanderling_dns::{Name, Rtype, Zone, ZoneBuilder, ZoneLimits, ZoneTextWriter};

/// Owner in lower case, type, RDATA.
type Record = (Vec<u8>, u16, Vec<u8>);

/// The zone in `text`, and its records without their order.
fn read(apex: &str, text: &str) -> (Zone, Vec<Record>) {
    let apex = name_bytes(apex);
    let apex = Name::parse(&apex).expect("a name");
    let mut parser = Parser::new("test.zone".into(), text.as_bytes().to_vec(), apex, ParserLimits::default());
    let mut builder = ZoneBuilder::new(apex, SEED, ZoneLimits::default());
    let mut records = Vec::new();
    let mut end = None;
    while let Some(entry) = parser.next() {
        let Ok(Entry::Record(record)) = entry else { panic!("{entry:?}\n{text}") };
        records.push((record.owner.as_bytes().to_ascii_lowercase(), record.rtype.0, record.rdata.to_vec()));
        builder.add(&record);
        end = Some(record.position);
    }
    records.sort();
    records.dedup();
    let built = builder.finish(end.expect("a record"));
    (built.zone.unwrap_or_else(|| panic!("{:#?}\n{text}", built.diagnostics)), records)
}

fn zone(apex: &str, text: &str) -> Zone {
    read(apex, text).0
}

/// The whole text, in parts of at least `bytes_min`.
fn text_of(zone: &Zone, rtype: Option<Rtype>, bytes_min: usize) -> String {
    let mut writer = ZoneTextWriter::default();
    let (mut text, mut part) = (String::new(), String::new());
    loop {
        let has_more = writer.write(zone, rtype, &mut part, bytes_min);
        text += &part;
        part.clear();
        if !has_more {
            return text;
        }
    }
}

#[track_caller]
fn check_round_trip(apex: &str, text: &str) {
    let (zone, records) = read(apex, text);
    let shown = text_of(&zone, None, 100);
    assert_eq!(shown.lines().count(), zone.record_count(), "{shown}");
    assert!(shown.lines().next().is_some_and(|line| line.contains(" IN SOA ")), "{shown}");
    let (again, records_again) = read(apex, &shown);
    assert_eq!(records_again, records, "{shown}");
    // With the same TTLs, which every line has.
    assert_eq!(text_of(&again, None, usize::MAX), shown);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn text_of_a_zone_is_read_as_the_same_zone(text in zone_text("z.")) {
        check_round_trip("z.", &text);
    }
}

#[test]
fn every_type_of_a_zone_is_written_and_read() {
    check_round_trip("example.", include_str!("../zones/types.zone"));
}

#[test]
fn one_type_can_be_selected() {
    let zone = zone("example.", "$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns\n@ MX 5 a\nb MX 6 a\nb A 192.0.2.1\n");
    let expected = "example. 60 IN MX 5 a.example.\nb.example. 60 IN MX 6 a.example.\n";
    assert_eq!(text_of(&zone, Rtype::from_text(b"MX"), 1), expected);
    assert_eq!(text_of(&zone, Rtype::from_text(b"TYPE65280"), 1), "");
}

#[test]
fn each_record_of_an_rrset_is_visited_by_name_and_type() {
    let zone = zone(
        "a.test.",
        "@ 60 SOA ns h 1 1 1 1 1\n@ 60 NS ns\n@ 60 MX 5 mail\n@ 60 MX 10 mail.b.test.\nns 60 A 192.0.2.1\n",
    );
    let mut found = Vec::new();
    zone.each_rdata_of(zone.apex(), Rtype::MX, |rdata| found.push(rdata.to_vec()));
    found.sort();
    assert_eq!(found, [b"\0\x05\x04mail\x01a\x04test\0".to_vec(), b"\0\x0a\x04mail\x01b\x04test\0".to_vec()]);
}

//! Versions that edits lead to: each equals one that is built from its records as a whole.

use super::support::exchange::ask_bytes;
use super::support::question::{Question, UDP};
use super::support::random_zone::{RandomRecord, question_name, question_type, records, text_of};
use super::support::reply::ReplyRecord;
use super::support::signer::{Chain, signed};
use super::support::zone_text::{SEED, built, name_bytes, records_of_zones};
use proptest::prelude::*;
use sanderling_dns::journal::{RecordRole, ZoneChange, ZoneChangeBuilder};
use sanderling_dns::zone_edit::ZoneEdit;
use sanderling_dns::zonefile::{Position, Record};
use sanderling_dns::{DnsTransport, Name, Rtype, Zone, ZoneEntry, ZoneLimits, ZoneMap, ZoneTextWriter};
use std::collections::BTreeSet;
use std::sync::Arc;

const APEX: &str = "z.";
const JOURNAL_BYTES_MAX: usize = 1 << 20;

fn zone_of(text: &str) -> Zone {
    let built = built(&name_bytes(APEX), text);
    built.zone.unwrap_or_else(|| panic!("{:#?}\n{text}", built.diagnostics))
}

/// The text of the version with this serial, signed if there is a chain.
fn version_of(records: &[(bool, RandomRecord)], serial: usize, chain: Option<Chain>) -> String {
    let records: Vec<RandomRecord> = records.iter().map(|(_, record)| record.clone()).collect();
    let text = text_of(APEX, &records).replace(" 1 2 3 4 60", &format!(" {serial} 2 3 4 60"));
    let Some(chain) = chain else { return text };
    // Signatures of one version in three expire earlier.
    let year = if serial.is_multiple_of(3) { "2029" } else { "2030" };
    signed(&text, chain).replace("20300101000000", &format!("{year}0101000000"))
}

fn records_of(text: &str) -> Vec<ReplyRecord> {
    records_of_zones(text).remove(0).1
}

fn record(record: &ReplyRecord) -> Record<'_> {
    let owner = Name::parse(&record.owner).expect("a name");
    let position = Position { file_index: 0, line: 1, column: 1 };
    Record { position, owner, rtype: record.rtype, ttl_s: record.ttl_s, rdata: &record.rdata }
}

/// The version that the difference between two texts leads to.
fn edited(zone: &Zone, before: &str, after: &str) -> Zone {
    let (before, after) = (records_of(before), records_of(after));
    let mut edit = ZoneEdit::new(zone);
    let owners: BTreeSet<&Vec<u8>> = before.iter().chain(&after).map(|record| &record.owner).collect();
    for owner in owners {
        let [before, after] =
            [&before, &after].map(|records| records.iter().filter(|record| record.owner == *owner).collect::<Vec<_>>());
        let is_kept = |record: &&&ReplyRecord| after.contains(*record);
        let come: Vec<_> = after.iter().copied().filter(|record| !before.contains(record)).collect();
        if before.iter().filter(is_kept).chain(&come).eq(&after) {
            let mut gone = before.iter().filter(|record| !is_kept(record));
            assert!(gone.all(|gone| edit.remove(&record(gone))));
            come.iter().for_each(|come| edit.add(&record(come)));
        } else {
            edit.clear(Name::parse(owner).expect("a name"));
            after.iter().for_each(|after| edit.add(&record(after)));
        }
    }
    let outcome = edit.finish(ZoneLimits::default());
    outcome.zone.unwrap_or_else(|| panic!("{:#?}", outcome.diagnostics))
}

fn zone_text_of(zone: &Zone) -> String {
    let (mut writer, mut text) = (ZoneTextWriter::default(), String::new());
    while writer.write(zone, None, &mut text, usize::MAX) {}
    text
}

fn lines_of(zone: &Zone) -> Vec<String> {
    let mut lines: Vec<String> = zone_text_of(zone).lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// Checks that `edited` answers and walks as `built` does, and that its digest is the same.
fn check_same(edited: Zone, built: Zone, questions: &[Question], context: &str) -> Arc<Zone> {
    edited.check();
    assert_eq!(lines_of(&edited), lines_of(&built), "{context}");
    let counts =
        |zone: &Zone| (zone.serial(), zone.record_count(), zone.name_count(), zone.signatures_expire_at(1_700_000_000));
    assert_eq!(counts(&edited), counts(&built), "{context}");
    let mut built = built;
    if let Some(journal) = edited.encoded_journal() {
        assert_eq!(built.restore_journal(&journal), Ok(()), "{context}");
        assert_eq!(built.journal().first_change(), edited.journal().first_change(), "{context}");
    }
    let edited = Arc::new(edited);
    let [of_edited, of_built] =
        [Arc::clone(&edited), Arc::new(built)].map(|zone| ZoneMap::new(SEED, [ZoneEntry::Served(zone)]));
    for question in questions {
        let with = Question { edns_bytes: Some(1232), dnssec_ok: true, ..question.clone() };
        for question in [question.clone(), with, Question { transport: DnsTransport::Tcp, ..question.clone() }] {
            let replies = [&of_edited, &of_built].map(|zones| ask_bytes(zones, &question));
            assert!(replies[0] == replies[1], "{question:?}\n{replies:02x?}\n{context}");
        }
    }
    edited
}

fn questions() -> impl Strategy<Value = Vec<Question>> {
    let question = (question_name(), question_type());
    let question = question.prop_map(|(name, rtype)| Question { transport: UDP, ..Question::new(name, rtype) });
    prop::collection::vec(question, 100)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn an_edited_version_equals_one_that_is_built(
        start in records(APEX),
        steps in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 1..6), 1..8),
        others in records(APEX),
        is_prepared: bool,
        chain in prop::option::of(prop::sample::select(vec![Chain::Nsec, Chain::Nsec3, Chain::OptOut])),
        questions in questions(),
    ) {
        // Each once, so that the order of an RRset does not depend on what has come and gone.
        let mut seen = BTreeSet::new();
        let mut all = start.iter().chain(&others).map(|record| (seen.insert(record), record.clone()));
        let (mut current, mut rest): (Vec<_>, Vec<_>) = (all.by_ref().take(start.len()).collect(), all.collect());
        [&mut current, &mut rest].into_iter().for_each(|records| records.retain(|(is_first, _)| *is_first));
        prop_assume!(!current.is_empty());
        let mut text = version_of(&current, 1, chain);
        let mut zone = zone_of(&text);
        if is_prepared {
            zone.prepare_edits();
        }
        let mut zone = Arc::new(zone);
        // A version in the middle is merged while others follow.
        let mut built_beside = None;
        for (index, step) in steps.iter().enumerate() {
            for place in step {
                // A record goes, or one of the others comes.
                let at = place.index(current.len() + rest.len());
                match at.checked_sub(current.len()) {
                    None => rest.push(current.remove(at)),
                    Some(at) => current.push(rest.remove(at)),
                }
            }
            let next = version_of(&current, index + 2, chain);
            let mut version = edited(&zone, &text, &next);
            prop_assert!(version.delta_name_count() > 0, "the version was built as a whole");
            version.continue_journal(&zone, JOURNAL_BYTES_MAX);
            let merged = version.merged(ZoneLimits::default()).expect("without errors");
            prop_assert_eq!((merged.delta_name_count(), merged.journal()), (0, version.journal()));
            let merged = check_same(merged, zone_of(&next), &questions, "merged");
            zone = check_same(version, zone_of(&next), &questions, &format!("{text}→\n{next}"));
            let (base, merged) = built_beside.get_or_insert_with(|| (Arc::clone(&zone), merged));
            let rebased = base.rebased(merged, &zone, ZoneLimits::default()).expect("without errors");
            prop_assert_eq!((rebased.delta_name_count() > 0, rebased.journal()), (index > 0, zone.journal()));
            check_same(rebased, zone_of(&next), &questions, &format!("rebased {next}"));
            text = next;
        }
    }
}

const ZONE: &str = "$ORIGIN z.\n$TTL 300\nz. SOA ns.z. h.z. 1 2 3 4 60\nz. NS ns.z.\nns.z. A 192.0.2.1\nd.z. NS ns.d.z.\n\
                    ns.d.z. A 192.0.2.2\nm.z. MX 1 a.b.z.\n*.b.z. A 192.0.2.3\nc.z. CNAME ns.z.\n";

#[test]
fn a_version_with_errors_is_not_made() {
    let zone = zone_of(ZONE);
    let mut edit = ZoneEdit::new(&zone);
    let text = ReplyRecord { owner: name_bytes("c.z."), rtype: Rtype::TXT, ttl_s: 60, rdata: b"\x01x".to_vec() };
    edit.add(&record(&text));
    let outcome = edit.finish(ZoneLimits::default());
    assert!(outcome.zone.is_none() && outcome.diagnostics[0].problem.contains("CNAME"), "{:?}", outcome.diagnostics);
}

/// The change between two texts, as IXFR has it.
fn change_between(before: &str, after: &str) -> ZoneChange {
    let [before, after] = [before, after].map(records_of);
    let mut change = ZoneChangeBuilder::new(Name::parse(&name_bytes(APEX)).expect("a name"));
    for (role, records, others) in [(RecordRole::Removed, &before, &after), (RecordRole::Added, &after, &before)] {
        records.iter().filter(|one| !others.contains(one)).for_each(|one| change.add(role, &record(one)));
    }
    change.finish().expect("a change")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_version_by_received_changes_equals_one_that_is_built(
        versions in prop::collection::vec(records(APEX), 2..5),
        chain in prop::option::of(prop::sample::select(vec![Chain::Nsec, Chain::Nsec3, Chain::OptOut])),
        questions in questions(),
    ) {
        let texts: Vec<String> = versions.iter().enumerate().map(|(index, records)| {
            let mut seen = BTreeSet::new();
            let records: Vec<_> = records.iter().filter(|record| seen.insert(*record)).map(|it| (true, it.clone())).collect();
            version_of(&records, index + 1, chain)
        }).collect();
        let start = zone_of(&texts[0]);
        let mut edit = ZoneEdit::new(&start);
        for pair in texts.windows(2) {
            prop_assert!(edit.apply(&change_between(&pair[0], &pair[1])), "{} -> {}", pair[0], pair[1]);
        }
        let last = &texts[texts.len() - 1];
        let version = edit.finish(ZoneLimits::default()).zone.expect("without errors");
        // The order of an RRset depends on what has come and gone.
        let built = zone_of(&format!("$TTL 300\n{}", zone_text_of(&version)));
        prop_assert_eq!(lines_of(&built), lines_of(&zone_of(last)));
        check_same(version, built, &questions, &texts.join("→\n"));
    }
}

#[test]
fn a_change_that_does_not_fit_is_refused() {
    let zone = zone_of(ZONE);
    let next = ZONE.replace(" 1 2 3 4 60", " 2 2 3 4 60");
    let fits = |before: &str, after: &str| ZoneEdit::new(&zone).apply(&change_between(before, after));
    assert!(fits(ZONE, &format!("{next}x.z. A 192.0.2.9\n")));
    // The change removes a missing record, adds an existing one, adds to an RRset with another TTL, or starts from
    // another SOA.
    assert!(!fits(&format!("{ZONE}x.z. A 192.0.2.9\n"), &next));
    assert!(!fits(&ZONE.replace("ns.z. A 192.0.2.1\n", ""), &next));
    assert!(!fits(ZONE, &format!("{next}ns.z. 60 A 192.0.2.9\n")));
    assert!(!fits(&ZONE.replace("h.z. 1", "g.z. 1"), &next));
}

/// Memory that many changes leave behind is released, and versions share unchanged parts.
#[test]
fn many_edits_do_not_take_more_and_more_memory() {
    let names: String = (0..2_000).map(|index| format!("host{index}.z. A 192.0.2.1\n")).collect();
    let text = format!("{ZONE}{names}");
    let mut zone = zone_of(&text);
    zone.prepare_edits();
    let bytes = zone.memory_bytes();
    let mut built_count = 0;
    for serial in 1..6_000_u32 {
        let mut edit = ZoneEdit::new(&zone);
        let host = |serial: u32| name_bytes(&format!("host{}.z.", serial * 7 % 2_000));
        let data = |serial: u32| serial.to_be_bytes().to_vec();
        let text = ReplyRecord { owner: host(serial), rtype: Rtype::A, ttl_s: 60, rdata: data(serial) };
        edit.clear(Name::parse(&text.owner).expect("a name"));
        edit.add(&record(&text));
        let next = edit.finish(ZoneLimits::default()).zone.expect("without errors");
        built_count += usize::from(next.delta_name_count() == 0);
        assert!(next.memory_bytes() < bytes + (1 << 20), "{serial}: {} of {bytes}", next.memory_bytes());
        assert_eq!(next.record_count(), zone.record_count());
        zone = next;
    }
    assert!((1..60).contains(&built_count), "{built_count}");
    zone.check();
}

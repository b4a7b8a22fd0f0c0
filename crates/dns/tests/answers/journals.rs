//! Journals: what a secondary makes of the changes is the version that they lead to.

use super::support::random_zone::zone_text;
use super::support::signer::{Chain, signed};
use super::support::zone_text::{built, name_bytes};
use proptest::prelude::*;
use sanderling_dns::transfer::TransferRequest;
use sanderling_dns::transfer_in::{Progress, RecordRole, SizeLimit, TransferLimits, TransferReceiver};
use sanderling_dns::zone_patch::{PatchError, ZonePatch};
use sanderling_dns::zonefile::{Entry, Parser, ParserLimits, Position, Record};
use sanderling_dns::{
    HashSeed, JournalError, Name, ParsedQuery, TsigAlgorithm, TsigKey, Zone, ZoneBuilder, ZoneLimits, ZoneMap,
    ZoneTextWriter,
};

const NOW: u64 = 1_800_000_000;
const BYTES_MAX: usize = 1 << 20;
const UNLIMITED: TransferLimits =
    TransferLimits { size: SizeLimit { bytes_max: u64::MAX, key: "" }, empty_messages_max: u32::MAX };

/// The zone `z.` of `text`, whose serial is 1, with another serial.
fn version(text: &str, serial: u32) -> Zone {
    built(&name_bytes("z."), &with_serial(text, serial)).zone.expect("without errors")
}

/// A version with signatures.
fn signed_version(text: &str, serial: u32) -> Zone {
    built(&name_bytes("z."), &signed(&with_serial(text, serial), Chain::Nsec)).zone.expect("without errors")
}

fn with_serial(text: &str, serial: u32) -> String {
    text.replacen(" 1 2 3 4 60", &format!(" {serial} 2 3 4 60"), 1)
}

/// A zone with these records.
fn zone(serial: u32, records: &str) -> Zone {
    version(&format!("$ORIGIN z.\n$TTL 300\nz. SOA ns.z. h.z. 1 2 3 4 60\nz. NS ns.out.\n{records}"), serial)
}

fn text_of(zone: &Zone) -> String {
    let (mut writer, mut text) = (ZoneTextWriter::default(), String::new());
    while writer.write(zone, None, &mut text, usize::MAX) {}
    text
}

fn sorted(zone: &Zone) -> Vec<String> {
    let mut lines: Vec<String> = text_of(zone).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// The zone that a secondary with the version `stored` gets from a server with `current`, and whether the transfer was
/// incremental.
fn transferred(stored: &Zone, current: &Zone, room_bytes: usize) -> (Result<Zone, PatchError>, bool) {
    let key = TsigKey::new(Name::parse(b"\x03key\0").expect("a name"), TsigAlgorithm::HmacSha256, b"secret");
    let (query, mut receiver) =
        TransferReceiver::new(current.apex(), Some(stored.serial()), 7, Some(&key), NOW, UNLIMITED);
    let zones = ZoneMap::new(HashSeed(1), []);
    let parsed = ParsedQuery::parse(&zones, &query);
    let mut request = TransferRequest::new(&parsed).expect("a request");
    request.verify(&[key], NOW).expect("signed");
    let mut transfer = request.begin(current);
    let is_incremental = transfer.is_incremental();
    let mut builder = ZoneBuilder::new(current.apex(), HashSeed(2), ZoneLimits::default());
    let (mut patch, mut out) = (ZonePatch::default(), vec![0; room_bytes]);
    let mut progress = Progress::More;
    while let Some(length_bytes) = transfer.write(current, NOW, &mut out).expect("all records fit") {
        assert_eq!(progress, Progress::More);
        progress = receiver
            .receive(&out[..length_bytes], NOW, |role, record| match role {
                RecordRole::OfZone => builder.add(record),
                _ => patch.add(role, record),
            })
            .expect("accepted");
    }
    assert_eq!(progress, Progress::Complete);
    assert_eq!(is_incremental, !patch.is_empty());
    let patched = if is_incremental { apply(patch, stored, &mut builder) } else { Ok(()) };
    let zone = || builder.finish(Position { file_index: 0, line: 1, column: 1 }).zone.expect("without errors");
    (patched.map(|()| zone()), is_incremental)
}

fn apply(mut patch: ZonePatch, stored: &Zone, builder: &mut ZoneBuilder) -> Result<(), PatchError> {
    let limits = ParserLimits::default();
    let mut parser = Parser::new("stored".to_owned(), text_of(stored).into_bytes(), stored.apex(), limits);
    while let Some(Ok(Entry::Record(record))) = parser.next() {
        if let Some(ttl_s) = patch.apply(&record)? {
            builder.add(&Record { ttl_s, ..record });
        }
    }
    patch.finish(|record| builder.add(record))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn changes_lead_from_each_version_to_the_last(
        texts in prop::collection::vec(zone_text("z."), 2..5),
        first_serial in any::<u32>(),
        room_bytes in 300..600usize,
    ) {
        let mut versions: Vec<Zone> = Vec::new();
        for (index, text) in texts.iter().enumerate() {
            let mut next = version(text, first_serial.wrapping_add(index as u32));
            if let Some(before) = versions.last() {
                next.continue_journal(before, BYTES_MAX);
            }
            versions.push(next);
        }
        let current = versions.pop().expect("the last one");
        let mut restored = version(texts.last().expect("the last one"), current.serial());
        let encoded = current.encoded_journal().expect("it has changes");
        restored.restore_journal(&encoded).expect("it is of this version");
        for stored in &versions {
            for current in [&current, &restored] {
                let (result, is_incremental) = transferred(stored, current, room_bytes);
                prop_assert!(is_incremental);
                prop_assert_eq!(sorted(&result.expect("it can be applied")), sorted(current));
            }
        }
        let (_, is_incremental) = transferred(&version(&texts[0], first_serial.wrapping_sub(1)), &current, 65_535);
        prop_assert!(!is_incremental, "the journal does not go back so far");
    }

    #[test]
    fn changes_of_signed_zones_have_their_signatures(before in zone_text("z."), after in zone_text("z.")) {
        let (before, mut after) = (signed_version(&before, 1), signed_version(&after, 2));
        after.continue_journal(&before, BYTES_MAX);
        let (result, is_incremental) = transferred(&before, &after, 65_535);
        prop_assert!(is_incremental);
        prop_assert_eq!(sorted(&result.expect("it can be applied")), sorted(&after));
    }

    #[test]
    fn damaged_journal_is_refused(at in any::<prop::sample::Index>(), value in any::<u8>(), cut in any::<bool>()) {
        let (before, mut after) = (zone(1, "a.z. A 192.0.2.1"), zone(2, "a.z. A 192.0.2.2"));
        after.continue_journal(&before, BYTES_MAX);
        let encoded = after.encoded_journal().expect("it has a change");
        let mut damaged = encoded.clone();
        let at = at.index(damaged.len());
        if cut {
            damaged.truncate(at);
        } else {
            damaged[at] = value;
        }
        let result = zone(2, "a.z. A 192.0.2.2").restore_journal(&damaged);
        prop_assert_eq!(result.is_ok(), damaged == encoded);
    }
}

#[test]
fn journal_of_another_version_is_refused() {
    let (before, mut after) = (zone(1, "a.z. A 192.0.2.1"), zone(2, "a.z. A 192.0.2.2"));
    after.continue_journal(&before, BYTES_MAX);
    let encoded = after.encoded_journal().expect("it has a change");
    for mut other in [zone(2, "a.z. A 192.0.2.3"), zone(3, "a.z. A 192.0.2.2"), zone(1, "a.z. A 192.0.2.1")] {
        assert_eq!(other.restore_journal(&encoded), Err(JournalError::OtherVersion), "{}", other.serial());
        assert!(other.journal().is_empty());
        // Secondaries may have the journal's version, with the same serial.
        let (mut next, mut last) = (zone(4, "a.z. A 192.0.2.4"), zone(5, "a.z. A 192.0.2.5"));
        next.continue_journal(&other, BYTES_MAX);
        assert!(next.journal().is_empty());
        last.continue_journal(&next, BYTES_MAX);
        assert_eq!(last.journal().first_change(), Some((4, 1)));
    }
    let mut of_other_zone = built(&name_bytes("y."), "$ORIGIN y.\n").zone.expect("without errors");
    assert_eq!(of_other_zone.restore_journal(&encoded), Err(JournalError::Damaged));
}

#[test]
fn next_process_knows_that_two_versions_had_the_same_serial() {
    let (before, mut after) = (zone(1, "a.z. A 192.0.2.1"), zone(1, "a.z. A 192.0.2.2"));
    after.continue_journal(&before, BYTES_MAX);
    let encoded = after.encoded_journal().expect("the end is ambiguous");
    let mut restored = zone(1, "a.z. A 192.0.2.2");
    restored.restore_journal(&encoded).expect("it is of this version");
    let mut next = zone(2, "a.z. A 192.0.2.3");
    next.continue_journal(&restored, BYTES_MAX);
    assert!(next.journal().is_empty());
    assert_eq!(next.encoded_journal(), None);
}

/// Whether a secondary with the first version gets changes.
#[track_caller]
fn check(versions: &[(u32, &str)], bytes_max: usize, expected: bool) {
    let all: Vec<Zone> = versions.iter().fold(Vec::new(), |mut all: Vec<Zone>, (serial, records)| {
        let mut next = zone(*serial, records);
        if let Some(before) = all.last() {
            next.continue_journal(before, bytes_max);
        }
        all.push(next);
        all
    });
    let (first, last) = (&all[0], &all[all.len() - 1]);
    let (result, is_incremental) = transferred(first, last, 65_535);
    assert_eq!(is_incremental, expected, "{versions:?}");
    assert_eq!(sorted(&result.expect("it can be applied")), sorted(last));
}

#[test]
fn journal_is_continued_by_later_versions_alone_and_is_bounded() {
    let (a, b, c) = ("a.z. A 192.0.2.1", "a.z. A 192.0.2.2", "a.z. 60 A 192.0.2.2\nb.z. A 192.0.2.3");
    check(&[(1, a), (2, b)], BYTES_MAX, true);
    check(&[(1, a), (2, b), (3, c)], BYTES_MAX, true);
    // The serial alone.
    check(&[(1, a), (2, a)], BYTES_MAX, true);
    check(&[(u32::MAX, a), (0, b)], BYTES_MAX, true);
    // RFC 1982: it is before.
    check(&[(5, a), (4, b)], BYTES_MAX, false);
    check(&[(5, a), (4, b), (6, c)], BYTES_MAX, false);
    // The file was read again without a change.
    check(&[(1, a), (2, b), (2, b)], BYTES_MAX, true);
    // Secondaries may have either of two versions with the same serial: nothing leads on from there.
    check(&[(1, a), (1, b)], BYTES_MAX, false);
    check(&[(1, a), (1, b), (2, c)], BYTES_MAX, false);
    check(&[(1, a), (2, b), (2, c), (3, a)], BYTES_MAX, false);
    check(&[(1, a), (2, b), (0x7fff_fff0, c), (0x9000_0000, a)], BYTES_MAX, false);
    // The limit: the first change is dropped for the second one, which fits.
    let bytes = |count: usize| {
        let mut last = zone(0, a);
        for (serial, records) in [(1, b), (2, a)].into_iter().take(count) {
            let mut next = zone(serial, records);
            next.continue_journal(&last, BYTES_MAX);
            last = next;
        }
        last.encoded_journal().expect("it has changes").len()
    };
    check(&[(0, a), (1, b), (2, a)], bytes(2), true);
    check(&[(0, a), (1, b), (2, a)], bytes(2) - 1, false);
    check(&[(0, a), (1, b)], bytes(1), true);
    check(&[(0, a), (1, b)], bytes(1) - 1, false);
    check(&[(0, a), (1, b)], 0, false);
    // A change that is larger than the zone is never sent.
    let many: String = (0..2_000).map(|index| format!("host-{index}.z. A 10.0.0.1\n")).collect();
    check(&[(0, &many), (1, a)], BYTES_MAX, false);
}

#[test]
fn changes_of_another_version_are_not_applied() {
    let mut current = zone(2, "a.z. A 192.0.2.1\nc.z. A 192.0.2.2");
    current.continue_journal(&zone(1, "a.z. A 192.0.2.1\nb.z. A 192.0.2.2"), BYTES_MAX);
    for (records, expected) in [
        ("a.z. A 192.0.2.1", "its changes remove the record b.z. A, which is not in the stored version"),
        (
            "b.z. A 192.0.2.2\nc.z. A 192.0.2.2",
            "its changes add the record c.z. A, which is already in the stored version",
        ),
    ] {
        let (result, _) = transferred(&zone(1, records), &current, 65_535);
        assert_eq!(result.expect_err("refused").to_string(), expected);
    }
    // Names in RDATA may come in another case, and TTLs differ.
    let mut current = zone(2, "");
    current.continue_journal(&zone(1, "m.z. 60 MX 5 Mail.z."), BYTES_MAX);
    let (result, _) = transferred(&zone(1, "m.z. MX 5 mail.Z."), &current, 65_535);
    assert_eq!(sorted(&result.expect("it can be applied")), sorted(&current));
}

/// Over UDP the changes are sent if they fit.
#[test]
fn changes_fit_into_a_datagram_or_the_client_asks_again() {
    let many: String = (0..60).map(|index| format!("host-{index}.z. TXT \"{}\"\n", "x".repeat(20))).collect();
    let few = "a.z. A 192.0.2.2";
    for (records, edns, expected) in
        [(few, false, true), (&many[..], false, false), (&many, true, false), (few, true, true)]
    {
        let (before, mut after) = (zone(1, "a.z. A 192.0.2.1"), zone(2, records));
        after.continue_journal(&before, BYTES_MAX);
        let (mut query, _) = TransferReceiver::new(after.apex(), Some(1), 7, None, NOW, UNLIMITED);
        if edns {
            query[11] = 1;
            query.extend_from_slice(&[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
        }
        let zones = ZoneMap::new(HashSeed(1), []);
        let parsed = ParsedQuery::parse(&zones, &query);
        let mut out = vec![0; 4_096];
        match TransferRequest::new(&parsed).expect("a request").put_changes(&after, NOW, &mut out) {
            Ok(length_bytes) => assert!(expected && length_bytes <= if edns { 1_232 } else { 512 }),
            Err(request) => {
                assert!(!expected);
                let length_bytes = request.put_soa(&after, NOW, &mut out).expect("it fits");
                assert!(out[7] == 1 && length_bytes < 100);
            }
        }
    }
}

//! Any bytes as the content of an encoded journal and of a change in a log, with the right hash, and as the messages of
//! a transfer of changes: nothing panics, and a journal or change that is accepted is encoded again as it was.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sanderling_dns::change_log::{self, ChangeLog};
use sanderling_dns::transfer_in::{Progress, SizeLimit, TransferLimits, TransferReceiver};
use sanderling_dns::zone_patch::ZonePatch;
use sanderling_dns::zonefile::{Entry, Parser, ParserLimits, Position};
use sanderling_dns::{HashSeed, Name, Zone, ZoneBuilder, ZoneLimits, ZoneTextWriter};
use sha2::{Digest, Sha256};
use std::sync::LazyLock;

const APEX: &[u8] = b"\x01z\0";
/// Magic, version, the digest of the zone, and whether the end is ambiguous.
const START_BYTES: usize = 17;
const HASH_BYTES: usize = 32;
/// Where a change has the serial of its first SOA, if the names in it are the root: after owner, type, class, TTL and
/// length.
const SERIAL_AT: usize = 3 + 10 + 2;

fn zone(serial: u32, records: &str) -> Zone {
    let apex = Name::parse(APEX).expect("an apex");
    let mut builder = ZoneBuilder::new(apex, HashSeed(7), ZoneLimits::default());
    let text = format!("$TTL 60\n@ SOA a b {serial} 1 1 1 1\n@ NS a.\n{records}");
    let mut parser = Parser::new("z.zone".into(), text.into_bytes(), apex, ParserLimits::default());
    while let Some(Ok(Entry::Record(record))) = parser.next() {
        builder.add(&record);
    }
    builder.finish(Position { file_index: 0, line: 1, column: 1 }).zone.expect("without errors")
}

/// The start of the encoded journal of version 2.
static START: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut after = zone(2, "a A 192.0.2.2\n");
    after.continue_journal(&zone(1, "a A 192.0.2.1\n"), 1 << 20);
    let encoded = after.encoded_journal().expect("it has a change");
    assert_eq!(with_hash(encoded[..encoded.len() - HASH_BYTES].to_vec()), encoded);
    encoded[..START_BYTES].to_vec()
});

fn with_hash(mut content: Vec<u8>) -> Vec<u8> {
    let hash = Sha256::digest(&content);
    content.extend_from_slice(&hash);
    content
}

fuzz_target!(|input: &[u8]| {
    let encoded = with_hash([&START[..], input].concat());
    let mut after = zone(2, "a A 192.0.2.2\n");
    if after.restore_journal(&encoded).is_ok() {
        assert_eq!(after.encoded_journal().unwrap_or_else(|| encoded.clone()), encoded);
    }
    let apex = Name::parse(APEX).expect("an apex");
    let length = (input.len() as u32).to_be_bytes();
    let log = [&change_log::HEAD[..], &length, &with_hash(input.to_vec())].concat();
    let serial = input
        .get(SERIAL_AT..SERIAL_AT + 4)
        .map_or(1, |bytes| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
    let read = ChangeLog::read(&log, apex, serial);
    for change in &read.changes {
        let mut again = change_log::HEAD.to_vec();
        change_log::put_change(change, &mut again);
        assert_eq!(again, log);
    }
    let _ = read.patch().finish(|_| {});
    let limits = TransferLimits { size: SizeLimit { bytes_max: 1 << 20, key: "" }, empty_messages_max: 10 };
    let (_, mut receiver) = TransferReceiver::new(apex, Some(1), 0x1234, None, 0, limits);
    let mut patch = ZonePatch::default();
    let mut rest = input;
    while let Some((length, after)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes(*length)).min(after.len());
        let (message, after) = after.split_at(length);
        match receiver.receive(message, 0, |role, record| patch.add(role, record)) {
            Ok(Progress::More) => rest = after,
            Ok(Progress::Complete) => break,
            Ok(Progress::UpToDate) | Err(_) => return,
        }
    }
    let stored = zone(1, "a A 192.0.2.1\n");
    let (mut writer, mut text) = (ZoneTextWriter::default(), String::new());
    while writer.write(&stored, None, &mut text, usize::MAX) {}
    let mut parser = Parser::new("z.zone".into(), text.into_bytes(), apex, ParserLimits::default());
    while let Some(Ok(Entry::Record(record))) = parser.next() {
        if patch.apply(&record).is_err() {
            return;
        }
    }
    let _ = patch.finish(|record| assert!(record.owner.is_at_or_below(apex)));
});

//! Any bytes as the sections of an UPDATE, and as a stored difference with the right hash: nothing panics, a version
//! that an update makes is found again from the difference, and a difference that is accepted is encoded again as one
//! that is accepted.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sanderling_dns::difference::{DifferenceMerge, LaterFile, ZoneDifference};
use sanderling_dns::update::{UpdateMessage, UpdateResult, ZoneUpdate};
use sanderling_dns::zonefile::{Entry, Parser, ParserLimits, Position};
use sanderling_dns::{HashSeed, Name, Zone, ZoneBuilder, ZoneLimits, ZoneTextWriter};
use sha2::{Digest, Sha256};

const APEX: &[u8] = b"\x01z\0";
const TEXT: &str = "$TTL 60\n@ SOA a b 1 1 1 1 1\n@ NS a.\na A 192.0.2.1\na A 192.0.2.2\nc CNAME a\nm MX 5 Mail\n";
const POSITION: Position = Position { file_index: 0, line: 1, column: 1 };

/// The version that differs from the zone file by `difference`, and the digest of the file.
fn version(difference: ZoneDifference, made_for: u64) -> (Option<Zone>, ZoneDifference, u64) {
    let apex = Name::parse(APEX).expect("an apex");
    let mut merge = DifferenceMerge::new(apex, difference, made_for, LaterFile::Replaces);
    let mut builder = ZoneBuilder::new(apex, HashSeed(7), ZoneLimits::default());
    let mut parser = Parser::new("z.zone".into(), TEXT.as_bytes().to_vec(), apex, ParserLimits::default());
    while let Some(Ok(Entry::Record(record))) = parser.next() {
        if !merge.holds_back(&record) {
            builder.add(&record);
        }
    }
    let merged = merge.finish(None, POSITION, |record| builder.add(record));
    (builder.finish(POSITION).zone, merged.difference, merged.digest)
}

/// The records in any order; names in data may be written otherwise.
fn lines(zone: &Zone) -> Vec<String> {
    let (mut writer, mut text) = (ZoneTextWriter::default(), String::new());
    while writer.write(zone, None, &mut text, usize::MAX) {}
    let mut lines: Vec<String> = text.lines().map(str::to_ascii_lowercase).collect();
    lines.sort();
    lines
}

fuzz_target!(|input: &[u8]| {
    let Some((&[prerequisites, updates, additional], rest)) = input.split_first_chunk() else { return };
    let header = [0, 7, 5 << 3, 0, 0, 1, 0, prerequisites, 0, updates, 0, additional];
    let message = [&header[..], b"\x01z\0\0\x06\0\x01", rest].concat();
    let apex = Name::parse(APEX).expect("an apex");
    if let Some(update) = UpdateMessage::parse(&message) {
        let (zone, mut difference, digest) = version(ZoneDifference::default(), 0);
        let zone = zone.expect("without errors");
        let mut next = ZoneUpdate::new(&zone);
        let _ = next.apply(&update, |_, _| true);
        difference.add_changes(&next);
        if let Some(next) = next.finish(ZoneLimits::default()).and_then(|built| built.zone) {
            let encoded = difference.encode(apex, digest);
            let (decoded, made_for) = ZoneDifference::decode(&encoded, apex).expect("encoded");
            assert_eq!((&decoded, made_for), (&difference, digest));
            let (again, ..) = version(decoded, made_for);
            assert_eq!(lines(&again.expect("the same version")), lines(&next));
        }
        let _ = update.into_owned().reply(UpdateResult::Done, 0, &mut [0; 1024]);
    }
    let content = [b"SDLU\0\0\0\x01", rest].concat();
    let encoded = [&content[..], &Sha256::digest(&content)].concat();
    if let Ok((difference, made_for)) = ZoneDifference::decode(&encoded, apex) {
        let _ = version(difference.clone(), made_for);
        ZoneDifference::decode(&difference.encode(apex, made_for), apex).expect("encoded");
    }
});

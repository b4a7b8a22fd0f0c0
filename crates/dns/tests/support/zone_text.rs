//! Zones and their records from text.

use super::reply::ReplyRecord;
use sanderling_dns::zonefile::{Entry, Parser, ParserLimits, Position};
use sanderling_dns::{BuildOutcome, HashSeed, Name, ZoneBuilder, ZoneEntry, ZoneLimits, ZoneMap};
use std::sync::Arc;

/// The seed of every zone in these tests.
pub(crate) const SEED: HashSeed = HashSeed(0x5a4d_e511_0006_0007);

/// The first lines of a zone without `$TTL`.
const DEFAULT_RECORDS: &str = "$TTL 60\n@ SOA ns.a. h.a. 1 2 3 4 5\n@ NS ns.a.\n";

/// The zones in `text`, each of which starts with a line `$ORIGIN apex.`.
pub(crate) fn zone_map(text: &str) -> ZoneMap {
    let zones = texts_of_zones(text).into_iter().map(|(apex, text)| served(&apex, text));
    ZoneMap::new(SEED, zones)
}

/// The records of each zone in `text`, with its apex.
pub(crate) fn records_of_zones(text: &str) -> Vec<(Vec<u8>, Vec<ReplyRecord>)> {
    let records = |(apex, text): (Vec<u8>, &str)| {
        let mut records = vec![];
        read(&apex, text, |record| {
            records.push(ReplyRecord {
                owner: record.owner.as_bytes().to_vec(),
                rtype: record.rtype,
                ttl_s: record.ttl_s,
                rdata: record.rdata.to_vec(),
            });
        });
        (apex, records)
    };
    texts_of_zones(text).into_iter().map(records).collect()
}

/// Builds the zone in `text`.
pub(crate) fn built(apex: &[u8], text: &str) -> BuildOutcome {
    let mut builder = ZoneBuilder::new(Name::parse(apex).expect("an apex"), SEED, ZoneLimits::default());
    let end = read(apex, text, |record| builder.add(record));
    builder.finish(end)
}

/// The wire form of a name in presentation format.
pub(crate) fn name_bytes(text: &str) -> Vec<u8> {
    let name: domain::base::Name<Vec<u8>> = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    name.as_slice().to_vec()
}

/// The zone in `text`, as an entry of a map.
pub(crate) fn served(apex: &[u8], text: &str) -> ZoneEntry {
    let built = built(apex, text);
    let zone = built.zone.unwrap_or_else(|| panic!("{:#?}\n{text}", built.diagnostics));
    zone.check();
    ZoneEntry::Served(Arc::new(zone))
}

/// The text of each zone in `text`, with its apex.
pub(crate) fn texts_of_zones(text: &str) -> Vec<(Vec<u8>, &str)> {
    let starts: Vec<usize> = text.match_indices("$ORIGIN ").map(|(at, _)| at).collect();
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let one = |(&start, end): (&usize, usize)| {
        let text = &text[start..end];
        let apex = text.split_whitespace().nth(1).expect("a name after $ORIGIN");
        (name_bytes(apex), text)
    };
    assert!(!starts.is_empty(), "a zone starts with its $ORIGIN");
    starts.iter().zip(ends).map(one).collect()
}

/// Calls `take` for each record in `text`. Returns the end of the text.
fn read(apex: &[u8], text: &str, mut take: impl FnMut(&sanderling_dns::zonefile::Record<'_>)) -> Position {
    let apex = Name::parse(apex).expect("an apex");
    let default_records = if text.contains("$TTL") { "" } else { DEFAULT_RECORDS };
    // Each line has an owner; it may be indented as the code.
    let lines: Vec<&str> = default_records.lines().chain(text.lines()).map(str::trim_start).collect();
    let mut parser = Parser::new("test.zone".into(), lines.join("\n").into_bytes(), apex, ParserLimits::default());
    while let Some(entry) = parser.next() {
        match entry {
            Ok(Entry::Record(record)) => take(&record),
            Ok(Entry::Include { path, .. }) => panic!("unexpected $INCLUDE {path}"),
            Ok(Entry::Alias(_)) => panic!("unexpected ALIAS"),
            Err(error) => panic!("{error:?}\n{text}"),
        }
    }
    Position { file_index: 0, line: lines.len() as u32 + 1, column: 1 }
}

//! Any bytes as a query for a transfer, signed or not: all messages are well-formed, and end with the SOA.

#![no_main]

use domain::base::Message;
use libfuzzer_sys::fuzz_target;
use sanderling_dns::transfer::{Refusal, TransferRequest};
use sanderling_dns::zonefile::{Entry, Parser, ParserLimits, Position};
use sanderling_dns::{
    HashSeed, Name, ParsedQuery, TsigAlgorithm, TsigKey, ZoneBuilder, ZoneEntry, ZoneLimits, ZoneMap,
};
use std::sync::{Arc, LazyLock};

const FEATURES: &str = include_str!("../../crates/dns/tests/answers/features.zone");
const SEED: HashSeed = HashSeed(7);
const APEXES: [&[u8]; 2] = [b"\x07example\0", b"\x05child\x07example\0"];

static ZONES: LazyLock<ZoneMap> = LazyLock::new(|| {
    let texts = FEATURES.split("$ORIGIN ").skip(1);
    let zones = texts.zip(APEXES).map(|(text, apex)| {
        let apex = Name::parse(apex).expect("an apex");
        let mut builder = ZoneBuilder::new(apex, SEED, ZoneLimits::default());
        let text = format!("$ORIGIN {text}").into_bytes();
        let mut parser = Parser::new("features.zone".into(), text, apex, ParserLimits::default());
        while let Some(entry) = parser.next() {
            match entry {
                Ok(Entry::Record(record)) => builder.add(&record),
                other => panic!("{other:?}"),
            }
        }
        let built = builder.finish(Position { file_index: 0, line: 1, column: 1 });
        ZoneEntry::Served(Arc::new(built.zone.expect("the zone has no errors")))
    });
    ZoneMap::new(SEED, zones)
});

fuzz_target!(|query: &[u8]| {
    let parsed = ParsedQuery::parse(&ZONES, query);
    let request = || {
        let mut request = TransferRequest::new(&parsed)?;
        let key = TsigKey::new(Name::parse(b"\x01k\0").expect("a name"), TsigAlgorithm::HmacSha256, b"secret");
        let result = request.verify(&[key], 0);
        Some((request, result))
    };
    let Some((first, verified)) = request() else { return };
    let mut out = vec![0xa5; 65_535];
    let refusal = verified.err().map_or(Refusal::NotAllowed, Refusal::Tsig);
    let length_bytes = first.refuse(refusal, 0, &mut out).expect("it fits");
    check(&out[..length_bytes]);
    let ZoneEntry::Served(zone) = &ZONES.entries()[0] else { unreachable!("all are served") };
    let (second, _) = request().expect("as before");
    let _ = second.is_up_to_date(zone);
    let length_bytes = second.put_soa(zone, 0, &mut out).expect("it fits");
    check(&out[..length_bytes]);
    let (third, _) = request().expect("as before");
    let mut transfer = third.begin(zone);
    let mut count = 0;
    while let Some(length_bytes) = transfer.write(zone, 0, &mut out).expect("every record fits") {
        count += check(&out[..length_bytes]);
    }
    assert_eq!(count, zone.record_count() + 1);
});

/// Reads every name and every RDATA; the number of answers.
fn check(reply: &[u8]) -> usize {
    let message = Message::from_octets(reply).expect("longer than a header");
    assert!(message.header().qr());
    for record in message.iter() {
        let (record, _) = record.expect("a record");
        let any = record.to_any_record::<domain::rdata::AllRecordData<_, _>>();
        any.expect("well-formed RDATA");
    }
    usize::from(message.header_counts().ancount())
}

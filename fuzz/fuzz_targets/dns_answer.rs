//! Any bytes as a query to zones with every feature: each reply is a well-formed message within its limit.

#![no_main]

use domain::base::Message;
use libfuzzer_sys::fuzz_target;
use sanderling_dns::zonefile::{Entry, Parser, ParserLimits, Position};
use sanderling_dns::{
    Answer, DnsTransport, HashSeed, Name, RequestInfo, ZoneBuilder, ZoneEntry, ZoneLimits, ZoneMap, answer,
};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, LazyLock};

const FEATURES: &str = include_str!("../../crates/dns/tests/answers/features.zone");
const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1024);
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
    for (transport, length_max) in [(DnsTransport::Udp { reply_bytes_max: 1232 }, 1232), (DnsTransport::Tcp, 65_535)] {
        let mut out = vec![0xa5; length_max];
        let info = RequestInfo { client: CLIENT, transport, now_unix_s: 0 };
        let Answer::Reply(length_bytes) = answer(&ZONES, &info, query, &mut out) else {
            assert!(query.len() < 12 || query[2] & 0x80 != 0, "a query is dropped");
            continue;
        };
        check(query, &out[..length_bytes], transport);
    }
});

fn check(query: &[u8], reply: &[u8], transport: DnsTransport) {
    assert_eq!(reply[..2], query[..2], "the id");
    let message = Message::from_octets(reply).expect("longer than a header");
    assert!(message.header().qr());
    if transport != DnsTransport::Tcp && message.opt().is_none() {
        assert!(reply.len() <= 512, "{} bytes without EDNS", reply.len());
    }
    // Reads every name and every RDATA.
    for record in message.iter() {
        let (record, _) = record.expect("a record");
        let any = record.to_any_record::<domain::rdata::AllRecordData<_, _>>();
        any.expect("well-formed RDATA");
    }
}

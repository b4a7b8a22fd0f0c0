//! The reply to a query, without a server.

use std::hint::black_box;
use std::net::SocketAddr;
use std::sync::Arc;

use sanderling_dns::zonefile::{Entry, Parser, ParserLimits, Position};
use sanderling_dns::{Answer, DnsTransport, HashSeed, Name, RequestInfo, Rtype};
use sanderling_dns::{Zone, ZoneBuilder, ZoneEntry, ZoneLimits, ZoneMap, answer};

/// A name in wire format.
type WireName = &'static [u8];

/// Has two addresses.
pub(crate) const HIT: WireName = b"\x03www\x07example\0";
/// Does not exist.
pub(crate) const NAME_ERROR: WireName = b"\x04none\x07example\0";
/// Is delegated to two name servers.
pub(crate) const REFERRAL: WireName = b"\x03www\x03sub\x07example\0";
/// Matches a wildcard.
pub(crate) const WILDCARD: WireName = b"\x03any\x04wild\x07example\0";
/// Is in no zone.
pub(crate) const UNKNOWN_ZONE: WireName = b"\x03www\x05other\0";

const APEX: WireName = b"\x07example\0";
const OTHER_APEX: WireName = b"\x05third\0";
/// Fixed, so that the hash tables are the same in each run.
const SEED: HashSeed = HashSeed(0x5eed);
const REPLY_BYTES_MAX: u16 = 1_232;
/// [`ZONE`] with signatures, and with NSEC or NSEC3 records.
const NSEC_ZONE: &str = include_str!("nsec.zone");
const NSEC3_ZONE: &str = include_str!("nsec3.zone");
const ZONE: &str = "\
$TTL 3600
@ SOA ns1 hostmaster 1 7200 900 1209600 300
@ NS ns1
@ NS ns2
ns1 A 192.0.2.53
ns2 A 192.0.2.54
www A 192.0.2.1
www A 192.0.2.2
*.wild A 192.0.2.3
sub NS ns1.sub
sub NS ns2.sub
ns1.sub A 192.0.2.55
ns2.sub A 192.0.2.56
";

/// Answers queries for the addresses of `name` with one zone.
pub(crate) fn repeat(name: WireName, count: usize) {
    repeat_with(&zones(), &query(name), count);
}

/// The same from a signed zone for a client that asks for signatures.
pub(crate) fn repeat_signed(name: WireName, count: usize) {
    repeat_with(&map_of(NSEC_ZONE), &signed_query(name), count);
}

/// The same with NSEC3 records.
pub(crate) fn repeat_nsec3(name: WireName, count: usize) {
    repeat_with(&map_of(NSEC3_ZONE), &signed_query(name), count);
}

/// The same with two zones: one alone needs no search.
pub(crate) fn repeat_with_two_zones(name: WireName, count: usize) {
    let zones = [APEX, OTHER_APEX].map(|apex| ZoneEntry::Served(Arc::new(zone(apex, ZONE))));
    repeat_with(&ZoneMap::new(SEED, zones), &query(name), count);
}

fn repeat_with(zones: &ZoneMap, query: &[u8], count: usize) {
    let mut out = [0; REPLY_BYTES_MAX as usize];
    let transport = DnsTransport::Udp { reply_bytes_max: REPLY_BYTES_MAX };
    let info = RequestInfo { client: SocketAddr::from(([192, 0, 2, 99], 1024)), transport, now_unix_s: 0 };
    for _ in 0..count {
        let reply = answer(zones, black_box(&info), black_box(query), black_box(&mut out));
        assert!(matches!(black_box(reply), Answer::Reply(_)));
    }
}

/// The zone of all kinds.
pub(crate) fn zones() -> ZoneMap {
    map_of(ZONE)
}

fn map_of(text: &str) -> ZoneMap {
    ZoneMap::new(SEED, [ZoneEntry::Served(Arc::new(zone(APEX, text)))])
}

fn zone(apex: WireName, text: &str) -> Zone {
    let apex = Name::parse(apex).expect("a name");
    let mut builder = ZoneBuilder::new(apex, SEED, ZoneLimits::default());
    let mut parser = Parser::new("counted.zone".into(), text.as_bytes().to_vec(), apex, ParserLimits::default());
    while let Some(event) = parser.next() {
        match event {
            Ok(Entry::Record(record)) => builder.add(&record),
            other => panic!("{other:?}"),
        }
    }
    builder.finish(Position { file_index: 0, line: 1, column: 1 }).zone.expect("a valid zone")
}

/// A query for the addresses of `name`, with EDNS as resolvers send it (RFC 6891 §6.1.2).
pub(crate) fn query(name: WireName) -> Vec<u8> {
    let mut query = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    query.extend(name);
    query.extend(Rtype::A.0.to_be_bytes());
    query.extend([0, 1, 0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 0]);
    query
}

/// [`query`] with the flag DO (RFC 3225).
fn signed_query(name: WireName) -> Vec<u8> {
    let mut query = query(name);
    let flags_offset = query.len() - 4;
    query[flags_offset] = 0x80;
    query
}

//! Malformed queries: each has a well-formed reply or is dropped, and none panics.

use super::support::exchange::send;
use super::support::question::{Question, UDP};
use super::support::reply::Reply;
use super::support::zone_text::zone_map;
use proptest::prelude::*;
use sanderling_dns::{DnsTransport, ZoneMap};

const FEATURES: &str = include_str!("features.zone");

/// Sends `query` over both transports, and checks the properties of any reply.
#[track_caller]
fn check(zones: &ZoneMap, query: &[u8]) {
    for transport in [UDP, DnsTransport::Tcp] {
        let Some(bytes) = send(zones, query, transport) else {
            assert!(query.len() < 12 || query[2] & 0x80 != 0, "a query is dropped: {query:02x?}");
            continue;
        };
        let reply = Reply::parse(&bytes).unwrap_or_else(|fault| panic!("{fault}\n{query:02x?}\n{bytes:02x?}"));
        assert_eq!(bytes[..2], query[..2], "the id");
        assert_eq!(bytes[2] & 0x79, query[2] & 0x79, "opcode and RD");
        assert!(reply.flags & 0x80f0 == 0x8000, "QR alone of {:04x}", reply.flags);
        if transport == UDP {
            let length_max = if reply.edns.is_some() { 1232 } else { 512 };
            assert!(bytes.len() <= length_max, "{} bytes to {query:02x?}", bytes.len());
        }
        if let Some((name, ..)) = &reply.question {
            assert_eq!(bytes[12..12 + name.len() + 4], query[12..12 + name.len() + 4], "the question");
        }
        // Only FORMERR and NOTIMP may lack the question.
        assert!(reply.question.is_some() || matches!(reply.rcode, 1 | 4), "{reply}");
    }
}

/// Well-formed queries of each kind.
fn queries() -> Vec<Vec<u8>> {
    let mut queries: Vec<Vec<u8>> = [
        "www.example. A",
        "cname3.example. A +edns",
        "x.dname.example. A +edns=512",
        "host.cut.example. AAAA +edns=65535 +do",
        "a.b.wild.example. MX",
        "missing.example. TXT +edns",
        "child.example. DS",
        ". NS",
    ]
    .iter()
    .map(|text| Question::parse(text).message())
    .collect();
    let mut with_option = Question::parse("example. MX +edns").message();
    let end = with_option.len();
    with_option[end - 1] = 8;
    with_option.extend([0, 3, 0, 4, 1, 2, 3, 4]);
    queries.push(with_option);
    let mut with_records = Question::parse("example. IXFR +edns").message();
    with_records[9] = 1;
    let opt = with_records.split_off(with_records.len() - 11);
    with_records.extend([0xc0, 12, 0, 6, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0]);
    with_records.extend(opt);
    queries.push(with_records);
    queries
}

#[test]
fn every_byte_of_a_query_with_every_value() {
    let zones = zone_map(FEATURES);
    for query in queries() {
        for at in 0..query.len() {
            let mut changed = query.clone();
            for value in 0..=255 {
                changed[at] = value;
                check(&zones, &changed);
            }
        }
    }
}

#[test]
fn query_truncated_at_every_byte() {
    let zones = zone_map(FEATURES);
    for query in queries() {
        for end in 0..=query.len() {
            check(&zones, &query[..end]);
        }
        check(&zones, &[&query[..], &[0]].concat());
        check(&zones, &[&query[..], &query].concat());
    }
}

#[test]
fn pointers_to_every_target_at_every_byte() {
    let zones = zone_map(FEATURES);
    for query in queries() {
        for at in 12..query.len() - 1 {
            let mut changed = query.clone();
            for target in 0..=query.len() {
                changed[at] = 0xc0;
                changed[at + 1] = u8::try_from(target).expect("these queries are short");
                check(&zones, &changed);
            }
        }
    }
}

#[test]
fn labels_of_every_length_and_names_that_are_too_long() {
    let zones = zone_map(FEATURES);
    for length in 0..=255u8 {
        for count in [1, 2, 3, 4, 5, 6, 127, 128, 129, 255] {
            let label = [&[length][..], &vec![b'x'; usize::from(length)]].concat();
            let tail = [0, 0, 1, 0, 1];
            let mut query = Question::parse(". A").message();
            query.truncate(12);
            query.extend(label.repeat(count));
            query.extend(tail);
            check(&zones, &query);
        }
    }
}

/// A zone that contains every name.
const ROOT: &str = "$ORIGIN .\n* MX 1 a.";

/// A byte, often one with a meaning in messages.
fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![any::<u8>(), 0..4u8, Just(0xc0), Just(12), Just(41)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn any_bytes_after_a_header(tail in prop::collection::vec(byte(), 0..100)) {
        let header = [0x1d, 0x1d, 1, 0, 0, 1, 0, 0, 0, 0, 0, 2];
        check(&zone_map(ROOT), &[&header[..], &tail].concat());
    }

    #[test]
    fn several_corrupted_bytes(
        index in any::<prop::sample::Index>(),
        faults in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut query = index.get(&queries()).clone();
        for (at, byte) in faults {
            let at = at.index(query.len());
            query[at] = byte;
        }
        check(&zone_map(ROOT), &query);
    }
}

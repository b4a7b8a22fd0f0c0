//! Zone transfers in: from the transfers out of this crate, whose signatures `domain` has checked, and from servers
//! that lie.

use super::support::random_zone::zone_text;
use super::support::zone_text::zone_map;
use proptest::prelude::*;
use sanderling_dns::client::{QueryKind, ReplyError, query};
use sanderling_dns::transfer::TransferRequest;
use sanderling_dns::transfer_in::{Progress, SizeLimit, TransferError, TransferLimits, TransferReceiver};
use sanderling_dns::zonefile::{Position, Record};
use sanderling_dns::{
    Answer, DnsTransport, Name, ParsedQuery, ReplyOptions, RequestInfo, SignatureError, TsigAlgorithm, TsigError,
    TsigKey, Zone, ZoneBuilder, ZoneEntry, ZoneLimits, ZoneMap, ZoneTextWriter, answer_with_options,
};
use std::sync::Arc;

const NOW: u64 = 1_800_000_000;
const APEX: &[u8] = b"\x07example\0";
const ZONE: &str = "$ORIGIN example.\n$TTL 60\n@ SOA ns host 7 1 2 3 4\n@ NS ns\nns A 192.0.2.1\n*.a MX 5 Mail.A\n\
                    n NAPTR 1 2 \"u\" \"s\" \"!x!y!\" ns.sub\nsub NS ns.sub\nns.sub A 192.0.2.2\nu TYPE65280 \\# 2 0102\n";

fn key(secret: &[u8]) -> TsigKey {
    TsigKey::new(Name::parse(b"\x03key\0").expect("a name"), TsigAlgorithm::HmacSha256, secret)
}

fn served(zones: &ZoneMap) -> Arc<Zone> {
    match &zones.entries()[0] {
        ZoneEntry::Served(zone) => Arc::clone(zone),
        ZoneEntry::Restricted(_) | ZoneEntry::Unavailable { .. } => panic!("the zone is served"),
    }
}

fn text_of(zone: &Zone) -> Vec<String> {
    let mut text = String::new();
    while ZoneTextWriter::default().write(zone, None, &mut text, usize::MAX) {}
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn limits(bytes_max: u64) -> TransferLimits {
    TransferLimits { size: SizeLimit { bytes_max, key: "a_key" }, empty_messages_max: 3 }
}

/// A query for the zone, and the messages that answer it.
fn transfer(zones: &ZoneMap, key: Option<&TsigKey>, room_bytes: usize) -> (TransferReceiver, Vec<Vec<u8>>) {
    let zone = served(zones);
    let (query, receiver) = TransferReceiver::new(zone.apex(), None, 0x1234, key, NOW, limits(1 << 30));
    let parsed = ParsedQuery::parse(zones, &query);
    let mut request = TransferRequest::new(&parsed).expect("a request");
    request.verify(key.map(std::slice::from_ref).unwrap_or_default(), NOW).expect("signed as the server expects");
    let (mut transfer, mut out, mut messages) = (request.begin(&zone), vec![0; room_bytes], Vec::new());
    while let Some(length_bytes) = transfer.write(&zone, NOW, &mut out).expect("all records fit") {
        messages.push(out[..length_bytes].to_vec());
    }
    (receiver, messages)
}

/// The zone that arrives, and how many messages were left.
fn receive(
    mut receiver: TransferReceiver,
    apex: Name<'_>,
    messages: &[Vec<u8>],
) -> Result<Option<Zone>, TransferError> {
    let limits = ZoneLimits { records_per_rrset_max: 1_000 };
    let mut builder = ZoneBuilder::new(apex, sanderling_dns::HashSeed(1), limits);
    for (index, message) in messages.iter().enumerate() {
        if receiver.receive(message, NOW, |_, record| builder.add(record))? == Progress::Complete {
            assert_eq!(index + 1, messages.len());
            return Ok(builder.finish(Position { file_index: 0, line: 1, column: 1 }).zone);
        }
    }
    Ok(None)
}

fn check_zone(text: &str, room_bytes: usize) {
    let zones = zone_map(text);
    let zone = served(&zones);
    for key in [None, Some(key(b"secret"))] {
        let (receiver, messages) = transfer(&zones, key.as_ref(), room_bytes);
        let received = receive(receiver, zone.apex(), &messages).expect("accepted").expect("complete");
        assert_eq!(text_of(&received), text_of(&zone));
    }
}

#[test]
fn zone_arrives_as_it_is_in_messages_of_any_length() {
    for room_bytes in [300, 400, 65_535] {
        check_zone(ZONE, room_bytes);
    }
}

proptest! {
    #[test]
    fn random_zones_arrive_as_they_are(text in zone_text("example.")) {
        check_zone(&text, 65_535);
    }

    #[test]
    fn mutated_transfer_is_refused_or_whole(at in 0usize..2_000, value in any::<u8>(), cut in any::<bool>()) {
        let zones = zone_map(ZONE);
        let (receiver, mut messages) = transfer(&zones, Some(&key(b"secret")), 250);
        let index = at % messages.len();
        let offset = at % messages[index].len();
        if cut {
            messages[index].truncate(offset);
        } else {
            messages[index][offset] = value;
        }
        let zone = served(&zones);
        if let Ok(Some(received)) = receive(receiver, zone.apex(), &messages) {
            prop_assert_eq!(text_of(&received), text_of(&zone));
        }
        // Without a signature, any content may arrive, and nothing panics.
        let (receiver, _) = transfer(&zones, None, 250);
        let _ = receive(receiver, zone.apex(), &messages);
    }
}

/// A message of these records, each with the name that it is of, its type, its class and its RDATA.
fn message(records: &[(&[u8], u16, u16, &[u8])]) -> Vec<u8> {
    let mut out = vec![0x12, 0x34, 0x84, 0, 0, 1, 0, records.len() as u8, 0, 0, 0, 0];
    out.extend_from_slice(APEX);
    out.extend_from_slice(&[0, 252, 0, 1]);
    for (owner, rtype, class, rdata) in records {
        out.extend_from_slice(owner);
        out.extend_from_slice(&rtype.to_be_bytes());
        out.extend_from_slice(&class.to_be_bytes());
        out.extend_from_slice(&[0, 0, 0, 60]);
        out.extend_from_slice(&(rdata.len() as u16).to_be_bytes());
        out.extend_from_slice(rdata);
    }
    out
}

#[test]
fn transfer_of_a_lying_server_is_refused() {
    let soa = |serial: u8| [&[0, 0][..], &[0, 0, 0, serial], &[0, 0, 0, 9].repeat(4)].concat();
    let (seven, eight) = (soa(7), soa(8));
    let begin = (APEX, 6, 1, &seven[..]);
    let check = |messages: &[Vec<u8>], expected: &str| {
        let apex = Name::parse(APEX).expect("a name");
        let (_, receiver) = TransferReceiver::new(apex, None, 0x1234, None, NOW, limits(1_000));
        let result = receive(receiver, apex, messages);
        match result {
            Ok(zone) => assert_eq!(expected, if zone.is_some() { "complete" } else { "incomplete" }),
            Err(error) => assert_eq!(error.to_string(), expected),
        }
    };
    let a = (&b"\x01a\x07example\0"[..], 1, 1, &[192, 0, 2, 1][..]);
    let ns = (APEX, 2, 1, APEX);
    let address = (APEX, 1, 1, &[192, 0, 2, 1][..]);
    check(&[message(&[begin, ns, address, begin])], "complete");
    check(&[message(&[begin]), message(&[ns, address]), message(&[begin])], "complete");
    // Cut off, or endless.
    check(&[message(&[begin, a])], "incomplete");
    check(&[message(&[begin])], "incomplete");
    check(
        &[vec![message(&[begin])], vec![message(&[a]); 100]].concat(),
        "its transfer has more than 1000 bytes (`a_key`)",
    );
    let with_empty =
        |count| [vec![message(&[begin, ns])], vec![message(&[]); count], vec![message(&[address, begin])]].concat();
    check(&with_empty(3), "complete");
    check(
        &with_empty(4),
        "its transfer has more than 3 messages without records (`zone_transfer_in_empty_messages_max`)",
    );
    check(&[message(&[a, begin])], "its transfer does not begin with the SOA of the zone");
    check(&[message(&[(b"\x07another\0", 6, 1, &seven)])], "its transfer does not begin with the SOA of the zone");
    check(&[message(&[begin, (APEX, 6, 1, &eight)])], "its transfer begins and ends with different SOA records");
    check(&[message(&[begin, ns, begin, a])], "its transfer has records after the SOA that ends it");
    for (owner, rtype, class, text) in [
        (&b"\x03com\0"[..], 1, 3, "com. A"),
        (APEX, 1, 3, "example. A"),
        (APEX, 250, 1, "example. TYPE250"),
        (APEX, 252, 1, "example. TYPE252"),
    ] {
        let expected = format!("its transfer has the record {text}, which cannot be in the zone");
        let found = message(&[begin, (owner, rtype, class, &[192, 0, 2, 1])]);
        let expected = if rtype == 250 {
            "it sends a malformed reply: the TSIG record is malformed".to_owned()
        } else {
            expected.replace("TYPE252", &sanderling_dns::Rtype(252).to_string())
        };
        check(&[found], &expected);
    }
    check(
        &[message(&[begin, (APEX, 1, 1, &[1, 2, 3])])],
        "it sends a malformed reply: a record is malformed for its type",
    );
    let mut refused = message(&[]);
    refused[3] = 5;
    check(&[refused], "it answers REFUSED");
}

#[test]
fn records_outside_of_the_zone_are_left_out_and_counted() {
    let soa = [&[0, 0][..], &[0, 0, 0, 7], &[0, 0, 0, 9].repeat(4)].concat();
    let begin = (APEX, 6, 1, &soa[..]);
    let inside = (APEX, 1, 1, &[192, 0, 2, 1][..]);
    let outside = (&b"\x03Com\0"[..], 1, 1, &[192, 0, 2, 2][..]);
    let (apex, id) = (Name::parse(APEX).expect("a name"), 0x1234);
    let check = |messages: &[&[_]], expected: &[&str], expected_left_out: &str| {
        let (_, mut receiver) = TransferReceiver::new(apex, None, id, None, NOW, limits(1 << 20));
        let mut types: Vec<String> = Vec::new();
        let mut progress = Progress::More;
        for records in messages {
            let add = |_, record: &Record<'_>| types.push(record.rtype.to_string());
            progress = receiver.receive(&message(records), NOW, add).expect("accepted");
        }
        assert_eq!((progress, receiver.left_out().to_string().as_str()), (Progress::Complete, expected_left_out));
        assert_eq!(types, expected);
    };
    check(&[&[begin, inside, begin]], &["SOA", "A"], "no records");
    let one = "the record Com. A, which is outside the zone";
    check(&[&[begin, outside], &[inside, begin]], &["SOA", "A"], one);
    check(&[&[begin, inside, outside, begin]], &["SOA", "A"], one);
    let two = "2 records outside the zone, the first one Com. A";
    check(&[&[begin, outside, outside, begin]], &["SOA"], two);
}

#[test]
fn wrong_and_missing_signatures_are_refused() {
    let zones = zone_map(ZONE);
    let apex = Name::parse(APEX).expect("a name");
    let (receiver, messages) = transfer(&zones, Some(&key(b"secret")), 250);
    assert!(messages.len() > 2);
    let result = |messages: &[Vec<u8>]| receive(receiver.clone(), apex, messages).map(|zone| zone.is_some());
    let signature = |error| Err(TransferError::Reply(ReplyError::Signature(error)));
    assert_eq!(result(&messages), Ok(true));
    // Messages of another order, and one that is left out.
    let mut swapped = messages.clone();
    swapped.swap(1, 2);
    assert_eq!(result(&swapped), signature(SignatureError::Invalid(TsigError::BadSig)));
    let (_, unsigned) = transfer(&zones, None, 250);
    assert_eq!(result(&unsigned), signature(SignatureError::Missing));
    assert_eq!(result(&[&messages[..1], &unsigned[1..]].concat()), signature(SignatureError::Missing));
    let (_, by_other) = transfer(&zones, Some(&key(b"other")), 250);
    assert_eq!(result(&by_other), signature(SignatureError::Invalid(TsigError::BadSig)));
}

#[test]
fn soa_is_read_from_a_signed_reply() {
    let zones = zone_map(ZONE);
    let apex = Name::parse(APEX).expect("a name");
    let ours = key(b"secret");
    let options = |secret: &[u8]| ReplyOptions { tsig_keys: vec![key(secret)], ..ReplyOptions::default() };
    let transport = DnsTransport::Udp { reply_bytes_max: 1_232 };
    let info = RequestInfo { client: ([192, 0, 2, 9], 53).into(), transport, now_unix_s: NOW };
    let ask = |options: &ReplyOptions, now: u64| {
        let (message, mut reader) = query(QueryKind::Soa, apex, 7, Some(&ours), NOW);
        let mut out = vec![0; 1_232];
        let answer = answer_with_options(&ParsedQuery::parse(&zones, &message), &info, options, &mut out);
        let Answer::Reply(length_bytes) = answer else { panic!("no reply") };
        reader.read(&out[..length_bytes], now).and_then(|reply| reply.soa(apex))
    };
    let soa = ask(&options(b"secret"), NOW).expect("accepted");
    assert_eq!((soa.serial, soa.refresh_s, soa.retry_s, soa.expire_s), (7, 1, 2, 3));
    let late = ask(&options(b"secret"), NOW + 301);
    assert_eq!(late, Err(ReplyError::Signature(SignatureError::Invalid(TsigError::BadTime))));
    assert_eq!(ask(&options(b"other"), NOW), Err(ReplyError::Signature(SignatureError::Refused(16))));
    let none = ReplyOptions::default();
    assert_eq!(ask(&none, NOW), Err(ReplyError::Signature(SignatureError::Refused(17))));
}

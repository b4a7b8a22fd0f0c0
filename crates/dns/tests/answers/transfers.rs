//! Zone transfers, and signed queries and replies, with the crate `domain` as the client that signs and checks.

use super::support::question::{Question, UDP};
use super::support::random_zone::zone_text;
use super::support::reply::{Reply, ReplyRecord};
use super::support::zone_text::{records_of_zones, zone_map};
use domain::base::{Message, MessageBuilder, Name as DomainName, Rtype as DomainType, Serial, Ttl};
use domain::rdata::Soa;
use domain::rdata::tsig::Time48;
use domain::tsig::{Algorithm, ClientSequence, ClientTransaction, Key, KeyName, ValidationError};
use hmac::{Hmac, KeyInit, Mac};
use proptest::prelude::*;
use sanderling_dns::answer::TCP_REPLY_BYTES_MAX;
use sanderling_dns::transfer::{Refusal, TransferRequest};
use sanderling_dns::{
    Answer, DnsTransport, Name, ParsedQuery, ReplyOptions, RequestInfo, Rtype, TsigAlgorithm, TsigError, TsigKey, Zone,
    ZoneEntry, ZoneMap, answer_with_options,
};
use sha2::Sha256;
use std::sync::Arc;

const NOW: u64 = 1_800_000_000;
const SECRET: &[u8] = b"a secret that is shared";
const ZONE: &str = "$ORIGIN example.\n$TTL 60\n@ SOA ns host 7 1 1 1 1\n@ NS ns\nns A 192.0.2.1\n*.a MX 5 Mail.A\n\
                    sub NS ns.sub\nns.sub A 192.0.2.2\n";

fn key(algorithm: TsigAlgorithm) -> TsigKey {
    TsigKey::new(Name::parse(b"\x03Key\0").expect("a name"), algorithm, SECRET)
}

fn peer_key(algorithm: Algorithm) -> Key {
    let name: KeyName = "key.".parse().expect("a name");
    Key::new(algorithm, SECRET, name, None, None).expect("a key")
}

const ALGORITHMS: [(TsigAlgorithm, Algorithm); 3] = [
    (TsigAlgorithm::HmacSha256, Algorithm::Sha256),
    (TsigAlgorithm::HmacSha384, Algorithm::Sha384),
    (TsigAlgorithm::HmacSha512, Algorithm::Sha512),
];

fn zone_of(zones: &ZoneMap) -> Arc<Zone> {
    match &zones.entries()[0] {
        ZoneEntry::Served(zone) => Arc::clone(zone),
        ZoneEntry::Restricted(_) | ZoneEntry::Unavailable { .. } => panic!("the zone is served"),
    }
}

/// All messages of the transfer that `query` asks for; `room_bytes` is the length of the buffer.
fn messages(zones: &ZoneMap, query: &[u8], keys: &[TsigKey], room_bytes: usize) -> Vec<Vec<u8>> {
    let parsed = ParsedQuery::parse(zones, query);
    let mut request = TransferRequest::new(&parsed).expect("a request");
    request.verify(keys, NOW).expect("accepted");
    let zone = zone_of(zones);
    let mut transfer = request.begin(&zone);
    let mut out = vec![0xa5; room_bytes];
    let mut messages = Vec::new();
    while let Some(length_bytes) = transfer.write(&zone, NOW, &mut out).expect("all records fit") {
        messages.push(out[..length_bytes].to_vec());
    }
    messages
}

fn axfr(apex: &str) -> Vec<u8> {
    Question::parse(&format!("{apex} AXFR +tcp")).message()
}

/// The records of all messages, each checked.
#[track_caller]
fn records_in(messages: &[Vec<u8>]) -> Vec<ReplyRecord> {
    let mut records = Vec::new();
    for message in messages {
        let reply = Reply::parse(message).unwrap_or_else(|fault| panic!("{fault}: {message:02x?}"));
        assert_eq!((reply.rcode, reply.flags & 0x8400), (0, 0x8400));
        let [answer, authority, _] = reply.sections;
        assert!(authority.is_empty() && !answer.is_empty());
        records.extend(answer);
    }
    records
}

fn sorted(records: &[ReplyRecord]) -> Vec<(Vec<u8>, u16, Vec<u8>)> {
    let mut all: Vec<_> = records
        .iter()
        .map(|record| (record.owner.to_ascii_lowercase(), record.rtype.0, record.rdata.clone()))
        .collect();
    all.sort();
    all.dedup();
    all
}

#[track_caller]
fn check_transfer(text: &str, apex: &str, room_bytes: usize) -> usize {
    let zones = zone_map(text);
    let messages = messages(&zones, &axfr(apex), &[], room_bytes);
    let records = records_in(&messages);
    let (first, last) = (&records[0], &records[records.len() - 1]);
    assert_eq!((first.rtype, first), (Rtype::SOA, last), "RFC 5936 section 2.2");
    let inner = &records[..records.len() - 1];
    assert_eq!(inner.len(), zone_of(&zones).record_count(), "each record once");
    let (_, expected) = records_of_zones(text).remove(0);
    assert_eq!(sorted(inner), sorted(&expected));
    messages.len()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn transfer_has_every_record_of_the_zone_once(text in zone_text("z."), room_bytes in 200..600usize) {
        check_transfer(&text, "z.", room_bytes);
        check_transfer(&text, "Z.", TCP_REPLY_BYTES_MAX);
    }
}

#[test]
fn messages_are_filled_and_compressed() {
    let hosts: String =
        (0..20_000).map(|index| format!("host-{index}.group-{}.deep A 192.0.2.1\n", index % 7)).collect();
    let text = format!("$ORIGIN example.\n$TTL 60\n@ SOA ns host 7 1 1 1 1\n@ NS ns\nns A 192.0.2.1\n{hosts}");
    assert_eq!(check_transfer(&text, "example.", TCP_REPLY_BYTES_MAX), 9, "28 bytes for each record");
    let zones = zone_map(&text);
    let messages = messages(&zones, &axfr("example."), &[], TCP_REPLY_BYTES_MAX);
    assert!(messages[..8].iter().all(|message| message.len() > 65_000));
}

#[test]
fn longest_records_and_rrsets_are_transferred() {
    let long: String = (0..300).map(|index| format!("x TXT \"{index} {}\"\n", "y".repeat(190))).collect();
    let one = format!("z TXT {}\n", "\"0123456789012345678901234567890123456789\" ".repeat(1_400));
    check_transfer(&format!("$ORIGIN example.\n{long}{one}"), "example.", TCP_REPLY_BYTES_MAX);
}

/// A signed query, and the client that checks the reply's messages.
fn signed(key: Key, rtype: DomainType, now: u64) -> (Vec<u8>, ClientSequence<Key>) {
    let mut question = MessageBuilder::new_vec().question();
    question.push(("example.".parse::<DomainName<Vec<u8>>>().expect("a name"), rtype)).expect("pushed");
    let mut additional = question.additional();
    let client = ClientSequence::request(key, &mut additional, Time48::from_u64(now)).expect("signed");
    (additional.finish(), client)
}

#[test]
fn every_message_is_signed_and_the_client_accepts_it() {
    for (ours, theirs) in ALGORITHMS {
        let hosts: String = (0..9_000).map(|index| format!("host-{index} A 192.0.2.1\n")).collect();
        let zones = zone_map(&format!("{ZONE}{hosts}"));
        let (query, mut client) = signed(peer_key(theirs), DomainType::AXFR, NOW);
        let messages = messages(&zones, &query, &[key(ours)], TCP_REPLY_BYTES_MAX);
        assert!(messages.len() > 1);
        for message in &messages {
            let mut message = Message::from_octets(message.clone()).expect("longer than a header");
            client.answer(&mut message, Time48::from_u64(NOW + 1)).expect("the signature is right");
        }
        client.done().expect("the last message is signed");
    }
}

#[track_caller]
fn verified(query: &[u8], keys: &[TsigKey], now: u64) -> Result<(), TsigError> {
    let zones = zone_map(ZONE);
    let parsed = ParsedQuery::parse(&zones, query);
    TransferRequest::new(&parsed).expect("a request").verify(keys, now)
}

#[test]
fn wrong_signatures_are_told_apart() {
    let keys = [key(TsigAlgorithm::HmacSha256)];
    let (query, _) = signed(peer_key(Algorithm::Sha256), DomainType::AXFR, NOW);
    assert_eq!(verified(&query, &keys, NOW), Ok(()));
    assert_eq!(verified(&query, &[], NOW), Err(TsigError::BadKey));
    assert_eq!(verified(&query, &[key(TsigAlgorithm::HmacSha512)], NOW), Err(TsigError::BadKey));
    for (now, expected) in [
        (NOW + 300, Ok(())),
        (NOW - 300, Ok(())),
        (NOW + 301, Err(TsigError::BadTime)),
        (NOW - 301, Err(TsigError::BadTime)),
    ] {
        assert_eq!(verified(&query, &keys, now), expected, "RFC 8945 section 5.2.3");
    }
    // Every changed byte after the ID, which the original ID replaces, is found; a few make another query of it.
    let zones = zone_map(ZONE);
    for index in 2..query.len() {
        let mut changed = query.clone();
        changed[index] ^= 0x01;
        let parsed = ParsedQuery::parse(&zones, &changed);
        if let Some(mut request) = TransferRequest::new(&parsed) {
            // Without its last record the query is not signed.
            assert!(request.verify(&keys, NOW).is_err() || [11, 30, 31].contains(&index), "byte {index}");
            assert_eq!(request.key(), None);
        }
    }
}

#[test]
fn truncated_mac_is_not_accepted() {
    let keys = [key(TsigAlgorithm::HmacSha256)];
    let check = |length: usize, expected| {
        let name: KeyName = "key.".parse().expect("a name");
        let short = Key::new(Algorithm::Sha256, SECRET, name, Some(16), Some(length)).expect("a key");
        let (query, _) = signed(short, DomainType::AXFR, NOW);
        assert_eq!(verified(&query, &keys, NOW), expected, "{length}");
    };
    check(32, Ok(()));
    check(31, Err(TsigError::BadTrunc));
    check(16, Err(TsigError::BadTrunc));
    // RFC 8945 section 5.2.2.1: less than half of it is malformed.
    let (mut query, _) = signed(peer_key(Algorithm::Sha256), DomainType::AXFR, NOW);
    let mac_size_at = query.len() - 2 - 2 - 2 - 32 - 2;
    assert_eq!(query[mac_size_at..mac_size_at + 2], [0, 32]);
    query.drain(mac_size_at + 2..mac_size_at + 2 + 17);
    query[mac_size_at + 1] -= 17;
    let rdlength_at = mac_size_at - 8 - 13 - 2;
    query[rdlength_at + 1] -= 17;
    assert_eq!(verified(&query, &keys, NOW), Err(TsigError::Malformed));
}

/// The reply of a server with `keys` to an ordinary query.
fn reply_to(query: &[u8], keys: Vec<TsigKey>, now: u64, transport: DnsTransport) -> Vec<u8> {
    let zones = zone_map(ZONE);
    let options = ReplyOptions { tsig_keys: keys, ..ReplyOptions::default() };
    let info = RequestInfo { client: ([192, 0, 2, 9], 53).into(), transport, now_unix_s: now };
    let mut out = vec![0xa5; TCP_REPLY_BYTES_MAX];
    match answer_with_options(&ParsedQuery::parse(&zones, query), &info, &options, &mut out) {
        Answer::Reply(length_bytes) => out[..length_bytes].to_vec(),
        Answer::NoReply => panic!("no reply"),
    }
}

#[test]
fn reply_to_a_signed_query_is_signed() {
    for (ours, theirs) in ALGORITHMS {
        for (with_edns, transport) in [(false, UDP), (true, UDP), (true, DnsTransport::Tls)] {
            let mut question = MessageBuilder::new_vec().question();
            question
                .push(("ns.example.".parse::<DomainName<Vec<u8>>>().expect("a name"), DomainType::A))
                .expect("pushed");
            let mut additional = question.additional();
            if with_edns {
                additional
                    .opt(|opt| opt.push(&domain::base::opt::Padding::from_octets(&[0; 4][..]).unwrap()))
                    .expect("pushed");
            }
            let client = ClientTransaction::request(peer_key(theirs), &mut additional, Time48::from_u64(NOW));
            let client = client.expect("signed");
            let reply = reply_to(&additional.finish(), vec![key(ours)], NOW, transport);
            let mut message = Message::from_octets(reply).expect("longer than a header");
            client.answer(&mut message, Time48::from_u64(NOW)).expect("the signature is right");
            assert_eq!(message.header_counts().ancount(), 1, "{with_edns} {transport:?}");
        }
    }
}

#[test]
fn reply_without_room_for_its_signature_is_truncated_rfc_8945_section_5_3() {
    for (bytes, is_truncated) in [(200, false), (440, true)] {
        let zones = zone_map(&format!("{ZONE}big TXT {} {}\n", "x".repeat(bytes / 2), "y".repeat(bytes - bytes / 2)));
        let mut question = MessageBuilder::new_vec().question();
        question
            .push(("big.example.".parse::<DomainName<Vec<u8>>>().expect("a name"), DomainType::TXT))
            .expect("pushed");
        let mut additional = question.additional();
        let client = ClientTransaction::request(peer_key(Algorithm::Sha256), &mut additional, Time48::from_u64(NOW));
        let options = ReplyOptions { tsig_keys: vec![key(TsigAlgorithm::HmacSha256)], ..ReplyOptions::default() };
        let info = RequestInfo { client: ([192, 0, 2, 9], 53).into(), transport: UDP, now_unix_s: NOW };
        let mut out = vec![0xa5; 1232];
        let query = additional.finish();
        let answer = answer_with_options(&ParsedQuery::parse(&zones, &query), &info, &options, &mut out);
        let Answer::Reply(length_bytes) = answer else { panic!("no reply") };
        assert!(length_bytes <= 512, "{length_bytes}");
        let mut message = Message::from_octets(out[..length_bytes].to_vec()).expect("longer than a header");
        client.expect("signed").answer(&mut message, Time48::from_u64(NOW)).expect("the signature is right");
        assert_eq!(message.header().tc(), is_truncated);
    }
}

#[test]
fn errors_of_signatures_have_their_code() {
    let answer_of = |client_key: Key, keys: Vec<TsigKey>, now: u64| {
        let (query, mut client) = signed(client_key, DomainType::SOA, NOW);
        let reply = reply_to(&query, keys, now, UDP);
        assert_eq!(reply[3] & 0xf, 9, "NOTAUTH");
        let mut message = Message::from_octets(reply).expect("longer than a header");
        client.answer(&mut message, Time48::from_u64(NOW))
    };
    let ours = || vec![key(TsigAlgorithm::HmacSha256)];
    let bad_key = answer_of(peer_key(Algorithm::Sha512), ours(), NOW);
    assert!(matches!(bad_key, Err(ValidationError::ServerBadKey)), "{bad_key:?}");
    let name: KeyName = "key.".parse().expect("a name");
    let other = Key::new(Algorithm::Sha256, b"other", name, None, None).expect("a key");
    let bad_sig = answer_of(other, ours(), NOW);
    assert!(matches!(bad_sig, Err(ValidationError::ServerBadSig)), "{bad_sig:?}");
}

#[test]
fn reply_to_a_wrong_time_is_signed_and_has_the_time_of_the_server_rfc_8945_section_5_2_3() {
    let (query, _) = signed(peer_key(Algorithm::Sha256), DomainType::SOA, NOW);
    let reply = reply_to(&query, vec![key(TsigAlgorithm::HmacSha256)], NOW + 1_000, UDP);
    assert_eq!((reply[3] & 0xf, reply[11]), (9, 1), "NOTAUTH, with a TSIG record");
    // The crate `domain` takes eight bytes of the time into the MAC, so it is computed here.
    let time = |time: u64| time.to_be_bytes()[2..].to_vec();
    let end = [&[0, 18, 0, 6][..], &time(NOW + 1_000)].concat();
    let fixed = [&[0, 250, 0, 255, 0, 0, 0, 0, 0, 67][..], b"\x0bhmac-sha256\0", &time(NOW), &[1, 44, 0, 32]].concat();
    let tsig_bytes = 5 + fixed.len() + 32 + 2 + end.len();
    let (message, tsig) = reply.split_at(reply.len() - tsig_bytes);
    assert!(tsig.starts_with(&[&b"\x03key\0"[..], &fixed].concat()) && tsig.ends_with(&end), "{tsig:02x?}");
    let mut unsigned = message.to_vec();
    unsigned[11] = 0;
    let query_mac = &query[query.len() - 6 - 32..query.len() - 6];
    let parts: [&[u8]; 8] =
        [&[0, 32], query_mac, &unsigned, b"\x03key\0\0\xff\0\0\0\0\x0bhmac-sha256\0", &time(NOW), &[1, 44], &end, &[]];
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET).expect("a key");
    parts.iter().for_each(|part| mac.update(part));
    assert_eq!(mac.finalize().into_bytes()[..], tsig[5 + fixed.len()..][..32]);
}

/// An IXFR query of a client with `serial`.
fn ixfr(serial: Option<u32>) -> Vec<u8> {
    let apex = || "example.".parse::<DomainName<Vec<u8>>>().expect("a name");
    let mut question = MessageBuilder::new_vec().question();
    question.push((apex(), DomainType::IXFR)).expect("pushed");
    let mut authority = question.authority();
    if let Some(serial) = serial {
        let second = Ttl::from_secs(1);
        let soa = Soa::new(apex(), apex(), Serial(serial), second, second, second, second);
        authority.push((apex(), second, soa)).expect("pushed");
    }
    authority.finish()
}

#[test]
fn incremental_transfer_to_a_client_that_is_up_to_date_is_one_soa() {
    let zones = zone_map(ZONE);
    let zone = zone_of(&zones);
    for (serial, expected) in [
        (Some(7), Ok(true)),
        (Some(8), Ok(true)),
        (Some(6), Ok(false)),
        // RFC 1982: it is later.
        (Some(7 + (1 << 31) - 1), Ok(true)),
        (Some(u32::MAX), Ok(false)),
        (None, Err(Refusal::Malformed)),
    ] {
        let query = ixfr(serial);
        let parsed = ParsedQuery::parse(&zones, &query);
        let request = TransferRequest::new(&parsed).expect("a request");
        assert!(request.is_incremental());
        assert_eq!(request.is_up_to_date(&zone), expected, "{serial:?}");
        let mut out = vec![0xa5; 512];
        let length_bytes = request.put_soa(&zone, NOW, &mut out).expect("it fits");
        let [answer, ..] = Reply::parse(&out[..length_bytes]).expect("a reply").sections;
        assert_eq!(answer.iter().map(|record| record.rtype).collect::<Vec<_>>(), [Rtype::SOA]);
    }
    let parsed_axfr = axfr("example.");
    let parsed = ParsedQuery::parse(&zones, &parsed_axfr);
    assert_eq!(TransferRequest::new(&parsed).expect("a request").is_up_to_date(&zone), Ok(false));
}

#[test]
fn refusals_have_their_rcode() {
    let zones = zone_map(ZONE);
    let (query, _) = signed(peer_key(Algorithm::Sha256), DomainType::AXFR, NOW);
    for (refusal, rcode, additional) in [
        (Refusal::NotAllowed, 5, 0),
        (Refusal::Unavailable, 2, 0),
        (Refusal::NotAuthoritative, 9, 0),
        (Refusal::Malformed, 1, 0),
        (Refusal::Tsig(TsigError::BadKey), 9, 1),
        (Refusal::Tsig(TsigError::Malformed), 1, 0),
    ] {
        let parsed = ParsedQuery::parse(&zones, &query);
        let mut out = vec![0xa5; 512];
        let request = TransferRequest::new(&parsed).expect("a request");
        let length_bytes = request.refuse(refusal, NOW, &mut out).expect("it fits");
        assert_eq!((out[3], out[6..12].to_vec()), (rcode, vec![0, 0, 0, 0, 0, additional]), "{refusal:?}");
        assert_eq!(length_bytes > 12 + 13, additional == 1);
    }
    for other in ["example. SOA", "example. AXFR +class=3", "example. AXFR +edns +version=1"] {
        let query = Question::parse(other).message();
        assert!(TransferRequest::new(&ParsedQuery::parse(&zones, &query)).is_none(), "{other}");
    }
}

//! NOTIFY from primary servers, and the replies to it, as the client of this crate reads them.

use super::support::zone_text::zone_map;
use sanderling_dns::client::{QueryKind, ReplyError, query};
use sanderling_dns::notify::{NotifyAnswer, NotifyRequest};
use sanderling_dns::{Name, ParsedQuery, SignatureError, TsigAlgorithm, TsigKey};

const NOW: u64 = 1_800_000_000;
const APEX: &[u8] = b"\x07Example\0";

fn key(secret: &[u8]) -> TsigKey {
    TsigKey::new(Name::parse(b"\x03key\0").expect("a name"), TsigAlgorithm::HmacSha256, secret)
}

/// The result for the sender of a NOTIFY that is signed with `key`; the server has `keys` and gives `answer`.
fn exchange(key: Option<&TsigKey>, keys: &[TsigKey], answer: NotifyAnswer) -> Result<(), ReplyError> {
    let zones = zone_map("$ORIGIN example.\n$TTL 60\n@ SOA ns host 1 1 1 1 1\n@ NS ns\nns A 192.0.2.1\n");
    let (message, mut reader) = query(QueryKind::Notify, Name::parse(APEX).expect("a name"), 7, key, NOW);
    let parsed = ParsedQuery::parse(&zones, &message);
    let mut request = NotifyRequest::new(&parsed).expect("a NOTIFY");
    assert_eq!((request.apex().to_string(), request.serial()), ("Example.".to_owned(), None));
    let answer = request.verify(keys, NOW).err().map_or(answer, NotifyAnswer::Tsig);
    assert_eq!(request.key().is_some(), key.is_some() && !matches!(answer, NotifyAnswer::Tsig(_)));
    let mut out = [0xa5; 512];
    let length_bytes = request.reply(answer, NOW, &mut out).expect("it fits");
    reader.read(&out[..length_bytes], NOW).map(drop)
}

#[test]
fn notify_is_answered_and_signed_as_it_was() {
    let ours = key(b"secret");
    let keys = [ours.clone()];
    for sent in [None, Some(&ours)] {
        assert_eq!(exchange(sent, &keys, NotifyAnswer::Accepted), Ok(()));
        assert_eq!(exchange(sent, &keys, NotifyAnswer::NotAllowed), Err(ReplyError::Refused(5)));
        assert_eq!(exchange(sent, &keys, NotifyAnswer::NotSecondary), Err(ReplyError::Refused(9)));
    }
    let refused = |code| Err(ReplyError::Signature(SignatureError::Refused(code)));
    assert_eq!(exchange(Some(&key(b"other")), &keys, NotifyAnswer::Accepted), refused(16));
    assert_eq!(exchange(Some(&ours), &[], NotifyAnswer::Accepted), refused(17));
}

#[test]
fn serial_and_edns_of_the_sender_are_read() {
    let zones = zone_map("$ORIGIN example.\n$TTL 60\n@ SOA ns host 1 1 1 1 1\n@ NS ns\nns A 192.0.2.1\n");
    let question = [&[0, 9, 0x24, 0, 0, 1, 0, 1, 0, 0, 0, 1][..], APEX, &[0, 6, 0, 1]].concat();
    let soa = [&[0xc0, 12, 0, 6, 0, 1, 0, 0, 0, 0, 0, 24, 0xc0, 12, 0xc0, 12, 0, 0, 0, 42][..], &[0; 16]].concat();
    let opt = [0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0];
    let message = [question.clone(), soa, opt.to_vec()].concat();
    let parsed = ParsedQuery::parse(&zones, &message);
    let request = NotifyRequest::new(&parsed).expect("a NOTIFY");
    assert_eq!(request.serial(), Some(42));
    let mut out = [0xa5; 512];
    let length_bytes = request.reply(NotifyAnswer::Accepted, NOW, &mut out).expect("it fits");
    let header = [&[0, 9, 0xa4, 0, 0, 1, 0, 0, 0, 0, 0, 1][..], &question[12..]].concat();
    assert_eq!(out[..header.len()], header);
    assert_eq!(length_bytes, header.len() + opt.len());
    for end in 0..message.len() {
        // A message that is cut off is none, and nothing panics.
        assert!(NotifyRequest::new(&ParsedQuery::parse(&zones, &message[..end])).is_none(), "{end}");
    }
    let other_types = [&message[..12], APEX, &[0, 1, 0, 1], &message[12 + APEX.len() + 4..]].concat();
    assert!(NotifyRequest::new(&ParsedQuery::parse(&zones, &other_types)).is_none());
    let mut query = message.clone();
    query[2] = 0;
    assert!(NotifyRequest::new(&ParsedQuery::parse(&zones, &query)).is_none());
}

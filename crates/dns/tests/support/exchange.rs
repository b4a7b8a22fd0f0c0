//! Sends queries to zones and checks every reply's properties.

use super::question::{ID, Question};
use super::reply::Reply;
use sanderling_dns::{Answer, DnsTransport, RequestInfo, Rtype, ZoneMap, answer};
use std::net::{Ipv4Addr, SocketAddr};

/// Every query's client.
const CLIENT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1024);

/// The bytes of the reply, which passed [`check_invariants`].
pub(crate) fn ask_bytes(zones: &ZoneMap, question: &Question) -> Vec<u8> {
    let query = question.message();
    let bytes = send(zones, &query, question.transport).expect("a question has a reply");
    assert!(bytes.len() <= question.reply_bytes_max(), "{} bytes for {question:?}", bytes.len());
    let reply = Reply::parse(&bytes).unwrap_or_else(|fault| panic!("{fault}\n{question:?}\n{bytes:02x?}"));
    check_invariants(question, &reply);
    bytes
}

/// The reply to `question`.
pub(crate) fn ask(zones: &ZoneMap, question: &Question) -> Reply {
    Reply::parse(&ask_bytes(zones, question)).expect("parsed before")
}

/// The reply to any bytes; `None` if they are dropped. The buffer has the length of the longest reply.
pub(crate) fn send(zones: &ZoneMap, query: &[u8], transport: DnsTransport) -> Option<Vec<u8>> {
    let room_bytes = match transport {
        DnsTransport::Udp { reply_bytes_max } => usize::from(reply_bytes_max),
        DnsTransport::Tcp | DnsTransport::Tls | DnsTransport::Https => 65_535,
    };
    // Filled, so that a byte that was not written shows.
    let mut out = vec![0xa5; room_bytes];
    let info = RequestInfo { client: CLIENT, transport, now_unix_s: 0 };
    match answer(zones, &info, query, &mut out) {
        Answer::NoReply => None,
        Answer::Reply(length_bytes) => {
            out.truncate(length_bytes);
            Some(out)
        }
    }
}

/// Checks what holds for the reply to every well-formed question.
fn check_invariants(question: &Question, reply: &Reply) {
    assert_eq!(reply.id, ID);
    assert_eq!(reply.flags & 0x8000, 0x8000, "QR");
    // RFC 1035 §4.1.1: Z and, without recursion, RA are 0. RFC 4035 §3.1.6: AD and CD are 0.
    assert_eq!(reply.flags & 0x00f0, 0);
    assert_eq!(reply.flags & 0x0100 != 0, question.recursion_desired, "RFC 1035 section 4.1.1: RD is copied");
    let (name, rtype, class) = reply.question.as_ref().expect("the question is repeated");
    assert_eq!((name, *rtype, *class), (&question.name, question.rtype, question.class), "the question is copied");
    // RFC 6891 §6.1.1 and §7: the reply has an OPT if and only if the query has one.
    assert_eq!(reply.edns.is_some(), question.edns_bytes.is_some());
    if let Some(edns) = reply.edns {
        assert_eq!((edns.version, edns.option_bytes), (0, 0));
        // RFC 3225 §3: DO is copied.
        assert_eq!(edns.dnssec_ok, question.dnssec_ok);
    }
    for section in &reply.sections {
        for (index, record) in section.iter().enumerate() {
            assert!(!section[..index].contains(record), "twice in one section: {record}");
        }
    }
    // RFC 2308 §2: a negative answer has an SOA. RFC 1034 §4.3.2: a referral has none.
    let [_, authority, _] = &reply.sections;
    let soa_count = authority.iter().filter(|record| record.rtype == Rtype::SOA).count();
    let is_negative =
        authority.iter().all(|record| matches!(record.rtype, Rtype::SOA | Rtype::RRSIG | Rtype::NSEC | Rtype::NSEC3));
    assert!(soa_count == 0 || soa_count == 1 && is_negative, "{reply}");
    let is_proof = |rtype| matches!(rtype, Rtype::RRSIG | Rtype::NSEC | Rtype::NSEC3);
    let has_proof = reply.sections[1..].iter().flatten().any(|record| is_proof(record.rtype));
    assert!(question.dnssec_ok || !has_proof, "RFC 4035 section 3.1: not without DO\n{reply}");
    if reply.is_truncated() {
        assert!(reply.sections.iter().all(Vec::is_empty), "a truncated reply has no records: {reply}");
    } else if reply.rcode == 3 {
        assert_eq!((reply.is_authoritative(), soa_count), (true, 1), "{reply}");
    }
}

//! Queries for the records at a name, as the client of this crate asks for them, and the answers of this server.

use super::support::exchange::send;
use super::support::zone_text::zone_map;
use sanderling_dns::client::{QueryKind, ReplyError, query};
use sanderling_dns::{DnsTransport, Name, Rtype};

const APEX: &[u8] = b"\x07example\0";
const ZONE: &str = "$ORIGIN example.\n$TTL 60\n@ SOA ns host 1 1 1 1 1\n@ NS Ns\nns A 192.0.2.1\nns A 192.0.2.2\n\
                    t TXT one\nt TXT two\nsub NS ns.sub\nns.sub A 192.0.2.3\n";

/// The RDATA of the records of `rtype` at `name`, and whether the reply is a referral within the zone.
fn ask(name: &[u8], rtype: Rtype) -> Result<(Vec<Vec<u8>>, bool), ReplyError> {
    let name = Name::parse(name).expect("a name");
    let (message, mut reader) = query(QueryKind::Records(rtype), name, 7, None, 0);
    let transport = DnsTransport::Udp { reply_bytes_max: 1232 };
    let received = send(&zone_map(ZONE), &message, transport).expect("a reply");
    let reply = reader.read(&received, 0)?;
    let apex = Name::parse(APEX).expect("a name");
    Ok((reply.records(name, rtype)?, reply.is_referral(name, apex)?))
}

#[test]
fn records_are_read_with_their_names_written_out() {
    let sorted = |name: &[u8], rtype| {
        ask(name, rtype).map(|(mut records, is_referral)| {
            records.sort();
            (records, is_referral)
        })
    };
    assert_eq!(sorted(b"\x01T\x07example\0", Rtype::TXT), Ok((vec![b"\x03one".to_vec(), b"\x03two".to_vec()], false)));
    assert_eq!(sorted(APEX, Rtype::NS), Ok((vec![b"\x02Ns\x07example\0".to_vec()], false)));
    assert_eq!(sorted(b"\x02ns\x07example\0", Rtype::A), Ok((vec![vec![192, 0, 2, 1], vec![192, 0, 2, 2]], false)));
}

#[test]
fn missing_records_and_referrals_are_distinguished() {
    assert_eq!(ask(b"\x01t\x07example\0", Rtype::A), Ok((vec![], false)));
    assert_eq!(ask(b"\x01x\x07example\0", Rtype::A), Err(ReplyError::Refused(3)));
    assert_eq!(ask(b"\x03sub\x07example\0", Rtype::TXT), Ok((vec![], true)));
    assert_eq!(ask(b"\x01x\x03sub\x07example\0", Rtype::TXT), Ok((vec![], true)));
    assert_eq!(ask(b"\x05other\0", Rtype::TXT), Err(ReplyError::Refused(5)));
}

#[test]
fn reply_says_how_long_it_may_be_kept() {
    let ttl_s = |name: &[u8], rtype| {
        let name = Name::parse(name).expect("a name");
        let (message, mut reader) = query(QueryKind::Resolve(rtype), name, 7, None, 0);
        assert_eq!(message[2] & 1, 1, "a resolver is asked to do its work");
        let received = send(&zone_map(ZONE), &message, DnsTransport::Udp { reply_bytes_max: 1232 }).expect("a reply");
        reader.read(&received, 0).and_then(|reply| reply.ttl_s(name, rtype))
    };
    assert_eq!(ttl_s(b"\x01t\x07example\0", Rtype::TXT), Ok(Some(60)));
    // The minimum of the SOA record.
    assert_eq!(ttl_s(b"\x01t\x07example\0", Rtype::A), Ok(Some(1)));
    assert_eq!(ttl_s(b"\x03sub\x07example\0", Rtype::A), Ok(None));
}

#[test]
fn referral_has_the_servers_and_their_glue() {
    let referral = |name: &[u8]| {
        let name = Name::parse(name).expect("a name");
        let (message, mut reader) = query(QueryKind::Records(Rtype::NS), name, 7, None, 0);
        let received = send(&zone_map(ZONE), &message, DnsTransport::Udp { reply_bytes_max: 1232 }).expect("a reply");
        reader.read(&received, 0).and_then(|reply| reply.referral(name)).expect("a correct reply")
    };
    let found = referral(b"\x03Sub\x07example\0").expect("a referral");
    let servers: Vec<String> = found.servers.iter().map(ToString::to_string).collect();
    let glue: Vec<_> = found.glue.iter().map(|(host, address)| (host.to_string(), address.clone())).collect();
    assert_eq!(servers, ["ns.sub.example."]);
    assert_eq!(glue, [("ns.sub.example.".to_owned(), vec![192, 0, 2, 3])]);
    // The zone itself, a name without a delegation, and one below it.
    for name in [APEX, b"\x01t\x07example\0", b"\x01x\x03sub\x07example\0"] {
        assert!(referral(name).is_none(), "{name:?}");
    }
}

#[test]
fn query_for_signatures_says_so() {
    let name = Name::parse(APEX).expect("a name");
    let flags = |kind| query(kind, name, 7, None, 0).0.iter().rev().nth(3).copied();
    assert_eq!(flags(QueryKind::SignedRecords(Rtype::SOA)), Some(0x80));
    assert_eq!(flags(QueryKind::Records(Rtype::SOA)), Some(0));
}

/// A reply may come from anyone: with any byte changed it is read, or refused, and nothing panics.
#[test]
fn damaged_referrals_are_read_or_refused() {
    let name = Name::parse(b"\x03sub\x07example\0").expect("a name");
    let (message, reader) = query(QueryKind::Records(Rtype::NS), name, 7, None, 0);
    let received = send(&zone_map(ZONE), &message, DnsTransport::Udp { reply_bytes_max: 1232 }).expect("a reply");
    let mut refused_count = 0;
    for at in 0..received.len() {
        for value in 0..=u8::MAX {
            let mut damaged = received.clone();
            damaged[at] = value;
            let referral = reader.clone().read(&damaged, 0).and_then(|reply| reply.referral(name));
            refused_count += usize::from(referral.is_err());
        }
        assert!(reader.clone().read(&received[..at], 0).is_err(), "cut after {at} bytes");
    }
    assert!(refused_count > 0, "no damage was noticed");
}

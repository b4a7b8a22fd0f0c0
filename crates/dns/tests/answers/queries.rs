//! Queries with records, options and opcodes that the questions of the text files cannot express.

use super::support::exchange::send;
use super::support::question::{Question, UDP};
use super::support::reply::Reply;
use super::support::zone_text::zone_map;
use sanderling_dns::DnsTransport;

const ZONE: &str = "$ORIGIN example.\nns A 192.0.2.53";

/// Asks for `ns.example. A` with these record counts and the bytes of `additional`.
#[track_caller]
fn check_additional(counts: [u16; 4], additional: &[u8], expected: &str) {
    let mut query = Question::parse("ns.example. A").message();
    for (place, count) in query[4..12].chunks_exact_mut(2).zip(counts) {
        place.copy_from_slice(&count.to_be_bytes());
    }
    query.extend(additional);
    let bytes = send(&zone_map(ZONE), &query, UDP).expect("a query has a reply");
    let reply = Reply::parse(&bytes).expect("a reply is well-formed").to_string();
    assert_eq!(reply.lines().next(), Some(expected), "{additional:02x?}");
}

const OPT: [u8; 11] = [0, 0, 41, 16, 0, 0, 0, 0, 0, 0, 0];
const TXT: [u8; 16] = [0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 1, 0, 4, 3, b'a', b'b', b'c'];

#[test]
fn query_with_allowed_additional_records_is_answered() {
    let fine = "NOERROR aa edns=1232";
    check_additional([1, 0, 0, 1], &OPT, fine);
    check_additional([1, 0, 0, 2], &[&OPT[..], &TXT].concat(), fine);
    check_additional([1, 0, 0, 2], &[&TXT[..], &OPT].concat(), fine);
    check_additional([1, 0, 0, 1], &TXT, "NOERROR aa");
    // Bytes after the last record.
    check_additional([1, 0, 0, 0], &OPT, "NOERROR aa");
    check_additional([1, 0, 0, 16], &[&OPT[..], &TXT.repeat(15)].concat(), fine);
}

#[test]
fn query_with_forbidden_records_is_formerr() {
    check_additional([1, 0, 0, 2], &[OPT, OPT].concat(), "FORMERR edns=1232");
    check_additional([1, 0, 0, 1], &OPT[..10], "FORMERR");
    // RFC 6891 §6.1.1: the reply to a query with an OPT has one.
    check_additional([1, 0, 0, 2], &OPT, "FORMERR edns=1232");
    check_additional([1, 0, 0, 17], &[&OPT[..], &TXT.repeat(16)].concat(), "FORMERR");
    check_additional([1, 1, 0, 0], &TXT, "FORMERR");
    check_additional([1, 1, 0, 1], &[&TXT[..], &OPT].concat(), "FORMERR edns=1232");
    check_additional([1, 0, 1, 0], &TXT, "FORMERR");
    check_additional([0, 0, 0, 0], &[], "FORMERR");
    check_additional([2, 0, 0, 1], &[&[0, 0, 1, 0, 1], &OPT[..]].concat(), "FORMERR edns=1232");
    check_additional([2, 0, 0, 0], &[0, 0, 1, 0, 1], "FORMERR");
    // The owner of an OPT is the uncompressed root.
    check_additional([1, 0, 0, 1], &[&[1, b'a'], &OPT[..]].concat(), "FORMERR");
    check_additional([1, 0, 0, 1], &[&[0xc0, 23], &OPT[1..]].concat(), "FORMERR");
}

#[test]
fn owner_with_a_pointer_that_is_not_backwards_is_formerr_rfc_1035_section_4_1_4() {
    // The additional section starts at byte 28.
    for (pointer, expected) in [(12, "NOERROR aa"), (28, "FORMERR"), (30, "FORMERR"), (500, "FORMERR")] {
        check_additional([1, 0, 0, 1], &[&[0xc0, pointer as u8], &TXT[2..]].concat(), expected);
        check_additional([1, 0, 0, 1], &[&[1, b'a', 0xc0, pointer as u8], &TXT[2..]].concat(), expected);
    }
    // Two pointers to each other.
    let rdata = [&[0, 0, 16, 0, 1, 0, 0, 0, 0, 0, 2, 0xc0, 41][..], &[0xc0, 39], &TXT[2..]].concat();
    check_additional([1, 0, 0, 2], &rdata, "FORMERR");
    // A name of more than 255 bytes.
    check_additional([1, 0, 0, 1], &[&b"\x01a".repeat(130)[..], &TXT].concat(), "FORMERR");
}

/// A TSIG record of the key `key.` with `class`, algorithm `a.` and these bytes of a MAC.
fn tsig(class: u8, mac: &[u8]) -> Vec<u8> {
    let head = [3, b'k', b'e', b'y', 0, 0, 250, 0, class, 0, 0, 0, 0];
    let mac = [&[0, mac.len() as u8], mac].concat();
    let rdata = [&[1, b'a', 0, 1, 2, 3, 4, 5, 6, 7, 8][..], &mac, &[9, 9, 0, 0, 0, 0]].concat();
    [&head[..], &[0, rdata.len() as u8], &rdata].concat()
}

#[test]
fn unknown_tsig_key_gets_badkey_rfc_8945_section_5_2_1() {
    let zones = zone_map(ZONE);
    for with_edns in [false, true] {
        let text = if with_edns { "ns.example. A +edns" } else { "ns.example. A" };
        let mut query = Question::parse(text).message();
        query[11] += 1;
        query.extend(tsig(255, &[7; 32]));
        let reply = send(&zones, &query, UDP).expect("a query has a reply");
        let expected = [
            &[3, b'k', b'e', b'y', 0, 0, 250, 0, 255, 0, 0, 0, 0, 0, 19, 1, b'a', 0, 1, 2, 3, 4, 5, 6, 7, 8][..],
            &[0, 0, 0x1d, 0x1d, 0, 17, 0, 0],
        ]
        .concat();
        assert!(reply.ends_with(&expected), "{reply:02x?}");
        assert_eq!(reply[3] & 0xf, 9, "NOTAUTH");
        assert_eq!((reply[7], reply[9], reply[11]), (0, 0, 1 + u8::from(with_edns)));
    }
}

#[test]
fn malformed_tsig_is_formerr_rfc_8945_section_5_1() {
    let fine = tsig(255, &[]);
    let mut short = fine.clone();
    short[14] -= 1;
    short.pop();
    check_additional([1, 0, 0, 1], &tsig(1, &[]), "FORMERR");
    check_additional([1, 0, 0, 1], &short, "FORMERR");
    // Not the last record, or one of two.
    check_additional([1, 0, 0, 2], &[&fine[..], &OPT].concat(), "FORMERR edns=1232");
    check_additional([1, 0, 0, 2], &[&fine[..], &fine].concat(), "FORMERR");
}

/// An OPT of `version` with `options`.
fn opt(version: u8, options: &[u8]) -> Vec<u8> {
    let length = u16::try_from(options.len()).expect("options are short");
    [&[0, 0, 41, 16, 0, 0, version, 0, 0], &length.to_be_bytes()[..], options].concat()
}

#[test]
fn incomplete_edns_option_is_formerr_rfc_6891_section_6_1_2() {
    for options in [&[0, 3, 0, 0][..], &[0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8], &[255, 255, 0, 1, 9, 0, 3, 0, 0]] {
        check_additional([1, 0, 0, 1], &opt(0, options), "NOERROR aa edns=1232");
    }
    for options in [&[0][..], &[0, 3, 0], &[0, 3, 0, 1], &[0, 3, 0, 0, 7], &[0, 3, 255, 255]] {
        check_additional([1, 0, 0, 1], &opt(0, options), "FORMERR");
        // Options have the format of version 0.
        check_additional([1, 0, 0, 1], &opt(1, options), "BADVERS edns=1232");
    }
}

#[test]
fn ixfr_with_its_soa_is_refused_rfc_1995_section_3() {
    let mut query = Question::parse("example. IXFR").message();
    query[9] = 1;
    let soa = [&[0xc0, 12, 0, 6, 0, 1, 0, 0, 0, 0, 0, 22][..], &[0, 0], &[0; 20]].concat();
    query.extend(soa);
    for transport in [UDP, DnsTransport::Tcp] {
        let bytes = send(&zone_map(ZONE), &query, transport).expect("a query has a reply");
        assert_eq!(Reply::parse(&bytes).expect("a reply is well-formed").to_string(), "REFUSED\n");
    }
}

#[test]
fn other_opcodes_are_notimp_without_a_question() {
    let zones = zone_map(ZONE);
    for opcode in 1..16u8 {
        let mut query = Question::parse("ns.example. A +rd").message();
        query[2] |= opcode << 3;
        let bytes = send(&zones, &query, UDP).expect("a query has a reply");
        let flags = u16::from(0x80 | opcode << 3 | 1).to_be_bytes()[1];
        assert_eq!(bytes, [0x1d, 0x1d, flags, 4, 0, 0, 0, 0, 0, 0, 0, 0]);
        // RFC 6891 §6.1.1: with an OPT, if the query has one.
        let mut query = Question::parse("ns.example. A +edns").message();
        query[2] |= opcode << 3;
        let bytes = send(&zones, &query, UDP).expect("a query has a reply");
        assert_eq!(Reply::parse(&bytes).expect("a reply is well-formed").to_string(), "NOTIMP edns=1232\n");
    }
}

#[test]
fn response_and_short_message_are_dropped() {
    let mut query = Question::parse("ns.example. A").message();
    query[2] |= 0x80;
    assert_eq!(send(&zone_map(ZONE), &query, UDP), None);
    assert_eq!(send(&zone_map(ZONE), &query[..11], UDP), None);
    assert_eq!(send(&zone_map(ZONE), &[], UDP), None);
}

//! Options of EDNS, extended errors and the identity of the server, with [`ReplyOptions`].

use super::support::question::{Question, UDP};
use super::support::reply::Reply;
use super::support::zone_text::zone_map;
use sanderling_dns::reply_options::TEXT_BYTES_MAX;
use sanderling_dns::{
    Answer, CookieSecrets, DnsTransport, Name, ParsedQuery, ReplyClass, ReplyOptions, RequestInfo, ZoneEntry, ZoneMap,
    answer_parsed, answer_with_options,
};
use std::net::SocketAddr;

const ZONE: &str = "$ORIGIN example.\nns A 192.0.2.53";
const NSID: u16 = 3;
const COOKIE: u16 = 10;
const TCP_KEEPALIVE: u16 = 11;
const PADDING: u16 = 12;
const EXTENDED_ERROR: u16 = 15;
const REPORT_CHANNEL: u16 = 18;
const ZONE_VERSION: u16 = 19;
/// A time in 2026.
const NOW_UNIX_S: u64 = 1_790_000_000;

fn all_options() -> ReplyOptions {
    ReplyOptions {
        nsid: "ns1".into(),
        version: "sanderling 1".into(),
        cookies: Some(CookieSecrets { current: [1; 16], previous: None }),
        tcp_keepalive_100ms: Some(50),
        has_extended_errors: true,
        error_report_agent: None,
        tsig_keys: Vec::new(),
    }
}

/// The query for `question` with these options, which have an OPT unless there are none.
fn query(question: &str, options: &[(u16, &[u8])]) -> Vec<u8> {
    let mut message = Question::parse(question).message();
    let start = message.len();
    for (code, data) in options {
        message.extend(code.to_be_bytes());
        message.extend((data.len() as u16).to_be_bytes());
        message.extend(*data);
    }
    let options_bytes = ((message.len() - start) as u16).to_be_bytes();
    if !options.is_empty() {
        message[start - 2..start].copy_from_slice(&options_bytes);
    }
    message
}

/// The bytes of the reply.
fn send(zones: &ZoneMap, options: &ReplyOptions, query: &[u8], transport: DnsTransport) -> Vec<u8> {
    let bytes_max = match transport {
        DnsTransport::Udp { reply_bytes_max } => usize::from(reply_bytes_max),
        DnsTransport::Tcp | DnsTransport::Tls | DnsTransport::Https => 65_535,
    };
    let mut out = vec![0xa5; bytes_max];
    let client = SocketAddr::from(([192, 0, 2, 1], 1024));
    let info = RequestInfo { client, transport, now_unix_s: NOW_UNIX_S };
    let Answer::Reply(length_bytes) = answer_with_options(&ParsedQuery::parse(zones, query), &info, options, &mut out)
    else {
        panic!("no reply");
    };
    out.truncate(length_bytes);
    out
}

/// The options of a reply whose last record is its OPT.
fn options_of(reply: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let option_bytes = Reply::parse(reply).expect("a reply is well-formed").edns.expect("an OPT").option_bytes;
    let mut left = &reply[reply.len() - option_bytes..];
    let mut options = vec![];
    while let [code_high, code_low, length_high, length_low, rest @ ..] = left {
        let (data, after) = rest.split_at(usize::from(u16::from_be_bytes([*length_high, *length_low])));
        options.push((u16::from_be_bytes([*code_high, *code_low]), data.to_vec()));
        left = after;
    }
    options
}

/// Checks RCODE, flags and options of the reply of a server with all options to a query over `transport`.
#[track_caller]
fn check(question: &str, asked: &[(u16, &[u8])], transport: DnsTransport, head: &str, expected: &[(u16, &[u8])]) {
    let reply = send(&zone_map(ZONE), &all_options(), &query(question, asked), transport);
    let text = Reply::parse(&reply).expect("a reply is well-formed").to_string();
    assert_eq!(text.lines().next(), Some(head), "{question}");
    let expected: Vec<(u16, Vec<u8>)> = expected.iter().map(|(code, data)| (*code, data.to_vec())).collect();
    assert_eq!(options_of(&reply), expected, "{question}");
}

const ANSWERED: &str = "NOERROR aa edns=1232";

#[test]
fn nsid_is_in_the_reply_to_a_query_that_asks_for_it_rfc_5001() {
    check("ns.example. A +edns", &[(NSID, b"")], UDP, ANSWERED, &[(NSID, b"ns1")]);
    check("ns.example. A +edns", &[], UDP, ANSWERED, &[]);
    check("no.example. A +edns", &[(NSID, b"")], UDP, "NXDOMAIN aa edns=1232", &[(NSID, b"ns1")]);
    let reply = send(&zone_map(ZONE), &ReplyOptions::default(), &query("ns.example. A +edns", &[(NSID, b"")]), UDP);
    assert_eq!(options_of(&reply), []);
}

#[test]
fn keepalive_is_in_replies_over_streams_alone_rfc_7828_section_3() {
    let asked: &[(u16, &[u8])] = &[(TCP_KEEPALIVE, b"")];
    check("ns.example. A +edns", asked, DnsTransport::Tcp, ANSWERED, &[(TCP_KEEPALIVE, &[0, 50])]);
    check("ns.example. A +edns", asked, DnsTransport::Tls, ANSWERED, &[(TCP_KEEPALIVE, &[0, 50])]);
    check("ns.example. A +edns", asked, UDP, ANSWERED, &[]);
    check("ns.example. A +edns", asked, DnsTransport::Https, ANSWERED, &[]);
    check("ns.example. A +edns", &[], DnsTransport::Tcp, ANSWERED, &[]);
}

#[test]
fn version_of_the_zone_is_in_its_replies_rfc_9660_section_3_2() {
    let asked: &[(u16, &[u8])] = &[(ZONE_VERSION, b"")];
    let of_zone: &[(u16, &[u8])] = &[(ZONE_VERSION, &[1, 0, 0, 0, 0, 1])];
    check("ns.example. A +edns", asked, UDP, ANSWERED, of_zone);
    check("no.example. A +edns", asked, UDP, "NXDOMAIN aa edns=1232", of_zone);
    check("ns.example. A +edns", &[], UDP, ANSWERED, &[]);
    check("ns.example. A +edns", &[(ZONE_VERSION, b"\x01")], UDP, ANSWERED, &[]);
    check("ns.elsewhere. A +edns", asked, UDP, "REFUSED edns=1232", &[(EXTENDED_ERROR, &[0, 20])]);
}

#[test]
fn errors_have_their_reason_rfc_8914_section_4() {
    check("ns.elsewhere. A +edns", &[], UDP, "REFUSED edns=1232", &[(EXTENDED_ERROR, &[0, 20])]);
    check("example. AXFR +edns", &[], DnsTransport::Tcp, "REFUSED edns=1232", &[(EXTENDED_ERROR, &[0, 18])]);
    check("example. MAILB +edns", &[], UDP, "NOTIMP edns=1232", &[(EXTENDED_ERROR, &[0, 21])]);
    check("example. OPT +edns", &[], UDP, "FORMERR edns=1232", &[]);
    let apex = Name::parse(b"\x07example\0").expect("a name").to_owned();
    let zones = ZoneMap::new(super::support::zone_text::SEED, [ZoneEntry::Unavailable { apex: Box::new(apex) }]);
    let reply = send(&zones, &all_options(), &query("example. A +edns", &[]), UDP);
    assert_eq!(options_of(&reply), [(EXTENDED_ERROR, vec![0, 14])]);
    // Without an OPT in the query there is no place for it.
    let reply = send(&zones, &all_options(), &query("example. A", &[]), UDP);
    assert_eq!(Reply::parse(&reply).expect("a reply is well-formed").to_string(), "SERVFAIL\n");
}

#[test]
fn cookie_is_answered_and_accepted_rfc_7873_section_5_2() {
    let client_cookie = b"clientco";
    let ask = |cookie: &[u8], options: &ReplyOptions| {
        let reply = send(&zone_map(ZONE), options, &query("ns.example. A +edns", &[(COOKIE, cookie)]), UDP);
        assert_eq!(reply[3] & 0xf, 0, "NOERROR");
        let [(COOKIE, cookie)] = &options_of(&reply)[..] else { panic!("a cookie") };
        assert_eq!((cookie.len(), &cookie[..8]), (24, &client_cookie[..]));
        cookie.clone()
    };
    let options = all_options();
    let cookie = ask(client_cookie, &options);
    assert_eq!(ask(&cookie, &options), cookie);
    // A wrong server cookie, or another server's cookie, gets a new one.
    for other in [&b"clientcoservercookie"[..], &[&cookie[..23], b"x"].concat(), &[&cookie[..], b"x"].concat()] {
        assert_eq!(ask(other, &options), cookie);
    }
    let secrets = CookieSecrets { current: [2; 16], previous: Some([1; 16]) };
    let rolled = ReplyOptions { cookies: Some(secrets), ..all_options() };
    assert_eq!(ask(&cookie, &rolled), cookie, "accepted until it is old");
    assert_ne!(ask(client_cookie, &rolled), cookie);
}

#[test]
fn malformed_cookie_is_formerr_rfc_7873_section_5_2_2() {
    let wrong_lengths = [0, 1, 7, 9, 15, 41].map(|length| vec![7; length]);
    for cookie in &wrong_lengths {
        check("ns.example. A +edns", &[(COOKIE, cookie)], UDP, "FORMERR edns=1232", &[]);
        let asked = query("ns.example. A +edns", &[(COOKIE, cookie)]);
        let reply = send(&zone_map(ZONE), &ReplyOptions::default(), &asked, UDP);
        assert_eq!(reply[3] & 0xf, 0, "a server without cookies ignores them");
    }
    // RFC 7873 §5.2: a second one is ignored.
    let asked: &[(u16, &[u8])] = &[(COOKIE, b"clientco"), (COOKIE, b"x")];
    let reply = send(&zone_map(ZONE), &all_options(), &query("ns.example. A +edns", asked), UDP);
    assert_eq!(options_of(&reply).len(), 1);
}

#[test]
fn query_without_a_question_gets_a_cookie_rfc_7873_section_5_4() {
    let mut asked = query(". A +edns", &[(COOKIE, b"clientco")]);
    asked[5] = 0;
    asked.drain(12..17);
    let reply = send(&zone_map(ZONE), &all_options(), &asked, UDP);
    assert_eq!(Reply::parse(&reply).expect("a reply is well-formed").to_string(), "NOERROR edns=1232\n");
    assert_eq!(options_of(&reply)[0].0, COOKIE);
    let reply = send(&zone_map(ZONE), &ReplyOptions::default(), &asked, UDP);
    assert_eq!(reply[3] & 0xf, 1, "FORMERR");
}

#[test]
fn replies_over_tls_are_padded_for_clients_that_pad_rfc_8467_section_4_1() {
    let asked: &[(u16, &[u8])] = &[(PADDING, &[0; 9]), (NSID, b"")];
    let zones = zone_map(ZONE);
    let length = |transport, asked| send(&zones, &all_options(), &query("ns.example. A +edns", asked), transport).len();
    assert_eq!(length(DnsTransport::Tls, asked), 468);
    assert_eq!(length(DnsTransport::Tls, &[]), 12 + 16 + 16 + 11);
    assert_eq!(length(DnsTransport::Tcp, asked), 12 + 16 + 16 + 11 + 7);
    // Lengths around a multiple: the option itself has four bytes.
    for count in 20..60 {
        let records: String = (0..count).map(|index| format!("ns A 192.0.2.{index}\n")).collect();
        let zones = zone_map(&format!("$ORIGIN example.\n{records}"));
        for name in ["ns.example.", "Ns.example."] {
            let asked = query(&format!("{name} A +edns"), &[(PADDING, b"")]);
            let reply = send(&zones, &all_options(), &asked, DnsTransport::Tls);
            assert_eq!(reply.len() % 468, 0, "{count}");
            assert_eq!(Reply::parse(&reply).expect("a reply is well-formed").sections[0].len(), count);
        }
    }
}

#[test]
fn agent_is_in_every_reply_with_edns_rfc_9567() {
    let agent = Name::parse(b"\x06report\x07example\0").expect("a name").to_owned();
    let options = ReplyOptions { error_report_agent: Some(agent), ..all_options() };
    let zones = zone_map(ZONE);
    let expected = [(REPORT_CHANNEL, b"\x06report\x07example\0".to_vec())];
    for question in ["ns.example. A +edns", "no.example. A +edns", "example. NS +edns"] {
        assert_eq!(options_of(&send(&zones, &options, &query(question, &[]), UDP)), expected, "{question}");
    }
    let reply = send(&zones, &options, &query("ns.elsewhere. A +edns", &[]), UDP);
    assert_eq!(options_of(&reply), [&[(EXTENDED_ERROR, vec![0, 20])], &expected[..]].concat());
    let reply = send(&zones, &options, &query("ns.example. A", &[]), UDP);
    assert!(Reply::parse(&reply).expect("a reply is well-formed").edns.is_none());
    // The longest agent beside the longest question and the other options would not fit into 512 bytes.
    let label = [&[63][..], &[b'a'; 63]].concat();
    let agent = [&label[..], &label, &label, &[61], &[b'b'; 61], &[0]].concat();
    let agent = Name::parse(&agent).expect("a name of 255 bytes").to_owned();
    let options = ReplyOptions { error_report_agent: Some(agent), nsid: "n".repeat(TEXT_BYTES_MAX), ..all_options() };
    let name = format!("{0}.{0}.{0}.{1}.", "a".repeat(63), "b".repeat(61));
    let asked: &[(u16, &[u8])] = &[(NSID, b""), (COOKIE, b"clientco"), (TCP_KEEPALIVE, b"")];
    for transport in [DnsTransport::Udp { reply_bytes_max: 512 }, DnsTransport::Tcp] {
        let reply = send(&zones, &options, &query(&format!("{name} A +edns=512"), asked), transport);
        let codes: Vec<u16> = options_of(&reply).into_iter().map(|(code, _)| code).collect();
        assert!(reply.len() <= 512 && codes.contains(&NSID) && !codes.contains(&REPORT_CHANNEL), "{codes:?}");
    }
}

#[test]
fn query_without_options_is_not_concerned_by_them() {
    let zones = zone_map(ZONE);
    let check = |message: &[u8], options: &ReplyOptions, expected: bool| {
        let query = ParsedQuery::parse(&zones, message);
        assert_eq!(query.is_concerned_by(options), expected);
        if !expected {
            let mut out = vec![0; 65_535];
            let info = RequestInfo { client: ([192, 0, 2, 1], 1024).into(), transport: UDP, now_unix_s: NOW_UNIX_S };
            let Answer::Reply(length_bytes) = answer_parsed(&query, &info, &mut out) else { panic!("no reply") };
            assert_eq!(out[..length_bytes], send(&zones, options, message, UDP));
        }
    };
    check(&query("ns.example. A", &[]), &all_options(), false);
    check(&query("ns.example. A +edns", &[]), &all_options(), false);
    check(&query("no.example. A +edns", &[]), &all_options(), false);
    check(&query("ns.example. A +edns", &[(NSID, b"")]), &all_options(), true);
    check(&query("ns.elsewhere. A +edns", &[]), &all_options(), true);
    check(&query("version.bind. TXT +class=3", &[]), &all_options(), true);
}

#[test]
fn identity_is_text_of_the_class_ch_rfc_4892() {
    let check = |name: &str, options: &ReplyOptions, expected: Option<&str>| {
        for rtype in ["TXT", "ANY"] {
            let reply = send(&zone_map(ZONE), options, &query(&format!("{name} {rtype} +class=3"), &[]), UDP);
            assert_eq!(reply[3] & 0xf, if expected.is_some() { 0 } else { 5 }, "{name}");
            let Some(text) = expected else { continue };
            let record =
                [&[0xc0, 12, 0, 16, 0, 3, 0, 0, 0, 0, 0, text.len() as u8 + 1, text.len() as u8], text.as_bytes()];
            assert!(reply.ends_with(&record.concat()), "{reply:02x?}");
            assert_eq!((reply[2] & 4, reply[7]), (4, 1), "AA, one answer");
        }
    };
    for name in ["version.bind.", "VERSION.Server."] {
        check(name, &all_options(), Some("sanderling 1"));
        check(name, &ReplyOptions { version: String::new(), ..all_options() }, None);
    }
    for name in ["id.server.", "hostname.bind."] {
        check(name, &all_options(), Some("ns1"));
        check(name, &ReplyOptions { nsid: String::new(), ..all_options() }, None);
    }
    check("authors.bind.", &all_options(), None);
    check("ns.example.", &all_options(), None);
    let reply = send(&zone_map(ZONE), &all_options(), &query("version.bind. A +class=3", &[]), UDP);
    assert_eq!(reply[3] & 0xf, 5, "other types are refused");
}

#[test]
fn name_version_and_cookie_are_answers_of_the_options() {
    let zones = zone_map(ZONE);
    let check = |message: &[u8], options: &ReplyOptions, expected: bool| {
        assert_eq!(ParsedQuery::parse(&zones, message).is_answered_by(options), expected, "{message:02x?}");
    };
    let without_texts = ReplyOptions { nsid: String::new(), version: String::new(), ..all_options() };
    for name in ["version.bind.", "id.server.", "hostname.bind."] {
        check(&query(&format!("{name} TXT +class=3"), &[]), &all_options(), true);
        check(&query(&format!("{name} TXT +class=3"), &[]), &without_texts, false);
        check(&query(&format!("{name} TXT"), &[]), &all_options(), false);
    }
    check(&query("authors.bind. TXT +class=3", &[]), &all_options(), false);
    // An OPT alone, with a cookie or without options.
    let header = [0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let opt = |rdata: &[u8]| [&header[..], &[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, rdata.len() as u8], rdata].concat();
    let with_cookie = opt(b"\0\x0a\0\x08clientco");
    check(&with_cookie, &all_options(), true);
    check(&with_cookie, &ReplyOptions { cookies: None, ..all_options() }, false);
    check(&opt(b""), &all_options(), false);
}

#[test]
fn all_options_fit_beside_the_longest_question() {
    let options = ReplyOptions { nsid: "n".repeat(TEXT_BYTES_MAX + 1), ..all_options() };
    let name = format!("{0}.{0}.{0}.{1}.", "a".repeat(63), "b".repeat(61));
    let asked: &[(u16, &[u8])] = &[(NSID, b""), (COOKIE, b"clientco"), (TCP_KEEPALIVE, b""), (PADDING, b"")];
    for transport in [DnsTransport::Udp { reply_bytes_max: 512 }, DnsTransport::Tcp, DnsTransport::Tls] {
        let reply = send(&zone_map(ZONE), &options, &query(&format!("{name} A +edns=512"), asked), transport);
        assert!(reply.len() <= 512, "{}", reply.len());
        assert_eq!(options_of(&reply)[0], (NSID, vec![b'n'; TEXT_BYTES_MAX]));
    }
}

#[test]
fn replies_of_every_length_leave_space_for_options() {
    let asked: &[(u16, &[u8])] = &[(NSID, b""), (COOKIE, b"clientco")];
    for count in 1..90 {
        let records: String = (0..count).map(|index| format!("ns A 192.0.2.{index}\n")).collect();
        let zones = zone_map(&format!("$ORIGIN example.\n{records}"));
        let reply = send(&zones, &all_options(), &query("ns.example. A +edns", asked), UDP);
        let whole_bytes = 12 + 16 + 16 * count + 11 + 7 + 28;
        let parsed = Reply::parse(&reply).expect("a reply is well-formed");
        assert_eq!(parsed.is_truncated(), whole_bytes > 1232, "{count}");
        assert_eq!(options_of(&reply).len(), 2);
    }
}

#[test]
fn replies_that_are_alike_have_one_class() {
    let zones = zone_map(
        "$ORIGIN example.\nns A 192.0.2.53\n*.wild A 192.0.2.1\nalias CNAME ns\ntree DNAME elsewhere.\nchild NS ns.child\n\
         other NS ns.other\na.empty A 192.0.2.2",
    );
    let class = |question: &str| ParsedQuery::parse(&zones, &query(question, &[])).reply_class().expect("a reply");
    let is_alike = |first: &str, second: &str| class(first) == class(second);
    assert!(matches!(class("ns.example. A"), ReplyClass::Name(_)));
    assert!(is_alike("ns.example. A", "NS.example. AAAA"), "also without records");
    assert!(matches!(class("empty.example. A"), ReplyClass::Name(_)), "an empty non-terminal");
    assert!(matches!(class("alias.example. A"), ReplyClass::Name(_)));
    assert!(!is_alike("ns.example. A", "alias.example. A"));
    assert!(matches!(class("a.wild.example. A"), ReplyClass::Synthesized(_)));
    for other in ["b.wild.example. A", "c.wild.example. MX", "x.tree.example. A", "y.tree.example. MX"] {
        assert!(is_alike("a.wild.example. A", other), "{other}");
    }
    assert!(matches!(class("*.wild.example. A"), ReplyClass::Name(_)));
    assert!(matches!(class("tree.example. DNAME"), ReplyClass::Name(_)));
    assert!(matches!(class("a.child.example. A"), ReplyClass::Referral(_)));
    assert!(is_alike("a.child.example. A", "b.c.child.example. MX"));
    assert!(!is_alike("a.child.example. A", "a.other.example. A"));
    assert!(matches!(class("no.example. A"), ReplyClass::NameError(_)));
    assert!(is_alike("no.example. A", "nor.this.example. MX"));
    for question in ["ns.elsewhere. A", "example. AXFR", "ns.example. A +class=3"] {
        assert_eq!(class(question), ReplyClass::Error, "{question}");
    }
    assert_eq!(ParsedQuery::EMPTY.reply_class(), None);
}

#[test]
fn truncated_reply_has_the_question_and_the_options_alone() {
    let zones = zone_map(ZONE);
    let message = query("ns.example. A +edns", &[(COOKIE, b"clientco")]);
    let mut parsed = ParsedQuery::parse(&zones, &message);
    parsed.truncate_reply();
    let info = RequestInfo { client: ([192, 0, 2, 1], 1024).into(), transport: UDP, now_unix_s: NOW_UNIX_S };
    let mut out = [0; 512];
    let Answer::Reply(length_bytes) = answer_with_options(&parsed, &info, &all_options(), &mut out) else {
        panic!("no reply")
    };
    let reply = Reply::parse(&out[..length_bytes]).expect("a reply is well-formed");
    assert_eq!(reply.to_string(), "NOERROR tc edns=1232\n");
    assert_eq!(options_of(&out[..length_bytes])[0].0, COOKIE);
}

#[test]
fn valid_cookie_is_one_that_the_server_made_for_the_client() {
    let zones = zone_map(ZONE);
    let asked = query("ns.example. A +edns", &[(COOKIE, b"clientco")]);
    let (_, made) = options_of(&send(&zones, &all_options(), &asked, UDP)).remove(0);
    let check = |cookie: &[u8], options: &ReplyOptions, client: [u8; 4], now_unix_s, expected: bool| {
        let message = query("ns.example. A +edns", &[(COOKIE, cookie)]);
        let is_valid = ParsedQuery::parse(&zones, &message).has_valid_cookie(options, client.into(), now_unix_s);
        assert_eq!(is_valid, expected, "{cookie:x?} {client:?} {now_unix_s}");
    };
    check(&made, &all_options(), [192, 0, 2, 1], NOW_UNIX_S, true);
    check(&made, &all_options(), [192, 0, 2, 2], NOW_UNIX_S, false);
    check(&made, &all_options(), [192, 0, 2, 1], NOW_UNIX_S + 3_600, false);
    check(&made, &ReplyOptions::default(), [192, 0, 2, 1], NOW_UNIX_S, false);
    check(&made[..8], &all_options(), [192, 0, 2, 1], NOW_UNIX_S, false);
    check(&[&made[..23], &[made[23] ^ 1]].concat(), &all_options(), [192, 0, 2, 1], NOW_UNIX_S, false);
    let message = query("ns.example. A", &[]);
    let client = [192, 0, 2, 1].into();
    assert!(!ParsedQuery::parse(&zones, &message).has_valid_cookie(&all_options(), client, NOW_UNIX_S));
}

#[test]
fn response_is_dropped_whatever_its_options_are() {
    let zones = zone_map(ZONE);
    for cookie in [&b"clientco"[..], b"malformed"] {
        let mut message = query("ns.example. A +edns", &[(COOKIE, cookie)]);
        message[2] |= 0x80;
        let info = RequestInfo { client: ([192, 0, 2, 1], 1024).into(), transport: UDP, now_unix_s: NOW_UNIX_S };
        let parsed = ParsedQuery::parse(&zones, &message);
        assert_eq!(answer_with_options(&parsed, &info, &all_options(), &mut [0; 512]), Answer::NoReply);
        assert_eq!(parsed.reply_class(), None);
    }
}

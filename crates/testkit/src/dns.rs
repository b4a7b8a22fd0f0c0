//! DNS queries and replies (RFC 1035 §4), encoded and decoded independently of the server.
#![allow(missing_docs, reason = "names and signatures say it")]

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::{tcp_reply, try_tcp_reply, udp_reply};

pub const A: u16 = 1;
pub const NS: u16 = 2;
pub const CNAME: u16 = 5;
pub const SOA: u16 = 6;
pub const MX: u16 = 15;
pub const TXT: u16 = 16;
pub const AAAA: u16 = 28;
pub const DNAME: u16 = 39;
pub const OPT: u16 = 41;
pub const DS: u16 = 43;
pub const RRSIG: u16 = 46;
pub const DNSKEY: u16 = 48;
pub const CDS: u16 = 59;
pub const HTTPS: u16 = 65;
pub const AXFR: u16 = 252;
pub const ANY: u16 = 255;

pub const NOERROR: u16 = 0;
pub const FORMERR: u16 = 1;
pub const SERVFAIL: u16 = 2;
pub const NXDOMAIN: u16 = 3;
pub const NOTIMP: u16 = 4;
pub const REFUSED: u16 = 5;
pub const BADVERS: u16 = 16;

/// A query with one question.
#[derive(Clone, Copy, Debug)]
pub struct Question<'q> {
    pub id: u16,
    pub name: &'q str,
    pub rtype: u16,
    pub class: u16,
    pub opcode: u8,
    /// Payload size and version of the OPT record.
    pub edns: Option<(u16, u8)>,
    /// The DO flag of the OPT record.
    pub wants_signatures: bool,
}

impl<'q> Question<'q> {
    pub fn new(name: &'q str, rtype: u16) -> Question<'q> {
        Question { id: 0x5a17, name, rtype, class: 1, opcode: 0, edns: None, wants_signatures: false }
    }

    /// The question with an OPT record that asks for signatures.
    pub fn with_signatures(self) -> Question<'q> {
        Question { edns: Some((1232, 0)), wants_signatures: true, ..self }
    }

    pub fn message(&self) -> Vec<u8> {
        let mut message = Vec::new();
        let additional_count = u16::from(self.edns.is_some());
        // RD is set, as stub resolvers do.
        let flags = u16::from(self.opcode) << 11 | 0x0100;
        for word in [self.id, flags, 1, 0, 0, additional_count] {
            message.extend(word.to_be_bytes());
        }
        message.extend(wire_name(self.name));
        message.extend(self.rtype.to_be_bytes());
        message.extend(self.class.to_be_bytes());
        if let Some((payload_bytes, version)) = self.edns {
            message.extend([0, 0, OPT as u8]);
            message.extend(payload_bytes.to_be_bytes());
            message.extend([0, version, u8::from(self.wants_signatures) << 7, 0, 0, 0]);
        }
        message
    }

    /// Sends the query over UDP.
    #[track_caller]
    pub fn query_udp(&self, server: SocketAddr) -> Reply {
        Reply::parse(&udp_reply(server, &self.message()))
    }

    /// Sends the query over TCP.
    #[track_caller]
    pub fn query_tcp(&self, server: SocketAddr) -> Reply {
        Reply::parse(&tcp_reply(server, &self.message()))
    }

    /// Queries a server that may not run yet; `None` if it does not answer. For [`crate::wait_until`], where `dig`
    /// would be a process for each look.
    pub fn try_query(&self, server: SocketAddr) -> Option<Reply> {
        try_tcp_reply(server, &self.message()).map(|reply| Reply::parse(&reply))
    }
}

/// Whether the server answers for the zone with NOERROR.
pub fn is_served(server: SocketAddr, zone: &str) -> bool {
    Question::new(zone, SOA).try_query(server).is_some_and(|reply| reply.rcode == NOERROR)
}

/// Whether the server has a signature of the SOA record of the zone.
pub fn is_signed(server: SocketAddr, zone: &str) -> bool {
    let reply = Question::new(zone, SOA).with_signatures().try_query(server);
    reply.is_some_and(|reply| reply.answer.iter().any(|record| record.rtype == RRSIG))
}

/// The serial with which the server answers for the zone.
pub fn serial(server: SocketAddr, zone: &str) -> Option<u32> {
    Question::new(zone, SOA).try_query(server)?.serial
}

/// The data of the records in the answer, sorted, with a space between two; `None` without an answer.
pub fn data(server: SocketAddr, name: &str, rtype: u16) -> Option<String> {
    let reply = Question::new(name, rtype).try_query(server)?;
    let mut data: Vec<String> = reply.answer.iter().map(Record::data).collect();
    data.sort();
    Some(data.join(" "))
}

/// A record of a reply; names are in lower case and end with a dot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub owner: String,
    pub rtype: u16,
    pub class: u16,
    pub ttl_s: u32,
    /// The RDATA; where it is a name (NS, CNAME, DNAME), the name's text.
    pub rdata: Vec<u8>,
}

/// A reply.
#[derive(Clone, Debug)]
pub struct Reply {
    pub id: u16,
    pub flags: u16,
    pub rcode: u16,
    pub question_count: u16,
    pub answer: Vec<Record>,
    pub authority: Vec<Record>,
    /// Without the OPT record.
    pub additional: Vec<Record>,
    /// Payload size and version of the OPT record.
    pub edns: Option<(u16, u8)>,
    /// Of the SOA record in the answer.
    pub serial: Option<u32>,
    pub length_bytes: usize,
}

impl Reply {
    #[track_caller]
    pub fn parse(message: &[u8]) -> Reply {
        let word = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
        assert!(message.len() >= 12, "a reply of {} bytes", message.len());
        let flags = word(2);
        assert_ne!(flags & 0x8000, 0, "a reply has the QR flag");
        let mut at = 12;
        for _ in 0..word(4) {
            let (_, after) = name_text(message, at);
            at = after + 4;
        }
        let mut sections = [Vec::new(), Vec::new(), Vec::new()];
        let mut serial = None;
        for (index, section) in sections.iter_mut().enumerate() {
            for _ in 0..word(6 + 2 * index) {
                let (record, after) = record(message, at);
                if index == 0 && record.rtype == SOA {
                    // The data ends with five numbers, of which it is the first.
                    serial = message[..after]
                        .last_chunk::<20>()
                        .map(|[a, b, c, d, ..]| u32::from_be_bytes([*a, *b, *c, *d]));
                }
                section.push(record);
                at = after;
            }
        }
        assert_eq!(at, message.len(), "bytes after the last record");
        let [answer, authority, mut additional] = sections;
        let mut reply = Reply {
            id: word(0),
            flags,
            rcode: flags & 15,
            question_count: word(4),
            answer,
            authority,
            additional: Vec::new(),
            edns: None,
            serial,
            length_bytes: message.len(),
        };
        if let Some(index) = additional.iter().position(|record| record.rtype == OPT) {
            let opt = additional.remove(index);
            assert_eq!(opt.owner, ".");
            reply.rcode |= (opt.ttl_s >> 24 << 4) as u16;
            reply.edns = Some((opt.class, (opt.ttl_s >> 16) as u8));
        }
        reply.additional = additional;
        reply
    }

    pub fn is_authoritative(&self) -> bool {
        self.flags & 0x0400 != 0
    }

    /// The AD flag: a resolver has found the answer secure (RFC 4035 §3.2.3).
    pub fn is_validated(&self) -> bool {
        self.flags & 0x0020 != 0
    }

    pub fn is_truncated(&self) -> bool {
        self.flags & 0x0200 != 0
    }

    /// The reply as text to compare: `RCODE [AA] [TC]`, then a line for each record with its section.
    pub fn summary(&self) -> String {
        let flag = |is_set, name| if is_set { name } else { "" };
        let section = |name: &str, records: &[Record]| -> String {
            records.iter().map(|record| format!("\n{name} {record}")).collect()
        };
        format!(
            "{}{}{}{}{}{}",
            self.rcode,
            flag(self.is_authoritative(), " AA"),
            flag(self.is_truncated(), " TC"),
            section("an", &self.answer),
            section("au", &self.authority),
            section("ad", &self.additional)
        )
    }
}

impl Record {
    /// The data as text: an address, a name, the first string of TXT, or the bytes of other types.
    pub fn data(&self) -> String {
        let bytes = &*self.rdata;
        match self.rtype {
            A if let Ok(ip) = <[u8; 4]>::try_from(bytes) => Ipv4Addr::from(ip).to_string(),
            AAAA if let Ok(ip) = <[u8; 16]>::try_from(bytes) => Ipv6Addr::from(ip).to_string(),
            NS | CNAME | DNAME | SOA => String::from_utf8_lossy(bytes).into_owned(),
            TXT if !bytes.is_empty() => String::from_utf8_lossy(&bytes[1..]).into_owned(),
            _ => format!("{bytes:02x?}"),
        }
    }
}

/// `owner TTL type RDATA`.
impl std::fmt::Display for Record {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} {} {} {}", self.owner, self.ttl_s, self.rtype, self.data())
    }
}

/// A name without escapes in wire format.
pub fn wire_name(name: &str) -> Vec<u8> {
    let mut wire = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        wire.push(u8::try_from(label.len()).expect("a label has at most 63 bytes"));
        wire.extend(label.bytes());
    }
    wire.push(0);
    wire
}

/// The record at `at`, and the position after it.
#[track_caller]
fn record(message: &[u8], at: usize) -> (Record, usize) {
    let (owner, at) = name_text(message, at);
    let word = |offset: usize| u16::from_be_bytes([message[at + offset], message[at + offset + 1]]);
    let (rtype, class, length) = (word(0), word(2), usize::from(word(8)));
    let ttl_s = u32::from(word(4)) << 16 | u32::from(word(6));
    let (start, end) = (at + 10, at + 10 + length);
    let rdata = match rtype {
        NS | CNAME | DNAME => {
            let (text, after) = name_text(message, start);
            assert_eq!(after, end, "the RDATA is a name and nothing else");
            text.into_bytes()
        }
        // Of an SOA, the MNAME is enough.
        SOA => name_text(message, start).0.into_bytes(),
        _ => message[start..end].to_vec(),
    };
    (Record { owner, rtype, class, ttl_s, rdata }, end)
}

/// The name at `at`, and the position after it. Pointers go backwards (RFC 1035 §4.1.4).
#[track_caller]
fn name_text(message: &[u8], at: usize) -> (String, usize) {
    let (mut text, mut here, mut after) = (String::new(), at, None);
    loop {
        let length = message[here];
        if length >= 0xc0 {
            let target = usize::from(u16::from_be_bytes([length & 0x3f, message[here + 1]]));
            after.get_or_insert(here + 2);
            assert!(target < here, "a pointer at {here} goes forward to {target}");
            here = target;
            continue;
        }
        assert!(length < 0x40, "a label has at most 63 bytes");
        if length == 0 {
            break;
        }
        let label = &message[here + 1..here + 1 + usize::from(length)];
        text += &String::from_utf8_lossy(label).to_ascii_lowercase();
        text.push('.');
        here += 1 + usize::from(length);
    }
    if text.is_empty() {
        text.push('.');
    }
    (text, after.unwrap_or(here + 1))
}

//! DNS messages (RFC 1035 §4), encoded and decoded without the code under test.

use std::net::SocketAddr;

use sanderling_testkit::{tcp_reply, udp_reply};

pub(crate) const A: u16 = 1;
pub(crate) const NS: u16 = 2;
pub(crate) const CNAME: u16 = 5;
pub(crate) const SOA: u16 = 6;
pub(crate) const TXT: u16 = 16;
pub(crate) const AAAA: u16 = 28;
pub(crate) const DNAME: u16 = 39;
pub(crate) const OPT: u16 = 41;
pub(crate) const AXFR: u16 = 252;
pub(crate) const ANY: u16 = 255;

pub(crate) const NOERROR: u16 = 0;
pub(crate) const FORMERR: u16 = 1;
pub(crate) const NXDOMAIN: u16 = 3;
pub(crate) const NOTIMP: u16 = 4;
pub(crate) const REFUSED: u16 = 5;
pub(crate) const BADVERS: u16 = 16;

/// A query for one question.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'q> {
    pub(crate) id: u16,
    pub(crate) name: &'q str,
    pub(crate) rtype: u16,
    pub(crate) class: u16,
    pub(crate) opcode: u8,
    /// Payload size and version of the OPT record.
    pub(crate) edns: Option<(u16, u8)>,
}

impl<'q> Question<'q> {
    pub(crate) fn new(name: &'q str, rtype: u16) -> Question<'q> {
        Question { id: 0x5a17, name, rtype, class: 1, opcode: 0, edns: None }
    }

    pub(crate) fn message(&self) -> Vec<u8> {
        let mut message = Vec::new();
        let additional_count = u16::from(self.edns.is_some());
        // RD is set, as by stub resolvers.
        let flags = u16::from(self.opcode) << 11 | 0x0100;
        for word in [self.id, flags, 1, 0, 0, additional_count] {
            message.extend(word.to_be_bytes());
        }
        message.extend(name_bytes(self.name));
        message.extend(self.rtype.to_be_bytes());
        message.extend(self.class.to_be_bytes());
        if let Some((payload_bytes, version)) = self.edns {
            message.extend([0, 0, OPT as u8]);
            message.extend(payload_bytes.to_be_bytes());
            message.extend([0, version, 0, 0, 0, 0]);
        }
        message
    }

    #[track_caller]
    pub(crate) fn ask_udp(&self, server: SocketAddr) -> Reply {
        Reply::read(&udp_reply(server, &self.message()))
    }

    #[track_caller]
    pub(crate) fn ask_tcp(&self, server: SocketAddr) -> Reply {
        Reply::read(&tcp_reply(server, &self.message()))
    }
}

/// A record of a reply: names in lower case, with a dot at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) owner: String,
    pub(crate) rtype: u16,
    pub(crate) class: u16,
    pub(crate) ttl_s: u32,
    /// The RDATA; for a type whose RDATA is a name (NS, CNAME, DNAME), its text.
    pub(crate) rdata: Vec<u8>,
}

/// A reply, decoded to its last byte.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) id: u16,
    pub(crate) flags: u16,
    pub(crate) rcode: u16,
    pub(crate) question_count: u16,
    pub(crate) answer: Vec<Record>,
    pub(crate) authority: Vec<Record>,
    /// Without the OPT record.
    pub(crate) additional: Vec<Record>,
    /// Payload size and version of the OPT record.
    pub(crate) edns: Option<(u16, u8)>,
    pub(crate) length_bytes: usize,
}

impl Reply {
    #[track_caller]
    pub(crate) fn read(message: &[u8]) -> Reply {
        let word = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
        assert!(message.len() >= 12, "a reply of {} bytes", message.len());
        let flags = word(2);
        assert_ne!(flags & 0x8000, 0, "a reply has QR");
        let mut at = 12;
        for _ in 0..word(4) {
            let (_, after) = name_text(message, at);
            at = after + 4;
        }
        let mut sections = [Vec::new(), Vec::new(), Vec::new()];
        for (index, section) in sections.iter_mut().enumerate() {
            for _ in 0..word(6 + 2 * index) {
                let (record, after) = record(message, at);
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
            length_bytes: message.len(),
        };
        if let Some(place) = additional.iter().position(|record| record.rtype == OPT) {
            let opt = additional.remove(place);
            assert_eq!(opt.owner, ".");
            reply.rcode |= (opt.ttl_s >> 24 << 4) as u16;
            reply.edns = Some((opt.class, (opt.ttl_s >> 16) as u8));
        }
        reply.additional = additional;
        reply
    }

    pub(crate) fn is_authoritative(&self) -> bool {
        self.flags & 0x0400 != 0
    }

    pub(crate) fn is_truncated(&self) -> bool {
        self.flags & 0x0200 != 0
    }

    /// The whole reply as text: `RCODE [AA] [TC]`, then the sections, a record on each line.
    pub(crate) fn summary(&self) -> String {
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

/// `owner TTL type RDATA`.
impl std::fmt::Display for Record {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} {} {} ", self.owner, self.ttl_s, self.rtype)?;
        match (self.rtype, &*self.rdata) {
            (A, &[a, b, c, d]) => write!(out, "{a}.{b}.{c}.{d}"),
            (NS | CNAME | DNAME | SOA, text) => out.write_str(&String::from_utf8_lossy(text)),
            (TXT, [_, text @ ..]) => out.write_str(&String::from_utf8_lossy(text)),
            (_, bytes) => write!(out, "{bytes:02x?}"),
        }
    }
}

/// The wire form of a name without escapes; a dot at the end makes no difference.
pub(crate) fn name_bytes(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.').filter(|label| !label.is_empty()) {
        bytes.push(u8::try_from(label.len()).expect("a label has at most 63 bytes"));
        bytes.extend(label.bytes());
    }
    bytes.push(0);
    bytes
}

/// The record at `at`, and the offset of the next one.
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
        // The first name of a SOA identifies it.
        SOA => name_text(message, start).0.into_bytes(),
        _ => message[start..end].to_vec(),
    };
    (Record { owner, rtype, class, ttl_s, rdata }, end)
}

/// The name at `at`, and the offset after it. Pointers point backwards (RFC 1035 §4.1.4).
#[track_caller]
fn name_text(message: &[u8], at: usize) -> (String, usize) {
    let (mut text, mut here, mut after) = (String::new(), at, None);
    loop {
        let length = message[here];
        if length >= 0xc0 {
            let target = usize::from(u16::from_be_bytes([length & 0x3f, message[here + 1]]));
            after.get_or_insert(here + 2);
            assert!(target < here, "a pointer at {here} leads forward to {target}");
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

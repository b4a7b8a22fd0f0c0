//! A strict parser of replies, and replies as text.

use sanderling_dns::rdata::{self, PresentationFormat};
use sanderling_dns::{Name, Rtype};
use std::fmt;

const HEADER_BYTES: usize = 12;
const NAME_BYTES_MAX: usize = 255;

/// A reply with uncompressed names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) id: u16,
    /// The second 16 bits of the header.
    pub(crate) flags: u16,
    /// With the upper bits of an OPT.
    pub(crate) rcode: u16,
    pub(crate) question: Option<(Vec<u8>, Rtype, u16)>,
    /// Answer, authority and additional section without the OPT.
    pub(crate) sections: [Vec<ReplyRecord>; 3],
    pub(crate) edns: Option<ReplyEdns>,
}

/// A record of a reply, of class IN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplyRecord {
    pub(crate) owner: Vec<u8>,
    pub(crate) rtype: Rtype,
    pub(crate) ttl_s: u32,
    /// In wire form with uncompressed names.
    pub(crate) rdata: Vec<u8>,
}

/// The fields of a reply's OPT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyEdns {
    pub(crate) payload_bytes: u16,
    pub(crate) version: u8,
    pub(crate) dnssec_ok: bool,
    pub(crate) option_bytes: usize,
}

impl Reply {
    /// Parses `message`. An error is a message.
    pub(crate) fn parse(message: &[u8]) -> Result<Reply, String> {
        let mut cursor = Cursor { message, at: 0 };
        let mut header = [0; 6];
        for number in &mut header {
            *number = cursor.number()?;
        }
        let [id, flags, question_count, counts @ ..] = header;
        let question = match question_count {
            0 => None,
            1 => Some((cursor.name()?, Rtype(cursor.number()?), cursor.number()?)),
            _ => return Err(format!("{question_count} questions")),
        };
        let mut reply = Reply { id, flags, rcode: flags & 0xf, question, sections: Default::default(), edns: None };
        for (section, count) in counts.into_iter().enumerate() {
            for _ in 0..count {
                reply.read_record(section, &mut cursor)?;
            }
        }
        if cursor.at != message.len() {
            return Err(format!("{} bytes after the last record", message.len() - cursor.at));
        }
        Ok(reply)
    }

    fn read_record(&mut self, section: usize, cursor: &mut Cursor<'_>) -> Result<(), String> {
        let owner = cursor.name()?;
        let (rtype, class) = (Rtype(cursor.number()?), cursor.number()?);
        let ttl_s = u32::from(cursor.number()?) << 16 | u32::from(cursor.number()?);
        let length = usize::from(cursor.number()?);
        let end = cursor.at + length;
        if end > cursor.message.len() {
            return Err(format!("the data of a {rtype} record is longer than the message"));
        }
        if rtype == Rtype::OPT {
            let [rcode_high, version, flags_high, _] = ttl_s.to_be_bytes();
            if section != 2 || owner != [0] || self.edns.is_some() {
                return Err("an unexpected OPT".into());
            }
            self.rcode |= u16::from(rcode_high) << 4;
            let dnssec_ok = flags_high & 0x80 != 0;
            self.edns = Some(ReplyEdns { payload_bytes: class, version, dnssec_ok, option_bytes: length });
            cursor.at = end;
            return Ok(());
        }
        if class != 1 {
            return Err(format!("a {rtype} record of class {class}"));
        }
        let rdata = cursor.rdata(rtype, end)?;
        rdata::check(rtype, &rdata).map_err(|malformed| format!("{rtype}: {malformed:?}"))?;
        self.sections[section].push(ReplyRecord { owner, rtype, ttl_s, rdata });
        Ok(())
    }

    pub(crate) fn is_authoritative(&self) -> bool {
        self.flags & 0x0400 != 0
    }

    pub(crate) fn is_truncated(&self) -> bool {
        self.flags & 0x0200 != 0
    }

    /// The sorted lines of one section in lower case.
    pub(crate) fn set_of(&self, section: usize) -> Vec<String> {
        let mut lines: Vec<String> =
            self.sections[section].iter().map(|record| record.to_string().to_ascii_lowercase()).collect();
        lines.sort();
        lines
    }

    fn rcode_text(&self) -> String {
        match self.rcode {
            0 => "NOERROR".into(),
            1 => "FORMERR".into(),
            2 => "SERVFAIL".into(),
            3 => "NXDOMAIN".into(),
            4 => "NOTIMP".into(),
            5 => "REFUSED".into(),
            6 => "YXDOMAIN".into(),
            9 => "NOTAUTH".into(),
            16 => "BADVERS".into(),
            other => format!("RCODE{other}"),
        }
    }
}

/// `NOERROR aa tc rd edns=1232 do`, then a line for each record with its section.
impl fmt::Display for Reply {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.rcode_text())?;
        for (bit, flag) in
            [(0x0400, "aa"), (0x0200, "tc"), (0x0100, "rd"), (0x0080, "ra"), (0x0020, "ad"), (0x0010, "cd")]
        {
            if self.flags & bit != 0 {
                write!(out, " {flag}")?;
            }
        }
        if let Some(edns) = self.edns {
            write!(out, " edns={}", edns.payload_bytes)?;
            if edns.dnssec_ok {
                write!(out, " do")?;
            }
        }
        writeln!(out)?;
        for (section, title) in self.sections.iter().zip(["answer", "authority", "additional"]) {
            for record in section {
                writeln!(out, "{title}: {record}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for ReplyRecord {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owner = Name::parse(&self.owner).expect("parsed as a name");
        write!(out, "{owner} {} {} {}", self.ttl_s, self.rtype, PresentationFormat::new(self.rtype, &self.rdata))
    }
}

struct Cursor<'m> {
    message: &'m [u8],
    at: usize,
}

impl Cursor<'_> {
    fn number(&mut self) -> Result<u16, String> {
        let bytes = self.message.get(self.at..self.at + 2).ok_or("the message ends early")?;
        self.at += 2;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// The name at the cursor, uncompressed. RFC 1035 §4.1.4: a pointer refers to a *prior* occurrence of a name.
    fn name(&mut self) -> Result<Vec<u8>, String> {
        let mut name = vec![];
        let mut at = self.at;
        let mut lowest = self.at;
        let mut after = None;
        loop {
            let byte = *self.message.get(at).ok_or("a name ends early")?;
            match byte {
                0 => {
                    name.push(0);
                    self.at = after.unwrap_or(at + 1);
                    return if name.len() <= NAME_BYTES_MAX { Ok(name) } else { Err("a name is too long".into()) };
                }
                1..=63 => {
                    let end = at + 1 + usize::from(byte);
                    name.extend(self.message.get(at..end).ok_or("a label ends early")?);
                    at = end;
                }
                0xc0.. => {
                    let low = *self.message.get(at + 1).ok_or("a pointer ends early")?;
                    let target = usize::from(byte & 0x3f) << 8 | usize::from(low);
                    if target < HEADER_BYTES || target >= lowest {
                        return Err(format!("the pointer at {at} refers to {target}, which is not before it"));
                    }
                    after.get_or_insert(at + 2);
                    (at, lowest) = (target, target);
                }
                _ => return Err(format!("a label of a reserved kind at {at}")),
            }
        }
    }

    /// RDATA that ends at `end`, with uncompressed names where compression is allowed (RFC 3597 §4).
    fn rdata(&mut self, rtype: Rtype, end: usize) -> Result<Vec<u8>, String> {
        let (prefix, name_count) = match rtype {
            Rtype::NS | Rtype::MD | Rtype::MF | Rtype::CNAME | Rtype::MB | Rtype::MG | Rtype::MR | Rtype::PTR => (0, 1),
            Rtype::SOA | Rtype::MINFO => (0, 2),
            Rtype::MX => (2, 1),
            _ => (0, 0),
        };
        let mut rdata = self.message[self.at..end].get(..prefix).ok_or("RDATA ends early")?.to_vec();
        self.at += prefix;
        for _ in 0..name_count {
            rdata.extend(self.name()?);
        }
        rdata.extend(self.message.get(self.at..end).ok_or("a name passes the end of its RDATA")?);
        self.at = end;
        Ok(rdata)
    }
}

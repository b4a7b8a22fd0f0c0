//! Reads the header, the question and the additional section of a query (RFC 1035 §4, RFC 6891 §6), and the records of
//! any message.

use crate::messages::tsig::Tsig;
use crate::text::name::{NAME_BYTES_MAX, Name, NameBuf};
use crate::text::rtype::Rtype;
use crate::zones::packed_rrset::{CLASS_IN, HEADER_BYTES, QUESTION_TAIL_BYTES, RECORD_FIXED_BYTES};
use core::num::NonZeroU16;

/// Records that a query's additional section may have: OPT, TSIG and a few unknown ones.
const QUERY_ADDITIONAL_COUNT_MAX: u16 = 16;

/// A message's header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header<'q>(&'q [u8; HEADER_BYTES]);

impl<'q> Header<'q> {
    pub(crate) fn parse(message: &'q [u8]) -> Option<Header<'q>> {
        message.first_chunk().map(Header)
    }

    /// The flag QR.
    pub(crate) fn is_response(self) -> bool {
        self.0[2] & 0x80 != 0
    }

    pub(crate) fn opcode(self) -> u8 {
        self.0[2] >> 3 & 0x0f
    }

    pub(crate) fn record_count(self, section: usize) -> u16 {
        u16::from_be_bytes([self.0[4 + 2 * section], self.0[5 + 2 * section]])
    }
}

/// A query's question, with its EDNS.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'q> {
    pub(crate) qname: Name<'q>,
    pub(crate) qtype: Rtype,
    pub(crate) qclass: u16,
    pub(crate) edns: Option<Edns>,
    /// The offset of the TSIG record, if there is one.
    pub(crate) tsig_offset: Option<NonZeroU16>,
}

/// The fields of an OPT record (RFC 6891 §6.1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edns {
    /// Bytes of the longest UDP message that the sender accepts.
    pub(crate) payload_bytes: u16,
    pub(crate) version: u8,
    /// The flag DO (RFC 3225).
    pub(crate) dnssec_ok: bool,
    /// The offset of the options' length in the query, if there are options.
    pub(crate) options_offset: Option<NonZeroU16>,
}

impl Edns {
    /// The fields of an OPT with this class and these bytes of its TTL (RFC 6891 §6.1.3).
    #[inline]
    fn new(payload: [u8; 2], version: u8, flags: u8) -> Edns {
        Edns { payload_bytes: u16::from_be_bytes(payload), version, dnssec_ok: flags & 0x80 != 0, options_offset: None }
    }

    /// The fields of `rest` if it is a single OPT without options, as in most queries.
    #[inline]
    fn of_plain_opt(rest: &[u8]) -> Option<Edns> {
        const OPT: u8 = Rtype::OPT.0 as u8;
        match *rest {
            [0, 0, OPT, payload_high, payload_low, _, version, flags, _, 0, 0] => {
                Some(Edns::new([payload_high, payload_low], version, flags))
            }
            _ => None,
        }
    }
}

/// The query is malformed: FORMERR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FormErr;

impl<'q> Question<'q> {
    /// Takes the place of a question that was not parsed.
    pub(crate) const EMPTY: Question<'static> =
        Question { qname: Name::ROOT, qtype: Rtype(0), qclass: CLASS_IN, edns: None, tsig_offset: None };

    /// Parses the question, whose name is `qname`, and the additional section. Bytes after the last record are ignored.
    #[inline]
    pub(crate) fn parse(header: Header<'_>, qname: Name<'q>, message: &'q [u8]) -> Result<Question<'q>, FormErr> {
        // RFC 9619: one question. Queries have no answer section.
        if header.record_count(0) != 1 || header.record_count(1) != 0 {
            return Err(FormErr);
        }
        let qname_end = HEADER_BYTES + qname.length_bytes();
        let tail = message.get(qname_end..qname_end + QUESTION_TAIL_BYTES).ok_or(FormErr)?;
        let mut question = Question {
            qname,
            qtype: Rtype(u16::from_be_bytes([tail[0], tail[1]])),
            qclass: u16::from_be_bytes([tail[2], tail[3]]),
            edns: None,
            tsig_offset: None,
        };
        // RFC 1995 §3: an IXFR query carries the client's SOA.
        let authority_count_max = u16::from(question.qtype == Rtype::IXFR);
        if header.record_count(2) > authority_count_max || header.record_count(3) > QUERY_ADDITIONAL_COUNT_MAX {
            return Err(FormErr);
        }
        let rest = &message[qname_end + QUESTION_TAIL_BYTES..];
        match (header.record_count(2), header.record_count(3)) {
            (0, 0) => {}
            (0, 1) if let Some(edns) = Edns::of_plain_opt(rest) => question.edns = Some(edns),
            _ => question.read_records(header, message)?,
        }
        Ok(question)
    }

    /// Reads the records of the authority and of the additional section.
    #[inline(never)]
    fn read_records(&mut self, header: Header<'_>, message: &[u8]) -> Result<(), FormErr> {
        let mut at = HEADER_BYTES + self.section_bytes();
        for _ in 0..header.record_count(2) {
            at = MessageRecord::parse(message, at)?.end;
        }
        for _ in 0..header.record_count(3) {
            let record = MessageRecord::parse(message, at)?;
            // RFC 8945 §5.1: the TSIG record is the last one.
            if self.tsig_offset.is_some() {
                return Err(FormErr);
            }
            match record.rtype() {
                Rtype::OPT if self.edns.is_some() => return Err(FormErr),
                Rtype::OPT => self.edns = Some(record.edns()?),
                Rtype::TSIG => {
                    record.tsig().ok_or(FormErr)?;
                    self.tsig_offset = NonZeroU16::new(at as u16);
                }
                _ => {}
            }
            at = record.end;
        }
        Ok(())
    }

    /// Bytes of the question section.
    pub(crate) fn section_bytes(&self) -> usize {
        self.qname.length_bytes() + QUESTION_TAIL_BYTES
    }
}

/// The EDNS of `message`, whose question could not be parsed or has another form: RFC 6891 §6.1.1 demands an OPT in the
/// reply.
#[cold]
pub(crate) fn find_edns(header: Header<'_>, message: &[u8]) -> Option<Edns> {
    let counts = [0, 1, 2, 3].map(|section| header.record_count(section));
    if counts.iter().any(|&count| count > QUERY_ADDITIONAL_COUNT_MAX) {
        return None;
    }
    let mut at = HEADER_BYTES;
    for _ in 0..counts[0] {
        at = read_name(message, at).ok()?.1 + QUESTION_TAIL_BYTES;
    }
    for _ in 0..counts[1] + counts[2] {
        at = MessageRecord::parse(message, at).ok()?.end;
    }
    for _ in 0..counts[3] {
        let record = MessageRecord::parse(message, at).ok()?;
        if record.rtype() == Rtype::OPT {
            return record.edns().ok();
        }
        at = record.end;
    }
    None
}

/// The TSIG record at `offset` of `message`, where [`Question::parse`] found it.
#[cold]
pub(crate) fn tsig_at(message: &[u8], offset: NonZeroU16) -> Option<Tsig<'_>> {
    MessageRecord::parse(message, usize::from(offset.get())).ok()?.tsig()
}

/// The serial of the SOA in the authority section of an IXFR query (RFC 1995 §3).
#[cold]
pub(crate) fn client_serial(message: &[u8], question: &Question<'_>) -> Option<u32> {
    let header = Header::parse(message).filter(|header| header.record_count(2) == 1)?;
    debug_assert!(!header.is_response());
    let record = MessageRecord::parse(message, HEADER_BYTES + question.section_bytes()).ok()?;
    if record.rtype() != Rtype::SOA || !record.owner.as_name().eq_ignore_case(question.qname) {
        return None;
    }
    let (_, after) = read_name(message, record.fixed_offset + RECORD_FIXED_BYTES).ok()?;
    let (_, after) = read_name(message, after).ok()?;
    let serial = message.get(after..record.end)?.first_chunk()?;
    Some(u32::from_be_bytes(*serial))
}

/// A record of a message.
pub(crate) struct MessageRecord<'q> {
    pub(crate) owner: NameBuf,
    /// The offset of the fields after the owner.
    pub(crate) fixed_offset: usize,
    fixed: &'q [u8; RECORD_FIXED_BYTES],
    pub(crate) rdata: &'q [u8],
    /// The next record's offset.
    pub(crate) end: usize,
    /// Whether the owner is the root, without compression.
    is_of_root: bool,
}

impl<'q> MessageRecord<'q> {
    /// The record at `at`.
    pub(crate) fn parse(message: &'q [u8], at: usize) -> Result<MessageRecord<'q>, FormErr> {
        let (owner, fixed_offset) = read_name(message, at)?;
        let (fixed, rest) = message.get(fixed_offset..).and_then(<[u8]>::split_first_chunk).ok_or(FormErr)?;
        let rdata = rest.get(..usize::from(u16::from_be_bytes([fixed[8], fixed[9]]))).ok_or(FormErr)?;
        let end = fixed_offset + RECORD_FIXED_BYTES + rdata.len();
        Ok(MessageRecord { owner, fixed_offset, fixed, rdata, end, is_of_root: fixed_offset == at + 1 })
    }

    pub(crate) fn rtype(&self) -> Rtype {
        Rtype(u16::from_be_bytes([self.fixed[0], self.fixed[1]]))
    }

    pub(crate) fn class(&self) -> u16 {
        u16::from_be_bytes([self.fixed[2], self.fixed[3]])
    }

    pub(crate) fn ttl_s(&self) -> u32 {
        u32::from_be_bytes([self.fixed[4], self.fixed[5], self.fixed[6], self.fixed[7]])
    }

    /// The fields of an OPT.
    pub(crate) fn edns(&self) -> Result<Edns, FormErr> {
        let &[_, _, payload_high, payload_low, _, version, flags, ..] = self.fixed;
        let mut edns = Edns::new([payload_high, payload_low], version, flags);
        // RFC 6891 §6.1.1: an OPT is owned by the root. Options have the format of version 0.
        if !self.is_of_root || version == 0 && !options_fit(self.rdata) {
            return Err(FormErr);
        }
        if version == 0 && !self.rdata.is_empty() {
            edns.options_offset = NonZeroU16::new((self.fixed_offset + RECORD_FIXED_BYTES - 2) as u16);
        }
        Ok(edns)
    }

    pub(crate) fn tsig(&self) -> Option<Tsig<'q>> {
        // RFC 8945 §4.2: the TTL, which is signed as 0, is 0.
        if self.fixed[4..8] != [0; 4] {
            return None;
        }
        Tsig::parse(self.owner, self.class(), self.rdata)
    }
}

/// The name at `at`, and the offset after it.
pub(crate) fn read_name(message: &[u8], at: usize) -> Result<(NameBuf, usize), FormErr> {
    let (mut at, mut after) = (at, None);
    let mut wire = [0; NAME_BYTES_MAX];
    let mut length = 0;
    // RFC 1035 §4.1.4: a pointer refers to a prior name. Each pointer leads further back, so there is no loop.
    let mut lowest = at;
    loop {
        match *message.get(at).ok_or(FormErr)? {
            label_bytes @ 0..0x40 => {
                let end = at + 1 + usize::from(label_bytes);
                let label = message.get(at..end).ok_or(FormErr)?;
                wire.get_mut(length..length + label.len()).ok_or(FormErr)?.copy_from_slice(label);
                (at, length) = (end, length + label.len());
                if label_bytes == 0 {
                    let name = Name::parse(&wire[..length]).map_err(|_| FormErr)?;
                    return Ok((name.to_owned(), after.unwrap_or(at)));
                }
            }
            high @ 0xc0.. => {
                let low = *message.get(at + 1).ok_or(FormErr)?;
                after.get_or_insert(at + 2);
                at = usize::from(u16::from_be_bytes([high & 0x3f, low]));
                if at >= lowest {
                    return Err(FormErr);
                }
                lowest = at;
            }
            _ => return Err(FormErr),
        }
    }
}

/// Whether options fill the RDATA of an OPT exactly (RFC 6891 §6.1.2).
fn options_fit(mut rdata: &[u8]) -> bool {
    while let [_, _, high, low, rest @ ..] = rdata {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        match rest.get(length..) {
            Some(next) => rdata = next,
            None => return false,
        }
    }
    rdata.is_empty()
}

//! A DNS message on the wire (RFC 1035 §4): the query that is read, and the reply as it grows.

use crate::name::Name;
use crate::packed_rrset::{HEADER_BYTES, OPT_BYTES, OwnerLocation, PackedRrset, QUESTION_TAIL_BYTES};
use crate::rtype::Rtype;
use crate::zone::Found;

/// Records of the additional section that a query may bring: an OPT, a TSIG, and a few that nobody asked for.
const QUERY_ADDITIONAL_COUNT_MAX: u16 = 16;
/// Octets of a record behind its owner and before its data: type, class, TTL, length.
const RECORD_FIXED_BYTES: usize = 10;

pub(crate) const CLASS_IN: u16 = 1;

/// What a reply says of its query (RFC 6895 §2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Rcode {
    NoError = 0,
    FormErr = 1,
    ServFail = 2,
    NxDomain = 3,
    NotImp = 4,
    Refused = 5,
    YxDomain = 6,
    NotAuth = 9,
    BadVers = 16,
}

/// The header of a query.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header<'q>(&'q [u8; HEADER_BYTES]);

impl<'q> Header<'q> {
    pub(crate) fn read(message: &'q [u8]) -> Option<Header<'q>> {
        message.first_chunk().map(Header)
    }

    /// The message is a response itself.
    pub(crate) fn is_response(self) -> bool {
        self.0[2] & 0x80 != 0
    }

    pub(crate) fn opcode(self) -> u8 {
        self.0[2] >> 3 & 0x0f
    }

    fn count(self, section: usize) -> u16 {
        u16::from_be_bytes([self.0[4 + 2 * section], self.0[5 + 2 * section]])
    }
}

/// A query whose every part has been understood.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query<'q> {
    pub(crate) name: Name<'q>,
    pub(crate) rtype: Rtype,
    pub(crate) class: u16,
    pub(crate) edns: Option<Edns>,
    pub(crate) has_tsig: bool,
}

/// What an OPT record says (RFC 6891 §6.1).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edns {
    /// Octets of the longest UDP message that the sender takes.
    pub(crate) payload_bytes: u16,
    pub(crate) version: u8,
    /// The flag DO (RFC 3225).
    pub(crate) dnssec_ok: bool,
}

impl Edns {
    /// What an OPT with these octets in the places of class and TTL says (RFC 6891 §6.1.3).
    #[inline]
    fn new(payload: [u8; 2], version: u8, flags: u8) -> Edns {
        Edns { payload_bytes: u16::from_be_bytes(payload), version, dnssec_ok: flags & 0x80 != 0 }
    }

    /// What the OPT says that `rest` is: one without options, as most queries have.
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

/// A message that is no query that we understand: FORMERR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl<'q> Query<'q> {
    /// A question about the root, as good as none.
    pub(crate) const ROOT: Query<'static> =
        Query { name: Name::ROOT, rtype: Rtype(0), class: CLASS_IN, edns: None, has_tsig: false };

    /// Reads the question, which is about `name`, and the additional section; octets behind the last record do not count.
    #[inline]
    pub(crate) fn parse(header: Header<'_>, name: Name<'q>, message: &'q [u8]) -> Result<Query<'q>, Malformed> {
        // One question (RFC 9619), and no records that only a reply may have.
        if header.count(0) != 1 || header.count(1) != 0 {
            return Err(Malformed);
        }
        let after = HEADER_BYTES + name.length_bytes();
        let tail = message.get(after..after + QUESTION_TAIL_BYTES).ok_or(Malformed)?;
        let mut query = Query {
            name,
            rtype: Rtype(u16::from_be_bytes([tail[0], tail[1]])),
            class: u16::from_be_bytes([tail[2], tail[3]]),
            edns: None,
            has_tsig: false,
        };
        // RFC 1995 §3: the SOA that the client has.
        let authority_count_max = u16::from(query.rtype == Rtype::IXFR);
        if header.count(2) > authority_count_max || header.count(3) > QUERY_ADDITIONAL_COUNT_MAX {
            return Err(Malformed);
        }
        let rest = &message[after + QUESTION_TAIL_BYTES..];
        match (header.count(2), header.count(3)) {
            (0, 0) => {}
            (0, 1) if let Some(edns) = Edns::of_plain_opt(rest) => query.edns = Some(edns),
            (authority_count, additional_count) => query.take_records(authority_count, additional_count, rest)?,
        }
        Ok(query)
    }

    /// Notes what the records say that start `rest`: those of the authority section, then those of the additional one.
    #[inline(never)]
    fn take_records(&mut self, authority_count: u16, additional_count: u16, rest: &[u8]) -> Result<(), Malformed> {
        let mut rest = rest;
        for _ in 0..authority_count {
            rest = QueryRecord::read(rest)?.1;
        }
        for _ in 0..additional_count {
            let (record, behind) = QueryRecord::read(rest)?;
            self.take_additional(&record)?;
            rest = behind;
        }
        Ok(())
    }

    /// Notes what a record of the additional section says.
    fn take_additional(&mut self, record: &QueryRecord<'_>) -> Result<(), Malformed> {
        let fixed = record.fixed;
        match Rtype(u16::from_be_bytes([fixed[0], fixed[1]])) {
            Rtype::OPT => {
                let &[_, _, payload_high, payload_low, _, version, flags, ..] = fixed;
                let edns = Edns::new([payload_high, payload_low], version, flags);
                // RFC 6891 §6.1.1: one, and its owner is the root. Of other versions, the options may look otherwise.
                let is_right = record.owner_length == 1 && (edns.version != 0 || options_fit(record.rdata));
                if self.edns.is_some() || !is_right {
                    return Err(Malformed);
                }
                self.edns = Some(edns);
            }
            Rtype::TSIG => self.has_tsig = true,
            _ => {}
        }
        Ok(())
    }

    /// Octets of the question section.
    pub(crate) fn question_bytes(&self) -> usize {
        self.name.length_bytes() + QUESTION_TAIL_BYTES
    }
}

/// A record that a query brings.
struct QueryRecord<'q> {
    owner_length: usize,
    fixed: &'q [u8; RECORD_FIXED_BYTES],
    rdata: &'q [u8],
}

impl<'q> QueryRecord<'q> {
    /// The record at the start of `bytes`, and what stands behind it.
    fn read(bytes: &'q [u8]) -> Result<(QueryRecord<'q>, &'q [u8]), Malformed> {
        let owner_length = skip_name(bytes)?;
        let (fixed, rest) = bytes.get(owner_length..).and_then(<[u8]>::split_first_chunk).ok_or(Malformed)?;
        let rdata_length = usize::from(u16::from_be_bytes([fixed[8], fixed[9]]));
        let (rdata, rest) = rest.split_at_checked(rdata_length).ok_or(Malformed)?;
        Ok((QueryRecord { owner_length, fixed, rdata }, rest))
    }
}

/// Octets of the owner at the start of `bytes`: its labels, up to the root or a pointer, which is not followed.
fn skip_name(bytes: &[u8]) -> Result<usize, Malformed> {
    let mut at = 0;
    while at < crate::name::NAME_BYTES_MAX {
        match bytes.get(at) {
            Some(0) => return Ok(at + 1),
            Some(&length) if length < 0x40 => at += 1 + usize::from(length),
            Some(&length) if length >= 0xc0 => return Ok(at + 2),
            _ => return Err(Malformed),
        }
    }
    Err(Malformed)
}

/// Whether the options of an OPT fill its RDATA (RFC 6891 §6.1.2). What they say does not matter to us.
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

/// A section of a reply behind the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Answer = 0,
    Authority = 1,
    Additional = 2,
}

/// What did not fit into the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageFull;

/// A reply as it grows in the caller's octets: sections in their order, never past its limit.
#[derive(Debug)]
pub(crate) struct ReplyWriter<'o> {
    out: &'o mut [u8],
    at: usize,
    /// Octets that the reply may have, those for its OPT taken off.
    limit: usize,
    counts: [u16; 3],
    id: u16,
    flags: u16,
    /// Where the sections begin: what a reply is cut back to.
    sections_at: usize,
}

const FLAG_RESPONSE: u16 = 0x8000;
const FLAG_AUTHORITATIVE: u16 = 0x0400;
const FLAG_TRUNCATED: u16 = 0x0200;
const FLAG_RECURSION_DESIRED: u16 = 0x0100;
/// The opcode and RD are those of the query (RFC 1035 §4.1.1).
const FLAGS_OF_THE_QUERY: u16 = 0x7800 | FLAG_RECURSION_DESIRED;

impl<'o> ReplyWriter<'o> {
    /// A reply to `query`, which is a header at least: with its id, and with its first `question_bytes` octets behind
    /// the header.
    #[inline]
    pub(crate) fn start(out: &'o mut [u8], query: &[u8], question_bytes: usize, limit: usize) -> ReplyWriter<'o> {
        let at = HEADER_BYTES + question_bytes;
        out[HEADER_BYTES..at].copy_from_slice(&query[HEADER_BYTES..at]);
        let id = u16::from_be_bytes([query[0], query[1]]);
        let flags = u16::from_be_bytes([query[2], query[3]]) & FLAGS_OF_THE_QUERY | FLAG_RESPONSE;
        let limit = limit.min(out.len());
        ReplyWriter { out, at, limit, counts: [0; 3], id, flags, sections_at: at }
    }

    pub(crate) fn set_authoritative(&mut self) {
        self.flags |= FLAG_AUTHORITATIVE;
    }

    /// Octets written so far: where the next record will stand.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// Takes the sections back, and says that they were there (RFC 2181 §9).
    pub(crate) fn truncate(&mut self) {
        self.at = self.sections_at;
        self.counts = [0; 3];
        self.flags |= FLAG_TRUNCATED;
    }

    /// Appends the RRset of `ready`, without its addresses, as it was made, for an owner at `owner`.
    #[inline]
    pub(crate) fn put_packed(
        &mut self,
        section: Section,
        ready: &PackedRrset<'_>,
        owner: OwnerLocation,
    ) -> Result<(), MessageFull> {
        let at = self.put_bytes(ready.answer_bytes())?;
        ready.move_pointers(self.out, at, ready.answer_bytes().len(), owner);
        self.counts[section as usize] += ready.answer_count;
        Ok(())
    }

    /// Appends the RRset and, where they fit, the addresses of `ready`, as it was made, for an owner at `owner`. The
    /// RRset is the last of its section, so that addresses may follow.
    #[inline]
    pub(crate) fn put_packed_with_addresses(
        &mut self,
        section: Section,
        ready: &PackedRrset<'_>,
        owner: OwnerLocation,
    ) -> Result<Addresses, MessageFull> {
        if ready.additional_count == 0 {
            return self.put_packed(section, ready, owner).map(|()| Addresses::All);
        }
        match self.put_bytes(ready.all_bytes()) {
            Ok(at) => {
                ready.move_pointers(self.out, at, ready.all_bytes().len(), owner);
                self.counts[section as usize] += ready.answer_count;
                self.counts[Section::Additional as usize] += ready.additional_count;
                Ok(Addresses::All)
            }
            Err(MessageFull) => self.put_packed(section, ready, owner).map(|()| Addresses::None),
        }
    }

    /// Appends the records of `found` anew, names in full, each owned by `owner`: the octets of its name, or of a
    /// pointer. Only those of the RRset itself; where the RDATA of the first one starts is told.
    pub(crate) fn put_expanded(
        &mut self,
        section: Section,
        found: &Found<'_>,
        owner: &[u8],
    ) -> Result<usize, MessageFull> {
        let records = found.ready.records(found.owner);
        let mut first_rdata_at = 0;
        for record in records.clone().take(usize::from(found.ready.answer_count)) {
            let rdata_at = self.put_expanded_record(owner, &record, &records)?;
            if first_rdata_at == 0 {
                first_rdata_at = rdata_at;
            }
            self.counts[section as usize] += 1;
        }
        Ok(first_rdata_at)
    }

    /// Appends the addresses of `found` anew, names in full.
    pub(crate) fn put_expanded_addresses(&mut self, found: &Found<'_>) -> Result<(), MessageFull> {
        let records = found.ready.records(found.owner);
        for record in records.clone().skip(usize::from(found.ready.answer_count)) {
            self.put_expanded_record(record.owner.as_name().as_bytes(), &record, &records)?;
            self.counts[Section::Additional as usize] += 1;
        }
        Ok(())
    }

    fn put_expanded_record(
        &mut self,
        owner: &[u8],
        record: &crate::packed_rrset::PackedRecord<'_>,
        records: &crate::packed_rrset::PackedRecords<'_>,
    ) -> Result<usize, MessageFull> {
        self.put_bytes(owner)?;
        self.put_bytes(record.fixed)?;
        let length_at = self.put_bytes(&[0, 0])?;
        let length = records.expand(record, &mut self.out[self.at..self.limit]).ok_or(MessageFull)?;
        self.out[length_at..self.at].copy_from_slice(&(length as u16).to_be_bytes());
        let rdata_at = self.at;
        self.at += length;
        Ok(rdata_at)
    }

    /// Appends a CNAME that no zone holds: the one that a DNAME makes (RFC 6672 §3.1).
    pub(crate) fn put_cname(&mut self, owner: &[u8], ttl: &[u8], target: Name<'_>) -> Result<usize, MessageFull> {
        self.put_bytes(owner)?;
        self.put_bytes(&Rtype::CNAME.0.to_be_bytes())?;
        self.put_bytes(&CLASS_IN.to_be_bytes())?;
        self.put_bytes(ttl)?;
        self.put_bytes(&(target.length_bytes() as u16).to_be_bytes())?;
        let at = self.put_bytes(target.as_bytes())?;
        self.counts[Section::Answer as usize] += 1;
        Ok(at)
    }

    /// Ends the reply, with an OPT if the query had one; its length in octets.
    #[inline]
    pub(crate) fn finish(&mut self, rcode: Rcode, edns: Option<Edns>) -> usize {
        let [answer_count, authority_count, mut additional_count] = self.counts;
        let mut end = self.at;
        let rcode = rcode as u16;
        if let Some(Edns { payload_bytes, version, dnssec_ok }) = edns {
            // RFC 6891 §6.1.3: the upper eight bits of the RCODE stand in the OPT's TTL.
            let [payload_high, payload_low] = payload_bytes.to_be_bytes();
            let (rcode_high, flags_high) = ((rcode >> 4) as u8, u8::from(dnssec_ok) << 7);
            let opt = [0, 0, Rtype::OPT.0 as u8, payload_high, payload_low, rcode_high, version, flags_high, 0, 0, 0];
            self.out[end..end + OPT_BYTES].copy_from_slice(&opt);
            end += OPT_BYTES;
            additional_count += 1;
        }
        let flags = self.flags | rcode & 0x0f;
        let question_count = u16::from(self.sections_at != HEADER_BYTES);
        let fields = [self.id, flags, question_count, answer_count, authority_count, additional_count];
        let mut header = [0; HEADER_BYTES];
        for (octets, field) in header.as_chunks_mut().0.iter_mut().zip(fields) {
            *octets = field.to_be_bytes();
        }
        self.out[..HEADER_BYTES].copy_from_slice(&header);
        end
    }

    #[inline]
    fn put_bytes(&mut self, bytes: &[u8]) -> Result<usize, MessageFull> {
        let start = self.at;
        let end = start + bytes.len();
        if end > self.limit {
            return Err(MessageFull);
        }
        self.out[start..end].copy_from_slice(bytes);
        self.at = end;
        Ok(start)
    }
}

/// What became of the addresses that go with an RRset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Addresses {
    /// They are in the reply.
    All,
    /// There was no room for them.
    None,
}

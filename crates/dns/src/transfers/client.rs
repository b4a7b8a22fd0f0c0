//! Queries to other servers, as primary and secondary servers send them, and their replies: SOA, NOTIFY (RFC 1996),
//! AXFR (RFC 5936), IXFR (RFC 1995), and the records at a name.
//!
//! ```text
//! query → message to send, ReplyReader → read, message by message → Reply → records
//! ```
//!
//! The agent sends and receives. A reply may come from anyone: all of it is checked.

use crate::messages::question::{Header, MessageRecord, read_name};
use crate::messages::tsig::{ReplyVerifier, SignatureError, Tsig, TsigKey};
use crate::text::name::{Name, NameBuf};
use crate::text::rdata::{FieldKind, field_end, fields};
use crate::text::rtype::Rtype;
use crate::zones::packed_rrset::{CLASS_IN, HEADER_BYTES, QUESTION_TAIL_BYTES};
use alloc::vec::Vec;
use core::fmt;

const OPCODE_QUERY: u8 = 0;
const OPCODE_NOTIFY: u8 = 4;
/// Maximum bytes of a requested UDP reply, except for queries about whole zones: such a reply is not fragmented
/// (<https://www.dnsflagday.net/2020/>).
const EDNS_PAYLOAD_BYTES: u16 = 1232;
/// The first byte of the flags of a query for signatures (RFC 3225 §3).
const DNSSEC_OK: u8 = 0x80;
/// CNAME records that are followed in one reply.
const CNAME_CHAIN_MAX: usize = 16;
/// The position of the opcode in the flags.
const OPCODE_SHIFT: u8 = 3;
/// AA, TC and RD.
const AUTHORITATIVE: u8 = 0x04;
const TRUNCATED: u8 = 0x02;
const RECURSION_DESIRED: u8 = 0x01;

/// The names of RCODEs (RFC 6895 §2.3).
const RCODES: [&str; 11] = [
    "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "YXRRSET", "NXRRSET", "NOTAUTH",
    "NOTZONE",
];

/// The kind of message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryKind {
    /// The zone's SOA.
    Soa,
    /// The whole zone.
    Axfr,
    /// The changes since the version with this serial.
    Ixfr(u32),
    /// The zone has changed.
    Notify,
    /// The records of this type at a name, from a server of their zone.
    Records(Rtype),
    /// The same with their signatures (RFC 4035 §3.2.1).
    SignedRecords(Rtype),
    /// The records of this type at a name, from a resolver.
    Resolve(Rtype),
}

impl QueryKind {
    fn opcode(self) -> u8 {
        match self {
            QueryKind::Soa | QueryKind::Axfr | QueryKind::Ixfr(_) => OPCODE_QUERY,
            QueryKind::Records(_) | QueryKind::SignedRecords(_) | QueryKind::Resolve(_) => OPCODE_QUERY,
            QueryKind::Notify => OPCODE_NOTIFY,
        }
    }

    fn qtype(self) -> Rtype {
        match self {
            QueryKind::Soa | QueryKind::Notify => Rtype::SOA,
            QueryKind::Axfr => Rtype::AXFR,
            QueryKind::Records(rtype) | QueryKind::SignedRecords(rtype) | QueryKind::Resolve(rtype) => rtype,
            QueryKind::Ixfr(_) => Rtype::IXFR,
        }
    }
}

/// The reason why a reply is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyError {
    /// The reply belongs to another query. Over UDP, the right one may follow.
    Unrelated,
    /// The server has refused the query.
    Refused(u8),
    /// The signature is not accepted.
    Signature(SignatureError),
    /// The reply is malformed, or has forbidden contents.
    Malformed(&'static str),
}

impl fmt::Display for ReplyError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplyError::Unrelated => write!(out, "it sends the reply to another query"),
            ReplyError::Refused(rcode) => match RCODES.get(usize::from(*rcode)) {
                Some(name) => write!(out, "it answers {name}"),
                None => write!(out, "it answers with RCODE {rcode}"),
            },
            ReplyError::Signature(error @ SignatureError::Refused(_)) => {
                write!(out, "it refuses the signature: {error}")
            }
            ReplyError::Signature(error) => write!(out, "it sends {error}"),
            ReplyError::Malformed(problem) => write!(out, "it sends a malformed reply: {problem}"),
        }
    }
}

/// The fields of a SOA that concern secondary servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SoaTimers {
    /// The zone's version.
    pub serial: u32,
    /// Seconds until a secondary looks whether there is a later version.
    pub refresh_s: u32,
    /// Seconds until it tries again.
    pub retry_s: u32,
    /// Seconds after which it no longer answers.
    pub expire_s: u32,
}

impl SoaTimers {
    /// The timers in this SOA RDATA, whose names are not compressed.
    pub(crate) fn of_rdata(rdata: &[u8]) -> Option<SoaTimers> {
        let numbers = rdata.len().checked_sub(20).map(|at| &rdata[at..])?;
        let number = |index: usize| numbers[4 * index..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        Some(SoaTimers { serial: number(0), refresh_s: number(1), retry_s: number(2), expire_s: number(3) })
    }
}

/// Makes the query of `kind` for the zone or the records at `name`, signed with `key`. The returned value reads the
/// replies.
pub fn query(
    kind: QueryKind,
    name: Name<'_>,
    id: u16,
    key: Option<&TsigKey>,
    now_unix_s: u64,
) -> (Vec<u8>, ReplyReader) {
    let mut message = Vec::with_capacity(512);
    message.extend_from_slice(&id.to_be_bytes());
    // RFC 1996 §3.7: the AA of a NOTIFY is set.
    let authoritative = if kind == QueryKind::Notify { AUTHORITATIVE } else { 0 };
    let wants_signatures = matches!(kind, QueryKind::SignedRecords(_));
    let has_edns = wants_signatures || matches!(kind, QueryKind::Records(_) | QueryKind::Resolve(_));
    let recursion_desired = if matches!(kind, QueryKind::Resolve(_)) { RECURSION_DESIRED } else { 0 };
    let counts = [0, 1, 0, 0, 0, 0, 0, u8::from(has_edns)];
    message.extend_from_slice(&[kind.opcode() << OPCODE_SHIFT | authoritative | recursion_desired, 0]);
    message.extend_from_slice(&counts);
    message.extend_from_slice(name.as_bytes());
    message.extend_from_slice(&kind.qtype().0.to_be_bytes());
    message.extend_from_slice(&CLASS_IN.to_be_bytes());
    if has_edns {
        message.push(0);
        message.extend_from_slice(&Rtype::OPT.0.to_be_bytes());
        message.extend_from_slice(&EDNS_PAYLOAD_BYTES.to_be_bytes());
        message.extend_from_slice(&[0, 0, if wants_signatures { DNSSEC_OK } else { 0 }, 0, 0, 0]);
    }
    if let QueryKind::Ixfr(serial) = kind {
        message[9] = 1;
        put_version(&mut message, serial);
    }
    let verifier = key.map(|key| key.sign_query(&mut message, now_unix_s));
    (message, ReplyReader { kind, name: name.to_lowercase(), id, verifier, is_first: true })
}

/// Appends the SOA of the sender's version (RFC 1995 §3). Servers look only at its serial.
fn put_version(message: &mut Vec<u8>, serial: u32) {
    const NAMES: [u8; 2] = [0, 0];
    let mut rdata = NAMES.to_vec();
    rdata.extend_from_slice(&serial.to_be_bytes());
    rdata.resize(rdata.len() + 4 * size_of::<u32>(), 0);
    // A pointer to the question's name.
    message.extend_from_slice(&[0xc0, HEADER_BYTES as u8]);
    message.extend_from_slice(&Rtype::SOA.0.to_be_bytes());
    message.extend_from_slice(&CLASS_IN.to_be_bytes());
    message.extend_from_slice(&[0; 4]);
    message.extend_from_slice(&(rdata.len() as u16).to_be_bytes());
    message.extend_from_slice(&rdata);
}

/// Reads the replies to one query.
#[derive(Clone, Debug)]
pub struct ReplyReader {
    kind: QueryKind,
    name: NameBuf,
    id: u16,
    verifier: Option<ReplyVerifier>,
    is_first: bool,
}

impl ReplyReader {
    /// The name of the zone, or that of the records, in lower case.
    pub fn name(&self) -> Name<'_> {
        self.name.as_name()
    }

    /// Reads the next reply.
    ///
    /// # Errors
    /// Returns an error if the reply is not accepted.
    pub fn read<'m>(&mut self, message: &'m [u8], now_unix_s: u64) -> Result<Reply<'m>, ReplyError> {
        let header = Header::parse(message).ok_or(ReplyError::Malformed("it is too short"))?;
        if !header.is_response() || header.opcode() != self.kind.opcode() || message[..2] != self.id.to_be_bytes() {
            return Err(ReplyError::Unrelated);
        }
        let at = self.read_question(header, message)?;
        let [answer_count, authority_count, additional_count] = [1, 2, 3].map(|section| header.record_count(section));
        let reply = Reply { message, start: at, answer_count, authority_count, additional_count };
        self.check_signature(header, message, &reply, now_unix_s)?;
        match message[3] & 0x0f {
            0 => {}
            rcode => return Err(ReplyError::Refused(rcode)),
        }
        self.is_first = false;
        Ok(reply)
    }

    /// Whether the signatures so far cover all messages.
    pub(crate) fn is_complete(&self) -> bool {
        self.verifier.as_ref().is_none_or(ReplyVerifier::is_complete)
    }

    /// The offset after the question, which later messages of a transfer may not have (RFC 5936 §2.2.2).
    fn read_question(&self, header: Header<'_>, message: &[u8]) -> Result<usize, ReplyError> {
        const MALFORMED: ReplyError = ReplyError::Malformed("the question is truncated");
        match header.record_count(0) {
            // A server that cannot read the query may leave the question out.
            0 if !self.is_first || message[3] & 0x0f != 0 => return Ok(HEADER_BYTES),
            1 => {}
            _ => return Err(ReplyError::Unrelated),
        }
        let (name, at) = read_name(message, HEADER_BYTES).map_err(|_| MALFORMED)?;
        let tail = message.get(at..at + QUESTION_TAIL_BYTES).ok_or(MALFORMED)?;
        let is_same = name.as_name().eq_ignore_case(self.name())
            && tail[..2] == self.kind.qtype().0.to_be_bytes()
            && tail[2..] == CLASS_IN.to_be_bytes();
        if is_same { Ok(at + QUESTION_TAIL_BYTES) } else { Err(ReplyError::Unrelated) }
    }

    /// Checks the signature, and that all records can be read.
    fn check_signature(
        &mut self,
        header: Header<'_>,
        message: &[u8],
        reply: &Reply<'_>,
        now_unix_s: u64,
    ) -> Result<(), ReplyError> {
        const MALFORMED: ReplyError = ReplyError::Malformed("a record is truncated");
        let mut at = reply.start;
        let counts = [1, 2, 3].map(|section| header.record_count(section));
        let count = counts.iter().map(|&count| u32::from(count)).sum::<u32>();
        let mut tsig: Option<(Tsig<'_>, usize)> = None;
        for _ in 0..count {
            let record = MessageRecord::parse(message, at).map_err(|_| MALFORMED)?;
            // RFC 8945 §5.1: the TSIG record is the last one.
            if tsig.is_some() {
                return Err(ReplyError::Malformed("a record follows the signature"));
            }
            if record.rtype() == Rtype::TSIG {
                tsig = Some((record.tsig().ok_or(ReplyError::Malformed("the TSIG record is malformed"))?, at));
            }
            at = record.end;
        }
        match &mut self.verifier {
            Some(verifier) => verifier.verify(message, tsig, now_unix_s).map_err(ReplyError::Signature),
            None => Ok(()),
        }
    }
}

/// An accepted reply.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'m> {
    message: &'m [u8],
    /// The first record's offset.
    start: usize,
    answer_count: u16,
    authority_count: u16,
    additional_count: u16,
}

/// The name servers of a zone as its parent zone has them.
#[derive(Clone, Debug, Default)]
pub struct Referral {
    /// Their names, in lower case.
    pub servers: Vec<NameBuf>,
    /// The addresses of some of them, for which there are no others: RDATA of A and AAAA records.
    pub glue: Vec<(NameBuf, Vec<u8>)>,
}

impl<'m> Reply<'m> {
    /// Whether it is truncated, so that the query must be sent over TCP.
    pub fn is_truncated(&self) -> bool {
        self.message[2] & TRUNCATED != 0
    }

    /// Whether the server is responsible for the answer's zone.
    pub fn is_authoritative(&self) -> bool {
        self.message[2] & AUTHORITATIVE != 0
    }

    /// The RDATA of the records of `rtype` at `owner`, with their names written out.
    ///
    /// # Errors
    /// Returns an error if a record is malformed.
    pub fn records(&self, owner: Name<'_>, rtype: Rtype) -> Result<Vec<Vec<u8>>, ReplyError> {
        let mut found = Vec::new();
        for record in self.answers() {
            let record = record?;
            if record.rtype() == rtype && record.owner.as_name().eq_ignore_case(owner) {
                let mut rdata = Vec::new();
                put_rdata(self.message, &record, &mut rdata)?;
                found.push(rdata);
            }
        }
        Ok(found)
    }

    /// The time for which this answer about the records of `rtype` at `owner` may be kept: the TTL of the records or,
    /// if there are none, of the denial (RFC 2308 §5). `None` if the reply does not say.
    ///
    /// # Errors
    /// Returns an error if a record is malformed.
    pub fn ttl_s(&self, owner: Name<'_>, rtype: Rtype) -> Result<Option<u32>, ReplyError> {
        for record in self.answers() {
            let record = record?;
            if record.rtype() == rtype && record.owner.as_name().eq_ignore_case(owner) {
                return Ok(Some(record.ttl_s()));
            }
        }
        for record in self.records_from(self.start, self.answer_count.saturating_add(self.authority_count)) {
            let record = record?;
            if record.rtype() == Rtype::SOA {
                let minimum = record.rdata.last_chunk().map(|bytes| u32::from_be_bytes(*bytes));
                return Ok(minimum.map(|minimum| minimum.min(record.ttl_s())));
            }
        }
        Ok(None)
    }

    /// The records of `rtype` that `owner` leads to, through the answer's CNAME records if any, and the time for which
    /// they may be kept: the lowest TTL on the way, as in [`Reply::ttl_s`].
    ///
    /// # Errors
    /// Returns an error if a record is malformed, or there are too many CNAME records.
    pub fn resolved(&self, owner: Name<'_>, rtype: Rtype) -> Result<(Vec<Vec<u8>>, Option<u32>), ReplyError> {
        let mut name = owner.to_owned();
        let mut chain_ttl_s = u32::MAX;
        for _ in 0..=CNAME_CHAIN_MAX {
            let records = self.records(name.as_name(), rtype)?;
            let target = match records.is_empty() {
                true => self.records(name.as_name(), Rtype::CNAME)?.into_iter().next(),
                false => None,
            };
            let Some(target) = target else {
                let ttl_s = self.ttl_s(name.as_name(), rtype)?.map(|ttl_s| ttl_s.min(chain_ttl_s));
                return Ok((records, ttl_s));
            };
            chain_ttl_s = chain_ttl_s.min(self.ttl_s(name.as_name(), Rtype::CNAME)?.unwrap_or(0));
            name = Name::parse(&target).map_err(|_| ReplyError::Malformed("a CNAME record is malformed"))?.to_owned();
        }
        Err(ReplyError::Malformed("it has too many CNAME records"))
    }

    /// Whether the server refers to the name servers of a zone below `apex` that has `name` (RFC 1034 §4.3.2).
    ///
    /// # Errors
    /// Returns an error if a record is malformed.
    pub fn is_referral(&self, name: Name<'_>, apex: Name<'_>) -> Result<bool, ReplyError> {
        if self.is_authoritative() || self.answer_count > 0 {
            return Ok(false);
        }
        for record in self.records_from(self.start, self.authority_count) {
            let record = record?;
            let owner = record.owner.as_name();
            let is_below = owner.is_at_or_below(apex) && !owner.eq_ignore_case(apex);
            if record.rtype() == Rtype::NS && is_below && name.is_at_or_below(owner) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The name servers to which the server of a parent zone refers for the zone at `apex` (RFC 1034 §4.3.2); `None` if
    /// it does not refer to any.
    ///
    /// # Errors
    /// A record is malformed.
    pub fn referral(&self, apex: Name<'_>) -> Result<Option<Referral>, ReplyError> {
        if self.is_authoritative() || self.answer_count > 0 {
            return Ok(None);
        }
        let mut referral = Referral::default();
        for record in self.records_from(self.start, self.authority_count.saturating_add(self.additional_count)) {
            let record = record?;
            let owner = record.owner.as_name();
            let mut rdata = Vec::new();
            match record.rtype() {
                Rtype::NS if owner.eq_ignore_case(apex) => {
                    put_rdata(self.message, &record, &mut rdata)?;
                    let server = Name::parse(&rdata).map_err(|_| ReplyError::Malformed("a NS record is malformed"))?;
                    referral.servers.push(server.to_lowercase());
                }
                Rtype::A | Rtype::AAAA => {
                    put_rdata(self.message, &record, &mut rdata)?;
                    referral.glue.push((owner.to_lowercase(), rdata));
                }
                _ => {}
            }
        }
        Ok((!referral.servers.is_empty()).then_some(referral))
    }

    /// The SOA of the zone at `apex` that the reply has.
    ///
    /// # Errors
    /// Returns an error if the reply has no SOA record, or the server is not responsible for the zone.
    pub fn soa(&self, apex: Name<'_>) -> Result<SoaTimers, ReplyError> {
        if !self.is_authoritative() {
            return Err(ReplyError::Malformed("the server is not authoritative for the zone"));
        }
        let mut rdata = Vec::new();
        for record in self.answers() {
            let record = record?;
            if record.rtype() == Rtype::SOA && record.owner.as_name().eq_ignore_case(apex) {
                put_rdata(self.message, &record, &mut rdata)?;
                return SoaTimers::of_rdata(&rdata).ok_or(ReplyError::Malformed("the SOA is malformed"));
            }
        }
        Err(ReplyError::Malformed("the reply has no SOA record"))
    }

    /// The records of the answer section.
    pub(crate) fn answers(&self) -> impl Iterator<Item = Result<MessageRecord<'m>, ReplyError>> {
        self.records_from(self.start, self.answer_count)
    }

    fn records_from(
        &self,
        mut at: usize,
        count: u16,
    ) -> impl Iterator<Item = Result<MessageRecord<'m>, ReplyError>> + use<'m> {
        let message = self.message;
        (0..count).map(move |_| {
            let record =
                MessageRecord::parse(message, at).map_err(|_| ReplyError::Malformed("a record is truncated"))?;
            at = record.end;
            Ok(record)
        })
    }
}

/// Appends the RDATA of `record` of `message` to `out`, with its names written out.
///
/// # Errors
/// Returns an error if the RDATA does not have the form of its type.
pub(crate) fn put_rdata(message: &[u8], record: &MessageRecord<'_>, out: &mut Vec<u8>) -> Result<(), ReplyError> {
    const MALFORMED: ReplyError = ReplyError::Malformed("a record is malformed for its type");
    let Some(fields) = fields(record.rtype()) else {
        out.extend_from_slice(record.rdata);
        return Ok(());
    };
    let start = record.end - record.rdata.len();
    let mut at = 0;
    for field in fields {
        let end = match field.kind {
            // Only types of RFC 1035 may be compressed, but others were (RFC 3597 §4).
            FieldKind::Name => {
                let (name, end) = read_name(message, start + at).map_err(|_| MALFORMED)?;
                out.extend_from_slice(name.as_name().as_bytes());
                end.checked_sub(start).filter(|end| *end <= record.rdata.len()).ok_or(MALFORMED)?
            }
            kind => {
                let end = field_end(kind, record.rdata, at).map_err(|_| MALFORMED)?;
                out.extend_from_slice(&record.rdata[at..end]);
                end
            }
        };
        at = end;
    }
    if at == record.rdata.len() { Ok(()) } else { Err(MALFORMED) }
}

//! Zone transfers out: AXFR (RFC 5936), and IXFR (RFC 1995) with the changes of the journal or, if it does not go back
//! so far, the whole zone.
//!
//! ```text
//! ParsedQuery → TransferRequest → verify → refuse, put_soa, put_changes, or begin → ZoneTransfer → write, message by message
//! ```

use crate::messages::message::Rcode;
use crate::messages::query::ParsedQuery;
use crate::messages::question::{Edns, client_serial};
use crate::messages::tsig::{ReplySigner, TsigError, TsigKey, append_unsigned};
use crate::text::name::Name;
use crate::text::rtype::Rtype;
use crate::zones::journal::{WireRecord, is_later};
use crate::zones::layout::NodeIndex;
use crate::zones::packed_rrset::{AnswerRecord, HEADER_BYTES, OPT_BYTES, RdataPart, compressed_names};
use crate::zones::zone::{FoundRrset, Zone};
use crate::zones::zone_walk::{Position, Visit};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Bytes of the longest message.
const MESSAGE_BYTES_MAX: usize = 65_535;
/// Offsets that a compression pointer reaches.
const POINTER_REACH_BYTES: usize = 1 << 14;
/// Names of one message that later ones are compressed against; a power of two.
const NAME_SLOTS: usize = 1024;
/// QR and AA.
const FLAGS: u8 = 0x84;
/// RD, which is copied.
const RECURSION_DESIRED: u8 = 0x01;
/// The payload size that the OPT announces, which concerns only UDP.
const PAYLOAD_BYTES: u16 = 1_232;
/// Bytes of a reply over UDP that every client takes (RFC 1035 §4.2.1).
const UDP_REPLY_BYTES: u16 = 512;

/// The reason why a transfer is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// REFUSED: no rule allows it.
    NotAllowed,
    /// SERVFAIL: the server has no good version of the zone, or too many transfers.
    Unavailable,
    /// NOTAUTH: the server does not have the zone.
    NotAuthoritative,
    /// FORMERR: an IXFR query without the client's SOA.
    Malformed,
    /// The signature is not accepted.
    Tsig(TsigError),
}

/// A query for a transfer.
#[derive(Debug)]
pub struct TransferRequest<'z, 'q> {
    query: ParsedQuery<'z, 'q>,
    signer: Option<ReplySigner>,
}

impl<'z, 'q> TransferRequest<'z, 'q> {
    /// The transfer request in `query`; `None` if it is not a transfer request.
    pub fn new(query: &ParsedQuery<'z, 'q>) -> Option<TransferRequest<'z, 'q>> {
        query.is_for_transfer().then_some(TransferRequest { query: *query, signer: None })
    }

    /// The zone's name.
    pub fn apex(&self) -> Name<'q> {
        self.query.question.qname
    }

    /// Checks the signature, if there is one. After this, replies are signed.
    ///
    /// # Errors
    /// Returns an error if the signature is not accepted.
    pub fn verify(&mut self, keys: &[TsigKey], now_unix_s: u64) -> Result<(), TsigError> {
        let Some((tsig, offset)) = self.query.tsig() else { return Ok(()) };
        let (result, signer) = tsig.verify(self.query.message, offset, keys, now_unix_s);
        self.signer = signer;
        result
    }

    /// The name of the key of an accepted signature, in lower case.
    pub fn key(&self) -> Option<Name<'_>> {
        self.signer.as_ref().map(|signer| signer.key().name())
    }

    /// Whether the client asks only for changes, and has the version of `zone` or a later one.
    ///
    /// # Errors
    /// Returns an error if the query does not have the client's version.
    pub fn is_up_to_date(&self, zone: &Zone) -> Result<bool, Refusal> {
        if !self.is_incremental() {
            return Ok(false);
        }
        let serial = client_serial(self.query.message, &self.query.question).ok_or(Refusal::Malformed)?;
        Ok(!is_later(zone.serial(), serial))
    }

    /// Whether the query is for IXFR.
    pub fn is_incremental(&self) -> bool {
        self.query.question.qtype == Rtype::IXFR
    }

    /// Writes the reply that the client is up to date, or must ask over TCP: only the SOA (RFC 1995 §4). Returns the
    /// reply's length; `None` if it does not fit.
    pub fn put_soa(mut self, zone: &Zone, now_unix_s: u64, out: &mut [u8]) -> Option<usize> {
        let mut writer = MessageWriter::start(out, &self.query, 0);
        let (soa, record) = zone.soa();
        let mut names = NameSlots::new();
        writer.put(&soa, &record, &mut names).ok()?;
        let length_bytes = writer.finish(Rcode::NoError, self.query.question.edns)?;
        match &mut self.signer {
            Some(signer) => signer.sign(out, length_bytes, now_unix_s),
            None => Some(length_bytes),
        }
    }

    /// Writes a refusal; its length, or `None` if it does not fit.
    pub fn refuse(mut self, refusal: Refusal, now_unix_s: u64, out: &mut [u8]) -> Option<usize> {
        let rcode = match refusal {
            Refusal::NotAllowed => Rcode::Refused,
            Refusal::Unavailable => Rcode::ServFail,
            Refusal::Malformed | Refusal::Tsig(TsigError::Malformed) => Rcode::FormErr,
            Refusal::NotAuthoritative | Refusal::Tsig(_) => Rcode::NotAuth,
        };
        let mut writer = MessageWriter::start(out, &self.query, 0);
        writer.is_authoritative = false;
        let length_bytes = writer.finish(rcode, self.query.question.edns)?;
        match (&mut self.signer, refusal, self.query.tsig()) {
            (Some(signer), ..) => signer.sign(out, length_bytes, now_unix_s),
            (None, Refusal::Tsig(error @ (TsigError::BadKey | TsigError::BadSig)), Some((tsig, _))) => {
                Some(append_unsigned(out, length_bytes, &tsig, error))
            }
            _ => Some(length_bytes),
        }
    }

    /// Writes the answer with the changes since the version of the client into one message, as UDP needs it; the
    /// request if the answer is longer than the client takes, or the journal does not go back so far.
    pub fn put_changes(
        self,
        zone: &Zone,
        now_unix_s: u64,
        out: &mut [u8],
    ) -> Result<usize, Box<TransferRequest<'z, 'q>>> {
        let query = self.query;
        let payload_bytes = query.question.edns.map_or(UDP_REPLY_BYTES, |edns| edns.payload_bytes.max(UDP_REPLY_BYTES));
        let limit = out.len().min(usize::from(payload_bytes.min(PAYLOAD_BYTES)));
        let mut transfer = self.begin(zone);
        if transfer.is_incremental()
            && let Ok(length_bytes) = transfer.put_message(zone, &mut out[..limit])
            && transfer.next == Next::Nothing
            && let Ok(length_bytes) = transfer.sign(length_bytes, now_unix_s, &mut out[..limit])
        {
            return Ok(length_bytes);
        }
        Err(Box::new(TransferRequest { query, signer: transfer.signer }))
    }

    /// Begins the transfer: of the changes since the client's version, if it asks for them and the journal has them, or
    /// else of the whole zone.
    pub fn begin(self, zone: &Zone) -> ZoneTransfer {
        let ParsedQuery { message, question, .. } = self.query;
        let serial = if self.is_incremental() { client_serial(message, &question) } else { None };
        let change_index = serial.and_then(|serial| zone.journal().index_of(serial));
        ZoneTransfer {
            next: change_index.map_or(Next::Record(Position::Start), Next::FirstSoa),
            signer: self.signer,
            start: message[..HEADER_BYTES + question.section_bytes()].into(),
            edns: question.edns,
            names: Box::new(NameSlots::new()),
        }
    }
}

/// The next part of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Record(Position),
    /// The SOA that comes before the changes, and the index of the first one.
    FirstSoa(usize),
    /// The record at this offset of a change.
    Change {
        index: usize,
        at: usize,
    },
    /// The SOA with which it ends.
    LastSoa,
    Nothing,
}

/// A transfer in progress. The transfer holds no part of the zone.
#[derive(Debug)]
pub struct ZoneTransfer {
    next: Next,
    signer: Option<ReplySigner>,
    /// Header and question of the query.
    start: Vec<u8>,
    /// Of the first message.
    edns: Option<Edns>,
    names: Box<NameSlots>,
}

impl ZoneTransfer {
    /// Writes the next message, which is as long as possible, to `out` of 65,535 bytes; its length, or `None` after the
    /// last one. Each call is for the same zone.
    ///
    /// # Errors
    /// Returns an error if a record does not fit into a message.
    pub fn write(&mut self, zone: &Zone, now_unix_s: u64, out: &mut [u8]) -> Result<Option<usize>, RecordTooLong> {
        if self.next == Next::Nothing {
            return Ok(None);
        }
        let length_bytes = self.put_message(zone, out)?;
        self.sign(length_bytes, now_unix_s, out).map(Some)
    }

    /// Whether the transfer has changes instead of the whole zone. Call this before the first message is written.
    pub fn is_incremental(&self) -> bool {
        matches!(self.next, Next::FirstSoa(_))
    }

    /// Writes the next message without its signature; its length.
    fn put_message(&mut self, zone: &Zone, out: &mut [u8]) -> Result<usize, RecordTooLong> {
        let signature_bytes = self.signer.as_ref().map_or(0, ReplySigner::record_bytes);
        self.names.clear();
        let mut writer = MessageWriter::with_start(&mut *out, &self.start, signature_bytes);
        writer.set_apex(zone.apex());
        if let Next::Record(position) = &mut self.next {
            let names = &mut *self.names;
            position.walk(zone, |found, record| match writer.put(found, record, names) {
                Ok(()) => Visit::Next,
                Err(Full) => Visit::Stop,
            });
            if *position == Position::End {
                self.next = Next::LastSoa;
            }
        }
        if let Next::FirstSoa(index) = self.next {
            let (soa, record) = zone.soa();
            if writer.put(&soa, &record, &mut self.names).is_ok() {
                self.next = Next::Change { index, at: 0 };
            }
        }
        while let Next::Change { index, at } = self.next {
            let Some(change) = zone.journal().change(index) else {
                self.next = Next::LastSoa;
                break;
            };
            self.next = match change.record_at(at) {
                Some(record) if writer.put_wire(&record, &mut self.names).is_err() => break,
                Some(record) => Next::Change { index, at: at + record.length_bytes },
                None => Next::Change { index: index + 1, at: 0 },
            };
        }
        if self.next == Next::LastSoa {
            let (soa, record) = zone.soa();
            if writer.put(&soa, &record, &mut self.names).is_ok() {
                self.next = Next::Nothing;
            }
        }
        if writer.record_count == 0 {
            return Err(RecordTooLong);
        }
        writer.finish(Rcode::NoError, self.edns.take()).ok_or(RecordTooLong)
    }

    fn sign(&mut self, length_bytes: usize, now_unix_s: u64, out: &mut [u8]) -> Result<usize, RecordTooLong> {
        match &mut self.signer {
            Some(signer) => signer.sign(out, length_bytes, now_unix_s).ok_or(RecordTooLong),
            None => Ok(length_bytes),
        }
    }

    /// Bytes of memory that the transfer takes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<ZoneTransfer>() + size_of::<NameSlots>() + self.start.capacity()
    }
}

/// A record does not fit into a message with question and signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordTooLong;

/// The message is full.
struct Full;

/// Offsets of names in a message, by a hash. A name may replace another one.
#[derive(Debug)]
struct NameSlots([u16; NAME_SLOTS]);

impl NameSlots {
    fn new() -> NameSlots {
        NameSlots([0; NAME_SLOTS])
    }

    fn clear(&mut self) {
        self.0.fill(0);
    }
}

/// The slot of `name`, ignoring case.
#[inline]
fn slot_of(name: Name<'_>) -> usize {
    // FNV-1a: a client cannot choose the names, and a collision costs only compression.
    let step = |hash: u32, &byte: &u8| (hash ^ u32::from(byte | 0x20)).wrapping_mul(0x0100_0193);
    let hash = name.as_bytes().iter().fold(0x811c_9dc5, step);
    (hash ^ hash >> 16) as usize % NAME_SLOTS
}

/// Writes the records of one message.
struct MessageWriter<'o> {
    out: &'o mut [u8],
    at: usize,
    limit: usize,
    record_count: u16,
    is_authoritative: bool,
    /// The apex, if it is written at `HEADER_BYTES`.
    apex: Option<Name<'o>>,
    /// Bytes of the name that the question has.
    qname_bytes: usize,
    /// The last record's owner, and its offset.
    last_owner: Option<(NodeIndex, usize)>,
}

impl<'o> MessageWriter<'o> {
    /// Starts a reply to `query` that leaves `reserved_bytes`.
    fn start(out: &'o mut [u8], query: &ParsedQuery<'_, '_>, reserved_bytes: usize) -> MessageWriter<'o> {
        let end = HEADER_BYTES + query.question.section_bytes();
        MessageWriter::with_start(out, &query.message[..end], reserved_bytes)
    }

    /// Starts a reply to the query that begins with header and question `start`.
    fn with_start(out: &'o mut [u8], start: &[u8], reserved_bytes: usize) -> MessageWriter<'o> {
        out[..start.len()].copy_from_slice(start);
        let limit = out.len().min(MESSAGE_BYTES_MAX).saturating_sub(reserved_bytes + OPT_BYTES);
        let qname_bytes = start.len() - HEADER_BYTES - 4;
        let (at, is_authoritative) = (start.len(), true);
        MessageWriter { out, at, limit, record_count: 0, is_authoritative, apex: None, qname_bytes, last_owner: None }
    }

    /// Names are compressed against the question if it has the apex in the same case as the zone.
    fn set_apex(&mut self, apex: Name<'o>) {
        let is_same = self.out[HEADER_BYTES..HEADER_BYTES + self.qname_bytes] == *apex.as_bytes();
        self.apex = is_same.then_some(apex);
    }

    /// Appends a record. Nothing is written if it does not fit.
    #[inline]
    fn put(&mut self, found: &FoundRrset<'_>, record: &AnswerRecord<'_>, names: &mut NameSlots) -> Result<(), Full> {
        let (start, owner_before) = (self.at, self.last_owner);
        let is_whole = self.put_parts(found, record, names).is_ok();
        self.after_record(is_whole, start, owner_before)
    }

    /// Appends a record of a change.
    fn put_wire(&mut self, record: &WireRecord<'_>, names: &mut NameSlots) -> Result<(), Full> {
        let start = self.at;
        let is_whole = self.put_wire_parts(record, names).is_ok();
        self.after_record(is_whole, start, None)
    }

    /// Counts a record if it `is_whole`, and otherwise removes it; also removes a record that cannot be counted.
    #[inline]
    fn after_record(
        &mut self,
        is_whole: bool,
        start: usize,
        owner_before: Option<(NodeIndex, usize)>,
    ) -> Result<(), Full> {
        if is_whole && self.record_count < u16::MAX {
            self.record_count += 1;
            return Ok(());
        }
        (self.at, self.last_owner) = (start, owner_before);
        Err(Full)
    }

    #[inline]
    fn put_parts(
        &mut self,
        found: &FoundRrset<'_>,
        record: &AnswerRecord<'_>,
        names: &mut NameSlots,
    ) -> Result<(), Full> {
        match self.last_owner {
            Some((node, offset)) if node == found.node => self.put_pointer(offset)?,
            _ => {
                let offset = self.at;
                self.put_name(found.owner, names)?;
                self.last_owner = (offset < POINTER_REACH_BYTES).then_some((found.node, offset));
            }
        }
        if !record.has_names() {
            return self.put_bytes(record.after_owner);
        }
        self.put_bytes(&record.fixed[..8])?;
        let length_offset = self.at;
        self.put_bytes(&[0; 2])?;
        let records = found.rrset.records(found.owner);
        records.each_part(record.rtype, record.rdata_start..record.end, |part| match part {
            RdataPart::Bytes(bytes) => self.put_bytes(bytes),
            RdataPart::Name(name) => self.put_name(name, names),
        })?;
        let length = (self.at - length_offset - 2) as u16;
        self.out[length_offset..length_offset + 2].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }

    fn put_wire_parts(&mut self, record: &WireRecord<'_>, names: &mut NameSlots) -> Result<(), Full> {
        self.last_owner = None;
        self.put_name(record.owner, names)?;
        let (prefix, name_count) = compressed_names(record.rtype);
        self.put_bytes(&record.fixed[..8])?;
        let length_offset = self.at;
        self.put_bytes(&[0; 2])?;
        let (before_names, mut rest) = record.rdata.split_at(if name_count == 0 { 0 } else { prefix });
        self.put_bytes(before_names)?;
        for _ in 0..name_count {
            let name = Name::parse(rest).expect("checked when the change was made");
            self.put_name(name, names)?;
            rest = &rest[name.length_bytes()..];
        }
        self.put_bytes(rest)?;
        let length = (self.at - length_offset - 2) as u16;
        self.out[length_offset..length_offset + 2].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }

    /// Appends `name`, compressed against earlier names.
    fn put_name(&mut self, name: Name<'_>, names: &mut NameSlots) -> Result<(), Full> {
        let mut rest = name;
        while let Some(parent) = rest.parent() {
            if self.apex.is_some_and(|apex| apex.as_bytes() == rest.as_bytes()) {
                return self.put_pointer(HEADER_BYTES);
            }
            let slot = slot_of(rest);
            let offset = usize::from(names.0[slot]);
            if offset != 0 && is_at(&self.out[..self.at], offset, rest) {
                return self.put_pointer(offset);
            }
            if self.at < POINTER_REACH_BYTES {
                names.0[slot] = self.at as u16;
            }
            self.put_bytes(&rest.as_bytes()[..rest.length_bytes() - parent.length_bytes()])?;
            rest = parent;
        }
        self.put_bytes(&[0])
    }

    fn put_pointer(&mut self, offset: usize) -> Result<(), Full> {
        self.put_bytes(&(0xc000 | offset as u16).to_be_bytes())
    }

    #[inline]
    fn put_bytes(&mut self, bytes: &[u8]) -> Result<(), Full> {
        let end = self.at + bytes.len();
        if end > self.limit {
            return Err(Full);
        }
        self.out[self.at..end].copy_from_slice(bytes);
        self.at = end;
        Ok(())
    }

    /// Completes header and OPT; the length, or `None` if there is no room.
    fn finish(self, rcode: Rcode, edns: Option<Edns>) -> Option<usize> {
        let mut end = self.at;
        if let Some(Edns { dnssec_ok, .. }) = edns {
            let [payload_high, payload_low] = PAYLOAD_BYTES.to_be_bytes();
            let flags_high = u8::from(dnssec_ok) << 7;
            let opt = [0, 0, Rtype::OPT.0 as u8, payload_high, payload_low, 0, 0, flags_high, 0, 0, 0];
            self.out.get_mut(end..end + OPT_BYTES)?.copy_from_slice(&opt);
            end += OPT_BYTES;
        }
        let authoritative = if self.is_authoritative { FLAGS } else { FLAGS & !0x04 };
        self.out[2] = self.out[2] & RECURSION_DESIRED | authoritative;
        self.out[3] = rcode as u8;
        self.out[4..6].copy_from_slice(&1u16.to_be_bytes());
        self.out[6..8].copy_from_slice(&self.record_count.to_be_bytes());
        self.out[8..10].fill(0);
        self.out[10..12].copy_from_slice(&u16::from(edns.is_some()).to_be_bytes());
        Some(end)
    }
}

/// Whether `name` is at `offset` of `message`, in the same case, which compression must preserve. Each pointer refers
/// to an earlier offset.
fn is_at(message: &[u8], offset: usize, name: Name<'_>) -> bool {
    let mut at = offset;
    let mut rest = name;
    loop {
        while message.get(at).is_some_and(|byte| byte & 0xc0 == 0xc0) && at + 1 < message.len() {
            at = usize::from(u16::from_be_bytes([message[at] & 0x3f, message[at + 1]]));
        }
        let label_bytes = 1 + usize::from(rest.as_bytes()[0]);
        if message.get(at..at + label_bytes) != Some(&rest.as_bytes()[..label_bytes]) {
            return false;
        }
        match rest.parent() {
            Some(parent) => (rest, at) = (parent, at + label_bytes),
            None => return true,
        }
    }
}

//! Writes a reply in wire form (RFC 1035 §4).

use crate::messages::compression::{NameOffsets, POINTER_REACH_BYTES};
use crate::messages::question::Edns;
use crate::text::name::{Name, NameBuf};
use crate::text::rtype::Rtype;
use crate::zones::packed_rrset::{
    CLASS_CH, CLASS_IN, HEADER_BYTES, OPT_BYTES, OwnerLocation, PackedRecord, PackedRecords, PackedRrset, RdataPart,
};
use crate::zones::zone::FoundRrset;

/// The RCODE of a reply (RFC 6895 §2.3).
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
    YxRrset = 7,
    NxRrset = 8,
    NotAuth = 9,
    NotZone = 10,
    BadVers = 16,
}

/// A section of a reply after the question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Answer = 0,
    Authority = 1,
    Additional = 2,
}

/// The reply is full: the record does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageFull;

/// Writes a reply into the caller's buffer, section by section, up to a limit.
#[derive(Debug)]
pub(crate) struct ReplyWriter<'o> {
    out: &'o mut [u8],
    at: usize,
    /// Bytes that the reply may have without its OPT.
    limit: usize,
    record_counts: [u16; 3],
    id: u16,
    flags: u16,
    /// The end of the question: a truncated reply ends here.
    sections_offset: usize,
}

const FLAG_RESPONSE: u16 = 0x8000;
const FLAG_AUTHORITATIVE: u16 = 0x0400;
const FLAG_TRUNCATED: u16 = 0x0200;
const FLAG_RECURSION_DESIRED: u16 = 0x0100;
/// The opcode and RD are copied from the query (RFC 1035 §4.1.1).
const FLAGS_COPIED: u16 = 0x7800 | FLAG_RECURSION_DESIRED;

impl<'o> ReplyWriter<'o> {
    /// Starts the reply to `query`, which has at least a header: copies its id and the first `question_bytes` bytes
    /// after its header.
    #[inline]
    pub(crate) fn start(out: &'o mut [u8], query: &[u8], question_bytes: usize, limit: usize) -> ReplyWriter<'o> {
        let at = HEADER_BYTES + question_bytes;
        out[HEADER_BYTES..at].copy_from_slice(&query[HEADER_BYTES..at]);
        let id = u16::from_be_bytes([query[0], query[1]]);
        let flags = u16::from_be_bytes([query[2], query[3]]) & FLAGS_COPIED | FLAG_RESPONSE;
        let limit = limit.min(out.len());
        ReplyWriter { out, at, limit, record_counts: [0; 3], id, flags, sections_offset: at }
    }

    pub(crate) fn set_authoritative(&mut self) {
        self.flags |= FLAG_AUTHORITATIVE;
    }

    /// Removes all sections after the question and sets TC (RFC 2181 §9).
    pub(crate) fn truncate(&mut self) {
        self.at = self.sections_offset;
        self.record_counts = [0; 3];
        self.flags |= FLAG_TRUNCATED;
    }

    /// Appends a packed RRset, whose owner in the zone is `owner_name`, for the owner at `owner`, with as much of its
    /// additional section as fits. No RRset may follow in the same section.
    // Inlined: most replies have one packed RRset.
    #[inline(always)]
    pub(crate) fn put_packed(
        &mut self,
        section: Section,
        (owner_name, rrset): (Name<'_>, &PackedRrset<'_>),
        owner: OwnerLocation,
    ) -> Result<(), MessageFull> {
        match self.put_bytes(rrset.all_bytes()) {
            Ok(at) => {
                rrset.shift_pointers(self.out, at, rrset.all_bytes().len(), owner);
                self.record_counts[section as usize] += rrset.answer_count;
                self.record_counts[Section::Additional as usize] += rrset.additional_count;
                Ok(())
            }
            Err(MessageFull) => self.put_packed_in_part(section, (owner_name, rrset), owner),
        }
    }

    /// [`ReplyWriter::put_packed`] when the whole additional section does not fit.
    #[cold]
    fn put_packed_in_part(
        &mut self,
        section: Section,
        (owner_name, rrset): (Name<'_>, &PackedRrset<'_>),
        owner: OwnerLocation,
    ) -> Result<(), MessageFull> {
        let prefix = rrset.prefix(owner_name, self.limit - self.at).ok_or(MessageFull)?;
        if let Some(host) = &prefix.omitted
            && is_required(section, owner_name, host.as_name())
        {
            return Err(MessageFull);
        }
        let at = self.put_bytes(&rrset.all_bytes()[..prefix.length_bytes])?;
        rrset.shift_pointers(self.out, at, prefix.length_bytes, owner);
        self.record_counts[section as usize] += rrset.answer_count;
        self.record_counts[Section::Additional as usize] += prefix.additional_count;
        Ok(())
    }

    /// Appends the records of `found` with `owner` as their owner, compressed against the names in `known`. The
    /// additional section is left out.
    pub(crate) fn put_compressed(
        &mut self,
        section: Section,
        found: &FoundRrset<'_>,
        owner: Name<'_>,
        known: &mut NameOffsets,
    ) -> Result<(), MessageFull> {
        let records = found.rrset.records(found.owner);
        for record in records.clone().take(usize::from(found.rrset.answer_count)) {
            self.put_record(section, owner, &record, &records, known)?;
        }
        Ok(())
    }

    /// Appends as much of the additional section of `found` as fits, compressed; `owner` is the owner of `found` in the
    /// reply. `section` is the section of `found`.
    pub(crate) fn put_compressed_additional(
        &mut self,
        section: Section,
        found: &FoundRrset<'_>,
        owner: Name<'_>,
        known: &mut NameOffsets,
    ) -> Result<(), MessageFull> {
        let records = found.rrset.records(found.owner);
        let mut rrset: Option<(NameBuf, Rtype)> = None;
        let mut before = (self.at, self.record_counts);
        for record in records.clone().skip(usize::from(found.rrset.answer_count)) {
            let is_same =
                |(name, rtype): &(NameBuf, Rtype)| *rtype == record.rtype && name.as_name() == record.owner.as_name();
            if !rrset.as_ref().is_some_and(is_same) {
                rrset = Some((record.owner, record.rtype));
                before = (self.at, self.record_counts);
            }
            let host = if record.is_of_owner { owner } else { record.owner.as_name() };
            if self.put_record(Section::Additional, host, &record, &records, known).is_err() {
                known.remove_from(before.0);
                (self.at, self.record_counts) = before;
                return if is_required(section, found.owner, host) { Err(MessageFull) } else { Ok(()) };
            }
        }
        Ok(())
    }

    /// Appends the records of `found`, whose owner is at or below the apex at `apex` and which have no names that may
    /// be compressed.
    pub(crate) fn put_below(
        &mut self,
        section: Section,
        found: &FoundRrset<'_>,
        apex: OwnerLocation,
    ) -> Result<(), MessageFull> {
        let labels = &found.owner.as_bytes()[..found.owner.length_bytes() - apex.length_bytes];
        let mut owner_offset = labels.is_empty().then_some(apex.offset);
        let mut end = 0;
        while let Some(record) = found.rrset.answer_record(end) {
            match owner_offset {
                Some(offset) => self.put_pointer(offset)?,
                None => {
                    let start = self.put_bytes(labels)?;
                    self.put_pointer(apex.offset)?;
                    owner_offset = Some(start).filter(|&start| start < POINTER_REACH_BYTES);
                }
            }
            self.put_bytes(record.after_owner)?;
            end = record.end;
        }
        self.record_counts[section as usize] += found.rrset.answer_count;
        Ok(())
    }

    fn put_pointer(&mut self, offset: usize) -> Result<(), MessageFull> {
        self.put_bytes(&(0xc000 | offset as u16).to_be_bytes()).map(|_| ())
    }

    fn put_record(
        &mut self,
        section: Section,
        owner: Name<'_>,
        record: &PackedRecord<'_>,
        records: &PackedRecords<'_>,
        known: &mut NameOffsets,
    ) -> Result<(), MessageFull> {
        self.put_name(owner, known)?;
        self.put_bytes(record.fixed)?;
        let length_offset = self.put_bytes(&[0, 0])?;
        records.each_part(record.rtype, record.rdata_start..record.rdata_end, |part| match part {
            RdataPart::Bytes(bytes) => self.put_bytes(bytes).map(|_| ()),
            RdataPart::Name(name) => self.put_name(name, known),
        })?;
        self.finish_record(section, length_offset);
        Ok(())
    }

    /// Appends the CNAME that a DNAME synthesizes for `owner` (RFC 6672 §3.1).
    pub(crate) fn put_synthesized_cname(
        &mut self,
        owner: Name<'_>,
        ttl: &[u8],
        target: Name<'_>,
        known: &mut NameOffsets,
    ) -> Result<(), MessageFull> {
        self.put_name(owner, known)?;
        self.put_bytes(&Rtype::CNAME.0.to_be_bytes())?;
        self.put_bytes(&CLASS_IN.to_be_bytes())?;
        self.put_bytes(ttl)?;
        let length_offset = self.put_bytes(&[0, 0])?;
        self.put_name(target, known)?;
        self.finish_record(Section::Answer, length_offset);
        Ok(())
    }

    /// Appends a TXT record of QNAME and the class CH with `text`, at most 255 bytes.
    pub(crate) fn put_identity(&mut self, text: &[u8]) -> Result<(), MessageFull> {
        self.put_bytes(&[0xc0, HEADER_BYTES as u8])?;
        self.put_bytes(&Rtype::TXT.0.to_be_bytes())?;
        self.put_bytes(&CLASS_CH.to_be_bytes())?;
        self.put_bytes(&[0; 4])?;
        let length_offset = self.put_bytes(&[0, 0])?;
        self.put_bytes(&[text.len() as u8])?;
        self.put_bytes(text)?;
        self.finish_record(Section::Answer, length_offset);
        Ok(())
    }

    /// Writes the length of the RDATA that ends here, and counts its record.
    fn finish_record(&mut self, section: Section, length_offset: usize) {
        let length = (self.at - length_offset - 2) as u16;
        self.out[length_offset..length_offset + 2].copy_from_slice(&length.to_be_bytes());
        self.record_counts[section as usize] += 1;
    }

    /// Appends `name`, compressed against the names in `known`, and adds it to them.
    fn put_name(&mut self, name: Name<'_>, known: &mut NameOffsets) -> Result<(), MessageFull> {
        let mut rest = name;
        while let Some(parent) = rest.parent() {
            if let Some(offset) = known.find(self.out, rest) {
                return self.put_pointer(offset);
            }
            let label_bytes = rest.length_bytes() - parent.length_bytes();
            let offset = self.put_bytes(&rest.as_bytes()[..label_bytes])?;
            known.add(offset, rest);
            rest = parent;
        }
        self.put_bytes(&[0]).map(|_| ())
    }

    /// Completes the reply with its header and, for a query with EDNS, an OPT. Returns its length.
    #[inline]
    pub(crate) fn finish(&mut self, rcode: Rcode, edns: Option<Edns>) -> usize {
        let [answer_count, authority_count, mut additional_count] = self.record_counts;
        let mut end = self.at;
        let rcode = rcode as u16;
        if let Some(Edns { payload_bytes, version, dnssec_ok, .. }) = edns {
            // RFC 6891 §6.1.3: the TTL of the OPT holds the upper eight bits of the RCODE.
            let [payload_high, payload_low] = payload_bytes.to_be_bytes();
            let (rcode_high, flags_high) = ((rcode >> 4) as u8, u8::from(dnssec_ok) << 7);
            let opt = [0, 0, Rtype::OPT.0 as u8, payload_high, payload_low, rcode_high, version, flags_high, 0, 0, 0];
            self.out[end..end + OPT_BYTES].copy_from_slice(&opt);
            end += OPT_BYTES;
            additional_count += 1;
        }
        let flags = self.flags | rcode & 0x0f;
        let question_count = u16::from(self.sections_offset != HEADER_BYTES);
        let fields = [self.id, flags, question_count, answer_count, authority_count, additional_count];
        let mut header = [0; HEADER_BYTES];
        for (bytes, field) in header.as_chunks_mut().0.iter_mut().zip(fields) {
            *bytes = field.to_be_bytes();
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

/// Whether the addresses of `host` must be in the additional section for an RRset of `owner` in `section`: glue below
/// the delegation point of a referral (RFC 9471 §3.1). Sibling glue and addresses with an answer are optional (RFC 9471
/// §3.2, RFC 2181 §9).
fn is_required(section: Section, owner: Name<'_>, host: Name<'_>) -> bool {
    section == Section::Authority && host.is_at_or_below(owner)
}

//! A packed RRset: the records of one RRset and of its additional section as the bytes of a reply, made when a zone is
//! loaded.
//!
//! The bytes are copied from the shortest reply that holds them: the owner is QNAME, at offset 12, and the records
//! follow the question. Names are compressed against the owner and against each other. If QNAME is the owner, the bytes
//! are copied unchanged. Below a wildcard or a delegation point QNAME is longer than the owner: the compression
//! pointers, whose offsets are stored, are shifted. After an alias, where the owner is not a suffix of QNAME, the
//! records are written with uncompressed names.
//!
//! ```text
//! owner at 12: 3www7example0   type class   c00c 0001 0001 ttl 0004 a.b.c.d   …
//!              └───────────┘                └── PackedRrset::bytes: the pointers are for offset 12 + owner + 4
//! ```

use crate::text::name::{NAME_BYTES_MAX, Name, NameBuf};
use crate::text::rtype::Rtype;
use alloc::vec::Vec;
use core::convert::Infallible;
use core::ops::Range;

/// Bytes of a message's header, and so the offset of QNAME (RFC 1035 §4.1.1).
pub(crate) const HEADER_BYTES: usize = 12;
/// Bytes of a question after QNAME: QTYPE and QCLASS.
pub(crate) const QUESTION_TAIL_BYTES: usize = 4;
/// Bytes of an OPT record without options, as replies carry it (RFC 6891 §6.1.2).
pub(crate) const OPT_BYTES: usize = 11;
/// Bytes of the longest reply without its records: header, question and OPT.
const OVERHEAD_BYTES_MAX: usize = HEADER_BYTES + NAME_BYTES_MAX + QUESTION_TAIL_BYTES + OPT_BYTES;
/// Bytes that a reply's records may have: a message has at most 65,535 (RFC 1035 §4.2.2).
const RECORDS_BYTES_MAX: usize = 65_535 - OVERHEAD_BYTES_MAX;
/// A compression pointer to QNAME.
const POINTER_TO_QNAME: u16 = POINTER | HEADER_BYTES as u16;
const POINTER: u16 = 0xc000;
/// The highest target of a stored pointer. The target is below the 2^14 that a pointer reaches, so that it can be
/// shifted.
const TARGET_MAX: usize = 0x2800;
/// Suffixes that one packed RRset compresses names against.
const KNOWN_SUFFIXES_MAX: usize = 64;
/// Bytes of a stored RRset before its list of pointers.
const STORED_HEADER_BYTES: usize = 10;
/// Bytes of a record between its owner and its RDATA: type, class, TTL, length.
pub(crate) const RECORD_FIXED_BYTES: usize = 10;
pub(crate) const CLASS_IN: u16 = 1;
pub(crate) const CLASS_CH: u16 = 3;

/// A packed RRset, borrowed from a zone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedRrset<'z> {
    /// Records of the RRset itself.
    pub(crate) answer_count: u16,
    /// Records of the additional section.
    pub(crate) additional_count: u16,
    /// Bytes of the RRset's records. The records of the additional section follow.
    answer_length: usize,
    /// Offsets of the compression pointers in `bytes`, each 16 bits.
    pointers: &'z [u8],
    bytes: &'z [u8],
}

/// The owner of a packed RRset in a reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnerLocation {
    /// The offset of the owner in the reply. The owner is QNAME or a suffix of it.
    pub(crate) offset: usize,
    /// Bytes of the owner's name in the zone.
    pub(crate) length_bytes: usize,
}

impl<'z> PackedRrset<'z> {
    /// The RRset at the start of `stored`.
    #[inline]
    pub(crate) fn read(stored: &'z [u8]) -> PackedRrset<'z> {
        let (header, rest) =
            stored.split_first_chunk::<STORED_HEADER_BYTES>().expect("stored by `RrsetPacker::finish`");
        let number = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let (answer_length, length) = (usize::from(number(4)), usize::from(number(6)));
        let (pointers, rest) = rest.split_at(2 * usize::from(number(8)));
        PackedRrset {
            answer_count: number(0),
            additional_count: number(2),
            answer_length,
            pointers,
            bytes: &rest[..length],
        }
    }

    /// Appends the RDATA of a record of the RRset of `owner`, with names that are not compressed.
    pub(crate) fn put_rdata(&self, owner: Name<'_>, record: &AnswerRecord<'_>, out: &mut Vec<u8>) {
        let put = |part: RdataPart<'_>| {
            out.extend_from_slice(match part {
                RdataPart::Bytes(bytes) => bytes,
                RdataPart::Name(ref name) => name.as_bytes(),
            });
            Ok::<(), Infallible>(())
        };
        let records = PackedRecords { owner, bytes: self.bytes, at: 0 };
        let Ok(()) = records.each_part(record.rtype, record.rdata_start..record.end, put);
    }

    /// Bytes of the RRset at the start of `stored`.
    pub(crate) fn stored_bytes(stored: &[u8]) -> usize {
        let rrset = PackedRrset::read(stored);
        STORED_HEADER_BYTES + rrset.pointers.len() + rrset.bytes.len()
    }

    /// The RRset's type: the field after the owner's pointer.
    pub(crate) fn rtype(&self) -> Rtype {
        Rtype(u16::from_be_bytes([self.bytes[2], self.bytes[3]]))
    }

    /// All records, including the additional section.
    #[inline]
    pub(crate) fn all_bytes(&self) -> &'z [u8] {
        self.bytes
    }

    /// Shifts the pointers in a copy of the bytes at `at` in `reply` by the distance of owner and copy from the offsets
    /// that they were packed for.
    #[inline]
    pub(crate) fn shift_pointers(&self, reply: &mut [u8], at: usize, length_bytes: usize, owner: OwnerLocation) {
        let owner_shift = owner.offset - HEADER_BYTES;
        let shift = at - (HEADER_BYTES + owner.length_bytes + QUESTION_TAIL_BYTES);
        if owner_shift != 0 || shift != 0 {
            let owner_end = POINTER | (HEADER_BYTES + owner.length_bytes) as u16;
            self.add_to_pointers(&mut reply[at..at + length_bytes], owner_end, owner_shift as u16, shift as u16);
        }
    }

    /// Adds `owner_shift` to the pointers in `copy` that are less than `owner_end`, and `shift` to the others.
    fn add_to_pointers(&self, copy: &mut [u8], owner_end: u16, owner_shift: u16, shift: u16) {
        for &at in self.pointers.as_chunks().0 {
            let at = usize::from(u16::from_le_bytes(at));
            // Ascending: the rest is in the additional section, which was omitted.
            let Some(bytes) = copy.get_mut(at..).and_then(<[u8]>::first_chunk_mut) else { break };
            let pointer = u16::from_be_bytes(*bytes);
            let shifted = pointer + if pointer < owner_end { owner_shift } else { shift };
            *bytes = shifted.to_be_bytes();
        }
    }

    /// The records that fit into `room_bytes`: the RRset and the first RRsets of the additional section. `None` if the
    /// RRset itself does not fit. `owner` is the owner in the zone.
    pub(crate) fn prefix(&self, owner: Name<'z>, room_bytes: usize) -> Option<PackedPrefix> {
        let mut prefix = PackedPrefix { length_bytes: self.answer_length, additional_count: 0, omitted: None };
        let (mut end, mut count) = (self.answer_length, 0);
        let mut last: Option<(NameBuf, Rtype)> = None;
        for record in self.records(owner).skip(usize::from(self.answer_count)) {
            let is_same_rrset =
                |(name, rtype): &(NameBuf, Rtype)| *rtype == record.rtype && name.as_name() == record.owner.as_name();
            if !last.as_ref().is_some_and(is_same_rrset) {
                (prefix.length_bytes, prefix.additional_count) = (end, count);
            }
            if record.rdata_end > room_bytes {
                prefix.omitted = Some(record.owner);
                break;
            }
            (end, count) = (record.rdata_end, count + 1);
            last = Some((record.owner, record.rtype));
        }
        (self.answer_length <= room_bytes).then_some(prefix)
    }

    /// The records, with the owners decompressed.
    pub(crate) fn records(&self, owner: Name<'z>) -> PackedRecords<'z> {
        PackedRecords { owner, bytes: self.bytes, at: 0 }
    }

    /// The records of the RRset itself, in packed form.
    pub(crate) fn answer_bytes(&self) -> &'z [u8] {
        &self.bytes[..self.answer_length]
    }

    /// The record of the RRset itself at `at`: 0, or the end of another one.
    #[inline]
    pub(crate) fn answer_record(&self, at: usize) -> Option<AnswerRecord<'z>> {
        if at == self.answer_length {
            return None;
        }
        let fixed_start = at + POINTER_TO_QNAME.to_be_bytes().len();
        let fixed = &self.bytes[fixed_start..fixed_start + RECORD_FIXED_BYTES];
        let rdata_start = fixed_start + RECORD_FIXED_BYTES;
        let end = rdata_start + usize::from(u16::from_be_bytes([fixed[8], fixed[9]]));
        let rtype = Rtype(u16::from_be_bytes([fixed[0], fixed[1]]));
        Some(AnswerRecord { rtype, fixed, rdata_start, end, after_owner: &self.bytes[fixed_start..end] })
    }
}

/// The first records of a packed RRset.
#[derive(Debug)]
pub(crate) struct PackedPrefix {
    pub(crate) length_bytes: usize,
    /// Records of the additional section.
    pub(crate) additional_count: u16,
    /// The owner of the first RRset that is left out.
    pub(crate) omitted: Option<NameBuf>,
}

/// A part of RDATA.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RdataPart<'a> {
    Bytes(&'a [u8]),
    /// A name that may be compressed.
    Name(Name<'a>),
}

/// A record of a packed RRset.
#[derive(Debug)]
pub(crate) struct PackedRecord<'z> {
    pub(crate) owner: NameBuf,
    /// Whether the owner is the RRset's owner, for which the name in the reply may differ: below a wildcard.
    pub(crate) is_of_owner: bool,
    pub(crate) rtype: Rtype,
    /// Type, class and TTL in wire form.
    pub(crate) fixed: &'z [u8],
    /// The RDATA in the packed bytes. Names in it may be compressed: [`PackedRecords::each_part`] decompresses them.
    pub(crate) rdata_start: usize,
    pub(crate) rdata_end: usize,
}

impl<'z> PackedRecord<'z> {
    /// The TTL in wire form.
    pub(crate) fn ttl(&self) -> &'z [u8] {
        &self.fixed[4..8]
    }
}

/// A record of a packed RRset that is not in its additional section: it has the RRset's owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerRecord<'z> {
    pub(crate) rtype: Rtype,
    /// Type, class, TTL and length in wire form.
    pub(crate) fixed: &'z [u8],
    pub(crate) rdata_start: usize,
    /// The end of the RDATA, where the next record begins.
    pub(crate) end: usize,
    /// The record without its owner. Names in the RDATA may be compressed, if [`AnswerRecord::has_names`].
    pub(crate) after_owner: &'z [u8],
}

impl AnswerRecord<'_> {
    pub(crate) fn ttl(&self) -> [u8; 4] {
        *self.fixed[4..].first_chunk().expect("four bytes")
    }

    /// Whether the RDATA has names that may be compressed.
    pub(crate) fn has_names(&self) -> bool {
        compressed_names(self.rtype).1 != 0
    }
}

/// Iterates over the records of a packed RRset.
#[derive(Clone, Debug)]
pub(crate) struct PackedRecords<'z> {
    owner: Name<'z>,
    bytes: &'z [u8],
    at: usize,
}

impl<'z> Iterator for PackedRecords<'z> {
    type Item = PackedRecord<'z>;

    fn next(&mut self) -> Option<PackedRecord<'z>> {
        if self.at == self.bytes.len() {
            return None;
        }
        let is_of_owner = self.bytes[self.at..].starts_with(&POINTER_TO_QNAME.to_be_bytes());
        let (owner, fixed_offset) = self.name_at(self.at);
        let fixed = &self.bytes[fixed_offset..fixed_offset + 8];
        let rdata_start = fixed_offset + RECORD_FIXED_BYTES;
        let length = u16::from_be_bytes([self.bytes[fixed_offset + 8], self.bytes[fixed_offset + 9]]);
        let rdata_end = rdata_start + usize::from(length);
        self.at = rdata_end;
        let rtype = Rtype(u16::from_be_bytes([fixed[0], fixed[1]]));
        Some(PackedRecord { owner, is_of_owner, rtype, fixed, rdata_start, rdata_end })
    }
}

impl PackedRecords<'_> {
    /// Calls `put` with the parts of the RDATA of a record of this type, until an error.
    pub(crate) fn each_part<E>(
        &self,
        rtype: Rtype,
        rdata: Range<usize>,
        mut put: impl FnMut(RdataPart<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (prefix, name_count) = compressed_names(rtype);
        let mut from = rdata.start;
        if name_count != 0 {
            put(RdataPart::Bytes(&self.bytes[from..from + prefix]))?;
            from += prefix;
        }
        for _ in 0..name_count {
            let (name, after) = self.name_at(from);
            put(RdataPart::Name(name.as_name()))?;
            from = after;
        }
        put(RdataPart::Bytes(&self.bytes[from..rdata.end]))
    }

    /// The name that is the RDATA of `record`, a CNAME or DNAME.
    pub(crate) fn target(&self, record: &PackedRecord<'_>) -> NameBuf {
        self.name_at(record.rdata_start).0
    }

    /// The name at `at`, and the offset after it. [`RrsetPacker`] made the pointers: they point backwards, into the
    /// owner or into these bytes.
    fn name_at(&self, at: usize) -> (NameBuf, usize) {
        let bytes_start = HEADER_BYTES + self.owner.length_bytes() + QUESTION_TAIL_BYTES;
        let mut wire = [0; NAME_BYTES_MAX];
        let mut length = 0;
        let mut after = None;
        let mut source = self.bytes;
        let mut at = at;
        loop {
            let label_length = usize::from(source[at]);
            if label_length & 0xc0 == 0xc0 {
                after.get_or_insert(at + 2);
                let target = usize::from(u16::from_be_bytes([source[at], source[at + 1]]) & !POINTER);
                (source, at) = match target.checked_sub(bytes_start) {
                    Some(offset) => (self.bytes, offset),
                    None => (self.owner.as_bytes(), target - HEADER_BYTES),
                };
                continue;
            }
            wire[length..=length + label_length].copy_from_slice(&source[at..=at + label_length]);
            length += 1 + label_length;
            at += 1 + label_length;
            if label_length == 0 {
                let name = Name::parse(&wire[..length]).expect("was a name before it was compressed");
                return (name.to_owned(), after.unwrap_or(at));
            }
        }
    }
}

/// The number of bytes before the compressible names in the RDATA of `rtype`, and the number of these names. Only types
/// of RFC 1035 have compressed names (RFC 3597 §4).
pub(crate) fn compressed_names(rtype: Rtype) -> (usize, usize) {
    match rtype {
        Rtype::NS | Rtype::CNAME | Rtype::PTR | Rtype::MB | Rtype::MG | Rtype::MR | Rtype::MD | Rtype::MF => (0, 1),
        Rtype::MX => (2, 1),
        Rtype::SOA | Rtype::MINFO => (0, 2),
        _ => (0, 0),
    }
}

/// The relation of a packed RRset's owner to QNAME.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnerRole {
    /// The owner is QNAME. QNAME takes the place of a wildcard owner.
    Qname,
    /// The owner is QNAME or an ancestor of it, and appears in the reply: the NS of a delegation, the SOA of the apex.
    QnameOrAncestor,
}

/// Packs one RRset after another. The packer's buffers are reused.
#[derive(Debug)]
pub(crate) struct RrsetPacker {
    bytes: Vec<u8>,
    pointers: Vec<u16>,
    known_suffixes: Vec<KnownSuffix>,
    role: OwnerRole,
    owner: NameBuf,
    answer_count: u16,
    additional_count: u16,
    answer_length: Option<usize>,
}

/// A name, or a suffix of one, at an offset that a pointer reaches.
#[derive(Clone, Copy, Debug)]
struct KnownSuffix {
    target: u16,
    name: NameBuf,
}

/// The RRset does not fit into a message of 65,535 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RrsetTooLong;

impl RrsetPacker {
    pub(crate) fn new() -> RrsetPacker {
        RrsetPacker {
            bytes: Vec::new(),
            pointers: Vec::new(),
            known_suffixes: Vec::new(),
            role: OwnerRole::Qname,
            owner: NameBuf::root(),
            answer_count: 0,
            additional_count: 0,
            answer_length: None,
        }
    }

    /// Starts the RRset of `owner`.
    pub(crate) fn start(&mut self, owner: Name<'_>, role: OwnerRole) {
        self.bytes.clear();
        self.pointers.clear();
        self.known_suffixes.clear();
        self.role = role;
        self.owner = owner.to_owned();
        self.answer_count = 0;
        self.additional_count = 0;
        self.answer_length = None;
    }

    /// Appends a record of the RRset.
    pub(crate) fn put_answer(&mut self, rtype: Rtype, ttl_s: u32, rdata: &[u8]) {
        if self.bytes.len() > usize::from(u16::MAX) {
            // Too long already: `finish` refuses it.
            return;
        }
        if self.role == OwnerRole::QnameOrAncestor {
            self.pointers.push(self.bytes.len() as u16);
        }
        self.bytes.extend_from_slice(&POINTER_TO_QNAME.to_be_bytes());
        self.put_after_owner(rtype, ttl_s, rdata);
        self.answer_count = self.answer_count.saturating_add(1);
    }

    /// Appends a record of the additional section. No record of the RRset may follow.
    pub(crate) fn put_additional(&mut self, owner: Name<'_>, rtype: Rtype, ttl_s: u32, rdata: &[u8]) {
        self.answer_length.get_or_insert(self.bytes.len());
        if self.bytes.len() > RECORDS_BYTES_MAX {
            // Too long already: `finish` omits the additional section or refuses the RRset.
            return;
        }
        self.put_name(owner);
        self.put_after_owner(rtype, ttl_s, rdata);
        self.additional_count = self.additional_count.saturating_add(1);
    }

    /// Appends the packed RRset to `store`. An additional section that fits into no message is omitted, except from a
    /// referral, which needs its glue.
    pub(crate) fn finish(&mut self, store: &mut Vec<u8>) -> Result<(), RrsetTooLong> {
        let answer_length = self.answer_length.unwrap_or(self.bytes.len());
        if self.bytes.len() > RECORDS_BYTES_MAX && self.role == OwnerRole::Qname {
            self.bytes.truncate(answer_length);
            self.pointers.retain(|&at| usize::from(at) < answer_length);
            self.additional_count = 0;
        }
        if self.bytes.len() > RECORDS_BYTES_MAX {
            return Err(RrsetTooLong);
        }
        for number in [self.bytes.len(), self.pointers.len()] {
            debug_assert!(number <= usize::from(u16::MAX));
        }
        store.extend_from_slice(&self.answer_count.to_le_bytes());
        store.extend_from_slice(&self.additional_count.to_le_bytes());
        store.extend_from_slice(&(answer_length as u16).to_le_bytes());
        store.extend_from_slice(&(self.bytes.len() as u16).to_le_bytes());
        store.extend_from_slice(&(self.pointers.len() as u16).to_le_bytes());
        for pointer in &self.pointers {
            store.extend_from_slice(&pointer.to_le_bytes());
        }
        store.extend_from_slice(&self.bytes);
        Ok(())
    }

    fn put_after_owner(&mut self, rtype: Rtype, ttl_s: u32, rdata: &[u8]) {
        self.bytes.extend_from_slice(&rtype.0.to_be_bytes());
        self.bytes.extend_from_slice(&CLASS_IN.to_be_bytes());
        self.bytes.extend_from_slice(&ttl_s.to_be_bytes());
        let length_offset = self.bytes.len();
        self.bytes.extend_from_slice(&[0, 0]);
        let (prefix, name_count) = compressed_names(rtype);
        let mut rest = rdata;
        if name_count != 0 {
            self.bytes.extend_from_slice(&rdata[..prefix]);
            rest = &rdata[prefix..];
        }
        for _ in 0..name_count {
            let name = Name::parse(rest).expect("RDATA of a zone is well-formed");
            rest = &rest[name.length_bytes()..];
            self.put_name(name);
        }
        self.bytes.extend_from_slice(rest);
        let length = (self.bytes.len() - length_offset - 2) as u16;
        self.bytes[length_offset..length_offset + 2].copy_from_slice(&length.to_be_bytes());
    }

    /// Appends `name`, compressed against the known suffixes.
    fn put_name(&mut self, name: Name<'_>) {
        if self.known_suffixes.is_empty() {
            self.add_owner_suffixes();
        }
        let bytes_start = HEADER_BYTES + self.owner.as_name().length_bytes() + QUESTION_TAIL_BYTES;
        let mut rest = name;
        loop {
            if rest.is_root() {
                self.bytes.push(0);
                return;
            }
            if let Some(known) = self.known_suffixes.iter().find(|known| known.name.as_name().eq_ignore_case(rest)) {
                self.pointers.push(self.bytes.len() as u16);
                self.bytes.extend_from_slice(&(POINTER | known.target).to_be_bytes());
                return;
            }
            self.add_suffix(bytes_start + self.bytes.len(), rest);
            let parent = rest.parent().expect("the name is not the root");
            self.bytes.extend_from_slice(&rest.as_bytes()[..rest.length_bytes() - parent.length_bytes()]);
            rest = parent;
        }
    }

    /// Adds the owner's suffixes. A wildcard owner itself is not included: QNAME takes its place.
    fn add_owner_suffixes(&mut self) {
        let owner = self.owner;
        let mut name = Some(owner.as_name());
        let mut target = HEADER_BYTES;
        if self.role == OwnerRole::Qname && owner.as_name().is_wildcard() {
            target += 2;
            name = owner.as_name().parent();
        }
        while let Some(suffix) = name.filter(|name| !name.is_root()) {
            self.add_suffix(target, suffix);
            target += 1 + usize::from(suffix.as_bytes()[0]);
            name = suffix.parent();
        }
    }

    fn add_suffix(&mut self, target: usize, name: Name<'_>) {
        if target <= TARGET_MAX && self.known_suffixes.len() < KNOWN_SUFFIXES_MAX {
            self.known_suffixes.push(KnownSuffix { target: target as u16, name: name.to_owned() });
        }
    }
}

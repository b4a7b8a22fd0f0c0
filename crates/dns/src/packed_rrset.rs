//! A ready-made answer: the records of one RRset, with the addresses that go with them, as the octets of a reply.
//!
//! It is made at load for the place that it has in the simplest reply: the owner is the question's name, at octet 12,
//! and the records follow the question. Names in it are compressed against the owner and against each other. In that
//! place it is copied as it is. Below a wildcard or a cut the question's name is longer than the owner; then the
//! pointers, whose places are listed, are moved. Behind a CNAME, where the owner is no part of the question's name, the
//! records are written anew with their names in full.
//!
//! ```text
//! owner at 12: 3www7example0   type class   c00c 0001 0001 ttl 0004 a.b.c.d   …
//!              └───────────┘                └── PackedRrset::bytes, virtual offset 12 + owner + 4
//! ```

use crate::name::{Name, NameBuf};
use crate::rtype::Rtype;
use alloc::vec::Vec;

/// Octets of a message's header: where the question's name stands (RFC 1035 §4.1.1).
pub(crate) const HEADER_BYTES: usize = 12;
/// Octets of a question behind its name: type and class.
pub(crate) const QUESTION_TAIL_BYTES: usize = 4;
/// Octets of the smallest OPT record, which is the one that replies carry (RFC 6891 §6.1.2).
pub(crate) const OPT_BYTES: usize = 11;
/// Octets of the longest reply around its records: header, question, and OPT.
const AROUND_BYTES_MAX: usize = HEADER_BYTES + crate::name::NAME_BYTES_MAX + QUESTION_TAIL_BYTES + OPT_BYTES;
/// Octets that the records of a reply may have: a message has 65,535 (RFC 1035 §4.2.2).
const RECORDS_BYTES_MAX: usize = 65_535 - AROUND_BYTES_MAX;
/// A compression pointer to the question's name.
const POINTER_TO_QUESTION: u16 = POINTER | HEADER_BYTES as u16;
const POINTER: u16 = 0xc000;
/// Furthest octet that a ready-made answer points to, below the 2^14 that a pointer reaches: room to be moved by.
const TARGET_MAX: usize = 0x2800;
/// Places of names that the compression of one answer remembers.
const KNOWN_SUFFIXES_MAX: usize = 64;
/// Octets of a stored answer before its list of pointers.
const STORED_HEADER_BYTES: usize = 10;
/// Octets of a record between its owner and its RDATA: type, class, TTL, length.
const RECORD_FIXED_BYTES: usize = 10;
const CLASS_IN: u16 = 1;

/// A ready-made answer, borrowed from a zone.
#[derive(Clone, Copy, Debug)]
pub struct PackedRrset<'z> {
    /// Records of the RRset itself.
    pub answer_count: u16,
    /// Records of the additional section.
    pub additional_count: u16,
    /// Octets of the RRset's records; those of the additional section follow.
    answer_length: usize,
    pointers: &'z [u8],
    bytes: &'z [u8],
}

/// Where the owner of a ready-made answer stands in a reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnerLocation {
    /// Octet of the reply at which the owner, or the last labels of the question's name that are the owner, starts.
    pub offset: usize,
    /// Octets of the owner's name, as stored.
    pub length_bytes: usize,
}

impl<'z> PackedRrset<'z> {
    /// The answer stored at the start of `stored`.
    #[inline]
    pub(crate) fn read(stored: &'z [u8]) -> PackedRrset<'z> {
        let (header, rest) =
            stored.split_first_chunk::<STORED_HEADER_BYTES>().expect("stored by `RrsetPacker::finish`");
        let number = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let (answer_length, additional_length) = (usize::from(number(4)), usize::from(number(6)));
        let (pointers, rest) = rest.split_at(2 * usize::from(number(8)));
        PackedRrset {
            answer_count: number(0),
            additional_count: number(2),
            answer_length,
            pointers,
            bytes: &rest[..answer_length + additional_length],
        }
    }

    /// The type of the RRset, which stands behind the owner's pointer.
    pub(crate) fn rtype(&self) -> Rtype {
        Rtype(u16::from_be_bytes([self.bytes[2], self.bytes[3]]))
    }

    /// Octets of the RRset's own records.
    #[inline]
    pub fn answer_bytes(&self) -> &'z [u8] {
        &self.bytes[..self.answer_length]
    }

    /// Octets of all records, those of the additional section included.
    #[inline]
    pub fn all_bytes(&self) -> &'z [u8] {
        self.bytes
    }

    /// Moves the pointers of a copy at `at` in `reply`, so that they are right where owner and copy really stand: behind
    /// where they were made for, if not there.
    #[inline]
    pub(crate) fn move_pointers(&self, reply: &mut [u8], at: usize, length_bytes: usize, owner: OwnerLocation) {
        let owner_shift = owner.offset - HEADER_BYTES;
        let shift = at - (HEADER_BYTES + owner.length_bytes + QUESTION_TAIL_BYTES);
        if owner_shift != 0 || shift != 0 {
            let owner_end = POINTER | (HEADER_BYTES + owner.length_bytes) as u16;
            self.shift_pointers(&mut reply[at..at + length_bytes], owner_end, owner_shift as u16, shift as u16);
        }
    }

    /// Adds `owner_shift` to the pointers in `copy` that are less than `owner_end`, and `shift` to the others.
    fn shift_pointers(&self, copy: &mut [u8], owner_end: u16, owner_shift: u16, shift: u16) {
        for &place in self.pointers.as_chunks().0 {
            let place = usize::from(u16::from_le_bytes(place));
            // The addresses that the last of them stand in may have been left out.
            let Some(octets) = copy.get_mut(place..).and_then(<[u8]>::first_chunk_mut) else { break };
            let pointer = u16::from_be_bytes(*octets);
            let moved = pointer + if pointer < owner_end { owner_shift } else { shift };
            *octets = moved.to_be_bytes();
        }
    }

    /// The records, each with its names in full.
    pub(crate) fn records(&self, owner: Name<'z>) -> PackedRecords<'z> {
        PackedRecords { owner, bytes: self.bytes, at: 0 }
    }
}

/// A record taken out of a ready-made answer.
#[derive(Debug)]
pub(crate) struct PackedRecord<'z> {
    pub(crate) owner: NameBuf,
    pub(crate) rtype: Rtype,
    /// Type, class and TTL as they stand in the message.
    pub(crate) fixed: &'z [u8],
    /// RDATA as stored: names in it may be compressed; [`PackedRecords::expand`] writes them in full.
    pub(crate) rdata_start: usize,
    pub(crate) rdata_end: usize,
}

/// Walks over the records of a ready-made answer.
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
        let (owner, fixed_at) = self.name_at(self.at);
        let fixed = &self.bytes[fixed_at..fixed_at + 8];
        let rdata_start = fixed_at + RECORD_FIXED_BYTES;
        let length = u16::from_be_bytes([self.bytes[fixed_at + 8], self.bytes[fixed_at + 9]]);
        let rdata_end = rdata_start + usize::from(length);
        self.at = rdata_end;
        let rtype = Rtype(u16::from_be_bytes([fixed[0], fixed[1]]));
        Some(PackedRecord { owner, rtype, fixed, rdata_start, rdata_end })
    }
}

impl PackedRecords<'_> {
    /// Writes the RDATA of `record` with its names in full to the start of `out`; its octets, or `None` for no room.
    pub(crate) fn expand(&self, record: &PackedRecord<'_>, out: &mut [u8]) -> Option<usize> {
        let (prefix, name_count) = compressed_names(record.rtype);
        let mut from = record.rdata_start;
        let mut to = 0;
        let mut put = |bytes: &[u8]| -> Option<()> {
            out.get_mut(to..to + bytes.len())?.copy_from_slice(bytes);
            to += bytes.len();
            Some(())
        };
        if name_count != 0 {
            put(&self.bytes[from..from + prefix])?;
            from += prefix;
        }
        for _ in 0..name_count {
            let (name, after) = self.name_at(from);
            put(name.as_name().as_bytes())?;
            from = after;
        }
        put(&self.bytes[from..record.rdata_end])?;
        Some(to)
    }

    /// The name at `at`, and where the octets behind it start. Pointers were made by [`RrsetPacker`]: they lead
    /// backwards, into the owner or into these octets.
    fn name_at(&self, at: usize) -> (NameBuf, usize) {
        let made_for = HEADER_BYTES + self.owner.length_bytes() + QUESTION_TAIL_BYTES;
        let mut wire = [0; crate::name::NAME_BYTES_MAX];
        let mut length = 0;
        let mut after = None;
        let mut source = self.bytes;
        let mut at = at;
        loop {
            let octet = usize::from(source[at]);
            if octet & 0xc0 == 0xc0 {
                after.get_or_insert(at + 2);
                let target = usize::from(u16::from_be_bytes([source[at], source[at + 1]]) & !POINTER);
                (source, at) = match target.checked_sub(made_for) {
                    Some(within) => (self.bytes, within),
                    None => (self.owner.as_bytes(), target - HEADER_BYTES),
                };
                continue;
            }
            wire[length..=length + octet].copy_from_slice(&source[at..=at + octet]);
            length += 1 + octet;
            at += 1 + octet;
            if octet == 0 {
                let name = Name::parse(&wire[..length]).expect("was a name before it was compressed");
                return (name.to_owned(), after.unwrap_or(at));
            }
        }
    }
}

/// The octets before the compressed names in the RDATA of a type, and how many names: the types of RFC 1035, whose
/// names alone may be compressed (RFC 3597 §4).
fn compressed_names(rtype: Rtype) -> (usize, usize) {
    match rtype {
        Rtype::NS | Rtype::CNAME | Rtype::PTR | Rtype::MB | Rtype::MG | Rtype::MR | Rtype::MD | Rtype::MF => (0, 1),
        Rtype::MX => (2, 1),
        Rtype::SOA | Rtype::MINFO => (0, 2),
        _ => (0, 0),
    }
}

/// For which replies an answer is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The owner is what was asked for; below a wildcard, the question's name takes the owner's place.
    Answer,
    /// A cut's NS or the apex's SOA: the owner is an ancestor of what was asked for, and stays itself.
    Authority,
}

/// Makes one answer after another in the same room.
#[derive(Debug)]
pub(crate) struct RrsetPacker {
    bytes: Vec<u8>,
    pointers: Vec<u16>,
    known: Vec<Known>,
    kind: Kind,
    owner: NameBuf,
    answer_count: u16,
    additional_count: u16,
    answer_length: Option<usize>,
}

/// A name, or the last labels of one, that can be pointed to.
#[derive(Clone, Copy, Debug)]
struct Known {
    target: u16,
    name: NameBuf,
}

/// The answer does not fit into a message of 65,535 octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl RrsetPacker {
    pub(crate) fn new() -> RrsetPacker {
        RrsetPacker {
            bytes: Vec::new(),
            pointers: Vec::new(),
            known: Vec::new(),
            kind: Kind::Answer,
            owner: NameBuf::root(),
            answer_count: 0,
            additional_count: 0,
            answer_length: None,
        }
    }

    /// Starts an answer whose records belong to `owner`.
    pub(crate) fn start(&mut self, owner: Name<'_>, kind: Kind) {
        self.bytes.clear();
        self.pointers.clear();
        self.known.clear();
        self.kind = kind;
        self.owner = owner.to_owned();
        self.answer_count = 0;
        self.additional_count = 0;
        self.answer_length = None;
    }

    /// Appends a record of the owner.
    pub(crate) fn put_answer(&mut self, rtype: Rtype, ttl_s: u32, rdata: &[u8]) {
        if self.bytes.len() > usize::from(u16::MAX) {
            // Too long already, which `finish` will tell.
            return;
        }
        if self.kind == Kind::Authority {
            self.pointers.push(self.bytes.len() as u16);
        }
        self.bytes.extend_from_slice(&POINTER_TO_QUESTION.to_be_bytes());
        self.put_after_owner(rtype, ttl_s, rdata);
        self.answer_count = self.answer_count.saturating_add(1);
    }

    /// Appends a record of the additional section; no more answers after it.
    pub(crate) fn put_additional(&mut self, owner: Name<'_>, rtype: Rtype, ttl_s: u32, rdata: &[u8]) {
        self.answer_length.get_or_insert(self.bytes.len());
        if self.bytes.len() > RECORDS_BYTES_MAX {
            // Too long already: `finish` refuses it, or leaves the addresses out.
            return;
        }
        self.put_name(owner);
        self.put_after_owner(rtype, ttl_s, rdata);
        self.additional_count = self.additional_count.saturating_add(1);
    }

    /// Ends the answer and appends it to `store`. Addresses that no message has room for are left out, unless they are
    /// glue, without which a referral is worth nothing.
    pub(crate) fn finish(&mut self, store: &mut Vec<u8>) -> Result<(), TooLong> {
        let answer_length = self.answer_length.unwrap_or(self.bytes.len());
        if self.bytes.len() > RECORDS_BYTES_MAX && self.kind == Kind::Answer {
            self.bytes.truncate(answer_length);
            self.pointers.retain(|&pointer| usize::from(pointer) < answer_length);
            self.additional_count = 0;
        }
        if self.bytes.len() > RECORDS_BYTES_MAX {
            return Err(TooLong);
        }
        let additional_length = self.bytes.len() - answer_length;
        for number in [answer_length, additional_length, self.pointers.len()] {
            debug_assert!(number <= usize::from(u16::MAX));
        }
        store.extend_from_slice(&self.answer_count.to_le_bytes());
        store.extend_from_slice(&self.additional_count.to_le_bytes());
        store.extend_from_slice(&(answer_length as u16).to_le_bytes());
        store.extend_from_slice(&(additional_length as u16).to_le_bytes());
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
        let length_at = self.bytes.len();
        self.bytes.extend_from_slice(&[0, 0]);
        let (prefix, name_count) = compressed_names(rtype);
        let mut rest = rdata;
        if name_count != 0 {
            self.bytes.extend_from_slice(&rdata[..prefix]);
            rest = &rdata[prefix..];
        }
        for _ in 0..name_count {
            let name = Name::parse(rest).expect("the zone file's RDATA has the shape of its type");
            rest = &rest[name.length_bytes()..];
            self.put_name(name);
        }
        self.bytes.extend_from_slice(rest);
        let length = (self.bytes.len() - length_at - 2) as u16;
        self.bytes[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
    }

    /// Appends `name`, its last labels as a pointer where they stand in the message already.
    fn put_name(&mut self, name: Name<'_>) {
        if self.known.is_empty() {
            self.know_owner();
        }
        let made_for = HEADER_BYTES + self.owner.as_name().length_bytes() + QUESTION_TAIL_BYTES;
        let mut rest = name;
        loop {
            if rest.is_root() {
                self.bytes.push(0);
                return;
            }
            if let Some(known) = self.known.iter().find(|known| known.name.as_name().eq_ignore_case(rest)) {
                self.pointers.push(self.bytes.len() as u16);
                self.bytes.extend_from_slice(&(POINTER | known.target).to_be_bytes());
                return;
            }
            self.know(made_for + self.bytes.len(), rest);
            let (label, parent) = rest.as_bytes().split_at(1 + usize::from(rest.as_bytes()[0]));
            self.bytes.extend_from_slice(label);
            rest = Name::parse(parent).expect("the rest of a name");
        }
    }

    /// The owner's own labels can be pointed to. Not the whole of it in an answer: below a wildcard another name will
    /// stand there.
    fn know_owner(&mut self) {
        let owner = self.owner;
        let mut name = Some(owner.as_name());
        let mut target = HEADER_BYTES;
        if self.kind == Kind::Answer && owner.as_name().is_wildcard() {
            target += 2;
            name = owner.as_name().parent();
        }
        while let Some(suffix) = name.filter(|name| !name.is_root()) {
            self.know(target, suffix);
            target += 1 + usize::from(suffix.as_bytes()[0]);
            name = suffix.parent();
        }
    }

    fn know(&mut self, target: usize, name: Name<'_>) {
        if target <= TARGET_MAX && self.known.len() < KNOWN_SUFFIXES_MAX {
            self.known.push(Known { target: target as u16, name: name.to_owned() });
        }
    }
}

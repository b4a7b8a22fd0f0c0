//! The records of a zone version in canonical order (RFC 4034 §6), in few pieces of memory.

use crate::canonical::put_order_key;
use sanderling_dns::rdata::{PresentationFormat, has_folded_names, put_canonical_rdata};
use sanderling_dns::{Name, Rtype};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt::Write;
use std::ops::Range;

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'r> {
    /// The owner.
    pub owner: Name<'r>,
    /// The type.
    pub rtype: Rtype,
    /// The TTL in seconds.
    pub ttl_s: u32,
    /// The RDATA in wire form, with uncompressed names.
    pub rdata: &'r [u8],
}

/// Collects records in any order. An owner that equals the previous one needs no further memory.
#[derive(Clone, Debug, Default)]
pub struct RecordsBuilder {
    bytes: Vec<u8>,
    names: Vec<StoredName>,
    records: Vec<(NameIndex, StoredRecord)>,
    key: Vec<u8>,
}

/// The index of a name in its builder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NameIndex(u32);

/// A name: its wire form, followed by its key in the canonical order.
#[derive(Clone, Copy, Debug)]
struct StoredName {
    start: usize,
    wire_bytes: u16,
    key_bytes: u16,
    /// The index of the name's first record. A builder does not have it yet.
    records_start: u32,
}

#[derive(Clone, Copy, Debug)]
struct StoredRecord {
    rdata_start: usize,
    ttl_s: u32,
    rtype: Rtype,
    rdata_bytes: u16,
}

impl StoredName {
    fn wire<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        &bytes[self.start..][..usize::from(self.wire_bytes)]
    }

    fn key<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        &bytes[self.start + usize::from(self.wire_bytes)..][..usize::from(self.key_bytes)]
    }
}

impl StoredRecord {
    fn rdata<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        &bytes[self.rdata_start..][..usize::from(self.rdata_bytes)]
    }

    fn canonical<'b>(&self, bytes: &'b [u8]) -> Cow<'b, [u8]> {
        canonical(self.rtype, self.rdata(bytes))
    }
}

/// The canonical form of RDATA.
fn canonical(rtype: Rtype, rdata: &[u8]) -> Cow<'_, [u8]> {
    if !has_folded_names(rtype) {
        return Cow::Borrowed(rdata);
    }
    let mut canonical = Vec::with_capacity(rdata.len());
    put_canonical_rdata(rtype, rdata, &mut canonical);
    Cow::Owned(canonical)
}

impl RecordsBuilder {
    /// Adds a record. The RDATA must pass [`sanderling_dns::rdata::check`].
    ///
    /// # Panics
    /// Panics if the RDATA has more than 64 KiB.
    pub fn push(&mut self, record: Record<'_>) {
        let name = self.put_name(record.owner);
        self.put(name, record.rtype, record.ttl_s, record.rdata);
    }

    /// The name of records that follow. If the last name was equal, it is reused.
    pub(crate) fn put_name(&mut self, owner: Name<'_>) -> NameIndex {
        let is_last =
            self.names.last().is_some_and(|last| last.wire(&self.bytes).eq_ignore_ascii_case(owner.as_bytes()));
        if !is_last {
            self.key.clear();
            put_order_key(owner, &mut self.key);
            let start = self.bytes.len();
            self.bytes.extend_from_slice(owner.as_bytes());
            self.bytes.extend_from_slice(&self.key);
            let (wire_bytes, key_bytes) = (owner.length_bytes() as u16, self.key.len() as u16);
            self.names.push(StoredName { start, wire_bytes, key_bytes, records_start: 0 });
        }
        NameIndex(u32::try_from(self.names.len() - 1).expect("a zone has fewer than 2^32 names"))
    }

    /// Adds a record of a name.
    pub(crate) fn put(&mut self, name: NameIndex, rtype: Rtype, ttl_s: u32, rdata: &[u8]) {
        let rdata_bytes = u16::try_from(rdata.len()).expect("RDATA has at most 65,535 bytes");
        let rdata_start = self.bytes.len();
        self.bytes.extend_from_slice(rdata);
        self.records.push((name, StoredRecord { rdata_start, ttl_s, rtype, rdata_bytes }));
    }

    /// The owner of a name.
    pub(crate) fn owner(&self, name: NameIndex) -> Name<'_> {
        name_of(self.names[name.0 as usize].wire(&self.bytes))
    }

    /// The records in canonical order, each once. Where an RRset's records have several TTLs, each gets the lowest (RFC
    /// 2181 §5.2).
    ///
    /// # Panics
    /// Panics with 2^32 records.
    pub fn finish(self) -> Records {
        let RecordsBuilder { bytes, names, mut records, key: _ } = self;
        let (ranks, mut names) = sorted_names(&bytes, &names);
        records.sort_by_key(|&(name, record)| (ranks[name.0 as usize], record.rtype));
        let mut sorted: Vec<StoredRecord> = Vec::with_capacity(records.len());
        let mut rest = &records[..];
        for (rank, name) in names.iter_mut().enumerate() {
            name.records_start = u32::try_from(sorted.len()).expect("a zone has fewer than 2^32 records");
            while let Some(&(first, StoredRecord { rtype, .. })) = rest.first()
                && ranks[first.0 as usize] as usize == rank
            {
                let is_of_rrset = |(name, record): &&(NameIndex, StoredRecord)| {
                    ranks[name.0 as usize] as usize == rank && record.rtype == rtype
                };
                let count = rest.iter().take_while(is_of_rrset).count();
                put_rrset(rest[..count].iter().map(|&(_, record)| record), &bytes, &mut sorted);
                rest = &rest[count..];
            }
        }
        Records { bytes, names, records: sorted }
    }
}

/// Appends the records of an RRset in their order.
fn put_rrset(rrset: impl ExactSizeIterator<Item = StoredRecord>, bytes: &[u8], out: &mut Vec<StoredRecord>) {
    let start = out.len();
    let is_single = rrset.len() == 1;
    out.extend(rrset);
    if is_single {
        return;
    }
    out[start..].sort_by(|left, right| left.canonical(bytes).cmp(&right.canonical(bytes)));
    // Each RRSIG record has the TTL of the RRset that it covers (RFC 4034 §3).
    let ttl_s = out[start..].iter().map(|record| record.ttl_s).min().filter(|_| out[start].rtype != Rtype::RRSIG);
    let mut kept = start;
    for at in start..out.len() {
        if at == start || out[at].canonical(bytes) != out[kept - 1].canonical(bytes) {
            out[kept] = StoredRecord { ttl_s: ttl_s.unwrap_or(out[at].ttl_s), ..out[at] };
            kept += 1;
        }
    }
    out.truncate(kept);
}

/// The place of each name in the order, and the names in this order. Equal names have the same place.
fn sorted_names(bytes: &[u8], names: &[StoredName]) -> (Vec<u32>, Vec<StoredName>) {
    // All names begin with the labels of the apex.
    let shared = names.iter().map(|name| name.key_bytes).min().map_or(0, usize::from);
    let shared = shared.min(names.first().map_or(0, |first| {
        let first = first.key(bytes);
        names.iter().map(|name| shared_bytes(first, name.key(bytes))).min().unwrap_or_default()
    }));
    let mut order: Vec<(u128, u32)> =
        names.iter().zip(0..).map(|(name, index)| (start_of(&name.key(bytes)[shared..]), index)).collect();
    let key = |index: u32| names[index as usize].key(bytes);
    order.sort_by(|left, right| left.0.cmp(&right.0).then_with(|| key(left.1).cmp(key(right.1))));
    let mut ranks = vec![0; names.len()];
    let mut sorted: Vec<StoredName> = Vec::with_capacity(names.len());
    for (_, index) in order {
        if sorted.last().is_none_or(|last| last.key(bytes) != key(index)) {
            sorted.push(names[index as usize]);
        }
        ranks[index as usize] = sorted.len() as u32 - 1;
    }
    (ranks, sorted)
}

fn shared_bytes(left: &[u8], right: &[u8]) -> usize {
    left.iter().zip(right).take_while(|(left, right)| left == right).count()
}

/// The first 16 bytes of a key as a number. Keys have no byte 0, so that shorter keys come first.
fn start_of(key: &[u8]) -> u128 {
    let mut start = [0; 16];
    let length = key.len().min(16);
    start[..length].copy_from_slice(&key[..length]);
    u128::from_be_bytes(start)
}

/// The sort key of the name.
pub(crate) fn order_key(owner: Name<'_>) -> Vec<u8> {
    let mut key = Vec::new();
    put_order_key(owner, &mut key);
    key
}

fn name_of(wire: &[u8]) -> Name<'_> {
    Name::parse(wire).expect("a stored name is well-formed")
}

/// Appends records as a zone file, the SOA first.
pub(crate) fn write_text<'r, R: Iterator<Item = Record<'r>>>(records: impl Fn() -> R, out: &mut String) {
    let (is_soa, is_other) = (|it: &Record<'r>| it.rtype == Rtype::SOA, |it: &Record<'r>| it.rtype != Rtype::SOA);
    for Record { owner, rtype, ttl_s, rdata } in records().filter(is_soa).chain(records().filter(is_other)) {
        // Writing to a string does not fail.
        let _ = writeln!(out, "{owner} {ttl_s} IN {rtype} {}", PresentationFormat::new(rtype, rdata));
    }
}

/// The records of a zone in canonical order, each once.
#[derive(Clone, Debug, Default)]
pub struct Records {
    bytes: Vec<u8>,
    names: Vec<StoredName>,
    records: Vec<StoredRecord>,
}

/// A name with its records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<'r> {
    records: &'r Records,
    index: usize,
}

/// The records of a name with one type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rrset<'r> {
    bytes: &'r [u8],
    /// At least one.
    records: &'r [StoredRecord],
}

impl Records {
    /// The number of records.
    pub fn count(&self) -> usize {
        self.records.len()
    }

    /// All records, in canonical order.
    pub fn iter(&self) -> impl Iterator<Item = Record<'_>> {
        self.nodes().flat_map(Node::records)
    }

    /// Appends the records as a zone file, each on a line with complete names, the SOA first. The zone file parser
    /// reads the same records.
    pub fn write_text(&self, out: &mut String) {
        write_text(|| self.iter(), out);
    }

    /// The names with their records.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = Node<'_>> {
        (0..self.names.len()).map(|index| Node { records: self, index })
    }

    /// The name `owner` with its records.
    pub(crate) fn node(&self, owner: Name<'_>) -> Option<Node<'_>> {
        self.position(&order_key(owner)).ok().map(|index| self.node_at(index))
    }

    /// The index of the name with this key, or of the next name.
    pub(crate) fn position(&self, key: &[u8]) -> Result<usize, usize> {
        self.names.binary_search_by(|name| name.key(&self.bytes).cmp(key))
    }

    /// The number of names.
    pub(crate) fn name_count(&self) -> usize {
        self.names.len()
    }

    /// Adds a name with its records, which comes after all others.
    pub(crate) fn append(&mut self, node: Node<'_>) {
        let from = &node.records.bytes;
        let name = node.records.names[node.index];
        let records_start = u32::try_from(self.records.len()).expect("a zone has fewer than 2^32 records");
        self.names.push(StoredName { start: self.bytes.len(), records_start, ..name });
        self.bytes.extend_from_slice(name.wire(from));
        self.bytes.extend_from_slice(name.key(from));
        for record in &node.records.records[node.range()] {
            self.records.push(StoredRecord { rdata_start: self.bytes.len(), ..*record });
            self.bytes.extend_from_slice(record.rdata(from));
        }
    }

    /// The name with this index in the canonical order.
    pub(crate) fn node_at(&self, index: usize) -> Node<'_> {
        Node { records: self, index }
    }

    /// The RDATA of the records of this type at `owner`.
    pub fn rdatas(&self, owner: Name<'_>, rtype: Rtype) -> impl Iterator<Item = &[u8]> {
        self.rrset(owner, rtype).into_iter().flat_map(Rrset::rdatas)
    }

    /// The RRset of the name `owner`.
    pub(crate) fn rrset(&self, owner: Name<'_>, rtype: Rtype) -> Option<Rrset<'_>> {
        self.node(owner)?.rrset(rtype)
    }

    /// Adds a record of an existing name, unless the record exists.
    pub(crate) fn insert(&mut self, owner: Name<'_>, rtype: Rtype, ttl_s: u32, rdata: &[u8]) {
        let node = self.node(owner).expect("the name is there");
        let (index, range) = (node.index, node.range());
        let place = (rtype, canonical(rtype, rdata));
        let found =
            self.records[range.clone()].binary_search_by(|it| (it.rtype, it.canonical(&self.bytes)).cmp(&place));
        let Err(at) = found else { return };
        let rdata_bytes = u16::try_from(rdata.len()).expect("RDATA has at most 65,535 bytes");
        let record = StoredRecord { rdata_start: self.bytes.len(), ttl_s, rtype, rdata_bytes };
        self.bytes.extend_from_slice(rdata);
        self.records.insert(range.start + at, record);
        for name in &mut self.names[index + 1..] {
            name.records_start += 1;
        }
    }
}

/// Finds names in ascending order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'r> {
    records: Option<&'r Records>,
    index: usize,
}

impl<'r> Cursor<'r> {
    pub(crate) fn new(records: Option<&'r Records>) -> Cursor<'r> {
        Cursor { records, index: 0 }
    }

    /// The name with this key, which is greater than the previous ones.
    pub(crate) fn seek(&mut self, key: &[u8]) -> Option<Node<'r>> {
        let records = self.records?;
        while let Some(name) = records.names.get(self.index) {
            let node = Node { records, index: self.index };
            match name.key(&records.bytes).cmp(key) {
                Ordering::Less => self.index += 1,
                Ordering::Equal => return Some(node),
                Ordering::Greater => return None,
            }
        }
        None
    }
}

impl<'r> Node<'r> {
    pub(crate) fn owner(self) -> Name<'r> {
        name_of(self.records.names[self.index].wire(&self.records.bytes))
    }

    /// The sort keys of the names.
    pub(crate) fn key(self) -> &'r [u8] {
        self.records.names[self.index].key(&self.records.bytes)
    }

    /// The records in canonical order.
    pub(crate) fn records(self) -> impl Iterator<Item = Record<'r>> {
        self.rrsets().flat_map(move |rrset| rrset.records(self.owner()))
    }

    fn range(self) -> Range<usize> {
        let names = &self.records.names;
        let end = names.get(self.index + 1).map_or(self.records.records.len(), |next| next.records_start as usize);
        names[self.index].records_start as usize..end
    }

    /// The RRsets in the order of their types.
    pub(crate) fn rrsets(self) -> impl Iterator<Item = Rrset<'r>> {
        let records = &self.records.records[self.range()];
        let bytes = &self.records.bytes;
        records.chunk_by(|left, right| left.rtype == right.rtype).map(move |records| Rrset { bytes, records })
    }

    pub(crate) fn rrset(self, rtype: Rtype) -> Option<Rrset<'r>> {
        self.rrsets().find(|rrset| rrset.rtype() == rtype)
    }
}

impl<'r> Rrset<'r> {
    pub(crate) fn rtype(self) -> Rtype {
        self.records[0].rtype
    }

    /// The TTL of the records; for RRSIG records, the TTL of the first.
    pub(crate) fn ttl_s(self) -> u32 {
        self.records[0].ttl_s
    }

    /// The records' RDATA, in canonical order.
    pub(crate) fn rdatas(self) -> impl ExactSizeIterator<Item = &'r [u8]> + Clone {
        let bytes = self.bytes;
        self.records.iter().map(move |record| record.rdata(bytes))
    }

    /// The RDATA of the records in canonical form, in their order.
    pub(crate) fn canonical_rdatas(self) -> impl Iterator<Item = Cow<'r, [u8]>> {
        let bytes = self.bytes;
        self.records.iter().map(move |record| record.canonical(bytes))
    }

    fn records(self, owner: Name<'r>) -> impl Iterator<Item = Record<'r>> {
        let (bytes, records) = (self.bytes, self.records);
        records.iter().map(move |it| Record { owner, rtype: it.rtype, ttl_s: it.ttl_s, rdata: it.rdata(bytes) })
    }
}

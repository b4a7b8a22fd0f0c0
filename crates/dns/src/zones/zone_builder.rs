//! Builds a zone from its records and reports problems of the zone.

mod checks;
mod alias_records;
mod target_checks;
mod signed_checks;
mod part;
mod signed;
mod names;

use crate::text::name::{Name, NameBuf};
use crate::text::rdata::{self, canonical, serial_of};
use crate::text::rtype::Rtype;
use crate::text::zonefile::{Diagnostic, Position, Record, Severity};
use crate::zones::journal::ZoneJournal;
use crate::zones::layout::{self, Form, NodeIndex, NodeRef, NodeWriter};
use crate::zones::name_hash::{HashSeed, IndexedName};
use crate::zones::packed_rrset::{OwnerRole, RrsetPacker};
use crate::zones::zone::{SignedZone, Zone, ZoneStore};
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use names::{NameId, NameTable};

pub(crate) use part::BuiltPart;
pub(crate) use signed_checks::Signature;

/// Maximum targets of an RRset whose addresses are in the additional section, as many as the root has name servers. A
/// referral has no such bound.
const ADDITIONAL_TARGETS_MAX: usize = 13;

/// Bytes of all names, or of all RDATA, of one zone: the range of a 32-bit offset minus the longest record.
const ZONE_BYTES_MAX: usize = u32::MAX as usize - (1 << 17);

/// Limits of a zone.
#[derive(Clone, Copy, Debug)]
pub struct ZoneLimits {
    /// Records of one RRset.
    pub records_per_rrset_max: usize,
}

impl Default for ZoneLimits {
    fn default() -> ZoneLimits {
        ZoneLimits { records_per_rrset_max: 1_000 }
    }
}

/// Collects the records of one zone.
#[derive(Debug)]
pub struct ZoneBuilder {
    apex: NameId,
    names: NameTable,
    records: Vec<StagedRecord>,
    rdata: Vec<u8>,
    limits: ZoneLimits,
    seed: HashSeed,
    /// The time at which signatures must be valid; `None` if it is not checked.
    now_unix_s: Option<u64>,
    /// The position of the first record beyond [`ZONE_BYTES_MAX`].
    overflow: Option<Position>,
    /// The owners of `ALIAS`, in lower case.
    alias_owners: Vec<(NameBuf, Position)>,
    /// Filled by `group_records`: the RRsets, by owner.
    rrsets: Vec<RrsetRange>,
    /// Filled by `find_authority`, for each name.
    authority: Vec<Authority>,
}

/// An added record.
#[derive(Clone, Copy, Debug)]
struct StagedRecord {
    name: NameId,
    rtype: Rtype,
    rdata_length: u16,
    rdata_offset: u32,
    ttl_s: u32,
    position: Position,
}

/// An RRset: a range of the sorted records.
#[derive(Clone, Copy, Debug)]
struct RrsetRange {
    rtype: Rtype,
    start: u32,
    end: u32,
}

/// Whether the zone is authoritative for a name, so that answers contain its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Authority {
    Unknown,
    /// The zone is authoritative for the name.
    Authoritative,
    /// The name is at or below this delegation point.
    Delegated(NameId),
    /// The name is below the DNAME of this name.
    BelowDname(NameId),
}

/// The result of [`ZoneBuilder::finish`].
#[derive(Debug)]
pub struct BuildOutcome {
    /// The zone, unless one of the diagnostics is an error.
    pub zone: Option<Zone>,
    /// Errors and warnings, in the order of the zone file.
    pub diagnostics: Vec<Diagnostic>,
}

impl ZoneBuilder {
    /// A builder for the zone at `apex`, without records.
    pub fn new(apex: Name<'_>, seed: HashSeed, limits: ZoneLimits) -> ZoneBuilder {
        let (names, apex) = NameTable::new(apex, seed);
        ZoneBuilder {
            apex,
            names,
            records: Vec::new(),
            rdata: Vec::new(),
            limits,
            seed,
            now_unix_s: None,
            overflow: None,
            alias_owners: Vec::new(),
            rrsets: Vec::new(),
            authority: Vec::new(),
        }
    }

    /// This builder, which also reports signatures that are not valid at `now_unix_s`, in seconds since 1970.
    #[must_use]
    pub fn with_time(self, now_unix_s: u64) -> ZoneBuilder {
        ZoneBuilder { now_unix_s: Some(now_unix_s), ..self }
    }

    /// Adds a record. The owner is at or below the apex, as the zone file parser guarantees.
    pub fn add(&mut self, record: &Record<'_>) {
        if self.rdata.len() > ZONE_BYTES_MAX || self.names.byte_count() > ZONE_BYTES_MAX {
            self.overflow.get_or_insert(record.position);
            return;
        }
        let name = self.names.intern(record.owner);
        let rdata_offset = u32::try_from(self.rdata.len()).expect("bounded above");
        self.rdata.extend_from_slice(record.rdata);
        self.records.push(StagedRecord {
            name,
            rtype: record.rtype,
            rdata_length: record.rdata.len() as u16,
            rdata_offset,
            ttl_s: record.ttl_s,
            position: record.position,
        });
    }

    /// Builds the zone of all records. Diagnostics about missing records have the position `end`.
    pub fn finish(mut self, end: Position) -> BuildOutcome {
        let mut diagnostics = Vec::new();
        if let Some(position) = self.overflow {
            let problem = "the zone has more than 4 GB of names or data up to this record";
            diagnostics.push(Diagnostic::error(position, problem, "split it into several zones"));
        }
        self.arrange(&mut diagnostics);
        self.check(end, &mut diagnostics);
        let mut zone = None;
        if !has_error(&diagnostics) {
            zone = self.build(&mut diagnostics);
        }
        // `build` reports RRsets that are too long.
        let zone = zone.filter(|_| !has_error(&diagnostics));
        diagnostics.sort_by_key(|diagnostic| diagnostic.position);
        BuildOutcome { zone, diagnostics }
    }

    /// Finds the RRsets, and for which names the zone is authoritative.
    fn arrange(&mut self, diagnostics: &mut Vec<Diagnostic>) {
        // Stable, and fast for sorted records, which most zone files have.
        self.records.sort_by_key(|record| (record.name, record.rtype));
        self.remove_duplicates(diagnostics);
        self.group_records(diagnostics);
        self.find_authority();
    }

    fn rdata(&self, record: &StagedRecord) -> &[u8] {
        let start = record.rdata_offset as usize;
        &self.rdata[start..start + usize::from(record.rdata_length)]
    }

    /// RFC 2181 §5: an RRset's records have different data, names in it being compared without regard to case.
    fn remove_duplicates(&mut self, diagnostics: &mut Vec<Diagnostic>) {
        let mut kept = 0;
        let mut start = 0;
        let mut order: Vec<u32> = Vec::new();
        while start < self.records.len() {
            let first = self.records[start];
            let rest = &self.records[start..];
            let count = rest.iter().take_while(|other| (other.name, other.rtype) == (first.name, first.rtype)).count();
            let end = start + count;
            order.clear();
            order.extend(start as u32..end as u32);
            if count > 1 {
                let data = |index: u32| self.rdata(&self.records[index as usize]);
                order.sort_by(|&left, &right| canonical::compare(first.rtype, data(left), data(right)));
                order.dedup_by(|later, earlier| {
                    let is_same = canonical::is_same(first.rtype, data(*later), data(*earlier));
                    if is_same {
                        let position = self.records[*later as usize].position;
                        let problem = format!("duplicate {} record of {}", first.rtype, self.names.name(first.name));
                        let remedy = "remove one of them; the record is served once";
                        diagnostics.push(Diagnostic::warning(position, problem, remedy));
                    }
                    is_same
                });
                order.sort_unstable();
            }
            for &index in &order {
                self.records[kept] = self.records[index as usize];
                kept += 1;
            }
            start = end;
        }
        self.records.truncate(kept);
    }

    /// Finds the RRsets and gives the records of each one TTL (RFC 2181 §5.2).
    fn group_records(&mut self, diagnostics: &mut Vec<Diagnostic>) {
        let mut owner = None;
        for index in 0..self.records.len() {
            let record = self.records[index];
            let same_rrset = self.rrsets.last().filter(|set| owner == Some(record.name) && set.rtype == record.rtype);
            if same_rrset.is_none() {
                if owner != Some(record.name) {
                    owner = Some(record.name);
                    self.names.start_rrsets(record.name, self.rrsets.len());
                }
                self.rrsets.push(RrsetRange { rtype: record.rtype, start: index as u32, end: index as u32 });
                self.names.add_rrset(record.name);
            }
            let rrset = self.rrsets.last_mut().expect("pushed above");
            rrset.end += 1;
            let first = self.records[rrset.start as usize];
            // RFC 4034 §3: an RRSIG has the TTL of the RRset that it covers.
            if first.ttl_s != record.ttl_s && record.rtype != Rtype::RRSIG {
                diagnostics.push(Diagnostic::warning(
                    record.position,
                    format!(
                        "the TTL {} differs from the TTL {} of the first {} record of {} (RFC 2181 section 5.2)",
                        record.ttl_s,
                        first.ttl_s,
                        record.rtype,
                        self.names.name(record.name)
                    ),
                    "give all records of one name and type the same TTL; the first one is used",
                ));
                self.records[index].ttl_s = first.ttl_s;
            }
        }
    }

    fn rrsets_of(&self, name: NameId) -> &[RrsetRange] {
        &self.rrsets[self.names.rrsets(name)]
    }

    fn rrset_of(&self, name: NameId, rtype: Rtype) -> Option<&RrsetRange> {
        self.rrsets_of(name).iter().find(|rrset| rrset.rtype == rtype)
    }

    fn has_rrset(&self, name: NameId, rtype: Rtype) -> bool {
        self.rrset_of(name, rtype).is_some()
    }

    fn records_of(&self, rrset: &RrsetRange) -> &[StagedRecord] {
        &self.records[rrset.start as usize..rrset.end as usize]
    }

    fn authority(&self, name: NameId) -> Authority {
        self.authority[name.index()]
    }

    /// Finds for each name the highest delegation point or DNAME at or above it.
    fn find_authority(&mut self) {
        self.authority = vec![Authority::Unknown; self.names.count()];
        self.authority[self.apex.index()] = Authority::Authoritative;
        let mut pending = Vec::new();
        for id in self.names.ids() {
            let mut ancestor = id;
            while self.authority(ancestor) == Authority::Unknown {
                pending.push(ancestor);
                ancestor = self.names.parent(ancestor).expect("only the apex has no parent, and it is known");
            }
            while let Some(name) = pending.pop() {
                let parent = self.names.parent(name).expect("as above");
                self.authority[name.index()] = match self.authority(parent) {
                    Authority::Delegated(point) => Authority::Delegated(point),
                    Authority::BelowDname(owner) => Authority::BelowDname(owner),
                    _ if self.has_rrset(parent, Rtype::DNAME) => Authority::BelowDname(parent),
                    _ if self.has_rrset(name, Rtype::NS) => Authority::Delegated(name),
                    _ => Authority::Authoritative,
                };
            }
        }
    }

    fn build(&self, diagnostics: &mut Vec<Diagnostic>) -> Option<Zone> {
        let mut arena: Vec<u8> = Vec::with_capacity(self.rdata.len() + self.names.count() * 64);
        let is_signed = self.is_signed();
        let mut nodes = Vec::with_capacity(self.names.count());
        let mut packer = RrsetPacker::new();
        let mut depth_max = 0;
        for id in self.names.ids() {
            depth_max = depth_max.max(self.names.name(id).labels().count());
            let offset = self.put_node(id, is_signed, &mut packer, &mut arena, diagnostics);
            nodes.push(NodeIndex::in_store(offset)?);
        }
        self.each_node_field(|id, field| field.write(&mut arena, nodes[id.index()].offset(), &nodes));
        let denial = self.put_denial_chain(is_signed, &nodes, &mut arena);
        let mut signed = None;
        if is_signed {
            let negative_soa = self.negative_soa(Form::Signed, &mut packer)?;
            signed = Some(SignedZone { negative_soa, denial, first_expiration: self.first_expiration()? });
        }
        let apex = self.names.name(self.apex);
        Some(Zone {
            apex: apex.to_owned(),
            apex_depth: apex.labels().count(),
            apex_hash: IndexedName::of(apex).hash(self.seed),
            depth_max,
            serial: serial_of(self.rdata(self.soa()?))?,
            record_count: self.records.len(),
            name_count: self.names.ids().filter(|&id| !self.is_nsec3_owner(id)).count(),
            seed: self.seed,
            store: Arc::new(ZoneStore {
                slots: self.names.node_slots(&nodes, |id| !self.is_nsec3_owner(id)),
                arena: arena.into_boxed_slice(),
            }),
            delta: None,
            apex_node: nodes[self.apex.index()],
            negative_soa: self.negative_soa(Form::Plain, &mut packer)?,
            links: None,
            journal: ZoneJournal::default(),
            signed,
        })
    }

    /// Appends the node of `id`, without its references, and returns its offset.
    fn put_node(
        &self,
        id: NameId,
        is_signed: bool,
        packer: &mut RrsetPacker,
        arena: &mut Vec<u8>,
        diagnostics: &mut Vec<Diagnostic>,
    ) -> usize {
        let name = self.names.name(id);
        let rrsets = self.rrsets_of(id);
        let (offset, mut node) = NodeWriter::start(arena, name, rrsets.len(), is_signed);
        for rrset in rrsets {
            node.start_rrset(arena, rrset.rtype);
            self.pack(id, rrset, Form::Plain, packer);
            let mut result = packer.finish(arena);
            if is_signed && self.has_signed_form(id, rrset) {
                node.start_signed_form(arena);
                self.pack(id, rrset, Form::Signed, packer);
                result = result.and_then(|()| packer.finish(arena));
            }
            if result.is_err() {
                let problem =
                    format!("the {} records of {name} do not fit into a message of 65,535 bytes", rrset.rtype);
                let remedy = "remove some of them, or distribute them over several names";
                diagnostics.push(Diagnostic::error(self.records_of(rrset)[0].position, problem, remedy));
            }
        }
        offset
    }

    /// Packs an RRset with its additional section.
    fn pack(&self, id: NameId, rrset: &RrsetRange, form: Form, packer: &mut RrsetPacker) {
        let is_referral = self.is_referral(id, rrset);
        packer.start(self.names.name(id), if is_referral { OwnerRole::QnameOrAncestor } else { OwnerRole::Qname });
        self.put_records(id, rrset, form, packer);
        if form == Form::Signed
            && is_referral
            && let Some(proof) = self.delegation_proof(id)
        {
            self.put_records(id, proof, form, packer);
        }
        self.put_additional(id, rrset, is_referral, form, packer);
    }

    /// Packs the records of an RRset and, in this form, their signatures.
    fn put_records(&self, id: NameId, rrset: &RrsetRange, form: Form, packer: &mut RrsetPacker) {
        for record in self.records_of(rrset) {
            packer.put_answer(rrset.rtype, record.ttl_s, self.rdata(record));
        }
        if form == Form::Signed {
            for signature in self.signatures(id, rrset.rtype) {
                packer.put_answer(Rtype::RRSIG, signature.ttl_s, self.rdata(signature));
            }
        }
    }

    /// Whether `rrset` is the NS RRset of a delegation.
    fn is_referral(&self, id: NameId, rrset: &RrsetRange) -> bool {
        self.authority(id) == Authority::Delegated(id) && rrset.rtype == Rtype::NS
    }

    /// Packs the addresses of the targets of `rrset`: for a referral all addresses in the zone, first the glue that is
    /// required (RFC 9471 §3.1), otherwise those that the zone is authoritative for.
    fn put_additional(
        &self,
        owner: NameId,
        rrset: &RrsetRange,
        is_referral: bool,
        form: Form,
        packer: &mut RrsetPacker,
    ) {
        if !is_referral {
            return self.put_targets(rrset, ADDITIONAL_TARGETS_MAX, form, packer, |host, _| {
                self.authority(host) == Authority::Authoritative
            });
        }
        let point = self.names.name(owner);
        for is_required in [true, false] {
            self.put_targets(rrset, usize::MAX, form, packer, |host, target| {
                let has_address = !matches!(self.authority(host), Authority::BelowDname(_) | Authority::Unknown);
                has_address && target.is_at_or_below(point) == is_required
            });
        }
    }

    /// Packs the addresses of the first `target_count_max` targets in the zone, if `is_included`.
    fn put_targets(
        &self,
        rrset: &RrsetRange,
        target_count_max: usize,
        form: Form,
        packer: &mut RrsetPacker,
        is_included: impl Fn(NameId, Name<'_>) -> bool,
    ) {
        let mut hosts: Vec<(NameId, Name<'_>)> = Vec::new();
        for record in self.records_of(rrset) {
            let Some(target) = rdata::target(rrset.rtype, self.rdata(record)) else { continue };
            let Some(host) = self.node_of(target) else { continue };
            if hosts.len() == target_count_max {
                break;
            }
            let is_same = |&(other, name): &(NameId, Name<'_>)| other == host && name.eq_ignore_case(target);
            if !is_included(host, target) || hosts.iter().any(is_same) {
                continue;
            }
            hosts.push((host, target));
            // RFC 9460 §4.1: the additional section has the records that an alias leads to.
            let is_alias = rdata::is_svcb_alias(rrset.rtype, self.rdata(record)) && host != record.name;
            let leads_to = is_alias.then_some(rrset.rtype);
            for rtype in [Rtype::A, Rtype::AAAA].into_iter().chain(leads_to) {
                let Some(addresses) = self.rrset_of(host, rtype) else { continue };
                for address in self.records_of(addresses) {
                    packer.put_additional(target, rtype, address.ttl_s, self.rdata(address));
                }
                // RFC 4035 §3.1.1.
                if form == Form::Signed && self.authority(host) == Authority::Authoritative {
                    for signature in self.signatures(host, rtype) {
                        packer.put_additional(target, Rtype::RRSIG, signature.ttl_s, self.rdata(signature));
                    }
                }
            }
        }
    }

    /// The name with the records of `target`: itself, or the wildcard that it matches (RFC 4592 §3.3.1).
    fn node_of(&self, target: Name<'_>) -> Option<NameId> {
        self.names.find(target).or_else(|| {
            let encloser = self.names.closest_encloser(target).filter(|&name| !self.has_rrset(name, Rtype::DNAME))?;
            self.names.wildcard_child(encloser)
        })
    }

    /// Calls `set` with the fields of nodes that depend on other nodes.
    fn each_node_field(&self, mut set: impl FnMut(NameId, NodeField)) {
        for id in self.names.ids() {
            if let Some(parent) = self.wildcard_parent(id) {
                set(parent, NodeField::Ref(NodeRef::WildcardChild, id));
            }
            match self.authority(id) {
                Authority::Delegated(point) => set(id, NodeField::Ref(NodeRef::DelegationPoint, point)),
                Authority::BelowDname(owner) => set(id, NodeField::Ref(NodeRef::DnameAbove, owner)),
                Authority::Authoritative | Authority::Unknown => {
                    if self.has_rrset(id, Rtype::DNAME) {
                        set(id, NodeField::HasDname);
                    }
                }
            }
        }
    }

    /// The parent of a wildcard, if names below it match the wildcard: the zone is authoritative for it.
    fn wildcard_parent(&self, id: NameId) -> Option<NameId> {
        let parent = self.names.parent(id).filter(|_| self.names.name(id).is_wildcard());
        parent.filter(|&parent| {
            self.authority(parent) == Authority::Authoritative && !self.has_rrset(parent, Rtype::DNAME)
        })
    }

    fn soa(&self) -> Option<&StagedRecord> {
        self.records_of(self.rrset_of(self.apex, Rtype::SOA)?).first()
    }

    /// Packs the SOA for negative answers, whose TTL is the lower of the SOA's TTL and MINIMUM (RFC 2308 §5).
    fn negative_soa(&self, form: Form, packer: &mut RrsetPacker) -> Option<Box<[u8]>> {
        let record = self.soa()?;
        let soa = self.rdata(record);
        let minimum_s = u32::from_be_bytes(soa[soa.len() - 4..].try_into().ok()?);
        packer.start(self.names.name(self.apex), OwnerRole::QnameOrAncestor);
        packer.put_answer(Rtype::SOA, record.ttl_s.min(minimum_s), soa);
        if form == Form::Signed {
            for signature in self.signatures(self.apex, Rtype::SOA) {
                packer.put_answer(Rtype::RRSIG, signature.ttl_s.min(minimum_s), self.rdata(signature));
            }
        }
        let mut packed = Vec::new();
        packer.finish(&mut packed).ok()?;
        Some(packed.into_boxed_slice())
    }
}

/// A field of a node that depends on other nodes.
enum NodeField {
    Ref(NodeRef, NameId),
    HasDname,
}

impl NodeField {
    /// Writes the field of the node at `offset` of `arena`; `nodes` has the nodes of all names.
    fn write(self, arena: &mut [u8], offset: usize, nodes: &[NodeIndex]) {
        match self {
            NodeField::Ref(kind, to) => layout::set_node_ref(arena, offset, kind, nodes[to.index()]),
            NodeField::HasDname => layout::set_has_dname(arena, offset),
        }
    }
}

fn has_error(diagnostics: &[Diagnostic]) -> bool {
    diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
}

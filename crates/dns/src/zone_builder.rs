//! Turns the records of a zone into the snapshot that is served, or says what is wrong with them as a zone.

mod checks;
mod names;

use crate::name::Name;
use crate::name_hash::{HashSeed, IndexedName};
use crate::packed_rrset::{Kind, RrsetPacker};
use crate::rdata;
use crate::rtype::Rtype;
use crate::zone::{self, Zone};
use crate::zonefile::{Diagnostic, Position, Record, Severity};
use alloc::boxed::Box;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use names::{NameId, Names};

/// Hosts per answer whose addresses are told: as many as the root has name servers. A referral tells all of its glue.
const ADDITIONAL_NAMES_MAX: usize = 13;

/// Octets that the names, or the data, of one zone may have: what 32 bits reach, less the longest record.
const OCTETS_MAX: usize = u32::MAX as usize - (1 << 17);

/// Bounds of a zone.
#[derive(Clone, Copy, Debug)]
pub struct ZoneLimits {
    /// Records of one name and type.
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
    names: Names,
    records: Vec<Staged>,
    rdata: Vec<u8>,
    limits: ZoneLimits,
    seed: HashSeed,
    /// The first record for which there is no room.
    overflow: Option<Position>,
}

/// A record as it waits to be built into the zone.
#[derive(Clone, Copy, Debug)]
struct Staged {
    name: NameId,
    rtype: Rtype,
    rdata_length: u16,
    rdata_at: u32,
    ttl_s: u32,
    position: Position,
}

/// The records of one name and type: a run of the sorted records.
#[derive(Clone, Copy, Debug)]
struct RrSet {
    rtype: Rtype,
    start: u32,
    end: u32,
}

/// What came of the records.
#[derive(Debug)]
pub struct BuildOutcome {
    /// The zone, unless an diagnostic is an error.
    pub zone: Option<Zone>,
    /// What is wrong and what is odd, in the order of the file.
    pub diagnostics: Vec<Diagnostic>,
}

impl ZoneBuilder {
    /// A zone that begins at `apex`, without records yet.
    pub fn new(apex: Name<'_>, seed: HashSeed, limits: ZoneLimits) -> ZoneBuilder {
        let (names, apex) = Names::new(apex, seed);
        ZoneBuilder { apex, names, records: Vec::new(), rdata: Vec::new(), limits, seed, overflow: None }
    }

    /// Adds a record whose owner is the apex or below it, as the zone file's parser guarantees.
    pub fn add(&mut self, record: &Record<'_>) {
        if self.rdata.len() > OCTETS_MAX || self.names.octet_count() > OCTETS_MAX {
            self.overflow.get_or_insert(record.position);
            return;
        }
        let name = self.names.intern(record.owner);
        let rdata_at = u32::try_from(self.rdata.len()).expect("bounded above");
        self.rdata.extend_from_slice(record.rdata);
        self.records.push(Staged {
            name,
            rtype: record.rtype,
            rdata_length: record.rdata.len() as u16,
            rdata_at,
            ttl_s: record.ttl_s,
            position: record.position,
        });
    }

    /// The zone of all records added, whose file ends at `end`: where something is missing, it is missing there.
    pub fn finish(mut self, end: Position) -> BuildOutcome {
        // Stable, and quick on what is in order already, as most zone files are.
        self.records.sort_by_key(|record| (record.name, record.rtype));
        let mut diagnostics = Vec::new();
        if let Some(position) = self.overflow {
            diagnostics.push(Diagnostic {
                severity: Severity::Error,
                position,
                problem: "the zone has more than 4 GB of names or of data up to here".into(),
                remedy: "split it into several zones".into(),
            });
        }
        self.drop_duplicates(&mut diagnostics);
        let sets = self.group(&mut diagnostics);
        let cuts = self.find_cuts(&sets);
        self.check(&sets, &cuts, end, &mut diagnostics);
        let mut zone = None;
        if !has_error(&diagnostics) {
            zone = self.build(&sets, &cuts, &mut diagnostics);
        }
        // Building may find that an answer is too long.
        let zone = zone.filter(|_| !has_error(&diagnostics));
        diagnostics.sort_by_key(|diagnostic| diagnostic.position);
        BuildOutcome { zone, diagnostics }
    }

    fn rdata(&self, record: &Staged) -> &[u8] {
        let start = record.rdata_at as usize;
        &self.rdata[start..start + usize::from(record.rdata_length)]
    }

    /// RFC 2181 §5: an RRset has no two records of the same data.
    fn drop_duplicates(&mut self, diagnostics: &mut Vec<Diagnostic>) {
        let mut kept = 0;
        let mut start = 0;
        let mut order: Vec<u32> = Vec::new();
        while start < self.records.len() {
            let first = self.records[start];
            let run = &self.records[start..];
            let count = run.iter().take_while(|other| (other.name, other.rtype) == (first.name, first.rtype)).count();
            let end = start + count;
            if count > 1 {
                order.clear();
                order.extend(start as u32..end as u32);
                let data = |index: u32| self.rdata(&self.records[index as usize]);
                order.sort_by(|&left, &right| data(left).cmp(data(right)));
                order.dedup_by(|later, earlier| {
                    let is_same = data(*later) == data(*earlier);
                    if is_same {
                        let position = self.records[*later as usize].position;
                        diagnostics.push(duplicate(position, first.rtype, self.names.name(first.name)));
                    }
                    is_same
                });
                order.sort_unstable();
            }
            if count == 1 {
                self.records[kept] = first;
                kept += 1;
            } else {
                for &index in &order {
                    self.records[kept] = self.records[index as usize];
                    kept += 1;
                }
            }
            start = end;
        }
        self.records.truncate(kept);
    }

    /// The RRsets, and for each name the run of them that is its own. One TTL for each (RFC 2181 §5.2).
    fn group(&mut self, diagnostics: &mut Vec<Diagnostic>) -> Vec<RrSet> {
        let mut sets: Vec<RrSet> = Vec::with_capacity(self.records.len());
        let mut owner = None;
        for index in 0..self.records.len() {
            let record = self.records[index];
            let is_same_set = owner == Some(record.name) && sets.last().is_some_and(|set| set.rtype == record.rtype);
            if !is_same_set {
                if owner != Some(record.name) {
                    owner = Some(record.name);
                    self.names.start_sets(record.name, sets.len());
                }
                sets.push(RrSet { rtype: record.rtype, start: index as u32, end: index as u32 });
                self.names.count_set(record.name);
            }
            let set = sets.last_mut().expect("pushed above, if not before");
            let first = self.records[set.start as usize];
            if first.ttl_s != record.ttl_s {
                diagnostics.push(Diagnostic {
                    severity: Severity::Warning,
                    position: record.position,
                    problem: format!(
                        "the TTL {} differs from the {} of the other {} records of {}",
                        record.ttl_s,
                        first.ttl_s,
                        record.rtype,
                        self.names.name(record.name)
                    ),
                    remedy: "give all records of one name and type the same TTL; the first is used".into(),
                });
                self.records[index].ttl_s = first.ttl_s;
            }
            set.end += 1;
        }
        sets
    }

    fn sets_of<'s>(&self, name: NameId, sets: &'s [RrSet]) -> &'s [RrSet] {
        &sets[self.names.sets(name)]
    }

    fn set_of<'s>(&self, name: NameId, rtype: Rtype, sets: &'s [RrSet]) -> Option<&'s RrSet> {
        self.sets_of(name, sets).iter().find(|set| set.rtype == rtype)
    }

    fn records_of(&self, set: &RrSet) -> &[Staged] {
        &self.records[set.start as usize..set.end as usize]
    }

    /// For each name, what hides it from plain answers: the highest cut or DNAME at or above it.
    fn find_cuts(&self, sets: &[RrSet]) -> Vec<Visibility> {
        let mut places = vec![Visibility::Unknown; self.names.count()];
        places[self.apex.index()] = Visibility::Plain;
        let mut pending = Vec::new();
        for id in self.names.ids() {
            let mut ancestor = id;
            while places[ancestor.index()] == Visibility::Unknown {
                pending.push(ancestor);
                ancestor = self.names.parent(ancestor).expect("only the apex has none, and its place is known");
            }
            while let Some(name) = pending.pop() {
                let parent = self.names.parent(name).expect("as above");
                places[name.index()] = match places[parent.index()] {
                    Visibility::Delegated(cut) => Visibility::Delegated(cut),
                    Visibility::BelowDname(dname) => Visibility::BelowDname(dname),
                    _ if self.set_of(parent, Rtype::DNAME, sets).is_some() => Visibility::BelowDname(parent),
                    _ if self.set_of(name, Rtype::NS, sets).is_some() && !self.names.name(name).is_wildcard() => {
                        Visibility::Delegated(name)
                    }
                    _ => Visibility::Plain,
                };
            }
        }
        places
    }

    fn build(&self, sets: &[RrSet], cuts: &[Visibility], diagnostics: &mut Vec<Diagnostic>) -> Option<Zone> {
        let mut arena: Vec<u8> = Vec::with_capacity(self.rdata.len() + self.names.count() * 64);
        let mut offsets = vec![0u32; self.names.count()];
        let mut maker = RrsetPacker::new();
        let mut depth_max = 0;
        for id in self.names.ids() {
            arena.resize(arena.len().next_multiple_of(zone::NODE_ALIGNMENT), 0);
            offsets[id.index()] = u32::try_from(arena.len() / zone::NODE_ALIGNMENT).ok()?;
            depth_max = depth_max.max(self.names.name(id).labels().count());
            self.put_node(id, sets, cuts, &mut maker, &mut arena, diagnostics);
        }
        self.link_nodes(&offsets, sets, cuts, &mut arena);
        let negative_soa = arena.len();
        let soa = self.put_negative_soa(sets, &mut maker, &mut arena)?;
        let (slots, slot_bits) = self.names.table(&offsets);
        let serial_at = soa.len() - 20;
        let apex = self.names.name(self.apex);
        let zone = Zone {
            apex: apex.to_owned(),
            apex_depth: apex.labels().count(),
            apex_hash: IndexedName::of(apex).hash(self.seed),
            depth_max,
            serial: u32::from_be_bytes(soa[serial_at..serial_at + 4].try_into().expect("four octets")),
            record_count: self.records.len(),
            name_count: self.names.count(),
            seed: self.seed,
            slot_bits,
            slots,
            arena: arena.into_boxed_slice(),
            apex_node: offsets[self.apex.index()],
            negative_soa,
        };
        Some(zone)
    }

    /// Appends the node of `id`; its link is written when all nodes have their places.
    fn put_node(
        &self,
        id: NameId,
        sets: &[RrSet],
        cuts: &[Visibility],
        maker: &mut RrsetPacker,
        arena: &mut Vec<u8>,
        diagnostics: &mut Vec<Diagnostic>,
    ) {
        let start = arena.len();
        let name = self.names.name(id);
        let own = self.sets_of(id, sets);
        arena.extend_from_slice(&[0, name.length_bytes() as u8]);
        arena.extend_from_slice(&(own.len() as u16).to_le_bytes());
        arena.extend_from_slice(&[0; 4]);
        arena.extend_from_slice(name.as_bytes());
        let entries_at = arena.len();
        arena.resize(entries_at + own.len() * zone::TYPE_ENTRY_BYTES, 0);
        for (index, set) in own.iter().enumerate() {
            let entry = entries_at + index * zone::TYPE_ENTRY_BYTES;
            let offset = (arena.len() - start) as u32;
            arena[entry..entry + 2].copy_from_slice(&set.rtype.0.to_le_bytes());
            arena[entry + 2..entry + 6].copy_from_slice(&offset.to_le_bytes());
            let is_referral = cuts[id.index()] == Visibility::Delegated(id) && set.rtype == Rtype::NS;
            maker.start(name, if is_referral { Kind::Authority } else { Kind::Answer });
            for record in self.records_of(set) {
                maker.put_answer(set.rtype, record.ttl_s, self.rdata(record));
            }
            self.put_additional(set, is_referral, sets, cuts, maker);
            if maker.finish(arena).is_err() {
                let record = self.records_of(set)[0];
                diagnostics.push(too_long(record.position, set.rtype, name));
                return;
            }
        }
    }

    /// The addresses of the hosts that the records of `set` name: with a referral all that the zone has, glue among
    /// them (RFC 9471); else those that the zone itself answers for.
    fn put_additional(
        &self,
        set: &RrSet,
        is_referral: bool,
        sets: &[RrSet],
        cuts: &[Visibility],
        maker: &mut RrsetPacker,
    ) {
        let mut hosts: Vec<NameId> = Vec::new();
        for record in self.records_of(set) {
            let Some(target) = rdata::target(set.rtype, self.rdata(record)) else { continue };
            let Some(host) = self.names.find(target) else { continue };
            // RFC 9471 §3.1: of glue, all.
            if hosts.len() == ADDITIONAL_NAMES_MAX && !is_referral {
                break;
            }
            let may_tell = match cuts[host.index()] {
                Visibility::Plain => true,
                Visibility::Delegated(_) => is_referral,
                _ => false,
            };
            if !may_tell || hosts.contains(&host) {
                continue;
            }
            hosts.push(host);
            for rtype in [Rtype::A, Rtype::AAAA] {
                let Some(addresses) = self.set_of(host, rtype, sets) else { continue };
                for address in self.records_of(addresses) {
                    maker.put_additional(target, rtype, address.ttl_s, self.rdata(address));
                }
            }
        }
    }

    fn link_nodes(&self, offsets: &[u32], sets: &[RrSet], cuts: &[Visibility], arena: &mut [u8]) {
        for id in self.names.ids() {
            let at = offsets[id.index()] as usize * zone::NODE_ALIGNMENT;
            let mut link = |flag: u8, to: NameId| {
                arena[at] |= flag;
                arena[at + 4..at + 8].copy_from_slice(&offsets[to.index()].to_le_bytes());
            };
            match cuts[id.index()] {
                Visibility::Delegated(cut) => link(zone::FLAG_DELEGATED, cut),
                Visibility::BelowDname(dname) => link(zone::FLAG_BELOW_DNAME, dname),
                Visibility::Plain | Visibility::Unknown => {
                    if self.set_of(id, Rtype::DNAME, sets).is_some() {
                        arena[at] |= zone::FLAG_DNAME;
                    }
                    // The parent leads to its wildcard.
                    if let Some(parent) = self.names.parent(id).filter(|_| self.names.name(id).is_wildcard()) {
                        let at = offsets[parent.index()] as usize * zone::NODE_ALIGNMENT;
                        arena[at] |= zone::FLAG_HAS_WILDCARD;
                        arena[at + 4..at + 8].copy_from_slice(&offsets[id.index()].to_le_bytes());
                    }
                }
            }
        }
    }

    /// Stores the SOA for negative answers: its TTL is the lower of its own and of its last field (RFC 2308 §5).
    fn put_negative_soa(&self, sets: &[RrSet], maker: &mut RrsetPacker, arena: &mut Vec<u8>) -> Option<&[u8]> {
        let record = self.records_of(self.set_of(self.apex, Rtype::SOA, sets)?)[0];
        let soa = self.rdata(&record);
        let minimum = u32::from_be_bytes(soa[soa.len() - 4..].try_into().ok()?);
        maker.start(self.names.name(self.apex), Kind::Authority);
        maker.put_answer(Rtype::SOA, record.ttl_s.min(minimum), soa);
        maker.finish(arena).ok()?;
        Some(soa)
    }
}

/// Where a name stands, seen from the apex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Visibility {
    Unknown,
    /// The zone answers for it.
    Plain,
    /// At or below this cut.
    Delegated(NameId),
    /// Below the DNAME of this name.
    BelowDname(NameId),
}

fn has_error(diagnostics: &[Diagnostic]) -> bool {
    diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error)
}

fn duplicate(position: Position, rtype: Rtype, name: Name<'_>) -> Diagnostic {
    Diagnostic {
        severity: Severity::Warning,
        position,
        problem: format!("this {rtype} record of {name} stands in the zone already"),
        remedy: "remove one of the two; it is served once".into(),
    }
}

fn too_long(position: Position, rtype: Rtype, name: Name<'_>) -> Diagnostic {
    Diagnostic {
        severity: Severity::Error,
        position,
        problem: format!("the {rtype} records of {name} do not fit into one answer of 65,535 octets"),
        remedy: "remove some of them, or spread them over several names".into(),
    }
}

/// A table of places as [`Zone`] searches it.
type Slots = (Box<[u64]>, u32);

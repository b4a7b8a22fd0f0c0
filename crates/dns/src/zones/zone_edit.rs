//! Changes a version of a zone into the next one, at a cost that depends on the change and not on the size of the zone
//! (docs/decisions/0045-zone-versions.md).
//!
//! The next version shares the store. The delta has a new node for each name whose node depends on a name that changes:
//!
//! - the name itself, and ancestors that come or go with it as empty non-terminals;
//! - the owners of RRsets that refer to it, as their additional section has copies of its addresses;
//! - the names below it, if it is a delegation point or the owner of a DNAME, as they refer to its node;
//! - the parent of a wildcard, which refers to its node;
//! - the owner that precedes a new owner in the chain of NSEC or NSEC3 records, to whose node others refer for a proof.
//!
//! These nodes are built from the records that they depend on, by the code that builds whole zones, so they have the
//! same bytes.

use crate::text::name::{Name, NameBuf};
use crate::text::rdata::{self, canonical};
use crate::text::rtype::Rtype;
use crate::text::zonefile::{Position, Record};
use crate::zones::delta::Delta;
use crate::zones::denial::DenialChain;
use crate::zones::journal::{RecordRole, ZoneChange, ZoneJournal};
use crate::zones::layout::{Node, NodeRef};
use crate::zones::name_hash::{IndexedName, NameHash};
use crate::zones::sorted_pages::SortedPages;
use crate::zones::zone::{SignedZone, Zone};
use crate::zones::zone_builder::{BuildOutcome, BuiltPart, Signature, ZoneBuilder, ZoneLimits};
use crate::zones::zone_digest::digest_of_node;
use crate::zones::zone_links::{NodesByName, ZoneLinks};
use crate::zones::zone_walk::{Position as ZonePosition, Visit};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Diagnostics about changes have no position.
const NO_POSITION: Position = Position { file_index: 0, line: 0, column: 1 };
/// A delta has at most this part of the bytes of its store, and of its names. A larger one becomes a store.
const STORE_SHARE: usize = 8;
/// Bytes of a delta of a small zone: building it as a whole takes less than a millisecond.
const DELTA_BYTES_MIN: usize = 256 * 1024;
/// Names of a delta, and so of one change. The slots of this many names are copied in a tenth of a millisecond.
const DELTA_NAMES_MAX: usize = 1 << 16;

/// The data of a record of an RRset that may change.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RecordData {
    ttl_s: u32,
    rdata: Vec<u8>,
}

impl RecordData {
    /// Whether both are one record of the RRset.
    fn is_same(&self, record: &Record<'_>) -> bool {
        canonical::is_same(record.rtype, &self.rdata, record.rdata)
    }
}

/// The RRsets of a name, by type. No entry is empty.
type Rrsets = BTreeMap<u16, Vec<RecordData>>;

/// A name in wire form and lower case.
type NameKey = Vec<u8>;

/// Changes of a version, which lead to the next version.
#[derive(Debug)]
pub struct ZoneEdit<'z> {
    zone: &'z Zone,
    /// Names that may have changed, with all RRsets that they have now.
    names: BTreeMap<NameKey, Rrsets>,
}

impl Zone {
    /// Builds the data that [`ZoneEdit`] needs, unless the zone has it: then all further changes are quick, including
    /// the first. Time and memory are proportional to the size of the zone.
    pub fn prepare_edits(&mut self) {
        if self.links.is_none() {
            self.links = Some(Box::new(links_of(self)));
        }
    }

    /// The number of names that differ from the store, which this version shares with earlier versions.
    pub fn delta_name_count(&self) -> usize {
        self.delta.as_ref().map_or(0, |delta| delta.name_count())
    }

    /// This version with its own store, so that no look-up has to search a delta. Time and memory are proportional to
    /// the size of the zone. `None` if the zone has errors with these limits.
    pub fn merged(&self, limits: ZoneLimits) -> Option<Zone> {
        let mut merged = ZoneEdit::new(self).finish_whole(limits).zone?;
        merged.journal = self.journal.clone();
        Some(merged)
    }

    /// The version `latest`, which changes of this one have led to, with the store of `merged`, which is this version
    /// merged. Time and memory are proportional to the size of the changes. `None` if `latest` shares no store with
    /// this version, or it cannot be made.
    pub fn rebased(&self, merged: &Zone, latest: &Zone, limits: ZoneLimits) -> Option<Zone> {
        let mut edit = ZoneEdit::new(merged);
        for node in latest.nodes_beside(self)?.iter().chain(&self.nodes_beside(latest)?) {
            let now = latest.node_named(node.name()).map_or_else(Rrsets::new, |node| rrsets_of(&node));
            edit.names.insert(node.name().as_bytes().to_vec(), now);
        }
        let mut rebased = edit.finish(limits).zone?;
        rebased.journal = latest.journal.clone();
        Some(rebased)
    }

    /// Whether the next change makes a version that shares nothing with this one, since they differ from the store in
    /// too much.
    fn has_large_delta(&self) -> bool {
        let Some(delta) = &self.delta else { return false };
        let bytes_max = (self.store.arena.len() / STORE_SHARE).max(DELTA_BYTES_MIN);
        delta.memory_bytes() > bytes_max || delta.name_count() > DELTA_NAMES_MAX
    }
}

impl<'z> ZoneEdit<'z> {
    /// An edit without changes of `zone`.
    pub fn new(zone: &'z Zone) -> ZoneEdit<'z> {
        ZoneEdit { zone, names: BTreeMap::new() }
    }

    /// The RRsets of a name at or below the apex, to be changed.
    fn rrsets(&mut self, owner: Name<'_>) -> &mut Rrsets {
        let zone = self.zone;
        let owner = owner.to_lowercase();
        self.names
            .entry(owner.as_name().as_bytes().to_vec())
            .or_insert_with(|| zone.node_named(owner.as_name()).map_or_else(Rrsets::new, |node| rrsets_of(&node)))
    }

    /// Removes the records of one type of a name at or below the apex.
    pub fn clear_rrset(&mut self, owner: Name<'_>, rtype: Rtype) {
        self.rrsets(owner).remove(&rtype.0);
    }

    /// Removes all records of a name at or below the apex.
    pub fn clear(&mut self, owner: Name<'_>) {
        self.names.insert(owner.to_lowercase().as_name().as_bytes().to_vec(), Rrsets::new());
    }

    /// Adds a record, and gives all of its RRset its TTL. The owner is at or below the apex.
    pub fn add(&mut self, record: &Record<'_>) {
        let records = self.rrsets(record.owner).entry(record.rtype.0).or_default();
        if !records.iter().any(|other| other.is_same(record)) {
            records.push(RecordData { ttl_s: record.ttl_s, rdata: record.rdata.to_vec() });
        }
        if record.rtype != Rtype::RRSIG {
            records.iter_mut().for_each(|other| other.ttl_s = record.ttl_s);
        }
    }

    /// Removes a record. Returns whether it was there.
    pub fn remove(&mut self, record: &Record<'_>) -> bool {
        let rrsets = self.rrsets(record.owner);
        let Some(records) = rrsets.get_mut(&record.rtype.0) else { return false };
        let before = records.len();
        records.retain(|other| !other.is_same(record));
        let is_removed = records.len() < before;
        if records.is_empty() {
            rrsets.remove(&record.rtype.0);
        }
        is_removed
    }

    /// Applies a change that continues from this version. Returns whether the change fits: each removed record exists,
    /// no added record does, and the records of each extended RRset have one TTL.
    pub fn apply(&mut self, change: &ZoneChange) -> bool {
        let mut fits = true;
        change.each_record(|role, record| {
            fits = fits
                && match role {
                    RecordRole::Removed => self.remove(record),
                    RecordRole::Added | RecordRole::OfZone => self.add_new(record),
                };
        });
        fits
    }

    /// Adds a record, unless it exists or its RRset has another TTL. Returns whether it was added.
    fn add_new(&mut self, record: &Record<'_>) -> bool {
        let has_same_ttl = |other: &RecordData| other.ttl_s == record.ttl_s || record.rtype == Rtype::RRSIG;
        let records = self.rrsets(record.owner).get(&record.rtype.0);
        let mut others = records.into_iter().flatten();
        let fits = others.all(|other| !other.is_same(record) && has_same_ttl(other));
        if fits {
            self.add(record);
        }
        fits
    }

    /// The next version, without a journal.
    pub fn finish(self, limits: ZoneLimits) -> BuildOutcome {
        if self.changes_proofs() || self.zone.has_large_delta() {
            return self.finish_whole(limits);
        }
        let mut made = None;
        let links = self.zone.links.as_deref().unwrap_or_else(|| made.insert(links_of(self.zone)));
        if links.has_other_nsec3 {
            return self.finish_whole(limits);
        }
        let outcome = Plan::new(&self, links).and_then(|plan| plan.build(limits));
        outcome.unwrap_or_else(|| self.finish_whole(limits))
    }

    /// Whether the chain that denies existence may have changed.
    fn changes_proofs(&self) -> bool {
        let Some(rrsets) = self.names.get(self.zone.apex().as_bytes()) else { return false };
        let before = rrsets_of(&self.zone.apex_node());
        let has_changed = |rtype: Rtype| rrsets.get(&rtype.0) != before.get(&rtype.0);
        has_changed(Rtype::NSEC3PARAM)
            || rrsets.contains_key(&Rtype::NSEC3PARAM.0) && !matches!(self.zone.denial(), DenialChain::Nsec3(_))
    }

    /// The next version, with its own store.
    fn finish_whole(&self, limits: ZoneLimits) -> BuildOutcome {
        let mut builder = ZoneBuilder::new(self.zone.apex(), self.zone.seed, limits);
        let mut rdata = Vec::new();
        ZonePosition::Start.walk(self.zone, |found, record| {
            if !self.names.contains_key(found.owner.as_bytes()) {
                rdata.clear();
                found.rrset.put_rdata(found.owner, record, &mut rdata);
                let ttl_s = u32::from_be_bytes(record.ttl());
                let (owner, rtype) = (found.owner, record.rtype);
                builder.add(&Record { position: NO_POSITION, owner, rtype, ttl_s, rdata: &rdata });
            }
            Visit::Next
        });
        for (owner, rrsets) in &self.names {
            add_rrsets(&mut builder, Name::of_stored(owner), rrsets);
        }
        let mut outcome = builder.finish(NO_POSITION);
        if self.zone.links.is_some()
            && let Some(zone) = &mut outcome.zone
        {
            zone.prepare_edits();
        }
        outcome
    }
}

/// The names of the next version that have new nodes.
struct Plan<'e, 'z> {
    zone: &'z Zone,
    edited: &'e BTreeMap<NameKey, Rrsets>,
    links: &'e ZoneLinks,
    /// Names, also empty non-terminals, that only the next version has.
    created: BTreeSet<NameKey>,
    /// Names that it no longer has.
    removed: BTreeSet<NameKey>,
    /// Names whose node was replaced or removed.
    touched: BTreeSet<NameKey>,
    /// The names whose effect on other names is not known yet.
    pending: Vec<NameKey>,
}

impl<'e, 'z> Plan<'e, 'z> {
    /// The plan for `edit`; `None` if the change touches so much that building the whole zone is better.
    fn new(edit: &'e ZoneEdit<'z>, links: &'e ZoneLinks) -> Option<Plan<'e, 'z>> {
        let mut plan = Plan {
            zone: edit.zone,
            edited: &edit.names,
            links,
            created: BTreeSet::new(),
            removed: BTreeSet::new(),
            touched: BTreeSet::new(),
            pending: Vec::new(),
        };
        let before =
            |name: &NameKey| plan.node(Name::of_stored(name)).map_or_else(Rrsets::new, |node| rrsets_of(&node));
        let is_changed = |(name, rrsets): &(&NameKey, &Rrsets)| before(name) != **rrsets;
        let changed: Vec<&NameKey> = edit.names.iter().filter(is_changed).map(|(name, _)| name).collect();
        plan.find_created(&changed);
        plan.find_removed(&changed);
        let all: Vec<NameKey> = plan.created.iter().chain(&plan.removed).chain(changed).cloned().collect();
        all.iter().for_each(|name| plan.touch(Name::of_stored(name)));
        let names_max = (edit.zone.name_count / STORE_SHARE).clamp(256, DELTA_NAMES_MAX);
        while let Some(name) = plan.pending.pop() {
            plan.touch_dependents(&name);
            if plan.touched.len() > names_max {
                return None;
            }
        }
        Some(plan)
    }

    fn hash(&self, name: Name<'_>) -> NameHash {
        IndexedName::of(name).hash(self.zone.seed)
    }

    /// The node of `name` in the previous version.
    fn node(&self, name: Name<'_>) -> Option<Node<'z>> {
        self.zone.node_named(name)
    }

    /// The parent of a name below the apex.
    fn parent<'n>(&self, name: Name<'n>) -> Option<Name<'n>> {
        name.parent().filter(|_| name != self.zone.apex())
    }

    /// Whether the next version has `name`.
    fn exists_after(&self, name: Name<'_>) -> bool {
        let key = name.as_bytes();
        self.created.contains(key) || !self.removed.contains(key) && self.node(name).is_some()
    }

    /// Whether the next version has records of `name`.
    fn has_records_after(&self, name: Name<'_>) -> bool {
        match self.edited.get(name.as_bytes()) {
            Some(rrsets) => !rrsets.is_empty(),
            None => self.node(name).is_some_and(|node| node.types().next().is_some()),
        }
    }

    fn find_created(&mut self, changed: &[&NameKey]) {
        for name in changed.iter().filter(|name| !self.edited[**name].is_empty()) {
            let mut next = Some(Name::of_stored(name));
            while let Some(name) = next.filter(|&name| self.node(name).is_none()) {
                self.created.insert(name.as_bytes().to_vec());
                next = self.parent(name);
            }
        }
    }

    /// Finds the names that have lost all records, and all names below them.
    fn find_removed(&mut self, changed: &[&NameKey]) {
        // Ancestors of these stay.
        let mut parents = BTreeSet::new();
        for name in &self.created {
            parents.extend(self.parent(Name::of_stored(name)).map(|parent| parent.as_bytes().to_vec()));
        }
        // The deepest names first.
        let depth = |name: &NameKey| usize::MAX - Name::of_stored(name).labels().count();
        let mut candidates: BTreeSet<(usize, NameKey)> =
            changed.iter().map(|name| (depth(name), name.to_vec())).collect();
        while let Some((_, key)) = candidates.pop_first() {
            let name = Name::of_stored(&key);
            let is_kept = self.node(name).is_none()
                || self.has_records_after(name)
                || parents.contains(&key)
                || self.children(name).any(|child| !self.removed.contains(child.name_bytes()));
            if is_kept {
                continue;
            }
            // The apex has records, so it is not removed.
            if let Some(parent) = self.parent(name) {
                candidates.insert((depth(&parent.as_bytes().to_vec()), parent.as_bytes().to_vec()));
            }
            self.removed.insert(key);
        }
    }

    /// The nodes of the names one label below `name` in the previous version.
    fn children(&self, name: Name<'_>) -> impl Iterator<Item = Node<'z>> {
        let nodes = self.links.children.of(self.hash(name)).map(|index| self.zone.node(index));
        nodes.filter(move |node| node.name().parent() == Some(name))
    }

    fn touch(&mut self, name: Name<'_>) {
        let is_new = self.touched.insert(name.as_bytes().to_vec());
        if is_new {
            self.pending.push(name.as_bytes().to_vec());
        }
    }

    /// Touches the nodes that depend on the node of `key`.
    fn touch_dependents(&mut self, key: &NameKey) {
        let name = Name::of_stored(key);
        let before = self.node(name);
        let after = self.edited.get(key);
        let has_before = |rtype: Rtype| before.is_some_and(|node| node.rrset(rtype).is_some());
        let has_after = |rtype: Rtype| match after {
            Some(rrsets) => rrsets.contains_key(&rtype.0),
            None => has_before(rtype),
        };
        if name.is_wildcard()
            && let Some(parent) = self.parent(name)
        {
            self.touch(parent);
        }
        let is_apex = name == self.zone.apex();
        let hiding = [Rtype::NS, Rtype::DNAME].into_iter().filter(|&rtype| !is_apex || rtype == Rtype::DNAME);
        let (mut hides, mut is_authority_changed) = (false, false);
        for rtype in hiding {
            hides |= has_before(rtype) || has_after(rtype);
            is_authority_changed |= has_before(rtype) != has_after(rtype);
        }
        if hides {
            self.touch_below(name, is_authority_changed);
        }
        let comes_or_goes = self.created.contains(key) || self.removed.contains(key);
        let is_owner_of_proof = |rtype: Rtype| has_after(rtype) && (is_authority_changed || !has_before(rtype));
        if is_owner_of_proof(Rtype::NSEC) || is_owner_of_proof(Rtype::NSEC3) {
            self.touch_predecessor(name);
        }
        if is_authority_changed || comes_or_goes || self.is_additional_data_changed(before.as_ref(), after) {
            self.touch_referrers(name);
        }
    }

    /// Whether the records of a name in additional sections have changed.
    fn is_additional_data_changed(&self, before: Option<&Node<'_>>, after: Option<&Rrsets>) -> bool {
        let Some(after) = after else { return false };
        let before = before.map_or_else(Rrsets::new, rrsets_of);
        let additional = [Rtype::A, Rtype::AAAA, Rtype::SVCB, Rtype::HTTPS, Rtype::RRSIG];
        additional.into_iter().any(|rtype| before.get(&rtype.0) != after.get(&rtype.0))
    }

    /// Touches all names below `name`, and the nodes that refer to them if `is_authority_changed`, which changes their
    /// records in answers.
    fn touch_below(&mut self, name: Name<'_>, is_authority_changed: bool) {
        let mut parents = alloc::vec![name.as_bytes().to_vec()];
        while let Some(parent) = parents.pop() {
            let children: Vec<Node<'z>> = self.children(Name::of_stored(&parent)).collect();
            for child in children {
                self.touch(child.name());
                if is_authority_changed {
                    self.touch_referrers(child.name());
                    self.touch_predecessor(child.name());
                }
                parents.push(child.name_bytes().to_vec());
            }
            if self.touched.len() > DELTA_NAMES_MAX {
                // `Plan::new` gives up.
                return;
            }
        }
    }

    /// Touches the owner before `name` in the chain of NSEC or NSEC3 records: `name` may take its place in the proofs
    /// of other names.
    fn touch_predecessor(&mut self, name: Name<'_>) {
        let nodes = self.zone.nodes();
        let before = match self.zone.denial() {
            DenialChain::None => None,
            DenialChain::Nsec(chain) => chain.covering(nodes, name),
            DenialChain::Nsec3(chain) => name.labels().next().and_then(|label| chain.covering_label(nodes, label)),
        };
        if let Some(before) = before {
            self.touch(nodes.get(before).name());
        }
    }

    /// Touches the owners of RRsets that refer to `name`, or to names that a wildcard makes.
    fn touch_referrers(&mut self, name: Name<'_>) {
        let parent = self.parent(name).filter(|_| name.is_wildcard());
        for target in [Some(name), parent].into_iter().flatten() {
            let owners: Vec<_> = self.links.referrers.of(self.hash(target)).collect();
            owners.into_iter().for_each(|owner| self.touch(self.zone.node(owner).name()));
        }
    }

    /// Builds the next version; `None` if the delta has no room.
    fn build(self, limits: ZoneLimits) -> Option<BuildOutcome> {
        let mut context = Context { plan: &self, builder: self.new_builder(limits), added: BTreeSet::new() };
        let kept = |name: &&NameKey| !self.removed.contains(*name);
        let names: Vec<Name<'_>> = self.touched.iter().filter(kept).map(|name| Name::of_stored(name)).collect();
        context.add(self.zone.apex());
        names.iter().for_each(|name| context.add_with_neighbours(*name));
        let builder = context.builder;
        let mut delta = self.zone.delta.as_deref().cloned().unwrap_or_else(Delta::new);
        let node_of = |name: Name<'_>| self.node(name).map(|node| node.index);
        let arena = &self.zone.store.arena;
        let built = match builder.finish_part(&names, &mut delta, arena, self.shared_chain(), node_of, NO_POSITION) {
            Ok(built) => built?,
            Err(diagnostics) => return Some(BuildOutcome { zone: None, diagnostics }),
        };
        self.assemble(&names, delta, built)
    }

    /// The chain without the nodes that the next version does not share, if the zone is signed.
    fn shared_chain(&self) -> Option<DenialChain> {
        let mut chain = self.zone.signed.as_ref()?.denial.clone();
        let nodes = self.zone.nodes();
        for node in self.touched.iter().filter_map(|name| self.node(Name::of_stored(name))) {
            match &mut chain {
                DenialChain::None => {}
                DenialChain::Nsec(chain) => chain.remove(nodes, node.index),
                DenialChain::Nsec3(chain) => chain.remove(nodes, node.index),
            }
        }
        Some(chain)
    }

    fn new_builder(&self, limits: ZoneLimits) -> ZoneBuilder {
        ZoneBuilder::new(self.zone.apex(), self.zone.seed, limits)
    }

    /// The next version, of which `built` has the nodes of `names`.
    fn assemble(&self, names: &[Name<'_>], mut delta: Delta, built: BuiltPart) -> Option<BuildOutcome> {
        let zone = self.zone;
        let removed = self.removed.iter().map(|name| (Name::of_stored(name), None));
        let replaced = names.iter().copied().zip(built.nodes.iter().copied().map(Some));
        let mut name_count = zone.name_count;
        for (name, after) in replaced.chain(removed) {
            if let Some(before) = self.node(name) {
                delta.hide(before.index);
            }
            let was_found = zone.has_exactly(name);
            let is_found = after.is_some_and(|(_, is_found)| is_found);
            name_count = name_count + usize::from(is_found) - usize::from(was_found);
            if let Some((after, is_found)) = after {
                delta.show(zone.seed, name, after, is_found);
            }
            if was_found && !is_found {
                delta.remove(zone.seed, name)?;
            }
        }
        let depth_max = names.iter().map(|name| name.labels().count()).max().unwrap_or_default();
        let apex_node = names.iter().position(|name| *name == zone.apex());
        let mut next = Zone {
            apex: zone.apex,
            apex_depth: zone.apex_depth,
            apex_hash: zone.apex_hash,
            depth_max: zone.depth_max.max(depth_max),
            serial: built.serial,
            record_count: zone.record_count,
            name_count,
            seed: zone.seed,
            store: Arc::clone(&zone.store),
            delta: Some(Box::new(delta)),
            apex_node: apex_node.map_or(zone.apex_node, |index| built.nodes[index].0),
            negative_soa: built.negative_soa,
            links: None,
            journal: ZoneJournal::default(),
            signed: built.signed.map(|(negative_soa, denial)| SignedZone { negative_soa, denial, first_expiration: 0 }),
        };
        let mut links = self.links.clone();
        for name in &self.touched {
            let name = Name::of_stored(name);
            if let Some(node) = self.node(name) {
                links.digest = links.digest.wrapping_sub(digest_of_node(&node));
                next.record_count -= record_count(&node);
                each_link(zone, &node, |list, hash| list.of(&mut links).remove(hash, node.index));
                each_expiration(zone, &node, |number| links.expirations.remove(number));
            }
            if let Some(node) = next.node_named(name) {
                links.digest = links.digest.wrapping_add(digest_of_node(&node));
                each_link(&next, &node, |list, hash| list.of(&mut links).insert(hash, node.index));
                each_expiration(&next, &node, |number| links.expirations.insert(number));
            }
        }
        next.record_count += built.nodes.iter().map(|&(node, _)| record_count(&next.node(node))).sum::<usize>();
        if let (Some(signed), Some(before)) = (&mut next.signed, &zone.signed) {
            signed.first_expiration = first_expiration(&links.expirations, before.first_expiration)?;
        }
        next.links = Some(Box::new(links));
        Some(BuildOutcome { zone: Some(next), diagnostics: built.diagnostics })
    }
}

/// Collects the records on which the new nodes depend.
struct Context<'p, 'e, 'z> {
    plan: &'p Plan<'e, 'z>,
    builder: ZoneBuilder,
    added: BTreeSet<NameKey>,
}

impl Context<'_, '_, '_> {
    /// Adds a name of the next version, and its ancestors.
    fn add(&mut self, name: Name<'_>) {
        let mut next = Some(name);
        while let Some(name) = next.filter(|name| self.added.insert(name.as_bytes().to_vec())) {
            self.builder.add_name(name);
            match self.plan.edited.get(name.as_bytes()) {
                Some(rrsets) => add_rrsets(&mut self.builder, name, rrsets),
                None => {
                    if let Some(node) = self.plan.node(name) {
                        add_rrsets(&mut self.builder, name, &rrsets_of(&node));
                    }
                }
            }
            next = self.plan.parent(name);
        }
    }

    /// Adds a name with the names that its node depends on: its wildcard child, and the targets of its records.
    fn add_with_neighbours(&mut self, name: Name<'_>) {
        self.add(name);
        self.add_wildcard_child(name);
        let plan = self.plan;
        let stored = match plan.edited.contains_key(name.as_bytes()) {
            true => Rrsets::new(),
            false => plan.node(name).map_or_else(Rrsets::new, |node| rrsets_of(&node)),
        };
        for (&rtype, records) in plan.edited.get(name.as_bytes()).unwrap_or(&stored) {
            for record in records {
                let Some(target) = rdata::target(Rtype(rtype), &record.rdata) else { continue };
                if target.is_at_or_below(plan.zone.apex()) {
                    self.add_target(target.to_lowercase().as_name());
                }
            }
        }
    }

    /// Adds `target`, or the wildcard that it matches.
    fn add_target(&mut self, target: Name<'_>) {
        let mut next = Some(target);
        while let Some(name) = next.filter(|&name| !self.plan.exists_after(name)) {
            next = self.plan.parent(name);
        }
        let Some(found) = next else { return };
        self.add(found);
        if found != target {
            self.add_wildcard_child(found);
        }
    }

    fn add_wildcard_child(&mut self, name: Name<'_>) {
        let Ok(wildcard) = NameBuf::child(b"*", name) else { return };
        if self.plan.exists_after(wildcard.as_name()) {
            self.add(wildcard.as_name());
        }
    }
}

fn add_rrsets(builder: &mut ZoneBuilder, owner: Name<'_>, rrsets: &Rrsets) {
    for (&rtype, records) in rrsets {
        for RecordData { ttl_s, rdata } in records {
            builder.add(&Record { position: NO_POSITION, owner, rtype: Rtype(rtype), ttl_s: *ttl_s, rdata });
        }
    }
}

fn rrsets_of(node: &Node<'_>) -> Rrsets {
    let mut rrsets = Rrsets::new();
    node.each_record(|rrset, record| {
        let mut rdata = Vec::new();
        rrset.put_rdata(node.name(), record, &mut rdata);
        let ttl_s = u32::from_be_bytes(record.ttl());
        rrsets.entry(record.rtype.0).or_default().push(RecordData { ttl_s, rdata });
    });
    rrsets
}

fn record_count(node: &Node<'_>) -> usize {
    let mut count = 0;
    node.each_record(|_, _| count += 1);
    count
}

/// A list of [`ZoneLinks`].
#[derive(Clone, Copy)]
enum LinkList {
    Children,
    Referrers,
}

impl LinkList {
    fn of(self, links: &mut ZoneLinks) -> &mut NodesByName {
        match self {
            LinkList::Children => &mut links.children,
            LinkList::Referrers => &mut links.referrers,
        }
    }
}

/// Calls `link` with the names for which `node` is in a list.
fn each_link(zone: &Zone, node: &Node<'_>, mut link: impl FnMut(LinkList, NameHash)) {
    let apex = zone.apex();
    let hash = |name: Name<'_>| IndexedName::of(name).hash(zone.seed);
    if let Some(parent) = node.name().parent().filter(|_| node.name() != apex) {
        link(LinkList::Children, hash(parent));
    }
    if !node.types().any(rdata::has_target) {
        return;
    }
    let mut data = Vec::new();
    node.each_record(|rrset, record| {
        if !rdata::has_target(record.rtype) {
            return;
        }
        data.clear();
        rrset.put_rdata(node.name(), record, &mut data);
        let Some(target) = rdata::target(record.rtype, &data).filter(|target| target.is_at_or_below(apex)) else {
            return;
        };
        let target = target.to_lowercase();
        link(LinkList::Referrers, hash(target.as_name()));
        if zone.node_named(target.as_name()).is_some() {
            return;
        }
        let mut ancestor = target.as_name().parent();
        while let Some(name) = ancestor.filter(|name| name.is_at_or_below(apex)) {
            link(LinkList::Referrers, hash(name));
            ancestor = name.parent();
        }
    });
}

/// Calls `visit` with the numbers in `ZoneLinks::expirations` of the signatures at `node`.
fn each_expiration(zone: &Zone, node: &Node<'_>, mut visit: impl FnMut(u64)) {
    if !zone.is_signed() || node.rrset(Rtype::RRSIG).is_none() {
        return;
    }
    let point = node.node_ref(NodeRef::DelegationPoint);
    let is_authoritative = point.is_none() && node.node_ref(NodeRef::DnameAbove).is_none();
    let is_of_proof = node.rrset(Rtype::NSEC3).is_some() && !zone.has_exactly(node.name());
    let mut data = Vec::new();
    node.each_record(|rrset, record| {
        if record.rtype != Rtype::RRSIG {
            return;
        }
        data.clear();
        rrset.put_rdata(node.name(), record, &mut data);
        let Some(signature) = Signature::read(&data) else { return };
        let covered = signature.type_covered;
        let is_of_delegation = point == Some(node.index) && matches!(covered, Rtype::DS | Rtype::NSEC);
        let is_served = node.rrset(covered).is_some() && (is_authoritative || is_of_delegation || is_of_proof);
        if is_served && covered != Rtype::RRSIG {
            visit(u64::from(signature.expiration) << 32 | u64::from(node.index.0));
        }
    });
}

/// The first expiration, those before half the range of the numbers before `last` being later ones (RFC 1982).
fn first_expiration(expirations: &SortedPages<u64>, last: u32) -> Option<u32> {
    let half = u64::from(last.wrapping_sub(1 << 31)) << 32;
    let first = expirations.range_from(half).next().or_else(|| expirations.first())?;
    Some((first >> 32) as u32)
}

fn links_of(zone: &Zone) -> ZoneLinks {
    let (mut children, mut referrers) = (Vec::with_capacity(zone.name_count), Vec::new());
    let (mut expirations, mut has_other_nsec3) = (Vec::new(), false);
    let mut next = Some(zone.first_node());
    while let Some(node) = next {
        each_link(zone, &node, |list, hash| match list {
            LinkList::Children => children.push((hash, node.index)),
            LinkList::Referrers => referrers.push((hash, node.index)),
        });
        each_expiration(zone, &node, |number| expirations.push(number));
        has_other_nsec3 |= node.rrset(Rtype::NSEC3).is_some() && zone.node_named(node.name()).is_none();
        next = zone.node_after(&node);
    }
    expirations.sort_unstable();
    expirations.dedup();
    ZoneLinks {
        expirations: SortedPages::new(&expirations),
        has_other_nsec3,
        children: NodesByName::new(&children),
        referrers: NodesByName::new(&referrers),
        digest: zone.computed_digest(),
    }
}

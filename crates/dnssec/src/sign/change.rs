//! Signs changes of a zone: makes only those records of the next version that depend on them.
//!
//! The names with other records in the next version are
//!
//! - those that the changes are about, and the apex, for the SOA;
//! - the names below one that becomes a delegation point or the owner of a DNAME, or ceases to be one;
//! - in the NSEC chain, the name that precedes an added or removed name;
//! - in the NSEC3 chain, the owners for these names and for the empty non-terminals above them, and the owner that
//!   precedes a new or removed owner.
//!
//! The code that makes whole versions makes them, and keeps signatures that are still correct.

use super::signatures::Signatures;
use super::version::{Authority, KEY_RECORDS, Soa, is_made, listed_types};
use super::{ChangeJob, Denial, KeysInUse, RecordChanges, SerialPolicy, SignError, SignedChange, ZoneSigner, serial};
use crate::canonical::{end_of_names_below, is_below, keys_between};
use crate::denial::{self, Hash};
use crate::records::{Node, Record, Records, RecordsBuilder, Rrset, order_key};
use crate::zone_version::{NameKey, NodeRef, ZoneVersion};
use crate::zonemd;
use sanderling_dns::{Name, NameBuf, RecordSource, Rtype, is_later};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

/// The fraction of a zone's names, including the chain's, above which the whole zone is signed for a change.
const WHOLE_SHARE: usize = 8;
/// Names that may change in a small zone.
const NAMES_MIN: usize = 64;

/// Makes the next version of `version`; `None` if the whole version must be made. Then, and after an error, `version`
/// is as before.
pub(super) fn make(
    version: &mut ZoneVersion,
    job: &ChangeJob<'_>,
    signer: &mut impl ZoneSigner,
) -> Result<Option<SignedChange>, SignError> {
    let mut change = Change::new(version, job);
    let made = change.make(signer);
    if !matches!(made, Ok(Some(_))) {
        change.undo();
    }
    made
}

/// A change that is being made. Until the change is complete, the version has the changed names without the records
/// made for them.
struct Change<'v, 'j> {
    version: &'v mut ZoneVersion,
    job: &'j ChangeJob<'j>,
    apex_key: Vec<u8>,
    /// The replaced names in their previous form.
    before: BTreeMap<NameKey, Option<NodeRef>>,
    /// The names that have other records, or may have, by their keys.
    touched: BTreeMap<NameKey, NameBuf>,
    /// Owners of NSEC3 records, which are touched as well; `None` if the owner no longer has any.
    nsec3: BTreeMap<NameKey, Option<Nsec3>>,
    /// The unsigned records' new SOA.
    soa: Option<Soa>,
}

/// An NSEC3 record without the hash that comes next.
struct Nsec3 {
    hash: Hash,
    bitmap: Vec<u8>,
}

impl<'v, 'j> Change<'v, 'j> {
    fn new(version: &'v mut ZoneVersion, job: &'j ChangeJob<'j>) -> Change<'v, 'j> {
        Change {
            version,
            job,
            apex_key: order_key(job.apex),
            before: BTreeMap::new(),
            touched: BTreeMap::new(),
            nsec3: BTreeMap::new(),
            soa: None,
        }
    }

    fn undo(&mut self) {
        for (key, node) in std::mem::take(&mut self.before) {
            self.version.replace(&key, node);
        }
    }

    fn make(&mut self, signer: &mut impl ZoneSigner) -> Result<Option<SignedChange>, SignError> {
        let soa_before = Soa::of_node(self.version.node_of(&self.apex_key).ok_or(SignError::NoSoa)?)?;
        let RecordChanges { removed, added } = self.job.changes;
        let changes_keys = KEY_RECORDS
            .iter()
            .any(|&rtype| removed.rrset(self.job.apex, rtype).is_some() || added.rrset(self.job.apex, rtype).is_some());
        if self.job.keys.keys.is_empty() || changes_keys {
            return Ok(None);
        }
        let cuts = self.change_records()?;
        let negative_ttl_s = soa_before.negative_ttl_s();
        if self.soa.as_ref().is_some_and(|soa| soa.negative_ttl_s() != negative_ttl_s) {
            return Ok(None);
        }
        if !self.touch_names_below(&cuts) {
            return Ok(None);
        }
        match self.job.parameters.denial {
            Denial::Nsec => self.touch_nsec_neighbours(),
            Denial::Nsec3 => self.find_nsec3()?,
        }
        let mut signatures =
            Signatures::new(self.job.apex, self.job.keys, self.job.parameters, self.job.now_unix_s, signer);
        let mut records = self.signed_names(negative_ttl_s, &mut signatures)?;
        let serial_before = soa_before.serial();
        let mut soa = self.soa.take().unwrap_or(soa_before);
        let serial = serial::next(
            self.job.parameters.serial_policy,
            soa.serial(),
            Some(serial_before),
            true,
            self.job.now_unix_s,
        );
        if !is_later(serial, serial_before) {
            return Ok(None);
        }
        soa.set_serial(serial);
        self.put_at_apex((Rtype::SOA, soa.ttl_s), &soa.rdata, &mut signatures, &mut records)?;
        self.replace_all(records);
        if self.job.parameters.has_zonemd {
            let rdata = zonemd::rdata(self.version.iter(), self.job.apex, serial);
            let apex = self.version.node_of(&self.apex_key).expect("the apex is there");
            let mut records = Records::default();
            records.append(apex);
            self.put_at_apex((Rtype::ZONEMD, soa.ttl_s), &rdata, &mut signatures, &mut records)?;
            self.replace_all(records);
        }
        let (sign_again_at_unix_s, longest_ttl_s) = (signatures.sign_again_at_unix_s(), signatures.ttl_s_max);
        let (made_count, kept_count) = (signatures.made_count, signatures.kept_count);
        let (removed, added) = self.difference();
        Ok(Some(SignedChange {
            removed,
            added,
            serial_before,
            serial,
            sign_again_at_unix_s,
            longest_ttl_s,
            made_count,
            kept_count,
        }))
    }

    /// The name with this key as it was.
    fn before_node(&self, key: &[u8]) -> Option<Node<'_>> {
        match self.before.get(key) {
            Some(node) => node.as_ref().map(NodeRef::node),
            None => self.version.node_of(key),
        }
    }

    fn replace(&mut self, key: &[u8], node: Option<NodeRef>) {
        let replaced = self.version.replace(key, node);
        if let Entry::Vacant(place) = self.before.entry(key.into()) {
            place.insert(replaced);
        }
    }

    /// Gives all names of `records` these records. A name without records is removed.
    fn replace_all(&mut self, records: Records) {
        let records = Arc::new(records);
        for (index, node) in records.nodes().enumerate() {
            let is_empty = node.rrsets().next().is_none();
            self.replace(node.key(), (!is_empty).then(|| NodeRef::new(&records, index)));
        }
    }

    /// Gives the names of the changes their records, without signatures. Returns those that become delegation points or
    /// owners of DNAME records, or were.
    fn change_records(&mut self) -> Result<Vec<NameKey>, SignError> {
        let (removed, added) = (&self.job.changes.removed, &self.job.changes.added);
        let owners = removed.nodes().chain(added.nodes()).map(|node| (NameKey::from(node.key()), node.owner()));
        let owners: BTreeMap<NameKey, Name<'_>> = owners.chain([(self.apex_key[..].into(), self.job.apex)]).collect();
        let mut content = RecordsBuilder::default();
        for (key, &owner) in &owners {
            if !owner.is_at_or_below(self.job.apex) {
                let node = removed.node(owner).or_else(|| added.node(owner));
                let rtype = node.and_then(|node| node.rrsets().next()).map_or(Rtype::SOA, Rrset::rtype);
                return Err(SignError::OutOfZone(owner.to_string(), rtype));
            }
            let is_apex = **key == self.apex_key[..];
            let before = self.version.node_of(key);
            let expected = removed.node(owner).into_iter().flat_map(Node::rrsets);
            let mut expected: Vec<Rrset<'_>> =
                expected.filter(|rrset| !is_made(rrset.rtype(), is_apex) && rrset.rtype() != Rtype::SOA).collect();
            let name = content.put_name(before.map_or(owner, Node::owner));
            for rrset in before.into_iter().flat_map(Node::rrsets) {
                let (rtype, ttl_s) = (rrset.rtype(), rrset.ttl_s());
                let is_chain = matches!(rtype, Rtype::NSEC3 | Rtype::NSEC3PARAM);
                if is_made(rtype, is_apex) && !is_chain || rtype == Rtype::SOA {
                    continue;
                }
                let gone = expected.iter().position(|other| other.rtype() == rtype).map(|at| expected.swap_remove(at));
                let gone: BTreeSet<_> = gone.into_iter().flat_map(Rrset::canonical_rdatas).collect();
                let is_kept = |(_, canonical): &(&[u8], Cow<'_, [u8]>)| !gone.contains(canonical);
                let kept: Vec<_> = rrset.rdatas().zip(rrset.canonical_rdatas()).filter(is_kept).collect();
                kept.iter().for_each(|(rdata, _)| content.put(name, rtype, ttl_s, rdata));
                if kept.len() + gone.len() != rrset.rdatas().len() {
                    return Err(SignError::OtherVersion(owner.to_string(), rtype));
                }
            }
            if let Some(rrset) = expected.first() {
                return Err(SignError::OtherVersion(owner.to_string(), rrset.rtype()));
            }
            for rrset in added.node(owner).into_iter().flat_map(Node::rrsets) {
                let (rtype, ttl_s) = (rrset.rtype(), rrset.ttl_s());
                if rtype == Rtype::SOA && is_apex {
                    self.soa = Some(Soa::of_node(added.node(owner).expect("it has the RRset"))?);
                } else if !is_made(rtype, is_apex) {
                    rrset.rdatas().for_each(|rdata| content.put(name, rtype, ttl_s, rdata));
                }
            }
        }
        let changed_cuts: BTreeMap<NameKey, bool> =
            owners.keys().map(|key| (key.clone(), self.hides_names_below(key, self.version.node_of(key)))).collect();
        self.touched.extend(owners.iter().map(|(key, owner)| (key.clone(), owner.to_lowercase())));
        self.touched.extend(self.job.renewed.iter().map(|name| {
            let name = name.as_name().to_lowercase();
            (order_key(name.as_name()).into(), name)
        }));
        self.replace_all(content.finish());
        let is_changed =
            |(key, before): &(NameKey, bool)| self.hides_names_below(key, self.version.node_of(key)) != *before;
        Ok(changed_cuts.into_iter().filter(is_changed).map(|(key, _)| key).collect())
    }

    /// Whether the records below the name are not signed.
    fn hides_names_below(&self, key: &[u8], node: Option<Node<'_>>) -> bool {
        let has = |rtype| node.is_some_and(|node| node.rrset(rtype).is_some());
        has(Rtype::DNAME) || key != self.apex_key && has(Rtype::NS)
    }

    /// Touches the names below `cuts`; returns whether they are few.
    fn touch_names_below(&mut self, cuts: &[NameKey]) -> bool {
        let count_max = (self.version.name_count_max() / WHOLE_SHARE).max(NAMES_MIN);
        for cut in cuts {
            let after = self.version.nodes_from(Bound::Excluded(cut));
            for node in after.take_while(|node| is_below(node.key(), cut)).filter(|node| has_content(*node)) {
                self.touched.insert(node.key().into(), node.owner().to_lowercase());
                if self.touched.len() > count_max {
                    return false;
                }
            }
        }
        self.touched.len() <= count_max
    }

    /// The delegation point or owner of a DNAME that hides the name with this key.
    fn hidden_by<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        if key.len() == self.apex_key.len() {
            return None;
        }
        let (apex, _) = key.split_at(self.apex_key.len());
        let mut above = std::iter::once(apex).chain(keys_between(&self.apex_key, key));
        above.find(|key| self.hides_names_below(key, self.version.node_of(key)))
    }

    fn authority(&self, key: &[u8], node: Node<'_>) -> Authority {
        if self.hidden_by(key).is_some() {
            Authority::Hidden
        } else if key != self.apex_key && node.rrset(Rtype::NS).is_some() {
            Authority::Delegation
        } else {
            Authority::Authoritative
        }
    }

    /// Whether the chain shows the name now.
    fn is_shown(&self, key: &[u8]) -> bool {
        self.version.node_of(key).is_some_and(has_content) && self.hidden_by(key).is_none()
    }

    /// Touches the names before those that come into the NSEC chain, or go.
    fn touch_nsec_neighbours(&mut self) {
        let mut neighbours = Vec::new();
        for key in self.touched.keys() {
            let was_shown = self.before_node(key).is_some_and(|node| node.rrset(Rtype::NSEC).is_some());
            if self.is_shown(key) == was_shown {
                continue;
            }
            let Some(before) = self.version.nodes_before(key).find(|node| has_content(*node)) else { continue };
            let shown = self.hidden_by(before.key()).and_then(|cut| self.version.node_of(cut)).unwrap_or(before);
            neighbours.push((shown.key().into(), shown.owner().to_lowercase()));
        }
        self.touched.extend(neighbours);
    }

    /// The next name in the NSEC chain after the name with this key, which is in the chain; after the last name, the
    /// apex.
    fn next_shown(&self, key: &[u8]) -> NameBuf {
        let end;
        let start = if self.hides_names_below(key, self.version.node_of(key)) {
            end = end_of_names_below(key);
            Bound::Included(&end[..])
        } else {
            Bound::Excluded(key)
        };
        let next = self.version.nodes_from(start).find(|node| has_content(*node));
        next.map_or_else(|| self.job.apex.to_owned(), |node| node.owner().to_lowercase())
    }

    /// Finds the NSEC3 records of the touched names, of the empty non-terminals above them, and those that come before.
    fn find_nsec3(&mut self) -> Result<(), SignError> {
        let mut found = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let mut renewed = Vec::new();
        for (key, owner) in &self.touched {
            if self.before_node(key).is_some_and(|node| node.rrset(Rtype::NSEC3).is_some()) {
                renewed.push((key.clone(), *owner));
            }
            let mut name = Some(owner.as_name());
            while let Some(at) = name
                && at.is_at_or_below(self.job.apex)
                && seen.insert(at.as_bytes())
            {
                let hash = denial::hash(at);
                let nsec3_owner = denial::nsec3_owner(&hash, self.job.apex).ok_or(SignError::LongName)?;
                let nsec3_key = NameKey::from(order_key(nsec3_owner.as_name()));
                let nsec3 = self.nsec3_bitmap(&order_key(at)).map(|bitmap| Nsec3 { hash, bitmap });
                found.insert(nsec3_key.clone(), nsec3);
                renewed.push((nsec3_key, nsec3_owner));
                name = at.parent();
            }
        }
        self.nsec3 = found;
        let changed: Vec<NameKey> = self
            .nsec3
            .iter()
            .filter_map(|(key, nsec3)| {
                let was_there = self.before_node(key).is_some_and(|node| node.rrset(Rtype::NSEC3).is_some());
                (was_there != nsec3.is_some()).then(|| key.clone())
            })
            .collect();
        for key in changed {
            renewed.extend(self.nsec3_before(&key));
        }
        for (key, owner) in renewed {
            if !self.nsec3.contains_key(&key) {
                let rrset = self.before_node(&key).and_then(|node| node.rrset(Rtype::NSEC3));
                let bitmap =
                    rrset.and_then(|rrset| denial::bitmap_of_nsec3(rrset.rdatas().next()?).map(<[u8]>::to_vec));
                let nsec3 = denial::hash_of_owner(owner.as_name()).zip(bitmap);
                self.nsec3.insert(key.clone(), nsec3.map(|(hash, bitmap)| Nsec3 { hash, bitmap }));
            }
            self.touched.insert(key, owner);
        }
        Ok(())
    }

    /// The types that the NSEC3 record for the name with this key lists; `None` if it has no such record.
    fn nsec3_bitmap(&self, key: &[u8]) -> Option<Vec<u8>> {
        if self.hidden_by(key).is_some() {
            return None;
        }
        let mut bitmap = Vec::new();
        match self.version.node_of(key).filter(|node| has_content(*node)) {
            Some(node) => {
                let types = self.listed_types(key, node, Rtype::NSEC3);
                denial::put_bitmap(&types, &mut bitmap);
                Some(bitmap)
            }
            None => {
                // Hidden names below would become visible. No owner of an NSEC3 record is below.
                let next = self.version.nodes_from(Bound::Excluded(key)).next();
                next.filter(|node| is_below(node.key(), key)).map(|_| bitmap)
            }
        }
    }

    fn listed_types(&self, key: &[u8], node: Node<'_>, chain: Rtype) -> Vec<Rtype> {
        let is_apex = key == self.apex_key;
        let of_content = node.rrsets().map(Rrset::rtype).filter(|&rtype| is_content(rtype, is_apex));
        let of_apex = [(Rtype::SOA, true), (Rtype::ZONEMD, self.job.parameters.has_zonemd)];
        let of_apex = of_apex.into_iter().filter(|&(_, is_there)| is_apex && is_there).map(|(rtype, _)| rtype);
        listed_types(of_content.filter(|&rtype| rtype != Rtype::SOA).chain(of_apex), self.authority(key, node), chain)
    }

    /// Whether the name with this key has an NSEC3 record now.
    fn has_nsec3(&self, node: Node<'_>) -> bool {
        match self.nsec3.get(node.key()) {
            Some(nsec3) => nsec3.is_some(),
            None => node.rrset(Rtype::NSEC3).is_some(),
        }
    }

    /// The owner of the NSEC3 record that precedes this key. Other names lie between two owners, since hashes are
    /// spread over all names.
    fn nsec3_before(&self, key: &[u8]) -> Option<(NameKey, NameBuf)> {
        let owner = |hash: &Hash| denial::nsec3_owner(hash, self.job.apex);
        let stored = |node: Node<'_>| (NameKey::from(node.key()), node.owner().to_lowercase());
        let last = || end_of_names_below(&self.apex_key);
        let find = |key: &[u8]| {
            let found = self.version.nodes_before(key).find(|node| self.has_nsec3(*node)).map(stored);
            let made = self.nsec3.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(key))).rev();
            let made = made.filter_map(|(key, nsec3)| Some((key.clone(), owner(&nsec3.as_ref()?.hash)?))).next();
            found.into_iter().chain(made).max_by(|left, right| left.0.cmp(&right.0))
        };
        find(key).or_else(|| find(&last()))
    }

    /// The hash in the NSEC3 record that follows this key.
    fn next_hash(&self, key: &[u8]) -> Option<Hash> {
        let stored = |node: Node<'_>| Some((NameKey::from(node.key()), denial::hash_of_owner(node.owner())?));
        let find = |start: Bound<&[u8]>| {
            let found = self.version.nodes_from(start).find(|node| self.has_nsec3(*node)).and_then(stored);
            let made = self.nsec3.range::<[u8], _>((start, Bound::Unbounded));
            let made = made.filter_map(|(key, nsec3)| Some((key.clone(), nsec3.as_ref()?.hash))).next();
            found.into_iter().chain(made).min_by(|left, right| left.0.cmp(&right.0)).map(|(_, hash)| hash)
        };
        find(Bound::Excluded(key)).or_else(|| find(Bound::Unbounded))
    }

    /// The touched names with their signatures and their records of the chain, without the SOA.
    fn signed_names<S: ZoneSigner>(
        &self,
        negative_ttl_s: u32,
        signatures: &mut Signatures<'_, '_, S>,
    ) -> Result<Records, SignError> {
        let mut out = RecordsBuilder::default();
        let mut rdata = Vec::new();
        for (key, owner) in &self.touched {
            let before = self.before_node(key);
            let node = self.version.node_of(key);
            let name = out.put_name(node.map_or(owner.as_name(), Node::owner));
            if let Some(node) = node.filter(|node| has_content(*node)) {
                let (authority, is_apex) = (self.authority(key, node), **key == self.apex_key[..]);
                let is_signed_first =
                    |rrset: &Rrset<'_>| is_content(rrset.rtype(), is_apex) && rrset.rtype() != Rtype::SOA;
                for rrset in node.rrsets().filter(is_signed_first) {
                    rrset.rdatas().for_each(|rdata| out.put(name, rrset.rtype(), rrset.ttl_s(), rdata));
                    if authority.signs(rrset.rtype()) {
                        let rtype = (rrset.rtype(), rrset.ttl_s());
                        signatures.put(name, rtype, &rrset.rdatas(), before, &mut out)?;
                    }
                }
                if authority != Authority::Hidden && self.job.parameters.denial == Denial::Nsec {
                    rdata.clear();
                    let types = self.listed_types(key, node, Rtype::NSEC);
                    denial::put_nsec(self.next_shown(key).as_name(), &types, &mut rdata);
                    out.put(name, Rtype::NSEC, negative_ttl_s, &rdata);
                    let rtype = (Rtype::NSEC, negative_ttl_s);
                    signatures.put(name, rtype, &[&rdata[..]].into_iter(), before, &mut out)?;
                }
            }
            if let Some(Some(nsec3)) = self.nsec3.get(key) {
                rdata.clear();
                let next = self.next_hash(key).unwrap_or(nsec3.hash);
                denial::put_nsec3(&next, &nsec3.bitmap, &mut rdata);
                out.put(name, Rtype::NSEC3, negative_ttl_s, &rdata);
                let rtype = (Rtype::NSEC3, negative_ttl_s);
                signatures.put(name, rtype, &[&rdata[..]].into_iter(), before, &mut out)?;
            }
        }
        signatures.flush(&mut out)?;
        Ok(out.finish())
    }

    /// Adds a record of the apex with its signature to `records`.
    fn put_at_apex<S: ZoneSigner>(
        &self,
        (rtype, ttl_s): (Rtype, u32),
        rdata: &[u8],
        signatures: &mut Signatures<'_, '_, S>,
        records: &mut Records,
    ) -> Result<(), SignError> {
        let mut made = RecordsBuilder::default();
        let name = made.put_name(self.job.apex);
        made.put(name, rtype, ttl_s, rdata);
        signatures.put(name, (rtype, ttl_s), &[rdata].into_iter(), None, &mut made)?;
        signatures.flush(&mut made)?;
        made.finish().iter().for_each(|it| records.insert(it.owner, it.rtype, it.ttl_s, it.rdata));
        Ok(())
    }

    /// The records that the next version removes, and those that it adds.
    fn difference(&self) -> (Records, Records) {
        let (mut removed, mut added) = (RecordsBuilder::default(), RecordsBuilder::default());
        for (key, before) in &self.before {
            let before: Vec<Record<'_>> = before.iter().flat_map(|node| node.node().records()).collect();
            let after: Vec<Record<'_>> = self.version.node_of(key).into_iter().flat_map(Node::records).collect();
            let missing = |of: &[Record<'_>], other: &[Record<'_>], out: &mut RecordsBuilder| {
                let other: BTreeSet<_> = other.iter().map(|it| (it.rtype, it.ttl_s, it.rdata)).collect();
                let is_missing = |it: &&Record<'_>| !other.contains(&(it.rtype, it.ttl_s, it.rdata));
                of.iter().filter(is_missing).for_each(|record| out.push(*record));
            };
            missing(&before, &after, &mut removed);
            missing(&after, &before, &mut added);
        }
        (removed.finish(), added.finish())
    }
}

/// The changes from the unsigned records of `version` to `unsigned`; `None` if the whole zone must be signed. The time
/// is proportional to the size of the zone.
pub(super) fn difference(
    version: &ZoneVersion,
    unsigned: &Records,
    apex: Name<'_>,
    policy: SerialPolicy,
    keys: &KeysInUse,
) -> Option<RecordChanges> {
    let (mut removed, mut added) = (RecordsBuilder::default(), RecordsBuilder::default());
    let put = |node: Node<'_>, rrset: Rrset<'_>, out: &mut RecordsBuilder| {
        let name = out.put_name(node.owner());
        rrset.rdatas().for_each(|rdata| out.put(name, rrset.rtype(), rrset.ttl_s(), rdata));
    };
    let is_same = |left: &Rrset<'_>, right: &Rrset<'_>| {
        (left.rtype(), left.ttl_s()) == (right.rtype(), right.ttl_s()) && left.rdatas().eq(right.rdatas())
    };
    let mut old_nodes = version.nodes().peekable();
    let mut new_nodes = unsigned.nodes().peekable();
    loop {
        let order = match (old_nodes.peek(), new_nodes.peek()) {
            (None, None) => break,
            (Some(old), Some(new)) => old.key().cmp(new.key()),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
        };
        let old = old_nodes.next_if(|_| order.is_le());
        let new = new_nodes.next_if(|_| order.is_ge());
        let old_rrsets = old.map(|node| compared(node, apex)).unwrap_or_default();
        let new_rrsets = new.map(|node| compared(node, apex)).unwrap_or_default();
        for (node, rrsets, others, out) in
            [(old, &old_rrsets, &new_rrsets, &mut removed), (new, &new_rrsets, &old_rrsets, &mut added)]
        {
            let missing = rrsets.iter().filter(|rrset| !others.iter().any(|other| is_same(rrset, other)));
            missing.for_each(|rrset| put(node.expect("it has RRsets"), *rrset, out));
        }
    }
    let same_keys = |rtype| has_key_records(version.node_of(&order_key(apex)), unsigned.node(apex), keys, rtype);
    if !KEY_RECORDS.into_iter().all(same_keys) {
        return None;
    }
    let soa_before = Soa::of_node(version.node_of(&order_key(apex))?).ok()?;
    let soa = Soa::of_node(unsigned.node(apex)?).ok()?;
    let has_other_serial = match policy {
        SerialPolicy::Keep => soa.serial() != soa_before.serial(),
        SerialPolicy::Increment => is_later(soa.serial(), soa_before.serial()),
        SerialPolicy::Date | SerialPolicy::UnixTime => false,
    };
    if has_other_serial || !soa.is_same_version(&soa_before) {
        added.push(Record { owner: apex, rtype: Rtype::SOA, ttl_s: soa.ttl_s, rdata: &soa.rdata });
    }
    Some(RecordChanges { removed: removed.finish(), added: added.finish() })
}

/// Whether the signed apex has exactly the records of `rtype` that come with the keys and from the unsigned apex.
fn has_key_records(signed: Option<Node<'_>>, unsigned: Option<Node<'_>>, keys: &KeysInUse, rtype: Rtype) -> bool {
    let of = |node: Option<Node<'_>>| -> BTreeSet<Vec<u8>> {
        node.and_then(|node| node.rrset(rtype)).into_iter().flat_map(Rrset::rdatas).map(<[u8]>::to_vec).collect()
    };
    let mut wanted = of(unsigned);
    wanted.extend(keys.records(rtype));
    of(signed) == wanted
}

/// The RRsets of a name in the unsigned records, except the SOA.
fn compared<'r>(node: Node<'r>, apex: Name<'_>) -> Vec<Rrset<'r>> {
    let is_apex = node.owner().eq_ignore_case(apex);
    let is_compared = |rrset: &Rrset<'_>| {
        let rtype = rrset.rtype();
        RecordSource::of(rtype, is_apex) == RecordSource::Zone && rtype != Rtype::SOA
    };
    node.rrsets().filter(is_compared).collect()
}

/// Whether the unsigned records have a record of this type at the apex, or at another name, or the zone has it with its
/// keys.
fn is_content(rtype: Rtype, is_apex: bool) -> bool {
    !is_made(rtype, is_apex) || rtype == Rtype::NSEC3PARAM
}

/// Whether the name has other records than those that a signed version adds. The apex always does.
fn has_content(node: Node<'_>) -> bool {
    node.rrsets().any(|rrset| is_content(rrset.rtype(), false))
}

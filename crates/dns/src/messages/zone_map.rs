//! The zones that a server answers for, by the names of their apexes.

use crate::messages::message::Rcode;
use crate::text::name::{LABEL_COUNT_MAX, Name, NameBuf};
use crate::text::rtype::Rtype;
use crate::zones::hash_slots::HashSlots;
use crate::zones::name_hash::{HashSeed, IndexedName, NameHash, NameHashes, eq_lowercase};
use crate::zones::zone::{Lookup, Zone};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Aliases that one answer follows unless [`ZoneMap::with_cname_chain_max`] sets another bound.
pub const CNAME_CHAIN_MAX_DEFAULT: usize = 16;
/// The largest bound that [`ZoneMap::with_cname_chain_max`] takes.
pub const CNAME_CHAIN_MAX: usize = 64;

/// An immutable map from apexes to zones.
///
/// A reload builds a new map that shares the zones that stay.
#[derive(Clone, Debug)]
pub struct ZoneMap {
    seed: HashSeed,
    entries: Vec<ZoneEntry>,
    /// The index of each apex's entry.
    slots: HashSlots,
    /// The number of apexes with each number of labels.
    depths: [u32; LABEL_COUNT_MAX + 1],
    cname_chain_max: usize,
}

/// The content of a server for a zone of its configuration.
#[derive(Clone, Debug)]
pub enum ZoneEntry {
    /// The zone.
    Served(Arc<Zone>),
    /// The zone, for those that may transfer it: other queries for names at and below its apex are answered with
    /// REFUSED.
    Restricted(Arc<Zone>),
    /// No good version of the zone: queries for names at and below its apex are answered with SERVFAIL.
    Unavailable {
        /// The zone's name.
        apex: Box<NameBuf>,
    },
}

impl ZoneEntry {
    /// The zone's name.
    pub fn apex(&self) -> Name<'_> {
        match self {
            ZoneEntry::Served(zone) | ZoneEntry::Restricted(zone) => zone.apex(),
            ZoneEntry::Unavailable { apex } => apex.as_name(),
        }
    }

    fn apex_hash(&self, seed: HashSeed) -> NameHash {
        match self {
            ZoneEntry::Served(zone) | ZoneEntry::Restricted(zone) => {
                assert!(zone.seed == seed, "a zone and its map have the same hash seed");
                zone.apex_hash
            }
            ZoneEntry::Unavailable { apex } => IndexedName::of(apex.as_name()).hash(seed),
        }
    }
}

/// The zone that answers for a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundZone<'s> {
    pub(crate) zone: &'s Zone,
    /// The hashes of the name.
    pub(crate) hashes: NameHashes,
}

impl ZoneMap {
    /// The map of `entries`. An entry replaces an earlier entry with the same apex.
    ///
    /// # Panics
    /// Panics if a zone was built with another seed.
    pub fn new(seed: HashSeed, entries: impl IntoIterator<Item = ZoneEntry>) -> ZoneMap {
        let given: Vec<ZoneEntry> = entries.into_iter().collect();
        let mut map = ZoneMap {
            seed,
            entries: Vec::with_capacity(given.len()),
            slots: HashSlots::for_count(given.len()),
            depths: [0; LABEL_COUNT_MAX + 1],
            cname_chain_max: CNAME_CHAIN_MAX_DEFAULT,
        };
        given.into_iter().for_each(|entry| map.insert(entry));
        map
    }

    fn insert(&mut self, entry: ZoneEntry) {
        let hash = entry.apex_hash(self.seed);
        if let Some(index) = self.index_of(entry.apex().as_bytes(), hash) {
            self.entries[index] = entry;
            return;
        }
        self.depths[entry.apex().labels().count()] += 1;
        self.slots.insert(hash, self.entries.len() as u32);
        self.entries.push(entry);
    }

    /// This map with `entry` added, or in place of the entry with the same apex. The other zones are shared.
    #[must_use]
    pub fn with_entry(&self, entry: ZoneEntry) -> ZoneMap {
        let entries = self.entries.iter().cloned().chain([entry]);
        ZoneMap { cname_chain_max: self.cname_chain_max, ..ZoneMap::new(self.seed, entries) }
    }

    /// This map without the entries of the apexes `removed`, and with the zones `added`. The other zones are shared.
    #[must_use]
    pub fn with_changes<'n>(
        &self,
        removed: impl IntoIterator<Item = Name<'n>>,
        added: impl IntoIterator<Item = ZoneEntry>,
    ) -> ZoneMap {
        let removed: BTreeSet<Vec<u8>> = removed.into_iter().map(|apex| apex.as_bytes().to_ascii_lowercase()).collect();
        let stays = |entry: &&ZoneEntry| !removed.contains(&entry.apex().as_bytes().to_ascii_lowercase());
        let entries = self.entries.iter().filter(stays).cloned().chain(added);
        ZoneMap { cname_chain_max: self.cname_chain_max, ..ZoneMap::new(self.seed, entries) }
    }

    /// This map, whose answers follow at most `cname_chain_max` aliases, up to [`CNAME_CHAIN_MAX`].
    #[must_use]
    pub fn with_cname_chain_max(self, cname_chain_max: usize) -> ZoneMap {
        ZoneMap { cname_chain_max: cname_chain_max.min(CNAME_CHAIN_MAX), ..self }
    }

    /// Aliases that one answer follows.
    pub(crate) fn cname_chain_max(&self) -> usize {
        self.cname_chain_max
    }

    /// The seed of the hashes of the map and its zones.
    pub fn seed(&self) -> HashSeed {
        self.seed
    }

    /// The entries, in the order in which their apexes were first given.
    pub fn entries(&self) -> &[ZoneEntry] {
        &self.entries
    }

    /// The entry with this apex.
    pub fn get(&self, apex: Name<'_>) -> Option<&ZoneEntry> {
        let name = IndexedName::of(apex);
        self.index_of(name.as_bytes(), name.hash(self.seed)).map(|index| &self.entries[index])
    }

    /// The restricted zone that `name` is in, if no zone between them is served.
    pub(crate) fn restricted(&self, name: Name<'_>) -> Option<&Arc<Zone>> {
        let mut above = Some(name);
        while let Some(apex) = above {
            match self.get(apex) {
                Some(ZoneEntry::Restricted(zone)) => return Some(zone),
                Some(_) => return None,
                None => above = apex.parent(),
            }
        }
        None
    }

    /// The zone that answers for `rtype` at `name`: the zone with the longest apex at or above `name`, or, for the DS
    /// of an apex, the parent zone.
    ///
    /// # Errors
    /// Returns REFUSED for a name in none of the zones or in a restricted one, SERVFAIL for a name in a zone that is
    /// unavailable.
    #[inline]
    pub(crate) fn find(&self, name: &IndexedName<'_>, rtype: Rtype) -> Result<FoundZone<'_>, Rcode> {
        match &self.entries[..] {
            [ZoneEntry::Served(zone)] => find_in_only(zone, name).ok_or(Rcode::Refused),
            _ => self.find_among_many(name, rtype),
        }
    }

    /// Searches for all suffixes of `name`, in one pass from the root.
    pub(crate) fn find_among_many(&self, name: &IndexedName<'_>, rtype: Rtype) -> Result<FoundZone<'_>, Rcode> {
        let root = self.seed.of_root();
        let mut hashes = NameHashes { name: root, parent: root };
        let (mut entry, mut parent) = (None, None);
        if self.depths[0] != 0 {
            entry = self.entry_at(Name::ROOT.as_bytes(), root);
        }
        for (suffix, &zone_count) in name.suffixes_longer_than(0).zip(&self.depths[1..]) {
            hashes = hashes.child(suffix, name.as_bytes());
            if zone_count != 0
                && let Some(found) = self.entry_at(suffix, hashes.name)
            {
                (entry, parent) = (Some(found), entry);
            }
        }
        let mut entry = entry.ok_or(Rcode::Refused)?;
        // RFC 4035 §3.1.4.1: the DS RRset at an apex belongs to the parent zone, if this server has it. If the zone
        // above only has a referral for the name, the parent zone is elsewhere.
        if rtype == Rtype::DS && entry.apex().length_bytes() == name.as_bytes().len() {
            let is_parent = |above: &&ZoneEntry| match above {
                ZoneEntry::Served(zone) => !matches!(zone.lookup(name.name(), hashes, rtype), Lookup::Referral(_)),
                ZoneEntry::Restricted(_) => false,
                ZoneEntry::Unavailable { .. } => true,
            };
            entry = parent.filter(is_parent).unwrap_or(entry);
        }
        match entry {
            ZoneEntry::Served(zone) => Ok(FoundZone { zone, hashes }),
            ZoneEntry::Restricted(_) => Err(Rcode::Refused),
            ZoneEntry::Unavailable { .. } => Err(Rcode::ServFail),
        }
    }

    /// The index of `zone` in the entries.
    pub(crate) fn index_of_zone(&self, zone: &Zone) -> Option<usize> {
        match self.entries[..] {
            [_] => Some(0),
            _ => self.index_of(zone.apex().as_bytes(), zone.apex_hash),
        }
    }

    fn entry_at(&self, apex: &[u8], hash: NameHash) -> Option<&ZoneEntry> {
        self.index_of(apex, hash).map(|index| &self.entries[index])
    }

    // This function is not inlined: the loop over the suffixes would lose registers to the search.
    #[inline(never)]
    fn index_of(&self, apex: &[u8], hash: NameHash) -> Option<usize> {
        let is_apex = |index| eq_lowercase(self.entries[index as usize].apex().as_bytes(), apex);
        self.slots.find(hash, is_apex).map(|index| index as usize)
    }
}

/// [`ZoneMap::find`] for a map of one zone: nothing above the apex needs to be hashed.
#[inline]
fn find_in_only<'s>(zone: &'s Zone, name: &IndexedName<'_>) -> Option<FoundZone<'s>> {
    if name.label_count() < zone.apex_depth || !eq_lowercase(zone.apex().as_bytes(), name.suffix(zone.apex_depth)) {
        return None;
    }
    let mut hashes = NameHashes { name: zone.apex_hash, parent: zone.apex_hash };
    for suffix in name.suffixes_longer_than(zone.apex_depth) {
        hashes = hashes.child(suffix, name.as_bytes());
    }
    Some(FoundZone { zone, hashes })
}

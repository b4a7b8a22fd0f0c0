//! The zones that a server answers for: finds the one that a name belongs to.

use crate::name::{LABEL_COUNT_MAX, Name};
use crate::name_hash::{HashSeed, LabelledName, NameHash, NameHashes, is_stored_name};
use crate::rtype::Rtype;
use crate::zone::{Lookup, Zone};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

/// An immutable set of zones, each shared with whoever else serves it.
#[derive(Clone, Debug)]
pub struct ZoneSet {
    seed: HashSeed,
    zones: Vec<Arc<Zone>>,
    /// Open addressing: the hash's tag and the zone's index + 1; 0 is empty.
    places: Vec<u64>,
    place_bits: u32,
    /// How many zones have an apex of that many labels.
    depths: [u32; LABEL_COUNT_MAX + 1],
    alias_count_max: usize,
}

/// Aliases that are followed for one question, unless an operator says otherwise.
pub const ALIAS_COUNT_MAX_DEFAULT: usize = 16;
/// Most aliases that an operator may let be followed.
pub const ALIAS_COUNT_MAX: usize = 64;

/// Two zones of one name.
#[derive(Debug)]
pub struct Duplicate(
    /// The second of them.
    pub Arc<Zone>,
);

/// A zone found for a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FoundZone<'s> {
    pub(crate) zone: &'s Zone,
    /// The hashes of the name that was looked for.
    pub(crate) hashes: NameHashes,
}

impl ZoneSet {
    /// The set of `zones`, all made with `seed`.
    ///
    /// # Errors
    /// A zone whose apex another one has already.
    pub fn new(seed: HashSeed, zones: Vec<Arc<Zone>>) -> Result<ZoneSet, Duplicate> {
        let place_bits = (zones.len() * 2).next_power_of_two().trailing_zeros().max(1);
        let mut set = ZoneSet {
            seed,
            zones,
            places: vec![0; 1 << place_bits],
            place_bits,
            depths: [0; LABEL_COUNT_MAX + 1],
            alias_count_max: ALIAS_COUNT_MAX_DEFAULT,
        };
        for index in 0..set.zones.len() {
            let zone = &set.zones[index];
            assert!(zone.seed == seed, "a zone is found by the hash that it was made with");
            let apex = LabelledName::of(zone.apex());
            let hash = apex.hash(seed);
            if set.at(apex.as_bytes(), hash).is_some() {
                return Err(Duplicate(Arc::clone(zone)));
            }
            set.depths[apex.label_count()] += 1;
            let mask = set.places.len() - 1;
            let mut place = hash.place(place_bits);
            while set.places[place] != 0 {
                place = (place + 1) & mask;
            }
            set.places[place] = u64::from(hash.tag()) << 32 | (index as u64 + 1);
        }
        Ok(set)
    }

    /// The same set, whose answers follow at most `alias_count_max` aliases, up to [`ALIAS_COUNT_MAX`].
    #[must_use]
    pub fn with_alias_count_max(self, alias_count_max: usize) -> ZoneSet {
        let alias_count_max = alias_count_max.min(ALIAS_COUNT_MAX);
        ZoneSet { alias_count_max, ..self }
    }

    /// Aliases that one answer follows.
    pub(crate) fn alias_count_max(&self) -> usize {
        self.alias_count_max
    }

    /// The zones, in the order that they were given in.
    pub fn zones(&self) -> &[Arc<Zone>] {
        &self.zones
    }

    /// The zone whose apex is `name`.
    pub fn zone(&self, name: Name<'_>) -> Option<&Arc<Zone>> {
        let name = LabelledName::of(name);
        self.index_at(name.as_bytes(), name.hash(self.seed)).map(|index| &self.zones[index])
    }

    /// The zone that answers for `rtype` at `name`: the one with the longest apex that `name` is at or below, or, for the
    /// DS of an apex, the one above.
    #[inline]
    pub(crate) fn find(&self, name: &LabelledName<'_>, rtype: Rtype) -> Option<FoundZone<'_>> {
        match &self.zones[..] {
            [zone] => find_in_only(zone, name),
            _ => self.find_among_many(name, rtype),
        }
    }

    /// Looks at all suffixes of `name`, in one pass from the root.
    fn find_among_many(&self, name: &LabelledName<'_>, rtype: Rtype) -> Option<FoundZone<'_>> {
        let root = self.seed.of_root();
        let mut hashes = NameHashes { name: root, parent: root };
        let (mut zone, mut parent) = (None, None);
        if self.depths[0] != 0 {
            zone = self.at(Name::ROOT.as_bytes(), root);
        }
        for (suffix, &zone_count) in name.suffixes_beyond(0).zip(&self.depths[1..]) {
            hashes = hashes.below(suffix, name.as_bytes());
            if zone_count != 0
                && let Some(found) = self.at(suffix, hashes.name)
            {
                (zone, parent) = (Some(found), zone);
            }
        }
        let mut zone = zone?;
        // The DS of an apex stands in the zone above, if we serve that too; not if the zone above that we serve only
        // leads to somebody else's, which then is the parent (RFC 4035 §3.1.4.1).
        if rtype == Rtype::DS && zone.apex().length_bytes() == name.as_bytes().len() {
            let is_parent = |zone: &&Zone| !matches!(zone.lookup(name.name(), hashes, rtype), Lookup::Referral(_));
            zone = parent.filter(is_parent).unwrap_or(zone);
        }
        Some(FoundZone { zone, hashes })
    }

    #[inline]
    fn at(&self, apex: &[u8], hash: NameHash) -> Option<&Zone> {
        self.index_at(apex, hash).map(|index| &*self.zones[index])
    }

    #[inline]
    fn index_at(&self, apex: &[u8], hash: NameHash) -> Option<usize> {
        let mask = self.places.len() - 1;
        let mut place = hash.place(self.place_bits);
        // Ends at an empty place: at most half of them are taken.
        loop {
            let entry = self.places[place];
            if entry == 0 {
                return None;
            }
            let index = entry as u32 as usize - 1;
            if (entry >> 32) as u32 == hash.tag() && is_stored_name(self.zones[index].apex().as_bytes(), apex) {
                return Some(index);
            }
            place = (place + 1) & mask;
        }
    }
}

/// What [`ZoneSet::find`] finds if there is no other zone: nothing above the apex needs to be hashed.
#[inline]
fn find_in_only<'s>(zone: &'s Zone, name: &LabelledName<'_>) -> Option<FoundZone<'s>> {
    if name.label_count() < zone.apex_depth || !is_stored_name(zone.apex().as_bytes(), name.suffix(zone.apex_depth)) {
        return None;
    }
    let mut hashes = NameHashes { name: zone.apex_hash, parent: zone.apex_hash };
    for suffix in name.suffixes_beyond(zone.apex_depth) {
        hashes = hashes.below(suffix, name.as_bytes());
    }
    Some(FoundZone { zone, hashes })
}

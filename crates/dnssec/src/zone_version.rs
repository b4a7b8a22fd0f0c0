//! A version of a zone that changes into the next one at a cost that depends on the change: the records of a whole
//! version, and the names that have other records since.

use crate::records::{Node, Record, Records, Rrset, order_key, write_text};
use sanderling_dns::{Name, Rtype};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::iter;
use std::ops::Bound;
use std::sync::Arc;

/// Minimum number of changed names before a new whole version is worth the time of reading all records.
const DELTA_NAMES_MIN: usize = 1024;
/// The part of all names that differ at most.
const STORE_SHARE: usize = 64;

/// Orders names; compared as bytes.
pub(crate) type NameKey = Box<[u8]>;

/// A version of a zone.
#[derive(Clone, Debug, Default)]
pub struct ZoneVersion {
    store: Arc<Records>,
    /// The names that differ from the store; a name without records is removed.
    delta: BTreeMap<NameKey, Option<NodeRef>>,
}

/// A name with its records, and their owner.
#[derive(Clone, Debug)]
pub(crate) struct NodeRef {
    records: Arc<Records>,
    index: usize,
}

impl NodeRef {
    pub(crate) fn new(records: &Arc<Records>, index: usize) -> NodeRef {
        NodeRef { records: Arc::clone(records), index }
    }

    pub(crate) fn node(&self) -> Node<'_> {
        self.records.node_at(self.index)
    }
}

impl From<Records> for ZoneVersion {
    fn from(records: Records) -> ZoneVersion {
        ZoneVersion { store: Arc::new(records), delta: BTreeMap::new() }
    }
}

impl ZoneVersion {
    /// The number of names that differ from the whole version from which this version was made.
    pub fn delta_name_count(&self) -> usize {
        self.delta.len()
    }

    /// Whether so much has changed that the version should be rebuilt from [`ZoneVersion::to_records`].
    pub fn has_large_delta(&self) -> bool {
        self.delta.len() > (self.store.name_count() / STORE_SHARE).max(DELTA_NAMES_MIN)
    }

    /// All records in one piece. The time is proportional to the size of the zone.
    pub fn to_records(&self) -> Records {
        let mut records = Records::default();
        self.nodes().for_each(|node| records.append(node));
        records
    }

    /// All records, in canonical order.
    pub fn iter(&self) -> impl Iterator<Item = Record<'_>> {
        self.nodes().flat_map(Node::records)
    }

    /// The RDATA of the records of this type at `owner`.
    pub fn rdatas(&self, owner: Name<'_>, rtype: Rtype) -> impl Iterator<Item = &[u8]> {
        self.node_of(&order_key(owner)).and_then(|node| node.rrset(rtype)).into_iter().flat_map(Rrset::rdatas)
    }

    /// As [`Records::write_text`].
    pub fn write_text(&self, out: &mut String) {
        write_text(|| self.iter(), out);
    }

    /// The number of names, or more.
    pub(crate) fn name_count_max(&self) -> usize {
        self.store.name_count() + self.delta.len()
    }

    /// The name with this key.
    pub(crate) fn node_of(&self, key: &[u8]) -> Option<Node<'_>> {
        match self.delta.get(key) {
            Some(node) => node.as_ref().map(NodeRef::node),
            None => self.store.position(key).ok().map(|index| self.store.node_at(index)),
        }
    }

    /// The name with this key, to be kept.
    pub(crate) fn node_ref(&self, key: &[u8]) -> Option<NodeRef> {
        match self.delta.get(key) {
            Some(node) => node.clone(),
            None => self.store.position(key).ok().map(|index| NodeRef::new(&self.store, index)),
        }
    }

    /// All names.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = Node<'_>> {
        self.nodes_from(Bound::Unbounded)
    }

    /// The names from a key on, in canonical order.
    pub(crate) fn nodes_from(&self, start: Bound<&[u8]>) -> impl Iterator<Item = Node<'_>> {
        let index = match start {
            Bound::Unbounded => 0,
            Bound::Included(key) => self.store.position(key).unwrap_or_else(|index| index),
            Bound::Excluded(key) => self.store.position(key).map_or_else(|index| index, |index| index + 1),
        };
        let of_store = (index..self.store.name_count()).map(|index| self.store.node_at(index));
        merged(of_store, self.delta.range::<[u8], _>((start, Bound::Unbounded)), |left, right| left.cmp(right))
    }

    /// The names before a key, from the last one on.
    pub(crate) fn nodes_before(&self, key: &[u8]) -> impl Iterator<Item = Node<'_>> {
        let index = self.store.position(key).unwrap_or_else(|index| index);
        let of_store = (0..index).rev().map(|index| self.store.node_at(index));
        let of_delta = self.delta.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(key))).rev();
        merged(of_store, of_delta, |left, right| right.cmp(left))
    }

    /// Gives the name with this key other records, or none; those that it had.
    pub(crate) fn replace(&mut self, key: &[u8], node: Option<NodeRef>) -> Option<NodeRef> {
        let before = self.node_ref(key);
        match self.delta.get_mut(key) {
            Some(place) => *place = node,
            None => {
                self.delta.insert(key.into(), node);
            }
        }
        before
    }
}

/// The names of the store and of the delta, which hides equal names of the store, in the order of `compare`.
fn merged<'v>(
    store: impl Iterator<Item = Node<'v>>,
    delta: impl Iterator<Item = (&'v NameKey, &'v Option<NodeRef>)>,
    compare: impl Fn(&[u8], &[u8]) -> Ordering,
) -> impl Iterator<Item = Node<'v>> {
    let (mut store, mut delta) = (store.peekable(), delta.peekable());
    iter::from_fn(move || {
        loop {
            let order = match (store.peek(), delta.peek()) {
                (None, None) => return None,
                (Some(node), Some((key, _))) => compare(node.key(), key),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
            };
            match order {
                Ordering::Less => return store.next(),
                Ordering::Equal => drop(store.next()),
                Ordering::Greater => {
                    if let Some((_, Some(node))) = delta.next() {
                        return Some(node.node());
                    }
                }
            }
        }
    })
}

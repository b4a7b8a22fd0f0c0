//! The hash index: from a hash to the numbers of the slots that may have its key.

use crate::slot::SlotNumber;
use crate::sync::{AtomicU64, unless_injected};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Buckets of the first index of a table.
pub(crate) const BUCKET_COUNT_MIN: usize = if cfg!(loom) { 4 } else { 64 };

/// The content of a bucket: empty, a tombstone, or a slot number with 32 bits of a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bucket(u64);

impl Bucket {
    /// Never used: a probe ends here.
    pub(crate) const EMPTY: Bucket = Bucket(0);
    /// The bucket's entry was invalidated: a probe continues.
    pub(crate) const TOMBSTONE: Bucket = Bucket(1 << 32);

    pub(crate) fn new(hash: u64, number: SlotNumber) -> Bucket {
        Bucket(tag(hash) | u64::from(number.0 + 1))
    }

    #[inline]
    pub(crate) fn number(self) -> Option<SlotNumber> {
        (self.0 as u32).checked_sub(1).map(SlotNumber)
    }

    /// The slot, if its key may have this hash.
    #[inline]
    pub(crate) fn number_for(self, hash: u64) -> Option<SlotNumber> {
        if self.0 & TAG == tag(hash) { self.number() } else { None }
    }
}

const TAG: u64 = !0 << 32;

/// The high half of a hash; the low half selects the first bucket.
#[inline]
fn tag(hash: u64) -> u64 {
    hash & TAG
}

/// Open addressing with linear probing. At least half of the buckets are EMPTY, so that probes are short.
///
/// The index is freed only with the table. A replaced index may be filled again later: a thread that still probes it
/// may miss entries, which [`crate::Table`] detects.
pub(crate) struct Index {
    buckets: Box<[AtomicU64]>,
}

/// The position of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BucketIndex(usize);

impl Index {
    /// With empty buckets; `bucket_count` is a power of two.
    pub(crate) fn new(bucket_count: usize) -> Index {
        assert!(bucket_count.is_power_of_two(), "a probe wraps by a mask");
        Index { buckets: (0..bucket_count).map(|_| AtomicU64::new(Bucket::EMPTY.0)).collect() }
    }

    pub(crate) fn bucket_count(&self) -> usize {
        self.buckets.len()
    }

    /// The buckets that may have a key with this hash, up to and including the first empty one.
    ///
    /// Each bucket at most once: an index that is filled during the probe could otherwise lead it around forever.
    #[inline]
    pub(crate) fn probe(&self, hash: u64) -> impl Iterator<Item = (BucketIndex, Bucket)> {
        let mask = self.buckets.len() - 1;
        let start = hash as usize & mask;
        let mut is_over = false;
        (0..self.buckets.len()).map_while(move |step| {
            if is_over {
                return None;
            }
            let at = BucketIndex((start + step) & mask);
            let bucket = self.load(at);
            is_over = bucket == Bucket::EMPTY;
            Some((at, bucket))
        })
    }

    /// Acquire pairs with the Release in `store`.
    #[inline]
    pub(crate) fn load(&self, BucketIndex(at): BucketIndex) -> Bucket {
        Bucket(self.buckets[at].load(Acquire))
    }

    /// The current content of a bucket. Relaxed suffices after taking a reference, which was an Acquire: if that found
    /// a later entry of the slot, the earlier one had left this bucket before.
    #[inline]
    pub(crate) fn reload(&self, BucketIndex(at): BucketIndex) -> Bucket {
        Bucket(self.buckets[at].load(Relaxed))
    }

    /// Only with the writers' lock.
    pub(crate) fn store(&self, BucketIndex(at): BucketIndex, bucket: Bucket) {
        // Release pairs with the Acquire in `load`.
        self.buckets[at].store(bucket.0, unless_injected("relaxed_bucket", Release));
    }

    /// Stores a slot in the first empty bucket of its probe. Only with the writers' lock.
    pub(crate) fn insert(&self, hash: u64, number: SlotNumber) {
        let (at, _) =
            self.probe(hash).find(|&(_, bucket)| bucket == Bucket::EMPTY).expect("half of the buckets are empty");
        self.store(at, Bucket::new(hash, number));
    }

    /// Makes each bucket empty. Only with the writers' lock.
    pub(crate) fn clear(&self) {
        for at in 0..self.buckets.len() {
            self.store(BucketIndex(at), Bucket::EMPTY);
        }
    }

    pub(crate) fn buckets(&self) -> impl Iterator<Item = (BucketIndex, Bucket)> {
        (0..self.buckets.len()).map(|at| (BucketIndex(at), self.load(BucketIndex(at))))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn probe_skips_tombstones_and_stops_after_first_empty_bucket() {
        let index = Index::new(8);
        let hash = 0xabcd_0000_0000_0006;
        for number in 0..3 {
            index.insert(hash, SlotNumber(number));
        }
        let (second, _) = index.probe(hash).nth(1).unwrap();
        index.store(second, Bucket::TOMBSTONE);
        let probed: Vec<Bucket> = index.probe(hash).map(|(_, bucket)| bucket).collect();
        let first = Bucket::new(hash, SlotNumber(0));
        assert_eq!(probed, [first, Bucket::TOMBSTONE, Bucket::new(hash, SlotNumber(2)), Bucket::EMPTY]);
        assert_eq!(first.number_for(hash), Some(SlotNumber(0)));
        assert_eq!(first.number_for(!hash), None);
    }

    #[test]
    fn empty_bucket_and_tombstone_match_no_hash() {
        for hash in [0, 1 << 32, !0] {
            assert_eq!(Bucket::EMPTY.number_for(hash), None);
            assert_eq!(Bucket::TOMBSTONE.number_for(hash), None);
        }
    }

    #[test]
    fn probe_of_full_index_ends() {
        let index = Index::new(4);
        for (at, _) in index.buckets() {
            index.store(at, Bucket::TOMBSTONE);
        }
        assert_eq!(index.probe(3).count(), 4);
    }
}

//! Which entries of the open-file cache are evicted when a limit is exceeded.

use crate::clock::Milliseconds;

/// At least one in this many entries is evicted, so that the scan of all of them, which each eviction takes, is rare.
pub(crate) const EVICTED_FRACTION: usize = 16;

/// Which entries are evicted: the least recently used, a fraction of all at least, and as many more as weigh the
/// excess.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Eviction {
    /// Older entries are evicted; of those with exactly this age only as many as needed.
    cutoff_ms: Milliseconds,
    remaining_count: usize,
    remaining_weight: u64,
}

impl Eviction {
    /// A plan for `files`, each with the time of its last use and its weight; `None` if there are none.
    pub(crate) fn plan(mut files: Vec<(Milliseconds, u64)>, excess: u64) -> Option<Eviction> {
        files.sort_unstable_by_key(|&(used_ms, _)| used_ms);
        let (mut remaining_count, mut remaining_weight) = ((files.len() / EVICTED_FRACTION).max(1), excess);
        for same_time in files.chunk_by(|(one_ms, _), (other_ms, _)| one_ms == other_ms) {
            let sum: u64 = same_time.iter().map(|&(_, weight)| weight).sum();
            if same_time.len() >= remaining_count && sum >= remaining_weight {
                return Some(Eviction { cutoff_ms: same_time[0].0, remaining_count, remaining_weight });
            }
            remaining_count = remaining_count.saturating_sub(same_time.len());
            remaining_weight = remaining_weight.saturating_sub(sum);
        }
        // All of them weigh less than the excess.
        files.last().map(|&(cutoff_ms, _)| Eviction { cutoff_ms, remaining_count: files.len(), remaining_weight })
    }

    /// Whether this entry is evicted.
    pub(crate) fn should_evict(&mut self, used_ms: Milliseconds, weight: u64) -> bool {
        if used_ms != self.cutoff_ms {
            return used_ms < self.cutoff_ms;
        }
        let is_needed = self.remaining_count > 0 || self.remaining_weight > 0;
        self.remaining_count = self.remaining_count.saturating_sub(1);
        self.remaining_weight = self.remaining_weight.saturating_sub(weight);
        is_needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The indices of the evicted files; each file has the time of its last use and its weight.
    fn evicted(files: &[(Milliseconds, u64)], excess: u64) -> Vec<usize> {
        let Some(mut eviction) = Eviction::plan(files.to_vec(), excess) else { return Vec::new() };
        let evicted =
            files.iter().enumerate().filter(|&(_, &(used_ms, weight))| eviction.should_evict(used_ms, weight));
        evicted.map(|(index, _)| index).collect()
    }

    #[test]
    fn the_least_recently_used_files_are_evicted_and_no_more_than_needed() {
        assert_eq!(evicted(&[], 1), [0_usize; 0]);
        assert_eq!(evicted(&[(5, 1), (3, 1), (4, 1)], 1), [1]);
        assert_eq!(evicted(&[(5, 1), (3, 1), (4, 1)], 2), [1, 2]);
        assert_eq!(evicted(&[(5, 10), (3, 1), (4, 10)], 2), [1, 2], "by weight, not by number");
        assert_eq!(evicted(&[(5, 10), (3, 20), (4, 10)], 2), [1]);
        assert_eq!(evicted(&[(7, 1), (7, 1), (7, 1)], 2), [0, 1], "of equally old ones");
        assert_eq!(evicted(&[(7, 1), (2, 1), (7, 1), (7, 1)], 3), [0, 1, 2], "in any order");
        assert_eq!(evicted(&[(1, 1), (2, 1)], 9), [0, 1], "all, where all are too few");
        let many: Vec<(Milliseconds, u64)> = (0..100).map(|used_ms| (used_ms, 20)).collect();
        assert_eq!(evicted(&many, 1), (0..100 / EVICTED_FRACTION).collect::<Vec<_>>(), "a fraction at least");
        assert_eq!(evicted(&many, 980), (0..49).collect::<Vec<_>>());
    }
}

//! Durations turned into quantiles, with an error below 1.6 % and a fixed size.

use std::time::Duration;

/// Each power of two is cut into this many buckets.
const STEP_COUNT: u64 = 64;
const STEP_BITS: u32 = STEP_COUNT.trailing_zeros();
/// Powers of two above the first 64 ns: the last bucket ends at 2^42 ns, more than an hour.
const POWER_COUNT: usize = 36;
const BUCKET_COUNT: usize = STEP_COUNT as usize * (1 + POWER_COUNT);

/// How often each duration came.
#[derive(Clone, Debug)]
pub struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    max: Duration,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: vec![0; BUCKET_COUNT], count: 0, max: Duration::ZERO }
    }
}

impl Histogram {
    /// One duration more. Those beyond an hour share the last bucket.
    pub(crate) fn add(&mut self, duration: Duration) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket_index(ns).min(BUCKET_COUNT - 1)] += 1;
        self.count += 1;
        self.max = self.max.max(duration);
    }

    /// The duration that this share of all does not exceed: 0.5 is the median. Zero when there are none.
    pub fn quantile(&self, share: f64) -> Duration {
        let rank = ((self.count as f64 * share).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen_count = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen_count += count;
            if seen_count >= rank {
                return Duration::from_nanos(bucket_last_ns(index)).min(self.max);
            }
        }
        Duration::ZERO
    }

    /// The longest, exactly.
    pub fn max(&self) -> Duration {
        self.max
    }
}

fn bucket_index(ns: u64) -> usize {
    if ns < STEP_COUNT {
        return ns as usize;
    }
    let power = ns.ilog2() - STEP_BITS;
    // `ns >> power` lies in 64..128, so that each power's buckets follow those of the one before.
    (STEP_COUNT * u64::from(power) + (ns >> power)) as usize
}

fn bucket_last_ns(index: usize) -> u64 {
    let index = index as u64;
    if index < STEP_COUNT {
        return index;
    }
    let power = index / STEP_COUNT - 1;
    ((index - STEP_COUNT * power + 1) << power) - 1
}

#[cfg(test)]
mod tests {
    use super::{Histogram, bucket_index, bucket_last_ns};
    use std::time::Duration;

    #[test]
    fn buckets_follow_each_other_without_gap_or_overlap() {
        for index in 0..super::BUCKET_COUNT {
            let last_ns = bucket_last_ns(index);
            assert_eq!(bucket_index(last_ns), index);
            assert_eq!(bucket_index(last_ns + 1), index + 1);
        }
    }

    #[test]
    fn quantiles_are_within_the_step() {
        let mut histogram = Histogram::default();
        (1..=1_000).for_each(|ms| histogram.add(Duration::from_millis(ms)));
        for (share, ms) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1_000.0)] {
            let found_ms = histogram.quantile(share).as_secs_f64() * 1e3;
            assert!((found_ms / ms - 1.0).abs() < 0.016, "{share}: {found_ms} ms");
        }
        assert_eq!(histogram.max(), Duration::from_secs(1));
    }

    #[test]
    fn nothing_has_no_length() {
        assert_eq!(Histogram::default().quantile(0.99), Duration::ZERO);
    }
}

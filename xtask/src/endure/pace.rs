//! Events that come at even times while a load runs.

use std::time::{Duration, Instant};

/// The load has begun, and is in its stride, before the first event.
const HEAD_START: Duration = Duration::from_millis(700);
/// What follows from the last event has shown before the load ends.
const TAIL: Duration = Duration::from_millis(700);

/// Does something `count` times, each time `every` after the last time, or later when it takes longer.
///
/// # Errors
/// The first error ends it.
pub(super) fn at_pace(
    count: usize,
    every: Duration,
    mut event: impl FnMut(usize) -> Result<(), String>,
) -> Result<(), String> {
    std::thread::sleep(HEAD_START);
    for index in 0..count {
        let next = Instant::now() + every;
        event(index)?;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    std::thread::sleep(TAIL);
    Ok(())
}

/// Looks again and again until it is so, for at most `limit`. Whether it came to be so.
pub(super) fn comes_true(limit: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    const LOOK_EVERY: Duration = Duration::from_millis(2);
    let end = Instant::now() + limit;
    loop {
        if is_so() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The median and the greatest of some times, in milliseconds; nothing of none.
pub(super) fn median_and_max(times: &[Duration]) -> Option<(f64, f64)> {
    let mut sorted: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
    sorted.sort_by(f64::total_cmp);
    Some((*sorted.get(sorted.len() / 2)?, *sorted.last()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one() {
        let ms = |times: &[u64]| times.iter().map(|ms| Duration::from_millis(*ms)).collect::<Vec<_>>();
        assert_eq!(median_and_max(&ms(&[9, 1, 5])), Some((5.0, 9.0)));
        assert_eq!(median_and_max(&[]), None);
    }

    #[test]
    fn looking_ends_when_it_is_so_or_at_the_limit() {
        let mut looks = 0;
        assert!(comes_true(Duration::from_secs(60), || {
            looks += 1;
            looks == 3
        }));
        assert!(!comes_true(Duration::ZERO, || false));
    }
}

//! Limits the requests of one client, by the generic cell rate algorithm (ITU-T I.371): a client has a time at which
//! its next request is expected, each request moves it on, and a request that comes too long before it is refused.
//!
//! All workers share one table of fixed size, without locks. Two clients share a place only by a collision of their
//! hashes; in a set of which all places are in use, the client that has used least of its budget loses its place, and
//! starts again.

use crate::clock::Milliseconds;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Sets of the table.
const SET_COUNT: usize = 1 << 14;
/// Places of a set: as many as a cache line has.
const PLACE_COUNT: usize = 8;
/// Bits of a place for the time at which the next request is expected, in microseconds: two weeks, after which it wraps
/// around. The others are a part of the client's hash.
const TIME_BITS: u32 = 40;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;
/// Microseconds from now to the latest time that a place can have. A later time means that the entry was not used for a
/// long time, and the clock of entries has wrapped around.
const AHEAD_MAX: u64 = 1 << (TIME_BITS - 1);

/// The requests that a client may make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestRate {
    /// Microseconds between two requests.
    interval: u64,
    /// Microseconds that a request may come before the time at which it is expected.
    tolerance: u64,
}

/// The requests that clients have made to the server, and to routes with a limit.
#[derive(Debug, Default)]
pub(crate) struct RequestBudget {
    /// The requests that each client may make; `None` for any number.
    pub(crate) client_rate: Option<RequestRate>,
    /// Its keys are random, so that attackers cannot choose addresses that share a set.
    hashes: RandomState,
    /// Made when the first request is limited.
    sets: OnceLock<Box<[Set]>>,
}

/// Places that clients with the same hash share, in one cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Set([AtomicU64; PLACE_COUNT]);

impl RequestRate {
    /// `per_second_max` requests a second, and a burst of `burst_max` after a pause. `None` if `per_second_max` is 0:
    /// there is no limit.
    pub(crate) fn new(per_second_max: u32, burst_max: u32) -> Option<RequestRate> {
        let interval = 1_000_000u64.checked_div(per_second_max.into())?.max(1);
        let tolerance = (interval * u64::from(burst_max.max(1) - 1)).min(AHEAD_MAX - interval);
        Some(RequestRate { interval, tolerance })
    }
}

impl RequestBudget {
    pub(crate) fn new(client_rate: Option<RequestRate>) -> RequestBudget {
        RequestBudget { client_rate, ..RequestBudget::default() }
    }

    /// Takes a request from the budget of `requester`, a client, or a client of a route.
    ///
    /// # Errors
    /// The seconds, at least 1, after which it has a request again.
    pub(crate) fn take(&self, requester: impl Hash, rate: RequestRate, now_ms: Milliseconds) -> Result<(), u64> {
        let hash = self.hashes.hash_one(requester);
        let sets = self.sets.get_or_init(|| (0..SET_COUNT).map(|_| Set::default()).collect());
        let set = &sets[hash as usize % SET_COUNT];
        let tag = hash & !TIME_MASK;
        // A place is never 0, which means no client.
        let now = (now_ms * 1_000 + 1) & TIME_MASK;
        loop {
            let (place, before) = set.place_of(tag, now);
            // The rest of the interval of the last request, and of those before it.
            let ahead = if before & !TIME_MASK == tag { ahead_of(before, now) } else { 0 };
            if ahead > rate.tolerance {
                return Err((ahead - rate.tolerance).div_ceil(1_000_000));
            }
            let after = tag | (now + ahead + rate.interval) & TIME_MASK;
            // Relaxed: the number guards no other memory. If another worker was faster, its request counts first.
            if place.compare_exchange_weak(before, after, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return Ok(());
            }
        }
    }
}

impl Set {
    /// The place of the client with `tag`, or the one that it may take, with its value.
    fn place_of(&self, tag: u64, now: u64) -> (&AtomicU64, u64) {
        let values = self.0.iter().map(|place| (place, place.load(Ordering::Relaxed)));
        let with_rank = values.map(|(place, value)| {
            let is_own = value != 0 && value & !TIME_MASK == tag;
            (if is_own { 0 } else { 1 + ahead_of(value, now) }, place, value)
        });
        let (_, place, value) = with_rank.min_by_key(|(rank, ..)| *rank).expect("a set has places");
        (place, value)
    }
}

/// Microseconds from `now` to the time of `value`; 0 if it has passed.
fn ahead_of(value: u64, now: u64) -> u64 {
    let ahead = value.wrapping_sub(now) & TIME_MASK;
    if value == 0 || ahead > AHEAD_MAX { 0 } else { ahead }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::permits::ClientPrefix;
    use std::net::IpAddr;

    fn client(number: u32) -> ClientPrefix {
        ClientPrefix::of(IpAddr::V4(number.into()))
    }

    fn budget(per_second_max: u32, burst_max: u32) -> (RequestBudget, RequestRate) {
        (RequestBudget::default(), RequestRate::new(per_second_max, burst_max).expect("a limit"))
    }

    /// The requests of 100 at `now_ms` that are allowed, and the seconds of the first refusal.
    fn take((budget, rate): &(RequestBudget, RequestRate), number: u32, now_ms: Milliseconds) -> (usize, Option<u64>) {
        let results: Vec<_> = (0..100).map(|_| budget.take(client(number), *rate, now_ms)).collect();
        (results.iter().filter(|result| result.is_ok()).count(), results.iter().find_map(|result| result.err()))
    }

    #[test]
    fn a_client_has_a_burst_and_then_its_rate() {
        let budget = budget(10, 20);
        assert_eq!(take(&budget, 1, 5_000), (20, Some(1)));
        assert_eq!(take(&budget, 1, 5_099).0, 0);
        assert_eq!(take(&budget, 1, 5_100).0, 1);
        assert_eq!(take(&budget, 1, 6_100).0, 10);
        assert_eq!(take(&budget, 1, 60_000).0, 20, "no more than a burst after a pause");
    }

    #[test]
    fn clients_do_not_share_a_budget() {
        let budget = budget(1, 1);
        for number in 1..1_000 {
            assert_eq!(take(&budget, number, 5_000), (1, Some(1)), "{number}");
        }
    }

    #[test]
    fn the_client_is_told_when_to_come_again() {
        let budget = budget(1, 3);
        assert_eq!(take(&budget, 1, 0), (3, Some(1)));
        // A rate below one per second is not a separate case: the interval is rounded, never 0.
        assert_eq!(RequestRate::new(u32::MAX, 1).expect("a limit").interval, 1);
    }

    #[test]
    fn a_place_that_was_not_used_for_weeks_is_as_good_as_new() {
        let budget = budget(10, 20);
        for days in [0, 1, 6, 7, 12, 13, 26] {
            assert_eq!(take(&budget, 1, days * 86_400_000).0, 20, "after {days} days");
        }
    }

    #[test]
    fn a_full_set_forgets_the_client_that_has_used_least() {
        let set = Set::default();
        for (index, place) in set.0.iter().enumerate() {
            place.store((index as u64 + 1) << TIME_BITS | (1_000 + index as u64), Ordering::Relaxed);
        }
        assert_eq!(set.place_of(3 << TIME_BITS, 500).1, 3 << TIME_BITS | 1_002, "its own");
        assert_eq!(set.place_of(99 << TIME_BITS, 500).1, 1 << TIME_BITS | 1_000);
    }

    #[test]
    fn no_limit_needs_no_table() {
        assert!(RequestRate::new(0, 100).is_none());
        assert!(RequestBudget::default().sets.get().is_none());
    }

    #[test]
    fn workers_take_from_one_budget() {
        let (budget, rate) = budget(1, 1_000);
        let taken = || (0..1_000).filter(|_| budget.take(client(7), rate, 1_000).is_ok()).count();
        let sum: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(taken)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        assert_eq!(sum, 1_000);
    }
}

//! Whether a thread still moves: a number that it raises with each turn, for whoever looks at it from outside.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What one look adds to the time that a thread is thought to have stood still, at most. Between two looks that are
/// further apart the whole process may have stood still, and the thread with it.
const LOOK_GAP_MAX: Duration = Duration::from_millis(1_500);

/// The turns of one thread. The number never goes back; it is odd during a turn, and even while the thread waits.
#[derive(Debug, Default)]
pub(crate) struct Beat(AtomicU64);

impl Beat {
    /// The thread begins a turn, from waiting or right behind another turn.
    #[inline]
    pub(crate) fn begin_turn(&self) {
        self.raise(|number| (number + 1) | 1);
    }

    /// The thread has ended its turn, and waits or leaves.
    #[inline]
    pub(crate) fn begin_waiting(&self) {
        self.raise(|number| (number + 1) & !1);
    }

    /// How many turns have begun.
    pub(crate) fn turn_count(&self) -> u64 {
        self.number().div_ceil(2)
    }

    /// Whether the thread is in a turn.
    #[cfg(test)]
    pub(crate) fn is_in_a_turn(&self) -> bool {
        is_in_a_turn(self.number())
    }

    fn number(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    fn raise(&self, raised: impl FnOnce(u64) -> u64) {
        // One writer, its own thread: a load and a store lose nothing. One number says both which turn it is and
        // whether it goes on, so that there is no order between two of them to be kept.
        self.0.store(raised(self.number()), Ordering::Relaxed);
    }
}

/// Looks at threads from time to time, and remembers how each was found.
#[derive(Debug, Default)]
pub(crate) struct Lookout {
    seen: Vec<Seen>,
    last_look: Option<Instant>,
}

/// How a thread was found, and for how long it has been found so.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    number: u64,
    stands_for: Duration,
}

impl Lookout {
    /// The index of the first of `beats` that has been in one and the same turn for `limit`. They are the same threads in
    /// each look, or more.
    pub(crate) fn look<'b>(
        &mut self,
        now: Instant,
        beats: impl Iterator<Item = &'b Beat>,
        limit: Duration,
    ) -> Option<usize> {
        let gap = self.last_look.map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        self.last_look = Some(now);
        let mut hanging = None;
        for (index, beat) in beats.enumerate() {
            if index == self.seen.len() {
                self.seen.push(Seen::default());
            }
            let seen = &mut self.seen[index];
            let number = beat.number();
            if is_in_a_turn(number) && seen.number == number {
                seen.stands_for += gap.min(LOOK_GAP_MAX);
            } else {
                *seen = Seen { number, stands_for: Duration::ZERO };
            }
            if is_in_a_turn(number) && seen.stands_for >= limit {
                hanging = hanging.or(Some(index));
            }
        }
        hanging
    }
}

fn is_in_a_turn(number: u64) -> bool {
    number % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    /// Looks once a second at a thread that does `acts` between the looks, one after another; after how many looks it is
    /// said to hang.
    fn check(acts: &[fn(&Beat)], gap: Duration) -> Option<usize> {
        let (beat, mut lookout, start) = (Beat::default(), Lookout::default(), Instant::now());
        acts.iter().enumerate().position(|(index, act)| {
            act(&beat);
            lookout.look(start + gap * index as u32, [&beat].into_iter(), LIMIT).is_some()
        })
    }

    const SECOND: Duration = Duration::from_secs(1);
    const NOTHING: fn(&Beat) = |_| {};
    const TURN: fn(&Beat) = Beat::begin_turn;

    #[test]
    fn who_stays_in_one_turn_hangs() {
        assert_eq!(check(&[TURN, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING, NOTHING], SECOND), Some(5));
    }

    #[test]
    fn who_waits_does_not_hang() {
        assert_eq!(check(&[NOTHING; 20], SECOND), None);
        let turn: fn(&Beat) = |beat| {
            beat.begin_turn();
            beat.begin_waiting();
        };
        let mut acts = [NOTHING; 20];
        acts[0] = turn;
        assert_eq!(check(&acts, SECOND), None);
    }

    #[test]
    fn who_never_waits_but_moves_does_not_hang() {
        assert_eq!(check(&[TURN; 20], SECOND), None);
    }

    #[test]
    fn a_process_that_was_stopped_does_not_hang() {
        let hour = Duration::from_secs(3600);
        assert_eq!(check(&[TURN, NOTHING, NOTHING, TURN, NOTHING], hour), None);
    }

    #[test]
    fn turns_are_counted_once_each() {
        let beat = Beat::default();
        beat.begin_waiting();
        assert_eq!(beat.turn_count(), 0);
        beat.begin_turn();
        beat.begin_turn();
        beat.begin_waiting();
        beat.begin_waiting();
        assert_eq!(beat.turn_count(), 2);
        beat.begin_turn();
        assert_eq!(beat.turn_count(), 3);
    }

    #[test]
    fn the_thread_that_hangs_is_told_from_those_that_do_not() {
        let (beats, mut lookout, start) =
            ([Beat::default(), Beat::default(), Beat::default()], Lookout::default(), Instant::now());
        beats[1].begin_turn();
        let looks = (0..10).map(|second| {
            beats[2].begin_turn();
            lookout.look(start + SECOND * second, beats.iter(), LIMIT)
        });
        assert_eq!(looks.last(), Some(Some(1)));
    }
}

//! A schedule and a way of asking turned into counts: the loop that each kind of request runs in a thread of its own.

use crate::poller::{Poller, Ready};
use crate::schedule::{Request, Schedule};
use crate::tally::{Counts, Tally};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Requests sent in one turn. What is due beyond them goes out at the next beat: this program would else, at a rate above
/// its strength, never come to receive.
const SENDS_PER_TURN_MAX: usize = 512;

/// A way of asking. Each request that it is given ends in exactly one of [`Tally::count_ok`] and [`Tally::count_lost`].
pub(crate) trait Exchange {
    /// A request is due: it goes out now. Never waits.
    fn send(&mut self, request: Request, turn: &mut Turn<'_>);
    /// Something that it gave to the poller is ready.
    fn handle_ready(&mut self, ready: Ready, turn: &mut Turn<'_>);
    /// Ends the requests whose deadline has passed.
    fn expire(&mut self, turn: &mut Turn<'_>);
    /// How much has yet to end before the load is over.
    fn outstanding_count(&self) -> usize;
}

/// What a way of asking may use while it is served.
pub(crate) struct Turn<'a> {
    pub(crate) poller: &'a Poller,
    pub(crate) tally: &'a mut Tally,
    pub(crate) now: Instant,
}

/// Runs until the schedule is over, or `stop` is set, and the last request has ended: at latest its deadline later.
pub(crate) fn run(
    exchange: &mut dyn Exchange,
    poller: &Poller,
    mut schedule: Schedule,
    mut tally: Tally,
    stop: &AtomicBool,
) -> io::Result<Counts> {
    let mut ready = Vec::new();
    let mut sending_end = None;
    loop {
        // Readiness comes before sending: an idle connection whose end has arrived is not used for the next request.
        poller.wait(&mut ready)?;
        let mut turn = Turn { poller, tally: &mut tally, now: Instant::now() };
        for &ready in &ready {
            exchange.handle_ready(ready, &mut turn);
            turn.now = Instant::now();
        }
        if stop.load(Ordering::Relaxed) {
            schedule.end();
        }
        for _ in 0..SENDS_PER_TURN_MAX {
            let Some(request) = schedule.take_due(turn.now) else { break };
            turn.tally.count_sent(request, turn.now);
            exchange.send(request, &mut turn);
            turn.now = Instant::now();
        }
        exchange.expire(&mut turn);
        let now = turn.now;
        tally.publish();
        if schedule.is_over() {
            let sending_end = *sending_end.get_or_insert(now);
            if exchange.outstanding_count() == 0 {
                return Ok(tally.finish(sending_end, thread_cpu()));
            }
        }
    }
}

fn thread_cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).expect("processor time is not negative")
}

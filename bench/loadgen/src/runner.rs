//! The loop of the thread that sends the requests of one kind: a schedule, an epoll set and a client.

use crate::report::Recorder;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(crate) use rustix::event::epoll::EventFlags as Interest;

/// Requests are due on ticks of this length. With a wakeup for each request, the load generator's own processor time
/// would dominate.
const TICK: Duration = Duration::from_millis(1);
const TICKS_PER_S: u64 = 1_000;
/// Requests sent in one iteration. The rest follows in the next one, so that responses are received at any rate.
const SENDS_PER_ITERATION_MAX: usize = 512;
/// Events taken from the kernel in one iteration.
const EVENTS_PER_ITERATION_MAX: usize = 256;
/// The token of the timer; clients do not use it.
const TIMER: u64 = u64::MAX;

/// One request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Latencies and deadlines count from here even when sending is late. Otherwise a slow server would hide its
    /// slowness by delaying the requests that show it.
    pub(crate) due: Instant,
    /// Counted from 0 within its kind.
    pub(crate) number: u64,
}

/// When the requests of one kind are due.
#[derive(Debug)]
pub(crate) struct Schedule {
    start: Instant,
    per_s: u64,
    count_max: u64,
    taken_count: u64,
}

impl Schedule {
    /// `per_s` requests a second, which is not zero, from `start` on.
    pub(crate) fn new(start: Instant, per_s: u32, length: Duration) -> Schedule {
        let count_max = u128::from(per_s) * length.as_nanos() / 1_000_000_000;
        Schedule { start, per_s: per_s.into(), count_max: u64::try_from(count_max).unwrap_or(u64::MAX), taken_count: 0 }
    }

    /// The next request if it is due. After a pause of the load generator all missed requests are due at once.
    fn take_due(&mut self, now: Instant) -> Option<Request> {
        let tick_index = u128::from(self.taken_count) * u128::from(TICKS_PER_S) / u128::from(self.per_s);
        let due = self.start + TICK * u32::try_from(tick_index).unwrap_or(u32::MAX);
        if self.is_over() || due > now {
            return None;
        }
        self.taken_count += 1;
        Some(Request { due, number: self.taken_count - 1 })
    }

    fn end(&mut self) {
        self.count_max = self.taken_count;
    }

    fn is_over(&self) -> bool {
        self.taken_count == self.count_max
    }
}

/// Sends requests and receives responses. Each request ends in exactly one call of [`Recorder::count_ok`] or
/// [`Recorder::count_lost`]. No method blocks.
pub(crate) trait Client {
    /// Sends a request that is due.
    fn send(&mut self, request: Request, cx: &mut Context<'_>);
    /// Handles an event of a descriptor that the client has registered.
    fn handle_event(&mut self, token: u64, ready: Interest, cx: &mut Context<'_>);
    /// Ends the requests whose deadline has passed.
    fn expire(&mut self, cx: &mut Context<'_>);
    /// Requests and connections that must end before the load is over.
    fn outstanding_count(&self) -> usize;
}

/// What a client uses in one iteration.
pub(crate) struct Context<'a> {
    pub(crate) poller: &'a Poller,
    pub(crate) recorder: &'a mut Recorder,
    pub(crate) now: Instant,
}

/// Runs until the schedule is over or `stop` is set, and the last request has ended: at most one deadline later.
pub(crate) fn run(
    client: &mut dyn Client,
    poller: &Poller,
    mut schedule: Schedule,
    mut recorder: Recorder,
    stop: &AtomicBool,
) -> io::Result<()> {
    poller.start_ticks(schedule.start)?;
    let mut events = Vec::new();
    let mut sending_end = None;
    loop {
        // Events come before sending, so that no request is sent on a connection whose end has arrived.
        poller.wait(&mut events)?;
        let mut cx = Context { poller, recorder: &mut recorder, now: Instant::now() };
        for &(token, ready) in &events {
            client.handle_event(token, ready, &mut cx);
            cx.now = Instant::now();
        }
        if stop.load(Ordering::Relaxed) {
            schedule.end();
        }
        for _ in 0..SENDS_PER_ITERATION_MAX {
            let Some(request) = schedule.take_due(cx.now) else { break };
            cx.recorder.count_sent(request, cx.now);
            client.send(request, &mut cx);
            cx.now = Instant::now();
        }
        client.expire(&mut cx);
        let now = cx.now;
        if schedule.is_over() {
            let sending_end = *sending_end.get_or_insert(now);
            if client.outstanding_count() == 0 {
                recorder.finish(sending_end);
                return Ok(());
            }
        }
    }
}

/// A level-triggered epoll set with the timer of the schedule.
pub(crate) struct Poller {
    epoll: OwnedFd,
    timer: OwnedFd,
}

impl Poller {
    pub(crate) fn open() -> io::Result<Poller> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let poller = Poller { epoll, timer };
        poller.add(&poller.timer, TIMER, Interest::IN)?;
        Ok(poller)
    }

    /// Ticks begin at `start`, so that a wait ends when a request is due.
    fn start_ticks(&self, start: Instant) -> io::Result<()> {
        // An initial expiration of zero disarms the timer (timerfd_create(2)).
        let first = start.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let timespec = |length| Timespec::try_from(length).expect("both are far below the range of seconds");
        let ticks = Itimerspec { it_interval: timespec(TICK), it_value: timespec(first) };
        Ok(rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &ticks).map(drop)?)
    }

    pub(crate) fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token), interest)?)
    }

    pub(crate) fn modify(&self, fd: impl AsFd, token: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, fd, epoll::EventData::new_u64(token), interest)?)
    }

    pub(crate) fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// Waits for events until the next tick and replaces the content of `events` by them.
    fn wait(&self, events: &mut Vec<(u64, Interest)>) -> io::Result<()> {
        let mut buffer = [const { std::mem::MaybeUninit::uninit() }; EVENTS_PER_ITERATION_MAX];
        events.clear();
        let received = match epoll::wait(&self.epoll, &mut buffer, None) {
            Ok((received, _)) => received,
            Err(Errno::INTR) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        events.extend(received.iter().map(|event| (event.data.u64(), event.flags)));
        if events.iter().any(|(token, _)| *token == TIMER) {
            // The read rearms the event; the number of ticks does not matter, as the schedule reads the clock.
            rustix::io::retry_on_intr(|| rustix::io::read(&self.timer, &mut [0; 8])).ok();
            events.retain(|(token, _)| *token != TIMER);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes the requests due at each time and compares their number.
    #[track_caller]
    fn check(per_s: u32, length_ms: u64, taken: &[(u64, usize)]) {
        let start = Instant::now();
        let mut schedule = Schedule::new(start, per_s, Duration::from_millis(length_ms));
        for &(at_us, count) in taken {
            let now = start + Duration::from_micros(at_us);
            let requests: Vec<_> = std::iter::from_fn(|| schedule.take_due(now)).collect();
            assert_eq!(requests.len(), count, "at {at_us} µs");
            assert!(requests.iter().all(|request| request.due <= now));
        }
        assert!(schedule.is_over());
    }

    #[test]
    fn requests_are_distributed_over_ticks() {
        check(2_000, 3, &[(0, 2), (999, 0), (1_000, 2), (2_500, 2), (9_000, 0)]);
        check(400, 10, &[(0, 1), (1_999, 0), (2_000, 1), (5_000, 1), (7_000, 1)]);
    }

    #[test]
    fn missed_requests_are_due_at_once() {
        check(1_000, 100, &[(0, 1), (50_000, 50), (99_000, 49)]);
    }
}

//! Descriptors and the beat turned into tokens to serve: one epoll set with one timer.

use crate::schedule::BEAT;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

pub(crate) use rustix::event::epoll::EventFlags as Interest;

/// Readinesses that one wait brings at most; the others come with the next.
const EVENTS_PER_TURN_MAX: usize = 256;
/// The timer's own token: slots and sockets are counted from 0.
const TIMER: u64 = u64::MAX;

/// What is ready, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ready {
    pub(crate) token_bits: u64,
    flags: Interest,
}

impl Ready {
    /// Something can be read, be it an end or an error.
    pub(crate) fn can_receive(self) -> bool {
        self.flags.intersects(Interest::IN | Interest::HUP | Interest::ERR)
    }

    /// There is an error to fetch.
    pub(crate) fn has_error(self) -> bool {
        self.flags.contains(Interest::ERR)
    }
}

/// What a lane waits on.
#[derive(Debug)]
pub(crate) struct Poller {
    epoll: OwnedFd,
    timer: OwnedFd,
}

impl Poller {
    pub(crate) fn open() -> io::Result<Poller> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        epoll::add(&epoll, &timer, epoll::EventData::new_u64(TIMER), Interest::IN)?;
        Ok(Poller { epoll, timer })
    }

    /// Beats begin at `start`, so that a wait ends when a request is due, and not somewhere in the beat behind.
    pub(crate) fn start_beats(&self, start: Instant) -> io::Result<()> {
        // A first expiry of zero would switch the timer off (timerfd_create(2)).
        let first = start.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let timespec = |length| Timespec::try_from(length).expect("both are far below the range of seconds");
        let beats = Itimerspec { it_interval: timespec(BEAT), it_value: timespec(first) };
        Ok(rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &beats).map(drop)?)
    }

    /// Watches level by level: what is not served is told again.
    pub(crate) fn add(&self, descriptor: impl AsFd, token_bits: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, descriptor, epoll::EventData::new_u64(token_bits), interest)?)
    }

    pub(crate) fn modify(&self, descriptor: impl AsFd, token_bits: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, descriptor, epoll::EventData::new_u64(token_bits), interest)?)
    }

    /// A descriptor that is closed needs no removal.
    pub(crate) fn remove(&self, descriptor: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, descriptor)?)
    }

    /// Waits for a readiness, at most until the next beat; `ready` then has those of this turn.
    pub(crate) fn wait(&self, ready: &mut Vec<Ready>) -> io::Result<()> {
        let mut events = [const { std::mem::MaybeUninit::uninit() }; EVENTS_PER_TURN_MAX];
        ready.clear();
        let events = match epoll::wait(&self.epoll, &mut events, None) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for event in events {
            // The struct is packed: its fields can be copied, but not borrowed.
            let (token_bits, flags) = (event.data.u64(), event.flags);
            if token_bits == TIMER {
                // How many beats have passed is no matter: the schedule looks at the clock. The timer is set anew by
                // the read.
                let mut beat_count = [0; 8];
                rustix::io::retry_on_intr(|| rustix::io::read(&self.timer, &mut beat_count)).ok();
            } else {
                ready.push(Ready { token_bits, flags });
            }
        }
        Ok(())
    }
}

//! A server process, as its supervisor sees it.

use sanderling_config::log::warn;
use sanderling_ipc::channel::{Channel, Heard, Order, Word};
use sanderling_ipc::handover::{Label, ProcessLabel};
use sanderling_os::process::{ExitStatus, ProcessHandle};
use sanderling_os::signals::{SIGABRT, SIGKILL, Signal};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Between the request to leave a core behind and the end by force.
const CORE_TIME: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(super) struct Process {
    /// The first one is 1.
    pub(super) generation: u64,
    child: ProcessHandle,
    channel: Channel,
    /// It may still say something.
    is_heard: bool,
    pub(super) stage: Stage,
    /// Since when it is in its stage.
    pub(super) since: Instant,
    /// When it was ready; before that, when it was started.
    pub(super) ready_at: SystemTime,
    heard_at: Instant,
    /// When it is ended by force.
    killed_at: Option<Instant>,
    /// It has been ended by force, and is to be gone soon.
    is_killed: bool,
}

/// What a process is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It is not ready yet.
    Starting,
    /// It is the one that serves.
    Serving,
    /// It finishes what it has.
    Draining,
}

impl Process {
    pub(super) fn new(generation: u64, child: ProcessHandle, channel: Channel, stage: Stage) -> Process {
        let now = Instant::now();
        Process {
            generation,
            child,
            channel,
            is_heard: true,
            stage,
            since: now,
            ready_at: SystemTime::now(),
            heard_at: now,
            killed_at: None,
            is_killed: false,
        }
    }

    /// One that another supervisor has started.
    pub(super) fn taken_over(label: ProcessLabel, pidfd: OwnedFd, channel: Channel) -> Process {
        let stage = if label.is_serving { Stage::Serving } else { Stage::Draining };
        let mut process = Process::new(label.generation, ProcessHandle::from_pidfd(label.pid, pidfd), channel, stage);
        process.ready_at = UNIX_EPOCH + Duration::from_secs(label.since_unix_s);
        process
    }

    fn label(&self) -> ProcessLabel {
        ProcessLabel {
            generation: self.generation,
            pid: self.id(),
            is_serving: self.stage == Stage::Serving,
            since_unix_s: self.ready_at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        }
    }

    pub(super) fn id(&self) -> i32 {
        self.child.pid()
    }

    /// What to wait for: its words, and its end.
    pub(super) fn sources(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.is_heard.then(|| self.channel.as_fd()).into_iter().chain([self.child.as_fd()])
    }

    /// What another supervisor needs to take it over.
    pub(super) fn given(&self) -> [(Label, BorrowedFd<'_>); 2] {
        [(Label::Process(self.label()), self.child.as_fd()), (Label::Channel, self.channel.as_fd())]
    }

    /// Its next word; `None` when there is none now. One that speaks no more is told by its end.
    pub(super) fn next_word(&mut self) -> Option<Word> {
        match self.channel.next_word() {
            Ok(Heard::Message(word)) => {
                self.heard_at = Instant::now();
                Some(word)
            }
            Ok(Heard::Nothing) => None,
            Ok(Heard::Ended) => {
                self.is_heard = false;
                None
            }
            Err(error) => {
                self.is_heard = false;
                warn(&format!("{self} cannot be heard: {error}"));
                self.abort();
                None
            }
        }
    }

    /// Gives it an order. One that hears no more is ended.
    pub(super) fn order(&mut self, order: Order, descriptor: Option<BorrowedFd<'_>>) {
        if let Err(error) = self.channel.order(order, descriptor) {
            warn(&format!("{self} takes no orders: {error}"));
            self.abort();
        }
    }

    /// How it has ended, if it has.
    pub(super) fn ended(&self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    pub(super) fn enter(&mut self, stage: Stage) {
        self.stage = stage;
        self.since = Instant::now();
        if stage == Stage::Serving {
            self.ready_at = SystemTime::now();
            self.heard_at = self.since;
        }
    }

    /// Whether it serves and has not been heard of for `limit`.
    pub(super) fn is_silent_for(&self, limit: Duration) -> bool {
        self.stage == Stage::Serving && self.killed_at.is_none() && !self.is_killed && self.heard_at.elapsed() >= limit
    }

    /// Ends it with a core, and by force if it does not end.
    pub(super) fn abort(&mut self) {
        if self.killed_at.is_none() && !self.is_killed {
            self.signal(SIGABRT);
            self.killed_at = Some(Instant::now() + CORE_TIME);
        }
    }

    /// Ends it by force.
    pub(super) fn kill(&mut self) {
        self.killed_at = None;
        self.is_killed = true;
        self.signal(SIGKILL);
    }

    /// Ends it by force if it was to end, and has not.
    pub(super) fn kill_if_due(&mut self) {
        if self.killed_at.is_some_and(|at| Instant::now() >= at) {
            self.kill();
        }
    }

    /// Whether it has been ended by force.
    pub(super) fn is_killed(&self) -> bool {
        self.is_killed
    }

    /// When [`Process::kill_if_due`] is to be asked again.
    pub(super) fn killed_at(&self) -> Option<Instant> {
        self.killed_at
    }

    fn signal(&self, signal: Signal) {
        // One that is gone needs none.
        let _ = self.child.send_signal(signal);
    }
}

impl std::fmt::Display for Process {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "the server process {}", self.id())
    }
}

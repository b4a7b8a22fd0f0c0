//! Child processes of any role that are connected to the supervisor: their startup, events, termination and restart.

use crate::backoff::Backoff;
use crate::phase::Termination;
use crate::program;
use sanderling_config::diagnostic::error_text;
use sanderling_config::log::log_error;
use sanderling_ipc::{
    Command, Connection, Event, FdKind, HEARTBEAT_INTERVAL, IncomingFds, Message, OutgoingFds, Received, handover,
};
use sanderling_os::poll_set::PollSet;
use sanderling_os::process::{ExitStatus, ProcessHandle};
use sanderling_os::signals::{SIGKILL, Signal};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// Time for a killed process to exit while the supervisor waits for it.
const EXIT_TIME: Duration = Duration::from_secs(1);

/// A process's task. The value is the state that the supervisor keeps for this task only.
pub(super) trait Role {
    /// The role's name in messages.
    const NAME: &'static str;
    /// The process name in `ps`, before the arguments.
    const PROCESS_NAME: &'static str;
    /// Whether a process that is terminated for a forged message dumps core.
    const DUMPS_CORE: bool;

    /// The delay between restarts, for a role with a single process.
    fn backoff() -> Backoff {
        Backoff::default()
    }
}

/// A child process.
#[derive(Debug)]
pub(super) struct Child<R> {
    pub(super) handle: ProcessHandle,
    pub(super) connection: Connection,
    hearing: Hearing,
    pub(super) started_at: Instant,
    /// The time of the last message from the process.
    pub(super) heard_at: Instant,
    /// The stage that this supervisor has reached in killing the process.
    pub(super) termination: Termination,
    pub(super) role: R,
}

/// Whether messages from a child are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hearing {
    On,
    /// The child has closed its connection, or sent a message that must not be trusted.
    Ended,
}

impl<R: Role> Child<R> {
    /// Starts `program` with `descriptors` and a connection to this process.
    pub(super) fn start(
        program: &Path,
        arguments: &[OsString],
        descriptors: OutgoingFds<'_>,
        role: R,
    ) -> io::Result<Child<R>> {
        let (ours, theirs) = Connection::pair()?;
        let connection = (FdKind::Connection, theirs.as_fd());
        let descriptors = handover::named([connection].into_iter().chain(descriptors).collect());
        let handle = program::spawn(program, R::PROCESS_NAME, arguments, &descriptors)?;
        Ok(Child::new(handle, ours, role))
    }

    /// A process that was just started, or adopted.
    pub(super) fn new(handle: ProcessHandle, connection: Connection, role: R) -> Child<R> {
        let (now, hearing, termination) = (Instant::now(), Hearing::On, Termination::None);
        Child { handle, connection, hearing, started_at: now, heard_at: now, termination, role }
    }

    pub(super) fn pid(&self) -> i32 {
        self.handle.pid()
    }

    /// The descriptors to poll for its events and its exit.
    pub(super) fn poll_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.is_heard().then(|| self.connection.as_fd()).into_iter().chain([self.handle.as_fd()])
    }

    pub(super) fn is_heard(&self) -> bool {
        self.hearing == Hearing::On
    }

    /// Stops reading messages from the process.
    pub(super) fn end_hearing(&mut self) {
        self.hearing = Hearing::Ended;
    }

    /// The child's next event with its descriptors; `None` if none has arrived.
    ///
    /// # Errors
    /// Returns the problem if the process does not send valid events. No further events may be read from it.
    pub(super) fn receive(&mut self) -> Result<Option<(Event, IncomingFds)>, String> {
        if !self.is_heard() {
            return Ok(None);
        }
        match self.connection.recv() {
            Ok(Received::Message(Message::Event(event), descriptors)) => {
                self.heard_at = Instant::now();
                return Ok(Some((event, descriptors)));
            }
            Ok(Received::WouldBlock) => {}
            Ok(Received::Closed) => self.end_hearing(),
            Ok(Received::Message(other, _)) => {
                self.end_hearing();
                return Err(format!("unexpected message {other:?}"));
            }
            Err(error) => {
                self.end_hearing();
                return Err(format!("cannot receive its messages: {}", error_text(&error)));
            }
        }
        Ok(None)
    }

    /// Terminates the process: it runs foreign code, since no process of its role sends such a message, at this time or
    /// so often. Further messages are not read.
    pub(super) fn end_for(&mut self, lie: &str) {
        if self.is_heard() {
            let consequence = if R::DUMPS_CORE { "aborting it" } else { "restarting it" };
            log_error(&format!("{self}: {lie}; {consequence}"));
            self.end_hearing();
        }
        self.terminate(if R::DUMPS_CORE { Termination::abort } else { Termination::kill });
    }

    /// Sends a command, or keeps it until there is room for it.
    pub(super) fn try_send(&mut self, command: Command, descriptors: IncomingFds) -> io::Result<()> {
        self.connection.send_with(&Message::Command(command), descriptors)
    }

    /// Whether commands are still queued for the process.
    pub(super) fn has_unsent(&self) -> bool {
        self.is_heard() && self.connection.unsent_count() > 0
    }

    /// Whether the process has sent nothing for `limit`, and is not being terminated.
    pub(super) fn is_silent_for(&self, limit: Duration) -> bool {
        self.termination == Termination::None && self.heard_at.elapsed() >= limit
    }

    pub(super) fn kill(&mut self) {
        self.terminate(Termination::kill);
    }

    /// Sends the signal for this stage of killing the process.
    pub(super) fn terminate(&mut self, step: fn(&mut Termination, Instant) -> Option<Signal>) {
        if let Some(signal) = step(&mut self.termination, Instant::now()) {
            // A process that has exited needs no signal.
            let _ = self.handle.send_signal(signal);
        }
    }
}

/// The role and the process ID, such as `agent 12`.
impl<R: Role> std::fmt::Display for Child<R> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} {}", R::NAME, self.pid())
    }
}

/// Kills a process, and waits for its exit.
pub(super) fn kill_and_wait(handle: &ProcessHandle) {
    let _ = handle.send_signal(SIGKILL);
    let _ = PollSet::new([handle.as_fd()]).wait(Some(EXIT_TIME));
    let _ = handle.try_wait();
}

/// Time without a message after which a process that sends heartbeats counts as hanging.
pub(super) fn hang_limit(timeout_ms: u64) -> Duration {
    Duration::from_millis(timeout_ms).saturating_add(HEARTBEAT_INTERVAL)
}

/// The running child of a role with a single process, or the time of the next start.
#[derive(Debug)]
pub(super) struct OnlyChild<R> {
    state: State<R>,
    pub(super) backoff: Backoff,
}

#[derive(Debug)]
enum State<R> {
    /// No process runs, and no start is scheduled.
    Idle,
    /// No process runs, and the next one starts at this time.
    Scheduled(Instant),
    Running(Child<R>),
}

impl<R: Role> Default for OnlyChild<R> {
    fn default() -> OnlyChild<R> {
        OnlyChild { state: State::Idle, backoff: R::backoff() }
    }
}

impl<R: Role> OnlyChild<R> {
    /// The running child.
    pub(super) fn get(&self) -> Option<&Child<R>> {
        let State::Running(child) = &self.state else { return None };
        Some(child)
    }

    pub(super) fn get_mut(&mut self) -> Option<&mut Child<R>> {
        let State::Running(child) = &mut self.state else { return None };
        Some(child)
    }

    pub(super) fn pid(&self) -> Option<i32> {
        self.get().map(Child::pid)
    }

    /// The time of the next start, if no process runs.
    pub(super) fn next_start(&self) -> Option<Instant> {
        let State::Scheduled(at) = self.state else { return None };
        Some(at)
    }

    /// Whether the next process must not start yet.
    pub(super) fn is_delayed(&self) -> bool {
        self.next_start().is_some_and(|at| Instant::now() < at)
    }

    /// Records that this child runs from now on.
    pub(super) fn set(&mut self, child: Child<R>) {
        self.state = State::Running(child);
    }

    /// Gives up the running child.
    pub(super) fn take(&mut self) -> Option<Child<R>> {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Running(child) => Some(child),
            other => {
                self.state = other;
                None
            }
        }
    }

    /// Schedules the next start for this time, or cancels it; the exit of a running child schedules it again.
    pub(super) fn schedule(&mut self, at: Option<Instant>) {
        if self.get().is_none() {
            self.state = at.map_or(State::Idle, State::Scheduled);
        }
    }

    /// Schedules the next start after a child has run for `lifetime`, or could not be started.
    pub(super) fn schedule_after(&mut self, lifetime: Duration) {
        let delay = self.backoff.delay_after(lifetime);
        self.schedule(Some(Instant::now() + delay));
    }

    /// The cause of failed starts may have been corrected: a process that waits for its next start starts now.
    pub(super) fn hasten(&mut self) {
        if self.get().is_none() {
            self.backoff.forget_exits();
            self.schedule(self.next_start().map(|_| Instant::now()));
        }
    }

    /// As [`Child::receive`].
    pub(super) fn receive(&mut self) -> Result<Option<(Event, IncomingFds)>, String> {
        self.get_mut().map_or(Ok(None), Child::receive)
    }

    /// As [`Child::try_send`].
    pub(super) fn try_send(&mut self, command: Command, descriptors: IncomingFds) -> io::Result<()> {
        self.get_mut().ok_or(io::ErrorKind::NotConnected)?.try_send(command, descriptors)
    }

    /// As [`Child::end_for`].
    pub(super) fn end_for(&mut self, lie: &str) {
        self.get_mut().into_iter().for_each(|child| child.end_for(lie));
    }

    pub(super) fn kill(&mut self) {
        self.get_mut().into_iter().for_each(Child::kill);
    }

    /// The exit status of the running child, if it has exited.
    pub(super) fn exit_status(&self) -> Option<ExitStatus> {
        self.get()?.handle.try_wait().ok()?
    }

    /// Kills the running child, and waits for its exit.
    pub(super) fn end(&mut self) {
        self.take().into_iter().for_each(|child| kill_and_wait(&child.handle));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Sleeper;

    impl Role for Sleeper {
        const NAME: &'static str = "sleeper";
        const PROCESS_NAME: &'static str = "sleep";
        const DUMPS_CORE: bool = false;
    }

    fn start() -> Child<Sleeper> {
        let (program, arguments) = (Path::new("/bin/tail"), ["-f".into(), "/dev/null".into()]);
        Child::start(program, &arguments, Vec::new(), Sleeper).expect("started")
    }

    #[test]
    fn child_that_lies_is_ended_once_and_not_heard_any_more() {
        let mut only = OnlyChild::default();
        only.set(start());
        assert_eq!((only.exit_status(), only.get().map(|child| child.poll_fds().count())), (None, Some(2)));
        only.end_for("it has lied");
        only.end_for("it has lied again");
        let child = only.get().expect("not reaped yet");
        assert_eq!((child.termination.is_killed(), child.poll_fds().count()), (true, 1));
        PollSet::new([child.handle.as_fd()]).wait(None).expect("waited");
        assert_eq!(only.exit_status(), Some(ExitStatus::Signaled(SIGKILL)));
    }

    #[test]
    fn start_is_scheduled_only_while_none_runs() {
        let mut only = OnlyChild::default();
        assert_eq!((only.next_start(), only.is_delayed()), (None, false));
        let later = Instant::now() + Duration::from_secs(60);
        only.schedule(Some(later));
        assert_eq!((only.next_start(), only.is_delayed()), (Some(later), true));
        only.hasten();
        assert!(only.next_start().is_some() && !only.is_delayed());
        only.set(start());
        only.schedule(Some(later));
        assert_eq!(only.next_start(), None);
        only.end();
        assert_eq!((only.pid(), only.next_start()), (None, None));
        only.hasten();
        assert_eq!(only.next_start(), None, "nothing has asked for a start");
    }

    #[test]
    fn silence_of_one_that_is_being_ended_is_expected() {
        let mut child = start();
        assert!(child.is_silent_for(Duration::ZERO) && !child.is_silent_for(Duration::from_secs(600)));
        child.kill();
        assert!(!child.is_silent_for(Duration::ZERO));
        kill_and_wait(&child.handle);
    }
}

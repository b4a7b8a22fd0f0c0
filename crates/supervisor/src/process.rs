//! A server process: its handle, the connection to it, and its state.

use crate::phase::{Phase, PhaseAction, PhaseInput, Termination};
use sanderling_config::diagnostic::error_text;
use sanderling_config::log::log_error;
use sanderling_ipc::{
    Command, Connection, Event, FdKind, IncomingFds, Message, ProcessInfo, Received, Text, is_closed,
};
use sanderling_os::clock::from_unix_seconds;
use sanderling_os::process::{ExitStatus, ProcessHandle};
use sanderling_os::signals::Signal;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A server process.
#[derive(Debug)]
pub(super) struct Process {
    /// The number of the process in the order of starts, from 1.
    pub(super) generation: u64,
    handle: ProcessHandle,
    connection: Connection,
    /// Whether the process can still send events.
    is_connected: bool,
    phase: Phase,
    /// When the phase began.
    pub(super) phase_since: Instant,
    /// When the process became ready; before that, when it was started.
    pub(super) ready_at: SystemTime,
    last_event_at: Instant,
    termination: Termination,
}

impl Process {
    /// A process that was just started.
    pub(super) fn new(generation: u64, handle: ProcessHandle, connection: Connection) -> Process {
        let now = Instant::now();
        Process {
            generation,
            handle,
            connection,
            is_connected: true,
            phase: Phase::Starting,
            phase_since: now,
            ready_at: SystemTime::now(),
            last_event_at: now,
            termination: Termination::None,
        }
    }

    /// A process that another supervisor has started.
    pub(super) fn adopted(info: ProcessInfo, handle: ProcessHandle, connection: Connection) -> Process {
        Process {
            phase: if info.is_serving { Phase::Serving } else { Phase::Draining },
            ready_at: from_unix_seconds(info.ready_at_unix_s),
            ..Process::new(info.generation, handle, connection)
        }
    }

    fn info(&self) -> ProcessInfo {
        ProcessInfo {
            generation: self.generation,
            pid: self.pid(),
            is_serving: self.phase == Phase::Serving,
            ready_at_unix_s: self.ready_at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        }
    }

    pub(super) fn pid(&self) -> i32 {
        self.handle.pid()
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    /// The descriptors to poll for its events and its exit.
    pub(super) fn poll_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.is_connected.then(|| self.connection.as_fd()).into_iter().chain([self.handle.as_fd()])
    }

    /// The data that another supervisor needs to adopt it.
    pub(super) fn handover_fds(&self) -> [(FdKind, BorrowedFd<'_>); 2] {
        [(FdKind::Process(self.info()), self.handle.as_fd()), (FdKind::Connection, self.connection.as_fd())]
    }

    /// Its next event with its descriptors; `None` if there is none now. A process whose messages are not understood,
    /// such as one of another version, is aborted unless it drains; the event is then the reason, for the client that
    /// has requested its start.
    pub(super) fn next_event(&mut self) -> Option<(Event, IncomingFds)> {
        if !self.is_connected {
            return None;
        }
        let problem = match self.connection.recv() {
            Ok(Received::Message(Message::Event(event), descriptors)) => {
                self.last_event_at = Instant::now();
                return Some((event, descriptors));
            }
            Ok(Received::WouldBlock) => return None,
            Ok(Received::Closed) => {
                self.is_connected = false;
                return None;
            }
            Ok(Received::Message(other, _)) => format!("unexpected message {other:?}"),
            Err(error) => format!("cannot receive its messages: {}", error_text(&error)),
        };
        self.is_connected = false;
        let (message, aborts) = match self.phase {
            Phase::Draining => (format!("{self}: {problem}; it finishes what is in progress"), false),
            Phase::Starting | Phase::Serving => (format!("{self}: {problem}; aborting it"), true),
        };
        log_error(&message);
        if aborts {
            self.abort();
        }
        Some((Event::Stderr(Text::new(&format!("{message}\n"))), Vec::new()))
    }

    /// Ends it, since it has sent what no server process sends, or not now: it runs foreign code. Its messages are
    /// ignored from then on.
    pub(super) fn end_for(&mut self, lie: &str) {
        if self.is_connected {
            log_error(&format!("{self}: {lie}; aborting it"));
            self.is_connected = false;
        }
        self.abort();
    }

    /// Whether it can receive further commands; if it has too many, their sender must wait.
    pub(super) fn is_full(&self) -> bool {
        self.connection.is_full()
    }

    /// Sends a command. A process that cannot receive it is aborted.
    pub(super) fn send(&mut self, command: Command, descriptors: IncomingFds) {
        if let Err(error) = self.connection.send_with(&Message::Command(command), descriptors) {
            self.on_send_error(&error);
        }
    }

    /// Sends the messages for which the process had no room.
    pub(super) fn flush(&mut self) {
        if let Err(error) = self.connection.flush() {
            self.on_send_error(&error);
        }
    }

    fn on_send_error(&mut self, error: &io::Error) {
        if is_closed(error) {
            // The exit of a process closes its connection, and is handled as such.
            return;
        }
        if self.termination == Termination::None {
            log_error(&format!("{self} does not receive commands: {}; aborting it", error_text(error)));
        }
        self.abort();
    }

    /// Sends the messages for which the process had no room, and waits until it has room; an error if it has none at
    /// `deadline`.
    pub(super) fn flush_until(&mut self, deadline: Instant) -> io::Result<()> {
        self.connection.flush_until(deadline).or_else(|error| if is_closed(&error) { Ok(()) } else { Err(error) })
    }

    /// Whether it has not received all commands yet.
    pub(super) fn has_unsent(&self) -> bool {
        self.is_connected && self.connection.unsent_count() > 0
    }

    /// How it has exited, if it has.
    pub(super) fn try_wait(&self) -> io::Result<Option<ExitStatus>> {
        self.handle.try_wait()
    }

    /// Changes the phase, and does what that requires; whether it has changed.
    pub(super) fn apply(&mut self, input: PhaseInput) -> bool {
        let Some((phase, action)) = self.phase.next(input) else { return false };
        if phase != self.phase {
            self.phase_since = Instant::now();
            self.phase = phase;
        }
        if phase == Phase::Serving {
            self.ready_at = SystemTime::now();
            self.last_event_at = self.phase_since;
        }
        match action {
            PhaseAction::Nothing => {}
            PhaseAction::Send(command) => self.send(command, Vec::new()),
            PhaseAction::Kill => self.kill(),
        }
        true
    }

    /// Whether it serves and has sent no event for `limit`.
    pub(super) fn is_silent_for(&self, limit: Duration) -> bool {
        self.phase == Phase::Serving && self.termination == Termination::None && self.last_event_at.elapsed() >= limit
    }

    /// Whether this supervisor ends it by force.
    pub(super) fn is_terminated(&self) -> bool {
        self.termination != Termination::None
    }

    /// The deadline for the work in progress, `limit` after it began to drain; `None` without a limit, or if it does
    /// not drain.
    pub(super) fn drain_deadline(&self, limit: Option<Duration>) -> Option<Instant> {
        let drains = self.phase == Phase::Draining && !self.termination.is_killed();
        limit.filter(|_| drains).map(|limit| self.phase_since + limit)
    }

    /// The process has reported its end: it is killed if it does not exit.
    pub(super) fn expect_exit(&mut self) {
        self.termination.expect_exit(Instant::now());
    }

    /// Whether it was killed and does not exit.
    pub(super) fn is_given_up(&self) -> bool {
        self.termination.is_given_up(Instant::now())
    }

    /// When [`Process::poll_termination`] must be called, or [`Process::is_given_up`] becomes true.
    pub(super) fn termination_deadline(&self) -> Option<Instant> {
        self.termination.deadline()
    }

    /// Ends it with a core dump, and kills it if it does not exit.
    pub(super) fn abort(&mut self) {
        let signal = self.termination.abort(Instant::now());
        self.send_signal(signal);
    }

    /// Kills it.
    pub(super) fn kill(&mut self) {
        let signal = self.termination.kill(Instant::now());
        self.send_signal(signal);
    }

    /// Kills it if it should have exited.
    pub(super) fn poll_termination(&mut self) {
        let signal = self.termination.poll(Instant::now());
        self.send_signal(signal);
    }

    fn send_signal(&self, signal: Option<Signal>) {
        if let Some(signal) = signal {
            // A process that has exited needs none.
            let _ = self.handle.send_signal(signal);
        }
    }
}

/// `server process 12`.
impl std::fmt::Display for Process {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "server process {}", self.pid())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_os::poll_set::PollSet;
    use sanderling_os::seqpacket::SeqpacketSocket;
    use sanderling_os::signals::{SIGABRT, SIGKILL};
    use std::path::Path;

    /// A process in this phase, and the other end of its connection.
    fn process_in(phase: Phase) -> (Process, SeqpacketSocket) {
        let handle =
            sanderling_os::process::spawn(Path::new("/bin/tail"), "tail", &["-f".into(), "/dev/null".into()], &[]);
        let (own, other) = SeqpacketSocket::pair().expect("a pair");
        let connection = Connection::from_fd(own.into()).expect("a connection");
        (Process { phase, ..Process::new(1, handle.expect("started"), connection) }, other)
    }

    #[test]
    fn process_that_has_closed_its_connection_is_not_aborted() {
        let (mut process, other) = process_in(Phase::Serving);
        drop(other);
        process.send(Command::Reload { forced_zones: Vec::new() }, Vec::new());
        process.flush();
        process.flush_until(Instant::now()).expect("nothing is left to send");
        assert_eq!(process.termination, Termination::None);
        process.kill();
    }

    #[test]
    fn unsent_command_is_an_error_at_the_deadline() {
        let (mut process, _other) = process_in(Phase::Draining);
        while !process.has_unsent() {
            process.send(Command::Drain, Vec::new());
        }
        assert_eq!(process.flush_until(Instant::now()).expect_err("no room").kind(), io::ErrorKind::TimedOut);
        process.kill();
    }

    #[test]
    fn process_of_another_version_is_aborted_with_the_reason_unless_it_drains() {
        for phase in [Phase::Starting, Phase::Serving, Phase::Draining] {
            let (mut process, other) = process_in(phase);
            assert!(other.send(b"SDLG\xffwhat a later version may send", &[]).expect("sent"));
            let Some((Event::Stderr(reason), _)) = process.next_event() else { panic!("no reason") };
            assert!(reason.contains("protocol version 255, and this program version 2; "), "{reason}");
            assert!(process.next_event().is_none());
            if phase == Phase::Draining {
                assert_eq!(process.try_wait().expect("no error"), None);
                process.kill();
            }
            PollSet::new([process.handle.as_fd()]).wait(None).expect("waited");
            let signal = if phase == Phase::Draining { SIGKILL } else { SIGABRT };
            assert_eq!(process.try_wait().expect("no error"), Some(ExitStatus::Signaled(signal)), "{phase:?}");
        }
    }
}

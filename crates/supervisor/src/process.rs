//! A server process, and its state.

use crate::child::{Child, Role};
use crate::phase::{Phase, PhaseAction, PhaseInput, Termination};
use crate::unix_backends::UnixBackends;
use sanderling_config::Config;
use sanderling_config::diagnostic::error_text;
use sanderling_config::log::log_error;
use sanderling_ipc::{Command, Connection, Event, FdKind, IncomingFds, ProcessInfo, Text, is_closed};
use sanderling_os::clock::from_unix_seconds;
use sanderling_os::error::errno;
use sanderling_os::process::ProcessHandle;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A server process.
pub(super) type Process = Child<ServerProcess>;

/// The supervisor's view of a server process.
#[derive(Debug)]
pub(super) struct ServerProcess {
    /// The number of the process in the order of starts, from 1.
    pub(super) generation: u64,
    phase: Phase,
    /// When the phase began.
    pub(super) phase_since: Instant,
    /// When the process became ready; before that, when it was started.
    pub(super) ready_at: SystemTime,
    /// The sockets of applications to which it may be connected.
    pub(super) backends: UnixBackends,
}

impl Role for ServerProcess {
    const NAME: &'static str = "server process";
    const PROCESS_NAME: &'static str = "sanderling: server process";
    const DUMPS_CORE: bool = true;
}

impl ServerProcess {
    /// One that is about to be started with `config`.
    pub(super) fn new(generation: u64, config: &Config) -> ServerProcess {
        let (phase, phase_since, ready_at) = (Phase::Starting, Instant::now(), SystemTime::now());
        ServerProcess { generation, phase, phase_since, ready_at, backends: UnixBackends::new(config) }
    }
}

impl Process {
    /// A process that another supervisor has started, which is taken to run with `config`.
    pub(super) fn adopted(
        info: ProcessInfo,
        handle: ProcessHandle,
        connection: Connection,
        config: &Config,
    ) -> Process {
        let phase = if info.is_serving { Phase::Serving } else { Phase::Draining };
        let ready_at = from_unix_seconds(info.ready_at_unix_s);
        Child::new(handle, connection, ServerProcess { phase, ready_at, ..ServerProcess::new(info.generation, config) })
    }

    fn info(&self) -> ProcessInfo {
        ProcessInfo {
            generation: self.role.generation,
            pid: self.pid(),
            is_serving: self.phase() == Phase::Serving,
            ready_at_unix_s: self.role.ready_at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        }
    }

    pub(super) fn generation(&self) -> u64 {
        self.role.generation
    }

    pub(super) fn phase(&self) -> Phase {
        self.role.phase
    }

    /// The data that another supervisor needs to adopt it.
    pub(super) fn handover_fds(&self) -> [(FdKind, BorrowedFd<'_>); 2] {
        [(FdKind::Process(self.info()), self.handle.as_fd()), (FdKind::Connection, self.connection.as_fd())]
    }

    /// The next event of the process with its descriptors; `None` if none has arrived. A process whose messages are not
    /// understood, for example another version, is aborted unless it drains. The event is then the reason, for the
    /// client that has requested the start.
    pub(super) fn next_event(&mut self) -> Option<(Event, IncomingFds)> {
        let problem = match self.receive() {
            Ok(event) => return event,
            Err(problem) => problem,
        };
        self.end_hearing();
        let (message, aborts) = match self.phase() {
            Phase::Draining => (format!("{self}: {problem}; it finishes the requests in progress"), false),
            Phase::Starting | Phase::Serving => (format!("{self}: {problem}; aborting it"), true),
        };
        log_error(&message);
        if aborts {
            self.terminate(Termination::abort);
        }
        Some((Event::Stderr(Text::new(&format!("{message}\n"))), Vec::new()))
    }

    /// Sends a command. A process that cannot receive it is aborted.
    pub(super) fn send(&mut self, command: Command, descriptors: IncomingFds) {
        let sent = self.try_send(command, descriptors);
        self.abort_after(sent);
    }

    /// Connects it to the socket of an application, and answers its request.
    pub(super) fn connect_backend(&mut self, request: u32, path: &Path) {
        // An honest process asks for fewer at a time.
        if self.connection.is_full() {
            return self.end_for("it wants connections to applications, and does not take them");
        }
        let (errno, descriptors) = match self.role.backends.connect(path, Instant::now()) {
            Ok(connection) => (None, vec![(FdKind::Backend, connection)]),
            Err(error) => (Some(errno(&error)), Vec::new()),
        };
        self.send(Command::BackendConnected { request, errno }, descriptors);
    }

    /// Sends the messages for which the process had no room.
    pub(super) fn flush(&mut self) {
        let sent = self.connection.flush();
        self.abort_after(sent);
    }

    fn abort_after(&mut self, sent: io::Result<()>) {
        // The exit of a process closes its connection, and is handled as such.
        let Some(error) = sent.err().filter(|error| !is_closed(error)) else { return };
        if self.termination == Termination::None {
            log_error(&format!("{self} does not receive commands: {}; aborting it", error_text(&error)));
        }
        self.terminate(Termination::abort);
    }

    /// Sends the queued messages, and waits until the process can receive them; fails if it cannot at `deadline`.
    pub(super) fn flush_until(&mut self, deadline: Instant) -> io::Result<()> {
        self.connection.flush_until(deadline).or_else(|error| if is_closed(&error) { Ok(()) } else { Err(error) })
    }

    /// Changes the phase, and takes the required action; returns whether the phase has changed.
    pub(super) fn apply(&mut self, input: PhaseInput) -> bool {
        let Some((phase, action)) = self.phase().next(input) else { return false };
        if phase != self.phase() {
            (self.role.phase, self.role.phase_since) = (phase, Instant::now());
        }
        if phase == Phase::Serving {
            self.role.ready_at = SystemTime::now();
            self.heard_at = self.role.phase_since;
        }
        match action {
            PhaseAction::Nothing => {}
            PhaseAction::Send(command) => self.send(command, Vec::new()),
            PhaseAction::Kill => self.kill(),
        }
        true
    }

    /// The deadline for requests in progress, `limit` after the process began to drain; `None` without a limit, or if
    /// it does not drain.
    pub(super) fn drain_deadline(&self, limit: Option<Duration>) -> Option<Instant> {
        let drains = self.phase() == Phase::Draining && !self.termination.is_killed();
        limit.filter(|_| drains).map(|limit| self.role.phase_since + limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sanderling_config::ConfigSource;
    use sanderling_ipc::{Message, Received};
    use sanderling_os::poll_set::PollSet;
    use sanderling_os::process::ExitStatus;
    use sanderling_os::seqpacket::SeqpacketSocket;
    use sanderling_os::signals::{SIGABRT, SIGKILL};
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};

    /// A process in this phase, and the other end of its connection.
    fn process_in(phase: Phase) -> (Process, SeqpacketSocket) {
        let (program, arguments) = (Path::new("/bin/tail"), ["-f".into(), "/dev/null".into()]);
        // The child starts without blocked signals, since this program does not unblock them.
        let handle = sanderling_os::process::spawn(program, "tail", &arguments, &[]);
        let (own, other) = SeqpacketSocket::pair().expect("a pair");
        let connection = Connection::from_fd(own.into()).expect("a connection");
        let role = ServerProcess { phase, ..ServerProcess::new(1, &Config::default()) };
        (Child::new(handle.expect("started"), connection, role), other)
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
    fn process_gets_the_connections_that_it_wants_until_it_takes_them_no_more() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("app.sock");
        let text = format!("[domain.\"a.test\".route.\"/\"]\nproxy = \"unix:{}\"\n", path.display());
        let config = ConfigSource::File("sanderling.toml".into()).parse(text.as_bytes()).expect("a configuration");
        let (mut process, other) = process_in(Phase::Serving);
        process.role.backends = UnixBackends::new(&Config { user_and_group: None, ..config });
        let mut other = Connection::from_fd(other.into_fd()).expect("a connection");
        let mut answer = |process: &mut Process, request, path: &Path| {
            process.connect_backend(request, path);
            match other.recv().expect("received") {
                Received::Message(Message::Command(Command::BackendConnected { request, errno }), descriptors) => {
                    (request, errno, descriptors)
                }
                received => panic!("{received:?}"),
            }
        };
        assert!(matches!(answer(&mut process, 1, &path), (1, Some(_), _)), "there is no socket");
        assert!(matches!(answer(&mut process, 2, Path::new("/run/other.sock")), (2, Some(13), _)));
        let listener = UnixListener::bind(&path).expect("bound");
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("set");
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("set");
        let (_, errno, descriptors) = answer(&mut process, 3, &path);
        let [(FdKind::Backend, connection)] = &descriptors[..] else { panic!("{errno:?} {descriptors:?}") };
        let mut client = UnixStream::from(connection.try_clone().expect("a copy"));
        client.write_all(b"hi").expect("sent");
        let mut received = [0; 2];
        listener.accept().expect("connected").0.read_exact(&mut received).expect("received");
        assert_eq!((&received, process.termination), (b"hi", Termination::None));
        for request in 4..1_000_000 {
            process.connect_backend(request, Path::new("/run/other.sock"));
            if process.termination != Termination::None {
                break;
            }
        }
        assert_ne!(process.termination, Termination::None, "it does not take the answers");
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
                assert_eq!(process.handle.try_wait().expect("no error"), None);
                process.kill();
            }
            PollSet::new([process.handle.as_fd()]).wait(None).expect("waited");
            let signal = if phase == Phase::Draining { SIGKILL } else { SIGABRT };
            assert_eq!(process.handle.try_wait().expect("no error"), Some(ExitStatus::Signaled(signal)), "{phase:?}");
        }
    }
}

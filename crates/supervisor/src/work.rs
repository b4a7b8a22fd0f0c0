//! The pieces of work of a supervisor, from the wish to the end: a start, a reload, an upgrade, a replacement.

use super::process::{Process, Stage};
use super::program::{self, RUNNING};
use super::{Asker, Curious, Running, Supervisor};
use sanderling_config::diagnostic::{Diagnostic, Location, Problem};
use sanderling_config::log::{print, report, warn};
use sanderling_ipc::Exit;
use sanderling_ipc::channel::{Channel, Order};
use sanderling_ipc::handover::{self, Awaits, Given, Label};
use sanderling_ipc::{CHANNEL, CONFIGURATION, CONTROL};
use sanderling_listeners::Listeners;
use sanderling_os::error::with_context;
use sanderling_os::process::ExitStatus;
use sanderling_os::sd_notify::State;
use sanderling_os::signals::{SIGHUP, SIGUSR2};
use sanderling_os::{memfd, signals};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// What somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// To run by what the configuration says now.
    Reload(Asker),
    /// To run the program that now stands where this one stood.
    Upgrade(Asker),
}

impl Wish {
    pub(super) fn asker(self) -> Asker {
        match self {
            Wish::Reload(asker) | Wish::Upgrade(asker) => asker,
        }
    }
}

/// What is under way.
#[derive(Debug)]
pub(super) enum Work {
    /// The process that serves takes a configuration up in place.
    TakingUp {
        /// Who has asked for it.
        asker: Asker,
        /// What it is to run by.
        next: Running,
        /// When another process is started instead.
        deadline: Instant,
    },
    /// A new process gets ready.
    Starting(Starting),
}

/// The start of a server process.
#[derive(Debug)]
pub(super) struct Starting {
    asker: Asker,
    why: Why,
    next: Running,
    listeners: Listeners,
    generation: u64,
    deadline: Instant,
    /// It has said that the configuration is wrong.
    is_refused: bool,
    /// It is too late for it to be ready.
    is_given_up: bool,
}

/// Why a server process is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// It is the first.
    First,
    /// The one before has died.
    Death,
    /// A configuration that the one before cannot take up, for this reason.
    Reload(String),
    /// It is of another version of the program.
    Upgrade,
    /// There are sockets that nobody serves on: those of a configuration that could not be taken up.
    Orphans,
}

impl Work {
    pub(super) fn asker(&self) -> Asker {
        match self {
            Work::TakingUp { asker, .. } | Work::Starting(Starting { asker, .. }) => *asker,
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        match self {
            Work::TakingUp { deadline, .. } => Some(*deadline),
            Work::Starting(starting) => (!starting.is_given_up).then_some(starting.deadline),
        }
    }
}

impl Supervisor {
    /// Begins what is to be done next, if nothing is under way.
    pub(super) fn begin_next(&mut self) {
        while self.work.is_none() && self.stopping.is_none() {
            // Wishes first: what runs now may not start, and what is wished for may.
            match self.wishes.pop_front() {
                Some(Wish::Reload(asker)) => self.begin_reload(asker),
                Some(Wish::Upgrade(asker)) => self.begin_upgrade(asker),
                None if self.restart_at.is_some_and(|at| Instant::now() >= at) => {
                    self.restart_at = None;
                    self.replace_the_dead();
                }
                None => return,
            }
        }
    }

    pub(super) fn begin_first(&mut self, next: Running, listeners: Listeners) -> io::Result<()> {
        self.start(Path::new(RUNNING), Why::First, Asker::Nobody, next, listeners)
    }

    fn replace_the_dead(&mut self) {
        let result = self.running.try_clone().and_then(|running| {
            let listeners = self.listeners.clone();
            self.start(Path::new(RUNNING), Why::Death, Asker::Nobody, running, listeners)
        });
        if let Err(error) = result {
            warn(&format!("no server process can be started: {error}"));
            self.restart_after(Duration::ZERO);
        }
    }

    /// Has another process started soon, after the one before has served for `lived`.
    pub(super) fn restart_after(&mut self, lived: Duration) {
        self.restart_at = Some(Instant::now() + self.restarts.delay_after(lived));
    }

    fn begin_reload(&mut self, asker: Asker) {
        self.notify(&[State::Reloading]);
        let read = self.source.read().and_then(|text| {
            let config = self.source.parse(&text)?;
            let text = memfd::create("configuration", &text).map_err(|error| {
                let fault = Problem::new(error.to_string(), "see that the machine has memory and descriptors left");
                vec![Diagnostic::error(Location::Argument("reload".to_owned()), fault)]
            })?;
            Ok(Running { config, text })
        });
        let next = match read {
            Ok(next) => next,
            Err(diagnostics) => {
                report(&diagnostics);
                for diagnostic in &diagnostics {
                    self.pass_on(asker, &format!("{diagnostic}\n"));
                }
                return self.refuse_reload(asker);
            }
        };
        if next.config.control != self.running.config.control {
            const KEPT: &str = "`control` has changed: the control socket stays where it is until the next start";
            warn(KEPT);
            self.pass_on(asker, &format!("sanderling: {KEPT}\n"));
        }
        match next.config.needs_new_process(&self.running.config) {
            Some(obstacle) => self.begin_replacement(asker, next, obstacle),
            None => {
                let text = next.text.try_clone();
                match (self.serving(), text) {
                    (Some(process), Ok(text)) => {
                        process.order(Order::TakeUp, Some(text.as_fd()));
                        let deadline = Instant::now() + next.start_timeout();
                        self.work = Some(Work::TakingUp { asker, next, deadline });
                    }
                    _ => self.begin_replacement(asker, next, "no process served that could take it up"),
                }
            }
        }
    }

    /// A new server process for `next`, as the one that serves cannot take it up for this `reason`.
    fn begin_replacement(&mut self, asker: Asker, next: Running, reason: &str) {
        let started = Listeners::bind(&next.config, &self.listeners).and_then(|listeners| {
            let grown = self.listeners.with_siblings_of(&listeners);
            let started = self.start(Path::new(RUNNING), Why::Reload(reason.to_owned()), asker, next, listeners);
            if started.is_err() && grown.has_more_than(&self.listeners) {
                self.serve_orphans(grown);
            }
            started
        });
        if let Err(error) = started {
            warn(&error.to_string());
            self.pass_on(asker, &format!("{error}\n"));
            self.refuse_reload(asker);
        }
    }

    fn refuse_reload(&mut self, asker: Asker) {
        const REFUSED: &str = "the new configuration is refused as a whole; the old one goes on";
        warn(REFUSED);
        self.tell_asker(asker, Err(REFUSED));
        self.notify(&[State::Ready]);
    }

    fn begin_upgrade(&mut self, asker: Asker) {
        let program = self.program.clone();
        let started = self.running.try_clone().and_then(|running| {
            let listeners = self.listeners.clone();
            self.start(&program, Why::Upgrade, asker, running, listeners)
        });
        if let Err(error) = started {
            let text = format!("the program to upgrade to cannot be started: {error}; the old one goes on");
            warn(&text);
            self.tell_asker(asker, Err(&text));
        }
    }

    /// Starts a process of `program`. It is begun, or nothing has changed.
    fn start(&mut self, program: &Path, why: Why, asker: Asker, next: Running, listeners: Listeners) -> io::Result<()> {
        let (ours, theirs) = Channel::pair()?;
        let mut descriptors: Vec<(String, BorrowedFd<'_>)> =
            vec![(CHANNEL.to_owned(), theirs.as_fd()), (CONFIGURATION.to_owned(), next.text.as_fd())];
        descriptors.extend(self.control.iter().map(|control| (CONTROL.to_owned(), control.door())));
        descriptors.extend(listeners.descriptors().map(|(role, socket)| (role.service.name().to_owned(), socket)));
        // A signal that is meant for all that has the program's name would end a process that does not catch it yet.
        signals::block_all()?;
        let child = sanderling_os::process::spawn(program, &self.arguments("internal-server-process"), &descriptors);
        signals::unblock_all()?;
        let child = child?;
        self.last_generation += 1;
        let generation = self.last_generation;
        let deadline = Instant::now() + next.start_timeout();
        self.processes.push(Process::new(generation, child, ours, Stage::Starting));
        let starting =
            Starting { asker, why, next, listeners, generation, deadline, is_refused: false, is_given_up: false };
        self.work = Some(Work::Starting(starting));
        Ok(())
    }

    fn arguments(&self, command: &str) -> Vec<OsString> {
        let control = self.control.iter().flat_map(|control| [OsString::from("--control"), control.path().into()]);
        let rest = control.chain(self.source.to_arguments()).collect();
        program::arguments(command, &self.forced, rest)
    }

    /// The start that is under way, if it is that of `generation`.
    fn starting(&mut self, generation: u64) -> Option<&mut Starting> {
        match &mut self.work {
            Some(Work::Starting(starting)) if starting.generation == generation => Some(starting),
            _ => None,
        }
    }

    pub(super) fn take_refused(&mut self, generation: u64) {
        if let Some(starting) = self.starting(generation) {
            starting.is_refused = true;
        } else if let Some((asker, _)) = self.end_taking_up() {
            self.refuse_reload(asker);
        }
    }

    /// Ends the work of taking a configuration up in place, if that is what is under way: who has asked, and for what.
    pub(super) fn end_taking_up(&mut self) -> Option<(Asker, Running)> {
        match self.work.take_if(|work| matches!(work, Work::TakingUp { .. }))? {
            Work::TakingUp { asker, next, .. } => Some((asker, next)),
            Work::Starting(_) => None,
        }
    }

    pub(super) fn take_taken_up(&mut self) {
        if let Some((asker, next)) = self.end_taking_up() {
            self.running = next;
            self.taken_up_at = SystemTime::now();
            warn("the new configuration is served, taken up in place; no connection was closed");
            self.tell_asker(asker, Ok("in place: no connection was closed\n"));
            self.notify(&[State::Ready]);
        }
    }

    pub(super) fn take_unable(&mut self, reason: &str) {
        if let Some((asker, next)) = self.end_taking_up() {
            self.begin_replacement(asker, next, reason);
        }
    }

    /// The new process serves; the one before gives way.
    pub(super) fn take_ready(&mut self, generation: u64) {
        if self.starting(generation).is_none_or(|starting| starting.is_given_up) {
            return;
        }
        let Some(Work::Starting(starting)) = self.work.take() else { return };
        for process in &mut self.processes {
            if process.generation == generation {
                process.enter(Stage::Serving);
            } else if process.stage == Stage::Serving {
                process.order(Order::GiveWay, None);
                process.enter(Stage::Draining);
            }
        }
        self.restart_at = None;
        print(&starting.listeners.announcement_beyond(&self.announced));
        self.announced = starting.listeners.clone();
        // Nobody accepts any more where nobody is to listen: whoever comes there is refused rather than left waiting.
        if let Err(error) = self.listeners.shut_down_beyond(&starting.listeners) {
            warn(&error.to_string());
        }
        self.listeners = starting.listeners;
        self.running = starting.next;
        self.taken_up_at = SystemTime::now();
        self.notify(&[State::Ready]);
        let pid = self.processes.last().map_or(0, Process::id);
        match starting.why {
            Why::First => {}
            Why::Death | Why::Orphans => warn(&format!("the server process {pid} serves")),
            Why::Reload(reason) => {
                warn(&format!("the server process {pid} serves the new configuration: {reason}"));
                self.tell_asker(starting.asker, Ok(&format!("a new server process: {reason}\n")));
            }
            Why::Upgrade => {
                warn(&format!("the server process {pid} of the program {} serves", self.program.display()));
                self.become_the_new_program(starting.asker);
            }
        }
    }

    /// Runs the new program in this very process. It comes back only if that failed, which leaves everything as it is.
    fn become_the_new_program(&mut self, asker: Asker) {
        let error = match self.try_to_become_the_new_program(asker) {
            Ok(never) => match never {},
            Err(error) => error,
        };
        let text = format!("the new program serves, and the old one supervises on: {error}");
        warn(&text);
        self.tell_asker(asker, Err(&text));
    }

    fn try_to_become_the_new_program(&mut self, asker: Asker) -> io::Result<std::convert::Infallible> {
        // The new program catches signals as its first act; one that came before would end it. What has come until now is
        // taken; what comes from now on waits for the new program.
        signals::block_all()?;
        self.take_signals();
        for Curious { key, .. } in std::mem::take(&mut self.curious) {
            self.tell_asker(Asker::Client(key), Err("the program is being upgraded; ask again"));
        }
        let error = if self.stopping.is_some() {
            io::Error::other("the server is about to end")
        } else {
            self.replace_this_process(asker).unwrap_or_else(|error| error)
        };
        signals::unblock_all()?;
        Err(error)
    }

    /// The error of the exec, or of what leads to it. A signal that is sent here is held back, and lives through the exec.
    fn replace_this_process(&self, asker: Asker) -> io::Result<io::Error> {
        let mut given: Given<'_> = vec![(Label::Configuration, self.running.text.as_fd())];
        given.extend(self.control.iter().map(|control| (Label::Control(control.path().to_owned()), control.door())));
        given.extend(self.listeners.descriptors().map(|(role, socket)| (Label::Listener(role), socket)));
        given.extend(self.processes.iter().flat_map(Process::given));
        let client = |asker, awaits| match asker {
            Asker::Client(key) => self.control.as_ref()?.client(key).map(|client| (Label::Client(awaits), client)),
            Asker::Nobody => None,
        };
        given.extend(client(asker, Awaits::ThisUpgrade));
        for wish in &self.wishes {
            let (awaits, signal) = match wish {
                Wish::Reload(_) => (Awaits::Reload, SIGHUP),
                Wish::Upgrade(_) => (Awaits::Upgrade, SIGUSR2),
            };
            match wish.asker() {
                Asker::Nobody => signals::send_to_self(signal)?,
                asker => given.extend(client(asker, awaits)),
            }
        }
        let (list, variable) = handover::list(&given)?;
        let kept: Vec<BorrowedFd<'_>> = given.iter().map(|(_, kept)| *kept).chain([list.as_fd()]).collect();
        Ok(sanderling_os::process::exec(&self.program, &self.arguments("serve"), &[variable], &kept))
    }

    /// A process has ended before it was ready. What served serves on.
    pub(super) fn take_failed_start(&mut self, generation: u64, what: &str, ended: ExitStatus) -> Option<Exit> {
        self.starting(generation)?;
        let Some(Work::Starting(starting)) = self.work.take() else { return None };
        // Only what the process itself has not said.
        if !starting.is_refused {
            warn(&format!("{what} before it was ready"));
            self.pass_on(starting.asker, &format!("{what} before it was ready\n"));
        }
        let is_in_place_of_another = matches!(starting.why, Why::Death | Why::Orphans);
        match starting.why {
            Why::First => {
                let is_refused =
                    starting.is_refused || ended == ExitStatus::Exited(i32::from(Exit::BadConfiguration.status()));
                return Some(if is_refused { Exit::BadConfiguration } else { Exit::Failure });
            }
            Why::Death | Why::Orphans => {}
            Why::Reload(_) => self.refuse_reload(starting.asker),
            Why::Upgrade => {
                const REFUSED: &str = "the upgrade has failed; the old program goes on";
                warn(REFUSED);
                self.tell_asker(starting.asker, Err(REFUSED));
            }
        }
        // A process in the place of a dead one was to serve orphans, if another one serves: they wait on, and so do those
        // who wait in them.
        let is_still_needed = is_in_place_of_another || self.serving().is_none();
        let orphans = self.listeners.with_siblings_of(&starting.listeners);
        if orphans.has_more_than(&self.listeners) {
            self.serve_orphans(orphans);
        } else if is_still_needed {
            self.restart_after(Duration::ZERO);
        }
        None
    }

    /// Siblings were made for a process that did not come to serve, and connections may wait in them already: a process
    /// with the old configuration serves on them too.
    fn serve_orphans(&mut self, listeners: Listeners) {
        self.listeners = listeners.clone();
        let started = self
            .running
            .try_clone()
            .and_then(|running| self.start(Path::new(RUNNING), Why::Orphans, Asker::Nobody, running, listeners));
        if let Err(error) = started {
            warn(&format!("no server process can be started: {error}"));
            self.restart_after(Duration::ZERO);
        }
    }

    pub(super) fn give_up_what_is_late(&mut self) {
        if self.work.as_ref().and_then(Work::deadline).is_none_or(|deadline| Instant::now() < deadline) {
            return;
        }
        let starting = match &mut self.work {
            Some(Work::Starting(starting)) => starting,
            _ => return self.take_unable("the one that runs has not loaded it within `start_timeout_ms`"),
        };
        starting.is_given_up = true;
        let generation = starting.generation;
        for process in self.processes.iter_mut().filter(|process| process.generation == generation) {
            warn(&format!("{process} is not ready within `start_timeout_ms` and is ended"));
            // Its end is then that of the start.
            process.kill();
        }
    }

    /// Gives a line of what is wrong to whoever has asked for the work that the process of `generation` does.
    pub(super) fn pass_on_to_asker(&mut self, generation: u64, text: &str) {
        let asker = match &self.work {
            Some(Work::TakingUp { asker, .. }) => *asker,
            Some(Work::Starting(starting)) if starting.generation == generation => starting.asker,
            _ => return,
        };
        self.pass_on(asker, text);
    }

    fn pass_on(&mut self, asker: Asker, text: &str) {
        let (Asker::Client(key), Some(control)) = (asker, &mut self.control) else { return };
        control.err(key, text);
    }
}

impl Running {
    fn start_timeout(&self) -> Duration {
        Duration::from_millis(self.config.limits.start_timeout_ms)
    }

    pub(super) fn try_clone(&self) -> io::Result<Running> {
        let text = self
            .text
            .try_clone()
            .map_err(|error| with_context("fcntl(F_DUPFD_CLOEXEC)", "the configuration", &error))?;
        Ok(Running { config: self.config.clone(), text })
    }
}

//! The process that serves nobody: it owns the sockets, starts the server processes that serve on them, and sees to it
//! that there always is one.
//!
//! It does one piece of work at a time: a start, a reload, an upgrade. What is asked for meanwhile waits. Whatever goes
//! wrong with a piece of work leaves what serves as it was.
#![forbid(unsafe_code)]

mod boot;
mod work;
mod status;
mod process;
mod program;
mod restarts;

pub use boot::serve;

use process::{Process, Stage};
use restarts::Restarts;
use sanderling_config::log::warn;
use sanderling_config::{Config, ConfigSource};
use sanderling_ipc::BEAT_INTERVAL;
use sanderling_ipc::Exit;
use sanderling_ipc::channel::{Order, Word};
use sanderling_ipc::control::{Control, Key};
use sanderling_ipc::control_message::Request;
use sanderling_listeners::Listeners;
use sanderling_os::poll_set::PollSet;
use sanderling_os::process::ExitStatus;
use sanderling_os::sd_notify::{Notifier, State};
use sanderling_os::signals::{SIGHUP, SIGUSR1, SIGUSR2, Signals};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};
use work::{Wish, Work};

/// Reloads and upgrades that wait for the one that is under way.
const WISHES_MAX: usize = 64;
/// Words of one process that are taken in one turn.
const WORDS_PER_TURN_MAX: usize = 256;
/// What a process that drains may take beyond its own bound, until it is ended by force.
const DRAIN_MARGIN: Duration = Duration::from_secs(5);

/// See the module.
struct Supervisor {
    source: ConfigSource,
    forced: Vec<String>,
    /// What an upgrade turns to.
    program: PathBuf,
    signals: Signals,
    control: Option<Control>,
    notifier: Notifier,
    listeners: Listeners,
    running: Running,
    processes: Vec<Process>,
    last_generation: u64,
    work: Option<Work>,
    wishes: VecDeque<Wish>,
    /// Who has asked the serving process how it stands, in the order of the questions.
    curious: VecDeque<Curious>,
    restarts: Restarts,
    restart_at: Option<Instant>,
    /// What standard output has told.
    announced: Listeners,
    /// Who is told when all has ended, once it is to end.
    stopping: Option<Vec<Key>>,
    /// A signal has asked for the end: another one asks for it at once.
    is_stopped_by_signal: bool,
    next_watchdog: Option<Instant>,
    since: SystemTime,
    /// When what runs was last taken up.
    taken_up_at: SystemTime,
}

/// A configuration, and the text that it came from.
#[derive(Debug)]
struct Running {
    config: Config,
    text: OwnedFd,
}

/// Somebody who has asked a server process how it stands.
#[derive(Clone, Copy, Debug)]
struct Curious {
    key: Key,
    request: Request,
    /// The process that answers.
    generation: u64,
}

/// Who is told how a piece of work ends, beside the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asker {
    Client(Key),
    /// A signal, or the supervisor itself.
    Nobody,
}

impl Supervisor {
    /// Supervises until it is told to end, and all has ended.
    fn run(mut self) -> io::Result<Exit> {
        loop {
            self.wait()?;
            self.take_signals();
            self.hear();
            if let Some(exit) = self.bury()? {
                return Ok(exit);
            }
            self.take_requests();
            self.keep_deadlines();
            self.begin_next();
            if self.stopping.is_some() && self.processes.is_empty() {
                return Ok(self.end());
            }
        }
    }

    fn wait(&self) -> io::Result<()> {
        let mut sources = vec![self.signals.as_fd()];
        sources.extend(self.processes.iter().flat_map(Process::sources));
        sources.extend(self.control.iter().flat_map(Control::sources));
        let now = Instant::now();
        let timeout = self.next_deadline().map(|deadline| deadline.saturating_duration_since(now));
        PollSet::new(sources).wait(timeout)
    }

    fn next_deadline(&self) -> Option<Instant> {
        let processes = self.processes.iter().flat_map(|process| {
            let look = (process.stage == Stage::Serving).then(|| Instant::now() + BEAT_INTERVAL);
            let drains = process.stage == Stage::Draining && !process.is_killed();
            let drained = drains.then(|| process.since + self.drain_limit());
            [look, drained, process.killed_at()]
        });
        let work = self.work.as_ref().and_then(Work::deadline);
        let control = self.control.as_ref().and_then(Control::deadline);
        processes.chain([work, control, self.restart_at, self.next_watchdog]).flatten().min()
    }

    fn drain_limit(&self) -> Duration {
        Duration::from_millis(self.running.config.limits.drain_timeout_ms) + DRAIN_MARGIN
    }

    fn take_signals(&mut self) {
        while let Some(signal) = self.signals.take() {
            match signal {
                SIGHUP => self.wish(Wish::Reload(Asker::Nobody)),
                SIGUSR2 => self.wish(Wish::Upgrade(Asker::Nobody)),
                // Where other servers open their logs anew: standard error is the log here.
                SIGUSR1 => {}
                _ => self.stop(Asker::Nobody),
            }
        }
    }

    fn wish(&mut self, wish: Wish) {
        if wish.asker() == Asker::Nobody && self.wishes.contains(&wish) {
            // What has not begun yet will do what this one asks for.
            return;
        }
        if self.stopping.is_some() || self.wishes.len() == WISHES_MAX {
            self.tell_asker(wish.asker(), Err("too much else waits to be done, or the server is about to end"));
        } else {
            self.wishes.push_back(wish);
        }
    }

    /// Takes all that the server processes have to say.
    fn hear(&mut self) {
        for index in 0..self.processes.len() {
            // A process that never stops talking keeps nobody from signals and deadlines.
            for _ in 0..WORDS_PER_TURN_MAX {
                let Some(word) = self.processes[index].next_word() else { break };
                self.take_word(index, word);
            }
        }
    }

    fn take_word(&mut self, index: usize, word: Word) {
        let generation = self.processes[index].generation;
        match word {
            Word::Beat => {}
            Word::Hung(thread) => {
                warn(&format!("the thread `{thread}` of {} hangs; it is ended and replaced", self.processes[index]));
                self.processes[index].abort();
            }
            Word::Leaving => {
                if self.processes[index].stage == Stage::Serving {
                    self.processes[index].enter(Stage::Draining);
                    self.fail_what_was_taken_up();
                    self.restart_after(Duration::ZERO);
                }
            }
            Word::Shut => {
                if let Err(error) = self.listeners.shut_down_beyond(&Listeners::default()) {
                    warn(&error.to_string());
                }
            }
            Word::Out(text) => {
                let curious = self.curious.iter().find(|curious| curious.generation == generation);
                if let (Some(curious), Some(control)) = (curious, &mut self.control) {
                    control.out(curious.key, &text);
                }
            }
            Word::Told => {
                let index = self.curious.iter().position(|curious| curious.generation == generation);
                if let Some(curious) = index.and_then(|index| self.curious.remove(index)) {
                    self.end_status(curious.key, curious.request);
                }
            }
            Word::Err(text) => self.pass_on_to_asker(generation, &text),
            Word::Ready => self.take_ready(generation),
            Word::Refused => self.take_refused(generation),
            Word::TakenUp => self.take_taken_up(),
            Word::Unable(reason) => self.take_unable(&reason),
        }
    }

    /// Deals with those that have ended. `Some` when the first one has never been ready, which ends the supervisor too.
    fn bury(&mut self) -> io::Result<Option<Exit>> {
        let mut index = 0;
        while index < self.processes.len() {
            let Some(ended) = self.processes[index].ended()? else {
                index += 1;
                continue;
            };
            // What it said last is still to be heard, but for a promise that it cannot keep any more.
            while let Some(word) = self.processes[index].next_word() {
                if word != Word::Ready {
                    self.take_word(index, word);
                }
            }
            let process = self.processes.remove(index);
            if let Some(exit) = self.take_death(&process, ended) {
                return Ok(Some(exit));
            }
        }
        Ok(None)
    }

    fn take_death(&mut self, process: &Process, ended: ExitStatus) -> Option<Exit> {
        let (unanswered, others) = std::mem::take(&mut self.curious)
            .into_iter()
            .partition::<VecDeque<_>, _>(|curious| curious.generation == process.generation);
        self.curious = others;
        for curious in unanswered {
            let problem = "the server process has ended before it had answered";
            self.tell_asker(Asker::Client(curious.key), Err(problem));
        }
        match process.stage {
            Stage::Draining => {
                if !matches!(ended, ExitStatus::Exited(0) | ExitStatus::Unknown) && self.stopping.is_none() {
                    warn(&format!("{process}, which had been replaced, {ended}"));
                }
            }
            Stage::Starting => return self.take_failed_start(process.generation, &format!("{process} {ended}"), ended),
            Stage::Serving => {
                let lived = process.since.elapsed();
                warn(&format!("{process} {ended} after {:.1} s; another one is started", lived.as_secs_f64()));
                self.fail_what_was_taken_up();
                self.restart_after(lived);
            }
        }
        None
    }

    /// The process that was to take a configuration up is gone.
    fn fail_what_was_taken_up(&mut self) {
        if let Some((asker, _)) = self.end_taking_up() {
            self.tell_asker(asker, Err("the server process has ended while it took the configuration up"));
        }
    }

    fn take_requests(&mut self) {
        let Some(control) = &mut self.control else { return };
        for (key, request) in control.requests() {
            match request {
                Request::Status | Request::StatusJson => self.begin_status(key, request),
                Request::Reload => self.wish(Wish::Reload(Asker::Client(key))),
                Request::Upgrade => self.wish(Wish::Upgrade(Asker::Client(key))),
                Request::Stop => self.stop(Asker::Client(key)),
                Request::TakeOver => {
                    let pid = std::process::id();
                    let taken = format!(
                        "a supervisor runs already, process {pid}; stop it first, or name another control socket"
                    );
                    self.tell_asker(Asker::Client(key), Err(&taken));
                }
            }
        }
    }

    fn keep_deadlines(&mut self) {
        let hang_limit = Duration::from_millis(self.running.config.limits.hang_timeout_ms) + BEAT_INTERVAL;
        let drain_limit = self.drain_limit();
        for process in &mut self.processes {
            if process.is_silent_for(hang_limit) {
                warn(&format!(
                    "{process} has not been heard of for {} s; it is ended and replaced",
                    hang_limit.as_secs()
                ));
                process.abort();
            }
            if process.stage == Stage::Draining && !process.is_killed() && process.since.elapsed() >= drain_limit {
                warn(&format!("{process} has not finished within `drain_timeout_ms` and is ended"));
                process.kill();
            }
            process.kill_if_due();
        }
        self.give_up_what_is_late();
        if let Some(interval) = self.notifier.watchdog_interval()
            && self.next_watchdog.is_none_or(|at| Instant::now() >= at)
        {
            self.next_watchdog = Some(Instant::now() + interval);
            self.notify(&[State::Watchdog]);
        }
    }

    /// Ends all server processes; when it is said again, at once.
    fn stop(&mut self, asker: Asker) {
        self.notify(&[State::Stopping]);
        let is_by_signal = asker == Asker::Nobody;
        let is_repeated = is_by_signal && self.is_stopped_by_signal;
        self.is_stopped_by_signal |= is_by_signal;
        let told_at_the_end = self.stopping.get_or_insert_default();
        if let Asker::Client(key) = asker {
            told_at_the_end.push(key);
        }
        self.restart_at = None;
        for process in &mut self.processes {
            match process.stage {
                Stage::Serving => {
                    process.order(Order::Stop, None);
                    process.enter(Stage::Draining);
                }
                Stage::Draining if is_repeated => process.kill(),
                Stage::Draining => {}
                Stage::Starting => {
                    process.kill();
                    process.enter(Stage::Draining);
                }
            }
        }
        let waiting: Vec<Asker> =
            self.work.take().iter().map(Work::asker).chain(self.wishes.drain(..).map(|wish| wish.asker())).collect();
        for asker in waiting {
            self.tell_asker(asker, Err("the server is about to end"));
        }
    }

    fn end(mut self) -> Exit {
        for key in self.stopping.take().unwrap_or_default() {
            self.tell_asker(Asker::Client(key), Ok("all has ended\n"));
        }
        if let Some(control) = self.control.take() {
            control.remove();
        }
        Exit::Success
    }

    /// Tells whoever has asked for something how it has ended: in words, or why not.
    fn tell_asker(&mut self, asker: Asker, outcome: Result<&str, &str>) {
        let (Asker::Client(key), Some(control)) = (asker, &mut self.control) else { return };
        match outcome {
            Ok(text) => {
                control.out(key, text);
                control.end(key, 0);
            }
            Err(text) => {
                control.err(key, &format!("sanderling: {text}\n"));
                control.end(key, 1);
            }
        }
    }

    /// Tells the service manager; one that does not listen is no reason to stop.
    fn notify(&self, states: &[State<'_>]) {
        if let Err(error) = self.notifier.notify(states) {
            warn(&format!("the service manager is not told: {error}"));
        }
    }

    fn serving(&mut self) -> Option<&mut Process> {
        self.processes.iter_mut().find(|process| process.stage == Stage::Serving)
    }
}

//! The thread of a server process that serves nobody: hears what the supervisor orders, loads what is to be served next,
//! says once a second that all threads move, and answers at the control socket when there is no supervisor.

use super::confinement::Confinement;
use super::standing;
use crate::loading::{Loaded, Loader};
use sanderling_config::diagnostic::{Diagnostic, Location, Problem};
use sanderling_config::log::{report, warn};
use sanderling_config::{Config, ConfigSource};
use sanderling_config::{ListenerRole, Service};
use sanderling_ipc::channel::{Channel, Heard, Order, Word};
use sanderling_ipc::control::{Control, Key};
use sanderling_ipc::control_message::{Request, pieces};
use sanderling_ipc::handover::{self, Given, Label, ProcessLabel};
use sanderling_ipc::{BEAT_INTERVAL, CONFIGURATION_BYTES_MAX};
use sanderling_os::event_fd::EventFd;
use sanderling_os::memfd;
use sanderling_os::poll_set::PollSet;
use sanderling_os::seqpacket::SeqpacketSocket;
use sanderling_os::signals::{SIGINT, SIGQUIT, SIGTERM, Signals};
use sanderling_server::{DrainMode, Server, SocketSet};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Words that wait until the supervisor has room for them. Of what comes then, only what decides something is kept.
const WORDS_MAX: usize = 4_096;
/// How soon the supervisor is asked again whether it has room.
const ROOM_LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// Lines of what is wrong that are told to whoever has asked for a reload; standard error has its own bound.
const LINES_TOLD_MAX: usize = 100;

/// What it takes to attend.
pub(super) struct Outfit {
    pub(super) source: ConfigSource,
    pub(super) running: Config,
    /// The text that `running` came from.
    pub(super) configuration: OwnedFd,
    pub(super) loader: Loader,
    /// To the supervisor.
    pub(super) channel: Channel,
    pub(super) control: Option<Control>,
    pub(super) confinement: Confinement,
    /// The pidfd of this process.
    pub(super) own: OwnedFd,
}

/// See the module.
pub(super) struct Attendant<'s> {
    server: &'s Server,
    source: ConfigSource,
    running: Config,
    /// The text that `running` came from, for a supervisor to come.
    configuration: OwnedFd,
    /// Away while it loads.
    loader: Option<Loader>,
    loaded: (Sender<Attempt>, Receiver<Attempt>),
    wakeup: Arc<EventFd>,
    /// `None` when there is no supervisor any more.
    channel: Option<Channel>,
    /// What is still to be said to it.
    words: VecDeque<Word>,
    control: Option<Control>,
    siblings: &'s [SocketSet],
    confinement: Confinement,
    own: OwnedFd,
    is_told_to_end: bool,
    next_beat: Instant,
    since: SystemTime,
}

/// A configuration that was loaded, or was to be.
struct Attempt {
    loader: Loader,
    configuration: OwnedFd,
    result: Result<(Config, Loaded), Vec<Diagnostic>>,
}

impl<'s> Attendant<'s> {
    pub(super) fn new(server: &'s Server, siblings: &'s [SocketSet], outfit: Outfit) -> io::Result<Attendant<'s>> {
        Ok(Attendant {
            server,
            siblings,
            source: outfit.source,
            running: outfit.running,
            configuration: outfit.configuration,
            loader: Some(outfit.loader),
            loaded: mpsc::channel(),
            wakeup: Arc::new(EventFd::new()?),
            channel: Some(outfit.channel),
            words: VecDeque::new(),
            control: outfit.control,
            confinement: outfit.confinement,
            own: outfit.own,
            is_told_to_end: false,
            next_beat: Instant::now(),
            since: SystemTime::now(),
        })
    }

    /// Attends until the server is to end, and begins its drain.
    pub(super) fn run(mut self, signals: &Signals) -> io::Result<()> {
        self.say(Word::Ready);
        if self.channel.is_none() {
            // Whoever has started this process is gone, and another one may serve: two must not.
            warn("the supervisor is gone before this process was ready: it ends");
            self.server.drain(DrainMode::Replaced);
            return Ok(());
        }
        let attended = self.attend(signals);
        if !self.is_told_to_end {
            warn("this process cannot go on: it finishes what it has, and ends");
            self.say(Word::Leaving);
        }
        attended
    }

    fn attend(&mut self, signals: &Signals) -> io::Result<()> {
        while !self.server.is_draining() {
            self.wait(signals)?;
            self.take_signals(signals);
            self.hear_orders();
            self.take_up_loaded();
            if self.channel.is_none() {
                self.answer_requests();
            }
            self.beat();
            self.say_what_waits();
        }
        Ok(())
    }

    fn wait(&self, signals: &Signals) -> io::Result<()> {
        let mut sources = vec![signals.as_fd(), self.wakeup.as_fd()];
        let mut deadline = self.next_beat;
        if !self.words.is_empty() {
            deadline = deadline.min(Instant::now() + ROOM_LOOK_INTERVAL);
        }
        if let Some(channel) = &self.channel {
            sources.push(channel.as_fd());
        } else if let Some(control) = &self.control {
            sources.extend(control.sources());
            deadline = control.deadline().map_or(deadline, |silent_until| silent_until.min(deadline));
        }
        PollSet::new(sources).wait(Some(deadline.saturating_duration_since(Instant::now())))?;
        self.wakeup.drain();
        Ok(())
    }

    /// While there is a supervisor it decides: a signal from the terminal reaches both.
    fn take_signals(&mut self, signals: &Signals) {
        while let Some(signal) = signals.take() {
            match (&self.channel, signal) {
                (None, SIGTERM | SIGINT | SIGQUIT) => self.stop(),
                (None, _) => warn("there is no supervisor; `sanderling serve` starts one that takes this process over"),
                (Some(_), _) => {}
            }
        }
    }

    fn hear_orders(&mut self) {
        while let Some(channel) = &self.channel {
            match channel.next_order() {
                Ok(Heard::Nothing) => return,
                Ok(Heard::Message((order, descriptors))) => self.obey(order, descriptors),
                Ok(Heard::Ended) => self.go_on_alone(),
                // There was no descriptor free for what came with it, or it is of another version.
                Err(error) if error.kind() == io::ErrorKind::InvalidData => self.say(Word::Unable(error.to_string())),
                Err(_) => self.go_on_alone(),
            }
        }
    }

    fn obey(&mut self, order: Order, descriptors: Vec<OwnedFd>) {
        match order {
            Order::TakeUp => match descriptors.into_iter().next() {
                Some(configuration) => {
                    if let Err(error) = self.load(configuration) {
                        self.say(Word::Unable(format!("the one that runs cannot load it: {error}")));
                    }
                }
                None => self.say(Word::Unable("no configuration came with the order".to_owned())),
            },
            Order::Tell | Order::TellJson => {
                let standing = self.standing();
                let text = if order == Order::Tell { standing.to_text() } else { standing.to_json() };
                for piece in pieces(&text) {
                    self.say(Word::Out(piece.to_owned()));
                }
                self.say(Word::Told);
            }
            Order::GiveWay => {
                self.is_told_to_end = true;
                self.server.drain(DrainMode::Replaced);
            }
            Order::Stop => self.stop(),
        }
    }

    fn stop(&mut self) {
        self.is_told_to_end = true;
        self.server.drain(DrainMode::Stopping);
        // Who comes now is to be refused, rather than left waiting for nobody. The supervisor knows whose sockets they are.
        if self.channel.is_some() {
            return self.say(Word::Shut);
        }
        for siblings in self.siblings {
            if let Err(error) = siblings.shut_down() {
                warn(&format!("a listener cannot be shut down: {error}"));
            }
        }
    }

    /// The supervisor is gone. What serves goes on serving.
    fn go_on_alone(&mut self) {
        self.channel = None;
        self.words.clear();
        warn("the supervisor is gone; this process serves on, and a supervisor that is started anew takes it over");
    }

    /// Says a word to the supervisor, behind those that wait.
    fn say(&mut self, word: Word) {
        let is_spare = matches!(word, Word::Beat | Word::Out(_) | Word::Err(_));
        if self.channel.is_some() && (self.words.len() < WORDS_MAX || !is_spare) {
            self.words.push_back(word);
            self.say_what_waits();
        }
    }

    /// Says what there is room for. A supervisor that is slow is not gone.
    fn say_what_waits(&mut self) {
        while let (Some(channel), Some(word)) = (&self.channel, self.words.front()) {
            match channel.say(word) {
                Ok(true) => drop(self.words.pop_front()),
                Ok(false) => return,
                Err(_) => self.go_on_alone(),
            }
        }
    }

    /// Tells whoever has asked for a reload what is odd or wrong.
    fn say_diagnostics(&mut self, diagnostics: &[Diagnostic]) {
        for diagnostic in diagnostics.iter().take(LINES_TOLD_MAX) {
            self.say(Word::Err(format!("{diagnostic}\n")));
        }
        if let Some(more) = diagnostics.len().checked_sub(LINES_TOLD_MAX + 1) {
            self.say(Word::Err(format!("and {} more, of which standard error tells\n", more + 1)));
        }
    }

    fn beat(&mut self) {
        let now = Instant::now();
        if now < self.next_beat {
            return;
        }
        self.next_beat = now + BEAT_INTERVAL;
        match self.server.stuck_thread() {
            // Words that wait tell as much.
            None if self.words.is_empty() => self.say(Word::Beat),
            None => {}
            // Without a supervisor nobody would take this process's place.
            Some(thread) => self.say(Word::Hung(thread)),
        }
    }

    /// Loads the configuration on a thread of its own: zones may take seconds, and the beat goes on.
    fn load(&mut self, configuration: OwnedFd) -> io::Result<()> {
        // Before the loader is taken, which does not come back from an error.
        let text = memfd::read(&configuration, CONFIGURATION_BYTES_MAX)?;
        let Some(mut loader) = self.loader.take() else {
            self.say(Word::Unable("the one that runs still loads the one before".to_owned()));
            return Ok(());
        };
        let (source, sender, wakeup) = (self.source.clone(), self.loaded.0.clone(), Arc::clone(&self.wakeup));
        let load = move || {
            let load = || {
                let config = source.parse(&text)?;
                let loaded = loader.load(&config)?;
                Ok((config, loaded))
            };
            // A mistake of ours in a zone's reader costs the reload, and no more.
            let result = catch_unwind(AssertUnwindSafe(load)).unwrap_or_else(|_| {
                let fault =
                    Problem::new("loading it has panicked", "report this, with the configuration and its zones");
                Err(vec![Diagnostic::error(Location::Argument("reload".to_owned()), fault)])
            });
            // Fails only when the process is about to end.
            let _ = sender.send(Attempt { loader, configuration, result });
            let given = wakeup.signal();
            debug_assert!(given.is_ok());
        };
        thread::Builder::new().name("loader".to_owned()).spawn(load)?;
        Ok(())
    }

    fn take_up_loaded(&mut self) {
        let Ok(Attempt { loader, configuration, result }) = self.loaded.1.try_recv() else { return };
        self.loader = Some(loader);
        match result {
            // Another process reads before it is confined: what is then still wrong is.
            Err(diagnostics) if self.confinement.keeps_from_files() => {
                let first = diagnostics.first().map(ToString::to_string).unwrap_or_default();
                self.say(Word::Unable(format!("the one that runs cannot read it all ({first})")));
            }
            Err(diagnostics) => {
                report(&diagnostics);
                self.say_diagnostics(&diagnostics);
                self.say(Word::Refused);
            }
            Ok((config, loaded)) => match config.needs_new_process(&self.running) {
                Some(obstacle) => self.say(Word::Unable(obstacle.to_owned())),
                None => {
                    report(&loaded.warnings);
                    self.say_diagnostics(&loaded.warnings);
                    self.server.update_snapshot(|current| *current = loaded.snapshot);
                    self.running = config;
                    self.configuration = configuration;
                    self.say(Word::TakenUp);
                }
            },
        }
    }

    fn standing(&self) -> standing::Report<'_> {
        standing::Report {
            standing: self.server.status(),
            confinement: &self.confinement,
            since: self.since,
            worker_count: self.running.worker_count,
        }
    }

    /// Does at the control socket what can be done without a supervisor.
    fn answer_requests(&mut self) {
        let Some(control) = &mut self.control else { return };
        for (key, request) in control.requests() {
            self.answer(key, request);
        }
    }

    fn answer(&mut self, key: Key, request: Request) {
        const ALONE: &str =
            "the supervisor is gone; `sanderling serve` starts one that takes the running process over\n";
        let status = match request {
            Request::Status => format!("{ALONE}{}", self.standing().to_text()),
            Request::StatusJson => format!("{{\"supervisor\":null,\"process\":{}}}\n", self.standing().to_json()),
            Request::Stop | Request::Reload | Request::Upgrade | Request::TakeOver => String::new(),
        };
        let Some(control) = &mut self.control else { return };
        match request {
            Request::Status | Request::StatusJson => {
                control.out(key, &status);
                control.end(key, 0);
            }
            Request::Stop => {
                self.stop();
                if let Some(mut control) = self.control.take() {
                    control.end(key, 0);
                    control.remove();
                }
            }
            Request::Reload | Request::Upgrade => {
                control.err(key, ALONE);
                control.end(key, 1);
            }
            Request::TakeOver => {
                if self.channel.is_some() {
                    // Another one was quicker.
                    control.err(key, "the process has been taken over already\n");
                    control.end(key, 1);
                } else if let Some(endpoint) = control.take(key) {
                    self.hand_over_to(endpoint);
                }
            }
        }
    }

    /// Gives a new supervisor all that the old one had, and hears its orders from now on.
    fn hand_over_to(&mut self, endpoint: SeqpacketSocket) {
        let Some(control) = &self.control else { return };
        let since_unix_s = self.since.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let pid = std::process::id().cast_signed();
        let process = ProcessLabel { generation: 1, pid, is_serving: true, since_unix_s };
        let mut given: Given<'_> = vec![
            (Label::Process(process), self.own.as_fd()),
            (Label::Configuration, self.configuration.as_fd()),
            (Label::Control(control.path().to_owned()), control.door()),
        ];
        let [http, dns] = [Service::Http, Service::Dns].map(|service| Label::Listener(ListenerRole::own(service)));
        for siblings in self.siblings {
            given.extend(siblings.http.iter().map(|socket| (http.clone(), socket.as_fd())));
            given.extend(siblings.dns_streams.iter().map(|socket| (dns.clone(), socket.as_fd())));
            given.extend(siblings.dns_datagrams.iter().map(|socket| (dns.clone(), socket.as_fd())));
        }
        match handover::send(&given, &endpoint) {
            Ok(()) => {
                self.channel = Some(Channel::on(endpoint));
                // From now on the supervisor answers; whoever asked here meanwhile asks again.
                if let Some(control) = &mut self.control {
                    control.turn_out_all();
                }
            }
            Err(error) => warn(&format!("the supervisor that was to take over cannot: {error}")),
        }
        self.next_beat = Instant::now();
    }
}

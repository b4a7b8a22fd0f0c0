//! How a supervisor comes to its sockets: it binds them; or a service manager hands them over; or the program whose place
//! it has taken; or a server process whose supervisor has died.

use super::process::Process;
use super::restarts::Restarts;
use super::work::Wish;
use super::{Asker, Running, Supervisor, program};
use sanderling_config::diagnostic::Diagnostic;
use sanderling_config::log::{report, warn};
use sanderling_config::{Config, ConfigSource};
use sanderling_config::{ListenerRole, Service};
use sanderling_ipc::CONFIGURATION_BYTES_MAX;
use sanderling_ipc::Exit;
use sanderling_ipc::channel::Channel;
use sanderling_ipc::control::{Control, Opened};
use sanderling_ipc::control_message::Request;
use sanderling_ipc::handover::{self, Awaits, Label, Receiving, Taken};
use sanderling_listeners::Listeners;
use sanderling_os::poll_set::PollSet;
use sanderling_os::sd_notify::Notifier;
use sanderling_os::seqpacket::SeqpacketSocket;
use sanderling_os::signals::{self, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, Signals};
use sanderling_os::{listen_fds, memfd};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// How long a server process whose supervisor has died may take to hand over what it has.
const TAKE_OVER_TIMEOUT: Duration = Duration::from_secs(5);

/// Supervises server processes that serve what `source` says, until it is told to end. `control_path` tells where it is
/// to be asked for things, from what the configuration says about that.
pub fn serve(
    source: &ConfigSource,
    forced: &[String],
    control_path: impl FnOnce(Option<&Path>) -> Option<PathBuf>,
) -> Exit {
    match boot(source, forced, control_path) {
        Ok(supervisor) => supervisor.run().unwrap_or_else(|error| fail(&error)),
        Err(Unbooted::Refused(diagnostics)) => {
            report(&diagnostics);
            Exit::BadConfiguration
        }
        Err(Unbooted::Failed(error)) => fail(&error),
    }
}

fn fail(error: &io::Error) -> Exit {
    warn(&error.to_string());
    Exit::Failure
}

/// Why nobody supervises.
enum Unbooted {
    Refused(Vec<Diagnostic>),
    Failed(io::Error),
}

impl From<io::Error> for Unbooted {
    fn from(error: io::Error) -> Unbooted {
        Unbooted::Failed(error)
    }
}

fn boot(
    source: &ConfigSource,
    forced: &[String],
    control_path: impl FnOnce(Option<&Path>) -> Option<PathBuf>,
) -> Result<Supervisor, Unbooted> {
    let signals = Signals::register(&[SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2])?;
    signals::unblock_all()?;
    if let Err(error) = sanderling_os::rlimit::raise_nofile_limit() {
        warn(&error.to_string());
    }
    if let Some(taken) = handover::inherited()? {
        return Ok(go_on(source, forced, signals, taken)?);
    }
    let given = listen_fds::take()?;
    let text = source.read().map_err(Unbooted::Refused)?;
    let config = source.parse(&text).map_err(Unbooted::Refused)?;
    let text = memfd::create("configuration", &text)?;
    let mut inheritance = Inheritance { listeners: adopt_given(given, &config)?, ..Inheritance::default() };
    if let Some(path) = control_path(config.control.as_deref()) {
        match Control::open(&path) {
            Ok(Opened::Ours(control)) => inheritance.control = Some(control),
            Ok(Opened::Taken(endpoint)) => inheritance = take_over(endpoint, &path, source)?,
            Err(error) => warn(&format!(
                "there is no control socket at {}: {error}; only signals reach this server",
                path.display()
            )),
        }
    }
    let listeners = Listeners::bind(&config, &inheritance.listeners)?;
    let next = Running { config, text };
    let running = next.try_clone()?;
    let mut supervisor = Supervisor::new(source, forced, signals, running)?;
    supervisor.control = inheritance.control;
    supervisor.last_generation = inheritance.processes.len() as u64;
    supervisor.processes = inheritance.processes;
    supervisor.begin_first(next, listeners)?;
    Ok(supervisor)
}

/// What somebody before has left.
#[derive(Default)]
struct Inheritance {
    listeners: Listeners,
    control: Option<Control>,
    processes: Vec<Process>,
}

/// Gives the sockets of a service manager to the services whose addresses they have.
fn adopt_given(given: Vec<(String, OwnedFd)>, config: &Config) -> io::Result<Listeners> {
    let mut sockets = Vec::new();
    for (name, descriptor) in given {
        let bound = sanderling_os::socket::local_address(&descriptor)?;
        let listened = [(Service::Http, &config.http_listen), (Service::Dns, &config.dns_listen)];
        let by_address = listened.iter().find(|(_, addresses)| addresses.contains(&bound)).map(|(service, _)| *service);
        match by_address {
            Some(service) => sockets.push((ListenerRole { service, is_external: true }, descriptor)),
            None => {
                let problem = format!(
                    "the socket `{name}` at {bound} was handed over, and no `listen` of the configuration has this \
                     address; add it there, or take it out of the socket unit"
                );
                return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
            }
        }
    }
    Listeners::adopt(sockets)
}

/// Asks whoever answers at the control socket for all that it has.
///
/// # Errors
/// It is a supervisor itself, or does not answer.
fn take_over(endpoint: SeqpacketSocket, path: &Path, source: &ConfigSource) -> io::Result<Inheritance> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    endpoint.send(&Request::TakeOver.encode(), &[]).map_err(named)?;
    let deadline = Instant::now() + TAKE_OVER_TIMEOUT;
    let mut receiving = Receiving::default();
    let taken = loop {
        if let Some(taken) = receiving.advance(&endpoint).map_err(named)? {
            break taken;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(named(io::Error::new(
                io::ErrorKind::TimedOut,
                "whoever answers there has not answered in time",
            )));
        }
        PollSet::new([endpoint.as_fd()]).wait(Some(left))?;
    };
    let (mut sockets, mut process, mut ran_by) = (Vec::new(), None, None);
    let mut inheritance = Inheritance::default();
    for (label, descriptor) in taken {
        match label {
            Label::Listener(role) => sockets.push((role, descriptor)),
            Label::Control(path) => inheritance.control = Some(Control::adopt(path, descriptor)?),
            Label::Process(label) => process = Some((label, descriptor)),
            Label::Configuration => ran_by = Some(descriptor),
            Label::Channel | Label::Client(_) => {}
        }
    }
    // It goes on hearing its orders on the connection where it has handed over.
    let (label, pidfd) =
        process.ok_or_else(|| named(io::Error::other("whoever answers there is no server process")))?;
    warn(&format!("the server process {}, which had no supervisor, is taken over", label.pid));
    inheritance.processes.push(Process::taken_over(label, pidfd, Channel::on(endpoint)));
    inheritance.listeners = Listeners::adopt(sockets)?;
    // What it ran by tells which socket was made for which address; without it each has the address that it is bound to.
    let ran_by = ran_by.and_then(|text| memfd::read(&text, CONFIGURATION_BYTES_MAX).ok());
    if let Some(Ok(config)) = ran_by.map(|text| source.parse(&text)) {
        inheritance.listeners = inheritance.listeners.made_for(&config);
    }
    Ok(inheritance)
}

/// Goes on where the program has left off whose place this one has taken.
fn go_on(source: &ConfigSource, forced: &[String], signals: Signals, taken: Taken) -> io::Result<Supervisor> {
    let (mut configuration, mut control, mut sockets) = (None, None, Vec::new());
    let (mut processes, mut announced, mut clients) = (Vec::new(), None, Vec::new());
    for (label, descriptor) in taken {
        match label {
            Label::Configuration => configuration = Some(descriptor),
            Label::Control(path) => control = Some(Control::adopt(path, descriptor)?),
            Label::Listener(role) => sockets.push((role, descriptor)),
            Label::Process(label) => announced = Some((label, descriptor)),
            Label::Channel => {
                let (label, pidfd) = announced.take().ok_or_else(|| io::Error::other("a channel to nobody"))?;
                processes.push(Process::taken_over(label, pidfd, Channel::adopt(descriptor)?));
            }
            Label::Client(awaits) => clients.push((awaits, descriptor)),
        }
    }
    let text = configuration.ok_or_else(|| io::Error::other("no configuration was handed over"))?;
    let config = source.parse(&memfd::read(&text, CONFIGURATION_BYTES_MAX)?).map_err(|diagnostics| {
        report(&diagnostics);
        io::Error::other("the configuration that was handed over has errors")
    })?;
    let listeners = Listeners::adopt(sockets)?.made_for(&config);
    listeners.defer_silent();
    let mut supervisor = Supervisor::new(source, forced, signals, Running { config, text })?;
    supervisor.announced = listeners.clone();
    supervisor.listeners = listeners;
    supervisor.control = control;
    supervisor.last_generation = processes.iter().map(|process| process.generation).max().unwrap_or(0);
    supervisor.processes = processes;
    let version = env!("CARGO_PKG_VERSION");
    let done = format!("sanderling {version} supervises and serves now, as process {}\n", std::process::id());
    warn(done.trim_end());
    for (awaits, client) in clients {
        let Some(control) = &mut supervisor.control else { continue };
        let asker = Asker::Client(control.let_in(client)?);
        match awaits {
            Awaits::ThisUpgrade => supervisor.tell_asker(asker, Ok(&done)),
            Awaits::Reload => supervisor.wish(Wish::Reload(asker)),
            Awaits::Upgrade => supervisor.wish(Wish::Upgrade(asker)),
        }
    }
    supervisor.notify(&[sanderling_os::sd_notify::State::Ready]);
    Ok(supervisor)
}

impl Supervisor {
    fn new(source: &ConfigSource, forced: &[String], signals: Signals, running: Running) -> io::Result<Supervisor> {
        Ok(Supervisor {
            source: source.clone(),
            forced: forced.to_vec(),
            program: program::path_as_started(),
            signals,
            control: None,
            notifier: Notifier::from_environment()?,
            listeners: Listeners::default(),
            running,
            processes: Vec::new(),
            last_generation: 0,
            work: None,
            wishes: VecDeque::new(),
            curious: VecDeque::new(),
            restarts: Restarts::default(),
            restart_at: None,
            announced: Listeners::default(),
            stopping: None,
            is_stopped_by_signal: false,
            next_watchdog: None,
            since: SystemTime::now(),
            taken_up_at: SystemTime::now(),
        })
    }
}

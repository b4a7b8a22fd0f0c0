//! The startup of the supervisor, which binds its sockets, or inherits them from a service manager, the program that it
//! replaces, or a server process without a supervisor.

use super::agent::Agent;
use super::agent::state_problem;
use super::keeper::Keeper;
use super::log_files::LogFiles;
use super::renewal_commands::RenewalCommands;
use super::secrets::Secrets;
use super::upgrade::LOG_FLUSH_MAX;
use super::{ActiveConfig, Lifecycle, QueuedRequest, Requester, Supervisor};
use crate::backoff::Backoff;
use crate::orphans::Orphans;
use crate::process::Process;
use crate::program;
use sanderling_config::diagnostic::{Diagnostic, error_text};
use sanderling_config::log::{self, log, log_error, log_warning, report};
use sanderling_config::repeated_messages::LimitedLog;
use sanderling_config::{Config, ConfigSource, Exit, ListenerRole, Service, lookup_user};
use sanderling_ipc::control_socket::{ControlSocket, Opened};
use sanderling_ipc::handover::{self, Descriptors};
use sanderling_ipc::{CONFIGURATION_BYTES_MAX, Command, Connection, Message, PendingCommand, ProcessInfo};
use sanderling_listeners::Listeners;
use sanderling_os::process::{ProcessHandle, effective_uid};
use sanderling_os::sd_notify::{Notifier, State};
use sanderling_os::seqpacket::Sender;
use sanderling_os::signals::{self, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, Signals};
use sanderling_os::{listen_fds, memfd};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Supervises server processes with the configuration of `source` until the server has stopped. `control_path` returns
/// the path of the control socket for the key `control` of the configuration.
pub fn serve(
    source: &ConfigSource,
    forced: &[String],
    state: Option<PathBuf>,
    control_path: impl FnOnce(Option<&Path>) -> Option<PathBuf>,
) -> Exit {
    if let Err(error) = sanderling_os::sandbox::confine_supervisor() {
        log_error(&format!("the supervisor keeps all root privileges: {}", error_text(&error)));
    }
    if let Err(error) = log::start_writer() {
        log_error(&format!("cannot start the log thread: {}", error_text(&error)));
    }
    match start(source, forced, state, control_path) {
        Ok(supervisor) => supervisor.run(),
        Err(StartupError::BadConfiguration(diagnostics)) => {
            report(&diagnostics);
            Exit::BadConfiguration
        }
        Err(StartupError::Failure(message)) => {
            log_error(&message);
            if handover::has_list() {
                log_error(&format!("{}; start `sanderling serve` again", error_text(&adopt_instead())));
            }
            Exit::Failure
        }
    }
}

/// Starts this program again without the state inherited from the previous program, because it could not take over: it
/// adopts the server process instead, which continues to serve. Returns only on failure.
fn adopt_instead() -> io::Error {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    // Without a control socket, the server process would not be found, and a second one would serve at the same time.
    if !arguments.iter().any(|argument| argument == "--control") {
        return io::Error::other("the server process continues to serve without a supervisor; stop it");
    }
    log_error("cannot take over from the previous program; adopting the server process");
    log::flush(LOG_FLUSH_MAX);
    if let Err(error) = signals::block_all() {
        return error;
    }
    let environment = [handover::NO_LIST, listen_fds::NO_FDS].map(|(name, value)| (name, value.to_owned()));
    sanderling_os::process::exec(&program::installed_path(), &arguments, &environment, &[])
}

/// The remedy without a control socket.
const WITHOUT_CONTROL: &str = "the server runs without it; use SIGHUP, SIGUSR2 and SIGTERM";

/// The reason why the supervisor does not start.
enum StartupError {
    BadConfiguration(Vec<Diagnostic>),
    Failure(String),
}

impl From<io::Error> for StartupError {
    fn from(error: io::Error) -> StartupError {
        StartupError::Failure(format!("cannot start: {}", error_text(&error)))
    }
}

fn start(
    source: &ConfigSource,
    forced: &[String],
    state: Option<PathBuf>,
    control_path: impl FnOnce(Option<&Path>) -> Option<PathBuf>,
) -> Result<Supervisor, StartupError> {
    let signals = Signals::register(&[SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2])?;
    signals::unblock_all()?;
    if let Err(error) = sanderling_os::rlimit::raise_nofile_limit() {
        log_error(&format!("cannot raise the limit of open files: {}", error_text(&error)));
    }
    if let Some(descriptors) = handover::from_list()? {
        return Ok(resume(source, forced, state, signals, control_path, descriptors)?);
    }
    let external = listen_fds::take()?;
    let text = source.read().map_err(StartupError::BadConfiguration)?;
    let config = source.parse(&text).map_err(StartupError::BadConfiguration)?;
    if let ConfigSource::Flags(_) = source {
        // The operator has just typed the paths. The paths in a file may belong to many domains, which must not affect
        // each other.
        let problems = config.path_problems();
        if !problems.is_empty() {
            return Err(StartupError::BadConfiguration(problems));
        }
    }
    // Checked before any file is created that would belong to root or to the user `nobody`, and before any process is
    // started, each of which would fail without the user.
    lookup_user(&config).map_err(StartupError::BadConfiguration)?;
    let text = memfd::create("configuration", &text)?;
    let mut inherited = Inherited { listeners: external_listeners(external, &config)?, ..Inherited::default() };
    if let Some(path) = control_path(config.control.as_deref()) {
        match ControlSocket::open(&path) {
            Ok(Opened::Created(control)) => inherited.control = Some(control),
            Ok(Opened::InUse(connection)) => {
                let external = inherited.listeners;
                inherited = adopt(connection, &path, source, expected_user(&config)?)?;
                inherited.listeners = inherited.listeners.with_external(&external);
            }
            Err(error) => log_error(&format!(
                "cannot create the control socket {}: {}; {WITHOUT_CONTROL}",
                path.display(),
                error_text(&error)
            )),
        }
    } else if let ConfigSource::File(_) = source {
        log_warning(&format!(
            "there is no control socket, because XDG_RUNTIME_DIR is not set; set the key `control`; {WITHOUT_CONTROL}"
        ));
    }
    // A server process that serves already is not left without a supervisor.
    if inherited.processes.is_empty()
        && let Some(problem) = config.state_folder(state.as_deref()).and_then(|state| state_problem(&config, &state))
    {
        if problem.is_error() {
            inherited.control.take().into_iter().for_each(ControlSocket::remove);
            return Err(StartupError::BadConfiguration(vec![problem]));
        }
        report(&[problem]);
    }
    let (existing, _) = inherited.listeners.restored(&config);
    let listeners = Listeners::bind(&config, &existing).map_err(|error| {
        // An adopted control socket still belongs to the server process.
        if let (Some(control), true) = (inherited.control.take(), inherited.processes.is_empty()) {
            control.remove();
        }
        StartupError::Failure(error.to_problem(source).to_string())
    })?;
    let next = ActiveConfig { config: Arc::new(config), text };
    let active = next.try_clone()?;
    let mut supervisor = Supervisor::new(source, forced, signals, active)?;
    supervisor.agent.state_argument = state;
    supervisor.agent.inherit_backend_addresses(inherited.backend_addresses);
    supervisor.secrets.inherit(inherited.shared_keys, inherited.kept_certificates, &next.config);
    supervisor.secrets.forget_versions_without_keys();
    supervisor.control = inherited.control;
    supervisor.last_generation = inherited.processes.len() as u64;
    supervisor.processes = inherited.processes;
    supervisor.kept_zones = inherited.kept_zones;
    supervisor.begin_first(next, listeners)?;
    Ok(supervisor)
}

/// The supervisor's inherited state.
#[derive(Default)]
struct Inherited {
    listeners: Listeners,
    control: Option<ControlSocket>,
    processes: Vec<Process>,
    kept_zones: Vec<OwnedFd>,
    shared_keys: Option<OwnedFd>,
    backend_addresses: Option<OwnedFd>,
    kept_certificates: Option<OwnedFd>,
}

/// The sockets of a service manager, each for the service that has its address in the configuration.
fn external_listeners(external: Vec<(String, OwnedFd)>, config: &Config) -> io::Result<Listeners> {
    let mut sockets = Vec::new();
    for (name, descriptor) in external {
        let bound = sanderling_os::socket::local_address(&descriptor)?;
        match Service::ALL.into_iter().find(|service| config.listen(*service).contains(&bound)) {
            Some(service) => {
                sockets.push((ListenerRole { service, is_external: true }, descriptor));
            }
            None => {
                let message = format!(
                    "the service manager passes the socket `{name}` at {bound}, which no `listen` in the configuration \
                     has; add the address there, or remove it from the socket unit"
                );
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }
        }
    }
    Listeners::from_fds(sockets)
}

/// The user of server processes with `config`.
fn expected_user(config: &Config) -> io::Result<u32> {
    let own = effective_uid();
    if own != 0 {
        return Ok(own);
    }
    let user = lookup_user(config)
        .map_err(|diagnostics| io::Error::other(diagnostics.first().map_or(String::new(), ToString::to_string)))?;
    Ok(user.map_or(own, |user| user.uid))
}

/// Takes over all descriptors of the process that answers at the control socket. That process has been without a
/// supervisor, and may run foreign code, so the kernel identifies it.
///
/// # Errors
/// Returns an error if the process is a supervisor, does not answer, or belongs to another user than `uid`.
fn adopt(mut connection: Connection, path: &Path, source: &ConfigSource, uid: u32) -> io::Result<Inherited> {
    let at_path = |error: io::Error| {
        if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof) {
            // The server process has disconnected this one, because another supervisor has adopted it.
            return io::Error::new(error.kind(), format!("a supervisor is already running at {}", path.display()));
        }
        let remedy = match error.kind() {
            io::ErrorKind::InvalidData => "; stop the running server with the version that it was started with",
            _ => "",
        };
        io::Error::new(error.kind(), format!("{}: {}{remedy}", path.display(), error_text(&error)))
    };
    connection.identify_senders().map_err(at_path)?;
    connection.send(&Message::Command(Command::HandOver)).map_err(at_path)?;
    let descriptors = handover::receive(&mut connection).map_err(at_path)?;
    let (Some((named, _)), Some(sender)) = (descriptors.processes.first(), connection.last_sender()) else {
        return Err(at_path(io::Error::other("the process that answers there is not a server process")));
    };
    if sender.uid != uid {
        let Sender { pid, uid: other } = sender;
        let message = format!(
            "process {pid}, which answers there, belongs to the user with ID {other}, but server processes of this \
             configuration belong to the user with ID {uid}; stop it with the `user` that it was started with"
        );
        return Err(at_path(io::Error::other(message)));
    }
    let handle = ProcessHandle::open(sender.pid).map_err(at_path)?;
    let info = ProcessInfo { generation: 1, pid: sender.pid, is_serving: true, ready_at_unix_s: named.ready_at_unix_s };
    log(&format!("adopting server process {}, which has lost its supervisor", info.pid));
    let mut listeners = Listeners::from_fds(descriptors.listeners)?;
    // The sockets keep the addresses of its configuration, including port 0.
    let text = descriptors.configuration.and_then(|text| memfd::read(&text, CONFIGURATION_BYTES_MAX).ok());
    let config = text.and_then(|text| source.parse(&text).ok());
    if let Some(config) = &config {
        listeners = listeners.with_configured_addresses(config);
    }
    let control = descriptors.control.map(|control| ControlSocket::from_fd(path.to_owned(), control)).transpose()?;
    // The connection of the handover is the one for commands from now on.
    let processes = vec![Process::adopted(info, handle, connection, &config.unwrap_or_default())];
    let Descriptors { zones: kept_zones, shared_keys, backend_addresses, kept_certificates, .. } = descriptors;
    Ok(Inherited { listeners, control, processes, kept_zones, shared_keys, backend_addresses, kept_certificates })
}

/// Continues with the state of the program that this one has replaced.
fn resume(
    source: &ConfigSource,
    forced: &[String],
    state: Option<PathBuf>,
    signals: Signals,
    control_path: impl FnOnce(Option<&Path>) -> Option<PathBuf>,
    descriptors: Descriptors,
) -> io::Result<Supervisor> {
    let Descriptors {
        configuration,
        zones,
        control,
        listeners,
        processes,
        connections,
        clients,
        kept_certificates,
        shared_keys,
        backend_addresses,
        held_keys,
        keeper_processes,
        ..
    } = descriptors;
    if processes.len() != connections.len() {
        return Err(io::Error::other("inherited a connection without its process"));
    }
    let text = configuration.ok_or_else(|| io::Error::other("inherited no configuration"))?;
    let config = source.parse(&memfd::read(&text, CONFIGURATION_BYTES_MAX)?).map_err(|diagnostics| {
        report(&diagnostics);
        io::Error::other("the inherited configuration has errors")
    })?;
    let adopt = |((info, pidfd), connection): ((ProcessInfo, OwnedFd), OwnedFd)| {
        let handle = ProcessHandle::from_pidfd(info.pid, pidfd);
        Ok(Process::adopted(info, handle, Connection::from_fd(connection)?, &config))
    };
    let processes = processes.into_iter().zip(connections).map(adopt).collect::<io::Result<Vec<Process>>>()?;
    let listeners = Listeners::from_fds(listeners)?.with_configured_addresses(&config);
    listeners.set_http_options();
    let path = control_path(config.control.as_deref());
    let mut supervisor = Supervisor::new(source, forced, signals, ActiveConfig { config: Arc::new(config), text })?;
    supervisor.agent.state_argument = state;
    let state = supervisor.state_path(&supervisor.active.config);
    supervisor.secrets.set_state(state);
    supervisor.agent.inherit_backend_addresses(backend_addresses);
    supervisor.secrets.inherit(shared_keys, kept_certificates, &Arc::clone(&supervisor.active.config));
    supervisor.keeper.inherit(keeper_processes, held_keys);
    supervisor.announced = listeners.clone();
    supervisor.listeners = listeners;
    if let (Some(path), Some(control)) = (path, control) {
        supervisor.control = Some(ControlSocket::from_fd(path, control)?);
    }
    supervisor.last_generation = processes.iter().map(Process::generation).max().unwrap_or(0);
    supervisor.processes = processes;
    supervisor.kept_zones = zones;
    let version = env!("CARGO_PKG_VERSION");
    let done = format!("upgraded; sanderling {version} serves as process {}\n", std::process::id());
    log(done.trim_end());
    for (pending, client) in clients {
        let Some(control) = &mut supervisor.control else { continue };
        let requester = Requester::Client(control.adopt_client(client)?);
        match pending {
            PendingCommand::ThisUpgrade => supervisor.reply(requester, Ok(&done)),
            PendingCommand::Reload { forced_zones } => {
                supervisor.enqueue(QueuedRequest::Reload(requester, forced_zones));
            }
            PendingCommand::ReloadSite { name } => supervisor.enqueue(QueuedRequest::ReloadSite(requester, name)),
            PendingCommand::Upgrade => supervisor.enqueue(QueuedRequest::Upgrade(requester)),
            PendingCommand::Zone(command) => supervisor.enqueue(QueuedRequest::Zone(requester, command)),
        }
    }
    // From now on, this supervisor rotates the log.
    supervisor.pass_logs();
    supervisor.notify(&[State::Ready]);
    Ok(supervisor)
}

impl Supervisor {
    fn new(source: &ConfigSource, forced: &[String], signals: Signals, active: ActiveConfig) -> io::Result<Supervisor> {
        Ok(Supervisor {
            source: source.clone(),
            forced: forced.to_vec(),
            installed_program: program::installed_path(),
            signals,
            control: None,
            notifier: Notifier::from_environment()?,
            listeners: Listeners::default(),
            announced: Listeners::default(),
            active,
            kept_zones: Vec::new(),
            failed_with_kept_count: 0,
            secrets: Secrets::default(),
            agent: Agent::default(),
            keeper: Keeper::default(),
            renewal_commands: RenewalCommands::default(),
            logs: LogFiles::new(),
            processes: Vec::new(),
            orphans: Orphans::new(),
            last_generation: 0,
            task: None,
            queue: VecDeque::new(),
            status_requests: VecDeque::new(),
            backoff: Backoff::default(),
            restart_at: None,
            cut_off_count: 0,
            replaced_itself_at: None,
            reload_counts: [0; 3],
            limited_log: LimitedLog::default(),
            sent_supervision: None,
            lifecycle: Lifecycle::Running,
            next_watchdog: None,
            started_at: SystemTime::now(),
        })
    }
}

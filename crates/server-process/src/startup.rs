//! The start of a server process: inherit, give up privileges, load, enter the sandbox, serve.

use crate::access;
use crate::assembly::Assembly;
use crate::certificates::{Certificates, SecretDescriptors};
use crate::control_loop::{ControlLoop, ProcessState};
use crate::exposed_secrets;
use crate::kept_zones::KeptZones;
use crate::load_status::LoadStatus;
use crate::loader::{Loaded, Loader};
use crate::metrics::MetricsListener;
use crate::open_directories::DescriptorLimit;
use crate::options::{fit_to_descriptor_limit, options_of, statistics_options};
use crate::request_logs;
use crate::sandbox::Sandbox;
use crate::socket_sets::{https_port, metrics_listeners, socket_sets};
use sanderling_config::diagnostic::{Diagnostic, Problem, error_text, for_client};
use sanderling_config::log::{self, log_error, log_warning, report};
use sanderling_config::{
    Config, ConfigSource, DomainName, Exit, JOURNALS, LogKind, SIGNED_ZONES, TRANSFERRED_ZONES, UPDATES, lookup_user,
    processor_count,
};
use sanderling_ipc::agent::{BackendAddresses, Challenge, backend_addresses_from_memfd, challenges_from_memfd};
use sanderling_ipc::control_socket::ControlSocket;
use sanderling_ipc::derived::DerivedSet;
use sanderling_ipc::handover;
use sanderling_ipc::{CONFIGURATION_BYTES_MAX, Connection, Event, Message, Supervision, Text};
use sanderling_listeners::Listeners;
use sanderling_os::memfd;
use sanderling_os::sandbox::{CoreDumps, drop_privileges};
use sanderling_os::signals::{self, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, Signals};
use sanderling_os::user::User;
use sanderling_server::{Counter, Server, Snapshot};
use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time for the supervisor to read the last event.
const REPORT_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves with the state inherited from the supervisor. A zone in `forced_zones` is loaded even if it has lost records
/// or its serial went back. `state_folder` has the zones that are transferred from primary servers, if there are some.
pub fn serve(
    source: &ConfigSource,
    control_path: Option<PathBuf>,
    state_folder: Option<PathBuf>,
    forced_zones: &[DomainName],
) -> Exit {
    // Before its sandbox the process starts no thread.
    log::hold();
    // The process is started through /proc/self/exe, and would have the name `exe`.
    if let Err(error) = sanderling_os::process::set_name(c"sanderling") {
        log_error(&format!("cannot set the process name: {}", error_text(&error)));
    }
    let result = Inherited::take(control_path)
        .map_err(StartupError::from)
        .and_then(|inherited| inherited.prepare(source.clone(), state_folder, forced_zones))
        .and_then(|prepared| Ok(prepared.serve()?));
    match result {
        Ok(()) => Exit::Success,
        Err(StartupError::BadConfiguration(diagnostics)) => {
            report(&diagnostics);
            Exit::BadConfiguration
        }
        Err(StartupError::Failure(error)) => {
            log_error(&failure_text(&error));
            Exit::Failure
        }
    }
}

fn failure_text(error: &io::Error) -> String {
    format!("the server process cannot serve: {}", error_text(error))
}

/// The reason why the process does not serve.
enum StartupError {
    BadConfiguration(Vec<Diagnostic>),
    Failure(io::Error),
}

impl From<io::Error> for StartupError {
    fn from(error: io::Error) -> StartupError {
        StartupError::Failure(error)
    }
}

/// The secrets from the supervisor.
struct Inherited {
    supervisor: Connection,
    config_text: OwnedFd,
    kept_zones: Vec<Arc<OwnedFd>>,
    secrets: SecretDescriptors,
    /// The records that the agent has derived for zones.
    derived: Arc<DerivedSet>,
    /// The challenges for certificate authorities.
    challenges: Vec<Challenge>,
    /// The addresses of hosts with applications.
    backend_addresses: BackendAddresses,
    /// The targets of log lines.
    log_targets: Vec<(LogKind, OwnedFd)>,
    control: Option<ControlSocket>,
    listeners: Listeners,
}

/// Everything that serving needs.
struct Prepared {
    state: ProcessState,
    snapshot: Snapshot,
    signals: Signals,
}

impl Inherited {
    fn take(control_path: Option<PathBuf>) -> io::Result<Inherited> {
        let mut inherited = handover::from_names()?;
        let missing = || io::Error::other("only a supervisor can run this command; run `sanderling serve`");
        let derived = inherited.derived_records.take().map(DerivedSet::from_memfd);
        let derived = derived.and_then(|derived| {
            derived
                .inspect_err(|error| log_error(&format!("cannot read the derived records: {}", error_text(error))))
                .ok()
        });
        let challenges = inherited.challenges.take().map(challenges_from_memfd).unwrap_or_else(|| Ok(Vec::new()));
        let challenges = challenges.unwrap_or_else(|error| {
            log_error(&format!("cannot read the challenges of certificate authorities: {}", error_text(&error)));
            Vec::new()
        });
        let addresses = inherited.backend_addresses.take().map(backend_addresses_from_memfd);
        let backend_addresses = addresses.unwrap_or_else(|| Ok(BackendAddresses::new())).unwrap_or_else(|error| {
            log_error(&format!("cannot read the addresses of applications: {}", error_text(&error)));
            BackendAddresses::new()
        });
        let [zones, connections] = [&mut inherited.zones, &mut inherited.connections].map(std::mem::take);
        let control = control_path.zip(inherited.control.take());
        Ok(Inherited {
            supervisor: Connection::from_fd(connections.into_iter().next().ok_or_else(missing)?)?,
            config_text: inherited.configuration.take().ok_or_else(missing)?,
            kept_zones: zones.into_iter().map(Arc::new).collect(),
            log_targets: std::mem::take(&mut inherited.logs),
            control: control.map(|(path, listener)| ControlSocket::from_fd(path, listener)).transpose()?,
            listeners: Listeners::from_fds(std::mem::take(&mut inherited.listeners))?,
            derived: Arc::new(derived.unwrap_or_default()),
            challenges,
            backend_addresses,
            secrets: SecretDescriptors { kept: inherited.kept_certificates.take(), ..inherited.into() },
        })
    }

    /// Switches to the configured user, if any.
    fn switch_user(&mut self, config: &Config) -> Result<Option<User>, StartupError> {
        let user = lookup_user(config).map_err(|diagnostics| self.refuse(diagnostics))?;
        // Files are opened as this user: `$INCLUDE` in a zone of a customer must not read what only root may.
        let core_dumps = if config.has_secrets() { CoreDumps::Forbidden } else { CoreDumps::Allowed };
        drop_privileges(user.as_ref(), core_dumps).map_err(|error| match &config.user_and_group {
            Some(account) => {
                let problem = Problem::new(format!("cannot switch to this user: {}", error_text(&error)), "");
                self.refuse(vec![Diagnostic::error(account.user_location.clone(), problem)])
            }
            None => self.fail(error),
        })?;
        Ok(user)
    }

    fn new_loader(&self, config: &Config, state_folder: Option<PathBuf>, user: Option<&User>) -> Loader {
        let state_of_zones = state_folder.clone().filter(|_| config.has_stored_zones());
        if let Some(state) = &state_of_zones {
            // This precedes the sandbox, which can only allow an existing folder. The agent may have created it.
            for folder in [TRANSFERRED_ZONES, JOURNALS, UPDATES, SIGNED_ZONES] {
                let _ = DirBuilder::new().mode(0o700).create(state.join(folder));
            }
        }
        let mut loader = Loader::keeping(KeptZones::from_segments(&self.kept_zones), state_of_zones);
        loader.set_state_folder(state_folder);
        loader.set_user(user.map(|user| user.name.clone()));
        loader.set_derived(Arc::clone(&self.derived));
        loader
    }

    /// Gives up privileges, and loads sites and zones.
    fn prepare(
        mut self,
        source: ConfigSource,
        state_folder: Option<PathBuf>,
        forced_zones: &[DomainName],
    ) -> Result<Prepared, StartupError> {
        // The supervisor handles the signals of the terminal, which reach both; without a supervisor this process does.
        let signals = Signals::register(&[SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2])?;
        // The supervisor has blocked them until there is a handler.
        signals::unblock_all()?;
        let text = memfd::read(&self.config_text, CONFIGURATION_BYTES_MAX)?;
        let config = source.parse(&text).map_err(|diagnostics| self.refuse(diagnostics))?;
        sanderling_os::features::select_all();
        let own_pidfd = sanderling_os::process::own_pidfd()?;
        let user = self.switch_user(&config)?;
        let mut loader = self.new_loader(&config, state_folder, user.as_ref());
        let Loaded { mut snapshot, load_status, mut errors, mut warnings, kept, watched_sites, updates, .. } =
            loader.load(&config, forced_zones);
        let mut certificates = Certificates::default();
        let mut secrets = certificates.load(&config, std::mem::take(&mut self.secrets))?;
        if matches!(source, ConfigSource::Flags(_)) && certificates.are_all_unusable() {
            // The operator has just typed the paths. The paths in a file may belong to many domains, which must not
            // affect each other.
            return Err(self.refuse(certificates.diagnostics));
        }
        errors.extend_from_slice(&certificates.diagnostics);
        let mut assembly = Assembly::new(&config, &snapshot.zones, std::mem::take(&mut self.challenges))?;
        assembly.update_backend_addresses(&config, std::mem::take(&mut self.backend_addresses));
        assembly.complete(&config, &mut snapshot);
        let keys_file = secrets.keys_file.take();
        secrets.put_into(&mut snapshot);
        if snapshot.tls.as_ref().is_some_and(|tls| !tls.https.warm_up()) {
            return Err(self.fail(io::Error::other("no random numbers are available for TLS")));
        }
        errors.append(&mut warnings);
        self.report(&errors);
        self.report_problems(&load_status, &certificates);
        let sandbox = Sandbox::enter(&config, loader.zone_directories(), user).map_err(|error| self.fail(error))?;
        sandbox.note(&config).iter().for_each(|note| log_warning(note));
        self.report(&access::missing_pages(&config, &snapshot));
        let exposed_secrets = exposed_secrets::warnings(&config, loader.state_folder());
        self.report(&exposed_secrets);
        if sandbox.restricts_directories() {
            loader.restrict_directories();
        }
        let Inherited { supervisor, config_text, derived, kept_zones, control, listeners, log_targets, .. } = self;
        let state = ProcessState {
            source,
            config: Arc::new(config),
            config_text,
            kept_zones,
            unsent_zones: kept,
            unsent_updates: updates,
            loader: Some(loader),
            load_status,
            watched_sites,
            certificates,
            assembly,
            received_secrets: SecretDescriptors::default(),
            derived,
            keys_file,
            log_targets,
            supervisor: Some(supervisor),
            control,
            stop_client: None,
            metrics_listener: MetricsListener::new(metrics_listeners(&listeners)),
            listeners,
            supervision: Supervision::default(),
            sandbox,
            exposed_secrets,
            own_pidfd,
        };
        Ok(Prepared { state, snapshot, signals })
    }

    /// Reports the limits with which the process serves, in the log and to the client that has requested the reload.
    fn report(&mut self, diagnostics: &[Diagnostic]) {
        report(diagnostics);
        self.send_diagnostics(diagnostics);
    }

    /// Reports sites, zones and certificates that are not served as configured.
    fn report_problems(&mut self, load_status: &LoadStatus, certificates: &Certificates) {
        load_status.problems_text().lines().for_each(log_error);
        for line in certificates.problems_text().lines() {
            log_error(line);
            self.send(Event::Stderr(Text::new(&format!("{line}\n"))));
        }
    }

    fn send_diagnostics(&mut self, diagnostics: &[Diagnostic]) {
        for_client(diagnostics).for_each(|line| self.send(Event::Stderr(Text::new(&line))));
    }

    /// Reports errors of the configuration to the supervisor, for the client that has requested the reload.
    fn refuse(&mut self, diagnostics: Vec<Diagnostic>) -> StartupError {
        self.send_diagnostics(&diagnostics);
        self.send(Event::ReloadRefused);
        StartupError::BadConfiguration(diagnostics)
    }

    /// Reports a failure to the supervisor.
    fn fail(&mut self, error: io::Error) -> StartupError {
        self.send(Event::Stderr(Text::new(&format!("{}\n", failure_text(&error)))));
        StartupError::Failure(error)
    }

    fn send(&mut self, event: Event) {
        // A supervisor that has not received it learns the result from the exit status.
        let _ = self.supervisor.send(&Message::Event(event));
    }
}

impl Prepared {
    fn serve(self) -> io::Result<()> {
        let Prepared { mut state, snapshot, signals } = self;
        let socket_sets = socket_sets(&state.listeners);
        let (limits, worker_count) = (&state.config.limits, state.config.worker_count);
        log::set_queue_limit(limits.log_queue_bytes_max);
        log::start_writer()?;
        let mut options = options_of(limits);
        options.passwords.threads_max = options.passwords.threads_max.min(processor_count());
        options.http.https_port = https_port(&state.listeners);
        options.http.accepts_http2 = state.config.http2;
        options.http.http2.keeps_cookies = state.config.needs_cookies();
        options.http.http2.accepts_websockets = state.config.backends().next().is_some();
        options.statistics = statistics_options(&state.config);
        let directory_count = state.loader.as_ref().map_or(0, Loader::open_directory_count);
        if let Some(message) = fit_to_descriptor_limit(&mut options, DescriptorLimit::of_process(), directory_count) {
            log_warning(&message);
        }
        let server = Server::new(snapshot, options, Duration::from_millis(limits.drain_timeout_ms));
        request_logs::set_targets(&server, &state.config, std::mem::take(&mut state.log_targets));
        let control = |server: &Server| ControlLoop::new(server, state).run(&signals);
        server.run_and_report(&socket_sets, worker_count, control, |[supervisor, stop_client]| {
            let cut_off_count = server.status().sum(Counter::CutOff);
            if cut_off_count > 0 {
                log_warning(&format!("responses aborted after `drain_timeout`: {cut_off_count}"));
            }
            if let Some(mut supervisor) = supervisor {
                // A supervisor that does not read has counted nothing; the log has the number.
                let _ = supervisor.send(&Message::Event(Event::Drained { cut_off_count }));
                let _ = supervisor.flush_until(Instant::now() + REPORT_TIMEOUT);
            }
            if let Some(mut client) = stop_client {
                // A client that has disconnected needs no answer.
                let _ = client.send(&Message::Event(Event::Stdout(Text::new("stopped\n"))));
                let _ = client.send(&Message::Event(Event::Done { is_success: true }));
            }
            Ok(())
        })?
    }
}

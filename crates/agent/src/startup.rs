//! The start of the agent: inherit, give up privileges, open the state folder, enter the sandbox.

use crate::accounts::Accounts;
use crate::alias_targets::AliasTargets;
use crate::backend_names;
use crate::blocking;
use crate::certificates::ManagedCertificate;
use crate::derived::DerivedZones;
use crate::link::Link;
use crate::main_loop::MainLoop;
use crate::name_servers::NameServers;
use crate::order::{Orders, Progress};
use crate::order_basis::OrderBasis;
use crate::pinned_keys::PinnedKeys;
use crate::resolver_files::ResolverFiles;
use crate::resolvers::Resolvers;
use crate::tsig_keys::TsigSecrets;
use crate::zones::Zones;
use sanderling_config::diagnostic::error_text;
use sanderling_config::log::{self, log_error};
use sanderling_config::{AgentConfig, Config, ConfigSource, Exit, Zone, lookup_user};
use sanderling_ipc::handover::{self, Descriptors};
use sanderling_ipc::{CONFIGURATION_BYTES_MAX, Connection, Event, Message, Text};
use sanderling_os::sandbox::{self, Layer, SandboxConfig};
use sanderling_os::signals::{self, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, Signals};
use sanderling_os::{memfd, panics};
use sanderling_state::StateFolder;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::LocalSet;

/// Runs the agent with the inherited state, until the supervisor exits. `state` is the state folder.
pub fn run(source: &ConfigSource, state: &Path) -> Exit {
    // The process is started through `/proc/self/exe`, and would have the name `exe`.
    if let Err(error) = sanderling_os::process::set_name(c"sanderling") {
        log_error(&format!("cannot set the process name: {}", error_text(&error)));
    }
    match try_run(source, state) {
        Ok(()) => Exit::Success,
        // The supervisor has logged it.
        Err(Unable::Reported) => Exit::Failure,
        Err(Unable::Unreported(error)) => {
            log_error(&format!("the agent cannot run: {}", error_text(&error)));
            Exit::Failure
        }
    }
}

/// The reason why the agent cannot run.
enum Unable {
    /// The supervisor knows it.
    Reported,
    Unreported(io::Error),
}

impl From<io::Error> for Unable {
    fn from(error: io::Error) -> Unable {
        Unable::Unreported(error)
    }
}

fn try_run(source: &ConfigSource, state: &Path) -> Result<(), Unable> {
    // The supervisor handles signals from the terminal, which reach both processes.
    let _signals = Signals::register(&[SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2])?;
    signals::unblock_all()?;
    let Descriptors { configuration, connections, tsig_secrets, .. } = handover::from_names()?;
    let missing = || io::Error::other("only a supervisor can run this command; run `sanderling serve`");
    let connection = connections.into_iter().next().ok_or_else(missing)?;
    let mut for_failure = Connection::from_fd(connection.try_clone()?)?;
    let connection = Connection::from_fd(connection)?;
    let configuration = configuration.ok_or_else(missing)?;
    run_with(source, state, connection, &configuration, tsig_secrets).map_err(|error| {
        let reason = Text::new(&error_text(&error));
        match for_failure.send(&Message::Event(Event::AgentFailed(reason))) {
            Ok(()) => Unable::Reported,
            Err(_) => Unable::Unreported(error),
        }
    })
}

/// Runs with the inherited state.
fn run_with(
    source: &ConfigSource,
    state: &Path,
    connection: Connection,
    configuration: &OwnedFd,
    tsig_secrets: Option<OwnedFd>,
) -> io::Result<()> {
    let text = memfd::read(configuration, CONFIGURATION_BYTES_MAX)?;
    let invalid = |_| io::Error::other("the configuration has errors");
    let config = Config::from(AgentConfig::from(&source.parse(&text).map_err(invalid)?));
    // This runs before the sandbox, while the files of the system can be read.
    let timeout = Duration::from_millis(config.limits.authority_timeout_ms);
    let accounts = Accounts::new(config.acme.as_ref(), timeout);
    let basis = OrderBasis::new(&config);
    let user = lookup_user(&config)
        .map_err(|diagnostics| io::Error::other(diagnostics.first().map_or(String::new(), ToString::to_string)))?;
    sandbox::drop_privileges(user.as_ref(), sandbox::CoreDumps::Forbidden)?;
    let state = StateFolder::open(state).map_err(|error| io::Error::other(error.to_string()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let resolver_files = ResolverFiles::of_system();
    confine(&config, &resolver_files, state.path())?;
    log::set_queue_limit(config.limits.log_queue_bytes_max);
    log::start_writer()?;
    panics::end_process(panics::Scope::Process);
    blocking::start(config.limits.zone_signings_max)?;
    let interval_s = config.limits.renewal_interval_ms.div_ceil(1_000);
    let certificates = config
        .automatic_certificates()
        .map(|configured| ManagedCertificate::load(configured, interval_s, basis.of(configured), &state))
        .collect();
    let mut keys = TsigSecrets::default();
    if let Some(secrets) = tsig_secrets {
        keys.update(&config.tsig_keys, secrets)?;
    }
    let config = Rc::new(config);
    LocalSet::new().block_on(&runtime, async {
        let (state, link) = (Arc::new(state), Rc::new(Link::new(connection)?));
        let alive = Rc::clone(&link);
        tokio::task::spawn_local(async move { alive.send_heartbeats().await });
        backend_names::start(&config, &link);
        let pinned = PinnedKeys::load(Rc::clone(&config), Arc::clone(&state));
        let derived = DerivedZones::load(Rc::clone(&config), Arc::clone(&state), Rc::clone(&link));
        let zones = Zones::new(Rc::clone(&config), keys, Arc::clone(&state), Rc::clone(&link), derived.set());
        let resolvers = Rc::new(Resolvers::new(&config));
        let aliases =
            AliasTargets::new(Rc::clone(zones.alias_names()), resolvers, config.limits.clone(), derived.set());
        let orders = Orders {
            state,
            link,
            accounts,
            name_servers: NameServers::new(Rc::clone(&config)),
            config: Rc::clone(&config),
            progress: Progress::default(),
        };
        MainLoop::new(orders, certificates, zones, derived, aliases, pinned, resolver_files).run().await;
        Ok(())
    })
}

/// Restricts this process: it connects to other machines, reads and writes its folders of the state folder, and reads
/// the files of zones that it signs.
fn confine(config: &Config, resolver_files: &ResolverFiles, state: &Path) -> io::Result<()> {
    let layer = if config.sandbox { Layer::Enabled } else { Layer::Disabled };
    let zone_folders = config.zones.iter().filter(|zone| config.signed_zone(&zone.apex).is_some()).map(folder_of);
    // Each folder is opened once, and one at a time: thousands of zones may be in one folder, or each in its own.
    let zone_folders: BTreeSet<PathBuf> = zone_folders.collect();
    let resolver_files = resolver_files.opened().map(File::try_clone).collect::<io::Result<Vec<File>>>()?;
    let readable_fds = resolver_files.into_iter().chain(zone_folders.iter().filter_map(|path| File::open(path).ok()));
    let sandbox = SandboxConfig { readable_fds, landlock: layer, seccomp: layer };
    let writable: Vec<File> =
        sanderling_state::FOLDERS.iter().map(|name| File::open(state.join(name))).collect::<io::Result<_>>()?;
    let writable: Vec<BorrowedFd<'_>> = writable.iter().map(AsFd::as_fd).collect();
    sandbox::enter_as_agent(sandbox, &writable).map(drop)
}

/// A zone file's folder, which an editor may replace by another file.
fn folder_of(zone: &Zone) -> PathBuf {
    match zone.file.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

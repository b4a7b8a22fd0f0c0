//! The start of the keeper: inherit, give up privileges, enter the sandbox.

use crate::main_loop::MainLoop;
use crate::zone_keys::KeyFolder;
use sanderling_config::diagnostic::error_text;
use sanderling_config::log::{self, log_error, log_warning};
use sanderling_config::{ConfigSource, Exit, KeeperConfig, SignedZone, ZONE_KEYS, lookup_user};
use sanderling_ipc::handover::{self, Descriptors};
use sanderling_ipc::{CONFIGURATION_BYTES_MAX, Connection};
use sanderling_os::sandbox::{self, Landlock, Layer};
use sanderling_os::signals::{self, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, Signals};
use sanderling_os::{memfd, panics};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Runs the keeper with the inherited state, as long as the supervisor or a server process needs it. The keys of zones
/// are in the folder `state`, if zones are signed.
pub fn run(source: &ConfigSource, state: Option<&Path>) -> Exit {
    // The process is started through `/proc/self/exe`, and would have the name `exe`.
    if let Err(error) = sanderling_os::process::set_name(c"sanderling") {
        log_error(&format!("cannot set the process name: {}", error_text(&error)));
    }
    match try_run(source, state) {
        Ok(()) => Exit::Success,
        Err(error) => {
            log_error(&format!("the keeper cannot run: {}", error_text(&error)));
            Exit::Failure
        }
    }
}

fn try_run(source: &ConfigSource, state: Option<&Path>) -> io::Result<()> {
    // The supervisor handles signals from the terminal, which reach both processes.
    let _signals = Signals::register(&[SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2])?;
    signals::unblock_all()?;
    let Descriptors { configuration, connections, .. } = handover::from_names()?;
    let missing = || io::Error::other("only a supervisor can run this command; run `sanderling serve`");
    let supervisor = Connection::from_fd(connections.into_iter().next().ok_or_else(missing)?)?;
    let text = memfd::read(configuration.ok_or_else(missing)?, CONFIGURATION_BYTES_MAX)?;
    let config = source.parse(&text).map_err(|_| io::Error::other("the configuration has errors"))?;
    let config = KeeperConfig::from(&config);
    let user = lookup_user(&config)
        .map_err(|diagnostics| io::Error::other(diagnostics.first().map_or(String::new(), ToString::to_string)))?;
    sandbox::drop_privileges(user.as_ref(), sandbox::CoreDumps::Forbidden)?;
    let zone_keys = state.and_then(|state| {
        let folder = open_zone_keys(state).inspect_err(|error| {
            log_error(&format!("the zone keys cannot be used: {}", error_text(error)));
        });
        folder.ok()
    });
    let folder = zone_keys.as_ref().map(|(_, folder)| folder.as_fd());
    let layers = sandbox::enter_as_keeper(if config.sandbox { Layer::Enabled } else { Layer::Disabled }, folder)?;
    log::set_queue_limit(config.limits.log_queue_bytes_max);
    log::start_writer()?;
    panics::end_process(panics::Scope::Process);
    if folder.is_some() && !matches!(layers.landlock, Landlock::Enforced { .. }) {
        log_warning(&format!(
            "Landlock is {}: the server's other processes can read the zones' private keys; use Linux 5.13 \
                or later with `sandbox = true`",
            layers.landlock
        ));
    }
    let zones_with = |test: fn(&SignedZone) -> bool| {
        config.signed_zones.iter().filter(|zone| test(zone)).map(|zone| zone.apex.clone()).collect()
    };
    let folder = |(path, _)| KeyFolder {
        path,
        zones: zones_with(|_| true),
        leaving_zones: zones_with(|zone| zone.is_leaving),
        shared_zones: zones_with(|zone| !zone.signing.other_signers.is_empty()),
    };
    MainLoop::new(supervisor, zone_keys.map(folder)).run()
}

/// The folder with the keys of zones, which is created.
fn open_zone_keys(state: &Path) -> io::Result<(PathBuf, File)> {
    let path = state.join(ZONE_KEYS);
    sanderling_state::create_folder(&path)?;
    sanderling_state::remove_unfinished(&path, |_| true).map_err(|error| io::Error::other(error.to_string()))?;
    let folder = File::open(&path)?;
    Ok((path, folder))
}

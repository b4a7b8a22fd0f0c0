//! Sanderling serves a domain: its web site over HTTP and its zone over DNS.
#![forbid(unsafe_code)]

mod cli;
mod config_listing;
mod folder_zone;
mod import_command;
mod init;
mod init_files;
mod publication;
mod renewal_command;
mod state_files;
mod stored_certificate;

use cli::{Command, Invocation};
use sanderling_config::log::{self, log};
use sanderling_config::{Exit, SearchPaths};
use sanderling_ipc::client;
use sanderling_ipc::control_path::{self, RuntimeEnv};
use sanderling_os::features;
use std::time::Duration;

/// Maximum time to write the last messages before the process exits without them.
const FLUSH_MAX: Duration = Duration::from_secs(1);

fn main() -> Exit {
    let exit = run();
    log::flush(FLUSH_MAX);
    exit
}

fn run() -> Exit {
    let (search_paths, env) = (SearchPaths::from_env(), RuntimeEnv::from_env());
    let invocation = match Invocation::parse(std::env::args_os(), &search_paths, &env) {
        Ok(invocation) => invocation,
        // Prints it, and exits with 0 for help and 2 for a wrong command line.
        Err(error) => error.exit(),
    };
    let force = |variant: &String| features::force(variant).map_err(|error| format!("--force: {error}"));
    let forced = features::force_from_environment().and_then(|()| invocation.forced.iter().try_for_each(force));
    if let Err(error) = forced {
        log(&error);
        return Exit::Usage;
    }
    match invocation.command {
        Command::Demo { http, https, dns, site } => {
            sanderling_server_process::serve_demo(http, https, dns, site.as_deref())
        }
        Command::Serve { source, control, state } => {
            sanderling_supervisor::serve(&source, &invocation.forced, state, |key| {
                control_path::of_server(control.as_deref(), key, &source, &env)
            })
        }
        Command::ServerProcess { source, control, state, forced_zones } => {
            sanderling_server_process::serve(&source, control, state, &forced_zones)
        }
        Command::Agent { source, state } => sanderling_agent::run(&source, &state),
        Command::Keeper { source, state } => sanderling_keeper::run(&source, state.as_deref()),
        Command::RunOnRenew(command) => command.run(),
        Command::Check(source, options) => sanderling_server_process::check(&source, options, |config, state| {
            let of_folder = state.and_then(|state| sanderling_supervisor::state_problem(config, state));
            let of_keys = state.map(|state| sanderling_keeper::key_transfer::problems(config, state));
            let of_roots = sanderling_agent::roots_problem(config);
            of_folder.into_iter().chain(of_keys.into_iter().flatten()).chain(of_roots).collect()
        }),
        Command::Init(init) => exit_of("init", init.run()),
        Command::Config(listing) => listing.run(),
        Command::Doctor(options) => sanderling_doctor::run(&options),
        Command::Probe(options) => exit_of("probe", sanderling_probe::run(&options)),
        Command::Publish(publication) => exit_of(publication.release.command(), publication.run()),
        Command::FolderZone(change) => exit_of(change.action.name(), change.run()),
        Command::State(command) => exit_of(command.action.name(), command.run()),
        Command::Control(request) => client::run(request.command, &request.socket, request.timeout),
        Command::Top(request, options) => {
            let ask = || client::ask(request.command.clone(), &request.socket, request.timeout);
            sanderling_top::run(options, || ask().map_err(|error| error.to_string()))
        }
        Command::Import(import) => exit_of("import", import.run()),
        Command::Generate(arguments) => exit_of("generate", arguments.run(cli::definition())),
    }
}

fn exit_of(command: &str, result: Result<(), impl std::fmt::Display>) -> Exit {
    match result {
        Ok(()) => Exit::Success,
        Err(error) => {
            log(&format!("{command}: {error}"));
            Exit::Failure
        }
    }
}

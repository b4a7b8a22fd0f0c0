//! Sanderling: answers for a domain, its web site over HTTP and its zone over DNS.
#![forbid(unsafe_code)]

mod cli;

use cli::{Command, Invocation};
use sanderling_config::SearchPaths;
use sanderling_ipc::control_path::{self, Surroundings};
use sanderling_ipc::{Exit, control_client};
use sanderling_probe as probe;
use sanderling_server_process as server_process;
use sanderling_supervisor as supervisor;
use std::io::Write;

fn main() -> Exit {
    let (places, surroundings) = (SearchPaths::from_env(), Surroundings::of_process());
    let invocation = match Invocation::parse(std::env::args_os(), &places, &surroundings) {
        Ok(invocation) => invocation,
        // Prints, and ends with 0 for help and 2 for a wrong command line.
        Err(error) => error.exit(),
    };
    let forced = sanderling_os::features::force_from_environment()
        .and_then(|()| invocation.forced.iter().try_for_each(|way| sanderling_os::features::force(way)));
    if let Err(error) = forced {
        let _ = writeln!(std::io::stderr(), "sanderling: --force: {error}");
        return Exit::WrongCommandLine;
    }
    match invocation.command {
        Command::Demo { http, dns } => server_process::serve_demo(http, dns),
        Command::Serve { source, control } => supervisor::serve(&source, &invocation.forced, |key| {
            control_path::of_server(control.as_deref(), key, &source, &surroundings)
        }),
        Command::ServerProcess { source, control } => server_process::serve(&source, control),
        Command::Check(source) => server_process::check(&source),
        Command::Probe(options) => match probe::run(&options) {
            Ok(()) => Exit::Success,
            Err(error) => {
                let _ = writeln!(std::io::stderr(), "sanderling: probe: {error}");
                Exit::Failure
            }
        },
        Command::Ask(question) => control_client::ask(question.request, &question.socket, question.timeout),
        Command::Generate(paper) => match paper.run(cli::grammar()) {
            Ok(()) => Exit::Success,
            Err(error) => {
                let _ = writeln!(std::io::stderr(), "sanderling: generate: {error}");
                Exit::Failure
            }
        },
    }
}

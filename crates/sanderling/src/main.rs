//! Sanderling: answers for a domain, its web site over HTTP and its zone over DNS.
#![forbid(unsafe_code)]

mod server_process;
mod listeners;
mod zones;
mod cli;
mod probe;
mod config;
mod demo;
mod diagnostic;

use cli::{Command, Exit, Invocation};
use config::SearchPlaces;
use std::io::Write;

fn main() -> Exit {
    let invocation = match Invocation::parse(std::env::args_os(), &SearchPlaces::of_process()) {
        Ok(invocation) => invocation,
        // Prints, and ends with 0 for help and 2 for a wrong command line.
        Err(error) => error.exit(),
    };
    let forced =
        os::jobs::check_environment().and_then(|()| invocation.forced.iter().try_for_each(|way| os::jobs::force(way)));
    if let Err(error) = forced {
        let _ = writeln!(std::io::stderr(), "sanderling: --force: {error}");
        return Exit::WrongCommandLine;
    }
    match invocation.command {
        Command::Demo { http, dns } => server_process::serve_demo(http, dns),
        Command::Serve(origin) => server_process::serve(&origin),
        Command::Check(origin) => server_process::check(&origin),
        Command::Probe(options) => match probe::run(&options) {
            Ok(()) => Exit::Success,
            Err(error) => {
                let _ = writeln!(std::io::stderr(), "sanderling: probe: {error}");
                Exit::Failure
            }
        },
    }
}

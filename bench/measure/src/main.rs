//! The commands `cargo xtask compare`, `cargo xtask soak` and `cargo xtask load`.
#![forbid(unsafe_code)]

mod soak_command;
mod load_command;
mod page;
mod system;

use clap::Parser;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Command {
    Soak(soak_command::Options),
    Load(load_command::Options),
}

fn main() -> ExitCode {
    let command = Command::parse();
    let limit = getrlimit(Resource::Nofile);
    // Without the right to raise it, what lacks a file descriptor is reported as such.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let result = match command {
        Command::Soak(options) => soak_command::run(&options),
        Command::Load(options) => load_command::run(&options),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

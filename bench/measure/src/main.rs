//! The commands `cargo xtask compare`, `soak`, `torture`, `floods` and `logins`.
#![forbid(unsafe_code)]

mod compare;
mod soak_command;
mod torture_command;
mod floods_command;
mod logins_command;
mod page;
mod system;

use clap::Parser;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask")]
enum Command {
    Compare(compare::Options),
    Soak(soak_command::Options),
    Torture(torture_command::Options),
    Floods(floods_command::Options),
    Logins(logins_command::Options),
    /// The load of `compare` for handshakes
    #[command(hide = true)]
    Handshakes(compare::Handshakes),
}

fn main() -> ExitCode {
    let command = Command::parse();
    let limit = getrlimit(Resource::Nofile);
    // Without the right to raise the limit, a lack of file descriptors is reported as such.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let result = match command {
        Command::Compare(options) => compare::run(&options),
        Command::Soak(options) => soak_command::run(&options),
        Command::Handshakes(options) => options.run(),
        Command::Torture(options) => torture_command::run(&options),
        Command::Floods(options) => floods_command::run(&options),
        Command::Logins(options) => logins_command::run(&options),
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

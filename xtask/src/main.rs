//! Runs the chores of the project; `cargo xtask` lists them.
#![forbid(unsafe_code)]

mod ci;
mod bench;
mod guard;
mod compare;
mod forward;
mod setup;
mod tidy;
mod callgrind;
mod program;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit status of a chore that ran and found something wrong.
const EXIT_FAILED: u8 = 1;
/// Exit status of a command line that names no chore.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    if let Err(error) = env::set_current_dir(root()) {
        eprintln!("xtask: the root of the project cannot be entered: {error}");
        return ExitCode::from(EXIT_FAILED);
    }
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (chore, rest) = match arguments.split_first() {
        Some((chore, rest)) => (chore.as_str(), rest),
        None => ("help", &[][..]),
    };
    let passed = match chore {
        "ci" => match ci::select(rest) {
            Ok(steps) => ci::run(&steps),
            Err(name) => return usage(&format!("ci has no step `{name}`")),
        },
        "test" => ci::test(rest),
        "compare" => match compare::Options::parse(rest) {
            Ok(options) => compare::run(&options),
            Err(problem) => return usage(&problem),
        },
        "soak" | "load" => forward::run(&arguments),
        "bench" => match bench::Options::parse(rest) {
            Ok(options) => bench::run(&options),
            Err(problem) => return usage(&problem),
        },
        "guard" => match guard::parse(rest) {
            Ok(purpose) => guard::run(purpose),
            Err(problem) => return usage(&problem),
        },
        "setup" if rest.is_empty() => setup::run(),
        "tidy" if rest.is_empty() => tidy::run(),
        "help" | "--help" | "-h" => {
            print!("{}", help());
            true
        }
        _ => return usage(&format!("`{}` is no chore", arguments.join(" "))),
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::from(EXIT_FAILED) }
}

/// The folder above this package; cargo tells it at run time, so that a moved checkout needs no rebuild.
fn root() -> PathBuf {
    match env::var_os("CARGO_MANIFEST_DIR") {
        Some(package) => PathBuf::from(package).join(".."),
        None => PathBuf::from("."),
    }
}

fn usage(problem: &str) -> ExitCode {
    eprintln!("xtask: {problem}\n\n{}", help());
    ExitCode::from(EXIT_USAGE)
}

fn help() -> String {
    let mut text = String::from(
        "The chores of the project:

  cargo xtask ci [STEP]...     all that a change must pass, or only the steps named
  cargo xtask test [--fallbacks] [ARG]...
                               the tests, or those of the kernel's side once more with every way round a
                               missing feature forced; the rest of the line goes to `cargo test`
  cargo xtask compare [--quick] [--only http|dns|growth|load]... [--rounds N]
                               what a request costs here and elsewhere; installs the peers (Debian packages) and
                               writes docs/performance, or with --quick in two minutes a summary
  cargo xtask soak [--short] [--only SCENARIO]... [--program FILE]
                               reloads, upgrades and crashes under load, and the requests that are lost
  cargo xtask load [OPTION]... a steady load on any web and DNS server, and what happens to every request
  cargo xtask guard [--update] the instructions of a request against those of the snapshot, which it keeps or writes
  cargo xtask bench [--quick] [FILTER]
                               the ways of each descriptor job: time by divan, instructions by callgrind, calls
  cargo xtask tidy             the rules of the tree that no compiler checks
  cargo xtask setup            install what the tests drive (Debian packages), where it is missing

The steps of ci, in their order:

",
    );
    for step in ci::STEPS {
        text += &format!("  {:<9} {}\n", step.name, step.purpose);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_every_step() {
        let help = help();
        for step in ci::STEPS {
            assert!(help.contains(&format!("  {} ", step.name)), "{} is missing in\n{help}", step.name);
        }
    }
}

//! Runs the chores of the project; `cargo xtask` lists them.
#![forbid(unsafe_code)]

mod ci;
mod guard;
mod package;
mod demo_acme;
mod tls_audit;
mod h2spec;
mod manual;
mod setup;
mod tidy;
mod test_programs;
mod program;

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

use program::{Log, Outcome, Program};

const HELP: &str = "\
Usage: cargo xtask COMMAND

  ci [STEP]...               everything that a change must pass, or only these steps
  test [--fallbacks] [ARG]...
                             the tests, or those of system calls with each fallback forced; more arguments are those of
                             `cargo test`
  tidy                       the rules that no compiler checks
  guard [--update]           compare the instructions per request with the snapshot, or write the snapshot
  bench [ARG]...             measure the variants of each kernel feature; the arguments are those of `sanderling probe`
  compare [--quick] [ARG]... compare the cost per request with other servers, which it installs (Debian packages)
  soak [--short] [ARG]...    count the requests lost in reloads, upgrades and crashes
  torture [ARG]...           fail system calls one by one in reloads, upgrades and crashes, and check the server after each
  floods [ARG]...            flood the server with frames of HTTP/2 over TLS, and measure the waiting times of other clients
  logins [ARG]...            guess passwords, more than the server can check, and count the users that can log in meanwhile
  demo-acme                  a demo that requests its certificate from Pebble, a certificate authority on this machine
  tls-audit                  testssl.sh and sslyze, which it installs, against the release program
  h2spec                     run h2spec over TLS and without encryption, if it is installed
  manual --out DIR           write the manual as a web site with a search into DIR, and check its links; needs mdbook
  dns-differential [--zones COUNT] [--seed NUMBER]
                             compare replies from generated zones with those of NSD, Knot and BIND; default: 300 zones, seed 1
  http-differential          compare responses with those of nginx, and list the explained differences
  fuzz TARGET [ARG]...       run a fuzz target; needs nightly Rust and cargo-fuzz
  package --out FOLDER       make the packages of a release: tarball, Debian, RPM, image, list of components, checksums
  package --crates           install the program by `cargo install` from the packages of its crates
  package --verify           build the packages of the last commit twice, and compare them
  setup                      install the programs that the tests use (Debian packages)

The steps of ci:

";

fn main() -> ExitCode {
    // Cargo sets the variable at run time, so that a moved checkout needs no rebuild.
    let root = env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| PathBuf::from("."), |it| PathBuf::from(it).join(".."));
    if let Err(error) = env::set_current_dir(&root) {
        eprintln!("xtask: cannot enter {}: {error}", root.display());
        return ExitCode::FAILURE;
    }
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut log = Log::default();
    let outcome = match words[..] {
        ["ci", ..] => ci::run(&arguments[1..]),
        ["test", ..] => ci::test(&arguments[1..], &mut log),
        ["tidy"] => tidy::run(&mut log),
        ["guard"] => guard::compare(&mut log),
        ["guard", "--update"] => guard::update(&mut log),
        ["bench", ..] => probe(&arguments[1..], &mut log),
        ["compare", ..] => setup::install(setup::PEERS, &mut log).and_then(|| measure(&arguments, &mut log)),
        ["soak" | "torture" | "floods" | "logins", ..] => measure(&arguments, &mut log),
        ["demo-acme"] => demo_acme::run(&mut log),
        ["tls-audit"] => tls_audit::run(&mut log),
        ["dns-differential"] => dns_differential("300", "1", &mut log),
        ["dns-differential", "--zones", zones] => dns_differential(zones, "1", &mut log),
        ["dns-differential", "--seed", seed] => dns_differential("300", seed, &mut log),
        ["dns-differential", "--zones", zones, "--seed", seed] => dns_differential(zones, seed, &mut log),
        ["http-differential"] => http_differential(&mut log),
        ["fuzz", ..] => fuzz(&arguments[1..], &mut log),
        ["h2spec"] => h2spec::run(&mut log),
        ["manual", "--out", out] => manual::run(out, &mut log),
        ["package", "--out", folder] => package::run(folder, &mut log),
        ["package", "--crates"] => package::install_crates(&mut log),
        ["package", "--verify"] => package::verify(&mut log),
        ["setup"] => setup::run(&mut log),
        _ => {
            let is_help = matches!(words[..], [] | ["help" | "--help" | "-h"]);
            print!("{HELP}{}", ci::list());
            return if is_help { ExitCode::SUCCESS } else { ExitCode::from(2) };
        }
    };
    match outcome {
        Outcome::Passed => ExitCode::SUCCESS,
        Outcome::Skipped(reason) => {
            println!("skipped: {reason}");
            ExitCode::SUCCESS
        }
        Outcome::Failed(reason) => {
            eprintln!("xtask: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// The measurements of kernel features are a command of the program.
fn probe(arguments: &[String], log: &mut Log) -> Outcome {
    Program::cargo().args("run --quiet --release --package sanderling -- probe").args_of(arguments).run(log)
}

/// Commands of the program that measures the server.
fn measure(arguments: &[String], log: &mut Log) -> Outcome {
    let cargo = Program::cargo().args("run --quiet --release --package measure --");
    cargo.args_of(arguments).run(log)
}

/// The test that compares replies, with more zones than by default.
fn dns_differential(zones: &str, seed: &str, log: &mut Log) -> Outcome {
    let test = Program::cargo().args("test --release --package sanderling-dns --test differential -- --nocapture");
    test.env("SANDERLING_DIFFERENTIAL_ZONES", zones).env("SANDERLING_DIFFERENTIAL_SEED", seed).run(log)
}

/// The test prints how many differences each rule explains.
fn http_differential(log: &mut Log) -> Outcome {
    Program::cargo().args("test --package sanderling --test it -- http_differential --nocapture").run(log)
}

fn fuzz(arguments: &[String], log: &mut Log) -> Outcome {
    Program::new("cargo").args("+nightly fuzz run --fuzz-dir fuzz").args_of(arguments).run(log)
}

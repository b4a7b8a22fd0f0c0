//! The system on which a measurement is made, and the programs of the project.

use anyhow::{Context, ensure};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// The folder into which cargo builds.
pub(crate) fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Builds a program of the project and returns its path.
pub(crate) fn build(package: &str) -> anyhow::Result<PathBuf> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--release", "--package", package]).current_dir(root());
    cargo.arg("--target-dir").arg(target());
    ensure!(cargo.status().context("cargo")?.success(), "{package} cannot be built");
    Ok(target().join("release").join(package).canonicalize()?)
}

/// The server program: the chosen program, or else the program built from the sources.
pub(crate) fn server_program(chosen: Option<&Path>) -> anyhow::Result<PathBuf> {
    match chosen {
        Some(program) => Ok(program.canonicalize()?),
        None => build("sanderling"),
    }
}

/// A program's standard output; empty if it fails.
pub(crate) fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(root()).stderr(Stdio::null()).output();
    output.map_or_else(|_| String::new(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Lines for the head of a report: the command, the revision, the machine and the kernel.
pub(crate) fn description() -> Vec<String> {
    let command: Vec<String> = env::args().skip(1).collect();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let cpu_count = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let changes = output_of("git", &["status", "--porcelain", "crates"]);
    vec![
        format!("`cargo xtask {}`", command.join(" ")),
        format!(
            "Sanderling {}{}, {cpu_count} × {}, Linux {}, load average before {}",
            output_of("git", &["rev-parse", "--short", "HEAD"]),
            if changes.is_empty() { "" } else { " with changes" },
            model.trim_start_matches([' ', '\t', ':']),
            read("/proc/sys/kernel/osrelease").trim(),
            load_average(),
        ),
    ]
}

pub(crate) fn load_average() -> String {
    read("/proc/loadavg").split(' ').next().unwrap_or_default().to_owned()
}

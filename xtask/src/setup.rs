//! Turns a bare Debian machine into one that can run every test.

use std::fs;

use crate::program::{Outcome, Program, is_installed};

/// A program that the tests drive, the Debian package that brings it, and what it is for.
struct Needed {
    program: &'static str,
    package: &'static str,
    purpose: &'static str,
}

const NEEDED: &[Needed] = &[
    Needed { program: "curl", package: "curl", purpose: "asks for pages" },
    Needed { program: "wget", package: "wget", purpose: "asks for pages another way" },
    Needed { program: "dig", package: "bind9-dnsutils", purpose: "asks for records" },
    Needed { program: "kdig", package: "knot-dnsutils", purpose: "asks for records another way" },
    Needed { program: "named-checkzone", package: "bind9-utils", purpose: "reads zone files as a second opinion" },
    Needed { program: "strace", package: "strace", purpose: "counts system calls as a second opinion" },
    Needed { program: "groff", package: "groff-base", purpose: "sets the manual pages" },
    Needed { program: "valgrind", package: "valgrind", purpose: "counts instructions" },
];

/// Cargo's commands, and the components of rustup that bring them; a minimal installation leaves them out.
const COMPONENTS: &[(&str, &str)] = &[("fmt", "rustfmt"), ("clippy", "clippy")];

/// Installs what is missing and says what it does. Whether everything is there at the end.
pub(crate) fn run() -> bool {
    let components = missing_components();
    let missing = missing();
    if missing.is_empty() && components.is_empty() {
        println!("everything that the tests drive is installed");
        return true;
    }
    let mut complete = true;
    if !components.is_empty() {
        complete &= add_components(&components);
    }
    if !missing.is_empty() {
        for needed in &missing {
            println!("`{}` is missing ({}); the package {} has it", needed.program, needed.purpose, needed.package);
        }
        complete &= install(&missing);
    }
    complete
}

fn missing() -> Vec<&'static Needed> {
    NEEDED.iter().filter(|needed| !is_installed(needed.program)).collect()
}

/// The commands are really run: rustup puts a file of each name into PATH, installed or not.
fn missing_components() -> Vec<&'static str> {
    let is_missing = |command: &str| Program::cargo().args(command).args("--version").output().is_none();
    COMPONENTS.iter().filter(|(command, _)| is_missing(command)).map(|(_, component)| *component).collect()
}

fn add_components(components: &[&str]) -> bool {
    let names = components.join(" ");
    if !is_installed("rustup") {
        eprintln!("setup: the toolchain lacks {names}, and there is no rustup to add them; install them by hand");
        return false;
    }
    report(Program::new("rustup").args("component add").args(&names).run())
}

/// Installs the packages of `needed` by apt-get, then looks whether the programs came.
fn install(needed: &[&Needed]) -> bool {
    let packages = needed.iter().map(|needed| needed.package).collect::<Vec<_>>().join(" ");
    if !is_installed("apt-get") {
        eprintln!("setup: this system has no apt-get. {}", by_hand(needed));
        return false;
    }
    let Some(privilege) = privilege() else {
        eprintln!("setup: installing needs root or sudo. As root: apt-get install {packages}");
        return false;
    };
    // An image fresh from its maker has no package lists; elsewhere a list may be older than the mirror, in which
    // case the first attempt fails and a fresh list mends it.
    let had_lists = has_package_lists();
    if !had_lists && !report(apt_get(privilege, "update")) {
        return false;
    }
    let arguments = format!("install --yes --no-install-recommends {packages}");
    let mut outcome = apt_get(privilege, &arguments);
    if outcome != Outcome::Passed && had_lists {
        outcome = match apt_get(privilege, "update") {
            Outcome::Passed => apt_get(privilege, &arguments),
            failed => failed,
        };
    }
    if !report(outcome) {
        return false;
    }
    let still: Vec<&str> = missing().iter().map(|needed| needed.program).collect();
    if !still.is_empty() {
        eprintln!("setup: the packages are installed, but not in PATH: {}", still.join(", "));
    }
    still.is_empty()
}

/// By what right packages are installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Privilege {
    Root,
    Sudo,
}

fn privilege() -> Option<Privilege> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    match effective_user_id(&status) {
        Some(0) => Some(Privilege::Root),
        _ if is_installed("sudo") => Some(Privilege::Sudo),
        _ => None,
    }
}

/// The second number of the line `Uid:` (proc_pid_status(5)).
fn effective_user_id(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn apt_get(privilege: Privilege, arguments: &str) -> Outcome {
    let program = match privilege {
        Privilege::Root => Program::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive"),
        Privilege::Sudo => Program::new("sudo").args("DEBIAN_FRONTEND=noninteractive apt-get").interactive(),
    };
    program.args("-q").args(arguments).run()
}

fn has_package_lists() -> bool {
    let Ok(lists) = fs::read_dir("/var/lib/apt/lists") else { return false };
    lists.flatten().any(|list| list.file_name().to_string_lossy().contains("_Packages"))
}

fn by_hand(needed: &[&Needed]) -> String {
    let mut text = String::from("Install these programs by its own means:");
    for needed in needed {
        text += &format!("\n  {:<16} (in Debian's package {})", needed.program, needed.package);
    }
    text
}

fn report(outcome: Outcome) -> bool {
    match outcome {
        Outcome::Passed => true,
        Outcome::Skipped(reason) | Outcome::Failed(reason) => {
            eprintln!("setup: {reason}");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effective_user_is_the_second_number() {
        let status = "Name:\tcargo\nUmask:\t0022\nUid:\t1000\t0\t0\t0\nGid:\t1000\t1000\t1000\t1000\n";
        assert_eq!(effective_user_id(status), Some(0));
        assert_eq!(effective_user_id("Name:\tcargo\n"), None);
    }

    #[test]
    fn other_systems_are_told_the_programs_by_name() {
        let text = by_hand(&[&NEEDED[2]]);
        assert_eq!(
            text,
            "Install these programs by its own means:\n  dig              (in Debian's package bind9-dnsutils)"
        );
    }
}

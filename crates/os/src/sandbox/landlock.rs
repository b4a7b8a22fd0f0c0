//! Keeps this process from every file but those it may read, as far as the kernel's Landlock goes (landlock(7)).
//!
//! What may be read is all that is left. Writing, making, removing, renaming, executing, devices' ioctls; binding and
//! connecting TCP sockets; signals and abstract Unix sockets of processes outside: all of that is denied, each from the
//! version of Landlock on that knows it. What is open already stays usable.

use crate::error::with_context;
use ::landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, PathBeneath, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::fs::{FileType, fstat};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The newest version that was looked at. Of what it knows, the kernel's own version decides what is denied.
const NEWEST: ABI = ABI::V9;

/// How far files are out of reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landlock {
    /// In force, in this version (the "ABI").
    Enforced {
        /// From 1 on. Versions below 3 let files be truncated that can be written otherwise; below 4 know no network,
        /// below 6 no signals.
        version: u32,
    },
    /// The kernel was built with it and started without it (`lsm=` on its command line).
    NotEnabled,
    /// The kernel was built without it, or a filter above this process keeps it from asking.
    NotSupported,
    /// It was not wanted.
    Disabled,
}

/// In words, for the operator.
impl fmt::Display for Landlock {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Landlock::Enforced { version } => write!(out, "in force, version {version}"),
            Landlock::NotEnabled => out.write_str("not there: the kernel was started without it (lsm=landlock,…)"),
            Landlock::NotSupported => out.write_str("not there: the kernel has none (Linux 5.13), or hides it"),
            Landlock::Disabled => out.write_str("off, as configured"),
        }
    }
}

/// Denies everything but to read `readable`: files, and folders with all beneath them.
pub(super) fn restrict_to<'d>(readable: impl Iterator<Item = BorrowedFd<'d>>) -> io::Result<Landlock> {
    let rules = rules_for(NEWEST).map_err(|error| not_made(&error))?;
    let rules = allow_reading(rules, readable)?;
    let result = rules.restrict_self().map_err(|error| not_made(&error))?;
    match result.landlock {
        LandlockStatus::NotEnabled => Ok(Landlock::NotEnabled),
        LandlockStatus::NotImplemented => Ok(Landlock::NotSupported),
        LandlockStatus::Available { .. } if result.ruleset == RulesetStatus::NotEnforced => {
            Err(io::Error::other("Landlock is there, but did not take up any of the rules"))
        }
        LandlockStatus::Available { effective_abi, .. } => Ok(Landlock::Enforced { version: effective_abi as u32 }),
    }
}

fn rules_for(abi: ABI) -> Result<RulesetCreated, RulesetError> {
    Ruleset::default()
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .scope(Scope::from_all(abi))?
        .create()
}

fn allow_reading<'d>(
    mut rules: RulesetCreated,
    readable: impl Iterator<Item = BorrowedFd<'d>>,
) -> io::Result<RulesetCreated> {
    for descriptor in readable {
        // A rule for a file must not name a right that only folders know.
        let stat = fstat(descriptor).map_err(|errno| with_context("fstat", descriptor.as_raw_fd(), &errno.into()))?;
        let rights: BitFlags<AccessFs> = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => AccessFs::ReadFile | AccessFs::ReadDir,
            _ => AccessFs::ReadFile.into(),
        };
        rules = rules.add_rule(PathBeneath::new(descriptor, rights)).map_err(|error| not_made(&error))?;
    }
    Ok(rules)
}

fn not_made(error: &RulesetError) -> io::Error {
    io::Error::other(format!("Landlock cannot be put in force: {error}"))
}

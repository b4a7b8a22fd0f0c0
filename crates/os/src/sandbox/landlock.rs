//! Restricts this process to reading the given files and directories (landlock(7)).
//!
//! Denied, where the kernel's version of Landlock supports it: writing, creating, removing, renaming and executing
//! files, ioctls of devices, binding TCP sockets, connecting them to other ports than the given ones, and signals and
//! abstract Unix sockets of processes outside. Open descriptors stay usable.

use crate::error::with_context;
use ::landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, NetPort, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::fs::{FileType, fstat};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// The newest version used; on an older kernel the rights that it does not know are not denied.
const NEWEST_ABI: ABI = ABI::V9;

/// The state of Landlock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landlock {
    /// Enforced, in this version (ABI).
    Enforced {
        /// The ABI version, from 1 on. Version 3 adds truncation, 4 the network, 6 signals.
        version: u32,
    },
    /// The kernel was started without it (`lsm=` on its command line).
    NotEnabled,
    /// The kernel was built without it, or a filter of a parent process hides it.
    NotSupported,
    /// Disabled in the configuration.
    Disabled,
}

impl Landlock {
    /// Whether connections to other TCP ports than the given ones are denied.
    pub fn restricts_ports(self) -> bool {
        matches!(self, Landlock::Enforced { version } if version >= ABI::V4 as u32)
    }
}

impl fmt::Display for Landlock {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Landlock::Enforced { version } => write!(out, "enforced, version {version}"),
            Landlock::NotEnabled => out.write_str("unavailable: the kernel was booted without it (lsm=landlock,…)"),
            Landlock::NotSupported => {
                out.write_str("unavailable: the kernel does not have it (Linux 5.13), or a filter hides it")
            }
            Landlock::Disabled => out.write_str("disabled"),
        }
    }
}

/// Allows nothing but reading `readable`, files, and directories with all that is beneath them, and connecting to
/// `connect_ports`.
pub(super) fn restrict_to(readable: impl IntoIterator<Item: AsFd>, connect_ports: &[u16]) -> io::Result<Landlock> {
    let mut rules = rules_for(NEWEST_ABI, AccessNet::from_all(NEWEST_ABI)).map_err(|error| landlock_error(&error))?;
    for port in connect_ports {
        let rule = NetPort::new(*port, AccessNet::ConnectTcp);
        rules = rules.add_rule(rule).map_err(|error| landlock_error(&error))?;
    }
    restrict(allow_reading(rules, readable)?)
}

/// Restricts the agent as above, but allows writing beneath the directories `writable`, and connecting.
pub(super) fn restrict_agent_to(
    readable: impl IntoIterator<Item: AsFd>,
    writable: &[BorrowedFd<'_>],
) -> io::Result<Landlock> {
    let rules = rules_for(NEWEST_ABI, AccessNet::BindTcp.into()).map_err(|error| landlock_error(&error))?;
    let mut rules = allow_reading(rules, readable)?;
    for directory in writable {
        let rights = writing() | AccessFs::MakeSym;
        rules = rules.add_rule(PathBeneath::new(directory, rights)).map_err(|error| landlock_error(&error))?;
    }
    restrict(rules)
}

/// Allows only reading and writing beneath the directory `keys`.
pub(super) fn restrict_keeper_to(keys: BorrowedFd<'_>) -> io::Result<Landlock> {
    let rules = rules_for(NEWEST_ABI, AccessNet::from_all(NEWEST_ABI)).map_err(|error| landlock_error(&error))?;
    restrict(rules.add_rule(PathBeneath::new(keys, writing())).map_err(|error| landlock_error(&error))?)
}

/// Reading and writing files and directories.
fn writing() -> BitFlags<AccessFs> {
    AccessFs::ReadFile
        | AccessFs::ReadDir
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeDir
        | AccessFs::RemoveFile
        | AccessFs::RemoveDir
}

fn restrict(rules: RulesetCreated) -> io::Result<Landlock> {
    let result = rules.restrict_self().map_err(|error| landlock_error(&error))?;
    match result.landlock {
        LandlockStatus::NotEnabled => Ok(Landlock::NotEnabled),
        LandlockStatus::NotImplemented => Ok(Landlock::NotSupported),
        LandlockStatus::Available { .. } if result.ruleset == RulesetStatus::NotEnforced => {
            Err(io::Error::other("Landlock enforces none of the rules"))
        }
        LandlockStatus::Available { effective_abi, .. } => Ok(Landlock::Enforced { version: effective_abi as u32 }),
    }
}

fn rules_for(abi: ABI, network: BitFlags<AccessNet>) -> Result<RulesetCreated, RulesetError> {
    Ruleset::default()
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(network)?
        .scope(Scope::from_all(abi))?
        .create()
}

fn allow_reading(mut rules: RulesetCreated, readable: impl IntoIterator<Item: AsFd>) -> io::Result<RulesetCreated> {
    for opened in readable {
        let descriptor = opened.as_fd();
        // A rule for a file must not have a right that only directories have.
        let stat = fstat(descriptor).map_err(|errno| with_context("fstat", descriptor.as_raw_fd(), &errno.into()))?;
        let rights: BitFlags<AccessFs> = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => AccessFs::ReadFile | AccessFs::ReadDir,
            _ => AccessFs::ReadFile.into(),
        };
        rules = rules.add_rule(PathBeneath::new(descriptor, rights)).map_err(|error| landlock_error(&error))?;
    }
    Ok(rules)
}

fn landlock_error(error: &RulesetError) -> io::Error {
    io::Error::other(format!("Landlock failed: {error}"))
}

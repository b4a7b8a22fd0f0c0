//! Restricts this process to the system calls of a server (seccomp(2)).
//!
//! Three filters, of which the strictest result applies. A call that only an attacker makes kills the process. Any
//! other call that is not on the list fails with EPERM, an error that a library can handle. `clone3` fails with ENOSYS,
//! since its flags are in memory, where a filter cannot see them; the C library then creates threads by `clone`.
//!
//! The kernel runs no filter for calls that are allowed with any arguments (Linux 5.11), as are all calls of a request.

mod syscalls;

use ::seccompiler::{BpfProgram, SeccompAction, SeccompFilter, SeccompRule, apply_filter};
use rustix::thread::{SecureComputingMode, secure_computing_mode};
use std::collections::BTreeMap;
use std::fmt;
use std::io;

/// The state of the filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seccomp {
    /// Enforced.
    Enforced,
    /// The kernel does not have it, or a filter of a parent process hides it.
    NotSupported,
    /// Disabled in the configuration.
    Disabled,
}

impl fmt::Display for Seccomp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Seccomp::Enforced => "enforced",
            Seccomp::NotSupported => "unavailable: the kernel does not have it (Linux 4.14), or a filter hides it",
            Seccomp::Disabled => "disabled",
        })
    }
}

/// Installs the filters of a server process for this thread and the threads it creates. `connects`: it connects to
/// applications.
pub(super) fn install(connects: bool) -> io::Result<Seccomp> {
    install_allowing(if connects { syscalls::allowed_with_connections() } else { syscalls::allowed() })
}

/// Installs the agent's filters.
pub(super) fn install_for_agent() -> io::Result<Seccomp> {
    install_allowing(syscalls::allowed_to_agent())
}

/// Installs the keeper's filters. `has_files`: the keeper has keys in files.
pub(super) fn install_for_keeper(has_files: bool) -> io::Result<Seccomp> {
    install_allowing(syscalls::allowed_to_keeper(has_files))
}

fn install_allowing(allowed: Rules) -> io::Result<Seccomp> {
    if !is_supported() {
        return Ok(Seccomp::NotSupported);
    }
    let mut programs = Vec::new();
    for (rules, otherwise, then) in [
        (syscalls::killing(), SeccompAction::Allow, SeccompAction::KillProcess),
        (syscalls::hidden(), SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32)),
        // The last, since it does not allow the call that installs a filter.
        (allowed, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow),
    ] {
        programs.push(compile(rules, otherwise, then)?);
    }
    for program in &programs {
        apply(program)?;
    }
    Ok(Seccomp::Enforced)
}

/// Denies the calls that no supervisor makes, unless a filter already applies.
pub(super) fn deny_to_supervisor() -> io::Result<()> {
    if !matches!(secure_computing_mode(), Ok(SecureComputingMode::Disabled)) || !is_supported() {
        return Ok(());
    }
    let denied =
        compile(syscalls::denied_to_supervisor(), SeccompAction::Allow, SeccompAction::Errno(libc::EPERM as u32))?;
    apply(&denied)
}

fn apply(program: &BpfProgram) -> io::Result<()> {
    apply_filter(program).map_err(|error| io::Error::other(format!("seccomp failed: {error}")))
}

/// System calls by number, each with the conditions under which the filter matches; without any it always does.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn compile(rules: Rules, otherwise: SeccompAction, then: SeccompAction) -> io::Result<BpfProgram> {
    let architecture = std::env::consts::ARCH.try_into();
    let program = architecture
        .and_then(|architecture| SeccompFilter::new(rules, otherwise, then, architecture))
        .and_then(BpfProgram::try_from);
    program.map_err(|error| io::Error::other(format!("cannot compile a seccomp filter: {error}")))
}

/// Whether the kernel has `SECCOMP_RET_KILL_PROCESS`; such a kernel has all other features used here.
fn is_supported() -> bool {
    let action = libc::SECCOMP_RET_KILL_PROCESS;
    // SAFETY: the kernel only reads the action.
    unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action) == 0 }
}

//! Keeps this process from every system call that no server makes (seccomp(2)).
//!
//! Three filters, of which the strictest answer counts. A call that only an intruder makes ends the process. A call that
//! was not foreseen fails with EPERM: a library that tries one gets an error that it can deal with, where the end of the
//! process would be the end of the service. And `clone3`, whose flags lie in memory where no filter sees them, is
//! answered as if the kernel had none (ENOSYS), so that the C library makes its threads by `clone`.
//!
//! What it costs: the kernel knows beforehand which calls a filter allows whatever their arguments (Linux 5.11), and
//! runs no filter for these. All calls of a request are among them.

mod calls;

use ::seccompiler::{BpfProgram, SeccompAction, SeccompFilter, SeccompRule, apply_filter};
use std::collections::BTreeMap;
use std::fmt;
use std::io;

/// Whether calls are filtered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seccomp {
    /// They are.
    Enforced,
    /// The kernel cannot, or a filter above this process keeps it from asking.
    NotSupported,
    /// It was not wanted.
    Disabled,
}

/// In words, for the operator.
impl fmt::Display for Seccomp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Seccomp::Enforced => "in force",
            Seccomp::NotSupported => {
                "not there: the kernel has no filters that end a process (Linux 4.14), or hides them"
            }
            Seccomp::Disabled => "off, as configured",
        })
    }
}

/// Puts the filters in force for this thread, and for those that it makes.
pub(super) fn install() -> io::Result<Seccomp> {
    if !is_there() {
        return Ok(Seccomp::NotSupported);
    }
    let mut programs = Vec::new();
    for (rules, otherwise, then) in [
        (calls::ending(), SeccompAction::Allow, SeccompAction::KillProcess),
        (calls::hidden(), SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32)),
        // The last: it does not allow the call that puts a filter in force.
        (calls::allowed(), SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow),
    ] {
        programs.push(compile(rules, otherwise, then)?);
    }
    for program in &programs {
        apply_filter(program).map_err(|error| io::Error::other(format!("seccomp failed: {error}")))?;
    }
    Ok(Seccomp::Enforced)
}

/// Calls by their numbers, each with the conditions under which the filter takes it; with none it always does.
type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn compile(rules: Rules, otherwise: SeccompAction, then: SeccompAction) -> io::Result<BpfProgram> {
    let architecture = std::env::consts::ARCH.try_into();
    let program = architecture
        .and_then(|architecture| SeccompFilter::new(rules, otherwise, then, architecture))
        .and_then(BpfProgram::try_from);
    program.map_err(|error| io::Error::other(format!("a filter of system calls cannot be made: {error}")))
}

/// Asks whether a filter may end a process; whoever can do that can do the rest.
fn is_there() -> bool {
    let action = libc::SECCOMP_RET_KILL_PROCESS;
    // SAFETY: the call only reads the action that it is pointed to.
    unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action) == 0 }
}

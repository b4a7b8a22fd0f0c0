//! Restricts this process to serving: another user without capabilities, which reads the given files and makes the
//! system calls of a server.
//!
//! Five independent layers: user, capabilities, `no_new_privs`, readable files (Landlock), system calls (seccomp). No
//! layer can be removed again.

mod capabilities;
mod landlock;
mod seccomp;

use crate::error::with_context;
use crate::user::{User, thread_count};
use rustix::process::DumpableBehavior;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

pub use landlock::Landlock;
pub use seccomp::Seccomp;

/// Whether to use a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layer {
    /// As far as the kernel supports it.
    #[default]
    Enabled,
    /// Not at all, for diagnosis.
    Disabled,
}

/// The access left to this process.
#[derive(Debug, Default)]
pub struct SandboxConfig<R> {
    /// Readable files, and directories with everything beneath them that the user may read. A file that is replaced
    /// later is a new file and not readable; open its directory instead. Each descriptor is used once, and may be
    /// opened on demand: thousands need not be open at the same time.
    pub readable_fds: R,
    /// Whether to deny access to all other files.
    pub landlock: Layer,
    /// Whether to deny all calls that no server makes.
    pub seccomp: Layer,
}

/// Whether the kernel makes core dumps of a process, and other processes of its user may read its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoreDumps {
    /// There are no secrets in the memory.
    Allowed,
    /// The process has or will have a private key, or a secret from a file.
    Forbidden,
}

/// Gives up all capabilities, and the user unless it is `None`, for the rest of this process's life. Must be called
/// before the process reads any input that is not the operator's.
///
/// # Errors
/// Returns an error after which the process must exit: it may have more rights than it should.
///
/// # Panics
/// Panics if another thread runs, which would keep its rights.
pub fn drop_privileges(user: Option<&User>, core_dumps: CoreDumps) -> io::Result<()> {
    assert_eq!(thread_count()?, 1, "privileges are dropped before any other thread runs");
    // This precedes the switch of the user, which removes the required capability.
    capabilities::empty_bounding_set()?;
    if let Some(user) = user {
        user.switch()?;
    }
    capabilities::drop_all()?;
    set_no_new_privs()?;
    match core_dumps {
        CoreDumps::Allowed => allow_core_dumps(),
        CoreDumps::Forbidden => forbid_core_dumps(),
    }
}

/// Forbids core dumps, and other processes of the same user to read the memory and the descriptors of this one
/// (prctl(2)). Call this before this process reads a private key or another secret of the operator.
pub fn forbid_core_dumps() -> io::Result<()> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|errno| with_context("prctl", "PR_SET_DUMPABLE", &errno.into()))
}

/// Removes the privileges that no supervisor needs from a process that runs as root, and from its children: most
/// capabilities, and system calls such as mount(2), ptrace(2) and bpf(2). A process of another user has no such
/// privileges, and is not changed.
///
/// Later versions of the program inherit both, so only privileges that no version needs may be removed. No filter is
/// added to an existing system call filter, which may come from the service manager, a container or the previous
/// version.
///
/// # Errors
/// Returns an error if the process has more rights than it needs, as any process of root. The process can continue.
///
/// # Panics
/// Panics if another thread runs, which would keep its rights.
pub fn confine_supervisor() -> io::Result<()> {
    assert_eq!(thread_count()?, 1, "a supervisor is confined before any other thread runs");
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    capabilities::keep_those_of_a_supervisor()?;
    set_no_new_privs()?;
    seccomp::deny_to_supervisor()
}

fn set_no_new_privs() -> io::Result<()> {
    rustix::thread::set_no_new_privs(true).map_err(|errno| with_context("prctl", "PR_SET_NO_NEW_PRIVS", &errno.into()))
}

/// Restricts this process to the given files and the system calls of a server, for the rest of its life. Call this
/// after [`drop_privileges`], when it has its sockets, and before it starts threads. It may connect to the TCP ports
/// `connect_ports` of any machine, unless Landlock cannot restrict ports ([`Landlock::restricts_ports`]): then to all
/// ports, if there is one.
///
/// The result has the layers that this kernel does not support. Afterwards no other socket can be created and nothing
/// in `/proc` or `/sys` can be read: reading them, and the feature tests ([`crate::features::select_all`]), must be
/// done before.
///
/// # Errors
/// Returns an error if a layer failed. The process must exit, since other layers may apply.
///
/// # Panics
/// If another thread runs, which would not be restricted.
pub fn enter<R: IntoIterator<Item: AsFd>>(config: SandboxConfig<R>, connect_ports: &[u16]) -> io::Result<Sandbox> {
    assert_eq!(thread_count()?, 1, "the sandbox is entered before any other thread runs");
    let landlock = match config.landlock {
        Layer::Enabled => landlock::restrict_to(config.readable_fds, connect_ports)?,
        Layer::Disabled => Landlock::Disabled,
    };
    let seccomp = match config.seccomp {
        Layer::Enabled => seccomp::install(!connect_ports.is_empty())?,
        Layer::Disabled => Seccomp::Disabled,
    };
    Ok(Sandbox { landlock, seccomp })
}

/// Restricts the agent, which may connect to other machines, and write beneath the directories `writable`, but not
/// listen.
///
/// # Errors
/// Returns an error if a layer failed. The process must exit, since other layers may apply.
///
/// # Panics
/// Panics if another thread runs, which would not be restricted.
pub fn enter_as_agent<R: IntoIterator<Item: AsFd>>(
    config: SandboxConfig<R>,
    writable: &[BorrowedFd<'_>],
) -> io::Result<Sandbox> {
    assert_eq!(thread_count()?, 1, "the sandbox is entered before any other thread runs");
    let landlock = match config.landlock {
        Layer::Enabled => landlock::restrict_agent_to(config.readable_fds, writable)?,
        Layer::Disabled => Landlock::Disabled,
    };
    let seccomp = match config.seccomp {
        Layer::Enabled => seccomp::install_for_agent()?,
        Layer::Disabled => Seccomp::Disabled,
    };
    Ok(Sandbox { landlock, seccomp })
}

/// Restricts the keeper, which has only the sockets and the memory that it is given, and reads and writes only files in
/// the directory `keys`.
///
/// # Errors
/// Returns an error if a layer failed. The process must exit, since other layers may apply.
///
/// # Panics
/// Panics if another thread runs, which would not be restricted.
pub fn enter_as_keeper(layer: Layer, keys: Option<BorrowedFd<'_>>) -> io::Result<Sandbox> {
    assert_eq!(thread_count()?, 1, "the sandbox is entered before any other thread runs");
    Ok(match layer {
        Layer::Enabled => {
            let landlock = match keys {
                Some(keys) => landlock::restrict_keeper_to(keys)?,
                None => landlock::restrict_to(std::iter::empty::<BorrowedFd<'_>>(), &[])?,
            };
            Sandbox { landlock, seccomp: seccomp::install_for_keeper(keys.is_some())? }
        }
        Layer::Disabled => Sandbox { landlock: Landlock::Disabled, seccomp: Seccomp::Disabled },
    })
}

/// The layers that apply to this process.
#[derive(Debug)]
pub struct Sandbox {
    /// Whether access to other files is denied.
    pub landlock: Landlock,
    /// Whether other calls are denied.
    pub seccomp: Seccomp,
}

/// `no capabilities; no new privileges; Landlock enforced, version 7; seccomp enforced`.
impl fmt::Display for Sandbox {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "no capabilities; no new privileges; Landlock {}; seccomp {}", self.landlock, self.seccomp)
    }
}

/// Allows core dumps, which a switch of the user disables (prctl(2)).
///
/// A hung server process is aborted (SIGABRT) so that its core dump shows where it hangs. The process's memory holds
/// public files and zones, requests, and cookie secrets that the supervisor makes and replaces. The operator decides
/// about core dumps (`LimitCORE=`, `kernel.core_pattern`). Processes of the same user may also read this memory, and
/// only our own run as this user. A process with a private key, or a secret from a file, never allows them
/// ([`CoreDumps`]).
fn allow_core_dumps() -> io::Result<()> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)
        .map_err(|errno| with_context("prctl", "PR_SET_DUMPABLE", &errno.into()))
}

//! Turns this process into one that can only serve: another user without capabilities, which reads what it was given
//! and makes the calls of a server.
//!
//! Five layers, each of which holds where the one before it fails: the user, the capabilities, no new privileges
//! (`no_new_privs`), what may be read (Landlock), which calls may be made (seccomp). None can be taken off again.

mod process_status;
mod capabilities;
mod landlock;
mod seccomp;

use crate::error::with_context;
use crate::user::User;
use rustix::fs::{Mode, OFlags};
use rustix::process::DumpableBehavior;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

pub use capabilities::BoundingSet;
pub use landlock::Landlock;
pub use process_status::{Capabilities, ProcessStatus};
pub use seccomp::Seccomp;

/// Whether a layer is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layer {
    /// As far as the kernel has it.
    #[default]
    Enabled,
    /// Not: for a diagnosis that it stands in the way of.
    Disabled,
}

/// What is to be left to this process.
#[derive(Debug, Default)]
pub struct SandboxConfig<'d> {
    /// The user that it is to be; `None`: the one that it is.
    pub user: Option<User>,
    /// Folders, with all beneath them, and files that it may read. A file that is replaced by another of its name is not
    /// the one that was told here: tell its folder.
    pub readable_paths: Vec<PathBuf>,
    /// The same, open already: perhaps from a time when it might reach more than it now may.
    pub readable_fds: Vec<BorrowedFd<'d>>,
    /// Whether it is to be kept from all other files.
    pub landlock: Layer,
    /// Whether it is to be kept from all calls that no server makes.
    pub seccomp: Layer,
}

/// Confines this process, for the rest of its life. To be called when it has its sockets and before it has threads.
///
/// What this kernel cannot do is told in the result. Afterwards no socket can be made, and nothing in `/proc` or `/sys` can
/// be read: whoever needs the number of processors, or a way of a job ([`crate::features::select_all`]), finds it out before.
///
/// # Errors
/// What was wanted could not be had. The process must end: some of the layers may be in force.
///
/// # Panics
/// If another thread runs: it would stay free.
pub fn enter(confinement: &SandboxConfig<'_>) -> io::Result<Sandbox> {
    let status = process_status::open_status()?;
    let thread_count = process_status::read(&status)?.thread_count;
    assert_eq!(thread_count, 1, "a process is confined before any other thread runs");
    // Only who may set capabilities may empty the bounding set, and a change of the user takes that away.
    let bounding = capabilities::empty_bounding_set()?;
    if let Some(user) = &confinement.user {
        user.switch()?;
    }
    capabilities::give_up()?;
    rustix::thread::set_no_new_privs(true)
        .map_err(|errno| with_context("prctl", "PR_SET_NO_NEW_PRIVS", &errno.into()))?;
    allow_core_dumps()?;
    let readable = open_all(&confinement.readable_paths, confinement.user.as_ref())?;
    let readable = readable.iter().map(AsFd::as_fd).chain(confinement.readable_fds.iter().copied());
    let landlock = match confinement.landlock {
        Layer::Enabled => landlock::restrict_to(readable)?,
        Layer::Disabled => Landlock::Disabled,
    };
    let seccomp = match confinement.seccomp {
        Layer::Enabled => seccomp::install()?,
        Layer::Disabled => Seccomp::Disabled,
    };
    Ok(Sandbox { bounding, landlock, seccomp, status })
}

/// What was left to this process.
#[derive(Debug)]
pub struct Sandbox {
    /// What became of the set that bounds all others.
    pub bounding: BoundingSet,
    /// Whether other files are out of reach.
    pub landlock: Landlock,
    /// Whether other calls are.
    pub seccomp: Seccomp,
    /// `/proc/self/status`, which can be read on after nothing in `/proc` can be opened.
    status: std::fs::File,
}

impl Sandbox {
    /// What the kernel says of this process now.
    pub fn process_status(&self) -> io::Result<ProcessStatus> {
        process_status::read(&self.status)
    }
}

/// `no capabilities; no new privileges; Landlock in force, version 7; seccomp in force`.
impl fmt::Display for Sandbox {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "no capabilities; no new privileges; Landlock {}; seccomp {}", self.landlock, self.seccomp)
    }
}

/// Lets the kernel keep this process's memory when it dies, which a change of the user has forbidden (prctl(2)).
///
/// A worker that hangs is ended by SIGABRT so that its memory shows where: without a dump nobody could find out. What
/// lies in that memory is files and zones, which are served to everybody anyway, and requests. Where it goes is up to the
/// operator (`LimitCORE=`, `kernel.core_pattern`). A process of the same user may look into this one as well: there is
/// none but our own, which cannot. When keys come to lie in this memory, this call has to go.
fn allow_core_dumps() -> io::Result<()> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)
        .map_err(|errno| with_context("prctl", "PR_SET_DUMPABLE", &errno.into()))
}

/// Opens what is to be readable, as the user that this process is now: what that one cannot reach is better told at the
/// start than by an answer to every request.
fn open_all(paths: &[PathBuf], user: Option<&User>) -> io::Result<Vec<OwnedFd>> {
    let open = |path: &PathBuf| {
        rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(|errno| {
            let error = with_context("open", path.display(), &errno.into());
            match user {
                Some(user) if error.kind() == io::ErrorKind::PermissionDenied => {
                    let name = &user.name;
                    let remedy =
                        format!("let the user {name} pass through its folders (chmod o+x), or tell another user");
                    io::Error::new(error.kind(), format!("{error}; {remedy}"))
                }
                _ => error,
            }
        })
    };
    paths.iter().map(open).collect()
}

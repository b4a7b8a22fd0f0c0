//! The limit on open file descriptors (getrlimit(2)).

use crate::error::with_context;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// Raises the soft limit on open file descriptors to the hard limit and returns it.
///
/// The soft limit is low by default for programs that call `select` (systemd.exec(5)); this one does not.
pub fn raise_nofile_limit() -> io::Result<u64> {
    let limits = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limits.maximum, ..limits };
    if limits.current != limits.maximum {
        setrlimit(Resource::Nofile, raised)
            .map_err(|errno| with_context("setrlimit", "RLIMIT_NOFILE", &errno.into()))?;
    }
    Ok(limits.maximum.unwrap_or(u64::MAX))
}

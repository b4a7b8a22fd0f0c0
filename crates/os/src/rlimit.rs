//! How many descriptors this process may have.

use crate::error::with_context;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// Raises the limit of open descriptors as far as this process may; what it is then.
///
/// The soft limit is kept low for old programs that call `select`, which none of ours does (systemd.exec(5)).
pub fn raise_nofile_limit() -> io::Result<u64> {
    let limits = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limits.maximum, ..limits };
    if limits.current != limits.maximum {
        setrlimit(Resource::Nofile, raised)
            .map_err(|errno| with_context("setrlimit", "RLIMIT_NOFILE", &errno.into()))?;
    }
    Ok(limits.maximum.unwrap_or(u64::MAX))
}

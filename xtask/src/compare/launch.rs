//! What it takes to start a server: a program, its settings, and a place of its own to run in.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Descriptors that every server may have open, and every load too.
pub(super) const DESCRIPTOR_COUNT_MAX: usize = 20_000;
/// How often a port is chosen anew that one transport has free and the other not.
const PORT_TRIES_MAX: usize = 16;

/// Where our own server takes its orders, in its folder: several of them run at once.
pub(super) const CONTROL: &str = "control.sock";

/// How a server is started.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    /// As it stands in the tables.
    pub(super) name: &'static str,
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    pub(super) environment: Vec<(&'static str, String)>,
    /// Files that are written before, by their names in the server's own folder.
    pub(super) files: Vec<(&'static str, String)>,
}

/// `program` on the processors `processors` (as for `taskset -c`), with as many descriptors as everybody has, and ended
/// when we end, however that comes about. It has a process group of its own: lighttpd ends by a signal to its whole group.
pub(super) fn pinned(program: &Path, processors: &str) -> Command {
    let descriptors = format!("--nofile={DESCRIPTOR_COUNT_MAX}:{DESCRIPTOR_COUNT_MAX}");
    let mut command = Command::new("setpriv");
    // Each of these replaces itself by the next, so that the process that we started is the program in the end.
    command.args(["--pdeathsig", "TERM", "prlimit", &descriptors, "taskset", "-c", processors]).arg(program);
    command.stdin(Stdio::null()).process_group(0);
    command
}

/// Where a server runs.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// A folder of its own, where its settings lie and where it may write.
    pub(super) folder: PathBuf,
    pub(super) address: SocketAddr,
    /// Threads or processes that serve.
    pub(super) workers: usize,
}

impl Place {
    /// A new folder below `parent`, and a port of the loopback that is free for TCP and UDP alike.
    pub(super) fn new(parent: &Path, name: &str, workers: usize) -> Result<Place, String> {
        let folder = parent.join(name);
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Place { folder, address: free_address()?, workers })
    }
}

/// A port that was free a moment ago. The servers want a number in their settings, so that it cannot be held for them.
fn free_address() -> Result<SocketAddr, String> {
    for _ in 0..PORT_TRIES_MAX {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        if UdpSocket::bind(address).is_ok() {
            return Ok(address);
        }
    }
    Err(format!("no port is free for both TCP and UDP in {PORT_TRIES_MAX} tries"))
}

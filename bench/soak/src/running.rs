//! A server in a folder of its own, which is stopped when it is dropped.

use crate::extent::becomes_true;
use crate::service::{LIMIT, processes_in, send_signal};
use anyhow::Context;
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

pub(crate) struct Running {
    supervisor: Child,
    folder: TempDir,
}

impl Running {
    /// Starts `program` in `folder`; also returns the addresses of these services, in the order in which it prints
    /// them.
    pub(crate) fn start<const COUNT: usize>(
        program: &Path,
        folder: TempDir,
        arguments: &[&str],
        services: [&str; COUNT],
    ) -> anyhow::Result<(Running, [SocketAddr; COUNT])> {
        // Root serves as another user, which must reach it.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let mut command = Command::new(program);
        command.arg("serve").args(arguments).current_dir(folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let supervisor = command.spawn().with_context(|| format!("{}", program.display()))?;
        let mut running = Running { supervisor, folder };
        let mut lines = BufReader::new(running.supervisor.stdout.take().context("a pipe")?).lines();
        let mut address = |service: &str| -> anyhow::Result<SocketAddr> {
            let line = lines.next().context("the server did not start")??;
            let address = line.strip_prefix(service).with_context(|| format!("unexpected line: {line}"))?;
            Ok(address.trim().parse()?)
        };
        let mut addresses = Vec::new();
        for service in services {
            addresses.push(address(service)?);
        }
        Ok((running, addresses.try_into().ok().context("one for each service")?))
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for signal in [Signal::TERM, Signal::KILL] {
            for pid in processes_in(self.folder.path()) {
                // The process may have exited meanwhile.
                let _ = send_signal(pid, signal);
            }
            becomes_true(LIMIT, || !matches!(self.supervisor.try_wait(), Ok(None)));
        }
    }
}

//! Reloads of nginx under the load that ours is under: with one listener, and with a sibling for each worker.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::client;
use super::counts::{Counts, late_max_ms};
use super::domain::{Domain, PAGE_PATH};
use super::load::{Load, Plan, Rates};
use super::network::free_address;
use super::options::Extent;
use super::outcome::Outcome;
use super::pace::{at_pace, comes_true};
use super::processes;
use super::programs::Programs;
use crate::program::{is_installed, signal};

const RELOAD_COUNT: usize = 24;
const RELOAD_COUNT_SHORT: usize = 6;
const EVERY: Duration = Duration::from_millis(500);
const WORKER_COUNTS: [usize; 2] = [4, 1];
/// A peer is not to be blamed for a busy machine: what comes of one is measured again, so often at most.
const LATE_MAX_MS: f64 = 200.0;
const ATTEMPTS_MAX: usize = 3;
const START_LIMIT: Duration = Duration::from_secs(10);
const CONFIG: &str = "nginx.conf";

/// Workers from one to four and back, in both ways of listening.
pub(super) fn reload(programs: &Programs, extent: Extent, outcome: &mut Outcome) -> Result<(), String> {
    if !is_installed("nginx") {
        outcome.tell("nginx is not installed (Debian package nginx): nothing was run");
        return Ok(());
    }
    for (name, listen) in [("nginx-shared", ""), ("nginx-siblings", " reuseport")] {
        let mut counts = run_once(programs, extent, name, listen)?;
        for _ in 1..ATTEMPTS_MAX {
            if late_max_ms(&counts) <= LATE_MAX_MS {
                break;
            }
            counts = run_once(programs, extent, name, listen)?;
        }
        let title = if listen.is_empty() { "nginx, one listener" } else { "nginx, `reuseport`" };
        outcome.take_for_comparison(title, counts);
    }
    let version = Command::new("nginx").arg("-v").output().map_err(|error| format!("nginx: {error}"))?;
    outcome.tell(String::from_utf8_lossy(&version.stderr).trim());
    Ok(())
}

fn run_once(programs: &Programs, extent: Extent, name: &str, listen: &'static str) -> Result<Vec<Counts>, String> {
    let mut server = Nginx::start(programs, name, listen)?;
    let load = Load::on_web(server.address, &server.page, programs, &Plan::strict(Rates::WEB))?;
    at_pace(extent.choose(RELOAD_COUNT, RELOAD_COUNT_SHORT), EVERY, |index| {
        server.reload(WORKER_COUNTS[index % WORKER_COUNTS.len()])
    })?;
    load.finish()
}

/// An nginx that runs. It is ended when it is dropped.
struct Nginx {
    address: SocketAddr,
    page: PathBuf,
    folder: PathBuf,
    listen: &'static str,
    master: Child,
}

impl Nginx {
    fn start(programs: &Programs, name: &str, listen: &'static str) -> Result<Nginx, String> {
        let folder = programs.new_folder(name)?;
        let domain = Domain::write(&folder)?;
        let address = free_address()?;
        let [page, _] = domain.pages();
        fs::write(folder.join(CONFIG), config(&folder, address, listen, 1)).map_err(|error| error.to_string())?;
        let mut command = Command::new("nginx");
        command.args(["-e", "error.log", "-p"]).arg(&folder).args(["-c", CONFIG]).current_dir(&folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let master = command.spawn().map_err(|error| format!("nginx cannot be started: {error}"))?;
        let server = Nginx { address, page, folder, listen, master };
        match comes_true(START_LIMIT, || client::get(address, "example.com", PAGE_PATH).is_ok()) {
            true => Ok(server),
            false => Err("nginx does not answer".to_owned()),
        }
    }

    fn reload(&mut self, worker_count: usize) -> Result<(), String> {
        let text = config(&self.folder, self.address, self.listen, worker_count);
        fs::write(self.folder.join(CONFIG), text).map_err(|error| error.to_string())?;
        match signal(self.master.id(), "HUP") {
            true => Ok(()),
            false => Err("nginx has ended".to_owned()),
        }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        if matches!(self.master.try_wait(), Ok(None)) {
            signal(self.master.id(), "TERM");
        }
        comes_true(START_LIMIT, || !matches!(self.master.try_wait(), Ok(None)));
        // Workers that still drain, by their folder: numbers alone are used again.
        for pid in processes::working_in(&self.folder) {
            signal(pid, "KILL");
        }
        // It has ended, or was killed just now.
        let _ = self.master.wait();
    }
}

fn config(folder: &Path, address: SocketAddr, listen: &str, worker_count: usize) -> String {
    format!(
        "daemon off;
user root;
worker_processes {worker_count};
pid nginx.pid;
error_log error.log crit;
events {{
    worker_connections 4096;
}}
http {{
    types {{ text/html html; }}
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 1000000000;
    server {{
        listen {address}{listen};
        root {}/first;
    }}
}}
",
        folder.display()
    )
}

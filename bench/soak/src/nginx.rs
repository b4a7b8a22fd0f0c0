//! Reloads of nginx under the same load, for comparison.

use crate::extent::{Extent, becomes_true};
use crate::outcome::Outcome;
use crate::service::{LIMIT, processes_in, send_signal};
use crate::site::{Config, PAGE_PATH, Site};
use anyhow::{Context, ensure};
use loadgen::{Report, client};
use rustix::process::Signal;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const CONFIG: &str = "nginx.conf";
const WORKER_COUNTS: [usize; 2] = [4, 1];
/// A run on a busy machine is repeated, as it says little about nginx.
const LATE_MAX: Duration = Duration::from_millis(200);
const ATTEMPTS_MAX: usize = 3;

pub(crate) fn reload(_: &Path, extent: Extent, outcome: &mut Outcome) -> anyhow::Result<()> {
    let Ok(version) = Command::new("nginx").arg("-v").output() else {
        outcome.fact("nginx is not installed (Debian package nginx)");
        return Ok(());
    };
    for (title, option) in [("nginx, shared listener", ""), ("nginx, `reuseport`", " reuseport")] {
        let mut report = run(extent, option)?;
        for _ in 1..ATTEMPTS_MAX {
            if report.late_max() > LATE_MAX {
                report = run(extent, option)?;
            }
        }
        outcome.add_comparison(title, report);
    }
    outcome.fact(String::from_utf8_lossy(&version.stderr).trim());
    Ok(())
}

fn run(extent: Extent, listen_option: &str) -> anyhow::Result<Report> {
    const EVERY: Duration = Duration::from_millis(500);
    let folder = TempDir::with_prefix("soak-nginx-")?;
    let address = client::free_address()?;
    let site = Site::write(folder.path(), [address; 3], &Config::without_https(1))?;
    site.replace(CONFIG, &config(folder.path(), address, listen_option, 1))?;
    let mut command = Command::new("nginx");
    command.args(["-e", "error.log", "-p"]).arg(folder.path()).args(["-c", CONFIG]).current_dir(folder.path());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let master = Master { child: command.spawn()?, folder };
    let is_ready = || client::get(address, "example.com", PAGE_PATH, "").is_ok();
    ensure!(becomes_true(LIMIT, is_ready), "nginx does not answer");
    let mut load = site.target(extent.load())?;
    (load.https, load.dns) = (None, None);
    let load = load.start()?;
    extent.repeat(&load, extent.pick(3, 6, 24), EVERY, |index| {
        let worker_count = WORKER_COUNTS[index % WORKER_COUNTS.len()];
        site.replace(CONFIG, &config(&site.folder, address, listen_option, worker_count))?;
        send_signal(master.child.id(), Signal::HUP).context("nginx")
    })?;
    Ok(load.finish_now()?)
}

/// nginx, which is stopped when it is dropped.
struct Master {
    child: Child,
    folder: TempDir,
}

impl Drop for Master {
    fn drop(&mut self) {
        // The process may have ended, and reports failures through `wait`.
        let _ = send_signal(self.child.id(), Signal::TERM);
        let _ = self.child.wait();
        // Workers that are still draining. Process IDs are reused, so they are found by their folder.
        for pid in processes_in(self.folder.path()) {
            let _ = send_signal(pid, Signal::KILL);
        }
    }
}

fn config(folder: &Path, address: SocketAddr, listen_option: &str, worker_count: usize) -> String {
    let root = folder.join("first");
    format!(
        "daemon off;\nuser root;\nworker_processes {worker_count};\npid nginx.pid;\nerror_log error.log crit;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n  types {{ text/html html; }}\n  access_log off;\n  sendfile on;\n  tcp_nopush on;\n  \
         keepalive_requests 1000000000;\n  server {{ listen {address}{listen_option}; root {}; }}\n}}\n",
        root.display()
    )
}

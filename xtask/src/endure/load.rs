//! A load that runs beside what a scenario does, and then its counts.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::counts::{Counts, parse_report};
use super::domain::PAGE_PATH;
use super::programs::Programs;
use super::service::Service;

/// No scenario takes so long: a load whose scenario has gone ends by itself.
const LENGTH_MAX_S: &str = "600";

/// Requests a second of each kind; none of a kind whose rate is zero.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates {
    /// HTTP, each request on a new connection.
    pub(super) http_new: u32,
    /// HTTP on kept connections.
    pub(super) http_kept: u32,
    /// DNS over UDP.
    pub(super) udp: u32,
    /// DNS over TCP, each query on a new connection.
    pub(super) tcp_new: u32,
    /// DNS over TCP on kept connections.
    pub(super) tcp_kept: u32,
}

impl Rates {
    /// What promises are made for.
    pub(super) const FULL: Rates = Rates { http_new: 2_000, http_kept: 2_000, udp: 5_000, tcp_new: 500, tcp_kept: 500 };
    /// Little enough that what waits for a server that does not answer has room in its queues.
    pub(super) const LIGHT: Rates = Rates { http_new: 100, http_kept: 100, udp: 50, tcp_new: 50, tcp_kept: 50 };
    /// HTTP alone, for the web servers beside ours.
    pub(super) const WEB: Rates = Rates { udp: 0, tcp_new: 0, tcp_kept: 0, ..Rates::FULL };
}

/// When the load sees that a kept connection has ended on which it has nothing outstanding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleNotice {
    /// At once, and it does not use it again.
    AtOnce,
    /// Only when its next request was sent, which is then lost, as it would be from far away. This is asked of HTTP
    /// alone, where a server can say beforehand that it is about to close.
    AtNextRequest,
}

/// How a load goes about it.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) rates: Rates,
    pub(super) idle_notice: IdleNotice,
    /// How long an answer over TCP is waited for.
    pub(super) deadline_ms: u64,
    /// The same over UDP.
    pub(super) udp_deadline_ms: u64,
}

impl Plan {
    /// As hard as clients are: far away, and with no more patience than people and resolvers have.
    pub(super) fn strict(rates: Rates) -> Plan {
        Plan { rates, idle_notice: IdleNotice::AtNextRequest, deadline_ms: 5_000, udp_deadline_ms: 2_000 }
    }
}

/// A load under way. It is ended when it is dropped.
pub(super) struct Load {
    child: Option<Child>,
}

/// Who is asked, and for what.
struct Target {
    http: SocketAddr,
    pages: Vec<PathBuf>,
    dns: Option<(SocketAddr, PathBuf)>,
}

impl Load {
    /// Puts a load on a service.
    pub(super) fn on(service: &Service, programs: &Programs, plan: &Plan) -> Result<Load, String> {
        let dns = Some((service.dns, service.domain.names()));
        let target = Target { http: service.http, pages: service.domain.pages().to_vec(), dns };
        Load::start(&programs.losscount, &target, plan)
    }

    /// Puts a load on a web server that has this page.
    pub(super) fn on_web(http: SocketAddr, page: &Path, programs: &Programs, plan: &Plan) -> Result<Load, String> {
        Load::start(&programs.losscount, &Target { http, pages: vec![page.to_owned()], dns: None }, plan)
    }

    fn start(losscount: &Path, target: &Target, plan: &Plan) -> Result<Load, String> {
        let Plan { rates, idle_notice, deadline_ms, udp_deadline_ms } = plan;
        let mut command = Command::new(losscount);
        let http = target.http.to_string();
        command.args(["--http", &http, "--host", "example.com", "--path", PAGE_PATH]);
        for page in &target.pages {
            command.arg("--expect").arg(page);
        }
        command.args(["--new-per-s", &rates.http_new.to_string(), "--kept-per-s", &rates.http_kept.to_string()]);
        if let Some((address, names)) = &target.dns {
            command.args(["--dns", &address.to_string(), "--names"]).arg(names);
            command.args(["--udp-per-s", &rates.udp.to_string(), "--tcp-per-s", &rates.tcp_new.to_string()]);
            command.args(["--tcp-kept-per-s", &rates.tcp_kept.to_string()]);
        }
        let notice = match idle_notice {
            IdleNotice::AtOnce => "at-once",
            IdleNotice::AtNextRequest => "at-next-request",
        };
        command.args(["--idle-notice", notice, "--dns-idle-notice", "at-once"]);
        command.args(["--tcp-deadline-ms", &deadline_ms.to_string()]);
        command.args(["--udp-deadline-ms", &udp_deadline_ms.to_string()]);
        command.args(["--seconds", LENGTH_MAX_S, "--until-input-ends", "--json"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|error| format!("the load cannot be started: {error}"))?;
        Ok(Load { child: Some(child) })
    }

    /// Ends it when its last request has: what became of each kind.
    ///
    /// # Errors
    /// There was no load: the server did not answer before it.
    pub(super) fn finish(mut self) -> Result<Vec<Counts>, String> {
        let child = self.child.take().expect("only this takes it");
        // This closes its standard input first, which is what it waits for.
        let output = child.wait_with_output().map_err(|error| format!("the load: {error}"))?;
        // Status 1 says that something was lost, which is for the caller to judge.
        if !matches!(output.status.code(), Some(0 | 1)) {
            return Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()));
        }
        parse_report(&String::from_utf8_lossy(&output.stdout))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It has ended, or is one of ours.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

//! The supervisor's part of the status; the serving process's part follows.

use super::certificates::when;
use super::{Requester, StatusRequest, Supervisor};
use crate::phase::Phase;
use sanderling_config::ConfigSource;
use sanderling_config::diagnostic::error_text;
use sanderling_config::log::log_error;
use sanderling_ipc::agent::{AgentReport, AliasReport, FailingNameReport, NotifyOutcome, NotifyReport};
use sanderling_ipc::control_socket::ClientId;
use sanderling_ipc::signing::Refusal;
use sanderling_ipc::{Command, FdKind, KeeperSupervision, StatusFormat, Supervision};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Maximum number of agent tasks in the text status.
const TASKS_SHOWN_MAX: usize = 5;

/// The status for programs.
#[derive(Serialize)]
struct SupervisorStatus {
    version: &'static str,
    pid: u32,
    started_at_unix_s: u64,
    /// The configuration file, if there is one.
    configuration: Option<String>,
    loaded_at_unix_s: u64,
    restarts: u64,
    /// Responses that replaced server processes have aborted after `drain_timeout_ms`.
    cut_off: u64,
    listeners: Vec<ListenerStatus>,
    /// The reasons why logs could not be opened.
    log_problems: Vec<String>,
    processes: Vec<ProcessSummary>,
    /// `None` if the configuration needs none.
    agent: Option<AgentStatus>,
    /// `None` if the configuration needs none.
    keeper: Option<KeeperStatus>,
}

/// The keeper and its counters.
#[derive(Serialize)]
struct KeeperStatus {
    /// `None` while it does not run.
    pid: Option<i32>,
    restarts: u64,
    /// Signatures of handshakes by all keepers.
    signatures: u64,
    /// Signatures of zone records by all keepers.
    zone_signatures: u64,
    /// Requests that were refused, by cause.
    refused: BTreeMap<&'static str, u64>,
}

/// The agent and its schedule.
#[derive(Serialize)]
struct AgentStatus {
    /// `None` while it does not run.
    pid: Option<i32>,
    restarts: u64,
    /// The reason why no agent works, if it has failed.
    problem: Option<String>,
    report: Option<AgentReport>,
    /// The report comes from an agent that has exited.
    is_report_old: bool,
}

#[derive(Serialize)]
struct ListenerStatus {
    service: &'static str,
    address: SocketAddr,
    sockets: usize,
}

#[derive(Serialize)]
struct ProcessSummary {
    pid: i32,
    generation: u64,
    state: &'static str,
    ready_at_unix_s: u64,
}

impl Supervisor {
    /// Sends a client the supervisor's status, and makes the serving process send its own.
    pub(super) fn begin_status(&mut self, client: ClientId, format: StatusFormat) {
        // The process judges the same facts that this status shows.
        self.send_supervision();
        let status = self.status();
        let text = match format {
            StatusFormat::Text | StatusFormat::Verbose => self.to_text(&status),
            StatusFormat::Json => {
                let status = serde_json::to_string(&status).expect("a status has no map");
                format!("{{\"supervisor\":{status},\"process\":")
            }
            // The process has the supervisor's counters.
            StatusFormat::Metrics => String::new(),
        };
        if let Some(control) = &mut self.control {
            control.send_stdout(client, &text);
        }
        match self.serving_process() {
            Some(process) => {
                process.send(Command::Status(format), Vec::new());
                let generation = process.generation();
                self.status_requests.push_back(StatusRequest { client, format, generation });
            }
            None => {
                let (text, is_good) = match format {
                    StatusFormat::Json => ("null}\n", false),
                    StatusFormat::Metrics => {
                        return self.reply(Requester::Client(client), Err("no server process running"));
                    }
                    StatusFormat::Text | StatusFormat::Verbose if self.lifecycle.is_stopping() => ("", true),
                    StatusFormat::Text | StatusFormat::Verbose => ("no server process running\n", false),
                };
                self.end_answer(client, text, is_good);
            }
        }
    }

    /// Ends the status after the part of the serving process, which reports whether everything is served as configured.
    pub(super) fn finish_status(&mut self, client: ClientId, format: StatusFormat, is_good: bool) {
        let end = match format {
            StatusFormat::Text | StatusFormat::Verbose | StatusFormat::Metrics => "",
            StatusFormat::Json => "}\n",
        };
        let is_good = format == StatusFormat::Metrics || is_good && self.logs.problems().next().is_none();
        self.end_answer(client, end, is_good);
    }

    fn end_answer(&mut self, client: ClientId, text: &str, is_success: bool) {
        if let Some(control) = &mut self.control {
            control.send_stdout(client, text);
            control.finish(client, is_success);
        }
    }

    fn status(&self) -> SupervisorStatus {
        let listeners = self.listeners.addresses().iter().map(|address| ListenerStatus {
            service: address.role.service.name(),
            address: address.bound,
            sockets: address.socket_count(),
        });
        let processes = self.processes.iter().map(|process| ProcessSummary {
            pid: process.pid(),
            generation: process.generation(),
            state: process.phase().name(),
            ready_at_unix_s: unix_s(process.role.ready_at),
        });
        SupervisorStatus {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            started_at_unix_s: unix_s(self.started_at),
            configuration: match &self.source {
                ConfigSource::File(path) => Some(path.display().to_string()),
                ConfigSource::Flags(_) => None,
            },
            loaded_at_unix_s: unix_s(self.active.read_at()),
            restarts: self.backoff.restart_count,
            cut_off: self.cut_off_count,
            listeners: listeners.collect(),
            log_problems: self.logs.problems().collect(),
            processes: processes.collect(),
            agent: self.active.config.needs_agent().then(|| AgentStatus {
                pid: self.agent.process.pid(),
                restarts: self.agent.process.backoff.restart_count,
                problem: self.agent.problem().map(str::to_owned),
                report: self.agent.report.clone(),
                is_report_old: self.agent.is_report_old(),
            }),
            keeper: self.active.config.has_keeper().then(|| {
                let KeeperSupervision { process, counts } = self.keeper.supervision(true);
                let refused = Refusal::ALL.map(Refusal::name).into_iter().zip(counts.refused).collect();
                KeeperStatus {
                    pid: self.keeper.process.pid(),
                    restarts: process.restarts,
                    signatures: counts.signatures,
                    zone_signatures: counts.zone_signatures,
                    refused,
                }
            }),
        }
    }

    /// Tells the serving process about changes of the data for its status and metrics.
    pub(super) fn send_supervision(&mut self) {
        let count = |phase| self.processes.iter().filter(|process| process.phase() == phase).count() as u64;
        let mut supervision = Supervision {
            started_at_unix_s: unix_s(self.started_at),
            loaded_at_unix_s: 0,
            processes: [Phase::Starting, Phase::Serving, Phase::Draining].map(count),
            restarts: self.backoff.restart_count,
            reloads: self.reload_counts,
            cut_off: self.cut_off_count,
            agent: self.agent.supervision(self.active.config.needs_agent()),
            keeper: self.keeper.supervision(self.active.config.has_keeper()),
        };
        let Some(generation) = self.serving_process().map(|process| process.generation()) else { return };
        let is_new = self.sent_supervision.is_none_or(|(to, _)| to != generation);
        let problems = self.agent.problems_to_send(is_new).and_then(|problems| match problems.to_memfd() {
            Ok(file) => Some((FdKind::AgentReport, file)),
            Err(error) => {
                log_error(&format!("cannot pass on the agent's report: {}", error_text(&error)));
                None
            }
        });
        let is_sent = self.sent_supervision.replace((generation, supervision)) == Some((generation, supervision));
        if is_sent && problems.is_none() {
            return;
        }
        // A new configuration comes with a new count.
        supervision.loaded_at_unix_s = unix_s(self.active.read_at());
        if let Some(process) = self.serving_process() {
            process.send(Command::Supervision(supervision), problems.into_iter().collect());
        }
    }

    fn to_text(&self, status: &SupervisorStatus) -> String {
        let SupervisorStatus { version, pid, restarts, cut_off, .. } = status;
        let mut out = format!("sanderling {version}, supervisor process {pid}, up {}\n", age(self.started_at));
        let source = status.configuration.as_deref().unwrap_or("from the command line");
        out += &format!("configuration {source}, loaded {} ago\n", age(self.active.read_at()));
        if self.lifecycle.is_stopping() {
            let subject = match self.processes.len() {
                1 => "1 process finishes its requests".to_owned(),
                count => format!("{count} processes finish their requests"),
            };
            out += &format!("stopping: {subject}; no new connections\n");
        }
        for ListenerStatus { service, address, sockets } in &status.listeners {
            let plural = if *sockets == 1 { "" } else { "s" };
            out += &format!("{service} {address}, {sockets} socket{plural}\n");
        }
        out += &format!("restarts of the server process: {restarts}; responses aborted by replacing it: {cut_off}\n");
        status.log_problems.iter().for_each(|problem| out += &format!("ERROR: {problem}\n"));
        out += &status.agent.as_ref().map_or(String::new(), agent_text);
        out += &status.keeper.as_ref().map_or(String::new(), keeper_text);
        // The serving process last: its own status follows.
        for phase in [Phase::Starting, Phase::Draining, Phase::Serving] {
            for process in self.processes.iter().filter(|process| process.phase() == phase) {
                let since = match phase {
                    Phase::Serving => format!(" for {}", age(process.role.ready_at)),
                    Phase::Starting | Phase::Draining => String::new(),
                };
                let (pid, generation) = (process.pid(), process.generation());
                out += &format!("server process {pid} (generation {generation}), {}{since}\n", phase.name());
            }
        }
        out
    }
}

/// The agent, the tasks that are due first, zones and certificates with errors, and secondary servers that do not
/// answer.
fn agent_text(agent: &AgentStatus) -> String {
    let process = agent.pid.map_or("does not run".to_owned(), |pid| format!("process {pid}"));
    let old = if agent.is_report_old { "; it is being restarted, and this is its last report:" } else { "" };
    let mut out = format!("agent {process}; restarts: {}{old}\n", agent.restarts);
    out += &agent.problem.as_ref().map_or(String::new(), |problem| format!("  the last one failed: {problem}\n"));
    let Some(report) = &agent.report else { return out };
    let now_unix_s = unix_s(SystemTime::now());
    for task in report.schedule.iter().take(TASKS_SHOWN_MAX) {
        out += &format!("  {}: {}: {}\n", when(task.at_unix_s, now_unix_s), task.what, task.why);
    }
    if let Some(more) = report.schedule.len().checked_sub(TASKS_SHOWN_MAX).filter(|more| *more > 0) {
        out += &format!("  and {more} later\n");
    }
    for zone in &report.zones {
        if let Some(problem) = zone.transfer.as_ref().and_then(|transfer| transfer.problem.as_ref()) {
            out += &format!("  zone {}: {problem}\n", zone.name);
        }
        if let Some(problem) = zone.signing.as_ref().and_then(|signing| signing.problem.as_ref()) {
            out += &format!("  zone {}: it cannot be signed: {problem}\n", zone.name);
        }
        for AliasReport { target, problem, .. } in &zone.aliases {
            if let Some(problem) = problem {
                out += &format!("  zone {}: ALIAS {target}: {problem}\n", zone.name);
            }
        }
        for NotifyReport { address, serial, outcome } in &zone.secondaries {
            if let NotifyOutcome::GivenUp(problem) = outcome {
                out += &format!("  zone {}: giving up NOTIFY of serial {serial} to {address}: {problem}\n", zone.name);
            }
        }
    }
    for certificate in &report.certificates {
        if let Some(error) = &certificate.last_error {
            out += &format!("  certificate {}: {error}\n", certificate.name);
        }
        for FailingNameReport { name, last_error, .. } in &certificate.failing_names {
            out += &format!("  certificate {}: it is requested without {name}: {last_error}\n", certificate.name);
        }
    }
    out
}

fn keeper_text(keeper: &KeeperStatus) -> String {
    let KeeperStatus { pid, restarts, signatures, zone_signatures, refused } = keeper;
    let process = pid.map_or("does not run".to_owned(), |pid| format!("process {pid}"));
    let refused: String = refused
        .iter()
        .filter(|(_, count)| **count > 0)
        .fold(String::new(), |text, (cause, count)| format!("{text}; refused, {}: {count}", cause.replace('_', " ")));
    format!(
        "keeper {process}; restarts: {restarts}; signatures: {signatures}; signatures of zone records: {zone_signatures}{refused}\n"
    )
}

fn unix_s(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The time since `time` in its two largest units.
fn age(time: SystemTime) -> String {
    duration_text(time.elapsed().unwrap_or_default())
}

fn duration_text(duration: Duration) -> String {
    let s = duration.as_secs();
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        3600..86400 => format!("{} h {} min", s / 3600, s / 60 % 60),
        _ => format!("{} d {} h", s / 86400, s / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_their_two_largest_units() {
        let check = |s: u64, expected: &str| assert_eq!(duration_text(Duration::from_secs(s)), expected);
        check(0, "0 s");
        check(59, "59 s");
        check(61, "1 min 1 s");
        check(3_600 + 720, "1 h 12 min");
        check(86_400 * 3 + 3_600 * 5 + 59, "3 d 5 h");
    }
}

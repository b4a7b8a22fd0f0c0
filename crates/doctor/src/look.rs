//! Gathers the facts: asks files, the kernel, the running server and the network, and judges nothing.

use crate::Options;
use crate::facts::{CheckReport, Facts, OpenFileFacts, Running, ServerFacts};
use crate::ports::ports;
use crate::proc_sockets::{bound_sockets, holders, open_files_limit_of};
use sanderling_agent::outside::{self, OutsideView, Places};
use sanderling_config::{Config, ConfigSource, lookup_user};
use sanderling_ipc::client::{self, AskError};
use sanderling_ipc::{Command as Request, StatusFormat};
use sanderling_os::poll_set::PollSet;
use sanderling_os::process::effective_uid;
use sanderling_os::{interfaces, rlimit};
use sanderling_server_process::descriptor_problem;
use serde::Deserialize;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// For the answer of the server.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);
/// Sites, zones, certificates and TSIG keys with problems, of each kind, and other problems.
const PROBLEMS_MAX: usize = 20;
/// For `sanderling check`, which may read gigabytes of zones.
const CHECK_TIMEOUT: Duration = Duration::from_secs(300);
/// Bytes of its report.
const CHECK_BYTES_MAX: u64 = 16 << 20;

pub(crate) fn look(options: &Options) -> Facts {
    let config = ConfigSource::File(options.config_file.clone()).load().ok();
    let server = server(&options.socket);
    let running = match &server {
        ServerFacts::Running(running) => Some(running),
        ServerFacts::Absent(_) | ServerFacts::Unknown(_) => None,
    };
    let default = Config::default();
    let checked = config.as_ref().unwrap_or(&default);
    let (check, ports) = (check(&options.config_file), ports(checked, &bound_sockets(), &holders(), running));
    let (check, open_files) = (check.map(|report| without_missing_root(report, checked)), open_files(checked, running));
    Facts {
        config_file: options.config_file.display().to_string(),
        check,
        ports,
        open_files,
        name: options.places.name.as_ref().map(ToString::to_string),
        interfaces: interfaces::addresses().unwrap_or_default(),
        has_proxies: checked.trusted_proxies.is_some(),
        // The last of all: this process has fewer rights afterwards.
        outside: config.as_ref().map(|config| look_outside(config, &options.places)),
        now_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        server,
    }
}

/// The answers of other machines, which strangers write: they are read with the rights of the server's user.
fn look_outside(config: &Config, places: &Places) -> Result<OutsideView, String> {
    if effective_uid() == 0 {
        let user =
            lookup_user(config).map_err(|problems| problems.first().map_or(String::new(), ToString::to_string))?;
        let Some(user) = user else { return Err("root asks no other machines; set `user`".to_owned()) };
        user.switch().map_err(|error| error.to_string())?;
    }
    outside::look(config, places).map_err(|error| error.to_string())
}

/// The report of `sanderling check`: a separate process, since it becomes the user of the server and enters its
/// sandbox.
fn check(config_file: &Path) -> Result<CheckReport, String> {
    let failed = |error: &dyn std::fmt::Display| format!("`sanderling check` cannot be run: {error}");
    let program = std::env::current_exe().map_err(|error| failed(&error))?;
    let mut command = Command::new(program);
    command.args(["check", "--json", "--config"]).arg(config_file).stdin(Stdio::null()).stderr(Stdio::null());
    let output = output_of(&mut command, CHECK_TIMEOUT).map_err(|error| failed(&error))?;
    serde_json::from_slice(&output).map_err(|error| failed(&error))
}

/// The standard output of a command, which is ended after `timeout`.
fn output_of(command: &mut Command, timeout: Duration) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + timeout;
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let (mut stdout, mut output) = (child.stdout.take().expect("it is a pipe"), Vec::new());
    let result = loop {
        let rest = deadline.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            break Err(io::Error::other(format!("it takes longer than {} s", timeout.as_secs_f64())));
        }
        let mut readable = PollSet::new([stdout.as_fd()]);
        if let Err(error) = readable.wait(Some(rest)) {
            break Err(error);
        }
        if !readable.is_ready(0) {
            continue;
        }
        let mut piece = [0; 64 * 1024];
        match stdout.read(&mut piece) {
            Ok(0) => break Ok(output),
            Ok(length) => output.extend_from_slice(&piece[..length]),
            Err(error) => break Err(error),
        }
        if output.len() as u64 > CHECK_BYTES_MAX {
            break Err(io::Error::other(format!("its report has more than {CHECK_BYTES_MAX} bytes")));
        }
    };
    if result.is_err() {
        // It has not ended, or its status is of no interest.
        let _ = child.kill();
    }
    child.wait()?;
    result
}

/// The report without the warning at the key `user` that only root can switch to that user: the server may be started
/// by root, and this process not.
fn without_missing_root(mut report: CheckReport, config: &Config) -> CheckReport {
    let location = config.user_and_group.as_ref().map(|account| account.user_location.to_string());
    report.problems.retain(|problem| {
        let position = problem.line.zip(problem.column);
        let own = position.map(|(line, column)| format!("{}:{line}:{column}", problem.place));
        effective_uid() == 0 || problem.severity != "warning" || location.is_none() || own != location
    });
    report
}

/// The parts of `sanderling status --json` that are judged here.
#[derive(Deserialize)]
struct Status {
    supervisor: SupervisorStatus,
    process: Option<ProcessStatus>,
}

#[derive(Deserialize)]
struct SupervisorStatus {
    pid: u32,
    /// Logs that cannot be opened.
    log_problems: Vec<String>,
}

#[derive(Deserialize)]
struct ProcessStatus {
    pid: u32,
    problems: Vec<String>,
    sites: Vec<Listed>,
    zones: Vec<Listed>,
    certificates: Vec<Listed>,
    tsig_keys: Vec<Listed>,
}

/// A site, zone, certificate or TSIG key.
#[derive(Deserialize)]
struct Listed {
    /// Of a zone or a TSIG key.
    name: Option<String>,
    /// Of a site, or of a certificate, the first one of which is its domain.
    #[serde(default, alias = "names")]
    hosts: Vec<String>,
    state: String,
    reason: Option<String>,
}

impl ProcessStatus {
    /// The problems, with the sites, zones, certificates and TSIG keys of which the server knows the reason.
    fn all_problems(&self) -> Vec<String> {
        let (mut named, mut counted) = (Vec::new(), Vec::new());
        for (noun, listed) in [
            ("site", &self.sites),
            ("zone", &self.zones),
            ("certificate", &self.certificates),
            ("TSIG key", &self.tsig_keys),
        ] {
            let with_reason = listed.iter().filter_map(|one| Some((one, one.reason.as_deref()?)));
            for (one, reason) in with_reason.take(PROBLEMS_MAX) {
                let name = one.name.as_deref().or(one.hosts.first().map(String::as_str)).unwrap_or("every host");
                let subject = if one.name.is_some() { format!("{noun} {name}") } else { format!("{noun} of {name}") };
                named.push(format!("the {subject} is {}: {reason}", one.state));
                counted.push((noun, one.state.as_str()));
            }
        }
        // `1 zone unsigned` says less than its name and reason.
        let is_named = |problem: &str| {
            let Some((count, rest)) = problem.split_once(' ') else { return false };
            let is_of =
                |(noun, state): &&(&str, &str)| rest == format!("{noun} {state}") || rest == format!("{noun}s {state}");
            count.parse().is_ok_and(|count: usize| count == counted.iter().filter(is_of).count())
        };
        let others = self.problems.iter().filter(|problem| !is_named(problem));
        let more = others.clone().count().saturating_sub(PROBLEMS_MAX);
        let more = (more > 0).then(|| format!("{more} more problems"));
        others.take(PROBLEMS_MAX).cloned().chain(more).chain(named).collect()
    }
}

fn server(socket: &Result<PathBuf, String>) -> ServerFacts {
    let socket = match socket {
        Ok(socket) => socket,
        Err(problem) => return ServerFacts::Unknown(problem.clone()),
    };
    match client::output_of(Request::Status(StatusFormat::Json), socket, STATUS_TIMEOUT) {
        Ok(text) => match serde_json::from_str::<Status>(&text) {
            Ok(Status { supervisor, process }) => {
                let (process_pid, mut problems) = match process {
                    Some(process) => (process.pid, process.all_problems()),
                    None => (0, vec!["no server process serves".to_owned()]),
                };
                problems.extend(supervisor.log_problems);
                ServerFacts::Running(Running { pid: supervisor.pid, process_pid, problems })
            }
            Err(error) => ServerFacts::Unknown(format!("its status cannot be read: {error}")),
        },
        Err(AskError::Absent(_)) => ServerFacts::Absent(socket.display().to_string()),
        Err(error) => ServerFacts::Unknown(error.to_string()),
    }
}

fn open_files(config: &Config, running: Option<&Running>) -> OpenFileFacts {
    let of_server = running.and_then(|running| open_files_limit_of(running.process_pid));
    let limit = of_server.unwrap_or_else(|| rlimit::raise_nofile_limit().unwrap_or(u64::MAX));
    OpenFileFacts { limit, is_of_server: of_server.is_some(), problem: descriptor_problem(config, limit) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_that_writes_too_long_or_too_much_is_ended() {
        let run = |script: &str, timeout| {
            let output = output_of(Command::new("sh").args(["-c", script]), timeout);
            output.map(|bytes| bytes.len()).map_err(|error| error.to_string())
        };
        let long = Duration::from_secs(30);
        assert_eq!(run("echo report", long), Ok(7));
        assert_eq!(
            run("echo a; exec sleep 1000", Duration::from_millis(30)),
            Err("it takes longer than 0.03 s".to_owned())
        );
        assert_eq!(run("exec cat /dev/zero", long), Err(format!("its report has more than {CHECK_BYTES_MAX} bytes")));
    }

    #[test]
    fn problems_of_a_server_are_bounded() {
        let list =
            |count: usize| (0..count).map(|number| format!("\"problem {number}\"")).collect::<Vec<_>>().join(",");
        let check = |count: usize, expected: usize, last: &str| {
            let text = format!(
                r#"{{"pid": 2, "problems": [{}], "sites": [], "zones": [], "certificates": [], "tsig_keys": []}}"#,
                list(count)
            );
            let status: ProcessStatus = serde_json::from_str(&text).expect("a status");
            let problems = status.all_problems();
            assert_eq!((problems.len(), problems.last().map(String::as_str)), (expected, Some(last)));
        };
        check(PROBLEMS_MAX, PROBLEMS_MAX, "problem 19");
        check(PROBLEMS_MAX + 2, PROBLEMS_MAX + 1, "2 more problems");
    }

    #[test]
    fn counts_are_shown_unless_all_that_they_count_are_named() {
        let text = r#"{
            "pid": 2,
            "problems": ["the agent does not run", "2 zones unavailable", "1 zone unsigned", "1 certificate due",
                "1 TSIG key kept"],
            "sites": [{ "hosts": ["a.example"], "state": "served", "reason": null }],
            "zones": [
                { "name": "a.example", "state": "unavailable", "reason": "no file; create it" },
                { "name": "b.example", "state": "unavailable", "reason": null },
                { "name": "c.example", "state": "unsigned", "reason": "no key" }
            ],
            "certificates": [{ "names": ["d.example"], "state": "due", "reason": "refused" }],
            "tsig_keys": [{ "name": "transfer", "state": "kept", "reason": "it is empty", "problem": "it is empty" }]
        }"#;
        let status: ProcessStatus = serde_json::from_str(text).expect("a status");
        let expected = [
            "the agent does not run",
            "2 zones unavailable",
            "the zone a.example is unavailable: no file; create it",
            "the zone c.example is unsigned: no key",
            "the certificate of d.example is due: refused",
            "the TSIG key transfer is kept: it is empty",
        ];
        assert_eq!(status.all_problems(), expected);
    }
}

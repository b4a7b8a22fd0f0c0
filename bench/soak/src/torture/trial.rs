//! A trial: a service, a scenario during which a call may fail, and the conditions that must hold afterwards.

use crate::extent::{Extent, becomes_true};
use crate::service::{LIMIT, NewProgram, Service, fd_count, is_running, processes_in, send_signal};
use crate::site::{Config, PAGE_PATH, version_text};
use crate::torture::fault::{Fault, Role, has_fault};
use crate::torture::strace::{Launcher, Strace};
use anyhow::{Context, bail, ensure};
use domain::base::iana::Rtype;
use loadgen::client;
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// A file that is sent from its descriptor.
const LARGE: &str = "first/large.bin";
const LARGE_BYTES: usize = 200_000;
/// The version of the zone that the reload without a fault must put into effect.
const CLEAN_VERSION: usize = 7;
/// Maximum wait for a request that a fault may have lost.
const LOST_AFTER: Duration = Duration::from_millis(500);
/// The exit status of a process that lacks a library (ld.so(8)).
const LOADER_STATUS: &str = "exit status: 127";
/// Maximum time for a scenario.
const ACT_LIMIT: Duration = Duration::from_secs(15);
/// Maximum time for which unneeded processes and descriptors may remain.
const SETTLE_LIMIT: Duration = Duration::from_secs(10);

/// The operations on a service while a call fails.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// The processes whose calls fail, one at a time.
    pub(crate) roles: &'static [Role],
    /// An error of the command, which it may report, or of the scenario itself.
    act: fn(&mut Service, &[String]) -> anyhow::Result<Option<String>>,
}

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "serve", roles: &[Role::Server], act: serve },
    Scenario { name: "reload-in-place", roles: &[Role::Supervisor, Role::Server], act: reload_in_place },
    Scenario { name: "reload-process", roles: &[Role::Supervisor, Role::Server, Role::NewServer], act: reload_process },
    Scenario { name: "upgrade", roles: &[Role::Supervisor, Role::Server, Role::NewServer], act: upgrade },
    Scenario { name: "stop", roles: &[Role::Supervisor, Role::Server], act: stop },
    Scenario { name: "kill-supervisor", roles: &[Role::Server, Role::NewSupervisor], act: kill_supervisor },
    Scenario { name: "kill-server", roles: &[Role::Supervisor, Role::NewServer], act: kill_server },
];

/// A result that must not occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    SupervisorDeath,
    ServerDeath,
    /// A command, or the end of a process, did not come in time.
    Hang,
    /// A descriptor or process was left.
    Leak,
    /// Two processes served at the same time.
    DoubleService,
    /// A request or command failed after the fault.
    Failure,
    /// A process died for lack of memory, or before its `main`, in the dynamic loader. This is no failure.
    ExcusedDeath,
}

/// The result of a trial.
#[derive(Debug, Default)]
pub(crate) struct Trial {
    /// The output of strace.
    pub(crate) trace: String,
    /// Whether the operator was informed, by the result of a command or in the log.
    pub(crate) is_reported: bool,
    pub(crate) defects: Vec<(Defect, String)>,
    /// Descriptors of supervisor and server process at the end.
    pub(crate) fd_counts: [usize; 2],
}

/// Runs a scenario with the arguments of strace for one process. `fd_counts` come from a trial without a fault.
pub(crate) fn run(
    program: &Path,
    scenario: &Scenario,
    role: Role,
    fault: Option<&Fault>,
    fd_counts: Option<[usize; 2]>,
) -> anyhow::Result<Trial> {
    let mut service = Service::start(program, Extent::Test, &Config::without_https(1))?;
    service.site.replace(LARGE, &"x".repeat(LARGE_BYTES))?;
    serve(&mut service, &[])?;
    let mut trial = Trial::default();
    let mut arguments = fault.map_or_else(Vec::new, Fault::arguments);
    if role != Role::Supervisor {
        arguments.push("-f".to_owned());
    }
    let supervisor_pid = service.supervisor_pid();
    // The counts include descriptors of this program that no exec has closed yet.
    let fd_counts = fd_counts.map(|[supervisor, server]| [supervisor.max(fd_count(supervisor_pid)), server]);
    let start = Instant::now();
    let (acted, trace) = match role {
        Role::Supervisor | Role::Server => {
            let pid = if role == Role::Server { service.only_server_pid()? } else { supervisor_pid };
            let strace = Strace::attach(pid, &arguments)?;
            let acted = (scenario.act)(&mut service, &[]);
            (acted, strace.finish())
        }
        Role::NewServer => thread::scope(|scope| {
            let attaching = scope.spawn(|| Strace::attach_to_next_child(supervisor_pid, &arguments));
            // The first strace is attached when the supervisor has a tracer.
            becomes_true(LIMIT, || is_traced(supervisor_pid) || attaching.is_finished());
            let acted = (scenario.act)(&mut service, &[]);
            let strace = attaching.join().expect("no panic")?;
            Ok::<_, anyhow::Error>((acted, strace.finish()))
        })?,
        Role::Agent | Role::Keeper => bail!("faults of the {role:?} are those of zones"),
        Role::NewSupervisor => {
            let launcher = Launcher::new(&arguments)?;
            let acted = (scenario.act)(&mut service, &launcher.words);
            (acted, launcher.finish(service.supervisor_pid()))
        }
    };
    trial.trace = trace;
    if fault.is_some() && !has_fault(&trial.trace) {
        return Ok(trial);
    }
    match acted {
        Ok(_) if start.elapsed() > ACT_LIMIT => {
            trial.defects.push((Defect::Hang, format!("the scenario took {:?}", start.elapsed())));
        }
        Ok(problem) => trial.is_reported = problem.is_some(),
        Err(error) => trial.defects.push((Defect::Hang, format!("{error:#}"))),
    }
    let is_checked = judge(&mut service, scenario, fd_counts, &mut trial);
    if let Err(error) = is_checked {
        trial.defects.push((Defect::Failure, format!("{error:#}")));
    }
    judge_log(&service.output(), scenario, &mut trial);
    let is_for_memory = fault.is_some_and(Fault::is_for_memory);
    for (defect, what) in &mut trial.defects {
        let is_death = matches!(defect, Defect::SupervisorDeath | Defect::ServerDeath);
        if is_death && (is_for_memory || what.ends_with(LOADER_STATUS)) {
            *defect = Defect::ExcusedDeath;
        }
    }
    Ok(trial)
}

/// Clean requests, the status, a reload and a stop.
fn judge(
    service: &mut Service,
    scenario: &Scenario,
    fd_counts: Option<[usize; 2]>,
    trial: &mut Trial,
) -> anyhow::Result<()> {
    let starts_supervisor = matches!(scenario.name, "kill-supervisor" | "stop");
    if let Some(status) = service.supervisor_status()? {
        if !starts_supervisor || status.code().is_none() {
            trial.defects.push((Defect::SupervisorDeath, format!("the supervisor has ended: {status}")));
        }
        trial.is_reported = true;
        service.restart_supervisor(&[])?;
    }
    request(service, Duration::from_secs(5))?;
    ensure!(becomes_true(LIMIT, || service.is_supervised()), "no status");
    require_one_server(service, trial);
    service.site.set_version(CLEAN_VERSION)?;
    service.reload().context("the reload without a fault")?;
    // A process that was replaced may answer a connection that it had accepted.
    let text = version_text(CLEAN_VERSION);
    let is_in_effect = becomes_true(SETTLE_LIMIT, || {
        let reply = client::query_tcp(service.site.dns, "version.example.com", Rtype::TXT);
        reply.is_ok_and(|reply| reply.as_slice().windows(text.len()).any(|window| window == text.as_bytes()))
    });
    ensure!(is_in_effect, "the reload without a fault is not in effect");
    request(service, Duration::from_secs(5))?;
    require_one_server(service, trial);
    let pids = [service.supervisor_pid(), service.only_server_pid()?];
    let is_settled = becomes_true(SETTLE_LIMIT, || {
        trial.fd_counts = pids.map(fd_count);
        fd_counts.is_none_or(|expected| (0..2).all(|index| trial.fd_counts[index] <= expected[index]))
    });
    if !is_settled {
        let what = format!("descriptors: {:?}, {fd_counts:?} without a fault", trial.fd_counts);
        trial.defects.push((Defect::Leak, what));
    }
    let ended = service.command(&["stop"])?;
    ensure!(ended.is_success, "`sanderling stop` failed: {}", ended.errors);
    if !service.has_ended() {
        trial.defects.push((Defect::Leak, format!("processes: {:?}", processes_in(&service.site.folder))));
    }
    Ok(())
}

fn require_one_server(service: &Service, trial: &mut Trial) {
    let mut pids = Vec::new();
    let is_single = becomes_true(SETTLE_LIMIT, || {
        pids = server_processes(&service.site.folder);
        pids.len() == 1
    });
    if !is_single {
        trial.defects.push((Defect::DoubleService, format!("server processes: {pids:?}")));
    }
}

/// Finds deaths of server processes in the log.
fn judge_log(log: &str, scenario: &Scenario, trial: &mut Trial) {
    const DEATHS: [&str; 6] =
        ["restarting", "aborting it", "killing it", "panicked", "this server process has failed", "killed by signal"];
    let mut is_expected = scenario.name == "kill-server";
    for line in log.lines().filter(|line| line.starts_with("sanderling: ") || line.contains("panicked")) {
        if is_expected && line.contains("was killed by signal 9 after") {
            is_expected = false;
        } else if DEATHS.iter().any(|death| line.contains(death)) {
            trial.defects.push((Defect::ServerDeath, line.to_owned()));
        }
        trial.is_reported |= ["failed", "cannot", "retrying"].iter().any(|word| line.contains(word));
    }
}

/// Requests of each kind, of which a fault may lose some.
fn serve(service: &mut Service, _: &[String]) -> anyhow::Result<Option<String>> {
    let lost = request(service, LOST_AFTER).err().map(|error| format!("{error:#}"));
    Ok(lost)
}

/// Requests of each kind, all of which must be answered.
fn request(service: &Service, timeout: Duration) -> anyhow::Result<()> {
    let site = &service.site;
    let http = |path: &str, status: u16, fields: &str| -> anyhow::Result<()> {
        let (response, _) =
            client::get(site.http, "example.com", path, fields).with_context(|| format!("GET {path}"))?;
        ensure!(response.status == status, "GET {path}: status {}", response.status);
        Ok(())
    };
    let results = [
        http(PAGE_PATH, 200, ""),
        http("/large.bin", 200, "Connection: close\r\n"),
        http("/missing", 404, "Connection: close\r\n"),
        client::query_tcp(site.dns, "example.com", Rtype::SOA).map(drop).context("DNS over TCP"),
        client::query_udp(site.dns, "example.com", Rtype::MX, timeout).map(drop).context("DNS over UDP"),
    ];
    results.into_iter().collect()
}

/// The error of a command, if it has failed.
fn command(service: &Service, words: &[&str]) -> anyhow::Result<Option<String>> {
    let ended = service.command(words)?;
    Ok((!ended.is_success).then_some(ended.errors))
}

fn reload_in_place(service: &mut Service, _: &[String]) -> anyhow::Result<Option<String>> {
    service.site.set_version(1)?;
    service.set_config(&Config { alias_version: 1, ..Config::without_https(1) })?;
    command(service, &["reload"])
}

fn reload_process(service: &mut Service, _: &[String]) -> anyhow::Result<Option<String>> {
    service.set_config(&Config::without_https(2))?;
    command(service, &["reload"])
}

fn upgrade(service: &mut Service, _: &[String]) -> anyhow::Result<Option<String>> {
    service.replace_program(NewProgram::Good)?;
    command(service, &["upgrade"])
}

/// A stop whose command was not received is retried.
fn stop(service: &mut Service, _: &[String]) -> anyhow::Result<Option<String>> {
    let problem = command(service, &["stop"])?;
    if problem.is_some() && !becomes_true(LOST_AFTER, || server_processes(&service.site.folder).is_empty()) {
        command(service, &["stop"])?;
    }
    if !service.has_ended() {
        bail!("processes are left after `sanderling stop`: {:?}", processes_in(&service.site.folder));
    }
    service.restart_supervisor(&[])?;
    service.wait_until_ready()?;
    Ok(problem)
}

fn kill_supervisor(service: &mut Service, launcher: &[String]) -> anyhow::Result<Option<String>> {
    send_signal(service.supervisor_pid(), Signal::KILL)?;
    service.restart_supervisor(launcher)?;
    let is_over = becomes_true(LIMIT, || service.is_supervised() || !matches!(service.supervisor_status(), Ok(None)));
    ensure!(is_over, "the new supervisor neither supervises nor ends");
    Ok(None)
}

fn kill_server(service: &mut Service, _: &[String]) -> anyhow::Result<Option<String>> {
    let old_pid = service.only_server_pid()?;
    send_signal(old_pid, Signal::KILL)?;
    let has_new =
        || service.newest_server_pid().is_ok_and(|pid| pid != old_pid) && request(service, LOST_AFTER).is_ok();
    ensure!(becomes_true(LIMIT, has_new), "the server process was not replaced");
    Ok(None)
}

/// The server processes of the service, also those that no supervisor knows.
fn server_processes(folder: &Path) -> Vec<u32> {
    let is_server = |pid: &u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|word| word == b"internal-server-process") && is_running(*pid)
    };
    processes_in(folder).into_iter().filter(is_server).collect()
}

fn is_traced(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("TracerPid:").is_some_and(|tracer| tracer.trim() != "0"))
}

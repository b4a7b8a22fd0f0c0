//! Single faults of the agent and of the keeper, after each of which every zone accepts changes as before: a zone with
//! dynamic updates, a signed zone with dynamic updates, a signed zone, and a transferred zone.
//!
//! Many faults, one after another, hit the same service, so that a fault with a later effect is found too.

use super::fault::{Fault, Role, count_calls, faults_of, has_fault, mix};
use super::in_parallel;
use super::strace::Strace;
use crate::extent::becomes_true;
use crate::service::{is_running, processes_in, send_signal};
use anyhow::{Context, bail, ensure};
use domain::base::iana::Rtype;
use loadgen::client;
use rustix::process::Signal;
use sanderling_testkit::free_address;
use std::collections::VecDeque;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Time in which all zones must take a change after a fault.
const HEALTHY_WITHIN: Duration = Duration::from_secs(10);
/// Maximum time for startup on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(30);
/// Maximum time for a command in which a call fails.
const COMMAND_LIMIT: Duration = Duration::from_secs(20);
/// Concurrent services per processor, which mostly wait.
const SERVICES_PER_CPU: usize = 2;
const SECRET: &str = "c2FuZGVybGluZy10b3J0dXJlLXNlY3JldC0xMjM0NTY=";
const UPDATED: [&str; 2] = ["updated.test", "signed-updated.test"];
const SIGNED: &str = "signed.test";
const SECONDARY: &str = "secondary.test";

/// The operation during which a call fails, with its name.
type Operation = (&'static str, fn(&mut ZoneService));

const OPERATIONS: &[Operation] = &[
    ("zones-update", |service| UPDATED.iter().for_each(|zone| drop(service.update(zone)))),
    ("zones-sign", |service| drop(service.sign())),
    ("zones-transfer", |service| drop(service.transfer())),
    ("zones-rollover", |service| drop(service.command(&["dnssec", "rollover", SIGNED]))),
    ("zones-reload", |service| drop(service.command(&["reload"]))),
    ("zones-keeper", |service| {
        service.kill(Role::Keeper);
        drop(service.update(UPDATED[1]));
    }),
];

/// The results of the torture test of zones.
#[derive(Debug, Default)]
pub struct ZoneSummary {
    /// Faults that have occurred.
    pub fault_count: usize,
    /// Faults after which a zone has refused updates.
    pub refusing_count: usize,
    /// Faults after which a zone was not signed again, or not transferred: its task is dead.
    pub dead_task_count: usize,
    /// Faults after which `status` has reported a problem, or something else was wrong.
    pub other_count: usize,
    /// Each defect, with its details.
    pub failures: Vec<(Fault, String)>,
}

/// A function that a zone, or the service, no longer performs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    RefusesUpdates,
    DeadTask,
    Other,
}

/// Runs all operations with `fault_count` faults of those that are possible, or with `faults` only.
///
/// # Errors
/// Returns an error if strace cannot be run, this process must not trace the agent, or a check fails without a fault.
pub fn run(
    program: &Path,
    faults: Vec<Fault>,
    fault_count: usize,
    seed: u64,
    progress: impl Fn(&str) + Sync,
) -> anyhow::Result<ZoneSummary> {
    let mut random = fastrand::Rng::with_seed(seed);
    let wanted_count = if faults.is_empty() { fault_count } else { faults.len() };
    let queue = if faults.is_empty() { possible_faults(program, &mut random)? } else { faults };
    progress(&format!("{} possible faults of agent and keeper; {wanted_count} are injected, seed {seed}", queue.len()));
    let (queue, summary) = (Mutex::new(VecDeque::from(queue)), Mutex::new(ZoneSummary::default()));
    let service_count = SERVICES_PER_CPU * thread::available_parallelism()?.get();
    let services: VecDeque<usize> = (0..service_count.min(wanted_count)).collect();
    let results = in_parallel(services, |_| {
        let mut service = ZoneService::start(program)?;
        loop {
            let fault = queue.lock().expect("no panic").pop_front();
            let is_enough = summary.lock().expect("no panic").fault_count >= wanted_count;
            let Some(fault) = fault.filter(|_| !is_enough) else { return Ok(()) };
            let trace = service.act(&fault, &fault.arguments())?;
            let defects = service.defects();
            if has_fault(&trace) {
                let mut summary = summary.lock().expect("no panic");
                summary.add(&fault, &defects);
                if summary.fault_count.is_multiple_of(100) {
                    progress(&format!("{} of {wanted_count} faults", summary.fault_count));
                }
            }
            if !defects.is_empty() {
                progress(&format!("{fault}: {defects:?}: {}", service.last_output()));
                service = ZoneService::start(program)?;
            }
        }
    })?;
    results.into_iter().collect::<anyhow::Result<()>>()?;
    Ok(summary.into_inner().expect("no panic"))
}

impl ZoneSummary {
    fn add(&mut self, fault: &Fault, defects: &[(Defect, String)]) {
        self.fault_count += 1;
        let has = |wanted| usize::from(defects.iter().any(|(defect, _)| *defect == wanted));
        self.refusing_count += has(Defect::RefusesUpdates);
        self.dead_task_count += has(Defect::DeadTask);
        self.other_count += has(Defect::Other);
        self.failures.extend(defects.iter().map(|(_, what)| (fault.clone(), what.clone())));
    }
}

/// The faults of the calls that both processes make in each operation, in a random order.
fn possible_faults(program: &Path, random: &mut fastrand::Rng) -> anyhow::Result<Vec<Fault>> {
    let mut service = ZoneService::start(program)?;
    let mut groups = Vec::new();
    for (name, _) in OPERATIONS {
        for role in
            [Role::Agent, Role::Keeper].into_iter().filter(|role| (*name, *role) != ("zones-keeper", Role::Keeper))
        {
            let trace = service.act(&Fault::none(name, role), &[])?;
            groups.extend(faults_of(name, role, &count_calls(&trace)));
        }
        let defects = service.defects();
        ensure!(defects.is_empty(), "{name} without a fault: {defects:?}: {}", service.last_output());
    }
    Ok(mix(groups, random))
}

/// A server with all kinds of zones, and the primary server of one of them.
struct ZoneService {
    program: PathBuf,
    supervisor: Child,
    primary: Child,
    folder: TempDir,
    primary_folder: TempDir,
    address: SocketAddr,
    /// The number of the last change of any zone.
    change: u32,
}

impl ZoneService {
    fn start(program: &Path) -> anyhow::Result<ZoneService> {
        let [folder, primary_folder] = [TempDir::with_prefix("zones-")?, TempDir::with_prefix("primary-")?];
        // NOTIFY comes from the address that the primary listens on.
        let (address, primary_address) = (free_address(), free_address());
        let updates = "update = [{ key = \"update\", names = [\"**\"], types = [\"ANY\"] }]";
        let [updated, signed_updated] = UPDATED;
        let config = format!(
            "workers = 1\nstate = \"state\"\n[dns]\nresolvers = []\nlisten = [\"{address}\"]\n\
             [tsig.update]\nsecret_file = \"update.key\"\n\
             [domain.\"{updated}\"]\nzone = \"{updated}.zone\"\n{updates}\n\
             [domain.\"{signed_updated}\"]\nzone = \"{signed_updated}.zone\"\ndnssec = true\n{updates}\n\
             [domain.\"{SIGNED}\"]\nzone = \"{SIGNED}.zone\"\ndnssec = {{ keys = \"ksk-zsk\" }}\n\
             [domain.\"{SECONDARY}\"]\nprimaries = [{{ address = \"{primary_address}\" }}]\n"
        );
        let primary_config = format!(
            "workers = 1\nstate = \"state\"\n[dns]\nresolvers = []\nlisten = [\"{primary_address}\"]\n\
             [domain.\"{SECONDARY}\"]\nzone = \"{SECONDARY}.zone\"\nsecondaries = [{{ address = \"{address}\" }}]\n"
        );
        for zone in UPDATED.into_iter().chain([SIGNED]) {
            write_zone(folder.path(), zone, 1)?;
        }
        write_zone(primary_folder.path(), SECONDARY, 1)?;
        fs::write(folder.path().join("update.key"), format!("{SECRET}\n"))?;
        let primary = serve(program, primary_folder.path(), &primary_config)?;
        let supervisor = serve(program, folder.path(), &config)?;
        let program = program.to_owned();
        let mut service = ZoneService { program, supervisor, primary, folder, primary_folder, address, change: 1 };
        let mut problem = Ok(());
        let is_ready = becomes_true(START_LIMIT, || {
            problem = service.require_health();
            problem.is_ok()
        });
        let last_output = if is_ready { String::new() } else { service.last_output() };
        problem.with_context(|| format!("the zones are not served: {last_output}"))?;
        Ok(service)
    }

    /// Runs the operation during the fault, with these arguments of strace; returns strace's output.
    fn act(&mut self, fault: &Fault, arguments: &[String]) -> anyhow::Result<String> {
        let operation = OPERATIONS.iter().find(|(name, _)| *name == fault.scenario);
        let (_, operation) = operation.with_context(|| format!("{fault}: no such operation"))?;
        let pid = self.pid(fault.role).with_context(|| format!("{fault}: no such process"))?;
        let strace = Strace::attach(pid, &[arguments, &["-f".to_owned()]].concat())?;
        operation(self);
        Ok(strace.finish())
    }

    /// The agent or the keeper.
    fn pid(&self, role: Role) -> Option<u32> {
        let word: &[u8] = match role {
            Role::Agent => b"internal-agent",
            Role::Keeper => b"internal-keeper",
            _ => return None,
        };
        let is_it = |pid: &u32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.split(|byte| *byte == 0).any(|it| it == word) && is_running(*pid)
        };
        let mut found = None;
        becomes_true(START_LIMIT, || {
            found = processes_in(self.folder.path()).into_iter().find(is_it);
            found.is_some()
        });
        found
    }

    fn kill(&self, role: Role) {
        // The process may already have exited.
        let _ = self.pid(role).map(|pid| send_signal(pid, Signal::KILL));
    }

    /// The defects that have lasted longer than permitted.
    fn defects(&mut self) -> Vec<(Defect, String)> {
        let end = Instant::now() + HEALTHY_WITHIN;
        let mut defects = Vec::new();
        for zone in UPDATED {
            let problem = until_none(end, || self.update(zone).err());
            defects.extend(problem.map(|error| (Defect::RefusesUpdates, format!("{zone} refuses updates: {error:#}"))));
        }
        for (zone, change) in [(SIGNED, ZoneService::sign as fn(&mut _) -> _), (SECONDARY, ZoneService::transfer)] {
            let problem = until_none(end, || change(self).err());
            defects.extend(problem.map(|error| (Defect::DeadTask, format!("{zone} is not changed: {error:#}"))));
        }
        let problem = until_none(end, || self.status().err());
        defects.extend(problem.map(|error| (Defect::Other, format!("status: {error:#}"))));
        defects
    }

    fn require_health(&mut self) -> anyhow::Result<()> {
        UPDATED.into_iter().try_for_each(|zone| self.update(zone))?;
        self.sign().and_then(|()| self.transfer()).and_then(|()| self.status())
    }

    /// Makes a dynamic update.
    fn update(&mut self, zone: &str) -> anyhow::Result<()> {
        self.change += 1;
        let (ip, port, change) = (self.address.ip(), self.address.port(), self.change);
        let text = format!(
            "server {ip} {port}\nzone {zone}\nttl 60\nupdate delete k{0}.{zone} TXT\n\
             update add k{0}.{zone} TXT \"{change}\"\nsend\n",
            change % 7
        );
        let file = self.folder.path().join("nsupdate.txt");
        fs::write(&file, text)?;
        let mut command = Command::new("nsupdate");
        command.args(["-t", "6", "-u", "6", "-r", "0", "-y", &format!("hmac-sha256:update:{SECRET}")]).arg(&file);
        let ended = run_command(&mut command).context("nsupdate (Debian package bind9-dnsutils)")?;
        ensure!(ended.is_none(), "{}", ended.unwrap_or_default());
        self.require_text(zone, &format!("k{}.{zone}", change % 7), &change.to_string())
    }

    /// Changes the signed zone's file, and has it signed.
    fn sign(&mut self) -> anyhow::Result<()> {
        self.change += 1;
        write_zone(self.folder.path(), SIGNED, self.change)?;
        self.command(&["reload", SIGNED])?;
        self.require_text(SIGNED, &format!("version.{SIGNED}"), &self.change.to_string())
    }

    /// Changes the primary's zone.
    fn transfer(&mut self) -> anyhow::Result<()> {
        const TRANSFERRED_WITHIN: Duration = Duration::from_secs(4);
        self.change += 1;
        write_zone(self.primary_folder.path(), SECONDARY, self.change)?;
        command(&self.program, self.primary_folder.path(), &["reload"])?;
        let text = self.change.to_string();
        let mut result = Ok(());
        becomes_true(TRANSFERRED_WITHIN, || {
            result = self.require_text(SECONDARY, &format!("version.{SECONDARY}"), &text);
            result.is_ok()
        });
        result
    }

    fn status(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.supervisor.try_wait()? {
            bail!("the supervisor has ended: {status}");
        }
        self.command(&["status"])
    }

    fn command(&self, words: &[&str]) -> anyhow::Result<()> {
        command(&self.program, self.folder.path(), words)
    }

    /// Whether the server answers with this text.
    fn require_text(&self, zone: &str, name: &str, text: &str) -> anyhow::Result<()> {
        let reply = client::query_tcp(self.address, name, Rtype::TXT)?;
        // The message is preceded by its length.
        let text = [&[text.len() as u8], text.as_bytes()].concat();
        let is_found = reply.as_slice().windows(text.len()).any(|window| window == text);
        ensure!(is_found, "{zone} answers for {name} with another text");
        Ok(())
    }

    fn last_output(&self) -> String {
        let output = fs::read_to_string(self.folder.path().join("output")).unwrap_or_default();
        output.lines().skip(output.lines().count().saturating_sub(8)).collect::<Vec<_>>().join(" | ")
    }
}

impl Drop for ZoneService {
    fn drop(&mut self) {
        for supervisor in [&mut self.supervisor, &mut self.primary] {
            // The supervisor may have exited meanwhile.
            let _ = send_signal(supervisor.id(), Signal::TERM);
            becomes_true(START_LIMIT, || !matches!(supervisor.try_wait(), Ok(None)));
        }
        for pid in [&self.folder, &self.primary_folder].into_iter().flat_map(|folder| processes_in(folder.path())) {
            let _ = send_signal(pid, Signal::KILL);
        }
    }
}

/// Calls `find` until there is no problem; the last one at `end`.
fn until_none<T>(end: Instant, mut find: impl FnMut() -> Option<T>) -> Option<T> {
    loop {
        let problem = find();
        if problem.is_none() || Instant::now() >= end {
            return problem;
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn write_zone(folder: &Path, zone: &str, change: u32) -> anyhow::Result<()> {
    let text = format!(
        "$ORIGIN {zone}.\n$TTL 60\n@ SOA ns host {change} 4 2 86400 60\n@ NS ns\nns A 192.0.2.1\nwww A 192.0.2.2\n\
         version TXT \"{change}\"\n"
    );
    let new = folder.join("new");
    fs::write(&new, text)?;
    Ok(fs::rename(new, folder.join(format!("{zone}.zone")))?)
}

/// Starts a server in `folder`.
fn serve(program: &Path, folder: &Path, config: &str) -> anyhow::Result<Child> {
    // Root serves as another user, which must reach it.
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    fs::write(folder.join("sanderling.toml"), config)?;
    let output = fs::File::create(folder.join("output"))?;
    let mut command = Command::new(program);
    command.args(["serve", "--config", "sanderling.toml", "--control", "control"]).current_dir(folder);
    command.env("NO_COLOR", "1").stdin(Stdio::null()).stderr(output.try_clone()?).stdout(output);
    Ok(command.spawn()?)
}

/// # Errors
/// Returns an error if the command fails or takes too long.
fn command(program: &Path, folder: &Path, words: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new(program);
    command.args(words).args(["--control", "control"]).current_dir(folder).env("NO_COLOR", "1");
    let problem = run_command(&mut command)?;
    ensure!(problem.is_none(), "`sanderling {}`: {}", words.join(" "), problem.unwrap_or_default());
    Ok(())
}

/// The output of a program if it has failed.
fn run_command(command: &mut Command) -> anyhow::Result<Option<String>> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    // A few lines of output fit into the pipe.
    if !becomes_true(COMMAND_LIMIT, || !matches!(child.try_wait(), Ok(None))) {
        child.kill()?;
        child.wait()?;
        return Ok(Some(format!("no end within {COMMAND_LIMIT:?}")));
    }
    let output = child.wait_with_output()?;
    let text = [output.stdout, output.stderr].concat();
    Ok((!output.status.success()).then(|| String::from_utf8_lossy(&text).trim().replace('\n', " | ")))
}

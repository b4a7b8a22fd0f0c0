//! A running server: started on its own processor, measured, and stopped.

use crate::compare::peers::{AccessLog, Certificate, Content, FDS_MAX, Peer, Place};
use anyhow::{Context, bail};
use loadgen::client;
use procfs::process::{Process, all_processes};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Maximum time for a server to answer; a zone of ten million names takes minutes.
const START_LIMIT: Duration = Duration::from_secs(240);
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// The precision of the time to the first answer.
const START_POLL_EVERY: Duration = Duration::from_millis(1);
const OUTPUT: &str = "output";

/// The locations of programs, and the processors on which they run.
#[derive(Clone, Debug)]
pub(crate) struct Bench {
    pub(crate) sanderling: PathBuf,
    /// An earlier build of the server.
    pub(crate) before: Option<PathBuf>,
    pub(crate) floor: PathBuf,
    pub(crate) folder: PathBuf,
    /// Servers listen for TLS as well.
    pub(crate) certificate: Option<Certificate>,
    pub(crate) access_log: AccessLog,
    /// The other lines of the settings that count: lines that begin with `#` and one of these words.
    pub(crate) marks: &'static [&'static str],
    /// As for `taskset --cpu-list`.
    pub(crate) server_cpus: String,
    pub(crate) load_cpus: String,
}

impl Bench {
    pub(crate) fn place(&self, name: &str, worker_count: usize) -> anyhow::Result<Place> {
        let folder = self.folder.join(name);
        fs::create_dir_all(&folder)?;
        // BIND listens on the addresses of interfaces only, not on the whole network of the loopback.
        let address = client::free_port(Ipv4Addr::LOCALHOST)?;
        let certificate = self.certificate.clone();
        let tls = certificate.map(|it| Ok::<_, anyhow::Error>((client::free_port(Ipv4Addr::LOCALHOST)?, it)));
        let (access_log, marks) = (self.access_log, self.marks);
        Ok(Place { folder, address, tls: tls.transpose()?, access_log, marks, worker_count })
    }

    /// The peers, and the earlier build if there is one, with the settings of this build.
    fn peers(&self, peers: &[Peer]) -> Vec<Peer> {
        let ours = peers.iter().find(|peer| peer.name == "sanderling" && self.before.is_some());
        let before = ours.map(|ours| Peer { name: "before", program: "before", ..*ours });
        peers.iter().copied().chain(before).collect()
    }

    fn program(&self, peer: &Peer) -> &OsStr {
        match peer.program {
            "sanderling" => self.sanderling.as_os_str(),
            "before" => self.before.as_ref().map_or(OsStr::new("before"), |before| before.as_os_str()),
            "floor" => self.floor.as_os_str(),
            program => program.as_ref(),
        }
    }

    pub(crate) fn start(
        &self,
        peer: &Peer,
        place: Place,
        content: &Content,
        answers: impl Fn(SocketAddr) -> bool,
    ) -> anyhow::Result<Server> {
        let (config, text) = peer.config(&place, content);
        fs::write(place.folder.join(config), text)?;
        let output = fs::File::create(place.folder.join(OUTPUT))?;
        let mut command = pinned(self.program(peer), &self.server_cpus);
        command.args(peer.arguments(&place, content)).current_dir(&place.folder);
        command.env("GOMAXPROCS", place.worker_count.to_string());
        for name in ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
            command.env(name, &place.folder);
        }
        command.stderr(output.try_clone()?).stdout(output);
        let start = Instant::now();
        let child = command.spawn().context("setpriv")?;
        let (name, pids) = (peer.name, vec![child.id() as i32]);
        let mut server = Server { name, place, start_time: Duration::ZERO, child: Mutex::new(child), pids };
        while !answers(server.address()) {
            if let Some(error) = server.ended() {
                bail!(error);
            }
            if start.elapsed() > START_LIMIT {
                bail!("{name} did not answer within {START_LIMIT:?}: {}", server.last_output());
            }
            std::thread::sleep(START_POLL_EVERY);
        }
        server.start_time = start.elapsed();
        server.pids = process_tree(server.pids[0]);
        Ok(server)
    }

    /// Starts servers, and the earlier build if there is one, on the same content. A server that does not start is left
    /// out.
    pub(crate) fn start_all(
        &self,
        peers: &[Peer],
        name: &str,
        worker_count: usize,
        content: &Content,
        answers: impl Fn(SocketAddr) -> bool,
    ) -> anyhow::Result<Vec<Server>> {
        let mut servers = Vec::new();
        for peer in &self.peers(peers) {
            let place = self.place(&format!("{name}-{}", peer.name), worker_count)?;
            match self.start(peer, place, content, &answers) {
                Ok(server) => servers.push(server),
                Err(error) => println!("without {}: {error:#}", peer.name),
            }
        }
        Ok(servers)
    }
}

/// A command on some processors, with the limit of file descriptors of all programs. The command ends with this
/// process, and has its own process group, as lighttpd signals its whole group.
pub(crate) fn pinned(program: &OsStr, cpus: &str) -> Command {
    let limit = format!("--nofile={FDS_MAX}:{FDS_MAX}");
    let mut command = Command::new("setpriv");
    // Each program executes the next one in the same process.
    command.args(["--pdeathsig", "TERM", "prlimit", &limit, "taskset", "--cpu-list", cpus]).arg(program);
    command.stdin(Stdio::null()).process_group(0);
    command
}

/// A server that answers. The server is stopped when it is dropped.
pub(crate) struct Server {
    pub(crate) name: &'static str,
    pub(crate) place: Place,
    /// The time from the start of the process to the first answer.
    pub(crate) start_time: Duration,
    child: Mutex<Child>,
    /// The process that was started, and its descendants at the first answer.
    pub(crate) pids: Vec<i32>,
}

impl Server {
    pub(crate) fn address(&self) -> SocketAddr {
        self.place.address
    }

    pub(crate) fn tls_address(&self) -> anyhow::Result<SocketAddr> {
        Ok(self.place.tls.as_ref().context("the server has no TLS")?.0)
    }

    /// The server's exit status, if it has exited.
    pub(crate) fn ended(&self) -> Option<String> {
        let status = self.child.lock().expect("no thread panics with the lock").try_wait().ok()??;
        Some(format!("{} ended ({status}): {}", self.name, self.last_output()))
    }

    fn last_output(&self) -> String {
        let output = fs::read_to_string(self.place.folder.join(OUTPUT)).unwrap_or_default();
        output.lines().skip(output.lines().count().saturating_sub(5)).collect::<Vec<_>>().join(" | ")
    }

    pub(crate) fn cpu_ns(&self) -> u64 {
        let processes = self.pids.iter().filter_map(|pid| Process::new(*pid).ok());
        let tasks = processes.flat_map(|process| process.tasks().into_iter().flatten().flatten());
        tasks.filter_map(|task| task.schedstat().ok()).map(|stat| stat.sum_exec_runtime).sum()
    }

    /// The proportional set size of all processes, which a reload may have replaced.
    pub(crate) fn memory_mib(&self) -> f64 {
        let pss = |pid: i32| {
            let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
            rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?.split_whitespace().next()?.parse::<f64>().ok()
        };
        process_tree(self.pids[0]).into_iter().filter_map(pss).sum::<f64>() / 1024.0
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        stop(self.child.get_mut().expect("no thread panics with the lock"), Signal::TERM);
        // Processes that their parent has left. Process IDs are reused, so they are found by their folder.
        for pid in soak::processes_in(&self.place.folder) {
            send_signal(pid as i32, Signal::KILL);
        }
    }
}

pub(crate) fn stop(child: &mut Child, signal: Signal) {
    // After a child was waited for, its process ID may belong to another process.
    if matches!(child.try_wait(), Ok(None)) {
        send_signal(child.id() as i32, signal);
    }
    let limit = Instant::now() + STOP_LIMIT;
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() > limit {
            // An error means that the process has ended.
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a signal; whether the process exists.
pub(crate) fn send_signal(pid: i32, signal: Signal) -> bool {
    Pid::from_raw(pid).is_some_and(|pid| kill_process(pid, signal).is_ok())
}

/// A process and its descendants; the process first.
fn process_tree(root: i32) -> Vec<i32> {
    let stats: Vec<_> =
        all_processes().into_iter().flatten().flatten().filter_map(|process| process.stat().ok()).collect();
    let mut pids = vec![root];
    let mut index = 0;
    while let Some(&parent) = pids.get(index) {
        pids.extend(stats.iter().filter(|stat| stat.ppid == parent).map(|stat| stat.pid));
        index += 1;
    }
    pids
}

/// System calls by name, the most frequent first.
pub(crate) type Calls = Vec<(String, u64)>;

/// Counts the system calls of a server by strace while `act` runs.
pub(crate) fn count_calls<T>(server: &Server, act: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<(Calls, T)> {
    let table = server.place.folder.join("strace");
    let mut command = Command::new("strace");
    command.args(["-c", "-f", "-qq", "-o"]).arg(&table);
    command.args(server.pids.iter().map(|pid| format!("--attach={pid}")));
    let mut strace = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().context("strace")?;
    let limit = Instant::now() + STOP_LIMIT;
    while !server.pids.iter().all(|pid| is_traced(*pid)) {
        if Instant::now() > limit {
            stop(&mut strace, Signal::INT);
            bail!("strace did not attach; check that this user may trace");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let acted = act();
    // strace writes the table when it is interrupted.
    stop(&mut strace, Signal::INT);
    Ok((parse_calls(&fs::read_to_string(&table).context("strace wrote no table")?), acted?))
}

fn is_traced(pid: i32) -> bool {
    let tasks = Process::new(pid).and_then(|process| process.tasks()).into_iter().flatten().flatten();
    let mut statuses = tasks.filter_map(|task| task.status().ok());
    statuses.all(|status| status.tracerpid != 0)
}

/// Parses the columns of `strace -c`: time, seconds, time per call, calls, errors if any, name.
fn parse_calls(table: &str) -> Calls {
    let parse = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let count = words.get(3)?.parse().ok()?;
        words.last().filter(|name| **name != "total").map(|name| ((*name).to_owned(), count))
    };
    let mut calls: Calls = table.lines().filter_map(parse).collect();
    calls.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_parsed_with_and_without_errors() {
        let table = "% time     seconds  usecs/call     calls    errors syscall\n------ ----------- ----------- ---------\n \
                     58.12    0.412000           4    100000           sendto\n \
                     41.70    0.295600           2    100640       640 recvfrom\n\
                     100.00    0.708900           3    200640       640 total\n";
        assert_eq!(parse_calls(table), [("recvfrom".to_owned(), 100_640), ("sendto".to_owned(), 100_000)]);
    }
}

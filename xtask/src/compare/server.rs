//! A program and its settings, as a server that runs on its own processor, answers, and is ended by its number.

use std::cell::RefCell;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use super::launch::{Launch, Place, pinned};
use super::process_tree::{self, ProcessorTime};
use crate::program::signal;

/// How long a server may take until it answers; a zone of ten million names takes its time.
const START_LIMIT: Duration = Duration::from_secs(240);
/// Between two looks whether it answers: the grain of the times to the first answer.
const START_LOOK_EVERY: Duration = Duration::from_millis(1);
/// How long it may take to end.
const END_LIMIT: Duration = Duration::from_secs(10);
/// Between two looks whether it has ended.
const END_LOOK_EVERY: Duration = Duration::from_millis(5);
/// Where a server's own messages go, in its folder, and how many of them are told when it fails.
const OUTPUT: &str = "output";
const LAST_LINE_COUNT: usize = 5;

/// A server that answers. It is ended when it is dropped.
pub(super) struct Server {
    pub(super) name: &'static str,
    pub(super) address: SocketAddr,
    pub(super) folder: PathBuf,
    /// From its start to its first answer.
    pub(super) start_time: Duration,
    child: RefCell<Child>,
    pids: Vec<u32>,
}

impl Server {
    /// Starts it on the processors `processors` (as for `taskset -c`) and waits until `answers` says so.
    ///
    /// # Errors
    /// What it wrote before it ended, or that it never answered.
    pub(super) fn start(
        launch: &Launch,
        place: &Place,
        processors: &str,
        answers: impl Fn(SocketAddr) -> bool,
    ) -> Result<Server, String> {
        for (name, text) in &launch.files {
            let path = place.folder.join(name);
            fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let log = place.folder.join(OUTPUT);
        let file = fs::File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        let errors = file.try_clone().map_err(|error| error.to_string())?;
        let mut command = pinned(&launch.program, processors);
        command.args(&launch.arguments);
        command.envs(launch.environment.iter().map(|(name, value)| (name, value))).current_dir(&place.folder);
        command.stdout(file).stderr(errors);
        let start = Instant::now();
        let child = command.spawn().map_err(|error| format!("{} cannot be started: {error}", launch.name))?;
        let mut server = Server {
            name: launch.name,
            address: place.address,
            folder: place.folder.clone(),
            start_time: Duration::ZERO,
            pids: vec![child.id()],
            child: RefCell::new(child),
        };
        server.wait_for_answer(start, answers).map_err(|problem| format!("{} {problem}", launch.name))?;
        server.pids = process_tree::pids(server.root_pid());
        Ok(server)
    }

    fn wait_for_answer(&mut self, start: Instant, answers: impl Fn(SocketAddr) -> bool) -> Result<(), String> {
        while start.elapsed() < START_LIMIT {
            if answers(self.address) {
                self.start_time = start.elapsed();
                return Ok(());
            }
            if let Some(ending) = self.ending() {
                return Err(ending);
            }
            std::thread::sleep(START_LOOK_EVERY);
        }
        Err(format!("did not answer within {} s: {}", START_LIMIT.as_secs(), self.last_words()))
    }

    /// How it ended, when it has.
    pub(super) fn ending(&self) -> Option<String> {
        let status = self.child.borrow_mut().try_wait().ok()??;
        Some(format!("ended ({status}): {}", self.last_words()))
    }

    /// The last lines that it wrote.
    fn last_words(&self) -> String {
        let output = fs::read_to_string(self.folder.join(OUTPUT)).unwrap_or_default();
        let tail: Vec<&str> = output.lines().rev().take(LAST_LINE_COUNT).collect();
        tail.into_iter().rev().collect::<Vec<_>>().join(" | ")
    }

    /// The process that was started; the others are its descendants.
    pub(super) fn root_pid(&self) -> u32 {
        self.pids[0]
    }

    /// Its process and their descendants, as of when it first answered.
    pub(super) fn pids(&self) -> &[u32] {
        &self.pids
    }

    pub(super) fn processor_time(&self) -> ProcessorTime {
        ProcessorTime::of(&self.pids)
    }

    pub(super) fn memory_kib(&self) -> u64 {
        process_tree::memory_kib(&self.pids)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pids = process_tree::pids(self.root_pid());
        end(self.child.get_mut(), "TERM");
        // A child whose parent has gone without it; by its number, and only if it still runs what we started.
        for pid in pids.into_iter().skip(1).filter(|pid| is_ours(*pid, &self.folder)) {
            signal(pid, "KILL");
        }
    }
}

/// Whether the process works in the folder that we gave to the server: numbers are used again.
fn is_ours(pid: u32, folder: &Path) -> bool {
    let folder = fs::canonicalize(folder);
    matches!((fs::read_link(format!("/proc/{pid}/cwd")), folder), (Ok(cwd), Ok(folder)) if cwd == folder)
}

/// Asks a child of ours to end, and makes it end when it does not.
pub(super) fn end(child: &mut Child, signal_name: &str) {
    // Once it has been waited for, its number may be somebody else's.
    if !matches!(child.try_wait(), Ok(None)) {
        return;
    }
    signal(child.id(), signal_name);
    let limit = Instant::now() + END_LIMIT;
    while Instant::now() < limit {
        // An error means that there is no such child any more.
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(END_LOOK_EVERY);
    }
    // Nothing is left to try when these fail.
    let _ = child.kill();
    let _ = child.wait();
}

//! Compares the instructions per request, counted by callgrind, with a snapshot.
//!
//! System calls per request are another exact measure: `crates/server/tests/costs.txt`.

use std::env;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use crate::program::{Log, Outcome, Program, is_installed, target_folder};

const SNAPSHOT: &str = "bench/guard/instructions.txt";
const UPDATE: &str = "cargo xtask guard --update";
const TITLE: &str =
    "# Instructions of one request in user space, by callgrind; written by `cargo xtask guard --update`.";
/// An example of the crate that uses all crates on the request path.
const DRIVER: &str = "build --quiet --locked --release --package sanderling-server --example counted";
/// Requests of the shorter run; the longer one has twice as many. Starting and stopping threads varies by some hundred
/// instructions, which is less than one per request.
const REQUEST_COUNT: u64 = 1_000;
/// An increase up to this percentage may come from a choice of the compiler elsewhere.
const INCREASE_PERCENT_MAX: u64 = 3;
/// A larger decrease must be written to the snapshot, or it would hide a later increase.
const DECREASE_PERCENT_MAX: u64 = 10;

pub(crate) fn compare(log: &mut Log) -> Outcome {
    if env::consts::ARCH != "x86_64" {
        return Outcome::Skipped("the snapshot is one of x86_64".to_owned());
    }
    let result = read_snapshot().and_then(|snapshot| {
        let compiler = compiler();
        if snapshot.compiler != compiler {
            let other = &snapshot.compiler;
            return Ok(Outcome::Skipped(format!(
                "the snapshot is one of `{other}`, not of `{compiler}`; see `{UPDATE}`"
            )));
        }
        let counted = Snapshot::count(log)?;
        Ok(judge(&snapshot, &counted, log))
    });
    result.unwrap_or_else(Outcome::Failed)
}

pub(crate) fn update(log: &mut Log) -> Outcome {
    let written = Snapshot::count(log).and_then(|counted| {
        log.line(&counted.to_string());
        fs::write(SNAPSHOT, counted.to_string()).map_err(|error| format!("{SNAPSHOT}: {error}"))
    });
    written.map_or_else(Outcome::Failed, |()| Outcome::Passed)
}

fn judge(snapshot: &Snapshot, counted: &Snapshot, log: &mut Log) -> Outcome {
    for (name, now) in &counted.counts {
        let before = snapshot.of(name);
        let change = before.map_or(0.0, |before| (*now as f64 / before as f64 - 1.0) * 100.0);
        log.line(&format!("{name:<20} {:>8} {now:>8} {change:>+7.2} %", before.unwrap_or(0)));
    }
    let differences = snapshot.differences(counted);
    if differences.is_empty() {
        return Outcome::Passed;
    }
    Outcome::Failed(format!("{}; if this is intended, run `{UPDATE}`", differences.join("; ")))
}

/// Instructions per request, and the tool that counted them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Snapshot {
    /// Each compiler generates other instructions.
    compiler: String,
    counts: Vec<(String, u64)>,
}

impl Snapshot {
    fn parse(text: &str) -> Result<Snapshot, String> {
        let mut snapshot = Snapshot::default();
        for (index, line) in text.lines().enumerate() {
            if let Some(compiler) = line.strip_prefix("# compiler: ") {
                snapshot.compiler = compiler.to_owned();
            } else if !line.starts_with('#') {
                let count = line.split_once(' ').and_then(|(name, number)| {
                    Some((name.to_owned(), number.trim().parse().ok().filter(|number| *number > 0)?))
                });
                let malformed = || format!("{SNAPSHOT}: line {}: `{line}` is not a name and a number", index + 1);
                snapshot.counts.push(count.ok_or_else(malformed)?);
            }
        }
        Ok(snapshot)
    }

    fn of(&self, name: &str) -> Option<u64> {
        self.counts.iter().find(|(found, _)| found == name).map(|(_, number)| *number)
    }

    /// A sentence for each difference that is not allowed.
    fn differences(&self, counted: &Snapshot) -> Vec<String> {
        let changed = counted.counts.iter().filter_map(|(name, now)| {
            let Some(before) = self.of(name) else { return Some(format!("{name} is not in the snapshot")) };
            let percent = now.abs_diff(before) as f64 * 100.0 / before as f64;
            if now * 100 > before * (100 + INCREASE_PERCENT_MAX) {
                Some(format!("{name} needs {now} instructions, {percent:.1} % more than {before}"))
            } else if now * 100 < before * (100 - DECREASE_PERCENT_MAX) {
                Some(format!("{name} needs {now} instructions, {percent:.1} % fewer than {before}"))
            } else {
                None
            }
        });
        let gone = self.counts.iter().filter(|(name, _)| counted.of(name).is_none());
        changed.chain(gone.map(|(name, _)| format!("{name} is no longer counted"))).collect()
    }

    /// Builds the driver and counts each of its kinds of requests.
    fn count(log: &mut Log) -> Result<Snapshot, String> {
        if !is_installed("valgrind") {
            return Err("valgrind is not installed; see `cargo xtask setup`".to_owned());
        }
        Program::cargo_in_background().args(DRIVER).run(log).into_result()?;
        let driver = target_folder().join("release/examples/counted");
        let kinds = Program::new(&driver.to_string_lossy()).output().ok_or("the driver lists no kinds")?;
        let count = |kind: &str| {
            // Starting and stopping are in both runs.
            let (short, long) =
                (instructions(&driver, kind, REQUEST_COUNT)?, instructions(&driver, kind, 2 * REQUEST_COUNT)?);
            Ok((kind.to_owned(), (long.saturating_sub(short) + REQUEST_COUNT / 2) / REQUEST_COUNT))
        };
        let counts: Result<Vec<_>, String> = thread::scope(|scope| {
            let threads: Vec<_> = kinds.lines().map(|kind| scope.spawn(move || count(kind))).collect();
            threads.into_iter().map(|thread| thread.join().expect("counting does not panic")).collect()
        });
        Ok(Snapshot { compiler: compiler(), counts: counts? })
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{TITLE}\n# compiler: {}\n", self.compiler)?;
        self.counts.iter().try_for_each(|(name, number)| writeln!(f, "{name:<20} {number:>6}"))
    }
}

fn read_snapshot() -> Result<Snapshot, String> {
    Snapshot::parse(&fs::read_to_string(SNAPSHOT).map_err(|error| format!("{SNAPSHOT}: {error}; see `{UPDATE}`"))?)
}

fn compiler() -> String {
    let rustc = env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    Program::new(&rustc).args("--version").output().unwrap_or_default().trim().to_owned()
}

/// The instructions of a run of the driver.
fn instructions(driver: &Path, kind: &str, request_count: u64) -> Result<u64, String> {
    // Instructions are counted, not time: tests may run meanwhile.
    let mut command = Command::new("nice");
    command.args(["-n", "10", "valgrind"]);
    // The log has the sum; the profile itself is not used.
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(driver);
    command.args([kind, &request_count.to_string()]).stdin(Stdio::null());
    // The environment could force variants (SANDERLING_FORCE) or configure the C library.
    command.env_clear().env("PATH", env::var_os("PATH").unwrap_or_default());
    let output = command.output().map_err(|error| format!("valgrind: {error}"))?;
    let log = String::from_utf8_lossy(&output.stderr);
    let sum = log.lines().find_map(|line| line.split_once("== Collected : ")?.1.trim().parse().ok());
    sum.filter(|_| output.status.success()).ok_or_else(|| format!("{kind}: {}\n{log}", output.status))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(counts: &[(&str, u64)]) -> Snapshot {
        let counts = counts.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect();
        Snapshot { compiler: "rustc 1".into(), counts }
    }

    #[test]
    fn written_snapshot_is_parsed() {
        let written = snapshot(&[("http-512", 2110), ("a-name-that-is-longer-than-most", 1)]);
        assert_eq!(Snapshot::parse(&written.to_string()), Ok(written));
        for line in ["http-512", "http-512 many", "http-512 0", ""] {
            assert!(Snapshot::parse(&format!("# title\n{line}\n")).is_err_and(|error| error.contains("line 2: ")));
        }
    }

    #[test]
    fn changes_are_reported_beyond_their_limits() {
        let check = |now: u64, expected: &str| {
            assert_eq!(snapshot(&[("hit", 1000)]).differences(&snapshot(&[("hit", now)])).join("; "), expected);
        };
        check(1030, "");
        check(1031, "hit needs 1031 instructions, 3.1 % more than 1000");
        check(900, "");
        check(899, "hit needs 899 instructions, 10.1 % fewer than 1000");
        let differences = snapshot(&[("old", 1)]).differences(&snapshot(&[("new", 1)]));
        assert_eq!(differences, ["new is not in the snapshot", "old is no longer counted"]);
    }
}

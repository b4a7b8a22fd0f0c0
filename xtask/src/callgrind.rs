//! Turns a run of a program into the number of instructions that it took in user space.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::program::{Outcome, Program, is_installed};

/// The instrument; what the kernel does for the program stays unseen by it.
pub(crate) const VALGRIND: &str = "valgrind";

/// What came of one run.
pub(crate) struct Counted {
    pub(crate) instructions: u64,
    /// What the program wrote to its standard output.
    pub(crate) output: String,
}

/// Whether there is an instrument; the error tells how to get it.
pub(crate) fn look_for_instrument() -> Result<(), String> {
    match is_installed(VALGRIND) {
        true => Ok(()),
        false => Err(format!("`{VALGRIND}` is not installed; `cargo xtask setup` brings it")),
    }
}

/// Builds by `cargo build --release` with `arguments`; the path of what stands at `built` below the release folder.
pub(crate) fn build(arguments: &str, built: &str) -> Result<PathBuf, String> {
    let folder = env::current_dir().map_err(|error| format!("the current folder has no path: {error}"))?;
    let target = folder.join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()));
    let target_argument = format!("--target-dir={}", target.display());
    let build = Program::cargo().args("build --quiet --release").args(arguments).args_of(&[target_argument]);
    match build.run() {
        Outcome::Passed => Ok(target.join("release").join(built)),
        Outcome::Skipped(reason) | Outcome::Failed(reason) => Err(reason),
    }
}

/// Runs `program` with `arguments` and counts: inside of the function `within` and what it calls, or all there is.
///
/// A call that the instrument does not know (Valgrind 3.19: `openat2`) fails with ENOSYS in there.
pub(crate) fn count(program: &Path, arguments: &[&str], within: Option<&str>) -> Result<Counted, String> {
    let line = || format!("`{VALGRIND} --tool=callgrind {} {}`", program.display(), arguments.join(" "));
    let mut command = Command::new(VALGRIND);
    // What it collects is wanted as a sum, which stands in its log; the profile itself is not.
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    if let Some(function) = within {
        command.arg(format!("--toggle-collect={function}"));
    }
    command.arg(program).args(arguments).stdin(Stdio::null());
    // The environment of whoever runs this may force ways (SANDERLING_FORCE) or tune the C library.
    command.env_clear();
    for kept in ["PATH", "TMPDIR"] {
        command.envs(env::var_os(kept).map(|value| (kept, value)));
    }
    let Output { status, stdout, stderr } =
        command.output().map_err(|error| format!("{} cannot be started: {error}", line()))?;
    let log = String::from_utf8_lossy(&stderr);
    if !status.success() {
        return Err(format!("{}: {status}\n{log}", line()));
    }
    let instructions = collected(&log).ok_or_else(|| format!("{} tells no number of instructions:\n{log}", line()))?;
    Ok(Counted { instructions, output: String::from_utf8_lossy(&stdout).into_owned() })
}

/// The sum in callgrind's log: `==123== Collected : 4567`.
fn collected(log: &str) -> Option<u64> {
    log.lines().find_map(|line| line.strip_prefix("==")?.split_once("== Collected : ")?.1.trim().parse().ok())
}

/// Applies `count` to each of `subjects`, on all processors; what came of each, in their order, or the first failure.
pub(crate) fn for_each<S: Sync, R: Send>(
    subjects: &[S],
    count: impl Fn(&S) -> Result<R, String> + Sync,
) -> Result<Vec<R>, String> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<Result<R, String>>>> = Mutex::new(subjects.iter().map(|_| None).collect());
    let work = || {
        while let Some((index, subject)) = take(subjects, &next) {
            let result = count(subject);
            results.lock().expect("nobody panics with it")[index] = Some(result);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from).min(subjects.len()) {
            scope.spawn(work);
        }
    });
    let results = results.into_inner().expect("nobody panics with it");
    results.into_iter().map(|result| result.expect("each subject was taken by a thread")).collect()
}

/// The next subject that no thread has taken yet, with its index.
fn take<'s, S>(subjects: &'s [S], next: &AtomicUsize) -> Option<(usize, &'s S)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    subjects.get(index).map(|subject| (index, subject))
}

/// What the instrument is, as it says itself: `valgrind-3.19.0`.
pub(crate) fn version() -> Option<String> {
    Some(Program::new(VALGRIND).args("--version").output()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_found_in_the_log() {
        let log = "==12== Callgrind\n==12== \n==12== Events    : Ir\n==12== Collected : 2009607\n==12== \n";
        assert_eq!(collected(log), Some(2_009_607));
        assert_eq!(collected("==12== Collected : none\n"), None);
        assert_eq!(collected("Collected : 5\n"), None, "it is the program's own line");
    }

    #[test]
    fn results_stand_in_the_order_of_their_subjects_and_a_failure_is_told() {
        let subjects: Vec<u64> = (0..100).collect();
        assert_eq!(for_each(&subjects, |number| Ok(number * 2)), Ok((0..100).map(|number| number * 2).collect()));
        let fails = |number: &u64| if *number == 7 { Err("seven".to_owned()) } else { Ok(*number) };
        assert_eq!(for_each(&subjects, fails), Err("seven".to_owned()));
    }
}

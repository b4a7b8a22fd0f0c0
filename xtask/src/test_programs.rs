//! The compiled test programs: built once, and run by this program, two at a time. `cargo test` would run them one
//! after another, although most tests wait, and rebuild for each choice of packages, whose dependencies have other
//! features.

use std::collections::VecDeque;
use std::env;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::thread;

use serde_json::Value;

use crate::program::{Log, Outcome, Program, target_folder};

const BUILD: &str = "test --locked --workspace --no-run";
/// The other programs: building the examples makes cargo choose the same features as for the tests.
const BUILD_PROGRAMS: &str = "build --locked --workspace --bins --examples";
const DOC_TESTS: &str = "test --locked --workspace --doc --quiet";
/// The package whose tests take as long as all others together, so they begin first.
const LONGEST: &str = "crates/sanderling";
/// Programs that run at the same time.
const LANES: usize = 2;

/// A test program.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TestProgram {
    /// The folder of its package, from which it runs.
    folder: PathBuf,
    path: PathBuf,
}

/// A run's tests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selection {
    /// The folder of a package.
    pub(crate) package: &'static str,
    /// Substrings of test names; if empty, all tests run.
    pub(crate) names: &'static [&'static str],
}

/// Builds all tests, and the programs that they run.
pub(crate) fn build(log: &mut Log) -> Outcome {
    Outcome::of(built(log).map(drop))
}

/// Runs all tests.
pub(crate) fn run_all(log: &mut Log) -> Outcome {
    let programs = match built(log) {
        Ok(programs) => programs,
        Err(error) => return Outcome::Failed(error),
    };
    let (mut queue, rest): (Vec<_>, Vec<_>) = programs.iter().partition(|it| it.folder.ends_with(LONGEST));
    queue.extend(rest);
    let queue = Mutex::new(VecDeque::from_iter(queue));
    let log = Mutex::new(log);
    let run_some = || {
        let mut outcome = Outcome::Passed;
        while let Some(program) = queue.lock().expect("no holder panics").pop_front() {
            let mut own = Log::kept();
            outcome = outcome.and(program.run(&[], &[], &mut own));
            log.lock().expect("no holder panics").append(&own);
        }
        outcome
    };
    let outcome = thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(run_some)).collect();
        lanes.into_iter().fold(Outcome::Passed, |sum, lane| sum.and(lane.join().expect("a lane does not panic")))
    });
    let log = log.into_inner().expect("no holder panics");
    outcome.and(Program::cargo().args(DOC_TESTS).run(log))
}

/// Runs some tests one after another, with more arguments, in this environment.
pub(crate) fn run(
    selections: &[Selection],
    arguments: &[String],
    variables: &[(&str, &str)],
    log: &mut Log,
) -> Outcome {
    let programs = match built(log) {
        Ok(programs) => programs,
        Err(error) => return Outcome::Failed(error),
    };
    let mut outcome = Outcome::Passed;
    for Selection { package, names } in selections {
        if programs.iter().all(|it| !it.folder.ends_with(package)) {
            return Outcome::Failed(format!("there are no tests in {package}"));
        }
        for program in programs.iter().filter(|it| it.folder.ends_with(package)) {
            let names = names.iter().map(|name| (*name).to_owned());
            let arguments: Vec<String> = names.chain(arguments.iter().cloned()).collect();
            outcome = outcome.and(program.run(&arguments, variables, log));
        }
    }
    outcome
}

/// The folder with the programs that [`build`] makes.
pub(crate) fn folder() -> PathBuf {
    target_folder().join("debug")
}

impl TestProgram {
    fn run(&self, arguments: &[String], variables: &[(&str, &str)], log: &mut Log) -> Outcome {
        let program = Program::new(&self.path.to_string_lossy()).args_of(arguments).current_dir(&self.folder);
        let program = program.env("RUST_TEST_THREADS", &thread_count());
        variables.iter().fold(program, |program, (name, value)| program.env(name, value)).run(log)
    }
}

/// Most tests wait for processes and timeouts, so several run on each processor.
pub(crate) fn thread_count() -> String {
    let cpu_count = thread::available_parallelism().map_or(1, usize::from);
    env::var("RUST_TEST_THREADS").unwrap_or_else(|_| (4 * cpu_count).to_string())
}

/// The programs, which the first call builds.
fn built(log: &mut Log) -> Result<&'static [TestProgram], String> {
    static BUILT: OnceLock<Result<Vec<TestProgram>, String>> = OnceLock::new();
    let build = || {
        let outcome = Program::cargo().args(BUILD).run(log);
        outcome.and_then(|| Program::cargo().args(BUILD_PROGRAMS).run(log)).into_result()?;
        // The programs are already built; this only lists them.
        let listed = Program::cargo().args(BUILD).args("--quiet --message-format=json").output();
        Ok(programs_of(&listed.ok_or_else(|| format!("`cargo {BUILD}` lists no programs"))?))
    };
    BUILT.get_or_init(build).as_deref().map_err(Clone::clone)
}

/// The programs in the messages of cargo, a JSON object on each line.
fn programs_of(messages: &str) -> Vec<TestProgram> {
    let program = |line: &str| {
        let message: Value = serde_json::from_str(line).ok()?;
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
        let path = message["executable"].as_str()?.into();
        (message["profile"]["test"] == true).then_some(TestProgram { folder, path })
    };
    messages.lines().filter_map(program).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_those_of_tests() {
        let messages = r#"{"reason":"compiler-artifact","manifest_path":"/p/crates/os/Cargo.toml","profile":{"opt_level":"0","test":true},"filenames":["/p/t/a"],"executable":"/p/t/a","fresh":true}
{"reason":"compiler-artifact","manifest_path":"/p/crates/os/Cargo.toml","profile":{"opt_level":"0","test":true},"executable":null}
{"reason":"compiler-artifact","manifest_path":"/p/xtask/Cargo.toml","target":{"name":"b","test":true},"profile":{"opt_level":"0","test":false},"executable":"/p/t/b"}
{"reason":"build-finished","success":true}
"#;
        assert_eq!(programs_of(messages), [TestProgram { folder: "/p/crates/os".into(), path: "/p/t/a".into() }]);
    }
}

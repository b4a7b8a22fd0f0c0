//! Turns the table of steps into one verdict on the tree.

use std::env;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::program::{Outcome, Program, is_installed};
use crate::{guard, setup, tidy};

/// One thing that a change must pass.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    /// What a pass proves; a line of the help.
    pub(crate) purpose: &'static str,
    run: fn(&mut TestCount) -> Outcome,
}

/// All steps in their order: what is quick or explains later failures comes first. A new step is a line here.
pub(crate) const STEPS: &[Step] = &[
    Step { name: "setup", purpose: "the programs that the tests drive are installed", run: |_| set_up() },
    Step { name: "fmt", purpose: "rustfmt has nothing to change", run: |_| fmt() },
    Step {
        name: "tidy",
        purpose: "the rules of the tree hold: import direction, sizes, where unsafe is",
        run: |_| tidy(),
    },
    Step { name: "clippy", purpose: "the compiler and clippy have no warning", run: |_| clippy() },
    Step { name: "test", purpose: "all tests of all packages", run: |count| cargo_test(&[], count) },
    Step {
        name: "fallbacks",
        purpose: "the same tests with every way round a missing feature forced",
        run: |count| fallbacks(&[], count),
    },
    Step {
        name: "guard",
        purpose: "a request takes no more instructions than the snapshot says",
        run: |_| guard::verdict(guard::Purpose::Compare),
    },
    Step { name: "loom", purpose: "the lock-free table holds in every interleaving of its races", run: loom },
    Step { name: "doc", purpose: "the documentation builds without a warning or a dead link", run: |_| doc() },
    Step { name: "no-std", purpose: "dns and http build where there is no operating system", run: |_| no_std() },
];

/// A target with `alloc` and without `std`: what builds for it cannot do input or output.
const NO_STD_TARGET: &str = "thumbv7em-none-eabi";

/// The steps of these names in the order of the table; all when there are none. The error is a name that no step has.
pub(crate) fn select(names: &[String]) -> Result<Vec<&'static Step>, String> {
    if let Some(unknown) = names.iter().find(|name| !STEPS.iter().any(|step| step.name == **name)) {
        return Err(unknown.clone());
    }
    Ok(STEPS.iter().filter(|step| names.is_empty() || names.iter().any(|name| name == step.name)).collect())
}

/// Runs every step, also after one failed, so that one run shows all there is to mend. Whether none failed.
pub(crate) fn run(steps: &[&'static Step]) -> bool {
    let mut count = TestCount::default();
    let mut done = Vec::with_capacity(steps.len());
    for step in steps {
        println!("\n== {}: {} ==", step.name, step.purpose);
        let started = Instant::now();
        let outcome = (step.run)(&mut count);
        done.push(Done { name: step.name, outcome, took: started.elapsed() });
    }
    print!("\n{}", summary(&done, &count));
    done.iter().all(|done| !matches!(done.outcome, Outcome::Failed(_)))
}

/// The tests alone, with more arguments for `cargo test`; with `--fallbacks` before them, once for each set of forced
/// ways.
pub(crate) fn test(arguments: &[String]) -> bool {
    let mut count = TestCount::default();
    let outcome = match arguments.split_first() {
        Some((first, rest)) if first == "--fallbacks" => fallbacks(rest, &mut count),
        _ => cargo_test(arguments, &mut count),
    };
    if let Outcome::Failed(reason) = &outcome {
        eprintln!("xtask: {reason}");
    }
    println!("{count}");
    outcome == Outcome::Passed
}

/// A step that ran.
struct Done {
    name: &'static str,
    outcome: Outcome,
    took: Duration,
}

/// The tests counted by their own result lines.
#[derive(Debug, Default, PartialEq, Eq)]
struct TestCount {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl TestCount {
    /// Adds a line such as `test result: ok. 9 passed; 0 failed; 1 ignored; 0 measured; …`; other lines count nothing.
    fn add(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else { return };
        let (_, counts) = result.split_once(". ").unwrap_or(("", result));
        for part in counts.split("; ") {
            match part.split_once(' ') {
                Some((number, "passed")) => self.passed += number.parse().unwrap_or(0),
                Some((number, "failed")) => self.failed += number.parse().unwrap_or(0),
                Some((number, "ignored")) => self.ignored += number.parse().unwrap_or(0),
                _ => {}
            }
        }
    }
}

impl std::fmt::Display for TestCount {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} passed, {} failed, {} ignored", self.passed, self.failed, self.ignored)
    }
}

/// One line a step, then the sentences of those that did not pass, then the tests in numbers.
fn summary(done: &[Done], count: &TestCount) -> String {
    let mut text = String::from("== summary ==\n");
    for Done { name, outcome, took } in done {
        let verdict = match outcome {
            Outcome::Passed => "ok",
            Outcome::Skipped(_) => "skipped",
            Outcome::Failed(_) => "FAILED",
        };
        text += &format!("{name:<9} {verdict:<8} {:6.1} s\n", took.as_secs_f64());
    }
    for Done { name, outcome, .. } in done {
        match outcome {
            Outcome::Passed => {}
            Outcome::Skipped(reason) => text += &format!("{name} was skipped: {reason}\n"),
            Outcome::Failed(reason) => text += &format!("{name} failed: {reason}\n"),
        }
    }
    text + &format!("{count}\n")
}

fn set_up() -> Outcome {
    match setup::run() {
        true => Outcome::Passed,
        false => Outcome::Failed("see above; tests that drive a missing program will fail".into()),
    }
}

fn fmt() -> Outcome {
    Program::cargo().args("fmt --all --check").run()
}

fn tidy() -> Outcome {
    match tidy::run() {
        true => Outcome::Passed,
        false => Outcome::Failed("the complaints stand above, one a line".into()),
    }
}

fn clippy() -> Outcome {
    Program::cargo().args("clippy --locked --workspace --all-targets -- -D warnings").run()
}

fn cargo_test(arguments: &[String], count: &mut TestCount) -> Outcome {
    run_tests(Program::cargo().args("test --locked --workspace --no-fail-fast").args_of(arguments), count)
}

/// Every way that is not the first of its job, in as few runs as it takes.
const FORCED_WAYS: &[&str] = &[
    "cloexec=fioclex,cloexec-range=per-fd,stat=statx,sendfile=copy,open=walk,accept=accept,defer-accept=off,\
     udp-receive=recvmsg",
    "open=openat2,udp-receive=poll-recvmsg",
];

/// The packages whose tests depend on how the kernel is called.
fn fallbacks(arguments: &[String], count: &mut TestCount) -> Outcome {
    for forced in FORCED_WAYS {
        println!("-- with {forced}");
        let program = Program::cargo()
            .args("test --locked --no-fail-fast -p sanderling-os -p sanderling-server -p sanderling")
            .args_of(arguments)
            .env("SANDERLING_FORCE", forced);
        match run_tests(program, count) {
            Outcome::Passed => {}
            outcome => return outcome,
        }
    }
    Outcome::Passed
}

/// The flag changes every crate that is built with it, and so they have a folder of their own: the others stay built.
fn loom(count: &mut TestCount) -> Outcome {
    let folder = env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from).join("loom");
    let program = Program::cargo()
        .args("test --locked --release --package sanderling-table --test loom --target-dir")
        .args_of(&[folder.to_string_lossy().into_owned()])
        .env("RUSTFLAGS", "--cfg loom");
    run_tests(program, count)
}

fn run_tests(program: Program, count: &mut TestCount) -> Outcome {
    let failed_before = count.failed;
    match program.run_and_read(|line| count.add(line)) {
        Outcome::Failed(reason) if count.failed == failed_before => {
            Outcome::Failed(format!("{reason}; no test failed, but not all were built and run to their end"))
        }
        outcome => outcome,
    }
}

fn doc() -> Outcome {
    Program::cargo().args("doc --locked --workspace --no-deps").env("RUSTDOCFLAGS", "-D warnings").run()
}

/// Builds the protocol crates, with all they depend on, for a target that has no `std`.
fn no_std() -> Outcome {
    if !target_is_installed() && !add_target() {
        return Outcome::Skipped(format!(
            "the target {NO_STD_TARGET} is not installed and could not be had (`rustup target add {NO_STD_TARGET}`); \
             that dns and http themselves use no std is still certain by their #![no_std], which tidy checks, \
             but that what they depend on uses none is not proved here"
        ));
    }
    Program::cargo()
        .args("build --locked --package sanderling-dns --package sanderling-http --target")
        .args(NO_STD_TARGET)
        .run()
}

fn target_is_installed() -> bool {
    let Some(sysroot) = Program::new("rustc").args("--print sysroot").output() else { return false };
    Path::new(sysroot.trim()).join("lib/rustlib").join(NO_STD_TARGET).join("lib").is_dir()
}

fn add_target() -> bool {
    is_installed("rustup") && Program::new("rustup").args("target add").args(NO_STD_TARGET).run() == Outcome::Passed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_counted_by_their_result_lines() {
        let mut count = TestCount::default();
        count.add("running 3 tests");
        count.add("test name ... ok");
        count.add("test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s");
        count.add("test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s");
        assert_eq!(count, TestCount { passed: 15, failed: 2, ignored: 1 });
        assert_eq!(count.to_string(), "15 passed, 2 failed, 1 ignored");
    }

    #[test]
    fn steps_are_chosen_by_name_and_keep_their_order() {
        let names = |chosen: &[&str]| {
            let chosen: Vec<String> = chosen.iter().map(|name| (*name).to_owned()).collect();
            select(&chosen).map(|steps| steps.iter().map(|step| step.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&["test", "fmt"]), Ok(vec!["fmt", "test"]));
        assert_eq!(names(&[]).map(|steps| steps.len()), Ok(STEPS.len()));
        assert_eq!(names(&["fmt", "frmt"]), Err("frmt".to_owned()));
    }

    #[test]
    fn the_summary_ends_in_the_numbers_of_the_tests() {
        let done = [
            Done { name: "fmt", outcome: Outcome::Passed, took: Duration::from_millis(1250) },
            Done { name: "no-std", outcome: Outcome::Skipped("no target".into()), took: Duration::ZERO },
            Done { name: "test", outcome: Outcome::Failed("exit status: 101".into()), took: Duration::from_secs(61) },
        ];
        let count = TestCount { passed: 7, failed: 1, ignored: 0 };
        let expected = "\
== summary ==
fmt       ok          1.2 s
no-std    skipped     0.0 s
test      FAILED     61.0 s
no-std was skipped: no target
test failed: exit status: 101
7 passed, 1 failed, 0 ignored
";
        assert_eq!(summary(&done, &count), expected);
    }
}

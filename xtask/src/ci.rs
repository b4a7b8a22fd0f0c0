//! The table of steps that a change must pass, and their summary.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::program::{Log, Outcome, Program, is_installed, target_folder};
use crate::test_programs::{self, Selection};
use crate::{guard, package, setup, tidy};

struct Step {
    name: &'static str,
    /// The meaning of success.
    purpose: &'static str,
    run: fn(&mut Log) -> Outcome,
}

/// The steps that run one after another before all others: first steps that are quick, or explain later failures.
const FIRST: &[Step] = &[
    Step { name: "setup", purpose: "the programs that the tests use are installed", run: setup::run },
    Step { name: "fmt", purpose: "rustfmt changes nothing", run: fmt },
    Step { name: "tidy", purpose: "the rules that no compiler checks hold", run: tidy::run },
    Step { name: "clippy", purpose: "the compiler and clippy report no warning", run: clippy },
    Step { name: "build", purpose: "all tests and programs build", run: test_programs::build },
];

/// The steps that run one after another while those in the background run.
const TESTS: &[Step] = &[
    Step { name: "test", purpose: "all tests of all packages pass", run: test_programs::run_all },
    Step { name: "fallbacks", purpose: "the tests pass with each fallback forced", run: |log| fallbacks(&[], log) },
    Step {
        name: "torture",
        purpose: "single faults of system calls end no process and lose nothing later",
        run: torture,
    },
];

/// The steps that run all at the same time, with a lower priority: tests mostly wait, and builds keep the processors
/// busy meanwhile.
const IN_BACKGROUND: &[Step] = &[
    Step { name: "guard", purpose: "no request needs more instructions than in the snapshot", run: guard::compare },
    Step { name: "package", purpose: "the packages install, upgrade under load, and are removed", run: package::check },
    Step { name: "loom", purpose: "the table is correct in every interleaving of its races", run: loom },
    Step { name: "doc", purpose: "the documentation builds without a warning or a dead link", run: doc },
    Step { name: "no-std", purpose: "dns and http build without an operating system", run: no_std },
    Step { name: "ring", purpose: "the program builds with the other library for cryptography", run: ring },
    Step { name: "fuzz", purpose: "the fuzz targets build", run: fuzz },
];

/// A target with `alloc` and without `std`.
const NO_STD_TARGET: &str = "thumbv7em-none-eabi";

fn steps() -> impl Iterator<Item = &'static Step> {
    FIRST.iter().chain(TESTS).chain(IN_BACKGROUND)
}

pub(crate) fn list() -> String {
    steps().map(|step| format!("  {:<9}  {}\n", step.name, step.purpose)).collect()
}

/// Runs the steps of these names, or all, even after a failure.
pub(crate) fn run(names: &[String]) -> Outcome {
    let is_known = |name: &String| steps().any(|step| step.name == *name);
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        return Outcome::Failed(format!("ci has no step `{unknown}`"));
    }
    let is_chosen = |step: &&Step| names.is_empty() || names.iter().any(|name| name == step.name);
    let run_and_print = |step: &Step| {
        println!("\n== {}: {} ==", step.name, step.purpose);
        Done::of(step, Log::default())
    };
    let start = Instant::now();
    let mut done: Vec<Done> = FIRST.iter().filter(is_chosen).map(run_and_print).collect();
    let done_in_background: Vec<Done> = thread::scope(|scope| {
        let start = |step| scope.spawn(move || Done::of(step, Log::kept()));
        let threads: Vec<_> = IN_BACKGROUND.iter().filter(is_chosen).map(start).collect();
        done.extend(TESTS.iter().filter(is_chosen).map(run_and_print));
        threads.into_iter().map(|thread| thread.join().expect("a step does not panic")).collect()
    });
    for (step, done) in IN_BACKGROUND.iter().filter(is_chosen).zip(&done_in_background) {
        println!("\n== {}: {} ==", step.name, step.purpose);
        Log::default().append(&done.log);
    }
    done.extend(done_in_background);
    let (summary, failed_count) = summary(&done);
    println!("\n{summary}{}", times(start.elapsed()));
    if failed_count == 0 { Outcome::Passed } else { Outcome::Failed(format!("{failed_count} steps failed")) }
}

/// The elapsed time and the processor time of all steps: other programs on the machine prolong only the first.
fn times(elapsed: Duration) -> String {
    /// Ticks of `/proc` per second, on all architectures (proc_pid_stat(5)).
    const TICKS_PER_SECOND: u64 = 100;
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ');
    // `cutime` and `cstime`, of programs that have ended.
    let ticks: u64 = fields.skip(13).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    format!("all of it in {:.0} s, with {} s of processors\n", elapsed.as_secs_f64(), ticks / TICKS_PER_SECOND)
}

/// Runs the tests with more arguments for `cargo test`, or with `--fallbacks` those with fallbacks.
pub(crate) fn test(arguments: &[String], log: &mut Log) -> Outcome {
    match arguments.split_first() {
        Some((first, rest)) if first == "--fallbacks" => fallbacks(rest, log),
        Some(_) => cargo_test(arguments, log),
        None => test_programs::run_all(log),
    }
}

struct Done {
    name: &'static str,
    outcome: Outcome,
    took: Duration,
    log: Log,
}

impl Done {
    fn of(step: &Step, mut log: Log) -> Done {
        let start = Instant::now();
        let outcome = (step.run)(&mut log);
        Done { name: step.name, outcome, took: start.elapsed(), log }
    }
}

/// A line for each step, the reasons of those that did not pass; and the number of failures.
fn summary(done: &[Done]) -> (String, usize) {
    let (mut lines, mut reasons, mut failed_count) = (String::new(), String::new(), 0);
    for Done { name, outcome, took, .. } in done {
        let verdict = match outcome {
            Outcome::Passed => "ok",
            Outcome::Skipped(reason) => {
                reasons += &format!("{name} was skipped: {reason}\n");
                "skipped"
            }
            Outcome::Failed(reason) => {
                failed_count += 1;
                reasons += &format!("{name} failed: {reason}\n");
                "FAILED"
            }
        };
        lines += &format!("{name:<9} {verdict:<8} {:6.1} s\n", took.as_secs_f64());
    }
    (format!("== summary ==\n{lines}{reasons}"), failed_count)
}

fn fmt(log: &mut Log) -> Outcome {
    Program::cargo().args("fmt --all --check").run(log)
}

fn clippy(log: &mut Log) -> Outcome {
    Program::cargo().args("clippy --locked --workspace --all-targets -- -D warnings").run(log)
}

fn cargo_test(arguments: &[String], log: &mut Log) -> Outcome {
    let program = Program::cargo().args("test --locked --workspace --no-fail-fast").args_of(arguments);
    program.env("RUST_TEST_THREADS", &test_programs::thread_count()).run(log)
}

/// Every variant that is not the first of its feature, in as few runs as possible.
const FORCED_WAYS: &[&str] = &[
    "cloexec=fioclex,cloexec-range=per-fd,stat=statx,sendfile=copy,page-cache=none,open=walk,\
     defer-accept=off,udp-io=recvmsg",
    "open=openat2,udp-io=poll-recvmsg",
];

/// The tests that make system calls with variants, in this process or in the program.
const WITH_VARIANTS: &[Selection] = &[
    Selection { package: "crates/os", names: &[] },
    Selection { package: "crates/server", names: &[] },
    Selection { package: "crates/sanderling", names: &["io::", "supervision::"] },
];

/// The tests run for all sets of variants at the same time.
fn fallbacks(arguments: &[String], log: &mut Log) -> Outcome {
    // As for `cargo test`.
    let arguments = arguments.strip_prefix(&["--".to_owned()]).unwrap_or(arguments);
    let outcome = test_programs::build(log);
    let run = |forced: &str| {
        let mut log = Log::kept();
        (test_programs::run(WITH_VARIANTS, arguments, &[("SANDERLING_FORCE", forced)], &mut log), log)
    };
    let done: Vec<(Outcome, Log)> = thread::scope(|scope| {
        let threads: Vec<_> = FORCED_WAYS.iter().map(|forced| scope.spawn(|| run(forced))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a step does not panic")).collect()
    });
    done.into_iter().fold(outcome, |sum, (outcome, run_log)| {
        log.append(&run_log);
        sum.and(outcome)
    })
}

/// The flag changes every crate, so they have a separate target folder.
fn loom(log: &mut Log) -> Outcome {
    let folder = target_folder().join("loom");
    let program = Program::cargo_in_background()
        .args("test --locked --release --package sanderling-table --test loom --target-dir")
        .args_of(&[folder.to_string_lossy().into_owned()]);
    program.env("RUSTFLAGS", "--cfg loom").run(log)
}

fn doc(log: &mut Log) -> Outcome {
    Program::cargo_in_background()
        .args("doc --locked --workspace --no-deps")
        .env("RUSTDOCFLAGS", "-D warnings")
        .run(log)
}

/// Builds the protocol crates with their dependencies for a target without `std`.
fn no_std(log: &mut Log) -> Outcome {
    let add = format!("target add {NO_STD_TARGET}");
    let has_target = target_is_installed()
        || is_installed("rustup") && Program::new("rustup").args(&add).run(log) == Outcome::Passed;
    if !has_target {
        return Outcome::Skipped(format!(
            "the target {NO_STD_TARGET} is not installed (`rustup {add}`); that dns and http have `#![no_std]` is \
             checked by tidy, but not that their dependencies build without std"
        ));
    }
    let build = "build --locked --package sanderling-dns --package sanderling-http --target";
    Program::cargo_in_background().args(build).args(NO_STD_TARGET).run(log)
}

/// Builds the program with ring instead of aws-lc-rs. Tests of both take too long.
fn ring(log: &mut Log) -> Outcome {
    Program::cargo_in_background()
        .args("check --locked --package sanderling --no-default-features --features ring")
        .run(log)
}

fn target_is_installed() -> bool {
    let sysroot = Program::new("rustc").args("--print sysroot").output().unwrap_or_default();
    Path::new(sysroot.trim()).join("lib/rustlib").join(NO_STD_TARGET).join("lib").is_dir()
}

/// Checks the targets; running them needs nightly Rust. The fuzz workspace shares the target folder, so that most
/// dependencies are already checked.
fn fuzz(log: &mut Log) -> Outcome {
    let target = target_folder();
    let check = format!("check --locked --manifest-path fuzz/Cargo.toml --target-dir {} --bins", target.display());
    // Nothing is linked, so the library need not be compiled.
    Program::cargo_in_background().args(&check).env("CUSTOM_LIBFUZZER_PATH", "/nonexistent/libfuzzer.a").run(log)
}

/// A random sample of the faults; its seed is printed.
fn torture(log: &mut Log) -> Outcome {
    let program = |name: &str| test_programs::folder().join(name).to_string_lossy().into_owned();
    let measure = Program::new(&program("measure")).args("torture --faults 60 --seed 1 --program");
    test_programs::build(log).and_then(|| measure.args_of(&[program("sanderling")]).run(log))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_has_steps_and_reasons() {
        let done =
            |name, outcome, took_ms| Done { name, outcome, took: Duration::from_millis(took_ms), log: Log::kept() };
        let done = [
            done("fmt", Outcome::Passed, 1250),
            done("no-std", Outcome::Skipped("no target".into()), 0),
            done("test", Outcome::Failed("exit status: 101".into()), 61_000),
        ];
        let expected = "\
== summary ==
fmt       ok          1.2 s
no-std    skipped     0.0 s
test      FAILED     61.0 s
no-std was skipped: no target
test failed: exit status: 101
";
        assert_eq!(summary(&done), (expected.to_owned(), 1));
    }

    #[test]
    fn unknown_step_is_refused() {
        assert_eq!(run(&["frmt".to_owned()]), Outcome::Failed("ci has no step `frmt`".to_owned()));
    }
}

//! Turns the rival ways of each descriptor job into a table: nanoseconds, instructions and calls of one operation.
//!
//! The time is divan's and holds the kernel's part; the instructions are callgrind's and do not: it sees user space
//! alone. The calls are those that the crate `os` counts.

mod divan;

use std::path::Path;
use std::thread;

use crate::callgrind;
use crate::program::{Outcome, Program};
use divan::Timed;

/// A workspace of its own, whose lock file is brought up to date when our crates get another dependency.
const MANIFEST: &str = "bench/descriptors/Cargo.toml";
const DRIVER: &str = "descriptors";
/// The driver's function that a way runs in, once it is prepared.
const COUNTED: &str = "descriptors::counted";

/// How thoroughly, and what.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    is_quick: bool,
    /// Only ways whose job and name hold this.
    filter: Option<String>,
}

impl Options {
    /// The words behind `bench` on the command line.
    pub(crate) fn parse(words: &[String]) -> Result<Options, String> {
        let mut options = Options::default();
        for word in words {
            match word.as_str() {
                "--quick" => options.is_quick = true,
                unknown if unknown.starts_with('-') => return Err(format!("bench knows no `{unknown}`")),
                _ if options.filter.is_some() => return Err("bench takes one filter at most".to_owned()),
                filter => options.filter = Some(filter.to_owned()),
            }
        }
        Ok(options)
    }
}

/// Measures and prints; whether all could be measured.
pub(crate) fn run(options: &Options) -> bool {
    match measure(options) {
        Ok(table) => {
            print!("{table}");
            true
        }
        Err(reason) => {
            eprintln!("bench: {reason}");
            false
        }
    }
}

/// One way, as the driver lists it.
#[derive(Debug, PartialEq, Eq)]
struct Way {
    job: String,
    name: String,
    operations_per_run: u64,
    threads: u64,
}

/// What the runs of a way for counting tell: how many operations they did, and what that took.
struct Work {
    operations: u64,
    calls: u64,
    /// Unknown where the instrument made the program take another way.
    instructions: Option<u64>,
}

fn measure(options: &Options) -> Result<String, String> {
    callgrind::look_for_instrument()?;
    let driver = callgrind::build(&format!("--manifest-path {MANIFEST}"), DRIVER)?;
    let list = Program::new(&driver.to_string_lossy()).output().ok_or("the driver does not list its ways")?;
    let mut ways = list.lines().map(parse_way).collect::<Result<Vec<Way>, String>>()?;
    if let Some(filter) = &options.filter {
        // As divan's filter does, which knows a way by this path.
        ways.retain(|way| format!("{}::{}", way.job, way.name).contains(filter));
    }
    if ways.is_empty() {
        return Err("no way has this in its name".to_owned());
    }
    let timed = time(options)?;
    let works = callgrind::for_each(&ways, |way| count(&driver, way))?;
    Ok(table(&ways, &timed, &works))
}

/// A line `JOB<TAB>WAY<TAB>OPERATIONS<TAB>THREADS`.
fn parse_way(line: &str) -> Result<Way, String> {
    let words: Vec<&str> = line.split('\t').collect();
    let number = |text: &str| text.parse().map_err(|_| format!("the driver's list has no number in `{line}`"));
    match words[..] {
        [job, name, operations, threads] => Ok(Way {
            job: job.to_owned(),
            name: name.to_owned(),
            operations_per_run: number(operations)?,
            threads: number(threads)?,
        }),
        _ => Err(format!("the driver's list has a line `{line}`")),
    }
}

fn time(options: &Options) -> Result<Vec<Timed>, String> {
    let effort = if options.is_quick { "--sample-count 20 --max-time 0.3" } else { "--sample-count 500 --max-time 3" };
    let mut lines = Vec::new();
    let program = Program::cargo()
        .args("bench --quiet --bench time --manifest-path")
        .args(MANIFEST)
        .args("-- --color never")
        .args(effort)
        .args_of(options.filter.as_slice());
    match program.run_and_read(|line| lines.push(line.to_owned())) {
        Outcome::Passed => Ok(divan::parse(&lines)),
        Outcome::Skipped(reason) | Outcome::Failed(reason) => Err(reason),
    }
}

/// Nothing for several threads, whose work is not the same in every run.
fn count(driver: &Path, way: &Way) -> Result<Option<Work>, String> {
    if way.threads != 1 {
        return Ok(None);
    }
    let words = [&way.job, &way.name].map(String::clone);
    let alone = Program::new(&driver.to_string_lossy()).args_of(&words).output();
    let (operations, calls) = parse_work(way, &alone.ok_or_else(|| format!("{}: {} fails", way.job, way.name))?)?;
    let counted = callgrind::count(driver, &[&way.job, &way.name], Some(COUNTED))?;
    // A call that the instrument does not know fails, as on a kernel without it, and the job is done in another way.
    let is_same = parse_work(way, &counted.output)? == (operations, calls);
    Ok(Some(Work { operations, calls, instructions: is_same.then_some(counted.instructions) }))
}

/// The line `OPERATIONS<TAB>CALLS` that the driver ends with.
fn parse_work(way: &Way, output: &str) -> Result<(u64, u64), String> {
    let numbers =
        output.trim().split_once('\t').and_then(|(left, right)| Some((left.parse().ok()?, right.parse().ok()?)));
    numbers.ok_or_else(|| format!("{}: {}: the driver ended with `{output}`", way.job, way.name))
}

fn table(ways: &[Way], timed: &[Timed], works: &[Option<Work>]) -> String {
    let processors = thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let mut text = String::new();
    let mut job = "";
    for (way, work) in ways.iter().zip(works) {
        if job != way.job {
            job = &way.job;
            text += &format!(
                "\n{job:<26} {:>10} {:>10} {:>13} {:>7}\n",
                "median ns", "fastest ns", "instructions", "calls"
            );
        }
        text += &format!("  {:<24}", way.name);
        match timed.iter().find(|timed| timed.job == way.job && timed.way == way.name) {
            Some(timed) => {
                let per_operation =
                    |run_ns: f64| run_ns * way.threads.min(processors) as f64 / way.operations_per_run as f64;
                text += &format!(" {:>10.1} {:>10.1}", per_operation(timed.median_ns), per_operation(timed.fastest_ns));
            }
            None => text += &format!(" {:>10} {:>10}", "-", "-"),
        }
        text += &match work {
            Some(work) => {
                let per_operation = |sum: u64| sum as f64 / work.operations as f64;
                let instructions =
                    work.instructions.map_or_else(|| "-".to_owned(), |sum| format!("{:.1}", per_operation(sum)));
                format!(" {instructions:>13} {:>7.2}\n", per_operation(work.calls))
            }
            None => format!(" {:>13} {:>7}\n", "-", "-"),
        };
    }
    text + &format!(
        "\nns: of one processor, user space and kernel; what several threads did at once on {processors} processors is \
         added up. It is the clock on the wall: whatever else runs is in it, least in the fastest.\ninstructions: user space alone, the kernel's are not seen; not counted for several threads, nor \
         where callgrind lacks a call.\n\
         calls: those of our own crate; what the standard library calls is not counted.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(job: &str, name: &str, operations_per_run: u64, threads: u64) -> Way {
        Way { job: job.to_owned(), name: name.to_owned(), operations_per_run, threads }
    }

    #[test]
    fn the_list_of_the_driver_is_read() {
        assert_eq!(parse_way("facts\tstatx, all\t100\t1"), Ok(way("facts", "statx, all", 100, 1)));
        assert!(parse_way("facts\tstatx\tmany\t1").is_err());
        assert!(parse_way("facts statx").is_err());
    }

    #[test]
    fn the_command_line_is_read() {
        let parse = |words: &[&str]| Options::parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(parse(&["--quick", "facts"]), Ok(Options { is_quick: true, filter: Some("facts".into()) }));
        assert!(parse(&["--quickly"]).is_err());
        assert!(parse(&["facts", "lookup"]).is_err());
    }

    #[test]
    fn figures_are_those_of_one_operation() {
        let timed = Timed { job: "facts".into(), way: "fstat".into(), median_ns: 20_000.0, fastest_ns: 17_300.0 };
        let work = Work { operations: 400, calls: 400, instructions: Some(12_800) };
        let text = table(&[way("facts", "fstat", 100, 1), way("facts", "new", 100, 1)], &[timed], &[Some(work), None]);
        let rows: Vec<&str> = text.lines().skip(2).take(2).collect();
        assert_eq!(rows[0].split_whitespace().collect::<Vec<_>>(), ["fstat", "200.0", "173.0", "32.0", "1.00"]);
        assert_eq!(rows[1].split_whitespace().collect::<Vec<_>>(), ["new", "-", "-", "-", "-"]);
    }
}

//! Turns each kind of request into the instructions that it takes, and a change of them into a verdict.
//!
//! Calls are the other quantity that can be counted exactly: `crates/server/tests/costs.txt` keeps those.

mod snapshot;

use std::fs;
use std::path::Path;

use crate::callgrind;
use crate::program::{Outcome, Program};
use snapshot::{Count, Snapshot};

const SNAPSHOT: &str = "bench/guard/instructions.txt";
/// What writes the snapshot anew.
const RENEW: &str = "cargo xtask guard --update";
/// The driver: an example of the crate that sees all others which handle requests.
const DRIVER_BUILD: &str = "--locked --package sanderling-server --example counted";
const DRIVER: &str = "examples/counted";
/// How often a kind is repeated in the shorter run; in the longer one, twice as often. What threads do about starting
/// and ending differs by some hundred instructions from run to run: divided by this, by less than one.
const REPEAT_COUNT: u64 = 1_000;
/// An instruction set compiles to its own number of instructions.
const ARCHITECTURE: &str = "x86_64";

/// What to do with what was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Compare,
    Update,
}

/// The words behind `guard` on the command line.
pub(crate) fn parse(words: &[String]) -> Result<Purpose, String> {
    match words {
        [] => Ok(Purpose::Compare),
        [word] if word == "--update" => Ok(Purpose::Update),
        _ => Err(format!("guard takes nothing or --update, not `{}`", words.join(" "))),
    }
}

/// Whether nothing has become dearer; tells what has.
pub(crate) fn run(purpose: Purpose) -> bool {
    match verdict(purpose) {
        Outcome::Passed => true,
        Outcome::Skipped(reason) => {
            println!("guard was skipped: {reason}");
            true
        }
        Outcome::Failed(reason) => {
            eprintln!("guard: {reason}");
            false
        }
    }
}

/// Counts, and compares with the snapshot or writes it.
pub(crate) fn verdict(purpose: Purpose) -> Outcome {
    if std::env::consts::ARCH != ARCHITECTURE {
        return Outcome::Skipped(format!("the snapshot of instructions is that of {ARCHITECTURE}"));
    }
    match compare_or_update(purpose) {
        Ok(outcome) => outcome,
        Err(reason) => Outcome::Failed(reason),
    }
}

fn compare_or_update(purpose: Purpose) -> Result<Outcome, String> {
    callgrind::look_for_instrument()?;
    let compiler = compiler()?;
    let kept = match purpose {
        Purpose::Compare => {
            let kept = read(Path::new(SNAPSHOT))?;
            if kept.compiler != compiler {
                return Ok(Outcome::Skipped(format!(
                    "the snapshot is that of `{}`, this is `{compiler}`, and every compiler makes its own number of \
                     instructions; `{RENEW}` makes this one's",
                    kept.compiler
                )));
            }
            Some(kept)
        }
        Purpose::Update => None,
    };
    let counted = Snapshot { compiler, tools: tools(), counts: count_kinds()? };
    match kept {
        Some(kept) => Ok(judge(&kept, &counted)),
        None => {
            let text = counted.to_string();
            fs::write(SNAPSHOT, &text).map_err(|error| format!("`{SNAPSHOT}` cannot be written: {error}"))?;
            print!("{text}");
            Ok(Outcome::Passed)
        }
    }
}

fn read(path: &Path) -> Result<Snapshot, String> {
    let text = fs::read_to_string(path)
        .map_err(|error| format!("`{}` cannot be read: {error}; `{RENEW}` writes it", path.display()))?;
    Snapshot::parse(&text).map_err(|problem| format!("`{}`: {problem}; `{RENEW}` writes it anew", path.display()))
}

fn judge(kept: &Snapshot, counted: &Snapshot) -> Outcome {
    print!("{}", kept.beside(counted));
    let complaints = kept.complaints(counted);
    if complaints.is_empty() {
        return Outcome::Passed;
    }
    let mut text = complaints.join("; ");
    if kept.tools != counted.tools {
        // The C library's part of the work is small, but it is there.
        text += &format!("; the snapshot was made with {}, this is {}", kept.tools, counted.tools);
    }
    Outcome::Failed(format!("{text}. If that is meant, `{RENEW}` renews the snapshot, and its diff says it in review"))
}

/// The instructions of each kind, in the driver's order.
fn count_kinds() -> Result<Vec<Count>, String> {
    let driver = callgrind::build(DRIVER_BUILD, DRIVER)?;
    let list = Program::new(&driver.to_string_lossy()).output().ok_or("the driver does not list its kinds")?;
    let kinds: Vec<&str> = list.lines().collect();
    callgrind::for_each(&kinds, |kind| {
        let run = |repeat_count: u64| callgrind::count(&driver, &[kind, &repeat_count.to_string()], None);
        let (short, long) = (run(REPEAT_COUNT)?.instructions, run(2 * REPEAT_COUNT)?.instructions);
        // Start and end are in both.
        let repeats =
            long.checked_sub(short).ok_or_else(|| format!("{kind}: twice the work took fewer instructions"))?;
        Ok(Count { name: (*kind).to_owned(), instructions: (repeats + REPEAT_COUNT / 2) / REPEAT_COUNT })
    })
}

/// `rustc 1.95.0 (59807616e 2026-04-14)`, of the toolchain that builds.
fn compiler() -> Result<String, String> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let version = Program::new(&rustc).args("--version").output();
    Ok(version.ok_or("`rustc --version` fails")?.trim().to_owned())
}

/// What else has a part in the numbers: `valgrind-3.19.0, glibc 2.36`.
fn tools() -> String {
    let library = Program::new("getconf").args("GNU_LIBC_VERSION").output();
    let library = library.map_or_else(|| "another C library".to_owned(), |text| text.trim().to_owned());
    format!("{}, {library}", callgrind::version().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(tools: &str, instructions: u64) -> Snapshot {
        let counts = vec![Count { name: "http-512".into(), instructions }];
        Snapshot { compiler: "rustc 1.95.0".into(), tools: tools.into(), counts }
    }

    #[test]
    fn the_command_line_has_one_word_at_most() {
        let parse = |words: &[&str]| parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(parse(&[]), Ok(Purpose::Compare));
        assert_eq!(parse(&["--update"]), Ok(Purpose::Update));
        assert!(parse(&["--renew"]).is_err());
    }

    #[test]
    fn a_verdict_names_the_kind_the_change_and_the_remedy() {
        assert_eq!(judge(&snapshot("a", 1000), &snapshot("b", 1030)), Outcome::Passed);
        let Outcome::Failed(reason) = judge(&snapshot("a", 1000), &snapshot("b", 1031)) else { panic!("it passed") };
        assert_eq!(
            reason,
            "http-512 takes 1031 instructions, 3.1 % more than the 1000 of the snapshot; the snapshot was made with a, \
             this is b. If that is meant, `cargo xtask guard --update` renews the snapshot, and its diff says it in review"
        );
    }
}

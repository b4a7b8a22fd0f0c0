//! Turns the server and its peers into a report of what a request costs each of them.
//!
//! The unit is the processor time of the server's whole process tree divided by the requests answered; how long a
//! request takes by the clock says more about who else uses the machine. Servers run in turns in shuffled order, so
//! that what disturbs one disturbs the others as well, and ratios are taken round by round.

mod pages;
mod growth;
mod standing;
mod reload;
mod http;
mod dns;
mod report;
mod chart;
mod rounds;
mod strace;
mod server;
mod http_peers;
mod dns_peers;
mod load;
mod launch;
mod site;
mod zone;
mod pace;
mod client;
mod programs;
mod packages;
mod machine;
mod process_tree;
mod spread;
mod random;
mod options;

pub(crate) use options::Options;

use std::env;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use options::Part;
use programs::Programs;
use random::Random;
use report::Report;
use rounds::Rounds;

/// How long a load runs in each round.
const LENGTH: Duration = Duration::from_secs(2);
const LENGTH_QUICK: Duration = Duration::from_secs(1);
/// Where reports are kept.
const REPORTS: &str = "docs/performance";

/// Installs the peers, measures, and writes the report. Whether it came to its end.
pub(crate) fn run(options: &Options) -> bool {
    match measure(options) {
        Ok(()) => true,
        Err(problem) => {
            eprintln!("compare: {problem}");
            false
        }
    }
}

fn measure(options: &Options) -> Result<(), String> {
    packages::install()?;
    let root = env::current_dir().map_err(|error| error.to_string())?;
    let root = root.canonicalize().map_err(|error| format!("{}: {error}", root.display()))?;
    let programs = Programs::build(&root)?;
    let _cubic = machine::Cubic::set();
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
    let mut rounds = rounds(options, seed);
    let mut told = circumstances(options, seed, &rounds);
    println!("{}", told.join("\n"));
    for part in &options.parts {
        let load_before = machine::load_average();
        let mut report = part_report(*part, &mut rounds, &programs, options)?;
        told.push(format!("Load average before and after: {load_before}; {}", machine::load_average()));
        report.set_circumstances(&told);
        told.pop();
        println!("\n{}", report.markdown());
        let (folder, name) = place(&root, options, *part);
        report.write(&folder, &name)?;
        println!("written to {}", folder.join(name).with_extension("md").display());
    }
    Ok(())
}

/// Two processors at least: one for the server, one for what asks it.
fn rounds(options: &Options, seed: u64) -> Rounds {
    let processors = available_parallelism().map_or(1, |count| count.get());
    Rounds {
        round_count: options.round_count,
        length: if options.is_quick { LENGTH_QUICK } else { LENGTH },
        random: Random::new(seed),
        server_processors: "0".into(),
        load_processors: if processors > 1 { "1".into() } else { "0".into() },
    }
}

fn circumstances(options: &Options, seed: u64, rounds: &Rounds) -> Vec<String> {
    let mut lines = vec![format!("Command: `{}`", options.command())];
    lines.extend(machine::description(&packages::names()));
    lines.push(format!(
        "Server on processor {}, load on processor {}; {} rounds of {} s in shuffled order, seed {seed}",
        rounds.server_processors,
        rounds.load_processors,
        rounds.round_count,
        rounds.length.as_secs(),
    ));
    lines
}

fn part_report(part: Part, rounds: &mut Rounds, programs: &Programs, options: &Options) -> Result<Report, String> {
    let is_quick = options.is_quick;
    Ok(match part {
        Part::Http => {
            let compared = http::run(rounds, programs, is_quick)?;
            pages::comparison("HTTP", "http.svg", &compared.outcomes, &compared.launches, &programs.folder)
        }
        Part::Dns => {
            let compared = dns::run(rounds, programs, is_quick)?;
            pages::comparison("DNS", "dns.svg", &compared.outcomes, &compared.launches, &programs.folder)
        }
        Part::Growth => pages::growth(&growth::run(rounds, programs, is_quick)?),
        Part::Load => pages::standing(&standing::run(rounds, programs, is_quick)?),
    })
}

/// The folder and the name of a part's report. A quick run is no record: it stays out of the project's papers.
fn place(root: &Path, options: &Options, part: Part) -> (PathBuf, String) {
    let name = options::name_of(part).to_owned();
    if options.is_quick { (root.join("target").join("compare"), name) } else { (root.join(REPORTS), name) }
}

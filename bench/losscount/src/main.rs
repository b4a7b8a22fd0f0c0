//! Turns a command line into a load, and the load into a table and an exit status: 0 nothing lost, 1 lost, 2 no load.

mod arguments;

use arguments::{Arguments, Wish};
use losscount::{LoadError, Report, Running};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PROGRESS_EVERY: Duration = Duration::from_secs(1);
/// Between two looks whether standard input has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);

fn main() -> ExitCode {
    let arguments = match arguments::parse(std::env::args().skip(1)) {
        Ok(Wish::Help) => {
            println!("{}", arguments::HELP);
            return ExitCode::SUCCESS;
        }
        Ok(Wish::Run(arguments)) => arguments,
        Err(error) => return refuse(&error),
    };
    raise_descriptor_limit();
    match run(&arguments) {
        Ok(report) => tell(&arguments, &report),
        Err(error) => refuse(&error.to_string()),
    }
}

fn refuse(error: &str) -> ExitCode {
    eprintln!("losscount: {error}");
    ExitCode::from(2)
}

/// A server that falls silent leaves rate times deadline connections open.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    // When it is refused, what is lost for want of a descriptor is counted as such.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

fn run(arguments: &Arguments) -> Result<Report, LoadError> {
    let running = arguments.load.start()?;
    let input_has_ended = Arc::new(AtomicBool::new(false));
    if arguments.until_input_ends {
        watch_input(Arc::clone(&input_has_ended));
    }
    let is_watched = std::io::stderr().is_terminal();
    let start = Instant::now();
    let mut progress_at = start + PROGRESS_EVERY;
    while !running.wait_end(LOOK_EVERY) {
        if input_has_ended.load(Ordering::Relaxed) {
            running.stop();
        }
        if is_watched && Instant::now() >= progress_at {
            show_progress(&running, start.elapsed().as_secs());
            progress_at += PROGRESS_EVERY;
        }
    }
    if is_watched {
        eprint!("\r\x1b[K");
    }
    running.finish()
}

/// Sets `has_ended` when standard input has. What comes in is not looked at.
fn watch_input(has_ended: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        // An input that cannot be read is as good as one that has ended.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        has_ended.store(true, Ordering::Relaxed);
    });
}

fn show_progress(running: &Running, passed_s: u64) {
    let standing = running.standing();
    let open_count = standing.sent_count.saturating_sub(standing.ok_count + standing.lost_count);
    eprint!(
        "\r\x1b[K{passed_s} s: {} sent, {} ok, {} lost, {open_count} outstanding",
        standing.sent_count, standing.ok_count, standing.lost_count
    );
    // A terminal that is gone is no reason to end the load.
    let _ = std::io::stderr().flush();
}

fn tell(arguments: &Arguments, report: &Report) -> ExitCode {
    let text = if arguments.json { report.to_json() } else { report.to_string() };
    if let Err(error) = writeln!(std::io::stdout(), "{text}") {
        return refuse(&format!("write the report: {error}"));
    }
    ExitCode::from(u8::from(report.lost_count() > 0))
}

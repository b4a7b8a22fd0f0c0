//! A program that asks, as what it counted: requests answered, and those that went wrong.

use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::launch::pinned;
use super::process_tree::ended_children_ns;
use crate::program::signal;

/// How much longer than asked for a load may run.
pub(super) const OVERTIME: Duration = Duration::from_secs(20);
/// Between two looks whether it has ended.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// How a load's output is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Wrk,
    H2load,
    Dnsperf,
    /// That of `bench/load`.
    Own,
}

/// What a right answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expected {
    /// Status 200 to 399.
    Success,
    /// Status 400 and above.
    Refusal,
    /// A RCODE by its mnemonic.
    Rcode(&'static str),
}

/// Stands among the arguments of a load for the seconds that it is to run.
pub(super) const SECONDS: &str = "SECONDS";

/// A load, ready to be run.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) program: PathBuf,
    /// With `SECONDS` where the length belongs.
    pub(super) arguments: Vec<String>,
    pub(super) dialect: Dialect,
    pub(super) expected: Expected,
    pub(super) length: Duration,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) answered_count: u64,
    /// Lost, refused, or other than expected; these may be among the answered ones.
    pub(super) error_count: u64,
    /// Processor time of the load itself.
    pub(super) load_ns: u64,
}

impl Load {
    /// The same, for another time.
    pub(super) fn lasting(&self, length: Duration) -> Load {
        Load { length, ..self.clone() }
    }

    /// Runs it to its end on the processors `processors` (as for `taskset -c`).
    ///
    /// # Errors
    /// It failed, ran for too long, or said nothing that can be read.
    pub(super) fn run(&self, processors: &str) -> Result<Counted, String> {
        let mut running = self.start(processors)?;
        running.wait(self.length + OVERTIME);
        running.counted()
    }

    /// Starts it on the processors `processors`.
    ///
    /// # Errors
    /// It cannot be started.
    pub(super) fn start(&self, processors: &str) -> Result<Running<'_>, String> {
        let seconds = self.length.as_secs_f64().to_string();
        let mut command = pinned(&self.program, processors);
        command.args(self.arguments.iter().map(|argument| argument.replace(SECONDS, &seconds)));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let name = self.program.display();
        let child = command.spawn().map_err(|error| format!("{name} cannot be started: {error}"))?;
        Ok(Running { load: self, child, ended_load_ns: None })
    }
}

/// A load at work. One that is dropped before its end is ended.
pub(super) struct Running<'l> {
    load: &'l Load,
    child: Child,
    /// Its processor time, once it has ended.
    ended_load_ns: Option<u64>,
}

impl Running<'_> {
    /// Lets it stand still until [`Running::go_on`].
    pub(super) fn pause(&self) -> Result<(), String> {
        self.signal("STOP")
    }

    pub(super) fn go_on(&self) -> Result<(), String> {
        self.signal("CONT")
    }

    fn signal(&self, name: &str) -> Result<(), String> {
        // Once it has been waited for, its number may be somebody else's.
        if self.ended_load_ns.is_some() || signal(self.child.id(), name) {
            return Ok(());
        }
        Err(format!("{} cannot be sent the signal {name}", self.load.program.display()))
    }

    /// Waits for so long that it ends. Whether it has.
    pub(super) fn wait(&mut self, patience: Duration) -> bool {
        let limit = Instant::now() + patience;
        while self.ended_load_ns.is_none() {
            let before_ns = ended_children_ns();
            match self.child.try_wait() {
                Ok(None) if Instant::now() > limit => return false,
                // Its output is a page at most, which a pipe holds until it is read.
                Ok(None) => thread::sleep(LOOK_EVERY),
                Ok(Some(_)) | Err(_) => self.ended_load_ns = Some(ended_children_ns() - before_ns),
            }
        }
        true
    }

    /// What came of it.
    ///
    /// # Errors
    /// It failed, has not ended, or said nothing that can be read.
    pub(super) fn counted(mut self) -> Result<Counted, String> {
        let name = self.load.program.display();
        let Some(load_ns) = self.ended_load_ns else {
            return Err(format!("{name} did not end {} s after its time", OVERTIME.as_secs()));
        };
        let status = self.child.wait().map_err(|error| format!("{name}: {error}"))?;
        let text = text_of(self.child.stdout.take());
        let complaint = || format!("{name} ended with {status}: {text}");
        if !status.success() {
            return Err(complaint() + &text_of(self.child.stderr.take()));
        }
        let (answered_count, error_count) = read(self.load.dialect, self.load.expected, &text).ok_or_else(complaint)?;
        Ok(Counted { answered_count, error_count, load_ns })
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if self.ended_load_ns.is_none() {
            // Nothing is left to try when these fail.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// What stands in a pipe whose writer has ended.
fn text_of(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        // What cannot be read is missing, and then its numbers are.
        let _ = pipe.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Requests answered, and errors, as `text` tells them.
fn read(dialect: Dialect, expected: Expected, text: &str) -> Option<(u64, u64)> {
    match dialect {
        Dialect::Wrk => read_wrk(expected, text),
        Dialect::H2load => read_h2load(text),
        Dialect::Dnsperf => read_dnsperf(expected, text),
        Dialect::Own => read_own(expected, text),
    }
}

fn read_wrk(expected: Expected, text: &str) -> Option<(u64, u64)> {
    let mut answered = None;
    let (mut refused, mut failed) = (0, 0);
    for line in text.lines().map(str::trim) {
        if let Some((count, _)) = line.split_once(" requests in ") {
            answered = count.parse().ok();
        } else if let Some(count) = line.strip_prefix("Non-2xx or 3xx responses: ") {
            refused = count.parse().ok()?;
        } else if let Some(counts) = line.strip_prefix("Socket errors: ") {
            let numbers = counts.split(|c: char| !c.is_ascii_digit()).filter(|word| !word.is_empty());
            failed = numbers.filter_map(|number| number.parse::<u64>().ok()).sum();
        }
    }
    let answered: u64 = answered?;
    let unexpected = if expected == Expected::Refusal { answered.saturating_sub(refused) } else { refused };
    Some((answered, unexpected + failed))
}

/// `requests: 100 total, 100 started, 100 done, 100 succeeded, 0 failed, 0 errored, 0 timeout`.
fn read_h2load(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().find_map(|line| line.strip_prefix("requests: "))?;
    let count_of = |name: &str| {
        let part = line.split(", ").find_map(|part| part.strip_suffix(name))?;
        part.trim().parse::<u64>().ok()
    };
    Some((count_of("succeeded")?, count_of("failed")? + count_of("errored")? + count_of("timeout")?))
}

/// `  Queries completed:    99990 (99.99%)` and `  Response codes:       NOERROR 99990 (100.00%)`.
fn read_dnsperf(expected: Expected, text: &str) -> Option<(u64, u64)> {
    let after = |label: &str| text.lines().find_map(|line| line.trim().strip_prefix(label)).map(str::trim);
    let first_number = |label: &str| after(label)?.split(' ').next()?.parse::<u64>().ok();
    let answered = first_number("Queries completed:")?;
    let lost = first_number("Queries lost:")?;
    let codes = after("Response codes:").unwrap_or("");
    let as_expected: u64 = codes
        .split(", ")
        .filter_map(|code| code.split_once(' '))
        .filter(|(name, _)| matches!(expected, Expected::Rcode(rcode) if rcode == *name))
        .filter_map(|(_, count)| count.split(' ').next()?.parse::<u64>().ok())
        .sum();
    Some((answered, lost + answered.saturating_sub(as_expected)))
}

/// `KEY VALUE` a line.
fn read_own(expected: Expected, text: &str) -> Option<(u64, u64)> {
    let value_of = |key: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
        value.and_then(|value| value.parse::<u64>().ok())
    };
    let answered = value_of("replies")?;
    let Expected::Rcode(rcode) = expected else { return None };
    let unexpected = answered.saturating_sub(value_of(rcode).unwrap_or(0));
    Some((answered, unexpected + value_of("lost")? + value_of("wrong")? + value_of("truncated")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(dialect: Dialect, expected: Expected, text: &str, counts: Option<(u64, u64)>) {
        assert_eq!(read(dialect, expected, text), counts, "{text}");
    }

    const WRK: &str = "\
Running 2s test @ http://127.0.0.1:8080/
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.20ms  820.11us  20.17ms   88.30%
    Req/Sec    55.11k     4.50k   62.20k    70.00%
  109876 requests in 2.00s, 80.10MB read
  Socket errors: connect 0, read 3, write 0, timeout 1
  Non-2xx or 3xx responses: 109870
Requests/sec:  54938.00
Transfer/sec:     40.05MB
";

    #[test]
    fn wrk_tells_refusals_and_broken_connections() {
        check(Dialect::Wrk, Expected::Success, WRK, Some((109_876, 109_874)));
        check(Dialect::Wrk, Expected::Refusal, WRK, Some((109_876, 10)));
        check(Dialect::Wrk, Expected::Success, "  7 requests in 1.00s, 1KB read\n", Some((7, 0)));
        check(Dialect::Wrk, Expected::Success, "unable to connect", None);
    }

    #[test]
    fn h2load_tells_what_succeeded() {
        let text = "finished in 1s\nrequests: 100 total, 100 started, 100 done, 97 succeeded, 2 failed, 1 errored, 0 timeout\n";
        check(Dialect::H2load, Expected::Success, text, Some((97, 3)));
    }

    #[test]
    fn dnsperf_tells_codes_by_name() {
        let text = "Statistics:\n\n  Queries sent:         100\n  Queries completed:    99 (99.00%)\n  \
                    Queries lost:         1 (1.00%)\n\n  Response codes:       NOERROR 90 (90.91%), NXDOMAIN 9 (9.09%)\n";
        check(Dialect::Dnsperf, Expected::Rcode("NOERROR"), text, Some((99, 10)));
        check(Dialect::Dnsperf, Expected::Rcode("NXDOMAIN"), text, Some((99, 91)));
    }

    #[test]
    fn our_own_load_tells_everything_by_line() {
        let text =
            "replies 100\nlost 1\nwrong 2\ntruncated 3\nreply_bytes 6000\nreconnects 0\nNOERROR 98\nNXDOMAIN 2\n";
        check(Dialect::Own, Expected::Rcode("NOERROR"), text, Some((100, 8)));
        check(Dialect::Own, Expected::Rcode("NXDOMAIN"), text, Some((100, 104)));
        check(Dialect::Own, Expected::Success, text, None);
    }
}

//! The result of a scenario: the counts of its loads, other measurements, and failures.

use loadgen::{Cause, Counts, Kind, Report};
use std::fmt;
use std::time::Duration;

/// Losses of a request that a process had already accepted when it ended.
const INTERRUPTED: [Cause; 4] = [Cause::ResetBefore, Cause::ResetDuring, Cause::ClosedBefore, Cause::ClosedDuring];
/// A delay of sending that the reader must know.
const LATE_REPORTED: Duration = Duration::from_millis(200);

/// The result of a scenario.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The actions and measurements, one line each.
    pub facts: Vec<String>,
    /// The failures, one line each.
    pub failures: Vec<String>,
    /// The report of each load with a title, which is empty if there is only one.
    pub loads: Vec<(String, Report)>,
    /// Requests that killed processes had accepted.
    pub interrupted_count: u64,
    /// Whether the losses belong to another server, and are not judged.
    pub is_comparison: bool,
}

impl Outcome {
    pub(crate) fn fact(&mut self, fact: impl Into<String>) {
        self.facts.push(fact.into());
    }

    pub(crate) fn require(&mut self, condition: bool, failure: impl FnOnce() -> String) {
        if !condition {
            self.failures.push(failure());
        }
    }

    /// Adds a load in which every loss is a failure.
    pub(crate) fn add_strict(&mut self, report: Report) {
        for (kind, counts) in &report.kinds {
            self.require_lost(*kind, counts, 0);
        }
        self.add(String::new(), report);
    }

    /// Adds a load during which processes were killed: losing what they had accepted is no failure. For UDP these are
    /// timeouts.
    pub(crate) fn add_with_kills(&mut self, report: Report) {
        for (kind, counts) in &report.kinds {
            let causes: &[Cause] = if *kind == Kind::DnsUdp { &[Cause::Timeout] } else { &INTERRUPTED };
            let interrupted_count = causes.iter().map(|cause| counts.lost(*cause)).sum();
            self.interrupted_count += interrupted_count;
            self.require_lost(*kind, counts, interrupted_count);
        }
        self.add(String::new(), report);
    }

    /// Adds a load on another server.
    pub(crate) fn add_comparison(&mut self, title: &str, report: Report) {
        self.is_comparison = true;
        self.add(title.to_owned(), report);
    }

    fn require_lost(&mut self, kind: Kind, counts: &Counts, lost_count: u64) {
        self.require(counts.sent_count > 0, || format!("{kind}: no request was sent"));
        self.require(counts.lost_count() == lost_count, || {
            format!("{kind}: {} lost of {} ({})", counts.lost_count(), counts.sent_count, counts.causes())
        });
    }

    fn add(&mut self, title: String, report: Report) {
        let late_max = report.late_max();
        if late_max > LATE_REPORTED {
            self.fact(format!("The machine was busy: the load was delayed by up to {} ms", late_max.as_millis()));
        }
        self.loads.push((title, report));
    }

    /// Whether nothing failed.
    pub fn is_success(&self) -> bool {
        self.failures.is_empty()
    }

    /// Requests sent, and requests without a correct response, of all loads.
    pub fn sent_and_lost(&self) -> (u64, u64) {
        let counts = self.loads.iter().map(|(_, report)| (report.sent_count(), report.lost_count()));
        counts.fold((0, 0), |(sum_sent, sum_lost), (sent, lost)| (sum_sent + sent, sum_lost + lost))
    }

    /// The verdict in one line.
    pub fn verdict(&self) -> String {
        let (sent_count, lost_count) = self.sent_and_lost();
        let verdict = match (self.is_success(), self.is_comparison) {
            (false, _) => "FAILED",
            (true, true) => "for comparison",
            (true, false) => "passed",
        };
        let counts = format!("{verdict}: {} lost of {sent_count}", lost_count - self.interrupted_count);
        let interrupted = match self.interrupted_count {
            0 => String::new(),
            count => format!(", and {count} that killed processes had accepted"),
        };
        let failures: String = self.failures.iter().map(|failure| format!("; {failure}")).collect();
        format!("{counts}{interrupted}{failures}")
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (title, report) in &self.loads {
            writeln!(f, "{title}\n{report}")?;
        }
        self.facts.iter().try_for_each(|fact| writeln!(f, "- {fact}"))?;
        f.write_str(&self.verdict())
    }
}

/// `Reloads: 24, median 9 ms, at most 27 ms`.
pub(crate) fn median_and_max(what: &str, times: &[Duration]) -> String {
    let mut sorted = times.to_vec();
    sorted.sort();
    let ms = |time: Option<&Duration>| time.map_or(0, Duration::as_millis);
    let (median, max) = (ms(sorted.get(sorted.len() / 2)), ms(sorted.last()));
    format!("{what}: {}, median {median} ms, at most {max} ms", times.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(kind: Kind, losses: &[(Cause, u64)]) -> Report {
        let mut counts = Counts::default();
        counts.sent_count = 100;
        losses.iter().for_each(|(cause, count)| counts.lost[*cause as usize] = *count);
        Report { seed: 1, length: Duration::ZERO, kinds: vec![(kind, counts)] }
    }

    #[test]
    fn losses_are_failures_unless_a_killed_process_had_accepted_the_request() {
        let interrupted = "passed: 0 lost of 100, and 2 that killed processes had accepted";
        let refused = "FAILED: 1 lost of 100; http-new: 1 lost of 100 (1 refused)";
        let add_strict: fn(&mut Outcome, Report) = Outcome::add_strict;
        for (add, kind, losses, expected) in [
            (add_strict, Kind::HttpNew, &[][..], "passed: 0 lost of 100"),
            (Outcome::add_strict, Kind::HttpNew, &[(Cause::Refused, 1)], refused),
            (Outcome::add_with_kills, Kind::HttpNew, &[(Cause::Refused, 1)], refused),
            (Outcome::add_with_kills, Kind::HttpNew, &[(Cause::ClosedDuring, 2)], interrupted),
            (Outcome::add_with_kills, Kind::DnsUdp, &[(Cause::Timeout, 2)], interrupted),
        ] {
            let mut outcome = Outcome::default();
            add(&mut outcome, report(kind, losses));
            assert_eq!(outcome.verdict(), expected);
        }
    }

    #[test]
    fn load_without_requests_fails() {
        let mut outcome = Outcome::default();
        let kinds = vec![(Kind::HttpNew, Counts::default())];
        outcome.add_strict(Report { seed: 1, length: Duration::ZERO, kinds });
        assert!(!outcome.is_success());
    }
}

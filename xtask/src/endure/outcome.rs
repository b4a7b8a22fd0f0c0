//! What a scenario came to: the counts of its loads, what else was measured, and what did not hold.

use super::counts::{Counts, late_max_ms};

/// A delay of the load's own sending that the reader must know of.
const LATE_TOLD_MS: f64 = 200.0;

/// What became of a scenario.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) name: &'static str,
    pub(super) promise: &'static str,
    /// What was done and measured, a line each.
    pub(super) facts: Vec<String>,
    /// Each load by its title, which is empty when there is but one.
    pub(super) loads: Vec<(String, Vec<Counts>)>,
    /// What did not hold, a line each.
    failures: Vec<String>,
    /// Requests that killed processes had taken.
    pub(super) cut_off_count: u64,
    is_comparison: bool,
}

impl Outcome {
    pub(super) fn new(name: &'static str, promise: &'static str) -> Outcome {
        Outcome { name, promise, ..Outcome::default() }
    }

    /// Something worth telling.
    pub(super) fn tell(&mut self, fact: impl Into<String>) {
        self.facts.push(fact.into());
    }

    /// Something that did not hold.
    pub(super) fn fail(&mut self, failure: &str) {
        self.failures.push(failure.to_owned());
    }

    /// `failure` if `condition` is not met.
    pub(super) fn require(&mut self, condition: bool, failure: impl FnOnce() -> String) {
        if !condition {
            self.failures.push(failure());
        }
    }

    /// A load whose losses are all failures.
    pub(super) fn take_strict(&mut self, counts: Vec<Counts>) {
        for kind in &counts {
            self.require(kind.sent_count > 0, || format!("{}: nothing was sent", kind.kind));
            self.require(kind.lost_count == 0, || lost(kind));
        }
        self.take(String::new(), counts);
    }

    /// A load during which processes were killed: what they had taken is cut off by nature, and told apart; nothing else
    /// may be lost. Datagrams that a killed process had received are unanswered in the same way.
    pub(super) fn take_with_cut_off(&mut self, counts: Vec<Counts>) {
        let mut parts = Vec::new();
        for kind in &counts {
            let by_nature = if kind.kind == "dns-udp" { kind.lost_for("timeout") } else { kind.cut_off_count() };
            parts.push(format!("{by_nature} {}", kind.kind));
            self.cut_off_count += by_nature;
            self.require(kind.sent_count > 0, || format!("{}: nothing was sent", kind.kind));
            self.require(kind.lost_count == by_nature, || lost(kind));
        }
        self.tell(format!("Cut off with the processes that had them: {}", parts.join(", ")));
        self.take(String::new(), counts);
    }

    /// A load of a peer, which is told and not judged.
    pub(super) fn take_for_comparison(&mut self, title: &str, counts: Vec<Counts>) {
        self.is_comparison = true;
        self.take(title.to_owned(), counts);
    }

    fn take(&mut self, title: String, counts: Vec<Counts>) {
        let late_ms = late_max_ms(&counts);
        if late_ms > LATE_TOLD_MS {
            self.facts.push(format!(
                "The machine was busy: the load itself was kept from its processor for {late_ms:.0} ms, and latencies tell \
                 of that"
            ));
        }
        let of = if title.is_empty() { String::new() } else { format!(" of {title}") };
        for kind in &counts {
            if let Some(loss) = &kind.first_loss {
                self.facts.push(format!("The first loss in {}{of}: {loss}", kind.kind));
            }
        }
        self.loads.push((title, counts));
    }

    /// Whether all held.
    pub(super) fn holds(&self) -> bool {
        self.failures.is_empty()
    }

    /// Requests sent, and those that were not answered, of all loads.
    pub(super) fn sent_and_lost(&self) -> (u64, u64) {
        let kinds = self.loads.iter().flat_map(|(_, counts)| counts);
        kinds.fold((0, 0), |(sent, lost), kind| (sent + kind.sent_count, lost + kind.lost_count))
    }

    /// One word: whether it holds.
    pub(super) fn word(&self) -> &'static str {
        match (self.holds(), self.is_comparison) {
            (false, _) => "FAILS",
            (true, true) => "for comparison",
            (true, false) => "holds",
        }
    }

    /// One line: what came of it.
    pub(super) fn verdict(&self) -> String {
        let (sent_count, unanswered_count) = self.sent_and_lost();
        let lost_count = unanswered_count - self.cut_off_count;
        let mut parts = Vec::new();
        if !self.loads.is_empty() {
            let cut_off = match self.cut_off_count {
                0 => String::new(),
                count => format!(", and {count} cut off with the processes that had them"),
            };
            parts.push(format!("{lost_count} lost of {sent_count}{cut_off}"));
        }
        parts.extend(self.failures.iter().cloned());
        format!("{}: {}", self.word(), parts.join("; "))
    }
}

fn lost(kind: &Counts) -> String {
    format!("{}: {} lost of {} ({})", kind.kind, kind.lost_count, kind.sent_count, kind.causes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(kind: &str, causes: &[(&str, u64)]) -> Counts {
        let lost_by_cause: Vec<_> = causes.iter().map(|(cause, count)| ((*cause).to_owned(), *count)).collect();
        let lost_count = causes.iter().map(|(_, count)| count).sum();
        Counts { kind: kind.into(), sent_count: 100, lost_count, lost_by_cause, ..Counts::default() }
    }

    #[test]
    fn one_loss_breaks_a_strict_promise() {
        let mut outcome = Outcome::new("reload", "");
        outcome.take_strict(vec![counts("http-new", &[]), counts("dns-udp", &[])]);
        assert_eq!((outcome.holds(), outcome.verdict().as_str()), (true, "holds: 0 lost of 200"));
        outcome.take_strict(vec![counts("http-new", &[("refused", 1)])]);
        let verdict = "FAILS: 1 lost of 300; http-new: 1 lost of 100 (1 refused)";
        assert_eq!((outcome.holds(), outcome.verdict().as_str()), (false, verdict));
    }

    #[test]
    fn what_a_killed_process_had_is_told_apart() {
        let mut outcome = Outcome::new("kill", "");
        outcome.take_with_cut_off(vec![counts("http-new", &[("short", 2)]), counts("dns-udp", &[("timeout", 3)])]);
        let verdict = "holds: 0 lost of 200, and 5 cut off with the processes that had them";
        assert_eq!((outcome.holds(), outcome.verdict().as_str()), (true, verdict));
        assert_eq!(outcome.facts, ["Cut off with the processes that had them: 2 http-new, 3 dns-udp"]);
        for cause in ["refused", "timeout", "unsent", "wrong_content"] {
            let mut outcome = Outcome::new("kill", "");
            outcome.take_with_cut_off(vec![counts("http-new", &[(cause, 1)])]);
            assert!(!outcome.holds(), "{cause}");
        }
        let mut outcome = Outcome::new("kill", "");
        outcome.take_with_cut_off(vec![counts("dns-udp", &[("refused", 1)])]);
        assert!(!outcome.holds(), "nobody had the socket open any more");
    }

    #[test]
    fn a_load_that_sent_nothing_proves_nothing() {
        let mut outcome = Outcome::new("reload", "");
        outcome.take_strict(vec![Counts { kind: "http-new".into(), ..Counts::default() }]);
        assert!(!outcome.holds());
    }
}

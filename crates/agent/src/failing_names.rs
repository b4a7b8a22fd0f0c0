//! The names of a certificate that have failed while others have not: orders are made without them, and each is retried
//! after its own delay.

use crate::clock::unix_s;
use crate::failure::Failure;
use sanderling_ipc::agent::FailingNameReport;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The failing names, with the state of each.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct FailingNames(BTreeMap<String, FailingName>);

#[derive(Debug, Serialize, Deserialize)]
struct FailingName {
    /// Failed attempts in a row.
    failure_count: u32,
    last_error: String,
    /// No order contains the name before this time; and the delay that led to it.
    not_before_unix_s: u64,
    delay_s: u64,
    /// Whether the authority has not said which name it refuses: it may be a different one.
    is_suspected: bool,
}

impl FailingName {
    /// The time of the next attempt. If the clock was set back since then, the delay starts again now.
    fn not_before(&self) -> u64 {
        self.not_before_unix_s.min(unix_s().saturating_add(self.delay_s))
    }
}

impl FailingNames {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Records another failure of the name.
    pub(crate) fn add(&mut self, name: &str, failure: &Failure, is_suspected: bool) {
        let failure_count = self.failure_count(name).saturating_add(1);
        let delay_s = failure.delay_s(failure_count);
        let (last_error, not_before_unix_s) = (failure.to_string(), unix_s() + delay_s);
        let known = FailingName { failure_count, last_error, not_before_unix_s, delay_s, is_suspected };
        self.0.insert(name.to_owned(), known);
    }

    /// Forgets all but these.
    pub(crate) fn retain(&mut self, is_failing: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| is_failing(name));
    }

    /// The members of `names` in the next order: without those whose next attempt is later. If it is unknown which of
    /// several names the authority refuses, an order has only one of them, to find out.
    pub(crate) fn ordered(&self, names: &[String]) -> Vec<String> {
        let (mut ordered, mut has_suspect) = (Vec::new(), false);
        for name in names {
            match self.0.get(name) {
                Some(failing) if failing.not_before() > unix_s() || failing.is_suspected && has_suspect => {}
                failing => {
                    has_suspect |= failing.is_some_and(|failing| failing.is_suspected);
                    ordered.push(name.clone());
                }
            }
        }
        ordered
    }

    /// The time of the next retry, and the reason.
    pub(crate) fn next_attempt(&self) -> Option<(u64, String)> {
        let (name, failing) = self.0.iter().min_by_key(|(_, failing)| failing.not_before())?;
        let why = format!("attempt {} for {name}, which failed", failing.failure_count.saturating_add(1));
        Some((failing.not_before(), why))
    }

    /// Failed attempts in a row; 0 for another name.
    pub(crate) fn failure_count(&self, name: &str) -> u32 {
        self.0.get(name).map_or(0, |failing| failing.failure_count)
    }

    /// `, but not for a.test: refused`; empty if none has failed.
    pub(crate) fn text(&self) -> String {
        let of_name = |(name, failing): (&String, &FailingName)| format!("{name}: {}", failing.last_error);
        let texts: Vec<String> = self.0.iter().map(of_name).collect();
        if texts.is_empty() { String::new() } else { format!(", but not for {}", texts.join("; and not for ")) }
    }

    pub(crate) fn report(&self) -> Vec<FailingNameReport> {
        let report = |(name, failing): (&String, &FailingName)| FailingNameReport {
            name: name.clone(),
            failure_count: failing.failure_count,
            last_error: failing.last_error.clone(),
            next_attempt_unix_s: failing.not_before(),
        };
        self.0.iter().map(report).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Kind;

    #[test]
    fn names_are_tried_again_after_a_delay_of_their_own() {
        let names = ["a.test", "b.test", "c.test", "d.test"].map(str::to_owned);
        let mut failing = FailingNames::default();
        assert_eq!((failing.ordered(&names), failing.next_attempt()), (names.to_vec(), None));
        let refused = Failure::new(Kind::Refused, "refused", "ask");
        failing.add("b.test", &refused, false);
        failing.add("c.test", &refused, true);
        failing.add("d.test", &refused, true);
        (0..2).for_each(|_| failing.add("b.test", &refused, false));
        assert_eq!(failing.ordered(&names), ["a.test"]);
        let (at, why) = failing.next_attempt().expect("one is later");
        assert!((55..=66).contains(&(at - unix_s())) && why.starts_with("attempt 2 for "), "{at} {why}");
        assert_eq!([failing.failure_count("a.test"), failing.failure_count("b.test")], [0, 3]);
        // Names that may be unrelated to the failure are tried one after another.
        failing.0.values_mut().for_each(|one| one.not_before_unix_s = 0);
        assert_eq!(failing.ordered(&names), ["a.test", "b.test", "c.test"]);
        failing.retain(|name| name != "c.test");
        assert_eq!(failing.ordered(&names), names);
        // If the clock was set back, the delay begins again.
        failing.0.values_mut().for_each(|one| one.not_before_unix_s = u64::MAX);
        assert!(failing.next_attempt().is_some_and(|(at, _)| at <= unix_s() + 6_600));
        assert_eq!(failing.report().len(), 2);
        let expected = ", but not for b.test: refused; ask; and not for d.test: refused; ask";
        assert_eq!(failing.text(), expected);
    }
}

//! Says which way of each job the server uses here, why, and whether another one measured better.

use super::numbers::Spread;
use super::report::{Choice, Group, Why};

/// Below this ratio another way is better, and above it there is a tie, which the preferred way wins.
pub(crate) const TIE_RATIO: f64 = 0.97;

/// The choice of the server's job `job`, by its name; `None` for what the server has only one way for.
pub(crate) fn of_job(job: &str) -> Option<Choice> {
    let job = sanderling_os::features::FEATURES.iter().find(|candidate| candidate.name() == job)?;
    let there: Vec<bool> = job.variants().iter().map(|way| (way.is_supported)()).collect();
    Some(Choice { job: job.name(), used: job.selected_name(), why: why(&there, job.selected()), better: None })
}

/// Why the way at `chosen` is used, of ways that are there or not.
fn why(there: &[bool], chosen: usize) -> Why {
    let first_there = there.iter().position(|&is_there| is_there);
    if first_there != Some(chosen) {
        Why::Forced
    } else if there.iter().filter(|&&is_there| is_there).count() == 1 {
        Why::OnlyOne
    } else if chosen == 0 {
        Why::Default
    } else {
        Why::FirstThere
    }
}

impl Choice {
    /// Compares the way in use with the other ways in `group`: who is better beyond a tie by the median and by the
    /// least disturbed tenth is better.
    pub(crate) fn weigh(mut self, group: &Group) -> Choice {
        let cost = |way: &str| -> Option<Spread> {
            // Where ways were measured at several sizes, the largest one, at the end, tells most.
            let row = group.rows.iter().rev().find(|row| row.way == Some(way))?;
            group.cost(row)
        };
        let Some(used_cost) = cost(self.used) else { return self };
        let ways = group.rows.iter().filter_map(|row| row.way).filter(|&way| way != self.used);
        let ratios = ways.filter_map(|way| Some((way, cost(way)?.ratio_to(used_cost).worse())));
        let best = ratios.min_by(|(_, one), (_, other)| one.total_cmp(other));
        self.better = best.filter(|&(_, ratio)| ratio <= TIE_RATIO).map(|(way, ratio)| (way, 1.0 - ratio));
        self
    }

    /// In words, as the last line of the job's table.
    pub(crate) fn words(&self) -> String {
        let why = match self.why {
            Why::Default => "default",
            Why::FirstThere => "the first one that is there",
            Why::OnlyOne => "the only one that is there",
            Why::Forced => "forced",
        };
        let used = format!("used: {} ({why})", self.used);
        match self.better {
            None => format!("{used}; no other way is better by 3 %"),
            Some((way, gain)) => format!(
                "{used}; measured better here: {way} by {:.0} %, force it with --force {}={way}",
                gain * 100.0,
                self.job
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Basis, Measured, Outcome, Row};

    fn group(costs: &[(&'static str, f64, f64)]) -> Group {
        let rows = costs.iter().map(|&(way, median, p10)| Row {
            name: way.to_owned(),
            thread_count: 1,
            way: Some(way),
            is_used: false,
            baseline: 0,
            claimed_ratio: None,
            outcome: Outcome::Measured(Measured { cpu_ns: Spread { median, p10 }, ..Measured::default() }),
        });
        let (title, unit, basis) = (String::new(), "call", Basis::Cpu);
        Group { job: "cloexec", title, unit, basis, rows: rows.collect(), choice: None, notes: Vec::new() }
    }

    #[track_caller]
    fn check(why: Why, costs: &[(&'static str, f64, f64)], expected: &str) {
        let choice = Choice { job: "cloexec", used: "fcntl", why, better: None };
        assert_eq!(choice.weigh(&group(costs)).words(), expected);
    }

    #[test]
    fn a_tie_keeps_what_is_used() {
        let tie = "used: fcntl (default); no other way is better by 3 %";
        check(Why::Default, &[("fcntl", 100.0, 90.0), ("fioclex", 98.0, 88.0)], tie);
        check(Why::Default, &[("fcntl", 100.0, 90.0), ("fioclex", 140.0, 130.0)], tie);
        // Better in the median alone is noise.
        check(Why::Default, &[("fcntl", 100.0, 90.0), ("fioclex", 80.0, 89.0)], tie);
        check(Why::Default, &[("fcntl", 100.0, 90.0), ("fioclex", 99.0, 70.0)], tie);
        check(Why::Default, &[("fcntl", 100.0, 90.0)], tie);
    }

    #[test]
    fn a_better_way_is_told_with_what_to_type() {
        check(
            Why::Default,
            &[("fcntl", 100.0, 90.0), ("slow", 96.0, 86.4), ("fioclex", 95.0, 84.6)],
            "used: fcntl (default); measured better here: fioclex by 5 %, force it with --force cloexec=fioclex",
        );
        check(
            Why::Forced,
            &[("fcntl", 100.0, 100.0), ("fioclex", 50.0, 60.0)],
            "used: fcntl (forced); measured better here: fioclex by 40 %, force it with --force cloexec=fioclex",
        );
    }

    #[test]
    fn why_a_way_is_used_follows_from_what_is_there() {
        for (there, chosen, expected) in [
            (&[true, true][..], 0, Why::Default),
            (&[false, true, true], 1, Why::FirstThere),
            (&[false, true], 1, Why::OnlyOne),
            (&[true, true], 1, Why::Forced),
            (&[false, false], 0, Why::Forced),
        ] {
            assert_eq!(why(there, chosen), expected, "{there:?} {chosen}");
        }
    }

    #[test]
    fn every_job_of_the_server_has_a_choice() {
        for job in sanderling_os::features::FEATURES {
            assert!(of_job(job.name()).is_some());
        }
        assert_eq!(of_job("floor"), None);
    }
}

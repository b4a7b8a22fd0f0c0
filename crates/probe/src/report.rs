//! What was found out, as values: for each job a group of rows, for each founding claim an answer.

use super::features::Feature;
use super::machine::Machine;
use super::numbers::Spread;

/// All of it.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) features: Vec<Feature>,
    /// Microseconds of processor time that all tests of features took together.
    pub(crate) features_cpu_us: f64,
    pub(crate) is_quick: bool,
    /// The seed of the orders in which candidates took their turns.
    pub(crate) seed: u64,
    pub(crate) groups: Vec<Group>,
    pub(crate) answers: Vec<Answer>,
    pub(crate) took_s: f64,
}

/// Candidates that do the same, compared.
#[derive(Debug)]
pub(crate) struct Group {
    /// What `--only` calls the job.
    pub(crate) job: &'static str,
    pub(crate) title: String,
    /// What is done once: `call`, `datagram`.
    pub(crate) unit: &'static str,
    pub(crate) basis: Basis,
    pub(crate) rows: Vec<Row>,
    /// Which way the server uses, for jobs that have ways.
    pub(crate) choice: Option<Choice>,
    /// Sentences about what the rows mean.
    pub(crate) notes: Vec<String>,
}

/// Which time candidates are compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Basis {
    /// Processor time of the measured side, which others who use the machine do not lengthen.
    Cpu,
    /// Processor time of both sides: what bounds how much a busy machine gets done. Time on the wall would be the
    /// measure of a machine on which nobody else works.
    BothSides,
}

/// One candidate.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) thread_count: usize,
    /// The way of a job of the server, if it is one.
    pub(crate) way: Option<&'static str>,
    /// The server does it so, here.
    pub(crate) is_used: bool,
    /// The row of the same group that it is compared with; perhaps itself.
    pub(crate) baseline: usize,
    /// What the founding document says of it: its cost as a share of the baseline's.
    pub(crate) claimed_ratio: Option<f64>,
    pub(crate) outcome: Outcome,
}

/// What became of a candidate.
#[derive(Debug)]
pub(crate) enum Outcome {
    Measured(Measured),
    /// This kernel, or this container, does not do it; why.
    CannotRun(String),
}

/// What one operation costs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    /// Nanoseconds of processor time.
    pub(crate) cpu_ns: Spread,
    /// Nanoseconds on the wall, of all threads together.
    pub(crate) wall_ns: Spread,
    /// Nanoseconds of processor time that the other side needs, where there is another side.
    pub(crate) peer_cpu_ns: Option<f64>,
    /// Nanoseconds of processor time of all sides.
    pub(crate) both_cpu_ns: Spread,
    /// The share of the busiest of several threads, 1 when it did everything.
    pub(crate) busiest_share: Option<f64>,
    pub(crate) sample_count: usize,
    pub(crate) error_count: u64,
}

impl Row {
    pub(crate) fn measured(&self) -> Option<&Measured> {
        match &self.outcome {
            Outcome::Measured(measured) => Some(measured),
            Outcome::CannotRun(_) => None,
        }
    }
}

impl Group {
    /// The row of that name.
    pub(crate) fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// The cost that rows are compared by.
    pub(crate) fn cost(&self, row: &Row) -> Option<Spread> {
        let measured = row.measured()?;
        Some(match self.basis {
            Basis::Cpu => measured.cpu_ns,
            Basis::BothSides => measured.both_cpu_ns,
        })
    }

    /// A row's cost as a share of its baseline's.
    pub(crate) fn ratio(&self, row: &Row) -> Option<Spread> {
        Some(self.cost(row)?.ratio_to(self.cost(self.rows.get(row.baseline)?)?))
    }

    /// The cost of one row as a share of another's, both by name.
    pub(crate) fn ratio_between(&self, name: &str, baseline: &str) -> Option<Spread> {
        Some(self.cost(self.row(name)?)?.ratio_to(self.cost(self.row(baseline)?)?))
    }
}

/// The way that the server does a job by, here.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Choice {
    pub(crate) job: &'static str,
    pub(crate) used: &'static str,
    pub(crate) why: Why,
    /// Another way that measured better by more than a tie, and by what share.
    pub(crate) better: Option<(&'static str, f64)>,
}

/// Why a way is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// It is the preferred one, and it is there.
    Default,
    /// The preferred one is missing.
    FirstThere,
    /// The others are missing.
    OnlyOne,
    /// Somebody said so.
    Forced,
}

/// What this machine says to a founding claim.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    /// Which of the founding ideas, and which part of it: `1`, `2a`.
    pub(crate) idea: &'static str,
    /// The claim with its figure.
    pub(crate) claim: &'static str,
    pub(crate) verdict: Verdict,
    /// What was measured, and what follows.
    pub(crate) finding: String,
}

/// Whether a claim is true here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// At least half of the claimed gain is there, in the median and in the least disturbed tenth.
    Holds,
    /// A gain is there, but less than half of the claimed one.
    HoldsLess,
    /// No gain beyond a tie.
    NoLongerHolds,
    /// This machine, or this run, cannot tell.
    NotMeasurable,
}

impl Verdict {
    /// In words.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::HoldsLess => "holds, but less",
            Verdict::NoLongerHolds => "no longer holds",
            Verdict::NotMeasurable => "not measurable here",
        }
    }
}

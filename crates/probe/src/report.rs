//! The result of the measurements. The fields are the fields of `--json`.

use crate::machine::Machine;
use crate::spread::Spread;
use serde::Serialize;
use std::io;

/// The form of the JSON report; a change of the meaning of a field raises it.
const FORM: u32 = 3;
/// Above this ratio there is a tie, which the variant in use wins.
const TIE_RATIO: f64 = 0.97;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    form: u32,
    version: &'static str,
    pub(crate) machine: Machine,
    pub(crate) quick: bool,
    /// As text: many readers keep numbers in 53 bits.
    pub(crate) seed: String,
    pub(crate) took_s: f64,
    pub(crate) groups: Vec<Group>,
    pub(crate) summary: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct Group {
    /// The value of `--only`.
    #[serde(rename = "job")]
    pub(crate) name: &'static str,
    pub(crate) title: String,
    /// The operation: `call`, `datagram`.
    pub(crate) unit: &'static str,
    pub(crate) basis: Basis,
    pub(crate) rows: Vec<Row>,
    /// The variant that the server uses, if it is a kernel feature.
    pub(crate) selection: Option<Selection>,
    /// Remarks on the rows.
    pub(crate) notes: Vec<String>,
}

/// The variant that the server uses here.
#[derive(Debug, Serialize)]
pub(crate) struct Selection {
    used: &'static str,
    /// The variant that measured best, if that is more than a tie.
    better: Option<&'static str>,
    /// By which share its cost is lower.
    better_by: Option<f64>,
}

/// The time by which candidates are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Basis {
    /// CPU time of the measured side.
    Cpu,
    /// CPU time of both sides: it limits the throughput of a busy machine.
    BothSides,
}

#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) threads: usize,
    /// The variant of the server's feature, if it is one.
    pub(crate) variant: Option<&'static str>,
    /// Whether the server uses it here.
    pub(crate) used: bool,
    /// The index of the row that it is compared with, perhaps its own.
    pub(crate) baseline: usize,
    /// The cost as a share of the baseline's.
    pub(crate) ratio: Option<Spread>,
    pub(crate) measured: Option<Measured>,
    /// The reason why the candidate cannot run here.
    pub(crate) error: Option<String>,
}

/// The cost of one operation.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Measured {
    pub(crate) cpu_ns: Spread,
    /// Time of all threads together.
    pub(crate) wall_ns: Spread,
    pub(crate) peer_cpu_ns: Option<f64>,
    pub(crate) both_cpu_ns: Spread,
    /// The share of the busiest of several threads.
    pub(crate) busiest_share: Option<f64>,
    pub(crate) samples: usize,
    pub(crate) errors: u64,
}

impl Report {
    pub(crate) fn new(quick: bool, seed: u64, groups: Vec<Group>, took_s: f64) -> Report {
        let better = groups.iter().filter_map(Group::to_force);
        let better: Vec<String> = better.collect();
        let summary = if better.is_empty() {
            "no variant is clearly better here than those in use".to_owned()
        } else {
            format!("worth trying here: {}", better.join(" "))
        };
        let version = env!("CARGO_PKG_VERSION");
        Report { form: FORM, version, machine: Machine::read(), quick, seed: seed.to_string(), took_s, groups, summary }
    }
}

impl Group {
    /// A group with these rows, whose ratios are computed here.
    pub(crate) fn new(name: &'static str, title: String, unit: &'static str, basis: Basis, rows: Vec<Row>) -> Group {
        let mut group = Group { name, title, unit, basis, rows, selection: None, notes: Vec::new() };
        for index in 0..group.rows.len() {
            let baseline = group.rows[index].baseline;
            let ratio = group.cost(index).zip(group.cost(baseline)).map(|(cost, of)| cost.ratio_to(of));
            group.rows[index].ratio = ratio;
        }
        group
    }

    /// The group of a measurement that cannot be measured.
    pub(crate) fn failed(name: &'static str, error: &io::Error) -> Group {
        let mut group = Group::new(name, "Cannot be measured here".to_owned(), "call", Basis::Cpu, Vec::new());
        group.notes.push(error.to_string());
        group
    }

    pub(crate) fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// The cost by which the row at `index` is compared.
    pub(crate) fn cost(&self, index: usize) -> Option<Spread> {
        let measured = self.rows.get(index)?.measured.as_ref()?;
        Some(match self.basis {
            Basis::Cpu => measured.cpu_ns,
            Basis::BothSides => measured.both_cpu_ns,
        })
    }

    /// Compares the variant in use with the other variants, by the median and by the least disturbed tenth.
    pub(crate) fn compare_variants(&mut self, used: &'static str) {
        let cost = |variant: &str| {
            // If variants were measured at several sizes, the last and largest one is the most significant.
            let index = self.rows.iter().rposition(|row| row.variant == Some(variant))?;
            self.cost(index)
        };
        let better = cost(used).and_then(|used_cost| {
            let others = self.rows.iter().filter_map(|row| row.variant).filter(|&variant| variant != used);
            let ratios = others.filter_map(|variant| Some((variant, cost(variant)?.ratio_to(used_cost).worse())));
            let best = ratios.min_by(|(_, one), (_, other)| one.total_cmp(other));
            best.filter(|&(_, ratio)| ratio <= TIE_RATIO)
        });
        let (better, better_by) = better.map(|(variant, ratio)| (variant, 1.0 - ratio)).unzip();
        self.selection = Some(Selection { used, better, better_by });
    }

    /// The argument that forces a better variant.
    fn to_force(&self) -> Option<String> {
        Some(format!("--force {}={}", self.name, self.selection.as_ref()?.better?))
    }

    /// The last line of the table, if it is a kernel feature.
    pub(crate) fn selection_text(&self) -> Option<String> {
        let Selection { used, better, better_by } = self.selection.as_ref()?;
        Some(match (better, better_by, self.to_force()) {
            (Some(better), Some(share), Some(force)) => {
                format!("used: {used}; better here by {:.0} %: {better}, with {force}", share * 100.0)
            }
            _ => format!("used: {used}; no other variant is better by 3 %"),
        })
    }

    /// Notes how much more the last row in use does than its baseline.
    pub(crate) fn note_gain(&mut self) {
        let Some(row) = self.rows.iter().rev().find(|row| row.used) else { return };
        if let (Some(ratio), Some(baseline)) = (row.ratio, self.rows.get(row.baseline))
            && baseline.name != row.name
        {
            let note = format!("used: {}; {:.1} times as fast as {}", row.name, 1.0 / ratio.median, baseline.name);
            self.notes.push(note);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(costs: &[(&'static str, f64, f64)], expected: &str) {
        let rows = costs.iter().map(|&(variant, median, p10)| Row {
            name: variant.to_owned(),
            threads: 1,
            variant: Some(variant),
            used: false,
            baseline: 0,
            ratio: None,
            measured: Some(Measured { cpu_ns: Spread { median, p10 }, ..Measured::default() }),
            error: None,
        });
        let mut group = Group::new("cloexec", String::new(), "call", Basis::Cpu, rows.collect());
        group.compare_variants("fcntl");
        assert_eq!(group.selection_text().as_deref(), Some(expected));
    }

    #[test]
    fn tie_keeps_the_variant_in_use() {
        let tie = "used: fcntl; no other variant is better by 3 %";
        check(&[("fcntl", 100.0, 90.0), ("fioclex", 98.0, 88.0)], tie);
        check(&[("fcntl", 100.0, 90.0), ("fioclex", 140.0, 130.0)], tie);
        // Better in one of the two numbers only is noise.
        check(&[("fcntl", 100.0, 90.0), ("fioclex", 80.0, 89.0)], tie);
        check(&[("fcntl", 100.0, 90.0), ("fioclex", 99.0, 70.0)], tie);
        check(&[("fcntl", 100.0, 90.0)], tie);
    }

    #[test]
    fn better_variant_is_reported_with_its_argument() {
        check(
            &[("fcntl", 100.0, 90.0), ("slow", 96.0, 86.4), ("fioclex", 95.0, 84.6)],
            "used: fcntl; better here by 5 %: fioclex, with --force cloexec=fioclex",
        );
    }
}

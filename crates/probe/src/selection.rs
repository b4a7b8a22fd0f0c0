//! The variant of a feature that the server uses here, why, and whether another one measured better.

use crate::report::Group;
use sanderling_os::features::FEATURES;
use serde::Serialize;

/// Above this ratio there is a tie, which the variant in use wins.
pub(crate) const TIE_RATIO: f64 = 0.97;

/// The variant of a feature that the server uses here.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Selection {
    feature: &'static str,
    pub(crate) used: &'static str,
    reason: Reason,
    /// The variant that measured best, if that is more than a tie.
    better: Option<&'static str>,
    /// By which share its cost is lower.
    better_by: Option<f64>,
}

/// Why a variant is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Reason {
    /// It is the preferred one.
    Default,
    /// The preferred one is not supported.
    FirstSupported,
    /// No other one is supported.
    OnlySupported,
    /// `--force`.
    Forced,
}

/// The selection for the feature with this name; `None` if there is none.
pub(crate) fn of_feature(name: &str) -> Option<Selection> {
    let feature = FEATURES.iter().find(|feature| feature.name() == name)?;
    let supported: Vec<bool> = feature.variants().iter().map(|variant| (variant.is_supported)()).collect();
    let reason = reason(&supported, feature.selected());
    Some(Selection { feature: feature.name(), used: feature.selected_name(), reason, better: None, better_by: None })
}

fn reason(supported: &[bool], selected: usize) -> Reason {
    let first = supported.iter().position(|&is_supported| is_supported);
    if first != Some(selected) {
        Reason::Forced
    } else if supported.iter().filter(|&&is_supported| is_supported).count() == 1 {
        Reason::OnlySupported
    } else if selected == 0 {
        Reason::Default
    } else {
        Reason::FirstSupported
    }
}

impl Selection {
    /// Compares the variant in use with the other rows of `group`, by the median and by the least disturbed tenth.
    pub(crate) fn compare(mut self, group: &Group) -> Selection {
        let cost = |variant: &str| {
            // Where variants were measured at several sizes, the largest one, the last, says most.
            let index = group.rows.iter().rposition(|row| row.variant == Some(variant))?;
            group.cost(index)
        };
        let Some(used) = cost(self.used) else { return self };
        let others = group.rows.iter().filter_map(|row| row.variant).filter(|&variant| variant != self.used);
        let ratios = others.filter_map(|variant| Some((variant, cost(variant)?.ratio_to(used).worse())));
        let best = ratios.min_by(|(_, one), (_, other)| one.total_cmp(other)).filter(|&(_, ratio)| ratio <= TIE_RATIO);
        (self.better, self.better_by) = best.map(|(variant, ratio)| (variant, 1.0 - ratio)).unzip();
        self
    }

    /// The argument that forces a better variant.
    pub(crate) fn to_force(&self) -> Option<String> {
        self.better.map(|better| format!("--force {}={better}", self.feature))
    }

    /// The last line of the table.
    pub(crate) fn to_text(&self) -> String {
        let reason = match self.reason {
            Reason::Default => "default",
            Reason::FirstSupported => "the first one supported",
            Reason::OnlySupported => "the only one supported",
            Reason::Forced => "forced",
        };
        let used = format!("used: {} ({reason})", self.used);
        match (self.better, self.better_by, self.to_force()) {
            (Some(better), Some(share), Some(force)) => {
                format!("{used}; better here by {:.0} %: {better}, with {force}", share * 100.0)
            }
            _ => format!("{used}; no other variant is better by 3 %"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Basis, Measured, Row};
    use crate::spread::Spread;

    fn group(costs: &[(&'static str, f64, f64)]) -> Group {
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
        Group::new("cloexec", String::new(), "call", Basis::Cpu, rows.collect())
    }

    #[track_caller]
    fn check(reason: Reason, costs: &[(&'static str, f64, f64)], expected: &str) {
        let selection = Selection { feature: "cloexec", used: "fcntl", reason, better: None, better_by: None };
        assert_eq!(selection.compare(&group(costs)).to_text(), expected);
    }

    #[test]
    fn tie_keeps_the_variant_in_use() {
        let tie = "used: fcntl (default); no other variant is better by 3 %";
        check(Reason::Default, &[("fcntl", 100.0, 90.0), ("fioclex", 98.0, 88.0)], tie);
        check(Reason::Default, &[("fcntl", 100.0, 90.0), ("fioclex", 140.0, 130.0)], tie);
        // Better in one of the two numbers only is noise.
        check(Reason::Default, &[("fcntl", 100.0, 90.0), ("fioclex", 80.0, 89.0)], tie);
        check(Reason::Default, &[("fcntl", 100.0, 90.0), ("fioclex", 99.0, 70.0)], tie);
        check(Reason::Default, &[("fcntl", 100.0, 90.0)], tie);
    }

    #[test]
    fn better_variant_is_reported_with_its_argument() {
        check(
            Reason::Default,
            &[("fcntl", 100.0, 90.0), ("slow", 96.0, 86.4), ("fioclex", 95.0, 84.6)],
            "used: fcntl (default); better here by 5 %: fioclex, with --force cloexec=fioclex",
        );
    }

    #[test]
    fn reason_follows_from_the_supported_variants() {
        for (supported, selected, expected) in [
            (&[true, true][..], 0, Reason::Default),
            (&[false, true, true], 1, Reason::FirstSupported),
            (&[false, true], 1, Reason::OnlySupported),
            (&[true, true], 1, Reason::Forced),
            (&[false, false], 0, Reason::Forced),
        ] {
            assert_eq!(reason(supported, selected), expected, "{supported:?} {selected}");
        }
    }
}

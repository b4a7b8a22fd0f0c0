//! The variant of a feature that the server uses here, why, and whether another one measured better.

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
    pub(crate) better: Option<&'static str>,
    /// By which share its cost is lower.
    pub(crate) better_by: Option<f64>,
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
    #[cfg(test)]
    pub(crate) fn default_of(feature: &'static str, used: &'static str) -> Selection {
        Selection { feature, used, reason: Reason::Default, better: None, better_by: None }
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

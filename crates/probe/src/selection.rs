//! The variant of a feature that the server uses here, and whether another one measured better.

use sanderling_os::features::FEATURES;
use serde::Serialize;

/// Above this ratio there is a tie, which the variant in use wins.
pub(crate) const TIE_RATIO: f64 = 0.97;

/// The variant of a feature that the server uses here.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Selection {
    pub(crate) feature: &'static str,
    pub(crate) used: &'static str,
    /// The variant that measured best, if that is more than a tie.
    pub(crate) better: Option<&'static str>,
    /// By which share its cost is lower.
    pub(crate) better_by: Option<f64>,
}

/// The selection for the feature with this name; `None` if there is none.
pub(crate) fn of_feature(name: &str) -> Option<Selection> {
    let feature = FEATURES.iter().find(|feature| feature.name() == name)?;
    Some(Selection { feature: feature.name(), used: feature.selected_name(), better: None, better_by: None })
}

impl Selection {
    /// The argument that forces a better variant.
    pub(crate) fn to_force(&self) -> Option<String> {
        self.better.map(|better| format!("--force {}={better}", self.feature))
    }

    /// The last line of the table.
    pub(crate) fn to_text(&self) -> String {
        let used = format!("used: {}", self.used);
        match (self.better, self.better_by, self.to_force()) {
            (Some(better), Some(share), Some(force)) => {
                format!("{used}; better here by {:.0} %: {better}, with {force}", share * 100.0)
            }
            _ => format!("{used}; no other variant is better by 3 %"),
        }
    }
}

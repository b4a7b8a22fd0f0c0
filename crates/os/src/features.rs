//! The list of all kernel features with more than one variant: forces a variant by name, selects all at start.

use crate::fallback::{FORCE_VARIABLE, Feature};
use std::fmt;

/// Every feature with more than one variant.
pub static FEATURES: &[&Feature] = &[
    &crate::cloexec::CLOEXEC,
    &crate::cloexec::CLOEXEC_RANGE,
    &crate::file::STAT,
    &crate::file::SENDFILE,
    &crate::directory::OPEN,
    &crate::tcp::ACCEPT,
    &crate::tcp::DEFER_ACCEPT,
    &crate::udp::UDP_RECEIVE,
];

/// Why a variant could not be forced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForceError {
    /// The text is not `FEATURE=VARIANT`.
    Syntax(String),
    /// No feature has this name.
    UnknownFeature(String),
    /// The feature has no variant of this name.
    UnknownVariant {
        /// The feature.
        feature: &'static str,
        /// The unknown variant.
        variant: String,
        /// The feature's variants.
        known: Vec<&'static str>,
    },
}

impl fmt::Display for ForceError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ForceError::Syntax(text) => {
                write!(out, "invalid value \"{text}\", expected FEATURE=VARIANT, for example cloexec=fcntl")
            }
            ForceError::UnknownFeature(name) => {
                let known: Vec<_> = FEATURES.iter().map(|feature| feature.name()).collect();
                write!(out, "unknown feature \"{name}\", expected one of {}", known.join(", "))
            }
            ForceError::UnknownVariant { feature, variant, known } => {
                write!(out, "unknown variant \"{variant}\" of {feature}, expected one of {}", known.join(", "))
            }
        }
    }
}

impl std::error::Error for ForceError {}

/// Forces one variant, given as `cloexec=fcntl`. To be called at start, before the feature is first used.
pub fn force(text: &str) -> Result<(), ForceError> {
    let (name, variant) = text.split_once('=').ok_or_else(|| ForceError::Syntax(text.to_owned()))?;
    let feature = FEATURES.iter().find(|feature| feature.name() == name);
    let feature = feature.ok_or_else(|| ForceError::UnknownFeature(name.to_owned()))?;
    feature.force(variant).map_err(|known| ForceError::UnknownVariant {
        feature: feature.name(),
        variant: variant.to_owned(),
        known,
    })
}

/// Selects a variant of every feature now, so that no feature test is made later: a sandboxed process could not make it.
pub fn select_all() {
    for feature in FEATURES {
        feature.selected();
    }
}

/// Forces the variants of the environment variable [`FORCE_VARIABLE`]; a misspelt name is an error.
pub fn force_from_environment() -> Result<(), ForceError> {
    let list = std::env::var(FORCE_VARIABLE).unwrap_or_default();
    list.split(',').filter(|text| !text.is_empty()).try_for_each(force)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_force_values_are_errors() {
        assert!(matches!(force("cloexec"), Err(ForceError::Syntax(_))));
        assert!(matches!(force("cloexek=fcntl"), Err(ForceError::UnknownFeature(_))));
        assert!(matches!(force("cloexec=magic"), Err(ForceError::UnknownVariant { .. })));
    }

    #[test]
    fn every_feature_has_a_supported_variant() {
        for feature in FEATURES {
            assert!(feature.variants().iter().any(|variant| (variant.is_supported)()), "{}", feature.name());
        }
    }
}

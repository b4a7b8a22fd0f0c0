//! The list of all kernel features with more than one variant: forces a variant by name, selects all at start.

use crate::fallback::{FORCE_VARIABLE, Feature};

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

/// Forces one variant, given as `cloexec=fcntl`. To be called at start, before the feature is first used.
///
/// # Errors
/// What is wrong with the text, for the operator.
pub fn force(text: &str) -> Result<(), String> {
    let (name, variant) = text
        .split_once('=')
        .ok_or_else(|| format!("invalid value \"{text}\", expected FEATURE=VARIANT, for example cloexec=fcntl"))?;
    let feature = FEATURES.iter().find(|feature| feature.name() == name).ok_or_else(|| {
        let known: Vec<_> = FEATURES.iter().map(|feature| feature.name()).collect();
        format!("unknown feature \"{name}\", expected one of {}", known.join(", "))
    })?;
    feature
        .force(variant)
        .map_err(|known| format!("unknown variant \"{variant}\" of {name}, expected one of {}", known.join(", ")))
}

/// Selects a variant of every feature now, so that no feature test is made later: a sandboxed process could not make it.
pub fn select_all() {
    for feature in FEATURES {
        feature.selected();
    }
}

/// Forces the variants of the environment variable [`FORCE_VARIABLE`]; a misspelt name is an error.
pub fn force_from_environment() -> Result<(), String> {
    let list = std::env::var(FORCE_VARIABLE).unwrap_or_default();
    list.split(',').filter(|text| !text.is_empty()).try_for_each(force)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_force_values_are_errors() {
        for (text, expected) in [
            ("cloexec", "invalid value \"cloexec\", "),
            ("cloexek=fcntl", "unknown feature \"cloexek\", expected one of cloexec, "),
            ("cloexec=magic", "unknown variant \"magic\" of cloexec, expected one of fcntl, fioclex"),
        ] {
            assert!(force(text).is_err_and(|error| error.starts_with(expected)), "{text}");
        }
    }

    #[test]
    fn every_feature_has_a_supported_variant() {
        for feature in FEATURES {
            assert!(feature.variants().iter().any(|variant| (variant.is_supported)()), "{}", feature.name());
        }
    }
}

//! The list of all kernel features with more than one variant: forces a variant by name, selects all at start.

use crate::fallback::{FORCE_VARIABLE, Feature, forced_in_environment};

/// Every feature with more than one variant.
pub static FEATURES: &[&Feature] = &[
    &crate::cloexec::CLOEXEC,
    &crate::cloexec::CLOEXEC_RANGE,
    &crate::file::STAT,
    &crate::file::SENDFILE,
    &crate::file::PAGE_CACHE,
    &crate::directory::OPEN,
    &crate::tcp::DEFER_ACCEPT,
    &crate::udp::UDP_IO,
];

/// Forces one variant, given as `cloexec=fcntl`. Call this at startup, before the feature is first used.
///
/// # Errors
/// Returns the problem of the text, for the operator.
pub fn force(text: &str) -> Result<(), String> {
    let (name, variant) = text
        .split_once('=')
        .ok_or_else(|| format!("\"{text}\" is not FEATURE=VARIANT; write for example cloexec=fcntl"))?;
    let feature = FEATURES.iter().find(|feature| feature.name() == name).ok_or_else(|| {
        let names: Vec<_> = FEATURES.iter().map(|feature| feature.name()).collect();
        format!("unknown feature \"{name}\"; write one of {}", names.join(", "))
    })?;
    if feature.force(variant) {
        return Ok(());
    }
    let names: Vec<_> = feature.variants().iter().map(|variant| variant.name).collect();
    Err(format!("unknown variant \"{variant}\" of {name}; write one of {}", names.join(", ")))
}

/// Selects a variant of every feature now, so that no feature test is made later: a sandboxed process could not make
/// it.
pub fn select_all() {
    for feature in FEATURES {
        feature.selected();
    }
}

/// Forces the variants of the environment variable `SANDERLING_FORCE`.
///
/// # Errors
/// Returns the problem of the variable's value, for the operator.
pub fn force_from_environment() -> Result<(), String> {
    let result = forced_in_environment().iter().try_for_each(|text| force(text));
    result.map_err(|error| format!("{FORCE_VARIABLE}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_force_values_are_errors() {
        for (text, expected) in [
            ("cloexec", "\"cloexec\" is not FEATURE=VARIANT; "),
            ("cloexek=fcntl", "unknown feature \"cloexek\"; write one of cloexec, "),
            ("cloexec=magic", "unknown variant \"magic\" of cloexec; write one of fcntl, fioclex"),
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

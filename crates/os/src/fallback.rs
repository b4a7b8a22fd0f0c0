//! A kernel feature with several implementations: selects the first one this kernel supports, unless one is forced.
//!
//! A feature lists its variants in order of preference, each with a feature test. The selection is made once, at first
//! use, and does not change. `--force FEATURE=VARIANT` and `SANDERLING_FORCE=FEATURE=VARIANT,…` override it: for tests,
//! which run with every variant, and for diagnosis.

use std::sync::atomic::{AtomicU8, Ordering};

/// The environment variable that forces variants, separated by commas.
pub const FORCE_VARIABLE: &str = "SANDERLING_FORCE";

const NOT_SELECTED: u8 = u8::MAX;

/// A kernel feature, its variants, and the variant in use.
#[derive(Debug)]
pub struct Feature {
    name: &'static str,
    variants: &'static [Variant],
    selected: AtomicU8,
}

/// An implementation of a feature.
#[derive(Debug)]
pub struct Variant {
    /// The variant's name for `--force`.
    pub name: &'static str,
    /// Tests whether this kernel supports it, in this process.
    pub is_supported: fn() -> bool,
}

impl Feature {
    /// A feature with its `variants` in order of preference; every kernel must support the last one.
    pub(crate) const fn new(name: &'static str, variants: &'static [Variant]) -> Feature {
        Feature { name, variants, selected: AtomicU8::new(NOT_SELECTED) }
    }

    /// The feature's name for `--force` and `probe`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The feature's variants, in order of preference.
    pub fn variants(&self) -> &'static [Variant] {
        self.variants
    }

    /// The index of the variant in use.
    #[inline]
    pub fn selected(&self) -> usize {
        match self.selected.load(Ordering::Relaxed) {
            NOT_SELECTED => self.select(),
            index => usize::from(index),
        }
    }

    /// The name of the variant in use.
    pub fn selected_name(&self) -> &'static str {
        self.variants[self.selected()].name
    }

    #[cold]
    fn select(&self) -> usize {
        // This is for programs that do not call `features::force_from_environment`, such as tests.
        let forced = forced_in_environment().iter().rev().find_map(|text| {
            let (feature, variant) = text.split_once('=')?;
            if feature == self.name { self.index_of(variant) } else { None }
        });
        let first_supported = || self.variants.iter().position(|variant| (variant.is_supported)());
        let index = forced.or_else(first_supported).unwrap_or(self.variants.len() - 1);
        self.selected.store(index as u8, Ordering::Relaxed);
        index
    }

    /// Uses the variant with this name from now on; false if there is none.
    pub(crate) fn force(&self, variant: &str) -> bool {
        let index = self.index_of(variant);
        if let Some(index) = index {
            self.selected.store(index as u8, Ordering::Relaxed);
        }
        index.is_some()
    }

    fn index_of(&self, name: &str) -> Option<usize> {
        self.variants.iter().position(|variant| variant.name == name)
    }
}

/// The items `FEATURE=VARIANT` of the environment variable.
pub(crate) fn forced_in_environment() -> Vec<String> {
    let list = std::env::var(FORCE_VARIABLE).unwrap_or_default();
    list.split(',').filter(|text| !text.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_supported_variant_is_selected_unless_one_is_forced() {
        static FEATURE: Feature = Feature::new(
            "test",
            &[
                Variant { name: "missing", is_supported: || false },
                Variant { name: "good", is_supported: || true },
                Variant { name: "last", is_supported: || true },
            ],
        );
        assert_eq!(FEATURE.selected_name(), "good");
        assert!(FEATURE.force("last") && !FEATURE.force("none"));
        assert_eq!(FEATURE.selected_name(), "last");
    }
}

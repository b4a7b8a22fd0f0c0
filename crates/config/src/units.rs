//! Durations and sizes as people write them: `"30s"`, `"64MiB"`.

use std::fmt::Write as _;

/// A kind of quantity with its units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// In milliseconds.
    Duration,
    /// In bytes.
    Size,
}

/// Units, longest first, in milliseconds.
const OF_DURATION: &[(&str, u64)] = &[("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1)];
/// Units, longest first, in bytes.
const OF_SIZE: &[(&str, u64)] = &[("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl Quantity {
    fn units(self) -> &'static [(&'static str, u64)] {
        match self {
            Quantity::Duration => OF_DURATION,
            Quantity::Size => OF_SIZE,
        }
    }

    /// The value of `text`, an integer with a unit, in milliseconds or bytes, or `u64::MAX` if it is larger. `None` if
    /// it is not one.
    pub(crate) fn parse(self, text: &str) -> Option<u64> {
        let digits_end = text.find(|letter: char| !letter.is_ascii_digit())?;
        let (number, unit) = text.split_at(digits_end);
        let unit = unit.trim_start();
        let (_, factor) = self.units().iter().find(|(name, _)| *name == unit)?;
        // A string of digits that does not fit into 64 bits is larger.
        let has_digits = !number.is_empty();
        has_digits.then(|| number.parse::<u64>().unwrap_or(u64::MAX).saturating_mul(*factor))
    }

    /// `value` in the largest unit in which it is an integer.
    pub(crate) fn format(self, value: u64) -> String {
        let mut units = self.units().iter();
        let (unit, factor) =
            units.find(|(_, factor)| value >= *factor && value.is_multiple_of(*factor)).unwrap_or(match self {
                Quantity::Duration => &("s", 1_000),
                Quantity::Size => &("B", 1),
            });
        format!("{}{unit}", value / factor)
    }

    /// The names of the units, as a message lists them.
    pub(crate) fn unit_names(self) -> String {
        let mut names = String::new();
        for (index, (name, _)) in self.units().iter().rev().enumerate() {
            let separator = match index {
                0 => "",
                _ if index + 1 == self.units().len() => " or ",
                _ => ", ",
            };
            let _ = write!(names, "{separator}{name}");
        }
        names
    }
}

/// A duration for people, in its largest unit of which there are at least two: `90 s`, `3 days`.
pub fn duration_text(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_a_unit_are_read() {
        for (quantity, text, expected) in [
            (Quantity::Duration, "250ms", Some(250)),
            (Quantity::Duration, "10s", Some(10_000)),
            (Quantity::Duration, "10 s", Some(10_000)),
            (Quantity::Duration, "5min", Some(300_000)),
            (Quantity::Duration, "12h", Some(43_200_000)),
            (Quantity::Duration, "7d", Some(604_800_000)),
            (Quantity::Duration, "0s", Some(0)),
            (Quantity::Size, "0B", Some(0)),
            (Quantity::Size, "512B", Some(512)),
            (Quantity::Size, "64MiB", Some(64 << 20)),
            (Quantity::Size, "1TiB", Some(1 << 40)),
            (Quantity::Size, "99999999TiB", Some(u64::MAX)),
            (Quantity::Size, "99999999999999999999B", Some(u64::MAX)),
            (Quantity::Size, "64MB", None),
            (Quantity::Size, "64mib", None),
            (Quantity::Size, "MiB", None),
            (Quantity::Size, "-1MiB", None),
            (Quantity::Size, "1.5MiB", None),
            (Quantity::Size, "64", None),
            (Quantity::Size, "", None),
            (Quantity::Duration, "64MiB", None),
            (Quantity::Duration, "1m", None),
        ] {
            assert_eq!(quantity.parse(text), expected, "{text}");
        }
    }

    #[test]
    fn formatted_values_are_read_again() {
        for (quantity, value, expected) in [
            (Quantity::Duration, 0, "0s"),
            (Quantity::Duration, 1, "1ms"),
            (Quantity::Duration, 1_500, "1500ms"),
            (Quantity::Duration, 60_000, "1min"),
            (Quantity::Duration, 90_000, "90s"),
            (Quantity::Duration, 604_800_000, "7d"),
            (Quantity::Size, 0, "0B"),
            (Quantity::Size, 1_232, "1232B"),
            (Quantity::Size, 65_536, "64KiB"),
            (Quantity::Size, 1 << 40, "1TiB"),
        ] {
            assert_eq!(quantity.format(value), expected);
            assert_eq!(quantity.parse(expected), Some(value));
        }
    }
}

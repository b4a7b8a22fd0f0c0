//! The same quantity measured in several rounds, as its median and how far the rounds lie apart.

use std::fmt;

/// The middle of all rounds, and the outermost ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Spread {
    /// `None` when nothing was measured.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (&least, &most) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 };
        Some(Spread { median, least, most })
    }
}

/// `4.38 (4.21–4.60)`.
impl fmt::Display for Spread {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = digits(self.median);
        write!(out, "{:.digits$} ({:.digits$}–{:.digits$})", self.median, self.least, self.most)
    }
}

/// Digits behind the point that a value of this size is worth.
pub(super) fn digits(value: f64) -> usize {
    match value.abs() {
        below if below < 10.0 => 2,
        below if below < 100.0 => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([3.0]).unwrap().to_string(), "3.00 (3.00–3.00)");
        assert_eq!(Spread::of([5.0, 1.0, 3.0]).unwrap().to_string(), "3.00 (1.00–5.00)");
        assert_eq!(Spread::of([40.0, 10.0, 20.0, 30.0]).unwrap().to_string(), "25.0 (10.0–40.0)");
    }
}

//! Two numbers in place of many samples.

use serde::Serialize;

/// The median and the least disturbed tenth of the samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    /// A tenth of the samples are smaller: the cost without disturbance.
    pub(crate) p10: f64,
}

impl Spread {
    /// Of at least one sample; of none, zeros.
    pub(crate) fn of(samples: impl IntoIterator<Item = f64>) -> Spread {
        let mut sorted: Vec<f64> = samples.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let Some(last) = sorted.len().checked_sub(1) else { return Spread::default() };
        Spread { median: sorted[last / 2], p10: sorted[last / 10] }
    }

    /// The share of `other`: of the medians, and of the tenths.
    pub(crate) fn ratio_to(self, other: Spread) -> Spread {
        Spread { median: self.median / other.median, p10: self.p10 / other.p10 }
    }

    /// The larger of the two.
    pub(crate) fn worse(self) -> f64 {
        self.median.max(self.p10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outlier_changes_neither_number() {
        let calm = Spread::of((1..=21).map(f64::from));
        assert_eq!(calm, Spread { median: 11.0, p10: 3.0 });
        assert_eq!(Spread::of((1..=20).map(f64::from).chain([1e9])), calm);
        assert_eq!(Spread::of([7.0]), Spread { median: 7.0, p10: 7.0 });
        assert_eq!(Spread::of([]), Spread::default());
    }
}

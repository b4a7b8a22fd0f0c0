//! Turns many measured numbers into the few that stand for them.

/// The middle of the samples, and the tenth part that was least disturbed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Spread {
    /// Half of the samples are smaller.
    pub(crate) median: f64,
    /// A tenth of the samples are smaller: what it costs when nobody else is in the way.
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

    /// What share of `other` this is: median of median, tenth of tenth.
    pub(crate) fn ratio_to(self, other: Spread) -> Spread {
        Spread { median: self.median / other.median, p10: self.p10 / other.p10 }
    }

    /// The larger of the two: if it is small enough, both are.
    pub(crate) fn worse(self) -> f64 {
        self.median.max(self.p10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_wild_sample_moves_neither_number() {
        let calm = Spread::of((1..=21).map(f64::from));
        assert_eq!(calm, Spread { median: 11.0, p10: 3.0 });
        let wild = Spread::of((1..=20).map(f64::from).chain([1e9]));
        assert_eq!(wild, calm);
    }

    #[test]
    fn few_samples_have_a_spread_too() {
        assert_eq!(Spread::of([7.0]), Spread { median: 7.0, p10: 7.0 });
        assert_eq!(Spread::of([]), Spread::default());
    }
}

//! Medians and percentiles of what was measured.

/// Values in order.
#[derive(Clone, Debug)]
pub(crate) struct Sample(Vec<f64>);

impl Sample {
    pub(crate) fn new(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The smallest value that at least this share of all values does not exceed; NaN if there are none.
    pub(crate) fn percentile(&self, percent: f64) -> f64 {
        let rank = (percent / 100.0 * self.0.len() as f64).ceil() as usize;
        self.0.get(rank.max(1) - 1).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn median(&self) -> f64 {
        self.percentile(50.0)
    }

    pub(crate) fn min(&self) -> f64 {
        self.percentile(0.0)
    }

    pub(crate) fn max(&self) -> f64 {
        self.percentile(100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let sample = Sample::new((1..=200).rev().map(f64::from));
        assert_eq!(sample.median(), 100.0);
        assert_eq!(sample.percentile(99.0), 198.0);
        assert_eq!((sample.min(), sample.max()), (1.0, 200.0));
        assert_eq!(Sample::new([7.0]).percentile(99.0), 7.0);
        assert!(Sample::new([]).median().is_nan());
    }
}

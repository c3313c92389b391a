//! Distributions of durations.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Durations in nanoseconds, in HDR bins of three significant digits up to an hour.
#[derive(Clone, Debug)]
pub struct Durations {
    bins: Histogram<u64>,
    min: u64,
    max: u64,
    sum: u128,
}

/// A distribution as it is answered.  The value of a bin is its middle, held within `min` and `max`, which are exact.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Distribution {
    /// "ns".
    pub unit: &'static str,
    /// Of the bins that hold any, ascending.
    pub values: Vec<u64>,
    /// How many are in each.
    pub counts: Vec<u64>,
    /// The smallest; nothing where there are none.
    pub min: Option<u64>,
    /// The largest.
    pub max: Option<u64>,
    /// Their mean.
    pub mean: Option<f64>,
    /// How many there are.
    pub n: u64,
}

impl Durations {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        let bins = Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("these bounds are valid");
        Self { bins, min: u64::MAX, max: 0, sum: 0 }
    }

    /// Counts one.
    pub fn record(&mut self, duration: u64) {
        self.bins.saturating_record(duration);
        self.min = self.min.min(duration);
        self.max = self.max.max(duration);
        self.sum += u128::from(duration);
    }

    /// Adds those of another.
    pub fn merge(&mut self, other: &Self) {
        self.bins.add(&other.bins).expect("all have the same bounds");
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum += other.sum;
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.bins.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bins.is_empty()
    }

    /// As it is answered.
    #[must_use]
    pub fn distribution(&self) -> Distribution {
        let n = self.len();
        let (mut values, mut counts) = (Vec::new(), Vec::new());
        for bin in self.bins.iter_recorded() {
            values.push(self.bins.median_equivalent(bin.value_iterated_to()).clamp(self.min, self.max));
            counts.push(bin.count_at_value());
        }
        let exact = |value| (n > 0).then_some(value);
        let mean = (n > 0).then(|| self.sum as f64 / n as f64);
        Distribution { unit: "ns", values, counts, min: exact(self.min), max: exact(self.max), mean, n }
    }
}

impl Default for Durations {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_within_a_thousandth_and_the_ends_exact() {
        let mut durations = Durations::new();
        for duration in [0, 100, 123_456_789, 123_456_789, 5_000_000_001] {
            durations.record(duration);
        }
        let told = durations.distribution();
        assert_eq!((told.min, told.max, told.n), (Some(0), Some(5_000_000_001), 5));
        assert_eq!(told.counts, [1, 1, 2, 1]);
        assert!((told.values[2] as f64 / 123_456_789.0 - 1.0).abs() < 0.001);
        assert!((told.mean.unwrap() - (100.0 + 2.0 * 123_456_789.0 + 5_000_000_001.0) / 5.0).abs() < 1.0);
    }

    #[test]
    fn nothing_recorded_has_no_minimum() {
        let told = Durations::new().distribution();
        assert_eq!((told.min, told.mean, told.n, told.values.len()), (None, None, 0, 0));
    }
}

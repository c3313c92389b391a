//! The distribution of a trial's values, on the bins of an HDR histogram.

use hdrhistogram::Histogram;
use packets::histogram::Histogram as Counts;
use serde::{Serialize, Serializer};
use serde_bytes::ByteBuf;

use crate::failure::{Code, Failure};

/// Significant decimal digits: a bin is at most 1/1024 of its value wide, and values below 2048 have one each.
const DIGITS: u8 = 3;

/// Counts of signed picoseconds.  Negative values are mirrored into a histogram of their own.
#[derive(Debug)]
pub struct Distribution {
    positive: Histogram<u64>,
    negative: Option<Histogram<u64>>,
    smallest: i64,
    largest: i64,
    sum: i128,
}

impl Distribution {
    /// Empty, with the memory for all values of 64 bits taken.
    #[must_use]
    pub fn new() -> Self {
        Self { positive: histogram(), negative: None, smallest: i64::MAX, largest: i64::MIN, sum: 0 }
    }

    /// Counts one value.
    #[inline]
    pub fn record(&mut self, value_ps: i64) {
        if value_ps >= 0 {
            self.positive.saturating_record(value_ps as u64);
        } else {
            self.record_negative(value_ps);
        }
        self.smallest = self.smallest.min(value_ps);
        self.largest = self.largest.max(value_ps);
        self.sum += i128::from(value_ps);
    }

    #[cold]
    fn record_negative(&mut self, value_ps: i64) {
        self.negative.get_or_insert_with(histogram).saturating_record(value_ps.unsigned_abs());
    }

    /// Counts what another has counted, too.
    pub fn add(&mut self, other: &Self) {
        self.positive.add(&other.positive).expect("both have the same bounds");
        if let Some(negative) = &other.negative {
            self.negative.get_or_insert_with(histogram).add(negative).expect("both have the same bounds");
        }
        self.smallest = self.smallest.min(other.smallest);
        self.largest = self.largest.max(other.largest);
        self.sum += other.sum;
    }

    /// How many values were counted.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.positive.len() + self.negative.as_ref().map_or(0, Histogram::len)
    }

    /// Whether nothing was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bins that hold something: value and count, ascending.
    ///
    /// The value is the middle of the bin, held within the smallest and the largest value seen.
    #[must_use]
    pub fn bins(&self) -> Vec<(i64, u64)> {
        let middle = |magnitude| i64::try_from(magnitude).unwrap_or(i64::MAX);
        let negative = self.negative.iter().flat_map(counted).map(|(magnitude, count)| (-middle(magnitude), count));
        let mut bins: Vec<(i64, u64)> = negative.collect();
        bins.reverse();
        bins.extend(counted(&self.positive).map(|(magnitude, count)| (middle(magnitude), count)));
        for (value, _) in &mut bins {
            *value = (*value).clamp(self.smallest, self.largest);
        }
        bins
    }

    /// The form on the wire; fails when nothing was counted.
    pub fn summary(&self) -> Result<Summary, Failure> {
        if self.is_empty() {
            return Err(Failure::new(Code::Internal, "the trial ended without a single value"));
        }
        let n = self.len();
        let (bins, mean) = (self.bins(), self.sum as f64 / n as f64);
        Ok(Summary { unit: "ps", bins, min: self.smallest, max: self.largest, mean, n })
    }
}

impl Default for Distribution {
    fn default() -> Self {
        Self::new()
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, i64::MAX as u64, DIGITS).expect("these bounds and digits are valid")
}

/// Middles and counts of the bins that hold something.
fn counted(histogram: &Histogram<u64>) -> impl Iterator<Item = (u64, u64)> + '_ {
    histogram.iter_recorded().map(|bin| (histogram.median_equivalent(bin.value_iterated_to()), bin.count_at_value()))
}

/// A distribution as `docs/protocol.md` defines it.
#[derive(Debug, PartialEq)]
pub struct Summary {
    unit: &'static str,
    bins: Vec<(i64, u64)>,
    min: i64,
    max: i64,
    mean: f64,
    n: u64,
}

impl Summary {
    /// Of what was counted elsewhere, in this unit; `None` when nothing was.
    #[must_use]
    pub fn of(histogram: &Counts, unit: &'static str) -> Option<Self> {
        Self::scaled(histogram, unit, 1)
    }

    /// Of nanoseconds that were counted elsewhere, as picoseconds on the same bins; `None` when nothing was.
    #[must_use]
    pub fn of_ns(histogram: &Counts) -> Option<Self> {
        Self::scaled(histogram, "ps", 1000)
    }

    fn scaled(histogram: &Counts, unit: &'static str, factor: u64) -> Option<Self> {
        let ((min, max), mean) = histogram.extremes().zip(histogram.mean())?;
        let value = |value: u64| i64::try_from(value.saturating_mul(factor)).unwrap_or(i64::MAX);
        let bins = histogram.bins().map(|(bin, count)| (value(bin), count)).collect();
        Some(Self { unit, bins, min: value(min), max: value(max), mean: mean * factor as f64, n: histogram.len() })
    }
}

impl Serialize for Summary {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields {
            unit: &'static str,
            values: ByteBuf,
            counts: ByteBuf,
            min: i64,
            max: i64,
            mean: f64,
            n: u64,
        }
        let values: Vec<u8> = self.bins.iter().flat_map(|(value, _)| value.to_le_bytes()).collect();
        let counts: Vec<u8> = self.bins.iter().flat_map(|(_, count)| count.to_le_bytes()).collect();
        let fields = Fields {
            unit: self.unit,
            values: ByteBuf::from(values),
            counts: ByteBuf::from(counts),
            min: self.min,
            max: self.max,
            mean: self.mean,
            n: self.n,
        };
        fields.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn distribution_of(values: &[i64]) -> Distribution {
        let mut distribution = Distribution::new();
        for &value in values {
            distribution.record(value);
        }
        distribution
    }

    /// The value at a rank (from 0), from the bins alone.
    fn at_rank(bins: &[(i64, u64)], rank: u64) -> i64 {
        let mut passed = 0;
        for &(value, count) in bins {
            passed += count;
            if rank < passed {
                return value;
            }
        }
        panic!("rank {rank} of {passed}");
    }

    proptest! {
        #[test]
        fn quantiles_from_bins_match_the_exact_ones_within_a_thousandth(
            mut values in prop::collection::vec(
                prop_oneof![-3_000i64..3_000, -1_000_000_000_000i64..1_000_000_000_000, any::<i64>().prop_map(|value| value >> 4)],
                1..500,
            ),
            quantile in 0.0..=1.0f64,
        ) {
            let bins = distribution_of(&values).bins();
            values.sort_unstable();
            let rank = ((values.len() - 1) as f64 * quantile) as usize;
            let (exact, binned) = (values[rank], at_rank(&bins, rank as u64));
            prop_assert!(exact.abs_diff(binned) as f64 <= exact.unsigned_abs() as f64 * 1e-3, "{} {}", exact, binned);
        }

        #[test]
        fn counts_sum_to_n_values_ascend_and_extremes_and_mean_are_exact(
            values in prop::collection::vec(any::<i64>(), 1..300),
        ) {
            let distribution = distribution_of(&values);
            let summary = distribution.summary().unwrap();
            prop_assert_eq!(summary.n, values.len() as u64);
            prop_assert_eq!(summary.bins.iter().map(|(_, count)| count).sum::<u64>(), summary.n);
            prop_assert!(summary.bins.windows(2).all(|pair| pair[0].0 < pair[1].0));
            prop_assert_eq!(summary.min, *values.iter().min().unwrap());
            prop_assert_eq!(summary.max, *values.iter().max().unwrap());
            prop_assert!(summary.bins[0].0 >= summary.min && summary.bins.last().unwrap().0 <= summary.max);
            let sum: i128 = values.iter().map(|&value| i128::from(value)).sum();
            prop_assert_eq!(summary.mean.to_bits(), (sum as f64 / values.len() as f64).to_bits());
        }
    }

    #[test]
    fn values_below_two_thousand_are_exact() {
        let values: Vec<i64> = (-2047..2048).collect();
        assert_eq!(distribution_of(&values).bins(), values.iter().map(|&value| (value, 1)).collect::<Vec<_>>());
    }

    #[test]
    fn an_empty_distribution_has_no_summary() {
        assert!(Distribution::new().summary().is_err());
    }
}

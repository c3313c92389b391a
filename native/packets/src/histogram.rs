//! Counts of durations on logarithmic bins with linear subdivisions: those of an HDR histogram with 3 significant digits.
//!
//! The rule is short enough to be carried out by an eBPF program, too.

/// Bits of a value that tell bins apart; values below `1 << (BITS + 1)` have a bin each, and every bin is at most 1/1024
/// of its values wide.
pub const BITS: u32 = 10;

/// Number of bins: of all values below 2³⁶, about 68 s in nanoseconds.  Longer ones are counted in the last.
pub const BINS: usize = bin_of((1 << 36) - 1) + 1;

/// The bin of a value, without regard to the number of bins.
#[inline]
#[must_use]
pub const fn bin_of(value: u64) -> usize {
    let shift = (value | 1).ilog2().saturating_sub(BITS);
    ((shift as usize) << BITS) + (value >> shift) as usize
}

/// The smallest value of a bin, and how many values it holds.
#[must_use]
pub const fn range_of(bin: usize) -> (u64, u64) {
    let shift = ((bin >> BITS) as u32).saturating_sub(1);
    (((bin - ((shift as usize) << BITS)) as u64) << shift, 1 << shift)
}

/// Counts of durations in nanoseconds.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    sum: u128,
    n: u64,
    min: u64,
    max: u64,
}

impl Histogram {
    /// Empty.
    #[must_use]
    pub fn new() -> Self {
        Self { counts: vec![0; BINS], sum: 0, n: 0, min: u64::MAX, max: 0 }
    }

    /// Counts one value.
    #[inline]
    pub fn record(&mut self, value_ns: u64) {
        self.counts[bin_of(value_ns).min(BINS - 1)] += 1;
        self.sum += u128::from(value_ns);
        self.n += 1;
        self.min = self.min.min(value_ns);
        self.max = self.max.max(value_ns);
    }

    /// From counts that were made elsewhere by the same rule.
    #[must_use]
    pub fn from_counts(counts: Vec<u64>, sum: u64, min: u64, max: u64) -> Self {
        let n = counts.iter().sum();
        Self { counts, sum: u128::from(sum), n, min, max }
    }

    /// Adds all counts of another.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.sum += other.sum;
        self.n += other.n;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// How many values were counted.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.n
    }

    /// Whether nothing was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// Smallest and largest value, exact; `None` when nothing was counted.
    #[must_use]
    pub fn extremes(&self) -> Option<(u64, u64)> {
        (self.n > 0).then_some((self.min, self.max))
    }

    /// Exact mean; `None` when nothing was counted.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.n > 0).then(|| self.sum as f64 / self.n as f64)
    }

    /// The value below or at which this share of the values lies; `None` when nothing was counted.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let rank = ((share * self.n as f64).ceil() as u64).clamp(1, self.n.max(1));
        let mut counted = 0;
        self.bins().find_map(|(value, count)| {
            counted += count;
            (counted >= rank).then_some(value)
        })
    }

    /// Middles, held within the extremes, and counts of the bins that hold something, ascending.
    pub fn bins(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.counts.iter().enumerate().filter(|&(_, &count)| count > 0).map(|(bin, &count)| {
            let (first, width) = range_of(bin);
            let middle = if bin == BINS - 1 { self.max } else { first + width / 2 };
            (middle.clamp(self.min, self.max), count)
        })
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_value_lies_in_the_range_of_its_bin(value in any::<u64>(), shift in 0u32..64) {
            let value = value >> shift;
            let (first, width) = range_of(bin_of(value));
            prop_assert!(first <= value && value - first < width);
            prop_assert!(width == 1 || width <= value / 1024);
        }

        #[test]
        fn bins_ascend_without_a_gap(bin in 0usize..BINS) {
            let (first, width) = range_of(bin);
            prop_assert_eq!(bin_of(first), bin);
            prop_assert_eq!(bin_of(first + width), bin + 1);
        }

        #[test]
        fn nothing_is_lost_and_quantiles_are_within_a_thousandth(values in proptest::collection::vec(0u64..1 << 35, 1..300)) {
            let (mut whole, mut half) = (Histogram::new(), Histogram::new());
            for (index, &value) in values.iter().enumerate() {
                if index % 2 == 0 { whole.record(value) } else { half.record(value) }
            }
            whole.add(&half);
            let mut sorted = values.clone();
            sorted.sort_unstable();
            prop_assert_eq!(whole.len(), values.len() as u64);
            prop_assert_eq!(whole.extremes(), Some((sorted[0], sorted[sorted.len() - 1])));
            prop_assert_eq!(whole.bins().map(|(_, count)| count).sum::<u64>(), whole.len());
            for share in [0.0, 0.25, 0.5, 0.99, 1.0] {
                let rank = ((share * values.len() as f64).ceil() as usize).max(1);
                let (truth, found) = (sorted[rank - 1], whole.quantile(share).unwrap());
                prop_assert!(found.abs_diff(truth) <= truth / 1024, "{} {}", found, truth);
            }
        }
    }

    #[test]
    fn what_is_too_long_is_counted_in_the_last_bin() {
        let mut histogram = Histogram::new();
        histogram.record(u64::MAX);
        assert_eq!(histogram.bins().collect::<Vec<_>>(), [(u64::MAX, 1)]);
        assert_eq!(Histogram::new().quantile(0.5), None);
        assert_eq!(Histogram::new().mean(), None);
    }
}

//! Robust statistics: medians, a bootstrap, and the slope of a line through noisy points.

mod bootstrap;
mod normal;
mod slope;

pub use bootstrap::{Interval, interval_of_median};
pub use slope::{Slope, theil_sen};

/// The median; of an even number, the mean of the two in the middle.
///
/// `None` without values.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    median_in(&mut values.to_vec())
}

/// The same, in place of the values.
pub(crate) fn median_in(values: &mut [f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    let middle = values.len() / 2;
    let odd = values.len() % 2 == 1;
    let (below, &mut upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    if odd {
        return Some(upper);
    }
    let lower = below.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Some(lower.midpoint(upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[9.0, 1.0, 2.0, 4.0]), Some(3.0));
    }
}

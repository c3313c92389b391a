//! How far a median can be trusted, by resampling (Efron 1979).

use crate::random::Random;
use crate::statistics::{median_in, normal};

/// Resamples; the quantiles of so many are good to a hundredth of a probability.
const RESAMPLES: usize = 2000;

/// A confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// The percentile bootstrap's interval for the median of values each of which is only known to lie between two bounds.
///
/// A search ends with a rate that the path carried and one that it did not, and the truth is anywhere between them: the
/// lower end is that of the medians of the lower bounds, the upper end that of the upper bounds.  With equal bounds it is
/// the plain percentile interval, expanded for small samples as Hesterberg (2015, section 5.3) does: without that, the
/// interval of ten values covers the truth too seldom.
///
/// `None` without values.
///
/// # Panics
/// For a confidence outside 0 … 1.
#[must_use]
pub fn interval_of_median(bounds: &[(f64, f64)], confidence: f64, random: &mut Random) -> Option<Interval> {
    assert!((0.0..1.0).contains(&confidence), "a confidence of {confidence}");
    if bounds.is_empty() {
        return None;
    }
    let (mut lows, mut highs) = (Vec::with_capacity(RESAMPLES), Vec::with_capacity(RESAMPLES));
    let (mut low, mut high) = (vec![0.0; bounds.len()], vec![0.0; bounds.len()]);
    for _ in 0..RESAMPLES {
        for (low, high) in low.iter_mut().zip(&mut high) {
            (*low, *high) = bounds[random.below(bounds.len())];
        }
        lows.extend(median_in(&mut low));
        highs.extend(median_in(&mut high));
    }
    lows.sort_by(f64::total_cmp);
    highs.sort_by(f64::total_cmp);
    let tail = (expanded_tail(confidence, bounds.len()) * RESAMPLES as f64) as usize;
    Some(Interval { low: lows[tail], high: highs[RESAMPLES - 1 - tail] })
}

/// The share of the resamples to leave out at either end: Φ(√(n/(n−1))·t), with t Student's quantile of (1 − confidence)/2.
fn expanded_tail(confidence: f64, values: usize) -> f64 {
    if values < 2 {
        return 0.0;
    }
    let freedom = values as f64 - 1.0;
    let quantile = normal::student_quantile((1.0 - confidence) / 2.0, freedom);
    normal::probability_below(quantile * (values as f64 / freedom).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_covers_the_median_as_often_as_it_says() {
        let mut random = Random::new(11);
        let trials = 1000;
        for size in [10, 15, 30] {
            let covered = (0..trials)
                .filter(|_| {
                    let sample: Vec<_> = (0..size).map(|_| random.normal(1.0) + 5.0).map(|x| (x, x)).collect();
                    let interval = interval_of_median(&sample, 0.95, &mut random).expect("there are values");
                    interval.low <= 5.0 && 5.0 <= interval.high
                })
                .count();
            assert!((930..=985).contains(&covered), "{covered} of {trials} with {size}");
        }
    }

    #[test]
    fn bounds_widen_it() {
        let bounds: Vec<_> = (0..10).map(|_| (4.0, 6.0)).collect();
        let interval = interval_of_median(&bounds, 0.95, &mut Random::new(1));
        assert_eq!(interval, Some(Interval { low: 4.0, high: 6.0 }));
        assert_eq!(interval_of_median(&[], 0.95, &mut Random::new(1)), None);
    }
}

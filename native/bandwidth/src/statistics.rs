//! Robust statistics: medians, how far one can be trusted by resampling (Efron 1979), and the slope of a line through noisy
//! points, few of which may be far off.

use crate::random::Random;

/// Resamples of a bootstrap; the quantiles of so many are good to a hundredth of a probability.
const RESAMPLES: usize = 2000;

/// Pairs looked at, at most: all pairs of 200 points.  More points are paired at a few distances only.
const MOST_PAIRS: usize = 20_000;

/// How large a sample's efficiency of Theil–Sen is beside least squares under normal noise: 3/π (Sen 1968).
const EFFICIENCY: f64 = 3.0 / std::f64::consts::PI;

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
    let quantile = student_quantile((1.0 - confidence) / 2.0, freedom);
    probability_below(quantile * (values as f64 / freedom).sqrt())
}

/// The probability of a standard normal value below x (Abramowitz, Stegun 26.2.17: to 7.5e-8).
fn probability_below(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let series =
        t * (0.319_381_530 + t * (-0.356_563_782 + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    let above = (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt() * series;
    if x >= 0.0 { 1.0 - above } else { above }
}

/// The value that a standard normal one is below with this probability (Abramowitz, Stegun 26.2.23: to 4.5e-4).
fn normal_quantile(probability: f64) -> f64 {
    let tail = probability.min(1.0 - probability);
    let t = (-2.0 * tail.ln()).sqrt();
    let above =
        t - (2.515_517 + t * (0.802_853 + t * 0.010_328)) / (1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308)));
    if probability < 0.5 { -above } else { above }
}

/// That value of Student's distribution with so many degrees of freedom (Abramowitz, Stegun 26.7.5).
fn student_quantile(probability: f64, freedom: f64) -> f64 {
    let x = normal_quantile(probability);
    let first = (x.powi(3) + x) / 4.0;
    let second = (5.0 * x.powi(5) + 16.0 * x.powi(3) + 3.0 * x) / 96.0;
    let third = (3.0 * x.powi(7) + 19.0 * x.powi(5) + 17.0 * x.powi(3) - 15.0 * x) / 384.0;
    x + first / freedom + second / freedom.powi(2) + third / freedom.powi(3)
}

/// A line's slope.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slope {
    /// The slope.
    pub value: f64,
    /// Its standard error, with the correlation of neighbours allowed for; 0 on a perfect line.
    pub standard_error: f64,
}

/// The Theil–Sen slope: the median of the slopes of all pairs (Theil 1950, Sen 1968).
///
/// The standard error is that of least squares, enlarged by Sen's efficiency and by what the residuals' lag-1
/// autocorrelation r takes from the number of independent points, (1 + r)/(1 − r): a queue's delays are like those of
/// a moment before.
///
/// Points must be in order of x.  `None` for fewer than 3 points or if all have one x.
#[must_use]
pub fn theil_sen(points: &[(f64, f64)]) -> Option<Slope> {
    let n = points.len();
    if n < 3 {
        return None;
    }
    let value = median_in(&mut pairwise_slopes(points))?;
    let mut residuals: Vec<f64> = points.iter().map(|&(x, y)| y - value * x).collect();
    let level = median_in(&mut residuals.clone())?;
    for residual in &mut residuals {
        *residual -= level;
    }

    let squares: f64 = residuals.iter().map(|residual| residual * residual).sum();
    let mean_x = points.iter().map(|&(x, _)| x).sum::<f64>() / n as f64;
    let spread: f64 = points.iter().map(|&(x, _)| (x - mean_x).powi(2)).sum();
    let neighbours: f64 = residuals.windows(2).map(|pair| pair[0] * pair[1]).sum();
    let correlation = if squares > 0.0 { (neighbours / squares).clamp(0.0, 1.0 - 2.0 / n as f64) } else { 0.0 };
    let variance = squares / (n - 2) as f64 / spread / EFFICIENCY * (1.0 + correlation) / (1.0 - correlation);
    Some(Slope { value, standard_error: variance.sqrt() })
}

fn pairwise_slopes(points: &[(f64, f64)]) -> Vec<f64> {
    let n = points.len();
    let mut slopes = Vec::with_capacity(MOST_PAIRS.min(n * (n - 1) / 2));
    // Far pairs tell most of the slope; when all are too many, those at evenly spread distances are looked at.
    let stride = (n * (n - 1) / 2).div_ceil(MOST_PAIRS);
    for distance in (1..n).rev().step_by(stride) {
        for (near, far) in points.iter().zip(&points[distance..]) {
            if far.0 > near.0 {
                slopes.push((far.1 - near.1) / (far.0 - near.0));
            }
        }
    }
    slopes
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

    #[test]
    fn the_values_of_the_tables() {
        assert!((probability_below(1.96) - 0.975_002).abs() < 1e-6);
        assert!((probability_below(-1.0) - 0.158_655).abs() < 1e-6);
        assert!((normal_quantile(0.025) + 1.959_96).abs() < 5e-4);
        assert!((student_quantile(0.975, 9.0) - 2.262).abs() < 2e-3);
        assert!((student_quantile(0.95, 14.0) - 1.761).abs() < 2e-3);
    }

    #[test]
    fn a_line_is_found_exactly_and_outliers_do_not_move_it() {
        let mut points: Vec<(f64, f64)> = (0..60).map(|i| (f64::from(i), 3.0 + 0.25 * f64::from(i))).collect();
        assert_eq!(theil_sen(&points), Some(Slope { value: 0.25, standard_error: 0.0 }));
        for index in [5, 17, 40, 55] {
            points[index].1 += 1000.0;
        }
        assert!((theil_sen(&points).expect("points").value - 0.25).abs() < 0.01);
    }

    #[test]
    fn the_standard_error_is_the_slopes_deviation() {
        let mut random = Random::new(5);
        // Independent noise, and noise that is mostly that of the point before.
        for (memory, tolerance) in [(0.0, 0.15), (0.7, 0.3)] {
            let (mut slopes, mut errors) = (Vec::new(), Vec::new());
            for _ in 0..400 {
                let mut noise = 0.0;
                let points: Vec<(f64, f64)> = (0..200)
                    .map(|i| {
                        noise = memory * noise + random.normal(1.0);
                        (f64::from(i), noise)
                    })
                    .collect();
                let slope = theil_sen(&points).expect("points");
                slopes.push(slope.value);
                errors.push(slope.standard_error);
            }
            let deviation = (slopes.iter().map(|s| s * s).sum::<f64>() / slopes.len() as f64).sqrt();
            let claimed = errors.iter().sum::<f64>() / errors.len() as f64;
            assert!((claimed / deviation - 1.0).abs() < tolerance, "memory {memory}: {claimed} for {deviation}");
        }
    }

    #[test]
    fn many_points_are_thinned_and_too_few_have_no_slope() {
        let points: Vec<(f64, f64)> = (0..5000).map(|i| (f64::from(i), -2.0 * f64::from(i))).collect();
        assert!((theil_sen(&points).expect("points").value + 2.0).abs() < 1e-12);
        assert!(theil_sen(&points[..2]).is_none());
        assert!(theil_sen(&[(1.0, 2.0); 5]).is_none());
    }
}

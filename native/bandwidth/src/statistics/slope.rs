//! The slope of a line through noisy points, few of which may be far off.

use crate::statistics::median_in;

/// Pairs looked at, at most: all pairs of 200 points.  More points are paired at a few distances only.
const MOST_PAIRS: usize = 20_000;

/// How large a sample's efficiency of Theil–Sen is beside least squares under normal noise: 3/π (Sen 1968).
const EFFICIENCY: f64 = 3.0 / std::f64::consts::PI;

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
    use crate::random::Random;

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

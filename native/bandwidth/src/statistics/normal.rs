//! The normal distribution, and Student's.

/// The probability of a standard normal value below x (Abramowitz, Stegun 26.2.17: to 7.5e-8).
pub(super) fn probability_below(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * x.abs());
    let series =
        t * (0.319_381_530 + t * (-0.356_563_782 + t * (1.781_477_937 + t * (-1.821_255_978 + t * 1.330_274_429))));
    let above = (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt() * series;
    if x >= 0.0 { 1.0 - above } else { above }
}

/// The value that a standard normal one is below with this probability (Abramowitz, Stegun 26.2.23: to 4.5e-4).
pub(super) fn quantile(probability: f64) -> f64 {
    let tail = probability.min(1.0 - probability);
    let t = (-2.0 * tail.ln()).sqrt();
    let above =
        t - (2.515_517 + t * (0.802_853 + t * 0.010_328)) / (1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308)));
    if probability < 0.5 { -above } else { above }
}

/// The same of Student's distribution with so many degrees of freedom (Abramowitz, Stegun 26.7.5).
pub(super) fn student_quantile(probability: f64, freedom: f64) -> f64 {
    let x = quantile(probability);
    let first = (x.powi(3) + x) / 4.0;
    let second = (5.0 * x.powi(5) + 16.0 * x.powi(3) + 3.0 * x) / 96.0;
    let third = (3.0 * x.powi(7) + 19.0 * x.powi(5) + 17.0 * x.powi(3) - 15.0 * x) / 384.0;
    x + first / freedom + second / freedom.powi(2) + third / freedom.powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_of_the_tables() {
        assert!((probability_below(1.96) - 0.975_002).abs() < 1e-6);
        assert!((probability_below(-1.0) - 0.158_655).abs() < 1e-6);
        assert!((quantile(0.025) + 1.959_96).abs() < 5e-4);
        assert!((student_quantile(0.975, 9.0) - 2.262).abs() < 2e-3);
        assert!((student_quantile(0.95, 14.0) - 1.761).abs() < 2e-3);
    }
}

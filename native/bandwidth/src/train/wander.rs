//! How much a path's delay wanders by itself.

/// Lags at which the delay's increments are compared, as parts of the train.
const SHORT_LAG: usize = 16;
/// The longer of the two.
const LONG_LAG: usize = 6;

/// How far the delay strays over the whole train like a random walk, by the train's duration.
///
/// The variance of the delay's increments grows by σ² per time where it wanders and not at all where it is only noisy, so
/// that stamps and batches do not count: σ² is its growth between two lags.  Over a train of duration D it strays σ·√D.
pub(super) fn wander(points: &[(f64, f64)], slope: f64) -> f64 {
    let short = (points.len() / SHORT_LAG).max(1);
    let long = (points.len() / LONG_LAG).max(short + 1);
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return 0.0 };
    let (Some(short), Some(long)) = (variance(points, short, slope), variance(points, long, slope)) else { return 0.0 };
    let (time_ns, train_ns) = (long.0 - short.0, last.0 - first.0);
    if time_ns <= 0.0 || train_ns <= 0.0 {
        return 0.0;
    }
    ((long.1 - short.1) / time_ns).max(0.0).sqrt() / train_ns.sqrt()
}

/// The mean time between points so many apart, and the variance of what happens in it beside the slope.
fn variance(points: &[(f64, f64)], lag: usize, slope: f64) -> Option<(f64, f64)> {
    let pairs = points.iter().zip(points.get(lag..)?);
    let (time, square) = pairs.fold((0.0, 0.0), |(time, square), (from, to)| {
        let passed = to.0 - from.0;
        (time + passed, square + (to.1 - from.1 - slope * passed).powi(2))
    });
    let count = (points.len() - lag) as f64;
    (count > 0.0).then(|| (time / count, square / count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// Mean of what is found in many trains of 1000 points, a nanosecond apart.
    fn found(mut delay: impl FnMut(&mut Random, f64) -> f64) -> f64 {
        let mut random = Random::new(9);
        let trains = 200;
        let total: f64 = (0..trains)
            .map(|_| {
                let mut now = 0.0;
                let points: Vec<(f64, f64)> = (0..1000)
                    .map(|i| {
                        now = delay(&mut random, now);
                        (f64::from(i), now)
                    })
                    .collect();
                wander(&points, 0.0)
            })
            .sum();
        total / f64::from(trains)
    }

    #[test]
    fn a_random_walk_strays_with_the_root_of_time() {
        // σ·√D/D with σ = 2 and D = 1000.
        let walk = found(|random, now| now + random.normal(2.0));
        assert!((walk / (2.0 / 1000.0f64.sqrt()) - 1.0).abs() < 0.1, "{walk}");
    }

    #[test]
    fn noise_does_not_stray() {
        let noise = found(|random, _| random.normal(2.0));
        assert!(noise < 0.1 * 2.0 / 1000.0f64.sqrt(), "{noise}");
        assert!(wander(&[], 0.0).abs() < f64::EPSILON && wander(&[(0.0, 1.0), (1.0, 2.0)], 0.0).abs() < f64::EPSILON);
    }
}

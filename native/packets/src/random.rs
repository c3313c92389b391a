//! Random numbers that repeat with their seed: orders of flows, losses, rests between streams, and whole simulated paths.

/// `SplitMix64` (Steele, Lea, Flood 2014): small, fast, and far better than its use here needs.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// The same seed gives the same numbers.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// One whose numbers have nothing to do with those of this one or of others split from it.
    #[must_use]
    pub fn split(&mut self) -> Self {
        Self { state: self.bits() }
    }

    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Uniform in 0 ≤ x < 1.
    #[inline]
    pub fn uniform(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform among 0 … n−1; n must not be 0.
    #[inline]
    pub fn below(&mut self, n: usize) -> usize {
        // The bias of a 64-bit product is under n/2⁶⁴.
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// Whether something of this probability happens.
    #[inline]
    pub fn happens(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    /// Exponential with this mean.
    #[inline]
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.uniform()).ln()
    }

    /// Normal around 0 with this standard deviation (Box, Muller 1958).
    #[inline]
    pub fn normal(&mut self, deviation: f64) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        deviation * radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(mut draw: impl FnMut() -> f64) -> (f64, f64) {
        let values: Vec<f64> = (0..200_000).map(|_| draw()).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        (mean, (values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt())
    }

    #[test]
    fn the_distributions_have_their_means_and_deviations() {
        let mut random = Random::new(1);
        let close = |(mean, deviation): (f64, f64), expected: (f64, f64)| {
            assert!((mean - expected.0).abs() < 0.02 && (deviation - expected.1).abs() < 0.02, "{mean} {deviation}");
        };
        close(moments(|| random.uniform()), (0.5, (1.0f64 / 12.0).sqrt()));
        close(moments(|| random.exponential(2.0)), (2.0, 2.0));
        close(moments(|| random.normal(3.0)), (0.0, 3.0));
        let counted = (0..30_000).filter(|_| random.below(3) == 2).count();
        assert!(counted.abs_diff(10_000) < 400, "{counted}");
    }

    #[test]
    fn a_seed_repeats_and_a_split_differs() {
        let mut first = Random::new(7);
        let mut again = Random::new(7);
        assert_eq!(first.bits(), again.bits());
        assert_ne!(first.split().bits(), again.bits());
    }
}

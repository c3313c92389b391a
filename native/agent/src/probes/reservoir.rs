//! A uniform choice of fixed size from a sequence of unknown length.

use kernels::random::SplitMix64;
/// Algorithm L (Li 1994): after the reservoir is full it draws how many values to skip, so that most values cost one
/// comparison.
#[derive(Debug)]
pub struct Reservoir {
    kept: Vec<i64>,
    capacity: usize,
    seen: u64,
    /// Position of the next value to take in; `u64::MAX` when there is none.
    next: u64,
    weight: f64,
    random: SplitMix64,
}

impl Reservoir {
    /// Keeps so many values; the memory is taken, and touched, now.
    #[must_use]
    pub fn new(capacity: usize, seed: u64) -> Self {
        let mut kept = vec![1; capacity];
        kept.clear();
        let mut reservoir =
            Self { kept, capacity, seen: 0, next: u64::MAX, weight: 1.0, random: SplitMix64::new(seed) };
        if capacity > 0 {
            reservoir.next = capacity as u64 - 1;
            reservoir.skip();
        }
        reservoir
    }

    /// Considers one value.
    #[inline]
    pub fn offer(&mut self, value: i64) {
        if self.kept.len() < self.capacity {
            self.kept.push(value);
        } else if self.seen == self.next {
            let replaced = self.random.below(self.capacity as u64) as usize;
            self.kept[replaced] = value;
            self.skip();
        }
        self.seen += 1;
    }

    /// The values kept, in no particular order.
    #[must_use]
    pub fn values(&self) -> &[i64] {
        &self.kept
    }

    fn skip(&mut self) {
        self.weight *= (self.random.open_unit().ln() / self.capacity as f64).exp();
        // ln_1p keeps its precision when the weight has become tiny; a float that is too large becomes u64::MAX.
        let skipped = (self.random.open_unit().ln() / (-self.weight).ln_1p()).floor() as u64;
        self.next = self.next.saturating_add(skipped).saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_kept_while_there_is_room_and_nothing_when_there_is_none() {
        let mut roomy = Reservoir::new(10, 1);
        let mut empty = Reservoir::new(0, 1);
        for value in 0..10 {
            roomy.offer(value);
            empty.offer(value);
        }
        assert_eq!(roomy.values(), (0..10).collect::<Vec<_>>());
        assert!(empty.values().is_empty());
    }

    #[test]
    fn every_position_is_kept_equally_often() {
        const LENGTH: usize = 200;
        const CAPACITY: usize = 20;
        const ROUNDS: u64 = 20_000;
        let mut kept = [0u32; LENGTH];
        for seed in 0..ROUNDS {
            let mut reservoir = Reservoir::new(CAPACITY, seed.wrapping_mul(0x9e37_79b9));
            (0..LENGTH as i64).for_each(|value| reservoir.offer(value));
            reservoir.values().iter().for_each(|&value| kept[value as usize] += 1);
        }
        // Pearson's statistic has about LENGTH - 1 degrees of freedom; six standard deviations above is never by chance.
        let expected = ROUNDS as f64 * CAPACITY as f64 / LENGTH as f64;
        let statistic: f64 = kept.iter().map(|&count| (f64::from(count) - expected).powi(2) / expected).sum();
        let freedom = LENGTH as f64 - 1.0;
        assert!(statistic < freedom + 6.0 * (2.0 * freedom).sqrt(), "{statistic}");
    }

    #[test]
    fn the_same_seed_keeps_the_same_values() {
        let choose = |seed| {
            let mut reservoir = Reservoir::new(5, seed);
            (0..1000).for_each(|value| reservoir.offer(value));
            reservoir.values().to_vec()
        };
        assert_eq!(choose(3), choose(3));
        assert_ne!(choose(3), choose(4));
    }
}

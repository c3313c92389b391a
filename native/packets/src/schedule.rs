//! Which flow's turn it is, and when.

use crate::random::Random;

/// Length of the order of flows, which is repeated: a power of two, so that an eBPF program can take an index from a mask.
pub const PERIOD: usize = 1 << 16;

/// Binary digits of a nanosecond in which gaps are counted: a million of them a second are 30 ns out after
/// a minute.
pub const FRACTION: u32 = 20;

/// The order in which flows send.
#[derive(Clone, Debug)]
pub struct Order {
    turns: Vec<u16>,
    flows: usize,
}

impl Order {
    /// Spreads the flows' turns evenly: at every moment, each flow has had its share of the turns to within a few frames.
    ///
    /// Credits grow by the flow's share, and who has most is served (the smooth weighted round robin of nginx); they
    /// start at random, so that another seed gives another order.
    ///
    /// # Panics
    /// Without flows, with more than 65536, or with weights that are negative or all zero.
    #[must_use]
    pub fn new(weights: &[f64], seed: u64) -> Self {
        let total: f64 = weights.iter().sum();
        assert!(total > 0.0 && total.is_finite() && weights.iter().all(|&weight| weight >= 0.0), "no weights");
        let flows = weights.len();
        assert!(flows <= 1 << 16, "{flows} flows");
        let shares: Vec<f64> = weights.iter().map(|weight| weight / total).collect();
        let mut random = Random::new(seed);
        let mut credits: Vec<f64> = shares.iter().map(|share| share * random.uniform()).collect();
        let turns = (0..PERIOD).map(|_| {
            let mut next = usize::MAX;
            for (flow, share) in shares.iter().enumerate() {
                credits[flow] += share;
                if *share > 0.0 && (next == usize::MAX || credits[flow] > credits[next]) {
                    next = flow;
                }
            }
            credits[next] -= 1.0;
            next as u16
        });
        Self { turns: turns.collect(), flows }
    }

    /// The flow whose turn it is.
    #[inline]
    #[must_use]
    pub fn flow(&self, turn: u64) -> u16 {
        self.turns[turn as usize % PERIOD]
    }

    /// All turns of a period.
    #[must_use]
    pub fn turns(&self) -> &[u16] {
        &self.turns
    }

    /// How many of the first turns each flow has.
    #[must_use]
    pub fn shares_of(&self, turns: u64) -> Vec<u64> {
        let mut shares = vec![0; self.flows];
        let (periods, rest) = (turns / PERIOD as u64, turns as usize % PERIOD);
        for (turn, &flow) in self.turns.iter().enumerate() {
            shares[usize::from(flow)] += periods + u64::from(turn < rest);
        }
        shares
    }
}

/// When frames are due: each at its own time after the first, whatever became of those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Time between frames, in 2⁻²⁰ ns.
    pub gap: u64,
    /// How many there are.
    pub frames: u64,
}

impl Pace {
    /// So many a second for so long; at least one.
    #[must_use]
    pub fn new(rate_pps: f64, duration_ns: u64) -> Self {
        let gap = 1e9 * f64::from(1 << FRACTION) / rate_pps;
        Self { gap: gap.round() as u64, frames: ((rate_pps * duration_ns as f64 / 1e9).floor() as u64).max(1) }
    }

    /// So many as fast as possible.
    #[must_use]
    pub fn burst(frames: u64) -> Self {
        Self { gap: 0, frames }
    }

    /// When a frame is due, counted from the first.
    #[inline]
    #[must_use]
    pub fn due_ns(&self, frame: u64) -> u64 {
        ((u128::from(frame) * u128::from(self.gap)) >> FRACTION) as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_flow_has_its_share_at_every_moment(
            weights in proptest::collection::vec(0.0f64..10.0, 1..20), seed in any::<u64>(), turns in 1u64..200_000,
        ) {
            let total: f64 = weights.iter().sum();
            prop_assume!(total > 0.1);
            let order = Order::new(&weights, seed);
            let counted = order.shares_of(turns);
            prop_assert_eq!(counted.iter().sum::<u64>(), turns);
            for (flow, weight) in weights.iter().enumerate() {
                let share = weight / total * turns as f64;
                // Each repetition of the period may add what one period is short of.
                let slack = (weights.len() as f64 + 1.0) * (turns as f64 / PERIOD as f64 + 1.0);
                prop_assert!((counted[flow] as f64 - share).abs() <= slack, "flow {}: {} of {}", flow, counted[flow], share);
            }
        }

        #[test]
        fn frames_are_due_without_drift(rate_pps in 1.0f64..1e7, seconds in 1u64..60) {
            let pace = Pace::new(rate_pps, seconds * 1_000_000_000);
            let last_ns = pace.due_ns(pace.frames) as f64;
            prop_assert!((last_ns - pace.frames as f64 / rate_pps * 1e9).abs() < 1000.0, "{last_ns}");
        }
    }

    #[test]
    fn the_papers_vector_is_sent_in_its_shares() {
        // N = 12, k = 1, q = 0.01: one guest gets 99 %, the others a hundredth together.
        let mut weights = vec![0.01 / 11.0; 12];
        weights[0] = 0.99;
        let counted = Order::new(&weights, 1).shares_of(1_000_000);
        assert!((counted[0] as f64 / 1e6 - 0.99).abs() < 1e-3, "{counted:?}");
        assert!(counted[1..].iter().all(|&count| (count as f64 - 909.0).abs() < 20.0), "{counted:?}");
    }

    #[test]
    fn another_seed_gives_another_order() {
        let order = |seed| Order::new(&[1.0; 5], seed).turns()[..50].to_vec();
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
    }

    #[test]
    fn a_flow_of_no_weight_never_sends() {
        let order = Order::new(&[0.0, 1.0, 0.0], 3);
        assert_eq!(order.shares_of(100_000), [0, 100_000, 0]);
        assert_eq!(Order::new(&[1.0], 0).flow(u64::MAX), 0);
    }
}

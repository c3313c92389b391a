//! How long before the deadline the thread has to be awake: the p99.9 of the kernel's recent lateness, as far as a guard can
//! make up for it.

use core::sync::atomic::{AtomicU32, Ordering};

/// Shortest guard: below it the spin loop has no room for its own start.
pub(crate) const SHORTEST_NS: u64 = 5_000;
/// Longest guard.  A wake that is later than this is later than any guard allows for, so it says nothing about which to choose:
/// where steal or other programs delay one wake in a hundred by milliseconds, spinning 500 µs before each would help none.
pub(crate) const LONGEST_NS: u64 = 500_000;
/// Lateness to be assumed before it is known: above the usual one in a guest with slack 1.
const UNKNOWN_NS: u64 = 120_000;

/// The quantile, per mille.
const PER_MILLE: u64 = 999;

/// Buckets to an octave: a guard is at most an eighth longer than the quantile asks for.
const PER_OCTAVE: usize = 8;
/// Lateness below 2¹⁰ ns is one bucket, and there are ten octaves above.
const LOWEST_SHIFT: u32 = 10;
const BUCKETS: usize = 1 + 10 * PER_OCTAVE;

/// Weight of one sleep.  The bits below one sleep keep a single late wake in mind for four halvings.
const WEIGHT: u32 = 16;
/// So much weight halves all buckets: the guard rests on the last 4096 to 8192 sleeps.
const FULL: u32 = 8192 * WEIGHT;

/// A histogram of the kernel's lateness in which older sleeps count less.
///
/// Threads and signal handlers record into it without a lock; a lost race costs one sample's weight at most.
#[derive(Debug)]
pub struct Guard {
    buckets: [AtomicU32; BUCKETS],
    total: AtomicU32,
}

impl Default for Guard {
    fn default() -> Self {
        Self::new()
    }
}

impl Guard {
    /// Nothing is known yet: the guard is above the usual lateness in a guest.
    #[must_use]
    pub const fn new() -> Self {
        Self { buckets: [const { AtomicU32::new(0) }; BUCKETS], total: AtomicU32::new(0) }
    }

    /// Records how late the kernel woke a thread.
    pub fn record(&self, lateness_ns: u64) {
        if lateness_ns > LONGEST_NS {
            return;
        }
        self.buckets[bucket(lateness_ns)].fetch_add(WEIGHT, Ordering::Relaxed);
        let total = self.total.fetch_add(WEIGHT, Ordering::Relaxed) + WEIGHT;
        // One of those who see it full halves; the others' additions are halved with it or not.
        if total >= FULL && self.total.compare_exchange(total, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            let mut kept = 0;
            for bucket in &self.buckets {
                let halved = bucket.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |weight| Some(weight / 2));
                kept += halved.unwrap_or(0) / 2;
            }
            self.total.fetch_add(kept, Ordering::Relaxed);
        }
    }

    /// Knows nothing again, as when it was new; halving takes a share and no amount, so that no weight falls below zero.
    pub fn forget(&self) {
        for weight in self.buckets.iter().chain([&self.total]) {
            weight.store(0, Ordering::Relaxed);
        }
    }

    /// The guard now: the upper edge of the bucket that holds the p99.9 of lateness, between 5 and 500 µs.
    #[must_use]
    pub fn ns(&self) -> u64 {
        let weight = |index: usize| {
            // As if one sleep had always been that late: it rules the first thousand, and is lost among more.
            let assumed = if index == bucket(UNKNOWN_NS) { WEIGHT } else { 0 };
            u64::from(self.buckets[index].load(Ordering::Relaxed)) + u64::from(assumed)
        };
        let total: u64 = (0..BUCKETS).map(weight).sum();
        let rank = (total * PER_MILLE).div_ceil(1000);
        let mut below = 0;
        let quantile = (0..BUCKETS).position(|index| {
            below += weight(index);
            below >= rank
        });
        upper_edge_ns(quantile.unwrap_or(BUCKETS - 1)).clamp(SHORTEST_NS, LONGEST_NS)
    }
}

fn bucket(lateness_ns: u64) -> usize {
    let octave = lateness_ns.max(1).ilog2();
    if octave < LOWEST_SHIFT {
        return 0;
    }
    let within = (lateness_ns >> (octave - PER_OCTAVE.ilog2())) as usize & (PER_OCTAVE - 1);
    (1 + (octave - LOWEST_SHIFT) as usize * PER_OCTAVE + within).min(BUCKETS - 1)
}

fn upper_edge_ns(bucket: usize) -> u64 {
    let Some(above) = bucket.checked_sub(1) else {
        return 1 << LOWEST_SHIFT;
    };
    let (octave, within) = (above / PER_OCTAVE, above % PER_OCTAVE);
    ((PER_OCTAVE + within + 1) as u64) << (octave as u32 + LOWEST_SHIFT - PER_OCTAVE.ilog2())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A deterministic, evenly spread fraction for the `index`-th sample (golden-ratio sequence).
    fn spread(index: u64) -> f64 {
        (index as f64 * 0.618_033_988_749_895).fract()
    }

    #[test]
    fn a_value_lies_below_its_buckets_upper_edge_by_an_eighth_at_most() {
        for value in (0..1_000_000).step_by(37) {
            let edge = upper_edge_ns(bucket(value));
            assert!(value < edge && (edge <= 1024 || edge as f64 <= value as f64 * 1.13), "{value} {edge}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn the_guard_is_the_quantile_of_a_known_distribution() {
        // Exponential with a mean of 10 µs: p99.9 is 69.1 µs.
        let guard = Guard::new();
        for index in 0..50_000 {
            guard.record((-10_000.0 * (1.0 - spread(index)).ln()) as u64);
        }
        let ns = guard.ns() as f64;
        assert!((69_100.0 * 0.95..69_100.0 * 1.20).contains(&ns), "{ns}");
    }

    #[test]
    fn the_guard_covers_999_of_1000_of_what_follows() {
        for mean in [3_000.0, 20_000.0, 60_000.0] {
            let guard = Guard::new();
            let sample = |index| (-mean * (1.0 - spread(index)).ln()) as u64;
            (0..8_000).for_each(|index| guard.record(sample(index)));
            let late = (8_000..28_000).filter(|&index| sample(index) > guard.ns()).count();
            assert!(late <= 40, "mean {mean}: {late} of 20000");
        }
    }

    #[test]
    fn a_quieter_machine_shortens_the_guard_and_a_busier_one_lengthens_it_at_once() {
        let guard = Guard::new();
        assert!((UNKNOWN_NS..UNKNOWN_NS * 9 / 8).contains(&guard.ns()));
        (0..10_000).for_each(|_| guard.record(100_000));
        assert!((100_000..=113_000).contains(&guard.ns()));
        // The late wakes fade to under a thousandth of the weight after some ten halvings.
        (0..60_000).for_each(|_| guard.record(8_000));
        assert!((8_000..=9_300).contains(&guard.ns()), "{}", guard.ns());
        (0..20).for_each(|_| guard.record(200_000));
        assert!(guard.ns() >= 200_000, "{}", guard.ns());
    }

    #[test]
    fn what_was_learnt_beside_one_load_is_forgotten_before_the_next() {
        let guard = Guard::new();
        (0..5000).for_each(|_| guard.record(400_000));
        guard.forget();
        assert_eq!(guard.ns(), Guard::new().ns());
        (0..2000).for_each(|_| guard.record(8_000));
        assert!((8_000..=9_300).contains(&guard.ns()), "{}", guard.ns());
    }

    #[test]
    fn the_guard_stays_within_its_bounds() {
        let guard = Guard::new();
        (0..2000).for_each(|_| guard.record(0));
        assert_eq!(guard.ns(), SHORTEST_NS);
        (0..100).for_each(|_| guard.record(LONGEST_NS));
        assert_eq!(guard.ns(), LONGEST_NS);
    }

    #[test]
    fn a_wake_that_no_guard_could_have_made_up_for_does_not_lengthen_it() {
        let guard = Guard::new();
        (0..5000).for_each(|_| guard.record(20_000));
        let before = guard.ns();
        // One in ten is milliseconds late, as on a machine that others take time from.
        (0..5000u64).for_each(|index| guard.record(if index % 10 == 0 { 4_000_000 } else { 20_000 }));
        assert_eq!(guard.ns(), before);
    }

    #[test]
    fn no_weight_is_lost_when_threads_record_at_once() {
        let guard = Guard::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..20_000).for_each(|index| guard.record(10_000 + index % 100_000)));
            }
        });
        let sum: u32 = guard.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum();
        assert!(sum > FULL / 4 && sum < FULL * 2, "{sum}");
    }
}

//! The share of a processor that a thread receives, found from within: time in which a calibrated busy loop went on.
//!
//! A guest that its hypervisor holds back may believe that it runs all the time.  A round of the loop takes some tens of
//! microseconds and as long each time; one that took more than twice as long as is usual stood still for the rest.  What is
//! usual is the median of recent rounds: a clock that slows down, or a neighbour on the core's other thread, makes all of
//! them longer and takes nothing, and the rounds in which a loop is held back are few.

use failure::Failure;
use hptime::OsClock;

use crate::Kernel;
use crate::frequency;

const RECENT: usize = 63;
const ROUNDS_PER_PASS: u32 = 4;
const STOOD_STILL: u64 = 2;

/// The busy loop; its units are the nanoseconds in which it went on.
#[derive(Debug)]
pub struct Share {
    recent_ns: [u64; RECENT],
    next: usize,
    usual_ns: u64,
}

impl Share {
    /// Calibrates it, which takes some milliseconds.
    #[must_use]
    pub fn new() -> Self {
        let mut share = Self { recent_ns: [0; RECENT], next: 0, usual_ns: u64::MAX };
        for _ in 0..RECENT {
            share.round_ns();
        }
        share
    }

    fn round_ns(&mut self) -> u64 {
        let started_ns = OsClock::MonotonicRaw.now_ns();
        frequency::work();
        self.went_on_ns(OsClock::MonotonicRaw.now_ns().saturating_sub(started_ns).max(1))
    }

    /// In a round that took so long.
    fn went_on_ns(&mut self, took_ns: u64) -> u64 {
        self.recent_ns[self.next] = took_ns;
        self.next += 1;
        if self.next == RECENT {
            self.next = 0;
            let mut sorted = self.recent_ns;
            sorted.sort_unstable();
            self.usual_ns = sorted[RECENT / 2];
        }
        if took_ns / STOOD_STILL > self.usual_ns { self.usual_ns } else { took_ns }
    }
}

impl Default for Share {
    fn default() -> Self {
        Self::new()
    }
}

impl Kernel for Share {
    fn unit(&self) -> &'static str {
        "received ns"
    }

    fn pass(&mut self) -> Result<u64, Failure> {
        Ok((0..ROUNDS_PER_PASS).map(|_| self.round_ns()).sum())
    }

    fn check(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

    use super::*;
    use crate::timed::{self, Extent, Work};

    const EXTENT: Extent = Extent { warmup_ns: 0, duration_ns: 500_000_000, slice_ns: 100_000_000 };

    fn of_threads(threads: usize) -> Vec<Work> {
        let run = || timed::run(&mut Share::new(), EXTENT, &AtomicBool::new(false)).unwrap();
        thread::scope(|scope| {
            let running: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
            running.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// Every tenth round is held back for a hundred; then the clock runs at two fifths of what it did.
    #[test]
    fn a_slower_clock_is_not_taken_for_time_that_others_had() {
        let mut share = Share::new();
        let mut found = |round_ns: u64, rounds: u64| -> f64 {
            let took = |number: u64| if number % 10 == 0 { 100 * round_ns } else { round_ns };
            let sum = (0..rounds).map(|number| share.went_on_ns(took(number))).sum::<u64>();
            sum as f64 / (rounds * round_ns) as f64
        };
        for round_ns in [40_000, 100_000] {
            found(round_ns, 2 * RECENT as u64);
            assert!((found(round_ns, 1000) - 1.0).abs() < 0.01);
        }
    }

    /// The kernel of this machine knows what it gives; the loop does not ask it.
    #[test]
    fn what_the_loop_finds_is_what_the_scheduler_gives() {
        let processors = thread::available_parallelism().unwrap().get();
        for threads in [1, 3 * processors] {
            let works = of_threads(threads);
            let sum = |of: fn(&Work) -> u64| works.iter().map(of).sum::<u64>() as f64;
            let (found, given, elapsed) =
                (sum(|work| work.units), sum(|work| work.cpu_ns), sum(|work| work.elapsed_ns));
            assert!((found / given - 1.0).abs() < 0.15, "{threads} threads: {found} of {given} in {elapsed}");
        }
    }
}

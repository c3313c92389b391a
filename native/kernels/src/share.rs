//! The share of a processor that a thread receives, found from within: time in which a calibrated busy loop went on.
//!
//! A guest that its hypervisor holds back may believe that it runs all the time.  A round of the loop takes some tens of
//! microseconds and as long each time; one that took more than twice as long stood still for the rest.

use failure::Failure;
use hptime::OsClock;

use crate::frequency;
use crate::kernel::Kernel;

const CALIBRATING: u32 = 20;
const ROUNDS_PER_PASS: u32 = 4;
const STOOD_STILL: u64 = 2;

/// The busy loop; its units are the nanoseconds in which it went on.
#[derive(Debug)]
pub struct Share {
    /// The shortest round so far: whatever disturbs one makes it longer.
    shortest_ns: u64,
}

impl Share {
    /// Calibrates it, which takes a millisecond.
    #[must_use]
    pub fn new() -> Self {
        let mut share = Self { shortest_ns: u64::MAX };
        for _ in 0..CALIBRATING {
            share.round_ns();
        }
        share
    }

    fn round_ns(&mut self) -> u64 {
        let started_ns = OsClock::MonotonicRaw.now_ns();
        frequency::work();
        let took_ns = OsClock::MonotonicRaw.now_ns().saturating_sub(started_ns).max(1);
        self.shortest_ns = self.shortest_ns.min(took_ns);
        if took_ns > STOOD_STILL * self.shortest_ns { self.shortest_ns } else { took_ns }
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

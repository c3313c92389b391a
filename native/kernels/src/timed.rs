//! Runs a kernel for a fixed time, and counts its work by slices of that time.
//!
//! Fixed time and not a fixed number of passes: a guest that is held to a twentieth of a processor is measured as long as
//! one that has all of it, and a neighbour's load lies beside the whole of it.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use failure::Failure;
use hptime::OsClock;

use crate::Kernel;

/// How long passes go on between two looks at the clock: much longer than a look takes where that is a system call of a
/// sandbox (4 µs), much shorter than a slice.
const LOOK_NS: u64 = 1_000_000;

thread_local! {
    static COUNTS: Cell<bool> = const { Cell::new(false) };
}

/// Whether what this thread's kernel does now is counted: its warm-up is over.
#[must_use]
pub fn counts() -> bool {
    COUNTS.get()
}

/// How long a kernel runs.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Work before the first slice; not counted.
    pub warmup_ns: u64,
    /// Counted work.
    pub duration_ns: u64,
    /// Length of a slice; the last look before its end closes it.
    pub slice_ns: u64,
}

/// One slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Work that was finished in it.
    pub units: u64,
    /// Its real length: longer than asked for where the thread did not run at its end.
    pub elapsed_ns: u64,
}

/// What one thread did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Units finished in all slices.
    pub units: u64,
    /// From the end of the warm-up to the end of the last pass.
    pub elapsed_ns: u64,
    /// CPU time of this thread meanwhile, as its own kernel counts it.
    pub cpu_ns: u64,
    /// In order.
    pub slices: Vec<Slice>,
}

/// Runs the kernel until the time is over or `stopped` is set, and checks its results.
///
/// # Errors
/// As the kernel's.
pub fn run(kernel: &mut dyn Kernel, extent: Extent, stopped: &AtomicBool) -> Result<Work, Failure> {
    let mut passes = 1;
    COUNTS.set(false);
    work_for(kernel, extent.warmup_ns, &mut passes, stopped)?;
    COUNTS.set(true);
    let mut work = Work::default();
    let (started_ns, cpu_started_ns) = (OsClock::Monotonic.now_ns(), OsClock::ThreadCpu.now_ns());
    let mut now_ns = started_ns;
    let mut slice = Slice { units: 0, elapsed_ns: 0 };
    let mut slice_started_ns = started_ns;
    while now_ns - started_ns < extent.duration_ns && !stopped.load(Ordering::Relaxed) {
        for _ in 0..passes {
            slice.units += kernel.pass()?;
        }
        let then_ns = std::mem::replace(&mut now_ns, OsClock::Monotonic.now_ns());
        passes = adapted(passes, now_ns - then_ns);
        slice.elapsed_ns = now_ns - slice_started_ns;
        if slice.elapsed_ns >= extent.slice_ns {
            work.units += slice.units;
            work.slices.push(std::mem::replace(&mut slice, Slice { units: 0, elapsed_ns: 0 }));
            slice_started_ns = now_ns;
        }
    }
    if slice.units > 0 {
        work.units += slice.units;
        work.slices.push(slice);
    }
    work.elapsed_ns = now_ns - started_ns;
    work.cpu_ns = OsClock::ThreadCpu.now_ns().saturating_sub(cpu_started_ns);
    kernel.check()?;
    Ok(work)
}

/// Works without counting, and finds out how many passes fill the time between two looks.
fn work_for(kernel: &mut dyn Kernel, time_ns: u64, passes: &mut u32, stopped: &AtomicBool) -> Result<(), Failure> {
    let started_ns = OsClock::Monotonic.now_ns();
    let mut now_ns = started_ns;
    while now_ns - started_ns < time_ns && !stopped.load(Ordering::Relaxed) {
        for _ in 0..*passes {
            kernel.pass()?;
        }
        let then_ns = std::mem::replace(&mut now_ns, OsClock::Monotonic.now_ns());
        *passes = adapted(*passes, now_ns - then_ns);
    }
    Ok(())
}

/// Twice as many passes where they were over much too soon, half as many where they took much too long.
fn adapted(passes: u32, took_ns: u64) -> u32 {
    if took_ns < LOOK_NS / 2 {
        passes.saturating_mul(2)
    } else if took_ns > LOOK_NS * 2 {
        (passes / 2).max(1)
    } else {
        passes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spins for a known time.
    struct Spin {
        pass_ns: u64,
        passes: u64,
        counted: u64,
        wrong: bool,
    }

    impl Kernel for Spin {
        fn unit(&self) -> &'static str {
            "passes"
        }

        fn pass(&mut self) -> Result<u64, Failure> {
            let until_ns = OsClock::Monotonic.now_ns() + self.pass_ns;
            while OsClock::Monotonic.now_ns() < until_ns {}
            self.passes += 1;
            self.counted += u64::from(counts());
            Ok(3)
        }

        fn check(&mut self) -> Result<(), Failure> {
            if self.wrong { Err(Failure::Wrong("as it was told".into())) } else { Ok(()) }
        }
    }

    const EXTENT: Extent = Extent { warmup_ns: 20_000_000, duration_ns: 200_000_000, slice_ns: 50_000_000 };

    #[test]
    fn work_is_counted_after_the_warm_up_in_slices_that_add_up() {
        let mut spin = Spin { pass_ns: 10_000, passes: 0, counted: 0, wrong: false };
        let work = run(&mut spin, EXTENT, &AtomicBool::new(false)).unwrap();
        assert!(work.elapsed_ns >= EXTENT.duration_ns);
        assert_eq!(work.units, work.slices.iter().map(|slice| slice.units).sum::<u64>());
        assert_eq!(work.elapsed_ns, work.slices.iter().map(|slice| slice.elapsed_ns).sum::<u64>());
        assert!(work.units < spin.passes * 3, "the warm-up was counted");
        assert_eq!(work.units, spin.counted * 3);
        assert!(work.slices[..work.slices.len() - 1].iter().all(|slice| slice.elapsed_ns >= EXTENT.slice_ns));
        // No more than fits: a pass takes 10 µs at least.
        assert!(work.units / 3 <= work.elapsed_ns / 10_000);
    }

    #[test]
    fn wrong_results_are_an_error_and_not_a_figure() {
        let mut spin = Spin { pass_ns: 1_000, passes: 0, counted: 0, wrong: true };
        assert!(matches!(run(&mut spin, EXTENT, &AtomicBool::new(false)), Err(Failure::Wrong(_))));
    }

    #[test]
    fn being_stopped_ends_it_early() {
        let mut spin = Spin { pass_ns: 1_000, passes: 0, counted: 0, wrong: false };
        let work = run(&mut spin, EXTENT, &AtomicBool::new(true)).unwrap();
        assert_eq!(work, Work { cpu_ns: work.cpu_ns, ..Work::default() });
    }
}

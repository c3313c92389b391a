//! Where ticks, the kernel's time and sleep come from: this machine, or a simulated one in tests.

use crate::admission;
use crate::arch;
use crate::os_clock::OsClock;
use crate::status::Fallback;

/// What a [`crate::Clock`] and a [`crate::Sleeper`] need of a machine.
///
/// [`Machine`] is the real one.  A simulation implements the trait over a time line of its own, where the truth is known.
pub trait Source {
    /// The time stamp counter.
    fn ticks(&self) -> u64;

    /// The counter after all earlier loads, so that a time seen in memory is never later than this one.
    #[inline(always)]
    fn ticks_after_loads(&self) -> u64 {
        self.ticks()
    }

    /// The counter in program order: after all earlier instructions and before all later ones.
    fn ordered_ticks(&self) -> u64 {
        self.ticks()
    }

    /// A clock of the operating system, in nanoseconds.
    fn clock_ns(&self, clock: OsClock) -> u64;

    /// Whether the counter can be trusted, asked once before its first use.
    ///
    /// # Errors
    /// The reason why it cannot.
    fn admission(&self) -> Result<(), Fallback>;

    /// Sleeps in the kernel until `CLOCK_MONOTONIC` shows `deadline_ns`.  Returns false when a signal ended the sleep.
    fn sleep_until(&self, deadline_ns: u64) -> bool;

    /// Waits a moment in a spin loop, in a way that leaves the core's resources to its sibling.
    fn relax(&self) {
        core::hint::spin_loop();
    }

    /// Waits in a light sleep of the processor until about this tick, or shorter; false where it has no such sleep.
    fn doze_until(&self, _ticks: u64) -> bool {
        false
    }
}

/// This machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Machine;

impl Source for Machine {
    #[inline(always)]
    fn ticks(&self) -> u64 {
        arch::read()
    }

    #[inline(always)]
    fn ticks_after_loads(&self) -> u64 {
        arch::read_after_loads()
    }

    #[inline(always)]
    fn ordered_ticks(&self) -> u64 {
        arch::read_ordered_start()
    }

    #[inline]
    fn clock_ns(&self, clock: OsClock) -> u64 {
        clock.now_ns()
    }

    fn admission(&self) -> Result<(), Fallback> {
        admission::check()
    }

    fn sleep_until(&self, deadline_ns: u64) -> bool {
        crate::sleep::in_kernel_until(deadline_ns)
    }

    fn doze_until(&self, ticks: u64) -> bool {
        arch::doze_until(ticks)
    }
}

//! The disciplined clock.

use crate::os_clock::OsClock;
use crate::refusal::Refusal;
use crate::source::{Machine, Source};

/// A clock on the time stamp counter, disciplined by the kernel's clocks.
#[derive(Debug)]
pub struct Clock<S: Source = Machine> {
    source: S,
}

impl Clock {
    /// A clock of this machine.  Nothing is measured yet: the first read checks the counter, and the operating
    /// system's clock answers until 20 ms later the rate is known.  Can initialize a `static`.
    #[must_use]
    pub const fn new() -> Self {
        Self { source: Machine }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Source> Clock<S> {
    /// The machine under the clock.
    pub const fn source(&self) -> &S {
        &self.source
    }

    /// The absolute clock: `CLOCK_MONOTONIC` in nanoseconds, never going back, in any thread.
    pub fn now_ns(&self) -> u64 {
        self.source.clock_ns(OsClock::Monotonic)
    }

    /// `CLOCK_MONOTONIC_RAW` in nanoseconds, never going back.
    pub fn raw_ns(&self) -> u64 {
        self.source.clock_ns(OsClock::MonotonicRaw)
    }

    /// `CLOCK_REALTIME` in nanoseconds.
    pub fn realtime_ns(&self) -> u64 {
        self.source.clock_ns(OsClock::Realtime)
    }

    /// Why the counter is not in use; `None` when it is, or may yet be.
    pub fn refusal(&self) -> Option<Refusal> {
        None
    }

    /// Takes a new bearing of the kernel's clocks now.
    pub fn discipline(&self) {}
}

/// The process's own clock, shared by all who want no other.
#[must_use]
pub fn clock() -> &'static Clock {
    static CLOCK: Clock = Clock::new();
    &CLOCK
}

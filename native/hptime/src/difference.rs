//! The difference clock: durations, on a scale that is never stepped and never bent to catch up.

use crate::clock::Clock;
use crate::discipline::Phase;
use crate::os_clock::OsClock;
use crate::scale::Scale;
use crate::source::{Machine, Source};

/// Measures durations by the counter and its rate alone.
///
/// An absolute clock has to take its offset away and so distorts the durations of that time; a difference clock does not care
/// for the offset (Veitch, Ridoux and Korada 2009, `RADclock`).  Its scale is the rate's best estimate against
/// `CLOCK_MONOTONIC_RAW`, and its error is the rate's: [`crate::Status::difference_error_ppm`] of the duration.
///
/// Where the counter is refused, readings are `CLOCK_MONOTONIC_RAW` itself.
#[derive(Debug)]
pub struct DifferenceClock<'c, S: Source = Machine> {
    clock: &'c Clock<S>,
    counter: bool,
}

impl<S: Source> Clone for DifferenceClock<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: Source> Copy for DifferenceClock<'_, S> {}

/// A moment of a [`DifferenceClock`].  Moments of one clock object can be compared, also between threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// The reading: ticks of the counter, or nanoseconds where the operating system's clock answers.
    #[inline(always)]
    #[must_use]
    pub const fn count(self) -> u64 {
        self.0
    }

    /// From a reading's count, such as one that was stored.
    #[inline(always)]
    #[must_use]
    pub const fn from_count(count: u64) -> Self {
        Self(count)
    }
}

impl<'c, S: Source> DifferenceClock<'c, S> {
    pub(crate) fn new(clock: &'c Clock<S>) -> Self {
        Self { clock, counter: clock.state().phase == Phase::Running }
    }

    /// The difference clock that another one of this process was, as its [`DifferenceClock::uses_counter`] told: for those who
    /// have to keep it in a word.
    #[inline(always)]
    #[must_use]
    pub const fn again(clock: &'c Clock<S>, counter: bool) -> Self {
        Self { clock, counter }
    }

    /// Reads the clock: one plain read of the counter.
    #[inline(always)]
    #[must_use]
    pub fn read(&self) -> Moment {
        Moment(if self.counter {
            self.clock.source().ticks()
        } else {
            self.clock.source().clock_ns(OsClock::MonotonicRaw)
        })
    }

    /// The scale of its readings, as last measured.
    #[inline(always)]
    #[must_use]
    pub fn scale(&self) -> Scale {
        if self.counter { self.clock.difference_scale() } else { Scale::NANOSECONDS }
    }

    /// Nanoseconds from one moment to a later one; zero when it is not later.
    #[inline(always)]
    #[must_use]
    pub fn nanoseconds(&self, from: Moment, to: Moment) -> u64 {
        let count = to.0.wrapping_sub(from.0);
        if count as i64 > 0 { self.scale().nanoseconds(count) } else { 0 }
    }

    /// Whether readings are the counter's.
    #[must_use]
    pub const fn uses_counter(&self) -> bool {
        self.counter
    }
}

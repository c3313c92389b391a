//! What a clock knows of itself.

use crate::fallback::Fallback;

/// How far a clock can be off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErrorBar {
    /// Now, in nanoseconds: half the last bracket, the offset being slewed away, and what the rate's error made since.
    pub ns: f64,
    /// Growth in parts per million until the next anchor: the rate's error and its latest change.
    pub ppm: f64,
}

/// The counter's rate changed against `CLOCK_MONOTONIC_RAW` by over 1 ppm more than the readings' uncertainty explains.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DriftAlarm {
    /// The change in parts per million; infinite when the counter or the kernel's clock stood still or went back.
    pub departure_ppm: f64,
    /// Alarms of the series; eight without sixteen quiet anchors between them make the clock refuse the counter.
    pub count: u64,
    /// Anchors set without an alarm since.
    pub quiet: u64,
}

/// What a clock knows of itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Status {
    /// Readings come from the counter.
    pub running: bool,
    /// Why they never will.
    pub fallback_reason: Option<Fallback>,
    /// The counter's frequency against `CLOCK_MONOTONIC_RAW`; zero while it is not known.
    pub frequency_hz: f64,
    /// Bound of the difference clock's relative error; zero while it reads the operating system's clock.
    pub difference_error_ppm: f64,
    /// Bound of the absolute clock's error against `CLOCK_MONOTONIC`, as long as the kernel does not change its slew by
    /// more than it did last; `None` while the operating system's clock answers.
    pub absolute_error: Option<ErrorBar>,
    /// The latest drift alarm, if there was one.
    pub alarm: Option<DriftAlarm>,
    /// Anchors set.
    pub measurements: u64,
}

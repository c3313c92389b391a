//! What a clock knows of itself, and why it does not use the counter, so that the operating system's clock answers instead.

use core::fmt;

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

/// Why a [`crate::Clock`] does not use the time stamp counter.  It then reads the operating system's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[non_exhaustive]
pub enum Fallback {
    /// The processor has no counter that a program can read.
    NoCounter = 1,
    /// `prctl(PR_SET_TSC, PR_TSC_SIGSEGV)` is in force: a read would kill the process.
    Forbidden = 2,
    /// The processor does not promise one rate in every power state.
    NotInvariant = 3,
    /// The kernel, or a look from every processor, finds the counters of the processors apart.
    NotSynchronized = 4,
    /// A read takes over 150 ns: a hypervisor or an emulator intercepts it.
    Trapped = 5,
    /// The counter or the kernel's clock stood still or went backwards.
    WentBack = 6,
    /// The counter's rate kept changing against the kernel's clock.
    Drifted = 7,
}

impl Fallback {
    /// Every reason, in the order of its number.
    pub const ALL: [Self; 7] = [
        Self::NoCounter,
        Self::Forbidden,
        Self::NotInvariant,
        Self::NotSynchronized,
        Self::Trapped,
        Self::WentBack,
        Self::Drifted,
    ];

    /// The reason in words, without a full stop.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::NoCounter => "the processor has no time stamp counter that a program can read",
            Self::Forbidden => "reading the time stamp counter is forbidden to this process (PR_TSC_SIGSEGV)",
            Self::NotInvariant => "the processor does not promise an invariant time stamp counter",
            Self::NotSynchronized => "the time stamp counters of the processors are not synchronized",
            Self::Trapped => "reading the time stamp counter takes over 150 ns, so it is intercepted",
            Self::WentBack => "the time stamp counter or the kernel's clock stood still or went backwards",
            Self::Drifted => "the time stamp counter's rate kept changing against the kernel's clock",
        }
    }

    /// The reason with this number; `None` for zero (not refused) and for numbers that no reason has.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| *reason as u32 == number)
    }
}

impl fmt::Display for Fallback {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.text())
    }
}

//! How a sleep is made, how it ended, and what it refuses.

use core::fmt;

/// Timer interrupts a second of a distribution's kernel.
const USUAL_HZ: u32 = 250;

/// How a sleep is divided between the kernel and the spin loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Sleep until a guard before the deadline, which is the p99.9 of the kernel's recent lateness, then spin.
    Adaptive,
    /// `HighPerTimer`'s rule: sleep until 1/HZ before the deadline, then spin (Kirova et al. 2019, section 2.1.1).
    ///
    /// HZ is the kernel's `CONFIG_HZ` ([`Rule::highpertimer`] finds it); 250 is the distributions' usual choice, and
    /// the paper limits it to 1000.
    HighPerTimer {
        /// Timer interrupts a second.
        hz: u32,
    },
    /// Sleep in the kernel until the deadline (timer slack 1 ns); never spin.
    Os,
}

impl Rule {
    /// `HighPerTimer`'s rule for the usual kernel, HZ = 250.
    pub const HIGHPERTIMER: Self = Self::HighPerTimer { hz: USUAL_HZ };

    /// `HighPerTimer`'s rule for the running kernel: its tick is the resolution of its coarse clocks.
    ///
    /// Where that is no tick from 100 to 1000 Hz, 250 Hz are taken.
    #[must_use]
    pub fn highpertimer() -> Self {
        let mut tick = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes one timespec.
        let failed = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut tick) } != 0;
        let known = !failed && tick.tv_sec == 0 && (1_000_000..=10_000_000).contains(&tick.tv_nsec);
        Self::HighPerTimer { hz: if known { (1_000_000_000 / tick.tv_nsec) as u32 } else { USUAL_HZ } }
    }
}

/// Why a sleep ended when it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Cause {
    /// The kernel woke the thread in time, and the spin loop met the deadline.
    Slept = 0,
    /// The deadline was nearer than the guard: only the spin loop waited.
    SpunOnly = 1,
    /// The kernel woke the thread after the deadline (with [`Rule::Os`] it always does).
    LateWake = 2,
    /// The deadline had passed before the sleep began.
    Past = 3,
    /// A signal handler ran while the thread slept in the kernel, and the sleeper returns on signals.
    Interrupted = 4,
}

/// How a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wake {
    /// The clock at the return less the deadline; negative after an interruption (then it is what
    /// remained), and with [`Rule::Os`] by as much as the clock differs from the kernel's.
    pub lateness_ns: i64,
    /// Time spent in the spin loop.
    pub spin_ns: u64,
    /// The guard that was in force.
    pub guard_ns: u64,
    /// Why it ended.
    pub cause: Cause,
}

/// A sleep that cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SleepError {
    /// The deadline or the duration is negative.
    Negative {
        /// What was asked for, nanoseconds.
        ns: i64,
    },
    /// The end lies beyond the clock's last moment, 2⁶³ − 1 nanoseconds after boot (292 years).
    Overflow,
}

impl fmt::Display for SleepError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Negative { ns } => write!(formatter, "cannot sleep for or until {ns} ns: the time is negative"),
            Self::Overflow => formatter.write_str("cannot sleep that long: the end lies beyond the clock's range"),
        }
    }
}

impl std::error::Error for SleepError {}

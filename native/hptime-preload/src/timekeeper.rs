//! The clock that answers, and whether it may.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use hptime::{Clock, Fallback, Machine, OsClock, Source};
use libc::c_int;

use crate::{kernel, real};

/// This machine, whose kernel clocks are read behind the shim: through `clock_gettime` the clock would discipline itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct BehindTheShim;

impl Source for BehindTheShim {
    #[inline(always)]
    fn ticks(&self) -> u64 {
        Machine.ticks()
    }

    #[inline(always)]
    fn ticks_after_loads(&self) -> u64 {
        Machine.ticks_after_loads()
    }

    #[inline(always)]
    fn ordered_ticks(&self) -> u64 {
        Machine.ordered_ticks()
    }

    fn clock_ns(&self, clock: OsClock) -> u64 {
        kernel_ns(clock as c_int)
    }

    fn admission(&self) -> Result<(), Fallback> {
        Ok(()) // asked by `begin`, before any clock is read
    }

    fn sleep_until(&self, deadline_ns: u64) -> bool {
        let request = kernel::timespec_of(deadline_ns);
        // SAFETY: reads one timespec.
        unsafe {
            kernel::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &raw const request, null_mut()) == 0
        }
    }

    fn relax(&self) {
        Machine.relax();
    }

    fn doze_until(&self, ticks: u64) -> bool {
        Machine.doze_until(ticks)
    }
}

static CLOCK: Clock<BehindTheShim> = Clock::on(BehindTheShim);

/// Where the shim stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// The constructor has not run.
    Early = 0,
    /// Calls are served.
    Serving = 1,
    /// The environment disabled it.
    Disabled = 2,
    /// hptime refused the counter.
    Refused = 3,
}

/// The number of the reason for which the counter was refused at the beginning.
static FALLBACK: AtomicU32 = AtomicU32::new(0);

static MODE: AtomicU8 = AtomicU8::new(Mode::Early as u8);

/// Where the shim stands.
#[must_use]
pub fn mode() -> Mode {
    match MODE.load(Ordering::Relaxed) {
        0 => Mode::Early,
        1 => Mode::Serving,
        2 => Mode::Disabled,
        _ => Mode::Refused,
    }
}

/// Begins to serve, or not.
pub fn begin(disabled: bool) {
    let mode = match (disabled, Machine.admission()) {
        (true, _) => Mode::Disabled,
        // Where the counter must not be read, the vDSO's clocks must not either: the shim reads none.
        (false, Err(reason)) => {
            FALLBACK.store(reason as u32, Ordering::Relaxed);
            Mode::Refused
        }
        (false, Ok(())) => {
            CLOCK.now_ns(); // sets the anchor, from which the rate is measured
            Mode::Serving
        }
    };
    MODE.store(mode as u8, Ordering::Release);
}

/// hptime's reason, if it refused the counter; it may do so later too, and answers from the operating system's clock then.
#[must_use]
pub fn fallback_reason() -> Option<Fallback> {
    Fallback::from_number(FALLBACK.load(Ordering::Relaxed)).or_else(|| CLOCK.fallback_reason())
}

/// Whether calls are served.
#[inline(always)]
#[must_use]
pub fn serving() -> bool {
    MODE.load(Ordering::Relaxed) == Mode::Serving as u8
}

/// The clocks that are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Served {
    /// `CLOCK_MONOTONIC`.
    Monotonic = libc::CLOCK_MONOTONIC,
    /// `CLOCK_REALTIME`.
    Realtime = libc::CLOCK_REALTIME,
}

impl Served {
    /// The clock of this number, if it is served.
    #[inline(always)]
    #[must_use]
    pub fn numbered(number: c_int) -> Option<Self> {
        match number {
            libc::CLOCK_MONOTONIC => Some(Self::Monotonic),
            libc::CLOCK_REALTIME => Some(Self::Realtime),
            _ => None,
        }
    }

    /// Reads it for the program, in nanoseconds: as the vDSO's, it never goes back between threads either, by a fence.
    #[inline(always)]
    #[must_use]
    pub fn now_ns(self) -> u64 {
        match self {
            Self::Monotonic => CLOCK.now_ordered_ns(),
            Self::Realtime => CLOCK.realtime_ordered_ns(),
        }
    }

    /// Reads it for the shim's own waiting, in nanoseconds: no other thread sees when, so that no fence is needed.
    #[inline(always)]
    #[must_use]
    pub fn unordered_ns(self) -> u64 {
        match self {
            Self::Monotonic => CLOCK.now_ns(),
            Self::Realtime => CLOCK.realtime_ns(),
        }
    }
}

/// A clock of the kernel, from behind the shim.
fn kernel_ns(clock: c_int) -> u64 {
    let mut time = kernel::timespec_of(0);
    // SAFETY: writes one timespec.
    unsafe { real::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

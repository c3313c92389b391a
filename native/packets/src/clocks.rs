//! The clock by which the kernel stamps packets, beside the one by which everything else is timed.

use hptime::OsClock;

/// How often the two are read together at most; the tightest reading counts.
const TRIES: u32 = 8;

/// A reading that took no longer is tight enough.
const TIGHT_NS: u64 = 200;

/// What `CLOCK_REALTIME` is ahead of `CLOCK_MONOTONIC`, in nanoseconds.
#[must_use]
pub fn realtime_lead_ns() -> i64 {
    let mut best = (u64::MAX, 0);
    for _ in 0..TRIES {
        let before = OsClock::Monotonic.now_ns();
        let realtime = OsClock::Realtime.now_ns() as i64;
        let width = OsClock::Monotonic.now_ns() - before;
        if width < best.0 {
            best = (width, realtime - (before + width / 2) as i64);
        }
        if width <= TIGHT_NS {
            break;
        }
    }
    best.1
}

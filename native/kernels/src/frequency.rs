//! The processor's real clock frequency, where no driver tells it: additions that wait for each other take a cycle each.

use std::hint::black_box;

use hptime::OsClock;

/// Additions of one try: some tens of microseconds, so that most tries are not interrupted.
const ADDITIONS: u64 = 100_000;

/// Cycles a second: the fastest of so many tries, because whatever disturbs one makes it slower.
///
/// A dependent addition takes one cycle on every processor that virtgauge runs on; under emulation the figure is that of
/// the emulator.
#[must_use]
pub fn hertz(tries: u32) -> f64 {
    let mut fastest_ns = u64::MAX;
    for _ in 0..tries {
        let started_ns = OsClock::MonotonicRaw.now_ns();
        work();
        fastest_ns = fastest_ns.min(OsClock::MonotonicRaw.now_ns().saturating_sub(started_ns));
    }
    ADDITIONS as f64 * 1e9 / fastest_ns.max(1) as f64
}

#[cfg(target_arch = "x86_64")]
macro_rules! add {
    () => {
        "add {0}, {1}"
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! add {
    () => {
        "add {0}, {0}, {1}"
    };
}

/// Some tens of microseconds of additions that wait for each other.
pub(crate) fn work() {
    black_box(added(black_box(1), ADDITIONS));
}

#[inline(never)]
fn added(mut value: u64, times: u64) -> u64 {
    for _ in 0..times / 10 {
        // SAFETY: changes one register, and at most the flags.
        unsafe {
            std::arch::asm!(
                add!(), add!(), add!(), add!(), add!(), add!(), add!(), add!(), add!(), add!(),
                inout(reg) value, in(reg) times, options(pure, nomem, nostack)
            );
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_additions_are_made_as_are_counted() {
        assert_eq!(added(1, 100), 1 + 100 * 100);
    }

    #[test]
    fn this_machine_runs_at_a_frequency_that_exists() {
        let hertz = hertz(50);
        assert!((2e8..1e10).contains(&hertz), "{hertz}");
    }
}

//! A sleep until a moment, that ends as libc's does when a signal handler runs or the thread is cancelled.
//!
//! A cancellation unwinds through these frames: nothing here has a destructor.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicU64, Ordering};

use hptime::Guard;
use libc::c_int;

use crate::settings::{Rule, rule};
use crate::signals::{HeldBack, any_handled};
use crate::timekeeper::Served;
use crate::{kernel, real};

/// How often the spin looks for signals.
const LOOK_NS: u64 = 20_000;

/// A spin shorter than this is over before signals could be held back.
const SHORTEST_HELD_NS: u64 = 1_000;

/// What all threads have learnt of the kernel's lateness.
static GUARD: Guard = Guard::new();

static SPIN_NS: AtomicU64 = AtomicU64::new(0);
static SLEEPS: AtomicU64 = AtomicU64::new(0);
static INTERRUPTED: AtomicU64 = AtomicU64::new(0);

/// What letting signals through again costs, so that it is done that much before the deadline.
static RELEASE_NS: AtomicU64 = AtomicU64::new(200);

/// What the sleeps of this process came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Sleeps that were served.
    pub sleeps: u64,
    /// Of these, ended by a signal handler.
    pub interrupted: u64,
    /// Time spun, nanoseconds.
    pub spin_ns: u64,
}

/// What the sleeps of this process came to.
#[must_use]
pub fn totals() -> Totals {
    Totals {
        sleeps: SLEEPS.load(Ordering::Relaxed),
        interrupted: INTERRUPTED.load(Ordering::Relaxed),
        spin_ns: SPIN_NS.load(Ordering::Relaxed),
    }
}

/// Begins anew, in a new process.
pub fn reset() {
    for total in [&SPIN_NS, &SLEEPS, &INTERRUPTED] {
        total.store(0, Ordering::Relaxed);
    }
}

/// How long before its deadline a sleep leaves the kernel.
fn guard_ns() -> u64 {
    match rule() {
        Rule::Adaptive => GUARD.ns(),
        Rule::HighPerTimer => tick_ns(),
        Rule::Os => 0,
    }
}

/// The period of the kernel's tick, 1/HZ: what the coarse clocks are advanced by.
fn tick_ns() -> u64 {
    static TICK_NS: AtomicU64 = AtomicU64::new(0);
    let known = TICK_NS.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let mut resolution = kernel::timespec_of(0);
    // SAFETY: writes one timespec.
    unsafe {
        let arguments = [libc::CLOCK_MONOTONIC_COARSE as usize, &raw mut resolution as usize];
        kernel::call(libc::SYS_clock_getres, arguments);
    }
    let tick = kernel::nanoseconds(resolution).unwrap_or(0);
    let tick = if (1_000_000..=10_000_000).contains(&tick) { tick } else { 4_000_000 };
    TICK_NS.store(tick, Ordering::Relaxed);
    tick
}

/// Waits until the clock shows `deadline_ns`; zero, or the number of an error: `EINTR` when a signal handler ran.
///
/// # Safety
/// No frame up to the program's own may have anything to drop: the thread may be cancelled here.
pub unsafe extern "C-unwind" fn until(clock: Served, deadline_ns: u64) -> c_int {
    SLEEPS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the caller's promise.
    unsafe {
        real::testcancel();
        let guard = guard_ns();
        if deadline_ns > clock.unordered_ns() + guard {
            let error = in_the_kernel(clock, deadline_ns - guard);
            if error != 0 {
                INTERRUPTED.fetch_add(u64::from(error == libc::EINTR), Ordering::Relaxed);
                return error;
            }
        }
        let begin = clock.unordered_ns();
        if begin < deadline_ns {
            if spin(clock, begin, deadline_ns) {
                SPIN_NS.fetch_add(clock.unordered_ns().saturating_sub(begin), Ordering::Relaxed);
                INTERRUPTED.fetch_add(1, Ordering::Relaxed);
                return libc::EINTR;
            }
        } else {
            real::testcancel();
        }
    }
    0
}

/// The kernel's part, with the least timer slack; the thread's own is restored while there is time to spare.
///
/// # Safety
/// As [`until`].
unsafe extern "C-unwind" fn in_the_kernel(clock: Served, wake_ns: u64) -> c_int {
    let request = kernel::timespec_of(wake_ns);
    let slack = timer_slack(libc::PR_GET_TIMERSLACK, 0);
    if slack > 1 {
        timer_slack(libc::PR_SET_TIMERSLACK, 1);
    }
    // SAFETY: the caller's promise; the request lives.
    let error = unsafe { real::clock_nanosleep(clock as c_int, libc::TIMER_ABSTIME, &raw const request, null_mut()) };
    let woken = clock.unordered_ns();
    if slack > 1 {
        timer_slack(libc::PR_SET_TIMERSLACK, slack as usize);
    }
    if error == 0 {
        GUARD.record(woken.saturating_sub(wake_ns));
    }
    error
}

fn timer_slack(operation: c_int, slack: usize) -> isize {
    // SAFETY: concerns this thread's timer slack only.
    unsafe { kernel::call(libc::SYS_prctl, [operation as usize, slack]) }
}

/// Spins until the deadline; true when a signal handler ran before.
///
/// Everything else is done before the last readings: after them only the return is left, and the sleep is as late as that is.
///
/// # Safety
/// As [`until`].
#[inline(always)]
unsafe fn spin(clock: Served, begin: u64, deadline_ns: u64) -> bool {
    let release_ns = RELEASE_NS.load(Ordering::Relaxed);
    if deadline_ns - begin > SHORTEST_HELD_NS + release_ns {
        let held_until = deadline_ns - release_ns;
        let mut held = HeldBack::begin();
        let mut look_at = begin + LOOK_NS;
        loop {
            let now = clock.unordered_ns();
            if now < look_at.min(held_until) {
                core::hint::spin_loop();
                continue;
            }
            look_at = now + LOOK_NS;
            let waiting = held.waiting();
            if waiting != 0 {
                let handled = any_handled(waiting);
                held.end();
                if handled {
                    return true;
                }
                held = HeldBack::begin(); // it was discarded, or stopped the process for a while
            } else if now >= held_until {
                break;
            }
        }
        let before = clock.unordered_ns();
        held.end();
        // SAFETY: the caller's promise.
        unsafe { real::testcancel() };
        let cost = clock.unordered_ns().saturating_sub(before);
        // Follows slowly, and no single interruption far.
        RELEASE_NS.store((release_ns * 7 + cost.min(2_000)) / 8, Ordering::Relaxed);
    } else {
        // SAFETY: the caller's promise.
        unsafe { real::testcancel() };
    }
    SPIN_NS.fetch_add(deadline_ns - begin, Ordering::Relaxed);
    while clock.unordered_ns() < deadline_ns {} // bare: a pause may last 50 ns and more
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_ends_at_its_deadline_or_later_never_before() {
        for clock in [Served::Monotonic, Served::Realtime] {
            for ns in [0, 500, 20_000, 200_000, 3_000_000] {
                let deadline = clock.now_ns() + ns;
                // SAFETY: nobody cancels this thread.
                assert_eq!(unsafe { until(clock, deadline) }, 0);
                assert!(clock.now_ns() >= deadline, "{clock:?} {ns}");
            }
        }
    }

    #[test]
    fn the_thread_keeps_its_timer_slack() {
        timer_slack(libc::PR_SET_TIMERSLACK, 70_000);
        // SAFETY: nobody cancels this thread.
        unsafe { until(Served::Monotonic, Served::Monotonic.now_ns() + 2_000_000) };
        assert_eq!(timer_slack(libc::PR_GET_TIMERSLACK, 0), 70_000);
    }

    #[test]
    fn a_tick_is_between_a_hundredth_and_a_thousandth_of_a_second() {
        assert!((1_000_000..=10_000_000).contains(&tick_ns()));
    }
}

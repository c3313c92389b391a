//! Time, the processor time used, and waiting for a moment.

use std::sync::atomic::{AtomicBool, Ordering};

/// The most of a wait that is spun, in nanoseconds.
const LONGEST_SPIN: u64 = 50_000;
/// How often a sleeper looks whether all is over, in nanoseconds.
const LONGEST_SLEEP: u64 = 50_000_000;

fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is ours and complete.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert_eq!(failed, 0, "the clocks asked for are in every Linux");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// `CLOCK_MONOTONIC`, in nanoseconds.
#[must_use]
pub fn now() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// What this thread has used of a processor, in nanoseconds.
fn thread_cpu() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// What this process has used of processors, user and system, in nanoseconds.
#[must_use]
pub fn process_cpu() -> u64 {
    // SAFETY: a structure of plain numbers; zero is one of them.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is ours and complete.
    let failed = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    assert_eq!(failed, 0, "RUSAGE_SELF is always known");
    let of = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    of(usage.ru_utime) + of(usage.ru_stime)
}

/// Sleeps until a moment of `CLOCK_MONOTONIC`, or a signal.
pub fn sleep_until(due: u64) {
    let time = libc::timespec { tv_sec: (due / 1_000_000_000) as i64, tv_nsec: (due % 1_000_000_000) as i64 };
    // SAFETY: the structure is ours; there is no remainder to an absolute time.
    unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &raw const time, std::ptr::null_mut()) };
}

/// Waits of one thread: sleeps, then spins over what its sleeps have lately been late by, 50 µs at most.
#[derive(Debug)]
pub struct Waiter {
    margin: u64,
    lateness: u64,
    /// Processor time that was spun away, in nanoseconds; it is the generator's own and no cost of a statement.
    pub spun: u64,
}

impl Waiter {
    /// For the calling thread, whose timers are set not to be slack.
    #[must_use]
    pub fn new() -> Self {
        // SAFETY: sets a number of this thread; where it is refused, sleeps are later and the margin grows.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
        Self { margin: LONGEST_SPIN, lateness: LONGEST_SPIN / 2, spun: 0 }
    }

    /// Returns at `due`, or early when `stop` is set: whether it is due.
    pub fn wait(&mut self, due: u64, stop: &AtomicBool) -> bool {
        loop {
            let current = now();
            if current >= due {
                return true;
            }
            if stop.load(Ordering::Relaxed) {
                return false;
            }
            if current + self.margin >= due {
                break;
            }
            let wake = (due - self.margin).min(current + LONGEST_SLEEP);
            sleep_until(wake);
            let late = now().saturating_sub(wake).min(LONGEST_SPIN);
            self.lateness = (self.lateness * 7 + late) / 8;
            self.margin = (self.lateness * 2).clamp(2_000, LONGEST_SPIN);
        }
        let before = thread_cpu();
        while now() < due {
            std::hint::spin_loop();
        }
        self.spun += thread_cpu() - before;
        true
    }
}

impl Default for Waiter {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_when_due_and_spins_for_a_small_part_of_it() {
        let (mut waiter, stop) = (Waiter::new(), AtomicBool::new(false));
        let begin = now();
        for number in 1..=50 {
            assert!(waiter.wait(begin + number * 1_000_000, &stop));
            assert!(now() >= begin + number * 1_000_000);
        }
        assert!(waiter.spun <= 50 * (LONGEST_SPIN + 20_000), "spun {} ns in 50 ms", waiter.spun);
    }

    #[test]
    fn a_wait_ends_early_when_all_is_over() {
        let stop = AtomicBool::new(true);
        assert!(!Waiter::new().wait(now() + 60_000_000_000, &stop));
    }
}

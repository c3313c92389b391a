//! What happens in place of a flush.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use libc::{c_int, timespec};

use crate::counters::{Counters, Kind};
use crate::profile::Profile;
use crate::{kernel, real};

static COUNTERS: AtomicPtr<Counters> = AtomicPtr::new(null_mut());

/// Begins to count.
pub fn begin(counters: &'static Counters) {
    COUNTERS.store(core::ptr::from_ref(counters).cast_mut(), Ordering::Release);
}

/// The counters and the profile; `None` before the constructor, and in a program that is in no laboratory.
#[inline]
pub fn laboratory() -> Option<(&'static Counters, Profile)> {
    // SAFETY: null, or what `begin` was given, which lives for ever.
    let counters = unsafe { COUNTERS.load(Ordering::Acquire).as_ref() }?;
    counters.profile().map(|profile| (counters, profile))
}

/// What the function is that the program called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A cancellation point; also one whose flush takes no time.
    CancellationPoint,
    /// None, as `syscall`.
    Plain,
}

/// Waits until the profile's disk has completed a flush that began then.  Signals are handled and do not end it, as
/// they do not end a real flush.
///
/// # Safety
/// At a cancellation point, no frame up to the program's own may have anything to drop.
pub unsafe fn wait(profile: Profile, began_ns: u64, caller: Caller) {
    if caller == Caller::CancellationPoint {
        // SAFETY: the caller's promise.
        unsafe { real::testcancel() };
    }
    let Some(deadline_ns) = profile.completes_at_ns(began_ns).filter(|deadline_ns| *deadline_ns > began_ns) else {
        return;
    };
    if deadline_ns - began_ns >= SHORTEST_SLEEP_NS {
        let early_ns = LATENESS_NS.load(Ordering::Relaxed).min((deadline_ns - began_ns) / 2);
        let wake = kernel::timespec_of(deadline_ns - early_ns);
        let slack = Slack::least();
        // SAFETY: the time lives.  If the thread is cancelled here, its slack is of no more interest.
        while unsafe { sleep_until(&raw const wake, caller) } == libc::EINTR {}
        slack.restore();
        learn_lateness(kernel::now_ns() > deadline_ns);
    }
    while kernel::now_ns() < deadline_ns {
        core::hint::spin_loop();
    }
}

unsafe fn sleep_until(time: *const timespec, caller: Caller) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        match caller {
            Caller::CancellationPoint => real::sleep_until(time),
            Caller::Plain => real::uncancelled_sleep_until(time),
        }
    }
}

/// How late a sleep of this process ends, by the median: virtual machines need as long to wake a thread as a
/// solid-state disk to flush.  Sleeps are begun to end so much earlier, and what is left is spun: some microseconds.
static LATENESS_NS: AtomicU64 = AtomicU64::new(0);

/// What is shorter is spun altogether.
const SHORTEST_SLEEP_NS: u64 = 50_000;
const STEP_NS: u64 = 2_000;
const MOST_NS: u64 = 100_000;

/// A step up for a sleep that ended too late, one down for one too early, which ends at the median.
fn learn_lateness(late: bool) {
    let before = LATENESS_NS.load(Ordering::Relaxed);
    let after = if late { (before + STEP_NS).min(MOST_NS) } else { before.saturating_sub(STEP_NS) };
    LATENESS_NS.store(after, Ordering::Relaxed);
}

/// A thread's timer slack: by default the kernel may end a sleep 50 µs late, which is half of a solid-state disk's
/// flush.
struct Slack(isize);

impl Slack {
    fn least() -> Self {
        // SAFETY: no addresses.  Where there is no such thing, both calls fail and nothing changes.
        let before = unsafe { kernel::call(libc::SYS_prctl, [libc::PR_GET_TIMERSLACK as usize]) };
        Self::set(1);
        Self(before)
    }

    fn set(ns: usize) {
        // SAFETY: no addresses.
        unsafe { kernel::call(libc::SYS_prctl, [libc::PR_SET_TIMERSLACK as usize, ns]) };
    }

    fn restore(&self) {
        if self.0 > 0 {
            Self::set(self.0 as usize);
        }
    }
}

/// Counts a flush, and does it or waits in its place.
///
/// `check` says with which error number the kernel would refuse it, zero for none; `real` does it, and returns −1 with
/// `errno` where it fails.
///
/// # Safety
/// As `real` and [`wait`].
#[inline]
pub unsafe fn flush(kind: Kind, caller: Caller, check: impl FnOnce() -> c_int, real: impl FnOnce() -> c_int) -> c_int {
    let Some((counters, profile)) = laboratory() else {
        return real();
    };
    let began_ns = kernel::now_ns();
    let result = if profile == Profile::AsIs {
        real()
    } else {
        let error = check();
        if error == 0 {
            // SAFETY: the caller's promise.
            unsafe { wait(profile, began_ns, caller) };
            0
        } else {
            kernel::set_errno(error);
            -1
        }
    };
    if result == 0 {
        counters.count(kind, Some(kernel::now_ns() - began_ns));
    } else {
        counters.count_failure();
    }
    result
}

/// With which error the kernel refuses to flush a descriptor; zero if it does not.
#[must_use]
pub fn refusal(descriptor: c_int) -> c_int {
    let flags = kernel::status_flags(descriptor);
    if flags < 0 {
        return -flags;
    }
    if flags & libc::O_PATH != 0 {
        return libc::EBADF;
    }
    match kernel::file_type(descriptor) {
        libc::S_IFREG | libc::S_IFDIR | libc::S_IFBLK => 0,
        _ => libc::EINVAL, // sockets, pipes, terminals: nothing to flush
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flush_is_never_over_before_its_time_and_by_the_median_not_long_after() {
        let profile = Profile::Latency { us: 300 };
        let mut took_ns: Vec<u64> = (0..200)
            .map(|_| {
                let began_ns = kernel::now_ns();
                // SAFETY: nothing here is dropped by a cancellation.
                unsafe { wait(profile, began_ns, Caller::Plain) };
                kernel::now_ns() - began_ns
            })
            .collect();
        took_ns.sort_unstable();
        assert!(took_ns[0] >= 300_000, "{}", took_ns[0]);
        assert!(took_ns[100] < 30_000_000, "{}", took_ns[100]);
    }
}

//! Sleep until a moment: in the kernel as long as is safe, then awake.

mod guard;
mod outcome;
mod sleeper;

pub use guard::Guard;
pub use outcome::{Cause, Rule, SleepError, Wake};
pub use sleeper::Sleeper;

/// Slack of the sleeping thread's timer in nanoseconds; zero would mean the thread's default.
const LEAST_SLACK: libc::c_ulong = 1;

/// Sleeps in the kernel until `CLOCK_MONOTONIC` shows `deadline_ns`; false when a signal ended the sleep.
///
/// The thread's timer slack is set to 1 ns for the sleep and restored after it: two or three short system calls beside
/// a sleep of at least a guard's length.  Safe in a signal handler; `errno` is kept.
pub(crate) fn in_kernel_until(deadline_ns: u64) -> bool {
    let time = libc::timespec {
        tv_sec: (deadline_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (deadline_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: prctl with these numbers touches only the calling thread's slack; clock_nanosleep reads one timespec and
    // with TIMER_ABSTIME writes none; errno is the calling thread's own.
    unsafe {
        let errno = *libc::__errno_location();
        let slack = libc::prctl(libc::PR_GET_TIMERSLACK, 0, 0, 0, 0);
        let change = slack > LEAST_SLACK as libc::c_int;
        if change {
            libc::prctl(libc::PR_SET_TIMERSLACK, LEAST_SLACK, 0, 0, 0);
        }
        // The raw system call: a library that replaces clock_nanosleep by this sleep must not find itself here.
        let status = libc::syscall(
            libc::SYS_clock_nanosleep,
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const time,
            core::ptr::null_mut::<libc::timespec>(),
        );
        let interrupted = status != 0 && *libc::__errno_location() == libc::EINTR;
        if change {
            libc::prctl(libc::PR_SET_TIMERSLACK, slack as libc::c_ulong, 0, 0, 0);
        }
        *libc::__errno_location() = errno;
        !interrupted
    }
}

//! What the shim asks the kernel by itself, without libc.

use libc::{c_int, timespec};

pub use interpose::{call, libc_result, set_errno, timespec_of};

/// Reads a clock by system call; the result is zero or a negative error number.
///
/// # Safety
/// `time` is null or writable.
pub unsafe fn clock_gettime(clock: c_int, time: *mut timespec) -> c_int {
    // SAFETY: the caller's promise; the kernel checks pointers.
    unsafe { call(libc::SYS_clock_gettime, [clock as usize, time as usize]) as c_int }
}

/// Sleeps by system call; the result is zero or a *positive* error number, as `clock_nanosleep` has it.
///
/// # Safety
/// The pointers are null or valid.
pub unsafe fn clock_nanosleep(clock: c_int, flags: c_int, request: *const timespec, remaining: *mut timespec) -> c_int {
    let arguments = [clock as usize, flags as usize, request as usize, remaining as usize];
    // SAFETY: the caller's promise; the kernel checks pointers.
    unsafe { -(call(libc::SYS_clock_nanosleep, arguments) as c_int) }
}

/// The process's number, not cached by anyone.
#[must_use]
pub fn process() -> i32 {
    // SAFETY: no arguments.
    unsafe { call(libc::SYS_getpid, []) as i32 }
}

/// A time in nanoseconds; `None` where it is not a valid time, or so large that nanoseconds do not hold it with room.
#[must_use]
pub fn nanoseconds(time: timespec) -> Option<u64> {
    const LARGEST_S: i64 = 1 << 32;
    ((0..LARGEST_S).contains(&time.tv_sec) && (0..1_000_000_000).contains(&time.tv_nsec))
        .then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_out_of_range_are_nobodys_nanoseconds() {
        for (tv_sec, tv_nsec) in [(-1, 0), (0, -1), (0, 1_000_000_000), (i64::MAX, 0), (1 << 32, 0)] {
            assert_eq!(nanoseconds(timespec { tv_sec, tv_nsec }), None);
        }
        assert_eq!(nanoseconds(timespec { tv_sec: 2, tv_nsec: 999_999_999 }), Some(2_999_999_999));
    }

    #[test]
    fn a_refused_call_gives_the_error_number_and_leaves_errno_alone() {
        set_errno(7);
        let mut time = timespec_of(0);
        // SAFETY: valid pointers.
        unsafe {
            assert_eq!(clock_gettime(4242, &raw mut time), -libc::EINVAL);
            let request = timespec { tv_sec: 0, tv_nsec: -1 };
            assert_eq!(
                clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &raw const request, core::ptr::null_mut()),
                libc::EINVAL
            );
            assert_eq!(*libc::__errno_location(), 7);
        }
    }
}

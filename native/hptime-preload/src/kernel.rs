//! System calls without libc: no `errno`, no cancellation, and no way back into the shim.

use libc::{c_int, c_long, timespec};

/// Makes a system call and returns the kernel's own result: negative is an error number.
///
/// # Safety
/// As the call itself.
#[cfg(target_arch = "x86_64")]
#[inline]
#[allow(clippy::must_use_candidate, reason = "some calls are made for their effect only")]
pub unsafe fn call(number: c_long, arguments: [usize; 4]) -> isize {
    let result: isize;
    // SAFETY: the x86-64 convention; the kernel clobbers rcx and r11.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack)
        );
    }
    result
}

/// Makes a system call and returns the kernel's own result: negative is an error number.
///
/// # Safety
/// As the call itself.
#[cfg(not(target_arch = "x86_64"))]
#[allow(clippy::must_use_candidate, reason = "some calls are made for their effect only")]
pub unsafe fn call(number: c_long, arguments: [usize; 4]) -> isize {
    // SAFETY: the caller's promise; errno is this thread's own.
    unsafe {
        let before = *libc::__errno_location();
        let result = libc::syscall(number, arguments[0], arguments[1], arguments[2], arguments[3]) as isize;
        let result = if result == -1 { -(*libc::__errno_location() as isize) } else { result };
        *libc::__errno_location() = before;
        result
    }
}

/// Reads a clock by system call; the result is zero or a negative error number.
///
/// # Safety
/// `time` is null or writable.
pub unsafe fn clock_gettime(clock: c_int, time: *mut timespec) -> c_int {
    // SAFETY: the caller's promise; the kernel checks pointers.
    unsafe { call(libc::SYS_clock_gettime, [clock as usize, time as usize, 0, 0]) as c_int }
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
    unsafe { call(libc::SYS_getpid, [0; 4]) as i32 }
}

/// Sets this thread's `errno`.
pub fn set_errno(error: c_int) {
    // SAFETY: libc's pointer to this thread's own variable.
    unsafe { *libc::__errno_location() = error };
}

/// A time in nanoseconds; `None` where it is not a valid time, or so large that nanoseconds do not hold it with room.
#[must_use]
pub fn nanoseconds(time: timespec) -> Option<u64> {
    const LARGEST_S: i64 = 1 << 32;
    ((0..LARGEST_S).contains(&time.tv_sec) && (0..1_000_000_000).contains(&time.tv_nsec))
        .then(|| time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Nanoseconds as libc has them.
#[inline]
#[must_use]
pub fn timespec_of(ns: u64) -> timespec {
    timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
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

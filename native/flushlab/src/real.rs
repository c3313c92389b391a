//! The functions that would have been called without the laboratory.
//!
//! They are looked up once, in the constructor: `dlsym` is not async-signal-safe.  Before that, the kernel is asked.

use core::ffi::CStr;
use core::mem::transmute;
use core::ptr::null_mut;

use interpose::Next;
use libc::{c_char, c_int, c_uint, c_void, iovec, mode_t, off_t, size_t, ssize_t, timespec};

use crate::kernel;

macro_rules! next_functions {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty, else $number:expr => [$($raw:expr),*];)*) => {
        /// Looks all of them up.
        pub fn look_up() {
            $(next::$name.look_up(
                // SAFETY: a name of C, which has no zero within.
                unsafe { CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes()) }
            );)*
        }

        #[allow(non_upper_case_globals, reason = "each is named as its function")]
        mod next {
            use super::Next;
            $(pub(super) static $name: Next = Next::unknown();)*
        }

        $(
            /// # Safety
            /// As libc's.
            #[inline]
            pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
                type Function = unsafe extern "C-unwind" fn($($type),*) -> $result;
                // SAFETY: the symbol has this type; the caller's promise for the arguments.
                unsafe {
                    match next::$name.get() {
                        Some(next) => transmute::<*mut c_void, Function>(next)($($argument),*),
                        None => kernel::libc_result(kernel::call($number, [$($raw as usize),*])) as $result,
                    }
                }
            }
        )*
    };
}

next_functions! {
    fsync(fd: c_int) -> c_int, else libc::SYS_fsync => [fd];
    fdatasync(fd: c_int) -> c_int, else libc::SYS_fdatasync => [fd];
    syncfs(fd: c_int) -> c_int, else libc::SYS_syncfs => [fd];
    msync(at: *mut c_void, size: size_t, flags: c_int) -> c_int, else libc::SYS_msync => [at, size, flags];
    sync_file_range(fd: c_int, offset: off_t, size: off_t, flags: c_uint) -> c_int,
        else libc::SYS_sync_file_range => [fd, offset, size, flags];

    write(fd: c_int, data: *const c_void, size: size_t) -> ssize_t, else libc::SYS_write => [fd, data, size];
    pwrite(fd: c_int, data: *const c_void, size: size_t, offset: off_t) -> ssize_t,
        else libc::SYS_pwrite64 => [fd, data, size, offset];
    writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t, else libc::SYS_writev => [fd, parts, count];
    pwritev(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t,
        else libc::SYS_pwritev => [fd, parts, count, offset];
    pwritev2(fd: c_int, parts: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t,
        else libc::SYS_pwritev2 => [fd, parts, count, offset, 0, flags];

    openat(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int,
        else libc::SYS_openat => [folder, path, flags, mode];
}

type Void = unsafe extern "C-unwind" fn();
type Sleep = unsafe extern "C-unwind" fn(c_int, c_int, *const timespec, *mut timespec) -> c_int;

static SYNC: Next = Next::unknown();
static TESTCANCEL: Next = Next::unknown();
static CLOCK_NANOSLEEP: Next = Next::unknown();

/// The real `syscall`; null where the laboratory has to make system calls itself.
pub static SYSCALL: Next = Next::unknown();

/// Looks up those that differ from the others.
pub fn look_up_others() {
    SYNC.look_up(c"sync");
    TESTCANCEL.look_up(c"pthread_testcancel");
    CLOCK_NANOSLEEP.look_up(c"clock_nanosleep");
    SYSCALL.look_up(c"syscall");
}

/// # Safety
/// As libc's.
pub unsafe extern "C-unwind" fn sync() {
    // SAFETY: the symbol has this type; the call has no arguments.
    unsafe {
        match SYNC.get() {
            Some(next) => transmute::<*mut c_void, Void>(next)(),
            None => _ = kernel::call(libc::SYS_sync, []),
        }
    }
}

/// Acts upon a cancellation that waits for this thread.  Does not return if there is one.
///
/// # Safety
/// No frame up to the program's own may have anything to drop.
pub unsafe extern "C-unwind" fn testcancel() {
    if let Some(next) = TESTCANCEL.get() {
        // SAFETY: the symbol has this type; the caller's promise.
        unsafe { transmute::<*mut c_void, Void>(next)() }
    }
}

/// Sleeps until a time of `CLOCK_MONOTONIC`, as a cancellation point; the result is zero or an error number.
///
/// # Safety
/// No frame up to the program's own may have anything to drop.
pub unsafe extern "C-unwind" fn sleep_until(deadline: *const timespec) -> c_int {
    // SAFETY: the symbol has this type; the caller's promise.
    unsafe {
        match CLOCK_NANOSLEEP.get() {
            Some(next) => {
                transmute::<*mut c_void, Sleep>(next)(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, deadline, null_mut())
            }
            None => uncancelled_sleep_until(deadline),
        }
    }
}

/// The same, but for a caller that is no cancellation point.
///
/// # Safety
/// The deadline is readable.
#[must_use]
pub unsafe extern "C-unwind" fn uncancelled_sleep_until(deadline: *const timespec) -> c_int {
    let arguments = [libc::CLOCK_MONOTONIC as usize, libc::TIMER_ABSTIME as usize, deadline as usize];
    // SAFETY: the caller's promise.
    unsafe { -(kernel::call(libc::SYS_clock_nanosleep, arguments) as c_int) }
}

//! The functions that would have been called without the shim.
//!
//! They are looked up once, in the constructor: `dlsym` is not async-signal-safe.  Before that, the kernel is asked.

use core::mem::transmute;
use core::ptr::null_mut;

use interpose::Next;
use libc::{c_int, c_uint, c_void, time_t, timespec, timeval, timezone, useconds_t};

use crate::kernel;

static CLOCK_GETTIME: Next = Next::unknown();
static GETTIMEOFDAY: Next = Next::unknown();
static TIME: Next = Next::unknown();
static NANOSLEEP: Next = Next::unknown();
static CLOCK_NANOSLEEP: Next = Next::unknown();
static USLEEP: Next = Next::unknown();
static SLEEP: Next = Next::unknown();
static EXIT: Next = Next::unknown();
static TESTCANCEL: Next = Next::unknown();

/// The real `syscall`; null where the shim has to make system calls itself.
pub static SYSCALL: Next = Next::unknown();

/// Looks all of them up.
pub fn look_up() {
    CLOCK_GETTIME.look_up(c"clock_gettime");
    GETTIMEOFDAY.look_up(c"gettimeofday");
    TIME.look_up(c"time");
    NANOSLEEP.look_up(c"nanosleep");
    CLOCK_NANOSLEEP.look_up(c"clock_nanosleep");
    USLEEP.look_up(c"usleep");
    SLEEP.look_up(c"sleep");
    EXIT.look_up(c"_exit");
    TESTCANCEL.look_up(c"pthread_testcancel");
    SYSCALL.look_up(c"syscall");
}

/// # Safety
/// As libc's.
#[inline]
pub unsafe extern "C-unwind" fn clock_gettime(clock: c_int, time: *mut timespec) -> c_int {
    // SAFETY: the symbol has this type; the caller's promise for the arguments.
    unsafe {
        match CLOCK_GETTIME.get() {
            Some(next) => {
                transmute::<*mut c_void, unsafe extern "C" fn(c_int, *mut timespec) -> c_int>(next)(clock, time)
            }
            None => kernel::libc_result(kernel::clock_gettime(clock, time) as isize) as c_int,
        }
    }
}

/// # Safety
/// As libc's.
pub unsafe extern "C-unwind" fn gettimeofday(time: *mut timeval, zone: *mut timezone) -> c_int {
    // SAFETY: the symbol has this type; the caller's promise for the arguments.
    unsafe {
        match GETTIMEOFDAY.get() {
            Some(next) => {
                transmute::<*mut c_void, unsafe extern "C" fn(*mut timeval, *mut timezone) -> c_int>(next)(time, zone)
            }
            None => kernel::libc_result(kernel::call(libc::SYS_gettimeofday, [time as usize, zone as usize])) as c_int,
        }
    }
}

/// # Safety
/// As libc's.
pub unsafe extern "C-unwind" fn time(time: *mut time_t) -> time_t {
    // SAFETY: the symbol has this type; the caller's promise for the arguments.
    unsafe {
        if let Some(next) = TIME.get() {
            return transmute::<*mut c_void, unsafe extern "C" fn(*mut time_t) -> time_t>(next)(time);
        }
        let mut now = kernel::timespec_of(0);
        kernel::clock_gettime(libc::CLOCK_REALTIME, &raw mut now);
        if !time.is_null() {
            *time = now.tv_sec;
        }
        now.tv_sec
    }
}

/// # Safety
/// As libc's.
pub unsafe extern "C-unwind" fn nanosleep(request: *const timespec, remaining: *mut timespec) -> c_int {
    // SAFETY: the symbol has this type; the caller's promise for the arguments.
    unsafe {
        match NANOSLEEP.get() {
            Some(next) => {
                transmute::<*mut c_void, unsafe extern "C-unwind" fn(*const timespec, *mut timespec) -> c_int>(next)(
                    request, remaining,
                )
            }
            None => {
                kernel::libc_result(kernel::call(libc::SYS_nanosleep, [request as usize, remaining as usize])) as c_int
            }
        }
    }
}

/// # Safety
/// As libc's.
pub unsafe extern "C-unwind" fn clock_nanosleep(
    clock: c_int,
    flags: c_int,
    request: *const timespec,
    remaining: *mut timespec,
) -> c_int {
    type Function = unsafe extern "C-unwind" fn(c_int, c_int, *const timespec, *mut timespec) -> c_int;
    // SAFETY: the symbol has this type; the caller's promise for the arguments.
    unsafe {
        match CLOCK_NANOSLEEP.get() {
            Some(next) => transmute::<*mut c_void, Function>(next)(clock, flags, request, remaining),
            None => kernel::clock_nanosleep(clock, flags, request, remaining),
        }
    }
}

/// # Safety
/// As libc's.
pub unsafe extern "C-unwind" fn usleep(us: useconds_t) -> c_int {
    // SAFETY: the symbol has this type.
    unsafe {
        if let Some(next) = USLEEP.get() {
            return transmute::<*mut c_void, unsafe extern "C-unwind" fn(useconds_t) -> c_int>(next)(us);
        }
        let request = kernel::timespec_of(u64::from(us) * 1000);
        nanosleep(&raw const request, null_mut())
    }
}

/// # Safety
/// As libc's.
pub unsafe extern "C-unwind" fn sleep(seconds: c_uint) -> c_uint {
    // SAFETY: the symbol has this type.
    unsafe {
        if let Some(next) = SLEEP.get() {
            return transmute::<*mut c_void, unsafe extern "C-unwind" fn(c_uint) -> c_uint>(next)(seconds);
        }
        let mut request = kernel::timespec_of(u64::from(seconds) * 1_000_000_000);
        if nanosleep(&raw const request, &raw mut request) == 0 { 0 } else { request.tv_sec as c_uint }
    }
}

/// Ends the process.
pub fn exit(status: c_int) -> ! {
    // SAFETY: the symbol has this type; neither returns.
    unsafe {
        if let Some(next) = EXIT.get() {
            transmute::<*mut c_void, unsafe extern "C" fn(c_int) -> !>(next)(status);
        }
        loop {
            kernel::call(libc::SYS_exit_group, [status as usize]);
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
        unsafe { transmute::<*mut c_void, unsafe extern "C-unwind" fn()>(next)() }
    }
}

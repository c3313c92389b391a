//! The functions in libc's place, and the `syscall()` forms.
//!
//! What is unusual goes to the real function, whose errors are then libc's own.  The kernel refuses addresses that are nobody's
//! with `EFAULT`, where the functions would crash: of the `syscall()` forms, those that it is sure to refuse are left to it.

#![allow(clippy::must_use_candidate, reason = "a program may ignore what libc's functions return")]

use core::ptr::null_mut;

use libc::{c_int, c_uint, time_t, timespec, timeval, timezone, useconds_t};

use crate::counters::{self, Entry};
use crate::settings::{Rule, rule};
use crate::timekeeper::{Served, serving};
use crate::{kernel, lifecycle, real, sleep};

/// # Safety
/// As libc's.
#[cfg_attr(not(target_feature = "crt-static"), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn clock_gettime(clock: c_int, time: *mut timespec) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if read_clock(clock, time) {
            counters::served(Entry::ClockGettime);
            return 0;
        }
        counters::passed(Entry::ClockGettime);
        real::clock_gettime(clock, time)
    }
}

/// Writes the time of a clock that is served; false where it is not.
#[inline(always)]
unsafe fn read_clock(clock: c_int, time: *mut timespec) -> bool {
    let Some(served) = Served::numbered(clock) else {
        return false;
    };
    if !serving() || time.is_null() {
        return false;
    }
    // SAFETY: the caller's promise; not null.
    unsafe { *time = kernel::timespec_of(served.now_ns()) };
    true
}

/// # Safety
/// As libc's.
#[cfg_attr(not(target_feature = "crt-static"), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn gettimeofday(time: *mut timeval, zone: *mut timezone) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if read_time_of_day(time, zone) {
            counters::served(Entry::Gettimeofday);
            return 0;
        }
        counters::passed(Entry::Gettimeofday);
        real::gettimeofday(time, zone)
    }
}

#[inline(always)]
unsafe fn read_time_of_day(time: *mut timeval, zone: *mut timezone) -> bool {
    if !serving() || time.is_null() || !zone.is_null() {
        return false;
    }
    let us = Served::Realtime.now_ns() / 1000;
    // SAFETY: the caller's promise; not null.
    unsafe { *time = timeval { tv_sec: (us / 1_000_000) as time_t, tv_usec: (us % 1_000_000) as i64 } };
    true
}

/// # Safety
/// As libc's.
#[cfg_attr(not(target_feature = "crt-static"), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn time(time: *mut time_t) -> time_t {
    // SAFETY: the caller's promise.
    unsafe {
        // The C library reads the kernel's whole seconds from memory: no counter is as quick.
        counters::passed(Entry::Time);
        real::time(time)
    }
}

/// How a call for sleep is dealt with.
enum Sleep {
    /// It is unusual: the real function's.
    Pass,
    /// It was served, with this error number or zero.
    Done(c_int),
}

/// Serves a sleep if it is one of those that are served.
///
/// # Safety
/// As `clock_nanosleep`; the thread may be cancelled here.
unsafe fn serve_sleep(clock: c_int, flags: c_int, request: *const timespec, remaining: *mut timespec) -> Sleep {
    let (Some(served), false) = (Served::numbered(clock), request.is_null()) else {
        return Sleep::Pass;
    };
    if !serving() || rule() == Rule::Os || flags & !libc::TIMER_ABSTIME != 0 {
        return Sleep::Pass;
    }
    // SAFETY: the caller's promise; not null.
    let Some(ns) = kernel::nanoseconds(unsafe { *request }) else {
        return Sleep::Pass;
    };
    if flags & libc::TIMER_ABSTIME != 0 {
        // SAFETY: the caller's promise.
        return Sleep::Done(unsafe { sleep::until(served, ns) });
    }
    if ns == 0 {
        return Sleep::Pass; // a yield
    }
    // A step of the real-time clock does not change how long a relative sleep takes.
    let deadline = Served::Monotonic.now_ns() + ns;
    // SAFETY: the caller's promise.
    let error = unsafe { sleep::until(Served::Monotonic, deadline) };
    if error != libc::EINTR {
        return Sleep::Done(error);
    }
    let left = deadline.saturating_sub(Served::Monotonic.now_ns());
    if left == 0 {
        return Sleep::Done(0); // as the kernel has it: the time was up when the signal came
    }
    if !remaining.is_null() {
        // SAFETY: the caller's promise; not null.
        unsafe { *remaining = kernel::timespec_of(left) };
    }
    Sleep::Done(libc::EINTR)
}

/// An error number in the form of most functions.
fn minus_one(error: c_int) -> c_int {
    if error == 0 {
        return 0;
    }
    kernel::set_errno(error);
    -1
}

/// # Safety
/// As libc's.
#[cfg_attr(not(target_feature = "crt-static"), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn nanosleep(request: *const timespec, remaining: *mut timespec) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if let Sleep::Done(error) = serve_sleep(libc::CLOCK_MONOTONIC, 0, request, remaining) {
            counters::served(Entry::Nanosleep);
            return minus_one(error);
        }
        counters::passed(Entry::Nanosleep);
        real::nanosleep(request, remaining)
    }
}

/// # Safety
/// As libc's.
#[cfg_attr(not(target_feature = "crt-static"), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn clock_nanosleep(
    clock: c_int,
    flags: c_int,
    request: *const timespec,
    remaining: *mut timespec,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if let Sleep::Done(error) = serve_sleep(clock, flags, request, remaining) {
            counters::served(Entry::ClockNanosleep);
            return error;
        }
        counters::passed(Entry::ClockNanosleep);
        real::clock_nanosleep(clock, flags, request, remaining)
    }
}

/// # Safety
/// As libc's.
#[cfg_attr(not(target_feature = "crt-static"), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn usleep(us: useconds_t) -> c_int {
    let request = kernel::timespec_of(u64::from(us) * 1000);
    // SAFETY: the request lives.
    unsafe {
        if let Sleep::Done(error) = serve_sleep(libc::CLOCK_MONOTONIC, 0, &raw const request, null_mut()) {
            counters::served(Entry::Usleep);
            return minus_one(error);
        }
        counters::passed(Entry::Usleep);
        real::usleep(us)
    }
}

/// # Safety
/// As libc's.
#[cfg_attr(not(target_feature = "crt-static"), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sleep(seconds: c_uint) -> c_uint {
    let mut request = timespec { tv_sec: i64::from(seconds), tv_nsec: 0 };
    // SAFETY: the request lives.
    unsafe {
        if let Sleep::Done(error) = serve_sleep(libc::CLOCK_MONOTONIC, 0, &raw const request, &raw mut request) {
            counters::served(Entry::Sleep);
            // Whole seconds that remain, as libc has it; `errno` tells of a signal.
            return if minus_one(error) == 0 { 0 } else { request.tv_sec as c_uint };
        }
        counters::passed(Entry::Sleep);
        real::sleep(seconds)
    }
}

/// # Safety
/// As libc's.
#[cfg_attr(not(target_feature = "crt-static"), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn _exit(status: c_int) -> ! {
    lifecycle::end();
    real::exit(status)
}

/// # Safety
/// As libc's.
#[cfg_attr(not(target_feature = "crt-static"), unsafe(no_mangle))]
#[allow(non_snake_case, reason = "the C standard's name")]
pub unsafe extern "C-unwind" fn _Exit(status: c_int) -> ! {
    lifecycle::end();
    real::exit(status)
}

/// Whether the kernel is sure to refuse the address: in the first page, or not in a program's half.
fn refused<T>(address: *const T) -> bool {
    address.addr() < 4096 || address.addr() > isize::MAX as usize - size_of::<T>()
}

fn refused_unless_null<T>(address: *const T) -> bool {
    !address.is_null() && refused(address)
}

fn answer(served: bool, entry: Entry, number: i64, arguments: [usize; 4]) -> isize {
    if served {
        counters::served(entry);
        return 0;
    }
    counters::passed(entry);
    // SAFETY: the program's own call.
    unsafe { kernel::call(number, arguments) }
}

/// Serves one of the five numbers that `syscall()` sends here, in libc's form: −1 and `errno`.
///
/// # Safety
/// As the system call.
#[must_use]
pub unsafe extern "C-unwind" fn serve(number: i64, first: usize, second: usize, third: usize, fourth: usize) -> isize {
    let arguments = [first, second, third, fourth];
    // SAFETY: the caller's promise.
    let found = unsafe {
        match number {
            libc::SYS_clock_gettime => {
                let time = second as *mut timespec;
                let served = !refused(time) && read_clock(first as c_int, time);
                answer(served, Entry::SyscallClockGettime, number, arguments)
            }
            libc::SYS_gettimeofday => {
                let (time, zone) = (first as *mut timeval, second as *mut timezone);
                let served = !refused(time) && read_time_of_day(time, zone);
                answer(served, Entry::SyscallGettimeofday, number, arguments)
            }
            libc::SYS_nanosleep => {
                let entry = Entry::SyscallNanosleep;
                sleep_by_number(entry, number, arguments, [libc::CLOCK_MONOTONIC as usize, 0, first, second])
            }
            libc::SYS_clock_nanosleep => sleep_by_number(Entry::SyscallClockNanosleep, number, arguments, arguments),
            _ => {
                let address = first as *mut time_t;
                if serving() && !refused_unless_null(address) {
                    counters::served(Entry::SyscallTime);
                    return real::time(address) as isize; // as the kernel would answer, without a system call
                }
                answer(false, Entry::SyscallTime, number, arguments)
            }
        }
    };
    kernel::libc_result(found)
}

unsafe fn sleep_by_number(entry: Entry, number: i64, arguments: [usize; 4], as_clock: [usize; 4]) -> isize {
    let [clock, flags, request, remaining] = as_clock;
    let (request, remaining) = (request as *const timespec, remaining as *mut timespec);
    if !refused(request) && !refused_unless_null(remaining) {
        // SAFETY: the caller's promise.
        if let Sleep::Done(error) = unsafe { serve_sleep(clock as c_int, flags as c_int, request, remaining) } {
            counters::served(entry);
            return -(error as isize);
        }
    }
    answer(false, entry, number, arguments)
}

interpose::syscall_by_number!(
    "hptime_preload_syscall",
    [SYS_clock_gettime, SYS_gettimeofday, SYS_time, SYS_nanosleep, SYS_clock_nanosleep],
    crate::entry::serve,
    crate::real::SYSCALL
);

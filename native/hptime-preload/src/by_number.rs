//! The `syscall()` forms.
//!
//! The kernel refuses addresses that are nobody's with `EFAULT`, where the functions would crash: those that it is sure to
//! refuse are left to it.

use libc::{c_int, time_t, timespec, timeval, timezone};

use crate::counters::{self, Entry};
use crate::entry::{Sleep, read_clock, read_time_of_day, serve_sleep};
use crate::timekeeper::serving;
use crate::{kernel, real};

/// Whether the kernel is sure to refuse the address: in the first page, or not in a program's half.
fn refused<T>(address: *const T) -> bool {
    address.addr() < 4096 || address.addr() > isize::MAX as usize - size_of::<T>()
}

fn refused_unless_null<T>(address: *const T) -> bool {
    !address.is_null() && refused(address)
}

fn result(served: bool, entry: Entry, number: i64, arguments: [usize; 4]) -> isize {
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
                result(served, Entry::SyscallClockGettime, number, arguments)
            }
            libc::SYS_gettimeofday => {
                let (time, zone) = (first as *mut timeval, second as *mut timezone);
                let served = !refused(time) && read_time_of_day(time, zone);
                result(served, Entry::SyscallGettimeofday, number, arguments)
            }
            libc::SYS_nanosleep => {
                let entry = Entry::SyscallNanosleep;
                sleep(entry, number, arguments, [libc::CLOCK_MONOTONIC as usize, 0, first, second])
            }
            libc::SYS_clock_nanosleep => sleep(Entry::SyscallClockNanosleep, number, arguments, arguments),
            _ => {
                let address = first as *mut time_t;
                if serving() && !refused_unless_null(address) {
                    counters::served(Entry::SyscallTime);
                    return real::time(address) as isize; // as the kernel would answer, without a system call
                }
                result(false, Entry::SyscallTime, number, arguments)
            }
        }
    };
    kernel::libc_result(found)
}

unsafe fn sleep(entry: Entry, number: i64, arguments: [usize; 4], as_clock: [usize; 4]) -> isize {
    let [clock, flags, request, remaining] = as_clock;
    let (request, remaining) = (request as *const timespec, remaining as *mut timespec);
    if !refused(request) && !refused_unless_null(remaining) {
        // SAFETY: the caller's promise.
        if let Sleep::Done(error) = unsafe { serve_sleep(clock as c_int, flags as c_int, request, remaining) } {
            counters::served(entry);
            return -(error as isize);
        }
    }
    result(false, entry, number, arguments)
}

interpose::syscall_by_number!(
    "hptime_preload_syscall",
    [SYS_clock_gettime, SYS_gettimeofday, SYS_time, SYS_nanosleep, SYS_clock_nanosleep],
    crate::by_number::serve,
    crate::real::SYSCALL
);

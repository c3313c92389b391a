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

/// Serves one of the five numbers that the assembly below sends here; negative is an error number.
///
/// # Safety
/// As the system call.
#[must_use]
pub unsafe extern "C-unwind" fn serve(number: i64, first: usize, second: usize, third: usize, fourth: usize) -> isize {
    let arguments = [first, second, third, fourth];
    // SAFETY: the caller's promise.
    unsafe {
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
    }
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
/// `syscall()` itself, in assembly: a call that is not for the shim has to look as if the shim were not there, because
/// `vfork` and `clone` come back on the caller's own stack.
#[cfg(all(interpose, target_arch = "x86_64"))]
mod assembly {
    use libc::c_int;

    use crate::{kernel, real};

    core::arch::global_asm!(
        ".text",
        ".hidden hptime_preload_syscall",
        ".globl hptime_preload_syscall",
        ".type hptime_preload_syscall, @function",
        ".balign 16",
        "hptime_preload_syscall:",
        ".cfi_startproc",
        "cmp rdi, {clock_gettime}",
        "je 2f",
        "cmp rdi, {gettimeofday}",
        "je 2f",
        "cmp rdi, {time}",
        "je 2f",
        "cmp rdi, {nanosleep}",
        "je 2f",
        "cmp rdi, {clock_nanosleep}",
        "je 2f",
        "mov rax, qword ptr [rip + {next}]",
        "test rax, rax",
        "jz 4f",
        "jmp rax",
        "2:",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {serve}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "3:",
        "cmp rax, -4095",
        "jae 5f",
        "ret",
        "4:", // before the constructor: as libc does it
        "mov rax, rdi",
        "mov rdi, rsi",
        "mov rsi, rdx",
        "mov rdx, rcx",
        "mov r10, r8",
        "mov r8, r9",
        "mov r9, qword ptr [rsp + 8]",
        "syscall",
        "jmp 3b",
        "5:",
        "mov edi, eax",
        "neg edi",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {fail}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "mov rax, -1",
        "ret",
        ".cfi_endproc",
        ".size hptime_preload_syscall, . - hptime_preload_syscall",
        clock_gettime = const libc::SYS_clock_gettime,
        gettimeofday = const libc::SYS_gettimeofday,
        time = const libc::SYS_time,
        nanosleep = const libc::SYS_nanosleep,
        clock_nanosleep = const libc::SYS_clock_nanosleep,
        next = sym real::SYSCALL,
        serve = sym super::serve,
        fail = sym fail,
    );

    unsafe extern "C" {
        fn hptime_preload_syscall();
    }

    extern "C" fn fail(error: c_int) {
        kernel::set_errno(error);
    }

    /// A jump and nothing else: the compiler exports only functions that it knows, and has nothing to save in this one.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn syscall() {
        // SAFETY: the arguments are where the caller put them; the target returns to the caller.
        unsafe {
            core::arch::asm!("jmp {}", sym hptime_preload_syscall, options(noreturn, nostack));
        }
    }
}

//! The `syscall()` forms.  They are no cancellation points.

use libc::{c_int, c_uint, c_void, off_t};

use crate::counters::Kind;
use crate::entry::{file_system_refusal, memory_refusal, range_refusal};
use crate::flush::Caller::Plain;
use crate::flush::{flush, refusal};
use crate::kernel;
use crate::writing::flagged;

/// Serves one of the numbers that `syscall()` sends here, in libc's form: −1 and `errno`.
///
/// # Safety
/// As the system call.
#[must_use]
pub unsafe extern "C-unwind" fn serve(
    number: i64,
    first: usize,
    second: usize,
    third: usize,
    fourth: usize,
    fifth: usize,
    sixth: usize,
) -> isize {
    let fd = first as c_int;
    // SAFETY: the caller's promise.
    let real = || unsafe { kernel::libc_result(kernel::call(number, [first, second, third, fourth, fifth, sixth])) };
    let flushed = || real() as c_int;
    // SAFETY: the caller's promise.
    let result = unsafe {
        match number {
            libc::SYS_fsync => flush(Kind::Fsync, Plain, || refusal(fd), flushed),
            libc::SYS_fdatasync => flush(Kind::Fdatasync, Plain, || refusal(fd), flushed),
            libc::SYS_syncfs => flush(Kind::Other, Plain, || file_system_refusal(fd), flushed),
            libc::SYS_sync => flush(Kind::Other, Plain, || 0, flushed),
            libc::SYS_msync if third as c_int & libc::MS_SYNC != 0 => {
                flush(Kind::Msync, Plain, || memory_refusal(first as *mut c_void, second, third as c_int), flushed)
            }
            libc::SYS_sync_file_range if fourth as c_uint & !libc::SYNC_FILE_RANGE_WRITE != 0 => {
                let check = || range_refusal(fd, second as off_t, third as off_t, fourth as c_uint);
                flush(Kind::Other, Plain, check, flushed)
            }
            libc::SYS_pwritev2 => {
                return flagged(fd, sixth as c_int, Plain, |flags| {
                    let arguments = [first, second, third, fourth, fifth, flags as usize];
                    kernel::libc_result(kernel::call(number, arguments))
                });
            }
            _ => return real(),
        }
    };
    result as isize
}

interpose::syscall_by_number!(
    "virtgauge_flushes_syscall",
    [SYS_fsync, SYS_fdatasync, SYS_msync, SYS_sync_file_range, SYS_syncfs, SYS_sync, SYS_pwritev2],
    crate::by_number::serve,
    crate::real::SYSCALL
);

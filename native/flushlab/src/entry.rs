//! The entry points that are flushes and nothing else, and the `syscall()` forms, which are no cancellation points.

#![allow(clippy::must_use_candidate, reason = "libc's functions have none")]

use libc::{c_int, c_uint, c_void, off_t, size_t};

use crate::counters::Kind;
use crate::flush::{Caller, flush, refusal};
use crate::writing::flagged;
use crate::{kernel, real};

const WAITS: c_uint = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
const RANGE_FLAGS: c_uint = WAITS | libc::SYNC_FILE_RANGE_WRITE;

/// # Safety
/// As libc's.
#[cfg_attr(not(target_feature = "crt-static"), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fsync(fd: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { flush(Kind::Fsync, Caller::CancellationPoint, || refusal(fd), || real::fsync(fd)) }
}

/// # Safety
/// As libc's.
#[cfg_attr(not(target_feature = "crt-static"), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fdatasync(fd: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { flush(Kind::Fdatasync, Caller::CancellationPoint, || refusal(fd), || real::fdatasync(fd)) }
}

/// # Safety
/// As libc's.
#[cfg_attr(not(target_feature = "crt-static"), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn syncfs(fd: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { flush(Kind::Other, Caller::Plain, || file_system_refusal(fd), || real::syncfs(fd)) }
}

/// Any descriptor names a file system, whatever it is of.
fn file_system_refusal(fd: c_int) -> c_int {
    let flags = kernel::status_flags(fd);
    if flags < 0 {
        -flags
    } else if flags & libc::O_PATH != 0 {
        libc::EBADF
    } else {
        0
    }
}

/// # Safety
/// As libc's.
#[cfg_attr(not(target_feature = "crt-static"), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sync() {
    // SAFETY: the caller's promise.
    unsafe {
        flush(
            Kind::Other,
            Caller::Plain,
            || 0,
            || {
                real::sync();
                0
            },
        );
    }
}

/// # Safety
/// As libc's.
#[cfg_attr(not(target_feature = "crt-static"), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn msync(at: *mut c_void, size: size_t, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if flags & libc::MS_SYNC == 0 {
            return real::msync(at, size, flags); // only a hint
        }
        flush(
            Kind::Msync,
            Caller::CancellationPoint,
            || memory_refusal(at, size, flags),
            || real::msync(at, size, flags),
        )
    }
}

/// With `MS_ASYNC` the kernel checks addresses just the same, and does nothing.
fn memory_refusal(at: *mut c_void, size: size_t, flags: c_int) -> c_int {
    if flags & libc::MS_ASYNC != 0 {
        return libc::EINVAL; // both at once
    }
    let checked = flags & !libc::MS_SYNC | libc::MS_ASYNC;
    // SAFETY: the kernel checks the address.
    -unsafe { kernel::call(libc::SYS_msync, [at as usize, size, checked as usize]) } as c_int
}

/// # Safety
/// As libc's.
#[cfg_attr(not(target_feature = "crt-static"), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sync_file_range(fd: c_int, offset: off_t, size: off_t, flags: c_uint) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if flags & WAITS == 0 {
            return real::sync_file_range(fd, offset, size, flags); // only begins to write
        }
        let real = || real::sync_file_range(fd, offset, size, flags);
        flush(Kind::Other, Caller::CancellationPoint, || range_refusal(fd, offset, size, flags), real)
    }
}

/// As the kernel has it, `fs/sync.c`; a pipe is refused with an error of its own.
fn range_refusal(fd: c_int, offset: off_t, size: off_t, flags: c_uint) -> c_int {
    match refusal(fd) {
        libc::EBADF => libc::EBADF,
        _ if !is_range(offset, size, flags) => libc::EINVAL,
        libc::EINVAL => libc::ESPIPE,
        other => other,
    }
}

/// Whether the arguments of `sync_file_range` are ones that the kernel accepts.
#[must_use]
pub fn is_range(offset: off_t, size: off_t, flags: c_uint) -> bool {
    flags & !RANGE_FLAGS == 0 && offset >= 0 && size >= 0 && offset.checked_add(size).is_some()
}

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
            libc::SYS_fsync => flush(Kind::Fsync, Caller::Plain, || refusal(fd), flushed),
            libc::SYS_fdatasync => flush(Kind::Fdatasync, Caller::Plain, || refusal(fd), flushed),
            libc::SYS_syncfs => flush(Kind::Other, Caller::Plain, || file_system_refusal(fd), flushed),
            libc::SYS_sync => flush(Kind::Other, Caller::Plain, || 0, flushed),
            libc::SYS_msync if third as c_int & libc::MS_SYNC != 0 => flush(
                Kind::Msync,
                Caller::Plain,
                || memory_refusal(first as *mut c_void, second, third as c_int),
                flushed,
            ),
            libc::SYS_sync_file_range if fourth as c_uint & !libc::SYNC_FILE_RANGE_WRITE != 0 => {
                let check = || range_refusal(fd, second as off_t, third as off_t, fourth as c_uint);
                flush(Kind::Other, Caller::Plain, check, flushed)
            }
            libc::SYS_pwritev2 => {
                return flagged(fd, sixth as c_int, Caller::Plain, |flags| {
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
    crate::entry::serve,
    crate::real::SYSCALL
);

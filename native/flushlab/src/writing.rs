//! Writes, of which some are flushes.

#![allow(clippy::must_use_candidate, reason = "libc's functions have none")]

use libc::{c_int, c_void, iovec, off_t, size_t, ssize_t};

use crate::counters::Kind;
use crate::flush::{Caller, laboratory, wait};
use crate::opening::may_flush_writes;
use crate::profile::Profile;
use crate::{kernel, real};

const FLUSHING: c_int = libc::RWF_SYNC | libc::RWF_DSYNC;

/// Writes, and waits for the profile's disk.
unsafe fn write_through(caller: Caller, real: impl FnOnce() -> ssize_t) -> ssize_t {
    let Some((counters, profile)) = laboratory() else {
        return real();
    };
    let began_ns = kernel::now_ns();
    let written = real();
    if written > 0 {
        if profile != Profile::AsIs {
            // SAFETY: the caller's promise.
            unsafe { wait(profile, kernel::now_ns(), caller) };
        }
        counters.count(Kind::SyncWrite, Some(kernel::now_ns() - began_ns));
    } else if written < 0 {
        counters.count_failure();
    }
    written
}

macro_rules! writes {
    ($($name:ident = $real:ident($($argument:ident: $type:ty),*);)*) => {
        $(
            /// # Safety
            /// As libc's.
            #[cfg_attr(not(target_feature = "crt-static"), unsafe(no_mangle))]
            pub unsafe extern "C-unwind" fn $name(fd: c_int, $($argument: $type),*) -> ssize_t {
                // SAFETY: the caller's promise.
                unsafe {
                    if may_flush_writes(fd) {
                        return write_through(Caller::CancellationPoint, || real::$real(fd, $($argument),*));
                    }
                    real::$real(fd, $($argument),*)
                }
            }
        )*
    };
}

writes! {
    write = write(data: *const c_void, size: size_t);
    pwrite = pwrite(data: *const c_void, size: size_t, offset: off_t);
    pwrite64 = pwrite(data: *const c_void, size: size_t, offset: off_t);
    writev = writev(parts: *const iovec, count: c_int);
    pwritev = pwritev(parts: *const iovec, count: c_int, offset: off_t);
    pwritev64 = pwritev(parts: *const iovec, count: c_int, offset: off_t);
}

/// # Safety
/// As libc's.
#[cfg_attr(not(target_feature = "crt-static"), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pwritev2(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe {
        let real = |flags| real::pwritev2(fd, parts, count, offset, flags);
        flagged(fd, flags, Caller::CancellationPoint, real)
    }
}

/// # Safety
/// As libc's.
#[cfg_attr(not(target_feature = "crt-static"), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pwritev64v2(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    offset: off_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { pwritev2(fd, parts, count, offset, flags) }
}

/// A write with flags of its own; `real` is given those that remain.
///
/// # Safety
/// As `real` and [`wait`].
pub(crate) unsafe fn flagged(fd: c_int, flags: c_int, caller: Caller, real: impl FnOnce(c_int) -> ssize_t) -> ssize_t {
    if flags & FLUSHING == 0 && !may_flush_writes(fd) {
        return real(flags);
    }
    let replaced = laboratory().is_some_and(|(_, profile)| profile != Profile::AsIs);
    let remaining = if replaced { flags & !FLUSHING } else { flags };
    // SAFETY: the caller's promise.
    unsafe { write_through(caller, || real(remaining)) }
}

//! Openings with `O_SYNC` or `O_DSYNC`, after which every write is a flush.
//!
//! Where a profile stands in for the disk, these flags are taken off, or the disk would be waited for as
//! well.  `O_ASYNC` takes their place: on regular files it means nothing, and it goes with the open file over `dup`,
//! `fork`, `exec` and to whomever the descriptor is sent, so that a write can tell by `F_GETFL`.

use core::sync::atomic::{AtomicBool, Ordering};

use libc::{c_char, c_int, mode_t};

use crate::flush::laboratory;
use crate::profile::Profile;
use crate::{kernel, real};

/// Whether this process ever had such a descriptor.  Until then, writes are not asked what they write to.
static SEEN: AtomicBool = AtomicBool::new(false);

const INHERITED: c_int = 256;

/// Looks through the descriptors that the process was started with.
pub fn look_through_inherited() {
    if (0..INHERITED).any(flushes_writes) {
        SEEN.store(true, Ordering::Relaxed);
    }
}

/// Whether a write to this descriptor may be a flush.
#[inline(always)]
pub fn may_flush_writes(descriptor: c_int) -> bool {
    SEEN.load(Ordering::Relaxed) && flushes_writes(descriptor)
}

fn flushes_writes(descriptor: c_int) -> bool {
    let flags = kernel::status_flags(descriptor);
    if flags < 0 || flags & (libc::O_DSYNC | libc::O_ASYNC) == 0 {
        return false;
    }
    matches!(kernel::file_type(descriptor), libc::S_IFREG | libc::S_IFBLK)
}

unsafe fn open_seen(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let mut given = flags;
    let flushes = flags & libc::O_DSYNC != 0; // a part of O_SYNC
    if let (true, Some((_, profile))) = (flushes, laboratory()) {
        SEEN.store(true, Ordering::Relaxed);
        if profile != Profile::AsIs {
            given = flags & !libc::O_SYNC | libc::O_ASYNC;
        }
    }
    // SAFETY: the caller's promise.
    unsafe { real::openat(folder, path, given, mode) }
}

macro_rules! openings {
    ($($name:ident[$($folder:ident)?][$($mode:ident)?];)*) => {
        $(
            /// # Safety
            /// As libc's.  The mode comes as a variadic argument, which is passed as any other.
            #[cfg_attr(not(target_feature = "crt-static"), unsafe(no_mangle))]
            pub unsafe extern "C-unwind" fn $name(
                $($folder: c_int,)? path: *const c_char, flags: c_int $(, $mode: mode_t)?
            ) -> c_int {
                let folder: &[c_int] = &[$($folder)?];
                let mode: &[mode_t] = &[$($mode)?];
                let folder = folder.first().copied().unwrap_or(libc::AT_FDCWD);
                // SAFETY: the caller's promise.
                unsafe { open_seen(folder, path, flags, mode.first().copied().unwrap_or(0)) }
            }
        )*
    };
}

/// Under the names of libc, those for large files and those of fortified programs among them.
#[allow(non_snake_case, reason = "libc's names")]
pub mod named {
    use libc::{c_char, c_int, mode_t};

    use super::open_seen;

    openings! {
        open[][mode];
        open64[][mode];
        openat[folder][mode];
        openat64[folder][mode];
        __open_2[][];
        __open64_2[][];
        __openat_2[folder][];
        __openat64_2[folder][];
    }
}

//! The counters' file: one page that every process of a laboratory maps.
//!
//! Little-endian, 4096 bytes.  At 0 stands the magic, at 8 and 16 the profile's two numbers, and from 64 on a counter
//! of 64 bits at every 64 bytes, in the order of [`NAMES`]; the rest is zero.

use core::sync::atomic::{AtomicU64, Ordering};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::profile::Profile;

/// Marks the file, and this layout of it.
pub const MAGIC: [u8; 8] = *b"VGFLUSH1";

/// Its size in bytes.
pub const SIZE: usize = 4096;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Kind {
    /// `fsync` that succeeded.
    Fsync,
    /// `fdatasync` that succeeded.
    Fdatasync,
    /// `msync` with `MS_SYNC` that succeeded.
    Msync,
    /// Writes that are flushes of their own: `O_SYNC`, `O_DSYNC`, `RWF_SYNC`, `RWF_DSYNC`.
    SyncWrite,
    /// `sync_file_range` that waits, `syncfs` and `sync`.
    Other,
}

/// The counters, in the file's order: the five kinds of flush, then what goes with them.
pub const NAMES: [&str; 9] =
    ["fsync", "fdatasync", "msync", "sync_writes", "other", "time_ns", "failed", "untimed", "dsync_opens"];

const TIME: usize = 5;
const FAILED: usize = 6;
const UNTIMED: usize = 7;
const DSYNC_OPENS: usize = 8;

#[repr(align(64))]
struct Counter(AtomicU64);

/// The file as it is in memory.
#[repr(C)]
pub struct Counters {
    magic: [u8; 8],
    profile: [u64; 2],
    values: [Counter; NAMES.len()],
}

impl Counters {
    /// Maps an open file; `None` if it is not one of counters.  Async-signal-safe.
    ///
    /// # Safety
    /// The file must not be made smaller.
    #[must_use]
    pub unsafe fn map(descriptor: i32) -> Option<&'static Self> {
        // SAFETY: a structure of integers.
        let mut status: libc::stat = unsafe { core::mem::zeroed() };
        // SAFETY: writable.
        if unsafe { libc::fstat(descriptor, &raw mut status) } != 0 || status.st_size < SIZE as i64 {
            return None;
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping.
        let page = unsafe { libc::mmap(core::ptr::null_mut(), SIZE, access, libc::MAP_SHARED, descriptor, 0) };
        if page == libc::MAP_FAILED {
            return None;
        }
        // SAFETY: the page is as large, aligned, stays mapped, and any bytes are valid.
        let counters = unsafe { &*page.cast::<Self>() };
        (counters.magic == MAGIC && counters.profile().is_some()).then_some(counters)
    }

    /// Which profile the laboratory has.
    #[inline]
    pub fn profile(&self) -> Option<Profile> {
        Profile::decoded(self.profile)
    }

    /// Counts a flush that took so long; `None` where that cannot be told.
    #[inline]
    pub fn count(&self, kind: Kind, elapsed_ns: Option<u64>) {
        self.add(kind as usize, 1);
        match elapsed_ns {
            Some(elapsed_ns) => self.add(TIME, elapsed_ns),
            None => self.add(UNTIMED, 1),
        }
    }

    /// Uncounts a flush that nobody waited for in the end.
    pub fn take_back(&self, kind: Kind, elapsed_ns: Option<u64>) {
        self.add(kind as usize, 1_u64.wrapping_neg());
        match elapsed_ns {
            Some(elapsed_ns) => self.add(TIME, elapsed_ns.wrapping_neg()),
            None => self.add(UNTIMED, 1_u64.wrapping_neg()),
        }
    }

    /// Counts a flush that failed.
    pub fn count_failure(&self) {
        self.add(FAILED, 1);
    }

    /// Counts an opening with `O_SYNC` or `O_DSYNC` whose writes will not be seen.
    pub fn count_dsync_open(&self) {
        self.add(DSYNC_OPENS, 1);
    }

    fn add(&self, counter: usize, amount: u64) {
        self.values[counter].0.fetch_add(amount, Ordering::Relaxed);
    }

    /// What a counter stands at.
    #[must_use]
    pub fn value(&self, counter: usize) -> u64 {
        self.values[counter].0.load(Ordering::Relaxed)
    }
}

/// Makes the file, or takes one of the same profile, which goes on counting.  Everybody may write to it, because the
/// program may run as any user.
///
/// # Errors
/// In words: the file cannot be made, is something else, or counts under another profile.
pub fn create(path: &Path, profile: Profile) -> Result<File, String> {
    let failure = |error: io::Error| format!("{}: {error}", path.display());
    let mut options = File::options();
    options.read(true).write(true).custom_flags(libc::O_NOFOLLOW);
    // In folders such as /tmp another user's file may be opened, but not in words that would create it.
    let file = options.open(path).or_else(|_| options.create(true).open(path)).map_err(failure)?;
    // SAFETY: no addresses.  Another launcher may be making it at the same time.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } != 0 {
        return Err(failure(io::Error::last_os_error()));
    }
    if file.metadata().map_err(failure)?.len() == 0 {
        let mut page = [0; SIZE];
        page[..8].copy_from_slice(&MAGIC);
        for (number, at) in profile.encoded().into_iter().zip([8, 16]) {
            page[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        file.set_permissions(PermissionsExt::from_mode(0o666)).map_err(failure)?;
        file.write_all_at(&page, 0).map_err(failure)?;
    }
    // SAFETY: nobody makes such a file smaller.
    let Some(counters) = (unsafe { Counters::map(file.as_raw_fd()) }) else {
        return Err(format!("{}: it is there already, and is no file of flush counters", path.display()));
    };
    // Closing does not end the lock: the mapping holds the open file.
    // SAFETY: no addresses.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
    if counters.profile() != Some(profile) {
        let other = counters.profile().map_or_else(String::new, |other| other.to_string());
        return Err(format!("{}: it counts under the profile {other}; name a new file", path.display()));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("flushlab-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn counters_stand_where_their_readers_look() {
        let folder = folder("layout");
        let file = create(&folder.join("counters"), Profile::Latency { us: 258 }).unwrap();
        // SAFETY: it keeps its size.
        let counters = unsafe { Counters::map(file.as_raw_fd()) }.unwrap();
        counters.count(Kind::SyncWrite, Some(513));
        counters.count(Kind::Other, None);
        counters.count_failure();
        counters.count_dsync_open();
        let image = std::fs::read(folder.join("counters")).unwrap();
        let number = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().unwrap());
        assert_eq!((&image[..8], number(8), number(16)), (&MAGIC[..], 3, 258));
        let expected = [0, 0, 0, 1, 1, 513, 1, 1, 1];
        for (index, value) in expected.into_iter().enumerate() {
            assert_eq!((number(64 * (index + 1)), counters.value(index)), (value, value), "{}", NAMES[index]);
        }
        assert_eq!(image.len(), SIZE);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn counting_goes_on_under_the_same_profile_and_never_over_something_else() {
        let folder = folder("again");
        let path = folder.join("counters");
        let first = create(&path, Profile::AtOnce).unwrap();
        // SAFETY: it keeps its size.
        unsafe { Counters::map(first.as_raw_fd()) }.unwrap().count(Kind::Fsync, Some(1));
        drop(first);
        let again = create(&path, Profile::AtOnce).unwrap();
        // SAFETY: it keeps its size.
        assert_eq!(unsafe { Counters::map(again.as_raw_fd()) }.unwrap().value(0), 1);
        drop(again);
        assert!(create(&path, Profile::AsIs).unwrap_err().contains("at-once"));
        std::fs::write(folder.join("letter"), b"dear reader").unwrap();
        assert!(create(&folder.join("letter"), Profile::AsIs).unwrap_err().contains("no file of flush counters"));
        assert_eq!(std::fs::read(folder.join("letter")).unwrap(), b"dear reader");
        std::fs::remove_dir_all(folder).unwrap();
    }
}

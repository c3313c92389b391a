//! What the laboratory asks the kernel by itself, without libc.

use libc::{c_int, timespec};

pub use interpose::{call, libc_result, set_errno, timespec_of};

/// A descriptor's status flags; negative is an error number.
#[must_use]
pub fn status_flags(descriptor: c_int) -> c_int {
    // SAFETY: no addresses.
    unsafe { call(libc::SYS_fcntl, [descriptor as usize, libc::F_GETFL as usize]) as c_int }
}

/// What kind of file a descriptor is of, as `S_IFMT` has it; zero where it cannot be told.
#[must_use]
pub fn file_type(descriptor: c_int) -> libc::mode_t {
    // SAFETY: a structure of integers.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the structure is writable, and has the kernel's layout on 64-bit machines.
    let result = unsafe { call(libc::SYS_fstat, [descriptor as usize, (&raw mut status) as usize]) };
    if result == 0 { status.st_mode & libc::S_IFMT } else { 0 }
}

/// The time of `CLOCK_MONOTONIC`.
#[inline]
#[must_use]
pub fn now_ns() -> u64 {
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writable; libc reads this clock without a system call, and from any context.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_tells_its_flags_and_its_kind() {
        assert_eq!(status_flags(-1), -libc::EBADF);
        assert_eq!(file_type(-1), 0);
        let file = std::fs::File::open("/").unwrap();
        assert_eq!(file_type(std::os::fd::AsRawFd::as_raw_fd(&file)), libc::S_IFDIR);
    }
}

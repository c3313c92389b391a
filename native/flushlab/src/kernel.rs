//! System calls without libc: no `errno`, no cancellation, and no way back into the laboratory.

use libc::{c_int, c_long, timespec};

/// Makes a system call and returns the kernel's own result: negative is an error number.
///
/// # Safety
/// As the call itself.
#[cfg(target_arch = "x86_64")]
#[inline]
#[allow(clippy::must_use_candidate, reason = "some calls are made for their effect only")]
pub unsafe fn call(number: c_long, arguments: [usize; 6]) -> isize {
    let result: isize;
    // SAFETY: the x86-64 convention; the kernel clobbers rcx and r11.
    unsafe {
        core::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack)
        );
    }
    result
}

/// Makes a system call and returns the kernel's own result: negative is an error number.
///
/// # Safety
/// As the call itself.
#[cfg(not(target_arch = "x86_64"))]
#[allow(clippy::must_use_candidate, reason = "some calls are made for their effect only")]
pub unsafe fn call(number: c_long, arguments: [usize; 6]) -> isize {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    // SAFETY: the caller's promise; errno is this thread's own.
    unsafe {
        let before = *libc::__errno_location();
        let result = libc::syscall(number, first, second, third, fourth, fifth, sixth) as isize;
        let result = if result == -1 { -(*libc::__errno_location() as isize) } else { result };
        *libc::__errno_location() = before;
        result
    }
}

/// Sets this thread's `errno`.
pub fn set_errno(error: c_int) {
    // SAFETY: libc's pointer to this thread's own variable.
    unsafe { *libc::__errno_location() = error };
}

/// Takes an error as the kernel gives it into libc's form: −1 and `errno`.
#[must_use]
pub fn libc_result(result: isize) -> isize {
    if result < 0 {
        set_errno(-result as c_int);
        return -1;
    }
    result
}

/// A descriptor's status flags; negative is an error number.
#[must_use]
pub fn status_flags(descriptor: c_int) -> c_int {
    // SAFETY: no addresses.
    unsafe { call(libc::SYS_fcntl, [descriptor as usize, libc::F_GETFL as usize, 0, 0, 0, 0]) as c_int }
}

/// What kind of file a descriptor is of, as `S_IFMT` has it; zero where it cannot be told.
#[must_use]
pub fn file_type(descriptor: c_int) -> libc::mode_t {
    // SAFETY: a structure of integers.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: the structure is writable, and has the kernel's layout on 64-bit machines.
    let result = unsafe { call(libc::SYS_fstat, [descriptor as usize, (&raw mut status) as usize, 0, 0, 0, 0]) };
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

/// Nanoseconds as libc has them.
#[must_use]
pub fn timespec_of(ns: u64) -> timespec {
    timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_six_arguments_arrive() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let descriptor = std::os::fd::AsRawFd::as_raw_fd(&file) as usize;
        // SAFETY: an anonymous place is chosen by the kernel; offset is the sixth argument.
        let at = |offset: usize| unsafe {
            call(libc::SYS_mmap, [0, 4096, libc::PROT_READ as usize, libc::MAP_PRIVATE as usize, descriptor, offset])
        };
        assert_eq!(at(1), -(libc::EINVAL as isize));
        let first = at(0);
        assert!(first > 0);
        // SAFETY: just mapped.
        assert_eq!(unsafe { core::slice::from_raw_parts(first as *const u8, 4) }, b"\x7fELF");
    }

    #[test]
    fn a_descriptor_tells_its_flags_and_its_kind() {
        assert_eq!(status_flags(-1), -libc::EBADF);
        assert_eq!(file_type(-1), 0);
        let file = std::fs::File::open("/").unwrap();
        assert_eq!(file_type(std::os::fd::AsRawFd::as_raw_fd(&file)), libc::S_IFDIR);
    }
}

//! System calls without libc: no `errno`, no cancellation, and no way back into the library.

use libc::{c_int, c_long, timespec};

/// Makes a system call and returns the kernel's own result: negative is an error number.
///
/// # Safety
/// As the call itself.
#[inline]
#[allow(clippy::must_use_candidate, reason = "some calls are made for their effect only")]
pub unsafe fn call<const COUNT: usize>(number: c_long, arguments: [usize; COUNT]) -> isize {
    const { assert!(COUNT <= 6) };
    let mut all = [0; 6];
    all[..COUNT].copy_from_slice(&arguments);
    // SAFETY: the caller's promise.
    unsafe { call_with_all(number, all) }
}

#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn call_with_all(number: c_long, arguments: [usize; 6]) -> isize {
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

#[cfg(not(target_arch = "x86_64"))]
unsafe fn call_with_all(number: c_long, arguments: [usize; 6]) -> isize {
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
#[inline]
#[must_use]
pub fn libc_result(result: isize) -> isize {
    if result < 0 {
        set_errno(-result as c_int);
        return -1;
    }
    result
}

/// Nanoseconds as libc has them.
#[inline]
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
    fn a_refused_call_gives_the_error_number_and_leaves_errno_alone() {
        set_errno(7);
        // SAFETY: there is no such descriptor.
        let refused = unsafe { call(libc::SYS_close, [usize::MAX]) };
        assert_eq!(refused, -(libc::EBADF as isize));
        // SAFETY: this thread's own variable.
        assert_eq!(unsafe { *libc::__errno_location() }, 7);
        assert_eq!(libc_result(refused), -1);
        // SAFETY: as above.
        assert_eq!(unsafe { *libc::__errno_location() }, libc::EBADF);
        assert_eq!(libc_result(3), 3);
    }
}

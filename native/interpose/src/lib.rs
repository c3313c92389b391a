//! What libraries have in common that take the place of libc's functions by `LD_PRELOAD`: system calls without libc, the
//! functions of the next library in line, and `syscall()` itself.
//!
//! Their entry points have libc's names only where the target has no `crt-static`: in a static executable there is nothing
//! to take the place of, and a second `fsync` or `clock_gettime` would not link.

use core::ffi::CStr;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};

use libc::{c_int, c_long, c_void, timespec};

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

/// A function of the next library in line, which is looked up once, in the constructor: `dlsym` is not async-signal-safe.
#[repr(transparent)]
pub struct Next(AtomicPtr<c_void>);

impl Next {
    /// Before it was looked up.
    #[must_use]
    pub const fn unknown() -> Self {
        Self(AtomicPtr::new(null_mut()))
    }

    /// Looks it up.
    pub fn look_up(&self, name: &CStr) {
        // SAFETY: a C string; RTLD_NEXT is searched from this object on.
        self.0.store(unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }, Ordering::Release);
    }

    /// Its address; `None` until it was looked up, and where there is none.
    #[inline]
    pub fn get(&self) -> Option<*mut c_void> {
        let found = self.0.load(Ordering::Relaxed);
        (!found.is_null()).then_some(found)
    }
}

/// The end of a system call that [`syscall_by_number`] made in libc's place.
pub extern "C" fn fail(error: c_int) {
    set_errno(error);
}

/// Defines `syscall()` in the crate that calls this, where that is linked dynamically and for x86-64.  It is in assembly: a
/// call that is not for the library has to look as if the library were not there, because `vfork` and `clone` come back on
/// the caller's own stack.
///
/// Arguments: a name for the assembly, the numbers that are served (names of `libc`), the function that serves them
/// (`unsafe extern "C-unwind" fn(number, first …) -> isize`, with the result in libc's form), and libc's own `syscall`,
/// a [`Next`].  Before that was looked up, system calls are made as libc does it.
#[macro_export]
macro_rules! syscall_by_number {
    ($name:literal, [$($number:ident),*], $serve:path, $next:path) => {
        #[cfg(all(not(target_feature = "crt-static"), target_arch = "x86_64"))]
        mod assembly {
            core::arch::global_asm!(
                ".text",
                concat!(".hidden ", $name),
                concat!(".globl ", $name),
                concat!(".type ", $name, ", @function"),
                ".balign 16",
                concat!($name, ":"),
                ".cfi_startproc",
                $(
                    concat!("cmp rdi, {", stringify!($number), "}"),
                    "je 2f",
                )*
                "mov rax, qword ptr [rip + {next}]",
                "test rax, rax",
                "jz 4f",
                "jmp rax",
                "2:", // the arguments are in serve's places already, but for the seventh
                "push qword ptr [rsp + 8]",
                ".cfi_adjust_cfa_offset 8",
                "call {serve}",
                "add rsp, 8",
                ".cfi_adjust_cfa_offset -8",
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
                "cmp rax, -4095",
                "jae 5f",
                "ret",
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
                concat!(".size ", $name, ", . - ", $name),
                $($number = const libc::$number,)*
                next = sym $next,
                serve = sym $serve,
                fail = sym $crate::fail,
            );

            unsafe extern "C" {
                #[link_name = $name]
                fn by_assembly();
            }

            /// A jump and nothing else: the compiler exports only functions that it knows, and has nothing to save in
            /// this one.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn syscall() {
                // SAFETY: the arguments are where the caller put them; the target returns to the caller.
                unsafe {
                    core::arch::asm!("jmp {}", sym by_assembly, options(noreturn, nostack));
                }
            }
        }
    };
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

//! `syscall()` itself, in assembly: a call that is not for the library has to look as if the library were not there,
//! because `vfork` and `clone` come back on the caller's own stack.

use libc::c_int;

use crate::kernel;

/// The end of a system call that was made in libc's place.
pub extern "C" fn fail(error: c_int) {
    kernel::set_errno(error);
}

/// Defines `syscall()` in the crate that calls this, where that is linked dynamically and for x86-64.
///
/// Arguments: a name for the assembly, the numbers that are served (names of `libc`), the function that serves them
/// (`unsafe extern "C-unwind" fn(number, first …) -> isize`, with the result in libc's form), and libc's own `syscall`,
/// a [`Next`](crate::next::Next).  Before that was looked up, system calls are made as libc does it.
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
                fail = sym $crate::by_number::fail,
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

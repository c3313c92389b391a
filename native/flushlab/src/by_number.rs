//! The `syscall()` forms.  They are no cancellation points.

use libc::{c_int, c_uint, c_void, off_t};

use crate::counters::Kind;
use crate::entry::{file_system_refusal, memory_refusal, range_refusal};
use crate::flush::Caller::Plain;
use crate::flush::{flush, refusal};
use crate::kernel;
use crate::writing::flagged;

/// Serves one of the numbers that the assembly below sends here, in libc's form: −1 and `errno`.
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

/// `syscall()` itself, in assembly: a call that is not for the laboratory has to look as if the laboratory were not
/// there, because `vfork` and `clone` come back on the caller's own stack.
#[cfg(all(interpose, target_arch = "x86_64"))]
mod assembly {
    use libc::c_int;

    use crate::{kernel, real};

    core::arch::global_asm!(
        ".text",
        ".hidden virtgauge_flushes_syscall",
        ".globl virtgauge_flushes_syscall",
        ".type virtgauge_flushes_syscall, @function",
        ".balign 16",
        "virtgauge_flushes_syscall:",
        ".cfi_startproc",
        "cmp rdi, {fsync}",
        "je 2f",
        "cmp rdi, {fdatasync}",
        "je 2f",
        "cmp rdi, {msync}",
        "je 2f",
        "cmp rdi, {sync_file_range}",
        "je 2f",
        "cmp rdi, {syncfs}",
        "je 2f",
        "cmp rdi, {sync}",
        "je 2f",
        "cmp rdi, {pwritev2}",
        "je 2f",
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
        ".size virtgauge_flushes_syscall, . - virtgauge_flushes_syscall",
        fsync = const libc::SYS_fsync,
        fdatasync = const libc::SYS_fdatasync,
        msync = const libc::SYS_msync,
        sync_file_range = const libc::SYS_sync_file_range,
        syncfs = const libc::SYS_syncfs,
        sync = const libc::SYS_sync,
        pwritev2 = const libc::SYS_pwritev2,
        next = sym real::SYSCALL,
        serve = sym super::serve,
        fail = sym fail,
    );

    unsafe extern "C" {
        fn virtgauge_flushes_syscall();
    }

    extern "C" fn fail(error: c_int) {
        kernel::set_errno(error);
    }

    /// A jump and nothing else: the compiler exports only functions that it knows, and has nothing to save in this one.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn syscall() {
        // SAFETY: the arguments are where the caller put them; the target returns to the caller.
        unsafe {
            core::arch::asm!("jmp {}", sym virtgauge_flushes_syscall, options(noreturn, nostack));
        }
    }
}

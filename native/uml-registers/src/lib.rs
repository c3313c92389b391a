//! `LD_PRELOAD=libuml_registers.so linux.uml …`: lets User Mode Linux restore its processes' registers.
//!
//! It does so by `ptrace(PTRACE_SETREGSET, NT_X86_XSTATE)`, which Linux takes only in full (`xstateregs_set`: `EFAULT`
//! otherwise).  Up to 6.12 that kernel keeps room for AVX-512 and no more, so that on a processor with AMX, whose state has
//! 11 KB, its first process is killed as soon as it runs.  Here what is missing of the state is left as the process has it.

use core::cell::UnsafeCell;
use core::ffi::c_void;

use libc::{SYS_ptrace, c_long, c_uint, iovec, pid_t};

/// Of elf(5)'s notes: the state that XSAVE saves.
const NT_X86_XSTATE: usize = 0x202;
/// More than any processor's state; it grows by what a future one adds.
const LARGEST_STATE: usize = 1 << 16;

struct Whole(UnsafeCell<[u8; LARGEST_STATE]>);

// SAFETY: User Mode Linux has one processor, whose thread alone traces the guest's processes.
unsafe impl Sync for Whole {}

/// Not on the stack: that of the guest's kernel has 16 KB.
static WHOLE: Whole = Whole(UnsafeCell::new([0; LARGEST_STATE]));

/// libc's, with the state completed where the kernel refuses a part of it.
///
/// # Safety
/// As libc's; one thread at a time.
#[cfg_attr(not(target_feature = "crt-static"), unsafe(no_mangle))]
pub unsafe extern "C" fn ptrace(request: c_uint, pid: pid_t, address: *mut c_void, data: *mut c_void) -> c_long {
    // SAFETY: the caller's promise.
    unsafe {
        if matches!(request, libc::PTRACE_PEEKTEXT | libc::PTRACE_PEEKDATA | libc::PTRACE_PEEKUSER) {
            let mut word: c_long = 0; // libc returns it, the system call writes it
            if libc::syscall(SYS_ptrace, request, pid, address, &raw mut word) < 0 {
                return -1;
            }
            *libc::__errno_location() = 0;
            return word;
        }
        let done = libc::syscall(SYS_ptrace, request, pid, address, data);
        let refused = done < 0 && *libc::__errno_location() == libc::EFAULT;
        if !refused || request != libc::PTRACE_SETREGSET || address.addr() != NT_X86_XSTATE {
            return done;
        }
        let whole: *mut u8 = WHOLE.0.get().cast();
        let mut state = iovec { iov_base: whole.cast(), iov_len: LARGEST_STATE };
        if libc::syscall(SYS_ptrace, libc::PTRACE_GETREGSET, pid, address, &raw mut state) < 0 {
            return -1;
        }
        let part = &*data.cast::<iovec>();
        whole.copy_from_nonoverlapping(part.iov_base.cast(), part.iov_len.min(state.iov_len));
        libc::syscall(SYS_ptrace, request, pid, address, &raw mut state)
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    /// The state of a stopped child, of which only the first bytes are given back.
    #[test]
    fn a_part_of_the_state_is_restored_and_the_rest_stays() {
        // SAFETY: the child stops itself and is killed; buffers outlive the calls.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
                libc::raise(libc::SIGSTOP);
                libc::_exit(0);
            }
            assert_eq!(libc::waitpid(child, core::ptr::null_mut(), 0), child);
            let regset = core::ptr::without_provenance_mut(NT_X86_XSTATE);
            let read = || {
                let mut bytes = vec![0_u8; LARGEST_STATE];
                let mut all = iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
                assert_eq!(ptrace(libc::PTRACE_GETREGSET, child, regset, (&raw mut all).cast()), 0);
                bytes.truncate(all.iov_len);
                bytes
            };
            let before = read();
            let mut part = before[..576].to_vec(); // the legacy area and the header, in which no component is left out
            let xmm0 = 160;
            part[xmm0..xmm0 + 8].copy_from_slice(&0x0123_4567_89ab_cdef_u64.to_ne_bytes());
            part[512] |= 2; // the header says that the SSE registers are given
            let mut given = iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() };
            assert_eq!(ptrace(libc::PTRACE_SETREGSET, child, regset, (&raw mut given).cast()), 0);
            let after = read();
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, core::ptr::null_mut(), 0);
            assert_eq!(&after[xmm0..xmm0 + 8], &part[xmm0..xmm0 + 8]);
            assert_eq!(&after[576..], &before[576..]);
        }
    }
}

//! What libraries have in common that take the place of libc's functions by `LD_PRELOAD`: system calls without libc, the
//! functions of the next library in line, and `syscall()` itself.
//!
//! Their entry points have libc's names only where the target has no `crt-static`: in a static executable there is nothing
//! to take the place of, and a second `fsync` or `clock_gettime` would not link.

pub mod by_number;
pub mod kernel;
pub mod next;

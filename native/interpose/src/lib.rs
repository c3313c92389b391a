//! What libraries have in common that take the place of libc's functions by `LD_PRELOAD`: system calls without libc, the
//! functions of the next library in line, and `syscall()` itself.

pub mod by_number;
pub mod kernel;
pub mod next;

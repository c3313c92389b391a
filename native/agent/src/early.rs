//! What must happen before Rust's own start-up.
//!
//! A machine without a console starts its first process with the standard streams closed.  The standard library then
//! opens `/dev/null` in their place, and aborts where there is none, as in a bare initramfs: the kernel panics.  So
//! the devices are mounted first.  Nothing but the C library may be used here.

use std::ffi::{CStr, c_char, c_int};

#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = mount_devices;

/// glibc calls the functions of `.init_array` with the arguments of `main`.
extern "C" fn mount_devices(count: c_int, arguments: *const *const c_char, _environment: *const *const c_char) {
    const DEVICES: &CStr = c"/dev";
    const KIND: &CStr = c"devtmpfs";
    // SAFETY: the arguments are those of main, so the first is a terminated string when there is one; all other pointers
    // are terminated constants.
    unsafe {
        let closed = libc::fcntl(libc::STDIN_FILENO, libc::F_GETFD) == -1;
        if libc::getpid() != 1 || !closed || count < 1 || !CStr::from_ptr(*arguments).to_bytes().ends_with(b"init") {
            return;
        }
        libc::mkdir(DEVICES.as_ptr(), 0o755);
        libc::mount(KIND.as_ptr(), DEVICES.as_ptr(), KIND.as_ptr(), 0, std::ptr::null());
    }
}

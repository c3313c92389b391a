//! The process's begin.

use core::ffi::CStr;
use std::ffi::CString;
use std::fs::File;

use libc::{c_char, c_int};

use crate::counters::Counters;
use crate::executable::{Reach, reach_of};
use crate::{flush, kernel, opening, real};

/// Names the counters' file to the programs of a laboratory.
pub const VARIABLE: &CStr = c"VIRTGAUGE_FLUSHES";

/// Names the launcher to them.
pub const LAUNCHER: &CStr = c"VIRTGAUGE_FLUSHES_LAUNCHER";

/// The laboratory cannot be set up: the exit status, of launcher and preloaded programs.
pub const UNUSABLE: i32 = 125;

/// Looks up the real functions and begins to count.  A program that was to be counted and cannot be is ended: its
/// flushes would be taken for none.
///
/// # Safety
/// As glibc calls constructors: with the arguments of `main`.
pub unsafe extern "C" fn begin(count: c_int, words: *const *const c_char) {
    real::look_up();
    real::look_up_others();
    // SAFETY: constructors run before anybody changes the environment.
    let path = unsafe { libc::getenv(VARIABLE.as_ptr()) };
    if path.is_null() {
        return;
    }
    let flags = libc::O_RDWR | libc::O_CLOEXEC;
    // SAFETY: a C string of the environment.
    let descriptor =
        unsafe { kernel::call(libc::SYS_openat, [libc::AT_FDCWD as usize, path as usize, flags as usize]) };
    // SAFETY: no such file is made smaller.
    let counters = if descriptor < 0 { None } else { unsafe { Counters::map(descriptor as i32) } };
    match counters {
        Some(counters) => {
            if is_out_of_reach() {
                // SAFETY: the caller's promise.
                let words = unsafe { core::slice::from_raw_parts(words, count as usize) };
                start_again(path, counters, words);
            }
            flush::begin(counters);
            opening::look_through_inherited();
        }
        None => refuse(path, c"this user cannot open it, or it holds no flush counters"),
    }
    // SAFETY: opened above; the mapping stays.
    unsafe { kernel::call(libc::SYS_close, [descriptor as usize]) };
}

/// Whether this program is of Go: it has loaded the library, and will not call it.
fn is_out_of_reach() -> bool {
    File::open("/proc/self/exe").is_ok_and(|file| reach_of(&file) == Some(Reach::Kernel))
}

/// Becomes the launcher, which becomes the program again and reaches it by the kernel.
fn start_again(path: *const c_char, counters: &Counters, words: &[*const c_char]) -> ! {
    let profile = counters.profile().map_or_else(String::new, |profile| profile.to_string());
    let profile = CString::new(profile).unwrap_or_default();
    // SAFETY: the kernel's own word for the file that it executes; constructors run before anybody changes the environment.
    let (program, launcher) =
        unsafe { (libc::getauxval(libc::AT_EXECFN) as *const c_char, libc::getenv(LAUNCHER.as_ptr())) };
    let options = [LAUNCHER.as_ptr(), c"--counters".as_ptr(), path, c"--profile".as_ptr(), profile.as_ptr()];
    let mut command = options.to_vec();
    command.extend([c"--static".as_ptr(), c"--".as_ptr(), program]);
    command.extend(words.iter().skip(1));
    command.push(core::ptr::null());
    if !launcher.is_null() {
        // SAFETY: C strings that live, with a null at the end.
        unsafe { libc::execv(launcher, command.as_ptr()) };
    }
    refuse(path, c"a Go program makes its system calls by itself, and the launcher cannot be run to count them");
}

fn refuse(path: *const c_char, why: &CStr) -> ! {
    // SAFETY: a C string of the environment.
    let path = unsafe { CStr::from_ptr(path) };
    for words in [c"virtgauge-flushes: ", path, c": ", why, c"\n"] {
        // SAFETY: the text is as long.
        unsafe { kernel::call(libc::SYS_write, [2, words.as_ptr() as usize, words.count_bytes()]) };
    }
    loop {
        // SAFETY: does not return.
        unsafe { kernel::call(libc::SYS_exit_group, [UNUSABLE as usize]) };
    }
}

#[cfg(not(target_feature = "crt-static"))]
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: unsafe extern "C" fn(c_int, *const *const c_char) = begin;

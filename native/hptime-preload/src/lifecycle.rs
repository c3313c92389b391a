//! The process's life: before `main`, after `fork`, at the end.

use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::{counters, kernel, real, report, settings, sleep, timekeeper};

/// The process that the counts are of.
static OWNER: AtomicI32 = AtomicI32::new(0);
static ENDED: AtomicBool = AtomicBool::new(false);

/// Looks up the real functions, reads the environment, begins to serve.
pub extern "C" fn begin() {
    real::look_up();
    let wishes = settings::read();
    OWNER.store(kernel::process(), Ordering::Relaxed);
    // SAFETY: the handlers only reset counters.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    timekeeper::begin(wishes.disable);
    counters::reset(); // hptime's examination of the counter came through the shim
    report::say_at_begin(wishes);
}

unsafe extern "C" fn in_child() {
    OWNER.store(kernel::process(), Ordering::Relaxed);
    ENDED.store(false, Ordering::Relaxed);
    counters::reset();
    sleep::reset();
}

/// Writes the report, once, and only in the process that the counts are of: a child of `vfork` shares its parent's.
pub extern "C" fn end() {
    let owner = OWNER.load(Ordering::Relaxed);
    if owner != 0 && owner == kernel::process() && !ENDED.swap(true, Ordering::Relaxed) {
        report::write(owner);
    }
}

#[cfg(not(target_feature = "crt-static"))]
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

#[cfg(not(target_feature = "crt-static"))]
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

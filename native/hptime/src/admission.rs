//! Whether the time stamp counter can be trusted.

use core::ffi::CStr;

use crate::arch;
use crate::os_clock::OsClock;
use crate::processors;
use crate::status::Fallback;

/// A plain read that takes longer, p50, back to back, is intercepted: the counter costs more than the kernel's clock.
const TRAPPED_NS: f64 = 150.0;

/// Reads in the test for interception: over 10 µs of them, so that the kernel's clock can time them to a percent.
const READS: usize = 1024;

/// The kernel's own list: it takes the counter off when its watchdog or the check at boot finds the processors apart.
const CLOCKSOURCES: &CStr = c"/sys/devices/system/clocksource/clocksource0/available_clocksource";

/// Checks this machine.  Allocates nothing, takes no lock and keeps `errno`: the first reading may happen anywhere.
pub(crate) fn check() -> Result<(), Fallback> {
    // SAFETY: errno is the calling thread's own.
    unsafe {
        let errno = *libc::__errno_location();
        let found = checked();
        *libc::__errno_location() = errno;
        found
    }
}

fn checked() -> Result<(), Fallback> {
    arch::permitted()?;
    if !arch::invariant() {
        return Err(Fallback::NotInvariant);
    }
    if read_p50_ns() > TRAPPED_NS {
        return Err(Fallback::Trapped);
    }
    // The kernel's verdict comes first, because it watches all the time.  A sandbox that hides it leaves a look of our own.
    let synchronized = match kernel_lists(arch::CLOCKSOURCE) {
        Some(listed) => listed,
        None => processors::synchronized(),
    };
    if synchronized { Ok(()) } else { Err(Fallback::NotSynchronized) }
}

/// Whether the kernel lists a clock source; `None` when the list cannot be read.
fn kernel_lists(name: &str) -> Option<bool> {
    let mut text = [0u8; 256];
    // SAFETY: a constant path, a buffer of the length given, and the descriptor is closed where it was opened.
    let length = unsafe {
        let file = libc::open(CLOCKSOURCES.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return None;
        }
        let length = libc::read(file, text.as_mut_ptr().cast(), text.len());
        libc::close(file);
        usize::try_from(length).ok()?
    };
    Some(text[..length].split(u8::is_ascii_whitespace).any(|word| word == name.as_bytes()))
}

/// Median time between back-to-back plain reads, nanoseconds.
fn read_p50_ns() -> f64 {
    let mut steps = [0u64; READS];
    let began_ns = OsClock::MonotonicRaw.now_ns();
    let began = arch::read();
    let mut last = began;
    for step in &mut steps {
        let now = arch::read();
        *step = now.wrapping_sub(last);
        last = now;
    }
    let ended_ns = OsClock::MonotonicRaw.now_ns();
    steps.sort_unstable();
    let total = last.wrapping_sub(began).max(1);
    // By its share of the whole: the counter's frequency is not known yet.
    steps[READS / 2] as f64 / total as f64 * ended_ns.saturating_sub(began_ns) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_is_read_word_by_word() {
        let Ok(list) = std::fs::read_to_string(CLOCKSOURCES.to_str().unwrap()) else {
            assert_eq!(kernel_lists("tsc"), None);
            return;
        };
        for word in list.split_whitespace() {
            assert_eq!(kernel_lists(word), Some(true));
        }
        assert_eq!(kernel_lists("no-such-source"), Some(false));
        assert_eq!(kernel_lists(&list[..1]), Some(list.split_whitespace().any(|word| word == &list[..1])));
    }

    #[test]
    fn a_read_takes_time_where_the_counter_is_fine_enough_to_show_it() {
        let p50 = read_p50_ns();
        let shortest = if cfg!(target_arch = "x86_64") { 0.5 } else { 0.0 };
        assert!((shortest..1e6).contains(&p50), "{p50} ns");
    }
}

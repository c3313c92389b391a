//! Whether the counters of the processors agree, found by reading each against the kernel's clock.

use crate::arch;
use crate::os_clock::OsClock;

/// Processors looked at; on larger machines the first ones stand for all.
const LOOKED_AT: usize = 128;

/// Tries a processor; the tightest bracket counts.
const TRIES: usize = 32;

/// One look from one processor: the counter lies within `low..=high` when the kernel's clock shows `ns`.
#[derive(Clone, Copy, Debug)]
struct Look {
    low: u64,
    high: u64,
    ns: u64,
}

/// Looks from every processor this thread may run on, and from the first one again; true when one straight line fits
/// within all brackets.  The thread's affinity is as before on return.  Allocates nothing.
pub(crate) fn synchronized() -> bool {
    // SAFETY: the sets are valid memory of the size given; all calls concern the calling thread only.
    unsafe {
        let size = size_of::<libc::cpu_set_t>();
        let mut allowed: libc::cpu_set_t = core::mem::zeroed();
        if libc::sched_getaffinity(0, size, &raw mut allowed) != 0 {
            return false;
        }
        let mut looks = [Look { low: 0, high: 0, ns: 0 }; LOOKED_AT + 1];
        let mut count = 0;
        let mut first = None;
        for processor in 0..libc::CPU_SETSIZE as usize {
            if count == LOOKED_AT || !libc::CPU_ISSET(processor, &allowed) {
                continue;
            }
            if move_to(processor) {
                looks[count] = look();
                count += 1;
                first = first.or(Some(processor));
            }
        }
        // Back to the first: its two looks span the others and give the rate.
        let again = first.is_some_and(move_to);
        if again {
            looks[count] = look();
            count += 1;
        }
        libc::sched_setaffinity(0, size, &raw const allowed);
        again && agree(&looks[..count])
    }
}

/// Binds the calling thread to one processor.
fn move_to(processor: usize) -> bool {
    // SAFETY: a set on the stack, for the calling thread.
    unsafe {
        let mut only: libc::cpu_set_t = core::mem::zeroed();
        libc::CPU_SET(processor, &mut only);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const only) == 0
    }
}

fn look() -> Look {
    let mut best = Look { low: 0, high: u64::MAX, ns: 0 };
    for _ in 0..TRIES {
        let low = arch::read_ordered_start();
        let ns = OsClock::MonotonicRaw.now_ns();
        let high = arch::read_ordered_end();
        if high.wrapping_sub(low) < best.high.wrapping_sub(best.low) {
            best = Look { low, high, ns };
        }
    }
    best
}

/// Whether one rate fits all looks: each bracket is widened by its own width, for the kernel's clock may read a little
/// differently from each processor.
fn agree(looks: &[Look]) -> bool {
    let [first, .., last] = looks else { return false };
    let elapsed_ns = last.ns.saturating_sub(first.ns);
    let middle = |look: &Look| look.low.wrapping_add(look.high.wrapping_sub(look.low) / 2);
    let ticks = middle(last).wrapping_sub(middle(first)) as i64;
    if ticks <= 0 || elapsed_ns == 0 {
        return false;
    }
    let rate = ticks as f64 / elapsed_ns as f64;
    let base_width = first.high.wrapping_sub(first.low).max(last.high.wrapping_sub(last.low));
    looks.iter().all(|look| {
        let predicted = rate * (look.ns as f64 - first.ns as f64);
        let seen = middle(look).wrapping_sub(middle(first)) as i64 as f64;
        (seen - predicted).abs() <= (look.high.wrapping_sub(look.low) + base_width) as f64
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A 3 GHz counter seen through brackets of 60 ns, on a processor whose counter is `ahead` ticks ahead.
    fn seen(ns: u64, ahead: i64) -> Look {
        let middle = (ns * 3).saturating_add_signed(ahead) + 1_000_000;
        Look { low: middle - 90, high: middle + 90, ns }
    }

    #[test]
    fn counters_of_one_line_agree_and_one_that_is_a_microsecond_off_is_found() {
        assert!(agree(&[seen(0, 0), seen(50_000, 20), seen(90_000, -20), seen(200_000, 0)]));
        assert!(!agree(&[seen(0, 0), seen(50_000, 3_000), seen(200_000, 0)]));
        assert!(!agree(&[seen(0, 0), seen(50_000, -3_000), seen(200_000, 0)]));
    }

    #[test]
    fn nothing_is_concluded_from_a_counter_or_clock_that_stands_still() {
        assert!(!agree(&[]));
        assert!(!agree(&[seen(5, 0)]));
        assert!(!agree(&[seen(5, 0), seen(5, 0)]));
    }

    #[test]
    fn the_look_leaves_the_affinity_as_it_was() {
        let affinity = || {
            // SAFETY: a set of the size given.
            unsafe {
                let mut set: libc::cpu_set_t = core::mem::zeroed();
                libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
                (0..1024).filter(|&processor| libc::CPU_ISSET(processor, &set)).collect::<Vec<_>>()
            }
        };
        let before = affinity();
        synchronized();
        assert_eq!(affinity(), before);
    }
}

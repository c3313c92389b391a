//! How many calls were served, per entry point, at the price of one addition in memory.
//!
//! Each thread adds to a row of its own, so that threads do not share a cache line; the last row is shared by all that
//! came after the others were taken, and is added to atomically.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The entry points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
#[expect(missing_docs, reason = "each is the function of its name")]
pub enum Entry {
    ClockGettime,
    Gettimeofday,
    Time,
    Nanosleep,
    ClockNanosleep,
    Usleep,
    Sleep,
    SyscallClockGettime,
    SyscallGettimeofday,
    SyscallTime,
    SyscallNanosleep,
    SyscallClockNanosleep,
}

/// Number of entry points.
pub const ENTRIES: usize = 12;

/// Their names in reports.
pub const NAMES: [&str; ENTRIES] = [
    "clock_gettime",
    "gettimeofday",
    "time",
    "nanosleep",
    "clock_nanosleep",
    "usleep",
    "sleep",
    "syscall:clock_gettime",
    "syscall:gettimeofday",
    "syscall:time",
    "syscall:nanosleep",
    "syscall:clock_nanosleep",
];

const ROWS: usize = 256;
const SHARED: usize = ROWS - 1;

#[repr(align(64))]
struct Row {
    served: [AtomicU64; ENTRIES],
    passed: [AtomicU64; ENTRIES],
}

static TABLE: [Row; ROWS] =
    [const { Row { served: [const { AtomicU64::new(0) }; ENTRIES], passed: [const { AtomicU64::new(0) }; ENTRIES] } };
        ROWS];

static NEXT: AtomicUsize = AtomicUsize::new(0);

#[cfg(target_arch = "x86_64")]
mod thread {
    //! One word of thread-local storage in the initial-exec model, which a preloaded object may use: two loads, no call,
    //! no allocation, and so also in a signal handler.  Rust's `thread_local!` calls `__tls_get_addr`.

    core::arch::global_asm!(
        ".section .tbss.hptime_preload_row,\"awT\",@nobits",
        ".balign 8",
        ".hidden hptime_preload_row",
        ".globl hptime_preload_row",
        ".type hptime_preload_row, @object",
        ".size hptime_preload_row, 8",
        "hptime_preload_row:",
        ".zero 8",
        ".previous",
    );

    #[inline(always)]
    pub(super) fn row() -> usize {
        let row: usize;
        // SAFETY: reads this thread's own word.
        unsafe {
            core::arch::asm!(
                "mov {row}, qword ptr [rip + hptime_preload_row@GOTTPOFF]",
                "mov {row}, qword ptr fs:[{row}]",
                row = out(reg) row,
                options(nostack, readonly, preserves_flags)
            );
        }
        row
    }

    pub(super) fn set_row(row: usize) {
        // SAFETY: writes this thread's own word.
        unsafe {
            core::arch::asm!(
                "mov {offset}, qword ptr [rip + hptime_preload_row@GOTTPOFF]",
                "mov qword ptr fs:[{offset}], {row}",
                offset = out(reg) _,
                row = in(reg) row,
                options(nostack, preserves_flags)
            );
        }
    }

    /// One instruction, so that a signal handler that counts too cannot come between the read and the write.
    #[inline(always)]
    pub(super) fn increment(counter: &core::sync::atomic::AtomicU64) {
        // SAFETY: the counter lives; no other thread writes it.
        unsafe { core::arch::asm!("inc qword ptr [{}]", in(reg) counter.as_ptr(), options(nostack)) }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod thread {
    use core::cell::Cell;
    use core::sync::atomic::{AtomicU64, Ordering};

    thread_local! {
        static ROW: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn row() -> usize {
        ROW.get()
    }

    pub(super) fn set_row(row: usize) {
        ROW.set(row);
    }

    pub(super) fn increment(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// The thread's row plus one; zero means that it has none yet.
#[cold]
#[inline(never)]
fn take_row() -> usize {
    let row = NEXT.fetch_add(1, Ordering::Relaxed).min(SHARED) + 1;
    thread::set_row(row);
    row
}

#[inline(always)]
fn count(of_row: impl FnOnce(&'static Row) -> &'static AtomicU64) {
    let mut row = thread::row();
    if row == 0 {
        row = take_row();
    }
    let counter = of_row(&TABLE[(row - 1) & SHARED]);
    if row == ROWS {
        counter.fetch_add(1, Ordering::Relaxed);
    } else {
        thread::increment(counter);
    }
}

/// Counts a call that the shim served.
#[inline(always)]
pub fn served(entry: Entry) {
    count(|row| &row.served[entry as usize]);
}

/// Counts a call that went to the real function.
#[inline]
pub fn passed(entry: Entry) {
    count(|row| &row.passed[entry as usize]);
}

/// All threads' counts of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Calls served, in the order of [`NAMES`].
    pub served: [u64; ENTRIES],
    /// Calls that went to the real function.
    pub passed: [u64; ENTRIES],
}

/// The sum over all threads, living and ended.
#[must_use]
pub fn totals() -> Totals {
    let mut totals = Totals::default();
    for row in &TABLE {
        for entry in 0..ENTRIES {
            totals.served[entry] += row.served[entry].load(Ordering::Relaxed);
            totals.passed[entry] += row.passed[entry].load(Ordering::Relaxed);
        }
    }
    totals
}

/// Begins anew, in the only thread of a new process.
pub fn reset() {
    for row in &TABLE {
        for counter in row.served.iter().chain(&row.passed) {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_of_any_thread_is_lost_even_where_threads_outnumber_the_rows() {
        let before = totals();
        for _ in 0..3 {
            std::thread::scope(|scope| {
                for _ in 0..120 {
                    scope.spawn(|| {
                        for _ in 0..1000 {
                            served(Entry::Time);
                            passed(Entry::Usleep);
                        }
                    });
                }
            });
        }
        let after = totals();
        assert_eq!(after.served[Entry::Time as usize] - before.served[Entry::Time as usize], 360_000);
        assert_eq!(after.passed[Entry::Usleep as usize] - before.passed[Entry::Usleep as usize], 360_000);
    }

    #[test]
    fn every_entry_point_has_its_name() {
        assert_eq!(NAMES[Entry::ClockGettime as usize], "clock_gettime");
        assert_eq!(NAMES[Entry::Sleep as usize], "sleep");
        assert_eq!(NAMES[Entry::SyscallClockNanosleep as usize], "syscall:clock_nanosleep");
    }
}

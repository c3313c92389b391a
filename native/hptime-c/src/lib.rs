//! hptime for C.  The documentation is in `include/hptime.h`; a test holds the two together.

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicU32, Ordering};

use hptime::{Cause, DifferenceClock, Fallback, Moment, Rule, SleepError, Sleeper, clock};

const EINTR: c_int = 4;
const EINVAL: c_int = 22;
const EOVERFLOW: c_int = 75;

/// Bits of `how` that hold the rule, then those of its HZ, then the flags.
const RULE: u32 = 0xf;
const ADAPTIVE: u32 = 0;
const OS: u32 = 1;
const HIGHPERTIMER: u32 = 2;
const HZ_SHIFT: u32 = 4;
const HZ: u32 = 0xfff;
const RETURN_ON_SIGNAL: u32 = 1 << 16;
const KNOWN: u32 = RULE | HZ << HZ_SHIFT | RETURN_ON_SIGNAL;

/// What the clock knows of itself: `struct hptime_status`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct HptimeStatus {
    /// 1 when readings come from the counter.
    pub running: u32,
    /// Number of the reason to fall back on the kernel's clock; 0 for none.
    pub fallback_reason: u32,
    /// Ticks a second; 0 while it is not known.
    pub frequency_hz: f64,
    /// Bound of the difference clock's relative error.
    pub difference_error_ppm: f64,
    /// Bound of the absolute clock's error now.
    pub absolute_error_ns: f64,
    /// Its growth until the next anchor.
    pub absolute_error_ppm: f64,
    /// Departure of the latest drift alarm; infinite when counter or clock went back.
    pub alarm_ppm: f64,
    /// Drift alarms of the latest series; 0 for none.
    pub alarms: u64,
    /// Anchors set without an alarm since.
    pub quiet: u64,
    /// Anchors set.
    pub measurements: u64,
}

/// How a sleep ended: `struct hptime_wake`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct HptimeWake {
    /// The clock at the return less the deadline.
    pub lateness_ns: i64,
    /// Time spent in the spin loop.
    pub spin_ns: u64,
    /// The guard that was in force.
    pub guard_ns: u64,
    /// Number of the cause.
    pub cause: u32,
    /// Always zero.
    pub reserved: u32,
}

/// `CLOCK_MONOTONIC`.
#[unsafe(no_mangle)]
pub extern "C" fn hptime_now_ns() -> u64 {
    clock().now_ns()
}

/// `CLOCK_MONOTONIC`, ordered between threads.
#[unsafe(no_mangle)]
pub extern "C" fn hptime_now_ordered_ns() -> u64 {
    clock().now_ordered_ns()
}

/// `CLOCK_MONOTONIC_RAW`.
#[unsafe(no_mangle)]
pub extern "C" fn hptime_raw_ns() -> u64 {
    clock().raw_ns()
}

/// `CLOCK_REALTIME`.
#[unsafe(no_mangle)]
pub extern "C" fn hptime_realtime_ns() -> u64 {
    clock().realtime_ns()
}

/// Reads the difference clock.
#[unsafe(no_mangle)]
pub extern "C" fn hptime_read() -> u64 {
    difference().read().count()
}

/// Nanoseconds between two readings of the difference clock.
#[unsafe(no_mangle)]
pub extern "C" fn hptime_nanoseconds(from: u64, to: u64) -> u64 {
    difference().nanoseconds(Moment::from_count(from), Moment::from_count(to))
}

/// Waits for the calibration.
#[unsafe(no_mangle)]
pub extern "C" fn hptime_settle() -> u32 {
    clock().settle();
    hptime_fallback_reason()
}

/// Takes an anchor now.
#[unsafe(no_mangle)]
pub extern "C" fn hptime_discipline() {
    clock().discipline();
}

/// Number of the reason to fall back on the kernel's clock.
#[unsafe(no_mangle)]
pub extern "C" fn hptime_fallback_reason() -> u32 {
    clock().fallback_reason().map_or(0, |reason| reason as u32)
}

/// A reason to fall back, in words.
#[unsafe(no_mangle)]
pub extern "C" fn hptime_fallback_reason_text(fallback_reason: u32) -> *const c_char {
    refusal_text(fallback_reason).as_ptr()
}

/// Fills in a status.
///
/// # Safety
/// `status` points to writable memory for one, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hptime_get_status(status: *mut HptimeStatus) {
    let known = clock().status();
    let filled = HptimeStatus {
        running: u32::from(known.running),
        fallback_reason: known.fallback_reason.map_or(0, |reason| reason as u32),
        frequency_hz: known.frequency_hz,
        difference_error_ppm: known.difference_error_ppm,
        absolute_error_ns: known.absolute_error.map_or(0.0, |error| error.ns),
        absolute_error_ppm: known.absolute_error.map_or(0.0, |error| error.ppm),
        alarm_ppm: known.alarm.map_or(0.0, |alarm| alarm.departure_ppm),
        alarms: known.alarm.map_or(0, |alarm| alarm.count),
        quiet: known.alarm.map_or(0, |alarm| alarm.quiet),
        measurements: known.measurements,
    };
    if !status.is_null() {
        // SAFETY: the caller promises room for one.
        unsafe { status.write(filled) };
    }
}

/// Sleeps until the absolute clock shows a time.
///
/// # Safety
/// `wake` points to writable memory for one, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hptime_sleep_until(deadline_ns: i64, how: u32, wake: *mut HptimeWake) -> c_int {
    // SAFETY: the caller's promise is handed on.
    unsafe { sleep(how, wake, |sleeper| sleeper.sleep_until(deadline_ns)) }
}

/// Sleeps for a number of nanoseconds.
///
/// # Safety
/// `wake` points to writable memory for one, or is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hptime_sleep_for(duration_ns: i64, how: u32, wake: *mut HptimeWake) -> c_int {
    // SAFETY: the caller's promise is handed on.
    unsafe { sleep(how, wake, |sleeper| sleeper.sleep_for(duration_ns)) }
}

/// The process's clock for durations.  Whether it reads the counter is settled once, so that readings stay comparable.
fn difference() -> DifferenceClock<'static> {
    static READS: AtomicU32 = AtomicU32::new(0);
    const THE_COUNTER: u32 = 1;
    const THE_KERNELS_CLOCK: u32 = 2;
    match READS.load(Ordering::Relaxed) {
        THE_COUNTER => DifferenceClock::again(clock(), true),
        THE_KERNELS_CLOCK => DifferenceClock::again(clock(), false),
        _ => {
            let found = if clock().difference().uses_counter() { THE_COUNTER } else { THE_KERNELS_CLOCK };
            let settled =
                READS.compare_exchange(0, found, Ordering::Relaxed, Ordering::Relaxed).map_or_else(|by| by, |_| found);
            DifferenceClock::again(clock(), settled == THE_COUNTER)
        }
    }
}

fn refusal_text(number: u32) -> &'static CStr {
    const NOT_REFUSED: &CStr = c"not refused";
    /// The library's texts with the zero byte that C needs.
    macro_rules! texts {
        ($($reason:ident),*) => {
            match Fallback::from_number(number) {
                $(Some(Fallback::$reason) => {
                    const TEXT: &str = Fallback::$reason.text();
                    const BYTES: [u8; TEXT.len() + 1] = terminated(TEXT);
                    // SAFETY: the last byte is zero, and a text has none before.
                    unsafe { CStr::from_bytes_with_nul_unchecked(&BYTES) }
                })*
                _ => NOT_REFUSED,
            }
        };
    }
    texts!(NoCounter, Forbidden, NotInvariant, NotSynchronized, Trapped, WentBack, Drifted)
}

const fn terminated<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    let mut index = 0;
    while index < text.len() {
        bytes[index] = text.as_bytes()[index];
        index += 1;
    }
    bytes
}

/// Sleeps by the rule in `how`; the result is an error number, as `clock_nanosleep`'s.
///
/// # Safety
/// `wake` points to writable memory for one, or is null.
unsafe fn sleep(
    how: u32,
    wake: *mut HptimeWake,
    by: impl Fn(&Sleeper<'static>) -> Result<hptime::Wake, SleepError>,
) -> c_int {
    static ADAPTIVE_SLEEPER: Sleeper<'static> = Sleeper::new(clock());
    static INTERRUPTIBLE_SLEEPER: Sleeper<'static> = Sleeper::new(clock()).returning_on_signals();
    let hz = how >> HZ_SHIFT & HZ;
    let rule = match how & RULE {
        OS => Rule::Os,
        HIGHPERTIMER if hz > 0 => Rule::HighPerTimer { hz },
        HIGHPERTIMER => Rule::HIGHPERTIMER,
        ADAPTIVE => Rule::Adaptive,
        _ => return EINVAL,
    };
    if how & !KNOWN != 0 || (hz > 0 && how & RULE != HIGHPERTIMER) {
        return EINVAL;
    }
    let interruptible = how & RETURN_ON_SIGNAL != 0;
    let done = match (rule, interruptible) {
        (Rule::Adaptive, false) => by(&ADAPTIVE_SLEEPER),
        (Rule::Adaptive, true) => by(&INTERRUPTIBLE_SLEEPER),
        (rule, false) => by(&Sleeper::new(clock()).by(rule)),
        (rule, true) => by(&Sleeper::new(clock()).by(rule).returning_on_signals()),
    };
    match done {
        Err(SleepError::Negative { .. }) => EINVAL,
        Err(SleepError::Overflow) => EOVERFLOW,
        Ok(done) => {
            if !wake.is_null() {
                let hptime::Wake { lateness_ns, spin_ns, guard_ns, cause } = done;
                // SAFETY: the caller promises room for one.
                unsafe { wake.write(HptimeWake { lateness_ns, spin_ns, guard_ns, cause: cause as u32, reserved: 0 }) };
            }
            if done.cause == Cause::Interrupted { EINTR } else { 0 }
        }
    }
}

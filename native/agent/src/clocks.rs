//! All clocks read together, and the one calibration that every conversion of this process uses.

use std::sync::OnceLock;

use hptime::{Capability, Frequency, OsClock, tsc};
use serde::Serialize;

use crate::failure::Failure;

/// A bracket wider than this tells of a guest in which further tries cost more than they bring.
const HOPELESS_BRACKET_NS: u64 = 2_000_000;

/// The clocks of one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Clocks {
    /// Time stamp counter, half-way through the bracket; zero on a machine without one.
    pub tsc: u64,
    /// The same in nanoseconds by the calibrated frequency; `None` where there is none.
    pub tsc_ns: Option<u64>,
    /// `CLOCK_MONOTONIC`.
    pub monotonic_ns: u64,
    /// `CLOCK_MONOTONIC_RAW`.
    pub monotonic_raw_ns: u64,
    /// `CLOCK_REALTIME`.
    pub realtime_ns: u64,
    /// `CLOCK_BOOTTIME`.
    pub boottime_ns: u64,
    /// Width of the bracket within which the others were read.
    pub bracket_ns: u64,
}

impl Clocks {
    /// Reads all clocks between two reads of the counter and keeps the tightest of at most
    /// [`hptime::calibration::BRACKETS`] tries.
    ///
    /// Goes on only while that is cheap: where a clock is a system call into a crowded sandbox, every try costs tens of
    /// milliseconds and none would be tight.
    #[must_use]
    pub fn read(timebase: &Timebase) -> Self {
        let mut best = Self::read_once(timebase);
        for _ in 1..hptime::calibration::BRACKETS {
            if best.bracket_ns > HOPELESS_BRACKET_NS {
                break;
            }
            let next = Self::read_once(timebase);
            if next.bracket_ns < best.bracket_ns {
                best = next;
            }
        }
        best
    }

    fn read_once(timebase: &Timebase) -> Self {
        let counter = timebase.capability.counter;
        let before = if counter { tsc::read_ordered_start() } else { 0 };
        let monotonic_ns = OsClock::Monotonic.now_ns();
        let monotonic_raw_ns = OsClock::MonotonicRaw.now_ns();
        let realtime_ns = OsClock::Realtime.now_ns();
        let boottime_ns = OsClock::Boottime.now_ns();
        let after = if counter { tsc::read_ordered_end() } else { 0 };
        let width = after.wrapping_sub(before);
        let bracket_ns = match timebase.frequency {
            Some(frequency) => (width as f64 / frequency.hz * 1e9).round() as u64,
            None => OsClock::Monotonic.now_ns().saturating_sub(monotonic_ns),
        };
        let tsc = before.wrapping_add(width / 2);
        let tsc_ns = timebase.frequency.map(|frequency| (tsc as f64 / frequency.hz * 1e9).round() as u64);
        Self { tsc, tsc_ns, monotonic_ns, monotonic_raw_ns, realtime_ns, boottime_ns, bracket_ns }
    }
}

/// What is known of the counter in this process.
#[derive(Debug)]
pub struct Timebase {
    /// What the machine says of its counter.
    pub capability: Capability,
    /// The measured frequency; `None` where the counter is missing or stands still.
    pub frequency: Option<Frequency>,
}

impl Timebase {
    /// Calibrates at the first call, which takes [`hptime::calibration::SHORTEST`] or longer.
    pub fn get() -> &'static Self {
        static TIMEBASE: OnceLock<Timebase> = OnceLock::new();
        TIMEBASE.get_or_init(|| {
            let capability = Capability::detect();
            let frequency = Frequency::calibrate(&capability);
            Self { capability, frequency }
        })
    }

    /// The frequency, or why there is none.
    pub fn frequency(&self) -> Result<Frequency, Failure> {
        self.frequency
            .ok_or_else(|| Failure::unsupported("the time stamp counter of this guest is missing or stands still"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_agree_on_the_time_between_two_readings() {
        let timebase = Timebase::get();
        let first = Clocks::read(timebase);
        std::thread::sleep(std::time::Duration::from_millis(50));
        let second = Clocks::read(timebase);
        let raw_ns = (second.monotonic_raw_ns - first.monotonic_raw_ns) as f64;
        let slack_ns = (first.bracket_ns + second.bracket_ns) as f64 + raw_ns * 1e-3;
        assert!(((second.monotonic_ns - first.monotonic_ns) as f64 - raw_ns).abs() <= slack_ns);
        if let Some(frequency) = timebase.frequency {
            let tsc_ns = second.tsc.wrapping_sub(first.tsc) as f64 / frequency.hz * 1e9;
            assert!((tsc_ns - raw_ns).abs() <= slack_ns, "{first:?} {second:?} {frequency:?}");
        }
    }
}

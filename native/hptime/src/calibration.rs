//! The frequency of the time stamp counter, measured against `CLOCK_MONOTONIC_RAW`.
//!
//! The clock is read between two reads of the counter (a bracket); of 16 brackets the tightest is kept.  Two
//! such points some time apart give the frequency, and the widths of the two brackets bound its error.

use std::time::Duration;

use crate::arch;
use crate::capability::Capability;
use crate::os_clock::OsClock;

/// How often a bracket is tried; the tightest counts.
pub const BRACKETS: usize = 16;

/// Shortest distance of the two points.
pub const SHORTEST: Duration = Duration::from_millis(50);

/// Longest distance of the two points, where the clock is slow to read (system calls through ptrace).
pub const LONGEST: Duration = Duration::from_secs(1);

/// The distance grows until the error is bounded by this.
pub const WANTED_ERROR_PPM: f64 = 20.0;

/// A stated frequency this close to the measured one (beyond the measurement's own error) is taken in its place.
pub const AGREEMENT_PPM: f64 = 50.0;

/// One reading of a clock between two reads of the counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bracket {
    /// The counter half-way through the bracket.
    pub ticks: u64,
    /// Width of the bracket in ticks.
    pub width: u64,
    /// The clock.
    pub clock_ns: u64,
}

impl Bracket {
    /// Reads the clock [`BRACKETS`] times and keeps the tightest.
    #[must_use]
    pub fn tightest(clock: OsClock) -> Self {
        let mut best = Self { ticks: 0, width: u64::MAX, clock_ns: 0 };
        for _ in 0..BRACKETS {
            let before = arch::read_ordered_start();
            let clock_ns = clock.now_ns();
            let after = arch::read_ordered_end();
            let width = after.wrapping_sub(before);
            if width < best.width {
                best = Self { ticks: before.wrapping_add(width / 2), width, clock_ns };
            }
        }
        best
    }
}

/// A frequency between two brackets, with a bound on its error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Ticks a second.
    pub hz: f64,
    /// The true value lies within this, as far as the brackets tell.
    pub error_ppm: f64,
}

impl Measured {
    /// The frequency between two brackets; `None` when either clock did not advance.
    #[must_use]
    pub fn between(first: Bracket, second: Bracket) -> Option<Self> {
        let ticks = second.ticks.wrapping_sub(first.ticks) as i64;
        let ns = second.clock_ns.checked_sub(first.clock_ns)?;
        if ticks <= 0 || ns == 0 {
            return None;
        }
        let half_widths = first.width.midpoint(second.width) as f64;
        Some(Self { hz: ticks as f64 * 1e9 / ns as f64, error_ppm: half_widths / ticks as f64 * 1e6 })
    }
}

/// The frequency that conversions use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Frequency {
    /// Ticks a second.
    pub hz: f64,
    /// `calibrated`, or the CPUID leaf that stated it.
    pub source: &'static str,
    /// Bound of the error; for a stated frequency it includes the difference from the measured one.
    pub error_ppm: f64,
    /// Median cost of one read, nanoseconds, from back-to-back reads.
    pub read_p50_ns: f64,
}

impl Frequency {
    /// Measures the frequency, which takes [`SHORTEST`] to [`LONGEST`].
    ///
    /// `None` when the counter or the clock stands still.
    #[must_use]
    pub fn calibrate(capability: &Capability) -> Option<Self> {
        if !capability.counter {
            return None;
        }
        let first = Bracket::tightest(OsClock::MonotonicRaw);
        let mut pause = SHORTEST;
        let mut waited = Duration::ZERO;
        let measured = loop {
            std::thread::sleep(pause);
            waited += pause;
            let measured = Measured::between(first, Bracket::tightest(OsClock::MonotonicRaw))?;
            if measured.error_ppm <= WANTED_ERROR_PPM || waited >= LONGEST {
                break measured;
            }
            pause = waited.min(LONGEST.saturating_sub(waited));
        };
        Some(Self { read_p50_ns: read_p50_ticks() / measured.hz * 1e9, ..Self::choose(measured, capability) })
    }

    /// Takes a stated frequency when the measurement agrees with it, else the measurement.
    fn choose(measured: Measured, capability: &Capability) -> Self {
        for stated in &capability.stated {
            let difference_ppm = (stated.hz / measured.hz - 1.0).abs() * 1e6;
            if difference_ppm <= measured.error_ppm + AGREEMENT_PPM {
                let error_ppm = measured.error_ppm + difference_ppm;
                return Self { hz: stated.hz, source: stated.source, error_ppm, read_p50_ns: 0.0 };
            }
        }
        Self { hz: measured.hz, source: "calibrated", error_ppm: measured.error_ppm, read_p50_ns: 0.0 }
    }

    /// Picoseconds of a signed number of ticks, rounded to the nearest.
    #[inline]
    #[must_use]
    pub fn picoseconds(&self, ticks: i64) -> i64 {
        TickScale::new(self.hz).picoseconds(ticks)
    }
}

/// Ticks to picoseconds by one multiplication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TickScale {
    multiplier: i128,
}

impl TickScale {
    const FRACTION_BITS: u32 = 40;

    /// For a counter of `hz` ticks a second.
    #[must_use]
    pub fn new(hz: f64) -> Self {
        Self { multiplier: (1e12 / hz * (1u64 << Self::FRACTION_BITS) as f64).round() as i128 }
    }

    /// Picoseconds of a signed number of ticks, rounded to the nearest.
    #[inline]
    #[must_use]
    pub fn picoseconds(self, ticks: i64) -> i64 {
        ((i128::from(ticks) * self.multiplier + (1 << (Self::FRACTION_BITS - 1))) >> Self::FRACTION_BITS) as i64
    }
}

/// Median distance of back-to-back plain reads, in ticks.
fn read_p50_ticks() -> f64 {
    let mut stamps = [0u64; 1025];
    for stamp in &mut stamps {
        *stamp = arch::read();
    }
    let mut steps: Vec<u64> = stamps.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    steps.sort_unstable();
    steps[steps.len() / 2] as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::StatedFrequency;

    fn capability(stated: &[(&'static str, f64)]) -> Capability {
        let stated = stated.iter().map(|&(source, hz)| StatedFrequency { source, hz }).collect();
        Capability {
            counter: true,
            serialized_read: true,
            invariant: true,
            hypervisor: None,
            stated,
            vendor: String::new(),
        }
    }

    #[test]
    fn frequency_is_ticks_over_time_and_its_error_the_brackets_over_the_distance() {
        let first = Bracket { ticks: 1_000, width: 100, clock_ns: 500 };
        let second = Bracket { ticks: 1_000 + 60_000_000, width: 20, clock_ns: 500 + 20_000_000 };
        let measured = Measured::between(first, second).unwrap();
        assert!((measured.hz - 3e9).abs() < 1e-3);
        assert!((measured.error_ppm - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_clock_that_stands_still_gives_no_frequency() {
        let bracket = Bracket { ticks: 10, width: 1, clock_ns: 10 };
        assert_eq!(Measured::between(bracket, bracket), None);
        assert_eq!(Measured::between(bracket, Bracket { ticks: 5, ..bracket }), None);
    }

    #[test]
    fn counter_wrap_between_the_brackets_is_no_problem() {
        let first = Bracket { ticks: u64::MAX - 999, width: 2, clock_ns: 0 };
        let second = Bracket { ticks: 1_000, width: 2, clock_ns: 1_000 };
        assert!((Measured::between(first, second).unwrap().hz - 2e9).abs() < 1e-3);
    }

    #[test]
    fn a_stated_frequency_is_believed_only_when_the_measurement_agrees() {
        let measured = Measured { hz: 2_500_000_000.0, error_ppm: 1.0 };
        let near = Frequency::choose(measured, &capability(&[("cpuid-15h", 2_500_050_000.0)]));
        assert_eq!(near.source, "cpuid-15h");
        assert!((near.error_ppm - 21.0).abs() < 1e-6);
        let far = Frequency::choose(measured, &capability(&[("cpuid-16h", 2_600_000_000.0)]));
        assert_eq!((far.source, far.hz.to_bits()), ("calibrated", measured.hz.to_bits()));
    }

    #[test]
    fn conversion_rounds_to_the_nearest_picosecond_on_both_sides_of_zero() {
        let scale = TickScale::new(3e9);
        assert_eq!(scale.picoseconds(1), 333);
        assert_eq!(scale.picoseconds(2), 667);
        assert_eq!(scale.picoseconds(-1), -333);
        assert_eq!(scale.picoseconds(3_000_000_000), 1_000_000_000_000);
        assert_eq!(scale.picoseconds(0), 0);
    }

    #[test]
    fn calibration_agrees_with_the_kernels_clock() {
        let capability = Capability::detect();
        let Some(frequency) = Frequency::calibrate(&capability) else {
            assert!(!capability.counter);
            return;
        };
        let first = Bracket::tightest(OsClock::MonotonicRaw);
        std::thread::sleep(Duration::from_millis(100));
        let again = Measured::between(first, Bracket::tightest(OsClock::MonotonicRaw)).unwrap();
        let difference_ppm = (again.hz / frequency.hz - 1.0).abs() * 1e6;
        assert!(difference_ppm <= again.error_ppm + frequency.error_ppm + 20.0, "{frequency:?} then {again:?}");
    }
}

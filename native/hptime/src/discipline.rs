//! How the clock follows the kernel's clocks: a state, a measurement, and the next state.
//!
//! A state is valid for a span of ticks.  Within it, each clock is a straight line; no reading beyond its end is ever
//! given out, so that what follows may start anywhere at or above the line's end and time never goes back.

use crate::calibration::Bracket;
use crate::estimate::{Estimate, Judgement};
use crate::scale::Scale;
use crate::status::Fallback;

/// Base line of the first estimate: with brackets of 50 ns it bounds the error by 2.5 ppm.
const WARM_UP_NS: u64 = 20_000_000;
/// Longest span between measurements.
const LONGEST_INTERVAL_NS: u64 = 1_000_000_000;
/// Longest base line for the counter's rate, which only temperature moves.
const RAW_BASE_LINE_NS: u64 = 1_024_000_000_000;
/// Longest base line for the rate on the slewed clock, which the time daemon moves every few seconds.
const MONOTONIC_BASE_LINE_NS: u64 = 8_000_000_000;
/// A change of the counter's rate beyond the brackets' error that raises the drift alarm.
const ALARM: f64 = 1e-6;
/// A change of the rate that no oscillator makes: the counter jumped, or is another one (migration, resume).
const BREAK: f64 = 1e-2;
/// The kernel's own limit of a slew (`MAXFREQ`).
const GREATEST_SLEW: f64 = 500e-6;
/// The part of the offset that is to be gone after the next span.
const GAIN: f64 = 0.5;
/// An offset beyond this is stepped over at once if the step is forward.
const STEP_NS: i64 = 1_000_000;
/// So many alarms with fewer than [`TRUST_AFTER`] quiet measurements between them: the counter cannot be used.
const ALARMS_TO_REFUSE: u64 = 8;
const TRUST_AFTER: u64 = 16;

/// A clock as a straight line over a span of ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) ns: u64,
    pub(crate) scale: Scale,
}

impl Line {
    const fn level(ns: u64) -> Self {
        Self { ns, scale: Scale::from_multiplier(0) }
    }

    pub(crate) fn after(self, ticks: u64) -> u64 {
        self.ns.saturating_add(self.scale.nanoseconds(ticks))
    }
}

/// Where a clock stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing has been asked of the machine.
    Unstarted,
    /// An anchor is set; the operating system answers until the base line is long enough.
    WarmingUp,
    /// The counter answers.
    Running,
    /// The operating system answers, for good.
    Refused(Fallback),
}

/// Brackets of the three clocks, and the counter after them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measurement {
    pub(crate) monotonic: Bracket,
    pub(crate) raw: Bracket,
    pub(crate) realtime: Bracket,
    pub(crate) ticks: u64,
}

/// Everything that a clock knows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct State {
    /// The lines start here,
    pub(crate) base_ticks: u64,
    /// and are good for so many ticks; zero while the operating system answers.
    pub(crate) span: u64,
    /// `CLOCK_MONOTONIC`.  Its value is the floor while the operating system answers.
    pub(crate) monotonic: Line,
    /// `CLOCK_MONOTONIC_RAW`, likewise.
    pub(crate) raw: Line,
    /// `CLOCK_REALTIME` less `CLOCK_MONOTONIC`.
    pub(crate) realtime_offset_ns: i64,
    /// The difference clock's scale: the estimate of the rate, never bent to catch up.
    pub(crate) difference: Scale,
    pub(crate) phase: Phase,
    /// Readings beyond the span's end may have been given out: what follows starts above the line at its own moment.
    pub(crate) closed: bool,
    pub(crate) monotonic_estimate: Estimate,
    pub(crate) raw_estimate: Estimate,
    pub(crate) interval_ns: u64,
    /// Offset of the absolute clock at `base_ticks`, and the relative slew that takes it away.
    pub(crate) offset_ns: i64,
    pub(crate) slew: f64,
    /// How much the rate on the slewed clock moved at the last measurement (relative): it may do so again.
    pub(crate) wander: f64,
    pub(crate) measurements: u64,
    /// Alarms of the latest series, which ends when the counter has been quiet for a while,
    pub(crate) alarms: u64,
    /// and quiet measurements since.
    pub(crate) quiet: u64,
    /// Departure of the latest alarm (relative); infinite when counter or clock went back.
    pub(crate) departure: f64,
}

impl State {
    /// The operating system answers from now on, not below what was given out.
    pub(crate) fn refused(self, reason: Fallback, ticks: u64) -> Self {
        Self { phase: Phase::Refused(reason), ..self.suspended(ticks) }
    }

    /// A copy that no reading is taken from, so that a measurement can be taken before the span's end.
    pub(crate) fn close(self) -> Self {
        Self { span: 0, closed: true, ..self }
    }

    /// The state after a measurement.
    pub(crate) fn next(self, measurement: &Measurement) -> Self {
        match self.phase {
            Phase::Refused(_) => self,
            Phase::Unstarted => self.warming_up(measurement),
            Phase::WarmingUp => self.warmed_up(measurement),
            Phase::Running => self.disciplined(measurement),
        }
    }

    /// When the counter may answer: the base line is long enough, and the kernel's clock has reached what was given out.
    pub(crate) fn warm_at_ns(&self) -> u64 {
        self.monotonic.ns.max(self.monotonic_estimate.last.clock_ns + WARM_UP_NS)
    }

    /// The end of the span, or the present where it was cut short.
    fn end(self, ticks: u64) -> u64 {
        if self.closed { (ticks.wrapping_sub(self.base_ticks) as i64).max(0) as u64 } else { self.span }
    }

    fn suspended(self, ticks: u64) -> Self {
        let end = self.end(ticks);
        Self {
            span: 0,
            closed: false,
            monotonic: Line::level(self.monotonic.after(end)),
            raw: Line::level(self.raw.after(end)),
            slew: 0.0,
            offset_ns: 0,
            ..self
        }
    }

    fn warming_up(self, measurement: &Measurement) -> Self {
        Self {
            phase: Phase::WarmingUp,
            monotonic_estimate: Estimate::anchored(measurement.monotonic),
            raw_estimate: Estimate::anchored(measurement.raw),
            measurements: self.measurements + 1,
            ..self.suspended(measurement.ticks)
        }
    }

    fn warmed_up(self, measurement: &Measurement) -> Self {
        let estimates =
            (self.monotonic_estimate.first(measurement.monotonic), self.raw_estimate.first(measurement.raw));
        let (Some(monotonic_estimate), Some(raw_estimate)) = estimates else {
            return self.alarmed(f64::INFINITY, measurement);
        };
        let Some(difference) = Scale::new(raw_estimate.period_ns) else {
            return self.refused(Fallback::WentBack, measurement.ticks);
        };
        // Others may have been given the operating system's time of this very moment, which lies within the bracket.
        let above = |estimate: Estimate| {
            estimate.clock_at(measurement.ticks).saturating_add(estimate.uncertainty_ns().ceil() as u64 + 1)
        };
        let (monotonic, raw) = (above(monotonic_estimate), above(raw_estimate));
        Self {
            phase: Phase::Running,
            base_ticks: measurement.ticks,
            monotonic: Line { ns: monotonic.max(self.monotonic.ns), scale: self.monotonic.scale },
            raw: Line { ns: raw.max(self.raw.ns), scale: self.raw.scale },
            difference,
            monotonic_estimate,
            raw_estimate,
            interval_ns: WARM_UP_NS / 2,
            measurements: self.measurements + 1,
            ..self
        }
        .steered(measurement)
    }

    fn disciplined(self, measurement: &Measurement) -> Self {
        let (raw_estimate, raw_says) = self.raw_estimate.next(measurement.raw, RAW_BASE_LINE_NS, ALARM);
        let (monotonic_estimate, monotonic_says) =
            self.monotonic_estimate.next(measurement.monotonic, MONOTONIC_BASE_LINE_NS, 0.0);
        let departure = match (raw_says, monotonic_says) {
            (Judgement::Broken, _) | (_, Judgement::Broken) => return self.alarmed(f64::INFINITY, measurement),
            (Judgement::Departs(by), _) | (_, Judgement::Departs(by)) if by.abs() > BREAK => {
                return self.alarmed(by, measurement);
            }
            (Judgement::Departs(by), _) => Some(by),
            (Judgement::Agrees, _) => None,
        };
        let Some(difference) = Scale::new(raw_estimate.period_ns) else {
            return self.alarmed(f64::INFINITY, measurement);
        };
        let counted = self.counted(departure);
        if let Phase::Refused(reason) = counted.phase {
            return self.refused(reason, measurement.ticks).with_alarms_of(counted);
        }
        let span_ns = self.monotonic.scale.nanoseconds(self.span);
        let end = self.end(measurement.ticks);
        let elapsed = measurement.ticks.wrapping_sub(self.base_ticks).max(end);
        let idle = !self.closed && elapsed > self.span.saturating_mul(2);
        let start = |line: Line, estimate: Estimate| {
            // A reader whose counter was read while the state was being closed may have seen the next nanosecond.
            let reached = line.after(elapsed) + u64::from(self.closed);
            let truth = estimate.clock_at(measurement.ticks);
            let step = idle || (truth as i64).wrapping_sub(reached as i64) > STEP_NS;
            Line { ns: if step { truth.max(line.after(end)) } else { reached }, ..line }
        };
        let wander = (monotonic_estimate.period_ns / self.monotonic_estimate.period_ns - 1.0).abs();
        Self {
            base_ticks: measurement.ticks,
            closed: false,
            monotonic: start(self.monotonic, monotonic_estimate),
            raw: start(self.raw, raw_estimate),
            difference,
            monotonic_estimate,
            raw_estimate,
            interval_ns: if departure.is_some() { WARM_UP_NS } else { self.interval_ns.max(span_ns) },
            wander,
            measurements: self.measurements + 1,
            ..counted
        }
        .steered(measurement)
    }

    /// Bends the lines so that they meet the clocks, and sets span and offset to real time.
    fn steered(self, measurement: &Measurement) -> Self {
        let interval_ns = (self.interval_ns * 2).min(LONGEST_INTERVAL_NS);
        let bend = |line: Line, estimate: Estimate| {
            let offset_ns = (line.ns as i64).wrapping_sub(estimate.clock_at(measurement.ticks) as i64);
            let slew = (-(offset_ns as f64) * GAIN / interval_ns as f64).clamp(-GREATEST_SLEW, GREATEST_SLEW);
            let scale = Scale::new(estimate.period_ns * (1.0 + slew)).unwrap_or(line.scale);
            (Line { scale, ..line }, offset_ns, slew)
        };
        let (monotonic, offset_ns, slew) = bend(self.monotonic, self.monotonic_estimate);
        let (raw, ..) = bend(self.raw, self.raw_estimate);
        let realtime = measurement.realtime;
        let then = self.monotonic_estimate.clock_at(realtime.ticks);
        let seen = (realtime.clock_ns as i64).wrapping_sub(then as i64);
        // The kernel slews both clocks alike: within the brackets' error the offset has not moved.
        let error =
            self.monotonic_estimate.uncertainty_ns() + realtime.width as f64 / 2.0 * self.raw_estimate.period_ns;
        let moved = seen.wrapping_sub(self.realtime_offset_ns).unsigned_abs() as f64 > error + 1.0;
        Self {
            span: self.difference.ticks(interval_ns),
            monotonic,
            raw,
            realtime_offset_ns: if moved { seen } else { self.realtime_offset_ns },
            interval_ns,
            offset_ns,
            slew,
            ..self
        }
    }

    /// The counter jumped or stood still: the operating system answers until a new base line has been measured.
    fn alarmed(self, departure: f64, measurement: &Measurement) -> Self {
        let counted = self.counted(Some(departure));
        match counted.phase {
            Phase::Refused(reason) => self.refused(reason, measurement.ticks).with_alarms_of(counted),
            _ => self.warming_up(measurement).with_alarms_of(counted),
        }
    }

    /// Alarms and quiet counted up; refused when there were too many alarms.
    fn counted(self, departure: Option<f64>) -> Self {
        let Some(departure) = departure else {
            return Self { quiet: self.quiet + 1, ..self };
        };
        let alarms = if self.quiet >= TRUST_AFTER { 1 } else { self.alarms + 1 };
        let reason = if departure.is_infinite() { Fallback::WentBack } else { Fallback::Drifted };
        let phase = if alarms >= ALARMS_TO_REFUSE { Phase::Refused(reason) } else { self.phase };
        Self { alarms, quiet: 0, departure, phase, ..self }
    }

    fn with_alarms_of(self, other: Self) -> Self {
        Self { alarms: other.alarms, quiet: other.quiet, departure: other.departure, ..self }
    }
}

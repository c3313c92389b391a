//! What it costs to read a clock once.
//!
//! The inner loop does nothing but read the clock under test into a buffer of stamps.  Between two buffers' worth the
//! differences are converted and counted, so the counting is no part of any difference.

use hptime::{TickScale, tsc};
use serde::{Deserialize, Serialize};

use super::{Extent, Kept, MaxNs, Measured, Probe, Recorder, Samples, Trial, hptime_fallback_reason};
use crate::clocks::Timebase;
use crate::distribution::Summary;
use crate::failure::Failure;
use crate::parameters::Seed;
use crate::precise;

/// Differences taken between two rounds of counting; their stamps fit into the first-level cache.
const CHUNK: usize = 1024;

/// Its parameters.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    function: Name,
    samples: Samples,
    /// Time for which the trial goes on at least, with more samples than were asked for.
    least_ns: Option<MaxNs>,
    max_ns: MaxNs,
    reservoir: Kept,
    seed: Seed,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Name {
    Rdtsc,
    Rdtscp,
    ClockGettime,
    ClockGettimeSyscall,
    Gettimeofday,
    Hptime,
}

/// Result of the probe.
#[derive(Debug, Serialize)]
pub struct TimerCost {
    function: &'static str,
    distribution: Summary,
    requested: u64,
    method: &'static str,
    overhead_ps: i64,
    resolution_ps: Option<i64>,
    zero_share: f64,
    backward: u64,
    hptime_fallback_reason: Option<String>,
}

/// A clock under test.  Each has its own copy of the loop, with the read inlined.
trait Function {
    /// What one read leaves behind.
    type Stamp: Copy;
    const NAME: &'static str;
    const METHOD: &'static str;
    const ZERO: Self::Stamp;

    /// Reads the clock once.
    fn read(stamp: &mut Self::Stamp);

    /// How far the clock itself advanced from one read to the next, in picoseconds.
    fn step_ps(scale: TickScale, earlier: &Self::Stamp, later: &Self::Stamp) -> i64;

    /// What the later read cost, in picoseconds, its method's overhead included.
    fn cost_ps(scale: TickScale, earlier: &Self::Stamp, later: &Self::Stamp) -> i64 {
        Self::step_ps(scale, earlier, later)
    }

    /// What the method itself costs, in picoseconds.
    fn overhead_ps(_scale: TickScale) -> i64 {
        0
    }
}

/// Plain `rdtsc` without fences, as the paper reads it: successive reads may overlap in the pipeline.
struct Rdtsc;

impl Function for Rdtsc {
    type Stamp = u64;
    const NAME: &'static str = "rdtsc";
    const METHOD: &'static str = "self";
    const ZERO: u64 = 0;

    #[inline(always)]
    fn read(stamp: &mut u64) {
        *stamp = tsc::read();
    }

    #[inline(always)]
    fn step_ps(scale: TickScale, earlier: &u64, later: &u64) -> i64 {
        scale.picoseconds(later.wrapping_sub(*earlier) as i64)
    }
}

/// Plain `rdtscp` without a fence after it.
struct Rdtscp;

impl Function for Rdtscp {
    type Stamp = u64;
    const NAME: &'static str = "rdtscp";
    const METHOD: &'static str = "self";
    const ZERO: u64 = 0;

    #[inline(always)]
    fn read(stamp: &mut u64) {
        *stamp = tsc::read_serialized();
    }

    #[inline(always)]
    fn step_ps(scale: TickScale, earlier: &u64, later: &u64) -> i64 {
        Rdtsc::step_ps(scale, earlier, later)
    }
}

const NO_TIME: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 0 };

fn timespec_step_ps(earlier: &libc::timespec, later: &libc::timespec) -> i64 {
    (later.tv_sec - earlier.tv_sec) * 1_000_000_000_000 + (later.tv_nsec - earlier.tv_nsec) * 1_000
}

/// `clock_gettime(CLOCK_MONOTONIC)` as a program calls it: through the vDSO where the kernel offers one.
struct ClockGettime;

impl Function for ClockGettime {
    type Stamp = libc::timespec;
    const NAME: &'static str = "clock_gettime";
    const METHOD: &'static str = "self";
    const ZERO: libc::timespec = NO_TIME;

    #[inline(always)]
    fn read(stamp: &mut libc::timespec) {
        // SAFETY: writes one timespec through a valid reference.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, stamp) };
    }

    #[inline(always)]
    fn step_ps(_scale: TickScale, earlier: &libc::timespec, later: &libc::timespec) -> i64 {
        timespec_step_ps(earlier, later)
    }
}

/// `clock_gettime(CLOCK_MONOTONIC)` as a real system call.
struct ClockGettimeSyscall;

impl Function for ClockGettimeSyscall {
    type Stamp = libc::timespec;
    const NAME: &'static str = "clock_gettime_syscall";
    const METHOD: &'static str = "self";
    const ZERO: libc::timespec = NO_TIME;

    #[inline(always)]
    fn read(stamp: &mut libc::timespec) {
        // SAFETY: the arguments are those of clock_gettime; it writes one timespec through a valid reference.
        unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, std::ptr::from_mut(stamp)) };
    }

    #[inline(always)]
    fn step_ps(_scale: TickScale, earlier: &libc::timespec, later: &libc::timespec) -> i64 {
        timespec_step_ps(earlier, later)
    }
}

/// `gettimeofday`, whose microseconds are too coarse to time itself: each call stands between two ordered reads of the
/// time stamp counter.
struct Gettimeofday;

/// One call between two reads of the counter.
#[derive(Clone, Copy)]
struct BracketedCall {
    before: u64,
    time: libc::timeval,
    after: u64,
}

impl Function for Gettimeofday {
    type Stamp = BracketedCall;
    const NAME: &'static str = "gettimeofday";
    const METHOD: &'static str = "tsc";
    const ZERO: BracketedCall = BracketedCall { before: 0, time: libc::timeval { tv_sec: 0, tv_usec: 0 }, after: 0 };

    #[inline(always)]
    fn read(stamp: &mut BracketedCall) {
        stamp.before = tsc::read_ordered_start();
        // SAFETY: writes one timeval through a valid reference; the second argument may be null.
        unsafe { libc::gettimeofday(&raw mut stamp.time, std::ptr::null_mut()) };
        stamp.after = tsc::read_ordered_end();
    }

    #[inline(always)]
    fn step_ps(_scale: TickScale, earlier: &BracketedCall, later: &BracketedCall) -> i64 {
        let seconds = later.time.tv_sec - earlier.time.tv_sec;
        seconds * 1_000_000_000_000 + (later.time.tv_usec - earlier.time.tv_usec) * 1_000_000
    }

    #[inline(always)]
    fn cost_ps(scale: TickScale, _earlier: &BracketedCall, later: &BracketedCall) -> i64 {
        scale.picoseconds(later.after.wrapping_sub(later.before) as i64)
    }

    fn overhead_ps(scale: TickScale) -> i64 {
        let mut widths: Vec<u64> = (0..CHUNK)
            .map(|_| {
                let before = tsc::read_ordered_start();
                tsc::read_ordered_end().wrapping_sub(before)
            })
            .collect();
        widths.sort_unstable();
        scale.picoseconds(widths[widths.len() / 2] as i64)
    }
}

/// hptime's clock, in nanoseconds; the system's where hptime refuses the counter.
struct Hptime;

impl Function for Hptime {
    type Stamp = u64;
    const NAME: &'static str = "hptime";
    const METHOD: &'static str = "self";
    const ZERO: u64 = 0;

    #[inline(always)]
    fn read(stamp: &mut u64) {
        *stamp = precise::CLOCK.now_ns();
    }

    #[inline(always)]
    fn step_ps(_scale: TickScale, earlier: &u64, later: &u64) -> i64 {
        later.wrapping_sub(*earlier) as i64 * 1_000
    }
}

impl Probe for TimerCost {
    const NAME: &'static str = "timer_cost";
    type Parameters = Asked;

    fn run(asked: Asked, trial: &mut Trial) -> Result<Measured<Self>, Failure> {
        let measure = match asked.function {
            Name::Rdtsc => measure::<Rdtsc>,
            Name::Rdtscp => measure::<Rdtscp>,
            Name::ClockGettime => measure::<ClockGettime>,
            Name::ClockGettimeSyscall => measure::<ClockGettimeSyscall>,
            Name::Gettimeofday => measure::<Gettimeofday>,
            Name::Hptime => measure::<Hptime>,
        };
        measure(asked, trial)
    }
}

fn measure<F: Function>(asked: Asked, trial: &mut Trial) -> Result<Measured<TimerCost>, Failure> {
    let least_ns = asked.least_ns.map_or(0, |least| least.0);
    let extent = Extent { samples: asked.samples.0, least_ns, max_ns: asked.max_ns.0 };
    let mut recorder = Recorder::new(asked.reservoir, asked.seed.0);
    let scale = scale_for::<F>(Timebase::get())?;
    let mut stamps = vec![F::ZERO; CHUNK + 1];
    let mut steps = Steps::default();
    let mut done = 0;
    let clocks_start = trial.start()?;
    // Not counted: these load code, caches, page tables and the branch predictor, from which the load has taken them.
    fill::<F>(&mut stamps);
    let overhead_ps = F::overhead_ps(scale);
    let usage_start = trial.counts_from_now();
    loop {
        let count = match extent.samples.saturating_sub(done) {
            0 => CHUNK,
            left => CHUNK.min(left as usize),
        };
        let stamps = &mut stamps[..=count];
        fill::<F>(stamps);
        for pair in stamps.windows(2) {
            recorder.record(F::cost_ps(scale, &pair[0], &pair[1]) - overhead_ps);
            steps.count(F::step_ps(scale, &pair[0], &pair[1]));
        }
        done += count as u64;
        if !trial.goes_on(done, extent)? {
            break;
        }
    }
    let around = trial.end(clocks_start, &usage_start);
    trial.samples("reservoir", recorder.reservoir.values())?;
    Ok(around.of(TimerCost {
        function: F::NAME,
        distribution: recorder.distribution.summary()?,
        requested: extent.samples,
        method: F::METHOD,
        overhead_ps,
        resolution_ps: steps.smallest_ps,
        zero_share: steps.standing as f64 / done as f64,
        backward: steps.backward,
        hptime_fallback_reason: hptime_fallback_reason(F::NAME == Hptime::NAME),
    }))
}

/// The measurement loop: successive reads, nothing else.
#[inline(never)]
fn fill<F: Function>(stamps: &mut [F::Stamp]) {
    for stamp in stamps {
        F::read(stamp);
    }
}

/// Ticks to picoseconds for functions that need them, after checking that the machine has the function.
fn scale_for<F: Function>(timebase: &Timebase) -> Result<TickScale, Failure> {
    if F::NAME == Rdtscp::NAME && !timebase.capability.serialized_read {
        return Err(Failure::unsupported("the processor of this guest has no rdtscp"));
    }
    let counts_ticks = F::METHOD == "tsc" || F::NAME.starts_with("rdtsc");
    let hz = if counts_ticks { timebase.frequency()?.hz } else { 1.0 };
    Ok(TickScale::new(hz))
}

/// How the clock itself advanced from read to read.
#[derive(Debug, Default)]
struct Steps {
    smallest_ps: Option<i64>,
    standing: u64,
    backward: u64,
}

impl Steps {
    #[inline]
    fn count(&mut self, step_ps: i64) {
        match step_ps {
            0 => self.standing += 1,
            ..0 => self.backward += 1,
            _ => self.smallest_ps = Some(self.smallest_ps.map_or(step_ps, |smallest| smallest.min(step_ps))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_tell_standing_backward_and_the_smallest_advance_apart() {
        let mut steps = Steps::default();
        for step in [0, 5, -3, 2, 0, 9] {
            steps.count(step);
        }
        assert_eq!((steps.standing, steps.backward, steps.smallest_ps), (2, 1, Some(2)));
        assert_eq!(Steps::default().smallest_ps, None);
    }

    #[test]
    fn a_step_back_is_negative_for_every_clock() {
        let scale = TickScale::new(1e9);
        assert_eq!(Rdtsc::step_ps(scale, &10, &7), -3_000);
        let time = |tv_sec, tv_nsec| libc::timespec { tv_sec, tv_nsec };
        assert_eq!(ClockGettime::step_ps(scale, &time(2, 5), &time(1, 999_999_999)), -6_000);
        let call = |tv_sec, tv_usec| BracketedCall { before: 0, time: libc::timeval { tv_sec, tv_usec }, after: 9 };
        assert_eq!(Gettimeofday::step_ps(scale, &call(2, 0), &call(1, 999_999)), -1_000_000);
        assert_eq!(Gettimeofday::cost_ps(scale, &call(2, 0), &call(1, 999_999)), 9_000);
    }
}

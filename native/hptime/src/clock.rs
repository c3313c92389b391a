//! The clocks.

use core::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::calibration::{BRACKETS, Bracket};
use crate::difference::DifferenceClock;
use crate::discipline::{Line, Measurement, Phase, State};
use crate::os_clock::OsClock;
use crate::publication::{Published, Tag};
use crate::scale::Scale;
use crate::source::{Machine, Source};
use crate::state_words::{WORDS, word};
use crate::status::{DriftAlarm, ErrorBar, Fallback, Status};

/// A reading this little before the base of the lines is another processor's view of the present, not a jump of the counter.
const SKEW_NS: u64 = 10_000_000;

/// So many lost races, and the operating system answers: more means that no slot is free (see [`crate::publication`]).
const ATTEMPTS: usize = 1000;

/// A clock on the time stamp counter, disciplined by the kernel's clocks.
///
/// It takes its anchors itself: the reading that finds the current ones out of date (at most a second old) takes new
/// ones, which costs it about a microsecond.  There is no thread, no lock and no allocation: a clock may be a `static`,
/// be read in signal handlers and before constructors, and goes on in both processes after `fork`.
#[derive(Debug)]
pub struct Clock<S: Source = Machine> {
    source: S,
    published: Published<WORDS>,
}

impl Clock {
    /// A clock of this machine.  Nothing is measured yet: the first reading checks the counter, and the operating
    /// system's clock answers until 20 ms later the rate is known.  Can initialize a `static`.
    #[must_use]
    pub const fn new() -> Self {
        Self::on(Machine)
    }

    /// A clock of this machine whose rate is known already, or which has refused.  Takes 20 ms; with [`Clock::new`] they
    /// pass unnoticed.
    #[must_use]
    pub fn calibrated() -> Self {
        let clock = Self::new();
        clock.settle();
        clock
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Source> Clock<S> {
    /// A clock of some machine, or of a simulated one.
    pub const fn on(source: S) -> Self {
        Self { source, published: Published::new() }
    }

    /// The machine under the clock.
    pub const fn source(&self) -> &S {
        &self.source
    }

    /// The absolute clock: `CLOCK_MONOTONIC` in nanoseconds.  It never goes back in a thread.
    ///
    /// It follows the kernel's slew by NTP and takes offsets away by slewing 500 ppm at most.  The processor may read the
    /// counter some instructions early, as with every plain `rdtsc`; [`Clock::now_ordered_ns`] does not let it.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.line::<{ word::MONOTONIC_NS }, { word::MONOTONIC_SCALE }>(S::ticks)
            .unwrap_or_else(|| self.slowly::<{ word::MONOTONIC_NS }>(OsClock::Monotonic, |state| state.monotonic))
    }

    /// [`Clock::now_ns`], never going back between threads either: a time that this thread has seen from another one is not
    /// later.  The kernel's clock promises the same; it costs a fence.
    #[inline]
    pub fn now_ordered_ns(&self) -> u64 {
        self.line::<{ word::MONOTONIC_NS }, { word::MONOTONIC_SCALE }>(S::ticks_after_loads)
            .unwrap_or_else(|| self.slowly::<{ word::MONOTONIC_NS }>(OsClock::Monotonic, |state| state.monotonic))
    }

    /// [`Clock::now_ns`] as the time since the kernel's origin of `CLOCK_MONOTONIC`, usually the boot.
    #[inline]
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.now_ns())
    }

    /// `CLOCK_MONOTONIC_RAW` in nanoseconds.  It never goes back in a thread.
    ///
    /// For durations use [`Clock::difference`], whose scale is never bent to catch up.
    #[inline]
    pub fn raw_ns(&self) -> u64 {
        self.line::<{ word::RAW_NS }, { word::RAW_SCALE }>(S::ticks)
            .unwrap_or_else(|| self.slowly::<{ word::RAW_NS }>(OsClock::MonotonicRaw, |state| state.raw))
    }

    /// `CLOCK_REALTIME` in nanoseconds.
    ///
    /// A step of that clock is seen when the next anchor is taken, up to a second later.
    #[inline]
    pub fn realtime_ns(&self) -> u64 {
        self.realtime(S::ticks)
    }

    /// [`Clock::realtime_ns`], and between threads as [`Clock::now_ordered_ns`] is: a step apart, never back.
    #[inline]
    pub fn realtime_ordered_ns(&self) -> u64 {
        self.realtime(S::ticks_after_loads)
    }

    /// The difference clock, for durations.  Waits for the calibration if need be, 20 ms at most.
    pub fn difference(&self) -> DifferenceClock<'_, S> {
        self.settle();
        DifferenceClock::new(self)
    }

    /// Waits until the rate is known, 20 ms at most, or the counter is refused.
    pub fn settle(&self) {
        // A counter that keeps jumping is refused after a few tries; each takes one warm-up.
        for _ in 0..ATTEMPTS {
            let ready_ns = match self.state().phase {
                Phase::Running | Phase::Refused(_) => return,
                Phase::Unstarted => self.now_ns(),
                Phase::WarmingUp => self.state().warm_at_ns(),
            };
            self.source.sleep_until(ready_ns);
            self.now_ns();
        }
    }

    /// Takes a new anchor of the kernel's clocks now, before the current one is out of date.
    ///
    /// Readings do so by themselves; this is for those who want to choose the moment.
    pub fn discipline(&self) {
        let (tag, words) = self.published.read();
        let state = State::from_words(&words);
        if state.phase == Phase::Running {
            self.published.replace(tag, &state.close().to_words());
        }
        self.now_ns();
    }

    /// Why the counter is not in use; `None` when it is, or when the clock has not been read for 20 ms yet.
    pub fn fallback_reason(&self) -> Option<Fallback> {
        match self.state().phase {
            Phase::Refused(reason) => Some(reason),
            _ => None,
        }
    }

    /// What the clock knows of itself.
    pub fn status(&self) -> Status {
        let state = self.state();
        let alarm = DriftAlarm { departure_ppm: state.departure * 1e6, count: state.alarms, quiet: state.quiet };
        let running = state.phase == Phase::Running;
        Status {
            running,
            fallback_reason: self.fallback_reason(),
            frequency_hz: if running { 1e9 / state.raw_estimate.period_ns } else { 0.0 },
            difference_error_ppm: if running { state.raw_estimate.error * 1e6 } else { 0.0 },
            absolute_error: running.then(|| self.absolute_error(&state)),
            alarm: (state.alarms > 0).then_some(alarm),
            measurements: state.measurements,
        }
    }

    fn absolute_error(&self, state: &State) -> ErrorBar {
        let age = (self.source.ticks().wrapping_sub(state.base_ticks) as i64).max(0);
        let rate = state.monotonic_estimate.error + state.wander + state.slew.abs();
        let at_base = state.monotonic_estimate.uncertainty_ns() + state.offset_ns.unsigned_abs() as f64;
        ErrorBar {
            ns: at_base + age as f64 * state.monotonic_estimate.period_ns * rate,
            ppm: (state.monotonic_estimate.error + state.wander) * 1e6,
        }
    }

    pub(crate) fn state(&self) -> State {
        State::from_words(&self.published.read().1)
    }

    /// The difference clock's scale, as last measured.
    #[inline(always)]
    pub(crate) fn difference_scale(&self) -> Scale {
        loop {
            let (tag, words) = self.published.current();
            let scale = words[word::DIFFERENCE_SCALE].load(Ordering::Relaxed);
            if self.published.confirms(tag) {
                return Scale::from_multiplier(scale);
            }
        }
    }

    /// One reading: the counter, a multiplication, a shift and three well-predicted branches.
    #[inline(always)]
    fn line<const NS: usize, const SCALE: usize>(&self, read: impl FnOnce(&S) -> u64) -> Option<u64> {
        let (tag, words) = self.published.current();
        let ns = self.line_of::<NS, SCALE>(words, read)?;
        self.published.confirms(tag).then_some(ns)
    }

    /// A line at a tick within its span.  A tick before its base wraps to a large number and is not within it either.
    #[inline(always)]
    fn line_of<const NS: usize, const SCALE: usize>(
        &self,
        words: &[AtomicU64; WORDS],
        read: impl FnOnce(&S) -> u64,
    ) -> Option<u64> {
        let span = words[word::SPAN].load(Ordering::Relaxed);
        // Where the operating system answers, the counter is left alone: reading it may trap, or end the process.
        if span == 0 {
            return None;
        }
        let elapsed = read(&self.source).wrapping_sub(words[word::BASE_TICKS].load(Ordering::Relaxed));
        if elapsed >= span {
            return None;
        }
        let scale = Scale::from_multiplier(words[SCALE].load(Ordering::Relaxed));
        Some(words[NS].load(Ordering::Relaxed).wrapping_add(scale.nanoseconds(elapsed)))
    }

    #[inline(always)]
    fn realtime(&self, read: impl FnOnce(&S) -> u64) -> u64 {
        let (tag, words) = self.published.current();
        let offset = words[word::REALTIME_OFFSET].load(Ordering::Relaxed) as i64;
        if let Some(ns) = self.line_of::<{ word::MONOTONIC_NS }, { word::MONOTONIC_SCALE }>(words, read) {
            if self.published.confirms(tag) {
                return ns.saturating_add_signed(offset);
            }
        }
        self.realtime_slowly()
    }

    #[cold]
    #[inline(never)]
    fn slowly<const NS: usize>(&self, clock: OsClock, line: impl Fn(&State) -> Line) -> u64 {
        if let Some(words) = self.refused_words() {
            return self.source.clock_ns(clock).max(words[NS].load(Ordering::Relaxed));
        }
        match self.current_state() {
            Some((state, ticks)) => {
                // Slightly before the base is the base: another processor's present.
                let elapsed = (ticks.wrapping_sub(state.base_ticks) as i64).max(0);
                line(&state).after(elapsed as u64)
            }
            None => self.source.clock_ns(clock).max(line(&self.state()).ns),
        }
    }

    #[cold]
    #[inline(never)]
    fn realtime_slowly(&self) -> u64 {
        if self.refused_words().is_some() {
            return self.source.clock_ns(OsClock::Realtime);
        }
        match self.current_state() {
            Some((state, ticks)) => {
                let elapsed = (ticks.wrapping_sub(state.base_ticks) as i64).max(0);
                state.monotonic.after(elapsed as u64).saturating_add_signed(state.realtime_offset_ns)
            }
            None => self.source.clock_ns(OsClock::Realtime),
        }
    }

    /// The state's words after a fallback, which is for good: nobody writes to them any more.
    fn refused_words(&self) -> Option<&[AtomicU64; WORDS]> {
        let (tag, words) = self.published.current();
        let refused = Phase::refused_in(words[word::PHASE].load(Ordering::Relaxed));
        (refused && self.published.confirms(tag)).then_some(words)
    }

    /// A state whose lines hold at the tick beside it, after a measurement if need be; `None` when the operating system
    /// has to answer.
    fn current_state(&self) -> Option<(State, u64)> {
        for _ in 0..ATTEMPTS {
            let (tag, words) = self.published.read();
            let state = State::from_words(&words);
            match state.phase {
                Phase::Refused(_) => return None,
                Phase::Unstarted => self.start(tag, &state),
                Phase::WarmingUp => {
                    if self.source.clock_ns(OsClock::Monotonic) < state.warm_at_ns() {
                        return None;
                    }
                    self.advance(tag, &state);
                }
                Phase::Running => {
                    let ticks = self.source.ordered_ticks();
                    let elapsed = ticks.wrapping_sub(state.base_ticks);
                    let before = state.base_ticks.wrapping_sub(ticks);
                    let near = before as i64 > 0 && state.monotonic.scale.nanoseconds(before) < SKEW_NS;
                    if !state.closed && (elapsed < state.span || near) && self.published.confirms(tag) {
                        return Some((state, ticks));
                    }
                    self.advance(tag, &state);
                }
            }
        }
        None
    }

    fn start(&self, tag: Tag, state: &State) {
        match self.source.admission() {
            Ok(()) => self.advance(tag, state),
            Err(reason) => {
                self.published.replace(tag, &state.refused(reason, 0).to_words());
            }
        }
    }

    fn advance(&self, tag: Tag, state: &State) {
        let measurement = self.measure(state);
        self.published.replace(tag, &state.next(&measurement).to_words());
    }

    fn measure(&self, state: &State) -> Measurement {
        let raw = self.bracket(OsClock::MonotonicRaw, state.raw_estimate.last.width);
        let monotonic = self.bracket(OsClock::Monotonic, state.monotonic_estimate.last.width);
        let realtime = self.bracket(OsClock::Realtime, monotonic.width);
        Measurement { monotonic, raw, realtime, ticks: self.source.ordered_ticks() }
    }

    /// The tightest of up to [`BRACKETS`] brackets; one that is about as tight as the last ones were is tight enough.
    fn bracket(&self, clock: OsClock, usual_width: u64) -> Bracket {
        let enough = usual_width + usual_width / 16;
        let mut best = Bracket { ticks: 0, width: u64::MAX, clock_ns: 0 };
        for _ in 0..BRACKETS {
            let before = self.source.ordered_ticks();
            let clock_ns = self.source.clock_ns(clock);
            let width = self.source.ordered_ticks().wrapping_sub(before);
            if width < best.width {
                best = Bracket { ticks: before.wrapping_add(width / 2), width, clock_ns };
            }
            if best.width <= enough {
                break;
            }
        }
        best
    }
}

static PROCESS: Clock = Clock::new();

/// The process's own clock, shared by all who want no other.
#[must_use]
pub const fn clock() -> &'static Clock {
    &PROCESS
}

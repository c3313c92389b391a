//! The sleep itself.

use std::time::Duration;

use crate::clock::Clock;
use crate::sleep::guard::{self, Guard};
use crate::sleep::outcome::{Cause, Rule, SleepError, Wake};
use crate::source::{Machine, Source};

/// Before this, the spin loop pauses between readings; a pause may last 50 ns and more.
const BARE_NS: u64 = 200;

/// The last part of the spin, which runs in the caller's own code.
///
/// After some milliseconds of sleep, the code and the stack that a sleep returns to are no longer cached, nor are their
/// translations: in a guest, a return then takes up to a microsecond, however long the spin before it was.  So
/// [`Sleeper::approach`] returns this much before the deadline, and what is left is inlined into the caller.  It also
/// covers the way out of the processor's light sleep.
const LAST_NS: u64 = guard::SHORTEST_NS;

/// `HighPerTimer` limits HZ to 1000.
const GREATEST_HZ: u32 = 1000;

/// Sleeps by a rule, and learns how late the kernel wakes.
///
/// One sleeper can serve any number of threads, and signal handlers; what one thread learns serves all.
#[derive(Debug)]
pub struct Sleeper<'c, S: Source = Machine> {
    clock: &'c Clock<S>,
    rule: Rule,
    return_on_signal: bool,
    guard: Guard,
}

impl<'c, S: Source> Sleeper<'c, S> {
    /// A sleeper by [`Rule::Adaptive`] that goes on sleeping after a signal handler has run.
    #[must_use]
    pub const fn new(clock: &'c Clock<S>) -> Self {
        Self { clock, rule: Rule::Adaptive, return_on_signal: false, guard: Guard::new() }
    }

    /// The same by another rule.
    #[must_use]
    pub const fn by(mut self, rule: Rule) -> Self {
        self.rule = rule;
        self
    }

    /// The same, but a signal handler that runs during the kernel's part of the sleep ends it: [`Cause::Interrupted`].
    ///
    /// A handler that runs during the spin loop cannot be noticed; the deadline is then a guard away at most.
    #[must_use]
    pub const fn returning_on_signals(mut self) -> Self {
        self.return_on_signal = true;
        self
    }

    /// How long before a deadline the thread would now be awake, in nanoseconds.
    #[must_use]
    pub fn guard_ns(&self) -> u64 {
        match self.rule {
            Rule::Adaptive => self.guard.ns(),
            Rule::HighPerTimer { hz } => 1_000_000_000 / u64::from(hz.clamp(1, GREATEST_HZ)),
            Rule::Os => 0,
        }
    }

    /// Forgets how late the kernel has woken threads: the guard is that of a new sleeper.
    pub fn forget(&self) {
        self.guard.forget();
    }

    /// Sleeps until the absolute clock shows `deadline_ns` ([`Clock::now_ns`], that is `CLOCK_MONOTONIC`).
    #[inline(always)]
    pub fn sleep_until(&self, deadline_ns: i64) -> Result<Wake, SleepError> {
        let deadline = u64::try_from(deadline_ns).map_err(|_| SleepError::Negative { ns: deadline_ns })?;
        Ok(self.run(deadline, self.clock.now_ns()))
    }

    /// Sleeps for a number of nanoseconds from now.
    #[inline(always)]
    pub fn sleep_for(&self, duration_ns: i64) -> Result<Wake, SleepError> {
        let duration = u64::try_from(duration_ns).map_err(|_| SleepError::Negative { ns: duration_ns })?;
        let now = self.clock.now_ns();
        let deadline = now.checked_add(duration).filter(|&end| i64::try_from(end).is_ok());
        Ok(self.run(deadline.ok_or(SleepError::Overflow)?, now))
    }

    /// Sleeps for a duration from now.
    #[inline(always)]
    pub fn sleep(&self, duration: Duration) -> Result<Wake, SleepError> {
        self.sleep_for(i64::try_from(duration.as_nanos()).map_err(|_| SleepError::Overflow)?)
    }

    #[inline(always)]
    fn run(&self, deadline: u64, now: u64) -> Wake {
        let mut wake = self.approach(deadline, now);
        if wake.lateness_ns < 0 && wake.cause != Cause::Interrupted && self.rule != Rule::Os {
            let end = self.arrive(deadline);
            let late = (end as i64).wrapping_sub(deadline as i64);
            wake.spin_ns += late.saturating_sub(wake.lateness_ns).max(0) as u64;
            wake.lateness_ns = late;
        }
        wake
    }

    /// Sleeps and spins until the deadline is [`LAST_NS`] away; a lateness below zero is what is left of the spin.
    #[inline(never)]
    fn approach(&self, deadline: u64, now: u64) -> Wake {
        let guard_ns = self.guard_ns();
        let wake = |now: u64, spin_ns, cause| Wake {
            lateness_ns: (now as i64).wrapping_sub(deadline as i64),
            spin_ns,
            guard_ns,
            cause,
        };
        if now >= deadline {
            return wake(now, 0, Cause::Past);
        }
        let wake_at = deadline.saturating_sub(guard_ns);
        let mut awake = now;
        let mut cause = Cause::SpunOnly;
        while awake < wake_at {
            let finished = self.clock.source().sleep_until(wake_at);
            awake = self.clock.now_ns();
            if finished {
                // The kernel's clock and this one differ by nanoseconds: a wake that looks early is one in time.
                self.guard.record(awake.saturating_sub(wake_at));
                cause = Cause::Slept;
                break;
            }
            if self.return_on_signal {
                return wake(awake, 0, Cause::Interrupted);
            }
            cause = Cause::Slept;
        }
        if awake >= deadline || self.rule == Rule::Os {
            return wake(awake, 0, Cause::LateWake);
        }
        let near = self.spin(deadline.saturating_sub(LAST_NS));
        wake(near, near.saturating_sub(awake), cause)
    }

    /// Waits awake until `end`, in a light sleep of the processor where there is one.
    fn spin(&self, end: u64) -> u64 {
        let source = self.clock.source();
        loop {
            let now = self.clock.now_ns();
            if now >= end {
                return now;
            }
            let ticks = self.clock.difference_scale().ticks(end - now);
            if ticks == u64::MAX || !source.doze_until(source.ticks().wrapping_add(ticks)) {
                source.relax();
            }
        }
    }

    /// Waits awake until the deadline and returns the reading that first showed it.
    #[inline(always)]
    fn arrive(&self, deadline: u64) -> u64 {
        loop {
            let now = self.clock.now_ns();
            if now >= deadline {
                return now;
            }
            if deadline - now > BARE_NS {
                self.clock.source().relax();
            }
        }
    }
}

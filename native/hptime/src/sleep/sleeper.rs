//! The sleep itself.

use std::time::Duration;

use crate::clock::Clock;
use crate::sleep::outcome::{Cause, Rule, SleepError, Wake};
use crate::source::{Machine, Source};

/// Sleeps by a rule, and learns how late the kernel wakes.
///
/// One sleeper can serve any number of threads, and signal handlers.
#[derive(Debug)]
pub struct Sleeper<'c, S: Source = Machine> {
    clock: &'c Clock<S>,
    rule: Rule,
    return_on_signal: bool,
}

impl<'c, S: Source> Sleeper<'c, S> {
    /// A sleeper by [`Rule::Adaptive`] that goes on sleeping after a signal handler has run.
    #[must_use]
    pub const fn new(clock: &'c Clock<S>) -> Self {
        Self { clock, rule: Rule::Adaptive, return_on_signal: false }
    }

    /// The same by another rule.
    #[must_use]
    pub const fn by(mut self, rule: Rule) -> Self {
        self.rule = rule;
        self
    }

    /// The same, but a signal handler that runs during the kernel's part of the sleep ends it: [`Cause::Interrupted`].
    #[must_use]
    pub const fn returning_on_signals(mut self) -> Self {
        self.return_on_signal = true;
        self
    }

    /// Sleeps until the absolute clock shows `deadline_ns` ([`Clock::now_ns`], that is `CLOCK_MONOTONIC`).
    pub fn sleep_until(&self, deadline_ns: i64) -> Result<Wake, SleepError> {
        let deadline = u64::try_from(deadline_ns).map_err(|_| SleepError::Negative { ns: deadline_ns })?;
        let _ = (&self.rule, self.return_on_signal, self.clock.source().sleep_until(deadline));
        let lateness_ns = self.clock.now_ns() as i64 - deadline_ns;
        Ok(Wake { lateness_ns, spin_ns: 0, guard_ns: 0, cause: Cause::LateWake })
    }

    /// Sleeps for a number of nanoseconds from now.
    pub fn sleep_for(&self, duration_ns: i64) -> Result<Wake, SleepError> {
        if duration_ns < 0 {
            return Err(SleepError::Negative { ns: duration_ns });
        }
        let now = i64::try_from(self.clock.now_ns()).map_err(|_| SleepError::Overflow)?;
        self.sleep_until(now.checked_add(duration_ns).ok_or(SleepError::Overflow)?)
    }

    /// Sleeps for a duration from now.
    pub fn sleep(&self, duration: Duration) -> Result<Wake, SleepError> {
        self.sleep_for(i64::try_from(duration.as_nanos()).map_err(|_| SleepError::Overflow)?)
    }
}

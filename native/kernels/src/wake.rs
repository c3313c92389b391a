//! Wake-up latency: a thread that sleeps until every multiple of a period, and looks how late it was woken.

use failure::Failure;
use hptime::OsClock;
use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};

use crate::Kernel;

/// The kernel of wake-up latency; one unit is one wake-up, however many periods it was late by.
pub struct Wake<R: FnMut(u64) + Send> {
    period_ns: u64,
    /// The last period that was due; none before the first pass.
    due_ns: u64,
    late: R,
}

impl<R: FnMut(u64) + Send> Wake<R> {
    /// With what takes the lateness of every period's wake-up, in nanoseconds: one that came several periods late is that of
    /// each of them.
    pub fn new(period_ns: u64, late: R) -> Self {
        Self { period_ns, due_ns: 0, late }
    }

    /// Tells the lateness of the period that was due, and of those that were slept through, which are not made up for.
    fn woken(&mut self, now_ns: u64) {
        let late_ns = now_ns.saturating_sub(self.due_ns);
        let missed = late_ns / self.period_ns;
        (0..=missed).for_each(|periods| (self.late)(late_ns - periods * self.period_ns));
        self.due_ns += missed * self.period_ns;
    }
}

impl<R: FnMut(u64) + Send> Kernel for Wake<R> {
    fn unit(&self) -> &'static str {
        "wake-ups"
    }

    fn pass(&mut self) -> Result<u64, Failure> {
        if self.due_ns == 0 {
            self.due_ns = OsClock::Monotonic.now_ns(); // not when it was made: until it runs nothing is slept through
        }
        self.due_ns += self.period_ns;
        let due = TimeSpec::new((self.due_ns / 1_000_000_000) as i64, (self.due_ns % 1_000_000_000) as i64);
        loop {
            match clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &due) {
                Ok(_) => break,
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(Failure::os("sleeping", errno)),
            }
        }
        self.woken(OsClock::Monotonic.now_ns());
        Ok(1)
    }

    fn check(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_up_that_slept_through_periods_is_late_for_each_of_them() {
        let mut seen = Vec::new();
        {
            let mut wake = Wake { period_ns: 1000, due_ns: 5000, late: |late_ns| seen.push(late_ns) };
            wake.woken(5300);
            wake.due_ns += 1000;
            wake.woken(8500);
            assert_eq!(wake.due_ns, 8000);
        }
        assert_eq!(seen, [300, 2500, 1500, 500]);
    }

    #[test]
    fn every_wake_up_is_late_and_none_is_early() {
        let mut seen = Vec::new();
        let started_ns = OsClock::Monotonic.now_ns();
        {
            let mut wake = Wake::new(2_000_000, |late_ns| seen.push(late_ns));
            for _ in 0..10 {
                wake.pass().unwrap();
            }
        }
        assert!(seen.len() >= 10);
        assert!(OsClock::Monotonic.now_ns() - started_ns >= 20_000_000);
    }
}

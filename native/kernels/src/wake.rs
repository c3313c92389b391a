//! Wake-up latency: a thread that sleeps until every multiple of a period, and looks how late it was woken.

use failure::Failure;
use hptime::OsClock;
use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};

use crate::kernel::Kernel;

/// The kernel of wake-up latency; one unit is one period that was met before the next began.
pub struct Wake<R: FnMut(u64) + Send> {
    period_ns: u64,
    due_ns: u64,
    late: R,
}

impl<R: FnMut(u64) + Send> Wake<R> {
    /// With what takes the lateness of every wake-up, in nanoseconds.
    pub fn new(period_ns: u64, late: R) -> Self {
        Self { period_ns, due_ns: OsClock::Monotonic.now_ns(), late }
    }
}

impl<R: FnMut(u64) + Send> Kernel for Wake<R> {
    fn unit(&self) -> &'static str {
        "wake-ups"
    }

    fn pass(&mut self) -> Result<u64, Failure> {
        self.due_ns += self.period_ns;
        let due = TimeSpec::new((self.due_ns / 1_000_000_000) as i64, (self.due_ns % 1_000_000_000) as i64);
        loop {
            match clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &due) {
                Ok(_) => break,
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(Failure::os("sleeping", errno)),
            }
        }
        let late_ns = OsClock::Monotonic.now_ns().saturating_sub(self.due_ns);
        (self.late)(late_ns);
        let missed = late_ns / self.period_ns;
        self.due_ns += missed * self.period_ns; // periods that were slept through are not made up for
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
    fn every_wake_up_is_late_and_none_is_early() {
        let mut seen = Vec::new();
        let started_ns = OsClock::Monotonic.now_ns();
        {
            let mut wake = Wake::new(2_000_000, |late_ns| seen.push(late_ns));
            for _ in 0..10 {
                wake.pass().unwrap();
            }
        }
        assert_eq!(seen.len(), 10);
        assert!(OsClock::Monotonic.now_ns() - started_ns >= 20_000_000);
    }
}

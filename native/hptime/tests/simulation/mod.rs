//! A machine whose time is known: every reading of a clock or of the counter costs time, and the truth is at hand.

use std::sync::Mutex;

use hptime::{Fallback, OsClock, Source};

/// What the machine is like.  Times are in nanoseconds, rates in parts per million of the nominal ones.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The true time.
    pub now: f64,
    /// The counter's frequency in GHz, that is ticks a nanosecond, and its value at `origin`.
    pub ghz: f64,
    pub ticks: f64,
    pub origin: f64,
    /// Slew of `CLOCK_MONOTONIC` by NTP.
    pub slew_ppm: f64,
    pub monotonic: f64,
    /// Offset of `CLOCK_REALTIME` from `CLOCK_MONOTONIC`.
    pub realtime_offset: f64,
    /// Cost of a clock reading and of a counter reading.
    pub clock_cost: f64,
    pub counter_cost: f64,
    /// Every so many clock readings, one is preempted for a millisecond.
    pub preempt_every: u64,
    pub readings: u64,
    /// Readings of the counter so far.
    pub counts: u64,
    /// Lateness of the kernel's wakes: the next one takes the first and puts it last.
    pub lateness: Vec<u64>,
    pub wakes: usize,
    /// A signal handler ends so many of the next sleeps half-way.
    pub signals: u32,
    pub verdict: Result<(), Fallback>,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            now: 1e12,
            ghz: 2.6,
            ticks: 7e12,
            origin: 1e12,
            slew_ppm: 0.0,
            monotonic: 1e12,
            realtime_offset: 1.7e18,
            clock_cost: 24.0,
            counter_cost: 9.0,
            preempt_every: 0,
            readings: 0,
            counts: 0,
            lateness: vec![20_000],
            wakes: 0,
            signals: 0,
            verdict: Ok(()),
        }
    }
}

impl Machine {
    /// Lets time pass.
    pub fn pass(&mut self, ns: f64) {
        self.now += ns;
        self.monotonic += ns * (1.0 + self.slew_ppm * 1e-6);
    }

    /// The counter, unrounded.
    fn counter(&self) -> f64 {
        self.ticks + (self.now - self.origin) * self.ghz
    }

    /// Changes the counter's rate from now on.
    pub fn set_ghz(&mut self, ghz: f64) {
        self.ticks = self.counter();
        self.origin = self.now;
        self.ghz = ghz;
    }

    /// Moves the counter.
    pub fn jump(&mut self, ticks: f64) {
        self.ticks += ticks;
    }
}

/// The machine as hptime sees it; shared between threads and with the test.
#[derive(Debug, Default)]
pub struct Simulated(pub Mutex<Machine>);

impl Simulated {
    pub fn new(machine: Machine) -> Self {
        Self(Mutex::new(machine))
    }

    pub fn with<T>(&self, look: impl FnOnce(&mut Machine) -> T) -> T {
        look(&mut self.0.lock().expect("no test panics while it holds the machine"))
    }

    /// Lets time pass.
    pub fn pass(&self, ns: f64) {
        self.with(|machine| machine.pass(ns));
    }

    /// What `CLOCK_MONOTONIC` truly shows.
    pub fn monotonic(&self) -> i64 {
        self.with(|machine| machine.monotonic as i64)
    }
}

impl Source for &Simulated {
    fn ticks(&self) -> u64 {
        self.with(|machine| {
            machine.counts += 1;
            machine.pass(machine.counter_cost);
            machine.counter() as u64
        })
    }

    fn clock_ns(&self, clock: OsClock) -> u64 {
        self.with(|machine| {
            machine.readings += 1;
            machine.pass(machine.clock_cost / 2.0);
            let ns = match clock {
                OsClock::MonotonicRaw => machine.now,
                OsClock::Realtime => machine.monotonic + machine.realtime_offset,
                _ => machine.monotonic,
            };
            if machine.preempt_every > 0 && machine.readings % machine.preempt_every == 0 {
                machine.pass(1e6);
            }
            machine.pass(machine.clock_cost / 2.0);
            ns as u64
        })
    }

    fn admission(&self) -> Result<(), Fallback> {
        self.with(|machine| machine.verdict)
    }

    fn sleep_until(&self, deadline_ns: u64) -> bool {
        self.with(|machine| {
            let left = deadline_ns as f64 - machine.monotonic;
            if left <= 0.0 {
                return true;
            }
            if machine.signals > 0 {
                machine.signals -= 1;
                machine.pass(left / 2.0);
                return false;
            }
            let late = machine.lateness[machine.wakes % machine.lateness.len()];
            machine.wakes += 1;
            machine.pass(left / (1.0 + machine.slew_ppm * 1e-6) + late as f64);
            true
        })
    }

    fn relax(&self) {
        self.pass(40.0);
    }
}

//! Does work of a known kind on some threads for a fixed time, and counts it by slices of that time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use hptime::OsClock;
use kernels::frequency;
use kernels::timed::{self, Extent, Work};
use serde::Serialize;

use super::{Measured, Probe, Trial};
use crate::distribution::{Distribution, Summary};
use crate::failure::{Code, Failure};
use crate::loads::threads::Gate;
use crate::machine::UsageStart;
use crate::work::{Asked, Made, needed};

/// How often the controller's wishes are looked after meanwhile; the thread that does it sleeps in between.
const LOOK: Duration = Duration::from_millis(20);

/// Tries for the frequency: a millisecond of them.
const TRIES: u32 = 20;

/// Result of the probe.
#[derive(Debug, Serialize)]
pub struct KernelResult {
    unit: &'static str,
    units: u64,
    /// Longest of the threads.
    elapsed_ns: u64,
    cpu_ns: u64,
    threads: Vec<ThreadResult>,
    direct: Option<bool>,
    latency: Option<Summary>,
    frequency_before_hz: f64,
    frequency_after_hz: f64,
}

/// What one thread did.
#[derive(Debug, Serialize)]
struct ThreadResult {
    units: u64,
    elapsed_ns: u64,
    cpu_ns: u64,
    slice_units: Vec<u64>,
    slice_ns: Vec<u64>,
}

impl From<Work> for ThreadResult {
    fn from(Work { units, elapsed_ns, cpu_ns, slices }: Work) -> Self {
        let (slice_units, slice_ns) = slices.iter().map(|slice| (slice.units, slice.elapsed_ns)).unzip();
        Self { units, elapsed_ns, cpu_ns, slice_units, slice_ns }
    }
}

impl Probe for KernelResult {
    const NAME: &'static str = "kernel";
    type Parameters = Asked;

    /// The threads are made ready before the trial starts, and begin together.
    fn run(asked: Asked, trial: &mut Trial) -> Result<Measured<Self>, Failure> {
        let extent = Extent {
            warmup_ns: needed(asked.warmup_ns, "warmup_ns")?.0,
            duration_ns: needed(asked.duration_ns, "duration_ns")?.0,
            slice_ns: needed(asked.slice_ns, "slice_ns")?.0,
        };
        let latencies = Arc::new(Mutex::new(Distribution::new()));
        let made = asked.make(&latencies)?;
        let (unit, direct) = (made[0].kernel.unit(), made[0].direct);

        let frequency_before_hz = frequency::hertz(TRIES);
        let clocks_start = trial.start()?;
        let usage_start = UsageStart::now();
        let works = worked(made, extent, trial);
        let around = trial.end(clocks_start, &usage_start);
        let works = works?;
        let latencies = latencies.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(around.of(Self {
            unit,
            units: works.iter().map(|work| work.units).sum(),
            elapsed_ns: works.iter().map(|work| work.elapsed_ns).max().unwrap_or(0),
            cpu_ns: works.iter().map(|work| work.cpu_ns).sum(),
            threads: works.into_iter().map(Into::into).collect(),
            direct,
            latency: if asked.has_latency() { Some(latencies.summary()?) } else { None },
            frequency_before_hz,
            frequency_after_hz: frequency::hertz(TRIES),
        }))
    }
}

/// Has every thread run its kernel, and looks after the controller's wishes meanwhile.
fn worked(made: Vec<Made>, extent: Extent, trial: &mut Trial) -> Result<Vec<Work>, Failure> {
    let (gate, stopped) = (Gate::default(), AtomicBool::new(false));
    let expected_ns = extent.warmup_ns + extent.duration_ns;
    thread::scope(|scope| {
        let threads: Vec<_> = made
            .into_iter()
            .map(|mut made| {
                let (gate, stopped) = (&gate, &stopped);
                thread::Builder::new().name("kernel".into()).spawn_scoped(scope, move || {
                    gate.pass();
                    timed::run(&mut *made.kernel, extent, stopped)
                })
            })
            .collect();
        // A guest with a small share is stopped between one thread's start and the next.
        if threads.iter().all(Result::is_ok) {
            gate.open_after(threads.len());
        } else {
            stopped.store(true, Ordering::Relaxed);
            gate.stop();
        }
        let started_ns = OsClock::Monotonic.now_ns();
        let mut wanted = Ok(());
        while wanted.is_ok() && threads.iter().flatten().any(|thread| !thread.is_finished()) {
            thread::sleep(LOOK);
            let now_ns = OsClock::Monotonic.now_ns();
            wanted = trial.still_wanted((now_ns - started_ns) as f64 / expected_ns as f64, now_ns);
        }
        if wanted.is_err() {
            stopped.store(true, Ordering::Relaxed);
        }
        let mut works = Vec::with_capacity(threads.len());
        for thread in threads {
            let thread = thread.map_err(|error| Failure::os("starting a thread", &error))?;
            let work = thread.join().map_err(|_| Failure::new(Code::Internal, "a thread of the kernel panicked"))?;
            works.push(work?);
        }
        wanted.map(|()| works)
    })
}

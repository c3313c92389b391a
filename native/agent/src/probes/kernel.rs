//! Does work of a known kind on some threads for a fixed time, and counts it by slices of that time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use hptime::OsClock;
use kernels::frequency;
use kernels::timed::{self, Extent, Work};
use serde::{Serialize, Serializer};

use super::Trial;
use super::distribution::{Distribution, Summary};
use crate::clocks::{Clocks, Timebase};
use crate::failure::{Code, Failure};
use crate::loads::Stopped;
use crate::parameters::Parameters;
use crate::usage::{Usage, UsageStart};
use crate::work::{Design, Made, failed};

/// Most threads.
pub(crate) const MOST_THREADS: u64 = 1024;

/// Longest time of work, and of the warm-up.
const LONGEST_NS: u64 = 3_600_000_000_000;

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
    clocks_start: Clocks,
    clocks_end: Clocks,
    usage: Usage,
    load: Option<Stopped>,
}

/// What one thread did.
#[derive(Debug)]
struct ThreadResult(Work);

impl Serialize for ThreadResult {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct OnWire {
            units: u64,
            elapsed_ns: u64,
            cpu_ns: u64,
            slice_units: Vec<u64>,
            slice_ns: Vec<u64>,
        }
        let work = &self.0;
        let (slice_units, slice_ns) = work.slices.iter().map(|slice| (slice.units, slice.elapsed_ns)).unzip();
        let (units, elapsed_ns, cpu_ns) = (work.units, work.elapsed_ns, work.cpu_ns);
        OnWire { units, elapsed_ns, cpu_ns, slice_units, slice_ns }.serialize(serializer)
    }
}

/// Runs the probe.  Its threads are made ready before the trial starts, and begin together.
pub fn run(parameters: &Parameters, trial: &mut Trial) -> Result<KernelResult, Failure> {
    let design = Design::from_parameters(parameters)?;
    let threads = parameters.unsigned("threads", 1..=MOST_THREADS)? as u32;
    let extent = Extent {
        warmup_ns: parameters.unsigned("warmup_ns", 0..=LONGEST_NS)?,
        duration_ns: parameters.unsigned("duration_ns", 1..=LONGEST_NS)?,
        slice_ns: parameters.unsigned("slice_ns", 1_000_000..=LONGEST_NS)?,
    };
    let latencies = Arc::new(Mutex::new(Distribution::new()));
    let made = (0..threads).map(|thread| design.make(thread, &latencies)).collect::<Result<Vec<_>, _>>()?;
    let (unit, direct) = (made[0].kernel.unit(), made[0].direct);

    let timebase = Timebase::get();
    let frequency_before_hz = frequency::hertz(TRIES);
    let clocks_start = trial.start(timebase)?;
    let usage_start = UsageStart::now();
    let works = worked(made, extent, trial);
    let load = trial.stop_load();
    let usage = usage_start.used();
    let clocks_end = Clocks::read(timebase);
    let works = works?;
    let latencies = latencies.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(KernelResult {
        unit,
        units: works.iter().map(|work| work.units).sum(),
        elapsed_ns: works.iter().map(|work| work.elapsed_ns).max().unwrap_or(0),
        cpu_ns: works.iter().map(|work| work.cpu_ns).sum(),
        threads: works.into_iter().map(ThreadResult).collect(),
        direct,
        latency: if design.has_latency() { Some(latencies.summary()?) } else { None },
        frequency_before_hz,
        frequency_after_hz: frequency::hertz(TRIES),
        clocks_start,
        clocks_end,
        usage,
        load,
    })
}

/// Has every thread run its kernel, and looks after the controller's wishes meanwhile.
fn worked(made: Vec<Made>, extent: Extent, trial: &mut Trial) -> Result<Vec<Work>, Failure> {
    let stopped = AtomicBool::new(false);
    let expected_ns = extent.warmup_ns + extent.duration_ns;
    let started_ns = OsClock::Monotonic.now_ns();
    thread::scope(|scope| {
        let threads: Vec<_> = made
            .into_iter()
            .map(|mut made| {
                let stopped = &stopped;
                thread::Builder::new()
                    .name("kernel".into())
                    .spawn_scoped(scope, move || timed::run(&mut *made.kernel, extent, stopped))
            })
            .collect();
        let mut wanted = Ok(());
        while wanted.is_ok() && threads.iter().flatten().any(|thread| !thread.is_finished()) {
            thread::sleep(LOOK);
            let now_ns = OsClock::Monotonic.now_ns();
            wanted = trial.still_wanted((now_ns - started_ns) as f64 / expected_ns as f64, now_ns);
        }
        stopped.store(wanted.is_err(), Ordering::Relaxed);
        let mut works = Vec::with_capacity(threads.len());
        for thread in threads {
            let thread = thread.map_err(|error| Failure::os("starting a thread", &error))?;
            let work = thread.join().map_err(|_| Failure::new(Code::Internal, "a thread of the kernel panicked"))?;
            works.push(work.map_err(|failure| failed(&failure))?);
        }
        wanted.map(|()| works)
    })
}

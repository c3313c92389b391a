//! Probes: one measurement kernel each, parameters in, samples out.

pub mod bandwidth;
pub mod distribution;
pub mod kernel;
pub mod packet_trial;
pub mod reservoir;
pub mod sleep_lateness;
pub mod timer_cost;

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use hptime::OsClock;
use serde::Serialize;

use crate::cancellation::Cancellation;
use crate::channel::message::requests::Beside;
use crate::channel::writer::Writer;
use crate::clocks::{Clocks, Timebase};
use crate::failure::{Code, Failure};
use crate::loads::{self, Running, Stopped};
use crate::parameters::Parameters;
use crate::precise;

use distribution::Distribution;
use reservoir::Reservoir;

/// Shortest time between two `progress` messages.
const PROGRESS_INTERVAL_NS: u64 = 1_000_000_000;

/// How long a load runs before the first sample: its threads, and this one among them, are no newcomers to the scheduler then.
const SETTLING: Duration = Duration::from_millis(100);

/// Most raw values that a trial keeps; they fit into one frame.
const LARGEST_RESERVOIR: u64 = 500_000;

/// Most samples of one trial.
const MOST_SAMPLES: u64 = 1_000_000_000_000;

/// Longest trial: a day.
const LONGEST_NS: u64 = 86_400_000_000_000;

/// What a probe found.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub enum Finding {
    /// Of `timer_cost`.
    TimerCost(timer_cost::TimerCost),
    /// Of `sleep_lateness`.
    SleepLateness(sleep_lateness::SleepLateness),
    /// Of `kernel`.
    Kernel(Box<kernel::KernelResult>),
    /// Of `bandwidth`.
    Bandwidth(Box<bandwidth::BandwidthResult>),
    /// Of `packet_trial`.
    PacketTrial(Box<packet_trial::PacketTrialResult>),
}

/// Runs the named probe on the calling thread, which should be its own: scheduling class and slack may change.
pub fn run(name: &str, parameters: &Parameters, trial: &mut Trial) -> Result<Finding, Failure> {
    match name {
        "timer_cost" => timer_cost::run(parameters, trial).map(Finding::TimerCost),
        "sleep_lateness" => sleep_lateness::run(parameters, trial).map(Finding::SleepLateness),
        "kernel" => kernel::run(parameters, trial).map(|found| Finding::Kernel(Box::new(found))),
        "bandwidth" => bandwidth::run(parameters, trial).map(|found| Finding::Bandwidth(Box::new(found))),
        "packet_trial" => packet_trial::run(parameters, trial).map(|found| Finding::PacketTrial(Box::new(found))),
        unknown => {
            let unknown = crate::channel::bounded::excerpt(unknown);
            let names = "timer_cost, sleep_lateness, kernel, packet_trial, bandwidth";
            Err(Failure::new(Code::NotFound, format!("no probe {unknown:?}; there are: {names}")))
        }
    }
}

/// One running probe's way to the controller.
pub struct Trial {
    id: u64,
    writer: Arc<Writer>,
    cancellation: Arc<Cancellation>,
    beside: Option<Beside>,
    load: Option<Running>,
    started_ns: u64,
    reported_ns: u64,
}

impl Drop for Trial {
    /// A trial that was cancelled leaves no load behind.
    fn drop(&mut self) {
        self.stop_load();
    }
}

/// How long a trial goes on.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// Samples to take.
    pub samples: u64,
    /// Stop early after this long.
    pub max_ns: u64,
}

impl Extent {
    fn from_parameters(parameters: &Parameters) -> Result<Self, Failure> {
        Ok(Self {
            samples: parameters.unsigned("samples", 1..=MOST_SAMPLES)?,
            max_ns: parameters.unsigned("max_ns", 1..=LONGEST_NS)?,
        })
    }
}

impl Trial {
    /// For the request of this number.
    #[must_use]
    pub fn new(id: u64, writer: Arc<Writer>, cancellation: Arc<Cancellation>, beside: Option<Beside>) -> Self {
        Self { id, writer, cancellation, beside, load: None, started_ns: 0, reported_ns: 0 }
    }

    /// Tells the controller that measuring begins, and starts the load; the last thing before the first sample.
    ///
    /// The load runs for the samples only: in a crowded sandbox every system call of setting up and of answering would wait
    /// its turn behind all threads of the load.
    fn start(&mut self, timebase: &Timebase) -> Result<Clocks, Failure> {
        let clocks = Clocks::read(timebase);
        sent(self.writer.started(self.id, &clocks))?;
        if let Some(load) = &self.beside {
            self.load = Some(loads::start(&load.name, &load.params)?);
            thread::sleep(SETTLING);
        }
        self.started_ns = OsClock::Monotonic.now_ns();
        self.reported_ns = self.started_ns;
        Ok(clocks)
    }

    /// Between samples: whether to go on, and now and then a word to the controller.
    fn goes_on(&mut self, done: u64, extent: Extent) -> Result<bool, Failure> {
        let now_ns = OsClock::Monotonic.now_ns();
        let elapsed_ns = now_ns.saturating_sub(self.started_ns);
        let share = (done as f64 / extent.samples as f64).max(elapsed_ns as f64 / extent.max_ns as f64);
        self.still_wanted(share, now_ns)?;
        Ok(share < 1.0)
    }

    /// Fails when somebody cancelled the probe; now and then, says how much is done.
    fn still_wanted(&mut self, done: f64, now_ns: u64) -> Result<(), Failure> {
        if self.cancellation.requested() {
            return Err(Failure::cancelled());
        }
        if done < 1.0 && now_ns.saturating_sub(self.reported_ns) >= PROGRESS_INTERVAL_NS {
            self.reported_ns = now_ns;
            sent(self.writer.progress(self.id, done))?;
        }
        Ok(())
    }

    /// Ends the load, right after the last sample; what it achieved, `None` when there was none.
    fn stop_load(&mut self) -> Option<Stopped> {
        self.load.take().map(Running::stop)
    }

    fn samples(&self, series: &str, values: &[i64]) -> Result<(), Failure> {
        sent(self.writer.samples(self.id, series, values))
    }
}

/// Why hptime answered from the system's clock; `None` where it did not, or does not serve the function measured.
fn hptime_refusal(serves: bool) -> Option<String> {
    if serves { precise::refusal().map(|refusal| refusal.to_string()) } else { None }
}

/// A message that cannot be sent ends the trial: nobody listens any more.
fn sent(result: io::Result<()>) -> Result<(), Failure> {
    result.map_err(|error| Failure::os("sending to the controller", &error))
}

/// Every value of a trial, as distribution and as a uniform choice of raw values.  Memory does not grow with their number.
#[derive(Debug)]
pub struct Recorder {
    distribution: Distribution,
    reservoir: Reservoir,
}

impl Recorder {
    fn from_parameters(parameters: &Parameters) -> Result<Self, Failure> {
        let kept = parameters.unsigned("reservoir", 0..=LARGEST_RESERVOIR)? as usize;
        let seed = parameters.unsigned("seed", 0..=u64::MAX)?;
        Ok(Self { distribution: Distribution::new(), reservoir: Reservoir::new(kept, seed) })
    }

    #[inline]
    fn record(&mut self, value_ps: i64) {
        self.distribution.record(value_ps);
        self.reservoir.offer(value_ps);
    }
}

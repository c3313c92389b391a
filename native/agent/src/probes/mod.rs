//! Probes: one measurement kernel each, parameters in, samples out.

pub mod bandwidth;
pub mod cycle;
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
use serde::de::DeserializeOwned;

use crate::cancellation::Cancellation;
use crate::channel::writer::Writer;
use crate::clocks::{Clocks, Timebase};
use crate::distribution::Distribution;
use crate::failure::Failure;
use crate::loads::{self, Running, Stopped};
use crate::machine::{Usage, UsageStart};
use crate::parameters::{Entry, Int, Parameters, find};
use crate::precise;

use reservoir::Reservoir;

/// Shortest time between two `progress` messages.
const PROGRESS_INTERVAL_NS: u64 = 1_000_000_000;

/// How long a load runs before the first sample: its threads, and this one among them, are no newcomers to the scheduler then.
/// Beside a hundred of them sleeps wake earlier before (docs/noise.md).
const SETTLING: Duration = Duration::from_millis(250);

/// Most raw values that a trial keeps; they fit into one frame.
const LARGEST_RESERVOIR: u64 = 500_000;

/// Most samples of one trial.
const MOST_SAMPLES: u64 = 1_000_000_000_000;

/// Longest trial: a day.
const LONGEST_NS: u64 = 86_400_000_000_000;

/// Samples to take.
type Samples = Int<1, MOST_SAMPLES>;

/// Longest time to take them in.
type MaxNs = Int<1, LONGEST_NS>;

/// Raw values to keep.
type Kept = Int<0, LARGEST_RESERVOIR>;

/// A probe; it is what it found.
pub trait Probe: Serialize + Sized + 'static {
    /// Its name in requests.
    const NAME: &'static str;
    /// What it is told.
    type Parameters: DeserializeOwned;

    /// Measures on the calling thread, which should be its own: scheduling class and slack may change.
    fn run(parameters: Self::Parameters, trial: &mut Trial) -> Result<Measured<Self>, Failure>;
}

/// What a probe found, and what was around it.
#[derive(Serialize)]
pub struct Measured<Found> {
    #[serde(flatten)]
    found: Found,
    #[serde(flatten)]
    around: Around,
}

/// The clocks before and after a measurement, and what was used and done meanwhile.
#[derive(Serialize)]
pub struct Around {
    clocks_start: Clocks,
    clocks_end: Clocks,
    usage: Usage,
    load: Option<Stopped>,
}

impl Around {
    fn of<Found>(self, found: Found) -> Measured<Found> {
        Measured { found, around: self }
    }
}

type Finding = Box<dyn erased_serde::Serialize>;
type Kind = Entry<fn(&Parameters, &mut Trial) -> Result<Finding, Failure>>;

const fn kind<P: Probe>() -> Kind {
    Entry { name: P::NAME, begin: |parameters, trial| Ok(Box::new(P::run(parameters.read()?, trial)?)) }
}

/// Every probe that there is.
static KINDS: [Kind; 6] = [
    kind::<timer_cost::TimerCost>(),
    kind::<sleep_lateness::SleepLateness>(),
    kind::<kernel::KernelResult>(),
    kind::<packet_trial::PacketTrialResult>(),
    kind::<bandwidth::BandwidthResult>(),
    kind::<cycle::CycleResult>(),
];

/// Runs the named probe.
pub fn run(name: &str, parameters: &Parameters, trial: &mut Trial) -> Result<Finding, Failure> {
    (find("probe", &KINDS, name)?.begin)(parameters, trial)
}

/// One running probe's way to the controller.
pub struct Trial {
    id: u64,
    writer: Arc<Writer>,
    cancellation: Arc<Cancellation>,
    beside: Option<(String, Parameters)>,
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
    /// Take more of them until so long has passed.
    pub least_ns: u64,
    /// Stop early after this long.
    pub max_ns: u64,
}

impl Trial {
    /// For the request of this number.
    #[must_use]
    pub fn new(
        id: u64,
        writer: Arc<Writer>,
        cancellation: Arc<Cancellation>,
        beside: Option<(String, Parameters)>,
    ) -> Self {
        Self { id, writer, cancellation, beside, load: None, started_ns: 0, reported_ns: 0 }
    }

    /// Tells the controller that measuring begins, and starts the load; the last thing before the first sample.  Returns the
    /// clocks, for the end.
    ///
    /// The load runs for the samples only: in a crowded sandbox every system call of setting up and of answering would wait
    /// its turn behind all threads of the load.
    fn start(&mut self) -> Result<Clocks, Failure> {
        let clocks = Clocks::read(Timebase::get());
        sent(self.writer.started(self.id, &clocks))?;
        if let Some((name, parameters)) = &self.beside {
            self.load = Some(loads::start(name, parameters)?);
            thread::sleep(SETTLING);
        }
        self.started_ns = OsClock::Monotonic.now_ns();
        self.reported_ns = self.started_ns;
        Ok(clocks)
    }

    /// What counts begins now, after what had to be made ready: the usage, and after it least and longest time, of which
    /// the controller would else ask for what is missing once more, for a sample or two.
    fn counts_from_now(&mut self) -> UsageStart {
        let usage_start = UsageStart::now();
        self.started_ns = OsClock::Monotonic.now_ns();
        usage_start
    }

    /// Between samples: whether to go on, and now and then a word to the controller.
    fn goes_on(&mut self, done: u64, extent: Extent) -> Result<bool, Failure> {
        let now_ns = OsClock::Monotonic.now_ns();
        let elapsed_ns = now_ns.saturating_sub(self.started_ns);
        // Without a least time its quotient is infinite, or no number, which the smaller of two is not.
        let taken = (done as f64 / extent.samples as f64).min(elapsed_ns as f64 / extent.least_ns as f64);
        let share = taken.max(elapsed_ns as f64 / extent.max_ns as f64);
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

    /// Ends the load, right after the last sample, and looks at clocks and counters again.
    fn end(&mut self, clocks_start: Clocks, usage_start: &UsageStart) -> Around {
        let load = self.stop_load();
        let usage = usage_start.used();
        Around { clocks_start, clocks_end: Clocks::read(Timebase::get()), usage, load }
    }

    /// What the load achieved; `None` when there was none.
    fn stop_load(&mut self) -> Option<Stopped> {
        self.load.take().map(Running::stop)
    }

    fn samples(&self, series: &str, values: &[i64]) -> Result<(), Failure> {
        sent(self.writer.samples(self.id, series, values))
    }
}

/// Why hptime answered from the system's clock; `None` where it did not, or does not serve the function measured.
fn hptime_fallback_reason(serves: bool) -> Option<String> {
    if serves { precise::fallback_reason().map(|refusal| refusal.to_string()) } else { None }
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
    fn new(kept: Kept, seed: u64) -> Self {
        Self { distribution: Distribution::new(), reservoir: Reservoir::new(kept.0 as usize, seed) }
    }

    #[inline]
    fn record(&mut self, value_ps: i64) {
        self.distribution.record(value_ps);
        self.reservoir.offer(value_ps);
    }
}

//! Loads: work that goes on beside probes until it is stopped.

pub mod bandwidth_listener;
pub mod cpu;
pub mod cross_traffic;
pub mod file;
pub mod kernel;
pub mod link_emulator;
pub mod program;
pub(crate) mod threads;

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::failure::{Code, Failure};
use crate::machine::{Achieved, Counters};
use crate::parameters::{Entry, Parameters, find};

/// Most loads at a time.
const MOST: usize = 64;

/// A load that runs.
pub trait Load: fmt::Debug + Send + Sized + 'static {
    /// Its name in requests.
    const NAME: &'static str;
    /// What it is told.
    type Parameters: DeserializeOwned;
    /// What it did itself.
    type Work: Serialize + 'static;

    /// Starts it; it runs in full when this returns.
    fn start(parameters: Self::Parameters) -> Result<Self, Failure>;

    /// Tells it to end; returns at once.
    fn halt(&mut self);

    /// Waits for its end, which is near.
    fn finish(self) -> Self::Work;
}

/// A load of any kind.
trait AnyLoad: fmt::Debug + Send {
    fn halt(&mut self);
    fn finish(self: Box<Self>) -> Box<dyn erased_serde::Serialize>;
}

impl<L: Load> AnyLoad for L {
    fn halt(&mut self) {
        Load::halt(self);
    }

    fn finish(self: Box<Self>) -> Box<dyn erased_serde::Serialize> {
        Box::new(Load::finish(*self))
    }
}

type Kind = Entry<fn(&Parameters) -> Result<Box<dyn AnyLoad>, Failure>>;

const fn kind<L: Load>() -> Kind {
    Entry { name: L::NAME, begin: |parameters| Ok(Box::new(L::start(parameters.read()?)?)) }
}

/// Every load that there is.
static KINDS: [Kind; 8] = [
    kind::<bandwidth_listener::BandwidthListener>(),
    kind::<cpu::CpuLoad>(),
    kind::<cross_traffic::CrossTrafficLoad>(),
    kind::<file::server::FileServer>(),
    kind::<file::client::FileClient>(),
    kind::<kernel::KernelLoad>(),
    kind::<link_emulator::LinkEmulator>(),
    kind::<program::ProgramLoad>(),
];

/// What a load came to: its own figures, and those of the machine from its full start to the word to stop.
#[derive(Serialize)]
pub struct Stopped {
    name: &'static str,
    #[serde(flatten)]
    work: Box<dyn erased_serde::Serialize>,
    achieved: Achieved,
}

/// A load, and the machine's counters when it had started.
#[derive(Debug)]
pub struct Running {
    name: &'static str,
    load: Box<dyn AnyLoad>,
    start: Counters,
}

/// Starts the named load; it runs in full when this returns.
pub fn start(name: &str, parameters: &Parameters) -> Result<Running, Failure> {
    let kind = find("load", &KINDS, name)?;
    Ok(Running { name: kind.name, load: (kind.begin)(parameters)?, start: Counters::read() })
}

impl Running {
    /// Ends the load.
    #[allow(clippy::must_use_candidate, reason = "stopping is the purpose; the figures are often not wanted")]
    pub fn stop(mut self) -> Stopped {
        // In this order: the machine is no longer crowded when it is asked, and the load's end is not counted.
        self.load.halt();
        let achieved = Counters::read().since(&self.start);
        Stopped { name: self.name, work: self.load.finish(), achieved }
    }
}

/// The loads that run, by number.
#[derive(Debug, Default)]
pub struct Loads {
    running: BTreeMap<u64, Running>,
    last: u64,
}

impl Loads {
    /// Starts the named load; it runs in full when this returns.
    pub fn start(&mut self, name: &str, parameters: &Parameters) -> Result<u64, Failure> {
        if self.running.len() == MOST {
            return Err(Failure::new(Code::Busy, format!("{MOST} loads run already")));
        }
        let load = start(name, parameters)?;
        self.last += 1;
        self.running.insert(self.last, load);
        Ok(self.last)
    }

    /// Stops a load and says what it achieved.
    pub fn stop(&mut self, number: u64) -> Result<Stopped, Failure> {
        match self.running.remove(&number) {
            Some(load) => Ok(load.stop()),
            None => Err(Failure::new(Code::NotFound, format!("no load of number {number} runs"))),
        }
    }

    /// Stops all of them, together: they end within the time that the longest takes.
    pub fn stop_all(&mut self) {
        self.running.values_mut().for_each(|one| one.load.halt());
        for (_, one) in std::mem::take(&mut self.running) {
            drop(one.load.finish());
        }
    }
}

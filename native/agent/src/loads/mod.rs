//! Loads: work that goes on beside probes until it is stopped.

pub mod bandwidth_listener;
pub mod cpu;
pub mod cross_traffic;
pub mod file;
mod gate;
pub mod kernel;
pub mod link_emulator;
pub mod program;
mod worker;

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::channel::bounded::excerpt;
use crate::failure::{Code, Failure};
use crate::machine::{Achieved, Counters};
use crate::parameters::Parameters;

use bandwidth_listener::{BandwidthListener, ListenerWork};
use cpu::{CpuLoad, CpuWork};
use cross_traffic::{CrossTrafficLoad, CrossTrafficWork};
use file::client::{FileClient, FileClientWork};
use file::server::{FileServer, FileServerWork};
use kernel::{KernelLoad, KernelWork};
use link_emulator::{LinkEmulator, LinkEmulatorWork};
use program::{ProgramLoad, ProgramWork};

/// Most loads at a time.
const MOST: usize = 64;

/// A load that runs.
pub trait Load: fmt::Debug + Send {
    /// Tells it to end; returns at once.
    fn halt(&mut self);

    /// Waits for its end, which is near, and says what it did itself.
    fn finish(self: Box<Self>) -> Work;
}

/// What a load did itself.
#[derive(Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Work {
    /// Of `bandwidth_listener`.
    BandwidthListener(ListenerWork),
    /// Of `cpu`.
    Cpu(CpuWork),
    /// Of `cross_traffic`.
    CrossTraffic(CrossTrafficWork),
    /// Of `file_server`.
    FileServer(FileServerWork),
    /// Of `file_client`.
    FileClient(FileClientWork),
    /// Of `kernel`.
    Kernel(KernelWork),
    /// Of `link_emulator`.
    LinkEmulator(Box<LinkEmulatorWork>),
    /// Of `program`.
    Program(ProgramWork),
}

/// What a load came to: its own figures, and those of the machine from its full start to the word to stop.
#[derive(Debug, PartialEq, Serialize)]
pub struct Stopped {
    name: &'static str,
    #[serde(flatten)]
    work: Work,
    achieved: Achieved,
}

/// A load, and the machine's counters when it had started.
#[derive(Debug)]
pub struct Running {
    name: &'static str,
    load: Box<dyn Load>,
    start: Counters,
}

/// Starts the named load; it runs in full when this returns.
pub fn start(name: &str, parameters: &Parameters) -> Result<Running, Failure> {
    let (name, load): (_, Box<dyn Load>) = match name {
        "bandwidth_listener" => ("bandwidth_listener", Box::new(BandwidthListener::start(parameters)?)),
        "cpu" => ("cpu", Box::new(CpuLoad::start(parameters)?)),
        "cross_traffic" => ("cross_traffic", Box::new(CrossTrafficLoad::start(parameters)?)),
        "file_server" => ("file_server", Box::new(FileServer::start(parameters)?)),
        "file_client" => ("file_client", Box::new(FileClient::start(parameters)?)),
        "kernel" => ("kernel", Box::new(KernelLoad::start(parameters)?)),
        "link_emulator" => ("link_emulator", Box::new(LinkEmulator::start(parameters)?)),
        "program" => ("program", Box::new(ProgramLoad::start(parameters)?)),
        unknown => {
            let names =
                "bandwidth_listener, cpu, cross_traffic, file_server, file_client, kernel, link_emulator, program";
            return Err(Failure::new(Code::NotFound, format!("no load {:?}; there are: {names}", excerpt(unknown))));
        }
    };
    Ok(Running { name, load, start: Counters::read() })
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

    /// Stops all of them.
    pub fn stop_all(&mut self) {
        for (_, load) in std::mem::take(&mut self.running) {
            load.stop();
        }
    }
}

//! Loads: work that goes on beside probes until it is stopped.

pub mod cpu;

use std::collections::BTreeMap;

use crate::channel::bounded::excerpt;
use crate::failure::{Code, Failure};
use crate::parameters::Parameters;

use cpu::{CpuLoad, CpuWork};

/// Most loads at a time.
const MOST: usize = 64;

/// Starts the named load; it runs in full when this returns.
pub fn start(name: &str, parameters: &Parameters) -> Result<CpuLoad, Failure> {
    match name {
        "cpu" => CpuLoad::start(parameters),
        unknown => Err(Failure::new(Code::NotFound, format!("no load {:?}; there are: cpu", excerpt(unknown)))),
    }
}

/// The loads that run, by number.
#[derive(Debug, Default)]
pub struct Loads {
    running: BTreeMap<u64, CpuLoad>,
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
    pub fn stop(&mut self, number: u64) -> Result<CpuWork, Failure> {
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

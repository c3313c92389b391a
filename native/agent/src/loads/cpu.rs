//! CPU-bound load: threads that compute square roots (Kirova et al. 2019 use 100 of them).

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use hptime::OsClock;
use serde::Serialize;

use crate::failure::Failure;
use crate::parameters::Parameters;

/// Most threads of one load.
const MOST_THREADS: u64 = 4096;

/// Square roots between two looks at whether to stop: a few microseconds.
const BATCH: u64 = 1024;

/// The threads hold next to nothing.
const STACK_BYTES: usize = 64 * 1024;

/// A running load.
#[derive(Debug)]
pub struct CpuLoad {
    gate: Arc<Gate>,
    threads: Vec<JoinHandle<ThreadWork>>,
    started_ns: u64,
}

/// What a load achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CpuWork {
    /// Threads that computed.
    pub threads: u32,
    /// From the moment when all of them were let go to the end of the last.
    pub elapsed_ns: u64,
    /// CPU time of all of them together.
    pub cpu_ns: u64,
    /// Square roots computed by all of them together.
    pub operations: u64,
}

struct ThreadWork {
    cpu_ns: u64,
    operations: u64,
}

/// Holds the threads back until all of them exist and run.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
    stop: AtomicBool,
}

#[derive(Debug, Default)]
struct GateState {
    arrived: usize,
    open: bool,
}

impl Gate {
    fn pass(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.arrived += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| !state.open).unwrap_or_else(PoisonError::into_inner));
    }

    fn open_after(&self, count: usize) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state =
            self.changed.wait_while(state, |state| state.arrived < count).unwrap_or_else(PoisonError::into_inner);
        state.open = true;
        self.changed.notify_all();
    }
}

impl CpuLoad {
    /// Starts the threads and returns when all of them have run and were let go.
    pub fn start(parameters: &Parameters) -> Result<Self, Failure> {
        let count = parameters.unsigned("threads", 1..=MOST_THREADS)? as usize;
        let gate = Arc::new(Gate::default());
        let mut load = Self { gate: Arc::clone(&gate), threads: Vec::with_capacity(count), started_ns: 0 };
        for _ in 0..count {
            let gate = Arc::clone(&gate);
            let builder = thread::Builder::new().name("cpu-load".into()).stack_size(STACK_BYTES);
            match builder.spawn(move || work(&gate)) {
                Ok(thread) => load.threads.push(thread),
                Err(error) => {
                    let existing = load.threads.len();
                    load.stop();
                    return Err(Failure::os(&format!("starting thread {} of {count}", existing + 1), &error));
                }
            }
        }
        gate.open_after(count);
        load.started_ns = OsClock::Monotonic.now_ns();
        Ok(load)
    }

    /// Stops the threads and adds up what they did.
    #[allow(clippy::must_use_candidate, reason = "stopping is the purpose; the figures are often not wanted")]
    pub fn stop(self) -> CpuWork {
        self.gate.stop.store(true, Ordering::Relaxed);
        self.gate.open_after(0);
        let mut total = CpuWork { threads: self.threads.len() as u32, elapsed_ns: 0, cpu_ns: 0, operations: 0 };
        for thread in self.threads {
            // A thread that panicked has nothing to add; its message is on standard error.
            if let Ok(work) = thread.join() {
                total.cpu_ns += work.cpu_ns;
                total.operations += work.operations;
            }
        }
        total.elapsed_ns = OsClock::Monotonic.now_ns().saturating_sub(self.started_ns);
        total
    }
}

fn work(gate: &Gate) -> ThreadWork {
    gate.pass();
    let cpu_start_ns = OsClock::ThreadCpu.now_ns();
    let mut operations = 0;
    let mut value = 2.0f64;
    while !gate.stop.load(Ordering::Relaxed) {
        for _ in 0..BATCH {
            // Each root needs the one before it, so a batch takes the latency of the unit, not its throughput.
            value = black_box((value + 2.0).sqrt());
        }
        operations += BATCH;
    }
    black_box(value);
    ThreadWork { cpu_ns: OsClock::ThreadCpu.now_ns().saturating_sub(cpu_start_ns), operations }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_of_many_threads_works_until_it_is_stopped() {
        let load = CpuLoad::start(&Parameters::default().with_unsigned("threads", 20)).unwrap();
        thread::sleep(std::time::Duration::from_millis(100));
        let work = load.stop();
        assert_eq!(work.threads, 20);
        assert!(work.elapsed_ns >= 100_000_000);
        assert!(work.operations > 0 && work.cpu_ns > 0);
        let processors = thread::available_parallelism().unwrap().get() as u64;
        assert!(work.cpu_ns <= work.elapsed_ns * (processors + 1), "{work:?}");
    }

    #[test]
    fn no_threads_is_refused() {
        assert!(CpuLoad::start(&Parameters::default().with_unsigned("threads", 0)).is_err());
    }
}

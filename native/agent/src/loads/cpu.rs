//! CPU-bound load: threads that compute square roots (Kirova et al. 2019 use 100 of them).

use std::hint::black_box;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use hptime::OsClock;
use serde::{Deserialize, Serialize};

use super::Load;
use super::threads::Gate;
use crate::failure::Failure;
use crate::parameters::Int;

/// Square roots between two looks at whether to stop: a few microseconds.
const BATCH: u64 = 1024;

/// The threads hold next to nothing.
const STACK_BYTES: usize = 64 * 1024;

/// Its parameters.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    threads: Int<1, 4096>,
}

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

impl Load for CpuLoad {
    const NAME: &'static str = "cpu";
    type Parameters = Asked;
    type Work = CpuWork;

    /// Starts the threads and returns when all of them have run and were let go.
    fn start(asked: Asked) -> Result<Self, Failure> {
        let count = asked.threads.0 as usize;
        let gate = Arc::new(Gate::default());
        let mut load = Self { gate: Arc::clone(&gate), threads: Vec::with_capacity(count), started_ns: 0 };
        for _ in 0..count {
            let gate = Arc::clone(&gate);
            let builder = thread::Builder::new().name("cpu-load".into()).stack_size(STACK_BYTES);
            match builder.spawn(move || work(&gate)) {
                Ok(thread) => load.threads.push(thread),
                Err(error) => {
                    let existing = load.threads.len();
                    load.halt();
                    load.finish();
                    return Err(Failure::os(&format!("starting thread {} of {count}", existing + 1), &error));
                }
            }
        }
        gate.open_after(count);
        load.started_ns = OsClock::Monotonic.now_ns();
        Ok(load)
    }

    fn halt(&mut self) {
        self.gate.stop();
    }

    fn finish(self) -> CpuWork {
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
    while !gate.stopped() {
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
        let mut load = CpuLoad::start(Asked { threads: Int(20) }).unwrap();
        thread::sleep(std::time::Duration::from_millis(100));
        load.halt();
        let work = load.finish();
        assert_eq!(work.threads, 20);
        assert!(work.elapsed_ns >= 100_000_000);
        assert!(work.operations > 0 && work.cpu_ns > 0);
        let processors = thread::available_parallelism().unwrap().get() as u64;
        assert!(work.cpu_ns <= work.elapsed_ns * (processors + 1), "{work:?}");
    }
}

//! A kernel as a load: what a neighbour does, as hard as it is told to.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hptime::OsClock;
use serde::Serialize;

use super::Load;
use super::threads::Gate;
use crate::distribution::Distribution;
use crate::failure::Failure;
use crate::work::{Asked, Made, needed};

/// A load of less than its full intensity works for a part of each such time and sleeps for the rest.
const FRAME_NS: u64 = 20_000_000;

/// A running load.
#[derive(Debug)]
pub struct KernelLoad {
    gate: Arc<Gate>,
    threads: Vec<JoinHandle<ThreadWork>>,
    started_ns: u64,
    intensity_percent: u64,
    unit: &'static str,
    error: Arc<Mutex<Option<String>>>,
}

/// What a load achieved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KernelWork {
    unit: &'static str,
    threads: u32,
    intensity_percent: u64,
    elapsed_ns: u64,
    cpu_ns: u64,
    units: u64,
    /// Why a thread ended before it was told to; the load was not what it should have been.
    error: Option<String>,
}

#[derive(Default)]
struct ThreadWork {
    cpu_ns: u64,
    units: u64,
}

impl Load for KernelLoad {
    const NAME: &'static str = "kernel";
    type Parameters = Asked;
    type Work = KernelWork;

    /// Makes the kernels, starts the threads, and returns when all of them work.
    fn start(asked: Asked) -> Result<Self, Failure> {
        let intensity_percent = needed(asked.intensity_percent, "intensity_percent")?.0;
        let made = asked.make(&Arc::new(Mutex::new(Distribution::new())))?;
        let gate = Arc::new(Gate::default());
        let mut load = Self {
            gate: Arc::clone(&gate),
            threads: Vec::with_capacity(made.len()),
            started_ns: 0,
            intensity_percent,
            unit: made[0].kernel.unit(),
            error: Arc::default(),
        };
        for one in made {
            let (gate, error) = (Arc::clone(&gate), Arc::clone(&load.error));
            let builder = thread::Builder::new().name("kernel-load".into());
            match builder.spawn(move || work(one, &gate, intensity_percent, &error)) {
                Ok(thread) => load.threads.push(thread),
                Err(error) => {
                    load.halt();
                    load.finish();
                    return Err(Failure::os("starting a thread of the load", &error));
                }
            }
        }
        gate.open_after(load.threads.len());
        load.started_ns = OsClock::Monotonic.now_ns();
        Ok(load)
    }

    fn halt(&mut self) {
        self.gate.stop();
    }

    fn finish(self) -> KernelWork {
        let threads = self.threads.len() as u32;
        let (mut cpu_ns, mut units) = (0, 0);
        for thread in self.threads {
            // A thread that panicked has nothing to add; its message is on standard error.
            if let Ok(work) = thread.join() {
                cpu_ns += work.cpu_ns;
                units += work.units;
            }
        }
        KernelWork {
            unit: self.unit,
            threads,
            intensity_percent: self.intensity_percent,
            elapsed_ns: OsClock::Monotonic.now_ns().saturating_sub(self.started_ns),
            cpu_ns,
            units,
            error: self.error.lock().unwrap_or_else(PoisonError::into_inner).take(),
        }
    }
}

/// Works for its share of every frame until it is stopped, or fails.
fn work(mut made: Made, gate: &Gate, intensity_percent: u64, error: &Mutex<Option<String>>) -> ThreadWork {
    gate.pass();
    let cpu_start_ns = OsClock::ThreadCpu.now_ns();
    let mut work = ThreadWork::default();
    let result = (|| {
        while !gate.stopped() {
            let frame_ns = OsClock::Monotonic.now_ns();
            let work_until_ns = frame_ns + FRAME_NS * intensity_percent / 100;
            while OsClock::Monotonic.now_ns() < work_until_ns && !gate.stopped() {
                work.units += made.kernel.pass()?;
            }
            let rest_ns = (frame_ns + FRAME_NS).saturating_sub(OsClock::Monotonic.now_ns());
            if intensity_percent < 100 && rest_ns > 0 && !gate.stopped() {
                thread::sleep(Duration::from_nanos(rest_ns));
            }
        }
        made.kernel.check()
    })();
    if let Err(failure) = result {
        error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure.to_string());
    }
    work.cpu_ns = OsClock::ThreadCpu.now_ns().saturating_sub(cpu_start_ns);
    work
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn stopped(asked: Asked) -> KernelWork {
        let mut load = KernelLoad::start(asked).unwrap();
        thread::sleep(Duration::from_millis(400));
        load.halt();
        load.finish()
    }

    fn asked(kernel: &Value) -> Asked {
        let mut params = json!({"seed": 1, "threads": 1, "intensity_percent": 100});
        params.as_object_mut().unwrap().extend(kernel.as_object().unwrap().clone());
        serde_json::from_value(params).unwrap()
    }

    #[test]
    fn a_load_of_a_quarter_works_about_a_quarter_of_its_time() {
        let quarter = stopped(asked(&json!({"kernel": "integer", "intensity_percent": 25})));
        let share = quarter.cpu_ns as f64 / quarter.elapsed_ns as f64;
        // No more than it is told to; less where the machine is busy.
        assert!((0.05..0.35).contains(&share), "{quarter:?}");
        assert!(quarter.units > 0 && quarter.error.is_none());
    }

    #[test]
    fn a_load_that_cannot_go_on_says_why() {
        let folder = crate::roots::tests::give_temporary().join(format!("virtgauge-load-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut load = KernelLoad::start(asked(&json!({
            "kernel": "disk", "order": "random", "operation": "read",
            "folder": folder, "block_bytes": 4096, "file_bytes": 1 << 20,
        })))
        .unwrap();
        let file = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
        std::fs::OpenOptions::new().write(true).open(file).unwrap().set_len(0).unwrap();
        thread::sleep(Duration::from_millis(100));
        load.halt();
        let work = load.finish();
        std::fs::remove_dir_all(folder).unwrap();
        assert!(work.error.as_ref().is_some_and(|error| error.contains("reading block")), "{work:?}");
    }
}

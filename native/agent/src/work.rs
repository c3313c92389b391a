//! A kernel by its name and its parameters, for the probe that measures with it and the load that disturbs with it.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use kernels::disk::{Disk, Operation, Order};
use kernels::memory::{Access, Element, Memory};
use kernels::neighbours::{Cache, Fork};
use kernels::{Kernel, chase::Chase, floating::Floating, integer::Integer, wake::Wake};

use crate::failure::{Code, Failure};
use crate::parameters::Parameters;
use crate::probes::distribution::Distribution;

/// Longest path of the folder in which a disk kernel makes its files.
const LONGEST_PATH: usize = 4096;

/// Largest block of memory for one thread: a tebibyte, so that what is refused is refused by the guest.
const LARGEST_BLOCK: u64 = 1 << 40;

/// What one thread of a kernel does.
#[derive(Clone, Debug)]
enum Task {
    Integer,
    Floating,
    Memory(Access, Element, usize),
    Latency(usize),
    Disk { order: Order, operation: Operation, folder: String, block_bytes: usize, file_bytes: u64 },
    Wake(u64),
    Cache(usize),
    Fork,
}

/// A kernel that was asked for, checked, and not made yet.
#[derive(Clone, Debug)]
pub struct Design {
    task: Task,
    seed: u64,
}

/// How long each operation of a disk kernel took, or how late each wake-up was; shared by the threads.
pub type Latencies = Arc<Mutex<Distribution>>;

/// A kernel that is ready to run.
pub struct Made {
    /// The kernel itself.
    pub kernel: Box<dyn Kernel>,
    /// For a disk kernel, whether the guest's page cache is really left out.
    pub direct: Option<bool>,
}

impl Design {
    /// Reads `kernel`, `seed`, and what that kernel needs besides (docs/protocol.md).
    pub fn from_parameters(parameters: &Parameters) -> Result<Self, Failure> {
        let block = |least: u64| parameters.unsigned("block_bytes", least..=LARGEST_BLOCK).map(|bytes| bytes as usize);
        let choices = [
            ("integer", 0),
            ("floating", 1),
            ("memory", 2),
            ("latency", 3),
            ("disk", 4),
            ("wake", 5),
            ("cache", 6),
            ("fork", 7),
        ];
        let task = match parameters.choice("kernel", &choices)? {
            0 => Task::Integer,
            1 => Task::Floating,
            2 => Task::Memory(
                parameters
                    .choice("access", &[("read", Access::Read), ("write", Access::Write), ("copy", Access::Copy)])?,
                parameters.choice(
                    "element",
                    &[("integer", Element::Integer), ("float", Element::Float), ("simd", Element::Simd)],
                )?,
                block(1 << 20)?,
            ),
            3 => Task::Latency(block(4096)?),
            4 => Task::Disk {
                order: parameters.choice("order", &[("sequential", Order::Sequential), ("random", Order::Random)])?,
                operation: parameters.choice(
                    "operation",
                    &[("read", Operation::Read), ("write", Operation::Write), ("write-flush", Operation::WriteFlush)],
                )?,
                folder: parameters.text("folder", LONGEST_PATH)?.to_owned(),
                block_bytes: parameters.unsigned("block_bytes", 4096..=1 << 30)? as usize,
                file_bytes: parameters.unsigned("file_bytes", 4096..=1 << 44)?,
            },
            5 => Task::Wake(parameters.unsigned("period_ns", 10_000..=1_000_000_000)?),
            6 => Task::Cache(block(4096)?),
            _ => Task::Fork,
        };
        Ok(Self { task, seed: parameters.unsigned("seed", 0..=u64::MAX)? })
    }

    /// Whether its operations have a latency of their own.
    #[must_use]
    pub fn has_latency(&self) -> bool {
        matches!(self.task, Task::Disk { .. } | Task::Wake(_))
    }

    /// Makes the kernel of one thread, with all that it needs: memory is touched, files are filled.
    pub fn make(&self, thread: u32, latencies: &Latencies) -> Result<Made, Failure> {
        let seed = self.seed.wrapping_add(u64::from(thread).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let latencies = Arc::clone(latencies);
        let record = move |ns: u64| {
            latencies.lock().unwrap_or_else(PoisonError::into_inner).record(ns.saturating_mul(1000) as i64);
        };
        let mut direct = None;
        let kernel: Box<dyn Kernel> = match &self.task {
            Task::Integer => Box::new(Integer::new()),
            Task::Floating => Box::new(Floating::new()),
            &Task::Memory(access, element, bytes) => Box::new(made(Memory::new(access, element, bytes))?),
            &Task::Latency(bytes) => Box::new(made(Chase::new(bytes, seed))?),
            Task::Disk { order, operation, folder, block_bytes, file_bytes } => {
                let folder = Path::new(folder);
                let disk = made(Disk::new(folder, *operation, *order, *block_bytes, *file_bytes, seed, record))?;
                direct = Some(disk.direct());
                Box::new(disk)
            }
            &Task::Wake(period_ns) => Box::new(Wake::new(period_ns, record)),
            &Task::Cache(bytes) => Box::new(made(Cache::new(bytes, seed))?),
            Task::Fork => Box::new(Fork),
        };
        Ok(Made { kernel, direct })
    }
}

fn made<K>(kernel: Result<K, kernels::Failure>) -> Result<K, Failure> {
    kernel.map_err(|failure| failed(&failure))
}

/// As the controller is told of it: a wrong result is not the system's refusal.
#[must_use]
pub fn failed(failure: &kernels::Failure) -> Failure {
    match failure {
        kernels::Failure::System(attempt, error) => Failure::os(attempt, error),
        kernels::Failure::Wrong(_) => Failure::new(Code::WrongResult, failure.to_string()),
    }
}

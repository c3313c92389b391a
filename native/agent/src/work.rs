//! Kernels by their parameters, for the probe that measures with them and the load that disturbs with them.

use std::fs::File;
use std::sync::{Arc, Mutex, PoisonError};

use kernels::disk::{Disk, Operation, Order};
use kernels::memory::{Access, Element, Memory};
use kernels::neighbours::{Cache, Fork};
use kernels::{Kernel, chase::Chase, floating::Floating, integer::Integer, share::Share, timed, wake::Wake};
use nix::fcntl::OFlag;
use serde::Deserialize;

use crate::distribution::Distribution;
use crate::failure::Failure;
use crate::parameters::{Int, Seed, Text};
use crate::roots::{Folder, Removal};

/// Longest path of the folder in which a disk kernel makes its files.
const LONGEST_PATH: usize = 4096;

/// Largest block of memory for one thread: a tebibyte, so that what is refused is refused by the guest.
const LARGEST_BLOCK: u64 = 1 << 40;

/// Largest file of a disk kernel.
const LARGEST_FILE: u64 = 1 << 44;

/// Longest time of work, and of the warm-up.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Parameters of the probe and of the load `kernel`.  What only one of them, or only some kernels take is optional
/// (docs/protocol.md).
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    kernel: Name,
    seed: Seed,
    access: Option<Access>,
    element: Option<Element>,
    order: Option<Order>,
    operation: Option<Operation>,
    folder: Option<Text<LONGEST_PATH>>,
    block_bytes: Option<Int<4096, LARGEST_BLOCK>>,
    file_bytes: Option<Int<4096, LARGEST_FILE>>,
    period_ns: Option<Int<10_000, 1_000_000_000>>,
    /// How many do it.
    pub threads: Int<1, 1024>,
    /// Of the load: the share of the time in which each works.
    pub intensity_percent: Option<Int<1, 100>>,
    /// Of the probe: before it counts.
    pub warmup_ns: Option<Int<0, LONGEST_NS>>,
    /// Of the probe: while it counts.
    pub duration_ns: Option<Int<1, LONGEST_NS>>,
    /// Of the probe: for which it counts separately.
    pub slice_ns: Option<Int<1_000_000, LONGEST_NS>>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Name {
    Integer,
    Floating,
    Memory,
    Latency,
    Disk,
    Wake,
    Cache,
    Fork,
    Share,
}

/// A parameter without which this work cannot be done.
pub(crate) fn needed<T>(value: Option<T>, field: &str) -> Result<T, Failure> {
    value.ok_or_else(|| Failure::bad_request(format!("params: missing field `{field}`")))
}

/// How long each operation of a disk kernel took, or how late each wake-up was, after the warm-up; of all threads.
pub type Latencies = Arc<Mutex<Distribution>>;

/// A kernel that is ready to run.
pub struct Made {
    /// The kernel itself.
    pub kernel: Box<dyn Kernel>,
    /// For a disk kernel, whether the guest's page cache is really left out.
    pub direct: Option<bool>,
}

impl Asked {
    /// Whether its operations have a latency of their own.
    #[must_use]
    pub fn has_latency(&self) -> bool {
        matches!(self.kernel, Name::Disk | Name::Wake)
    }

    /// The kernels of all threads, with all that they need: memory is touched, files are filled.
    pub fn make(&self, latencies: &Latencies) -> Result<Vec<Made>, Failure> {
        (0..self.threads.0).map(|thread| self.make_one(thread, latencies)).collect()
    }

    fn make_one(&self, thread: u64, latencies: &Latencies) -> Result<Made, Failure> {
        let seed = self.seed.0.wrapping_add(thread.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let latencies = Arc::clone(latencies);
        let record = move |ns: u64| {
            if timed::counts() {
                latencies.lock().unwrap_or_else(PoisonError::into_inner).record(ns.saturating_mul(1000) as i64);
            }
        };
        let block_bytes = || needed(self.block_bytes, "block_bytes").map(|bytes| bytes.0 as usize);
        let mut direct = None;
        let kernel: Box<dyn Kernel> = match self.kernel {
            Name::Integer => Box::new(Integer::new()),
            Name::Floating => Box::new(Floating::new()),
            Name::Memory => {
                let (access, element) = (needed(self.access, "access")?, needed(self.element, "element")?);
                Box::new(Memory::new(access, element, block_bytes()?)?)
            }
            Name::Latency => Box::new(Chase::new(block_bytes()?, seed)?),
            Name::Disk => {
                let folder = needed(self.folder.as_ref(), "folder")?;
                let (operation, order) = (needed(self.operation, "operation")?, needed(self.order, "order")?);
                let file_bytes = needed(self.file_bytes, "file_bytes")?.0;
                let (file, past_cache, removal) = made_file(&folder.0, seed)?;
                let kept = Box::new(removal);
                let disk =
                    Disk::new(file, past_cache, kept, operation, order, block_bytes()?, file_bytes, seed, record)?;
                direct = Some(disk.direct());
                Box::new(disk)
            }
            Name::Wake => Box::new(Wake::new(needed(self.period_ns, "period_ns")?.0, record)),
            Name::Cache => Box::new(Cache::new(block_bytes()?, seed)?),
            Name::Fork => Box::new(Fork),
            Name::Share => Box::new(Share::new()),
        };
        Ok(Made { kernel, direct })
    }
}

/// A file of a disk kernel's own, whether it leaves out the page cache, and what takes it away.  The file system may not
/// know that way.
fn made_file(folder: &str, seed: u64) -> Result<(File, bool, Removal), Failure> {
    let folder = Arc::new(Folder::open(folder)?);
    let name = format!("virtgauge-{}-{seed:016x}", std::process::id());
    let failed = |error: std::io::Error| Failure::os(&format!("making {}/{name}", folder.path().display()), &error);
    let (file, direct) = match folder.fresh(&name, OFlag::O_DIRECT) {
        Ok(file) => (file, true),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            (folder.fresh(&name, OFlag::empty()).map_err(failed)?, false)
        }
        Err(error) => return Err(failed(error)),
    };
    Ok((file, direct, Removal::of(folder, name)))
}

//! The flush rate of the disk under a folder.

use std::fs::{File, OpenOptions, remove_file};
use std::os::unix::fs::FileExt;

use serde::Serialize;

use crate::clock::now;
use crate::failure::{Failure, Kind};
use crate::histogram::{Distribution, Durations};
use crate::spec::DiskSpec;

/// The file is written over again and again, as a database's log is: a flush has data to write, and no new length.
const FILE_BYTES: usize = 4 << 20;

/// A probe is so many bursts, one behind the other: how much they differ says how restless the disk is.
const BURSTS: u64 = 10;

/// What `disk` answers.
#[derive(Clone, Debug, Serialize)]
pub struct Probed {
    /// Blocks that were written and flushed.
    pub flushes: u64,
    /// How long that took.
    pub elapsed_ns: u64,
    /// The quotient.
    pub flushes_per_s: f64,
    /// The same of each burst, in their order.
    pub bursts_per_s: Vec<f64>,
    /// Write and flush of one block.
    pub latency: Distribution,
}

/// Writes blocks, each flushed (`fdatasync`) before the next.
///
/// # Errors
/// `bad-request` for a block of nothing; `full` and `database` for what the file system says.
pub fn probe(spec: &DiskSpec) -> Result<Probed, Failure> {
    if spec.block_bytes == 0 || spec.block_bytes > FILE_BYTES {
        let message = format!("block_bytes is {}, and may be 1 to {FILE_BYTES}", spec.block_bytes);
        return Err(Failure::new(Kind::BadRequest, message));
    }
    let path = spec.folder.join(format!(".virtgauge-disk-{}", std::process::id()));
    let failed = |error: std::io::Error| {
        let kind = if error.raw_os_error() == Some(libc::ENOSPC) { Kind::Full } else { Kind::Database };
        Failure::new(kind, format!("{}: {error}", path.display()))
    };
    let file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(failed)?;
    let probed = write(&file, spec).map_err(failed);
    remove_file(&path).map_err(failed)?;
    probed
}

fn write(file: &File, spec: &DiskSpec) -> std::io::Result<Probed> {
    file.write_all_at(&vec![0x5a; FILE_BYTES], 0)?;
    file.sync_all()?;
    let mut block = vec![0; spec.block_bytes];
    let blocks = (FILE_BYTES / spec.block_bytes) as u64;
    let (mut latency, begin) = (Durations::new(), now());
    let (mut last, mut bursts_per_s) = (begin, Vec::new());
    for _ in 0..BURSTS {
        let (first, burst) = (latency.len(), last);
        while latency.len() == first || last - burst < spec.duration_ms * 1_000_000 / BURSTS {
            let number = latency.len();
            block.fill(number as u8); // another content each time: nothing could be left out for being the same
            file.write_all_at(&block, number % blocks * spec.block_bytes as u64)?;
            file.sync_data()?;
            let done = now();
            latency.record(done - last);
            last = done;
        }
        bursts_per_s.push(rate(latency.len() - first, last - burst));
    }
    let (flushes, elapsed_ns) = (latency.len(), last - begin);
    let flushes_per_s = rate(flushes, elapsed_ns);
    Ok(Probed { flushes, elapsed_ns, flushes_per_s, bursts_per_s, latency: latency.distribution() })
}

fn rate(flushes: u64, elapsed_ns: u64) -> f64 {
    flushes as f64 * 1e9 / elapsed_ns as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_leaves_no_file_and_says_a_rate() {
        let folder = std::env::temp_dir().join(format!("sensorstore-disk-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let probed = probe(&DiskSpec { folder: folder.clone(), duration_ms: 20, block_bytes: 4096 }).unwrap();
        assert_eq!(probed.latency.n, probed.flushes);
        assert!(probed.flushes >= BURSTS && probed.elapsed_ns >= 20_000_000);
        assert_eq!(probed.bursts_per_s.len() as u64, BURSTS);
        let (slowest, fastest) =
            probed.bursts_per_s.iter().fold((f64::MAX, 0.0_f64), |(low, high), &one| (low.min(one), high.max(one)));
        assert!(0.0 < slowest && slowest <= probed.flushes_per_s && probed.flushes_per_s <= fastest);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
        std::fs::remove_dir(&folder).unwrap();
    }
}

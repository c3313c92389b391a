//! Disk bandwidth: blocks of a file of the kernel's own, in order or anywhere, read, written, or written and flushed.
//!
//! The guest's page cache is left out (`O_DIRECT`); where the file system does not have that, its cache is emptied before
//! and the figures say so.  Every block read is checked against what was written there last.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use failure::Failure;
use hptime::OsClock;
use serde::Deserialize;

use crate::Kernel;
use crate::random::{SplitMix64, mixed};

/// Where the next block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Behind the one before; after the last, the first.
    Sequential,
    /// Anywhere, each as likely.
    Random,
}

/// What is done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Read and checked.
    Read,
    /// Overwritten.
    Write,
    /// Overwritten, and flushed to the disk before the next.
    WriteFlush,
}

/// The smallest unit that a disk and its file system exchange directly.
pub const SECTOR_BYTES: usize = 4096;

/// Written at a time while the file is filled.
const FILL_BYTES: usize = 1 << 20;

/// The disk kernel.
pub struct Disk<R: FnMut(u64) + Send> {
    file: File,
    /// Takes the file's name away when it is dropped.
    _removal: Box<dyn Send>,
    direct: bool,
    operation: Operation,
    order: Order,
    buffer: Aligned,
    blocks: u64,
    next: u64,
    /// How often each block was written: what it must hold.
    generations: Vec<u32>,
    random: SplitMix64,
    took: R,
}

/// Memory that a disk can be asked to transfer to and from.
struct Aligned {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    fn new(length: usize) -> Self {
        let memory = vec![0u8; length + SECTOR_BYTES];
        let start = memory.as_ptr().align_offset(SECTOR_BYTES);
        Self { memory, start, length }
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

impl<R: FnMut(u64) + Send> Disk<R> {
    /// Fills the file, then empties the cache of it.
    ///
    /// # Arguments
    /// `file` is empty, open for reading and writing, past the page cache if it is `direct`; `removal` is dropped with the
    /// kernel, and takes its name away.  `took` is told how long each operation took, in nanoseconds, its flush included.
    ///
    /// # Errors
    /// The disk is full, or fails; the file is gone then.
    #[allow(clippy::too_many_arguments, reason = "two for the file, four for the work, two for its record")]
    pub fn new(
        file: File,
        direct: bool,
        removal: Box<dyn Send>,
        operation: Operation,
        order: Order,
        block_bytes: usize,
        file_bytes: u64,
        seed: u64,
        took: R,
    ) -> Result<Self, Failure> {
        let block_bytes = block_bytes.div_ceil(SECTOR_BYTES) * SECTOR_BYTES;
        let blocks = (file_bytes / block_bytes as u64).max(1);
        let mut disk = Self {
            file,
            _removal: removal,
            direct,
            operation,
            order,
            buffer: Aligned::new(block_bytes),
            blocks,
            next: 0,
            generations: vec![0; blocks as usize],
            random: SplitMix64::new(seed),
            took,
        };
        disk.fill()?;
        disk.file.sync_all().map_err(|error| Failure::os("flushing the file", error))?;
        disk.empty_cache();
        Ok(disk)
    }

    /// Whether the guest's page cache is really left out.
    pub fn direct(&self) -> bool {
        self.direct
    }

    /// Writes every block once, many at a time: small ones by themselves take an emulated disk a minute.
    fn fill(&mut self) -> Result<(), Failure> {
        let length = self.buffer.length;
        let together = (FILL_BYTES / length).clamp(1, self.generations.len());
        let mut chunk = Aligned::new(together * length);
        for first in (0..self.generations.len()).step_by(together) {
            let generations = &mut self.generations[first..];
            let blocks = generations.len().min(together);
            for (within, generation) in generations.iter_mut().take(blocks).enumerate() {
                *generation = 1;
                let bytes = &mut chunk.bytes_mut()[within * length..][..length];
                mark(bytes, (first + within) as u64, *generation);
            }
            self.write_at(&chunk.bytes()[..blocks * length], (first * length) as u64)?;
        }
        Ok(())
    }

    fn empty_cache(&self) {
        // SAFETY: gives the kernel advice on a descriptor that is open.
        unsafe { libc::posix_fadvise(self.file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        // The machine's other caches; only root may, and a sandbox may not have the file.
        let _ = fs::write("/proc/sys/vm/drop_caches", "3");
    }

    fn write(&mut self, block: u64) -> Result<(), Failure> {
        let generation = self.generations[block as usize].wrapping_add(1);
        mark(self.buffer.bytes_mut(), block, generation);
        let at = block * self.buffer.length as u64;
        self.write_at(self.buffer.bytes(), at)?;
        self.generations[block as usize] = generation;
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> Result<(), Failure> {
        let wrote = self.file.write_all_at(bytes, at);
        wrote.map_err(|error| Failure::os(format!("writing {} bytes at {at}", bytes.len()), error))
    }

    fn read(&mut self, block: u64) -> Result<(), Failure> {
        let at = block * self.buffer.length as u64;
        let read = self.file.read_exact_at(self.buffer.bytes_mut(), at);
        read.map_err(|error| Failure::os(format!("reading block {block}"), error))?;
        let generation = self.generations[block as usize];
        match misplaced(self.buffer.bytes(), block, generation) {
            None => Ok(()),
            Some(sector) => Err(Failure::Wrong(format!("sector {sector} of block {block} is not what was written"))),
        }
    }
}

/// Writes the mark of a block into each of its sectors; the rest stays, so that a block is not all zeros.
fn mark(bytes: &mut [u8], block: u64, generation: u32) {
    for (sector, content) in bytes.chunks_exact_mut(SECTOR_BYTES).enumerate() {
        content[..8].copy_from_slice(&mark_of(block, generation, sector).to_le_bytes());
        content[SECTOR_BYTES - 8..].copy_from_slice(&mark_of(block, generation, sector).to_be_bytes());
    }
}

/// The first sector that does not hold its mark at both ends.
fn misplaced(bytes: &[u8], block: u64, generation: u32) -> Option<usize> {
    bytes.chunks_exact(SECTOR_BYTES).enumerate().position(|(sector, content)| {
        let expected = mark_of(block, generation, sector);
        content[..8] != expected.to_le_bytes() || content[SECTOR_BYTES - 8..] != expected.to_be_bytes()
    })
}

fn mark_of(block: u64, generation: u32, sector: usize) -> u64 {
    mixed(block ^ u64::from(generation) << 40 ^ (sector as u64) << 28)
}

impl<R: FnMut(u64) + Send> Kernel for Disk<R> {
    fn unit(&self) -> &'static str {
        "bytes"
    }

    fn pass(&mut self) -> Result<u64, Failure> {
        let block = match self.order {
            Order::Sequential => {
                let following = (self.next + 1) % self.blocks;
                std::mem::replace(&mut self.next, following)
            }
            Order::Random => self.random.below(self.blocks),
        };
        let started_ns = OsClock::Monotonic.now_ns();
        match self.operation {
            Operation::Read => self.read(block)?,
            Operation::Write => self.write(block)?,
            Operation::WriteFlush => {
                self.write(block)?;
                self.file.sync_data().map_err(|error| Failure::os("flushing", error))?;
            }
        }
        (self.took)(OsClock::Monotonic.now_ns().saturating_sub(started_ns));
        Ok(self.buffer.length as u64)
    }

    /// What was written last is read back: some blocks, spread over the file.
    fn check(&mut self) -> Result<(), Failure> {
        let step = self.blocks.div_ceil(64);
        (0..self.blocks).step_by(step as usize).try_for_each(|block| self.read(block))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::path::{Path, PathBuf};

    use super::*;

    struct Removal(PathBuf);

    impl Drop for Removal {
        fn drop(&mut self) {
            fs::remove_file(&self.0).unwrap();
        }
    }

    fn path(seed: u64) -> PathBuf {
        std::env::temp_dir().join(format!("virtgauge-disk-{}-{seed}", std::process::id()))
    }

    fn opened(path: &Path) -> File {
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(path).unwrap()
    }

    fn disk(operation: Operation, order: Order, seed: u64) -> Disk<impl FnMut(u64) + Send> {
        let path = path(seed);
        let file = opened(&path);
        Disk::new(file, false, Box::new(Removal(path)), operation, order, 8192, 1 << 20, seed, |_| ()).unwrap()
    }

    #[test]
    fn every_operation_in_either_order_comes_out_right_and_leaves_no_file() {
        for (number, operation) in [Operation::Read, Operation::Write, Operation::WriteFlush].into_iter().enumerate() {
            for order in [Order::Sequential, Order::Random] {
                let seed = 10 + number as u64;
                let mut disk = disk(operation, order, seed);
                let moved: u64 = (0..200).map(|_| disk.pass().unwrap()).sum();
                assert_eq!(moved, 200 * 8192);
                disk.check().unwrap();
                assert!(path(seed).exists());
                drop(disk);
                assert!(!path(seed).exists());
            }
        }
    }

    #[test]
    fn a_block_that_somebody_else_wrote_is_found() {
        let mut disk = disk(Operation::Read, Order::Sequential, 99);
        let other = OpenOptions::new().write(true).open(path(99)).unwrap();
        other.write_all_at(b"something else", 3 * 8192).unwrap();
        other.sync_all().unwrap();
        let found = (0..200).find_map(|_| disk.pass().err());
        assert!(matches!(found, Some(Failure::Wrong(_))), "{found:?}");
    }
}

//! The flush laboratory, see docs/flushes.md: `LD_PRELOAD=libvirtgauge_flushes.so PROGRAM` counts what a program
//! flushes to its disk, and lets each flush take as long as a chosen disk would.
//!
//! Flushes are `fsync`, `fdatasync`, `msync` with `MS_SYNC`, `sync_file_range` that waits, `syncfs`, `sync`, writes to
//! descriptors opened with `O_SYNC` or `O_DSYNC`, and writes with `RWF_SYNC` or `RWF_DSYNC`; on x86-64 also their
//! `syscall()` forms, except those of plain writes.
//!
//! What holds:
//! - Nothing takes a lock or allocates: entry points are async-signal-safe, and a child of `fork` goes on counting.
//! - The counters are atomics in one shared file; a process that is killed has counted every flush that it saw the end of.
//! - Errors of a bad descriptor or address are the kernel's own, also where the real flush is left out; `errno` is kept.
//! - The functions stay cancellation points, as they are in libc.
//!
//! Environment, set by the launcher: `VIRTGAUGE_FLUSHES=PATH`, the counters' file, which also holds the profile;
//! `VIRTGAUGE_FLUSHES_LAUNCHER=PATH`, the launcher, by which a program is started again that no library reaches.

pub mod counters;
pub mod entry;
pub mod executable;
pub mod flush;
pub mod kernel;
pub mod lifecycle;
pub mod opening;
pub mod profile;
pub mod real;
pub mod writing;

#[cfg(test)]
#[global_allocator]
static MEMORY: fuzz::Watched = fuzz::Watched;

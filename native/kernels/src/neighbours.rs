//! What an unpleasant neighbour does besides: empties the shared cache, makes and ends processes, flushes its disk.

use std::hint::black_box;

use failure::Failure;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};

use crate::Kernel;
use crate::random::SplitMix64;

/// Writes to random lines of a block as large as the shared cache, so that everybody else's lines leave it.
pub struct Cache {
    words: Vec<u64>,
    random: SplitMix64,
    written: u64,
}

/// Lines that one pass writes to.
const LINES_PER_PASS: u64 = 4096;
const WORDS_PER_LINE: u64 = 8;

impl Cache {
    /// Takes the block.
    ///
    /// # Errors
    /// There is not as much memory.
    pub fn new(block_bytes: usize, seed: u64) -> Result<Self, Failure> {
        let count = (block_bytes / size_of::<u64>()).max(WORDS_PER_LINE as usize);
        let mut words = Vec::new();
        words.try_reserve_exact(count).map_err(|_| {
            Failure::os(format!("taking {block_bytes} bytes of memory"), std::io::ErrorKind::OutOfMemory)
        })?;
        words.resize(count, 0);
        Ok(Self { words, random: SplitMix64::new(seed), written: 0 })
    }
}

impl Kernel for Cache {
    fn unit(&self) -> &'static str {
        "lines"
    }

    fn pass(&mut self) -> Result<u64, Failure> {
        let lines = self.words.len() as u64 / WORDS_PER_LINE;
        for _ in 0..LINES_PER_PASS {
            let word = self.random.below(lines) * WORDS_PER_LINE;
            self.words[word as usize] = self.words[word as usize].wrapping_add(1);
        }
        black_box(&mut self.words);
        self.written += LINES_PER_PASS;
        Ok(LINES_PER_PASS)
    }

    fn check(&mut self) -> Result<(), Failure> {
        let found: u64 = self.words.iter().step_by(WORDS_PER_LINE as usize).sum();
        if found == self.written {
            return Ok(());
        }
        Err(Failure::Wrong(format!("the lines count {found} writes, not {}", self.written)))
    }
}

/// Makes processes that end at once, one after another.
#[derive(Debug, Default)]
pub struct Fork;

impl Kernel for Fork {
    fn unit(&self) -> &'static str {
        "processes"
    }

    fn pass(&mut self) -> Result<u64, Failure> {
        // SAFETY: the child calls nothing but _exit, which is async-signal-safe.
        match unsafe { fork() } {
            // SAFETY: ends this process, and runs nothing of the parent's.
            Ok(ForkResult::Child) => unsafe { libc::_exit(0) },
            Ok(ForkResult::Parent { child }) => {
                waitpid(child, None).map_err(|errno| Failure::os("waiting for a process", errno))?;
                Ok(1)
            }
            Err(errno) => Err(Failure::os("making a process", errno)),
        }
    }

    fn check(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_write_to_the_cache_is_counted() {
        let mut cache = Cache::new(1 << 20, 4).unwrap();
        for _ in 0..3 {
            cache.pass().unwrap();
        }
        cache.check().unwrap();
        cache.words[8] += 1;
        assert!(cache.check().is_err());
    }

    #[test]
    fn processes_are_made_and_leave_nothing() {
        let mut processes = Fork;
        assert_eq!((0..5).map(|_| processes.pass().unwrap()).sum::<u64>(), 5);
    }
}

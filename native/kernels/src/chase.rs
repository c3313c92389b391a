//! Memory latency: a chain of loads, each of which tells where the next one is, through all lines of a block in random order.

use std::hint::black_box;

use failure::Failure;

use crate::Kernel;
use crate::random::SplitMix64;

/// Loads of one pass: 0.2 ms where each of them misses every cache.
const LOADS_PER_PASS: u64 = 2048;

#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line {
    next: u32,
}

/// The kernel of memory latency.
pub struct Chase {
    lines: Vec<Line>,
    at: u32,
    loads: u64,
}

impl Chase {
    /// Lays one cycle through all lines of a block (Sattolo's algorithm), so that no shorter one is ever run in.
    ///
    /// # Errors
    /// There is not as much memory.
    pub fn new(block_bytes: usize, seed: u64) -> Result<Self, Failure> {
        let count = (block_bytes / size_of::<Line>()).clamp(2, u32::MAX as usize);
        let mut lines: Vec<Line> = Vec::new();
        lines.try_reserve_exact(count).map_err(|_| {
            Failure::os(format!("taking {block_bytes} bytes of memory"), std::io::ErrorKind::OutOfMemory)
        })?;
        lines.extend((0..count as u32).map(|next| Line { next }));
        let mut random = SplitMix64::new(seed);
        for last in (1..count).rev() {
            let other = random.below(last as u64) as usize;
            let next = lines[last].next;
            lines[last].next = lines[other].next;
            lines[other].next = next;
        }
        Ok(Self { lines, at: 0, loads: 0 })
    }
}

impl Kernel for Chase {
    fn unit(&self) -> &'static str {
        "loads"
    }

    fn pass(&mut self) -> Result<u64, Failure> {
        self.at = chased(&self.lines, black_box(self.at), LOADS_PER_PASS);
        self.loads += LOADS_PER_PASS;
        Ok(LOADS_PER_PASS)
    }

    /// The loads beyond the last whole cycle, again from the start, must end at the same line.
    fn check(&mut self) -> Result<(), Failure> {
        let beyond = self.loads % self.lines.len() as u64;
        let expected = chased(&self.lines, 0, beyond);
        if self.at == expected {
            return Ok(());
        }
        Err(Failure::Wrong(format!("the chain ended at line {}, not {expected}, after {} loads", self.at, self.loads)))
    }
}

#[inline(never)]
fn chased(lines: &[Line], mut at: u32, loads: u64) -> u32 {
    for _ in 0..loads {
        at = lines[at as usize].next;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_goes_through_every_line_before_it_comes_back() {
        for count in [2, 3, 64, 1000] {
            let chase = Chase::new(count * 64, 9).unwrap();
            let mut seen = vec![false; count];
            let mut at = 0u32;
            for _ in 0..count {
                assert!(!std::mem::replace(&mut seen[at as usize], true), "{count}");
                at = chase.lines[at as usize].next;
            }
            assert_eq!(at, 0, "{count}");
        }
    }

    #[test]
    fn passes_are_checked_by_where_they_end() {
        let mut chase = Chase::new(100 * 64, 3).unwrap();
        for _ in 0..5 {
            chase.pass().unwrap();
        }
        chase.check().unwrap();
        chase.at = (chase.at + 1) % 100;
        assert!(matches!(chase.check(), Err(Failure::Wrong(_))));
    }
}

//! What is written, so that what is read can be checked.

use kernels::random::SplitMix64;
/// A file's content: every block is known by the file, its place and how often it was written.
#[derive(Debug)]
pub(super) struct Content {
    file: u64,
    block_bytes: usize,
    /// How often each block was written.
    generations: Vec<u32>,
}

impl Content {
    pub(super) fn new(file: u64, blocks: usize, block_bytes: usize) -> Self {
        Self { file, block_bytes, generations: vec![0; blocks] }
    }

    pub(super) fn blocks(&self) -> usize {
        self.generations.len()
    }

    pub(super) fn offset(&self, block: usize) -> u64 {
        block as u64 * self.block_bytes as u64
    }

    /// What to write next to a block.
    pub(super) fn renew(&mut self, block: usize, bytes: &mut [u8]) {
        self.generations[block] = self.generations[block].wrapping_add(1);
        let mut words = self.words(block);
        for chunk in bytes.chunks_exact_mut(8) {
            chunk.copy_from_slice(&words.next_u64().to_le_bytes());
        }
    }

    /// Whether these bytes are what was written last to the block.
    pub(super) fn matches(&self, block: usize, bytes: &[u8]) -> bool {
        let mut words = self.words(block);
        bytes.len() == self.block_bytes && bytes.chunks_exact(8).all(|chunk| chunk == words.next_u64().to_le_bytes())
    }

    fn words(&self, block: usize) -> SplitMix64 {
        let place = self.file.rotate_left(48) ^ (block as u64).rotate_left(24) ^ u64::from(self.generations[block]);
        SplitMix64::new(SplitMix64::new(place).next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_written_last_matches() {
        let mut content = Content::new(3, 2, 64);
        let (mut first, mut again, mut other) = ([0; 64], [0; 64], [0; 64]);
        content.renew(0, &mut first);
        assert!(content.matches(0, &first));
        content.renew(0, &mut again);
        assert!(content.matches(0, &again) && !content.matches(0, &first), "an earlier content is wrong");
        content.renew(1, &mut other);
        assert!(!content.matches(0, &other), "another block's content is wrong");
        again[63] ^= 1;
        assert!(!content.matches(0, &again), "a single flipped bit is wrong");
        assert!(!content.matches(1, &other[..56]), "half a block is wrong");
    }

    #[test]
    fn files_differ() {
        let (mut bytes, mut others) = ([0; 64], [0; 64]);
        Content::new(1, 1, 64).renew(0, &mut bytes);
        Content::new(2, 1, 64).renew(0, &mut others);
        assert_ne!(bytes, others);
    }
}

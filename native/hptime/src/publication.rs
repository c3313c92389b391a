//! One value of many words, replaced without a lock and read without waiting.
//!
//! A reader takes the words of the current slot and looks whether the slot is still the current one.  A writer fills a slot
//! that nobody else owns and makes it the current one by one compare-and-swap, which fails when another writer was
//! first.  No one ever waits for a thread that may not run: a signal handler can read and write in the middle of a write
//! of the thread that it interrupts, and a child of `fork` needs nothing of the threads that it lost.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// One slot is current; the others are for writers that race, for handlers that interrupt writers, and for those slots whose
/// owner a `fork` left behind.
const SLOTS: usize = 8;
const SLOT_MASK: u64 = SLOTS as u64 - 1;

/// What names one published value: its slot and how many there were before.  Never repeats within 2⁶¹ writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(u64);

/// The first words are read most often: they share a cache line.
#[derive(Debug)]
#[repr(align(64))]
struct Slot<const N: usize> {
    words: [AtomicU64; N],
    owned: AtomicBool,
}

/// A value of `N` words.
#[derive(Debug)]
pub(crate) struct Published<const N: usize> {
    current: AtomicU64,
    slots: [Slot<N>; SLOTS],
}

impl<const N: usize> Published<N> {
    /// All words zero.
    pub(crate) const fn new() -> Self {
        let mut published = Self {
            current: AtomicU64::new(0),
            slots: [const { Slot { words: [const { AtomicU64::new(0) }; N], owned: AtomicBool::new(false) } }; SLOTS],
        };
        published.slots[0].owned = AtomicBool::new(true);
        published
    }

    /// The current slot's words, for [`Published::confirms`] to confirm after they have been read.
    #[inline(always)]
    pub(crate) fn current(&self) -> (Tag, &[AtomicU64; N]) {
        let tag = self.current.load(Ordering::Acquire);
        (Tag(tag), &self.slots[(tag & SLOT_MASK) as usize].words)
    }

    /// Whether `tag` is still current, so that every word read since [`Published::current`] belongs to it.
    #[inline(always)]
    pub(crate) fn confirms(&self, tag: Tag) -> bool {
        // Pairs with the fence in `replace`: who has seen a word of a later write also sees that the tag has changed.
        fence(Ordering::Acquire);
        self.current.load(Ordering::Relaxed) == tag.0
    }

    /// The current value as a whole.
    pub(crate) fn read(&self) -> (Tag, [u64; N]) {
        loop {
            let (tag, words) = self.current();
            let copy = core::array::from_fn(|index| words[index].load(Ordering::Relaxed));
            if self.confirms(tag) {
                return (tag, copy);
            }
        }
    }

    /// Puts `words` in place of the value that `tag` names; false when it is no longer the current one, or when no slot is free.
    pub(crate) fn replace(&self, tag: Tag, words: &[u64; N]) -> bool {
        let free =
            |slot: &Slot<N>| slot.owned.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        let Some(index) = self.slots.iter().position(free) else {
            return false;
        };
        let slot = &self.slots[index];
        fence(Ordering::Release);
        for (word, &value) in slot.words.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        let next = ((tag.0 & !SLOT_MASK) + SLOTS as u64) | index as u64;
        let won = self.current.compare_exchange(tag.0, next, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let retired = if won { &self.slots[(tag.0 & SLOT_MASK) as usize] } else { slot };
        retired.owned.store(false, Ordering::Release);
        won
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_never_sees_words_of_two_writes() {
        let published = Published::<8>::new();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let (tag, words) = published.read();
                        published.replace(tag, &words.map(|word| word + 1));
                    }
                });
            }
            for _ in 0..100_000 {
                let (_, words) = published.read();
                assert!(words.iter().all(|&word| word == words[0]), "{words:?}");
            }
        });
        assert!(published.read().1[0] > 0);
    }

    #[test]
    fn of_two_writers_with_one_tag_the_second_fails() {
        let published = Published::<2>::new();
        let (tag, _) = published.read();
        assert!(published.replace(tag, &[1, 1]));
        assert!(!published.replace(tag, &[2, 2]));
        assert_eq!(published.read().1, [1, 1]);
    }

    #[test]
    fn a_slot_whose_owner_is_gone_takes_no_part_and_the_rest_go_on() {
        let published = Published::<2>::new();
        for slot in &published.slots[1..SLOTS - 1] {
            slot.owned.store(true, Ordering::Relaxed);
        }
        for round in 1..100 {
            let (tag, _) = published.read();
            assert!(published.replace(tag, &[round, round]));
        }
        published.slots.iter().for_each(|slot| slot.owned.store(true, Ordering::Relaxed));
        let (tag, _) = published.read();
        assert!(!published.replace(tag, &[0, 0]));
        assert_eq!(published.read().1, [99, 99]);
    }
}

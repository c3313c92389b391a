//! Parsers under bytes that nobody meant: sound inputs of a corpus, changed, cut, lengthened and joined, and random ones.
//!
//! A target is a test that calls [`fuzz`].  It tries the corpus and some thousand inputs; `FUZZ_INPUTS` and `FUZZ_SECONDS` in the
//! environment make each of them a long run.  An input may neither panic nor hold much more memory than it is long.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::{Cell, RefCell};
use std::env;
use std::fmt::Write as _;
use std::panic::{self, AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestError, TestRunner};

/// How many inputs a target tries where the environment does not say.
const INPUTS: u64 = 2_000;

/// So many inputs, and then a look at the time.
const BATCH: u64 = 1_000;

/// What any input may hold, and how many times its own length beyond that.
const HELD_BYTES: usize = 6 << 20;
const HELD_TIMES: usize = 128;

/// Where lengths and counts turn over.
const TURNS: [u64; 12] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0xff_ffff,
    0x7fff_ffff,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0xffff_ffff_ffff_ffff,
];

/// Tries a target on its corpus, a line in hexadecimal digits for each input, words behind `#`, and on what becomes of it.
///
/// # Panics
/// Where the target does, or holds too much memory; the message ends with the smallest such input that was found, as a
/// line for the corpus.
pub fn fuzz(name: &str, corpus: &str, target: impl Fn(&[u8])) {
    let seeds: Vec<Vec<u8>> = corpus.lines().filter_map(|line| bytes_of(line.split('#').next()?)).collect();
    assert!(!seeds.is_empty(), "{name} has a corpus");
    silence_while_trying();
    for seed in &seeds {
        let sound = catch_unwind(AssertUnwindSafe(|| held(seed, &target)));
        assert!(sound.is_ok(), "{name}: this line of the corpus\n{}", line_of(seed));
    }
    let number = |variable| env::var(variable).ok().and_then(|text: String| text.parse::<u64>().ok());
    let longest = number("FUZZ_SECONDS").map(Duration::from_secs);
    let most = number("FUZZ_INPUTS").unwrap_or(if longest.is_some() { u64::MAX } else { INPUTS });
    let inputs = inputs(seeds);
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
    let (begun, mut tried) = (Instant::now(), 0);
    while tried < most && (tried % BATCH > 0 || longest.is_none_or(|longest| begun.elapsed() < longest)) {
        let case = inputs.new_tree(&mut runner).expect("every value is an input");
        let input = case.current();
        tried += 1;
        if catch_unwind(AssertUnwindSafe(|| held(&input, &target))).is_err() {
            let smallest = runner.run_one(case, |input| {
                held(&input, &target);
                Ok(())
            });
            match smallest {
                Err(TestError::Fail(reason, input)) => panic!("{name}: {reason}\n{}", line_of(&input)),
                _ => panic!("{name}: this panics once, and not again\n{}", line_of(&input)),
            }
        }
    }
    println!("fuzz {name}: {tried} inputs in {:.1} s", begun.elapsed().as_secs_f64());
}

thread_local! {
    static TRYING: Cell<bool> = const { Cell::new(false) };
}

/// Says nothing of a thread's panics while it tries an input: a target may catch those of a library, and what a test prints
/// is kept until its end, in memory that would count as the input's.
fn silence_while_trying() {
    static SILENCED: Once = Once::new();
    SILENCED.call_once(|| {
        let told = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !TRYING.get() {
                told(panic);
            }
        }));
    });
}

/// Runs the target and looks at the memory that it held.
fn held(input: &[u8], target: impl Fn(&[u8])) {
    TRYING.set(true);
    let most = catch_unwind(AssertUnwindSafe(|| most_held(input, || target(input))));
    TRYING.set(false);
    let most = most.unwrap_or_else(|panic| panic::resume_unwind(panic));
    let bound = HELD_BYTES + HELD_TIMES * input.len();
    assert!(most <= bound, "an input of {} bytes held {most} bytes of memory, more than {bound}", input.len());
}

/// Mostly an input of the corpus with some changes, else random bytes.
fn inputs(seeds: Vec<Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let change = (any::<u8>(), any::<u16>(), any::<u64>());
    let changed = (any::<Index>(), vec(change, 0..8)).prop_map(move |(seed, changes)| {
        let mut input = seed.get(&seeds).clone();
        for (kind, at, value) in changes {
            apply(&mut input, kind, usize::from(at), value, &seeds);
        }
        input
    });
    prop_oneof![15 => changed, 1 => vec(any::<u8>(), 0..100)]
}

fn apply(input: &mut Vec<u8>, kind: u8, at: usize, value: u64, seeds: &[Vec<u8>]) {
    let at = at % (input.len() + 1);
    let few = value as usize % 9;
    match kind % 9 {
        0 => input.iter_mut().skip(at).take(1).for_each(|byte| *byte = value as u8),
        1 => input.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << (value % 8)),
        2 => input.insert(at, value as u8),
        3 => drop(input.drain(at..(at + few).min(input.len()))),
        4 => input.truncate(at),
        // A number of two to eight bytes, at a turn or beside it, in either order.
        5 | 6 => {
            let number = TURNS[value as usize % TURNS.len()].wrapping_add(value >> 8 & 1);
            let width = [2, 3, 4, 8][(value >> 9) as usize % 4];
            let bytes = if kind % 9 == 5 { number.to_le_bytes() } else { (number << (64 - 8 * width)).to_be_bytes() };
            input.iter_mut().skip(at).zip(&bytes[..width]).for_each(|(byte, new)| *byte = *new);
        }
        7 => {
            let again = input[at..(at + few * few).min(input.len())].to_vec();
            input.splice(at..at, again);
        }
        _ => {
            let other = &seeds[value as usize % seeds.len()];
            input.truncate(at);
            input.extend_from_slice(&other[(value >> 32) as usize % (other.len() + 1)..]);
        }
    }
}

/// The bytes of a line of digits; `None` of an empty one.
fn bytes_of(line: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> =
        line.chars().filter(|digit| !digit.is_whitespace()).filter_map(|digit| digit.to_digit(16)).collect();
    let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect();
    (!bytes.is_empty()).then_some(bytes)
}

fn line_of(input: &[u8]) -> String {
    input.iter().fold(String::new(), |mut line, byte| {
        // Writing into memory does not fail.
        let _ = write!(line, "{byte:02x}");
        line
    })
}

/// A request that is refused: what would ask for it in earnest would take the machine down.
const LARGEST: usize = 1 << 30;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static MOST: Cell<usize> = const { Cell::new(0) };
    static INPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The system's allocator, which counts for each thread; the global one of a test that calls [`fuzz`].
pub struct Watched;

// SAFETY: the system's allocator does it; the counters of a thread allocate nothing.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !grow(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !grow(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if !grow(size) {
            return std::ptr::null_mut();
        }
        shrink(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        shrink(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }
}

fn grow(size: usize) -> bool {
    if size > LARGEST {
        // The process ends by this: whoever looks for the cause has the input.
        INPUT.with_borrow(|input| eprintln!("{size} bytes of memory were asked for by\n{}", line_of(input)));
        return false;
    }
    let held = HELD.get().wrapping_add(size);
    HELD.set(held);
    // What another thread made and this one freed makes the difference negative.
    if (held as isize) > MOST.get() as isize {
        MOST.set(held);
    }
    true
}

fn shrink(size: usize) {
    HELD.set(HELD.get().wrapping_sub(size));
}

/// The most bytes that this thread held beyond what it had before.
fn most_held(input: &[u8], work: impl FnOnce()) -> usize {
    INPUT.with_borrow_mut(|kept| {
        kept.clear();
        kept.extend_from_slice(input);
    });
    let before = HELD.get();
    MOST.set(before);
    work();
    MOST.get().wrapping_sub(before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static MEMORY: Watched = Watched;

    fn complaint(target: fn(&[u8])) -> String {
        let caught = catch_unwind(|| fuzz("a target", "00 01 02 00 04 05 06 07 # counts\n", target));
        caught.expect_err("it must be found").downcast_ref::<String>().cloned().unwrap_or_default()
    }

    #[test]
    fn a_panic_is_found_and_told_with_its_smallest_input() {
        let said = complaint(|input| assert!(input.len() < 3 || input[2] != 0xff, "wrong"));
        assert!(
            said.contains("wrong") && said.lines().last().is_some_and(|line| line.get(4..6) == Some("ff")),
            "{said}"
        );
    }

    #[test]
    fn memory_that_an_input_only_announces_is_found() {
        let said = complaint(|input| {
            let announced = input.first_chunk().map_or(0, |word| u32::from_le_bytes(*word) as usize);
            std::hint::black_box(Vec::<u8>::with_capacity(announced.min(1 << 29)));
        });
        assert!(said.contains("bytes of memory"), "{said}");
    }

    #[test]
    fn what_a_target_catches_is_neither_told_nor_held() {
        fuzz("caught", "00", |_| drop(catch_unwind(|| panic!("{}", "of a library ".repeat(1000)))));
    }

    #[test]
    fn what_is_freed_again_is_not_held() {
        let most = most_held(b"", || (0..64).for_each(|_| drop(std::hint::black_box(vec![1_u8; 1 << 16]))));
        assert!((1 << 16..1 << 18).contains(&most), "{most}");
    }
}

//! Memory bandwidth: a block read, written or copied from its beginning to its end, over and over.
//!
//! What `RAMspeed` is described to do (integer, floating-point and 128-bit registers, batches over a block).  Scalar
//! accesses are volatile, so that the compiler neither widens nor drops them.

use std::ptr;

use failure::Failure;
use serde::Deserialize;

use crate::Kernel;
use crate::random::mixed;

/// What is done to the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Its content is summed up.
    Read,
    /// It is overwritten.
    Write,
    /// One half is copied to the other; every byte counts once read and once written.
    Copy,
}

/// What it is accessed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Element {
    /// Integers of 64 bits.
    Integer,
    /// Floating-point numbers of 64 bits, which pass through the floating-point unit.
    Float,
    /// Registers of 128 bits.
    Simd,
}

/// Bytes of one pass.
const PASS_BYTES: usize = 512 * 1024;

/// Aligned to a cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line([u64; WORDS]);

/// Words of a line.
const WORDS: usize = 8;

const LINE_BYTES: usize = 64;

/// The memory kernel.
pub struct Memory {
    block: Vec<Line>,
    access: Access,
    element: Element,
    /// Line at which the next pass begins; within the half that is read, of a copy.
    at: usize,
    /// How often the block was gone through to its end.
    rounds: u64,
    sum: Sum,
    /// What a round of reading must come to: reckoned beforehand, for it takes as long as half a round.
    expected: Sum,
    wrong: Option<String>,
}

/// What a round of reading has summed up.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    integer: u64,
    float: f64,
}

impl Memory {
    /// Takes the block and touches all of it.
    ///
    /// # Errors
    /// There is not as much memory.
    pub fn new(access: Access, element: Element, block_bytes: usize) -> Result<Self, Failure> {
        let lines =
            (block_bytes / PASS_BYTES).max(if access == Access::Copy { 2 } else { 1 }) * PASS_BYTES / LINE_BYTES;
        let lines = if access == Access::Copy { lines / (2 * LINES_PER_PASS) * (2 * LINES_PER_PASS) } else { lines };
        let mut block = Vec::new();
        block.try_reserve_exact(lines).map_err(|_| {
            let bytes = lines * LINE_BYTES;
            Failure::os(format!("taking {bytes} bytes of memory"), std::io::ErrorKind::OutOfMemory)
        })?;
        block.extend((0..lines).map(|line| Line([word(line, 0); WORDS])));
        let expected = if access == Access::Read { expected(element, lines) } else { Sum::default() };
        Ok(Self { block, access, element, at: 0, rounds: 0, sum: Sum::default(), expected, wrong: None })
    }

    /// Lines that a round goes through.
    fn length(&self) -> usize {
        if self.access == Access::Copy { self.block.len() / 2 } else { self.block.len() }
    }

    /// At the end of a round: what was read must be what is there.
    fn end_round(&mut self) {
        if self.access == Access::Read {
            let expected = self.expected;
            let found = std::mem::take(&mut self.sum);
            let right = match self.element {
                Element::Float => found.float.to_bits() == expected.float.to_bits(),
                _ => found.integer == expected.integer,
            };
            if !right && self.wrong.is_none() {
                self.wrong = Some(format!("a read of the block summed up to {found:?}, not {expected:?}"));
            }
        }
        self.rounds += 1;
        self.at = 0;
    }
}

const LINES_PER_PASS: usize = PASS_BYTES / LINE_BYTES;

/// The content of a line's words after it was written for the `round`-th time: 24 bits at the upper end of what is a
/// float's fraction, so that sums of floats are exact, too.
fn word(line: usize, round: u64) -> u64 {
    mixed(line as u64 ^ (round << 40)) >> 40 << 28
}

fn expected(element: Element, lines: usize) -> Sum {
    let mut sum = Sum::default();
    for line in 0..lines {
        let value = word(line, 0);
        match element {
            Element::Float => sum.float += f64::from_bits(value | EXPONENT) * WORDS as f64,
            _ => sum.integer = sum.integer.wrapping_add(value.wrapping_mul(WORDS as u64)),
        }
    }
    sum
}

/// Makes a normal number of a word, so that no operation is a slow one on subnormal numbers.
const EXPONENT: u64 = 0x3ff0_0000_0000_0000;

impl Kernel for Memory {
    fn unit(&self) -> &'static str {
        "bytes"
    }

    fn pass(&mut self) -> Result<u64, Failure> {
        let (from, to) = (self.at, self.at + LINES_PER_PASS);
        let round = self.rounds + 1;
        match (self.access, self.element) {
            (Access::Read, Element::Integer) => read_integers(&self.block[from..to], &mut self.sum.integer),
            (Access::Read, Element::Float) => read_floats(&self.block[from..to], &mut self.sum.float),
            (Access::Read, Element::Simd) => wide::read(&self.block[from..to], &mut self.sum.integer),
            (Access::Write, element) => {
                for line in (from..to).step_by(LINES_PER_STRETCH) {
                    let value = word(line, round);
                    let stretch = &mut self.block[line..line + LINES_PER_STRETCH];
                    match element {
                        Element::Integer => write_integers(stretch, value),
                        Element::Float => write_floats(stretch, f64::from_bits(value)),
                        Element::Simd => wide::write(stretch, value),
                    }
                }
            }
            (Access::Copy, element) => {
                let half = self.block.len() / 2;
                let (source, target) = self.block.split_at_mut(half);
                let (source, target) = (&source[from..to], &mut target[from..to]);
                match element {
                    Element::Integer => copy_integers(source, target),
                    Element::Float => copy_floats(source, target),
                    Element::Simd => wide::copy(source, target),
                }
            }
        }
        self.at = to;
        if self.at == self.length() {
            self.end_round();
        }
        Ok(PASS_BYTES as u64 * if self.access == Access::Copy { 2 } else { 1 })
    }

    fn check(&mut self) -> Result<(), Failure> {
        if let Some(how) = self.wrong.take() {
            return Err(Failure::Wrong(how));
        }
        let wrong = |line: usize, found: u64, expected: u64| {
            Err(Failure::Wrong(format!("line {line} holds {found:#x}, not {expected:#x}")))
        };
        match self.access {
            Access::Read => Ok(()),
            Access::Write => {
                for line in 0..self.block.len() {
                    let round = if line < self.at { self.rounds + 1 } else { self.rounds };
                    let stretch = line / LINES_PER_STRETCH * LINES_PER_STRETCH;
                    let expected = if round == 0 { word(line, 0) } else { word(stretch, round) };
                    if self.block[line].0 != [expected; WORDS] {
                        return wrong(line, self.block[line].0[0], expected);
                    }
                }
                Ok(())
            }
            Access::Copy => {
                let half = self.block.len() / 2;
                for line in 0..if self.rounds > 0 { half } else { self.at } {
                    if self.block[half + line].0 != self.block[line].0 {
                        return wrong(half + line, self.block[half + line].0[0], self.block[line].0[0]);
                    }
                }
                Ok(())
            }
        }
    }
}

/// Lines that are written with the same value: reckoning one takes as long as writing many.
const LINES_PER_STRETCH: usize = 256;

#[inline(never)]
fn read_integers(lines: &[Line], sum: &mut u64) {
    let mut sums = [0u64; WORDS];
    for line in lines {
        for (word, sum) in line.0.iter().zip(&mut sums) {
            // SAFETY: a reference is valid for reads.
            *sum = sum.wrapping_add(unsafe { ptr::read_volatile(word) });
        }
    }
    *sum = sums.iter().fold(*sum, |all, one| all.wrapping_add(*one));
}

#[inline(never)]
fn read_floats(lines: &[Line], sum: &mut f64) {
    let mut sums = [0f64; WORDS];
    for line in lines {
        for (word, sum) in line.0.iter().zip(&mut sums) {
            // SAFETY: a reference is valid for reads.
            *sum += f64::from_bits(unsafe { ptr::read_volatile(word) } | EXPONENT);
        }
    }
    *sum += sums.iter().sum::<f64>();
}

#[inline(never)]
fn write_integers(lines: &mut [Line], value: u64) {
    for line in lines {
        for word in &mut line.0 {
            // SAFETY: an exclusive reference is valid for writes.
            unsafe { ptr::write_volatile(word, value) };
        }
    }
}

#[inline(never)]
fn write_floats(lines: &mut [Line], value: f64) {
    for line in lines {
        for word in &mut line.0 {
            // SAFETY: an exclusive reference is valid for writes, and the two types have the same size and alignment.
            unsafe { ptr::write_volatile(ptr::from_mut(word).cast::<f64>(), value) };
        }
    }
}

#[inline(never)]
fn copy_integers(source: &[Line], target: &mut [Line]) {
    for (from, to) in source.iter().zip(target) {
        for (from, to) in from.0.iter().zip(&mut to.0) {
            // SAFETY: references are valid for what is done with them.
            unsafe { ptr::write_volatile(to, ptr::read_volatile(from)) };
        }
    }
}

#[inline(never)]
fn copy_floats(source: &[Line], target: &mut [Line]) {
    for (from, to) in source.iter().zip(target) {
        for (from, to) in from.0.iter().zip(&mut to.0) {
            let (from, to) = (ptr::from_ref(from).cast::<f64>(), ptr::from_mut(to).cast::<f64>());
            // SAFETY: references are valid for what is done with them, and the types have the same size and alignment.
            unsafe { ptr::write_volatile(to, ptr::read_volatile(from)) };
        }
    }
}

/// Registers of 128 bits, which every processor of the architecture has.
#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::{
        __m128i, _mm_add_epi64, _mm_load_si128, _mm_set1_epi64x, _mm_setzero_si128, _mm_store_si128,
    };
    use std::mem::transmute;
    use std::ptr;

    use super::Line;

    const REGISTERS: usize = 4;

    #[inline(never)]
    pub(super) fn read(lines: &[Line], sum: &mut u64) {
        // SAFETY: every processor of this architecture has these instructions.
        let mut sums = [unsafe { _mm_setzero_si128() }; REGISTERS];
        for line in lines {
            let at = ptr::from_ref(line).cast::<__m128i>();
            for (number, sum) in sums.iter_mut().enumerate() {
                // SAFETY: a line is four registers long, and aligned to one.
                *sum = unsafe { _mm_add_epi64(*sum, _mm_load_si128(at.add(number))) };
            }
        }
        for register in sums {
            // SAFETY: the types have the same size, and any bits are valid.
            let [low, high]: [u64; 2] = unsafe { transmute(register) };
            *sum = sum.wrapping_add(low).wrapping_add(high);
        }
    }

    #[inline(never)]
    pub(super) fn write(lines: &mut [Line], value: u64) {
        // SAFETY: every processor of this architecture has this instruction.
        let register = unsafe { _mm_set1_epi64x(value as i64) };
        for line in lines {
            let at = ptr::from_mut(line).cast::<__m128i>();
            for number in 0..REGISTERS {
                // SAFETY: a line is four registers long, and aligned to one.
                unsafe { _mm_store_si128(at.add(number), register) };
            }
        }
    }

    #[inline(never)]
    pub(super) fn copy(source: &[Line], target: &mut [Line]) {
        for (from, to) in source.iter().zip(target) {
            let (from, to) = (ptr::from_ref(from).cast::<__m128i>(), ptr::from_mut(to).cast::<__m128i>());
            for number in 0..REGISTERS {
                // SAFETY: a line is four registers long, and aligned to one.
                unsafe { _mm_store_si128(to.add(number), _mm_load_si128(from.add(number))) };
            }
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod wide {
    use std::arch::aarch64::{uint64x2_t, vaddq_u64, vdupq_n_u64, vgetq_lane_u64, vld1q_u64, vst1q_u64};

    use super::Line;

    const REGISTERS: usize = 4;

    #[inline(never)]
    pub(super) fn read(lines: &[Line], sum: &mut u64) {
        // SAFETY: every processor of this architecture has these instructions, and a line is four registers long.
        unsafe {
            let mut sums: [uint64x2_t; REGISTERS] = [vdupq_n_u64(0); REGISTERS];
            for line in lines {
                for (number, sum) in sums.iter_mut().enumerate() {
                    *sum = vaddq_u64(*sum, vld1q_u64(line.0.as_ptr().add(2 * number)));
                }
            }
            for register in sums {
                let both = vgetq_lane_u64::<0>(register).wrapping_add(vgetq_lane_u64::<1>(register));
                *sum = sum.wrapping_add(both);
            }
        }
    }

    #[inline(never)]
    pub(super) fn write(lines: &mut [Line], value: u64) {
        for line in lines {
            for number in 0..REGISTERS {
                // SAFETY: as above.
                unsafe { vst1q_u64(line.0.as_mut_ptr().add(2 * number), vdupq_n_u64(value)) };
            }
        }
    }

    #[inline(never)]
    pub(super) fn copy(source: &[Line], target: &mut [Line]) {
        for (from, to) in source.iter().zip(target) {
            for number in 0..REGISTERS {
                // SAFETY: as above.
                unsafe { vst1q_u64(to.0.as_mut_ptr().add(2 * number), vld1q_u64(from.0.as_ptr().add(2 * number))) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACCESSES: [Access; 3] = [Access::Read, Access::Write, Access::Copy];
    const ELEMENTS: [Element; 3] = [Element::Integer, Element::Float, Element::Simd];

    #[test]
    fn every_access_by_every_element_comes_out_right_after_whole_and_broken_rounds() {
        for access in ACCESSES {
            for element in ELEMENTS {
                for passes in [1, 3, 4, 9] {
                    let mut memory = Memory::new(access, element, 4 * PASS_BYTES).unwrap();
                    for _ in 0..passes {
                        memory.pass().unwrap();
                    }
                    memory.check().unwrap_or_else(|failure| panic!("{access:?} {element:?} {passes}: {failure}"));
                }
            }
        }
    }

    #[test]
    fn a_word_that_changed_by_itself_is_found() {
        for access in ACCESSES {
            for element in ELEMENTS {
                let mut memory = Memory::new(access, element, 4 * PASS_BYTES).unwrap();
                for _ in 0..4 {
                    memory.pass().unwrap();
                }
                memory.block[77].0[3] ^= 1 << 30;
                if access == Access::Read {
                    for _ in 0..4 {
                        memory.pass().unwrap();
                    }
                }
                assert!(memory.check().is_err(), "{access:?} {element:?}");
            }
        }
    }

    #[test]
    fn a_block_that_no_machine_has_is_refused() {
        assert!(matches!(Memory::new(Access::Read, Element::Integer, usize::MAX / 4), Err(Failure::Os { .. })));
    }
}

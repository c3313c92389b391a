//! The program that makes frames: run again and again on pages of the kernel's, it turns each into the next frame of the
//! stream when that is due, and drops it, which costs next to nothing, when it is not.
//!
//! A page comes back with whatever the devices did to its frame, so the head is written anew each time.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use failure::Failure;

use super::assembler::Register::{R0, R1, R2, R3, R4, R5, R6, R7, R8, R9};
use super::assembler::{Assembler, Condition, Helper, Operation, Width};
use super::system::{self, action};
use crate::frame::HEAD;
use crate::histogram::{BINS, BITS, Histogram};
use crate::kernel::Mapping;
use crate::schedule::{FRACTION, PERIOD};
use crate::transmission::{Stream, Timed, Transmission};

/// Most flows.
pub(crate) const MOST_FLOWS: usize = 256;

/// Offsets in the memory that the program and user space share; all fields have 64 bits.
mod field {
    pub(super) const START_NS: i16 = 0;
    pub(super) const GAP: i16 = 8;
    pub(super) const DUE: i16 = 16;
    pub(super) const FRAMES: i16 = 24;
    pub(super) const SENT: i16 = 32;
    pub(super) const GIVE_UP_NS: i16 = 40;
    pub(super) const TIMED_FROM: i16 = 48;
    pub(super) const TIMED_COUNT: i16 = 56;
    pub(super) const LATE_NS: i16 = 64;
    pub(super) const LATE: i16 = 72;
    pub(super) const PREVIOUS_NS: i16 = 80;
    pub(super) const DONE: i16 = 88;
    pub(super) const STOP: i16 = 96;
    pub(super) const LATENESS: i16 = 104;
    pub(super) const GAPS: i16 = 128;
}

/// Offsets behind the start of an account of durations.
const SUM: i16 = 0;
const MIN: i16 = 8;
const MAX: i16 = 16;

const LATENESS_COUNTS: usize = 256;
const GAP_COUNTS: usize = LATENESS_COUNTS + BINS * 8;
const FLOWS: usize = GAP_COUNTS + BINS * 8;
const ORDER: usize = FLOWS + MOST_FLOWS * FLOW_BYTES;
const BYTES: usize = ORDER + PERIOD * 2;

/// Memory of one flow, and the offsets in it: its head, the sum of what does not change, and the next sequence number.
const FLOW_BYTES: usize = 1 << FLOW_SHIFT;
const FLOW_SHIFT: i32 = 7;
const FLOW_SUM: i16 = 64;
const FLOW_SEQUENCE: i16 = 68;

const CHECKSUM: i16 = 40;
const SEQUENCE: i16 = 48;
const TIME: i16 = 52;

/// A loaded program and its memory.
pub(crate) struct Generator {
    pub(crate) program: OwnedFd,
    memory: Mapping,
}

impl Generator {
    /// For a stream that leaves through this interface.
    pub(crate) fn load(interface: u32, stream: &Stream) -> Result<Self, Failure> {
        if stream.templates.len() > MOST_FLOWS {
            let flows = stream.templates.len();
            return Err(Failure::Unsupported(format!(
                "there are {flows} flows; live frames have {MOST_FLOWS} at most"
            )));
        }
        let map = system::shared_value(BYTES)?;
        let memory = Mapping::of(map.as_fd(), BYTES.next_multiple_of(4096), 0)?;
        let program = system::load(c"vg_generator", &code(&map, interface).finish())?;
        let generator = Self { program, memory };
        generator.prepare(stream);
        Ok(generator)
    }

    /// A field, which the program may be changing.
    fn field(&self, offset: i16) -> &AtomicU64 {
        // SAFETY: aligned, within the mapping, and changed by the program in one piece.
        unsafe { AtomicU64::from_ptr(self.memory.at(offset as usize)) }
    }

    /// Everything as it is before the first frame of a stream.
    pub(crate) fn prepare(&self, stream: &Stream) {
        // SAFETY: the program does not run yet; the memory is the mapping's.
        unsafe { std::ptr::write_bytes(self.memory.at::<u8>(0), 0, BYTES) };
        let set = |offset, value| self.field(offset).store(value, Ordering::Relaxed);
        set(field::GAP, stream.pace.gap);
        set(field::FRAMES, stream.pace.frames);
        set(field::GIVE_UP_NS, stream.give_up_ns);
        set(field::LATE_NS, stream.late_ns);
        let (from, count) = match stream.timed {
            Timed::All => (0, u64::MAX),
            Timed::One(frame) => (frame, 1),
        };
        set(field::TIMED_FROM, from);
        set(field::TIMED_COUNT, count);
        set(field::LATENESS + MIN, u64::MAX);
        set(field::GAPS + MIN, u64::MAX);
        for (number, template) in stream.templates.iter().enumerate() {
            let flow = FLOWS + number * FLOW_BYTES;
            // SAFETY: as above; `at` checks the bounds.
            unsafe {
                self.memory.at::<[u8; HEAD]>(flow).write(template.head);
                self.memory.at::<u32>(flow + FLOW_SUM as usize).write(template.sum);
            }
        }
        for (turn, &flow) in stream.order.turns().iter().enumerate() {
            // SAFETY: as above.
            unsafe { self.memory.at::<u16>(ORDER + turn * 2).write(flow) };
        }
    }

    /// Frames made so far.
    pub(crate) fn sent(&self) -> u64 {
        self.field(field::SENT).load(Ordering::Relaxed)
    }

    /// Whether the program has nothing left to do.
    pub(crate) fn done(&self) -> bool {
        self.field(field::DONE).load(Ordering::Acquire) != 0
    }

    /// Makes the program have nothing left to do.
    pub(crate) fn stop(&self) {
        self.field(field::STOP).store(1, Ordering::Relaxed);
    }

    /// What was sent; the program must not run any more.
    pub(crate) fn account(&self, flows: usize) -> Transmission {
        let get = |offset: i16| self.field(offset).load(Ordering::Relaxed);
        let histogram = |counts: usize, account: i16| {
            // SAFETY: the program is done with its memory; `at` checks the bounds.
            let counts = (0..BINS).map(|bin| unsafe { self.memory.at::<u64>(counts + bin * 8).read() }).collect();
            Histogram::from_counts(counts, get(account + SUM), get(account + MIN), get(account + MAX))
        };
        let sequence = |flow: usize| {
            // SAFETY: as above.
            unsafe { self.memory.at::<u32>(FLOWS + flow * FLOW_BYTES + FLOW_SEQUENCE as usize).read() }
        };
        Transmission {
            sent: (0..flows).map(|flow| u64::from(sequence(flow))).collect(),
            refused: 0,
            late: get(field::LATE),
            lateness: histogram(LATENESS_COUNTS, field::LATENESS),
            gaps: histogram(GAP_COUNTS, field::GAPS),
            start_ns: get(field::START_NS),
            end_ns: get(field::PREVIOUS_NS),
        }
    }
}

/// R6 is the context, R7 the time, R8 the number of the frame, R9 the memory.
fn code(map: &OwnedFd, interface: u32) -> Assembler {
    let mut code = Assembler::default();
    code.set(R6, R1)
        .load_map_value(R9, map.as_fd())
        .call(Helper::MonotonicNs)
        .set(R7, R0)
        .load(Width::Eight, R1, R9, field::START_NS)
        .jump_if(R1, Condition::Different, 0, "started")
        .store(Width::Eight, R9, field::START_NS, R7)
        .set(R1, R7)
        .label("started")
        .load(Width::Eight, R8, R9, field::SENT)
        .load(Width::Eight, R2, R9, field::FRAMES)
        .jump_if(R8, Condition::AtLeast, R2, "done")
        .load(Width::Eight, R2, R9, field::STOP)
        .jump_if(R2, Condition::Different, 0, "done")
        .set(R3, R7)
        .reckon(Operation::Subtract, R3, R1)
        .load(Width::Eight, R2, R9, field::GIVE_UP_NS)
        .jump_if(R3, Condition::Above, R2, "done")
        .load(Width::Eight, R4, R9, field::DUE)
        .set(R5, R4)
        .reckon(Operation::ShiftRight, R5, FRACTION as i32)
        .jump_if(R3, Condition::Below, R5, "drop");
    // It is due.
    code.load(Width::Eight, R2, R9, field::GAP)
        // In a burst, frames are not due at any time, and so not late.
        .jump_if(R2, Condition::Equal, 0, "burst")
        .add(R4, R2)
        .store(Width::Eight, R9, field::DUE, R4)
        .reckon(Operation::Subtract, R3, R5)
        .load(Width::Eight, R2, R9, field::LATE_NS)
        .jump_if(R3, Condition::AtMost, R2, "in time")
        .increase(R9, field::LATE, 1, R2)
        .label("in time");
    record(&mut code, field::LATENESS, LATENESS_COUNTS, ["lateness 1", "lateness 2", "lateness 3", "lateness 4"]);
    code.label("burst")
        .load(Width::Eight, R1, R9, field::PREVIOUS_NS)
        .store(Width::Eight, R9, field::PREVIOUS_NS, R7)
        .jump_if(R1, Condition::Equal, 0, "no gap")
        .set(R3, R7)
        .reckon(Operation::Subtract, R3, R1);
    record(&mut code, field::GAPS, GAP_COUNTS, ["gap 1", "gap 2", "gap 3", "gap 4"]);
    code.label("no gap")
        .set(R1, R8)
        .add(R1, 1)
        .store(Width::Eight, R9, field::SENT, R1)
        // The flow whose turn it is: R5.
        .set(R1, R8)
        .reckon(Operation::And, R1, PERIOD as i32 - 1)
        .reckon(Operation::ShiftLeft, R1, 1)
        .add(R1, R9)
        .add(R1, ORDER as i32)
        .load(Width::Two, R5, R1, 0)
        .reckon(Operation::And, R5, MOST_FLOWS as i32 - 1)
        .reckon(Operation::ShiftLeft, R5, FLOW_SHIFT)
        .add(R5, R9)
        .add(R5, FLOWS as i32)
        // The frame: R2.
        .load(Width::Four, R2, R6, 0)
        .load(Width::Four, R3, R6, 4)
        .set(R4, R2)
        .add(R4, HEAD as i32)
        .jump_if(R4, Condition::Above, R3, "drop");
    for offset in (0..SEQUENCE).step_by(8) {
        code.load(Width::Eight, R1, R5, offset).store(Width::Eight, R2, offset, R1);
    }
    code.load(Width::Four, R1, R5, FLOW_SEQUENCE)
        .store(Width::Four, R2, SEQUENCE, R1)
        .set(R3, R1)
        .add(R3, 1)
        .store(Width::Four, R5, FLOW_SEQUENCE, R3)
        .load(Width::Eight, R3, R9, field::TIMED_FROM)
        .reckon(Operation::Subtract, R8, R3)
        .load(Width::Eight, R3, R9, field::TIMED_COUNT)
        .jump_if(R8, Condition::Below, R3, "timed")
        .set(R7, 0)
        .label("timed")
        .store(Width::Eight, R2, TIME, R7)
        // The checksum: R0, from what stays, the sequence number in R1 and the time in R7.
        .load(Width::Four, R0, R5, FLOW_SUM);
    add_words(&mut code, R1, 2);
    add_words(&mut code, R7, 4);
    for _ in 0..2 {
        code.set(R3, R0).reckon(Operation::ShiftRight, R3, 16).reckon(Operation::And, R0, 0xffff).add(R0, R3);
    }
    code.reckon(Operation::Xor, R0, 0xffff)
        .jump_if(R0, Condition::Different, 0, "summed")
        .set(R0, 0xffff)
        .label("summed")
        .store(Width::Two, R2, CHECKSUM, R0)
        .set(R1, interface as i32)
        .set(R2, 0)
        .call(Helper::Redirect)
        .leave();
    code.label("done").store_constant(R9, field::DONE, 1).label("drop").exit(action::DROP);
    code
}

/// Adds the 16-bit words of a register, which is used up, to R0.
fn add_words(code: &mut Assembler, from: super::assembler::Register, words: usize) {
    for word in 0..words {
        if word > 0 {
            code.reckon(Operation::ShiftRight, from, 16);
        }
        code.set(R3, from).reckon(Operation::And, R3, 0xffff).add(R0, R3);
    }
}

/// Counts the duration in R3, by the rule of [`crate::histogram::bin_of`], in an account and its bins.
fn record(code: &mut Assembler, account: i16, counts: usize, labels: [&'static str; 4]) {
    let [bin, inside, no_min, no_max] = labels;
    code.increase(R9, account + SUM, R3, R2)
        .load(Width::Eight, R2, R9, account + MIN)
        .jump_if(R3, Condition::AtLeast, R2, no_min)
        .store(Width::Eight, R9, account + MIN, R3)
        .label(no_min)
        .load(Width::Eight, R2, R9, account + MAX)
        .jump_if(R3, Condition::AtMost, R2, no_max)
        .store(Width::Eight, R9, account + MAX, R3)
        .label(no_max)
        .set(R2, 0);
    // Halve it until it has as many digits as tell bins apart: R2 times.
    code.jump_if(R3, Condition::Below, 2 << BITS, bin);
    for halvings in [16, 8, 4, 2, 1] {
        code.skip_if_below(R3, 1 << (BITS as i32 + halvings), 2)
            .reckon(Operation::ShiftRight, R3, halvings)
            .add(R2, halvings);
    }
    code.label(bin)
        .reckon(Operation::ShiftLeft, R2, BITS as i32)
        .add(R3, R2)
        .jump_if(R3, Condition::Below, BINS as i32, inside)
        .set(R3, BINS as i32 - 1)
        .label(inside)
        .reckon(Operation::ShiftLeft, R3, 3)
        .add(R3, R9)
        .add(R3, counts as i32)
        .increase(R3, 0, 1, R2);
}

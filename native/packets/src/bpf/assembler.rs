//! An assembler for eBPF (RFC 9669).

use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd};

/// One of the machine's registers.  A helper's answer is in `R0`, its arguments are in `R1` … `R5`, which it destroys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Register {
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
}

/// Width of what is loaded or stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    Four = 0x00,
    Two = 0x08,
    Eight = 0x18,
}

/// What is done to a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Add = 0x00,
    Subtract = 0x10,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Xor = 0xa0,
    Move = 0xb0,
}

/// When a jump is taken; magnitudes are without sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Equal = 0x10,
    Above = 0x20,
    AtLeast = 0x30,
    Different = 0x50,
    Below = 0xa0,
    AtMost = 0xb0,
}

/// The second operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operand {
    Register(Register),
    Constant(i32),
}

impl From<Register> for Operand {
    fn from(register: Register) -> Self {
        Self::Register(register)
    }
}

impl From<i32> for Operand {
    fn from(constant: i32) -> Self {
        Self::Constant(constant)
    }
}

/// Functions of the kernel that a program may call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Helper {
    MonotonicNs = 5,
    Redirect = 23,
    RedirectMap = 51,
    AdjustMeta = 54,
}

const IMMEDIATE_64: u8 = 0x18;
const LOAD: u8 = 0x61;
const STORE: u8 = 0x63;
const STORE_CONSTANT: u8 = 0x62;
const ATOMIC_ADD_64: u8 = 0xdb;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const ARITHMETIC_64: u8 = 0x07;
const JUMP: u8 = 0x05;
const BY_REGISTER: u8 = 0x08;

/// The immediate is a map's descriptor.
const MAP: u8 = 1;

/// The immediates are a map's descriptor, and an offset into its only value.
const MAP_VALUE: u8 = 2;

/// A program in the making.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    code: Vec<u64>,
    labels: HashMap<&'static str, usize>,
    jumps: Vec<(usize, &'static str)>,
}

impl Assembler {
    fn push(&mut self, operation: u8, to: u8, from: u8, offset: i16, immediate: i32) -> &mut Self {
        let fields = [operation, to | from << 4, offset.to_le_bytes()[0], offset.to_le_bytes()[1]];
        let high = u64::from(immediate as u32) << 32;
        self.code.push(high | u64::from(u32::from_le_bytes(fields)));
        self
    }

    /// `to = to operation operand`, in 64 bits.
    pub(crate) fn reckon(&mut self, operation: Operation, to: Register, operand: impl Into<Operand>) -> &mut Self {
        match operand.into() {
            Operand::Register(from) => {
                self.push(ARITHMETIC_64 | BY_REGISTER | operation as u8, to as u8, from as u8, 0, 0)
            }
            Operand::Constant(constant) => self.push(ARITHMETIC_64 | operation as u8, to as u8, 0, 0, constant),
        }
    }

    pub(crate) fn set(&mut self, to: Register, operand: impl Into<Operand>) -> &mut Self {
        self.reckon(Operation::Move, to, operand)
    }

    pub(crate) fn add(&mut self, to: Register, operand: impl Into<Operand>) -> &mut Self {
        self.reckon(Operation::Add, to, operand)
    }

    /// `to = memory[from + offset]`
    pub(crate) fn load(&mut self, width: Width, to: Register, from: Register, offset: i16) -> &mut Self {
        self.push(LOAD | width as u8, to as u8, from as u8, offset, 0)
    }

    /// `memory[to + offset] = from`
    pub(crate) fn store(&mut self, width: Width, to: Register, offset: i16, from: Register) -> &mut Self {
        self.push(STORE | width as u8, to as u8, from as u8, offset, 0)
    }

    /// `memory[to + offset] = constant`, 64 bits.
    pub(crate) fn store_constant(&mut self, to: Register, offset: i16, constant: i32) -> &mut Self {
        self.push(STORE_CONSTANT | Width::Eight as u8, to as u8, 0, offset, constant)
    }

    /// `memory[to + offset] += from`, 64 bits, in one piece.
    pub(crate) fn add_atomically(&mut self, to: Register, offset: i16, from: Register) -> &mut Self {
        self.push(ATOMIC_ADD_64, to as u8, from as u8, offset, 0)
    }

    /// `memory[at + offset] += by`, 64 bits, by way of a register.
    pub(crate) fn increase(
        &mut self,
        at: Register,
        offset: i16,
        by: impl Into<Operand>,
        scratch: Register,
    ) -> &mut Self {
        self.load(Width::Eight, scratch, at, offset).add(scratch, by).store(Width::Eight, at, offset, scratch)
    }

    pub(crate) fn load_map(&mut self, to: Register, map: BorrowedFd<'_>) -> &mut Self {
        self.push(IMMEDIATE_64, to as u8, MAP, 0, map.as_raw_fd()).push(0, 0, 0, 0, 0)
    }

    /// The address of the only value of an array.
    pub(crate) fn load_map_value(&mut self, to: Register, map: BorrowedFd<'_>) -> &mut Self {
        self.push(IMMEDIATE_64, to as u8, MAP_VALUE, 0, map.as_raw_fd()).push(0, 0, 0, 0, 0)
    }

    pub(crate) fn call(&mut self, helper: Helper) -> &mut Self {
        self.push(CALL, 0, 0, 0, helper as i32)
    }

    pub(crate) fn exit(&mut self, answer: i32) -> &mut Self {
        self.set(Register::R0, answer).leave()
    }

    /// Ends with what is in `R0`.
    pub(crate) fn leave(&mut self) -> &mut Self {
        self.push(EXIT, 0, 0, 0, 0)
    }

    /// Goes to the label if `left condition right`.
    pub(crate) fn jump_if(
        &mut self,
        left: Register,
        condition: Condition,
        right: impl Into<Operand>,
        label: &'static str,
    ) -> &mut Self {
        self.jumps.push((self.code.len(), label));
        match right.into() {
            Operand::Register(right) => self.push(JUMP | BY_REGISTER | condition as u8, left as u8, right as u8, 0, 0),
            Operand::Constant(constant) => self.push(JUMP | condition as u8, left as u8, 0, 0, constant),
        }
    }

    /// Leaves out so many instructions if the register holds less.
    pub(crate) fn skip_if_below(&mut self, left: Register, right: i32, instructions: i16) -> &mut Self {
        self.push(JUMP | Condition::Below as u8, left as u8, 0, instructions, right)
    }

    pub(crate) fn label(&mut self, name: &'static str) -> &mut Self {
        let before = self.labels.insert(name, self.code.len());
        assert!(before.is_none(), "the label {name} twice");
        self
    }

    /// The program, its jumps resolved.
    ///
    /// # Panics
    /// When a label is missing: a defect.
    pub(crate) fn finish(&self) -> Vec<u64> {
        let mut code = self.code.clone();
        for &(from, label) in &self.jumps {
            let to = self.labels.get(label).unwrap_or_else(|| panic!("no label {label}"));
            let distance = i16::try_from(*to as i64 - from as i64 - 1).expect("programs are short");
            code[from] |= u64::from(distance as u16) << 16;
        }
        code
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Register::{R0, R1, R2, R9};

    #[test]
    fn instructions_are_encoded_as_the_standard_says() {
        let mut assembler = Assembler::default();
        assembler
            .set(R1, 7)
            .add(R1, R2)
            .load(Width::Two, R0, R1, 12)
            .store(Width::Eight, R9, -8, R0)
            .jump_if(R0, Condition::Equal, 8, "end")
            .jump_if(R0, Condition::Above, R1, "end")
            .call(Helper::MonotonicNs)
            .label("end")
            .exit(1);
        let expected: [[u8; 8]; 9] = [
            [0xb7, 0x01, 0, 0, 7, 0, 0, 0],
            [0x0f, 0x21, 0, 0, 0, 0, 0, 0],
            [0x69, 0x10, 12, 0, 0, 0, 0, 0],
            [0x7b, 0x09, 0xf8, 0xff, 0, 0, 0, 0],
            [0x15, 0x00, 2, 0, 8, 0, 0, 0],
            [0x2d, 0x10, 1, 0, 0, 0, 0, 0],
            [0x85, 0x00, 0, 0, 5, 0, 0, 0],
            [0xb7, 0x00, 0, 0, 1, 0, 0, 0],
            [0x95, 0x00, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(assembler.finish(), expected.map(u64::from_le_bytes));
    }
}

//! Integer work of the Dhrystone kind: assignments, decisions and calls in the mix that Weicker found in systems programs.
//!
//! One unit is one round of the published main loop; 1757 a second are one DMIPS, the rate of a VAX-11/780.

use std::hint::black_box;

use failure::Failure;

use crate::Kernel;

/// A few hundred microseconds on a machine of today.
const ROUNDS_PER_PASS: u64 = 4096;

const ROWS: usize = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ident {
    One,
    Two,
    Three,
    Four,
    Five,
}

/// Texts of thirty characters that are the same up to the twenty-first.
type Text = [u8; 30];
const FIRST: Text = *b"VIRTGAUGE ROUND OF A 1ST KIND.";
const SECOND: Text = *b"VIRTGAUGE ROUND OF A 2ND KIND.";
const THIRD: Text = *b"VIRTGAUGE ROUND OF A 3RD KIND.";
const SOME: Text = *b"VIRTGAUGE ROUND OF SOME KIND..";

/// The record of the description: a link to another, a kind, and what goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    next: Option<u8>,
    discriminant: Ident,
    kind: Ident,
    integer: i64,
    text: Text,
}

/// The integer kernel.
#[derive(Debug)]
pub struct Integer {
    global: Globals,
    rounds: u64,
    last: Locals,
}

#[derive(Debug)]
struct Globals {
    records: [Record; 2],
    integer: i64,
    flag: bool,
    first_character: u8,
    second_character: u8,
    row: [i64; ROWS],
    table: Vec<[i64; ROWS]>,
}

/// The main loop's own variables after a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Locals {
    one: i64,
    two: i64,
    three: i64,
    kind: Ident,
    text: Text,
}

impl Default for Integer {
    fn default() -> Self {
        Self::new()
    }
}

impl Integer {
    /// Before its first round.
    #[must_use]
    pub fn new() -> Self {
        let blank = Record { next: None, discriminant: Ident::One, kind: Ident::Two, integer: 0, text: SOME };
        let pointed = Record { next: Some(1), kind: Ident::Three, integer: 40, ..blank };
        let mut table = vec![[0; ROWS]; ROWS];
        table[8][7] = 10;
        Self {
            global: Globals {
                records: [pointed, blank],
                integer: 0,
                flag: false,
                first_character: 0,
                second_character: 0,
                row: [0; ROWS],
                table,
            },
            rounds: 0,
            last: Locals { one: 0, two: 0, three: 0, kind: Ident::One, text: FIRST },
        }
    }
}

impl Kernel for Integer {
    fn unit(&self) -> &'static str {
        "dhrystones"
    }

    fn pass(&mut self) -> Result<u64, Failure> {
        let first = black_box(FIRST);
        for _ in 0..ROUNDS_PER_PASS {
            self.rounds += 1;
            self.last = round(&mut self.global, black_box(self.rounds as i64), &first);
        }
        Ok(ROUNDS_PER_PASS)
    }

    /// The values that follow from the description, whatever the number of rounds.
    fn check(&mut self) -> Result<(), Failure> {
        if self.rounds == 0 {
            return Ok(());
        }
        let (global, last) = (&self.global, &self.last);
        let rounds = self.rounds as i64;
        let found = [
            ("the global integer", global.integer, 5),
            ("the flag", i64::from(global.flag), 1),
            ("the first character", i64::from(global.first_character), i64::from(b'A')),
            ("the second character", i64::from(global.second_character), i64::from(b'B')),
            ("row 8", global.row[8], 7),
            ("table 8, 7", global.table[8][7], rounds + 10),
            ("the record's integer", global.records[0].integer, 17),
            ("the next record's integer", global.records[1].integer, 18),
            ("the first local", last.one, 5),
            ("the second local", last.two, 13),
            ("the third local", last.three, 7),
            ("the local kind", last.kind as i64, Ident::Two as i64),
        ];
        for (what, is, expected) in found {
            if is != expected {
                return Err(Failure::Wrong(format!("{what} is {is} after {rounds} rounds, not {expected}")));
            }
        }
        if last.text != SECOND {
            return Err(Failure::Wrong("the text is not the second".into()));
        }
        Ok(())
    }
}

/// One round of the main loop.
#[inline(never)]
fn round(global: &mut Globals, number: i64, first: &Text) -> Locals {
    set_first(global);
    set_second(global);
    let (mut one, mut two, mut three) = (2, 3, 0);
    let mut text = black_box(SECOND);
    let mut kind = Ident::Two;
    global.flag = !later(global, first, &text);
    while one < two {
        three = 5 * one - two;
        add_two(one, two, &mut three);
        one += 1;
    }
    fill(global, one, three);
    follow(global, 0);
    let mut character = b'A';
    while character <= global.second_character {
        if kind == same_letter(global, character, b'C') {
            classify(global, Ident::One, &mut kind);
            text = black_box(THIRD);
            two = number;
            global.integer = number;
        }
        character += 1;
    }
    two *= one;
    one = two / black_box(three);
    two = 7 * (two - three) - one;
    settle(global, &mut one);
    Locals { one, two, three, kind, text }
}

/// Follows the link of a record, and copies the record behind it.
#[inline(never)]
fn follow(global: &mut Globals, at: usize) {
    let next = global.records[at].next.map_or(at, usize::from);
    global.records[next] = global.records[0];
    global.records[at].integer = 5;
    global.records[next].integer = global.records[at].integer;
    global.records[next].next = global.records[at].next;
    link(global, next);
    if global.records[next].discriminant == Ident::One {
        let mut kind = global.records[next].kind;
        global.records[next].integer = 6;
        classify(global, global.records[at].kind, &mut kind);
        global.records[next].kind = kind;
        global.records[next].next = global.records[0].next;
        let mut integer = global.records[next].integer;
        add_two(integer, 10, &mut integer);
        global.records[next].integer = integer;
    } else {
        global.records[at] = global.records[next];
    }
}

/// Leaves the loop by its first way out: the first character is an A.
#[inline(never)]
fn settle(global: &Globals, integer: &mut i64) {
    let mut local = *integer + 10;
    loop {
        let mut kind = Ident::Five;
        if black_box(global.first_character) == b'A' {
            local -= 1;
            *integer = local - global.integer;
            kind = Ident::One;
        }
        if kind == Ident::One {
            return;
        }
    }
}

/// Links a record to what the first one points to.
#[inline(never)]
fn link(global: &mut Globals, at: usize) {
    if global.records[0].next.is_some() {
        global.records[at].next = global.records[0].next;
    }
    let mut integer = global.records[0].integer;
    add_two(10, global.integer, &mut integer);
    global.records[0].integer = integer;
}

#[inline(never)]
fn set_second(global: &mut Globals) {
    let is_a = global.first_character == b'A';
    global.flag |= is_a;
    global.second_character = b'B';
}

#[inline(never)]
fn set_first(global: &mut Globals) {
    global.first_character = black_box(b'A');
    global.flag = false;
}

#[inline(never)]
fn classify(global: &Globals, value: Ident, result: &mut Ident) {
    *result = value;
    if !is_third(black_box(value)) {
        *result = Ident::Four;
    }
    match value {
        Ident::One => *result = Ident::One,
        Ident::Two => *result = if global.integer > 100 { Ident::One } else { Ident::Four },
        Ident::Three => *result = Ident::Two,
        Ident::Four => {}
        Ident::Five => *result = Ident::Three,
    }
}

#[inline(never)]
fn add_two(first: i64, second: i64, result: &mut i64) {
    *result = second + first + 2;
}

#[inline(never)]
fn fill(global: &mut Globals, one: i64, two: i64) {
    let at = (black_box(one) + 5) as usize;
    global.row[at] = two;
    global.row[at + 1] = global.row[at];
    global.row[at + 30] = at as i64;
    for column in at..=at + 1 {
        global.table[at][column] = at as i64;
    }
    global.table[at][at - 1] += 1;
    global.table[at + 20][at] = global.row[at];
    global.integer = 5;
}

#[inline(never)]
fn same_letter(global: &mut Globals, first: u8, second: u8) -> Ident {
    let copy = black_box(first);
    if copy == second {
        global.first_character = copy;
        return Ident::Two;
    }
    Ident::One
}

/// Whether the first text comes later than the second.
#[inline(never)]
fn later(global: &mut Globals, first: &Text, second: &Text) -> bool {
    let mut at = black_box(2usize);
    let mut letter = b'A';
    while at <= 2 {
        if same_letter(global, first[at], second[at + 1]) == Ident::One {
            letter = b'A';
            at += 1;
        }
    }
    if (b'W'..b'Z').contains(&letter) {
        at = 7;
    }
    if letter == b'R' {
        return true;
    }
    if black_box(first) > black_box(second) {
        at += 7;
        global.integer = at as i64;
        return true;
    }
    false
}

#[inline(never)]
fn is_third(value: Ident) -> bool {
    value == Ident::Three
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_end_with_the_values_of_the_description() {
        let mut integer = Integer::new();
        for _ in 0..3 {
            assert_eq!(integer.pass().unwrap(), ROUNDS_PER_PASS);
            integer.check().unwrap();
        }
    }

    #[test]
    fn a_variable_that_went_wrong_is_found() {
        let mut integer = Integer::new();
        integer.pass().unwrap();
        integer.global.table[8][7] += 1;
        assert!(matches!(integer.check(), Err(Failure::Wrong(_))));
    }
}

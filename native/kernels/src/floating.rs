//! Floating-point work of the Whetstone kind: the statement mix that Curnow and Wichmann found in scientific programs.
//!
//! One unit is one cycle of the published loop, which stands for 100 000 Whetstone instructions: ten cycles a second are
//! one MWIPS.  The mathematical functions are the same code on every machine, not its C library's.

use std::hint::black_box;

use failure::Failure;

use crate::Kernel;

/// A few hundred microseconds on a machine of today.
const CYCLES_PER_PASS: u64 = 8;

const T: f64 = 0.499_975;
const T1: f64 = 0.500_25;
const T2: f64 = 2.0;

/// Rounds of each module within a cycle: the published weights (modules 1, 5 and 10 weigh nothing).
mod weight {
    pub(super) const ARRAY: u32 = 12;
    pub(super) const ARRAY_AS_ARGUMENT: u32 = 14;
    pub(super) const JUMPS: u32 = 345;
    pub(super) const INTEGERS: u32 = 210;
    pub(super) const TRIGONOMETRY: u32 = 32;
    pub(super) const CALLS: u32 = 899;
    pub(super) const REFERENCES: u32 = 616;
    pub(super) const STANDARD: u32 = 93;
}

/// Where a cycle ends: every module's result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Results {
    array: [f64; 4],
    argument: [f64; 4],
    jump: i64,
    integers: [f64; 4],
    angles: [f64; 2],
    call: f64,
    references: [f64; 3],
    standard: f64,
}

/// The floating-point kernel.
#[derive(Debug, Default)]
pub struct Floating {
    expected: Option<Results>,
    wrong: Option<(Results, Results)>,
}

impl Floating {
    /// Before its first cycle.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Kernel for Floating {
    fn unit(&self) -> &'static str {
        "whetstone cycles"
    }

    fn pass(&mut self) -> Result<u64, Failure> {
        for _ in 0..CYCLES_PER_PASS {
            let found = cycle(black_box(1.0));
            let expected = *self.expected.get_or_insert(found);
            if found != expected && self.wrong.is_none() {
                self.wrong = Some((expected, found));
            }
        }
        Ok(CYCLES_PER_PASS)
    }

    /// Each cycle starts anew and must end with the same bits, and where it ends is known.
    fn check(&mut self) -> Result<(), Failure> {
        if let Some((expected, found)) = self.wrong {
            return Err(Failure::Wrong(format!("a cycle ended with {found:?}, the first one with {expected:?}")));
        }
        match self.expected {
            Some(found) if found.values().zip(KNOWN.values()).any(|(is, known)| (is - known).abs() > TOLERANCE) => {
                Err(Failure::Wrong(format!("a cycle ends with {found:?}, not with {KNOWN:?}")))
            }
            _ => Ok(()),
        }
    }
}

/// Where every cycle ends, reckoned by another implementation in another language (with its own mathematical functions,
/// hence the tolerance).
const KNOWN: Results = Results {
    array: [-0.066_821_081_537_598_41, -0.466_271_301_090_726_4, -0.732_976_520_021_805_8, -1.132_391_660_928_520_5],
    argument: [-0.065_513_281_746_192, -0.464_692_208_322_084_3, -0.731_067_439_368_417_4, -1.130_271_621_529_310_3],
    jump: 0,
    integers: [6.0, 6.0, 0.0, 0.0],
    angles: [0.499_038_308_015_452_46, 0.499_023_156_485_284_9],
    call: 0.999_937_500_625,
    references: [3.0, 2.0, 3.0],
    standard: 0.759_865_144_888_246_4,
};

const TOLERANCE: f64 = 1e-9;

impl Results {
    fn values(&self) -> impl Iterator<Item = f64> {
        let whole = [self.jump as f64, self.call, self.standard];
        let lists = [self.array, self.argument, self.integers].into_iter().flatten();
        lists.chain(self.angles).chain(self.references).chain(whole)
    }
}

/// All modules once, by their weights; `one` is 1, which the compiler does not know.
#[inline(never)]
fn cycle(one: f64) -> Results {
    let array = array_elements([one, -one, -one, -one], black_box(weight::ARRAY));
    let mut argument = array;
    for _ in 0..black_box(weight::ARRAY_AS_ARGUMENT) {
        array_as_argument(&mut argument);
    }
    let references = {
        let mut elements = [one, 2.0 * one, 3.0 * one];
        for _ in 0..black_box(weight::REFERENCES) {
            array_references(&mut elements);
        }
        elements
    };
    Results {
        array,
        argument,
        jump: conditional_jumps(black_box(1), black_box(weight::JUMPS)),
        integers: integer_arithmetic(black_box(weight::INTEGERS)),
        angles: trigonometry(0.5 * one, black_box(weight::TRIGONOMETRY)),
        call: procedure_calls(one, black_box(weight::CALLS)),
        references,
        standard: standard_functions(0.75 * one, black_box(weight::STANDARD)),
    }
}

/// Module 2.
#[inline(never)]
fn array_elements(mut e: [f64; 4], rounds: u32) -> [f64; 4] {
    for _ in 0..rounds {
        e[0] = (e[0] + e[1] + e[2] - e[3]) * T;
        e[1] = (e[0] + e[1] - e[2] + e[3]) * T;
        e[2] = (e[0] - e[1] + e[2] + e[3]) * T;
        e[3] = (-e[0] + e[1] + e[2] + e[3]) * T;
    }
    e
}

/// Module 3.
#[inline(never)]
fn array_as_argument(e: &mut [f64; 4]) {
    for _ in 0..6 {
        e[0] = (e[0] + e[1] + e[2] - e[3]) * T;
        e[1] = (e[0] + e[1] - e[2] + e[3]) * T;
        e[2] = (e[0] - e[1] + e[2] + e[3]) * T;
        e[3] = (-e[0] + e[1] + e[2] + e[3]) / T2;
    }
}

/// Module 4.
#[inline(never)]
fn conditional_jumps(mut j: i64, rounds: u32) -> i64 {
    for _ in 0..rounds {
        j = if j == 1 { black_box(2) } else { black_box(3) };
        j = if j > 2 { black_box(0) } else { black_box(1) };
        j = if j < 1 { black_box(1) } else { black_box(0) };
    }
    j
}

/// Module 6.
#[inline(never)]
fn integer_arithmetic(rounds: u32) -> [f64; 4] {
    let (mut j, mut k, mut l) = (black_box(1i64), black_box(2i64), black_box(3i64));
    let mut e = [0.0; 4];
    for _ in 0..rounds {
        j = j * (k - j) * (l - k);
        k = l * k - (l - j) * k;
        l = (l - k) * (k + j);
        e[(l - 2) as usize] = (j + k + l) as f64;
        e[(k - 2) as usize] = (j * k * l) as f64;
    }
    e
}

/// Module 7.
#[inline(never)]
fn trigonometry(start: f64, rounds: u32) -> [f64; 2] {
    let (mut x, mut y) = (start, start);
    for _ in 0..rounds {
        x = T * turned(x, x, y);
        y = T * turned(y, x, y);
    }
    [x, y]
}

#[inline(never)]
fn turned(angle: f64, x: f64, y: f64) -> f64 {
    libm::atan(T2 * libm::sin(angle) * libm::cos(angle) / (libm::cos(x + y) + libm::cos(x - y) - 1.0))
}

/// Module 8.
#[inline(never)]
fn procedure_calls(one: f64, rounds: u32) -> f64 {
    let (x, y) = (one, one);
    let mut z = one;
    for _ in 0..rounds {
        procedure(x, y, &mut z);
    }
    z
}

#[inline(never)]
fn procedure(x: f64, y: f64, z: &mut f64) {
    let x = T * (x + y);
    let y = T * (x + y);
    *z = (x + y) / T2;
}

/// Module 9.
#[inline(never)]
fn array_references(elements: &mut [f64; 3]) {
    let (j, k, l) = (black_box(0usize), black_box(1usize), black_box(2usize));
    elements[j] = elements[k];
    elements[k] = elements[l];
    elements[l] = elements[j];
}

/// Module 11.
#[inline(never)]
fn standard_functions(mut x: f64, rounds: u32) -> f64 {
    for _ in 0..rounds {
        x = libm::sqrt(libm::exp(libm::log(x) / T1));
    }
    x
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_ends_where_another_implementation_says() {
        let mut floating = Floating::new();
        assert_eq!(floating.pass().unwrap(), CYCLES_PER_PASS);
        floating.check().unwrap();
    }

    #[test]
    fn a_single_wrong_cycle_is_found() {
        let mut floating = Floating::new();
        floating.pass().unwrap();
        floating.expected.as_mut().unwrap().angles[1] += f64::EPSILON;
        floating.pass().unwrap();
        assert!(matches!(floating.check(), Err(Failure::Wrong(_))));
    }

    #[test]
    fn what_is_computed_depends_on_what_goes_in() {
        let (one, other) = (cycle(black_box(1.0)), cycle(black_box(1.0 + 1e-6)));
        let differing = one.values().zip(other.values()).filter(|(one, other)| one.to_bits() != other.to_bits());
        // Both array modules, both angles, the call, the references and the standard functions; not the integers.
        assert!(differing.count() >= 12);
    }
}

//! The work of every kernel is really done: none is faster than any processor could do that work.
//!
//! A bound from below cannot fail because the machine is busy: whatever disturbs a try makes it longer.

use std::time::{Duration, Instant};

use failure::Failure;
use kernels::memory::{Access, Element, Memory};
use kernels::{Kernel, chase::Chase, floating::Floating, integer::Integer, neighbours::Cache};

/// Passes in a row, so that work which is done once for all of them is not taken for that of each.
const PASSES: u32 = 20;

/// The clock cycles of a unit of work, in the fastest of some tries.
fn cycles_per_unit(kernel: &mut dyn Kernel, hertz: f64) -> f64 {
    let tried = |_| {
        let started = Instant::now();
        let units: u64 = (0..PASSES).map(|_| kernel.pass().unwrap()).sum();
        (started.elapsed(), units)
    };
    let (elapsed, units): (Duration, u64) = (0..7).map(tried).min().unwrap();
    elapsed.as_secs_f64() * hertz / units as f64
}

/// Every kernel with the cycles that a unit of its work takes at least.
fn kernels() -> Vec<(&'static str, Box<dyn Kernel>, f64)> {
    // Five scalar accesses a cycle, of eight bytes or sixteen, are more than any processor makes.
    const SCALAR: f64 = 0.2 / 8.0;
    const WIDE: f64 = 0.2 / 16.0;
    let memory = |access, element| Box::new(Memory::new(access, element, 8 << 20).unwrap());
    vec![
        // About a hundred statements, each of which takes an instruction at least; some six retire in a cycle.
        ("integer", Box::new(Integer::new()), 40.0),
        // A hundred thousand of Whetstone's instructions.
        ("floating", Box::new(Floating::new()), 10_000.0),
        ("read", memory(Access::Read, Element::Integer), SCALAR),
        ("read floats", memory(Access::Read, Element::Float), SCALAR),
        ("read wide", memory(Access::Read, Element::Simd), WIDE),
        ("write", memory(Access::Write, Element::Integer), SCALAR),
        ("write floats", memory(Access::Write, Element::Float), SCALAR),
        ("write wide", memory(Access::Write, Element::Simd), WIDE),
        ("copy", memory(Access::Copy, Element::Integer), SCALAR),
        ("copy floats", memory(Access::Copy, Element::Float), SCALAR),
        ("copy wide", memory(Access::Copy, Element::Simd), WIDE),
        // Each load waits for the one before it, and the nearest cache takes three cycles.
        ("chase", Box::new(Chase::new(8 << 20, 1).unwrap()), 3.0),
        // A random number, and a word that is read and written.
        ("cache", Box::new(Cache::new(8 << 20, 1).unwrap()), 1.0),
    ]
}

#[test]
fn no_kernel_is_faster_than_its_work_can_be() {
    let hertz = kernels::frequency::hertz(200);
    for (name, mut kernel, least) in kernels() {
        let cycles = cycles_per_unit(&mut *kernel, hertz);
        println!("{name}: {cycles:.4} cycles a unit, at least {least:.4}");
        assert!(cycles > least, "{name}: {cycles} cycles a unit, where {least} are the least that its work takes");
        kernel.check().unwrap_or_else(|failure| panic!("{name}: {failure}"));
    }
}

/// Claims work that it does not do, as a kernel would whose work the compiler has left out.
struct Elided {
    units: u64,
}

impl Kernel for Elided {
    fn unit(&self) -> &'static str {
        "nothing"
    }

    fn pass(&mut self) -> Result<u64, Failure> {
        Ok(std::hint::black_box(self.units))
    }

    fn check(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

#[test]
fn work_that_is_left_out_is_faster_than_it_can_be() {
    let hertz = kernels::frequency::hertz(200);
    for (name, mut kernel, least) in kernels() {
        let mut elided = Elided { units: kernel.pass().unwrap() };
        let cycles = cycles_per_unit(&mut elided, hertz);
        assert!(cycles < least, "{name}: {cycles} cycles for a unit of nothing, which {least} do not tell from work");
    }
}

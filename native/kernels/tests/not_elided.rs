//! The work of every kernel is really done: half of it takes about half as long, and none of it no time.

use std::time::{Duration, Instant};

use kernels::memory::{Access, Element, Memory};
use kernels::{Kernel, chase::Chase, floating::Floating, integer::Integer, neighbours::Cache};

/// The shortest of some tries, because what disturbs one makes it longer.
fn shortest(kernel: &mut dyn Kernel, passes: u32) -> Duration {
    let timed = |_| {
        let started = Instant::now();
        for _ in 0..passes {
            kernel.pass().unwrap();
        }
        started.elapsed()
    };
    (0..7).map(timed).min().unwrap()
}

/// Two of an elided kernel's times are alike however often one tries; a neighbour on the machine's cache, who makes
/// the work of either time slower, goes away.
fn ratio_of_twice_to_once(kernel: &mut dyn Kernel) -> f64 {
    let (once, twice) = (shortest(kernel, 50), shortest(kernel, 100));
    twice.as_secs_f64() / once.as_secs_f64()
}

#[test]
fn twice_the_passes_take_about_twice_as_long() {
    let memory = |access, element| Box::new(Memory::new(access, element, 8 << 20).unwrap());
    let kernels: [(&str, Box<dyn Kernel>); 9] = [
        ("integer", Box::new(Integer::new())),
        ("floating", Box::new(Floating::new())),
        ("read", memory(Access::Read, Element::Integer)),
        ("read floats", memory(Access::Read, Element::Float)),
        ("read wide", memory(Access::Read, Element::Simd)),
        ("write", memory(Access::Write, Element::Integer)),
        ("copy wide", memory(Access::Copy, Element::Simd)),
        ("chase", Box::new(Chase::new(8 << 20, 1).unwrap())),
        ("cache", Box::new(Cache::new(8 << 20, 1).unwrap())),
    ];
    for (name, mut kernel) in kernels {
        shortest(&mut *kernel, 20); // caches and frequency settle
        let ratios: Vec<f64> = (0..10).map(|_| ratio_of_twice_to_once(&mut *kernel)).collect();
        assert!(ratios.iter().any(|ratio| (1.5..3.0).contains(ratio)), "{name}: {ratios:?}");
        kernel.check().unwrap_or_else(|failure| panic!("{name}: {failure}"));
    }
}

/// Loads, stores, arithmetic: a processor of today retires at most about six instructions a cycle.
#[test]
fn no_kernel_is_faster_than_its_work_can_be() {
    let hertz = kernels::frequency::hertz(200);
    let mut integer = Integer::new();
    shortest(&mut integer, 20);
    let rounds = integer.pass().unwrap();
    let per_round = shortest(&mut integer, 1).as_secs_f64() * hertz / rounds as f64;
    // The published loop is about a hundred statements; each takes an instruction at least, and most take several.
    assert!(per_round > 40.0, "{per_round} cycles a round");
    let mut read = Memory::new(Access::Read, Element::Integer, 1 << 20).unwrap();
    shortest(&mut read, 20);
    let bytes = read.pass().unwrap();
    let per_word = shortest(&mut read, 1).as_secs_f64() * hertz / (bytes as f64 / 8.0);
    assert!(per_word > 0.2, "{per_word} cycles a word: scalar loads are three a cycle at most");
}

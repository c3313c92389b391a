//! Cost of one reading, of back-to-back ones, all clocks by turns in every round; and how far each clock has departed from the
//! kernel's clocks after a while.

use std::hint::black_box;
use std::time::{Duration, Instant};

use hptime::{Clock, Fallback, OsClock, Source};

/// Readings of a round.
const READINGS: u32 = 500_000;

fn nanoseconds<T>(mut read: impl FnMut() -> T) -> f64 {
    let began = Instant::now();
    for _ in 0..READINGS {
        black_box(read());
    }
    began.elapsed().as_nanos() as f64 / f64::from(READINGS)
}

/// A machine whose counter is refused: what hptime costs where it has to hand the kernel's clock on.
struct Refused;

impl Source for Refused {
    fn ticks(&self) -> u64 {
        unreachable!("a refused counter is not read")
    }

    fn clock_ns(&self, clock: OsClock) -> u64 {
        clock.now_ns()
    }

    fn admission(&self) -> Result<(), Fallback> {
        Err(Fallback::NotInvariant)
    }

    fn sleep_until(&self, _deadline_ns: u64) -> bool {
        true
    }
}

type Reader<'a> = Box<dyn Fn() -> f64 + 'a>;

/// Measures the cost of a reading, and prints one line a clock and round.
pub(crate) fn cost(rounds: u32) {
    let clock = hptime::clock();
    let difference = clock.difference();
    let quanta_clock = quanta::Clock::new();
    let refused = Clock::on(Refused);
    minstant::Instant::now();
    fastant::Instant::now();
    let readers: Vec<(&str, Reader)> = vec![
        ("rdtsc", Box::new(|| nanoseconds(hptime::tsc::read))),
        ("hptime difference", Box::new(|| nanoseconds(|| difference.read()))),
        ("hptime now_ns", Box::new(|| nanoseconds(|| clock.now_ns()))),
        ("hptime now_ordered_ns", Box::new(|| nanoseconds(|| clock.now_ordered_ns()))),
        ("quanta raw", Box::new(|| nanoseconds(|| quanta_clock.raw()))),
        ("quanta now", Box::new(|| nanoseconds(|| quanta_clock.now()))),
        ("minstant now", Box::new(|| nanoseconds(minstant::Instant::now))),
        ("fastant now", Box::new(|| nanoseconds(fastant::Instant::now))),
        ("std::time::Instant", Box::new(|| nanoseconds(Instant::now))),
        ("clock_gettime", Box::new(|| nanoseconds(|| OsClock::Monotonic.now_ns()))),
        ("hptime now_ns, refused", Box::new(|| nanoseconds(|| refused.now_ns()))),
    ];
    for round in 0..=rounds {
        for (name, reader) in &readers {
            let ns = reader();
            // The first round warms up.
            if round > 0 {
                println!(r#"{{"kind":"cost","name":"{name}","round":{round},"ns":{ns:.4}}}"#);
            }
        }
    }
}

/// Tries to catch a clock between two close readings of the kernel's.
const TRIES: u32 = 2000;

type Read<'a> = Box<dyn Fn() -> u64 + 'a>;

/// A clock's reading, the kernel's at the middle of it, and how far that can be off.
struct Pair {
    clock_ns: u64,
    kernel_ns: u64,
    half_width_ns: u64,
}

fn pair(read: &Read, kernel: OsClock) -> Pair {
    (0..TRIES)
        .map(|_| {
            let before = kernel.now_ns();
            let clock_ns = read();
            let after = kernel.now_ns();
            Pair { clock_ns, kernel_ns: before.midpoint(after), half_width_ns: (after - before) / 2 }
        })
        .min_by_key(|pair| pair.half_width_ns)
        .expect("at least one try")
}

/// Measures how far each clock departs, and prints one line a clock and kernel's clock.
pub(crate) fn error(seconds: u32) {
    let clock = hptime::clock();
    let difference = clock.difference();
    let origin = difference.read();
    let quanta_clock = quanta::Clock::new();
    let (quanta_origin, minstant_origin) = (quanta_clock.now(), minstant::Instant::now());
    let (fastant_origin, std_origin) = (fastant::Instant::now(), Instant::now());
    let clocks: Vec<(&str, Read)> = vec![
        ("hptime difference", Box::new(|| difference.nanoseconds(origin, difference.read()))),
        ("hptime raw_ns", Box::new(|| clock.raw_ns())),
        ("hptime now_ns", Box::new(|| clock.now_ns())),
        ("quanta now", Box::new(|| quanta_clock.now().duration_since(quanta_origin).as_nanos() as u64)),
        ("minstant now", Box::new(|| minstant::Instant::now().duration_since(minstant_origin).as_nanos() as u64)),
        ("fastant now", Box::new(|| fastant::Instant::now().duration_since(fastant_origin).as_nanos() as u64)),
        ("std::time::Instant", Box::new(|| std_origin.elapsed().as_nanos() as u64)),
    ];
    let kernels = [("CLOCK_MONOTONIC_RAW", OsClock::MonotonicRaw), ("CLOCK_MONOTONIC", OsClock::Monotonic)];
    let look = || -> Vec<Pair> {
        clocks.iter().flat_map(|(_, read)| kernels.iter().map(move |&(_, kernel)| pair(read, kernel))).collect()
    };
    let first = look();
    let end = Instant::now() + Duration::from_secs(seconds.into());
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(100));
        for (_, read) in &clocks {
            read();
        }
    }
    let last = look();
    for (index, (before, after)) in first.iter().zip(&last).enumerate() {
        let (name, kernel) = (clocks[index / kernels.len()].0, kernels[index % kernels.len()].0);
        let kernel_ns = after.kernel_ns - before.kernel_ns;
        let error_ns = (after.clock_ns - before.clock_ns) as i64 - kernel_ns as i64;
        let ppm = error_ns as f64 / kernel_ns as f64 * 1e6;
        let uncertainty_ns = before.half_width_ns + after.half_width_ns;
        println!(
            r#"{{"kind":"error","name":"{name}","against":"{kernel}","seconds":{seconds},"error_ns":{error_ns},"uncertainty_ns":{uncertainty_ns},"ppm":{ppm:.5}}}"#
        );
    }
}

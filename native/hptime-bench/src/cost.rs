//! Cost of one reading: back-to-back readings, all clocks by turns in every round.

use std::hint::black_box;
use std::time::Instant;

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

/// Measures, and prints one line a clock and round.
pub(crate) fn measure(rounds: u32) {
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

//! Ticks on time: sleeps until one deadline after another and says how late each wake was.
//!
//!     cargo run --release --example metronome -- 10 1000000

use std::env;
use std::process::ExitCode;

use hptime::{Sleeper, Wake};

fn main() -> ExitCode {
    let mut numbers = env::args().skip(1).map(|word| word.parse());
    let (beats, period_ns) = match (numbers.next().unwrap_or(Ok(10)), numbers.next().unwrap_or(Ok(1_000_000))) {
        (Ok(beats), Ok(period_ns)) if (0..10_000_000_000).contains(&period_ns) => (beats, period_ns),
        _ => {
            eprintln!("usage: metronome [BEATS [PERIOD_NS]]");
            return ExitCode::from(2);
        }
    };
    let clock = hptime::clock();
    clock.settle(); // 20 ms at most; without it, the kernel's clock answers for the first 20 ms
    match clock.fallback_reason() {
        Some(fallback_reason) => println!("clock: the kernel's, because {fallback_reason}"),
        None => println!("clock: {:?}", clock.status()),
    }
    for (beat, wake) in ticked(beats, period_ns).iter().enumerate() {
        println!("beat {}: late by {} ns, awake for {} ns", beat + 1, wake.lateness_ns, wake.spin_ns);
    }
    ExitCode::SUCCESS
}

/// So many wakes, each a period after the deadline before it, however late that was.
pub(crate) fn ticked(beats: i64, period_ns: i64) -> Vec<Wake> {
    let sleeper = Sleeper::new(hptime::clock());
    let began_ns = hptime::clock().now_ns() as i64;
    (1..=beats)
        .map(|beat| sleeper.sleep_until(began_ns + beat * period_ns).expect("a deadline within the clock's range"))
        .collect()
}

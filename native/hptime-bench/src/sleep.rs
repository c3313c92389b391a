//! Lateness and CPU use of sleeps: all ways to sleep by turns, in rounds.

use std::time::Duration;

use hptime::{Clock, DifferenceClock, OsClock, Rule, Sleeper};

/// Targets, nanoseconds.
const TARGETS: [u64; 3] = [50_000, 1_000_000, 10_000_000];

/// Turns that each way to sleep gets at each target.
const ROUNDS: u64 = 10;

#[derive(Default)]
struct Series {
    lateness_ns: Vec<i64>,
    cpu_ns: u64,
    spin_ns: Option<u64>,
}

/// The kernel's sleep, which does not tell of spinning; likewise below.
fn os_sleep(ns: u64) -> Option<u64> {
    let time = libc::timespec { tv_sec: (ns / 1_000_000_000) as _, tv_nsec: (ns % 1_000_000_000) as _ };
    // SAFETY: reads one timespec.
    unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &raw const time, std::ptr::null_mut()) };
    None
}

fn usleep(ns: u64) -> Option<u64> {
    // SAFETY: takes a number.
    unsafe { libc::usleep((ns / 1000) as u32) };
    None
}

/// Sets this thread's timer slack; zero is the default of 50 µs.
fn slack(ns: u64) {
    // SAFETY: concerns the calling thread only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, ns, 0, 0, 0) };
}

/// A sleep by a sleeper, of valid length; the time spun.
#[inline(always)]
fn by(sleeper: &Sleeper, ns: u64) -> u64 {
    sleeper.sleep_for(ns as i64).expect("a length within the clock's range").spin_ns
}

/// A way to sleep: takes the length and returns the lateness and, where it tells, the time spun, all in nanoseconds.
type Sleep<'a> = Box<dyn Fn(u64) -> (i64, Option<u64>) + 'a>;

/// The lateness of a relative sleep, call and return included.
fn relative<'a, T: Into<Option<u64>>>(difference: DifferenceClock<'a>, sleep: impl Fn(u64) -> T + 'a) -> Sleep<'a> {
    Box::new(move |ns| {
        let began = difference.read();
        let spun = sleep(ns);
        let ended = difference.read();
        (difference.nanoseconds(began, ended) as i64 - ns as i64, spun.into())
    })
}

/// The lateness of a sleep until a deadline, return included.
fn absolute<'a>(clock: &'a Clock, sleeper: &'a Sleeper<'a>) -> Sleep<'a> {
    Box::new(move |ns| {
        let deadline = (clock.now_ns() + ns) as i64;
        let wake = sleeper.sleep_until(deadline).expect("a deadline within the clock's range");
        (clock.now_ns() as i64 - deadline, Some(wake.spin_ns))
    })
}

/// Measures, and prints one line a target and way to sleep.
pub(crate) fn measure(seconds: u32) {
    let clock = hptime::clock();
    let difference = clock.difference();
    let adaptive = Sleeper::new(clock);
    let paper = Sleeper::new(clock).by(Rule::HIGHPERTIMER);
    let os = Sleeper::new(clock).by(Rule::Os);
    let spin_sleeper = spin_sleep::SpinSleeper::default();
    let ways: Vec<(&str, u64, Sleep)> = vec![
        ("hptime adaptive", 0, relative(difference, |ns| by(&adaptive, ns))),
        ("hptime adaptive, until", 0, absolute(clock, &adaptive)),
        ("hptime highpertimer", 0, relative(difference, |ns| by(&paper, ns))),
        ("hptime os", 0, relative(difference, |ns| by(&os, ns))),
        (
            "spin_sleep",
            0,
            relative(difference, |ns| {
                spin_sleeper.sleep(Duration::from_nanos(ns));
                None
            }),
        ),
        ("usleep", 0, relative(difference, usleep)),
        ("clock_nanosleep, slack 1", 1, relative(difference, os_sleep)),
    ];
    // The adaptive sleep assumes a late kernel until it has seen a thousand sleeps.
    (0..1500).for_each(|_| _ = by(&adaptive, 1_000_000));
    for target_ns in TARGETS {
        let sleeps = (u64::from(seconds) * 1_000_000_000 / target_ns / ROUNDS).clamp(5, 20_000);
        let mut series: Vec<Series> = ways.iter().map(|_| Series::default()).collect();
        for _ in 0..ROUNDS {
            for ((_, slack_ns, sleep), series) in ways.iter().zip(&mut series) {
                slack(*slack_ns);
                let cpu = OsClock::ThreadCpu.now_ns();
                for _ in 0..sleeps {
                    let (lateness_ns, spin_ns) = sleep(target_ns);
                    series.lateness_ns.push(lateness_ns);
                    series.spin_ns = spin_ns.map(|ns| ns + series.spin_ns.unwrap_or(0));
                }
                series.cpu_ns += OsClock::ThreadCpu.now_ns() - cpu;
                slack(0);
            }
        }
        for ((name, ..), series) in ways.iter().zip(&mut series) {
            print(name, target_ns, series);
        }
    }
    println!(r#"{{"kind":"guard","ns":{}}}"#, adaptive.guard_ns());
}

fn print(name: &str, target_ns: u64, series: &mut Series) {
    let late = &mut series.lateness_ns;
    late.sort_unstable();
    let count = late.len() as u64;
    let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|part| crate::quantile(late, part));
    let spin = series.spin_ns.map_or("null".into(), |ns| (ns / count).to_string());
    let slept_ns: i64 = late.iter().sum::<i64>() + (target_ns * count) as i64;
    println!(
        r#"{{"kind":"sleep","name":"{name}","target_ns":{target_ns},"count":{count},"p50_ns":{p50},"p99_ns":{p99},"p99.9_ns":{p999},"spin_ns_a_sleep":{spin},"cpu_ns_a_sleep":{},"cpu_percent":{:.3}}}"#,
        series.cpu_ns / count,
        series.cpu_ns as f64 / slept_ns as f64 * 100.0
    );
}

//! The sender's clock and its sleep, each the system's or hptime's.
//!
//! The system's are called through libc, so that in a program that is linked dynamically, a preloaded shim stands in for
//! them, as in the paper.  hptime's are linked in, and no shim reaches them.

use std::fmt;
use std::str::FromStr;

use failure::Failure;
use hptime::{OsClock, Sleeper};
use serde::Serialize;

static SLEEPER: Sleeper<'static> = Sleeper::new(hptime::clock());

/// Sleeps by which a system's sleep is got to know.
const LEARNING: u32 = 32;

/// What these sleeps ask for.
const LEARNING_NS: i64 = 1000;

/// Standard deviations that a sleep's usual lateness is exceeded by when the sender stops trusting it.  Yaz's rule.
const DEVIATIONS: f64 = 3.0;

/// Longest margin: a machine whose sleep is later than this is not helped by waiting awake.
const LONGEST_MARGIN_NS: i64 = 2_000_000;

/// The spin loop pauses while there is more left than this; a pause may last 50 ns and more.
const BARE_NS: i64 = 200;

/// A clock that goes back by more than this was stepped.
const STEP_BACK_NS: i64 = 1_000_000;

/// hptime's sleep is not worth its call for less.
const SHORTEST_SLEEP_NS: i64 = 2_000;

/// Which clock the sender reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockChoice {
    /// `clock_gettime(CLOCK_MONOTONIC)`.
    System,
    /// `gettimeofday`, as Yaz does: whole microseconds, and stepped when the time of day is set.
    Gettimeofday,
    /// hptime's, on the time stamp counter.
    Hptime,
}

/// How the sender sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SleepChoice {
    /// `nanosleep`.
    System,
    /// `usleep`, as Yaz does: whole microseconds.
    Usleep,
    /// hptime's.
    Hptime,
}

impl ClockChoice {
    /// All, with their names on the command line.
    pub const NAMES: [(&'static str, Self); 3] =
        [("system", Self::System), ("gettimeofday", Self::Gettimeofday), ("hptime", Self::Hptime)];

    /// Reads the clock, in nanoseconds.
    #[inline]
    #[must_use]
    pub fn now_ns(self) -> i64 {
        match self {
            Self::System => OsClock::Monotonic.now_ns() as i64,
            Self::Hptime => hptime::clock().now_ns() as i64,
            Self::Gettimeofday => {
                let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
                // SAFETY: writes one time.
                unsafe { libc::gettimeofday(&raw mut time, std::ptr::null_mut()) };
                let day_ns = (time.tv_sec * 1_000_000 + time.tv_usec) * 1000;
                #[cfg(test)]
                let day_ns = tests::set_by(day_ns);
                day_ns
            }
        }
    }

    /// The least time that it tells apart.
    #[must_use]
    pub fn resolution_ns(self) -> u32 {
        if self == Self::Gettimeofday { 1000 } else { 1 }
    }

    /// Whether it shows the time of day, which can be set, and not the time since the boot.
    #[must_use]
    pub fn is_realtime(self) -> bool {
        self == Self::Gettimeofday
    }
}

impl SleepChoice {
    /// All, with their names on the command line.
    pub const NAMES: [(&'static str, Self); 3] =
        [("system", Self::System), ("usleep", Self::Usleep), ("hptime", Self::Hptime)];

    /// Sleeps so long, or later; a signal ends it.
    pub fn sleep(self, duration_ns: i64) {
        match self {
            Self::System => {
                let time = libc::timespec { tv_sec: duration_ns / 1_000_000_000, tv_nsec: duration_ns % 1_000_000_000 };
                // SAFETY: reads one time.
                unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
            }
            Self::Usleep => {
                // POSIX lets it refuse a second and more.
                let us = (duration_ns / 1000).clamp(0, 999_999) as libc::useconds_t;
                // SAFETY: no memory is involved.
                unsafe { libc::usleep(us) };
            }
            // A duration that is not negative ends within the clock's range.
            Self::Hptime => drop(SLEEPER.sleep_for(duration_ns)),
        }
    }
}

fn named<T: Copy>(names: &[(&'static str, T)], what: &str, name: &str) -> Result<T, Failure> {
    let found = names.iter().find(|(known, _)| *known == name).map(|&(_, choice)| choice);
    found.ok_or_else(|| {
        let known: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        Failure::Invalid(format!("there is no {what} {name:?}: accepted are {}", known.join(", ")))
    })
}

fn name_of<T: PartialEq>(names: &[(&'static str, T)], choice: &T) -> &'static str {
    names.iter().find(|(_, known)| known == choice).map_or("", |(name, _)| name)
}

impl FromStr for ClockChoice {
    type Err = Failure;

    fn from_str(name: &str) -> Result<Self, Failure> {
        named(&Self::NAMES, "clock", name)
    }
}

impl fmt::Display for ClockChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(name_of(&Self::NAMES, self))
    }
}

impl FromStr for SleepChoice {
    type Err = Failure;

    fn from_str(name: &str) -> Result<Self, Failure> {
        named(&Self::NAMES, "sleep", name)
    }
}

impl fmt::Display for SleepChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(name_of(&Self::NAMES, self))
    }
}

/// Waits until a moment: asleep as long as the sleep can be trusted, then awake.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Waiter {
    /// The clock.
    pub clock: ClockChoice,
    /// The sleep.
    pub sleep: SleepChoice,
    /// How long before the moment the system's sleep is to end; hptime's knows by itself.
    pub margin_ns: i64,
}

impl Waiter {
    /// With a margin, or one that is learnt now: the mean lateness of some sleeps and three standard deviations, which is
    /// Yaz's rule.  A margin of zero never waits awake for a sleep that came back late: the plain sleep.
    #[must_use]
    pub fn new(clock: ClockChoice, sleep: SleepChoice, margin_ns: Option<i64>) -> Self {
        if clock == ClockChoice::Hptime || sleep == SleepChoice::Hptime {
            hptime::clock().settle();
        }
        let margin_ns =
            margin_ns.unwrap_or_else(|| if sleep == SleepChoice::Hptime { 0 } else { learnt(clock, sleep) });
        Self { clock, sleep, margin_ns }
    }

    /// The clock's time.
    #[inline]
    #[must_use]
    pub fn now_ns(&self) -> i64 {
        self.clock.now_ns()
    }

    /// Waits until the clock shows the deadline, and returns the reading that first showed it.
    ///
    /// # Errors
    /// [`Failure::ClockStep`] when the clock goes back meanwhile, or has gone back since an earlier reading: a sleep until
    /// the deadline could then last for years.
    #[inline]
    pub fn wait_until(&self, deadline_ns: i64, earlier_ns: i64) -> Result<i64, Failure> {
        let mut now_ns = self.now_ns();
        forward(earlier_ns, now_ns)?;
        let left_ns = deadline_ns - now_ns;
        let asleep_ns = left_ns - self.margin_ns;
        if asleep_ns > SHORTEST_SLEEP_NS {
            self.sleep.sleep(asleep_ns);
        }
        while now_ns < deadline_ns {
            let before_ns = now_ns;
            now_ns = self.now_ns();
            forward(before_ns, now_ns)?;
            if deadline_ns - now_ns > BARE_NS {
                std::hint::spin_loop();
            }
        }
        Ok(now_ns)
    }
}

/// Refuses a clock that has gone back.
#[inline]
pub(crate) fn forward(earlier_ns: i64, now_ns: i64) -> Result<(), Failure> {
    if now_ns < earlier_ns - STEP_BACK_NS {
        return Err(Failure::ClockStep { clock: "the sender's clock", step_ns: now_ns - earlier_ns });
    }
    Ok(())
}

/// The margin by Yaz's rule.
fn learnt(clock: ClockChoice, sleep: SleepChoice) -> i64 {
    let lateness = (0..LEARNING).map(|_| {
        let before_ns = clock.now_ns();
        sleep.sleep(LEARNING_NS);
        (clock.now_ns() - before_ns - LEARNING_NS) as f64
    });
    let lateness: Vec<f64> = lateness.collect();
    let mean = lateness.iter().sum::<f64>() / lateness.len() as f64;
    let square = lateness.iter().map(|late| (late - mean).powi(2)).sum::<f64>() / lateness.len() as f64;
    ((mean + DEVIATIONS * square.sqrt()) as i64).clamp(0, LONGEST_MARGIN_NS)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// After so many readings, this thread's time of day is set by so much.
        static SETTING: Cell<(u32, i64)> = const { Cell::new((0, 0)) };
    }

    /// Has this thread's time of day be set after so many readings, as others' cannot be in a test.
    pub(crate) fn set_after(readings: u32, step_ns: i64) {
        SETTING.set((readings, step_ns));
    }

    pub(super) fn set_by(day_ns: i64) -> i64 {
        let (readings, step_ns) = SETTING.get();
        SETTING.set((readings.saturating_sub(1), step_ns));
        if readings == 0 { day_ns + step_ns } else { day_ns }
    }

    #[test]
    fn a_clock_that_is_set_back_during_a_wait_ends_it() {
        let waiter = Waiter::new(ClockChoice::Gettimeofday, SleepChoice::Hptime, Some(3_600_000_000_000));
        // During the wait, and before its first reading.
        for readings in [10, 1] {
            set_after(readings, -3_600_000_000_000);
            let now_ns = waiter.now_ns();
            let failure = waiter.wait_until(now_ns + 50_000_000, now_ns).unwrap_err();
            assert!(matches!(failure, Failure::ClockStep { step_ns, .. } if step_ns < -3_599_000_000_000), "{failure}");
            set_after(0, 0);
        }
    }

    #[test]
    fn no_wait_ends_before_its_deadline_whatever_clock_and_sleep() {
        for (_, clock) in ClockChoice::NAMES {
            for (_, sleep) in SleepChoice::NAMES {
                for margin_ns in [None, Some(0)] {
                    let waiter = Waiter::new(clock, sleep, margin_ns);
                    for wait_ns in [-5, 0, 700, 5_000, 300_000] {
                        let now_ns = waiter.now_ns();
                        let deadline_ns = now_ns + wait_ns;
                        let arrived_ns = waiter.wait_until(deadline_ns, now_ns).unwrap();
                        assert!(
                            arrived_ns >= deadline_ns && waiter.now_ns() >= arrived_ns,
                            "{clock} {sleep} {wait_ns}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn the_margin_covers_the_kernels_lateness_and_is_bounded() {
        let margin_ns = Waiter::new(ClockChoice::System, SleepChoice::System, None).margin_ns;
        assert!((1..=LONGEST_MARGIN_NS).contains(&margin_ns), "{margin_ns}");
        assert_eq!(Waiter::new(ClockChoice::System, SleepChoice::Hptime, None).margin_ns, 0);
    }

    #[test]
    fn gettimeofday_tells_whole_microseconds_of_the_day() {
        let clock = ClockChoice::Gettimeofday;
        let shown_ns = clock.now_ns();
        assert_eq!((shown_ns % 1000, clock.resolution_ns()), (0, 1000));
        assert!((OsClock::Realtime.now_ns() as i64 - shown_ns).abs() < 10_000_000_000);
    }

    #[test]
    fn choices_are_known_by_their_names_only() {
        for (name, clock) in ClockChoice::NAMES {
            assert_eq!((name.parse::<ClockChoice>().unwrap(), clock.to_string().as_str()), (clock, name));
        }
        for (name, sleep) in SleepChoice::NAMES {
            assert_eq!((name.parse::<SleepChoice>().unwrap(), sleep.to_string().as_str()), (sleep, name));
        }
        let message = "tsc".parse::<ClockChoice>().unwrap_err().to_string();
        assert!(message.contains("system, gettimeofday, hptime"), "{message}");
    }
}

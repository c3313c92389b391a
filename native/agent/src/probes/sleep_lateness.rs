//! How late a sleeper wakes, against its absolute target.
//!
//! One sample: `CLOCK_MONOTONIC` is read, the sleep is called for so long that it should end at start + target, and the
//! clock is read again.  The lateness is the second reading less the target; it is negative when the sleep ended early.
//!
//! After a sleep the kernel's clock is cold: its first reading takes up to some microseconds, which would be taken for
//! the sleep's own, and more of them after a sleep that spun on the counter than after one that read that clock.  So
//! where the counter can be trusted it is read first, and tells how long before a later, quick reading the sleep ended.

use std::sync::OnceLock;

use hptime::{OsClock, Sleeper, TickScale, tsc};
use kernels::random::SplitMix64;
use serde::{Deserialize, Serialize};

use super::{Extent, Kept, MaxNs, Measured, Probe, Recorder, Samples, Trial, hptime_fallback_reason};
use crate::clocks::Timebase;
use crate::distribution::Summary;
use crate::failure::{Code, Failure};
use crate::idle::Shallow;
use crate::parameters::{Int, Seed};
use crate::precise;

/// Longest sleep; a cancelled probe ends within it.
const LONGEST_TARGET_NS: u64 = 10_000_000_000;

/// Longest of the random spins between two sleeps.
const LONGEST_SPIN_NS: u64 = 50_000;

/// Priority in the FIFO class: above the threaded interrupt handlers of a stock kernel is not needed to preempt programs.
const FIFO_PRIORITY: i32 = 50;

/// Sleeps before the first that counts: caches, branch predictors and timer are cold after the wait for the request.
const WARM_UP: u32 = 3;

/// Longest of them.
const LONGEST_WARM_UP_NS: u64 = 1_000_000;

/// Readings of the clock after a sleep, of which the one in the tightest pair of the counter's counts.
const STAMPS: u32 = 8;

/// A pair as tight is good enough, in picoseconds.
const TIGHT_PS: i64 = 100_000;

/// Empty samples taken to learn what the reads around a sleep cost themselves.
const EMPTY_SAMPLES: u32 = 256;

/// Result of the probe.
#[derive(Debug, Serialize)]
pub struct SleepLateness {
    function: Function,
    target_ns: u64,
    distribution: Summary,
    requested: u64,
    early_share: f64,
    cpu_ns_per_sleep: Option<f64>,
    clock: &'static str,
    stamp: &'static str,
    slack_ns: Option<u64>,
    policy: Policy,
    idle_states: IdleStates,
    interrupted: u64,
    hptime_fallback_reason: Option<String>,
}

/// Its parameters.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    function: Function,
    target_ns: Int<1, LONGEST_TARGET_NS>,
    samples: Samples,
    max_ns: MaxNs,
    slack_ns: Int<0, 1_000_000_000>,
    policy: Policy,
    idle_states: IdleStates,
    reservoir: Kept,
    seed: Seed,
    /// Whether the trial has begun with another request, from which hptime has learnt.
    #[serde(default)]
    continued: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Function {
    Usleep,
    Nanosleep,
    ClockNanosleep,
    Hptime,
    Highpertimer,
    Spin,
}

impl Function {
    fn sleep(self) -> Sleep {
        match self {
            Self::Usleep => usleep,
            Self::Nanosleep => nanosleep,
            Self::ClockNanosleep => clock_nanosleep,
            Self::Hptime => adaptive,
            Self::Highpertimer => highpertimer,
            Self::Spin => spin_until,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Policy {
    Other,
    Fifo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum IdleStates {
    Default,
    Shallow,
}

impl IdleStates {
    /// Holds those off that take time to leave, where that is asked for, as long as what is returned lives.
    pub(super) fn hold(self) -> Result<Option<Shallow>, Failure> {
        (self == Self::Shallow).then(Shallow::hold).transpose()
    }
}

/// One way to sleep; false when a signal ended it.
type Sleep = fn(start_ns: u64, target_ns: u64) -> bool;

/// `usleep`: whole microseconds, relative.
fn usleep(_start_ns: u64, target_ns: u64) -> bool {
    // SAFETY: no memory is involved.
    unsafe { libc::usleep((target_ns / 1000) as libc::useconds_t) == 0 }
}

/// `nanosleep`: relative.
fn nanosleep(_start_ns: u64, target_ns: u64) -> bool {
    let request = timespec(target_ns);
    // SAFETY: reads one timespec; the remaining time is not asked for.
    unsafe { libc::nanosleep(&raw const request, std::ptr::null_mut()) == 0 }
}

/// `clock_nanosleep` until an absolute time of `CLOCK_MONOTONIC`.
fn clock_nanosleep(start_ns: u64, target_ns: u64) -> bool {
    sleep_until(start_ns + target_ns)
}

/// Sleeps until a time of `CLOCK_MONOTONIC`; false when a signal ended it.
pub(super) fn sleep_until(deadline_ns: u64) -> bool {
    let deadline = timespec(deadline_ns);
    // SAFETY: reads one timespec; an absolute sleep has no remaining time.
    unsafe {
        libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &raw const deadline, std::ptr::null_mut())
            == 0
    }
}

fn timespec(ns: u64) -> libc::timespec {
    libc::timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 }
}

/// hptime's adaptive rule.
fn adaptive(start_ns: u64, target_ns: u64) -> bool {
    slept(&precise::ADAPTIVE, start_ns + target_ns)
}

/// The timing paper's rule.
fn highpertimer(start_ns: u64, target_ns: u64) -> bool {
    slept(&precise::HIGHPERTIMER, start_ns + target_ns)
}

fn slept(sleeper: &Sleeper, deadline_ns: u64) -> bool {
    i64::try_from(deadline_ns).is_ok_and(|deadline_ns| sleeper.sleep_until(deadline_ns).is_ok())
}

/// No sleep at all: the bound for lateness, and for CPU time.
fn spin_until(start_ns: u64, target_ns: u64) -> bool {
    while OsClock::Monotonic.now_ns() < start_ns + target_ns {
        std::hint::spin_loop();
    }
    true
}

impl Probe for SleepLateness {
    const NAME: &'static str = "sleep_lateness";
    type Parameters = Asked;

    /// Slack and scheduling class of the calling thread are changed and stay so.
    fn run(asked: Asked, trial: &mut Trial) -> Result<Measured<Self>, Failure> {
        let (function, target_ns) = (asked.function, asked.target_ns.0);
        if function == Function::Usleep && target_ns % 1000 != 0 {
            return Err(Failure::bad_request(format!(
                "params.target_ns: {target_ns}; accepted for usleep: whole microseconds, multiples of 1000"
            )));
        }
        let sleep = function.sleep();
        let extent = Extent { samples: asked.samples.0, least_ns: 0, max_ns: asked.max_ns.0 };
        let mut recorder = Recorder::new(asked.reservoir, asked.seed.0);
        let mut random = SplitMix64::new(asked.seed.0);
        set_slack(asked.slack_ns.0)?;
        set_policy(asked.policy)?;
        let _held_off = asked.idle_states.hold()?;

        let reads_cpu_ns = cpu_ns_of_reads();
        let counter = counter();
        let (mut done, mut interrupted, mut early, mut cpu_ns) = (0, 0, 0_u64, 0);
        let spin_bound_ns = (target_ns / 4).min(LONGEST_SPIN_NS);
        let clocks_start = trial.start()?;
        if function == Function::Hptime && !asked.continued {
            precise::anew();
            precise::learn();
        }
        for _ in 0..WARM_UP {
            sample(counter, sleep, target_ns.min(LONGEST_WARM_UP_NS));
        }
        let usage_start = trial.counts_from_now();
        loop {
            // Without this, every sleep would start right after the wake-up before it, locked to the phase of the timer tick.
            spin(random.below(spin_bound_ns + 1));
            let sample = sample(counter, sleep, target_ns);
            done += 1;
            if sample.completed {
                recorder.record(sample.lateness_ns * 1000);
                early += u64::from(sample.lateness_ns < -sample.within_ns);
                cpu_ns += sample.cpu_ns;
            } else {
                interrupted += 1;
            }
            if !trial.goes_on(done, extent)? {
                break;
            }
        }
        let around = trial.end(clocks_start, &usage_start);
        if done == interrupted {
            return Err(Failure::new(Code::Os, format!("signals ended all of {done} sleeps")));
        }
        trial.samples("reservoir", recorder.reservoir.values())?;
        Ok(around.of(SleepLateness {
            function,
            target_ns,
            distribution: recorder.distribution.summary()?,
            requested: extent.samples,
            early_share: early as f64 / (done - interrupted) as f64,
            cpu_ns_per_sleep: reads_cpu_ns
                .map(|reads_ns| (cpu_ns as f64 / (done - interrupted) as f64 - reads_ns).max(0.0)),
            clock: "CLOCK_MONOTONIC",
            stamp: if counter.is_some() { "counter" } else { "clock" },
            slack_ns: slack(),
            policy: policy()?,
            idle_states: asked.idle_states,
            interrupted,
            hptime_fallback_reason: hptime_fallback_reason(matches!(
                function,
                Function::Hptime | Function::Highpertimer
            )),
        }))
    }
}

/// What one sleep came to, in nanoseconds.
struct Sample {
    /// Wake-up less absolute target; negative when early.
    lateness_ns: i64,
    /// To either side.
    within_ns: i64,
    /// CPU time of the sleep and of the reads around it.
    cpu_ns: u64,
    /// No signal ended it.
    completed: bool,
}

/// One sleep between two readings of the clock, and those between two of the thread's CPU time.
fn sample(counter: Option<TickScale>, sleep: Sleep, target_ns: u64) -> Sample {
    let cpu_start_ns = OsClock::ThreadCpu.now_ns();
    let start_ns = OsClock::Monotonic.now_ns();
    let completed = sleep(start_ns, target_ns);
    // What costs least first: neither is to be charged with the other.
    let woken = counter.map(|scale| (scale, tsc::read_ordered_end()));
    let end_ns = if woken.is_none() { OsClock::Monotonic.now_ns() as i64 } else { 0 };
    let cpu_ns = OsClock::ThreadCpu.now_ns().saturating_sub(cpu_start_ns);
    let (end_ns, within_ns) = woken.map_or((end_ns, 0), |(scale, woken)| at_counter(scale, woken));
    Sample { lateness_ns: end_ns - (start_ns + target_ns) as i64, within_ns, cpu_ns, completed }
}

/// The counter's scale; `None` where hptime does not trust it, or there is none.
fn counter() -> Option<TickScale> {
    let frequency = Timebase::get().frequency.filter(|_| precise::fallback_reason().is_none());
    frequency.map(|frequency| TickScale::new(frequency.hz))
}

/// `CLOCK_MONOTONIC` of a moment just passed, by the counter, and within what to either side.
fn at_counter(scale: TickScale, moment: u64) -> (i64, i64) {
    // What was read after the moment is not before it; and the clock is quick from now on.
    let latest_ns = OsClock::Monotonic.now_ns() as i64;
    let (mut at_ns, mut tightest_ps) = (latest_ns, i64::MAX);
    for _ in 0..STAMPS {
        let before = tsc::read_ordered_start();
        let now_ns = OsClock::Monotonic.now_ns() as i64;
        let width_ps = scale.picoseconds(tsc::read_ordered_end().wrapping_sub(before) as i64);
        if width_ps < tightest_ps {
            tightest_ps = width_ps;
            at_ns = now_ns - (scale.picoseconds(before.wrapping_sub(moment) as i64) + width_ps / 2) / 1000;
        }
        if tightest_ps <= TIGHT_PS {
            break;
        }
    }
    (at_ns.min(latest_ns), tightest_ps / 2000)
}

/// Mean CPU time that a sample without a sleep reads: the cost of the clocks, which the sleep must not be charged with.
///
/// `None` where the thread's CPU time is counted in ticks much longer than a sleep takes (10 ms in gVisor): a fine clock
/// advances from nearly every sample to the next.
///
/// Learnt once, at the first call, which [`prepare`] makes while nothing else runs: in a crowded sandbox the system calls
/// of this many samples would outlast the trial.
fn cpu_ns_of_reads() -> Option<f64> {
    static CPU_NS: OnceLock<Option<f64>> = OnceLock::new();
    *CPU_NS.get_or_init(|| {
        let (mut total_ns, mut advanced, counter) = (0, 0, counter());
        for _ in 0..EMPTY_SAMPLES {
            let cpu_ns = sample(counter, |_, _| true, 0).cpu_ns;
            total_ns += cpu_ns;
            advanced += u32::from(cpu_ns > 0);
        }
        (advanced > EMPTY_SAMPLES / 2).then(|| total_ns as f64 / f64::from(EMPTY_SAMPLES))
    })
}

/// Learns what this probe must know of the guest before any load runs in it.
pub fn prepare() {
    cpu_ns_of_reads();
    precise::fallback_reason();
}

fn spin(duration_ns: u64) {
    let start_ns = OsClock::Monotonic.now_ns();
    while OsClock::Monotonic.now_ns().saturating_sub(start_ns) < duration_ns {
        std::hint::spin_loop();
    }
}

fn set_slack(slack_ns: u64) -> Result<(), Failure> {
    if slack_ns == 0 {
        return Ok(());
    }
    // SAFETY: no memory is involved.
    let set = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack_ns as libc::c_ulong) } == 0;
    if set && slack() == Some(slack_ns) {
        return Ok(());
    }
    Err(Failure::unsupported(format!(
        "this kernel does not take a timer slack of {slack_ns} ns (PR_SET_TIMERSLACK; it reads back {})",
        slack().map_or("nothing".into(), |ns| format!("{ns} ns"))
    )))
}

/// Timer slack of the calling thread; `None` where the kernel does not say.
pub(crate) fn slack() -> Option<u64> {
    // SAFETY: no memory is involved.
    u64::try_from(unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) }).ok()
}

fn set_policy(wanted: Policy) -> Result<(), Failure> {
    if wanted == Policy::Fifo {
        let priority = libc::sched_param { sched_priority: FIFO_PRIORITY };
        // The load's threads are this one's children: in the same class they would never let it run again.
        let class = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
        // SAFETY: reads one sched_param; zero means the calling thread.
        let set = unsafe { libc::sched_setscheduler(0, class, &raw const priority) } == 0;
        if !set {
            let error = std::io::Error::last_os_error();
            return Err(Failure {
                errno: error.raw_os_error(),
                ..Failure::unsupported(format!(
                    "SCHED_FIFO was refused ({error}): the agent needs CAP_SYS_NICE, and real-time time in its cgroup"
                ))
            });
        }
    }
    // A sandbox may accept the call and do nothing.
    match policy()? {
        set if set == wanted => Ok(()),
        other => Err(Failure::unsupported(format!("the scheduling class was set, but reads back as {other:?}"))),
    }
}

/// Scheduling class of the calling thread, as read back.
fn policy() -> Result<Policy, Failure> {
    // SAFETY: no memory is involved; zero means the calling thread.
    match unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK {
        libc::SCHED_OTHER => Ok(Policy::Other),
        libc::SCHED_FIFO => Ok(Policy::Fifo),
        number => Err(Failure::unsupported(format!(
            "the agent runs in the scheduling class of number {number}, not in other or fifo"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sleep_lasts_at_least_its_target() {
        for sleep in [usleep as Sleep, nanosleep, clock_nanosleep] {
            for _ in 0..20 {
                let sample = sample(counter(), sleep, 300_000);
                assert!(!sample.completed || sample.lateness_ns >= 0);
            }
        }
    }

    #[test]
    fn slack_is_set_for_the_calling_thread_only() {
        let before = slack();
        std::thread::spawn(|| {
            if set_slack(12_345).is_ok() {
                assert_eq!(slack(), Some(12_345));
            }
        })
        .join()
        .unwrap();
        assert_eq!(slack(), before);
    }
}

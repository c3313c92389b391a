//! Whether threads are on time, cycle by cycle, as a control loop has to be.
//!
//! Each thread has deadlines at a fixed period of `CLOCK_MONOTONIC` and sleeps until each (`clock_nanosleep` with
//! `TIMER_ABSTIME`, as cyclictest does); its lateness is the clock after waking less the deadline.  It may then work for a
//! share of the period, of which time that others take from it is no part.  A deadline that has passed before the cycle of
//! the one before was over is a missed cycle: it is counted and left out, for a controller that is late does not catch up.
//! Another kind never sleeps: it reads the counter back to back and counts the gaps between two reads, as oslat and the
//! kernel's hwlat tracer do.
//!
//! Memory is constant, whatever the time: a histogram and the worst few cycles of each thread.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use bandwidth::pacing::placement::Placement;
use hptime::{OsClock, Scale, tsc};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::sleep_lateness::{IdleStates, sleep_until};
use super::{MaxNs, Measured, Probe, Trial};
use crate::clocks::Timebase;
use crate::distribution::{Distribution, Summary};
use crate::failure::{Code, Failure};
use crate::kernel_trace::{Trace, Window};
use crate::loads::threads::Gate;
use crate::machine::UsageStart;
use crate::parameters::Int;

/// How often the thread that measures nothing looks after the controller's wishes.
const LOOK: Duration = Duration::from_millis(50);

/// From the start of the threads to their first deadline.
const LEAD_NS: u64 = 20_000_000;

/// Cycles without a sleep, to learn what the probe itself takes of a cycle.
const EMPTY_CYCLES: u32 = 1000;

/// Longest step between two looks at the clock that counts as work: in a longer one somebody else ran.
const STEP_NS: u64 = 5_000;

/// Small, for all of it is resident while memory is locked.
const STACK_BYTES: usize = 256 * 1024;

/// Of the worst cycles, those whose time a trace is read of; and how long before, half of it, and after that.
const MOST_TRACED: usize = 100;
const LONGEST_BEFORE_NS: u64 = 50_000_000;
const AFTER_NS: u64 = 10_000;

/// Most threads, and most of the worst cycles that are kept of all of them.
const MOST_THREADS: usize = 256;

/// Its parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    kind: Kind,
    /// Processors, one thread each; none: one thread, wherever the kernel lets it run.
    cpus: Vec<Int<0, 1023>>,
    period_ns: Int<50_000, 1_000_000_000>,
    class: Class,
    priority: Int<1, 98>,
    idle_states: IdleStates,
    /// Whether the threads' deadlines are spread over the period, or the same.
    staggered: bool,
    /// Of the period, in thousandths, for which each cycle works after it has woken.
    work_permille: Int<0, 900>,
    /// Whether the kernel is traced meanwhile, where the agent runs the machine.
    trace: bool,
    /// Cycles, or gaps, of which time and counter are kept.
    worst: Int<0, 1000>,
    max_ns: MaxNs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Sleep,
    Stall,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Class {
    Other,
    Fifo,
    Deadline,
}

/// Result of the probe.
#[derive(Debug, Serialize)]
pub struct CycleResult {
    kind: Kind,
    class: Class,
    period_ns: u64,
    idle_states: IdleStates,
    /// Whether the agent's memory was locked meanwhile.
    locked: bool,
    distribution: Summary,
    /// Deadlines that a cycle was there for, or reads of the counter.
    cycles: u64,
    /// Deadlines that had passed when the cycle before was over; of a thread that has none, nothing.
    missed: Option<u64>,
    longest_missed: Option<u64>,
    threads: Vec<ThreadResult>,
    worst: Vec<Overdue>,
    /// What counting a cycle takes of its period, the largest of a thousand; it comes after lateness is read.
    own_ns: u64,
    /// What the guest's kernel did around the worst cycles, as ftrace tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel_trace: Option<ByteBuf>,
    /// Of how many of these, from the first on, it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel_trace_cycles: Option<u64>,
}

/// One thread's own.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct ThreadResult {
    cpu: Option<u64>,
    cycles: u64,
    missed: u64,
    longest_missed: u64,
    largest_ns: u64,
}

/// One of the worst cycles, or gaps; ordered by how late it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Overdue {
    late_ns: u64,
    thread: u64,
    /// The counter, `CLOCK_MONOTONIC` and the wall clock when the thread had woken, or the gap was over.
    counter: u64,
    monotonic_ns: u64,
    realtime_ns: u64,
}

impl Overdue {
    /// The time in which what made it late happened, and the thread had gone to sleep before.
    fn window(&self, period_ns: u64) -> Window {
        let before_ns = self.late_ns.saturating_add(2 * period_ns.min(LONGEST_BEFORE_NS));
        (self.monotonic_ns.saturating_sub(before_ns), self.monotonic_ns + AFTER_NS)
    }
}

/// What a thread has seen.
struct Seen {
    own: ThreadResult,
    distribution: Distribution,
    worst: BinaryHeap<Reverse<Overdue>>,
    kept: usize,
    run: u64,
}

impl Seen {
    fn new(kept: usize) -> Self {
        let worst = BinaryHeap::with_capacity(kept + 1);
        Self { own: ThreadResult::default(), distribution: Distribution::new(), worst, kept, run: 0 }
    }

    /// One cycle that woke so late, and the deadlines that had passed when it was over.
    #[inline]
    fn cycle(&mut self, late_ns: u64, missed: u64) {
        self.own.cycles += 1;
        self.distribution.record(late_ns.saturating_mul(1000).min(i64::MAX as u64) as i64);
        if missed > 0 {
            self.own.missed += missed;
            self.run += missed;
            self.own.longest_missed = self.own.longest_missed.max(self.run);
        } else {
            self.run = 0;
        }
    }

    /// Whether it belongs to those that are kept.
    #[inline]
    fn is_worse(&self, late_ns: u64) -> bool {
        self.worst.len() < self.kept || self.worst.peek().is_some_and(|Reverse(least)| least.late_ns < late_ns)
    }

    #[inline]
    fn keep(&mut self, thread: u64, late_ns: u64, monotonic_ns: u64) {
        self.own.largest_ns = self.own.largest_ns.max(late_ns);
        if self.is_worse(late_ns) {
            let realtime_ns = OsClock::Realtime.now_ns();
            self.worst.push(Reverse(Overdue { late_ns, thread, counter: tsc::read(), monotonic_ns, realtime_ns }));
            if self.worst.len() > self.kept {
                self.worst.pop();
            }
        }
    }
}

/// What all threads of a trial share.
struct Common {
    asked: Asked,
    gate: Gate,
    first_ns: OnceLock<u64>,
}

impl Common {
    fn goes_on(&self, now: u64, end: u64) -> bool {
        now < end && !self.gate.stopped()
    }
}

impl Probe for CycleResult {
    const NAME: &'static str = "cycle";
    type Parameters = Asked;

    fn run(asked: Asked, trial: &mut Trial) -> Result<Measured<Self>, Failure> {
        let cpus: Vec<Option<u64>> =
            if asked.cpus.is_empty() { vec![None] } else { asked.cpus.iter().map(|cpu| Some(cpu.0)).collect() };
        if cpus.len() > MOST_THREADS {
            let said = format!("params.cpus: {} of them; accepted are at most {MOST_THREADS}", cpus.len());
            return Err(Failure::bad_request(said));
        }
        if asked.class == Class::Deadline && cpus[0].is_some() {
            return Err(Failure::unsupported(
                "SCHED_DEADLINE runs on no chosen processor; leave params.cpus empty, or take class fifo".to_owned(),
            ));
        }
        if asked.kind == Kind::Stall && asked.class == Class::Deadline {
            return Err(Failure::bad_request(
                "params.class: deadline, for a thread that never sleeps; take fifo".to_owned(),
            ));
        }
        if asked.kind == Kind::Stall && asked.class == Class::Fifo && unthrottled() && !leaves_one(&cpus, &allowed()) {
            return Err(Failure::bad_request(
                "params.cpus: threads of class fifo that never sleep would leave no processor to anybody else, the agent \
                 among them, while kernel.sched_rt_runtime_us is -1; leave one out"
                    .to_owned(),
            ));
        }
        let idle_states = asked.idle_states;
        let _held_off = idle_states.hold()?;
        let count = cpus.len();
        let trace = if asked.trace { Trace::begin(allowed().len()) } else { None };
        let common = Arc::new(Common { asked, gate: Gate::default(), first_ns: OnceLock::new() });
        let clocks_start = trial.start()?;
        let usage_start = UsageStart::now();
        let mut threads = Vec::with_capacity(count);
        for (number, &cpu) in cpus.iter().enumerate() {
            let shared = Arc::clone(&common);
            let builder = thread::Builder::new().name(format!("cycle-{number}")).stack_size(STACK_BYTES);
            match builder.spawn(move || measure(&shared, number as u64, cpu, count as u64)) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    common.gate.stop();
                    return Err(Failure::os(&format!("starting thread {} of {count}", number + 1), &error));
                }
            }
        }
        // Locked once all of it is there: a lock on what is still to come makes allocations fail where there is a limit.
        common.gate.wait_for(count);
        let memory = Locked::hold();
        common.gate.open_after(count);
        let max_ns = common.asked.max_ns.0;
        let began_ns = OsClock::Monotonic.now_ns();
        let mut cancelled = Ok(());
        while cancelled.is_ok() && threads.iter().any(|thread| !thread.is_finished()) {
            thread::sleep(LOOK);
            let now_ns = OsClock::Monotonic.now_ns();
            cancelled = trial.still_wanted(now_ns.saturating_sub(began_ns) as f64 / max_ns as f64, now_ns);
        }
        common.gate.stop();
        let ended: Vec<Result<(Seen, u64), Failure>> = threads
            .into_iter()
            .map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(Failure::new(Code::Internal, "a thread of the trial has panicked")))
            })
            .collect();
        cancelled?;
        let around = trial.end(clocks_start, &usage_start);
        let (kind, class, period_ns) = (common.asked.kind, common.asked.class, common.asked.period_ns.0);
        let kept = common.asked.worst.0 as usize;
        let (mut all, mut own_ns, mut each) = (Distribution::new(), 0, Vec::with_capacity(count));
        let mut worst = Vec::with_capacity(kept * count);
        for seen in ended {
            let (seen, own) = seen?;
            all.add(&seen.distribution);
            own_ns = own_ns.max(own);
            each.push(seen.own);
            worst.extend(seen.worst.into_iter().map(|Reverse(late)| late));
        }
        worst.sort_unstable_by(|one, other| other.cmp(one));
        worst.truncate(kept);
        let windows: Vec<Window> = worst.iter().take(MOST_TRACED).map(|late| late.window(period_ns)).collect();
        let traced = trace.map(|trace| trace.within(&windows));
        let (kernel_trace, kernel_trace_cycles) =
            traced.map(|(text, number)| (ByteBuf::from(text), number as u64)).unzip();
        Ok(around.of(Self {
            kind,
            class,
            period_ns,
            idle_states,
            locked: memory.held,
            distribution: all.summary()?,
            cycles: each.iter().map(|one| one.cycles).sum(),
            missed: (kind == Kind::Sleep).then(|| each.iter().map(|one| one.missed).sum()),
            longest_missed: each.iter().map(|one| one.longest_missed).max().filter(|_| kind == Kind::Sleep),
            threads: each,
            worst,
            own_ns,
            kernel_trace,
            kernel_trace_cycles,
        }))
    }
}

/// One thread, from its placement to its last cycle; with what a cycle of its own takes.
fn measure(common: &Common, number: u64, cpu: Option<u64>, count: u64) -> Result<(Seen, u64), Failure> {
    let asked = &common.asked;
    let placed = place(asked, cpu);
    let own_ns = own_ns();
    // Not earlier: what counting a thousand cycles takes would use up the runtime of many.
    let placed = placed.and_then(|()| reserve(asked));
    let mut seen = Seen::new(asked.worst.0 as usize);
    common.gate.pass();
    if let Err(why) = placed {
        common.gate.stop();
        return Err(why);
    }
    seen.own.cpu = cpu;
    let first_ns = *common.first_ns.get_or_init(|| OsClock::Monotonic.now_ns() + LEAD_NS);
    match asked.kind {
        Kind::Sleep => cycles(common, &mut seen, number, first_ns + offset_ns(asked, number, count)),
        Kind::Stall => gaps(common, &mut seen, number, first_ns)?,
    }
    Ok((seen, own_ns))
}

/// By how much a thread's deadlines are behind the first one's.
fn offset_ns(asked: &Asked, number: u64, count: u64) -> u64 {
    if asked.staggered { asked.period_ns.0 * number / count } else { 0 }
}

fn place(asked: &Asked, cpu: Option<u64>) -> Result<(), Failure> {
    let fifo = (asked.class == Class::Fifo).then_some(asked.priority.0 as u8);
    Placement { cpu: cpu.map(|cpu| cpu as usize), fifo }.apply()?;
    if asked.class == Class::Other {
        // The slack is a plain thread's: without this every wake-up would be up to 50 µs late on purpose.
        // SAFETY: no memory is involved.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
    }
    Ok(())
}

/// Takes the work and a tenth of each period, for waking up and counting, where the class is `deadline`.
fn reserve(asked: &Asked) -> Result<(), Failure> {
    if asked.class != Class::Deadline {
        return Ok(());
    }
    let period_ns = asked.period_ns.0;
    set_deadline(period_ns * (asked.work_permille.0 + 100).min(950) / 1000, period_ns)
}

/// `sched_setattr`, for which the C library has no function.
fn set_deadline(runtime_ns: u64, period_ns: u64) -> Result<(), Failure> {
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_DEADLINE as u32,
        flags: 0,
        nice: 0,
        priority: 0,
        runtime: runtime_ns,
        deadline: period_ns,
        period: period_ns,
    };
    // SAFETY: reads one structure of the size that it says; zero means the calling thread.
    if unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) } < 0 {
        let error = std::io::Error::last_os_error();
        return Err(Failure::unsupported(format!(
            "SCHED_DEADLINE of {runtime_ns} ns in {period_ns} ns was refused ({error}); it takes CAP_SYS_NICE, a share of \
             the processors that is still free, and a period of kernel.sched_deadline_period_min_us (100) or more"
        )));
    }
    Ok(())
}

/// Sleeps until each deadline, and works.
fn cycles(common: &Common, seen: &mut Seen, number: u64, first_ns: u64) {
    let period_ns = common.asked.period_ns.0;
    let work_ns = period_ns * common.asked.work_permille.0 / 1000;
    // The first wake-up is no cycle: it is the first use of all that it touches, and on a crowded guest a thread may get
    // here only after its first deadlines.
    sleep_until(first_ns);
    let passed = OsClock::Monotonic.now_ns().saturating_sub(first_ns) / period_ns;
    let mut deadline_ns = first_ns + (1 + passed) * period_ns;
    let end_ns = deadline_ns + common.asked.max_ns.0;
    while common.goes_on(deadline_ns, end_ns) {
        if !sleep_until(deadline_ns) {
            continue; // a signal; the deadline is still to come, or has just passed
        }
        let woken_ns = OsClock::Monotonic.now_ns();
        let late_ns = woken_ns.saturating_sub(deadline_ns);
        seen.keep(number, late_ns, woken_ns);
        let over_ns = work(work_ns, woken_ns, || OsClock::Monotonic.now_ns());
        let missed = over_ns.saturating_sub(deadline_ns) / period_ns;
        seen.cycle(late_ns, missed);
        deadline_ns += (1 + missed) * period_ns;
    }
}

/// Works so long, and tells when it was over: a program that is interrupted has as much left to do as before.
#[inline]
fn work(work_ns: u64, woken_ns: u64, mut clock: impl FnMut() -> u64) -> u64 {
    let (mut worked_ns, mut over_ns) = (0, woken_ns);
    while worked_ns < work_ns {
        let now_ns = clock();
        worked_ns += now_ns.saturating_sub(over_ns).min(STEP_NS);
        over_ns = now_ns;
    }
    over_ns
}

/// Reads the counter back to back.  The counter tells the end too: a look at a clock would be a gap that nobody sees.
fn gaps(common: &Common, seen: &mut Seen, number: u64, first_ns: u64) -> Result<(), Failure> {
    let hz = Timebase::get().frequency()?.hz;
    let scale = Scale::new(1e9 / hz).ok_or_else(|| Failure::unsupported(format!("a counter of {hz} Hz")))?;
    let ticks = (common.asked.max_ns.0 as f64 * hz / 1e9) as u64;
    sleep_until(first_ns);
    let first = tsc::read();
    let mut last = first;
    while common.goes_on(last.saturating_sub(first), ticks) {
        let now = tsc::read();
        let gap_ns = scale.nanoseconds(now.saturating_sub(last));
        last = now;
        seen.own.cycles += 1;
        seen.distribution.record(gap_ns as i64 * 1000);
        seen.own.largest_ns = seen.own.largest_ns.max(gap_ns);
        if seen.is_worse(gap_ns) {
            seen.keep(number, gap_ns, OsClock::Monotonic.now_ns());
            last = tsc::read(); // what keeping took is no gap
        }
    }
    Ok(())
}

/// The largest time that a cycle without a sleep takes: reading, counting, keeping.
fn own_ns() -> u64 {
    let mut seen = Seen::new(1);
    (0..EMPTY_CYCLES)
        .map(|_| {
            let start_ns = OsClock::Monotonic.now_ns();
            seen.keep(0, start_ns, start_ns);
            seen.cycle(start_ns, 0);
            OsClock::Monotonic.now_ns().saturating_sub(start_ns)
        })
        .max()
        .unwrap_or(0)
}

/// Whether the kernel lets real-time threads have all of a processor for ever.
fn unthrottled() -> bool {
    std::fs::read_to_string("/proc/sys/kernel/sched_rt_runtime_us").is_ok_and(|runtime| runtime.trim() == "-1")
}

/// Processors that the calling thread, like the agent's others, may run on.
fn allowed() -> Vec<u64> {
    // SAFETY: a set of processors is plain bits, for which zero is a value; the macro is asked within its bounds.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
        (0..libc::CPU_SETSIZE as u64).filter(|&cpu| libc::CPU_ISSET(cpu as usize, &set)).collect()
    }
}

/// Whether threads on these leave one of those that are allowed to others.
fn leaves_one(cpus: &[Option<u64>], allowed: &[u64]) -> bool {
    allowed.iter().filter(|&&cpu| !cpus.contains(&Some(cpu))).count() > usize::from(cpus.contains(&None))
}

/// The agent's memory of this moment, locked as long as this lives, where the guest lets.
struct Locked {
    held: bool,
}

impl Locked {
    fn hold() -> Self {
        // SAFETY: no memory of ours is involved.
        Self { held: unsafe { libc::mlockall(libc::MCL_CURRENT) } == 0 }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if self.held {
            // SAFETY: no memory of ours is involved.
            unsafe { libc::munlockall() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_are_kept_and_misses_are_counted_in_runs() {
        let mut seen = Seen::new(2);
        for (late_ns, missed) in [(5, 0), (900, 2), (700, 1), (3, 0), (800, 1)] {
            seen.keep(0, late_ns, late_ns);
            seen.cycle(late_ns, missed);
        }
        let mut kept: Vec<u64> = seen.worst.iter().map(|Reverse(late)| late.late_ns).collect();
        kept.sort_unstable();
        assert_eq!(kept, [800, 900]);
        assert_eq!((seen.own.missed, seen.own.longest_missed, seen.own.largest_ns), (4, 3, 900));
    }

    #[test]
    fn work_that_is_interrupted_is_over_later() {
        let mut now_ns = 0;
        let mut clock = || {
            now_ns += if now_ns == 10_000 { 1_000_000 } else { 1000 };
            now_ns
        };
        assert_eq!(work(20_000, 0, &mut clock), 1_015_000);
        assert_eq!(work(0, 7, clock), 7);
    }

    #[test]
    fn a_processor_is_left_to_others_unless_all_are_taken() {
        assert!(
            leaves_one(&[Some(0)], &[0, 1]) && leaves_one(&[Some(2), Some(3)], &[0]) && leaves_one(&[None], &[0, 1])
        );
        assert!(!leaves_one(&[Some(0), Some(1)], &[0, 1]) && !leaves_one(&[None], &[0]));
    }
}

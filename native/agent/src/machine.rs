//! What the whole machine did, as the machine itself counts it, and what a thread of this agent used of it.

use std::fs::File;
use std::io::Read;
use std::sync::{Mutex, PoisonError};

use hptime::OsClock;
use serde::Serialize;

/// More than `/proc/stat` of a machine with a thousand interrupts.
const LARGEST_STAT: usize = 64 * 1024;

/// Counters of all processors since the machine was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    read_ns: u64,
    ticks: Option<Ticks>,
    interrupts: Option<u64>,
    context_switches: Option<u64>,
}

/// In units of `USER_HZ`, usually 10 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    busy: u64,
    total: u64,
    steal: u64,
}

/// How busy the machine was over a time, this agent's own work included.  A figure is `None` where the kernel does not count it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Achieved {
    /// The time, by the monotonic clock.
    pub elapsed_ns: u64,
    /// Share of the time of all processors that was neither idle, waiting for a disk nor stolen.
    pub cpu_busy_share: Option<f64>,
    /// Interrupts served a second, by all processors.
    pub interrupts_per_s: Option<f64>,
    /// Context switches a second, on all processors.
    pub context_switches_per_s: Option<f64>,
}

impl Counters {
    /// The counters now, by three system calls: in a crowded sandbox each would cost as much as a short trial.
    #[must_use]
    pub fn read() -> Self {
        // Kept, because fresh memory would cost further calls.
        static BUFFER: Mutex<[u8; LARGEST_STAT]> = Mutex::new([0; LARGEST_STAT]);
        let mut buffer = BUFFER.lock().unwrap_or_else(PoisonError::into_inner);
        let length = File::open("/proc/stat").and_then(|mut file| file.read(&mut *buffer)).unwrap_or(0);
        Self { read_ns: OsClock::Monotonic.now_ns(), ..Self::parse(&String::from_utf8_lossy(&buffer[..length])) }
    }

    /// A sandbox that invents the file leaves its counters at zero, which no running machine's are.
    fn parse(stat: &str) -> Self {
        let after = |prefix: &str| stat.lines().find_map(|line| line.strip_prefix(prefix));
        let first = |prefix: &str| after(prefix)?.split(' ').next()?.parse().ok().filter(|&count: &u64| count > 0);
        Self {
            read_ns: 0,
            ticks: after("cpu ").and_then(Ticks::parse).filter(|ticks| ticks.total > 0),
            interrupts: first("intr "),
            context_switches: first("ctxt "),
        }
    }

    /// Time stolen from all processors up to now, as the machine sees it.
    #[must_use]
    pub fn steal_ns(&self) -> Option<u64> {
        self.ticks.map(|ticks| ticks_to_ns(ticks.steal))
    }

    /// What the machine did since an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Achieved {
        let elapsed_ns = self.read_ns.saturating_sub(earlier.read_ns);
        let per_second = |now: Option<u64>, then: Option<u64>| {
            let count = now?.checked_sub(then?)?;
            (elapsed_ns > 0).then(|| count as f64 / (elapsed_ns as f64 * 1e-9))
        };
        Achieved {
            elapsed_ns,
            cpu_busy_share: self.ticks.zip(earlier.ticks).and_then(|(now, then)| now.busy_share_since(then)),
            interrupts_per_s: per_second(self.interrupts, earlier.interrupts),
            context_switches_per_s: per_second(self.context_switches, earlier.context_switches),
        }
    }
}

impl Ticks {
    /// user, nice, system, idle, iowait, irq, softirq, steal; guests' time, which follows, is part of the first two.
    fn parse(line: &str) -> Option<Self> {
        let figures: Vec<u64> = line.split_whitespace().take(8).map(str::parse).collect::<Result<_, _>>().ok()?;
        let &[user, nice, system, idle, iowait, irq, softirq, steal] = figures.as_slice() else { return None };
        let busy = user + nice + system + irq + softirq;
        Some(Self { busy, total: busy + idle + iowait + steal, steal })
    }

    /// `None` over less than one tick, and where a counter went backwards, as that of `iowait` may.
    fn busy_share_since(self, earlier: Self) -> Option<f64> {
        let total = self.total.checked_sub(earlier.total).filter(|&ticks| ticks > 0)?;
        let busy = self.busy.checked_sub(earlier.busy)?;
        Some((busy as f64 / total as f64).min(1.0))
    }
}

/// Counters of the calling thread and of the machine at one instant.
#[derive(Clone, Copy, Debug)]
pub struct UsageStart {
    thread: ThreadUse,
    machine: Counters,
}

#[derive(Clone, Copy, Debug)]
struct ThreadUse {
    cpu_ns: u64,
    voluntary_switches: u64,
    involuntary_switches: u64,
    major_faults: u64,
    read_ns: u64,
}

/// Resources used by the calling thread between two instants.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Usage {
    cpu_ns: u64,
    voluntary_switches: u64,
    involuntary_switches: u64,
    major_faults: u64,
    /// Time stolen from all processors of the guest, as the guest sees it; in ticks of `USER_HZ`, usually 10 ms.
    steal_ns: Option<u64>,
    elapsed_ns: u64,
    /// What all processors of the guest did.
    machine: Achieved,
}

impl UsageStart {
    /// The counters now; the thread that took them says what was used since.
    #[must_use]
    pub fn now() -> Self {
        let machine = Counters::read();
        Self { thread: ThreadUse::now(), machine }
    }

    /// What was used since then.
    #[must_use]
    pub fn used(&self) -> Usage {
        let (thread, earlier) = (ThreadUse::now(), &self.thread);
        let machine = Counters::read();
        Usage {
            cpu_ns: thread.cpu_ns.saturating_sub(earlier.cpu_ns),
            voluntary_switches: thread.voluntary_switches.saturating_sub(earlier.voluntary_switches),
            involuntary_switches: thread.involuntary_switches.saturating_sub(earlier.involuntary_switches),
            major_faults: thread.major_faults.saturating_sub(earlier.major_faults),
            steal_ns: machine.steal_ns().zip(self.machine.steal_ns()).map(|(now, then)| now.saturating_sub(then)),
            elapsed_ns: thread.read_ns.saturating_sub(earlier.read_ns),
            machine: machine.since(&self.machine),
        }
    }
}

impl ThreadUse {
    fn now() -> Self {
        // SAFETY: rusage is plain integers, for which zero is a value; the call fills it for the calling thread.
        let counters = unsafe {
            let mut counters: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_THREAD, &raw mut counters);
            counters
        };
        Self {
            cpu_ns: OsClock::ThreadCpu.now_ns(),
            voluntary_switches: counters.ru_nvcsw as u64,
            involuntary_switches: counters.ru_nivcsw as u64,
            major_faults: counters.ru_majflt as u64,
            read_ns: OsClock::Monotonic.now_ns(),
        }
    }
}

fn ticks_to_ns(ticks: u64) -> u64 {
    // SAFETY: reads a constant of the system.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    ticks.saturating_mul(1_000_000_000 / u64::try_from(ticks_per_second).unwrap_or(100).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EARLIER: &str = "cpu  10 0 10 70 10 0 0 0 0 0\ncpu0 1 1 1 1 1 1 1 1 1 1\nintr 1000 5 6\nctxt 500\nbtime 7\n";
    const LATER: &str = "cpu  40 5 30 90 20 3 2 10 0 0\ncpu0 1 1 1 1 1 1 1 1 1 1\nintr 3000 5 6\nctxt 1500\nbtime 7\n";

    fn at(read_ns: u64, stat: &str) -> Counters {
        Counters { read_ns, ..Counters::parse(stat) }
    }

    #[test]
    fn waiting_for_a_disk_and_stolen_time_are_not_busy() {
        let achieved = at(3_000_000_000, LATER).since(&at(1_000_000_000, EARLIER));
        // 30 user + 5 nice + 20 system + 3 irq + 2 softirq, of 100 in all.
        assert_eq!(achieved.cpu_busy_share, Some(0.6));
        assert_eq!(achieved.interrupts_per_s, Some(1000.0));
        assert_eq!(achieved.context_switches_per_s, Some(500.0));
        assert_eq!(achieved.elapsed_ns, 2_000_000_000);
    }

    #[test]
    fn steal_is_the_eighth_figure_of_the_sum_line() {
        assert_eq!(at(0, LATER).steal_ns(), Some(ticks_to_ns(10)));
        assert_eq!(at(0, "cpu  1 2 3 4\n").steal_ns(), None);
        assert_eq!(at(0, "cpu0 1 2 3 4 5 6 7 8\n").steal_ns(), None);
    }

    #[test]
    fn what_a_machine_does_not_tell_is_unknown_and_not_zero() {
        let invented = "cpu  0 0 0 0 0 0 0 0 0 0\nintr 0\nctxt 0\n";
        for stat in [invented, ""] {
            let achieved = at(2_000_000_000, stat).since(&at(1_000_000_000, stat));
            let expected = Achieved {
                elapsed_ns: 1_000_000_000,
                cpu_busy_share: None,
                interrupts_per_s: None,
                context_switches_per_s: None,
            };
            assert_eq!(achieved, expected);
        }
    }

    #[test]
    fn this_machine_tells_what_it_does() {
        let earlier = Counters::read();
        std::thread::sleep(std::time::Duration::from_millis(100));
        let achieved = Counters::read().since(&earlier);
        assert!(achieved.elapsed_ns >= 100_000_000);
        assert!(achieved.cpu_busy_share.is_some_and(|share| (0.0..=1.0).contains(&share)), "{achieved:?}");
        assert!(achieved.context_switches_per_s.is_some_and(|rate| rate > 0.0), "{achieved:?}");
    }

    #[test]
    fn cpu_time_of_a_busy_thread_is_counted() {
        let start = UsageStart::now();
        let busy_until_ns = OsClock::ThreadCpu.now_ns() + 5_000_000;
        while OsClock::ThreadCpu.now_ns() < busy_until_ns {}
        let used = start.used();
        assert!(used.cpu_ns >= 5_000_000 && used.elapsed_ns >= used.cpu_ns - 1_000_000, "{used:?}");
    }
}

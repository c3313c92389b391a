//! What a probe's thread used of the machine, and what the machine did meanwhile.

use hptime::OsClock;
use serde::Serialize;

use crate::machine::{Achieved, Counters};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_of_a_busy_thread_is_counted() {
        let start = UsageStart::now();
        let busy_until_ns = OsClock::ThreadCpu.now_ns() + 5_000_000;
        while OsClock::ThreadCpu.now_ns() < busy_until_ns {}
        let used = start.used();
        assert!(used.cpu_ns >= 5_000_000 && used.elapsed_ns >= used.cpu_ns - 1_000_000, "{used:?}");
    }
}

//! What a probe's thread used of the machine.

use std::fs::File;
use std::io::Read;

use hptime::OsClock;
use serde::Serialize;

/// Resources used by the calling thread between two instants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Usage {
    cpu_ns: u64,
    voluntary_switches: u64,
    involuntary_switches: u64,
    major_faults: u64,
    /// Time stolen from all processors of the guest, as the guest sees it; in ticks of `USER_HZ`, usually 10 ms.
    steal_ns: Option<u64>,
    elapsed_ns: u64,
}

impl Usage {
    /// The counters now; call [`Self::since`] on a later reading by the same thread.
    #[must_use]
    pub fn now() -> Self {
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
            steal_ns: first_bytes("/proc/stat").as_deref().and_then(steal_ticks).map(ticks_to_ns),
            elapsed_ns: OsClock::Monotonic.now_ns(),
        }
    }

    /// What was used since an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            voluntary_switches: self.voluntary_switches.saturating_sub(earlier.voluntary_switches),
            involuntary_switches: self.involuntary_switches.saturating_sub(earlier.involuntary_switches),
            major_faults: self.major_faults.saturating_sub(earlier.major_faults),
            steal_ns: self.steal_ns.zip(earlier.steal_ns).map(|(now, then)| now.saturating_sub(then)),
            elapsed_ns: self.elapsed_ns.saturating_sub(earlier.elapsed_ns),
        }
    }
}

/// The beginning of a small file of the kernel's in a single read: in a crowded sandbox every further system call would
/// cost as much as a short trial.
fn first_bytes(path: &str) -> Option<String> {
    let mut buffer = [0; 512];
    let length = File::open(path).ok()?.read(&mut buffer).ok()?;
    Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
}

/// The eighth figure of the line of all processors.
fn steal_ticks(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    line.split_whitespace().nth(7)?.parse().ok()
}

fn ticks_to_ns(ticks: u64) -> u64 {
    // SAFETY: reads a constant of the system.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    ticks.saturating_mul(1_000_000_000 / u64::try_from(ticks_per_second).unwrap_or(100).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_the_eighth_figure_of_the_sum_line() {
        assert_eq!(steal_ticks("cpu  1 2 3 4 5 6 7 88 9 10\ncpu0 0 0 0 0 0 0 0 1 0 0\n"), Some(88));
        assert_eq!(steal_ticks("cpu  1 2 3 4\n"), None);
        assert_eq!(steal_ticks("intr 5\n"), None);
    }

    #[test]
    fn cpu_time_of_a_busy_thread_is_counted() {
        let start = Usage::now();
        while Usage::now().since(&start).cpu_ns < 5_000_000 {}
        let used = Usage::now().since(&start);
        assert!(used.elapsed_ns >= used.cpu_ns - 1_000_000, "{used:?}");
    }
}

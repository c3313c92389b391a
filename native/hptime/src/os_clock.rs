//! The operating system's clocks, in nanoseconds.

/// A clock of the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum OsClock {
    /// Since boot without suspend, slewed by NTP.
    Monotonic = libc::CLOCK_MONOTONIC,
    /// Since boot without suspend, not slewed.
    MonotonicRaw = libc::CLOCK_MONOTONIC_RAW,
    /// Since 1970, stepped and slewed.
    Realtime = libc::CLOCK_REALTIME,
    /// Since boot with suspend.
    Boottime = libc::CLOCK_BOOTTIME,
    /// CPU time of the calling thread.
    ThreadCpu = libc::CLOCK_THREAD_CPUTIME_ID,
}

impl OsClock {
    /// Reads the clock, in nanoseconds.
    ///
    /// Every Linux since 2.6.39 has all of these clocks; where a sandbox leaves one out, it reads as zero.
    #[inline]
    #[must_use]
    pub fn now_ns(self) -> u64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes one timespec through a valid pointer.
        unsafe { libc::clock_gettime(self as i32, &raw mut time) };
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_clocks_advance() {
        for clock in [OsClock::Monotonic, OsClock::MonotonicRaw, OsClock::Boottime] {
            let first = clock.now_ns();
            std::thread::sleep(std::time::Duration::from_millis(2));
            assert!(clock.now_ns() >= first + 2_000_000, "{clock:?}");
        }
    }
}

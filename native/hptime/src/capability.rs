//! What this machine says of its time stamp counter.

use std::fs;

/// What the processor, the hypervisor and the kernel say of the time stamp counter.
#[derive(Clone, Debug, PartialEq)]
pub struct Capability {
    /// The processor has the counter.
    pub counter: bool,
    /// The processor has a read that waits for earlier instructions (`rdtscp`).
    pub serialized_read: bool,
    /// The counter runs at one rate in every power state, as far as CPUID says.
    pub invariant: bool,
    /// The hypervisor that shows itself, if any.
    pub hypervisor: Option<Hypervisor>,
    /// Frequencies as stated by CPUID, most trustworthy first.  None of them is exact; see [`crate::calibration`].
    pub stated: Vec<StatedFrequency>,
    /// Vendor of the processor as CPUID gives it.
    pub vendor: String,
}

/// A hypervisor that shows itself to its guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hypervisor {
    /// Twelve characters at most, such as `KVMKVMKVM` or `TCGTCGTCGTCG`; empty when it names none.
    pub signature: String,
    /// The last leaf of its own that may be asked for.
    pub max_leaf: u32,
}

/// A frequency that CPUID states.
#[derive(Clone, Debug, PartialEq)]
pub struct StatedFrequency {
    /// The leaf: `cpuid-15h`, `cpuid-16h`, `cpuid-40000010h`.
    pub source: &'static str,
    /// Ticks a second.
    pub hz: f64,
}

impl Capability {
    /// Asks the processor.
    #[must_use]
    pub fn detect() -> Self {
        crate::arch::capability()
    }
}

/// Whether the kernel found that the counter goes on in deep sleep states; `None` where it does not say.
#[must_use]
pub fn nonstop() -> Option<bool> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let flags = info.lines().find_map(|line| line.strip_prefix("flags"))?;
    Some(flags.split_whitespace().any(|flag| flag == "nonstop_tsc"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stated_frequencies_are_plausible() {
        for stated in Capability::detect().stated {
            // From the slowest counter of an aarch64 system to above the fastest processor.
            assert!((1e6..1e11).contains(&stated.hz), "{stated:?}");
        }
    }
}

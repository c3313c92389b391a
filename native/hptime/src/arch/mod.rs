//! What differs between processor architectures.
//!
//! An architecture module offers the same items as `x86_64`: the reads `read`, `read_after_loads`, `read_ordered_start`, `read_ordered_end` and
//! `read_serialized`, and what `capability`, `permitted`, `invariant`, `CLOCKSOURCE` and `doze_until` say of the counter.
//! Nothing outside this folder names an instruction.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "aarch64")]
use aarch64 as this;

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
use x86_64 as this;

pub(crate) use this::{CLOCKSOURCE, capability, doze_until, invariant, permitted};
pub use this::{read, read_after_loads, read_ordered_end, read_ordered_start, read_serialized};

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("hptime has no time stamp counter for this architecture yet: add a module beside arch/x86_64.rs");

//! What differs between processor architectures.
//!
//! An architecture module offers the same items as `x86_64`: `read`, `read_ordered_start`, `read_ordered_end`,
//! `read_serialized` and `capability`.  Nothing outside this folder names an instruction.

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{CLOCKSOURCE, capability, doze_until, invariant, permitted};
#[cfg(target_arch = "x86_64")]
pub use x86_64::{read, read_ordered_end, read_ordered_start, read_serialized};

#[cfg(not(target_arch = "x86_64"))]
compile_error!("hptime has no time stamp counter for this architecture yet: add a module beside arch/x86_64.rs");

//! The virtual counter of aarch64, `CNTVCT_EL0`, and its stated frequency, `CNTFRQ_EL0`.

use core::arch::asm;

use crate::capability::{Capability, StatedFrequency};
use crate::status::Fallback;

/// Reads the counter; neither earlier nor later instructions are held back.
#[inline(always)]
#[must_use]
pub fn read() -> u64 {
    let value: u64;
    // SAFETY: Linux lets programs read the register, in hardware or by emulation.  Not `nomem`, so that the compiler
    // keeps two readings apart and in order.
    unsafe { asm!("mrs {}, cntvct_el0", out(reg) value, options(nostack, preserves_flags)) };
    value
}

/// Reads the counter after all earlier instructions: the barrier keeps the read from being speculated ahead.
#[inline(always)]
#[must_use]
pub fn read_serialized() -> u64 {
    let value: u64;
    // SAFETY: a barrier and a read, see `read`.
    unsafe { asm!("isb", "mrs {}, cntvct_el0", out(reg) value, options(nostack, preserves_flags)) };
    value
}

/// Reads the counter after all earlier loads.
#[inline(always)]
#[must_use]
pub fn read_after_loads() -> u64 {
    read_serialized()
}

/// Reads the counter at the start of a measured section: after all earlier instructions, before all later ones.
#[inline(always)]
#[must_use]
pub fn read_ordered_start() -> u64 {
    let value: u64;
    // SAFETY: barriers and a read, see `read`.
    unsafe { asm!("isb", "mrs {}, cntvct_el0", "isb", out(reg) value, options(nostack, preserves_flags)) };
    value
}

/// Reads the counter at the end of a measured section: after all instructions of the section.
#[inline(always)]
#[must_use]
pub fn read_ordered_end() -> u64 {
    read_ordered_start()
}

/// The counter's name in the kernel's list of clock sources.
pub(crate) const CLOCKSOURCE: &str = "arch_sys_counter";

/// Whether this process can read the counter at all.
pub(crate) fn permitted() -> Result<(), Fallback> {
    const PR_TSC_SIGSEGV: libc::c_int = 2;
    const PR_GET_TSC: libc::c_int = 25;
    let mut mode: libc::c_int = 0;
    // SAFETY: PR_GET_TSC writes one int; kernels before 6.12 do not know it here and leave it as it is.
    unsafe { libc::prctl(PR_GET_TSC, &raw mut mode) };
    if mode == PR_TSC_SIGSEGV { Err(Fallback::Forbidden) } else { Ok(()) }
}

/// The architecture demands one rate in every power state (Arm ARM D12.1, the system counter).
pub(crate) const fn invariant() -> bool {
    true
}

/// Waiting for an event ends at once or at the kernel's event stream (about 100 µs): too coarse for a deadline, so there is
/// no doze here, and the spin loop yields.
pub(crate) const fn doze_until(_ticks: u64) -> bool {
    false
}

/// What the architecture promises; a hypervisor does not show itself to programs here.
pub(crate) fn capability() -> Capability {
    let hz: u64;
    // SAFETY: firmware sets the register, and programs may read it.
    unsafe { asm!("mrs {}, cntfrq_el0", out(reg) hz, options(nomem, nostack, preserves_flags)) };
    let stated = (hz > 0).then_some(StatedFrequency { source: "cntfrq-el0", hz: hz as f64 });
    Capability {
        counter: true,
        serialized_read: true,
        invariant: invariant(),
        hypervisor: None,
        stated: stated.into_iter().collect(),
        vendor: String::new(),
    }
}

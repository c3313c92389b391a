//! The time stamp counter of x86-64, and what CPUID says of it.

use core::arch::x86_64::{__cpuid, __cpuid_count, __rdtscp, _mm_lfence, _rdtsc, CpuidResult};
use core::sync::atomic::{AtomicU8, Ordering};

use crate::capability::{Capability, Hypervisor, StatedFrequency};
use crate::status::Fallback;

/// Reads the counter with a plain `rdtsc`: neither earlier nor later instructions are held back.
#[inline(always)]
#[must_use]
pub fn read() -> u64 {
    // SAFETY: every x86-64 processor has RDTSC; where the kernel forbids it the process gets a signal, no undefined behaviour.
    unsafe { _rdtsc() }
}

/// Reads the counter with `rdtscp`, which waits for earlier instructions to complete.
///
/// Call it only where [`Capability::serialized_read`] is true.
#[inline(always)]
#[must_use]
pub fn read_serialized() -> u64 {
    let mut processor = 0;
    // SAFETY: writes to the local only; the caller has checked that the instruction exists (else SIGILL).
    unsafe { __rdtscp(&raw mut processor) }
}

/// Reads the counter after all earlier loads, as the kernel's own clock does.
#[inline(always)]
#[must_use]
pub fn read_after_loads() -> u64 {
    // SAFETY: LFENCE is part of SSE2, which x86-64 guarantees.
    unsafe {
        _mm_lfence();
        _rdtsc()
    }
}

/// Reads the counter at the start of a measured section: after all earlier instructions, before all later ones.
#[inline(always)]
#[must_use]
pub fn read_ordered_start() -> u64 {
    // SAFETY: LFENCE is part of SSE2, which x86-64 guarantees.
    unsafe {
        _mm_lfence();
        let value = _rdtsc();
        _mm_lfence();
        value
    }
}

/// Reads the counter at the end of a measured section: after all instructions of the section.
#[inline(always)]
#[must_use]
pub fn read_ordered_end() -> u64 {
    read_ordered_start()
}

/// Waits in the C0.1 state until about this tick, or shorter; false where the processor has no WAITPKG.
pub(crate) fn doze_until(ticks: u64) -> bool {
    if !waitpkg() {
        return false;
    }
    // SAFETY: `tpause ecx`, checked to exist; it writes flags only.  Bytes, because assemblers may not know it.
    unsafe {
        core::arch::asm!(
            ".byte 0x66, 0x0f, 0xae, 0xf1",
            in("ecx") 1u32,
            in("eax") ticks as u32,
            in("edx") (ticks >> 32) as u32,
            options(nomem, nostack),
        );
    }
    true
}

/// Whether CPUID shows WAITPKG (leaf 7, ECX bit 5).  Asked once: inside a guest, CPUID costs an exit.
fn waitpkg() -> bool {
    static KNOWN: AtomicU8 = AtomicU8::new(0);
    const PRESENT: u8 = 1;
    const ABSENT: u8 = 2;
    match KNOWN.load(Ordering::Relaxed) {
        0 => {
            let present = leaf(0).eax >= 7 && leaf_count(7, 0).ecx & (1 << 5) != 0;
            KNOWN.store(if present { PRESENT } else { ABSENT }, Ordering::Relaxed);
            present
        }
        known => known == PRESENT,
    }
}

/// The counter's name in the kernel's list of clock sources.
pub(crate) const CLOCKSOURCE: &str = "tsc";

/// Whether this process can read the counter at all.
pub(crate) fn permitted() -> Result<(), Fallback> {
    let mut mode: libc::c_int = 0;
    // SAFETY: PR_GET_TSC writes one int.  An old or emulated kernel fails and leaves it as it is.
    unsafe { libc::prctl(libc::PR_GET_TSC, &raw mut mode) };
    if mode == libc::PR_TSC_SIGSEGV {
        return Err(Fallback::Forbidden);
    }
    if leaf(0).eax >= 1 && leaf(1).edx & (1 << 4) != 0 { Ok(()) } else { Err(Fallback::NoCounter) }
}

/// Whether the counter runs at one rate in every power state: CPUID 80000007h, EDX bit 8.
pub(crate) fn invariant() -> bool {
    leaf(0x8000_0000).eax >= 0x8000_0007 && leaf(0x8000_0007).edx & (1 << 8) != 0
}

/// Asks CPUID for everything that concerns the counter.
pub(crate) fn capability() -> Capability {
    let basic = leaf(0);
    let features = if basic.eax >= 1 { leaf(1) } else { EMPTY };
    let extended_max = leaf(0x8000_0000).eax;
    let extended = |number: u32| {
        if extended_max >= number { leaf(number) } else { EMPTY }
    };
    let power = extended(0x8000_0007);
    let present = features.ecx & (1 << 31) != 0;
    Capability {
        counter: features.edx & (1 << 4) != 0,
        serialized_read: extended(0x8000_0001).edx & (1 << 27) != 0,
        invariant: power.edx & (1 << 8) != 0,
        hypervisor: present.then(hypervisor),
        stated: stated_frequency(basic.eax, present),
        vendor: text(&[basic.ebx, basic.edx, basic.ecx]),
    }
}

const EMPTY: CpuidResult = CpuidResult { eax: 0, ebx: 0, ecx: 0, edx: 0 };

fn leaf(number: u32) -> CpuidResult {
    // SAFETY: every x86-64 processor has CPUID.
    #[allow(unused_unsafe)]
    unsafe {
        __cpuid(number)
    }
}

fn leaf_count(number: u32, sub: u32) -> CpuidResult {
    // SAFETY: every x86-64 processor has CPUID.
    #[allow(unused_unsafe)]
    unsafe {
        __cpuid_count(number, sub)
    }
}

fn hypervisor() -> Hypervisor {
    let base = leaf(0x4000_0000);
    Hypervisor { signature: text(&[base.ebx, base.ecx, base.edx]), max_leaf: base.eax }
}

/// The frequency as stated, most trustworthy first: by the hypervisor, then by crystal and ratio, then as the nominal clock.
fn stated_frequency(basic_max: u32, hypervisor_present: bool) -> Vec<StatedFrequency> {
    let mut stated = Vec::new();
    // The leaf means kHz by VMware's convention, which KVM, QEMU and others follow; a hypervisor without it has a
    // smaller maximum leaf, and an intercepted CPUID must not be believed beyond it.
    if hypervisor_present && (0x4000_0010..0x4000_1000).contains(&leaf(0x4000_0000).eax) {
        let khz = leaf(0x4000_0010).eax;
        if khz != 0 {
            stated.push(StatedFrequency { source: "cpuid-40000010h", hz: f64::from(khz) * 1e3 });
        }
    }
    if basic_max >= 0x15 {
        let ratio = leaf_count(0x15, 0);
        if ratio.eax != 0 && ratio.ebx != 0 && ratio.ecx != 0 {
            let hz = f64::from(ratio.ecx) * f64::from(ratio.ebx) / f64::from(ratio.eax);
            stated.push(StatedFrequency { source: "cpuid-15h", hz });
        }
    }
    if basic_max >= 0x16 {
        let mhz = leaf_count(0x16, 0).eax & 0xffff;
        if mhz != 0 {
            stated.push(StatedFrequency { source: "cpuid-16h", hz: f64::from(mhz) * 1e6 });
        }
    }
    stated
}

/// The text in registers, without padding; characters that do not print become dots.
fn text(registers: &[u32]) -> String {
    let bytes: Vec<u8> = registers.iter().flat_map(|register| register.to_le_bytes()).collect();
    let end = bytes.iter().rposition(|&byte| byte != 0 && byte != b' ').map_or(0, |last| last + 1);
    bytes[..end].iter().map(|&byte| if (0x20..0x7f).contains(&byte) { char::from(byte) } else { '.' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_drops_padding_only() {
        assert_eq!(
            text(&[u32::from_le_bytes(*b"KVMK"), u32::from_le_bytes(*b"VMKV"), u32::from_le_bytes(*b"M\0\0\0")]),
            "KVMKVMKVM"
        );
        assert_eq!(text(&[0, 0]), "");
        assert_eq!(text(&[u32::from_le_bytes(*b"a\0b ")]), "a.b");
    }

    #[test]
    fn ordered_reads_do_not_go_back_on_one_processor() {
        let mut last = read_ordered_start();
        for _ in 0..1000 {
            let next = read_ordered_end();
            assert!(next.wrapping_sub(last) as i64 >= 0 || !capability().invariant);
            last = next;
        }
    }
}

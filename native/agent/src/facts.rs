//! Which agent this is, and what this guest is: kernel, processor, clocks, limits.  A fact that cannot be had is nil.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use hptime::OsClock;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::clocks::Timebase;
use crate::idle::Idle;
use crate::probes::sleep_lateness;

/// Version, hash and role of this agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Version of the agent.
    pub version: &'static str,
    /// SHA-256 of its own executable, in hex; `None` where the file cannot be read.
    pub sha256: Option<String>,
    /// It was booted as the first process of a machine, and powers it off at the end.
    pub init: bool,
}

impl Identity {
    /// Hashes the running executable.
    #[must_use]
    pub fn of_this_process(init: bool) -> Self {
        Self { version: env!("CARGO_PKG_VERSION"), sha256: sha256_of_file("/proc/self/exe").ok(), init }
    }
}

/// The facts, as `docs/protocol.md` lists them.
#[derive(Debug, Serialize)]
pub struct Facts {
    agent_version: &'static str,
    agent_sha256: Option<String>,
    kernel: Kernel,
    hostname: String,
    boot_id: Option<String>,
    init: bool,
    cpu: Cpu,
    memory_bytes: Option<u64>,
    clocksource: Clocksource,
    hypervisor: Hypervisor,
    tsc: Tsc,
    vdso: bool,
    timer_slack_ns: Option<u64>,
    idle: Idle,
    uid: u32,
    capabilities: Option<String>,
    cgroup: Option<String>,
    mitigations: BTreeMap<String, String>,
    cmdline: Option<String>,
}

#[derive(Debug, Serialize)]
struct Kernel {
    sysname: String,
    release: String,
    version: String,
    machine: String,
}

#[derive(Debug, Serialize)]
struct Cpu {
    model: Option<String>,
    vendor: Option<String>,
    count: Option<u64>,
    microcode: Option<String>,
    flags: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Clocksource {
    current: Option<String>,
    available: Option<Vec<String>>,
}

#[derive(Debug, Serialize)]
struct Hypervisor {
    present: bool,
    signature: Option<String>,
    product: Option<String>,
    r#type: Option<String>,
    controls: bool,
}

#[derive(Debug, Serialize)]
struct Tsc {
    invariant: bool,
    nonstop: Option<bool>,
    frequency_hz: Option<f64>,
    frequency_source: Option<&'static str>,
    error_ppm: Option<f64>,
    read_p50_ns: Option<f64>,
}

/// Collects the facts; the first time it also calibrates the counter.
#[must_use]
pub fn collect(identity: &Identity) -> Facts {
    let timebase = Timebase::get();
    sleep_lateness::prepare();
    let capability = &timebase.capability;
    let (kernel, hostname) = kernel();
    let signature = capability.hypervisor.as_ref().map(|hypervisor| hypervisor.signature.clone());
    Facts {
        agent_version: identity.version,
        agent_sha256: identity.sha256.clone(),
        kernel,
        hostname,
        boot_id: text("/proc/sys/kernel/random/boot_id"),
        init: identity.init,
        cpu: cpu(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default(), &capability.vendor),
        memory_bytes: fs::read_to_string("/proc/meminfo").ok().as_deref().and_then(memory_bytes),
        clocksource: Clocksource {
            current: text("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            available: text("/sys/devices/system/clocksource/clocksource0/available_clocksource")
                .map(|names| names.split_whitespace().map(str::to_owned).collect()),
        },
        hypervisor: Hypervisor {
            present: capability.hypervisor.is_some(),
            signature: signature.filter(|signature| !signature.is_empty()),
            product: text("/sys/class/dmi/id/product_name"),
            r#type: text("/sys/hypervisor/type"),
            controls: controls_xen(
                text("/sys/hypervisor/properties/features").as_deref(),
                text("/proc/xen/capabilities").as_deref(),
            ),
        },
        tsc: Tsc {
            invariant: capability.invariant,
            nonstop: hptime::capability::nonstop(),
            frequency_hz: timebase.frequency.map(|frequency| frequency.hz),
            frequency_source: timebase.frequency.map(|frequency| frequency.source),
            error_ppm: timebase.frequency.map(|frequency| frequency.error_ppm),
            read_p50_ns: timebase.frequency.map(|frequency| frequency.read_p50_ns),
        },
        vdso: vdso_answers(),
        timer_slack_ns: sleep_lateness::slack(),
        idle: Idle::read(),
        uid: nix::unistd::geteuid().as_raw(),
        capabilities: fs::read_to_string("/proc/self/status")
            .ok()
            .and_then(|status| field(&status, "CapEff").map(str::to_owned)),
        cgroup: text("/proc/self/cgroup"),
        mitigations: mitigations(Path::new("/sys/devices/system/cpu/vulnerabilities")),
        cmdline: text("/proc/cmdline"),
    }
}

fn text(path: &str) -> Option<String> {
    fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// The text after `name:` or `name<tab>:` at the beginning of a line.
fn field<'a>(lines: &'a str, name: &str) -> Option<&'a str> {
    lines.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim_end() == name).then(|| value.trim())
    })
}

fn kernel() -> (Kernel, String) {
    // SAFETY: utsname is arrays of characters, for which zero is a value; the call fills them, terminated.
    let names = unsafe {
        let mut names: libc::utsname = std::mem::zeroed();
        libc::uname(&raw mut names);
        names
    };
    let text = |characters: &[libc::c_char]| {
        // SAFETY: every field is terminated within its array: by the kernel, or by the zeros before the call.
        unsafe { CStr::from_ptr(characters.as_ptr()) }.to_string_lossy().into_owned()
    };
    let kernel = Kernel {
        sysname: text(&names.sysname),
        release: text(&names.release),
        version: text(&names.version),
        machine: text(&names.machine),
    };
    (kernel, text(&names.nodename))
}

fn cpu(cpuinfo: &str, vendor: &str) -> Cpu {
    let count = cpuinfo.lines().filter(|line| line.starts_with("processor")).count() as u64;
    let text = |name| field(cpuinfo, name).map(str::to_owned);
    Cpu {
        model: text("model name"),
        vendor: text("vendor_id").or_else(|| (!vendor.is_empty()).then(|| vendor.to_owned())),
        count: (count > 0).then_some(count),
        microcode: text("microcode"),
        flags: field(cpuinfo, "flags").unwrap_or_default().split_whitespace().map(str::to_owned).collect(),
    }
}

/// All that the kernel has, by its table.
pub(crate) fn memory_bytes(meminfo: &str) -> Option<u64> {
    let kib: u64 = field(meminfo, "MemTotal")?.strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Whether this is the domain that controls Xen: by its features, a hexadecimal bitmap of which the twelfth bit is
/// `XENFEAT_dom0`, or by Xen's file system, which need not be mounted.
fn controls_xen(features: Option<&str>, capabilities: Option<&str>) -> bool {
    let bitmap = features.and_then(|text| u64::from_str_radix(text, 16).ok());
    bitmap.is_some_and(|bits| bits & (1 << 11) != 0) || capabilities.is_some_and(|words| words.contains("control_d"))
}

fn mitigations(folder: &Path) -> BTreeMap<String, String> {
    let Ok(entries) = fs::read_dir(folder) else {
        return BTreeMap::new();
    };
    let named = entries.flatten().filter_map(|entry| {
        let state = fs::read_to_string(entry.path()).ok()?;
        Some((entry.file_name().to_string_lossy().into_owned(), state.trim().to_owned()))
    });
    named.collect()
}

/// How often the costs of a call are compared.
const ROUNDS: usize = 64;

/// Whether `clock_gettime` is answered in user space: it costs less than half of the system call.
///
/// A mapped vDSO proves little, since it falls back to the system call under clock sources that it cannot read.
fn vdso_answers() -> bool {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // By turns, for the machine may be faster in one moment than in the next.
    let faster = (0..ROUNDS).filter(|_| {
        let called_ns = time_ns(|| {
            // SAFETY: writes one timespec through a valid reference.
            unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
        });
        let system_ns = time_ns(|| {
            // SAFETY: the arguments are those of clock_gettime; it writes one timespec through a valid reference.
            unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, &raw mut time) };
        });
        called_ns * 2 < system_ns
    });
    faster.count() * 2 > ROUNDS
}

/// Time of sixteen calls.
fn time_ns(mut call: impl FnMut()) -> u64 {
    let start_ns = OsClock::Monotonic.now_ns();
    (0..16).for_each(|_| call());
    OsClock::Monotonic.now_ns().saturating_sub(start_ns)
}

fn sha256_of_file(path: &str) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut digest = Sha256::new();
    let mut block = vec![0; 65_536];
    loop {
        match file.read(&mut block)? {
            0 => break,
            count => digest.update(&block[..count]),
        }
    }
    Ok(digest.finalize().iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes any text");
        text
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_and_memory_are_read_from_the_kernels_tables() {
        let table = "processor\t: 0\nvendor_id\t: Maker\nmodel name\t: Model: 9\nmicrocode\t: 0x1\nflags\t\t: fpu tsc\n\n\
                     processor\t: 1\nvendor_id\t: Maker\n";
        let cpu = cpu(table, "");
        assert_eq!((cpu.count, cpu.model.as_deref(), cpu.flags.len()), (Some(2), Some("Model: 9"), 2));
        assert_eq!(memory_bytes("MemTotal:        2048 kB\nMemFree: 1 kB\n"), Some(2_097_152));
        assert_eq!(memory_bytes(""), None);
    }

    #[test]
    fn what_is_missing_is_nil_not_empty() {
        let cpu = cpu("", "");
        assert_eq!((cpu.count, cpu.model, cpu.vendor), (None, None, None));
        assert_eq!(text("/does/not/exist"), None);
    }

    #[test]
    fn the_domain_that_controls_xen_is_told_without_xens_file_system() {
        assert!(controls_xen(Some("00002f05000008ff"), None));
        assert!(controls_xen(None, Some("control_d")));
        assert!(!controls_xen(Some("000000000000070f"), Some("")));
        assert!(!controls_xen(Some("no bitmap"), None));
    }

    #[test]
    fn hash_of_an_empty_file_is_that_of_no_bytes() {
        let known = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sha256_of_file("/dev/null").unwrap(), known);
    }
}

"""The checks of ``virtgauge doctor --realtime`` as data: what is read, what it should be, what changes it, by whom.

What should be is what the Linux kernel's documentation, or a guide of those who make real-time hosts and guests, says;
docs/realtime-settings.md has the addresses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from virtgauge.host import realtime_settings as settings
from virtgauge.host.machine import AS_ROOT
from virtgauge.host.realtime_settings import CPU, KVM, QUICK_US, Found, Machine, Reader, State, apart, masked, says

_MADE_VISIBLE = ("dev/", "sys/kernel/debug/")  # Below these is what appears when somebody loads a module, or mounts it


@dataclasses.dataclass(frozen=True)
class Check:
    """One setting."""

    name: str
    read: Reader
    should: str  # what it should be
    fix: str  # {isolated}, {others} and {mask} (of the others) stand for CPUs
    source: str  # of what it should be
    only: str = ""  # ``host`` or ``guest``, where it is asked of these alone
    isolating: bool = False  # whether it is about isolated CPUs, so that without any there is nothing to ask
    trade_off: bool = False  # whether it also costs speed, safety or power: who does without is not wrong
    measured_by: tuple[str, ...] = ()  # what has it in a plan: a factor of timing, or keys of a platform's tuning


def examine(machine: Machine) -> Iterator[tuple[Check, Found, str]]:
    """What each check of a host, or of a guest, came to, and its fix with this machine's CPUs; begin with the first."""
    names = {"isolated": "CPUS", "others": "OTHERS", "mask": "MASK"}
    if machine.isolated:
        others = machine.online - machine.isolated
        names = {"isolated": settings.listed(machine.isolated), "others": settings.listed(others)}
        names["mask"] = settings.hex_mask(others)
    for check in CHECKS:
        if check.only in ("", "guest" if machine.guest else "host"):
            yield check, _carried_out(check, machine), check.fix.format(**names)


def _carried_out(check: Check, machine: Machine) -> Found:
    """A file that is missing is of what this kernel does not have, unless somebody could make it visible."""
    if check.isolating and not machine.isolated:
        return Found(State.NOT_APPLICABLE, "no CPU is isolated")
    try:
        found = check.read(machine)
    except FileNotFoundError as error:
        visible = str(error.filename).removeprefix(str(machine.root)).lstrip("/").startswith(_MADE_VISIBLE)
        return Found(State.UNKNOWN if visible else State.NOT_APPLICABLE, f"there is no {error.filename}")
    except OSError as error:
        remedy = f"; {AS_ROOT}" if isinstance(error, PermissionError) else ""
        return Found(State.UNKNOWN, f"{error.filename or check.name}: {error.strerror}{remedy}")
    except (ValueError, LookupError) as error:
        return Found(State.UNKNOWN, f"not understood: {error}")
    return Found(State.TRADE_OFF, found.words) if check.trade_off and found.state is State.WRONG else found


def _sysctl(name: str, key: str, right: str, why: str, source: str) -> Check:
    read = says(f"proc/sys/{key.replace('.', '/')}", lambda said: said == right)
    return Check(name, read, f"{right}: {why}", f"sysctl -w {key}={right}", source)


_ISOLATION, _CONFIGURATION = "Linux, cpu-isolation", "Linux, real-time/kernel-configuration"
_LATENCY, _REALTIME, _VIRTUAL = "TuneD, network-latency", "TuneD, realtime", "TuneD, realtime-virtual-host and -guest"
_LIBVIRT = "libvirt, KVM Real Time Guest Config"
_AWAY = "none on isolated CPUs, but one that real-time work there waits for"
_MOVE = (
    "echo {others} > /proc/irq/N/smp_affinity_list, for each; where that is refused, boot with "
    "isolcpus=managed_irq,domain,{isolated} (a disk's queue of isolated CPUs alone stays, and answers these alone); "
    "keep irqbalance off them (IRQBALANCE_BANNED_CPULIST={isolated})"
)

CHECKS = (
    Check("isolated CPUs", settings.isolation, "the scheduler puts nothing on the CPUs of real-time work by itself",
        "boot with isolcpus=managed_irq,domain,CPUS, or isolate a cpuset (cpuset.cpus.partition)", _ISOLATION,
        measured_by=("isolated_cpus",)),
    Check("tick", settings.tick, "none on isolated CPUs (nohz_full), for vCPUs and loops that never sleep; loops that "
        "sleep in each period are better off with it", "boot with nohz_full={isolated}",
        f"{_VIRTUAL}; {_CONFIGURATION}", isolating=True, trade_off=True),
    Check("RCU callbacks", settings.callbacks, "those of isolated CPUs run elsewhere", "boot with rcu_nocbs={isolated}",
        f"{_VIRTUAL}; Linux, kernel-per-CPU-kthreads", isolating=True),
    Check("interrupts", settings.interrupts(virtio=False), _AWAY, _MOVE, _ISOLATION, isolating=True),
    Check("virtio interrupts", settings.interrupts(virtio=True), _AWAY, _MOVE, _ISOLATION, "guest", isolating=True),
    Check("interrupts of new devices", apart("proc/irq/default_smp_affinity", masked), "none on isolated CPUs",
        "echo {mask} > /proc/irq/default_smp_affinity, or boot with irqaffinity={others}",
        f"{_ISOLATION}, irq-affinity", isolating=True),
    Check("unbound kernel work", apart("sys/devices/virtual/workqueue/cpumask", masked), "none on isolated CPUs",
        "echo {mask} > /sys/devices/virtual/workqueue/cpumask", _REALTIME, isolating=True),
    Check("lockup watchdogs", settings.lockup_watchdogs, "off, or not on isolated CPUs",
        "sysctl -w kernel.watchdog_cpumask={others}", f"Linux, lockup-watchdogs; {_CONFIGURATION}", isolating=True),
    _sysctl("NMI watchdog", "kernel.nmi_watchdog", "0", "off", _LATENCY),
    Check("real-time throttling", settings.throttling, "none, for threads that never sleep; a runaway one then has "
        "its CPU for good", "sysctl -w kernel.sched_rt_runtime_us=-1; since Linux 6.12 instead: echo 0 > "
        "/sys/kernel/debug/sched/fair_server/cpuN/runtime, for N in {isolated}",
        f"{_REALTIME}; Linux, sched-rt-group", trade_off=True),
    _sysctl("timer migration", "kernel.timer_migration", "0", "timers fire on the CPU that set them", _LATENCY),
    Check("kernel", settings.kernel, "PREEMPT_RT", "install one (Debian: linux-image-rt-amd64) and boot it; until then "
        "boot with preempt=full, or echo full > /sys/kernel/debug/sched/preempt",
        f"{_CONFIGURATION}; Linux, kernel-parameters"),
    Check("frequency governor", settings.governors, "one that keeps the frequency constant: performance, or userspace",
        "cpupower frequency-set -g performance", _CONFIGURATION),
    Check("idle states", settings.idle_states, f"none that takes more than {QUICK_US} µs to leave",
        f"cpupower idle-set -D {QUICK_US + 1}, or a program writes {QUICK_US}, as a number of four bytes, to "
        "/dev/cpu_dma_latency and keeps it open", "TuneD, latency-performance; Linux, cpuidle",
        measured_by=("idle_states",)),
    Check("SMT", says(f"{CPU}/smt/active", lambda said: said == "0"), "0: no two CPUs share a core",
        "echo off > /sys/devices/system/cpu/smt/control, or boot with nosmt", f"{_ISOLATION}; {_LIBVIRT}", "host"),
    Check("system management interrupts", settings.management_interrupts, "none in a second (root can count them after "
        "modprobe msr)", "change the firmware's settings: its maker has a guide for low latency", _ISOLATION, "host"),
    Check("transparent hugepages, khugepaged", settings.transparent_hugepages, "never, which stops khugepaged, too",
        "echo never > /sys/kernel/mm/transparent_hugepage/enabled, and > hugepages-*/enabled beside it, or boot with "
        "transparent_hugepage=never", f"{_LATENCY}; Linux, transhuge"),
    Check("reserved hugepages", settings.hugepages, "as much as real-time guests have memory (judged: any, or none)",
        "boot with default_hugepagesz=1G hugepages=N, or sysctl -w vm.nr_hugepages=N", _LIBVIRT, "host",
        measured_by=("hugepages",)),
    Check("merging of equal pages (KSM)", settings.merging, "off, and nothing merged",
        "echo 2 > /sys/kernel/mm/ksm/run", "TuneD, realtime-virtual-host; Linux, ksm", "host"),
    _sysctl("NUMA balancing", "kernel.numa_balancing", "0", "no page moves to another node", _LATENCY),
    Check("swap", settings.swap, "none, unless real-time programs and guests lock all of their memory",
        "mlockall, or <locked/> in libvirt's XML; or swapoff -a (and /etc/fstab)", _ISOLATION, trade_off=True,
        measured_by=("memory_locked",)),
    Check("locked memory", settings.locking, "unlimited for whoever starts real-time programs",
        "ulimit -l unlimited (memlock in limits.conf, LimitMEMLOCK=infinity in a unit)", f"{_ISOLATION}; mlock(2)"),
    Check("memory statistics", says("proc/sys/vm/stat_interval", lambda said: int(said) >= 10),
        "gathered every 10 s or less often", "sysctl -w vm.stat_interval=10", _LATENCY),
    Check("timer slack", settings.slack, "1 ns for threads that are in no real-time class",
        "prctl(PR_SET_TIMERSLACK, 1) in the program, or TimerSlackNSec=1 in its unit of systemd, or chrt -f 50 PROGRAM",
        "PR_SET_TIMERSLACK(2const)", measured_by=("slack",)),
    Check("quota of CPU time", settings.quotas, "none in the control groups of this process: it stops all threads that "
        "are in no real-time class", "echo max > cpu.max of the group (systemctl set-property UNIT CPUQuota=)",
        "Linux, cgroup-v2"),
    Check("clock source", settings.clocksource, "read without a device or the hypervisor: tsc; kvm-clock in a guest",
        "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource; where available_clocksource does "
        "not list it, dmesg says why", "Red Hat, Tuning Guide for Real Time, 2.6"),
    Check("steal", settings.steal, "none", "on the host: give each vCPU a CPU of its own", _LIBVIRT, "guest"),
    Check("polling of halted vCPUs", says(f"{KVM}/halt_poll_ns", lambda said: int(said) > 0),
        "above 0, for guests that wake often: a vCPU that wakes soon was not put to sleep; it costs power",
        f"echo 200000 > /{KVM}/halt_poll_ns", "Linux, halt-polling", "host", trade_off=True,
        measured_by=("halt_poll_ns",)),
    Check("early timers of guests", settings.advance, "on", "load kvm with lapic_timer_advance=Y; of an older one: "
        f"echo -1 > /{KVM}/lapic_timer_advance_ns", "Linux, arch/x86/kvm/lapic.c", "host",
        measured_by=("timer_advance",)),
    Check("placement of vCPUs", settings.placement, "each alone on an isolated CPU, and QEMU's other threads elsewhere",
        "virsh vcpupin DOMAIN VCPU CPU; virsh emulatorpin DOMAIN {others} (in a plan tuning.vcpu_cpus, emulator_cpus)",
        _LIBVIRT, "host", measured_by=("vcpu_cpus", "emulator_cpus")),
    Check("class of vCPUs", settings.classes, "real-time", "chrt -f -p 1 THREAD (<vcpusched> in libvirt's XML, "
        "tuning.vcpu_scheduling in a plan)", _LIBVIRT, "host", measured_by=("vcpu_scheduling",)),
)  # fmt: skip

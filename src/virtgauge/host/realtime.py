"""The checks of ``virtgauge doctor --realtime`` as data: what is read, what it should be, what changes it, by whom.

What should be is what the Linux kernel's documentation, or a guide of those who make real-time hosts and guests, says;
docs/realtime-settings.md has the addresses.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

from virtgauge.host import realtime_settings as settings
from virtgauge.host.realtime_settings import CPU, KVM, QUICK_US, Found, Machine, Reader, State, apart, masked, says
from virtgauge.host.rights import AS_ROOT

_MADE_VISIBLE = ("dev/", "sys/kernel/debug/")  # Below these is what appears when somebody loads a module, or mounts it


class Shown(NamedTuple):
    """What of a run shows a check's effect: sleeps that differ in one factor of the suite timing, and nothing else."""

    factor: str
    wrong: str  # its level where the check is wrong
    right: str


@dataclasses.dataclass(frozen=True)
class Check:
    """One setting."""

    name: str
    should: str  # what it should be
    read: Reader
    fix: str  # {isolated}, {others} and {mask} (of the others) stand for CPUs
    source: str  # of what it should be
    only: str = ""  # ``host`` or ``guest``, where it is asked of these alone
    isolating: bool = False  # whether it is about isolated CPUs, so that without any there is nothing to ask
    shown: Shown | None = None


class Result(NamedTuple):
    """What a check came to here."""

    check: Check
    found: Found
    fix: str  # with this machine's CPUs


def examine(machine: Machine) -> Iterator[Result]:
    """Carry out the checks of a host, or of a guest, in the order in which to look at them."""
    names = {"isolated": "CPUS", "others": "OTHERS", "mask": "MASK"}
    if machine.isolated:
        others = machine.online - machine.isolated
        names = {"others": settings.listed(others), "mask": settings.hex_mask(others)}
        names["isolated"] = settings.listed(machine.isolated)
    for check in CHECKS:
        if check.only in ("", "guest" if machine.guest else "host"):
            yield Result(check, _carried_out(check, machine), check.fix.format(**names))


def _carried_out(check: Check, machine: Machine) -> Found:
    """A file that is missing is of what this kernel does not have, unless somebody could make it visible."""
    if check.isolating and not machine.isolated:
        return Found(State.NOT_APPLICABLE, "no CPU is isolated")
    try:
        return check.read(machine)
    except FileNotFoundError as error:
        visible = str(error.filename).removeprefix(str(machine.root)).lstrip("/").startswith(_MADE_VISIBLE)
        return Found(State.UNKNOWN if visible else State.NOT_APPLICABLE, f"there is no {error.filename}")
    except OSError as error:
        remedy = f"; {AS_ROOT}" if isinstance(error, PermissionError) else ""
        return Found(State.UNKNOWN, f"{error.filename or check.name}: {error.strerror}{remedy}")
    except (ValueError, LookupError) as error:
        return Found(State.UNKNOWN, f"not understood: {error}")


_ISOLATION, _PER_CPU = "Linux, cpu-isolation", "Linux, kernel-per-CPU-kthreads"
_CONFIGURATION = "Linux, real-time/kernel-configuration"
_LATENCY, _REALTIME, _HOST = "TuneD, network-latency", "TuneD, realtime", "TuneD, realtime-virtual-host"
_LIBVIRT = "libvirt, KVM Real Time Guest Config"
_AWAY = (
    "echo {others} > /proc/irq/N/smp_affinity_list, for each; where that is refused, boot with "
    "isolcpus=managed_irq,domain,{isolated}"
)


def _sysctl(name: str, key: str, right: str, why: str, source: str) -> Check:
    """One setting of sysctl, which has to have one value."""
    read = says(f"proc/sys/{key.replace('.', '/')}", lambda said: said == right)
    return Check(name, f"{right}: {why}", read, f"sysctl -w {key}={right}", source)


CHECKS = (
    Check(
        *("isolated CPUs", "the scheduler leaves the CPUs of real-time work alone", settings.isolation),
        *("boot with isolcpus=managed_irq,domain,CPUS", _ISOLATION),
    ),
    Check(
        *("tick", "isolated CPUs are nohz_full; loops that sleep in each period may do without", settings.tick),
        *("boot with nohz_full={isolated}", f"{_HOST}; {_CONFIGURATION}"),
        isolating=True,
    ),
    Check(
        *("RCU callbacks", "those of isolated CPUs are offloaded", settings.callbacks),
        *("boot with rcu_nocbs={isolated}", f"{_HOST}; {_PER_CPU}"),
        isolating=True,
    ),
    Check(
        *("interrupts", "none on isolated CPUs", settings.interrupts(virtio=False)),
        *(f"systemctl disable --now irqbalance; {_AWAY}", _ISOLATION),
        isolating=True,
    ),
    Check(
        *("virtio interrupts", "none on isolated CPUs", settings.interrupts(virtio=True), _AWAY, _ISOLATION),
        only="guest",
        isolating=True,
    ),
    Check(
        *("interrupts to come", "not on isolated CPUs", apart("proc/irq/default_smp_affinity", masked)),
        *("echo {mask} > /proc/irq/default_smp_affinity, or boot with irqaffinity={others}", "Linux, irq-affinity"),
        isolating=True,
    ),
    Check(
        *("unbound kernel work", "not on isolated CPUs", apart("sys/devices/virtual/workqueue/cpumask", masked)),
        *("echo {mask} > /sys/devices/virtual/workqueue/cpumask", _REALTIME),
        isolating=True,
    ),
    Check(
        *("lockup watchdogs", "off, or not on isolated CPUs", settings.lockup_watchdogs),
        *("sysctl -w kernel.watchdog_cpumask={others}", f"Linux, lockup-watchdogs; {_CONFIGURATION}"),
        isolating=True,
    ),
    _sysctl("NMI watchdog", "kernel.nmi_watchdog", "0", "off", _LATENCY),
    _sysctl("real-time throttling", "kernel.sched_rt_runtime_us", "-1", "none", f"{_REALTIME}; Linux, sched-rt-group"),
    Check(
        *("fair server", "0 where real-time threads never sleep, and nothing else stops them", settings.fair_server),
        *("echo 0 > /sys/kernel/debug/sched/fair_server/cpuN/runtime, for N in {isolated}", "Linux, sched-rt-group"),
        isolating=True,
    ),
    _sysctl("timer migration", "kernel.timer_migration", "0", "timers stay where they were set", _LATENCY),
    Check(
        *("kernel", "PREEMPT_RT", settings.kernel),
        "apt-get install linux-image-rt-amd64 (Debian), then boot it; until then echo full > "
        "/sys/kernel/debug/sched/preempt, or boot with preempt=full",
        f"{_CONFIGURATION}; Linux, kernel-parameters",
    ),
    Check(
        *("frequency governor", "performance", settings.governors),
        *("cpupower frequency-set -g performance", _CONFIGURATION),
    ),
    Check(
        *("idle states", f"none that takes more than {QUICK_US} µs to leave", settings.idle_states),
        f"cpupower idle-set -D {QUICK_US}, or the program writes 0 to /dev/cpu_dma_latency and keeps it open",
        "TuneD, latency-performance; Linux, cpuidle",
        shown=Shown("idle_states", "default", "shallow"),
    ),
    Check(
        *("SMT", "0: no two CPUs share a core", says(f"{CPU}/smt/active", lambda said: said == "0")),
        *("echo off > /sys/devices/system/cpu/smt/control, or boot with nosmt", _ISOLATION),
        only="host",
    ),
    Check(
        *("system management interrupts", "none in a second (modprobe msr, and root)", settings.management_interrupts),
        *("only the firmware's settings help: its maker's guide for low latency", _ISOLATION),
        only="host",
    ),
    Check(
        *("transparent hugepages, khugepaged", "never, by which khugepaged stops", settings.transparent_hugepages),
        "echo never > /sys/kernel/mm/transparent_hugepage/enabled, and of each size beside it, or boot with "
        "transparent_hugepage=never",
        f"{_LATENCY}; Linux, transhuge",
    ),
    Check(
        *("reserved hugepages", "as much as the guests have memory", settings.hugepages),
        *("boot with default_hugepagesz=1G hugepages=N, or sysctl -w vm.nr_hugepages=N", _LIBVIRT),
        only="host",
    ),
    Check(
        *("merging of equal pages (KSM)", "off, and nothing merged", settings.merging),
        *("echo 2 > /sys/kernel/mm/ksm/run", f"{_HOST}; Linux, ksm"),
        only="host",
    ),
    _sysctl("NUMA balancing", "kernel.numa_balancing", "0", "no page moves to another node", _LATENCY),
    Check(*("swap", "none", settings.swap, "swapoff -a, and no swap in /etc/fstab", _ISOLATION)),
    Check(
        *("locked memory", "unlimited for whoever starts real-time programs", settings.locking),
        "ulimit -l unlimited (memlock in limits.conf, LimitMEMLOCK=infinity in a unit of systemd)",
        f"{_ISOLATION}; mlock(2)",
    ),
    Check(
        *("statistics of memory", "gathered every 10 s or later"),
        says("proc/sys/vm/stat_interval", lambda said: int(said) >= 10),
        *("sysctl -w vm.stat_interval=10", f"{_LATENCY}; {_PER_CPU}"),
    ),
    Check(
        *("timer slack", "1 ns for threads that are in no real-time class", settings.slack),
        "prctl(PR_SET_TIMERSLACK, 1) in the program, or TimerSlackNSec=1 in its unit of systemd, or chrt -f 50 PROGRAM",
        "PR_SET_TIMERSLACK(2const)",
        shown=Shown("slack", "default", "minimal"),
    ),
    Check(
        *("quota of CPU time", "none in the control groups that this process is in", settings.quotas),
        *("echo max > cpu.max of the group (systemctl set-property UNIT CPUQuota=)", "Linux, cgroup-v2"),
    ),
    Check(
        *("clock source", "read without a device or the hypervisor: tsc; kvm-clock in a guest", settings.clocksource),
        "boot with clocksource=tsc, where the processor's counter can be relied on",
        "Red Hat, Tuning Guide for Real Time, 2.6",
    ),
    Check(
        *("watchdog of the clock source", "none", settings.clock_watchdog),
        *("boot with tsc=reliable, where you know that it is", _LATENCY),
    ),
    Check(
        *("steal", "none", settings.steal, "on the host: give each vCPU a CPU that nothing else uses", _LIBVIRT),
        only="guest",
    ),
    Check(
        *("polling of halted vCPUs", "above 0: a vCPU that wakes soon was not put to sleep"),
        says(f"{KVM}/halt_poll_ns", lambda said: int(said) > 0),
        *(f"echo 200000 > /{KVM}/halt_poll_ns", "Linux, halt-polling"),
        only="host",
    ),
    Check(
        *("early timers of guests", "on", settings.advance),
        *("load kvm with lapic_timer_advance=Y", "Linux, arch/x86/kvm/lapic.c"),
        only="host",
    ),
    Check(
        *("placement of vCPUs", "each on an isolated CPU of its own, emulators elsewhere", settings.placement),
        "virsh vcpupin DOMAIN VCPU CPU; virsh emulatorpin DOMAIN {others} (tuning.vcpu_cpus, emulator_cpus in a plan)",
        _LIBVIRT,
        only="host",
    ),
    Check(
        *("class of vCPUs", "real-time", settings.classes),
        "chrt -f -p 1 THREAD (<vcpusched> in libvirt's XML, tuning.vcpu_scheduling in a plan)",
        _LIBVIRT,
        only="host",
    ),
)

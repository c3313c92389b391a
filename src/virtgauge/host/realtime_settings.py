"""Settings that decide on a machine's worst case: how each is read, and whether it is right.

All is read below a root, so that tests can make up a machine.  A reader may raise what reading raises: see
:func:`virtgauge.host.realtime.examine`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import os
import re
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from virtgauge.host.cgroup import Cgroup, Hierarchies
from virtgauge.host.machine import lacking
from virtgauge.host.process import cpu_list, isolated_cpus, text_of

CPU = "sys/devices/system/cpu"
KVM = "sys/module/kvm/parameters"
QUICK_US = 3  # Of TuneD's latency-performance: idle states that take longer to leave are too deep
_CLOCK = "sys/devices/system/clocksource/clocksource0"
_SMI_COUNT = 0x34  # MSR_SMI_COUNT of Intel's processors
_FIFO, _ROUND_ROBIN, _DEADLINE = 1, 2, 6  # Of sched(7)
_FAST_CLOCKS = {"tsc", "tsc-early", "kvm-clock", "xen", "hyperv_clocksource_tsc_page", "arch_sys_counter"}
_SLOW_CLOCKS = {"hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit"}


class State(enum.StrEnum):
    """What a check came to."""

    RIGHT = "right"
    WRONG = "wrong"
    TRADE_OFF = "trade-off"  # not as the source says, which has its price and is not for all real-time work
    UNKNOWN = "unknown"  # it could not be read
    NOT_APPLICABLE = "not applicable"


class Found(NamedTuple):
    """What a check has found."""

    state: State
    words: str  # the setting, or why it is unknown or not applicable


@dataclasses.dataclass(frozen=True)
class Machine:
    """This machine, or one that a test has made up."""

    root: Path = Path("/")
    guest: bool = False  # whether what only its host could set is left out
    pause: Callable[[float], object] = time.sleep  # between two looks at a counter

    def text(self, path: str) -> str:
        return (self.root / path).read_text(errors="replace").strip()

    @functools.cached_property
    def online(self) -> frozenset[int]:
        return cpu_list(self.text(f"{CPU}/online"))

    @functools.cached_property
    def isolated(self) -> frozenset[int]:
        found = isolated_cpus(self.root)
        return found & self.online if found else found

    @functools.cached_property
    def vcpus(self) -> list[Path]:
        """The folders of the threads that run guests' processors, as QEMU names them under libvirt."""
        found = []
        for threads in (self.root / "proc").glob("[0-9]*/task"):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                for thread in threads.iterdir():
                    if re.fullmatch(r"CPU \d+/KVM", (thread / "comm").read_text(errors="replace").strip()):
                        found.append(thread)
        return found


Reader = Callable[[Machine], Found]


def timer_advance(root: Path = Path("/")) -> bool | None:
    """Whether KVM starts timers early, as its module says; None where it does not."""
    # Older kernels have a number of nanoseconds, 0 for never and −1 for as many as KVM finds best.
    said = text_of(root / KVM / "lapic_timer_advance") or text_of(root / KVM / "lapic_timer_advance_ns")
    return None if said is None else said not in ("N", "0")


def listed(cpus: Iterable[int]) -> str:
    """``2,3``, or ``none``."""
    return ",".join(map(str, sorted(cpus))) or "none"


def hex_mask(cpus: Iterable[int]) -> str:
    """CPUs as a mask of the kernel's: hexadecimal digits with a comma before each eight."""
    return re.sub(r"(?<=.)(?=(.{8})+$)", ",", f"{sum(1 << cpu for cpu in cpus):x}")


def masked(text: str) -> frozenset[int]:
    """The CPUs of such a mask."""
    mask = int(text.replace(",", ""), 16)
    return frozenset(cpu for cpu in range(mask.bit_length()) if mask >> cpu & 1)


def _judged(right: bool, words: str) -> Found:
    return Found(State.RIGHT if right else State.WRONG, words)


def _cpus(text: str) -> frozenset[int]:
    """Of a file that lists CPUs; none is an empty line, or what an old kernel prints of a mask that it has not."""
    return frozenset() if text == "(null)" else cpu_list(text)


def _field(name: str, text: str) -> str:
    """The first word after a name at the beginning of a line."""
    found = re.search(rf"^{name}\s*:?\s+(\S+)", text, re.MULTILINE)
    if found is None:
        raise ValueError(f"nothing says {name}")
    return found[1]


def _policy(stat: str) -> int:
    """The scheduling policy in a thread's stat: the 41st field, of which the 2nd, in brackets, may hold blanks."""
    return int(stat.rpartition(")")[2].split()[38])


def says(path: str, right: Callable[[str], bool]) -> Reader:
    """What a file says has to be right."""

    def read(machine: Machine) -> Found:
        said = machine.text(path)
        return _judged(right(said), said)

    return read


def apart(path: str, parse: Callable[[str], frozenset[int]]) -> Reader:
    """None of the CPUs in a file may be isolated."""

    def read(machine: Machine) -> Found:
        cpus = parse(machine.text(path))
        return _judged(not cpus & machine.isolated, f"CPUs {listed(cpus)}")

    return read


def interrupts(virtio: bool) -> Reader:
    """No interrupt that has a handler may be delivered to an isolated CPU; in a guest virtio's stand apart."""

    def read(machine: Machine) -> Found:
        there = []
        for folder in (machine.root / "proc/irq").glob("[0-9]*"):
            handler = next((one.name for one in folder.iterdir() if one.is_dir()), "")
            if not handler or (machine.guest and handler.startswith("virtio") is not virtio):
                continue
            file, told = folder / "smp_affinity_list", folder / "effective_affinity_list"  # empty of one not started
            allowed = cpu_list(file.read_text().strip())
            cpus = cpu_list(told.read_text().strip() if told.exists() else "") or allowed
            # Nobody can move what has no writable file: it is each CPU's own, as its timer, or of a queue that serves
            # isolated CPUs alone, and then interrupts these only for what they ask for (isolcpus in kernel-parameters).
            stays = not file.stat().st_mode & 0o200 and (cpus >= machine.online or allowed <= machine.isolated)
            if cpus & machine.isolated and not stays:
                there.append((int(folder.name), f"{folder.name} ({handler}) on {listed(cpus)}"))
        words = "; ".join(one for _, one in sorted(there)[:3]) + (f" and {len(there) - 3} more" if there[3:] else "")
        return _judged(not there, words or "none there")

    return read


def isolation(machine: Machine) -> Found:
    """Whether any CPU is isolated."""
    if len(machine.online) < 2:
        return Found(State.NOT_APPLICABLE, "there is one CPU")
    return _judged(bool(machine.isolated), listed(machine.isolated))


def tick(machine: Machine) -> Found:
    """Whether the isolated CPUs do without a tick."""
    tickless = _cpus(machine.text(f"{CPU}/nohz_full"))
    return _judged(tickless >= machine.isolated, listed(tickless))


def callbacks(machine: Machine) -> Found:
    """Whether RCU's callbacks of the isolated CPUs are offloaded, as those of CPUs without a tick are."""
    given = re.findall(r"\brcu_nocbs=(\S+)", machine.text("proc/cmdline"))
    offloaded = _cpus(given[-1] if given else "")
    with contextlib.suppress(FileNotFoundError):
        offloaded |= _cpus(machine.text(f"{CPU}/nohz_full"))
    return _judged(offloaded >= machine.isolated, listed(offloaded))


def lockup_watchdogs(machine: Machine) -> Found:
    """Whether the watchdogs leave the isolated CPUs alone."""
    if machine.text("proc/sys/kernel/watchdog") == "0":
        return Found(State.RIGHT, "off")
    return apart("proc/sys/kernel/watchdog_cpumask", _cpus)(machine)


def throttling(machine: Machine) -> Found:
    """What real-time threads lose to others: since Linux 6.12 to a server on each CPU instead (5f6bd380c7bd)."""
    release = re.match(r"(\d+)\.(\d+)", machine.text("proc/sys/kernel/osrelease"))
    if release and (int(release[1]), int(release[2])) >= (6, 12):
        file = "sys/kernel/debug/sched/fair_server/cpu{}/runtime"
        lost_ms = max(int(machine.text(file.format(cpu))) for cpu in machine.isolated or machine.online) / 1e6
    else:
        runtime, period = (int(machine.text(f"proc/sys/kernel/sched_rt_{one}_us")) for one in ("runtime", "period"))
        lost_ms = 0 if runtime < 0 else (period - runtime) / 1e3
    return _judged(lost_ms == 0, f"{lost_ms:g} ms of each period")


def kernel(machine: Machine) -> Found:
    """Whether the kernel is a PREEMPT_RT one, as its version says; of one that can be switched, how it preempts."""
    built = re.search(r"\bPREEMPT(_\w+| RT\b)?", machine.text("proc/version"))
    words = built[0].replace(" ", "_") if built else "no PREEMPT"
    if words == "PREEMPT_DYNAMIC":
        with contextlib.suppress(OSError):
            words += f", {machine.text('sys/kernel/debug/sched/preempt').partition('(')[2].partition(')')[0]}"
    return _judged(words == "PREEMPT_RT", words)


def governors(machine: Machine) -> Found:
    """Whether the frequency stays at its highest."""
    policies = (machine.root / CPU / "cpufreq").glob("policy*/scaling_governor")
    found = sorted({policy.read_text().strip() for policy in policies})
    if not found:
        return Found(State.NOT_APPLICABLE, "firmware or a hypervisor chooses the frequency")
    return _judged({*found} <= {"performance", "userspace"}, ", ".join(found))


def idle_states(machine: Machine) -> Found:
    """Whether a CPU (an isolated one, where there are any) may enter an idle state that takes long to leave."""
    states, slow = 0, []
    for cpu in machine.isolated or machine.online:
        folder = machine.root / CPU / f"cpu{cpu}"
        own = (folder / "power/pm_qos_resume_latency_us").read_text().strip()
        limit_us = 0 if own == "n/a" else int(own) or sys.maxsize  # 0 is no limit (ABI/testing/sysfs-devices-power)
        for state in (folder / "cpuidle").glob("state*"):
            states += 1
            name, leaving, off = ((state / one).read_text().strip() for one in ("name", "latency", "disable"))
            if off == "0" and QUICK_US < int(leaving) <= limit_us:
                slow.append((int(leaving), f"{name} takes {leaving} µs to leave"))
    if not states:
        return Found(State.NOT_APPLICABLE, "this kernel has no idle states to choose from")
    if slow:  # unless somebody holds them off, which root alone may know
        latency = (machine.root / "dev/cpu_dma_latency").read_bytes()[:4]
        slow = [one for one in slow if one[0] <= int.from_bytes(latency, sys.byteorder, signed=True)]
    return _judged(not slow, max(slow)[1] if slow else f"none above {QUICK_US} µs is entered")


def management_interrupts(machine: Machine) -> Found:
    """Whether the firmware interrupts the first CPU within a second."""
    if "GenuineIntel" not in machine.text("proc/cpuinfo"):
        return Found(State.NOT_APPLICABLE, "only Intel's processors count them")

    def counted() -> int:
        with (machine.root / f"dev/cpu/{min(machine.online)}/msr").open("rb", buffering=0) as file:
            return int.from_bytes(os.pread(file.fileno(), 8, _SMI_COUNT), sys.byteorder)

    before = counted()
    machine.pause(1.0)
    after = counted()
    return _judged(after == before, f"{after - before} in a second, {after} since the reset")


def transparent_hugepages(machine: Machine) -> Found:
    """Whether memory is never joined to huge pages, of whatever size."""
    folder = machine.root / "sys/kernel/mm/transparent_hugepage"
    files = [folder / "enabled", *folder.glob("hugepages-*/enabled")]
    top, *sizes = (file.read_text().partition("[")[2].partition("]")[0] for file in files)
    others = sorted({*sizes} - {"never", "inherit"})
    return _judged(top == "never" and not others, ", ".join([top, *(f"{one} of a size" for one in others)]))


def hugepages(machine: Machine) -> Found:
    """Whether any are reserved."""
    mib = int(_field("Hugetlb", machine.text("proc/meminfo"))) >> 10  # of all sizes
    return _judged(mib > 0, f"{mib} MiB")


def merging(machine: Machine) -> Found:
    """Whether equal pages are neither merged nor left so."""
    run, shared = machine.text("sys/kernel/mm/ksm/run"), machine.text("sys/kernel/mm/ksm/pages_shared")
    return _judged(run != "1" and shared == "0", f"{'on' if run == '1' else 'off'}, {shared} merged pages")


def swap(machine: Machine) -> Found:
    """Whether no memory can be swapped out."""
    used = [line.split()[0] for line in machine.text("proc/swaps").splitlines()[1:]]
    return _judged(not used, ", ".join(used) or "none")


def locking(machine: Machine) -> Found:
    """Whether this process, and so what it starts, may lock all of its memory."""
    if not lacking("CAP_IPC_LOCK", status=machine.root / "proc/self/status"):
        return Found(State.RIGHT, "unlimited, by CAP_IPC_LOCK")
    limit = _field("Max locked memory", machine.text("proc/self/limits"))
    return _judged(limit == "unlimited", limit if limit == "unlimited" else f"{int(limit) >> 10} KiB")


def slack(machine: Machine) -> Found:
    """Whether timers of this process, and so of what it starts, may not be late for others' sake."""
    if _policy(machine.text("proc/self/stat")) in (_FIFO, _ROUND_ROBIN, _DEADLINE):
        return Found(State.NOT_APPLICABLE, "real-time classes have none, and virtgauge was started in one")
    found = int(machine.text("proc/self/timerslack_ns"))
    return _judged(found <= 1, f"{found} ns")


def quotas(machine: Machine) -> Found:
    """Whether no control group from this process's own upwards has a quota of CPU time."""
    mounted = Hierarchies.detect(machine.root / "proc/self/mountinfo")
    v1 = {name: machine.root / point.relative_to("/") for name, point in mounted.v1.items()}
    here = Hierarchies(v1, None if mounted.v2 is None else machine.root / mounted.v2.relative_to("/"))
    if "cpu" not in v1 and here.v2 is None:
        return Found(State.NOT_APPLICABLE, "no control groups are mounted")
    paths: dict[str, str] = {}  # by controller; of v2 by an empty name
    for line in machine.text("proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    own = Path(paths["cpu" if "cpu" in v1 else ""].lstrip("/"))
    if ".." in own.parts:
        return Found(State.UNKNOWN, f"its group {own} is outside of what this process sees")
    limits = ((group, Cgroup(str(group), here).applied_cpu_limit()) for group in (own, *own.parents))
    words = [f"{limit:g} CPUs in the group {Path('/') / group}" for group, limit in limits if limit is not None]
    return _judged(not words, ", ".join(words) or f"none from the group {Path('/') / own} upwards")


def clocksource(machine: Machine) -> Found:
    """Whether the clock is read by the processor alone."""
    current = machine.text(f"{_CLOCK}/current_clocksource")
    if current not in _FAST_CLOCKS | _SLOW_CLOCKS:
        return Found(State.UNKNOWN, f"{current}, which virtgauge does not know")
    return _judged(current in _FAST_CLOCKS, current)


def steal(machine: Machine) -> Found:
    """Whether the host has ever run something else in a guest's place."""
    times = [int(one) for one in machine.text("proc/stat").partition("\n")[0].split()[1:9]]
    if times[7]:
        return Found(State.WRONG, f"{times[7] / sum(times):.2%} of the time since the boot".replace("%", " %"))
    if {"kvm-clock", "xen"} & {*machine.text(f"{_CLOCK}/available_clocksource").split()}:
        return Found(State.RIGHT, "none since the boot")
    return Found(State.UNKNOWN, "none is told, and the hypervisor may not tell it")


def advance(machine: Machine) -> Found:
    """Whether KVM starts timers early by what it takes to enter a guest."""
    found = timer_advance(machine.root)
    if found is None:
        return Found(State.NOT_APPLICABLE, "KVM is not loaded, or has no such timers")
    return _judged(found, "on" if found else "off")


_NO_VCPUS = Found(State.NOT_APPLICABLE, "no guest of KVM runs, or QEMU names no threads (-name debug-threads=on)")


def placement(machine: Machine) -> Found:
    """Whether each vCPU has an isolated CPU of its own, without QEMU's other threads, which emulate devices."""

    def places(threads: Iterable[Path]) -> list[frozenset[int]]:
        return [cpu_list(_field("Cpus_allowed_list", (one / "status").read_text())) for one in threads]

    if not machine.vcpus:
        return _NO_VCPUS
    own = places(machine.vcpus)
    others = places({one for vcpu in machine.vcpus for one in vcpu.parent.iterdir()} - {*machine.vcpus})
    on, beside = (frozenset[int]().union(*each) for each in (own, others))
    right = len(on) == len(own) == sum(map(len, own)) and on <= machine.isolated and not on & beside
    return _judged(right, f"{len(own)} vCPUs on CPUs {listed(on)}, QEMU's other threads on {listed(beside)}")


def classes(machine: Machine) -> Found:
    """Whether each vCPU is in a real-time class."""
    policies = [_policy((thread / "stat").read_text()) for thread in machine.vcpus]
    real_time = sum(policy in (_FIFO, _ROUND_ROBIN) for policy in policies)
    found = _judged(real_time == len(policies), f"{real_time} of {len(policies)} vCPUs in a real-time class")
    return found if policies else _NO_VCPUS

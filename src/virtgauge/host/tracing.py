"""What this machine's kernel does, event by event: an instance of tracefs, beside whatever else is traced here.

An instance has events of its own, and a ring for each CPU that overwrites what is oldest (Linux:
Documentation/trace/ftrace.rst, "Instances").  It is named after its scope's tag, by which the reclaim finds it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import threading
from collections.abc import Collection, Iterator
from pathlib import Path

from virtgauge.errors import UnavailableError
from virtgauge.host.cgroup import write_existing
from virtgauge.host.machine import AS_ROOT, lack_of_rights, lacking
from virtgauge.host.mounts import mount, mounts

_NEEDED = "sched/sched_switch"
_VECTORS = ("local_timer", "reschedule", "call_function", "call_function_single", "irq_work", "thermal_apic")
EVENTS = (
    *(_NEEDED, "sched/sched_waking", "sched/sched_wakeup_new", "sched/sched_migrate_task"),
    *(f"irq/{kind}_{end}" for kind in ("irq_handler", "softirq") for end in ("entry", "exit")),
    "timer/hrtimer_expire_entry",
    *(f"irq_vectors/{vector}_{end}" for vector in _VECTORS for end in ("entry", "exit")),
    *("kvm/kvm_entry", "kvm/kvm_exit", "exceptions/page_fault_user", "exceptions/page_fault_kernel"),
)
"""That are recorded where the kernel has them, as ``system/event``."""

_FORMATS = ("latency-format", "verbose", "raw", "hex", "bin", "fields")  # Verbose text does not tell of overwriting
_PLAIN = {"overwrite": "1", "context-info": "1", "irq-info": "1"} | dict.fromkeys(
    (*_FORMATS, "stacktrace", "userstacktrace"), "0"
)
"""Options of the ring and its text, which an instance has from whatever was set for all before."""
_MOST_KIB, _MOST_KIB_OF_ALL, _LEAST_KIB = 64 * 1024, 256 * 1024, 1024  # Of one CPU's ring, and of all together
_SHARE = 16  # Of the machine's memory, the rings have no more than this part
_OWN_MOUNT = ".tracefs"  # In the scope's folder, where the reclaim finds it; guests' folders begin with no dot


@dataclasses.dataclass(frozen=True)
class Trace:
    """A recording that is under way, or has been stopped."""

    folder: Path
    kib: int  # of the ring of each CPU that matters
    absent: tuple[str, ...]  # of :data:`EVENTS`, those that this kernel does not have
    _abandoned: threading.Event = dataclasses.field(default_factory=threading.Event)

    def stop(self) -> None:
        """What comes now is not recorded any more. Raises UnavailableError, as reading does: the kernel refuses."""
        with _granted():
            write_existing(self.folder / "tracing_on", "0")

    def lines(self) -> Iterator[str]:
        """All that the rings hold, as text, by time; every byte of a name is one character, and a name may have any."""
        with _granted(), open(self.folder / "trace", encoding="ascii", errors="replace", newline="\n") as file:
            yield from itertools.takewhile(lambda _: not self._abandoned.is_set(), file)

    def abandon(self) -> None:
        """Whoever reads it, in another thread, is told that it ends here."""
        self._abandoned.set()


def refused() -> str | None:
    """Why this user cannot trace this machine's kernel, and the remedy; None where he may try."""
    if "\ttracefs\n" not in Path("/proc/filesystems").read_text():
        return "this machine's kernel has no tracefs: boot one that has (CONFIG_FTRACE)"
    return lack_of_rights("a trace of this machine's kernel", "CAP_SYS_ADMIN", "CAP_DAC_OVERRIDE")


@contextlib.contextmanager
def traced(scope_folder: Path, cpus: Collection[int] = ()) -> Iterator[Trace]:
    """Record this machine's kernel during the block, by CLOCK_MONOTONIC; at its end nothing is left of it.
    Raises UnavailableError: the kernel refuses.

    A scope, to whose folder it belongs, has one at a time.  The rings of these CPUs are large; none: all alike.
    """
    with contextlib.ExitStack() as removal:
        with _granted():
            folder = _root(scope_folder) / _instance(scope_folder.name)
            folder.mkdir(exist_ok=True)
            removal.callback(_remove, folder)
            trace = _begun(folder, cpus)
        yield trace


@contextlib.contextmanager
def _granted() -> Iterator[None]:
    """What the kernel refuses in the block is an UnavailableError."""
    try:
        yield
    except OSError as error:
        words = f"{error.filename}: {error.strerror}{lacking('CAP_SYS_ADMIN', 'CAP_DAC_OVERRIDE')}"
        raise UnavailableError(words, f"{AS_ROOT}, where the kernel is not locked down") from error


def instance_of(tag: str) -> Path | None:
    """The folder of a scope's instance; None where there is none, or this user may not see it."""
    folders = (one.point / _instance(tag) for one in mounts() if one.fstype == "tracefs")
    return next((folder for folder in folders if os.path.isdir(folder)), None)


def remove_instance(tag: str) -> list[str]:
    """Remove a scope's instance; what was done, a line for people."""
    folder = instance_of(tag)
    if folder is None:
        return []
    return [f"removed the trace {folder}" if _remove(folder) else f"the trace {folder} is still in use"]


def _instance(tag: str) -> str:
    return f"instances/virtgauge-{tag}"


def _root(scope_folder: Path) -> Path:
    """Where tracefs is mounted, in the scope's folder where it was not anywhere: another scope's mount ends with it."""
    point = scope_folder / _OWN_MOUNT
    for one in mounts():
        if one.fstype == "tracefs" and (one.point == point or one.point.name != _OWN_MOUNT):
            return one.point
    point.mkdir(exist_ok=True)
    mount(Path("tracefs"), point, "tracefs")
    return point


def _begun(folder: Path, cpus: Collection[int]) -> Trace:
    write_existing(folder / "tracing_on", "0")
    for option, value in _PLAIN.items():
        with contextlib.suppress(FileNotFoundError):  # of a newer kernel
            write_existing(folder / "options" / option, value)
    write_existing(folder / "trace_clock", "mono")  # which empties the rings, too
    kib = _ring_kib(folder, cpus)
    absent = []
    for event in EVENTS:
        try:
            write_existing(folder / "events" / event / "enable", "1")
        except OSError:
            if event == _NEEDED:
                raise
            absent.append(event)
    write_existing(folder / "tracing_on", "1")
    return Trace(folder, kib, tuple(absent))


def _ring_kib(folder: Path, cpus: Collection[int]) -> int:
    """Set the sizes of the rings, and return the largest as the kernel has made it."""
    every = sorted(folder.glob("per_cpu/cpu*/buffer_size_kb"))
    large = [file for file in every if not cpus or int(file.parent.name.removeprefix("cpu")) in cpus] or every
    memory_kib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1024
    left_kib = min(_MOST_KIB_OF_ALL, memory_kib // _SHARE) - _LEAST_KIB * (len(every) - len(large))
    kib = max(_LEAST_KIB, min(_MOST_KIB, left_kib // len(large)))
    write_existing(folder / "buffer_size_kb", str(_LEAST_KIB))
    for file in large:
        write_existing(file, str(kib))
    return int(large[0].read_text().split()[0])


def _remove(folder: Path) -> bool:
    """Whether it is gone: one that somebody reads stays, and records nothing more."""
    try:
        write_existing(folder / "tracing_on", "0")
        folder.rmdir()
    except OSError:
        return not os.path.isdir(folder)
    return True

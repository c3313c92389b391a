"""Processes named so that a recycled pid cannot be mistaken for an old one."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True)
class ProcessIdentity:
    """A process by pid, start time (clock ticks since boot) and boot."""

    pid: int
    start_ticks: int
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """The identity of a live process; None when there is none of that pid (a zombie is none)."""
        fields = stat_fields(pid)
        if fields is None or fields[0] == "Z":
            return None
        return cls(pid=pid, start_ticks=int(fields[19]), boot_id=boot_id())

    @classmethod
    def current(cls) -> ProcessIdentity:
        identity = cls.of(os.getpid())
        assert identity is not None
        return identity

    def alive(self) -> bool:
        """Whether this very process still runs."""
        return self == ProcessIdentity.of(self.pid)

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> ProcessIdentity:
        return cls(pid=int(value["pid"]), start_ticks=int(value["start_ticks"]), boot_id=str(value["boot_id"]))


def boot_id() -> str:
    """The kernel's random identity of this boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


def stat_fields(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third (state) on; None when the process is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()


def all_pids() -> Iterator[int]:
    """Pids of all processes visible here."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            yield int(entry)


def die_with_parent() -> None:
    """In a child, before exec: be killed when the controller dies (PR_SET_PDEATHSIG)."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL, 0, 0, 0)

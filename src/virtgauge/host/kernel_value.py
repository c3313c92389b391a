"""Values of the kernel, set by files while guests need them, and put back after them even after a kill -9."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from virtgauge.errors import UnavailableError
from virtgauge.host.rights import AS_ROOT, lacking
from virtgauge.host.tag import is_own_file

_CPUFREQ = Path("/sys/devices/system/cpu/cpufreq")
_RECORD = "kernel-value{}.json"  # In a scope's folder, by the value's path: what was in force before, and what is to be
_held: dict[Path, list[str]] = {}  # By record: the value, once for each guest that needs it
_locks: dict[Path, int] = {}  # By record: the kernel's file, open and locked against other runs while there are holders


def undone(records: Iterable[Path], undo: Callable[[Any], str | None]) -> list[str]:
    """Undo what records of ours tell of changes to this machine, and remove them; what was done, a line for each.

    ``undo`` is given what a record holds, and returns such a line, or none where there was nothing to do.  Where it
    raises OSError the record stays: another user may have the right to.
    """
    lines = []
    for record in filter(is_own_file, records):
        try:
            lines.append(undo(json.loads(record.read_text())))
        except OSError:
            continue
        except (ValueError, KeyError, TypeError):
            pass  # half-written: nothing was changed yet
        record.unlink(missing_ok=True)
    return [line for line in lines if line]


def hold_value(file: Path, value: str, scope_folder: Path) -> Callable[[], object]:
    """Have a file of the kernel's say a value for one more guest of a scope; returns what ends that.
    Raises UnavailableError: it cannot be set, had another value afterwards, another guest of the scope needs another,
    or another run holds it, which would put back a value that is not in force any more.
    """
    record = scope_folder / _RECORD.format(str(file).replace("/", "-"))
    holders = _held.setdefault(record, [])
    if holders and holders[0] != value:
        said = f"{file} = {value}: another guest of this run needs {holders[0]}"
        raise UnavailableError(said, "the kernel has one value for all of them; measure these guests one after another")

    def release() -> None:
        undone([record], _write_before)
        if (lock := _locks.pop(record, None)) is not None:
            os.close(lock)

    try:
        if not holders:
            _lock(file, record)
            before = file.read_text().strip()
            record.write_text(json.dumps({"file": str(file), "set": value, "before": before}))
            file.write_text(value)
            if (found := file.read_text().strip()) != value:
                file.write_text(before)
                raise UnavailableError(f"{file} is {found} after {value} was set", None)
    except (OSError, UnavailableError) as error:
        release()
        if isinstance(error, UnavailableError):
            raise
        words = f"{file} cannot be set to {value}: {error.strerror}{lacking('CAP_DAC_OVERRIDE')}"
        raise UnavailableError(words, AS_ROOT) from error
    holders.append(value)

    def end() -> None:
        holders.pop()
        if not holders:
            release()

    return end


def _lock(file: Path, record: Path) -> None:
    """Hold a value against other runs until its record is undone.  Raises UnavailableError: another run holds it."""
    _locks[record] = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(_locks[record], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UnavailableError(f"{file}: another run needs its value", "wait until it has ended, or end it") from None


def put_back_values(scope_folder: Path) -> list[str]:
    """Put back what a scope has changed, unless somebody has changed it since; a line for people each."""
    return undone(sorted(scope_folder.glob(_RECORD.format("*"))), _write_before)


def _write_before(told: Any) -> str | None:
    file, ours, before = Path(told["file"]), str(told["set"]), str(told["before"])
    with contextlib.suppress(FileNotFoundError):  # it is gone: a module, a processor
        if file.read_text().strip() == ours != before:
            file.write_text(before)
            return f"put back {file} = {before}"
    return None


def missing_governor(name: str, cpufreq: Path = _CPUFREQ) -> UnavailableError | None:
    """Why a governor cannot be set on this machine by anybody; None where it can."""
    offered = sorted(cpufreq.glob("policy*/scaling_available_governors"))
    if not offered:
        return UnavailableError(
            "governors: this machine has no cpufreq: firmware or a hypervisor chooses the frequency",
            'leave governors out, or measure with "as-is" alone',
        )
    known = offered[0].read_text().split()
    if name in known:
        return None
    return UnavailableError(f"governors: this machine has no {name!r}", f"use one of {', '.join(known)}")


def set_governor(name: str, scope_folder: Path, cpufreq: Path = _CPUFREQ) -> Callable[[], object]:
    """Let a governor choose the frequency of all processors; returns what puts back those that were in force.
    Raises UnavailableError: this machine lets nobody choose, has no such governor, or had another one afterwards.
    """
    if (error := missing_governor(name, cpufreq)) is not None:
        raise error
    with contextlib.ExitStack() as undo:
        for policy in sorted(cpufreq.glob("policy*")):
            undo.callback(hold_value(policy / "scaling_governor", name, scope_folder))
        return undo.pop_all().close

"""One program under the shim: environment, signals, exit status, and what the shim reported."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import os
import platform
import re
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from virtgauge.errors import UnavailableError
from virtgauge.extras import find_native

ENVIRONMENT_VARIABLE = "VIRTGAUGE_SHIM"


def find_library() -> Path:
    """Find the shim: ``$VIRTGAUGE_SHIM``, then the one inside the installed package.
    Raises UnavailableError: neither exists, or the machine's C library is not glibc or is older than the shim asks for.
    """
    path = find_native("libhptime_preload.so", ENVIRONMENT_VARIABLE, "the shim", "a built shim", "shim")
    needed, present = needed_glibc(path.read_bytes()), present_glibc()
    if present is None or present < needed:
        found = "another C library" if present is None else f"glibc {present[0]}.{present[1]}"
        raise UnavailableError(
            f"the shim was built for glibc {needed[0]}.{needed[1]} or later, and this machine has {found}",
            "build virtgauge from source on this machine",
        )
    return path


def needed_glibc(image: bytes) -> tuple[int, int]:
    """The latest version of glibc's interface that a shared object names."""
    versions = re.findall(rb"GLIBC_(\d+)\.(\d+)(?:\.\d+)?\0", image)
    return max(((int(major), int(minor)) for major, minor in versions), default=(0, 0))


def present_glibc() -> tuple[int, int] | None:
    """The version of this process's glibc; None for another C library."""
    library, version = platform.libc_ver()
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if library == "glibc" and found else None


_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
_FROM_THE_TERMINAL = (signal.SIGINT, signal.SIGQUIT)  # the terminal sends them to the program as well


@dataclasses.dataclass(frozen=True)
class ShimReport:
    """What came back from a program and its children."""

    returncode: int  # exit status; negative is the signal that ended the program
    processes: int
    itself: bool  # the program's own process is among them
    reasons: tuple[str, ...]  # why processes were not served, without repetition
    served: dict[str, int]  # calls that hptime answered, by entry point, over all processes
    passed: dict[str, int]  # calls that went to the C library, likewise
    sleeps: int  # served
    interrupted: int  # sleeps that a signal ended
    spin_ns: int  # time spun

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"served_in_all": sum(self.served.values())}

    def lines(self, program: str) -> Iterator[str]:
        if not self.itself and self.returncode < 0:
            name = signal.Signals(-self.returncode).name
            yield f"no report came back from {program}: {name} ended it before it could write one"
        elif not self.itself:
            yield (
                f"no report came back from {program}: it replaced itself by another program, "
                "or cleared its environment or closed its files"
            )
        if self.processes:
            yield f"served {_calls(self.served)} of {_number(self.processes, 'process', 'es')}{_by_entry(self.served)}"
        if self.passed:
            yield f"passed {_calls(self.passed)} to the C library{_by_entry(self.passed)}"
        for reason in self.reasons:
            yield f"served nothing: {reason}"


def _number(count: int, noun: str, plural: str = "s") -> str:
    return f"{count:,} {noun}{'' if count == 1 else plural}"


def _calls(counts: dict[str, int]) -> str:
    return _number(sum(counts.values()), "call")


def _by_entry(counts: dict[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return ": " + ", ".join(f"{name} {count:,}" for name, count in ordered) if ordered else ""


def run_under_shim(library: Path, command: Sequence[str], executable: Path, rule: str) -> ShimReport:
    """Run a program to its end, with this process's own input, output and folder.
    Raises UnavailableError: the loader could not be told where the shim is; OSError: the program cannot be started.
    """
    with tempfile.TemporaryDirectory(prefix="virtgauge-shim-") as folder:
        os.chmod(folder, 0o711)  # a program that gives up its rights reports too, if it knows where
        reports = Path(folder) / "reports"
        reports.touch()
        reports.chmod(0o622)
        environment = os.environ | {
            "LD_PRELOAD": ":".join(filter(None, [_nameable(library, folder), os.environ.get("LD_PRELOAD")])),
            "HPTIME_STATS": str(reports),
            "HPTIME_RULE": rule,
        }
        with _signals_left_to_a_program() as started:
            process = subprocess.Popen(list(command), executable=executable, env=environment)
            started(process)
            process.wait()
        return summed(process.pid, process.returncode, reports.read_text(errors="replace"))


def _nameable(library: Path, folder: str) -> str:
    """A path without the characters at which the loader divides LD_PRELOAD."""
    if not re.search(r"[\s:]", str(library)):
        return str(library)
    link = Path(folder) / library.name
    if re.search(r"[\s:]", str(link)):
        raise UnavailableError(
            f"LD_PRELOAD cannot name {library}, nor {link}: blanks and colons divide it", "set TMPDIR to a plain path"
        )
    link.symlink_to(library)
    return str(link)


@contextlib.contextmanager
def _signals_left_to_a_program() -> Iterator[Callable[[subprocess.Popen[bytes]], None]]:
    """Let the program decide upon signals: what is sent here goes on to it, what the terminal sends it has already.

    Entered before the program starts, since whoever waits for its first word may send a signal at once: what comes
    before the program is named by the function given here goes to it then.  Signals that are ignored stay so.
    """
    program: subprocess.Popen[bytes] | None = None
    early: list[int] = []

    def forward(number: int, _frame: object) -> None:
        if program is None:
            early.append(number)
        elif number in _FORWARDED:
            program.send_signal(number)

    def started(process: subprocess.Popen[bytes]) -> None:
        nonlocal program
        program = process
        for number in early:
            process.send_signal(number)

    caught = [number for number in _FORWARDED + _FROM_THE_TERMINAL if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, forward) for number in caught}
    try:
        yield started
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def summed(pid: int, returncode: int, text: str) -> ShimReport:
    """The reports of all processes as one, of the program itself and others; a line that was cut off is left out."""
    served, passed, totals = (collections.Counter[str]() for _ in range(3))
    processes = set[int]()
    reasons: dict[str, None] = {}
    for line in text.splitlines():
        try:
            record = json.loads(line)
            processes.add(record["process"])
            served.update(record["served"])
            passed.update(record["passed"])
            totals.update({name: record[name] for name in ("sleeps", "interrupted", "spin_ns")})
            if record["reason"] is not None:
                reasons[record["reason"]] = None
        except (ValueError, KeyError, TypeError):
            continue
    return ShimReport(
        returncode=returncode,
        processes=len(processes),
        itself=pid in processes,
        reasons=tuple(reasons),
        served=dict(served),
        passed=dict(passed),
        sleeps=totals["sleeps"],
        interrupted=totals["interrupted"],
        spin_ns=totals["spin_ns"],
    )


def end_as(returncode: int) -> None:
    """End this process as the program ended: with its status, or by its signal (without a core file of ours)."""
    if returncode >= 0:
        sys.exit(returncode)
    sys.stdout.flush()
    sys.stderr.flush()
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    number = -returncode
    if number not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    sys.exit(128 + number)  # where the signal is blocked

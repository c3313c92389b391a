"""Runs an unmodified program with its clock reads and sleeps served by hptime (``native/hptime-preload``).

Whether a preloaded library can reach the program is found out before it is run: ELF fields are those of the System V
ABI, and Go marks its programs with a section ``.go.buildinfo`` or a note.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import json
import mmap
import os
import platform
import re
import resource
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from virtgauge.errors import UnavailableError, UsageError
from virtgauge.extras import find_native

app = typer.Typer()


class SleepRule(enum.StrEnum):
    """How a sleep divides between the kernel and the spin."""

    ADAPTIVE = "adaptive"
    HIGHPERTIMER = "highpertimer"
    OS = "os"


@app.command(
    context_settings={"allow_interspersed_args": False},  # what follows the program's name is the program's
    epilog="Examples: virtgauge shim -- python3 probe.py, "
    "virtgauge shim --rule highpertimer --json calls.json -- iperf3 -c 127.0.0.1",
)
def shim(
    command: Annotated[list[str], typer.Argument(metavar="PROGRAM", help="The program and its arguments.")],
    rule: Annotated[
        SleepRule, typer.Option(help="adaptive: by what was learnt; highpertimer: 1/HZ before; os: the kernel's sleep.")
    ] = SleepRule.ADAPTIVE,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the report to this file, as JSON.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print no report and no warning.")] = False,
) -> None:
    """Run a program with its clock reads and sleeps served by hptime, and report how many calls were.

    Served are clock_gettime (monotonic and real time), gettimeofday, time, nanosleep, clock_nanosleep, usleep, sleep,
    and their syscall() forms.  The program keeps its input and output, and its exit status or signal becomes this
    command's.  The report goes to standard error.

    Not reached: static, set-user-ID, Go and 32-bit programs (refused, or warned of), code that calls the vDSO or the
    kernel by itself, and children that are started with a cleared environment.
    """
    path, warnings = find_target(command[0])
    library = find_library()
    if not quiet:
        for warning in warnings:
            print(f"virtgauge shim: warning: {warning}", file=sys.stderr, flush=True)
    if json_path is not None and (json_path.is_dir() or not json_path.resolve().parent.is_dir()):
        raise UsageError(f"--json {json_path}: it is a folder, or its folder does not exist", "name a file in a folder")
    try:
        report = run_under_shim(library, command, path, rule.value)
    except OSError as error:
        raise UsageError(f"{path}: cannot be started: {error.strerror}") from error
    if not quiet:
        for line in report.lines(command[0]):
            print(f"virtgauge shim: {line}", file=sys.stderr, flush=True)
    if json_path is not None:
        described = {"command": command, "rule": rule.value, "warnings": warnings} | report.as_dict()
        json_path.write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
    end_as(report.returncode)


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


_PT_INTERP = 3
_CLASS_64, _LITTLE = 2, 1
_MACHINES = {"x86_64": 62, "aarch64": 183}
# Machine; where the segments and the sections are; size and count of each; and which section has their names.
_HEADER = struct.Struct("<18xH12xQQ6xHHHHH")
_SEGMENT = struct.Struct("<I4xQ16xQ")  # Its kind, and where in the file it is, with its length there
_SECTION = struct.Struct("<I20xQ")  # Where its name begins among the names, and where in the file it is

_DEEPEST_SCRIPT = 4  # as in the kernel (BINPRM_MAX_RECURSION is one more)
_CAPABILITIES = "security.capability"


def find_target(program: str) -> tuple[Path, list[str]]:
    """Find a program as a shell would, and look whether the shim can reach it; its path, and what is not reached.
    Raises UsageError: there is no such program, or the file cannot be executed; UnavailableError: it can be executed,
    but a preloaded library would not be loaded or not be called.
    """
    path = _located(program)
    return path, _examined(path, 0)


def _located(program: str) -> Path:
    if "/" in program:
        path = Path(program)
        if not path.exists():
            raise UsageError(f"{program}: there is no such file", "check the path of the program")
    else:
        found = shutil.which(program)
        if found is None:
            raise UsageError(f"{program}: no such program in PATH", "check the name, or give its path")
        path = Path(found)
    if path.is_dir():
        raise UsageError(f"{path}: is a folder, not a program", "give the path of a program in it")
    if not os.access(path, os.X_OK):
        raise UsageError(f"{path}: is not executable", f"chmod +x {path}")
    return path


def _examined(path: Path, depth: int) -> list[str]:
    if secured := _privilege(path):
        raise UnavailableError(
            f"{path}: {secured}, so the loader ignores LD_PRELOAD for it, and the shim would serve nothing",
            "run a copy of the program without the privilege: cp drops it",
        )
    try:
        with path.open("rb") as file:
            head = file.read(256)
            words = head[2:].split(b"\n", 1)[0].decode(errors="replace").split(None, 1)
            if head.startswith(b"#!") and words:
                return _script(path, words, depth)
            if head.startswith(b"\x7fELF"):
                with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as image:
                    return _elf(path, image)
    except PermissionError:
        return [f"{path} cannot be read, so it is not known whether the shim reaches it"]
    except (struct.error, IndexError):  # it was cut off
        pass
    raise UsageError(
        f"{path}: is neither an ELF executable nor a script that names its interpreter", f"try `sh {path}`"
    )


def _script(path: Path, words: list[str], depth: int) -> list[str]:
    """What the interpreter of a script is, which stands in its first line with at most one argument."""
    if depth >= _DEEPEST_SCRIPT:
        raise UsageError(f"{path}: its interpreter is a script whose interpreter is a script, too often")
    interpreter = Path(words[0])
    if not interpreter.exists():
        raise UsageError(f"{path}: its interpreter {interpreter} does not exist", "correct the script's first line")
    warnings = _examined(interpreter, depth + 1)
    arguments = "".join(words[1:]).removeprefix("-S").split()
    if interpreter.name == "env" and arguments and "=" not in arguments[0] and not arguments[0].startswith("-"):
        warnings += _examined(_located(arguments[0]), depth + 1)
    return warnings


def _elf(path: Path, image: mmap.mmap) -> list[str]:
    if image[4] != _CLASS_64:
        raise UnavailableError(f"{path}: is a 32-bit program, and the shim has 64 bits", "use a 64-bit build of it")
    machine, segments, sections, *sizes = _HEADER.unpack_from(image)
    segment_size, segment_count, section_size, section_count, names = sizes
    if image[5] != _LITTLE or machine != _MACHINES.get(platform.machine()):
        raise UnavailableError(f"{path}: is for another processor than this machine's")
    told = [_SEGMENT.unpack_from(image, segments + number * segment_size) for number in range(segment_count)]
    loaders = [image[offset : offset + length] for kind, offset, length in told if kind == _PT_INTERP]
    go = _is_go(image, sections, section_size, section_count, names)
    if not loaders:
        language = " (it is written in Go)" if go else ""
        still = "; Go's runtime would still read the clock by itself" if go else ""
        raise UnavailableError(
            f"{path}: is linked statically{language}, so no loader reads LD_PRELOAD for it",
            f"use a dynamically linked build of it{still}",
        )
    if b"ld-musl" in loaders[0]:
        raise UnavailableError(f"{path}: uses musl, and the shim needs glibc", "use a build of it for glibc")
    words = f"{path} is written in Go, whose runtime reads the clock and sleeps by itself: only its C code is reached"
    return [words] if go else []


def _is_go(image: mmap.mmap, sections: int, size: int, count: int, names: int) -> bool:
    if not count:
        return False
    _, names_at = _SECTION.unpack_from(image, sections + names * size)
    begins = [names_at + _SECTION.unpack_from(image, sections + number * size)[0] for number in range(count)]
    return any(image[at : image.find(b"\0", at)] in (b".go.buildinfo", b".note.go.buildid") for at in begins)


def _privilege(path: Path) -> str | None:
    """What makes the loader ignore the environment (AT_SECURE); None when nothing does."""
    status = path.stat()
    if status.st_mode & stat.S_ISUID and status.st_uid != os.getuid():
        return "is set-user-ID"
    # Without group execution the bit means mandatory locking.
    if status.st_mode & stat.S_ISGID and status.st_mode & stat.S_IXGRP and status.st_gid != os.getgid():
        return "is set-group-ID"
    try:
        capable = _CAPABILITIES in os.listxattr(path)
    except OSError:  # a file system without attributes
        return None
    return "has file capabilities" if capable else None

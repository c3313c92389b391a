"""The command ``virtgauge shim -- PROGRAM``."""

from __future__ import annotations

import enum
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from virtgauge.errors import UsageError


class SleepRule(enum.StrEnum):
    """How a sleep divides between the kernel and the spin."""

    ADAPTIVE = "adaptive"
    HIGHPERTIMER = "highpertimer"
    OS = "os"


_EPILOG = (
    "Examples: virtgauge shim -- python3 probe.py, "
    "virtgauge shim --rule highpertimer --json calls.json -- iperf3 -c 127.0.0.1"
)


def mount(app: typer.Typer) -> None:
    """Make it a command of an application."""
    # What follows the program's name is the program's.
    app.command("shim", context_settings={"allow_interspersed_args": False}, epilog=_EPILOG)(shim)


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
    from virtgauge.shim.session import end_as, find_library, run_under_shim
    from virtgauge.shim.target import find_target

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

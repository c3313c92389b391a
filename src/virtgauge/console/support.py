"""``virtgauge self-check`` and ``support``: what works on a machine, for others to know."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from virtgauge.console.displays import output
from virtgauge.console.options import NewRunFolder, OutFile, Platforms, run_folder, whole_file, writable_file
from virtgauge.console.runs import NoProvision, overridden
from virtgauge.errors import ExitCode, UsageError, VirtgaugeError, printable

if TYPE_CHECKING:
    from virtgauge.exchange.self_check import SelfCheck

app = typer.Typer()
support = typer.Typer(name="support", help="What self-checks of many machines say together.", no_args_is_help=True)
support.callback()(lambda: None)  # a group, although it has one command

_OVERTIME = 1.2  # A run that has taken so much longer than it was to take is ended
_LOOK_S = 1.0
_PLAN = "platforms"  # which has every platform that needs no address, and every suite in its shortest form


@app.command("self-check", epilog="Examples: virtgauge self-check, virtgauge self-check --platform qemu-microvm")
def self_check(
    file: Annotated[
        Path, typer.Option("--file", callback=writable_file, help="Write what was found to this file.")
    ] = Path("virtgauge-self-check.json"),
    out: NewRunFolder = None,
    minutes: Annotated[float, typer.Option(min=1, max=600, help="Of measuring; what takes longer is left out.")] = 10,
    platform: Platforms = None,
    no_provision: NoProvision = False,
) -> None:
    """Try every platform of this machine with every suite, and write what worked to one file, to be sent to others.

    Names of host and users, addresses, serial numbers and folders are left out of the file. It is shown, and sent
    nowhere. What the platforms need is installed before, as by `virtgauge run`. Exit code 1: something failed, was not
    reached, or was left behind.
    """
    from virtgauge.exchange.self_check import failures
    from virtgauge.exchange.self_check import self_check as found_in
    from virtgauge.host.reclaim import tags_at_hand
    from virtgauge.ledger.read_only import ReadOnlyLedger
    from virtgauge.ledger.records import COMPLETED, INCOMPLETE
    from virtgauge.ledger.store import LEDGER_NAME
    from virtgauge.plan.load import load_plan
    from virtgauge.results.table import ResultTable

    plan = overridden(*load_plan(_PLAN), None, None, platform)
    folder = run_folder(out, "self-check")
    if (folder / LEDGER_NAME).exists():
        raise UsageError(f"--out {folder}: holds a run already", "name a new folder")
    words = ["run", _PLAN, "--out", str(folder), "--minutes", f"{minutes:g}"]
    words += [word for name in platform or () for word in ("--platform", name)]
    before = tags_at_hand()
    # Not in this process: what a run leaves behind is seen when it is gone, and its crash is a finding.
    most_s = 60 * minutes * _OVERTIME
    code, in_time = _ended([*words, *(["--no-provision"] if no_provision else [])], folder / LEDGER_NAME, most_s)
    left = _left_behind(tags_at_hand() - before)
    if not (folder / LEDGER_NAME).exists():
        raise typer.Exit(code or ExitCode.FAILED)  # of which the run has told
    with ReadOnlyLedger.for_command(folder) as ledger:
        # A trial that failed is told by its suite; a run that did not come to its end is told here.
        by_itself = ledger.events()[-1].kind in (COMPLETED, INCOMPLETE)
        how = "" if by_itself else "was interrupted" if code == ExitCode.INTERRUPTED else f"ended with code {code}"
        how = how if in_time or by_itself else f"was ended after {most_s / 60:g} minutes"
        found = found_in(ResultTable(ledger), plan.suite, left, how)
    text = found.model_dump_json(indent=1, exclude_defaults=True) + "\n"
    print(printable(text, lines=True))
    _show(found)
    with whole_file(file, "--file") as path:
        path.write_text(text)
    print(f"\nall of it, as above, is in {file}, and was sent nowhere: attach it to an issue; the run is in {folder}")
    if code == ExitCode.INTERRUPTED and in_time:
        raise typer.Exit(code)
    if how or left or any(map(failures, found.platforms)):
        raise typer.Exit(ExitCode.FAILED)


def _ended(words: list[str], ledger: Path, most_s: float) -> tuple[int, bool]:
    """Run virtgauge to its end, with its progress and without its report; its exit code, and whether it was in time.

    The time begins when there is a ledger.  Signals to us end it, too.
    """
    process = subprocess.Popen([sys.executable, "-m", "virtgauge.cli", *words], stdout=subprocess.DEVNULL)
    with contextlib.ExitStack() as stack:
        for number in (signal.SIGINT, signal.SIGTERM):
            stack.callback(signal.signal, number, signal.signal(number, lambda *_: process.terminate()))
        while not ledger.exists():
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(_LOOK_S), True
        began = time.monotonic()
        # Waiting with a time-out would wake twenty times a second beside what is measured.
        timer = threading.Timer(most_s, process.terminate)
        timer.start()
        stack.callback(timer.cancel)
        return process.wait(), time.monotonic() - began < most_s


def _left_behind(tags: set[str]) -> list[str]:
    """What is there under these tags, in words; it is removed as far as that is possible."""
    from virtgauge.host.reclaim import DeadScope, find_dead_scopes, holdings, reclaim_dead
    from virtgauge.host.tag import state_root

    folders = {tag: state_root() / tag for tag in sorted(tags)}
    scopes = [
        DeadScope(tag, folder if folder.is_dir() else None, "its run has ended", None, own=True)
        for tag, folder in folders.items()
    ]
    held = [one for scope in scopes for one in holdings(scope)]
    reclaim_dead([dead for dead in find_dead_scopes() if dead.tag in tags and dead.own])
    kept = {one for scope in scopes for one in holdings(scope)}
    return [f"{one}{', and it could not be removed' if one in kept else ''}" for one in held]


def _show(found: SelfCheck) -> None:
    from virtgauge.exchange.self_check import result_of

    table = Table("platform", "version", "result", "cells measured", box=None, pad_edge=False, header_style="bold")
    for column in table.columns:
        column.overflow = "fold"
    for one in found.platforms:
        cells = ", ".join(f"{name} {suite.measured}" for name, suite in one.suites.items())
        label = f"{one.name} ({one.mark})" if one.mark else one.name
        table.add_row(*(escape(printable(text)) for text in (label, one.version, result_of(one), cells)))
    console = output()
    console.print(table)
    notes = [*found.left_out, *(f"left behind: {held}" for held in found.left_behind)]
    for note in [*notes, *([f"the run {found.ended}"] if found.ended else [])]:
        console.print(printable(note), highlight=False, soft_wrap=True, markup=False)


@support.command(epilog="Example: virtgauge support merge self-checks/*.json --out docs/support.md")
def merge(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="What `virtgauge self-check` wrote.")],
    out: OutFile = None,
) -> None:
    """Make a table of self-checks: platform, version, kernel, machine, what was measured, and what came of it.

    With --out, a table that this command has put into the file is replaced, and all else is kept.
    """
    from virtgauge.exchange.self_check import merged, read_self_check, spliced

    section = merged(read_self_check(path) for path in files)
    if out is None:
        print(section, end="")
        return
    try:
        document = out.read_text() if out.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise VirtgaugeError(f"cannot read {out}: {error}", "name a Markdown file, or a new one") from error
    with whole_file(out) as path:
        path.write_text(spliced(document, section))
    print(f"merged: {out}")

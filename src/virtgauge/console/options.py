"""Options and arguments that several commands have."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from virtgauge.console.displays import ProgressStyle
from virtgauge.errors import UsageError, printable, unwritable

if TYPE_CHECKING:
    from virtgauge.exchange.place import Place
    from virtgauge.ledger.store import Ledger

Minutes = Annotated[
    float | None,
    typer.Option(min=0.1, max=100_000, help="Fit the plan into this time; what is left out of it is named."),
]
Platforms = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Only these platforms, and the reference. May be repeated.")
]
Full = Annotated[bool, typer.Option("--full", help="The exhaustive form of a preset (full:NAME): hours to days.")]


def writable_file(ctx: typer.Context, param: typer.CallbackParam, value: Path | None) -> Path | None:
    """A file that a command will write: refused before the work, not after it.
    Raises UsageError: it cannot be written; VirtgaugeError: there is no room.
    """
    if value is not None and not ctx.resilient_parsing:
        with _refusal(param.opts[0], value, "choose a file in a folder that is there and can be written"):
            there = value.exists()
            if not there or value.is_file() or value.is_dir():  # a pipe may have no reader yet
                value.open("ab").close()
            if not there:
                value.unlink()
    return value


@contextlib.contextmanager
def whole_file(out: Path, option: str = "--out", *, named: bool = True) -> Iterator[Path]:
    """Where to write a file that is to be there whole or as it was before; nothing half of it stays.

    A device, pipe or link that the user has ``named`` is written to, and not replaced.  Nothing else is: a
    run's folder, which may come from anybody, may hold pipes and links of these names.
    Raises UsageError: it cannot be written; VirtgaugeError: there is no room.
    """
    partial = out.with_name(out.name + ".partial")
    try:
        if named and out.exists() and (out.is_symlink() or not out.is_file()):
            with tempfile.TemporaryFile() as scratch:
                yield Path(f"/proc/self/fd/{scratch.fileno()}")
                with out.open("wb") as stream:
                    shutil.copyfileobj(scratch, stream)
            return
        partial.unlink(missing_ok=True)
        try:
            yield partial
            partial.replace(out)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(f"cannot write {out}: {error}", error, f"choose another file with {option}") from error


def makeable_folder(ctx: typer.Context, param: typer.CallbackParam, value: Path | None) -> Path | None:
    """A folder that a command will make, with its parents, or write to. Raises UsageError: it cannot be made."""
    if value is not None and not ctx.resilient_parsing:
        require_makeable(param.opts[0], value)
    return value


def run_folder(out: Path | None, plan_name: str) -> Path:
    """The folder of a new run: the one named, else a new one below ``runs``. Raises UsageError: it cannot be made."""
    from virtgauge.execution.run import new_run_folder

    if out is not None:
        return out
    folder = new_run_folder(Path("runs"), plan_name)
    require_makeable("the run's folder", folder, "name one that can be written with --out")
    return folder


def require_makeable(
    option: str, folder: Path, remedy: str = "choose a folder that can be written, or in one that can"
) -> None:
    """Refuse a folder that is neither there to be written nor can be made. Raises UsageError: naming the option."""
    made: list[Path] = []
    try:
        with _refusal(option, folder, remedy):
            for part in reversed([folder, *folder.parents]):
                if not part.is_dir():
                    part.mkdir()
                    made.append(part)
            if not os.access(folder, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    finally:
        for part in reversed(made):
            part.rmdir()


def tell_lost_samples(ledger: Ledger) -> None:
    """Say on standard error which trials' raw values are missing."""
    for words in ledger.samples_caveats():
        print(printable(f"virtgauge: {words}"), file=sys.stderr)


def place_to_write(option: str, location: str, *, endpoint: str | None = None, region: str | None = None) -> Place:
    """Where an archive is, or is to be. Raises UsageError: there can be none."""
    from virtgauge.exchange.place import open_place

    place = open_place(location, endpoint=endpoint, region=region)
    if not place.is_store:
        require_makeable(option, Path(location))
    return place


@contextlib.contextmanager
def _refusal(option: str, path: Path, remedy: str) -> Iterator[None]:
    if str(path) == "-":
        raise UsageError(f"{option} -: is no name of a file or folder", "standard output is called /dev/stdout")
    try:
        yield
    except OSError as error:
        raise unwritable(f"{option} {path}: cannot be written: {error.strerror}", error, remedy) from error


RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")]
NewRunFolder = Annotated[
    Path | None,
    typer.Option("--out", callback=makeable_folder, help="Folder of the run; a new one below runs/ by default."),
]
Progress = Annotated[
    ProgressStyle, typer.Option(help="auto: a bar on a terminal, lines elsewhere; json: one object a line.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress and no summary.")]
JUnit = Annotated[
    Path | None,
    typer.Option("--junit", callback=writable_file, help="Write the verdicts to this file as JUnit XML."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
NoProgress = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
ReportedMeasures = Annotated[
    list[str] | None,
    typer.Option(metavar="SUITE.MEASURE", help="Instead of the headline ones (`virtgauge measures`). Repeatable."),
]
Equivalent = Annotated[
    float, typer.Option(min=0, max=100, help="Per cent of change that make no difference; 0: every change does.")
]
OutFile = Annotated[Path | None, typer.Option("--out", callback=writable_file, help="Write to this file instead.")]

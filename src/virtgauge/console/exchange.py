"""Runs in the formats of others, and others' results as trials."""

from __future__ import annotations

import contextlib
import enum
import json
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from virtgauge.console.options import makeable_folder, tell_lost_samples, whole_file, writable_file
from virtgauge.errors import UsageError, unwritable
from virtgauge.exchange import Format

if TYPE_CHECKING:
    from virtgauge.ledger.store import Ledger

app = typer.Typer()

Tool = enum.StrEnum("Tool", "FIO CYCLICTEST OSLAT RTLA HWLATDETECT JITTERDEBUGGER PGBENCH TREX")


@app.command("export", epilog="Example: virtgauge export runs/today --format parquet --out today.parquet")
def export_run(
    folder: Annotated[Path | None, typer.Argument(metavar="RUN", help="Folder of a run.")] = None,
    format: Annotated[
        Format,
        typer.Option(
            help="json: the whole run. csv, parquet: a row for each trial and measure. junit: for CI. openmetrics, "
            "bencher, phoronix: the estimates. hdr: an HdrHistogram log."
        ),
    ] = Format.JSON,
    out: Annotated[
        Path | None, typer.Option(callback=writable_file, help="Write to this file; else to standard output.")
    ] = None,
    measure: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SUITE.MEASURE",
            help="Only this one: timing.sleep_lateness.p99. May be repeated; by default all, and for bencher "
            "and phoronix the headline ones.",
        ),
    ] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of --format json instead.")] = False,
) -> None:
    """Write a run as JSON, CSV, Parquet, JUnit XML, OpenMetrics, HdrHistogram log, Bencher or Phoronix results."""
    if schema:
        from virtgauge.exchange import tidy

        print(json.dumps(tidy.schema(), indent=1))
        return
    if folder is None:
        raise UsageError("RUN is missing", "name the folder of a run, as in `virtgauge export runs/today --format csv`")
    if out is None and format is Format.PARQUET:
        raise UsageError(f"--format {format} is binary", "name a file with --out")
    from virtgauge.ledger.read_only import ReadOnlyLedger

    with ReadOnlyLedger.for_command(folder) as ledger, Console(stderr=True).status(f"exporting {format}"):
        write_export(ledger, format, out, measure or ())
    if out is not None:
        print(f"export: {out}")


def write_export(ledger: Ledger, format: Format, out: Path | None, measures: Sequence[str] = ()) -> None:
    """Write a run in a format to a file, which is there whole or as it was before, or to standard output."""
    from virtgauge.exchange.exports import export

    tell_lost_samples(ledger)
    if out is None:
        with contextlib.ExitStack() as closing:
            try:  # it has no name: a kill leaves none
                text = closing.enter_context(tempfile.TemporaryFile("r", encoding="utf-8", newline=""))
                export(ledger, format, Path(f"/proc/self/fd/{text.fileno()}"), measures)
            except OSError as error:
                remedy = "name a file with --out, or set TMPDIR to a folder with room"
                raise unwritable(f"no temporary file can be written: {error}", error, remedy) from error
            shutil.copyfileobj(text, sys.stdout)
        return
    with whole_file(out) as path:
        export(ledger, format, path, measures)


@app.command("import", epilog="Example: virtgauge import fio host-1.json host-2.json --new runs/disks --arm host")
def import_results(
    tool: Annotated[Tool, typer.Argument(help="Whose output it is.")],
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="fio --output-format=json+, cyclictest or oslat --json, what rtla … hist or hwlatdetect printed, "
            "jitterdebugger's results.json, logs of pgbench -l, or JSON results of TRex, NFVbench or CSIT; each a "
            "repetition, and the logs of one pgbench together.",
        ),
    ],
    arm: Annotated[str, typer.Option(metavar="NAME", help="The platform that was measured.")],
    into: Annotated[Path | None, typer.Option(metavar="RUN", help="Add them to this run.")] = None,
    new: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", callback=makeable_folder, help="Make a run with the arm as reference."),
    ] = None,
    block: Annotated[
        int | None, typer.Option(min=0, max=99_999, help="Number of the first repetition; the first free by default.")
    ] = None,
    condition: Annotated[
        list[str] | None, typer.Option(metavar="FACTOR=LEVEL", help="What the output does not say. May be repeated.")
    ] = None,
    require: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --new: what the run requires, as [[require]] tables.")
    ] = None,
    label: Annotated[str | None, typer.Option(help="What reports call a new arm.")] = None,
    emulated: Annotated[bool, typer.Option("--emulated", help="A new arm's figures are never ranked.")] = False,
) -> None:
    """Record what other tools measured as trials that count like others in reports."""
    from virtgauge.exchange.imports.record import ImportedArm, import_into, read_repetitions, read_requirements

    folder = into or new
    if folder is None or (into and new):
        raise UsageError("name either --into RUN or --new FOLDER", "a run to add to, or the folder of a new one")
    if require is not None and new is None:
        raise UsageError("--require goes with --new", "a run is required the same of from its beginning")
    requirements = "" if require is None else read_requirements(require)
    conditions = {}
    for text in condition or ():
        factor, equals, level = text.partition("=")
        if not equals or factor in conditions:
            raise UsageError(f"--condition {text}: write it as factor=level, each factor once", "--condition disk=nvme")
        conditions[factor] = level
    with Console(stderr=True).status("importing"):
        repetitions = read_repetitions(tool.value, files)
        own, is_new = ImportedArm(arm, label, emulated), new is not None
        imported = import_into(folder, repetitions, own, conditions, block, new=is_new, requirements=requirements)
    print(f"imported: {imported} trials of {arm} in {len(repetitions)} repetitions into {folder}")

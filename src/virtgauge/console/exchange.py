"""Runs in the formats of others, others' results as trials, and archives of many runs with questions to them."""

from __future__ import annotations

import contextlib
import csv
import enum
import json
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from virtgauge.console.displays import output
from virtgauge.console.options import makeable_folder, require_makeable, tell_lost_samples, whole_file, writable_file
from virtgauge.errors import UsageError
from virtgauge.exchange import BINARY, Format

if TYPE_CHECKING:
    from virtgauge.exchange.query import Answer

app = typer.Typer()


Tool = enum.StrEnum("Tool", "FIO CYCLICTEST OSLAT RTLA HWLATDETECT JITTERDEBUGGER PGBENCH TREX")
AnswerFormat = enum.StrEnum("AnswerFormat", "TEXT CSV JSON")


@app.command("export", epilog="Example: virtgauge export runs/today --format parquet --out today.parquet")
def export_run(
    folder: Annotated[Path | None, typer.Argument(metavar="RUN", help="Folder of a run.", show_default=False)] = None,
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
    if out is None and format in BINARY:
        raise UsageError(f"--format {format} is binary", "name a file with --out")
    from virtgauge.exchange.exports import export
    from virtgauge.ledger.read_only import ReadOnlyLedger

    with ReadOnlyLedger.for_command(folder) as ledger, Console(stderr=True).status(f"exporting {format}"):
        tell_lost_samples(ledger)
        if out is None:
            with tempfile.TemporaryFile("r", encoding="utf-8", newline="") as text:  # has no name: a kill leaves none
                export(ledger, format, Path(f"/proc/self/fd/{text.fileno()}"), measure or ())
                shutil.copyfileobj(text, sys.stdout)
            return
        with whole_file(out) as path:
            export(ledger, format, path, measure or ())
    print(f"export: {out}")


@app.command("import", epilog="Example: virtgauge import fio host-1.json host-2.json --new runs/disks --arm host")
def import_results(
    tool: Annotated[Tool, typer.Argument(help="Whose output it is.", show_default=False)],
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE",
            help="fio --output-format=json+, cyclictest or oslat --json, what rtla … hist or hwlatdetect printed, "
            "jitterdebugger's results.json, logs of pgbench -l, or JSON results of TRex, NFVbench or CSIT; each a "
            "repetition, and the logs of one pgbench together.",
            show_default=False,
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

    if into is not None and new is None:
        folder = into
    elif new is not None and into is None:
        folder = new
    else:
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
        imported = import_into(
            folder,
            repetitions,
            ImportedArm(arm, label, emulated),
            conditions,
            block,
            new=new is not None,
            requirements=requirements,
        )
    print(f"imported: {imported} trials of {arm} in {len(repetitions)} repetitions into {folder}")


_WIDE = 160

Endpoint = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Of an object store that is not Amazon's; else VIRTGAUGE_S3_ENDPOINT says it."),
]
Region = Annotated[str | None, typer.Option(metavar="REGION", help="Of the bucket; else AWS_REGION says it.")]


@app.command(epilog="Example: virtgauge archive runs/* --to s3://measurements/lab")
def archive(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of runs.", show_default=False)],
    to: Annotated[str, typer.Option(metavar="PLACE", help="A folder, or s3://BUCKET/PREFIX.")],
    endpoint: Endpoint = None,
    region: Region = None,
) -> None:
    """Put runs into an archive of Parquet files, each run once, whole or not at all; a run that has grown, anew."""
    from virtgauge.exchange.archive import archive_run, open_place
    from virtgauge.ledger.read_only import ReadOnlyLedger

    if "://" not in to:
        require_makeable("--to", Path(to))
    place = open_place(to, endpoint=endpoint, region=region)
    with Console(stderr=True).status("archiving") as status:
        for number, folder in enumerate(runs, start=1):
            status.update(f"archiving run {number} of {len(runs)}")
            with ReadOnlyLedger.for_command(folder) as ledger:
                tell_lost_samples(ledger)
                done = archive_run(place, ledger)
            print(f"{folder}: {done.outcome} ({done.entry.trials} trials as {done.entry.archive})")


@app.command(epilog="Example: virtgauge query archive --measure timing.sleep_lateness.p99 --by arm,factor.load")
def query(
    place: Annotated[str, typer.Argument(metavar="PLACE", help="A folder, or s3://BUCKET/PREFIX.", show_default=False)],
    sql: Annotated[
        str | None, typer.Option(metavar="SELECT", help="One SELECT from the tables trials and runs.")
    ] = None,
    measure: Annotated[
        str | None, typer.Option(metavar="SUITE.MEASURE", help="The figures of this one: timing.sleep_lateness.p99.")
    ] = None,
    by: Annotated[
        str, typer.Option(metavar="COLUMNS", help="In groups of these columns; factor.NAME for a factor's level.")
    ] = "arm",
    where: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN=TEXT", help="Only such trials. May be repeated.")
    ] = None,
    format: Annotated[AnswerFormat, typer.Option(help="Of the answer.")] = AnswerFormat.TEXT,
    limit: Annotated[int, typer.Option(min=1, max=10_000_000, help="At most so many rows.")] = 1000,
    memory: Annotated[int, typer.Option(min=64, help="MiB that the query may take.")] = 1024,
    seconds: Annotated[float, typer.Option(min=0.01, help="Time limit of the query.")] = 300.0,
    endpoint: Endpoint = None,
    region: Region = None,
) -> None:
    """Ask an archive, without loading it: the figures of a measure in groups, or any SELECT."""
    from virtgauge.exchange.archive import open_place
    from virtgauge.exchange.query import Limits, open_archive, summary_sql
    from virtgauge.measures.catalogue import named_measures

    parameters: list[str] = []
    if (sql is None) == (measure is None):
        raise UsageError("name either --sql or --measure", "--sql for any question, --measure for figures in groups")
    if measure is not None:
        (chosen,) = named_measures([measure])
        groups = [name.strip() for name in by.split(",") if name.strip()]
        sql, parameters = summary_sql(chosen.suite, chosen.name, groups, [_condition(text) for text in where or ()])
    elif where:
        raise UsageError("--where goes with --measure", "put the condition into the SELECT")
    assert sql is not None
    limits = Limits(memory_mib=memory, seconds=seconds, rows=limit)
    with (
        Console(stderr=True).status("asking"),
        _bounded_memory(memory),
        open_archive(open_place(place, endpoint=endpoint, region=region), limits) as opened,
    ):
        answer = opened.ask(sql, parameters)
    _print(answer, format)
    if answer.cut:
        print(f"only the first {limit} rows are shown; --limit shows more", file=sys.stderr)


@contextlib.contextmanager
def _bounded_memory(mib: int) -> Iterator[None]:
    """Let this process take little more than DuckDB may: what single functions take, it does not count."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    held = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    most = held + ((2 * mib + 512) << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _condition(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--where {text}: write it as COLUMN=TEXT", "--where arm=host")
    return name, value


def _print(answer: Answer, format: AnswerFormat) -> None:
    if format is AnswerFormat.CSV:
        from virtgauge.exchange.trials import csv_cell

        writer = csv.writer(sys.stdout)
        writer.writerows(map(csv_cell, row) for row in (answer.columns, *answer.rows))
    elif format is AnswerFormat.JSON:
        records = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
        print(json.dumps(records, default=str, indent=1))
    else:
        console = output()
        if not console.is_terminal:
            console.width = _WIDE  # whoever reads it elsewhere has no width to respect
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column, first in zip(answer.columns, answer.rows[0] if answer.rows else answer.columns, strict=True):
            justify: Literal["right", "left"] = "right" if isinstance(first, int | float) else "left"
            table.add_column(Text(_shown(column)), justify=justify, overflow="fold")
        for row in answer.rows:
            table.add_row(*(Text(_shown(value)) for value in row))
        console.print(table)


def _shown(value: Any) -> str:
    from virtgauge.results.formatting import printable

    if value is None:
        return "–"
    return f"{value:.6g}" if isinstance(value, float) else printable(str(value))

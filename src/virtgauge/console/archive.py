"""``virtgauge archive`` and ``query``: many runs in one place, what changed over them, and questions to them."""

from __future__ import annotations

import contextlib
import csv
import datetime
import enum
import json
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from virtgauge.console.displays import output
from virtgauge.console.options import Equivalent, OutFile, ReportedMeasures, place_to_write, tell_lost_samples
from virtgauge.console.reports import ReportFormat, deliver
from virtgauge.errors import ExitCode, UsageError, VirtgaugeError, printable
from virtgauge.ledger.records import unfinished_text

if TYPE_CHECKING:
    from virtgauge.exchange.query import Answer

app = typer.Typer()
archive = typer.Typer(
    name="archive", help="Keep runs in one place, and see what changes over them.", no_args_is_help=True
)

AnswerFormat = enum.StrEnum("AnswerFormat", "TEXT CSV JSON")
FailOnStep = enum.StrEnum("FailOnStep", "NOTHING WORSE")
PAGE_NAME = "archive.html"

_WIDE = 160
_READING_MIB = 1024  # That a report's levels may take, see :func:`_bounded_memory`

Endpoint = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Of an object store that is not Amazon's; else VIRTGAUGE_S3_ENDPOINT says it."),
]
ArchivePlace = Annotated[str, typer.Argument(metavar="PLACE", help="A folder, or s3://BUCKET/PREFIX.")]
Region = Annotated[str | None, typer.Option(metavar="REGION", help="Of the bucket; else AWS_REGION says it.")]


@archive.command("add", epilog="Example: virtgauge archive add runs/* --to s3://measurements/lab")
def add_runs(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of runs, or folders of such.")],
    to: Annotated[str, typer.Option(metavar="PLACE", help="A folder, or s3://BUCKET/PREFIX.")],
    host: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="What the machine is called that made them; by default its processor and product."
        ),
    ] = "",
    endpoint: Endpoint = None,
    region: Region = None,
) -> None:
    """Put runs into an archive of Parquet files, each run once, whole or not at all; a run that has grown, anew.

    What is no run or is damaged is passed over; then it ends with 1.
    """
    from virtgauge.compare.runs import run_folders
    from virtgauge.exchange.archive import ArchiveWriteError, archive_run
    from virtgauge.ledger.read_only import ReadOnlyLedger

    place = place_to_write("--to", to, endpoint=endpoint, region=region)
    folders, passed_over = list[Path](), 0

    def pass_over(error: VirtgaugeError) -> None:
        nonlocal passed_over
        passed_over += 1
        print(printable(f"virtgauge: passed over {error}", lines=True), file=sys.stderr)

    for one in runs:
        try:
            folders += run_folders([one])
        except UsageError as error:
            pass_over(error)
    with Console(stderr=True).status("archiving") as status:
        for number, folder in enumerate(dict.fromkeys(folders), start=1):
            status.update(f"archiving run {number} of {len(folders)}")
            try:
                with ReadOnlyLedger.for_command(folder) as ledger:
                    tell_lost_samples(ledger)
                    done = archive_run(place, ledger, host=host)
            except ArchiveWriteError:
                raise
            except VirtgaugeError as error:
                pass_over(error)
                continue
            unfinished = "" if done.entry.finished else f"; {unfinished_text('it')}"
            print(f"{folder}: {done.text}{unfinished}")
    if passed_over:
        raise typer.Exit(ExitCode.FAILED)


@archive.command(
    "report", epilog="Example: virtgauge archive report s3://measurements/lab --out lab.html --format html"
)
def report_archive(
    place: ArchivePlace,
    measure: ReportedMeasures = None,
    equivalent: Equivalent = 5.0,
    format: Annotated[
        ReportFormat, typer.Option(help="html writes archive.html in this folder; text and json are printed.")
    ] = ReportFormat.TEXT,
    out: OutFile = None,
    fail_on: Annotated[
        FailOnStep,
        typer.Option(help="Exit with 1 when the latest step of a figure still measured is for the worse; for CI."),
    ] = FailOnStep.NOTHING,
    since: Annotated[
        datetime.datetime | None,
        typer.Option(
            formats=["%Y-%m-%d"], metavar="YYYY-MM-DD", help="With --fail-on: a step before it does not fail."
        ),
    ] = None,
    endpoint: Endpoint = None,
    region: Region = None,
) -> None:
    """Say what changed over all runs of an archive, and when: by host, platform, cell and measure; never measures.

    A step is told where the runs before and after it differ by more than chance explains and than single runs do; with
    it, what of host, virtgauge, plan and platform changed there.
    """
    from virtgauge.exchange.archive_page import archive_document, archive_json
    from virtgauge.exchange.archive_series import find_archive_series
    from virtgauge.exchange.place import open_place
    from virtgauge.specs.suites import headline_measures, named_measures

    if since is not None and fail_on is FailOnStep.NOTHING:
        raise UsageError("--since goes with --fail-on worse", "give both, or neither")
    measures = named_measures(measure or []) or headline_measures()
    with Console(stderr=True).status("reading the archive"), _bounded_memory(_READING_MIB):
        found = find_archive_series(open_place(place, endpoint=endpoint, region=region), measures, equivalent / 100)
    if format is ReportFormat.JSON:
        deliver(archive_json(found), out)
    elif format is ReportFormat.HTML:
        out = deliver(archive_document(found).html(), out, Path(PAGE_NAME))
    else:
        deliver(archive_document(found).print, out)
    if out is not None:
        print(f"report: {out}")
    failing = found.failing(since.strftime("%Y-%m-%d") if since else "") if fail_on is FailOnStep.WORSE else []
    for one in failing:
        text = f"virtgauge: {one.text}: {one.step_text(one.steps[-1], found.labels)}"
        print(printable(text), file=sys.stderr)
    if failing:
        raise typer.Exit(ExitCode.FAILED)


@app.command(epilog="Example: virtgauge query archive --measure timing.sleep_lateness.p99 --by arm,factor.load")
def query(
    place: ArchivePlace,
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
    from virtgauge.exchange.place import open_place
    from virtgauge.exchange.query import Limits, ask, summary_sql
    from virtgauge.specs.suites import named_measures

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
    with Console(stderr=True).status("asking"), _bounded_memory(memory):
        answer = ask(open_place(place, endpoint=endpoint, region=region), limits, sql, parameters)
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
        console = output(_WIDE)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column, first in zip(answer.columns, answer.rows[0] if answer.rows else answer.columns, strict=True):
            justify: Literal["right", "left"] = "right" if isinstance(first, int | float) else "left"
            table.add_column(Text(_shown(column)), justify=justify, overflow="fold")
        for row in answer.rows:
            table.add_row(*(Text(_shown(value)) for value in row))
        console.print(table)


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.6g}" if isinstance(value, float) else printable(str(value))

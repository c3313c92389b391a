"""``virtgauge archive`` and ``virtgauge query``: many runs in a folder or an object store, and questions to them."""

from __future__ import annotations

import csv
import enum
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from virtgauge.console.options import require_makeable
from virtgauge.console.terminal import output
from virtgauge.errors import UsageError

if TYPE_CHECKING:
    from virtgauge.exchange.query import Answer

_WIDE = 160

Endpoint = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Of an object store that is not Amazon's; else VIRTGAUGE_S3_ENDPOINT says it."),
]
Region = Annotated[str | None, typer.Option(metavar="REGION", help="Of the bucket; else AWS_REGION says it.")]


class AnswerFormat(enum.StrEnum):
    """``--format`` of an answer."""

    TEXT = "text"
    CSV = "csv"
    JSON = "json"


def mount(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(epilog="Example: virtgauge archive runs/* --to s3://measurements/lab")(archive)
    app.command(epilog="Example: virtgauge query archive --measure timing.sleep_lateness.p99 --by arm,factor.load")(
        query
    )


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
                done = archive_run(place, ledger)
            print(f"{folder}: {done.outcome} ({done.entry.trials} trials as {done.entry.archive})")


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
        open_archive(open_place(place, endpoint=endpoint, region=region), limits) as opened,
    ):
        answer = opened.ask(sql, parameters)
    _print(answer, format)
    if answer.cut:
        print(f"only the first {limit} rows are shown; --limit shows more", file=sys.stderr)


def _condition(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--where {text}: write it as COLUMN=TEXT", "--where arm=host")
    return name, value


def _print(answer: Answer, format: AnswerFormat) -> None:
    if format is AnswerFormat.CSV:
        writer = csv.writer(sys.stdout)
        writer.writerow(answer.columns)
        writer.writerows(answer.rows)
    elif format is AnswerFormat.JSON:
        records = [dict(zip(answer.columns, row, strict=True)) for row in answer.rows]
        print(json.dumps(records, ensure_ascii=False, default=str, indent=1))
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

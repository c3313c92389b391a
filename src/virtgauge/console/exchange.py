"""``virtgauge export``: a run in the formats of others."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from virtgauge.errors import UsageError
from virtgauge.exchange.exports import BINARY, Format, export


def mount(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("export", epilog="Example: virtgauge export runs/today --format parquet --out today.parquet")(
        export_run
    )


def export_run(
    folder: Annotated[Path | None, typer.Argument(metavar="RUN", help="Folder of a run.", show_default=False)] = None,
    format: Annotated[
        Format,
        typer.Option(
            help="json: the report. csv, parquet: a row for each trial and measure. junit: for CI. openmetrics, "
            "bencher, phoronix: the estimates. hdr: an HdrHistogram log."
        ),
    ] = Format.JSON,
    out: Annotated[Path | None, typer.Option(help="Write to this file; else to standard output.")] = None,
    measure: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this one: timing.sleep_lateness.p99. May be repeated; by default all, and for bencher "
            "and phoronix the headline ones."
        ),
    ] = None,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of --format json instead.")] = False,
) -> None:
    """Write a run as JSON, CSV, Parquet, JUnit XML, OpenMetrics, HdrHistogram log, Bencher or Phoronix results."""
    if schema:
        from virtgauge.exchange.report_schema import published_schema

        print(published_schema(), end="")
        return
    if folder is None:
        raise UsageError("RUN is missing", "name the folder of a run, as in `virtgauge export runs/today --format csv`")
    if out is None and format in BINARY:
        raise UsageError(f"--format {format} is binary", "name a file with --out")
    from virtgauge.ledger.store import Ledger

    with Ledger.open(folder) as ledger, Console(stderr=True).status(f"exporting {format}"):
        if out is None:
            with tempfile.TemporaryDirectory(prefix="virtgauge-export-") as scratch:
                path = Path(scratch) / "export"
                export(ledger, format, path, measure or ())
                with path.open(encoding="utf-8", newline="") as text:
                    shutil.copyfileobj(text, sys.stdout)
            return
        partial = out.with_name(out.name + ".partial")
        try:
            export(ledger, format, partial, measure or ())
            partial.replace(out)
        except OSError as error:
            raise UsageError(f"cannot write {out}: {error}", "choose another file with --out") from error
        finally:
            partial.unlink(missing_ok=True)
    print(f"export: {out}")

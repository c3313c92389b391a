"""``virtgauge compare``: runs against one another, and changes within a series of runs."""

from __future__ import annotations

import enum
import io
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from virtgauge.console.options import OutFile
from virtgauge.console.reports import ReportFormat, write_file
from virtgauge.console.terminal import output
from virtgauge.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from virtgauge.compare.model import Comparison, SeriesComparison

PAGE_NAME = "compare.html"
_SOON_S = 2.0


class FailOn(enum.StrEnum):
    """``--fail-on``."""

    NOTHING = "nothing"
    WORSE = "worse"
    WORSE_THAN_REFERENCE = "worse-than-reference"


def mount(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: virtgauge compare runs/monday runs/tuesday --measure timing.sleep_lateness.p99")(
        compare
    )


def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Folders of runs; the first is the base.", show_default=False),
    ],
    arm: Annotated[
        list[str] | None,
        typer.Option(metavar="BASE=OTHER", help="Only this arm, or two of different names. May be repeated."),
    ] = None,
    measure: Annotated[
        list[str] | None,
        typer.Option(metavar="SUITE.MEASURE", help="Instead of the headline ones (`virtgauge measures`). Repeatable."),
    ] = None,
    series: Annotated[
        bool, typer.Option("--series", help="Find changes over four runs or more, or over a folder of runs.")
    ] = False,
    equivalent: Annotated[
        float, typer.Option(min=0, max=100, help="Per cent of change that make no difference; 0: every change does.")
    ] = 5.0,
    across_versions: Annotated[
        bool, typer.Option("--across-versions", help="Also runs that other versions of virtgauge measured; mark it.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of the permutations of --series.")] = 1,
    format: Annotated[
        ReportFormat, typer.Option(help="html writes compare.html in the last run; text and json are printed.")
    ] = ReportFormat.TEXT,
    out: OutFile = None,
    fail_on: Annotated[FailOn, typer.Option(help="Exit with 1 when a figure is worse; for CI.")] = FailOn.NOTHING,
) -> None:
    """Say what changed between runs: another day, kernel, host or hypervisor; never measures.

    A change is called one where its interval excludes no change, all comparisons together are taken into account, and
    it exceeds what identical arms (A/A) differ by. That nothing changed is a finding of its own.
    """
    from virtgauge.compare import compare_runs, compare_series
    from virtgauge.compare.runs import named_measures, run_folders

    if not series and len(runs) < 2 and not arm:
        raise UsageError(
            f"{runs[0]}: one run, and nothing to compare it with",
            "name two runs or more, or two platforms of this one with --arm A=B",
        )
    measures = named_measures(measure or [])
    progress = _progress()
    share = equivalent / 100
    found: Comparison | SeriesComparison
    if series:
        folders = run_folders(runs)
        found = compare_series(
            folders,
            measures,
            arms=arm or [],
            equivalent=share,
            across_versions=across_versions,
            seed=seed,
            progress=progress,
        )
    else:
        folders = runs
        found = compare_runs(
            folders,
            measures,
            arms=arm or [],
            equivalent=share,
            across_versions=across_versions,
            progress=progress,
        )
    _write(found, format, out, folders[-1])
    if fail_on is not FailOn.NOTHING and found.is_worse(beside_reference=fail_on is FailOn.WORSE_THAN_REFERENCE):
        raise typer.Exit(ExitCode.FAILED)


def _progress() -> Callable[[str], None]:
    """Tell what is being done, from two seconds on."""
    started = time.monotonic()

    def tell(what: str) -> None:
        if time.monotonic() - started > _SOON_S:
            print(f"virtgauge: {what}", file=sys.stderr)

    return tell


def _write(found: Comparison | SeriesComparison, format: ReportFormat, out: Path | None, last: Path) -> None:
    from virtgauge.compare import render_html, render_json, render_text

    if format is ReportFormat.TEXT and out is None:
        render_text(found, output())
        return
    if format is ReportFormat.HTML:
        out = last / PAGE_NAME if out is None else out
        text = render_html(found)
    elif format is ReportFormat.JSON:
        text = render_json(found)
    else:
        page = io.StringIO()
        render_text(found, Console(file=page, width=120))
        text = page.getvalue()
    if out is None:
        print(text)
        return
    write_file(text, out)
    print(f"comparison: {out}")

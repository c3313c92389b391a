"""Where a report goes: a file beside the run, a file of the user's choice, or the terminal."""

from __future__ import annotations

import contextlib
import enum
import gc
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from virtgauge.console.terminal import output
from virtgauge.errors import UsageError

if TYPE_CHECKING:
    from virtgauge.ledger.store import Ledger
    from virtgauge.report.model import Report

REPORT_NAME = "report.html"


class ReportFormat(enum.StrEnum):
    """``--format``."""

    TEXT = "text"
    JSON = "json"
    HTML = "html"


def build_report(ledger: Ledger) -> Report:
    """Everything that a run's ledger says, without the collector's pauses."""
    from virtgauge import report  # draws charts: a second of imports that no other command should wait for

    with _no_collections():
        return report.build(ledger)


def write_report(
    built: Report, folder: Path, kind: ReportFormat, out: Path | None, *, full: bool = False
) -> Path | None:
    """Write a run's report.

    Args:
        built: the report.
        folder: of the run.
        kind: HTML or text.
        out: file to write; by default HTML goes to the run's folder, text to standard output.
        full: of text all figures, instead of the last screen.

    Returns:
        The file written; None when it was printed.

    Raises:
        UsageError: the file cannot be written.
    """
    from virtgauge import report

    if kind is ReportFormat.TEXT and out is None:
        _print_text(built, folder, output(), full)
        return None
    if kind is ReportFormat.HTML and out is None:
        out = folder / REPORT_NAME
    if kind is ReportFormat.HTML:
        text = report.render_html(built)
    else:
        page = io.StringIO()
        _print_text(built, folder, Console(file=page, width=120), full)
        text = page.getvalue()
    if out is None:
        print(text)
        return None
    write_file(text, out)
    return out


def write_json(ledger: Ledger, out: Path | None) -> None:
    """Write a run as JSON, to a file or to standard output.

    Raises:
        UsageError: the file cannot be written.
    """
    from virtgauge.exchange import tidy
    from virtgauge.results.table import ResultTable

    text = io.StringIO()
    tidy.write(ResultTable(ledger), text)
    if out is None:
        print(text.getvalue(), end="")
    else:
        write_file(text.getvalue(), out)


def _print_text(built: Report, folder: Path, console: Console, full: bool) -> None:
    from virtgauge import report

    if full:
        report.render_text(built, console)
    page, plan = folder / REPORT_NAME, folder / "plan.toml"
    place = report.Place(str(folder), str(page), page.exists(), str(plan) if plan.exists() else None)
    report.print_last_screen(built, place, console)


def write_file(text: str, out: Path) -> None:
    """Write a file whole or not at all.

    Raises:
        UsageError: it cannot be written.
    """
    partial = out.with_name(out.name + ".partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(out)
    except OSError as error:
        raise UsageError(f"cannot write the report to {out}: {error}", "choose another file with --out") from error


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """The records of many trials stay to the end: a collector that goes through them again and again finds nothing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

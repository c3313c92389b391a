"""Where a report goes: a file beside the run, a file of the user's choice, or the terminal."""

from __future__ import annotations

import enum
import io
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from virtgauge.errors import UsageError
from virtgauge.ledger.store import Ledger
from virtgauge.report import Report, build, render_html, render_json, render_text

REPORT_NAME = "report.html"


class ReportFormat(enum.StrEnum):
    """``--format``."""

    TEXT = "text"
    JSON = "json"
    HTML = "html"


def _plain_text(built: Report) -> str:
    page = io.StringIO()
    render_text(built, Console(file=page, width=120))
    return page.getvalue()


_RENDERERS: dict[ReportFormat, Callable[[Report], str]] = {
    ReportFormat.TEXT: _plain_text,
    ReportFormat.JSON: render_json,
    ReportFormat.HTML: render_html,
}


def write_report(ledger: Ledger, kind: ReportFormat, out: Path | None) -> Path | None:
    """Build a run's report and write it.

    Args:
        out: file to write; by default HTML goes to the run's folder, text and JSON to standard output.

    Returns:
        The file written; None when it was printed.

    Raises:
        UsageError: the file cannot be written.
    """
    built = build(ledger)
    if kind is ReportFormat.TEXT and out is None:
        render_text(built, Console())
        return None
    if kind is ReportFormat.HTML and out is None:
        out = ledger.folder / REPORT_NAME
    text = _RENDERERS[kind](built)
    if out is None:
        print(text)
        return None
    partial = out.with_name(out.name + ".partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(out)
    except OSError as error:
        raise UsageError(f"cannot write the report to {out}: {error}", "choose another file with --out") from error
    return out

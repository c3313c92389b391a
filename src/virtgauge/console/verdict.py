"""``virtgauge verdict``, and how a run ends for a script: by its requirements."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from virtgauge.console.options import JUnit, RunFolder
from virtgauge.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from virtgauge.report.model import Report


def mount(app: typer.Typer) -> None:
    """Add the command."""
    app.command(epilog="Example: virtgauge verdict runs/gateway-20260101-120000 --junit verdicts.xml")(verdict)


def verdict(
    folder: RunFolder,
    junit: JUnit = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say whether each platform meets each requirement of a run; the exit code says it too.

    0: all are met; 4: one is not; 5: none failed, and one is undecided.
    """
    from virtgauge import report
    from virtgauge.ledger.store import Ledger
    from virtgauge.report.arms import row_labels
    from virtgauge.report.decisions.terminal import print_decisions
    from virtgauge.report.document import plain

    with Ledger.open(folder) as ledger:
        built = report.build(ledger)
    if not built.decisions.requirements:
        raise UsageError(
            f"the run in {folder} requires nothing",
            "add [[require]] or a profile to its plan: `virtgauge profiles` lists them",
        )
    if json:
        print(json_module.dumps(built.decisions, default=plain, ensure_ascii=False))
    else:
        print_decisions(built.decisions, row_labels([arm.record for arm in built.arms]), Console())
    if junit is not None:
        write_junit(built, junit)
    end_by(built)


def write_junit(report: Report, path: Path) -> None:
    """Write a report's verdicts as JUnit XML.

    Raises:
        UsageError: the file cannot be written.
    """
    from virtgauge.exchange.junit import junit
    from virtgauge.exchange.verdict_cases import verdict_cases

    text = junit(verdict_cases(report), report.run.plan_name, report.run.created_at)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--junit: cannot write {path}: {error}", "choose another file") from error


def end_by(report: Report) -> None:
    """End the command with the exit code of a report's verdicts.

    Raises:
        typer.Exit: a requirement is not met, or undecided.
    """
    from virtgauge.analysis.bounds import Outcome

    outcome = report.decisions.outcome
    if outcome is Outcome.FAIL:
        raise typer.Exit(ExitCode.NOT_MET)
    if outcome is Outcome.INCONCLUSIVE:
        raise typer.Exit(ExitCode.UNDECIDED)

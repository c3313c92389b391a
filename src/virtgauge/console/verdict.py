"""``virtgauge verdict``, and how a run ends for a script: by its requirements."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from virtgauge.console.options import JUnit, RunFolder
from virtgauge.console.terminal import output
from virtgauge.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from virtgauge.report.requirements import Decisions
    from virtgauge.results.table import ResultTable


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
    from virtgauge.ledger.read_only import ReadOnlyLedger
    from virtgauge.report.arms import row_labels
    from virtgauge.report.requirements import decisions_of, print_decisions
    from virtgauge.results.table import ResultTable

    with ReadOnlyLedger.for_command(folder) as ledger:
        table = ResultTable(ledger)
        decisions = decisions_of(table)
        if junit is not None and decisions.requirements:
            write_junit(decisions, table, junit)
    if not decisions.requirements:
        raise UsageError(
            f"the run in {folder} requires nothing",
            "add [[require]] or a profile to its plan: `virtgauge profiles` lists them",
        )
    if json:
        print(json_module.dumps(decisions, default=vars, ensure_ascii=False))
    else:
        print_decisions(decisions, row_labels(table.arms), output())
    end_by(decisions)


def write_junit(decisions: Decisions, table: ResultTable, path: Path) -> None:
    """Write a run's verdicts as JUnit XML.

    Raises:
        UsageError: the file cannot be written.
    """
    from virtgauge.exchange.xml import junit, verdict_cases

    text = junit(verdict_cases(decisions, table), table.manifest.plan_name, table.manifest.created_at)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--junit: cannot write {path}: {error}", "choose another file") from error


def end_by(decisions: Decisions) -> None:
    """End the command with the exit code of a run's verdicts.

    Raises:
        typer.Exit: a requirement is not met, or undecided.
    """
    from virtgauge.analysis.bounds import Outcome

    outcome = decisions.outcome
    if outcome is Outcome.FAIL:
        raise typer.Exit(ExitCode.NOT_MET)
    if outcome is Outcome.INCONCLUSIVE:
        raise typer.Exit(ExitCode.UNDECIDED)

"""The whole report in the terminal: ``virtgauge report RUN --full``."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from virtgauge.report.answers import identical_arms
from virtgauge.report.arms import row_labels
from virtgauge.report.decisions.terminal import print_decisions
from virtgauge.report.headline import Headline, Tone
from virtgauge.report.hosts.terminal import print_hosts
from virtgauge.report.last_screen import MARKS, reasons_text
from virtgauge.report.model import Report
from virtgauge.report.replay.terminal import print_replay, print_summary
from virtgauge.results.formatting import band, confidence, printable


def render_text(report: Report, console: Console) -> None:
    """Print verdicts, what every suite found, and what was skipped or invalid.

    Texts of a run are printed as they are: never read as Rich markup, control characters taken out.
    """
    _heading(report, console)
    print_summary(report.replay, console)
    print_decisions(report.decisions, row_labels([arm.record for arm in report.arms]), console)
    for suite in report.suites:
        if len(report.suites) > 1:
            console.print(Text(suite.title, style="bold underline"))
        for headline in suite.headlines:
            _headline(report, suite.headlines, headline, console)
    for caveat in report.caveats:
        console.print(Text(f"! {printable(caveat)}", style="yellow"))
    for suite in report.suites:
        suite.print(console)
    print_replay(report.replay, console)
    print_hosts(report.hosts, row_labels([arm.record for arm in report.arms]), console)
    _validity(report, console)
    for arm in report.arms:
        if not arm.record.usable:
            fix = f"  →  {arm.record.fix}" if arm.record.fix else ""
            console.print(
                Text(f"skipped {printable(arm.record.label)}: {printable(arm.record.reason + fix)}", style="dim")
            )


def _heading(report: Report, console: Console) -> None:
    run = report.run
    title = Text(f"{printable(run.plan_name)} ", style="bold")
    title.append(f"{printable(run.created_at[:16]).replace('T', ' ')} UTC, {run.blocks} repetitions", style="dim")
    console.print(title)


def _headline(report: Report, beside: Sequence[Headline], headline: Headline, console: Console) -> None:
    mark, style = MARKS[headline.tone]
    labels = [len(printable(other.label)) for other in beside]
    line = Table.grid(padding=(0, 1))
    line.add_column(width=1)
    line.add_column(width=min(max(labels), 32))
    line.add_column()
    emulated = " (emulated)" if report.arm(headline.arm).record.emulated else ""
    text = printable(headline.text) + emulated + (" (reference)" if headline.tone is Tone.REFERENCE else "")
    line.add_row(Text(mark, style=style), Text(printable(headline.label), style="bold"), Text(text, style=style))
    console.print(line)


def _validity(report: Report, console: Console) -> None:
    agreement, statuses = report.agreement, report.statuses
    invalid = ", ".join(f"{number} {status}" for status, number in statuses.items() if status != "valid")
    because = f" ({invalid}: {reasons_text(report)})" if invalid else ""
    line = f"{statuses.get('valid', 0)} of {len(report.trials)} trials valid{because}"
    if agreement.ok is not None and agreement.widest is not None:
        line += f"; {identical_arms(report).text} (widest band of all cells: {band(agreement.widest)})"
    line += f"; intervals at {confidence(report.run.confidence)} where the repetitions allow"
    console.print(Text(line))

"""The verdicts in the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from virtgauge.analysis.bounds import Outcome
from virtgauge.decisions.verdicts import Verdict
from virtgauge.report.decisions.formatting import margin_text, more_text, sentence
from virtgauge.report.decisions.model import Decisions
from virtgauge.results.formatting import printable

_STYLES = {
    Outcome.PASS: ("✓ pass", "green"),
    Outcome.FAIL: ("✗ FAIL", "red"),
    Outcome.INCONCLUSIVE: ("? undecided", "yellow"),
    None: ("– not judged", "dim"),
}


def print_decisions(decisions: Decisions, labels: Mapping[str, str], console: Console) -> None:
    """Print the verdicts below each requirement, then the overall ranks; nothing of a run that requires nothing.

    Args:
        decisions: the run's.
        labels: of platforms, by name.
        console: to print on; texts of a run are never read as markup.
    """
    if not decisions.requirements:
        return
    console.print(Text(sentence(decisions), style="bold"))
    for required in decisions.requirements:
        named = "" if required.name == required.text else f"{required.name}: "
        console.print(Text(printable(named + required.text)))
        lines = Table.grid(padding=(0, 2))
        for verdict in (one for one in decisions.verdicts if one.requirement == required.name):
            word, style = _STYLES[verdict.outcome]
            label = printable(labels.get(verdict.arm, verdict.arm))
            lines.add_row(Text(f"  {word}", style=style), Text(label), Text(printable(_said(decisions, verdict))))
        console.print(lines)
    if decisions.overall is not None and decisions.overall.ranks:
        places: dict[int, list[str]] = {}
        for rank in decisions.overall.ranks:
            places.setdefault(rank.rank, []).append(printable(labels.get(rank.arm, rank.arm)))
        console.print(Text("Ranks: " + "; ".join(f"{place}. {', '.join(names)}" for place, names in places.items())))


def _said(decisions: Decisions, verdict: Verdict) -> str:
    """Figure, margin, and of what did not pass why."""
    parts = [decisions.figure(verdict)] if verdict.decisive else []
    if verdict.outcome is not None and verdict.decisive is not None and verdict.decisive.margin is not None:
        parts.append(margin_text(verdict.decisive))
    if verdict.outcome is not Outcome.PASS:
        parts += filter(None, (verdict.reason, more_text(verdict)))
    return "; ".join(parts)

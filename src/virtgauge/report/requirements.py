"""What a run's requirements come to in words, for every form of the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from virtgauge.analysis.bounds import Outcome
from virtgauge.decisions.decisions import Decisions
from virtgauge.decisions.verdicts import CellVerdict, Verdict
from virtgauge.ledger.records import ArmRecord
from virtgauge.results.formatting import NONE, confidence, count, first_of, printable, share
from virtgauge.results.quantities import significant

# Of an outcome, the worst first: its mark and colour in the terminal, its badge's, and what is said of several
OUTCOMES: Mapping[Outcome | None, tuple[str, str, str, str]] = {
    Outcome.FAIL: ("✗ FAIL", "red", "bad", "not met"),
    Outcome.INCONCLUSIVE: ("? undecided", "yellow", "warn", "undecided"),
    Outcome.PASS: ("✓ pass", "green", "good", "met"),
    None: ("– not judged", "dim", "", "not judged"),
}


def margin_text(cell: CellVerdict | None) -> str:
    """``38 % to spare``, ``4.1 % beyond the bound``, ``11.9 times the bound``; a dash where there is none."""
    if cell is None or cell.margin is None:
        return NONE
    if abs(cell.margin) > 1:
        return f"{significant(1 + abs(cell.margin))} times the bound"
    return f"{share(abs(cell.margin))} {'to spare' if cell.margin >= 0 else 'beyond the bound'}"


def conditions_text(cell: CellVerdict | None) -> str:
    """The levels of the cell that a verdict rests on."""
    if cell is None:
        return ""
    levels = [f"{factor} {level}" for factor, level in cell.factors.items() if level not in ("", "default")]
    return ", ".join([*([f"host {cell.host}"] if cell.host else []), *levels])


_MOST_HOSTS = 8  # That are named; the JSON has all


def hosts_text(verdict: Verdict) -> str:
    """``not met on south; met on north, west``, by all cells of each host; empty where there is one host only."""
    outcomes: dict[str, set[Outcome]] = {}
    for cell in verdict.cells:
        if cell.host:
            outcomes.setdefault(cell.host, set()).add(cell.outcome)
    on: dict[str, list[str]] = {said: [] for *_, said in OUTCOMES.values()}
    for host, found in outcomes.items():
        on[next(said for outcome, (*_, said) in OUTCOMES.items() if outcome in found)].append(host)
    return "; ".join(f"{said} on {first_of(hosts, _MOST_HOSTS, ', ')}" for said, hosts in on.items() if hosts)


def more_text(verdict: Verdict) -> str:
    """How many more repetitions would decide it, in words; empty where it is decided, or not judged."""
    if verdict.outcome is not Outcome.INCONCLUSIVE or verdict.decisive is None:
        return ""
    if verdict.more is None:  # where it is not open, its reason says that repetitions would not help
        return "the number of repetitions that would decide it is unknown" if verdict.decisive.open else ""
    if not verdict.more:
        return ""
    return f"about {count(verdict.more, 'more repetition')} would decide it"


def _sentence(decisions: Decisions) -> str:
    counts = Counter(verdict.outcome for verdict in decisions.verdicts)
    order = (Outcome.PASS, Outcome.FAIL, Outcome.INCONCLUSIVE, None)
    parts = ", ".join(f"{counts[outcome]} {OUTCOMES[outcome][-1]}" for outcome in order if counts[outcome])
    levels = " and ".join(confidence(one) for one in sorted({one.confidence for one in decisions.requirements}))
    return f"Requirements, each on each platform: {parts}, at {levels} confidence."


def print_decisions(decisions: Decisions, labels: Mapping[str, str], console: Console) -> None:
    """Print the verdicts below each requirement, then the overall ranks; nothing without any, no text as markup."""
    if not decisions.requirements:
        return
    console.print(Text(_sentence(decisions), style="bold"))
    for required in decisions.requirements:
        named = "" if required.name == required.text else f"{required.name}: "
        console.print(Text(printable(named + required.text)))
        lines = Table.grid(padding=(0, 2))
        for verdict in (one for one in decisions.verdicts if one.requirement == required.name):
            word, style, *_ = OUTCOMES[verdict.outcome]
            label = printable(labels.get(verdict.arm, verdict.arm))
            lines.add_row(Text(f"  {word}", style=style), Text(label), Text(printable(_said(decisions, verdict))))
        console.print(lines)
    if decisions.overall is not None and decisions.overall.ranks:
        places: dict[int, list[str]] = {}
        for rank in decisions.overall.ranks:
            places.setdefault(rank.rank, []).append(printable(labels.get(rank.arm, rank.arm)))
        console.print(Text("Ranks: " + "; ".join(f"{place}. {', '.join(names)}" for place, names in places.items())))


def _said(decisions: Decisions, verdict: Verdict) -> str:
    """Figure, margin, and why: of what did not pass, and of what is required over hours."""
    parts = [decisions.figure(verdict)] if verdict.decisive else []
    if verdict.outcome is not None and verdict.decisive is not None and verdict.decisive.margin is not None:
        parts.append(margin_text(verdict.decisive))
    over = any(one.over for one in decisions.requirements if one.name == verdict.requirement)
    if verdict.outcome is not Outcome.PASS or over:
        parts += filter(None, (verdict.reason, more_text(verdict)))
    parts += filter(None, (hosts_text(verdict),))
    return "; ".join(parts)


def shown(decisions: Decisions, arms: Sequence[ArmRecord]) -> dict[str, Any]:
    """What the section of the page is made from; ``arms`` are the run's."""
    judged = {verdict.arm for verdict in decisions.verdicts}
    return {
        "decisions": decisions,
        "arms": [arm for arm in arms if arm.name in judged and arm.usable],
        "verdicts": {(verdict.requirement, verdict.arm): verdict for verdict in decisions.verdicts},
        "ranks": {(ranking.requirement, one.arm): one.rank for ranking in decisions.rankings for one in ranking.ranks},
        "sentence": _sentence(decisions),
    }

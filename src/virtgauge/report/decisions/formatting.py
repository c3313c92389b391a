"""Verdicts in words."""

from __future__ import annotations

from virtgauge.analysis.bounds import Outcome
from virtgauge.decisions.verdicts import CellVerdict, Verdict
from virtgauge.report.decisions.model import Decisions
from virtgauge.results.formatting import NONE, confidence, share
from virtgauge.results.quantities import significant


def margin_text(cell: CellVerdict | None) -> str:
    """``38 % within``, ``4.1 % beyond``, ``11.9 times the bound``; a dash where there is none."""
    if cell is None or cell.margin is None:
        return NONE
    if abs(cell.margin) > 1:
        return f"{significant(1 + abs(cell.margin))} times the bound"
    return f"{share(abs(cell.margin))} {'within' if cell.margin >= 0 else 'beyond'}"


def conditions_text(cell: CellVerdict | None) -> str:
    """The levels of the cell that a verdict rests on."""
    if cell is None:
        return ""
    levels = [f"{factor} {level}" for factor, level in cell.factors.items() if level not in ("", "default")]
    return ", ".join([*([f"host {cell.host}"] if cell.host else []), *levels])


def more_text(verdict: Verdict) -> str:
    """How many more repetitions would decide it, in words; empty where it is decided, or not judged."""
    if verdict.outcome is not Outcome.INCONCLUSIVE or verdict.decisive is None:
        return ""
    if verdict.more is None:
        if not verdict.decisive.open:  # its reason says that repetitions would not help
            return ""
        return "the number of repetitions that would decide it is unknown"
    if verdict.more == 0:
        return ""
    return f"about {verdict.more} more repetition{'' if verdict.more == 1 else 's'} would decide it"


def sentence(decisions: Decisions) -> str:
    """All verdicts in a sentence."""
    counts = decisions.counts()
    parts = [
        f"{counts[word]} {said}"
        for word, said in (
            ("pass", "met"),
            ("fail", "not met"),
            ("inconclusive", "undecided"),
            ("not judged", "not judged"),
        )
        if word in counts
    ]
    asked = sorted({one.confidence for one in decisions.requirements})
    levels = " and ".join(confidence(one) for one in asked)
    return f"Requirements, each on each platform: {', '.join(parts)}, at {levels} confidence."

"""Each platform in one sentence: what it carries where all guests share the load, and where one carries nearly all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from virtgauge.analysis.comparison import Judgement
from virtgauge.ledger.records import ArmRecord
from virtgauge.report import headline
from virtgauge.report.forwarding.model import Cell, Series
from virtgauge.report.forwarding.rates import bit_rate
from virtgauge.report.headline import Headline, Said, Tone, compared, tone_of

NOTABLE_FLAGS = {
    "generator-limited": "limited by the tester",
    "stretched": "with stretched trials",
    "late": "sent late",
    "unclosed-ledger": "with losses that nothing explains",
    "cpu-limit-unbound": "without the guests’ CPU limit in force",
}
"""What a reader must know of results, by the flag's name."""


def highlights(cells: Sequence[Cell]) -> list[Cell]:
    """The cells for a first look, in the first design: every frame size at the highest J, then at the lowest."""
    if not cells:
        return []
    design = next((cell.design for cell in cells if cell.two_level), cells[0].design)
    own = [cell for cell in cells if cell.design == design and cell.jain is not None]
    own = [cell for cell in own if cell.two_level] or own
    ends = dict.fromkeys(end(cell.jain for cell in own if cell.jain is not None) for end in (max, min)) if own else {}
    return [cell for jain in ends for cell in sorted(own, key=lambda cell: cell.frame_bytes) if cell.jain == jain]


def headlines(
    arms: Sequence[ArmRecord], cells: Sequence[Cell], flags: Mapping[str, Mapping[str, int]]
) -> tuple[Headline, ...]:
    """One sentence for each arm; see :func:`virtgauge.report.headline.headlines`."""
    chosen = highlights(cells)
    sizes = sorted({cell.frame_bytes for cell in chosen})
    told = [cell for cell in chosen if cell.frame_bytes in (sizes[0], sizes[-1])] if sizes else []
    return headline.headlines(arms, lambda arm, against: _said(arm, against, told, flags.get(arm.name, {})))


def _said(arm: ArmRecord, against: str, told: Sequence[Cell], flags: Mapping[str, int]) -> Said:
    series = [(cell, own) for cell in told if (own := cell.of(arm.name)) is not None]
    measured = [(cell, own) for cell, own in series if own.missing is None]
    if not measured:
        reasons = [own.missing for _, own in series if own.missing]
        return Said(reasons[0] if reasons else "not measured yet", Tone.MISSING)
    tone = tone_of((own.comparison for _, own in measured), better=Judgement.HIGHER)
    return Said(f"carries {_carried(measured, against)}{_circumstances(flags)}", tone)


def _carried(measured: Sequence[tuple[Cell, Series]], against: str) -> str:
    """``98.4 Mbit/s of 64 B frames (0.42× runc, 0.40–0.44×) and … at J 1.000; at J 0.085 …``."""
    by_fairness: dict[float, list[str]] = {}
    name = f" {against}"
    for cell, series in measured:
        assert cell.jain is not None
        said = f"{bit_rate(series.throughput_mbps.point)} of {cell.frame_bytes} B frames"
        if against and series.comparison is not None:
            said += f" ({compared(series.comparison, name)})"
            name = ""  # once is enough
        by_fairness.setdefault(cell.jain, []).append(said)
    parts = [f"{' and '.join(said)} at J {jain:.3g}" for jain, said in by_fairness.items()]
    return "; ".join(parts)


def _circumstances(flags: Mapping[str, int]) -> str:
    """``; 2 results limited by the tester``."""
    said = [
        f"{flags[name]} attempt{'s' * (flags[name] > 1)} {what}"
        for name, what in NOTABLE_FLAGS.items()
        if name in flags
    ]
    return f"; {', '.join(said)}" if said else ""

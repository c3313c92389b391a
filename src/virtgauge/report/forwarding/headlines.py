"""Each platform in one sentence: what it carries where all guests share the load, and where one carries nearly all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from virtgauge.analysis.comparison import Judgement
from virtgauge.ledger.records import ArmRecord
from virtgauge.report.forwarding.model import Cell, Series
from virtgauge.report.forwarding.rates import bit_rate
from virtgauge.report.headline import Headline, Tone
from virtgauge.report.words import ratio, ratio_interval

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
    """One sentence per arm of the plan (not the A/A arm), the reference first, emulated and skipped ones last."""
    chosen = highlights(cells)
    sizes = sorted({cell.frame_bytes for cell in chosen})
    told = [cell for cell in chosen if cell.frame_bytes in (sizes[0], sizes[-1])] if sizes else []
    reference = next((arm for arm in arms if arm.role == "reference"), None)
    made = [_headline(arm, reference, told, flags.get(arm.name, {})) for arm in arms if arm.role != "aa"]
    order = {tone: 0 for tone in Tone} | {Tone.REFERENCE: -1, Tone.EMULATED: 1, Tone.MISSING: 2}
    return tuple(sorted(made, key=lambda headline: order[headline.tone]))


def _headline(arm: ArmRecord, reference: ArmRecord | None, told: Sequence[Cell], flags: Mapping[str, int]) -> Headline:
    def say(tone: Tone, text: str) -> Headline:
        return Headline(arm.name, arm.label, tone, f"{text}.")

    if not arm.usable:
        return say(Tone.MISSING, f"not measured: {arm.reason.rstrip('.')}")
    series = [(cell, own) for cell in told if (own := cell.of(arm.name)) is not None]
    measured = [(cell, own) for cell, own in series if own.missing is None]
    if not measured:
        reasons = [own.missing for _, own in series if own.missing]
        return say(Tone.MISSING, f"no valid figures: {reasons[0].rstrip('.') if reasons else 'not measured yet'}")
    against = "" if reference is None or arm.role == "reference" or arm.emulated else _name(reference)
    text = f"carries {_carried(measured, against)}{_circumstances(flags)}"
    if arm.role == "reference":
        return say(Tone.REFERENCE, text)
    if arm.emulated:
        return say(Tone.EMULATED, f"not ranked: {text}")
    return say(_tone([own for _, own in measured]), text)


def _name(reference: ArmRecord) -> str:
    return "the host" if reference.kind == "host" else reference.label


def _carried(measured: Sequence[tuple[Cell, Series]], against: str) -> str:
    """``98.4 Mbit/s of 64 B frames (0.42× runc, 0.40–0.44×) and … at J 1.000; at J 0.085 …``."""
    by_fairness: dict[float, list[str]] = {}
    name = f" {against}"
    for cell, series in measured:
        assert cell.jain is not None
        said = f"{bit_rate(series.throughput_mbps.point)} of {cell.frame_bytes} B frames"
        if against and series.comparison is not None:
            said += f" ({_compared(series, name)})"
            name = ""  # once is enough
        by_fairness.setdefault(cell.jain, []).append(said)
    parts = [f"{' and '.join(said)} at J {jain:.3g}" for jain, said in by_fairness.items()]
    return "; ".join(parts)


def _compared(series: Series, name: str) -> str:
    assert series.comparison is not None
    change = series.comparison.ratio
    if change.point is None:
        return change.method
    interval = f", {ratio_interval(change)}" if change.has_interval else ""
    # Without an A/A pair nothing is proven; that is said once for all, beside the headlines.
    examined = change.has_interval and (series.comparison.band is not None or not change.excludes(1))
    shown = ", no difference shown" if examined and not series.comparison.distinguishable else ""
    return f"{ratio(change)}{name}{interval}{shown}"


def _circumstances(flags: Mapping[str, int]) -> str:
    """``; 2 results limited by the tester``."""
    said = [
        f"{flags[name]} attempt{'s' * (flags[name] > 1)} {what}"
        for name, what in NOTABLE_FLAGS.items()
        if name in flags
    ]
    return f"; {', '.join(said)}" if said else ""


def _tone(series: Sequence[Series]) -> Tone:
    """Slower when it carries less anywhere, else faster when more anywhere, else the same."""
    judgements = {one.comparison.judgement for one in series if one.comparison is not None}
    if Judgement.LOWER in judgements:
        return Tone.SLOWER
    return Tone.FASTER if Judgement.HIGHER in judgements else Tone.SAME

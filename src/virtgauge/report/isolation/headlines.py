"""Each platform in one sentence: the resource that is kept apart worst, and how the others fare."""

from __future__ import annotations

from collections.abc import Sequence

from virtgauge.ledger.records import ArmRecord
from virtgauge.report import headline
from virtgauge.report.headline import Headline, Said, Tone
from virtgauge.report.isolation.model import Cell, Degree, ResourceSentence

_ORDER = (Degree.NOT, Degree.PARTLY, Degree.ISOLATED)
"""From the worst."""


def headlines(
    arms: Sequence[ArmRecord], sentences: Sequence[ResourceSentence], cells: Sequence[Cell]
) -> tuple[Headline, ...]:
    """One sentence for each arm; see :func:`virtgauge.report.headline.headlines`."""
    reference = next((arm.name for arm in arms if arm.role == "reference"), "")
    beside = [one for one in sentences if one.arm == reference]
    return headline.headlines(arms, lambda arm, _: _said(arm, sentences, beside, cells))


def worst_first(sentences: Sequence[ResourceSentence]) -> list[ResourceSentence]:
    """Those that were measured, by degree and then by what is kept."""
    measured = [one for one in sentences if one.degree in _ORDER]
    return sorted(measured, key=lambda one: (_ORDER.index(one.degree), one.worst.point or 0.0))


def _said(
    arm: ArmRecord, sentences: Sequence[ResourceSentence], reference: Sequence[ResourceSentence], cells: Sequence[Cell]
) -> Said:
    own = worst_first([one for one in sentences if one.arm == arm.name])
    if not own:
        series = [one for cell in cells if (one := cell.of(arm.name)) is not None]
        reasons = [one.missing for one in series if one.missing]
        if not series or len(reasons) == len(series):
            return Said(reasons[0] if reasons else "not measured yet", Tone.MISSING)
        return Said("measured without any load, which says nothing of isolation", Tone.SAME)
    first, *others = own
    seen = first.text.rstrip(".").partition("; ")[0]
    parts = [f"{first.resource} {first.degree}: {seen}"]
    for degree in _ORDER:
        names = [one.resource.value for one in others if one.degree is degree]
        if names:
            parts.append(f"{_listed(names)} {degree}")
    return Said("; ".join(parts), _tone(own, reference))


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _tone(own: Sequence[ResourceSentence], reference: Sequence[ResourceSentence]) -> Tone:
    """Slower when any resource is kept apart worse than by the reference, else faster when any is better."""
    degrees = {one.resource: _ORDER.index(one.degree) for one in reference if one.degree in _ORDER}
    steps = [_ORDER.index(one.degree) - degrees[one.resource] for one in own if one.resource in degrees]
    if any(step < 0 for step in steps):
        return Tone.SLOWER
    return Tone.FASTER if any(step > 0 for step in steps) else Tone.SAME

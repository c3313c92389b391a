"""Each platform in one sentence: how far off its estimates are, and whether precise timing helps, by how much."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from virtgauge.analysis.comparison import Judgement
from virtgauge.ledger.records import ArmRecord
from virtgauge.report import headline
from virtgauge.report.bandwidth.model import Accuracy, Cell, PooledEffect
from virtgauge.report.bandwidth.vocabulary import (
    INSIDE,
    PRECISE,
    SHIM,
    TIMINGS,
    off,
    off_interval,
    per_cent,
    points,
    points_interval,
    rate,
    timing_words,
)
from virtgauge.report.headline import Headline, Said, Tone


def headlines(
    arms: Sequence[ArmRecord],
    accuracy: Sequence[Accuracy],
    pooled: Sequence[PooledEffect],
    cells: Sequence[Cell],
) -> tuple[Headline, ...]:
    """One sentence for each arm; see :func:`virtgauge.report.headline.headlines`."""
    return headline.headlines(arms, lambda arm, _: _said(arm.name, accuracy, pooled, cells))


def shown_accuracy(accuracy: Sequence[Accuracy], arm: str) -> Accuracy | None:
    """What a sentence is about: all estimators, with the most precise timing that was tried, built in where it was."""
    own = [one for one in accuracy if one.arm == arm]
    for through in (INSIDE, SHIM):
        for timing in (*TIMINGS, *dict.fromkeys(one.timing for one in own)):
            found = [one for one in own if (one.timing, one.through) == (timing, through)]
            if found:
                return max(found, key=lambda one: len(one.estimators))
    return None


def _said(arm: str, accuracy: Sequence[Accuracy], pooled: Sequence[PooledEffect], cells: Sequence[Cell]) -> Said:
    shown = shown_accuracy(accuracy, arm)
    if shown is None:
        series = [one for cell in cells if (one := cell.of(arm)) is not None]
        return Said(next((one.missing for one in series if one.missing), "not measured yet"), Tone.MISSING)
    tone = Tone.SAME
    if shown.off.point is None:
        return Said(_no_error(arm, shown, cells), tone)
    if shown.beside is not None:
        tone = {Judgement.HIGHER: Tone.SLOWER, Judgement.LOWER: Tone.FASTER}.get(shown.beside.judgement, tone)
    interval = f" ({off_interval(shown.off)})" if shown.off.has_interval else ""
    own = [one for one in pooled if one.arm == arm and one.timing == PRECISE]
    refused = any((one := cell.of(arm)) is not None and one.hptime_refusals for cell in cells)
    parts = [f"estimates are {off(shown.off.point)} off{interval} with {shown.arrangement}", *_effects(own)]
    parts += ["hptime answers from the system’s clock here"] if refused else []
    return Said("; ".join(parts), tone)


def _no_error(arm: str, shown: Accuracy, cells: Sequence[Cell]) -> str:
    """Why there is none: the rate cannot be paced, or all answers are lower bounds."""
    if not shown.refused:
        return "all answers are lower bounds: the estimator’s own ceiling lies below what is available"
    honest = [
        series.honest_mbps.point
        for cell in cells
        if (series := cell.of(arm)) is not None and series.honest_mbps.point is not None
    ]
    most = f"; the highest rate that it keeps honestly is {rate(max(honest))}" if honest else ""
    return f"no estimate: it cannot pace the probes{most}"


def _effects(pooled: Sequence[PooledEffect]) -> Iterator[str]:
    """``precise timing takes 5.2 (4.4–6.1) points off the error of system timing, the shim 4.8 (4.5–4.9)`` …"""
    first = next(iter(pooled), None)
    if first is None:
        return
    parts = [_error_effect(first, _called(first))]
    for one in pooled[1:]:
        parts.append(_likewise(one, first) or _error_effect(one, _called(one)))
    yield ", ".join(parts)
    base, cells = timing_words(first.base), first.cells + first.enabled + first.lost
    if first.enabled:
        yield f"{base} cannot pace {first.enabled} of {cells} cases"
    if first.lost:
        yield f"{_called(first)} cannot pace {first.lost} of {cells} cases that {base} can"


def _likewise(one: PooledEffect, first: PooledEffect) -> str:
    """An effect of the same kind as the first, in few words; empty where it is of another."""
    if one.base != first.base or one.error.judgement is not first.error.judgement:
        return ""
    if not (one.error.estimate.has_interval and first.error.estimate.has_interval):
        return ""
    if one.error.distinguishable:
        return f"{_called(one)} {_size(one)}"
    return f"nor by {_called(one)} ({points_interval(one.error.estimate)})"


def _called(one: PooledEffect) -> str:
    return "precise timing" if one.through == INSIDE else "the shim"


def _error_effect(one: PooledEffect, said: str) -> str:
    change, base = one.error.estimate, timing_words(one.base)
    if change.point is None:
        return f"{said} could not be compared with {base}: {change.method}"
    if change.low is None or change.high is None:
        return f"{said} changes the error of {base} by {points(change.point)} points (no interval)"
    if one.error.judgement is Judgement.INCONCLUSIVE:
        return f"no difference to {base} is shown by {said} ({points_interval(change)} points)"
    verb, preposition = ("takes", "off") if change.point < 0 else ("adds", "to")
    return f"{said} {verb} {_size(one)} points {preposition} the error of {base}"


def _size(one: PooledEffect) -> str:
    """``5.2 (4.4–6.1)``."""
    change = one.error.estimate
    low, high = sorted((change.low or 0.0, change.high or 0.0), key=abs)
    return f"{per_cent(change.point or 0.0)} ({per_cent(low)}–{per_cent(high)})"

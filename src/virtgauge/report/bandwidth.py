"""The bandwidth suite's part of a report: each platform in one sentence, and the paper's claims."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from virtgauge.analysis.comparison import Judgement
from virtgauge.claims.papers import check_claims
from virtgauge.claims.verdicts import ClaimCheck
from virtgauge.report import headline
from virtgauge.report.bandwidth_claims import claim_figures
from virtgauge.report.headline import Headline, Measured, Said, Tone
from virtgauge.report.spec_report import SpecReport
from virtgauge.results.quantities import BIT_RATE
from virtgauge.specs.bandwidth import BANDWIDTH
from virtgauge.specs.bandwidth_figures import (
    Accuracy,
    Effect,
    accuracies,
    details,
    pooled_effects,
    told,
)
from virtgauge.specs.bandwidth_formatting import (
    INSIDE,
    PRECISE,
    THROUGH,
    TIMINGS,
    off,
    per_cent,
    points,
    points_interval,
    timed_words,
    timing_words,
)
from virtgauge.specs.context import Context
from virtgauge.specs.model import SuiteSpec


class BandwidthReport(SpecReport):
    """What estimates of available bandwidth are worth on each platform, and what precise timing does for them."""

    suite: ClassVar[str] = BANDWIDTH.name
    title: ClassVar[str] = BANDWIDTH.title
    spec: ClassVar[SuiteSpec] = BANDWIDTH

    def headlines_of(self, context: Context) -> tuple[Headline, ...]:
        return headline.headlines(context.all_arms, lambda arm, _: _said(context, arm.name))

    def hear(self, context: Context) -> tuple[ClaimCheck, ...]:
        return check_claims("bandwidth", claim_figures(context))


def _told_of(found: Sequence[Accuracy], arm: str) -> Accuracy | None:
    """What a sentence is about: all estimators, with the most precise timing that was tried, built in where it was."""
    own = [one for one in found if one.arm == arm]
    for through in THROUGH:
        for timing in (*TIMINGS, *dict.fromkeys(one.timing for one in own)):
            fitting = [one for one in own if (one.timing, one.through) == (timing, through)]
            if fitting:
                return max(fitting, key=lambda one: len(one.estimators))
    return None


def _said(context: Context, arm: str) -> Said:
    shown = _told_of(context.once(accuracies), arm)
    if shown is None:
        tried = [cell for cell in context.cells if context.table.tried(cell, arm)]
        reasons = (context.table.ending(cell, arm) for cell in tried if not context.measured(cell, arm))
        return Said(next(reasons, "not measured yet"), Tone.MISSING)
    tone = Tone.SAME
    if shown.off.point is None:
        return Said(_no_error(context, arm, shown), tone)
    if shown.beside is not None:
        tone = {Judgement.HIGHER: Tone.SLOWER, Judgement.LOWER: Tone.FASTER}.get(shown.beside.judgement, tone)
    pooled = [one for one in context.once(pooled_effects) if (one.arm, one.timing) == (arm, PRECISE)]
    parts = [f"estimates are {off(shown.off)} with {timed_words(f'{shown.timing}|{shown.through}')}", *_effects(pooled)]
    if any(one.refusal for cell in context.cells for one in details(context, cell, arm).values()):
        parts.append("hptime answers from the system’s clock here")
    return Said("; ".join(parts), tone, headline.figures([_measured(shown)]))


def _measured(shown: Accuracy) -> Measured:
    """``estimates are 5.2 % off (4.9–5.5 %)``, ``estimates are 5.2 % off, +3.1 points (+2.9 to +3.3)``."""
    beside = shown.beside

    def change() -> str:
        if beside is None:
            return ""
        interval = f" ({points_interval(beside.estimate)})" if beside.estimate.has_interval else ""
        value = f"are {per_cent(shown.off.point or 0.0)} % off"
        return f"{value}, {points(beside.estimate.point or 0.0)} points{interval}"

    return Measured("estimates", f"are {off(shown.off)}", beside, change)


def _no_error(context: Context, arm: str, shown: Accuracy) -> str:
    """Why there is none: the rate cannot be paced, or all answers are lower bounds."""
    if not shown.refused:
        return "all answers are lower bounds: the estimator’s own ceiling is below the available bandwidth"
    measure = context.spec.measure("max_paced")
    paced = [
        context.table.estimate(measure, one, arm).point for one in context.cells if told(context, "max_paced", one, arm)
    ]
    most = f"; the highest rate that it paces is {BIT_RATE.text(max(one or 0.0 for one in paced))}" if paced else ""
    return f"no estimate: it cannot pace the probes{most}"


def _effects(pooled: Sequence[Effect]) -> Iterator[str]:
    """``precise timing takes 5.2 (4.4–6.1) points off the error of system timing, the shim 4.8 (4.5–4.9)`` …"""
    first = next(iter(pooled), None)
    if first is None:
        return
    parts = [_error_effect(first, _called(first))]
    for one in pooled[1:]:
        parts.append(_likewise(one, first) or _error_effect(one, _called(one)))
    yield ", ".join(parts)
    base, cells = timing_words(first.base), first.pairs + first.enabled + first.lost
    if first.enabled:
        yield f"{base} cannot pace {first.enabled} of {cells} cases"
    if first.lost:
        yield f"{_called(first)} cannot pace {first.lost} of {cells} cases that {base} can"


def _likewise(one: Effect, first: Effect) -> str:
    """An effect of the same kind as the first, in few words; empty where it is of another."""
    if one.base != first.base or one.error.judgement is not first.error.judgement:
        return ""
    if not (one.error.estimate.has_interval and first.error.estimate.has_interval):
        return ""
    if one.error.distinguishable:
        return f"{_called(one)} {_size(one)}"
    return f"nor by {_called(one)} ({points_interval(one.error.estimate)})"


def _called(one: Effect) -> str:
    return "precise timing" if one.through == INSIDE else "the shim"


def _error_effect(one: Effect, said: str) -> str:
    change, base = one.error.estimate, timing_words(one.base)
    if change.point is None:
        return f"{said} could not be compared with {base}: {change.method}"
    if change.low is None or change.high is None:
        return f"{said} changes the error of {base} by {points(change.point)} points (no interval)"
    if one.error.judgement is Judgement.INCONCLUSIVE:
        return f"no difference to {base} is shown by {said} ({points_interval(change)} points)"
    verb, preposition = ("takes", "off") if change.point < 0 else ("adds", "to")
    return f"{said} {verb} {_size(one)} points {preposition} the error of {base}"


def _size(one: Effect) -> str:
    """``5.2 (4.4–6.1)``."""
    change = one.error.estimate
    low, high = sorted((change.low or 0.0, change.high or 0.0), key=abs)
    return f"{per_cent(change.point or 0.0)} ({per_cent(low)}–{per_cent(high)})"

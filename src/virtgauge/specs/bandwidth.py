"""The bandwidth suite: what estimates of available bandwidth are worth, and what timing does for them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from virtgauge.analysis.comparison import Judgement
from virtgauge.ledger.records import ArmRecord
from virtgauge.results.quantities import BIT_RATE
from virtgauge.specs import bandwidth_figures as figures
from virtgauge.specs import bandwidth_formatting as labels
from virtgauge.specs import bandwidth_insights as insights
from virtgauge.specs import bandwidth_paper as paper
from virtgauge.specs.bandwidth_figures import Accuracy, Effect
from virtgauge.specs.bandwidth_pacing import curves, pacing
from virtgauge.specs.context import Context, validity
from virtgauge.specs.headline import HeadlineFigure, Summary, Tone, figure
from virtgauge.specs.model import ChartSpec, Computed, Figures, SectionSpec, SuiteSpec, TableSpec

_EACH = ("estimator", "timed", "pacing")

DETAIL = TableSpec(
    "",
    (
        Figures("truth", "truth"),
        Figures("estimate", "estimate", note=figures.at_least),
        Figures("signed_error", "signed error"),
        Figures("error", "error", compared=True),
        Figures("searches.half_iqr", "half the IQR"),
        Figures("searches.mad", "MAD"),
        Computed("outliers", insights.beyond_fences, text=False),
        Figures("max_paced", "paced up to", note=figures.cannot_pace),
        Figures("carried", "path carried"),
        Figures("bytes_sent", "sent"),
        Figures("duration", "took"),
        Computed("sent, stamped by", insights.sent_and_stamped),
        Computed("validity", validity),
    ),
    split=_EACH,
    rows=("path",),
    caption="Medians over repetitions of each trial’s figures, with their intervals; outliers of all searches "
    "together. Below an error is its difference from the reference’s on the same path, in percentage points.",
)
COUNTS = TableSpec(
    "Counted",
    (
        Computed("searches", insights.searches, text=False),
        Computed("hold the truth", insights.counted("intervals.covered"), text=False),
        Computed("of intervals", insights.intervals, text=False),
        Computed("not paced", insights.counted("refused"), text=False),
        Computed("no answer", insights.counted("no_answer"), text=False),
        Computed("lower bounds", insights.counted("bounds"), text=False),
        Computed("trains repeated", insights.counted("discarded"), text=False),
        Computed("foreign packets", insights.counted("foreign_packets"), text=False),
    ),
    rows=(*_EACH, "path"),
    caption="In all trials of a cell that count.",
    folded="all",
)
ERRORS = ChartSpec(
    "dots",
    "Signed error against the counted truth",
    "Per cent of what was available, with its interval over repetitions; right of 0 is too much. Beyond 1 % the axis "
    "is logarithmic.",
    ("signed_error",),
    rows="path",
    panels=_EACH,
    signed=True,
)


def _said(context: Context, arm: ArmRecord, against: str) -> Summary:
    shown = _told_of([one for one in context.once(figures.accuracies) if one.arm == arm.name])
    if shown is None:
        tried = [cell for cell in context.cells if context.table.tried(cell, arm.name)]
        reasons = (
            context.table.endings.ending(cell, arm.name) for cell in tried if not context.measured(cell, arm.name)
        )
        return Summary(next(reasons, "not measured yet"), Tone.MISSING)
    if shown.no_truth and not shown.refused and shown.sent.point is not None:
        return Summary(f"{_of_path_as_is(context, arm.name)}; what is true of a path as it is nobody knows", Tone.SAME)
    if shown.off.point is None:
        return Summary(_no_error(context, arm.name, shown), Tone.SAME)
    told = _measured(shown)
    pooled = [
        one for one in context.once(figures.pooled_effects) if (one.arm, one.timing) == (arm.name, labels.PRECISE)
    ]
    parts = [
        f"estimates are {labels.off(shown.off)} with {labels.timed_text(f'{shown.timing}|{shown.through}')}",
        *_effects(pooled, bool(figures.total(context, "no_answer", context.cells, arm.name))),
    ]
    if any(one.refusal for cell in context.cells for one in figures.details(context, cell, arm.name).values()):
        parts.append("hptime answers from the system’s clock here")
    return Summary("; ".join(parts), told.tone, (told,))


def _told_of(own: Sequence[Accuracy]) -> Accuracy | None:
    """What a sentence is about: all estimators, with the most precise timing that was tried, built in where it was."""
    for place in itertools.product(labels.THROUGH, (*labels.TIMINGS, *dict.fromkeys(one.timing for one in own))):
        if fitting := [one for one in own if (one.through, one.timing) == place]:
            return max(fitting, key=lambda one: len(one.estimators))
    return None


def _measured(shown: Accuracy) -> HeadlineFigure:
    """``estimates are 5.2 % off (4.9–5.5 %)``, ``estimates are 5.2 % off, +3.1 points (+2.9 to +3.3)``."""
    change = ""
    if shown.beside is not None:
        found = shown.beside.estimate
        interval = f" ({labels.points_interval(found)})" if found.has_interval else ""
        value = f"are {labels.per_cent(shown.off.point or 0.0)} % off"
        change = f"{value}, {labels.points(found.point or 0.0)} points{interval}"
    return figure("estimates", f"are {labels.off(shown.off)}", shown.beside, change)


def _of_path_as_is(context: Context, arm: str) -> str:
    """``93.7 Mbit/s by kite2 with hptime``, of each cell."""
    found = ((cell, context.estimate("estimate", cell, arm).point) for cell in context.cells)
    told = [(cell, point) for cell, point in found if point is not None]
    said = (
        f"{BIT_RATE.text(point)} by {context.text(cell, 'estimator')} with {context.text(cell, 'timed')}"
        for cell, point in told
    )
    return "estimates " + ", ".join(said)


def _no_error(context: Context, arm: str, shown: Accuracy) -> str:
    """Why there is none: the rate cannot be paced, the path gives no answer, or all answers are lower bounds."""
    if not shown.refused:
        if figures.total(context, "bounds", context.cells, arm):
            return "all answers are lower bounds: the estimator’s own ceiling is below the available bandwidth"
        return "no estimate: the path gives no answer"
    found = [point for one in context.cells if (point := context.estimate("max_paced", one, arm).point) is not None]
    most = f"; the highest rate that it paces is {BIT_RATE.text(max(found))}" if found else ""
    return f"no estimate: it cannot pace the probes{most}"


def _effects(pooled: Sequence[Effect], silent: bool) -> Iterator[str]:
    """``precise timing takes 5.2 (4.4–6.1) points off the error of system timing, the shim 4.8 (4.5–4.9)`` …"""
    if not pooled:
        return
    first = pooled[0]
    yield ", ".join([_error_effect(first), *(_likewise(one, first) or _error_effect(one) for one in pooled[1:])])
    base, cells = labels.timing_text(first.base), first.pairs + first.enabled + first.lost
    lacks, has = ("gives no estimate in", "does") if silent else ("cannot pace", "can")
    if first.enabled:
        yield f"{base} {lacks} {first.enabled} of {cells} cases"
    if first.lost:
        yield f"{_called(first)} {lacks} {first.lost} of {cells} cases that {base} {has}"


def _likewise(one: Effect, first: Effect) -> str:
    """An effect of the same kind as the first, in few words; empty where it is of another."""
    if one.base != first.base or one.error.judgement is not first.error.judgement:
        return ""
    if not (one.error.estimate.has_interval and first.error.estimate.has_interval):
        return ""
    if one.error.distinguishable:
        return f"{_called(one)} {_size(one)}"
    return f"nor by {_called(one)} ({labels.points_interval(one.error.estimate)})"


def _called(one: Effect) -> str:
    return "precise timing" if one.through == labels.INSIDE else "the shim"


def _error_effect(one: Effect) -> str:
    said, change, base = _called(one), one.error.estimate, labels.timing_text(one.base)
    if change.point is None:
        return f"{said} could not be compared with {base}: {change.method}"
    if not change.has_interval:
        return f"{said} changes the error of {base} by {labels.points(change.point)} points (no interval)"
    if one.error.judgement is Judgement.INCONCLUSIVE:
        return f"no difference to {base} is shown by {said} ({labels.points_interval(change)} points)"
    verb, preposition = ("takes", "off") if change.point < 0 else ("adds", "to")
    return f"{said} {verb} {_size(one)} points {preposition} the error of {base}"


def _size(one: Effect) -> str:
    """``5.2 (4.4–6.1)``."""
    change = one.error.estimate
    low, high = sorted((change.low or 0.0, change.high or 0.0), key=abs)
    return f"{labels.per_cent(change.point or 0.0)} ({labels.per_cent(low)}–{labels.per_cent(high)})"


BANDWIDTH = SuiteSpec(
    "bandwidth",
    "Available bandwidth",
    labels.FACTORS,
    tuple(figures.bandwidth_measures()),
    _said,
    summary=(insights.accuracy,),
    sections=(
        SectionSpec(
            *("timing", "Does precise timing help?", (insights.timing,)),
            "One timing against the other on the same path and in the same repetition: the error without its sign, "
            "below it what the timing changes it by, in percentage points (less is better); half the interquartile "
            "range of the instant estimates, and below it how many times as wide they lie. Coloured where identical "
            "arms (A/A) differ by less.",
        ),
        SectionSpec(
            *("figures", "Figures"),
            (insights.against_cross, insights.strips, ERRORS, insights.effects_chart, curves),
            folded=True,
        ),
        SectionSpec(
            *("pacing", "Pacing: what is sent on time", (pacing,)),
            "The highest rate that was paced by way of sending, the achieved gap between bursts in times of the "
            "planned one, and how late bursts leave; over all trials sent so. A trial that could not pace what the "
            "path still carried gives no estimate.",
        ),
        SectionSpec(
            *("paths", "The paths, and what was true on them", (insights.paths,)),
            "What was left, of IP packets: what estimates are held against. Capacity as measured and cross traffic as "
            "counted are as the shaper counts (1514 B for a packet of 1500); a dash where the flood that measures the "
            "capacity did not fill the path: the truth is of the declared one.",
        ),
        SectionSpec("tables", "Every estimate", (DETAIL, COUNTS), folded=True),
        SectionSpec(
            *("published", "Beside the published figures", (paper.published,)),
            "Measured on other hardware, years apart: for orientation, not a target. Ours are of the estimator that "
            "follows the paper’s (Yaz: yaz-original), with the same timing, capacity and cross traffic.",
            folded=True,
        ),
    ),
    agreement=(Figures("estimate"),),
    claims=paper.claims,
    missing=("estimator", "timed", "path"),
    absent=insights.absent,
    glossary={
        "Available bandwidth": "What a path still carries without queueing: the least over its hops of capacity − "
        "cross traffic. All rates are of IP packets; a shaper counts 1514 B, and Ethernet 1538, where these are 1500.",
        "Estimate, truth, error": "A trial makes several searches, each an instant estimate; their median is the "
        "trial’s. The truth is the declared capacity less the cross traffic that was counted meanwhile. The error is "
        "median ÷ truth − 1; an answer that is a lower bound below the truth is right, and has no error.",
        "Half the IQR": "Half the interquartile range of a trial’s instant estimates, which Kirova et al. 2019 call "
        "MAD and draw as the variance. MAD here is the usual one, the median of the distances from the median.",
        "Holds the truth": "Of the intervals that the estimator itself gives, those in which the counted truth lies; "
        "as many as its confidence says should.",
        "Built in, by the shim": "Timing is swapped within the estimator (clock and sleep), or by preloading hptime’s "
        "library to a program of plain system calls, as the paper did; “without the shim” is that program as it is.",
        "Helps, hurts": "Errors without their signs, one timing less the other in the same repetition. It helps or "
        "hurts where the interval excludes 0 and the difference exceeds what identical arms (A/A) differ by; it makes "
        "it possible where the other timing cannot pace the rate at all, or gets no answer.",
        "Cannot pace": "The sender refused to report: the path carried all that it sends on time. The highest rate "
        "that was paced is the one that it kept within 1 %, with at most one of 100 bursts late.",
    },
)

"""Each platform in one sentence, and the few cells that a first look is about."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from virtgauge.analysis.comparison import Comparison, Judgement
from virtgauge.ledger.records import ArmRecord
from virtgauge.report import headline
from virtgauge.report.headline import Headline, Said, Tone, tone_of
from virtgauge.report.timing.model import Cell, Series
from virtgauge.report.words import comparison_phrases, duration, exact_duration, load_label

_FIRST_CHOICE = {
    # What a program meets that does nothing special: the libc's clock through the vDSO, a plain sleep.
    "timer_cost": ("clock_gettime", "rdtscp", "rdtsc", "gettimeofday", "clock_gettime_syscall"),
    "sleep_lateness": ("usleep", "nanosleep", "clock_nanosleep"),
}
_COLUMN_TITLES = {"timer_cost": "Reading the clock", "sleep_lateness": "Waking from a sleep"}
_NEWS = 1.5
"""A ratio under load is worth a clause of its own when it differs from the idle one by this factor."""


@dataclasses.dataclass(frozen=True)
class Highlight:
    """A column of the table at a glance: one cell of the design under a plain title."""

    title: str
    detail: str
    cell: Cell


def highlights(cells: Sequence[Cell]) -> list[Highlight]:
    """The cells for a first look: per probe one function, under each load."""
    chosen = []
    for probe, preferred in _FIRST_CHOICE.items():
        candidates = [cell for cell in cells if cell.probe == probe]
        if not candidates:
            continue

        def rank(cell: Cell, order: tuple[str, ...] = preferred) -> tuple[int, bool, bool, bool]:
            function = cell.factors.get("function", "")
            place = order.index(function) if function in order else len(order)
            return (
                place,
                cell.factors.get("slack", "default") != "default",
                cell.factors.get("policy", "other") != "other",
                "idle_states" in cell.factors,
            )

        first = min(candidates, key=rank)
        same = [cell for cell in candidates if cell.function == first.function]
        chosen += [Highlight(_COLUMN_TITLES[probe], _detail(cell), cell) for cell in same]
    return chosen


def _detail(cell: Cell) -> str:
    return f"{cell.function} · {load_label(cell.load)}"


def headlines(arms: Sequence[ArmRecord], cells: Sequence[Cell]) -> tuple[Headline, ...]:
    """One sentence for each arm; see :func:`virtgauge.report.headline.headlines`."""
    first: dict[str, Cell] = {}
    others: list[Cell] = []
    for highlight in highlights(cells):
        if first.setdefault(highlight.cell.probe, highlight.cell) is not highlight.cell:
            others.append(highlight.cell)
    return headline.headlines(arms, lambda arm, against: _said(arm, against, first, others))


def _said(record: ArmRecord, against: str, first: dict[str, Cell], others: Sequence[Cell]) -> Said:
    found = {probe: series for probe, cell in first.items() if (series := cell.of(record.name))}
    measured = {probe: series for probe, series in found.items() if series.missing is None}
    if not measured:
        reasons = [series.missing for series in found.values() if series.missing]
        return Said(reasons[0] if reasons else "not measured yet", Tone.MISSING)
    if not against:
        return Said(_absolute(measured, first), Tone.SAME)
    compared = {probe: series.comparisons["p50"] for probe, series in measured.items()}
    worth_adding = _worth_adding(record.name, compared, others)
    text = comparison_phrases(compared, against)
    for load, under_load in worth_adding.items():
        text += f"; under {load} it {comparison_phrases(under_load, '')}".replace("it sleeps", "sleeps")
    judged = [*compared.values(), *(one for under_load in worth_adding.values() for one in under_load.values())]
    return Said(text, tone_of(judged, better=Judgement.LOWER))


def _worth_adding(
    arm: str, compared: Mapping[str, Comparison], others: Sequence[Cell]
) -> dict[str, dict[str, Comparison]]:
    """Comparisons under the other loads that say something new, by load and probe."""
    found: dict[str, dict[str, Comparison]] = {}
    for cell in others:
        series, first = cell.of(arm), compared.get(cell.probe)
        loaded = series.comparisons.get("p50") if series else None
        if loaded is None or first is None or not loaded.distinguishable:
            continue
        if loaded.judgement is not first.judgement or _factor_between(loaded, first) > _NEWS:
            found.setdefault(load_label(cell.load), {})[cell.probe] = loaded
    return found


def _factor_between(one: Comparison, other: Comparison) -> float:
    if one.ratio.point is None or other.ratio.point is None:
        return 1.0
    factor = one.ratio.point / other.ratio.point
    return max(factor, 1 / factor)


def _absolute(measured: dict[str, Series], first: dict[str, Cell]) -> str:
    phrases = []
    if "timer_cost" in measured:
        phrases.append(f"a clock read takes {duration(measured['timer_cost'].statistics['p50'].point)}")
    if "sleep_lateness" in measured:
        target = first["sleep_lateness"].factors.get("target_ns", "")
        of = f"a {exact_duration(float(target))} sleep" if target.isdigit() else "a sleep"
        phrases.append(f"{of} wakes {duration(measured['sleep_lateness'].statistics['p50'].point)} late")
    return ", ".join(phrases)

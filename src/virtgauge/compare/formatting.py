"""A comparison in words and in a person's units."""

from __future__ import annotations

import dataclasses

from virtgauge.analysis.estimate import Estimate
from virtgauge.compare.model import CALLED, Change, Comparison, Effect, Finding, Series, SeriesComparison, Step
from virtgauge.measures.catalogue import find_measure
from virtgauge.results.formatting import NONE, ratio, ratio_interval, share
from virtgauge.results.measure import Measure


def measure_of(full_name: str) -> Measure:
    """A measure by the name that a change carries."""
    suite, _, name = full_name.partition(".")
    return find_measure(suite, name)


def figure(estimate: Estimate, full_name: str) -> str:
    """``62.1 µs``; a ratio as ``1.31×``."""
    if estimate.unit == "ratio":
        return ratio(estimate)
    return measure_of(full_name).quantity.text(estimate.point)


def change_text(effect: Effect | None, full_name: str) -> str:
    """``1.31× (1.28–1.35×)``, or the difference where there is no ratio; a dash where there is neither."""
    if effect is None:
        return NONE
    by_difference = effect.ratio.point is None and effect.difference is not None
    return size_text(effect.difference if by_difference and effect.difference else effect.ratio, full_name)


def size_text(size: Estimate, full_name: str) -> str:
    """A ratio or a difference with its interval."""
    if size.point is None:
        return NONE
    if size.unit == "ratio":
        return f"{ratio(size)} ({ratio_interval(size)})" if size.has_interval else ratio(size)
    text = measure_of(full_name).quantity.text
    signed = f"{'+' if size.point > 0 else ''}{text(size.point)}"
    return f"{signed} ({text(size.low)} to {text(size.high)})" if size.has_interval else signed


def finding_text(found: Comparison, finding: Finding) -> str:
    """What a finding is called: ``no difference (within ±5 %)``."""
    if finding is Finding.EQUIVALENT:
        return f"no difference (within ±{_percent(found.equivalent)})"
    return "no difference shown" if finding is Finding.NOT_SHOWN else finding.value


def headline(found: Comparison, run: int) -> str:
    """One other run in a sentence: ``3 worse, 1 better, 20 no difference (within ±5 %), 12 no difference shown``."""
    counts = [(found.count(finding, run), finding_text(found, finding)) for finding in Finding]
    return ", ".join(f"{number} {words}" for number, words in counts if number) or "nothing to compare"


def beside_reference(change: Change) -> str:
    """What the reference says of a change of another arm, in a clause; empty where there is nothing to add."""
    own, relative = change.own.finding, change.relative.finding if change.relative else None
    if relative is None or (own not in CALLED and relative not in CALLED):
        return ""
    if own in CALLED and relative not in CALLED:
        return "its ratio to the reference did not change as much as can be shown: the host may have changed"
    if own not in CALLED:
        return f"{relative.value} beside the reference, which changed as well"
    return f"{relative.value} beside the reference too"


def need(effect: Effect) -> str:
    """How many repetitions would decide; empty where that was decided, or cannot be."""
    if effect.finding is not Finding.NOT_SHOWN or effect.needed is None:
        return ""
    return f"about {effect.needed:,} repetitions of each run would decide"


def multiplicity(found: Comparison | SeriesComparison) -> str:
    """What many comparisons at once mean for what is said of each."""
    level = _percent(1 - found.confidence)
    if isinstance(found, SeriesComparison):
        return (
            f"Of the series said to change, at most {level} are expected to be chance (Benjamini–Hochberg over "
            f"{_families(found)}); within one, further cuts share its level. A step "
            "counts only where it also exceeds what single runs differ by, identical arms (A/A) differ by, and "
            f"±{_percent(found.equivalent)}. Its interval is that of a place which was chosen for its size, so it is a "
            "little too favourable."
        )
    number = len(found.changes)
    beside = sum(change.relative is not None for change in found.changes)
    families = f"the {number} comparison{'' if number == 1 else 's'}"
    families += f", and over the {beside} beside the reference in turn" if beside else ""
    return (
        f"Of what is called worse, better or changed, at most {level} are expected to be chance (Benjamini–Hochberg "
        f"over {families}). Each finding of no difference stands for itself, at {level}."
    )


def _families(found: SeriesComparison) -> str:
    own = sum(not series.relative for series in found.series)
    return f"{own} figures and over {len(found.series) - own} ratios to the reference"


def step_text(found: SeriesComparison, series: Series, step: Step) -> str:
    """``worse between run-3 and run-4: 1.31× (1.28–1.35×)``."""
    before, after = found.runs[step.after].label, found.runs[step.after + 1].label
    return f"{step.finding.value} between {before} and {after}: {size_text(step.size, series.measure)}"


@dataclasses.dataclass(frozen=True)
class StepGroup:
    """Steps of many series at one place and of one kind: a change of the host or of virtgauge moves many at once."""

    finding: Finding
    text: str


def step_groups(found: SeriesComparison) -> list[StepGroup]:
    """What happened between which runs, those at which most figures changed first; each names the largest."""
    groups: dict[tuple[int, Finding, bool], list[tuple[Series, Step]]] = {}
    for series in found.series:
        for step in series.steps:
            groups.setdefault((step.after, step.finding, series.relative), []).append((series, step))
    said = []
    for (after, finding, relative), members in sorted(groups.items(), key=lambda group: -len(group[1])):
        between = f"between {found.runs[after].label} and {found.runs[after + 1].label}"
        kinds = ("ratio to the reference", "ratios to the reference") if relative else ("figure", "figures")
        number = f"{len(members)} {kinds[len(members) > 1]}"
        series, step = members[0]
        largest = (
            f"{found.arms[series.arm].label}, {found.cells[series.cell].name}, {series.measure.partition('.')[2]}: "
            f"{size_text(step.size, series.measure)}"
        )
        most = "; most of all " if len(members) > 1 else ": "
        said.append(StepGroup(finding, f"{between} {number} {finding.value}{most}{largest}"))
    return said


def series_headline(found: SeriesComparison) -> str:
    """All series in a sentence."""
    changing = sum(bool(series.steps) for series in found.series)
    if not changing:
        return f"no change shown in any of {len(found.series)} series over {len(found.runs)} runs"
    steps = "1 step" if found.steps == 1 else f"{found.steps} steps"
    return f"{steps} in {changing} of {len(found.series)} series over {len(found.runs)} runs"


def _percent(value: float) -> str:
    return share(value).replace(".0 %", " %")

"""What a comparison says, for the page and the terminal: sentences, tables and charts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from virtgauge.compare.model import CALLED, Change, Compared, Comparison, Effect, Finding, Series, SeriesComparison
from virtgauge.ledger.records import ArmRecord, moment
from virtgauge.report.document import Document
from virtgauge.report.series import series_chart, series_headline, step_groups
from virtgauge.results import formatting
from virtgauge.results.formatting import ratio, ratio_interval, size_text
from virtgauge.results.measure import Measure
from virtgauge.results.quantities import RATIO
from virtgauge.specs.blocks import (
    Axis,
    Block,
    Chart,
    Column,
    Place,
    Row,
    Section,
    Shown,
    Text,
    Value,
    chart_of,
    table_of,
)
from virtgauge.specs.suites import cell_name

_MOST_COURSES = 60  # Series that are drawn; those with steps come first, and the table holds all
_CLOSEST = 5  # Of changes that are not called one, those that come closest are told in full
_READING = {
    "A/A": "The reference measured against itself within a run. A change counts only where it exceeds what identical "
    "arms seem to differ by in the run where they differ more.",
    "Emulated": "A processor simulated in software; or, then called functional, a KVM without hardware virtualization "
    "that steps through its guests' kernel. Its figures are compared with emulated ones only.",
}
_READING_CHANGES = {
    "Change": "The figure of the other run in that of the base: the Hodges–Lehmann shift of the logarithms between "
    "independent repetitions, with the interval that inverts the Mann–Whitney test. Where a figure may be 0, the "
    "difference is given instead.",
    "Beside the reference": "The change of the platform's ratio to the reference, formed within each block of each "
    "run: on another day the host itself changes, and this leaves that out.",
    "No difference": "A finding of its own: the whole interval lies within what makes no difference. “No difference "
    "shown” is none: it says how many repetitions would probably decide.",
}
_READING_SERIES = {
    "Step": "A place in the series at which ranks before and after differ by more than chance explains, wherever that "
    "place might have been (a permutation test with a recorded seed). Both sides are then examined in turn.",
    "As a ratio to the reference": "The platform's ratio to the reference of the same run, formed within each block: "
    "what the host itself changed by is left out.",
}


def document(found: Comparison | SeriesComparison) -> Document:
    """All that a comparison says."""
    if isinstance(found, Comparison):
        title, reading = "What changed between the runs", _READING_CHANGES
        summary = [Text((headline(found, run),), found.title(run), "finding") for run in found.others]
        charts, figures = tuple(_forests(found)), tuple(_changes(found))
    else:
        title, reading = "What changed over a series of runs", _READING_SERIES
        headlined = Text((f"{series_headline(found.series, len(found.runs))}.",))
        summary = [headlined, *step_groups(found.series, found.labels)]
        charts, figures = tuple(_courses(found)), tuple(_series(found))
    notes = [multiplicity(found), *_unexamined(found)]
    if not found.environment and len(found.runs) > 1:
        notes.append("Nothing that was recorded of host, virtgauge, plan and platforms differs.")
    arms = tuple(
        ArmRecord(arm.label, "", arm.label, "test" if number else "reference", arm.emulated, True, "", None, {})
        for number, arm in enumerate(found.arms)
    )
    told = Section("charts", "Charts", charts), Section("all", "Figures", figures)
    sections = (*told, Section("differs", "What differs", tuple(_differs(found))))
    return Document(
        title,
        of=" · ".join(run.label for run in found.runs),
        caveats=found.caveats,
        summary=(*summary, Text(tuple(notes))),
        sections=tuple(one for one in sections if one.blocks),
        reading=reading | {"Many comparisons": multiplicity(found)} | _READING,
        arms=arms,
    )


def _changes(found: Comparison) -> Iterator[Block]:
    """A table for each finding, and of those that show nothing first what comes closest to a change."""
    for finding in Finding:
        own = [change for change in found.changes if change.own.finding is finding]
        title = finding_text(found, finding).capitalize()
        if finding is Finding.NOT_SHOWN:
            yield from _change_table(found, f"{title}: the closest", own[:_CLOSEST])
            own = own[_CLOSEST:]
        yield from _change_table(found, title, own, folded=finding not in CALLED)


def _change_table(found: Comparison, title: str, changes: Iterable[Change], *, folded: bool = False) -> Iterator[Block]:
    heads = ("Measured", "Run") if len(found.runs) > 2 else ("Measured",)
    columns = ("base", "other", "change", Column("beside the reference", text=True), Column("why", text=True), "A/A")
    rows = []
    for change in changes:
        own, measure = change.own, change.measure
        names = f"{cell_name(change.cell)}\n{measure.full_name}", found.runs[change.run].label
        place = Place(measure.suite, change.cell.text, change.arm)
        values = (Value(measure.name, place, one, measure.quantity) for one in (change.base, change.other))
        beside = change_text(change.relative, measure) if change.relative else ""
        told = "; ".join(filter(None, (beside, beside_reference(change)))) or None
        needed = own.needed if own.finding is Finding.NOT_SHOWN else None
        need = "" if needed is None else f"about {needed:,} repetitions of each run would decide"
        why = "; ".join(filter(None, (own.reason, need)))
        shown = (*values, change_text(own, measure), told, why, _band(own, measure))
        rows.append(Row(names[: len(heads)], change.arm, shown))
    return table_of(title, heads, columns, rows, folded=folded)


def _band(effect: Effect, measure: Measure) -> Shown:
    if effect.band is None:
        return None
    return formatting.factor(effect.band) if effect.ratio.point else measure.quantity.text(effect.band)


def _series(found: SeriesComparison) -> Iterator[Block]:
    columns = (Column("found", text=True), *(Column(str(n), hint=label) for n, label in enumerate(found.labels, 1)))

    def rows(changing: bool) -> Iterator[Row]:
        for one in found.series:
            if bool(one.steps) is changing:
                steps = "; ".join(one.step_text(step, found.labels) for step in one.steps)
                heads = (f"{cell_name(one.cell)}\n{one.title}",)
                yield Row(heads, one.arm, (steps or one.reason, *map(one.value, one.levels)))

    yield from table_of("With steps", ("Measured",), columns, rows(True))
    yield from table_of("Without a step", ("Measured",), columns, rows(False), folded=True)


def _differs(found: Compared) -> Iterator[Block]:
    columns = [Column(run.label, text=True) for run in found.runs]
    made = ("made", [moment(run.created_at) for run in found.runs])
    lines = [made, *((line.what, line.values) for line in found.environment)]
    yield from table_of("Between the runs", ("",), columns, [Row((what,), "", tuple(values)) for what, values in lines])
    left = [Row((line.what,), "", (line.reason,)) for line in found.set_aside]
    yield from table_of("Not compared", ("",), (Column("why", text=True),), left)


def _forests(found: Comparison) -> Iterator[Chart]:
    """For each other run and probe the change of every cell on every arm, in per cent; a panel for each measure."""
    order = sorted(found.changes, key=lambda change: found.places[change.cell])
    charts: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for change in order:
        if change.own.ratio.point is not None:
            measure, name = change.measure, cell_name(change.cell)
            panels = charts.setdefault(f"{found.title(change.run)}: {name.partition(': ')[0]}", {})
            clause = f" ({measure.better.clause})" if measure.better.clause else ""
            panels.setdefault(f"{measure.name}{clause}", []).append(_change_row(found, change))
    caption = "The change from the base with its interval, in per cent. Filled marks are called changes."
    for title, panels in charts.items():
        yield from chart_of("dots", title, caption, (Axis("change, %", RATIO, "signed"), Axis("")), panels.items())


def _change_row(found: Comparison, change: Change) -> dict[str, Any]:
    effect, cell = change.own, cell_name(change.cell)
    at = cell.partition(": ")[2] or cell
    percent = effect.ratio.mapped(lambda value: 100 * (value - 1), "%")
    place = {"category": at, "at": at, "place": found.places[change.cell], "x": percent.point}
    ends = {"low": percent.low, "high": percent.high, "hollow": effect.finding not in CALLED}
    texts = {"t": f"{ratio(effect.ratio)}, {finding_text(found, effect.finding)}"}
    texts |= {"interval": ratio_interval(effect.ratio)}
    return {"kind": "ours", "arm": change.arm, "label": change.arm} | place | ends | texts


def _courses(found: SeriesComparison) -> Iterator[Chart]:
    """The course of every figure over the runs: a panel for each cell, and in it a line for each arm."""
    charts: dict[tuple[str, bool], dict[str, list[Series]]] = {}
    for one in found.series[:_MOST_COURSES]:
        positive = all(level.point is None or level.point > 0 for level in one.levels)
        charts.setdefault((one.title, positive), {}).setdefault(cell_name(one.cell), []).append(one)
    for (title, positive), panels in charts.items():
        yield from series_chart(title, "", panels, found.labels, found.labels, of_first=positive)


def change_text(effect: Effect, measure: Measure) -> str:
    """``1.31× (1.28–1.35×)``, or the difference where there is no ratio; a dash where there is neither."""
    return size_text(
        effect.ratio if effect.ratio.point is not None else effect.difference or effect.ratio, measure.quantity
    )


def finding_text(found: Comparison, finding: Finding) -> str:
    """What a finding is called: ``no difference (within ±5 %)``."""
    if finding is Finding.EQUIVALENT:
        return f"no difference (within ±{formatting.confidence(found.equivalent)})"
    return "no difference shown" if finding is Finding.NOT_SHOWN else finding.value


def headline(found: Comparison, run: int) -> str:
    """One other run in a sentence: ``3 worse, 1 better, 20 no difference (within ±5 %), 12 no difference shown``."""
    counts = Counter(change.own.finding for change in found.changes if change.run == run)
    told = [f"{counts[finding]} {finding_text(found, finding)}" for finding in Finding if counts[finding]]
    return ", ".join(told) or "nothing to compare"


def beside_reference(change: Change) -> str:
    """What the reference says of a change of another arm, in a clause; empty where there is nothing to add."""
    if change.relative is None:
        return ""
    own, relative = change.own.finding in CALLED, change.relative.finding
    if relative in CALLED:
        return f"{relative.value} beside the reference{' too' if own else ', which changed as well'}"
    told = "its ratio to the reference did not change as much as can be shown: the host may have changed"
    return told if own else ""


def multiplicity(found: Comparison | SeriesComparison) -> str:
    """What many comparisons at once mean for what is said of each."""
    level = formatting.confidence(1 - found.confidence)
    if isinstance(found, SeriesComparison):
        own = sum(not series.relative for series in found.series)
        return (
            f"The ranks take the repetitions of all runs for alike: so {level} of what they find are expected to be "
            f"chance (Benjamini–Hochberg over {own} figures and over {len(found.series) - own} ratios to the "
            "reference; within a series, further cuts share its level). Where days differ they are not, and a step "
            "counts only where it also exceeds what single runs differ by, which about one of twenty series that do "
            "not change exceeds somewhere, what identical arms (A/A) differ by, and "
            f"±{formatting.confidence(found.equivalent)}: of {len(found.series)} series some "
            f"{math.ceil(len(found.series) / 20)} may be said to change by chance. A step's interval is that of a "
            "place which was chosen for its size, so it is a little too favourable."
        )
    number = len(found.changes)
    beside = sum(change.relative is not None for change in found.changes)
    families = f"the {formatting.count(number, 'comparison')}"
    families += f", and over the {beside} beside the reference in turn" if beside else ""
    return (
        f"Of what is called worse, better or changed, at most {level} are expected to be chance (Benjamini–Hochberg "
        f"over {families}). Each finding of no difference stands for itself, at {level}."
    )


def _unexamined(found: Comparison | SeriesComparison) -> Iterator[str]:
    series: Sequence[Series] = found.series if isinstance(found, SeriesComparison) else ()
    if doubtful := sum(one.doubtful > 0 for one in series):
        yield f"{doubtful} series also differ somewhere, by no more than runs or identical arms differ anyway."
    if short := sum(one.p is None for one in series):
        yield f"{short} series have figures of too few runs to be examined."

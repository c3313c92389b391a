"""What an archive's series say, for the page, the terminal and other programs."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from virtgauge.analysis.estimate import Estimate
from virtgauge.analysis.running_steps import LEAST, WINDOW
from virtgauge.exchange.archive_series import ArchiveSeries, Series, Shown, Turn
from virtgauge.exchange.archive_steps import CONFIDENCE, Step
from virtgauge.ledger.records import ArmRecord, unfinished_words
from virtgauge.report.document import Document, RunLevel, ToldStep, level_rows, levels_chart, steps_headline, steps_text
from virtgauge.results import formatting
from virtgauge.results.formatting import count, first_of
from virtgauge.results.quantities import RATIO, Quantity
from virtgauge.specs.blocks import Block, Column, Place, Row, Section, Table, Text, Value, table_of
from virtgauge.specs.suites import cell_name

SCHEMA_VERSION = 1  # Of the JSON form; raised when a field changes its meaning or goes away

_MOST_DRAWN, _MOST_STEADY, _MOST_RUNS = 60, 12, 200  # Series drawn of those that change, or else; the latest runs shown
_MOST_ROWS, _MOST_GROUPS = 2000, 12  # Of the table without steps; of what happened at a run
_MOST_TURNS, _MOST_NAMED = 6, 5
_READING = {
    "Series": "One measure in one cell on one platform of one host, with the median of each run. It goes on over "
    "kernels and versions of virtgauge; cells that were measured by other settings are series of their own.",
    "Step": f"A place where the runs before differ from the runs after it: up to {WINDOW} of each, by the exact test "
    f"of Mann and Whitney, and {LEAST} at least. It also has to exceed what single runs beside it differ by, and its "
    "interval has to exclude no change. A slow drift is told as steps; what lasts fewer runs is not looked for.",
    "Change": "The Hodges–Lehmann shift between the runs beside a step, as a ratio, with its interval; where a figure "
    "may be 0, the difference. It was chosen for its size, so a small one is likely smaller than it seems.",
    "By chance": f"Of the series said to change, at most {formatting.confidence(1 - CONFIDENCE)} do so by chance, on "
    "the average (Benjamini–Hochberg over all, before those are left out that change by too little). It is so where "
    "runs differ from one another independently: several runs of one day do not, nor do those of a drift. Of a report "
    "that is looked at after each new run, more is by chance.",
    "As the reference does": "The reference changes at that place as well, and the intervals of both changes meet: it "
    "may be the host's.",
    "Emulated": "A processor simulated in software; or, then called functional, a KVM without hardware virtualization.",
}


def archive_document(found: ArchiveSeries) -> Document:
    """All that an archive's series say."""
    arms = {(one.arm, one.emulated): None for one in found.series}
    groups = [Text((words,), between, "finding") for between, words in _groups(found)]
    drawn, apart = _drawn(found), _told_apart(found)
    panels = _panels(found, drawn, apart)
    sections = (
        Section("charts", "Charts", tuple(_charts(found, len(drawn), panels))),
        Section("all", "Figures", tuple(_tables(found, apart))),
        Section("runs", "Figures by run", tuple(_by_run(found, panels)), folded=True),
    )
    runs = f"{count(len(found.runs), 'run')} from {found.runs[0].date} to {found.runs[-1].date}"
    return Document(
        "What changed over an archive of runs",
        of=f"{found.place} · {runs} · hosts: {', '.join(found.hosts)}",
        caveats=tuple(_caveats(found)),
        summary=(Text((f"{headline(found)}.",)), *groups[:_MOST_GROUPS], Text(tuple(_notes(found, len(groups))))),
        sections=tuple(one for one in sections if one.blocks),
        reading=_READING,
        arms=tuple(ArmRecord(name, "", name, "test", emulated, True, "", None, {}) for name, emulated in arms),
    )


def archive_json(found: ArchiveSeries) -> str:
    """The series in base units; what the fields are stands in docs/exchange.md."""
    names = ("low", "high", "confidence", "repetitions")
    series = [
        {
            "measure": one.measure.full_name,
            "unit": one.measure.quantity.unit,
            "better": one.measure.better.value,
            "cell": {"suite": one.cell.suite, "probe": one.cell.probe, "factors": one.cell.factors},
            "host": one.host,
            "arm": one.arm,
            "is_reference": one.is_reference,
            "emulated": one.emulated,
            "of": one.of,
            "finding": found.shown(one),
            "steps": [_step_json(found, one, step) for step in one.steps],
            "doubtful": one.doubtful,
            "alike": one.alike,
            "ended": one.ended,
            "levels": {"run": one.runs, "level": one.levels.tolist()}
            | dict(zip(names, zip(*one.ends, strict=True), strict=True)),
        }
        for one in found.series
    ]
    told = ("place", "without_levels", "unread", "examined", "needed", "equivalent")
    whole = {"kind": "archive", "schema_version": SCHEMA_VERSION, "confidence": CONFIDENCE}
    whole |= {name: getattr(found, name) for name in told}
    whole |= {"caveats": [*_caveats(found)], "runs": [dataclasses.asdict(run) for run in found.runs]}
    whole |= {"turns": [turn._asdict() | {"series": number} for turn, number in found.turns.items()], "series": series}
    return json.dumps(whole, allow_nan=False, separators=(",", ":"))


def _step_json(found: ArchiveSeries, one: Series, step: Step) -> dict[str, Any]:
    before, after = (one.runs[place] for place in (step.after, step.after + 1))
    places = {"before": before, "after": after, "run_before": found.runs[before].label}
    named = {"run_after": found.runs[after].label, "date": found.runs[after].date, "few_days": step.is_of_few_days}
    return dataclasses.asdict(step) | places | named


def headline(found: ArchiveSeries) -> str:
    """All series in a sentence."""
    number, longest = count(len(found.series), "series", "series"), max(len(one.runs) for one in found.series)
    if not found.steps:
        if found.needed is None:
            return f"nothing told: {number} are too many to tell a change in one alone; `--measure` picks some"
        if longest < found.needed:
            return f"too few runs to tell a change: {longest} of the {found.needed} that it takes with {number}"
    return steps_headline([len(one.steps) for one in found.series], len(found.runs))


def told_step(found: ArchiveSeries, one: Series, step: Step) -> ToldStep:
    """``worse between run-3 (2025-03-04) and run-4 (2025-03-05): 1.31× (1.28–1.35×); kernel 6.1.0 → 6.18.0``."""
    before, after = (found.runs[one.runs[place]].dated for place in (step.after, step.after + 1))
    between = f"between {before} and {after}"
    return ToldStep(step.direction, between, series_text(one), step, one.measure.quantity, step.remarks)


def series_text(one: Series) -> str:
    """``Guest on Xeon, Timer cost: rdtscp, timer_cost.p50``."""
    mark = " (emulated)" if one.emulated and "emulated" not in one.arm.lower() else ""
    return f"{one.arm}{mark} on {one.host}, {cell_name(one.cell)}, {one.measure.name}"


def _groups(found: ArchiveSeries) -> list[tuple[str, str]]:
    """Between which runs what happened, the newest first; each names the largest."""
    groups = dict[tuple[int, int, str], list[ToldStep]]()
    for one in found.series:
        for step in one.steps:
            at = one.runs[step.after + 1], one.runs[step.after], step.direction
            groups.setdefault(at, []).append(told_step(found, one, step))
    ordered = sorted(groups.items(), key=lambda group: group[0][:2], reverse=True)
    return [(steps[0].between, steps_text(steps)) for _, steps in ordered]


def _notes(found: ArchiveSeries, groups: int) -> Iterator[str]:
    if groups > _MOST_GROUPS:
        yield f"Older steps, at {count(groups - _MOST_GROUPS, 'place')}, stand in the table."
    for turn, number in [*found.turns.items()][:_MOST_TURNS]:
        yield _turn_text(found, turn, number)
    if len(found.turns) > _MOST_TURNS:
        yield f"Series end or begin at {count(len(found.turns) - _MOST_TURNS, 'older place')}, too."
    drifts = [one for one in found.series if one.drift]
    for one in drifts[:_MOST_NAMED]:
        yield f"{series_text(one)}: {_drift_text(one)}"
    if len(drifts) > _MOST_NAMED:
        yield f"{count(len(drifts) - _MOST_NAMED, 'more series', 'more series')} in steps of the same direction."
    if found.steps:
        chance, small = round(1 / (1 - CONFIDENCE)), formatting.confidence(found.equivalent)
        yield (
            f"About 1 in {chance} of these may be chance; changes under {small} are not shown, nor those that last "
            f"fewer than {LEAST} runs."
        )
    if alike := [series_text(one) for one in found.series if one.alike and not one.drift]:
        named = first_of(alike, _MOST_NAMED)
        yield f"Neighbouring runs are alike, as in a drift, so that steps may be slower changes: {named}."
    if doubtful := sum(found.shown(one) is Shown.DOUBTFUL for one in found.series):
        yield f"{count(doubtful, 'more series differs', 'more series differ')} somewhere; the table says which."
    longest = max(len(one.runs) for one in found.series)
    short = sum(found.shown(one) is Shown.TOO_FEW for one in found.series)
    if found.needed is not None and short and (found.steps or longest >= found.needed):
        yield (
            f"{count(short, 'series has', 'series have')} fewer than the {found.needed} runs that it takes with "
            f"{len(found.series):,} series to tell a change in one alone."
        )
    if short:
        yield "`virtgauge compare --series RUNS` looks closer at a few runs."


def _turn_text(found: ArchiveSeries, turn: Turn, number: int) -> str:
    """``4 series end at run-12 (2025-03-13) and others begin at run-13 (2025-03-14): sample_count 500 → 1000``."""
    last, first = (None if run is None else found.runs[run].dated for run in (turn.last, turn.first))
    if first is None:
        return f"{count(number, 'series ends', 'series end')} at {last}: {turn.what}."
    if last is None:
        return f"{count(number, 'series begins', 'series begin')} at {first}: {turn.what}."
    ends = f"{count(number, 'series ends', 'series end')} at {last} and {number:,} begin{'s' * (number == 1)}"
    return f"{ends} at {first}: {turn.what}."


def _drift_text(one: Series) -> str:
    """That a series may drift, and by how much it is apart before and after."""
    places = [step.after + 1 for step in one.steps]
    at = [one.steps.index(one.drift[end]) for end in (0, -1)]
    starts, stops = [0, *places], [*places, len(one.runs)]
    before, after = (float(np.median(one.levels[starts[k] : stops[k]])) for k in (at[0], at[1] + 1))
    size = f"{'+' if after > before else ''}{one.measure.quantity.text(after - before)}"
    if before > 0 and after > 0:
        size = formatting.ratio(Estimate.bare(after / before, "ratio", ""))
    return f"in steps of the same direction, {size} in all: a drift?"


def _caveats(found: ArchiveSeries) -> Iterator[str]:
    anew = f"`virtgauge archive add RUN --to {found.place}`"
    if found.without_levels:
        yield (
            f"{count(len(found.without_levels), 'more run')} without levels, archived by an older virtgauge: "
            f"{first_of(found.without_levels, _MOST_NAMED)}; {anew} writes them."
        )
    if found.unread:
        told = [f"{run}: {why}" for run, why in found.unread.items()]
        yield (
            f"Left out {count(len(told), 'run')} whose levels are missing or damaged; {anew} mends them: "
            f"{first_of(told, _MOST_NAMED)}."
        )
    if unfinished := [run.label for run in found.runs if not run.finished]:
        yield f"{unfinished_words(first_of(unfinished, _MOST_NAMED), len(unfinished))}."
    for host, facts in found.alternating.items():
        yield (
            f"Runs of {host} alternate in {', '.join(facts)}, as those of several machines in one series do: "
            "`virtgauge archive add --host NAME` tells machines apart."
        )


def _tables(found: ArchiveSeries, apart: Mapping[int, str]) -> Iterator[Table]:
    columns = (Column("found", text=True), "first", "latest", "first to latest", "runs", "least", "largest")
    changing = [one for one in found.series if one.steps]
    steady = [one for one in found.series if not one.steps]
    left = len(steady) - _MOST_ROWS
    more = f" {left:,} more series without a step: `--measure` picks some, `--format json` has all." if left > 0 else ""
    heads, caption = ("Measured", "Host"), _confidences(found.series)
    yield from table_of("With steps", heads, columns, _rows(found, apart, changing), caption)
    rows = _rows(found, apart, steady[:_MOST_ROWS])
    yield from table_of("Without a step", heads, columns, rows, caption + more, folded=True)


def _rows(found: ArchiveSeries, apart: Mapping[int, str], series: Sequence[Series]) -> Iterator[Row]:
    for one in series:
        first, latest, least, largest = (
            _value(one, one.level(place)) for place in (0, -1, int(one.levels.argmin()), int(one.levels.argmax()))
        )
        if one.runs[-1] != len(found.runs) - 1:
            latest = dataclasses.replace(latest, note=f"on {found.runs[one.runs[-1]].date}")
        change = Estimate.missing("ratio", "")
        if one.levels[0] > 0 and one.levels[-1] > 0:
            change = Estimate.bare(float(one.levels[-1] / one.levels[0]), "ratio", "of single runs: no interval")
        changed = _value(one, change, RATIO)
        heads = f"{cell_name(one.cell)}{apart[id(one)]}\n{one.measure.full_name}", one.host
        said = _said(found, one)
        yield Row(heads, one.arm, (said, first, latest, changed, f"{len(one.runs):,}", least, largest))


def _said(found: ArchiveSeries, one: Series) -> str:
    match found.shown(one):
        case Shown.STEPS:
            drift = [_drift_text(one)] if one.drift else []
            return "; ".join([*(told_step(found, one, step).text for step in reversed(one.steps)), *drift])
        case Shown.DOUBTFUL:
            return "differs somewhere, by no more than single runs do, or than what does not matter"
        case Shown.TOO_FEW:
            return f"too few runs: {len(one.runs)}{'' if found.needed is None else f' of {found.needed}'}"
    return "no change shown"


def _confidences(series: Iterable[Series]) -> str:
    """The confidences of the intervals of their figures."""
    known = {one for own in series for _, _, one, _ in own.ends if one is not None}
    if not known or not all(map(math.isfinite, known)):
        return ""
    ends = [formatting.confidence(end) for end in (min(known), max(known))]
    return f"Intervals are at {' to '.join(dict.fromkeys(ends))} confidence, by the repetitions of each run."


def _told_apart(found: ArchiveSeries) -> dict[int, str]:
    """Of each series, by its identity, what tells it from others that would be called the same."""
    alike = dict[tuple[Any, ...], list[Series]]()
    for one in found.series:
        alike.setdefault((*one.figure, one.host, one.arm), []).append(one)
    told = dict[int, str]()
    for group in alike.values():
        names = [name for name in dict.fromkeys(name for one in group for name in one.of)]
        differ = [name for name in names if len({str(one.of.get(name)) for one in group}) > 1]
        for one in group:
            own = [f"{name} {one.of[name]}".strip() for name in differ if name in one.of]
            own += ["emulated"] if one.emulated and len({other.emulated for other in group}) > 1 else []
            told[id(one)] = f" ({', '.join(own)})" if own else ""
    return told


def _value(one: Series, level: Estimate, quantity: Quantity | None = None) -> Value:
    place = Place(one.cell.suite, one.cell.text, one.arm)
    return Value(one.measure.name, place, level, quantity or one.measure.quantity)


def _drawn(found: ArchiveSeries) -> list[Series]:
    """The series that change, those that go on first; where none does, the first; with all platforms beside them."""
    changing = sorted((one for one in found.series if one.steps), key=lambda one: one.ended)
    chosen = changing[:_MOST_DRAWN] or [one for one in found.series if len(one.runs) > 1][:_MOST_STEADY]
    panels = {(*one.figure, one.host) for one in chosen}
    beside = [one for one in found.series if (*one.figure, one.host) in panels]
    return [*chosen, *(one for one in beside if one not in chosen)]


_Panels = Mapping[str, Mapping[str, Sequence[Series]]]  # By measure, those of each cell and host by their name


def _panels(found: ArchiveSeries, drawn: Sequence[Series], apart: Mapping[int, str]) -> _Panels:
    panels = dict[str, dict[str, list[Series]]]()
    for one in drawn:
        host = f", {one.host}" if len(found.hosts) > 1 else ""
        own = panels.setdefault(one.measure.full_name, {})
        own.setdefault(f"{cell_name(one.cell)}{host}{apart[id(one)]}", []).append(one)
    return panels


def _charts(found: ArchiveSeries, drawn: int, all_panels: _Panels) -> Iterator[Block]:
    begin = max(len(found.runs) - _MOST_RUNS, 0)
    dates = {number + 1: run.date for number, run in enumerate(found.runs) if number >= begin}
    which = "those that change, with" if found.steps else "the first, with"
    if drawn:
        yield Text((f"Drawn: {drawn:,} of {len(found.series):,} series: {which} all platforms beside them.",))
    more = f" The latest {_MOST_RUNS} runs." if begin else ""
    for name, panels in all_panels.items():
        rows = {panel: [row for one in own for row in _course(found, one, begin)] for panel, own in panels.items()}
        first = next(iter(panels.values()))[0]
        told = f" {_confidences(one for own in panels.values() for one in own)}{more}"
        yield from levels_chart(name, told, first.measure.quantity, rows.items(), dates)


def _course(found: ArchiveSeries, one: Series, begin: int) -> Iterator[Mapping[str, Any]]:
    levels = [
        RunLevel(run + 1, found.runs[run].dated, one.level(place)) for place, run in enumerate(one.runs) if run >= begin
    ]
    steps = [(one.runs[step.after + 1] + 1, told_step(found, one, step).text) for step in one.steps]
    return level_rows(one.arm, levels, [step for step in steps if step[0] > begin], one.measure.quantity)


def _by_run(found: ArchiveSeries, all_panels: _Panels) -> Iterator[Table]:
    begin = max(len(found.runs) - _MOST_RUNS, 0)
    for name, panels in all_panels.items():
        for panel, own in panels.items():
            at = [{run: one.level(place) for place, run in enumerate(one.runs) if run >= begin} for one in own]
            rows = list[Row]()
            for run in sorted({run for by_run in at for run in by_run}):
                levels = [by_run.get(run) for by_run in at]
                known = dict.fromkeys(formatting.confidence(one.confidence) for one in levels if one is not None)
                cells = (None if level is None else _value(one, level) for one, level in zip(own, levels, strict=True))
                heads = found.runs[run].label, found.runs[run].date
                rows.append(Row(heads, "", (*cells, ", ".join(known))))
            columns = (*(one.arm for one in own), "confidence")
            yield from table_of(f"{panel}, {name}", ("Run", "Made"), columns, rows, folded=True)

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
from virtgauge.exchange.archive_series import ArchiveSeries, Shown, Turn
from virtgauge.exchange.archive_steps import CONFIDENCE, Series
from virtgauge.ledger.records import ArmRecord, unfinished_text
from virtgauge.report.document import Document
from virtgauge.report.series import Step, series_chart, series_headline, step_groups
from virtgauge.results import formatting
from virtgauge.results.formatting import count, first_of
from virtgauge.specs.blocks import Block, Column, Row, Section, Table, Text, table_of
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
    groups = step_groups(found.series, found.labels, newest_first=True)
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
    of_series = ("host", "arm", "is_reference", "emulated", "of", "doubtful", "alike", "ended")
    names = ("low", "high", "confidence", "repetitions")
    series = [
        {name: getattr(one, name) for name in of_series}
        | {
            "measure": one.measure.full_name,
            "unit": one.measure.quantity.unit,
            "better": one.measure.better.value,
            "cell": {"suite": one.cell.suite, "probe": one.cell.probe, "factors": one.cell.factors},
            "finding": found.shown(one),
            "steps": [_step_json(found, one, step) for step in one.steps],
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
    return {
        **{"before": before, "run_before": found.runs[before].label, "after": after},
        **{"run_after": found.runs[after].label, "date": found.runs[after].date},
        **{"size": dataclasses.asdict(step.size), "direction": step.finding, "beside": step.beside, "days": step.days},
        **{"few_days": step.is_of_few_days, "as_reference": step.as_reference},
    }


def headline(found: ArchiveSeries) -> str:
    """All series in a sentence."""
    number, longest = count(len(found.series), "series", "series"), max(len(one.runs) for one in found.series)
    if not found.steps:
        if found.needed is None:
            return f"nothing told: {number} are too many to tell a change in one alone; `--measure` picks some"
        if longest < found.needed:
            return f"too few runs to tell a change: {longest} of the {found.needed} that it takes with {number}"
    return series_headline(found.series, len(found.runs))


def _notes(found: ArchiveSeries, groups: int) -> Iterator[str]:
    if groups > _MOST_GROUPS:
        yield f"Older steps, at {count(groups - _MOST_GROUPS, 'place')}, stand in the table."
    for turn, number in [*found.turns.items()][:_MOST_TURNS]:
        yield _turn_text(found, turn, number)
    if len(found.turns) > _MOST_TURNS:
        yield f"Series end or begin at {count(len(found.turns) - _MOST_TURNS, 'older place')}, too."
    drifts = [one for one in found.series if one.drift]
    for one in drifts[:_MOST_NAMED]:
        yield f"{one.text}: {_drift_text(one)}"
    if len(drifts) > _MOST_NAMED:
        yield f"{count(len(drifts) - _MOST_NAMED, 'more series', 'more series')} in steps of the same direction."
    if found.steps:
        chance, small = round(1 / (1 - CONFIDENCE)), formatting.confidence(found.equivalent)
        yield (
            f"About 1 in {chance} of these may be chance; changes under {small} are not shown, nor those that last "
            f"fewer than {LEAST} runs."
        )
    if alike := [one.text for one in found.series if one.alike and not one.drift]:
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
    parts = np.split(one.levels, [step.after + 1 for step in one.steps])
    first, last = (one.steps.index(one.drift[end]) for end in (0, -1))
    before, after = float(np.median(parts[first])), float(np.median(parts[last + 1]))
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
        yield f"{unfinished_text(first_of(unfinished, _MOST_NAMED), len(unfinished))}."
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
            one.value(one.level(place)) for place in (0, -1, int(one.levels.argmin()), int(one.levels.argmax()))
        )
        if one.runs[-1] != len(found.runs) - 1:
            latest = dataclasses.replace(latest, note=f"on {found.runs[one.runs[-1]].date}")
        change = Estimate.missing("ratio", "")
        if one.levels[0] > 0 and one.levels[-1] > 0:
            change = Estimate.bare(float(one.levels[-1] / one.levels[0]), "ratio", "of single runs: no interval")
        heads = f"{cell_name(one.cell)}{apart[id(one)]}\n{one.measure.full_name}", one.host
        said = _said(found, one)
        yield Row(heads, one.arm, (said, first, latest, one.value(change), f"{len(one.runs):,}", least, largest))


def _said(found: ArchiveSeries, one: Series) -> str:
    match found.shown(one):
        case Shown.STEPS:
            drift = [_drift_text(one)] if one.drift else []
            return "; ".join([*(one.step_text(step, found.labels) for step in reversed(one.steps)), *drift])
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
        names = dict.fromkeys(name for one in group for name in one.of)
        differ = [name for name in names if len({str(one.of.get(name)) for one in group}) > 1]
        for one in group:
            own = [f"{name} {one.of[name]}".strip() for name in differ if name in one.of]
            own += ["emulated"] if one.emulated and len({other.emulated for other in group}) > 1 else []
            told[id(one)] = f" ({', '.join(own)})" if own else ""
    return told


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
    dates = [run.date for run in found.runs]
    which = "those that change, with" if found.steps else "the first, with"
    if drawn:
        yield Text((f"Drawn: {drawn:,} of {len(found.series):,} series: {which} all platforms beside them.",))
    more = f" The latest {_MOST_RUNS} runs." if begin else ""
    for name, panels in all_panels.items():
        told = f" {_confidences(one for own in panels.values() for one in own)}{more}"
        yield from series_chart(name, told, panels, found.labels, dates, begin=begin)


def _by_run(found: ArchiveSeries, all_panels: _Panels) -> Iterator[Table]:
    begin = max(len(found.runs) - _MOST_RUNS, 0)
    for name, panels in all_panels.items():
        for panel, own in panels.items():
            at = [{run: one.level(place) for place, run in enumerate(one.runs) if run >= begin} for one in own]
            rows = list[Row]()
            for run in sorted({run for by_run in at for run in by_run}):
                levels = [by_run.get(run) for by_run in at]
                known = dict.fromkeys(formatting.confidence(one.confidence) for one in levels if one is not None)
                cells = (None if level is None else one.value(level) for one, level in zip(own, levels, strict=True))
                heads = found.runs[run].label, found.runs[run].date
                rows.append(Row(heads, "", (*cells, ", ".join(known))))
            columns = (*(one.arm for one in own), "confidence")
            yield from table_of(f"{panel}, {name}", ("Run", "Made"), columns, rows, folded=True)

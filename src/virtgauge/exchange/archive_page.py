"""What an archive's series say, for the page, the terminal and other programs."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from virtgauge.analysis.running_steps import LEAST, WINDOW, runs_needed
from virtgauge.exchange.archive_series import CONFIDENCE, ArchiveSeries, Direction, Series, Step
from virtgauge.ledger.records import ArmRecord
from virtgauge.report.document import Document
from virtgauge.report.levels import RunLevel, level_rows, levels_chart
from virtgauge.results import formatting
from virtgauge.specs.blocks import Chart, Column, Place, Row, Section, Table, Text, Value, table_of
from virtgauge.specs.suites import cell_name

SCHEMA_VERSION = 1  # Of the JSON form; raised when a field changes its meaning or goes away

_MOST_DRAWN, _MOST_RUNS = 60, 200  # Series that are drawn, and of each the latest runs; the tables hold all
_MOST_ROWS, _MOST_GROUPS = 2000, 12  # Of the table without steps; of what happened at a run
_READING = {
    "Series": "One measure in one cell on one platform of one host, with the median of each run. It goes on over "
    "kernels and versions of virtgauge; cells that were measured by other settings are series of their own.",
    "Step": f"A place where the runs before differ from the runs after it: up to {WINDOW} of each, by the exact test "
    f"of Mann and Whitney, and {LEAST} at least. It also has to exceed what single runs beside it differ by. A slow "
    "drift is told as steps.",
    "Change": "The Hodges–Lehmann shift between the runs beside a step, as a ratio, with its interval; where a figure "
    "may be 0, the difference. It was chosen for its size, so a small one is likely smaller than it seems.",
    "By chance": "That a step is one of chance is bounded where runs differ from one another independently. Several "
    "runs of one day do not; where neighbours are alike, it is said. Of a report that is looked at after each new run, "
    "more is by chance.",
    "Emulated": "A processor simulated in software; or, then called functional, a KVM without hardware virtualization.",
}


def archive_document(found: ArchiveSeries) -> Document:
    """All that an archive's series say."""
    arms = {(one.arm, one.emulated): None for one in found.series}
    first, last = (found.runs[end].created_at[:10] for end in (0, -1))
    groups = [Text((words,), between, "finding") for between, words in _groups(found)]
    apart = _told_apart(found)
    charts, figures = tuple(_charts(found, apart)), tuple(_tables(found, apart))
    sections = Section("charts", "Charts", charts), Section("all", "Figures", figures)
    return Document(
        "What changed over an archive of runs",
        of=f"{found.place} · {_count(len(found.runs), 'run')} from {first} to {last} · hosts: {', '.join(found.hosts)}",
        caveats=tuple(_caveats(found)),
        summary=(Text((f"{headline(found)}.",)), *groups[:_MOST_GROUPS], Text(tuple(_notes(found, len(groups))))),
        sections=tuple(one for one in sections if one.blocks),
        reading=_READING,
        arms=tuple(ArmRecord(name, "", name, "test", emulated, True, "", None, {}) for name, emulated in arms),
        confidence=CONFIDENCE,
    )


def archive_json(found: ArchiveSeries) -> str:
    """The series in base units; of a step the run that it follows is a place in its series."""
    series = [
        {
            "measure": one.measure.full_name,
            "unit": one.measure.quantity.unit,
            "better": one.measure.better.value,
            "cell": {"suite": one.cell.suite, "probe": one.cell.probe, "factors": one.cell.factors},
            "host": one.host,
            "arm": one.arm,
            "emulated": one.emulated,
            "of": one.of,
            "runs": one.runs,
            "levels": [[level, *ends] for level, ends in zip(one.levels.tolist(), one.ends, strict=True)],
            "steps": [dataclasses.asdict(step) for step in one.steps],
            "doubtful": one.doubtful,
        }
        for one in found.series
    ]
    runs = [dataclasses.asdict(run) for run in found.runs]
    whole = {"kind": "archive", "schema_version": SCHEMA_VERSION, "runs": runs, "series": series}
    whole |= {name: getattr(found, name) for name in ("place", "without_levels", "examined", "equivalent")}
    return json.dumps(whole | {"confidence": CONFIDENCE}, allow_nan=False, separators=(",", ":"))


# -- words -----------------------------------------------------------------------------------------------


def headline(found: ArchiveSeries) -> str:
    """All series in a sentence."""
    of = f"{_count(len(found.series), 'series', 'series')} over {_count(len(found.runs), 'run')}"
    changing = sum(bool(one.steps) for one in found.series)
    return f"{_count(found.steps, 'step')} in {changing} of {of}" if changing else f"no change shown in any of {of}"


def step_text(found: ArchiveSeries, one: Series, step: Step) -> str:
    """``worse between run-3 and run-4: 1.31× (1.28–1.35×); kernel 6.1.0 → 6.18.0``."""
    size = formatting.size_text(step.size, one.measure.quantity)
    return "; ".join([f"{step.direction} {_between(found, one, step)}: {size}", *step.beside])


def _between(found: ArchiveSeries, one: Series, step: Step) -> str:
    before, after = (found.runs[one.runs[place]].label for place in (step.after, step.after + 1))
    return f"between {before} and {after}"


def _groups(found: ArchiveSeries) -> list[tuple[str, str]]:
    """Between which runs what happened, those at which most series changed first; each names the largest."""
    groups = dict[tuple[int, int, Direction], list[tuple[Series, Step]]]()
    for one in found.series:
        for step in one.steps:
            at = one.runs[step.after], one.runs[step.after + 1], step.direction
            groups.setdefault(at, []).append((one, step))
    told = []
    for (_, _, direction), members in sorted(groups.items(), key=lambda group: -len(group[1])):
        one, step = max(members, key=lambda member: member[1].largeness)
        between = _between(found, one, step)
        most = "; most of all " if len(members) > 1 else ": "
        largest = f"{one.arm} on {one.host}, {cell_name(one.cell)}, {one.measure.name}: "
        beside = Counter(fact for _, other in members for fact in other.beside)
        facts = [
            f"{fact} beside {number} of them" if len(members) > 1 else fact for fact, number in beside.most_common(2)
        ]
        size = formatting.size_text(step.size, one.measure.quantity)
        text = f"{_count(len(members), 'figure')} {direction}{most}{largest}{size}"
        told.append((between, "; ".join([text, *facts])))
    return told


def _notes(found: ArchiveSeries, groups: int) -> Iterator[str]:
    level = formatting.confidence(1 - CONFIDENCE)
    yield (
        f"Of the series said to change, at most {level} are expected to do so by chance (Benjamini–Hochberg over "
        f"{found.examined:,}) before those are left out that change by less than "
        f"{formatting.confidence(found.equivalent)}."
    )
    needed = runs_needed(1 - CONFIDENCE, max(found.examined, 1))
    yield (
        f"A change in one of them alone is told from {needed} runs on."
        if needed
        else "They are too many to tell a change in one of them alone: `--measure` picks some."
    )
    if groups > _MOST_GROUPS:
        yield f"{groups - _MOST_GROUPS} more places have steps; the table has all."
    if doubtful := sum(one.doubtful > 0 for one in found.series):
        yield (
            f"{_count(doubtful, 'series differs', 'series differ')} somewhere as well, by no more than single "
            "runs do, or than what does not matter."
        )
    if alike := sum(one.alike for one in found.series):
        yield (
            f"In {_count(alike, 'series', 'series')} with steps neighbouring runs are alike, as runs of one day are: "
            "their steps may be days."
        )
    if short := sum(len(one.runs) < 2 * LEAST for one in found.series):
        yield f"{_count(short, 'series', 'series')} of fewer than {2 * LEAST} runs: too few to be examined."


def _caveats(found: ArchiveSeries) -> Iterator[str]:
    if found.without_levels:
        yield (
            f"{_count(found.without_levels, 'more run')} without levels, archived by an older virtgauge: "
            "`virtgauge archive add` them again."
        )


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


# -- tables and charts -----------------------------------------------------------------------------------


def _tables(found: ArchiveSeries, apart: Mapping[int, str]) -> Iterator[Table]:
    columns = (Column("found", text=True), "runs", "first", "latest", "least", "largest")
    changing = [one for one in found.series if one.steps]
    steady = [one for one in found.series if not one.steps]
    left = len(steady) - _MOST_ROWS
    more = f"{left:,} more series without a step: `--measure` picks some, `--format json` has all." if left > 0 else ""
    heads = ("Measured", "Host")
    yield from table_of("With steps", heads, columns, _rows(found, apart, changing))
    yield from table_of("Without a step", heads, columns, _rows(found, apart, steady[:_MOST_ROWS]), more, folded=True)


def _rows(found: ArchiveSeries, apart: Mapping[int, str], series: Sequence[Series]) -> Iterator[Row]:
    for one in series:
        steps = "; ".join(step_text(found, one, step) for step in one.steps)
        reason = "too few runs" if len(one.runs) < 2 * LEAST else "no change shown"
        shown = (0, -1, int(one.levels.argmin()), int(one.levels.argmax()))
        values = (Value(one.measure.name, _place(one), one.level(place), one.measure.quantity) for place in shown)
        heads = f"{cell_name(one.cell)}{apart[id(one)]}\n{one.measure.full_name}", one.host
        yield Row(heads, one.arm, (steps or reason, f"{len(one.runs):,}", *values))


def _told_apart(found: ArchiveSeries) -> dict[int, str]:
    """Of each series, by its identity, what tells it from others that would be called the same."""
    alike = dict[tuple[Any, ...], list[Series]]()
    for one in found.series:
        alike.setdefault((one.measure.full_name, one.cell, one.host, one.arm), []).append(one)
    told = dict[int, str]()
    for group in alike.values():
        names = [name for name in dict.fromkeys(name for one in group for name in one.of)]
        differ = [name for name in names if len({str(one.of.get(name)) for one in group}) > 1]
        for one in group:
            own = [f"{name} {one.of[name]}".strip() for name in differ if name in one.of]
            own += ["emulated"] if one.emulated and len({other.emulated for other in group}) > 1 else []
            told[id(one)] = f" ({', '.join(own)})" if own else ""
    return told


def _place(one: Series) -> Place:
    return Place(one.cell.suite, one.cell.text, one.arm)


def _charts(found: ArchiveSeries, apart: Mapping[int, str]) -> Iterator[Chart]:
    """The course of each series that changes, and where none does of the first: a panel for each cell and host."""
    changing = [one for one in found.series if one.steps]
    drawn = (changing or [one for one in found.series if len(one.runs) > 1])[:_MOST_DRAWN]
    for name in dict.fromkeys(one.measure.full_name for one in drawn):
        own = [one for one in drawn if one.measure.full_name == name]
        panels = dict[str, list[dict[str, Any]]]()
        for one in own:
            host = f", {one.host}" if len(found.hosts) > 1 else ""
            panels.setdefault(f"{cell_name(one.cell)}{host}{apart[id(one)]}", []).extend(_course(found, one))
        more = (
            f" Of each series the latest {_MOST_RUNS} runs." if any(len(one.runs) > _MOST_RUNS for one in own) else ""
        )
        yield from levels_chart(name, more, own[0].measure.quantity, panels)


def _course(found: ArchiveSeries, one: Series) -> Iterator[dict[str, Any]]:
    begin = max(len(one.runs) - _MOST_RUNS, 0)
    levels = [
        RunLevel(one.runs[place] + 1, found.runs[one.runs[place]].label, one.level(place))
        for place in range(begin, len(one.runs))
    ]
    steps = [(one.runs[step.after + 1] + 1, step_text(found, one, step)) for step in one.steps if step.after >= begin]
    return level_rows(one.arm, levels, steps, one.measure.quantity)

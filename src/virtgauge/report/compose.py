"""A suite's part of a report, from its declaration and a run's results: headlines, tables, charts, what is missing."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from virtgauge.analysis.distribution import ccdf
from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import ArmRecord, TrialStatus
from virtgauge.report.replay import ReplayedClaim, conclusions
from virtgauge.results.columns import Cell
from virtgauge.results.formatting import change_phrase, interval_text, point_text, ratio
from virtgauge.results.measure import Measure
from virtgauge.results.quantities import DURATION, RATIO, SHARE
from virtgauge.specs import headline
from virtgauge.specs.blocks import (
    Axis,
    Block,
    Chart,
    Column,
    Row,
    Section,
    Shown,
    Table,
    Text,
    Value,
    chart_of,
    table_of,
    values_of,
)
from virtgauge.specs.context import Context
from virtgauge.specs.headline import Headline, Summary, Tone, compared, tone_of
from virtgauge.specs.model import ChartSpec, Computed, Figures, HeadlineSpec, Insight, TableSpec

_OTHERS = "Everything else that was measured; all of it can be required, compared and exported by these names."
_CURVE_POINTS = 160
_MOST_POINTS, _POINTS_A_STRIP = 9000, (15, 150)  # Raw values in all strips of a chart; in each at least and at most


@dataclasses.dataclass(frozen=True)
class SuiteReport:
    """Everything that a report says of a suite."""

    context: Context
    headlines: tuple[Headline, ...]  # one sentence for each arm of the plan but the A/A arm, the reference first
    summary: tuple[Block, ...]  # below the headlines
    sections: tuple[Section, ...]
    claims: tuple[ReplayedClaim, ...]  # every conclusion of the suite's paper; empty where it has none
    # of the figures that decide, A/A arm to reference: one for each cell where both were measured
    aa_ratios: tuple[Estimate, ...]

    @property
    def suite(self) -> str:
        return self.context.spec.name

    @property
    def title(self) -> str:
        return self.context.spec.title

    @property
    def blocks(self) -> list[Block]:
        return [*self.summary, *(block for section in self.sections for block in section.blocks)]

    @property
    def estimates(self) -> Iterable[Estimate]:
        """The figures that decide, whose confidence a reader must know: of the summary, else the headline measures."""
        told = [one for one in values_of(self.summary) if isinstance(one, Value)]
        first = {one.name for one in self.context.spec.measures if one.headline}
        told = told or [one for one in values_of(self.blocks) if isinstance(one, Value) and one.measure in first]
        return (one.estimate for one in told)


def suite_report(context: Context) -> SuiteReport:
    """What a run says of a suite."""
    spec, table = context.spec, context.table
    table.read(spec.measures)
    ratios = [
        table.aa_ratio(spec.measure(one.measure), cell) for one in spec.agreement for cell in context.where(one.where)
    ]
    summary = blocks(context, spec.summary)
    return SuiteReport(
        context,
        headlines(context),
        summary,
        tuple(sections(context, summary)),
        conclusions(context),
        tuple(one for one in ratios if one is not None and one.point is not None),
    )


def sections(context: Context, summary: Sequence[Block]) -> Iterator[Section]:
    """Every section that has something to show, figures that no other has, and last what was not measured."""
    shown = list(summary)
    for spec in context.spec.sections:
        made = blocks(context, spec.parts)
        shown += made
        if made:
            note = (Text((spec.note,)),) if spec.note else ()
            yield Section(spec.anchor, spec.title, (*note, *made), spec.folded)
    if left := tuple(_others(context, shown)):
        yield Section("others", "Other figures", (Text((_OTHERS,)), *left), folded=True)
    if (missing := not_measured(context)) is not None:
        yield Section("missing", "Not measured", (missing,))


def blocks(context: Context, parts: Sequence[TableSpec | ChartSpec | Insight]) -> tuple[Block, ...]:
    """What some parts of a declaration come to; those without anything to show are left out."""
    made: list[Block] = []
    for part in parts:
        if isinstance(part, TableSpec):
            made += tables(context, part)
        elif isinstance(part, ChartSpec):
            made += charts(context, part)
        else:
            made += part(context)
    return tuple(made)


def _others(context: Context, shown: Sequence[Block]) -> Iterator[Table]:
    """What was measured and is in none of these blocks and in no chart: a table for each first part of a name."""
    told = {one.measure for one in values_of(shown) if isinstance(one, Value)}
    parts = [part for section in context.spec.sections for part in section.parts]
    told |= {name for part in parts if isinstance(part, ChartSpec) for name in part.measures}
    left = [measure for measure in context.spec.measures if measure.name not in told]
    for name, group in itertools.groupby(left, key=lambda measure: measure.name.partition(".")[0]):
        some = list(group)
        columns = tuple(Figures(one.name, one.name.removeprefix(f"{name}.").replace("_", " ")) for one in some)
        probes = frozenset[str]().union(*(one.probes for one in some))
        cells = [cell for cell in context.cells if cell.probe in probes]
        if any(_has_any(context, column, cells) for column in columns):
            yield from tables(context, TableSpec(name.replace("_", " "), columns, {"probe": probes}, folded="all"))


def tables(context: Context, spec: TableSpec) -> Iterator[Table]:
    """A table for each combination of the levels that it is split by."""
    # What no arm can do is told once, under what was not measured.
    cells = [cell for cell in context.where(spec.where) if not _unsupported(context, cell)]
    number = 0
    for key, group in context.groups(cells, spec.split).items():
        named = [context.spec.factor(factor).text(level) for factor, level in zip(spec.split, key, strict=True)]
        title = ": ".join(filter(None, (spec.title, ", ".join(word for word in named if word))))
        heads = tuple(context.spec.factor(one).title for one in spec.rows) or ("Of",)
        across = _columns(context, spec, group)
        rows, columns = _rows(context, spec, group, across), (column for _, _, column in across)
        folded = spec.folded == "all" or (spec.folded == "rest" and number > 0)
        for table in table_of(_capital(title), heads, columns, rows, "" if number else spec.caption, folded=folded):
            yield table
            number += 1


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _unsupported(context: Context, cell: Cell) -> bool:
    tried = (one for arm in context.arms for one in context.table.endings.attempts(cell, arm.name))
    return all(one.status is TrialStatus.UNSUPPORTED for one in tried)


def _rows(context: Context, spec: TableSpec, cells: list[Cell], across: list[Across]) -> Iterator[Row]:
    hidden = (*spec.split, *spec.across)
    apart = spec.rows or tuple(one.name for one in context.spec.factors if one.name not in hidden)
    for group in context.groups(cells, apart).values():
        for some in [group] if spec.across else [[cell] for cell in group]:
            heads = tuple(context.text(some[0], one) for one in spec.rows)
            heads = heads or (context.spec.cell_name(some[0], hidden) or context.spec.title,)
            if spec.head is not None and (more := spec.head(context, some)):
                heads = (f"{heads[0]}\n{more}", *heads[1:])
            for arm in context.arms:
                if any(context.table.tried(cell, arm.name) for cell in some):
                    shown = tuple(_shown(context, spec, column, some, key, arm) for key, column, _ in across)
                    yield Row(heads, arm.name, shown)


Across = tuple[tuple[str, ...], Figures | Computed, Column]


def _columns(context: Context, spec: TableSpec, cells: list[Cell]) -> list[Across]:
    """What each column holds: levels of the factors across, and what is shown of the cell that has them."""
    if not spec.across:
        return [((), one, _column(context, one)) for one in spec.columns if _has_any(context, one, cells)]
    groups = context.groups(cells, spec.across)
    kept: list[tuple[str, ...]] = []
    ended = [place for place, factor in enumerate(spec.across) if factor in spec.ends]
    for _, some in itertools.groupby(groups, key=lambda key: [one for n, one in enumerate(key) if n not in ended]):
        keys = list(some)
        kept += dict.fromkeys((keys[0], keys[-1])) if ended else keys
    found = []
    for key in kept:
        words = [context.spec.factor(factor).text(level) for factor, level in zip(spec.across, key, strict=True)]
        fitting = [one for one in spec.columns if _has_any(context, one, groups[key])]
        for one in fitting:
            own = [*words[1:], *([_column(context, one).title] if len(fitting) > 1 or len(words) == 1 else [])]
            found.append((key, one, Column(", ".join(own), _capital(words[0]))))
    return found


def _has_any(context: Context, column: Figures | Computed, cells: list[Cell]) -> bool:
    """Whether a column is about any of some cells, and, where it is a measure's, has a figure."""
    if isinstance(column, Computed):
        return True
    measure = context.spec.measure(column.measure)
    return any(
        context.fits(cell, column.where) and any(context.table.has(measure, cell, arm.name) for arm in context.arms)
        for cell in cells
    )


def _column(context: Context, one: Figures | Computed) -> Column:
    if isinstance(one, Computed):
        return Column(one.title, text=one.text)
    measure = context.spec.measure(one.measure)
    return Column(one.title or measure.name.replace("_", " "), hint=measure.meaning)


def _shown(
    context: Context,
    spec: TableSpec,
    column: Figures | Computed,
    cells: list[Cell],
    key: tuple[str, ...],
    arm: ArmRecord,
) -> Shown:
    fitting = [cell for cell in cells if tuple(context.level(cell, factor) for factor in spec.across) == key]
    for cell in fitting:
        if not context.table.tried(cell, arm.name):
            continue
        if isinstance(column, Computed):
            return column.say(context, cell, arm.name)
        if context.fits(cell, column.where):
            ranked = spec.ranked and (column is spec.columns[0] or column.compared)
            return context.value(
                column.measure,
                cell,
                arm.name,
                compared=column.compared,
                note=column.note(context, cell, arm.name) if column.note else "",
                hint=column.hint(context, cell, arm.name) if column.hint else "",
                rank=context.rank(column.measure, cell, arm.name, spec.ranked) if ranked else None,
            )
    return None


def charts(context: Context, spec: ChartSpec) -> Iterator[Chart]:
    """One chart; none where nothing of it was measured."""
    cells = context.where(spec.where)
    cells = spec.choose(context, cells) if spec.choose else cells
    rows_of = {"ccdf": _curves, "dots": _dots, "lines": _points, "heat_map": _squares, "strips": _strips}[spec.kind]
    panels: list[tuple[str, list[PointRow]]] = []
    measures: dict[str, Measure] = {}
    for key, group in context.groups(cells, spec.panels).items():
        few = spec.least > 1 and len({context.level(cell, spec.x or spec.rows) for cell in group}) < spec.least
        rows = [] if few else list(rows_of(context, spec, group, measures))
        words = [context.spec.factor(factor).text(level) for factor, level in zip(spec.panels, key, strict=True)]
        if spec.kind == "heat_map":
            for label in dict.fromkeys(row["label"] for row in rows):
                own = [row for row in rows if row["label"] == label]
                panels.append((", ".join(filter(None, (label, *words))), own))
        elif rows:
            others = spec.published(context, group) if spec.published else ()
            panels.append((_capital(", ".join(filter(None, words))), [*rows, *map(dict, others)]))
    measure = next(iter(measures.values()), None)
    figures = Axis("", DURATION) if measure is None else Axis(measure.quantity.unit, measure.quantity)
    if spec.signed or figures.quantity is RATIO:
        figures = dataclasses.replace(figures, scale="signed" if spec.signed else "linear")
    along = Axis("")
    if spec.x:
        factor = context.spec.factor(spec.x)
        along = Axis(factor.title.lower(), factor.quantity, "linear" if factor.quantity is SHARE else "log")
    across = {"ccdf": (figures, Axis("share that is longer")), "dots": (figures, Axis(""))}
    caption = spec.caption
    drawn = [row.pop("drawn") for _, rows in panels for row in rows if "drawn" in row]
    if drawn:
        some, of = min(drawn, key=lambda one: one[0] / one[1])
        caption += f" Of very many repetitions a curve has a random sample, spread over the run (of one, {some:,} of "
        caption += f"{of:,}): rare extremes may be in others. Means, and extremes in tables, are of all."
    yield from chart_of(spec.kind, spec.title, caption, across.get(spec.kind, (along, figures)), panels)


PointRow = dict[str, Any]
Measures = dict[str, Measure]


def _figures(
    context: Context, spec: ChartSpec, cells: list[Cell], measures: Measures
) -> Iterator[tuple[Cell, PointRow, float, float | None, float | None]]:
    """Of each cell and arm that has a figure what every mark says, and point, low and high."""
    for cell, arm in itertools.product(cells, context.arms):
        for name in spec.measures:
            measure = context.spec.measure(name)
            if not context.table.has(measure, cell, arm.name):
                continue
            measures[name] = measure
            found = context.table.estimate(measure, cell, arm.name)
            assert found.point is not None
            row = {"kind": "ours", "arm": arm.name, "label": arm.label, "hollow": arm.role == "aa"}
            told = {"t": point_text(found, measure.quantity), "interval": interval_text(found, measure.quantity)}
            yield cell, row | told, float(f"{found.point:.5g}"), found.low, found.high
            break


def _dots(context: Context, spec: ChartSpec, cells: list[Cell], measures: Measures) -> Iterator[PointRow]:
    tried, factor = [context.level(cell, spec.rows) for cell in cells], context.spec.factor(spec.rows)
    order = sorted(dict.fromkeys(tried), key=lambda level: factor.rank(level, tried))
    for cell, row, point, low, high in _figures(context, spec, cells, measures):
        level = context.level(cell, spec.rows)
        named = factor.text(level) or level
        yield row | {"category": named, "at": named, "place": order.index(level), "x": point, "low": low, "high": high}


def _points(context: Context, spec: ChartSpec, cells: list[Cell], measures: Measures) -> Iterator[PointRow]:
    for cell, row, point, low, high in _figures(context, spec, cells, measures):
        level = context.level(cell, spec.x)
        number, at = float(level.rpartition(":")[2]), context.text(cell, spec.x) or level  # ``16``, ``open:200``
        yield row | {"x": number, "at": at, "y": point, "low": low, "high": high}


def _squares(context: Context, spec: ChartSpec, cells: list[Cell], measures: Measures) -> Iterator[PointRow]:
    for cell, row, point, _, _ in _figures(context, spec, cells, measures):
        x, y = (context.text(cell, one) or context.level(cell, one) for one in (spec.x, spec.rows))
        yield row | {"x": x, "y": y, "value": point, "at": f"{x}, {y}"}


def _curves(context: Context, spec: ChartSpec, cells: list[Cell], measures: Measures) -> Iterator[PointRow]:
    """Of each arm the cell that has the histogram; columns, for the page makes rows of them."""
    for arm in context.arms:
        for cell in cells:
            known = ((one, context.table.distributions.pooled(one, cell, arm.name)) for one in spec.measures)
            name, found = next((one for one in known if one[1]), ("", None))
            if found is not None:
                values, shares = ccdf(found.values, _CURVE_POINTS)
                mean_ns = context.table.distributions.mean_ns(name, cell, arm.name)
                row: PointRow = {"arm": arm.name, "label": arm.label, "mean": mean_ns}
                row |= {"drawn": (found.places.size, found.of)} if found.places.size < found.of else {}
                yield row | {"x": (values * found.ns).tolist(), "y": shares.tolist()}
                break


def _strips(context: Context, spec: ChartSpec, cells: list[Cell], measures: Measures) -> Iterator[PointRow]:
    """The raw values that were kept of a typical repetition, thinned out; a strip for each cell and arm."""
    measure, strip = context.spec.measure(spec.middle), 0
    most = int(np.clip(_MOST_POINTS // max(len(context.where(spec.where)) * len(context.arms), 1), *_POINTS_A_STRIP))
    for cell, arm in itertools.product(cells, context.arms):
        medians = context.table.values(measure, cell, arm.name)
        middle = context.table.estimate(measure, cell, arm.name).point
        if middle is None:
            continue
        block = min(medians, key=lambda one: abs(medians[one] - middle))
        for name in spec.measures:
            raw = context.table.distributions.samples(name, cell, arm.name, block)
            if raw.size:
                measures[spec.middle] = measure
                # A reservoir is in no order, but one that was never full is in order of time: even steps serve both.
                places = np.linspace(0, raw.size - 1, min(most, raw.size)).astype(np.int64)
                drawn = np.append(raw[places], (raw.min(), raw.max())) * spec.factor
                values = [float(f"{value:.3g}") for value in drawn]
                yield {"arm": arm.name, "label": arm.label, "strip": strip, "y": values, "median": middle}
                strip += 1


def headlines(context: Context) -> tuple[Headline, ...]:
    """One sentence for each arm; see :func:`virtgauge.specs.headline.headlines`."""
    said = context.spec.headline
    say = functools.partial(_said, spec=said) if isinstance(said, HeadlineSpec) else said
    return headline.headlines(context.all_arms, functools.partial(say, context))


def _said(context: Context, arm: ArmRecord, against: str, spec: HeadlineSpec) -> Summary:
    chosen = context.once(spec.cells)
    measured = [(name, cell) for name, cell in chosen if context.table.has(context.spec.measure(name), cell, arm.name)]
    if not measured:
        for name, cell in [*chosen, *((name, cell) for cell in context.cells for name in spec.says)]:
            measure = context.spec.measure(name)
            if context.table.has(measure, cell, arm.name):
                return Summary(
                    "none in the cells that this line is about; the tables have what was measured", Tone.MISSING
                )
            if context.table.tried(cell, arm.name) and cell.probe in measure.probes:
                return Summary(context.table.missing_reason(measure, cell, arm.name), Tone.MISSING)
        tried = any(context.table.tried(cell, arm.name) for cell in context.cells)
        return Summary("no headline figure" if tried else "not measured yet", Tone.MISSING)
    measured = spec.told(context, arm.name, measured)
    found, names = [], [spec.name(context, cell) for _, cell in measured]
    by_verb = len(set(names)) < len(names)
    for (asked, cell), name in zip(measured, names, strict=True):
        measure, verb = context.spec.measure(asked), spec.says[asked][0]
        change = context.table.compared(measure, cell, arm.name) if arm.name != context.table.reference else None
        point = measure.quantity.text(context.table.estimate(measure, cell, arm.name).point)
        higher, lower, after = spec.more[asked]
        told = "" if change is None else change_phrase(change, higher, lower)
        if by_verb:  # it tells figures apart
            name, verb = f"{name} {verb}", ""
        said = (f"{verb} {point} {after}".strip(), change, f"{verb} {told}".strip() if told else "")
        found.append(headline.figure(name, *said, probe=cell.probe, better=measure.better))
    cells = [cell for _, cell in measured]
    where, remark = spec.where(context, cells), spec.remark(context, cells, arm.name)
    ending = (f" ({where})" if where else "") + (f"; {remark}" if remark else "")
    return Summary(_sentence(context, spec, arm.name, against, measured) + ending, tone_of(found), tuple(found))


def _sentence(
    context: Context, spec: HeadlineSpec, arm: str, against: str, measured: Sequence[tuple[str, Cell]]
) -> str:
    """``stores single values at 1.20 kop/s (PostgreSQL, 0.91× the host, 0.90–0.93×), …; reads …``."""
    name, parts = f" {against}", list[str]()
    ranged = bool(against) and len({spec.name(context, cell) for _, cell in measured}) > spec.most
    for asked, (verb, noun, leading) in spec.says.items():
        measure = context.spec.measure(asked)
        cells = [cell for one, cell in measured if one == asked]
        if not cells:
            continue
        if ranged:
            parts += _range(context, spec, arm, against, measure, cells)
            continue
        said = []
        for cell in cells[: spec.most + 1]:
            beside = ""
            if against:
                beside = f", {compared(context.table.compared(measure, cell, arm), name)}"
                name = ""  # once is enough
            point = measure.quantity.text(context.table.estimate(measure, cell, arm).point)
            said.append(f"{point} ({spec.name(context, cell)}{beside})")
        more = len(cells) - spec.most - 1
        said += [f"{more} more below"] if more > 0 else []
        parts.append(" ".join(filter(None, (verb, noun, leading, ", ".join(said)))))
    if ranged:
        found = [context.table.compared(context.spec.measure(one), cell, arm) for one, cell in measured]
        undecided = sum(not one.distinguishable for one in found)
        parts += [f"no difference shown in {undecided} of {len(found)} figures"] if undecided else []
    return "; ".join(parts)


def _range(
    context: Context, spec: HeadlineSpec, arm: str, against: str, measure: Measure, cells: list[Cell]
) -> Iterator[str]:
    """Of many figures the least and the most: ``stores 0.65× (Cassandra) to 0.76× (MongoDB) of the host’s …``."""
    ratios = {spec.name(context, cell): context.table.compared(measure, cell, arm).ratio for cell in cells}
    known = {name: one for name, one in ratios.items() if one.point is not None}
    if known:
        pick: Callable[[str], float] = lambda name: known[name].point or 0.0  # noqa: E731
        least, most = min(known, key=pick), max(known, key=pick)
        verb, noun, _ = spec.says[measure.name]
        yield f"{verb} {ratio(known[least])} ({least}) to {ratio(known[most])} ({most}) of {against}’s {noun}".strip()


def not_measured(context: Context) -> Table | None:
    """What no valid trial is there for, each reason once: by the first of the factors, its levels of the others."""
    factors = context.spec.missing
    if not factors:
        return None
    usable = [arm.name for arm in context.all_arms if arm.usable]
    merged: dict[tuple[str, str], tuple[dict[tuple[str, ...], None], dict[str, None]]] = {}
    measured = set()
    for key, cells in context.groups(context.cells, factors).items():
        for arm in usable:
            tried = [cell for cell in cells if context.table.tried(cell, arm)]
            if any(context.measured(cell, arm) for cell in tried):
                measured.add(key[0])
            elif tried:
                levels, names = merged.setdefault((key[0], context.table.endings.ending(tried[-1], arm)), ({}, {}))
                levels[key[1:]] = names[arm] = None
    absent = list(context.spec.absent(context))
    if not merged and not absent:
        return None
    first, *others = (context.spec.factor(one) for one in factors)
    rows = []
    for (level, reason), (levels, names) in merged.items():
        every = level not in measured and len(levels) > 1
        said = [[one.text(part) for one, part in zip(others, of, strict=True)] for of in levels]
        where = "every one" if every else ", ".join(dict.fromkeys("; ".join(filter(None, of)) for of in said))
        on = "all" if len(names) == len(usable) else ", ".join(context.arm(name).label for name in names)
        rows.append(Row((first.text(level),), "", (where, on, reason)))
    rows += [Row((name,), "", ("every one", "all", reason)) for name, reason in absent]
    columns = (Column(" and ".join(one.title.lower() for one in others), text=True), Column("platforms", text=True))
    return Table("", (first.title,), (*columns, Column("why", text=True)), tuple(rows))

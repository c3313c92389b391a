"""The timing paper's own conclusions, tested again on its own Tables 1 and 2.

The tables hold one value for each cell (30 rows each), so the tests are what the paper says that it did: rows are the
observations, a column is the factor, and the other columns are pooled.  What one value a cell cannot decide is said to
be undecided: an interaction, or a comparison of so few values that no data could reach the paper's level of 0.05.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from virtgauge.analysis import ranks
from virtgauge.analysis.effect_sizes import epsilon_squared
from virtgauge.reference import TimingFigure, claims, table, timing_figures
from virtgauge.report.timing.factor_words import p_value
from virtgauge.report.timing.factors import LEVEL
from virtgauge.report.words import duration, significant

PARAMETERS: dict[str, str] = {"median": "median", "half_iqr": "MAD (half IQR)", "max": "maximum", "min": "minimum"}
_COLUMNS: dict[str, Callable[[TimingFigure], float]] = {
    "median": lambda row: row.median_ns,
    "half_iqr": lambda row: row.half_iqr_ns,
    "max": lambda row: row.max_ns,
    "min": lambda row: row.min_ns,
}
_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6}
_MOST_EXCEPTIONS = 3

Rows = Sequence[TimingFigure]


class Verdict(enum.StrEnum):
    """What the table says of a conclusion."""

    CONFIRMED = "confirmed"
    CONTRADICTED = "contradicted"
    UNDECIDED = "cannot be tested"


@dataclasses.dataclass(frozen=True)
class Evidence:
    """One statistic of a test.

    Attributes:
        text: in words, with the figures.
        agrees: with the conclusion; None where the table cannot decide.
    """

    text: str
    agrees: bool | None


@dataclasses.dataclass(frozen=True)
class ExaminedClaim:
    """A conclusion and what the table says of it."""

    name: str
    place: str
    tables: tuple[str, ...]
    text: str
    note: str
    verdict: Verdict
    evidence: tuple[Evidence, ...]


@functools.cache
def examined_claims() -> tuple[ExaminedClaim, ...]:
    """Every conclusion of the timing paper that its tables are about, in its order."""
    return tuple(examine(claim) for claim in claims.timing_claims())


def examine(claim: claims.Claim) -> ExaminedClaim:
    """Carry out a conclusion's tests.  It is confirmed if all agree, contradicted if any does not."""
    evidence: list[Evidence] = []
    for name in claim.table:
        found = [one for test in claim.tests for one in _evidence(test, timing_figures(name))]
        if len(claim.table) > 1:
            found = [Evidence(f"{table(name).place}: {one.text}", one.agrees) for one in found]
        evidence += found
    agreement = [one.agrees for one in evidence]
    verdict = (
        Verdict.CONTRADICTED if False in agreement else Verdict.UNDECIDED if None in agreement else Verdict.CONFIRMED
    )
    tables = tuple(f"{table(name).source.short}, {table(name).place}" for name in claim.table)
    return ExaminedClaim(claim.name, claim.place, tables, claim.text, claim.note, verdict, tuple(evidence))


def _evidence(test: claims.Test, rows: Rows) -> Iterator[Evidence]:
    match test:
        case claims.FactorMatters():
            yield from _factor(test, rows)
        case claims.LevelsDiffer():
            yield from _pairs(test, rows)
        case claims.Interaction():
            yield Evidence(
                "one value a cell: what is interaction and what is chance cannot be told apart, "
                "and Kruskal–Wallis on one column tests no interaction at all",
                None,
            )
        case claims.Extreme():
            yield _extreme(test, rows)
        case claims.Order():
            yield _order(test, rows)
        case claims.Ratio():
            yield _ratio(test, rows)
        case claims.Spread():
            yield _spread(test, rows)
        case claims.Figures():
            yield from (_figure(figure, rows) for figure in test.figures)


# -- tests on ranks ----------------------------------------------------------------------------------


def _factor(test: claims.FactorMatters, rows: Rows) -> Iterator[Evidence]:
    names = test.groups or {level: (level,) for level in _levels(rows, test.factor)}
    for where, part in _parts(test.within, test.levels, rows):
        members = [[row for row in part if _level(row, test.factor) in group] for group in names.values()]
        sizes = [len(group) for group in members]
        least = ranks.least_attainable_p(sizes)
        if least >= LEVEL:
            yield Evidence(f"{where}{_sizes(sizes)} values: no data could give an exact p below {least:.2g}", None)
            continue
        for parameter, expected in _expectations(test.significant, test.insignificant):
            found = ranks.kruskal_wallis([_values(group, parameter) for group in members])
            text = (
                f"{where}{PARAMETERS[parameter]}: H({found.df}) = {found.h:.2f}, {p_value(found.p)}, "
                f"ε² {epsilon_squared(found.h, found.n):.2f}"
            )
            yield _judged(text, found.p < LEVEL, expected)


def _pairs(test: claims.LevelsDiffer, rows: Rows) -> Iterator[Evidence]:
    levels = _levels(rows, test.factor)
    for where, part in _parts(test.within, test.levels, rows):
        members = [[row for row in part if _level(row, test.factor) == level] for level in levels]
        sizes = [len(group) for group in members]
        wanted = _pairs_meant(test.pairs, levels)
        least = max(ranks.least_attainable_dunn_p(sizes, *pair) for pair in wanted)
        if least >= LEVEL:
            yield Evidence(f"{where}{_sizes(sizes)} values: Dunn–Holm could give no p below {least:.2g}", None)
            continue
        for parameter, expected in _expectations(test.significant, test.insignificant):
            found = {
                (pair.first, pair.second): pair
                for pair in ranks.dunn([_values(group, parameter) for group in members])
                if (pair.first, pair.second) in wanted
            }
            if len(found) == 1:
                (one,) = found.values()
                text = f"{where}{PARAMETERS[parameter]}: z {one.z:+.2f}, Holm-adjusted {p_value(one.p_holm)}"
                yield _judged(text, one.p_holm < LEVEL, expected)
            else:
                yield _many_pairs(f"{where}{PARAMETERS[parameter]}", found, levels, expected)


def _many_pairs(
    head: str, found: dict[tuple[int, int], ranks.DunnPair], levels: Sequence[str], expected: bool
) -> Evidence:
    p = [one.p_holm for one in found.values()]
    shown = [pair for pair, one in found.items() if one.p_holm < LEVEL]
    unadjusted = sum(one.p < LEVEL for one in found.values())
    without = "" if unadjusted == len(shown) else f"; {unadjusted} without adjustment"
    text = f"{head}: {len(shown)} of {len(found)} pairs differ (Holm-adjusted p {_range(min(p), max(p))}{without})"
    named = [f"{levels[i]}–{levels[j]}" for i, j in found if ((i, j) in shown) is not expected]
    if named and len(named) < len(found):
        text += f"; {'not' if expected else 'but'} {_listed(named)}"
    return Evidence(text, len(shown) == len(found) if expected else not shown)


def _pairs_meant(pairs: Sequence[tuple[str, str]], levels: Sequence[str]) -> set[tuple[int, int]]:
    meant: set[tuple[int, int]] = set()
    for (first, second), (i, j) in itertools.product(pairs, itertools.combinations(range(len(levels)), 2)):
        both = {levels[i], levels[j]}
        with_any = second == "*" and first in both
        without = first == "others" and second not in both
        if with_any or without or both == {first, second}:
            meant.add((i, j))
    return meant


# -- comparisons of figures --------------------------------------------------------------------------


def _extreme(test: claims.Extreme, rows: Rows) -> Evidence:
    best, exceptions, cells = (max if test.which == "largest" else min), [], 0
    for name, cell in _cells(rows, test.factor, test.where, test.ignoring):
        cells += 1
        values = {_level(row, test.factor): _value(row, test.parameter) for row in cell}
        if values[test.level] != best(values.values()) or list(values.values()).count(values[test.level]) > 1:
            other = best((level for level in values if level != test.level), key=lambda level: values[level])
            exceptions.append(f"{name}: {other} {duration(values[other])}, {test.level} {duration(values[test.level])}")
    head = f"{test.level} has the {test.which} {PARAMETERS[test.parameter]}"
    return _counted(head, cells, exceptions)


def _order(test: claims.Order, rows: Rows) -> Evidence:
    exceptions, cells = [], 0
    for name, cell in _cells(rows, test.factor, test.where, ()):
        values = {_level(row, test.factor): _value(row, test.parameter) for row in cell}
        cells += 1
        if not values[test.lower] < values[test.higher]:
            low, high = duration(values[test.lower]), duration(values[test.higher])
            exceptions.append(f"{name}: {test.lower} {low}, {test.higher} {high}")
    return _counted(f"{PARAMETERS[test.parameter]} of {test.lower} below {test.higher}", cells, exceptions)


def _ratio(test: claims.Ratio, rows: Rows) -> Evidence:
    ratios = []
    for _, cell in _cells(rows, test.factor, test.where, ()):
        values = {_level(row, test.factor): _value(row, test.parameter) for row in cell}
        ratios += [values[test.level] / values[other] for other in test.to]
    low, high = test.at_least or 0.0, float("inf") if test.at_most is None else test.at_most
    inside = sum(low <= ratio <= high for ratio in ratios)
    seen = " to ".join(dict.fromkeys(f"{significant(ratio)}×" for ratio in (min(ratios), max(ratios))))
    bound = f"at least {significant(low)}×" if test.at_most is None else f"at most {significant(high)}×"
    text = (
        f"{test.level} to {' and '.join(test.to)}, {PARAMETERS[test.parameter]}: "
        f"{seen}; {bound} in {inside} of {len(ratios)}"
    )
    return Evidence(text, 2 * inside > len(ratios) if test.most else inside == len(ratios))


def _spread(test: claims.Spread, rows: Rows) -> Evidence:
    shares = []
    for _, cell in _cells(rows, test.factor, test.where, test.ignoring):
        values = [_value(row, test.parameter) for row in cell]
        shares.append((max(values) - min(values)) / max(values))
    text = f"{PARAMETERS[test.parameter]}s differ by {max(shares):.0%} of the largest".replace("%", " %")
    # What is printed as 45 % may be up to 45.5 %.
    return Evidence(text, max(shares) < test.at_most + 0.005)


def _figure(figure: claims.PrintedFigure, rows: Rows) -> Evidence:
    row = next(
        row for row in rows if (row.function, row.platform, row.load) == (figure.function, figure.platform, figure.load)
    )
    number, unit = figure.printed.split()
    decimals = len(number.partition(".")[2])
    ours, printed = _value(row, figure.parameter) / _NS[unit], float(number)
    name = f"{figure.function}, {figure.platform}, {figure.load}, {PARAMETERS[figure.parameter]}"
    shown = f"{ours:,.{decimals + 1}f}".rstrip("0").rstrip(".")
    text = f"{name}: text {number}, table {shown} {unit.replace('u', 'µ')}"
    return Evidence(text, abs(ours - printed) <= 0.5 * 10**-decimals * (1 + 1e-9))


# -- parts of the table ------------------------------------------------------------------------------


def _level(row: TimingFigure, factor: str) -> str:
    return {"function": row.function, "platform": row.platform, "load": row.load}[factor]


def _value(row: TimingFigure, parameter: str) -> float:
    return _COLUMNS[parameter](row)


def _values(rows: Rows, parameter: str) -> ranks.Values:
    return np.array([_value(row, parameter) for row in rows])


def _levels(rows: Rows, factor: str) -> list[str]:
    return list(dict.fromkeys(_level(row, factor) for row in rows))


def _parts(within: str | None, levels: Sequence[str], rows: Rows) -> Iterator[tuple[str, Rows]]:
    if within is None:
        yield "", rows
        return
    for level in levels or _levels(rows, within):
        yield f"{level}, ", [row for row in rows if _level(row, within) == level]


def _cells(
    rows: Rows, factor: str, where: dict[claims.Factor, str], ignoring: Sequence[str]
) -> Iterator[tuple[str, Rows]]:
    """The rows that differ in ``factor`` only, under the name of what they share."""
    groups: dict[tuple[str, ...], list[TimingFigure]] = {}
    for row in rows:
        if all(_level(row, name) == level for name, level in where.items()) and _level(row, factor) not in ignoring:
            shared = tuple(_level(row, name) for name in ("function", "platform", "load") if name != factor)
            groups.setdefault(shared, []).append(row)
    for shared, cell in groups.items():
        yield ", ".join(shared), cell


def _expectations(significant: Sequence[str], insignificant: Sequence[str]) -> list[tuple[str, bool]]:
    return [(name, True) for name in significant] + [(name, False) for name in insignificant]


def _judged(text: str, shown: bool, expected: bool) -> Evidence:
    return Evidence(f"{text}: {'an effect' if shown else 'no effect shown'}", shown is expected)


def _counted(head: str, cells: int, exceptions: Sequence[str]) -> Evidence:
    text = f"{head} in {cells - len(exceptions)} of {cells} cells"
    return Evidence(f"{text} (not {_listed(exceptions, '; ')})" if exceptions else text, not exceptions)


def _sizes(sizes: Sequence[int]) -> str:
    return " + ".join(map(str, sizes))


def _listed(names: Sequence[str], separator: str = ", ") -> str:
    more = f" and {len(names) - _MOST_EXCEPTIONS} more" if len(names) > _MOST_EXCEPTIONS else ""
    return separator.join(names[:_MOST_EXCEPTIONS]) + more


def _range(low: float, high: float) -> str:
    if f"{low:.2g}" == f"{high:.2g}":
        return f"{low:.2g}"
    return "< 0.001" if high < 0.001 else f"{low:.2g} to {high:.2g}" if low >= 0.001 else f"< 0.001 to {high:.2g}"

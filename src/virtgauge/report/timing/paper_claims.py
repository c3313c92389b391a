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
from collections.abc import Iterator, Sequence

from virtgauge.analysis import ranks
from virtgauge.analysis.effect_sizes import epsilon_squared
from virtgauge.measures.quantities import significant
from virtgauge.reference import claims, table, timing_figures
from virtgauge.report import verdicts
from virtgauge.report.timing.factor_words import p_value
from virtgauge.report.timing.factors import LEVEL
from virtgauge.report.timing.table_rows import (
    PARAMETERS,
    Rows,
    cells_along,
    column,
    figure_of,
    has,
    level_of,
    levels_in,
    parts_of,
    selected,
)
from virtgauge.report.words import duration

_NS = {"ns": 1.0, "us": 1e3, "ms": 1e6}
_MOST_EXCEPTIONS = 3


class Verdict(enum.StrEnum):
    """What the table says of a conclusion."""

    CONFIRMED = "confirmed"
    CONTRADICTED = "contradicted"
    UNDECIDED = "cannot be tested"


_VERDICTS = {
    Verdict.CONFIRMED: verdicts.Verdict.CONFIRMED,
    Verdict.CONTRADICTED: verdicts.Verdict.CONTRADICTED,
    Verdict.UNDECIDED: verdicts.Verdict.UNTESTABLE,
}


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


def on_paper() -> tuple[verdicts.ExaminedClaim, ...]:
    """The same in the words of all suites' conclusions: what a table cannot decide is not testable on it."""
    return tuple(
        verdicts.ExaminedClaim(
            one.name,
            f"{one.place}; {' and '.join(name.rpartition(', ')[2] for name in one.tables)}",
            one.text,
            one.note,
            _VERDICTS[one.verdict],
            tuple(verdicts.Evidence(found.text, found.agrees) for found in one.evidence),
        )
        for one in examined_claims()
    )


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
        case claims.Bounds():
            yield _bounds(test, rows)
        case claims.Separated():
            yield _separated(test, rows)
        case claims.Untestable():
            yield Evidence(test.reason, None)
        case claims.Figures():
            yield from (_figure(figure, rows) for figure in test.figures)


# -- tests on ranks ----------------------------------------------------------------------------------


def _factor(test: claims.FactorMatters, rows: Rows) -> Iterator[Evidence]:
    names = test.groups or {level: (level,) for level in levels_in(rows, test.factor)}
    for where, part in parts_of(test.within, test.levels, rows):
        members = [[row for row in part if level_of(row, test.factor) in group] for group in names.values()]
        sizes = [len(group) for group in members]
        least = ranks.least_attainable_p(sizes)
        if least >= LEVEL:
            yield Evidence(f"{where}{_sizes(sizes)} values: no data could give an exact p below {least:.2g}", None)
            continue
        for parameter, expected in _expectations(test.significant, test.insignificant):
            found = ranks.kruskal_wallis([column(group, parameter) for group in members])
            text = (
                f"{where}{PARAMETERS[parameter]}: H({found.df}) = {found.h:.2f}, {p_value(found.p)}, "
                f"ε² {epsilon_squared(found.h, found.n):.2f}"
            )
            yield _judged(text, found.p < LEVEL, expected)


def _pairs(test: claims.LevelsDiffer, rows: Rows) -> Iterator[Evidence]:
    levels = levels_in(rows, test.factor)
    for where, part in parts_of(test.within, test.levels, rows):
        members = [[row for row in part if level_of(row, test.factor) == level] for level in levels]
        sizes = [len(group) for group in members]
        wanted = _pairs_meant(test.pairs, levels)
        least = max(ranks.least_attainable_dunn_p(sizes, *pair) for pair in wanted)
        if least >= LEVEL:
            yield Evidence(f"{where}{_sizes(sizes)} values: Dunn–Holm could give no p below {least:.2g}", None)
            continue
        for parameter, expected in _expectations(test.significant, test.insignificant):
            found = {
                (pair.first, pair.second): pair
                for pair in ranks.dunn([column(group, parameter) for group in members])
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
    for name, cell in cells_along(rows, test.factor, test.where, test.ignoring):
        cells += 1
        values = {level_of(row, test.factor): figure_of(row, test.parameter) for row in cell}
        if values[test.level] != best(values.values()) or list(values.values()).count(values[test.level]) > 1:
            other = best((level for level in values if level != test.level), key=lambda level: values[level])
            exceptions.append(f"{name}: {other} {duration(values[other])}, {test.level} {duration(values[test.level])}")
    head = f"{test.level} has the {test.which} {PARAMETERS[test.parameter]}"
    return _counted(head, cells, exceptions)


def _order(test: claims.Order, rows: Rows) -> Evidence:
    exceptions, cells = [], 0
    for name, cell in cells_along(rows, test.factor, test.where, ()):
        values = {level_of(row, test.factor): figure_of(row, test.parameter) for row in cell}
        cells += 1
        if not values[test.lower] < values[test.higher]:
            low, high = duration(values[test.lower]), duration(values[test.higher])
            exceptions.append(f"{name}: {test.lower} {low}, {test.higher} {high}")
    return _counted(f"{PARAMETERS[test.parameter]} of {test.lower} below {test.higher}", cells, exceptions)


def _ratio(test: claims.Ratio, rows: Rows) -> Evidence:
    ratios = []
    for _, cell in cells_along(rows, test.factor, test.where, test.ignoring):
        values = {level_of(row, test.factor): figure_of(row, test.parameter) for row in cell}
        ratios += [values[test.level] / values[other] for other in test.to]
    low, high = test.at_least or 0.0, float("inf") if test.at_most is None else test.at_most
    inside = sum(low <= ratio <= high for ratio in ratios)
    seen = " to ".join(dict.fromkeys(f"{significant(ratio)}×" for ratio in (min(ratios), max(ratios))))
    bounds = [f"at least {significant(low)}×"] if test.at_least is not None else []
    bounds += [f"at most {significant(high)}×"] if test.at_most is not None else []
    bound = " and ".join(bounds)
    text = (
        f"{test.level} to {' and '.join(test.to)}, {PARAMETERS[test.parameter]}: "
        f"{seen}; {bound} in {inside} of {len(ratios)}"
    )
    needed = 1 if test.any else len(ratios) // 2 + 1 if test.most else len(ratios)
    return Evidence(text, inside >= needed)


def _spread(test: claims.Spread, rows: Rows) -> Evidence:
    shares = []
    for _, cell in cells_along(rows, test.factor, test.where, test.ignoring):
        values = [figure_of(row, test.parameter) for row in cell]
        shares.append((max(values) - min(values)) / max(values))
    text = f"{PARAMETERS[test.parameter]}s differ by {max(shares):.0%} of the largest".replace("%", " %")
    # What is printed as 45 % may be up to 45.5 %.
    return Evidence(text, max(shares) < test.at_most + 0.005)


def _bounds(test: claims.Bounds, rows: Rows) -> Evidence:
    known = has(test.parameter)
    parameter = test.parameter if known else "median"
    within = selected(rows, test.where, test.ignoring)
    found = {f"{row.function}, {row.platform}, {row.load}": figure_of(row, parameter) for row in within}
    # A quantile that the table does not have is at least its median.
    low = test.at_least or 0.0 if known else 0.0
    high = float("inf") if test.at_most is None else test.at_most
    exceptions = [f"{name}: {duration(value)}" for name, value in found.items() if not low <= value <= high]
    bounds = [f"at least {duration(test.at_least)}"] if test.at_least is not None else []
    bounds += [f"at most {duration(test.at_most)}"] if test.at_most is not None else []
    evidence = _counted(f"{PARAMETERS[parameter]} {' and '.join(bounds)}", len(found), exceptions)
    if known or exceptions:
        return evidence
    return Evidence(f"{evidence.text}; the table has no {PARAMETERS[test.parameter]}", None)


def _separated(test: claims.Separated, rows: Rows) -> Evidence:
    def ends(function: str) -> list[float]:
        return sorted(figure_of(row, test.parameter) for row in selected(rows, {"function": function}, test.ignoring))

    lower, higher = ends(test.lower)[-1], ends(test.higher)[0]
    name = PARAMETERS[test.parameter]
    text = f"highest {name} of {test.lower} {duration(lower)}, lowest of {test.higher} {duration(higher)}"
    return Evidence(text, lower < higher)


def _figure(figure: claims.PrintedFigure, rows: Rows) -> Evidence:
    row = next(
        row for row in rows if (row.function, row.platform, row.load) == (figure.function, figure.platform, figure.load)
    )
    number, unit = figure.printed.split()
    decimals = len(number.partition(".")[2])
    ours, printed = figure_of(row, figure.parameter) / _NS[unit], float(number)
    name = f"{figure.function}, {figure.platform}, {figure.load}, {PARAMETERS[figure.parameter]}"
    shown = f"{ours:,.{decimals + 1}f}".rstrip("0").rstrip(".")
    text = f"{name}: text {number}, table {shown} {unit.replace('u', 'µ')}"
    return Evidence(text, abs(ours - printed) <= 0.5 * 10**-decimals * (1 + 1e-9))


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

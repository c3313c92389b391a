"""Judges claims: carries out their tests on figures, a paper's own or a run's, by the same rules.

A figure with its interval agrees when the whole interval lies within the bounds, and disagrees when the whole interval
lies outside; else it does not decide.  A paper's figure is taken as it is.  Emulated figures decide nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence

from virtgauge.analysis.comparison import unpaired_ratio
from virtgauge.analysis.estimate import Estimate
from virtgauge.claims import model
from virtgauge.claims.figures import Figure, Figures, format_level, grouped, told
from virtgauge.claims.model import Claim, Range
from virtgauge.claims.significance import significance
from virtgauge.claims.verdicts import CheckedClaim, Evidence, verdict_of, within

_NOT_ALIKE = "nothing was measured both ways and otherwise alike"
_AS_IDENTICAL = "identical arms (A/A) may seem to differ as much"
_REACHED = 1.05
"""A range of levels that ends within a twentieth of the paper's is taken for it."""


def judge(claim: Claim, figures: Figures) -> CheckedClaim:
    """What figures say of a claim: the verdict, and the evidence of every test."""
    evidence = tuple(dict.fromkeys(one for test in claim.tests for one in _hear(test, figures)))
    return CheckedClaim(claim.name, claim.where, claim.text, claim.note, verdict_of(evidence), evidence)


def _hear(test: model.Test, figures: Figures) -> Iterator[Evidence]:
    if isinstance(test, model.Significance):
        yield from significance(test, figures)
        return
    found = list(_RELATIONS[type(test)](test, figures))
    known = any(one.measured for one in found)
    # What must hold of most figures, or of any, is told by those that there are.
    complete = known and getattr(test, "which", "each") in ("most", "any")
    lacking = [] if complete else list(dict.fromkeys(_lacking(test, figures)))
    yield from map(Evidence.none, lacking)
    if known or not lacking:
        yield from found


def _evidence(text: str, agrees: bool | None, figures: Figures, *used: Figure) -> Evidence:
    if any(one.emulated for one in used):
        return Evidence.none(f"{text} (emulated, which decides nothing)")
    return Evidence(text, agrees, measured=agrees is not None or not figures.exact)


def _lacking(test: model.Test, figures: Figures) -> Iterator[str]:
    """Why the test is not complete: levels that it needs and that have no figure."""
    needed = figures.file.needed
    if not needed or not isinstance(test, model.CellTest):
        return
    sides = [getattr(test, name) for name in ("of", "to", "than") if isinstance(getattr(test, name, None), dict)]
    for cells in [test.cells | side for side in sides] or [test.cells]:
        present = figures.select(test.measure, {})
        levels: dict[str, Sequence[object]] = {}
        for factor, all_levels in needed.items():
            named = cells.get(factor)
            there = dict.fromkeys(str(level) for one in present if (level := one.level(factor)) is not None)
            if not there:
                continue  # of another measure
            levels[factor] = (
                named if isinstance(named, tuple) else (named,) if named is not None else all_levels or tuple(there)
            )
        for combination in itertools.product(*levels.values()):
            wanted = cells | dict(zip(levels, combination, strict=True))
            if not figures.select(test.measure, wanted):
                yield figures.missing_reason(test.measure, wanted)


# -- relations ---------------------------------------------------------------------------------------


def _bound(test: model.Bound, figures: Figures) -> Iterator[Evidence]:
    found = figures.select(test.measure, test.cells, test.which)
    if not found:
        yield Evidence.none(figures.missing_reason(test.measure, test.cells))
        return
    measure = figures.file.measures[test.measure]
    head = f"{test.which}: " if test.which in ("lowest", "highest") else ""
    judged = []
    for one in found:
        agrees = _within(one.estimate, test.at_least, test.at_most, neutral=0)
        where = ", ".join(part for part in (figures.words(one), measure.title) if part)
        evidence = _evidence(f"{head}{where}: {told(one.estimate, measure.unit)}", agrees, figures, one)
        judged.append((one.estimate, evidence))
    yield from _quantified(judged, test.which)


def _compared(test: model.Compared, figures: Figures) -> Iterator[Evidence]:
    sides = []
    for cells, which in ((test.cells | test.of, test.of_which), (test.cells | test.to, test.to_which)):
        found = figures.select(test.measure, cells, which)
        if not found:
            yield Evidence.none(figures.missing_reason(test.measure, cells))
            return
        sides.append(found)
    named = {*test.of, *test.to}
    places = functools.partial(figures.place, without=named, alike=test.alike)
    free = {test.of_which, test.to_which} != {"each"}
    first, second = sides
    pairs = itertools.product(first, second) if free else _alike(first, second, places)
    judged = [_comparison(test, figures, one, other) for one, other in pairs if one is not other]
    if not judged:
        yield Evidence.none(_NOT_ALIKE)
    yield from _quantified(judged, test.which)


def _alike(
    first: Sequence[Figure], second: Sequence[Figure], place: Callable[[Figure], object]
) -> Iterator[tuple[Figure, Figure]]:
    """Figures of both that stand at one place, but for themselves."""
    there: dict[object, list[Figure]] = {}
    for other in second:
        there.setdefault(place(other), []).append(other)
    for one in first:
        yield from ((one, other) for other in there.get(place(one), ()) if other is not one)


def _comparison(test: model.Compared, figures: Figures, one: Figure, other: Figure) -> tuple[Estimate, Evidence]:
    is_ratio = test.relation == "ratio"
    change = figures.ratio(one, other) if is_ratio else figures.difference(one, other)
    agrees = _within(change, test.at_least, test.at_most, neutral=1 if is_ratio else 0)
    text = _pair_text(figures, one, other, test.measure, change, is_ratio=is_ratio)
    if not all(_spans(factor, span, one, other) for factor, span in test.span.items()):
        low = test.at_least if test.at_least is not None and test.at_least <= 1 else None
        high = test.at_most if test.at_most is not None and test.at_most >= 1 else None
        agrees = False if within(change, low, high) is False else None
        text += f"; the paper's range of {' and '.join(test.span)} is wider"
    if agrees is not None and {test.at_least, test.at_most} == {1, None} and _as_identical(figures, one, other, change):
        agrees, text = None, f"{text}; {_AS_IDENTICAL}"
    return change, _evidence(text, agrees, figures, one, other)


def _spans(factor: str, span: Range, one: Figure, other: Figure) -> bool:
    ends = sorted(float(level) for figure in (one, other) if isinstance(level := figure.level(factor), int | float))
    return len(ends) == 2 and ends[0] <= span.at_least * _REACHED and ends[1] * _REACHED >= span.at_most


def _as_identical(figures: Figures, one: Figure, other: Figure, change: Estimate) -> bool:
    """Whether identical arms (A/A) may seem to differ as much as these two do."""
    band = figures.aa_band(one) if one.arm != other.arm else None
    return band is not None and change.point is not None and 1 / band <= change.point <= band


def _order(test: model.Order, figures: Figures) -> Iterator[Evidence]:
    for larger, smaller in itertools.pairwise(test.descending):
        named = [name for name in (larger, smaller) if name != "*"]
        known: dict[str, list[Figure]] = {}
        for name in named:
            known[name] = figures.select(test.measure, test.cells | {test.factor: name})
            if not known[name]:
                yield Evidence.none(figures.missing_reason(test.measure, test.cells | {test.factor: name}))
                return
        others = [
            one
            for one in figures.select(test.measure, test.cells)
            if one.level(test.factor) not in (*named, None) and "*" in (larger, smaller)
        ]
        if len(named) == 1 and not others:
            yield Evidence.none(f"nothing to compare {named[0]} with")
        place = functools.partial(figures.place, without=(test.factor,))
        alike = list(_alike(known.get(larger, others), known.get(smaller, others), place))
        if not alike and (others or len(named) == 2):
            yield Evidence.none(_NOT_ALIKE)
        for one, other in alike:
            yield _above(test, figures, one, other)


def _above(test: model.Order, figures: Figures, one: Figure, other: Figure) -> Evidence:
    change = figures.ratio(one, other)
    agrees = within(change, 1, None, strictly=True)
    text = _pair_text(figures, one, other, test.measure, change)
    if change.point is None:  # something is zero, or early
        apart = figures.difference(one, other)
        agrees = within(apart, 0, None, strictly=True)
        text = _pair_text(figures, one, other, test.measure, apart, is_ratio=False)
    if agrees is not None and _as_identical(figures, one, other, change):
        agrees, text = None, f"{text}; {_AS_IDENTICAL}"
    return _evidence(text, agrees, figures, one, other)


def _spread(test: model.Spread, figures: Figures) -> Iterator[Evidence]:
    found = figures.select(test.measure, test.cells)
    if not found:
        yield Evidence.none(figures.missing_reason(test.measure, test.cells))
        return
    several = [group for group in grouped(found, lambda one: figures.place(one, (test.factor,))) if len(group) > 1]
    if not several:
        yield Evidence.none(f"there are no two levels of {test.factor} whose figures decide")
    for group in several:
        high, low = (choose(group, key=lambda one: one.point) for choose in (max, min))
        change = figures.ratio(high, low)
        text = _pair_text(figures, high, low, test.measure, change)
        used = [high, low]
        if test.than is not None:
            without = (test.factor, *test.than)
            rest = [
                one
                for one in figures.select(test.measure, test.cells | test.than)
                if figures.place(one, without) == figures.place(high, without)
            ]
            if len(rest) < 2:
                yield Evidence.none(figures.missing_reason(test.measure, test.cells | test.than))
                continue
            most, least = (choose(rest, key=lambda one: one.point) for choose in (max, min))
            change = unpaired_ratio(change, figures.ratio(most, least))
            text = f"{text}, over that of {figures.words(most, only=test.than)}: {told(change, 'ratio')}"
            used += [most, least]
        yield _evidence(text, within(change, test.at_least, test.at_most), figures, *used)


Changes = dict[str | bool, tuple[Estimate, Figure]]
"""From ``to`` to ``of`` in one cell, by the level of the factor across."""


def _changes(test: model.Equivalence | model.Change, figures: Figures) -> list[Changes]:
    """Of every cell that all levels of the factor across have."""
    first, second = (figures.select(test.measure, test.cells | cells) for cells in (test.of, test.to))
    named = {*test.of, *test.to}
    cells: dict[object, Changes] = {}
    for one, other in _alike(first, second, functools.partial(figures.place, without=named)):
        level, change = one.level(test.across), figures.ratio(one, other)
        if isinstance(level, str | bool) and change.point is not None:
            cells.setdefault(figures.place(one, {*named, test.across}), {})[level] = (change, one)
    named_levels = test.cells.get(test.across) or figures.file.needed.get(test.across)
    present = {one.level(test.across) for one in figures.select(test.measure, test.cells)}
    wanted: set[object] = set(named_levels) if isinstance(named_levels, tuple) else set(present)
    return [found for found in cells.values() if len(wanted) > 1 and wanted <= set(found)]


def _listed(changes: Mapping[str | bool, Estimate], figures: Figures, factor: str) -> str:
    pattern = figures.file.factors[factor] or "{}"
    return ", ".join(f"{format_level(pattern, level)} {told(one, 'ratio')}" for level, one in changes.items())


def _equivalence(test: model.Equivalence, figures: Figures) -> Iterator[Evidence]:
    complete = _changes(test, figures)
    if not complete:
        yield Evidence.none(_why_no_change(test, figures))
    for found in complete:
        changes = {level: change for level, (change, _) in found.items()}
        ends = [(one.low, one.high) for one in changes.values() if one.low and one.high]
        agrees = None
        if len(ends) == len(found):
            widest = max(high for _, high in ends) / min(low for low, _ in ends)
            least = max(low for low, _ in ends) / min(high for _, high in ends)
            agrees = True if widest <= test.at_most else False if least > test.at_most else None
        text = _listed(changes, figures, test.across)
        yield _evidence(text, agrees, figures, *(one for _, one in found.values()))


def _change(test: model.Change, figures: Figures) -> Iterator[Evidence]:
    complete = [found for found in _changes(test, figures) if test.level in found]
    if not complete:
        yield Evidence.none(_why_no_change(test, figures))
        return
    for group in [complete] if test.pooled else [[found] for found in complete]:
        sizes = {level: _mean_size([found[level][0] for found in group]) for level in group[0]}
        text = f"changed, up or down, by {_listed(sizes, figures, test.across)}"
        if test.pooled:
            text += f" over {len(group)} cells"
        elif place := figures.words(group[0][test.level][1], without=("arm", test.across, *test.of)):
            text = f"{place}: {text}"
        own = sizes.pop(test.level)
        agreement = [_beyond(other, own) if test.less else _beyond(own, other) for other in sizes.values()]
        agrees = False if False in agreement else None if None in agreement else True
        yield _evidence(text, agrees, figures, *(one for found in group for _, one in found.values()))


def _why_no_change(test: model.Equivalence | model.Change, figures: Figures) -> str:
    for cells in (test.cells | test.of, test.cells | test.to):
        if not figures.select(test.measure, cells):
            return figures.missing_reason(test.measure, cells)
    return f"not every {test.across} was measured both ways"


def _mean_size(changes: Sequence[Estimate]) -> Estimate:
    """By what factor, up or down, figures change on the average: the mean of the logarithms' sizes."""

    def mean(sizes: Sequence[float]) -> float:
        return math.exp(statistics.fmean(sizes))

    points = [abs(math.log(one.point)) for one in changes if one.point]
    ends = []
    for one in changes:
        if one.low and one.high:
            low, high = sorted((math.log(one.low), math.log(one.high)))
            sizes = sorted((abs(low), abs(high)))
            ends.append((0.0 if low <= 0 <= high else sizes[0], sizes[1]))
    if len(ends) < len(changes):
        return Estimate.bare(mean(points), "ratio", "one of them has no interval", len(changes))
    low, high = mean([low for low, _ in ends]), mean([high for _, high in ends])
    return Estimate(mean(points), low, high, changes[0].confidence, len(changes), "ratio", "mean of |log| over cells")


def _beyond(one: Estimate, other: Estimate) -> bool | None:
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return None
    return True if one.low > other.high else False if one.high <= other.low else None


def _line(test: model.Line, figures: Figures) -> Iterator[Evidence]:
    found = figures.select(test.measure, test.cells)
    if not found:
        yield Evidence.none(figures.missing_reason(test.measure, test.cells))
    for group in grouped(found, lambda one: figures.place(one, (test.factor,))):
        levels = [float(level) for one in group if isinstance(level := one.level(test.factor), int | float)]
        middles = [one.point for one in group]
        where = figures.words(group[0], without=(test.factor,))
        if len(set(levels)) < 3:
            yield Evidence.none(f"{where}: any two figures lie on a straight line")
        elif len(set(middles)) == 1:
            yield _evidence(f"{where}: it does not change at all", None, figures, *group)
        else:
            explained = statistics.correlation(levels, middles) ** 2
            text = f"{where}: a straight line explains {explained:.0%} of it".replace("%", " %")
            yield _evidence(text, explained >= test.at_least, figures, *group)


def _mixed(test: model.Mixed, figures: Figures) -> Iterator[Evidence]:
    found = figures.select(test.measure, test.cells)
    wanted, rivals = test.cells.get(test.across), figures.file.needed.get(test.factor, ())
    for group in grouped(found, lambda one: figures.place(one, (test.factor, test.across))):
        best = {}
        for cell in grouped(group, lambda one: one.level(test.across)):
            first = max(cell, key=lambda one: one.point)
            if len(cell) >= len(rivals):
                best[figures.words(first, only=(test.across,))] = figures.words(first, only=(test.factor,))
        where = figures.words(group[0], without=(test.factor, test.across))
        if len(best) < (len(wanted) if isinstance(wanted, tuple) else 2):
            yield Evidence.none(f"{where}: not every one was measured in both")
        else:
            listed = ", ".join(f"{name} at {across}" for across, name in best.items())
            yield _evidence(f"{where}: {listed}", len(set(best.values())) > 1, figures, *group)


_RELATIONS: Mapping[type, Callable[..., Iterator[Evidence]]] = {
    model.Bound: _bound,
    model.Compared: _compared,
    model.Order: _order,
    model.Spread: _spread,
    model.Equivalence: _equivalence,
    model.Change: _change,
    model.Line: _line,
    model.Mixed: _mixed,
}


# -- figures in words --------------------------------------------------------------------------------


def _quantified(judged: Sequence[tuple[Estimate, Evidence]], which: str) -> Iterator[Evidence]:
    """Every figure must agree, or most of them, or any."""
    if which not in ("most", "any"):
        for estimate, one in judged:
            yield one if estimate.point is not None else Evidence.none(one.text)
        return
    known = sorted(((found.point, one) for found, one in judged if found.point is not None), key=lambda found: found[0])
    if not known:
        yield from (Evidence.none(one.text) for _, one in judged[:1])
        return
    agreeing, open_ones = (sum(one.agrees is verdict for _, one in known) for verdict in (True, None))
    needed = 1 if which == "any" else len(known) // 2 + 1
    agrees = True if agreeing >= needed else None if agreeing + open_ones >= needed else False
    yield Evidence(f"within the bounds in {agreeing} of {len(known)} cells, {open_ones} undecided", agrees)
    # The two that are furthest apart; they decide nothing by themselves.
    for name, (_, one) in {"lowest": known[0], "highest": known[-1]}.items():
        yield dataclasses.replace(one, text=f"{name}: {one.text}", agrees=agrees)


def _pair_text(
    figures: Figures, one: Figure, other: Figure, measure: str, change: Estimate, *, is_ratio: bool = True
) -> str:
    """``TSC ÷ System Call, Host, Idle System, median: 0.40× (0.39 to 0.41)``."""
    names = figures.file.factors
    differ = [name for name in names if one.level(name) != other.level(name)]
    first, second = (figures.words(figure, only=differ) for figure in (one, other))
    shared = figures.words(one, without=differ)
    said = figures.file.measures[measure]
    size = told(change, "ratio" if is_ratio else "points" if said.unit == "share" else said.unit)
    where = ", ".join(part for part in (f"{first} {'÷' if is_ratio else '−'} {second}", shared, said.title) if part)
    return f"{where}: {size}"


def _within(estimate: Estimate, at_least: float | None, at_most: float | None, neutral: float) -> bool | None:
    """As the only bound, no difference is not reached."""
    strictly = (at_least, at_most) in ((neutral, None), (None, neutral))
    return within(estimate, at_least, at_most, strictly=strictly)

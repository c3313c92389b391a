"""Judges claims: carries out their tests on figures, a paper's own or a run's, by the same rules.

A figure with its interval agrees when the whole interval lies within the bounds, and disagrees when the whole interval
lies outside; else it does not decide, nor where identical arms (A/A) may seem to differ by the margin, or the interval
lacks the nominal confidence.  Figures that are shown to be alike stand in no order.  What one of several figures
decides alone, it decides with the confidence for so many; and what one of several groups contradicts alone, with the
confidence for so many groups.
A paper's figure is taken as it is.  Emulated figures decide nothing, nor do those of different computers together.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from virtgauge.analysis.comparison import unpaired_ratio
from virtgauge.analysis.estimate import Estimate
from virtgauge.claims import changes, model, verdicts
from virtgauge.claims.figures import Figure, Figures, end_or, grouped, number_text, told
from virtgauge.claims.model import Cells, Claim, Level, Range
from virtgauge.claims.significance import significance
from virtgauge.claims.verdicts import CheckedClaim, Evidence, Judged, Verdict, evidence_of

_NOT_ALIKE = "nothing was measured both ways and otherwise alike"
_REACHED = 1.05  # A range of levels that ends within a twentieth of the paper's is taken for it


def judge(claim: Claim, figures: Figures) -> CheckedClaim:
    """What figures say of a claim: the verdict, and the evidence of every test."""
    tests = [test for test in claim.tests if not isinstance(test, model.Significance)]
    tables = [_deciding(test, figures) for test in tests]
    absent = [[*_absent(test, table)] for test, table in zip(tests, tables, strict=True)]
    heard = itertools.starmap(_hear, zip(tests, tables, absent, strict=True))
    of_ranks = significance([test for test in claim.tests if isinstance(test, model.Significance)], figures)
    found = list(dict.fromkeys(itertools.chain(*heard, of_ranks)))
    verdict = verdicts.verdict_of(found)
    deciding = {Verdict.CONFIRMED: True, Verdict.CONTRADICTED: False}.get(verdict)
    if verdict is Verdict.UNDECIDED:
        found = [one if one.agrees is not None else _with_likely(one) for one in found]
    evidence = tuple(sorted(found, key=lambda one: one.agrees is not deciding))  # a reader sees the first of them
    # What a platform does not have and another has: the test is of those that have it.
    elsewhere = [*dict.fromkeys(one.why for one in itertools.chain(*absent) if one.on_a_platform)]
    asked = [one for test in claim.tests for one in _asked(test)]
    elsewhere += [why for why, some in figures.left_out.items() if any(some.select(*one) for one in asked)]
    note = " ".join(filter(None, (claim.note, _bounds(claim, figures), *(f"{why}." for why in elsewhere))))
    return CheckedClaim(claim.name, claim.where, claim.text, note, verdict, evidence)


def _with_likely(one: Evidence) -> Evidence:
    words = "" if one.likely is None else f"; about {one.likely:,} repetitions would decide"
    return dataclasses.replace(one, text=one.text + words)


def _left_open(one: Evidence, why: str) -> Evidence:
    return dataclasses.replace(one, text=one.text + why, agrees=None, needs=math.inf, likely=None)


def _bounds(claim: Claim, figures: Figures) -> str:
    """``Bounds: 1.5× to 2.5× (ours).``; those that mean no more than a difference are left out."""
    said = []
    for test in claim.tests:
        if isinstance(test, model.BoundedTest | model.Equivalence | model.Line):
            unit = figures.file.measures[test.measure].unit
            if isinstance(test, model.Line):
                unit = "share"
            elif not isinstance(test, model.Bound) and test.relation != "difference":
                unit = "ratio"
            low, high = getattr(test, "at_least", None), getattr(test, "at_most", None)
            if {low, high} - {None, 0, 1}:
                words = [f"at least {number_text(low, unit)}"] if low is not None else []
                words += [f"at most {number_text(high, unit)}"] if high is not None else []
                said.append(f"{' and '.join(words)} ({'ours' if test.whose == 'ours' else 'the paper’s'})")
    return f"Bounds: {'; '.join(dict.fromkeys(said))}." if said else ""


class _Lacked(NamedTuple):
    """Cells of a test that have no figure."""

    why: str
    on_a_platform: bool  # it lacks there what another has
    place: tuple[object, ...]  # the levels in which figures that are compared agree; of a pair, that they name, too


def _hear(test: model.CellTest, figures: Figures, absent: Iterable[_Lacked]) -> Iterator[Evidence]:
    """Of one test; ``absent`` is what it lacks (:func:`_absent`)."""
    lacked = [one for one in absent if not one.on_a_platform]
    # What must hold of most figures, or of any, may be told by those that there are.
    of_some = isinstance(test, model.Bound | model.Compared) and test.which in ("most", "any")
    beside = (len({one.place for one in lacked}),) if of_some else ()
    found = list(_RELATIONS[type(test)](test, figures, *beside))
    if test.premise and not figures.exact:
        told = f"; {test.premise}"
        found = [_left_open(one, told) if one.agrees is False else one for one in found]
    known = any(one.measured for one in found)
    complete = of_some and any(one.agrees is not None or math.isfinite(one.needs) for one in found)
    lacking = [] if complete else [Evidence.none(why) for why in dict.fromkeys(one.why for one in lacked)]
    if lacking and not known:
        found = []
    summary = int(of_some)  # the first of what was found, which many reasons would hide
    yield from (*found[:summary], *lacking, *found[summary:])


def _deciding(test: model.CellTest, figures: Figures) -> Figures:
    """The figures that decide a test: there may be others for one that compares arms."""
    sides = {name for _, cells in _asked(test) for name in cells} - {*test.cells}
    return figures.of_two_arms or figures if sides & {*figures.file.of_arms} else figures


def _asked(test: model.CellTest | model.Significance) -> Iterator[tuple[str, Cells]]:
    """The measures, and the cells, of which a test needs figures."""
    if isinstance(test, model.Significance):
        yield from ((name, test.cells) for name in (*test.significant, *test.insignificant))
        return
    sides = [side for name in ("of", "to", "than") if isinstance(side := vars(test).get(name), dict)]
    yield from ((test.measure, test.cells | side) for side in sides or [{}])


def _absent(test: model.CellTest, figures: Figures) -> Iterator[_Lacked]:
    """The cells that a test needs and that have no figure.  One that names its platforms needs each of them."""
    if isinstance(test, model.Compared) and test.which != "each":
        yield from _unpaired(test, figures)
    needed = figures.file.needed
    if not needed:
        return
    asked = [cells for _, cells in _asked(test)]
    sides = {name for cells in asked for name in cells} - {*test.cells}
    for cells in asked:
        levels: dict[str, Sequence[Level]] = {}
        for factor, all_levels in needed.items():
            named = cells.get(factor)
            there = [level for level in figures.levels(factor, test.measure, {}) if level is not None]
            if not there:
                continue  # of another measure
            levels[factor] = (
                named if isinstance(named, tuple) else (named,) if named is not None else all_levels or tuple(there)
            )
        free = {name for name in figures.file.of_arms if name in levels and name not in cells}
        for combination in itertools.product(*levels.values()):
            at = dict(zip(levels, combination, strict=True))
            if figures.select(test.measure, cells | at):
                continue
            of_arm = {name: at[name] for name in free}
            anywhere = figures.select(test.measure, cells | {name: at[name] for name in at if name not in free})
            parts = ({name: level, **of_arm} for name, level in at.items() if of_arm and anywhere)
            lacked: Cells | None = next((part for part in parts if not figures.select(test.measure, part)), None)
            why = figures.missing_reason(test.measure, lacked or cells | at)
            yield _Lacked(why, lacked is not None, tuple(at[name] for name in at if name not in sides))


def _unpaired(test: model.Compared, figures: Figures) -> Iterator[_Lacked]:
    """The pairs that lack a figure, of the levels of which a side names several, where there are figures of any."""
    sides = (test.of, test.to)
    named = [{name: level for name, level in side.items() if isinstance(level, tuple)} for side in sides]
    there = [figures.select(test.measure, test.cells | side) for side in sides]
    if not any(named) or not all(there) or {test.of_which, test.to_which} != {"each"}:
        return
    place = functools.partial(figures.place, without={*test.of, *test.to}, alike=test.alike)
    places = {place(one) for one in itertools.chain(*there)}
    for levels in itertools.product(*(itertools.product(*some.values()) for some in named)):
        asked = [
            test.cells | side | dict(zip(some, own, strict=True))
            for side, some, own in zip(sides, named, levels, strict=True)
        ]
        for cells in asked:
            lacked = places - {place(one) for one in figures.select(test.measure, cells)}
            yield from (_Lacked(figures.missing_reason(test.measure, cells), False, (at, levels)) for at in lacked)


def _bound(test: model.Bound, figures: Figures, absent: int = 0) -> Iterator[Evidence]:
    found = figures.select(test.measure, test.cells, test.which)
    if not found:
        yield Evidence.none(figures.missing_reason(test.measure, test.cells))
        return
    measure = figures.file.measures[test.measure]
    extreme = test.which in ("lowest", "highest")
    head = f"{test.which}: " if extreme else ""
    bounds, others = (test.at_least, test.at_most), figures.select(test.measure, test.cells)
    among, judged = len(others), []
    for one in found:
        estimate = functools.partial(figures.estimate, one)
        agrees, sure, why, likely = verdicts.agreement_of(figures, estimate, among, bounds, one, is_ratio=False)
        if extreme:
            every = [figures.firm(figures.estimate(other)) for other in others]
            said = [verdicts.within(other, *bounds) for other in every]
            surely = sure if 2 * said.count(agrees) < among else agrees
            chosen = figures.firm(estimate())
            agrees, wider = verdicts.of_extreme(agrees, surely, chosen, every, test.which, bounds)
            why, likely = why + wider, None if wider else likely
        where = ", ".join(part for part in (figures.text(one), measure.title) if part)
        least = "at least " * bool(one.may_be_higher and not estimate().has_interval)
        text = f"{head}{where}: {least}{told(estimate(), measure.unit)}{why}"
        evidence = evidence_of(text, agrees, figures, one, likely=likely)
        judged.append(Judged(one.estimate.point, evidence, agrees if extreme else sure))
    yield from verdicts.quantified(judged, test.which, absent)


def _compared(test: model.Compared, figures: Figures, absent: int = 0) -> Iterator[Evidence]:
    asked = ((test.cells | test.of, test.of_which), (test.cells | test.to, test.to_which))
    first, second = (figures.select(test.measure, cells, which) for cells, which in asked)
    if not first or not second:
        yield Evidence.none(figures.missing_reason(test.measure, asked[1 if first else 0][0]))
        return
    free = {test.of_which, test.to_which} != {"each"}
    alike = figures.pairs(first, second, {*test.of, *test.to}, test.alike)
    pairs = [(one, other) for one, other in (itertools.product(first, second) if free else alike) if one is not other]
    counts = [1 if which == "each" else len(figures.select(test.measure, cells)) for cells, which in asked]
    # Of two highest, or two lowest, only the one is chosen in favour of a bound that the other is chosen against.
    among = len(pairs) * (max(counts) if test.of_which == test.to_which else math.prod(counts))
    judged = [_comparison(test, figures, one, other, among) for one, other in pairs]
    if not judged:
        yield Evidence.none(_NOT_ALIKE)
    yield from verdicts.quantified(judged, test.which, absent)


def _comparison(test: model.Compared, figures: Figures, one: Figure, other: Figure, among: int) -> Judged:
    is_ratio = test.relation == "ratio"
    estimate = functools.partial(figures.ratio if is_ratio else figures.difference, one, other)
    change, bounds = estimate(), (test.at_least, test.at_most)
    short = not all(_spans(factor, span, one, other) for factor, span in test.span.items())
    if short:
        low, high = bounds
        bounds = (low if low is not None and low <= 1 else None, high if high is not None and high >= 1 else None)
    of = one if one.arm != other.arm else None
    agrees, sure, why, likely = verdicts.agreement_of(figures, estimate, among, bounds, of, is_ratio=is_ratio)
    text = figures.pair_text(one, other, change, is_ratio=is_ratio) + why
    if figures.file.measures[test.measure].of_events and change.point == 0 and 0 in (change.low, change.high):
        agrees = sure = likely = None
        text += "; the median repetition has as many of both, so that of what is rarer nothing is told"
    if short:
        agrees, sure = (False if found is False else None for found in (agrees, sure))
        text += f"; the paper's range of {' and '.join(test.span)} is wider"
        likely = None  # what is only to be broken may be kept
    opposite = {"lowest": "highest", "highest": "lowest"}
    ends = {test.of_which, opposite.get(test.to_which, "each")} - {"each"}
    if len(ends) == 1:
        (end,) = ends
        rivals = _rivals(test, figures, one, other)
        agrees, wider = verdicts.of_extreme(agrees, sure, figures.firm(change), rivals, end, bounds)
        sure, text, likely = agrees, text + wider, None if wider else likely
    elif ends:
        agrees = sure
    return Judged(change.point, evidence_of(text, agrees, figures, one, other, likely=likely), sure)


def _rivals(test: model.Compared, figures: Figures, one: Figure, other: Figure) -> Iterator[Estimate]:
    """How all those compare of which these two were chosen."""
    firsts = figures.select(test.measure, test.cells | test.of) if test.of_which != "each" else [one]
    seconds = figures.select(test.measure, test.cells | test.to) if test.to_which != "each" else [other]
    compared = figures.ratio if test.relation == "ratio" else figures.difference
    yield from (figures.firm(compared(a, b)) for a, b in itertools.product(firsts, seconds) if a is not b)


def _spans(factor: str, span: Range, one: Figure, other: Figure) -> bool:
    ends = sorted(float(level) for figure in (one, other) if isinstance(level := figure.level(factor), int | float))
    return len(ends) == 2 and ends[0] <= span.at_least * _REACHED and ends[1] * _REACHED >= span.at_most


def _order(test: model.Order, figures: Figures) -> Iterator[Evidence]:
    pairs: list[tuple[Figure, Figure]] = []
    for larger, smaller in itertools.pairwise(test.descending):
        named = [name for name in (larger, smaller) if name != "*"]
        known = {name: figures.select(test.measure, test.cells | {test.factor: name}) for name in named}
        if lacking := [name for name in named if not known[name]]:
            yield Evidence.none(figures.missing_reason(test.measure, test.cells | {test.factor: lacking[0]}))
            return
        others = [
            one
            for one in figures.select(test.measure, test.cells)
            if one.level(test.factor) not in (*named, None) and "*" in (larger, smaller)
        ]
        if len(named) == 1 and not others:
            yield Evidence.none(f"nothing to compare {named[0]} with")
        alike = list(figures.pairs(known.get(larger, others), known.get(smaller, others), (test.factor,)))
        if not alike and (others or len(named) == 2):
            yield Evidence.none(_NOT_ALIKE)
        pairs += alike
    yield from verdicts.quantified([_above(test, figures, one, other, len(pairs)) for one, other in pairs], "each")


def _above(test: model.Order, figures: Figures, one: Figure, other: Figure, among: int) -> Judged:
    # Without a ratio something is zero, or early.
    has_ratio = figures.ratio(one, other).point is not None
    above = _at_least(1.0, "ratio", test.measure) if has_ratio else _at_least(0.0, "difference", test.measure)
    judged = _comparison(above, figures, one, other, among)
    return verdicts.of_order(judged, figures, one, other, among) if has_ratio else judged


@functools.cache
def _at_least(least: float, relation: Literal["ratio", "difference"], measure: str) -> model.Compared:
    return model.Compared(measure=measure, relation=relation, of={}, to={}, at_least=least)


def _spread(test: model.Spread, figures: Figures) -> Iterator[Evidence]:
    found = figures.select(test.measure, test.cells)
    if not found:
        yield Evidence.none(figures.missing_reason(test.measure, test.cells))
        return
    several = [group for group in grouped(found, lambda one: figures.place(one, (test.factor,))) if len(group) > 1]
    if not several:
        yield Evidence.none(f"there are no two levels of {test.factor} whose figures decide")
    judged = []
    for group in several:
        high, low = (choose(group, key=lambda one: one.point) for choose in (max, min))
        estimate: Callable[[int], Estimate] = functools.partial(figures.ratio, high, low)
        among, used = math.comb(len(group), 2), [high, low]
        text = figures.pair_text(high, low, estimate(1))
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
            rivals = [one for one in rest if one.may_be_higher and one not in (most, least)]
            estimate = functools.partial(_quotient, figures, (high, low), (most, least), rivals)
            among = max(among, math.comb(len(rest), 2))  # as of two highest in _compared
            text = f"{text}, over that of {figures.text(most, only=test.than)}: {told(estimate(1), 'ratio')}"
            used += [most, least, *rivals]
        of = high if high.arm != low.arm else None
        said = functools.partial(_of_largest, test, figures, group, estimate, among, of)
        (agrees, why, likely), (sure, _, of_many) = said(1), said(len(several))
        evidence = evidence_of(text + why, agrees, figures, *used, likely=likely and of_many)
        judged.append(Judged(high.point, evidence, sure))
    yield from verdicts.quantified(judged, "each")


def _of_largest(
    test: model.Spread,
    figures: Figures,
    group: Sequence[Figure],
    estimate: Callable[[int], Estimate],
    among: int,
    of: Figure | None,
    groups: int,
) -> tuple[bool | None, str, int | None]:
    """What the largest ratio within one of so many groups says, why it does not, and how often measured it would."""
    bounds = test.at_least, test.at_most
    agrees, sure, why, likely = verdicts.agreement_of(
        figures, estimate, among, bounds, of, is_ratio=True, groups=groups
    )
    if test.than is not None:  # the largest of both were chosen
        return sure, why, likely
    every = (figures.firm(figures.ratio(*pair, groups), groups) for pair in itertools.permutations(group, 2))
    chosen = figures.firm(estimate(groups), groups)
    agrees, wider = verdicts.of_extreme(agrees, sure, chosen, every, "highest", bounds)
    return agrees, wider or why, None if wider else likely


def _quotient(
    figures: Figures,
    first: tuple[Figure, Figure],
    second: tuple[Figure, Figure],
    rivals: Sequence[Figure],
    among: int,
) -> Estimate:
    """One spread over another, of which rivals may be the largest."""
    other = figures.ratio(*second, among)
    if other.high is not None:
        ends = (end_or(math.inf, figures.ratio(one, second[1], among).high) for one in rivals)
        other = dataclasses.replace(other, high=max([other.high, *ends]))
    return unpaired_ratio(figures.ratio(*first, among), other)


_RELATIONS: Mapping[type, Callable[..., Iterator[Evidence]]] = {
    model.Bound: _bound,
    model.Compared: _compared,
    model.Order: _order,
    model.Spread: _spread,
    model.Equivalence: changes.equivalence,
    model.Change: changes.change,
    model.Steeper: changes.steeper,
    model.Line: changes.line,
    model.Mixed: changes.mixed,
}

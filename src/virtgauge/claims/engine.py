"""Judges claims: carries out their tests on figures, a paper's own or a run's, by the same rules.

A figure with its interval agrees when the whole interval lies within the bounds, and disagrees when the whole interval
lies outside; else it does not decide, nor where identical arms (A/A) may seem to differ by the margin, or the interval
lacks the nominal confidence.  What one of several figures decides alone, it decides with the confidence for so many;
and what one of several groups contradicts alone, with the confidence for so many groups.
A paper's figure is taken as it is.  Emulated figures decide nothing, nor do those of different computers together.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from virtgauge.analysis.comparison import unpaired_ratio
from virtgauge.analysis.estimate import Estimate
from virtgauge.claims import model, verdicts
from virtgauge.claims.figures import (
    Figure,
    Figures,
    chance_of_line,
    exact,
    grouped,
    mean_change,
    measured,
    number_text,
    told,
)
from virtgauge.claims.model import Cells, Claim, Level, Range
from virtgauge.claims.significance import LEVEL, significance
from virtgauge.claims.verdicts import CheckedClaim, Evidence, Judged, Verdict, evidence_of

_NOT_ALIKE = "nothing was measured both ways and otherwise alike"
_REACHED = 1.05  # A range of levels that ends within a twentieth of the paper's is taken for it


def judge(claim: Claim, figures: Figures) -> CheckedClaim:
    """What figures say of a claim: the verdict, and the evidence of every test."""
    absent = [dict.fromkeys(_absent(test, figures)) for test in claim.tests]
    heard = (_hear(test, figures, claim, lacked) for test, lacked in zip(claim.tests, absent, strict=True))
    found = list(dict.fromkeys(itertools.chain.from_iterable(heard)))
    verdict = verdicts.verdict_of(found)
    deciding = {Verdict.CONFIRMED: True, Verdict.CONTRADICTED: False}.get(verdict)
    if verdict is Verdict.UNDECIDED:
        found = [one if one.agrees is not None else _with_likely(one) for one in found]
    evidence = tuple(sorted(found, key=lambda one: one.agrees is not deciding))  # a reader sees the first of them
    # What a platform does not have and another has: the test is of those that have it.
    elsewhere = (f"{why}." for why, on_a_platform in dict.fromkeys(itertools.chain(*absent)) if on_a_platform)
    note = " ".join(filter(None, (claim.note, _bounds(claim, figures), *elsewhere)))
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


def _hear(test: model.Test, figures: Figures, claim: Claim, absent: Iterable[tuple[str, bool]]) -> Iterator[Evidence]:
    """Of one test; ``absent`` is what it lacks (:func:`_absent`)."""
    if isinstance(test, model.Significance):
        yield from significance(test, figures, [one for one in claim.tests if isinstance(one, model.Significance)])
        return
    found = list(_RELATIONS[type(test)](test, figures))
    if test.premise and not figures.exact:
        told = f"; {test.premise}"
        found = [_left_open(one, told) if one.agrees is False else one for one in found]
    known = any(one.measured for one in found)
    # What must hold of most figures, or of any, is told by those that there are.
    complete = known and isinstance(test, model.Bound | model.Compared) and test.which in ("most", "any")
    lacking = [Evidence.none(why) for why, on_a_platform in absent if not on_a_platform and not complete]
    yield from lacking
    if known or not lacking:
        yield from found


def _absent(test: model.Test, figures: Figures) -> Iterator[tuple[str, bool]]:
    """Why cells that a test needs have no figure, and whether a platform lacks there what another has.

    A test that names its platforms needs each of them.
    """
    needed = figures.file.needed
    if not needed or not isinstance(test, model.CellTest):
        return
    sides = [side for name in ("of", "to", "than") if isinstance(side := vars(test).get(name), dict)]
    for cells in [test.cells | side for side in sides] or [test.cells]:
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
            yield figures.missing_reason(test.measure, lacked or cells | at), lacked is not None


# -- relations ---------------------------------------------------------------------------------------


def _bound(test: model.Bound, figures: Figures) -> Iterator[Evidence]:
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
        where = ", ".join(part for part in (figures.words(one), measure.title) if part)
        least = "at least " * bool(one.may_be_higher and not estimate().has_interval)
        text = f"{head}{where}: {least}{told(estimate(), measure.unit)}{why}"
        evidence = evidence_of(text, agrees, figures, one, likely=likely)
        judged.append(Judged(one.estimate.point, evidence, agrees if extreme else sure))
    yield from verdicts.quantified(judged, test.which)


def _compared(test: model.Compared, figures: Figures) -> Iterator[Evidence]:
    asked = ((test.cells | test.of, test.of_which), (test.cells | test.to, test.to_which))
    first, second = (figures.select(test.measure, cells, which) for cells, which in asked)
    if not first or not second:
        yield Evidence.none(figures.missing_reason(test.measure, asked[1 if first else 0][0]))
        return
    named = {*test.of, *test.to}
    places = functools.partial(figures.place, without=named, alike=test.alike)
    free = {test.of_which, test.to_which} != {"each"}
    found_pairs = itertools.product(first, second) if free else _alike(first, second, places)
    pairs = [(one, other) for one, other in found_pairs if one is not other]
    counts = [1 if which == "each" else len(figures.select(test.measure, cells)) for cells, which in asked]
    # Of two highest, or two lowest, only the one is chosen in favour of a bound that the other is chosen against.
    among = len(pairs) * (max(counts) if test.of_which == test.to_which else math.prod(counts))
    judged = [_comparison(test, figures, one, other, among) for one, other in pairs]
    if not judged:
        yield Evidence.none(_NOT_ALIKE)
    yield from verdicts.quantified(judged, test.which)


def _alike(
    first: Sequence[Figure], second: Sequence[Figure], place: Callable[[Figure], object]
) -> Iterator[tuple[Figure, Figure]]:
    """Figures of both that stand at one place, but for themselves."""
    there = {place(some[0]): some for some in grouped(second, place)}
    for one in first:
        yield from ((one, other) for other in there.get(place(one), ()) if other is not one)


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
    text = figures.pair_words(one, other, change, is_ratio=is_ratio) + why
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
        place = functools.partial(figures.place, without=(test.factor,))
        alike = list(_alike(known.get(larger, others), known.get(smaller, others), place))
        if not alike and (others or len(named) == 2):
            yield Evidence.none(_NOT_ALIKE)
        pairs += alike
    yield from verdicts.quantified([_above(test, figures, one, other, len(pairs)) for one, other in pairs], "each")


def _above(test: model.Order, figures: Figures, one: Figure, other: Figure, among: int) -> Judged:
    # Without a ratio something is zero, or early.
    has_ratio = figures.ratio(one, other).point is not None
    above = _at_least(1.0, "ratio", test.measure) if has_ratio else _at_least(0.0, "difference", test.measure)
    return _comparison(above, figures, one, other, among)


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
        text = figures.pair_words(high, low, estimate(1))
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
            estimate = functools.partial(_quotient, figures, (high, low), (most, least))
            among = max(among, math.comb(len(rest), 2))  # as of two highest in _compared
            text = f"{text}, over that of {figures.words(most, only=test.than)}: {told(estimate(1), 'ratio')}"
            used += [most, least]
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


def _quotient(figures: Figures, first: Sequence[Figure], second: Sequence[Figure], among: int) -> Estimate:
    return unpaired_ratio(figures.ratio(first[0], first[1], among), figures.ratio(second[0], second[1], among))


Group = tuple[str, Callable[[int], bool | None], Iterable[Figure]]
"""In words; what it says with the confidence for so many groups; and its figures."""


def _each(groups: Sequence[Group], figures: Figures) -> Iterator[Evidence]:
    """Every group must agree."""
    judged = []
    for text, decides, used in groups:
        agrees = decides(1)
        sure = decides(len(groups)) if agrees is False else agrees
        judged.append(Judged(0.0, evidence_of(text, agrees, figures, *used), sure))
    yield from verdicts.quantified(judged, "each")


Changes = dict[str | bool, tuple[Figure, Figure]]
"""In one cell the figures at ``of`` and ``to``, by the level of the factor across."""


def _changes(test: model.Equivalence | model.Change, figures: Figures) -> list[Changes]:
    """Of every cell that all levels of the factor across have."""
    first, second = (figures.select(test.measure, test.cells | cells) for cells in (test.of, test.to))
    named = {*test.of, *test.to}
    cells: dict[object, Changes] = {}
    for one, other in _alike(first, second, functools.partial(figures.place, without=named)):
        level = one.level(test.across)
        if isinstance(level, str | bool) and figures.ratio(one, other).point is not None:
            cells.setdefault(figures.place(one, {*named, test.across}), {})[level] = (one, other)
    named_levels = test.cells.get(test.across) or figures.file.needed.get(test.across)
    present = figures.levels(test.across, test.measure, test.cells)
    wanted: set[object] = set(named_levels if isinstance(named_levels, tuple) else present)
    return [found for found in cells.values() if len(wanted) > 1 and wanted <= set(found)]


def _equivalence(test: model.Equivalence, figures: Figures) -> Iterator[Evidence]:
    complete = _changes(test, figures)
    if not complete:
        yield Evidence.none(_why_no_change(test, figures))

    def decides(found: Changes, among: int) -> bool | None:
        changes = (figures.firm(figures.ratio(*pair, among), among) for pair in found.values())
        ends = [(one.low, one.high) for one in changes if one.low and one.high]
        if len(ends) < len(found):
            return None
        widest = max(high for _, high in ends) / min(low for low, _ in ends)
        least = max(low for low, _ in ends) / min(high for _, high in ends)
        return True if widest <= test.at_most else False if least > test.at_most else None

    groups: list[Group] = []
    for found in complete:
        text = figures.listed({level: figures.ratio(*pair) for level, pair in found.items()}, test.across)
        groups.append((text, functools.partial(decides, found), itertools.chain(*found.values())))
    yield from _each(groups, figures)


def _change(test: model.Change, figures: Figures) -> Iterator[Evidence]:
    complete = [found for found in _changes(test, figures) if test.level in found]
    if not complete:
        yield Evidence.none(_why_no_change(test, figures))
        return

    def sizes(group: Sequence[Changes], among: int = 1) -> dict[str | bool, Estimate]:
        changes = {level: [figures.ratio(*found[level], among) for found in group] for level in group[0]}
        return {level: mean_change(some, test.rising) for level, some in changes.items()}

    def decides(group: Sequence[Changes], among: int) -> bool | None:
        firm = {level: figures.firm(size, among) for level, size in sizes(group, among).items()}
        own = firm.pop(test.level)
        agreement = [_beyond(other, own) if test.less else _beyond(own, other) for other in firm.values()]
        return False if False in agreement else None if None in agreement else True

    groups: list[Group] = []
    for group in [complete] if test.pooled else [[found] for found in complete]:
        text = f"changed{_SIZED[test.rising]} by {figures.listed(sizes(group), test.across)}"
        if test.pooled:
            text += f" over {len(group)} cells"
        elif place := figures.words(group[0][test.level][0], without=("arm", test.across, *test.of)):
            text = f"{place}: {text}"
        used = (one for found in group for pair in found.values() for one in pair)
        groups.append((text, functools.partial(decides, group), used))
    yield from _each(groups, figures)


Pairs = list[tuple[Figure, Figure]]


def _steeper(test: model.Steeper, figures: Figures) -> Iterator[Evidence]:
    named = {*test.of, *test.to, *test.than_of, *test.than_to}
    place = functools.partial(figures.place, without=named)
    pairs: list[dict[object, Pairs]] = [{}, {}]
    for found, of, to in zip(pairs, (test.of, test.than_of), (test.to, test.than_to), strict=True):
        first, second = (figures.select(test.measure, test.cells | cells) for cells in (of, to))
        for one, other in _alike(first, second, functools.partial(figures.place, without={*of, *to})):
            if test.along or figures.ratio(one, other).point is not None:
                found.setdefault(place(one), []).append((one, other))
    both = [(own, pairs[1][at]) for at, own in pairs[0].items() if at in pairs[1]]

    def changes(sides: Sequence[Pairs], among: int = 1) -> list[Estimate]:
        return [mean_change([figures.ratio(*pair, among) for pair in found], test.rising) for found in sides]

    def decides(sides: Sequence[Pairs], among: int) -> bool | None:
        return _beyond(*(figures.firm(one, among) for one in changes(sides, among)))

    if not both:
        yield Evidence.none(figures.missing_reason(test.measure, test.cells | test.of))
    elif test.along:
        yield from verdicts.quantified([_bend(test.along, figures, own, rest, len(both)) for own, rest in both], "each")
    else:
        groups: list[Group] = []
        for sides in both:
            where = figures.words(sides[0][0][0], without=named)
            sizes = " beside ".join(told(one, "ratio") for one in changes(sides))
            text, used = f"{where}: changed{_SIZED[test.rising]} by {sizes}", itertools.chain(*sides[0], *sides[1])
            groups.append((text, functools.partial(decides, sides), used))
        yield from _each(groups, figures)


def _bend(along: str, figures: Figures, own: Pairs, rest: Pairs, among: int) -> Judged:
    """Whether figures grow faster, for each unit of a factor, over one range of it than over another.

    The slopes are compared within each block: two ranges may have a figure in common.
    """
    used, unit = [one for pair in (*own, *rest) for one in pair], own[0][0].estimate.unit
    blocks = sorted(set.intersection(*(set(one.values) for one in used)))

    def grown(slope: Callable[[int | None], float], of: int = 1) -> Estimate:
        values = {block: slope(block) for block in blocks}
        return exact(slope(None), unit) if figures.exact else measured(values, unit, figures.wanted(of))

    slopes = [functools.partial(_slope, along, pairs) for pairs in (own, rest)]
    more = functools.partial(grown, lambda block: slopes[0](block) - slopes[1](block))
    agrees, sure, why, likely = verdicts.agreement_of(figures, more, among, (0.0, None), None, is_ratio=False)
    said = [
        f"{told(grown(slope), unit)} from {figures.words(to, only=(along,))} to {figures.words(of, only=(along,))}"
        for slope, (of, to) in zip(slopes, (own[0], rest[0]), strict=True)
    ]
    text = f"{figures.words(used[0], without=(along,))}: grew for each unit by {', beside '.join(said)}{why}"
    return Judged(more().point, evidence_of(text, agrees, figures, *used, likely=likely), sure)


def _slope(along: str, pairs: Pairs, block: int | None) -> float:
    """By how much figures, or those of one block, grow for each unit of a factor, on the average of pairs."""
    ends = [
        [(float(str(one.level(along))), one.point if block is None else one.values[block]) for one in pair]
        for pair in pairs
    ]
    return statistics.fmean((high - low) / (end - begin) for (end, high), (begin, low) in ends)


_SIZED = {False: ", up or down,", True: ""}


def _why_no_change(test: model.Equivalence | model.Change, figures: Figures) -> str:
    for cells in (test.cells | test.of, test.cells | test.to):
        if not figures.select(test.measure, cells):
            return figures.missing_reason(test.measure, cells)
    return f"not every {test.across} was measured both ways"


def _beyond(one: Estimate, other: Estimate) -> bool | None:
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return None
    return True if one.low > other.high else False if one.high <= other.low else None


def _line(test: model.Line, figures: Figures) -> Iterator[Evidence]:
    found = figures.select(test.measure, test.cells)
    if not found:
        yield Evidence.none(figures.missing_reason(test.measure, test.cells))
    groups = grouped(found, lambda one: figures.place(one, (test.factor,)))
    for group in groups:
        levels = [float(level) for one in group if isinstance(level := one.level(test.factor), int | float)]
        middles = [one.point for one in group]
        where = figures.words(group[0], without=(test.factor,))
        if len(set(levels)) < 3:
            yield Evidence.none(f"{where}: any two figures lie on a straight line")
        elif len(set(middles)) == 1:
            yield evidence_of(f"{where}: it does not change at all", None, figures, *group)
        else:
            explained, chance = figures.explained_by_line(levels, group), chance_of_line(len(set(levels)), LEVEL)
            among = 1
            if verdicts.within(figures.firm(explained), test.at_least, None) is False:
                # Noise takes from what a line explains: the chance of both tails is at this one.
                among = 2 * len(groups)
                explained = figures.explained_by_line(levels, group, among)
            text = f"{where}: a straight line explains {told(explained, 'share')} of it"
            agrees = verdicts.within(figures.firm(explained, among), test.at_least, None)
            if agrees and not verdicts.within(figures.firm(explained), chance, None):
                agrees = None
                text += f"; by chance it explains {number_text(chance, 'share')} of {len(set(levels))} figures"
            yield evidence_of(text, agrees, figures, *group)


def _mixed(test: model.Mixed, figures: Figures) -> Iterator[Evidence]:
    found = figures.select(test.measure, test.cells)
    wanted, rivals = test.cells.get(test.across), figures.file.needed.get(test.factor, ())

    def best(cell: Sequence[Figure], among: int = 1) -> set[Level | None]:
        """Whichever no other was shown to exceed."""
        return {
            one.level(test.factor)
            for one in cell
            if not any(
                verdicts.within(figures.firm(figures.ratio(other, one, among), among), 1, None, strictly=True)
                for other in cell
                if other is not one
            )
        }

    def decides(cells: Sequence[Sequence[Figure]], among: int) -> bool | None:
        names = [best(cell, among) for cell in cells]
        in_all = set.intersection(*names)
        agrees = True if not in_all else False if all(some == in_all for some in names) else None
        return agrees if len(in_all) < 2 else None

    groups: list[Group] = []
    for group in grouped(found, lambda one: figures.place(one, (test.factor, test.across))):
        cells = [cell for cell in grouped(group, lambda one: one.level(test.across)) if len(cell) >= len(rivals)]
        where = figures.words(group[0], without=(test.factor, test.across))
        if len(cells) < (len(wanted) if isinstance(wanted, tuple) else 2):
            yield Evidence.none(f"{where}: not every one was measured in both")
        else:
            named = [
                f"{' or '.join(sorted(map(str, best(cell))))} at {figures.words(cell[0], only=(test.across,))}"
                for cell in cells
            ]
            groups.append((f"{where}: {', '.join(named)}", functools.partial(decides, cells), group))
    yield from _each(groups, figures)


_RELATIONS: Mapping[type, Callable[..., Iterator[Evidence]]] = {
    model.Bound: _bound,
    model.Compared: _compared,
    model.Order: _order,
    model.Spread: _spread,
    model.Equivalence: _equivalence,
    model.Change: _change,
    model.Steeper: _steeper,
    model.Line: _line,
    model.Mixed: _mixed,
}

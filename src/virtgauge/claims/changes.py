"""Tests of claims on how figures change: over levels, between ranges, along a line; and on which is largest."""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence

from virtgauge.analysis.estimate import Estimate
from virtgauge.analysis.factor_tests import LEVEL
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
from virtgauge.claims.model import Level
from virtgauge.claims.verdicts import Evidence, Judged, evidence_of

Group = tuple[str, Callable[[int], bool | None], Iterable[Iterable[Figure]]]
"""In words; what it says with the confidence for so many groups; and figures that have to be comparable."""


def _each(groups: Sequence[Group], figures: Figures) -> Iterator[Evidence]:
    """Every group must agree."""
    judged = []
    for text, decides, beside in groups:
        agrees = decides(1)
        sure = decides(len(groups)) if agrees is False else agrees
        found = (evidence_of(text, agrees, figures, *used) for used in beside)
        judged.append(Judged(0.0, min(found, key=lambda one: (one.measured, -one.needs)), sure))
    yield from verdicts.quantified(judged, "each")


Changes = dict[str | bool, tuple[Figure, Figure]]
"""In one cell the figures at ``of`` and ``to``, by the level of the factor across."""


def _changes(test: model.Equivalence | model.Change, figures: Figures) -> list[Changes]:
    """Of every cell that all levels of the factor across have."""
    first, second = (figures.select(test.measure, test.cells | cells) for cells in (test.of, test.to))
    named = {*test.of, *test.to}
    cells: dict[object, Changes] = {}
    for one, other in figures.pairs(first, second, named):
        level = one.level(test.across)
        if isinstance(level, str | bool) and figures.ratio(one, other).point is not None:
            cells.setdefault(figures.place(one, {*named, test.across}), {})[level] = (one, other)
    named_levels = test.cells.get(test.across) or figures.file.needed.get(test.across)
    present = figures.levels(test.across, test.measure, test.cells)
    wanted: set[object] = set(named_levels if isinstance(named_levels, tuple) else present)
    return [found for found in cells.values() if len(wanted) > 1 and wanted <= set(found)]


def _beside(found: Changes) -> list[Iterable[Figure]]:
    """What has to be comparable: the figures of each change, those that all of them begin with, and all end with.

    Not all together: one database may have been there already on both platforms, and another on neither.
    """
    return [*found.values(), *zip(*found.values(), strict=True)]


def equivalence(test: model.Equivalence, figures: Figures) -> Iterator[Evidence]:
    """Whether all levels of a factor change alike, cell by cell."""
    complete = _changes(test, figures)
    if not complete:
        yield Evidence.none(_why_no_change(test, figures))

    def decides(found: Changes, among: int) -> bool | None:
        changes = (figures.firm(figures.ratio(*pair, among), among) for pair in found.values())
        ends = [(one.low, one.high) for one in changes if one.low is not None and one.high]
        if ends and max(low for low, _ in ends) > test.at_most * min(high for _, high in ends):
            return False  # two of them, whatever the others do
        if len(ends) < len(found) or not all(low for low, _ in ends):
            return None
        return max(high for _, high in ends) <= test.at_most * min(low for low, _ in ends) or None

    groups: list[Group] = []
    for found in complete:
        text = figures.listed({level: figures.ratio(*pair) for level, pair in found.items()}, test.across)
        groups.append((text, functools.partial(decides, found), _beside(found)))
    yield from _each(groups, figures)


def change(test: model.Change, figures: Figures) -> Iterator[Evidence]:
    """Whether one level of a factor changes more than each other, or less."""
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
        text = f"changed{'' if test.rising else ', up or down,'} by {figures.listed(sizes(group), test.across)}"
        if test.pooled:
            text += f" over {len(group)} cells"
        elif place := figures.text(group[0][test.level][0], without=("arm", test.across, *test.of)):
            text = f"{place}: {text}"
        beside = (some for found in group for some in _beside(found))
        groups.append((text, functools.partial(decides, group), beside))
    yield from _each(groups, figures)


Pairs = list[tuple[Figure, Figure]]


def steeper(test: model.Steeper, figures: Figures) -> Iterator[Evidence]:
    """Whether figures change more over one range than over another."""
    named = {*test.of, *test.to, *test.than_of, *test.than_to}
    place = functools.partial(figures.place, without=named)
    pairs: list[dict[object, Pairs]] = [{}, {}]
    for found, of, to in zip(pairs, (test.of, test.than_of), (test.to, test.than_to), strict=True):
        first, second = (figures.select(test.measure, test.cells | cells) for cells in (of, to))
        for one, other in figures.pairs(first, second, {*of, *to}):
            if test.along or figures.ratio(one, other).point is not None:
                found.setdefault(place(one), []).append((one, other))
    both = [(own, pairs[1][at]) for at, own in pairs[0].items() if at in pairs[1]]

    def changes(sides: Sequence[Pairs], among: int = 1) -> list[Estimate]:
        return [mean_change([figures.ratio(*pair, among) for pair in found], rising=False) for found in sides]

    def decides(sides: Sequence[Pairs], among: int) -> bool | None:
        return _beyond(*(figures.firm(one, among) for one in changes(sides, among)))

    if not both:
        yield Evidence.none(figures.missing_reason(test.measure, test.cells | test.of))
    elif test.along:
        yield from verdicts.quantified([_bend(test.along, figures, own, rest, len(both)) for own, rest in both], "each")
    else:
        groups: list[Group] = []
        for sides in both:
            where = figures.text(sides[0][0][0], without=named)
            sizes = " beside ".join(told(one, "ratio") for one in changes(sides))
            text, used = f"{where}: changed, up or down, by {sizes}", itertools.chain(*sides[0], *sides[1])
            groups.append((text, functools.partial(decides, sides), [used]))
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
        f"{told(grown(slope), unit)} from {figures.text(to, only=(along,))} to {figures.text(of, only=(along,))}"
        for slope, (of, to) in zip(slopes, (own[0], rest[0]), strict=True)
    ]
    text = f"{figures.text(used[0], without=(along,))}: grew for each unit by {', beside '.join(said)}{why}"
    return Judged(more().point, evidence_of(text, agrees, figures, *used, likely=likely), sure)


def _slope(along: str, pairs: Pairs, block: int | None) -> float:
    """By how much figures, or those of one block, grow for each unit of a factor, on the average of pairs."""
    ends = [
        [(float(str(one.level(along))), one.point if block is None else one.values[block]) for one in pair]
        for pair in pairs
    ]
    return statistics.fmean((high - low) / (end - begin) for (end, high), (begin, low) in ends)


def _why_no_change(test: model.Equivalence | model.Change, figures: Figures) -> str:
    for cells in (test.cells | test.of, test.cells | test.to):
        if not figures.select(test.measure, cells):
            return figures.missing_reason(test.measure, cells)
    return f"not every {test.across} was measured both ways"


def _beyond(one: Estimate, other: Estimate) -> bool | None:
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return None
    return True if one.low > other.high else False if one.high <= other.low else None


def line(test: model.Line, figures: Figures) -> Iterator[Evidence]:
    """Whether figures lie on a straight line along a factor."""
    found = figures.select(test.measure, test.cells)
    if not found:
        yield Evidence.none(figures.missing_reason(test.measure, test.cells))
    groups = grouped(found, lambda one: figures.place(one, (test.factor,)))
    for group in groups:
        levels = [float(level) for one in group if isinstance(level := one.level(test.factor), int | float)]
        middles = [one.point for one in group]
        where = figures.text(group[0], without=(test.factor,))
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


def mixed(test: model.Mixed, figures: Figures) -> Iterator[Evidence]:
    """Whether no single level of a factor has the largest figure everywhere."""
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
        where = figures.text(group[0], without=(test.factor, test.across))
        if len(cells) < (len(wanted) if isinstance(wanted, tuple) else 2):
            yield Evidence.none(f"{where}: not every one was measured in both")
        else:
            named = [
                f"{' or '.join(sorted(map(str, best(cell))))} at {figures.text(cell[0], only=(test.across,))}"
                for cell in cells
            ]
            groups.append((f"{where}: {', '.join(named)}", functools.partial(decides, cells), [group]))
    yield from _each(groups, figures)

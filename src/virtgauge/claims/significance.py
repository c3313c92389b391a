"""Rank tests of claims: whether factors, pairs of their levels and interactions matter, on a paper's table or a run.

The observations are a paper's values, one a cell, with the factors that are not tested pooled, as the papers do.  In a
run guests are the units: platforms are compared by one value a guest, levels of other factors within each guest, a
block.  Guests are drawn and levels fixed: what a level does in all guests of a cell is an effect.

An effect that is not shown may be there all the same, and one that is shown may be too small to matter.  A claim of an
effect is confirmed where ranks show one, however small, as the paper tests: not adjusted.  It is contradicted where
they show none and levels are shown to be alike (:data:`MARGIN`).  A claim of no effect is confirmed where levels are
alike, whatever ranks show; where they are not, ranks contradict it with the confidence for all tests of the claim
together (Holm).  So a claim of a small effect and one of none may both be confirmed: the first says that it is there,
the second that it does not matter.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from virtgauge.analysis import ranks
from virtgauge.analysis.aligned_ranks import aligned_rank_anova, anova, single_value_p
from virtgauge.analysis.estimate import Estimate, Values, median_estimate
from virtgauge.analysis.factor_tests import FEWEST_REPETITIONS, LEVEL
from virtgauge.claims.figures import Figure, Figures, exact, format_level, grouped, incomparable, told
from virtgauge.claims.model import Level, Significance
from virtgauge.claims.verdicts import Evidence
from virtgauge.results.formatting import p_value

MARGIN = 1.25  # ours: levels are alike whose ratio, with its interval, is no farther from 1
_MOST_NAMED = 3
_MOST_VALUES = 100
_How = Mapping[str, bool]  # what :func:`ranks.kruskal_wallis` and :func:`ranks.dunn` are told beside the groups


def significance(tests: Sequence[Significance], figures: Figures) -> Iterator[Evidence]:
    """The evidence of all rank tests of a claim, by measure, and by level of the factor within which they are made."""
    alpha = min(LEVEL, 1 - figures.wanted())
    made = [one for test in tests for one in _made(test, figures, alpha)]
    family = [one.tested.p for one in made if one.tested.p is not None]
    adjusted = iter(ranks.holm(family))
    among = sum(one.wanted and one.tested.p is not None for one in made)  # of which one that has no effect contradicts
    for test, wanted, part, tested in made:
        if tested.p is None:
            yield Evidence.none(tested.text, tested.needs)
            continue
        p, text = next(adjusted), tested.text
        if not test.pairs:
            text += f" ({p_value(p)} by Holm for the conclusion’s {len(family)} tests)" * (len(family) > 1)
            text += ": an effect" if tested.shown else f": no effect is shown{_at(alpha)} in {tested.values} values"
        alike, why, never = _alike(test, figures, part, among if wanted else 0)
        # a small effect that is shown is significant, as its author says it; one that is not shown is none
        if wanted:
            agrees = True if tested.shown else False if alike else None
        else:
            agrees = True if alike else False if p < alpha else None
        if agrees is None and not tested.shown:
            why = why or "; that is no proof that there is none"
            if wanted and figures.exact:
                why += "; the paper’s own table does not show what its text says"
        yield Evidence(text + why, agrees, needs=math.inf if agrees is None and never else 0)


def _ranked(test: Significance, figures: Figures, measure: str) -> list[Figure]:
    """Figures of arms that are not emulated, and of which none that the test is about was left out.

    With such a gap an interaction has no test, and platforms would be ranked by the cells alone that all of them have.
    """

    def found() -> list[Figure]:
        there = figures.select(measure, test.cells)
        places = {(one.arm, *one.levels.items()) for one in there}
        left_out = (one for some in figures.left_out.values() for one in some.select(measure, test.cells))
        gaps = {one.arm for one in left_out if (one.arm, *one.levels.items()) not in places}
        return [one for one in there if not (one.emulated or one.arm in gaps)]

    return figures.once(found, "ranked", measure, *test.cells.items())


def _missing(test: Significance, figures: Figures, measure: str) -> str:
    """Why there is nothing to test: a level that the test names has no figure."""
    named = [name for group in test.groups.values() for name in group]
    without = {second for first, second in test.pairs if first == "others"}
    named += [name for pair in test.pairs for name in pair if name not in ("*", "others") and name not in without]
    wanted = test.cells.get(test.within or "")
    levels = [(test.within or "", name) for name in wanted] if isinstance(wanted, tuple) else []
    for factor, name in [*((test.factors[0], name) for name in dict.fromkeys(named)), *levels]:
        if not figures.select(measure, test.cells | {factor: name}):
            return figures.missing_reason(measure, test.cells | {factor: name})
    return "" if figures.select(measure, test.cells) else figures.missing_reason(measure, test.cells)


class _Tested(NamedTuple):
    """What a rank test finds."""

    text: str  # a statistic, or why there is none
    shown: bool = False  # whether there is an effect, as the paper tests
    # by chance, no less than any data could give; of pairs the smallest, adjusted for all of them; None if untestable
    p: float | None = None
    values: int = 0  # that were ranked
    needs: float = math.inf  # repetitions, to be tested at all


class _Made(NamedTuple):
    """A test of a claim, of one measure at one level of the factor within which it is made."""

    test: Significance
    wanted: bool  # whether an effect is claimed
    part: Sequence[Figure]
    tested: _Tested


def _made(test: Significance, figures: Figures, alpha: float) -> Iterator[_Made]:
    def part_of(one: Figure) -> Level | None:
        return one.level(test.within) if test.within else None

    for measure in (*test.significant, *test.insignificant):
        wanted = measure in test.significant
        found = _ranked(test, figures, measure)
        of_platforms = {*test.factors} & {*figures.file.of_arms}
        why = _missing(test, figures, measure) or ("" if found else figures.missing_reason(measure, test.cells))
        if why := why or (incomparable(found) if of_platforms else ""):
            yield _Made(test, wanted, (), _Tested(why))
            continue
        for part in grouped(found, part_of):
            head = f"{_words(figures, test.within, part[0].level(test.within))}, " if test.within else ""
            tested = _tested(test, figures, part, alpha)
            text = f"{head}{figures.file.measures[measure].title}: {tested.text}"
            yield _Made(test, wanted, part, tested._replace(text=text))


def _tested(test: Significance, figures: Figures, part: Sequence[Figure], alpha: float) -> _Tested:
    most = max(len(one.values) for one in part)
    if not figures.exact and most < FEWEST_REPETITIONS:
        text = f"{most} repetitions cannot estimate chance: {FEWEST_REPETITIONS} or more are needed"
        return _Tested(text, needs=FEWEST_REPETITIONS)
    if len(test.factors) > 1:
        return _interaction(test, figures, part, alpha)
    by_level: dict[Level, list[Figure]] = {}
    for one in part:
        if (level := _level(test, one, test.factors[0])) is not None:
            by_level.setdefault(level, []).append(one)
    factor, found = test.factors[0], [*by_level.values()]
    if len(found) < 2:
        return _Tested(f"a single level of {factor}")
    groups = figures.once(lambda: _groups(factor, figures, found), "groups", factor, *map(tuple, found))
    if any(group.size == 0 for group in groups):
        return _Tested(f"nothing was measured at every level of {factor}")
    # Within guests the test is Friedman's; a run's need not be as the paper made it.
    how = {"blocked": not figures.exact and factor not in figures.file.of_arms, "exact": not figures.exact}
    if test.pairs:
        return _dunn(test, groups, [_words(figures, factor, level) for level in by_level], alpha, how)
    return _kruskal(groups, alpha, how)


def _level(test: Significance, one: Figure, factor: str) -> Level | None:
    """Of a tested factor, or the group that it belongs to."""
    names = {name: group for group, members in test.groups.items() for name in members}
    level = one.level(factor)
    return names.get(str(level)) if names and factor == test.factors[0] else level


def _fewest(least_p: Callable[[int], float], alpha: float) -> float:
    """With how many values at each level some data could give a p below a level; infinite with none."""
    return next((n for n in range(FEWEST_REPETITIONS, _MOST_VALUES) if least_p(n) < alpha), math.inf)


def _alike(test: Significance, figures: Figures, part: Sequence[Figure], among: int) -> tuple[bool, str, bool]:
    """Whether levels are equivalent, the words, and whether no repetition is likely to tell otherwise.

    Compared are every two levels, or the pairs meant, by their ratio in each block: the geometric mean over the cells
    that all levels have; of several factors, by the ratio of ratios.  A paper's table has no blocks: there the cells
    are what the interval of the median is taken over, and each one's ratio is what it is.  That each interval lies
    within the margin shows it of all together (an intersection–union test; R. L. Berger 1982).  With ``among``, the
    tests of a claim that each pair differs, a single pair that is alike is enough, and must be so with the confidence
    for so many.

    A mean over cells is what the papers test, and the words say so.  Effects that cancel in it are none of any cell, so
    that nothing is alike while one cell's interval lies wholly beyond the margin.  To ask that each lies wholly within
    would leave true likeness undecided.  Of 500 simulated runs, six cells whose 12 repetitions vary by 20 %, levels are
    called alike where they are equal in 99.6 % (by that rule in none), 1.25 apart in 1.4 %, 1.5 and 1/1.5 by turns in
    9 % (on the average they are equal), 2 and 1/2 in none.
    """
    cells: dict[object, dict[_Levels, list[Figure]]] = {}
    for one in part:
        levels = tuple(_level(test, one, factor) for factor in test.factors)
        if None not in levels:
            cells.setdefault(figures.place(one, test.factors), {}).setdefault(levels, []).append(one)
    named = [list(dict.fromkeys(column)) for column in zip(*itertools.chain(*cells.values()), strict=True)]
    common = [cell for cell in cells.values() if len(cell) == math.prod(map(len, named))]

    def values_of(one: Figure) -> Mapping[int, float]:
        return {0: one.point} if figures.exact else one.values

    def logs_of_one(one: Figure) -> Values:
        return np.log([values_of(one)[block] for block in blocks])

    used = [values_of(one) for cell in common for some in cell.values() for one in some]
    blocks = tuple(sorted(set.intersection(*map(set, used)))) if used else ()
    if not blocks or any(min(map(values.__getitem__, blocks)) <= 0 for values in used):
        return False, "", False

    def mean_logs(some: Sequence[Figure]) -> Values:
        logs = (figures.once(functools.partial(logs_of_one, one), "logs", one, blocks) for one in some)
        return np.asarray(sum(logs) / len(some))

    logs_of = [{levels: mean_logs(some) for levels, some in cell.items()} for cell in common]
    pairs = [list(itertools.combinations(levels, 2)) for levels in named]
    if test.pairs:
        meant = _pairs_meant(test.pairs, [_words(figures, test.factors[0], level) for level in named[0]])
        pairs = [[(named[0][i], named[0][j]) for i, j in sorted(meant)]]
    contrasts, single = list(itertools.product(*pairs)), bool(among and test.pairs)

    def ratio(logs: Values, of: int = 1) -> Estimate:
        return figures.firm(median_estimate(logs, "log", figures.wanted(of)).mapped(math.exp, "ratio"), of)

    def of_cell(logs: Values) -> Estimate:
        return exact(math.exp(logs[0]), "ratio") if figures.exact else ratio(logs)

    found = [np.array([_log_ratios(contrast, logs) for logs in logs_of]) for contrast in contrasts]
    of = max(among, 1) * (len(contrasts) if single else 1)
    apart = [_apart(ratio(logs.mean(axis=int(figures.exact)), of))[1] for logs in found]
    near = [place for place, most in enumerate(apart) if most <= MARGIN]
    if not near or not (single or len(near) == len(apart)):
        return False, "", False
    beyond = {
        place: f"but {_ratio_text(test, figures, contrasts[place], cell)} {told(one, 'ratio')}"
        for place in near
        for cell, one in zip(common, map(of_cell, found[place]), strict=True)
        if _apart(one)[0] > MARGIN
    }
    alike = len(beyond) < len(near) if single else not beyond
    farthest = max(apart[place] for place in near if not alike or place not in beyond)
    what = "a pair of levels is" if single else "levels are" if len(named) == 1 else "ratios of levels are"
    text = f", and {what} at most {farthest:.2f}× apart"
    over = "by the median over" if figures.exact else "on the average over"
    text += f", {over} {len(common)} cells" if len(common) > 1 else ""
    trivial = ": an effect may be there, and is too small to matter" if among else ""
    return alike, text + (trivial if alike else f", {next(iter(beyond.values()))}"), not alike


_Levels = tuple[Level | None, ...]
_Cell = Mapping[_Levels, Sequence[Figure]]  # its figures by the levels of the tested factors
_Contrast = Sequence[tuple[Level | None, Level | None]]  # two levels of each tested factor


def _ratio_text(test: Significance, figures: Figures, contrast: _Contrast, cell: _Cell) -> str:
    """``busy ÷ idle, TSC``."""
    sides = [
        (_words(figures, name, one), _words(figures, name, other))
        for name, (one, other) in zip(test.factors, contrast, strict=True)
    ]
    where = figures.text(next(iter(cell.values()))[0], without=test.factors)
    return ", ".join([*(f"{one} ÷ {other}" for one, other in sides), *([where] if where else [])])


def _log_ratios(contrast: _Contrast, logs: Mapping[_Levels, Values]) -> Values:
    """By block the logarithm of the ratio of two levels; of several factors, of the ratio of ratios."""
    ends = itertools.product((1, -1), repeat=len(contrast))
    signed = zip(ends, itertools.product(*contrast), strict=True)
    return np.asarray(sum(math.prod(signs) * logs[levels] for signs, levels in signed))


def _apart(ratio: Estimate) -> tuple[float, float]:
    """How far a ratio is from 1 in either direction, at least and at most, as a factor."""
    if not ratio.low or not ratio.high:
        return 1.0, math.inf
    return max(ratio.low, 1 / ratio.high), max(ratio.high, 1 / ratio.low)


def _groups(factor: str, figures: Figures, levels: Sequence[Sequence[Figure]]) -> list[Values]:
    """The values to rank at each level: of a run one a guest, over the cells that all levels have."""
    if figures.exact:
        return [np.array([value for one in found for value in one.values.values() or [one.point]]) for found in levels]
    cells: list[dict[object, dict[str, Mapping[int, float]]]] = [{} for _ in levels]
    for by_place, found in zip(cells, levels, strict=True):
        for one in found:
            guests = by_place.setdefault(figures.place(one, (factor,)), {})
            guests[one.arm] = {**guests[one.arm], **one.values} if one.arm in guests else one.values
    common = [place for place in cells[0] if all(place in by_place for by_place in cells)]
    rank = ranks.unit_ranks if factor in figures.file.of_arms else ranks.ranks_within_units
    return rank([[by_place[place] for place in common] for by_place in cells])


def _kruskal(groups: Sequence[Values], alpha: float, how: _How) -> _Tested:
    sizes, within = [len(group) for group in groups], how["blocked"]
    least = ranks.least_attainable_p(sizes, blocked=within)
    if least >= alpha:
        there = f"{sizes[0]} guests" if within else f"{' + '.join(map(str, sizes))} values"
        needs = _fewest(lambda n: ranks.least_attainable_p([n] * len(sizes), blocked=within), alpha)
        return _Tested(f"{there}: no data could give an exact p below {least:.2g}", needs=needs)
    found = ranks.kruskal_wallis(groups, **how)
    name, size = ("Friedman’s χ²", "W") if within else ("H", "ε²")
    text = f"{name}({found.df}) = {found.h:.2f}, {p_value(found.p)}, {size} {found.epsilon_squared:.2f}"
    return _Tested(text, found.p < alpha, max(found.p, least), sum(sizes))  # χ² can fall below what data could give


def _dunn(test: Significance, groups: Sequence[Values], labels: Sequence[str], alpha: float, how: _How) -> _Tested:
    sizes, wanted = [len(group) for group in groups], _pairs_meant(test.pairs, labels)
    if not wanted:
        return _Tested("no such pair of levels was measured")

    def least_of(sizes: Sequence[int]) -> float:
        return max(ranks.least_attainable_dunn_p(sizes, *pair, **how) for pair in wanted)

    least = least_of(sizes)
    if least >= alpha:
        text = f"{' + '.join(map(str, sizes))} values: Dunn’s test could give no p below {least:.2g}"
        return _Tested(text, needs=_fewest(lambda n: least_of([n] * len(sizes)), alpha))
    found = [pair for pair in ranks.dunn(groups, **how) if (pair.first, pair.second) in wanted]
    shown = [pair for pair in found if pair.p < alpha]
    rest = [pair for pair in found if pair not in shown]
    adjusted = sum(pair.p_holm < alpha for pair in found)
    text = f"{len(shown)} of {len(found)} pairs differ{_at(alpha)} in {sum(sizes)} values by Dunn’s test"
    text += ", which the paper does not adjust"
    text += "" if adjusted == len(shown) else f" ({adjusted} adjusted by Holm)"
    few = shown if test.insignificant else rest
    if few and len(few) < len(found):
        listed = ", ".join(f"{labels[pair.first]}–{labels[pair.second]}" for pair in few[:_MOST_NAMED])
        text += f"; {'but' if test.insignificant else 'not'} {listed}"
    # All pairs are to differ where they are said to; a single one contradicts where none is.
    return _Tested(text, not rest if test.significant else bool(shown), min(pair.p_holm for pair in found), sum(sizes))


def _pairs_meant(pairs: Sequence[tuple[str, str]], levels: Sequence[str]) -> set[tuple[int, int]]:
    meant: set[tuple[int, int]] = set()
    for (first, second), (i, j) in itertools.product(pairs, itertools.combinations(range(len(levels)), 2)):
        both = {levels[i], levels[j]}
        if (second == "*" and first in both) or (first == "others" and second not in both) or both == {first, second}:
            meant.add((i, j))
    return meant


def _interaction(test: Significance, figures: Figures, part: Sequence[Figure], alpha: float) -> _Tested:
    """By the aligned rank transform of logarithms, and the ordinary analysis of variance: by both or not at all.

    A paper's single values take the interaction of all factors as their error.  As many guests of each platform are
    taken, by turns of its arms.
    """
    factors = list(part[0].levels)
    levels = {name: list(dict.fromkeys(one.level(name) for one in part)) for name in factors}
    varied = [name for name in factors if len(levels[name]) > 1]
    cells: dict[tuple[Level | None, ...], list[Figure]] = {}
    for one in part:
        cells.setdefault(tuple(one.level(name) for name in varied), []).append(one)
    design = list(itertools.product(*(levels[name] for name in varied)))
    if not set(test.factors) <= set(varied) or any(place not in cells for place in design):
        return _Tested("not every combination was measured often enough to test an interaction")
    shape = [len(levels[name]) for name in varied]
    axes = tuple(sorted(varied.index(name) for name in test.factors))
    if figures.exact:
        if len(axes) == len(varied):
            return _Tested("one value a cell: this interaction cannot be told from chance")
        p = single_value_p(np.array([cells[place][0].point for place in design]).reshape(shape), axes)
        return _Tested(f"{' × '.join(test.factors)}, {p_value(p)}", p < alpha, p, len(design))
    axis = varied.index("platform") if "platform" in varied else None
    platform = {place: None if axis is None else place[axis] for place in design}
    found = {
        place: {(block, one.arm): value for one in cells[place] for block, value in one.values.items()}
        for place in design
    }
    guests: dict[Level | None, set[tuple[int, str]]] = {}  # that all cells of a platform have
    for place, own in found.items():
        guests[platform[place]] = guests.get(platform[place], {*own}) & {*own}
    n = min(map(len, guests.values()))
    values = np.array([[found[place][guest] for guest in sorted(guests[platform[place]])[:n]] for place in design])
    if n < FEWEST_REPETITIONS or values.min() <= 0:
        needs = math.inf if (values <= 0).any() else FEWEST_REPETITIONS
        return _Tested("not every combination was measured often enough to test an interaction", needs=needs)
    logs = np.log(values).reshape([*shape, n])
    between = [] if axis is None else [axis]
    p = max(analysis(logs, between, [axes])[0].p for analysis in (aligned_rank_anova, anova))
    return _Tested(f"{' × '.join(test.factors)}, {p_value(p)}", p < alpha, p, values.size)


def _words(figures: Figures, factor: str | None, level: Level | None) -> str:
    return "" if level is None else format_level(figures.file.factors.get(factor or "") or "{}", level)


def _at(alpha: float) -> str:
    """The level of a test, where it is not the usual one: looks at a run share that."""
    return f" at {100 * alpha:.3g} %" if alpha < LEVEL else ""

"""Rank tests of claims: whether factors, pairs of their levels and interactions matter, on a paper's table or a run.

The observations are a paper's values, one a cell, with the factors that are not tested pooled, as the papers do.  In a
run guests are the units: platforms are compared by one value a guest, levels of other factors within each guest, a
block.  Guests are drawn and levels fixed: what a level does in all guests of a cell is an effect.

An effect that is not shown may be there all the same, and one that is shown may be too small to matter: in a run a
claim of no effect is confirmed where every two levels are shown to be alike (:data:`MARGIN`), and contradicted only
where they are not and the effect is shown with the confidence for all tests of the claim together (Holm over the pairs,
Bonferroni over the rest); of a paper's table it is what the paper calls insignificant.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Iterator, Sequence

import numpy as np

from virtgauge.analysis import ranks
from virtgauge.analysis.aligned_ranks import aligned_rank_anova, anova, single_value_p
from virtgauge.analysis.comparison import paired_ratio
from virtgauge.claims.figures import Figure, Figures, format_level, grouped
from virtgauge.claims.model import Level, Significance
from virtgauge.claims.verdicts import Evidence

LEVEL = 0.05  # the papers'
MARGIN = 1.25  # ours: levels are alike whose ratio, with its interval, is no farther from 1
FEWEST_REPETITIONS = 3  # With fewer, nothing shows how much a cell varies by itself
_MOST_NAMED = 3


def significance(test: Significance, figures: Figures) -> Iterator[Evidence]:
    """The evidence of a rank test, measure by measure, and level by level of the factor within which it is made."""
    expected = [(name, True) for name in test.significant] + [(name, False) for name in test.insignificant]

    def part_of(one: Figure) -> Level | None:
        return one.level(test.within) if test.within else None

    denied = [grouped(figures.select(name, test.cells), part_of) for name in test.insignificant]
    family = max(sum(map(len, denied)), 1)
    for measure, wanted in expected:
        missing = _missing(test, figures, measure)
        if missing:
            yield Evidence.none(missing)
            continue
        found = [one for one in figures.select(measure, test.cells) if not one.emulated]
        for part in grouped(found, part_of):
            head = f"{_words(figures, test.within, part[0].level(test.within))}, " if test.within else ""
            text, shown, surely = _tested(test, figures, part, family)
            alike = None if wanted or shown is None or figures.exact else _alike(test, figures, part)
            text += f", and {alike}" if alike else ""
            title = f"{head}{figures.file.measures[measure].title}"
            if shown is None:
                yield Evidence.none(f"{title}: {text}")
            elif figures.exact or (wanted and shown):
                yield Evidence(f"{title}: {text}", shown is wanted)
            else:
                yield Evidence(f"{title}: {text}", True if alike else False if surely and not wanted else None)


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


Tested = tuple[str, bool | None, bool]
"""A statistic in words; whether an effect is shown as the paper tests, None where it cannot be tested; and surely."""


def _tested(test: Significance, figures: Figures, part: Sequence[Figure], family: int) -> Tested:
    """One test; ``family``: the tests of a claim, of which any would contradict it."""
    most = max(len(one.values) for one in part)
    if not figures.exact and most < FEWEST_REPETITIONS:
        return f"{most} repetitions cannot estimate chance: {FEWEST_REPETITIONS} or more are needed", None, False
    alpha = min(LEVEL, figures.chance)
    if len(test.factors) > 1:
        return _interaction(test, figures, part, alpha, family)
    by_level = _by_level(test, part)
    if len(by_level) < 2:
        return f"a single level of {test.factors[0]}", None, False
    groups = _groups(test.factors[0], figures, list(by_level.values()))
    if any(group.size == 0 for group in groups):
        return f"nothing was measured at every level of {test.factors[0]}", None, False
    labels = [_words(figures, test.factors[0], level) for level in by_level]
    within = not figures.exact and test.factors[0] not in figures.file.of_arms
    if test.pairs:
        return _dunn(test, groups, labels, alpha, family, within=within)
    return _kruskal(groups, alpha, family, within=within)


def _by_level(test: Significance, part: Sequence[Figure]) -> dict[Level, list[Figure]]:
    names = {name: group for group, members in test.groups.items() for name in members}
    by_level: dict[Level, list[Figure]] = {}
    for one in part:
        level = one.level(test.factors[0])
        level = names.get(str(level)) if names else level
        if level is not None:
            by_level.setdefault(level, []).append(one)
    return by_level


def _alike(test: Significance, figures: Figures, part: Sequence[Figure]) -> str | None:
    """That every two levels of a factor, or the pairs meant, are equivalent, in words; None where that is not shown.

    A level has one value a block: the geometric mean over the cells that all levels have.  That each pair's interval
    lies within the margin shows it of all pairs together (an intersection–union test; R. L. Berger 1982).
    """
    factor = test.factors[0]
    if len(test.factors) > 1:
        return None
    by_level, place_of = _by_level(test, part), functools.partial(figures.place, without=(factor,))
    levels = [{place_of(some[0]): some for some in grouped(found, place_of)} for found in by_level.values()]
    common = [place for place in levels[0] if all(place in level for level in levels)]
    means = []
    for level in levels:
        ours = [one.values for place in common for one in level[place]]
        blocks = set.intersection(*(set(values) for values in ours)) if ours else set()
        if not blocks or any(values[block] <= 0 for values in ours for block in blocks):
            return None
        means.append({block: statistics.geometric_mean(values[block] for values in ours) for block in sorted(blocks)})
    labels = [_words(figures, factor, level) for level in by_level]
    pairs = _pairs_meant(test.pairs, labels) if test.pairs else itertools.combinations(range(len(means)), 2)
    ratios = [paired_ratio(means[i], means[j], figures.wanted()) for i, j in pairs]
    if not ratios or any(ratio.low is None or ratio.high is None for ratio in ratios):
        return None
    farthest = max(max(ratio.high or math.inf, 1 / ratio.low if ratio.low else math.inf) for ratio in ratios)
    return f"levels are at most {farthest:.2f}× apart" if farthest <= MARGIN else None


def _groups(factor: str, figures: Figures, levels: Sequence[Sequence[Figure]]) -> list[ranks.Values]:
    """The values to rank at each level: of a run one a guest, over the cells that all levels have."""
    if figures.exact:
        return [np.array([value for one in found for value in one.values.values() or [one.point]]) for found in levels]
    cells: list[dict[object, dict[tuple[str, int], float]]] = [{} for _ in levels]
    for by_place, found in zip(cells, levels, strict=True):
        for one in found:
            values = {(one.arm, block): value for block, value in one.values.items()}
            by_place.setdefault(figures.place(one, (factor,)), {}).update(values)
    common = [place for place in cells[0] if all(place in by_place for by_place in cells)]
    rank = ranks.unit_ranks if factor in figures.file.of_arms else ranks.ranks_within_units
    return rank([[by_place[place] for place in common] for by_place in cells])


def _kruskal(groups: Sequence[ranks.Values], alpha: float, family: int, *, within: bool) -> Tested:
    """``within`` guests the test is Friedman's."""
    sizes = [len(group) for group in groups]
    least = ranks.least_attainable_p(sizes, blocked=within)
    if least >= alpha:
        there = f"{sizes[0]} guests" if within else f"{' + '.join(map(str, sizes))} values"
        return f"{there}: no data could give an exact p below {least:.2g}", None, False
    found = ranks.kruskal_wallis(groups, blocked=within)
    shown = found.p < alpha
    effect, (name, size) = found.epsilon_squared, ("Friedman’s χ²", "W") if within else ("H", "ε²")
    text = f"{name}({found.df}) = {found.h:.2f}, {p_value(found.p)}, {size} {effect:.2f}: {_effect(shown)}"
    return text, shown, found.p < alpha / family


def _dunn(
    test: Significance,
    groups: Sequence[ranks.Values],
    labels: Sequence[str],
    alpha: float,
    family: int,
    *,
    within: bool,
) -> Tested:
    sizes = [len(group) for group in groups]
    wanted = _pairs_meant(test.pairs, labels)
    if not wanted:
        return "no such pair of levels was measured", None, False
    least = max(ranks.least_attainable_dunn_p(sizes, *pair, blocked=within) for pair in wanted)
    if least >= alpha:
        return f"{' + '.join(map(str, sizes))} values: Dunn’s test could give no p below {least:.2g}", None, False
    found = [pair for pair in ranks.dunn(groups, blocked=within) if (pair.first, pair.second) in wanted]
    shown = [pair for pair in found if pair.p < alpha]
    rest = [pair for pair in found if pair not in shown]
    adjusted = sum(pair.p_holm < alpha for pair in found)
    text = f"{len(shown)} of {len(found)} pairs differ by Dunn’s test, which the paper does not adjust"
    text += "" if adjusted == len(shown) else f" ({adjusted} adjusted by Holm)"
    few = shown if test.insignificant else rest
    if few and len(few) < len(found):
        listed = ", ".join(f"{labels[pair.first]}–{labels[pair.second]}" for pair in few[:_MOST_NAMED])
        text += f"; {'but' if test.insignificant else 'not'} {listed}"
    # All pairs are to differ where they are said to; a single one contradicts where none is.
    return text, not rest if test.significant else bool(shown), any(pair.p_holm < alpha / family for pair in found)


def _pairs_meant(pairs: Sequence[tuple[str, str]], levels: Sequence[str]) -> set[tuple[int, int]]:
    meant: set[tuple[int, int]] = set()
    for (first, second), (i, j) in itertools.product(pairs, itertools.combinations(range(len(levels)), 2)):
        both = {levels[i], levels[j]}
        if (second == "*" and first in both) or (first == "others" and second not in both) or both == {first, second}:
            meant.add((i, j))
    return meant


def _interaction(test: Significance, figures: Figures, part: Sequence[Figure], alpha: float, family: int) -> Tested:
    """By the aligned rank transform of logarithms, and the ordinary analysis of variance: by both or not at all.

    A paper's single values take the interaction of all factors as their error.
    """
    factors = list(part[0].levels)
    levels = {name: list(dict.fromkeys(one.level(name) for one in part)) for name in factors}
    varied = [name for name in factors if len(levels[name]) > 1]
    cells = {tuple(one.level(name) for name in varied): one for one in part}
    design = list(itertools.product(*(levels[name] for name in varied)))
    if not set(test.factors) <= set(varied) or any(place not in cells for place in design):
        return "not every combination was measured often enough to test an interaction", None, False
    shape = [len(levels[name]) for name in varied]
    axes = tuple(sorted(varied.index(name) for name in test.factors))
    if figures.exact:
        if len(axes) == len(varied):
            return "one value a cell: this interaction cannot be told from chance", None, False
        p = single_value_p(np.array([cells[place].point for place in design]).reshape(shape), axes)
        return f"{' × '.join(test.factors)}, {p_value(p)}: {_effect(p < alpha)}", p < alpha, p < alpha / family
    n = min(len(cells[place].values) for place in design)
    values = np.array([list(cells[place].values.values())[:n] for place in design])
    if n < FEWEST_REPETITIONS or values.min() <= 0:
        return "not every combination was measured often enough to test an interaction", None, False
    logs = np.log(values).reshape([*shape, n])
    between = [varied.index("platform")] if "platform" in varied else []
    p = max(
        next(effect.p for effect in analysis if tuple(sorted(effect.factors)) == axes)
        for analysis in (aligned_rank_anova(logs, between), anova(logs, between))
    )
    return f"{' × '.join(test.factors)}, {p_value(p)}: {_effect(p < alpha)}", p < alpha, p < alpha / family


def _words(figures: Figures, factor: str | None, level: Level | None) -> str:
    return "" if level is None else format_level(figures.file.factors.get(factor or "") or "{}", level)


def _effect(shown: bool) -> str:
    return "an effect" if shown else "no effect shown"


def p_value(p: float) -> str:
    """``p = 0.012``, ``p < 0.001``."""
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}" if p < 0.01 else f"p = {p:.3f}"

"""Which factors matter: the rank tests of Kirova et al. 2019 (sections 2.3, 3.1.4, 3.2.4).

The factors are function, platform and load, and the paper's four parameters median, half IQR, maximum and minimum.
The guest is the unit, for a guest's cells have much in common.  Between platforms its value is its mean rank over the
cells, and Kruskal–Wallis is made, as in the paper, with Dunn's test for pairs; function and load are factors within
guests, so the guests are blocks: Friedman's test of the levels' mean ranks within each.
Interactions are for the aligned rank transform, of logarithms (as ratios are compared elsewhere), with the guests as
units, and count only as far as the ordinary analysis agrees.  Cliff's δ compares two levels only where everything else
is equal.

Emulated platforms are never ranked, so they enter no rank test; their δ is given.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

import numpy as np

from virtgauge.analysis import ranks
from virtgauge.analysis.aligned_ranks import aligned_rank_anova, anova
from virtgauge.analysis.estimate import Estimate, Values
from virtgauge.analysis.ranks import stratified_delta

FACTORS = ("function", "platform", "load")
PARAMETERS = {"p50": "median", "half_iqr": "half IQR", "max": "maximum", "min": "minimum"}
"""Statistics, and what they are called."""
LEVEL = 0.05  # The paper's significance level, here of p adjusted for all tests of one probe
FEWEST_REPETITIONS = 3  # With fewer, nothing shows how much a cell varies by itself
MOST_PAIRED_LEVELS = 8
"""Of a factor with more levels no pairs are tested: there would be more of them than anyone reads."""

Place = tuple[str, str, str]  # Function, platform (an arm's name) and load
Repetitions = Callable[[str], Mapping[int, float]]  # Of a statistic, a cell's figures by repetition


@dataclasses.dataclass(frozen=True)
class PairTest:
    """Two levels of a factor."""

    # first, second: the levels; for platforms, the arms' names
    first: str
    second: str
    z: float | None  # Dunn's, positive where the first one's values rank higher; None where the pair is not ranked
    p: float | None  # two-sided, not adjusted, as the paper has it; None where the pair is not ranked
    p_holm: float | None  # adjusted by Holm for all pairs of the factor
    # Cliff's δ within equal levels of the other factors; positive where the first one's values are larger
    delta: Estimate
    emulated: bool  # one of them is an emulated platform

    @property
    def shown(self) -> bool:
        return self.p_holm is not None and self.p_holm < LEVEL


@dataclasses.dataclass(frozen=True)
class FactorTest(ranks.KruskalWallis):
    """Kruskal–Wallis of the platforms' guests, or Friedman's test of a factor within guests, for one parameter."""

    factor: str  # of :data:`FACTORS`
    levels: tuple[str, ...]  # that were ranked
    p_holm: float  # adjusted for all such tests of the probe
    pairs: tuple[PairTest, ...]  # Dunn's test and δ; empty where there are too many

    @property
    def shown(self) -> bool:
        return self.p_holm < LEVEL


@dataclasses.dataclass(frozen=True)
class EffectTest:
    """A main effect or an interaction, of the logarithms: what multiplies a value, whatever the others do."""

    factors: tuple[str, ...]  # one for a main effect (when the others are accounted for), more for an interaction
    f: float | None  # of the aligned ranks; None where the repetitions of every cell tie, so that any effect is certain
    # df, df_error: degrees of freedom, before each p corrects them for cells that vary unequally within guests
    df: int
    df_error: int
    p_ranks: float  # of the aligned ranks
    p_values: float  # of the ordinary analysis of variance. Ranks alone find too much where cells vary unequally.
    p_holm: float  # the larger of the two, for an effect is shown by both or not at all, adjusted for all such tests
    partial_eta_squared: float  # the effect's share beside its own error, of the aligned ranks, 0…1

    @property
    def p(self) -> float:
        return max(self.p_ranks, self.p_values)

    @property
    def shown(self) -> bool:
        return self.p_holm < LEVEL


@dataclasses.dataclass(frozen=True)
class ParameterFactors:
    """What determines one parameter of a probe's values."""

    parameter: str
    tests: tuple[FactorTest, ...]
    effects: tuple[EffectTest, ...]


@dataclasses.dataclass(frozen=True)
class ProbeFactors:
    """Which factors matter for one probe."""

    repetitions: int  # complete ones of the balanced design, of each platform; what the interactions rest on
    parameters: tuple[ParameterFactors, ...]  # empty where nothing could be tested, then ``notes`` says why
    unranked: tuple[str, ...]  # emulated arms, by name
    notes: tuple[str, ...]  # what was left out or could not be tested, and why


def probe_factors(
    cells: Mapping[Place, Repetitions], emulated: Collection[str], confidence: float
) -> ProbeFactors | None:
    """Test the factors of one probe; None where the design has no factor to test.

    Args:
        cells: the valid repetitions of every cell, in the order to show levels in; without the A/A arm, which is the
            reference once more and no level of its own.
        emulated: platforms that are.
        confidence: of the intervals of δ.
    """
    ranked = {place: values for place, values in cells.items() if place[1] not in emulated}
    unranked = tuple(dict.fromkeys(place[1] for place in cells if place[1] in emulated))
    levels = {factor: tuple(dict.fromkeys(place[axis] for place in ranked)) for axis, factor in enumerate(FACTORS)}
    if not any(len(found) > 1 for found in levels.values()):
        return None
    most = max((len(values("p50")) for values in ranked.values()), default=0)
    if most < FEWEST_REPETITIONS:
        some = f"{most} repetition{'' if most == 1 else 's'}"
        note = f"{some} cannot estimate chance: these tests need {FEWEST_REPETITIONS} or more."
        return ProbeFactors(most, (), unranked, (note,))
    notes: list[str] = []
    tests = []
    for name in PARAMETERS:  # one at a time: the figures of all fill the memory of a large run
        values = _Values(name, cells, levels, unranked, confidence)
        tests.append([test for factor in FACTORS if (test := values.test(factor, notes))])
    repetitions, effects = _effects(ranked, levels, notes)
    parameters = tuple(
        ParameterFactors(parameter, tuple(adjusted_tests), tuple(adjusted_effects))
        for parameter, adjusted_tests, adjusted_effects in zip(
            PARAMETERS, _adjusted(tests), _adjusted([effects[name] for name in PARAMETERS]), strict=True
        )
    )
    return ProbeFactors(repetitions, parameters, unranked, tuple(dict.fromkeys(notes)))


_Test = TypeVar("_Test", FactorTest, EffectTest)


class _Values:
    """What is known of one parameter, by cell and repetition."""

    def __init__(
        self,
        parameter: str,
        cells: Mapping[Place, Repetitions],
        levels: Mapping[str, tuple[str, ...]],
        unranked: Sequence[str],
        confidence: float,
    ) -> None:
        self._levels, self._unranked, self._confidence = levels, unranked, confidence
        self._all = {place: found(parameter) for place, found in cells.items()}
        self._ranked = {place: values for place, values in self._all.items() if place[1] not in unranked}

    def test(self, factor: str, notes: list[str]) -> FactorTest | None:
        axis, levels = FACTORS.index(factor), self._levels[factor]
        if len(levels) < 2:
            return None
        groups, blocked = self._groups(axis, levels), factor != "platform"
        if any(group.size == 0 for group in groups):
            notes.append(f"A {factor} has no valid value, so the {factor} was not tested.")
            return None
        least = ranks.least_attainable_p([group.size for group in groups], blocked=blocked)
        if least >= LEVEL:
            notes.append(f"So few values can give no p below {least:.2g}, so the {factor} was not tested.")
            return None
        test = ranks.kruskal_wallis(groups, blocked=blocked, exact=True)
        pairs: list[PairTest] = []
        if len(levels) <= MOST_PAIRED_LEVELS:
            for pair in ranks.dunn(groups, blocked=blocked, exact=True):
                first, second = levels[pair.first], levels[pair.second]
                delta = self._delta(axis, first, second, self._ranked)
                pairs.append(PairTest(first, second, pair.z, pair.p, pair.p_holm, delta, emulated=False))
            for first, second in itertools.product(self._unranked if factor == "platform" else (), levels):
                delta = self._delta(axis, first, second, self._all)
                pairs.append(PairTest(first, second, None, None, None, delta, emulated=True))
        return FactorTest(**vars(test), factor=factor, levels=levels, p_holm=test.p, pairs=tuple(pairs))

    def _groups(self, axis: int, levels: Sequence[str]) -> list[Values]:
        """The values to rank at each level: of every guest one, over the cells that all levels have."""
        cells: list[dict[tuple[str, ...], ranks.Guests]] = [{} for _ in levels]
        for place, found in self._ranked.items():
            cell = place[:axis] + place[axis + 1 :]
            cells[levels.index(place[axis])][cell] = {place[1]: found} if found else {}
        common = [cell for cell in cells[0] if all(by_cell.get(cell) for by_cell in cells)]
        rank = ranks.unit_ranks if FACTORS[axis] == "platform" else ranks.ranks_within_units
        return rank([[by_cell[cell] for cell in common] for by_cell in cells])

    def _delta(self, axis: int, first: str, second: str, known: Mapping[Place, Mapping[int, float]]) -> Estimate:
        """δ of two levels of a factor, within each combination of the other factors' levels that both have."""
        strata = []
        for place, values in known.items():
            at = [*place]
            at[axis] = second
            other = (at[0], at[1], at[2])
            if place[axis] == first and other in known:
                strata.append((values, known[other]))
        return stratified_delta(strata, self._confidence)


def _effects(
    cells: Mapping[Place, Repetitions], design: Mapping[str, tuple[str, ...]], notes: list[str]
) -> tuple[int, dict[str, list[EffectTest]]]:
    """The aligned rank analysis of every parameter, over what is balanced of the design; else a note on why not."""
    none: dict[str, list[EffectTest]] = {parameter: [] for parameter in PARAMETERS}
    levels = dict(design)
    everywhere = tuple(
        function
        for function in levels["function"]
        if all((function, platform, load) in cells for platform in levels["platform"] for load in levels["load"])
    )
    if everywhere != levels["function"]:
        missing = [name for name in levels["function"] if name not in everywhere]
        notes.append(
            f"Not measured on every platform under every load, so left out of the interactions: {', '.join(missing)}."
        )
        levels["function"] = everywhere
    varied = [factor for factor in FACTORS if len(levels[factor]) > 1]
    if len(varied) < 2 or not all(levels.values()):
        notes.append("There are no two factors whose levels were all combined, so no interaction can be tested.")
        return 0, none

    def whole(platform: str) -> list[int]:
        found = [cells[function, platform, load] for function in levels["function"] for load in levels["load"]]
        return sorted(set.intersection(*(set(one(parameter)) for one in found for parameter in PARAMETERS)))

    complete = {platform: whole(platform) for platform in levels["platform"]}
    n = min(len(blocks) for blocks in complete.values())
    if n < FEWEST_REPETITIONS:
        notes.append(
            f"Interactions need {FEWEST_REPETITIONS} repetitions in which every cell is valid; a platform has {n}."
        )
        return n, none
    most = max(len(blocks) for blocks in complete.values())
    if n < most:
        notes.append(f"Interactions rest on the first {n} whole repetitions of each platform, for one has no more.")
    shape = [len(levels[factor]) for factor in varied]
    between = [varied.index("platform")] if "platform" in varied else []
    effects = dict(none)
    for parameter in PARAMETERS:
        values: Values = np.array(
            [
                [*map(cells[function, platform, load](parameter).__getitem__, complete[platform][:n])]
                for function in levels["function"]
                for platform in levels["platform"]
                for load in levels["load"]
            ],
            dtype=np.float64,
        ).reshape([*shape, n])
        if values.min() <= 0:
            notes.append(f"A {PARAMETERS[parameter]} of 0 or less has no logarithm, so no interaction was tested.")
            continue
        logs = np.log(values)
        effects[parameter] = [
            EffectTest(
                factors=tuple(varied[axis] for axis in by_ranks.factors),
                f=by_ranks.f if math.isfinite(by_ranks.f) else None,
                df=by_ranks.df,
                df_error=by_ranks.df_error,
                p_ranks=by_ranks.p,
                p_values=by_values.p,
                p_holm=max(by_ranks.p, by_values.p),
                partial_eta_squared=by_ranks.partial_eta_squared,
            )
            for by_ranks, by_values in zip(aligned_rank_anova(logs, between), anova(logs, between), strict=True)
        ]
    return n, effects


def _adjusted(families: list[list[_Test]]) -> list[list[_Test]]:
    adjusted = iter(ranks.holm([test.p for family in families for test in family]))
    return [[dataclasses.replace(test, p_holm=next(adjusted)) for test in family] for family in families]

"""The timing paper's rank tests on a run's repetitions: which factors, pairs of levels and interactions matter."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

from virtgauge.ledger.records import ArmRecord
from virtgauge.reference import claims
from virtgauge.report.timing.factor_words import f_statistic, p_value
from virtgauge.report.timing.factors import ParameterFactors, Place, Repetitions, probe_factors
from virtgauge.report.timing.run_figures import STATISTICS, RunFigures, paper_platform
from virtgauge.report.timing.table_rows import PARAMETERS
from virtgauge.report.verdicts import Evidence

Lacking = Callable[[str], str]


def tested_factors(
    test: claims.FactorMatters | claims.LevelsDiffer | claims.Interaction,
    figures: RunFigures,
    table: str,
    lacking: Lacking,
) -> Iterator[Evidence]:
    """What such a test finds.

    Args:
        figures: of the run.
        table: the paper's that the test is about.
        lacking: why nothing is told of a platform of the paper's that is not there.
    """
    if isinstance(test, claims.Interaction) and not test.factors:
        yield Evidence.none("no test has such an effect: with the same function nothing can interact with it")
        return
    missing = [name for name in _platforms_of(test) if not figures.named(name)]
    if missing:
        yield Evidence.none(lacking(missing[0]))
        return
    arms, relabelled = _arms(test, figures)
    if _is_of_platforms(test) and len(arms) < 2:
        yield Evidence.none("this run has no two of the paper’s platforms whose figures decide")
        return
    for where, cells, own in _parts(test, figures, table, arms):
        yield from _found(test, where, relabelled(cells), own, figures.nominal)


def _is_of_platforms(test: claims.FactorMatters | claims.LevelsDiffer | claims.Interaction) -> bool:
    """Whether platforms are compared with each other."""
    if isinstance(test, claims.Interaction):
        return "platform" in test.factors
    return test.factor == "platform"


def _platforms_of(test: claims.FactorMatters | claims.LevelsDiffer | claims.Interaction) -> list[str]:
    """Platforms without which there is nothing to test."""
    if isinstance(test, claims.Interaction):
        return []
    if isinstance(test, claims.LevelsDiffer):
        named = {name for pair in test.pairs for name in pair} - {"*", "others"}
        without = {pair[1] for pair in test.pairs if pair[0] == "others"}
        return sorted(named - without) if test.factor == "platform" else []
    grouped = [name for group in test.groups.values() for name in group]
    return grouped if test.groups else list(test.levels) if test.within == "platform" else []


def _arms(
    test: claims.FactorMatters | claims.LevelsDiffer | claims.Interaction, figures: RunFigures
) -> tuple[Sequence[ArmRecord], Callable[[Mapping[Place, Repetitions]], Mapping[Place, Repetitions]]]:
    """Whose repetitions are tested, and how their platforms are put together."""
    if isinstance(test, claims.FactorMatters) and test.groups:
        groups = {name: group for group, names in test.groups.items() for name in names}
        return figures.of_the_paper(), lambda cells: _grouped(cells, figures, groups)
    if _is_of_platforms(test):
        without = [pair[1] for pair in getattr(test, "pairs", ()) if pair[0] == "others"]
        return figures.of_the_paper(without), lambda cells: cells
    return figures.judged, lambda cells: cells


def _grouped(
    cells: Mapping[Place, Repetitions], figures: RunFigures, groups: Mapping[str, str]
) -> Mapping[Place, Repetitions]:
    """Cells under the name of their platform's group, each arm's repetitions under numbers of their own."""
    names = {arm.name: groups.get(paper_platform(arm) or "") for arm in figures.judged}
    found: dict[Place, dict[int, Mapping[str, float | None]]] = {}
    for (function, arm, load), repetitions in cells.items():
        group = names.get(arm)
        if group is not None:
            own = found.setdefault((function, group, load), {})
            own.update({len(own) + number: figures for number, figures in enumerate(repetitions.values())})
    return found


def _parts(
    test: claims.FactorMatters | claims.LevelsDiffer | claims.Interaction,
    figures: RunFigures,
    table: str,
    arms: Sequence[ArmRecord],
) -> Iterator[tuple[str, Mapping[Place, Repetitions], Sequence[ArmRecord]]]:
    """The cells to be tested together, under the name of what they share."""
    within = None if isinstance(test, claims.Interaction) else test.within
    if within == "platform":
        levels = () if isinstance(test, claims.Interaction) else test.levels
        chosen = [arm for arm in arms if not levels or paper_platform(arm) in levels]
        for arm in chosen:
            yield f"{arm.label}, ", figures.table(table, [arm]), [arm]
        return
    cells = figures.table(table, arms)
    if within == "load":
        for load in figures.levels(table, 2):
            yield f"{load}, ", {place: found for place, found in cells.items() if place[2] == load}, arms
        return
    yield "", cells, arms


def _found(
    test: claims.FactorMatters | claims.LevelsDiffer | claims.Interaction,
    where: str,
    cells: Mapping[Place, Repetitions],
    arms: Sequence[ArmRecord],
    nominal: float,
) -> Iterator[Evidence]:
    known = {arm.name for arm in arms}
    # Groups of platforms are no arms; a record of that name is all that the test asks for.
    groups = [dataclasses.replace(arms[0], name=name, role="test") for name in {p[1] for p in cells} - known]
    found = probe_factors("timing", "", cells, [*arms, *groups], nominal) if cells else None
    if found is None or not found.parameters:
        yield Evidence.none(f"{where}{found.notes[0].rstrip('.') if found and found.notes else 'nothing to compare'}")
        return
    by_name = {parameters.parameter: parameters for parameters in found.parameters}
    expected = [(name, True) for name in test.significant] + [(name, False) for name in test.insignificant]
    for parameter, significant in expected:
        text, shown = _effect(test, by_name[STATISTICS[parameter]], arms)
        if shown is None:
            yield Evidence.none(f"{where}{PARAMETERS[parameter]}: {text}")
        else:
            said = "an effect" if shown else "no effect shown"
            # What is not shown may be there, and small.
            agrees = significant if shown else None
            yield Evidence(f"{where}{PARAMETERS[parameter]}: {text}: {said}", agrees)


def _effect(
    test: claims.FactorMatters | claims.LevelsDiffer | claims.Interaction,
    found: ParameterFactors,
    arms: Sequence[ArmRecord],
) -> tuple[str, bool | None]:
    """The statistic in words, and whether an effect is shown; None where it could not be tested."""
    if isinstance(test, claims.Interaction):
        effect = next((one for one in found.effects if set(one.factors) == set(test.factors)), None)
        if effect is None:
            return "not every combination was measured often enough to test an interaction", None
        return f"{' × '.join(effect.factors)}, {f_statistic(effect)}, adjusted {p_value(effect.p_holm)}", effect.shown
    factor = found.test(test.factor)
    if factor is None:
        return f"the {test.factor} could not be tested", None
    if isinstance(test, claims.FactorMatters):
        text = f"H({factor.df}) = {factor.h:.2f}, adjusted {p_value(factor.p_holm)}, ε² {factor.epsilon_squared:.2f}"
        return text, factor.shown
    names = {arm.name: paper_platform(arm) or arm.label for arm in arms}
    wanted = [pair for pair in factor.pairs if _is_meant(test, {names.get(n, n) for n in (pair.first, pair.second)})]
    if not wanted:
        return "no such pair of levels was measured", None
    shown = [pair for pair in wanted if pair.shown]
    listed = ", ".join(f"{names.get(pair.first, pair.first)}–{names.get(pair.second, pair.second)}" for pair in shown)
    text = f"{len(shown)} of {len(wanted)} pairs differ by Dunn’s test" + (f" ({listed})" if listed else "")
    # All pairs are to differ where they are said to; a single one contradicts where none is.
    return text, len(shown) == len(wanted) if test.significant else bool(shown)


def _is_meant(test: claims.LevelsDiffer, both: set[str]) -> bool:
    return any(
        (second == "*" and first in both) or (first == "others" and second not in both) or both == {first, second}
        for first, second in test.pairs
    )

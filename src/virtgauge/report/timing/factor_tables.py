"""The tests of factors and of the paper's conclusions as rows ready to be shown."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

from virtgauge.analysis.effect_sizes import magnitude
from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import ArmRecord
from virtgauge.report.timing.factor_words import (
    PARAMETERS,
    Labels,
    effect_name,
    f_statistic,
    p_value,
    sentences,
    signed,
)
from virtgauge.report.timing.factors import FACTORS, EffectTest, FactorTest, PairTest, ParameterFactors, ProbeFactors
from virtgauge.report.timing.model import TimingFindings
from virtgauge.report.timing.paper_claims import ExaminedClaim, Verdict
from virtgauge.report.words import NONE, load_label, probe_title


@dataclasses.dataclass(frozen=True)
class Mark:
    """One test in a table.

    Attributes:
        size: the effect size, as text; a dash where there was no test.
        statistic, p: the test, as text.
        share: the effect size in 0…1 where the effect is shown, else 0; how strongly to colour.
        shown: whether it is.
        title: the rest of what is known.
    """

    size: str
    statistic: str
    p: str
    share: float
    shown: bool
    title: str


@dataclasses.dataclass(frozen=True)
class EffectRow:
    """A factor or an interaction, over the four parameters."""

    name: str
    marks: tuple[Mark, ...]


@dataclasses.dataclass(frozen=True)
class PairRow:
    """Two levels of a factor, over the four parameters."""

    first: str
    second: str
    emulated: bool
    marks: tuple[Mark, ...]


@dataclasses.dataclass(frozen=True)
class PairTable:
    """All pairs of one factor."""

    factor: str
    rows: tuple[PairRow, ...]


@dataclasses.dataclass(frozen=True)
class FactorSection:
    """One probe."""

    title: str
    found: ProbeFactors
    parameters: tuple[str, ...]
    sentences: tuple[tuple[str, tuple[str, ...]], ...]
    rows: tuple[EffectRow, ...]
    pairs: tuple[PairTable, ...]
    unranked: tuple[str, ...]


_EMPTY = Mark(NONE, "", "", 0.0, False, "not tested")


def labels_of(found: TimingFindings, arms: Sequence[ArmRecord]) -> dict[str, str]:
    """What to call the levels of factors: arms by their labels, loads in words."""
    return {cell.load: load_label(cell.load) for cell in found.cells} | {arm.name: arm.label for arm in arms}


def factor_sections(found: TimingFindings, arms: Sequence[ArmRecord]) -> list[FactorSection]:
    """Every probe's tests."""
    labels = labels_of(found, arms)
    return [_section(probe, labels) for probe in found.factors]


def _section(found: ProbeFactors, labels: Labels) -> FactorSection:
    parameters = found.parameters
    names = tuple(PARAMETERS[one.parameter] for one in parameters)
    said = tuple((PARAMETERS[one.parameter], tuple(sentences(one, labels))) for one in parameters)
    rows = [
        EffectRow(factor, tuple(_factor_mark(one, factor) for one in parameters))
        for factor in FACTORS
        if any(one.test(factor) for one in parameters)
    ]
    combined = dict.fromkeys(effect.factors for one in parameters for effect in one.effects if len(effect.factors) > 1)
    rows += [
        EffectRow(effect_name(factors), tuple(_effect_mark(one.effect(factors)) for one in parameters))
        for factors in combined
    ]
    pairs = tuple(table for factor in ("platform", "load", "function") if (table := _pair_table(found, factor, labels)))
    unranked = tuple(labels.get(name, name) for name in found.unranked)
    return FactorSection(probe_title(found.probe), found, names, said, tuple(rows), pairs, unranked)


def _factor_mark(found: ParameterFactors, factor: str) -> Mark:
    test: FactorTest | None = found.test(factor)
    if test is None:
        return _EMPTY
    title = f"Kruskal–Wallis over {test.n} values of {len(test.levels)} levels; unadjusted {p_value(test.p)}"
    alone = found.effect((factor,))
    if alone is not None:
        title += (
            f". With the other factors accounted for (aligned ranks): {f_statistic(alone)}, {p_value(alone.p_holm)}"
        )
    return Mark(
        f"ε² {test.epsilon_squared:.2f}",
        f"H({test.df}) = {test.h:.1f}",
        p_value(test.p_holm),
        test.epsilon_squared if test.shown else 0.0,
        test.shown,
        title,
    )


def _effect_mark(effect: EffectTest | None) -> Mark:
    if effect is None:
        return _EMPTY
    return Mark(
        f"η² {effect.partial_eta_squared:.2f}",
        f_statistic(effect),
        p_value(effect.p_holm),
        effect.partial_eta_squared if effect.shown else 0.0,
        effect.shown,
        f"unadjusted: aligned ranks {p_value(effect.p_ranks)}, analysis of variance {p_value(effect.p_values)}",
    )


def _pair_table(found: ProbeFactors, factor: str, labels: Labels) -> PairTable | None:
    by_pair: dict[tuple[str, str], list[PairTest | None]] = {}
    for place, one in enumerate(found.parameters):
        test = one.test(factor)
        for pair in test.pairs if test else ():
            by_pair.setdefault((pair.first, pair.second), [None] * len(found.parameters))[place] = pair
    if not by_pair:
        return None
    rows = [
        PairRow(
            labels.get(first, first),
            labels.get(second, second),
            any(pair is not None and pair.emulated for pair in pairs),
            tuple(_pair_mark(pair) for pair in pairs),
        )
        for (first, second), pairs in by_pair.items()
    ]
    return PairTable(factor, tuple(rows))


def _pair_mark(pair: PairTest | None) -> Mark:
    if pair is None or pair.delta.point is None:
        return _EMPTY
    delta = pair.delta
    size = f"δ {signed(pair.delta.point)}"
    if pair.p is None or pair.z is None:
        return Mark(size, _interval(delta), "not ranked", 0.0, False, "an emulated platform is never ranked")
    title = f"{magnitude(pair.delta.point)} effect over {delta.n} repetitions; Dunn's z {signed(pair.z)}"
    share = abs(pair.delta.point) if pair.shown else 0.0
    return Mark(size, _interval(delta), p_value(pair.p), share, pair.shown, title)


def _interval(delta: Estimate) -> str:
    if delta.low is None or delta.high is None:
        return "no interval"
    return f"{signed(delta.low)} to {signed(delta.high)}"


def claim_groups(claims: Sequence[ExaminedClaim]) -> list[tuple[str, list[ExaminedClaim]]]:
    """The paper's conclusions by the table that decides them."""
    groups: dict[str, list[ExaminedClaim]] = {}
    for claim in claims:
        name = " and ".join(table.rpartition(", ")[2] for table in claim.tables)
        groups.setdefault(name, []).append(claim)
    return list(groups.items())


def claim_counts(claims: Sequence[ExaminedClaim]) -> dict[str, int]:
    """How many conclusions have each verdict; empty where none was tested."""
    counts = Counter(claim.verdict for claim in claims)
    return {verdict.value: counts[verdict] for verdict in Verdict} if counts else {}

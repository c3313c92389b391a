"""The tests of which factors matter, in plain sentences and tables."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterator, Mapping

from virtgauge.analysis import factor_tests
from virtgauge.analysis.factor_tests import PARAMETERS, EffectTest, FactorTest, PairTest
from virtgauge.analysis.ranks import magnitude
from virtgauge.results.columns import Cell
from virtgauge.results.formatting import NONE, p_value
from virtgauge.results.quantities import COUNT, PROBABILITY
from virtgauge.results.table import Blocks
from virtgauge.specs.blocks import Block, Column, Place, Row, Shown, Table, Text, Value, table_of
from virtgauge.specs.context import Context
from virtgauge.specs.timing_insights import PROBES, function_label, load_label, probe_title

_MOST_PAIRS = 3

Labels = Mapping[str, str]  # What to call levels that are not their own name: arms by label, loads in words


def signed(value: float) -> str:
    """``+0.25``, ``−1.00``."""
    return f"{value:+.2f}".replace("-", "−")


def sentences(found: factor_tests.ParameterFactors, labels: Labels) -> list[str]:
    """One sentence for each factor, and one on interactions where they could be tested."""
    said = [factor_sentence(test, PARAMETERS[found.parameter], labels) for test in found.tests]
    interactions = [effect for effect in found.effects if len(effect.factors) > 1]
    shown = sorted((effect for effect in interactions if effect.shown), key=lambda effect: len(effect.factors))
    said += [_interaction(effect, PARAMETERS[found.parameter]) for effect in shown]
    if interactions and not shown:
        said.append(f"No interaction of the factors was shown for the {PARAMETERS[found.parameter]}.")
    return said


def factor_sentence(test: FactorTest, parameter: str, labels: Labels) -> str:
    """``The platform matters for the median (ε² 0.71, p < 0.001): gVisor differs from all others.``"""
    size = f"{'ε²' if test.factor == 'platform' else 'W'} {test.epsilon_squared:.2f}"
    if not test.shown:
        return f"No effect of the {test.factor} on the {parameter} was shown ({p_value(test.p_holm)})."
    head = f"The {test.factor} matters for the {parameter} ({size}, {p_value(test.p_holm)})"
    return f"{head}{_who_differs(test, labels)}."


def _who_differs(test: FactorTest, labels: Labels) -> str:
    pairs = [pair for pair in test.pairs if not pair.emulated]
    if not pairs:
        return f", over {len(test.levels)} {test.factor}s"
    differing = [pair for pair in pairs if pair.shown]
    if not differing:
        return ", though no single pair stands out"
    if len(pairs) == 1:
        return f": {_compared(pairs[0], labels)}"
    if len(differing) == len(pairs):
        return ": all of them differ from each other"
    alone = [level for level in test.levels if all(pair.shown for pair in pairs if level in (pair.first, pair.second))]
    rest = [pair for pair in differing if not {pair.first, pair.second} & set(alone)]
    said = [f"{_name(level, labels)} differs from all others" for level in alone]
    said += [f"{_name(pair.first, labels)} differs from {_name(pair.second, labels)}" for pair in rest[:_MOST_PAIRS]]
    if len(rest) > _MOST_PAIRS:
        said.append(f"{len(rest) - _MOST_PAIRS} more pairs differ")
    return f": {'; '.join(said)}"


def _compared(pair: PairTest, labels: Labels) -> str:
    first, second = _name(pair.first, labels), _name(pair.second, labels)
    if pair.delta.point is None or pair.delta.point == 0:
        return f"{first} and {second} differ"
    word = "higher" if pair.delta.point > 0 else "lower"
    return f"it is {word} for {first} than for {second} (δ {signed(pair.delta.point)})"


def _interaction(effect: EffectTest, parameter: str) -> str:
    # The platform is what a reader asks about, and the function what it most often depends on.
    order = [name for name in ("platform", "load", "function") if name in effect.factors]
    size = "beyond measure" if effect.f is None else f"{effect.f:.3g}" if effect.f < 1000 else f"{effect.f:,.0f}"
    proof = f"(F({effect.df}, {effect.df_error}) = {size}, {p_value(effect.p_holm)})"
    if len(order) == 2:
        return f"How much the {order[0]} changes the {parameter} depends on the {order[1]} {proof}."
    return f"How much {' and '.join(order[:-1])} together change the {parameter} depends on the {order[-1]} {proof}."


def _name(level: str, labels: Labels) -> str:
    return labels.get(level, level) or NONE


def factors_of(context: Context) -> Iterator[tuple[str, factor_tests.ProbeFactors]]:
    """Each probe with its tests."""
    unranked = [arm.name for arm in context.arms if not context.ranked(arm.name)]
    for probe in PROBES:
        cells: dict[factor_tests.Place, factor_tests.Repetitions] = {}
        for cell in context.where({"probe": (probe,)}):
            for arm in context.arms:
                if arm.role != "aa" and context.table.has(context.spec.measure(f"{probe}.p50"), cell, arm.name):
                    values = functools.partial(_values, context, probe, cell, arm.name)
                    cells[function_label(context, cell), arm.name, context.level(cell, "load")] = values
        found = factor_tests.probe_factors(cells, unranked, context.table.confidence)
        if found is not None:
            yield probe, found


def _values(context: Context, probe: str, cell: Cell, arm: str, statistic: str) -> Blocks:
    return context.values(f"{probe}.{statistic}", cell, arm)


def what_matters(context: Context) -> Iterator[Block]:
    """For each probe the sentences, and tables of the factors, the interactions and the pairs."""
    labels = {context.level(cell, "load"): load_label(context.level(cell, "load")) for cell in context.cells}
    labels |= {arm.name: arm.label for arm in context.arms}
    for probe, found in factors_of(context):
        title = probe_title(probe)
        yield Text(found.notes, title)
        for one in found.parameters:
            yield Text((" ".join(sentences(one, labels)),), f"{title}: {PARAMETERS[one.parameter]}", "finding")
        if found.parameters:
            yield from _tables(context, probe, found, labels)
        unranked = ", ".join(labels.get(name, name) for name in found.unranked)
        if unranked and found.parameters:
            kinds = "Emulated platforms, and those on another computer than the reference"
            said = f"{kinds} ({unranked}), are never ranked: they are in none of these tests, and their δ is"
            yield Text((f"{said} only described.",))


_FACTORS = {"epsilon_squared": "ε², W", "h": "H, χ²", "df": "df", "n": "n", "p": "p", "p_holm": "p, adjusted"}
_EFFECTS = {
    **{"partial_eta_squared": "η²", "f": "F", "df": "df", "df_error": "df of error"},
    **{"p_ranks": "p of ranks", "p_values": "p of values", "p": "p", "p_holm": "p, adjusted"},
}
"""Columns by what a test has."""


def _figures(place: Place, prefix: str, test: FactorTest | EffectTest, parts: Collection[str]) -> Iterator[Shown]:
    """What a test found; the size of the effect is first."""
    note = "shown" if test.shown else ""
    for part in parts:
        name, quantity = part.replace("holm", "adjusted"), PROBABILITY if part.partition("_")[0] == "p" else COUNT
        value = getattr(test, part)
        yield Value.count(f"{prefix}.{name}", place, value, quantity, note=note)
        note = ""


def _tables(context: Context, probe: str, found: factor_tests.ProbeFactors, labels: Labels) -> Iterator[Table]:
    title, prefix = probe_title(probe), f"{probe}.factors"
    rows, more = [], []
    for one in found.parameters:
        named = PARAMETERS[one.parameter]
        for test in one.tests:
            name = f"{prefix}.{one.parameter}.{'kruskal_wallis' if test.factor == 'platform' else 'friedman'}"
            shown = _figures(context.place("*", factor=test.factor), name, test, _FACTORS)
            rows.append(Row((named, test.factor), "", tuple(shown)))
        for effect in one.effects:
            place = context.place("*", factor="×".join(effect.factors))
            shown = _figures(place, f"{prefix}.{one.parameter}.aligned_ranks", effect, _EFFECTS)
            more.append(Row((named, " × ".join(effect.factors)), "", tuple(shown)))
    repetitions = Value.count(f"{prefix}.repetitions", context.place("*"), found.repetitions)
    rows.append(Row(("whole repetitions", "of each platform"), "", (None, None, None, repetitions, None, None)))
    yield from table_of(f"{title}: factors", ("Parameter", "Factor"), _FACTORS.values(), rows, folded=True)
    effects = f"{title}: with the other factors accounted for, and interactions"
    yield from table_of(effects, ("Parameter", "Factors"), _EFFECTS.values(), more, folded=True)
    by_pair: dict[tuple[str, str, str], dict[str, PairTest]] = {}
    for one in found.parameters:
        for test in one.tests:
            for pair in test.pairs:
                by_pair.setdefault((test.factor, pair.first, pair.second), {})[one.parameter] = pair
    rows = []
    for factor, first, second in sorted(by_pair, key=lambda pair: -factor_tests.FACTORS.index(pair[0])):
        pairs = by_pair[factor, first, second]
        told = (_pair(context, f"{prefix}.{name}.dunn", factor, pairs.get(name)) for name in PARAMETERS)
        said = f"{_name(first, labels)} against {_name(second, labels)}"
        rows.append(Row((factor, said), "", tuple(itertools.chain(*told))))
    columns = [Column(part, name) for name in PARAMETERS.values() for part in ("δ", "z", "p", "p, adjusted")]
    yield from table_of(f"{title}: pairs", ("Factor", "Pair"), columns, rows, folded=True)


def _pair(context: Context, prefix: str, factor: str, pair: PairTest | None) -> tuple[Shown, ...]:
    if pair is None:
        return None, None, None, None
    place = context.place("*", "", pair.second, factor=factor, level=pair.first)
    hint = "" if pair.delta.point is None else f"{magnitude(pair.delta.point)} effect"
    note = "not ranked" if pair.emulated else "shown" if pair.shown else ""
    return (
        context.of(f"{prefix}.delta", place, pair.delta, COUNT, hint=hint, note=note),
        Value.count(f"{prefix}.z", place, pair.z),
        Value.count(f"{prefix}.p", place, pair.p, PROBABILITY),
        Value.count(f"{prefix}.p_adjusted", place, pair.p_holm, PROBABILITY),
    )

"""The tests of which factors matter, in plain sentences and tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from virtgauge.analysis.effect_sizes import magnitude
from virtgauge.analysis.factor_tests import (
    FACTORS,
    PARAMETERS,
    EffectTest,
    FactorTest,
    PairTest,
    ParameterFactors,
    Place,
    ProbeFactors,
    Repetitions,
    probe_factors,
)
from virtgauge.results.formatting import NONE, load_label, probe_title
from virtgauge.results.quantities import COUNT, PROBABILITY, Quantity
from virtgauge.specs import blocks
from virtgauge.specs.blocks import Block, Column, Row, Shown, Table, Text, Value, table_of
from virtgauge.specs.context import Context
from virtgauge.specs.timing_insights import PROBES, function_label

_MOST_PAIRS = 3

Labels = Mapping[str, str]
"""What to call levels that are not their own name: arms by label, loads in words."""


def p_value(p: float) -> str:
    """``p < 0.001``, ``p 0.012``."""
    return "p < 0.001" if p < 0.001 else f"p {p:.2g}" if p < 0.995 else "p 1"


def signed(value: float) -> str:
    """``+0.25``, ``−1.00``."""
    return f"{value:+.2f}".replace("-", "−")


def effect_name(factors: tuple[str, ...]) -> str:
    """``function × platform``."""
    return " × ".join(factors)


def f_statistic(effect: EffectTest) -> str:
    """``F(2, 15) = 12.3``."""
    size = "beyond measure" if effect.f is None else f"{effect.f:.3g}" if effect.f < 1000 else f"{effect.f:,.0f}"
    return f"F({effect.df}, {effect.df_error}) = {size}"


def sentences(found: ParameterFactors, labels: Labels) -> list[str]:
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
    if not test.shown:
        return f"No effect of the {test.factor} on the {parameter} was shown ({p_value(test.p_holm)})."
    head = f"The {test.factor} matters for the {parameter} (ε² {test.epsilon_squared:.2f}, {p_value(test.p_holm)})"
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
    proof = f"({f_statistic(effect)}, {p_value(effect.p_holm)})"
    if len(order) == 2:
        return f"How much the {order[0]} changes the {parameter} depends on the {order[1]} {proof}."
    return f"How much {' and '.join(order[:-1])} together change the {parameter} depends on the {order[-1]} {proof}."


def _name(level: str, labels: Labels) -> str:
    return labels.get(level, level) or NONE


# -- of a run --------------------------------------------------------------------------------------------


def factors_of(context: Context) -> Iterator[tuple[str, ProbeFactors]]:
    """Each probe with its tests."""
    emulated = [arm.name for arm in context.arms if arm.emulated]
    for probe in PROBES:
        cells: dict[Place, Repetitions] = {}
        for cell in context.where({"probe": (probe,)}):
            for arm in context.arms:
                values = {name: context.values(f"{probe}.{name}", cell, arm.name) for name in PARAMETERS}
                if values["p50"] and arm.role != "aa":
                    repetitions = {
                        block: {name: values[name].get(block) for name in PARAMETERS} for block in values["p50"]
                    }
                    cells[function_label(cell.factors), arm.name, context.level(cell, "load")] = repetitions
        found = probe_factors(cells, emulated, context.table.confidence)
        if found is not None:
            yield probe, found


def what_matters(context: Context) -> Iterator[Block]:
    """For each probe the sentences, and tables of the factors, the interactions and the pairs."""
    labels = {context.level(cell, "load"): load_label(context.level(cell, "load")) for cell in context.cells}
    labels |= {arm.name: arm.label for arm in context.arms}
    for probe, found in factors_of(context):
        title, told = probe_title(probe), _Told(context, f"{probe}.factors")
        yield Text(found.notes, title)
        for one in found.parameters:
            yield Text((" ".join(sentences(one, labels)),), f"{title}: {PARAMETERS[one.parameter]}", "finding")
        if found.parameters:
            yield from told.factors(found, f"{title}: factors")
            yield from told.effects(found, f"{title}: with the other factors accounted for, and interactions")
            yield from told.pairs(found, labels, f"{title}: pairs")
        unranked = ", ".join(labels.get(name, name) for name in found.unranked)
        if unranked and found.parameters:
            said = f"Emulated platforms ({unranked}) are never ranked: they are in none of these tests, and their δ is"
            yield Text((f"{said} only described.",))


@dataclasses.dataclass(frozen=True)
class _Told:
    """Makes the tables of one probe's tests, whose figures have names that begin alike."""

    context: Context
    prefix: str

    def _figures(
        self,
        place: blocks.Place,
        name: str,
        shown: Mapping[str, tuple[float | None, Quantity]],
        notes: Mapping[str, str],
    ) -> list[Shown]:
        return [
            None
            if value is None
            else Value.count(f"{self.prefix}.{name}.{part}", place, value, quantity, note=notes.get(part, ""))
            for part, (value, quantity) in shown.items()
        ]

    def factors(self, found: ProbeFactors, title: str) -> Iterator[Table]:
        rows = []
        for one in found.parameters:
            for test in one.tests:
                place = self.context.place("*", factor=test.factor)
                figures = {
                    "epsilon_squared": (test.epsilon_squared, COUNT),
                    "h": (test.h, COUNT),
                    "df": (test.df, COUNT),
                    "n": (test.n, COUNT),
                    "p": (test.p, PROBABILITY),
                    "p_adjusted": (test.p_holm, PROBABILITY),
                }
                notes = {"epsilon_squared": "shown" if test.shown else ""}
                shown = self._figures(place, f"{one.parameter}.kruskal_wallis", figures, notes)
                rows.append(Row((PARAMETERS[one.parameter], test.factor), "", tuple(shown)))
        repetitions = Value.count(f"{self.prefix}.repetitions", self.context.place("*"), found.repetitions)
        rows.append(Row(("whole repetitions", "of each platform"), "", (None, None, None, repetitions, None, None)))
        columns = ("ε²", "H", "df", "n", "p", "p, adjusted")
        yield from table_of(title, ("Parameter", "Factor"), columns, rows, folded=True)

    def effects(self, found: ProbeFactors, title: str) -> Iterator[Table]:
        rows = []
        for one in found.parameters:
            for effect in one.effects:
                place = self.context.place("*", factor="×".join(effect.factors))
                figures = {
                    "partial_eta_squared": (effect.partial_eta_squared, COUNT),
                    "f": (effect.f, COUNT),
                    "df": (effect.df, COUNT),
                    "df_error": (effect.df_error, COUNT),
                    "p_ranks": (effect.p_ranks, PROBABILITY),
                    "p_values": (effect.p_values, PROBABILITY),
                    "p": (effect.p, PROBABILITY),
                    "p_adjusted": (effect.p_holm, PROBABILITY),
                }
                notes = {"partial_eta_squared": "shown" if effect.shown else ""}
                shown = self._figures(place, f"{one.parameter}.aligned_ranks", figures, notes)
                rows.append(Row((PARAMETERS[one.parameter], effect_name(effect.factors)), "", tuple(shown)))
        columns = ("η²", "F", "df", "df of error", "p of ranks", "p of values", "p", "p, adjusted")
        yield from table_of(title, ("Parameter", "Factors"), columns, rows, folded=True)

    def pairs(self, found: ProbeFactors, labels: Labels, title: str) -> Iterator[Table]:
        """A row for each pair of levels, with each parameter's tests beside each other."""
        by_pair: dict[tuple[str, str, str], dict[str, PairTest]] = {}
        for one in found.parameters:
            for test in one.tests:
                for pair in test.pairs:
                    by_pair.setdefault((test.factor, pair.first, pair.second), {})[one.parameter] = pair
        rows = []
        for (factor, first, second), pairs in sorted(by_pair.items(), key=lambda item: -FACTORS.index(item[0][0])):
            shown: list[Shown] = []
            for name in PARAMETERS:
                shown += self._pair(factor, name, pairs.get(name))
            said = f"{_name(first, labels)} against {_name(second, labels)}"
            rows.append(Row((factor, said), "", tuple(shown)))
        columns = [Column(part, name) for name in PARAMETERS.values() for part in ("δ", "z", "p, adjusted")]
        yield from table_of(title, ("Factor", "Pair"), columns, rows, folded=True)

    def _pair(self, factor: str, parameter: str, pair: PairTest | None) -> Sequence[Shown]:
        if pair is None:
            return (None, None, None)
        place = self.context.place("*", "", pair.second, factor=factor, level=pair.first)
        name = f"{parameter}.dunn"
        hint = "" if pair.delta.point is None else f"{magnitude(pair.delta.point)} effect"
        note = "not ranked" if pair.emulated else "shown" if pair.shown else ""
        delta = self.context.of(f"{self.prefix}.{name}.delta", place, pair.delta, COUNT)
        figures = {"z": (pair.z, COUNT), "p": (pair.p, PROBABILITY)}
        return (dataclasses.replace(delta, hint=hint, note=note), *self._figures(place, name, figures, {}))

"""The tests of factors in plain sentences."""

from __future__ import annotations

from collections.abc import Mapping

from virtgauge.report.timing.factors import EffectTest, FactorTest, PairTest, ParameterFactors
from virtgauge.report.words import NONE

PARAMETERS = {"p50": "median", "half_iqr": "half IQR", "max": "maximum", "min": "minimum"}
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

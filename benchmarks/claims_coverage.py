"""How often the engine of claims confirms or contradicts what stands exactly at its bound, relation by relation.

At the bound either verdict is false: by the least change of the truth one of them would be, and one may be as far off
as the other.  Figures that are equal stand in no order: to contradict one is right.  The figures are those of one arm,
so that no identical arms (A/A) hold a verdict back.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from virtgauge.claims.engine import judge
from virtgauge.claims.figures import Figure, Figures, measured
from virtgauge.claims.model import ClaimFile, Level
from virtgauge.claims.verdicts import Verdict
from virtgauge.plan.requirements import Budget

Values = npt.NDArray[np.float64]

_LOOKED = Budget(repetitions=64, claims=True)
LOOKS = _LOOKED.looks(8)  # After how many repetitions a replay judges
PART = 4  # Judging at all looks takes so long that there is one run of so many
_FACTORS = {"function": "{}", "load": "{}", "at": "at {:g}"}


@dataclasses.dataclass(frozen=True)
class Null:
    """A claim whose truth lies at its bound: the levels of its figures, and what each is of the common truth."""

    test: Mapping[str, Any]
    figures: Mapping[tuple[Level, ...], float]  # by the levels of ``factors``
    factors: tuple[str, ...] = ("function",)
    difference: float = 0.0  # so much of the common truth is added to the bound, which is a share of it


def _bound_of(number: int) -> Null:
    return Null({"relation": "bound", "at_most": 1.0}, {(f"f{place}",): 1.0 for place in range(number)})


def _four(upper: float) -> dict[tuple[Level, ...], float]:
    """Two functions under two loads: what the second function costs more when busy."""
    return {("a", "idle"): 1.0, ("a", "busy"): 1.5, ("b", "idle"): 2.0, ("b", "busy"): 3.0 * upper}


_BUSY: dict[str, Any] = {"of": {"load": "busy"}, "to": {"load": "idle"}}
_TWO = ("function", "load")
_LEVELS: dict[tuple[Level, ...], float] = {("a",): 1.0, ("b",): 1.0, ("c",): 1.0}

NULLS: Mapping[str, Null] = {
    "bound": _bound_of(1),
    "bound, each of 6 figures": _bound_of(6),
    "ratio": Null(
        {"relation": "ratio", "of": {"function": "b"}, "to": {"function": "a"}, "at_least": 1.3},
        {("a",): 1.0, ("b",): 1.3},
    ),
    "ratio, of the highest of 3": Null(
        {"relation": "ratio", "of": {"function": ("b", "c", "d")}, "to": {"function": "a"}, "at_least": 1.3}
        | {"of_which": "highest"},
        {("a",): 1.0, ("b",): 1.3, ("c",): 1.3, ("d",): 1.3},
    ),
    "difference": Null(
        {"relation": "difference", "of": {"function": "b"}, "to": {"function": "a"}, "at_least": 0},
        {("a",): 1.0, ("b",): 1.0},
    ),
    "order of 2": Null(
        {"relation": "order", "factor": "function", "descending": ("b", "a")}, {("a",): 1.0, ("b",): 1.0}
    ),
    "order of 3": Null({"relation": "order", "factor": "function", "descending": ("c", "b", "a")}, _LEVELS),
    "spread over 3, at least": Null(
        {"relation": "spread", "factor": "function", "at_least": 1.3}, {("a",): 1.0, ("b",): 1.0, ("c",): 1.3}
    ),
    "spread over 3, at most": Null(
        {"relation": "spread", "factor": "function", "at_most": 1.3}, {("a",): 1.0, ("b",): 1.3, ("c",): 1.3}
    ),
    "spread over 2, at most, in each of 12 groups": Null(
        {"relation": "spread", "factor": "function", "at_most": 1.3},
        {(name, float(at)): cost for at in range(12) for name, cost in (("a", 1.0), ("b", 1.3))},
        ("function", "at"),
    ),
    "equivalence": Null({"relation": "equivalence", "across": "function", **_BUSY, "at_most": 1.3}, _four(1.3), _TWO),
    "change": Null({"relation": "change", "across": "function", "level": "b", **_BUSY}, _four(1.0), _TWO),
    "steeper": Null(
        {"relation": "steeper", "of": {"function": "a", "load": "busy"}, "to": {"function": "a", "load": "idle"}}
        | {"than_of": {"function": "b", "load": "busy"}, "than_to": {"function": "b", "load": "idle"}},
        _four(1.0),
        _TWO,
    ),
    "line": Null(
        {"relation": "line", "factor": "at", "at_least": 0.9},
        # a line, and a bend across it by which it explains 0.9 of the variance
        {(float(at),): 1 + 0.2 * at + 0.2 * 5**0.5 / 6 * bend for at, bend in enumerate((1, -1, -1, 1))},
        ("at",),
    ),
    "mixed": Null(
        {"relation": "mixed", "factor": "function", "across": "load"},
        {("a", "idle"): 2.0, ("b", "idle"): 1.0, ("a", "busy"): 3.0, ("b", "busy"): 3.0},
        _TWO,
    ),
    "effect (Kruskal–Wallis), 3 levels": Null(
        {"relation": "significance", "factors": ("function",), "significant": ("cost",)}, _LEVELS
    ),
    "effect (Dunn), 1 pair of 3": Null(
        {"relation": "significance", "factors": ("function",), "pairs": (("a", "b"),), "significant": ("cost",)},
        _LEVELS,
    ),
    "effect (interaction), 2 × 2": Null(
        {"relation": "significance", "factors": _TWO, "significant": ("cost",)}, _four(1.0), _TWO
    ),
    "no effect, 3 levels that are equal": Null(
        {"relation": "significance", "factors": ("function",), "insignificant": ("cost",)}, _LEVELS
    ),
    "no effect, levels at the margin": Null(
        {"relation": "significance", "factors": ("function",), "insignificant": ("cost",)},
        {("a",): 1.0, ("b",): 1.0, ("c",): 1.25},
    ),
}
STRICT = ("difference", "order of 2", "order of 3", "change", "steeper")
"""What states more than none, so that figures which are equal contradict it."""
ALIKE = "no effect, 3 levels that are equal"
APART = "no effect, levels at the margin"


def true_verdict(name: str, tied: bool) -> Verdict | None:
    """The verdict that is not false: of no effect where there is none, and of figures that are tied at a bound."""
    if name.startswith("effect"):  # there is none
        return Verdict.CONTRADICTED
    if name in (ALIKE, APART):
        return Verdict.CONFIRMED if name == ALIKE else Verdict.CONTRADICTED
    if not tied and not name.startswith("order"):  # equal figures stand in none
        return None
    return Verdict.CONTRADICTED if name in STRICT else Verdict.CONFIRMED


def false_verdicts(name: str, looks: Sequence[int], truth: float, tied: bool) -> Callable[[Values], bool]:
    """Whether a run, one row of repetitions for each figure, is judged falsely at any of these looks."""
    null = NULLS[name]
    bounds = {end: null.test[end] * truth for end in ("at_least", "at_most") if end in null.test}
    relation = null.test["relation"]
    test = dict(null.test) | (bounds if relation in ("bound", "difference") else {})
    if relation != "significance":
        test["measure"] = "cost"
    file = ClaimFile.model_validate(
        {
            "measures": {"cost": {"title": "cost", "unit": "ns"}},
            "factors": _FACTORS,
            "claim": [{"name": "claim", "where": "", "text": "", "tests": [test]}],
        }
    )
    nominal = 0.95 if len(looks) == 1 else _LOOKED.claims_confidence(0.95, looks[0])
    wrong = {Verdict.CONFIRMED, Verdict.CONTRADICTED} - {true_verdict(name, tied)}
    places = [dict(zip(null.factors, levels, strict=True)) for levels in null.figures]
    factors = [*null.figures.values()]

    def is_false(run: Values) -> bool:
        for look in looks:
            figures = []
            for levels, factor, row in zip(places, factors, run, strict=False):
                values = dict(enumerate((factor * row[:look]).tolist()))
                figures.append(Figure("cost", levels, measured(values, "ns", nominal), values))
            if judge(file.claim[0], Figures(file, figures, nominal)).verdict in wrong:
                return True
        return False

    return is_false


def runs_of(p50: Values, name: str, looks: Sequence[int], rng: np.random.Generator) -> Values:
    """Repetitions for every figure of a claim: shape (runs, figures, repetitions)."""
    p50 = p50[:: 1 if len(looks) == 1 else min(PART, max(len(p50) // 20, 1))]
    drawn = p50.ravel()[rng.integers(0, p50.size, (len(p50), len(NULLS[name].figures), looks[-1]))]
    return np.asarray(drawn, dtype=np.float64)


_LOOKED_AT = {
    **dict.fromkeys(("bound", "ratio", "order of 2", "spread over 3, at least"), LOOKS),
    # The exact p of more guests takes too long; the confidence is that of all four looks.
    **dict.fromkeys(("effect (Kruskal–Wallis), 3 levels", ALIKE), LOOKS[:2]),
}
ROWS: Mapping[str, tuple[str, tuple[int, ...]]] = {
    **{name: (name, (12,)) for name in NULLS},
    **{f"{name}; after {', '.join(map(str, looks))}": (name, looks) for name, looks in _LOOKED_AT.items()},
}
"""Each relation by itself, and some at any of a replay's looks: the null's name, and the repetitions of each look."""

"""How large a difference is, whatever its p: ε² for several groups, Cliff's δ for two.

ε² is H/(N−1), the share of the ranks' variance that the groups explain: M. Tomczak & E. Tomczak (2014), "The need to
report effect size estimates revisited", Trends in Sport Sciences 1(21): 19-25.

δ is P(X > Y) − P(X < Y): N. Cliff (1993), "Dominance Statistics: Ordinal Analyses to Answer Ordinal Questions",
Psychological Bulletin 114(3): 494-509.  Its interval is the asymmetric one of N. Cliff (1996), "Ordinal Methods for
Behavioral Data Analysis", eq. 5.12, with Student's t (D. Feng & N. Cliff 2004, Journal of Modern Applied Statistical
Methods 3(2): 322-332).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from virtgauge.analysis.estimate import Estimate

Values = npt.NDArray[np.float64]
Signs = npt.NDArray[np.int8]

_MAGNITUDES = ((0.147, "negligible"), (0.33, "small"), (0.474, "medium"))


def epsilon_squared(h: float, n: int) -> float:
    """The share of the variance of n ranks that the groups of a Kruskal–Wallis test explain: 0…1."""
    if n < 2:
        raise ValueError("needs at least two values")
    return h / (n - 1)


def magnitude(delta: float) -> str:
    """A δ in words: negligible, small, medium, large (J. Romano et al. 2006, as R's effsize has it)."""
    return next((word for bound, word in _MAGNITUDES if abs(delta) < bound), "large")


def dominance(x: Values, y: Values) -> Signs:
    """1 where x is larger than y, −1 where smaller, 0 where equal or where one of them is NaN; shape (x, y)."""
    rows, columns = np.asarray(x)[:, None], np.asarray(y)[None, :]
    signs: Signs = (rows > columns).view(np.int8)
    signs -= (rows < columns).view(np.int8)
    return signs


def stratified_delta(strata: Sequence[tuple[Mapping[int, float], Mapping[int, float]]], confidence: float) -> Estimate:
    """Cliff's δ within strata: like is compared with like, and the strata's dominance averaged.

    Two platforms that are measured with several functions under several loads are compared within each function and
    load.  The repetitions stay the units: for repetition i of one and j of the other, the dominance is the mean over
    all strata that both have, and the variance is taken over those means.  So whatever a repetition's values have
    in common is counted once.  With a single stratum this is Cliff's δ of two samples.

    Args:
        strata: for each, the values of the two sides by repetition.
        confidence: of the interval, in 0…1.
    """
    first = sorted({unit for x, _ in strata for unit in x})
    second = sorted({unit for _, y in strata for unit in y})
    if not first or not second:
        return Estimate.missing("delta", "nothing to compare")
    # Small integers: with thousands of repetitions, these matrices are what a report takes its time and memory for.
    total, known = np.zeros((len(first), len(second)), np.int32), np.zeros((len(first), len(second)), np.int32)
    whole = 0
    for one, other in strata:
        x = np.array([one.get(unit, math.nan) for unit in first])
        y = np.array([other.get(unit, math.nan) for unit in second])
        total += dominance(x, y)
        x_there, y_there = ~np.isnan(x), ~np.isnan(y)
        if x_there.all() and y_there.all():
            whole += 1
        else:
            known += np.logical_and.outer(x_there, y_there)
    if whole == len(strata):
        return _delta_of(total, whole, confidence)
    known += whole
    # A repetition that shares no stratum with some repetition of the other side cannot be averaged over it.
    rows = known.all(axis=1)
    if not rows.any():
        return Estimate.missing("delta", "the two have no cell in common")
    return _delta_of(total[rows] / known[rows], 1, confidence)


def _delta_of(signs: npt.NDArray[Any], of: int, confidence: float) -> Estimate:
    """δ and its interval from a matrix of dominance, which is ``signs`` divided by ``of``; shape (n₁, n₂)."""
    n1, n2 = signs.shape
    delta, units = float(signs.mean(dtype=np.float64)) / of, min(n1, n2)
    if units < 2:
        return Estimate.bare(delta, "delta", "a single repetition: no interval", units)
    critical = float(special.stdtrit(n1 + n2 - 2, 0.5 + confidence / 2))
    low, high = asymmetric_interval(delta, _variance(signs, of, delta), critical, units)
    return Estimate(delta, low, high, confidence, units, "delta", "Cliff's asymmetric interval, Student's t")


def _variance(signs: npt.NDArray[Any], of: int, delta: float) -> float:
    """Cliff's unbiased estimate of the variance of δ (1996, chapter 5), never below (1 − δ²)/(n₁n₂ − 1)."""
    n1, n2 = signs.shape
    rows = float(((signs.mean(axis=1, dtype=np.float64) / of - delta) ** 2).sum())
    columns = float(((signs.mean(axis=0, dtype=np.float64) / of - delta) ** 2).sum())
    squares = float(np.einsum("ij,ij->", signs, signs, dtype=np.float64)) / of**2
    single = max(squares - signs.size * delta**2, 0.0)
    unbiased = (n2**2 * rows + n1**2 * columns - single) / (n1 * n2 * (n1 - 1) * (n2 - 1))
    return max(float(unbiased), (1 - delta * delta) / (signs.size - 1))


def asymmetric_interval(delta: float, variance: float, critical: float, units: int) -> tuple[float, float]:
    """Cliff's interval, which stays within −1…1.

    Where the samples are wholly apart (|δ| = 1) the estimated variance is 0, and would promise certainty after three
    repetitions.  Then the open end is the δ for which 1 − |δ| equals ``critical`` standard deviations at the greatest
    variance that δ can have, (1 − δ²)/units: (units − critical²)/(units + critical²).
    """
    if abs(delta) >= 1 - 1e-12:
        open_end = (units - critical**2) / (units + critical**2)
        return (open_end, 1.0) if delta > 0 else (-1.0, -open_end)
    reach = critical * math.sqrt(variance) * math.sqrt((1 - delta**2) ** 2 + critical**2 * variance)
    denominator = 1 - delta**2 + critical**2 * variance
    return (delta - delta**3 - reach) / denominator, (delta - delta**3 + reach) / denominator

"""Interactions of factors on ranks: the aligned rank transform and its analysis of variance.

Ranks of raw values cannot test an interaction: ranking itself makes and hides some.  So for each effect the values
are first *aligned* (all other effects, as estimated from means, are taken off), then ranked, and the analysis of
variance of these ranks is read for that one effect only.  J. J. Higgins & S. Tashtoush (1994), "An aligned rank
transform test for interaction", Nonlinear World 1: 201-211; J. O. Wobbrock, L. Findlater, D. Gergle & J. J. Higgins
(2011), "The Aligned Rank Transform for Nonparametric Factorial Analyses Using Only ANOVA Procedures", CHI '11: 143-146.

Effects are additive ones, in the unit of the values: a platform that doubles every cost interacts with the function,
unless the values are logarithms.

**Unequal spread.**  The transform is not to be trusted alone.  What chance leaves in the means of a noisy cell is taken
off or added in the quiet cells too, all of whose ranks it moves together: with cells of ten times the others' spread,
half of all tests at 5 % find an interaction where there is none (the tests of this module count it).  The ordinary
analysis of variance of the same values keeps near its level there, within units as corrected below, but not for heavy
tails.  So whoever calls an effect shown asks for both: :func:`aligned_rank_anova` and :func:`anova`.

The repetitions of a cell may be independent, or one unit (a guest) may have been measured in several cells.  Then
what distinguishes units is tested against the variation between units, and everything else against how much units of
one kind differ in just that: the split-plot analysis of Higgins, Blair & Tashtoush (1990), "The Aligned Rank Transform
Procedure", Conference on Applied Statistics in Agriculture.  Pooled over all effects within units, the error would
be too small for those in which guests differ most.

F assumes *sphericity* of an effect with several degrees of freedom within units: all its contrasts are to vary alike
from unit to unit.  Where cells spread unequally they do not, and both analyses together find too much, a tenth at 5 %
with one load of three five times as noisy.  So p is that of degrees of freedom multiplied by ε (those told are not):
S. W. Greenhouse & S. Geisser (1959), "On methods in the analysis of profile data", Psychometrika 24: 95-112.  It errs
on the side of finding too little, most with three units; Huynh and Feldt's ε, which does less, still finds too much.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Collection, Sequence

import numpy as np
from scipy import special

from virtgauge.analysis.estimate import Values
from virtgauge.analysis.ranks import midranks

MOST_FACTORS = 3

_SAME = 10
"""Decimals, relative to the largest value, in which aligned values must agree to count as tied: the subtraction of
means leaves rounding errors behind, and ranks would take them for an order."""


@dataclasses.dataclass(frozen=True)
class Effect:
    """One main effect or interaction."""

    factors: tuple[int, ...]  # the axes that it is an effect of
    f: float  # the ratio of variances; infinite where the repetitions of every cell are tied
    # df, df_error: degrees of freedom, before p multiplies them by ε
    df: int
    df_error: int
    p: float  # of such an F or a larger one where there is no such effect
    partial_eta_squared: float  # SS(effect) / (SS(effect) + SS(its error)): 0…1


def aligned_rank_anova(
    values: Values, between: Collection[int], effects: Sequence[tuple[int, ...]] = ()
) -> tuple[Effect, ...]:
    """Every main effect and interaction of a balanced full factorial of one to three factors.

    Args:
        values: an axis for each factor and a last one for the repetitions: shape (levels…, n), n ≥ 2.
        between: place r of the last axis is one unit for each combination of levels of *these* factors, and was
            measured at every level of the others.  ``()``: n units in all, each measured in every cell; all of them:
            every value is from a unit of its own.
        effects: those wanted alone, each by its axes in ascending order; all of them where none is named.

    Returns main effects first, then pairs, then all three; or those that were named, in their order.  Raises
    ValueError: there is no such design: a missing value (nothing is filled in), an unreplicated cell, a factor of one
    level, more than three factors.
    """
    units = _units(values, between)
    return tuple(_effect(midranks(align(values, effect)), effect, units) for effect in effects or _effects(values))


def anova(values: Values, between: Collection[int], effects: Sequence[tuple[int, ...]] = ()) -> tuple[Effect, ...]:
    """The ordinary analysis of variance of the same design: same arguments, same order, no ranks."""
    units = _units(values, between)
    centred = values - values.mean()
    return tuple(_effect(centred, effect, units) for effect in effects or _effects(values))


def align(values: Values, effect: tuple[int, ...]) -> Values:
    """Values with every effect but one taken off: the residual in the cell, and the estimate of that effect."""
    aligned = values - values.mean(axis=-1, keepdims=True) + _estimate(values, effect)
    scale = float(np.abs(values).max()) or 1.0
    return np.asarray(np.round(aligned / scale, _SAME) + 0.0, dtype=np.float64)  # + 0.0: no negative zero


def single_value_p(values: Values, factors: tuple[int, ...]) -> float:
    """The p of an effect on the ranks of a full factorial with one value a cell: the interaction of all is its error.

    Values have an axis for each factor; the effect's are some of them, not all.
    """
    ranked = midranks(values)[..., None]
    every = tuple(range(values.ndim))
    ss, ss_error = ((_estimate(ranked, axes) ** 2 * np.ones_like(ranked)).sum() for axes in (factors, every))
    df, df_error = (math.prod(values.shape[axis] - 1 for axis in axes) for axes in (factors, every))
    return float(special.fdtrc(df, df_error, (ss / df) / (ss_error / df_error))) if ss_error else float(not ss)


def _estimate(values: Values, effect: tuple[int, ...], each: tuple[int, ...] = ()) -> Values:
    """The estimated effect, of marginal means that are centred along each of its axes, at ``each`` place of others.

    Its shape has 1 for all other axes.
    """
    estimate = values.mean(axis=tuple({*range(values.ndim)} - {*effect, *each}), keepdims=True)
    for axis in effect:
        estimate = estimate - estimate.mean(axis=axis, keepdims=True)
    return np.asarray(estimate, dtype=np.float64)


def _effects(values: Values) -> list[tuple[int, ...]]:
    axes = range(values.ndim - 1)
    return [effect for size in range(1, values.ndim) for effect in itertools.combinations(axes, size)]


def _effect(values: Values, effect: tuple[int, ...], units: tuple[int, ...]) -> Effect:
    levels, n = values.shape[:-1], values.shape[-1]
    ss = float((_estimate(values, effect) ** 2).sum()) * values.size / math.prod(levels[axis] for axis in effect)
    df = math.prod(levels[axis] - 1 for axis in effect)
    within = tuple(axis for axis in effect if axis not in units)
    rest = _estimate(values - values.mean(axis=-1, keepdims=True), within, (*units, len(levels)))
    df_error = math.prod(levels[axis] for axis in units) * (n - 1) * math.prod(levels[axis] - 1 for axis in within)
    ss_error = float((rest**2).sum()) * values.size / rest.size
    negligible = 1e-12 * float(((values - values.mean()) ** 2).sum())
    if ss <= negligible:
        return Effect(effect, 0.0, df, df_error, 1.0, 0.0)
    if ss_error <= negligible:
        return Effect(effect, math.inf, df, df_error, 0.0, 1.0)
    f, epsilon = (ss / df) / (ss_error / df_error), _epsilon(rest, within)
    p = float(special.fdtrc(epsilon * df, epsilon * df_error, f))
    return Effect(effect, f, df, df_error, p, ss / (ss + ss_error))


def _epsilon(rest: Values, within: tuple[int, ...]) -> float:
    """Greenhouse and Geisser's ε, of what units of all kinds differ in: from 1 / df (of the effect within units) to 1.

    Centred along each axis, ``rest`` has the covariance of orthonormal contrasts, but for a rotation and zeros.
    """
    levels = [rest.shape[axis] for axis in within]
    by_cell = np.moveaxis(rest, within, range(len(within))).reshape(math.prod(levels), -1)
    covariance = by_cell @ by_cell.T
    df = math.prod(count - 1 for count in levels)
    return float(covariance.trace() ** 2 / (df * (covariance**2).sum()))


def _units(values: Values, between: Collection[int]) -> tuple[int, ...]:
    factors = values.ndim - 1
    if not 1 <= factors <= MOST_FACTORS:
        raise ValueError(f"one to {MOST_FACTORS} factors, not {factors}")
    if min(values.shape[:-1]) < 2:
        raise ValueError("a factor needs at least two levels")
    if values.shape[-1] < 2:
        raise ValueError("a single value in each cell: an interaction cannot be told from chance")
    if not np.isfinite(values).all():
        raise ValueError("a cell lacks a value: alignment needs the whole balanced design")
    if not set(between) <= set(range(factors)):
        raise ValueError(f"between must name factors, not {sorted(between)}")
    return tuple(sorted(set(between)))

"""How a total load is divided among N guests, and how fair that is (Batalla et al. 2016, section 3, equations 1 to 6).

A load vector is the guests' shares of the total load, in the guests' order; the shares add up to 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Shares = tuple[float, ...]


def two_level_shares(guests: int, strong: int, light_share: float) -> Shares:
    """The paper's vector: the first k guests strongly loaded, the others slightly (equations 3 and 4, for O_tot = 1).

    Args:
        guests: N.
        strong: k, from 1 to N; at k = N every guest has 1/N.
        light_share: q, the part of the load that all slightly loaded guests together carry.

    Raises:
        ValueError: k or q is out of range, or q would load the light guests more than the strong ones.
    """
    _check(guests, strong, light_share)
    if strong == guests:
        return equal_shares(guests)
    heavy, light = (1 - light_share) / strong, light_share / (guests - strong)
    if light > heavy:
        raise ValueError(
            f"q = {light_share:g} gives each slightly loaded guest more than each of the k = {strong} strongly loaded "
            f"ones; with N = {guests} it must be at most {(guests - strong) / guests:g}"
        )
    return (heavy,) * strong + (light,) * (guests - strong)


def equal_shares(guests: int) -> Shares:
    """Every guest the same.

    Raises:
        ValueError: there is no guest.
    """
    if guests < 1:
        raise ValueError(f"N = {guests}: there must be at least one guest")
    return (1 / guests,) * guests


def zipf_shares(guests: int, exponent: float) -> Shares:
    """Guest number i (from 1) in proportion to i to the power of -exponent: a few large, a long tail of small.

    Raises:
        ValueError: there is no guest, or the exponent is negative or not finite.
    """
    if guests < 1:
        raise ValueError(f"N = {guests}: there must be at least one guest")
    if not (math.isfinite(exponent) and exponent >= 0):
        raise ValueError(f"exponent = {exponent:g}: it must be a number of at least 0")
    return shares_of([rank**-exponent for rank in range(1, guests + 1)])


def shares_of(weights: Sequence[float]) -> Shares:
    """A user's own vector: weights of any scale, brought to a sum of 1.

    Raises:
        ValueError: there is none, one is negative or not finite, or all are 0.
    """
    if not weights:
        raise ValueError("there must be at least one weight")
    if any(not math.isfinite(weight) or weight < 0 for weight in weights):
        raise ValueError("a weight must be a number of at least 0")
    total = math.fsum(weights)
    if total <= 0:
        raise ValueError("at least one weight must be above 0")
    return tuple(weight / total for weight in weights)


def jain_index(loads: Sequence[float]) -> float:
    """Jain's fairness index of loads or shares (equation 2): from 1/N (all on one guest) to 1 (all alike).

    Raises:
        ValueError: there is no load at all.
    """
    squares = math.fsum(load * load for load in loads)
    if squares <= 0:
        raise ValueError("the fairness of no load at all is not defined")
    return math.fsum(loads) ** 2 / (len(loads) * squares)


def _check(guests: int, strong: int, light_share: float) -> None:
    if guests < 1:
        raise ValueError(f"N = {guests}: there must be at least one guest")
    if not 1 <= strong <= guests:
        raise ValueError(f"k = {strong}: the number of strongly loaded guests must be from 1 to N = {guests}")
    if not 0 <= light_share < 1:
        raise ValueError(f"q = {light_share:g}: the light guests' part of the load must be at least 0 and below 1")

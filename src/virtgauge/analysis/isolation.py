"""What a guest is entitled to beside its neighbours, and the smallest share that gives it what it needs.

Water-filling, as max-min fairness is computed (Bertsekas and Gallager, Data Networks, 6.5.2): everybody's level rises
at the speed of its weight until its cap is reached or nothing is left.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Claim:
    """What one guest wants, and what it may have; in whole CPUs."""

    demand: float  # that it would use if it were alone (threads that always run)
    limit: float | None = None  # it gets no more, even of what nobody else wants; None is no limit
    weight: float = 1.0  # its part of what is shared, relative to the others'

    @property
    def cap(self) -> float:
        return self.demand if self.limit is None else min(self.demand, self.limit)


def entitled_cpus(claims: Sequence[Claim], capacity: float) -> list[float]:
    """What each of the guests that share the processors is entitled to, in whole CPUs."""
    total = min(capacity, sum(claim.cap for claim in claims))

    def filled(level: float) -> list[float]:
        return [min(level * claim.weight, claim.cap) for claim in claims]

    # The sum rises with the level, in straight pieces between levels where a guest meets its cap.
    corners = sorted({0.0} | {claim.cap / claim.weight for claim in claims})
    for low, high in itertools.pairwise(corners):
        above = sum(filled(high))
        if above >= total:
            below = sum(filled(low))
            part = 1.0 if above == below else (total - below) / (above - below)
            return filled(low + part * (high - low))
    return filled(corners[-1])


def smallest_setting(points: Sequence[tuple[float, float]], target: float) -> float | None:
    """The smallest share from which on every measured efficiency reaches the target.

    ``points`` are shares with the efficiency at each (for instance the lower end of its interval), in any order.
    Between the last share that misses and the first that does not, the efficiency is taken to change evenly.  No
    statement is made beyond what was measured: where even the smallest share reaches the target, it is the answer; None
    where the largest one misses it, or there is none at all.
    """
    ordered = sorted(points)
    if not ordered or ordered[-1][1] < target:
        return None
    missing = [index for index, (_, efficiency) in enumerate(ordered) if efficiency < target]
    if not missing:
        return ordered[0][0]
    (low, below), (high, above) = ordered[missing[-1]], ordered[missing[-1] + 1]
    return low + (high - low) * (target - below) / (above - below)

"""What share of the processors each of several guests is entitled to, by its limit, its reservation and its weight.

Water-filling, as max-min fairness is computed (Bertsekas and Gallager, Data Networks, 6.5.2): everybody's level rises
at the speed of its weight until its cap is reached or nothing is left; nobody's is below its reservation.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Claim:
    """What one guest wants, and what it may have; in whole CPUs.

    Attributes:
        demand: that it would use if it were alone (threads that always run).
        limit: it gets no more, even of what nobody else wants; None is no limit.
        reservation: it gets no less while it wants it.
        weight: its part of what is shared, relative to the others'.

    Raises:
        ValueError: a negative amount, or a weight that is not positive.
    """

    demand: float
    limit: float | None = None
    reservation: float = 0.0
    weight: float = 1.0

    def __post_init__(self) -> None:
        if self.demand < 0 or self.reservation < 0 or (self.limit is not None and self.limit < 0):
            raise ValueError(f"a claim has no negative amounts: {self}")
        if not self.weight > 0:
            raise ValueError(f"a weight is positive, not {self.weight}")

    @property
    def cap(self) -> float:
        """The most that it can use."""
        return self.demand if self.limit is None else min(self.demand, self.limit)

    @property
    def floor(self) -> float:
        """The least that it is promised, of what it can use."""
        return min(self.reservation, self.cap)


def entitled_cpus(claims: Sequence[Claim], capacity: float) -> list[float]:
    """What each guest is entitled to, in whole CPUs.

    Reservations that exceed the capacity together are cut in proportion.

    Args:
        claims: of all the guests that share the processors.
        capacity: processors that they share.

    Raises:
        ValueError: a capacity that is not positive.
    """
    if not capacity > 0:
        raise ValueError(f"there is no capacity to share: {capacity}")
    floors = [claim.floor for claim in claims]
    promised = sum(floors)
    if promised > capacity:
        return [floor * capacity / promised for floor in floors]
    total = min(capacity, sum(claim.cap for claim in claims))

    def filled(level: float) -> list[float]:
        return [min(max(level * claim.weight, floor), claim.cap) for claim, floor in zip(claims, floors, strict=True)]

    # The sum rises with the level, in straight pieces between levels where a guest leaves its floor or meets its cap.
    corners = sorted(
        {0.0}
        | {floor / claim.weight for claim, floor in zip(claims, floors, strict=True)}
        | {claim.cap / claim.weight for claim in claims}
    )
    for low, high in itertools.pairwise(corners):
        above = sum(filled(high))
        if above >= total:
            below = sum(filled(low))
            part = 1.0 if above == below else (total - below) / (above - below)
            return filled(low + part * (high - low))
    return filled(corners[-1])

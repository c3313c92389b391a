"""Where lost frames went: every one is set against a counter that admits to have dropped it.

The tester counts losses by flow; rings, backlogs, switch ports and guests count what they dropped.  The ledger
closes when both agree.  When it does not, frames vanished at a place that nobody watches, or the counters saw traffic
that is not ours; either way the figures cannot be trusted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence


@dataclasses.dataclass(frozen=True)
class DropCounter:
    """What one place dropped between two readings.

    Attributes:
        place: ``br0 port to guest 3``, ``guest 3 backlog``, ``tester receive ring`` …
        dropped: frames.
        flow: the one whose frames alone pass there; None where all flows do.
    """

    place: str
    dropped: int
    flow: int | None = None


@dataclasses.dataclass(frozen=True)
class LossAccounting:
    """Losses and their places.

    Attributes:
        lost: frames that the tester missed, of all flows.
        places: frames by the place that dropped them; only places that dropped any.
        unattributed: lost frames that no counter explains, summed over flows.
        excess: frames that counters dropped but the tester does not miss.
        tolerance: frames by which both may be off.
    """

    lost: int
    places: Mapping[str, int]
    unattributed: int
    excess: int
    tolerance: int

    @property
    def closed(self) -> bool:
        """Whether every lost frame is attributed."""
        return max(self.unattributed, self.excess) <= self.tolerance


def add_accountings(ledgers: Sequence[LossAccounting]) -> LossAccounting:
    """The sum over trials.  Each has to close by itself: a large loss that is explained must not hide a small one."""
    places: dict[str, int] = {}
    for ledger in ledgers:
        for place, frames in ledger.places.items():
            places[place] = places.get(place, 0) + frames
    return LossAccounting(
        lost=sum(ledger.lost for ledger in ledgers),
        places=places,
        unattributed=sum(ledger.unattributed for ledger in ledgers if not ledger.closed),
        excess=sum(ledger.excess for ledger in ledgers if not ledger.closed),
        tolerance=0,
    )


def close_accounting(
    lost_by_flow: Sequence[int], counters: Sequence[DropCounter], *, tolerance_share: float = 0.0
) -> LossAccounting:
    """Set losses against counters: a flow's own first, what remains against those that all flows share.

    Args:
        tolerance_share: part of the lost frames by which the sums may differ, for counters that are read while
            frames are still under way.

    Raises:
        ValueError: a counter went backwards, a loss is negative, or a counter names a flow that there is not.
    """
    if any(lost < 0 for lost in lost_by_flow):
        raise ValueError("a flow cannot lose fewer than no frames")
    remaining = list(lost_by_flow)
    shared = 0
    places: dict[str, int] = {}
    excess = 0
    for counter in counters:
        if counter.dropped < 0:
            raise ValueError(f"the counter of {counter.place} went backwards by {-counter.dropped}")
        if counter.dropped:
            places[counter.place] = places.get(counter.place, 0) + counter.dropped
        if counter.flow is None:
            shared += counter.dropped
        elif not 0 <= counter.flow < len(remaining):
            raise ValueError(f"the counter of {counter.place} names flow {counter.flow} of {len(remaining)}")
        else:
            remaining[counter.flow] -= counter.dropped
    excess = -sum(left for left in remaining if left < 0)
    open_losses = sum(left for left in remaining if left > 0)
    lost = sum(lost_by_flow)
    return LossAccounting(
        lost=lost,
        places=places,
        unattributed=max(open_losses - shared, 0),
        excess=excess + max(shared - open_losses, 0),
        tolerance=int(lost * tolerance_share),
    )

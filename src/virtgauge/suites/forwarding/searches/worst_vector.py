"""Which load vector is the worst: the one by which the device forwards least.

A platform should be compared at its worst working point (Batalla et al. 2016, section 3.1), and which one that is
depends on the platform.  Each vector is first challenged with the lowest throughput found so far: only one that does
not carry it can be worse, and only then its own search is made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from virtgauge.suites.forwarding.searches.base import Limits, Search, SearchResult
from virtgauge.suites.forwarding.trial import Device


@dataclasses.dataclass(frozen=True)
class WorstVector:
    """The outcome.

    Attributes:
        name: of the worst vector.
        result: of its search.
        searched: names of the vectors that needed a search of their own, in order; the others carried what the
            worst one of then did.
    """

    name: str
    result: SearchResult
    searched: tuple[str, ...]


async def find_worst(
    devices: Mapping[str, Device],
    search: Search,
    limits: Limits,
    *,
    challenge_s: float,
    on_vector: Callable[[int], None] = lambda _: None,
) -> WorstVector:
    """Search the vectors in their order; those expected to be bad first need fewest searches.

    Args:
        devices: the same device by each vector.
        challenge_s: length of the trial that spares a search; up to two more of them are made where there is loss.
        on_vector: told how many vectors are decided.

    Raises:
        ValueError: there is no vector.
        SearchError: a search did not come to an end.
    """
    worst: tuple[str, SearchResult] | None = None
    searched: list[str] = []
    for done, (name, device) in enumerate(devices.items()):
        on_vector(done)
        if worst is not None and await _carries(device, worst[1].ndr.rate_pps, challenge_s):
            continue
        searched.append(name)
        result = await search.run(device, limits)
        if worst is None or (result.ndr.rate_pps or 0.0) < (worst[1].ndr.rate_pps or 0.0):
            worst = name, result
    if worst is None:
        raise ValueError("there must be at least one load vector")
    return WorstVector(*worst, tuple(searched))


async def _carries(device: Device, rate_pps: float | None, duration_s: float) -> bool:
    """Whether any of three trials passes; a vector by which nothing was carried is matched by every other."""
    if rate_pps is None:
        return True
    for _ in range(3):
        if (await device.measure(rate_pps, duration_s)).passes(0.0):
            return True
    return False

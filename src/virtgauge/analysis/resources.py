"""Formulas of what is shared: what limits a rate, whether a disk changed, and what a guest is entitled to.

The bottleneck law (P. J. Denning, J. P. Buzen 1978, "The Operational Analysis of Queueing Network Models", ACM
Computing Surveys 10(3), section 4): a resource that each operation needs for D seconds and that is busy for a share U
of the time gives X = U / D operations a second.  What is busy nearly all the time is the limit; with a single client
nothing need be, and then the rate is one over the round trip (the response time law with one customer, no think time).

Water-filling, as max-min fairness is computed (Bertsekas and Gallager, Data Networks, 6.5.2): everybody's level rises
at the speed of its weight until its cap is reached or nothing is left.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import math
import re
from collections.abc import Sequence
from statistics import median

NEAR = 0.8  # A resource that is busy for this share of the time, or more, is the limit (ours)
CLIENT_NEAR = 0.5
"""A rate beyond this share of what the client reaches against a server that does nothing is the client's as well."""
FACTOR = 2.0  # A disk whose flushes became so much faster or slower is another one
FASTEST_FLASH_PER_S = 20_000.0
"""Flushes one after another that no flash completes by itself: a page of Z-NAND, which is fast, takes 100 µs (W. Cheong
et al. 2018, "A Flash Memory Controller for 15μs Ultra-Low-Latency SSD Using High-Speed 3D NAND Flash with 3μs Read
Time", ISSCC); half of that is allowed."""
CHANCE = 0.001  # How often at most bursts that are independent look like that although nothing has changed


class Limit(enum.StrEnum):
    """What a rate is the rate of."""

    SENDING = "fire-and-forget"
    CLIENT = "client-limited"
    FLUSHES = "flush-bound"
    SERVER_CPU = "server-CPU-bound"
    ROUND_TRIP = "round-trip-bound"
    NONE_FOUND = "no limit found"


@dataclasses.dataclass(frozen=True)
class Load:
    """What was counted while a rate was measured; None where it was not."""

    operations_per_s: float  # of all clients together
    clients: int = 1  # that wait for an answer each
    acknowledged: bool = True  # whether an operation ends with the server's answer
    flushes_per_operation: float | None = None  # counted at the server
    # flushes that its device completes one after another; None where it has no limit
    flush_limit_per_s: float | None = None
    client_limit_per_s: float | None = None  # of the same client against a server that stores nothing
    # server_cpu_ns, client_cpu_ns: for each operation
    server_cpu_ns: float | None = None
    client_cpu_ns: float | None = None
    server_cpus: float | None = None  # that the server may use
    service_ns: float | None = None  # mean, from sending to the answer


@dataclasses.dataclass(frozen=True)
class Explanation:
    """The limit of a rate."""

    limit: Limit
    # of the time (or of the limit) that each known resource was used, whatever the limit is: ``flushes``, ``client``,
    # ``server CPU``; of a round trip the parts ``flush``, ``server``, ``client`` and ``rest``
    shares: dict[str, float]
    operations_per_flush: float | None  # above 1 where a flush serves several (group commit); None without flushes


def explain(load: Load) -> Explanation:
    """The limit of a measured rate.  What is counted decides in this order: sending, flushes, client, server, trip."""
    rate = load.operations_per_s
    shares: dict[str, float] = {}
    if load.flushes_per_operation and load.flush_limit_per_s:
        shares["flushes"] = load.flushes_per_operation * rate / load.flush_limit_per_s
    if load.client_limit_per_s:
        shares["client"] = rate / load.client_limit_per_s
    if load.server_cpu_ns and load.server_cpus:
        # A client that waits for its answer keeps about one processor busy, however many there are.
        usable = min(load.server_cpus, load.clients) if load.acknowledged else load.server_cpus
        shares["server CPU"] = load.server_cpu_ns * rate / 1e9 / usable
    trip = load.service_ns * rate / 1e9 if load.clients == 1 and load.service_ns else 0
    limits = (
        (Limit.SENDING, not load.acknowledged),
        (Limit.FLUSHES, shares.get("flushes", 0) >= NEAR),
        (Limit.CLIENT, shares.get("client", 0) >= CLIENT_NEAR),
        (Limit.SERVER_CPU, shares.get("server CPU", 0) >= NEAR),
        (Limit.ROUND_TRIP, trip >= NEAR),
    )
    limit = next((limit for limit, met in limits if met), Limit.NONE_FOUND)
    return Explanation(limit, shares, 1 / load.flushes_per_operation if load.flushes_per_operation else None)


def round_trip_parts(load: Load) -> dict[str, float]:
    """Shares of one client's round trip: flushes, the server's and the client's CPU, and what is left.

    What is left is the network, waking up on either side, and locks.  Empty without a round trip.  CPU that runs beside
    the round trip (a background writer) makes the parts more than the whole; then nothing is left.
    """
    if not load.service_ns or load.clients != 1:
        return {}
    parts = {}
    if load.flushes_per_operation and load.flush_limit_per_s:
        parts["flush"] = load.flushes_per_operation / load.flush_limit_per_s * 1e9 / load.service_ns
    for name, cpu in (("server CPU", load.server_cpu_ns), ("client CPU", load.client_cpu_ns)):
        if cpu:
            parts[name] = cpu / load.service_ns
    parts["rest"] = max(0.0, 1 - sum(parts.values()))
    return parts


def flush_limit_per_s(profile: str, probed_per_s: float | None) -> float | None:
    """Flushes that complete one after another in a second; None where they cost nothing, or where it is not known.

    Args:
        profile: ``rotational:RPM`` (one a turn), ``rotational-seek:RPM:MICROSECONDS`` (a seek and half a turn each, as
            in Ruemmler and Wilkes 1994, "An Introduction to Disk Drive Modeling"), ``latency:MICROSECONDS``,
            ``at-once``, or ``as-is``: the disk's own.
        probed_per_s: of the disk itself, by its probe.
    """
    if seeking := re.fullmatch(r"rotational-seek:([1-9]\d*):(\d+)", profile):
        return 1e6 / (float(seeking[2]) + 30e6 / float(seeking[1]))
    found = re.fullmatch(r"(rotational|latency):(\d+(?:\.\d+)?)", profile)
    if found is None:
        return probed_per_s if profile == "as-is" else None
    value = float(found[2])
    if value <= 0:
        return None
    return value / 60 if found[1] == "rotational" else 1e6 / value


def spread(rates: Sequence[float]) -> float:
    """The largest rate over the smallest, all of them positive."""
    return max(rates) / min(rates)


def durability_share(mixed: float, equal: float) -> float | None:
    """The part of the mixed levels' spread that an equal level takes away, of its logarithm, within 0…1.

    The spread of a ranking has two causes at mixed levels, at an equal level one.  Rates differ by factors: a spread of
    100 at mixed levels and of 10 at an equal level is half durability.  None where the mixed levels have no spread.
    """
    if mixed <= 1:
        return None
    return min(1.0, max(0.0, 1 - math.log(max(equal, 1.0)) / math.log(mixed)))


def disk_changed(before: Sequence[float], after: Sequence[float]) -> bool:
    """Whether the rates of the bursts after are those of another disk than before.

    A disk that others use too is restless: bursts of flushes differ by factors while nothing has changed.  So two
    things have to be seen: the medians of the bursts differ by a factor that matters, and the bursts by more than
    chance makes them (the rank-sum test of Mann and Whitney 1947).

    Bursts are in flushes per second; seven of each are the least that can show a change.
    """
    fast, slow = sorted((median(before), median(after)), reverse=True)
    if fast <= FACTOR * slow:
        return False
    from scipy.stats import mannwhitneyu  # more than a second, which almost all runs spare

    return bool(mannwhitneyu(before, after).pvalue < CHANCE)


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

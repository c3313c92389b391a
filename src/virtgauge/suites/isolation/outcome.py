"""From everything that was seen of a trial to its result, its flags and its histograms.

A flag says what makes a trial invalid, or has to be said with it.  That a guest was starved is a result, no flag.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from virtgauge.host.cgroup import QUOTA_PERIOD_US
from virtgauge.host.cgroup_policy import Throttling
from virtgauge.host.policy import Applied, DiskLimits
from virtgauge.ledger.records import Flag, Histogram
from virtgauge.suites.isolation.benchmarks import Kind
from virtgauge.suites.isolation.by_hand import Look, not_in_force
from virtgauge.suites.isolation.kernel_work import Answer, LoadResult
from virtgauge.suites.isolation.outside import GuestCounts, Outside, Received
from virtgauge.suites.isolation.policies import Claimant, Demand, Given, Placement, entitled, entitled_without_limit
from virtgauge.suites.isolation.testbed import LOADING, TESTED

_PERIOD_NS = QUOTA_PERIOD_US * 1000  # What a guest has saved up or used in advance is at most one of them at each end
_UNBOUND = 1.1
_BEYOND = 1.05
"""A limit that takes less than this away (beside a weight for the same share, for instance) need not stop anybody."""
_REACHED = 0.9
_FREQUENCY = 0.03
_STOPPED = 0.03
_VISIBLE = 0.5  # A guest that sees less than this part of the time in which it was stopped is blind to it
_THROUGH_HOST_CACHE = ("page cache", "cache=writeback")
"""How :attr:`virtgauge.platforms.base.Guest.disk` names a disk whose image is read and written through it."""


@dataclasses.dataclass(frozen=True)
class GuestConditions:
    """Under which one guest worked."""

    name: str  # ``tested`` or ``loading``
    applied: Applied  # what became of its policy
    received_cpus: float | None  # CPU time a second, from outside
    # entitled_cpus, unlimited_cpus: what it was entitled to, and what it would have been without its limit
    entitled_cpus: float | None
    unlimited_cpus: float | None
    throttling: Throttling | None  # how often its limit stopped it
    kills: int | None  # of its processes, at its memory limit


@dataclasses.dataclass(frozen=True)
class Steal:
    """Time in which the tested guest wanted to run and did not; None where it is not known."""

    seen_ns: int | None  # as its own kernel counts stolen time
    missed_ns: int  # CPU time that its threads did not get, by their own kernel's account
    stopped_ns: int | None  # what they did not get, counted from outside
    capacity_ns: int  # what they would have used if nothing had stopped them

    @property
    def blind(self) -> bool:
        """Whether it was stopped for a time that matters, and sees little or nothing of it in any way."""
        if self.stopped_ns is None or self.stopped_ns <= _STOPPED * self.capacity_ns:
            return False
        return (self.seen_ns or 0) + self.missed_ns < _VISIBLE * self.stopped_ns


def flags_of(
    *,
    guests: tuple[GuestConditions, GuestConditions],
    asked: tuple[str, ...],
    elapsed_ns: int,
    load: LoadResult | None,
    steal: Steal,
    frequencies_hz: tuple[float, float],
    buffered: bool,
    cached: str | None,
    memory_mib: int,
) -> Iterator[Flag]:
    """Every flag that applies to a trial.

    Args:
        asked: the knobs that the cell's policy asks for (``cpu_limit``, ``disk`` …).
        frequencies_hz: of the tested guest's processor, before and after.
        buffered: whether the guests' file system has no direct I/O.
        cached: why the tested guest's disk is not measured past every page cache; None where it is, or has no part.
    """
    if load is not None and load.error is not None:
        yield Flag("loader-died", f"the load {load.name} ended early: {load.error}")
    elif load is not None and not load.units:
        yield Flag("loader-died", f"the load {load.name} did nothing at all")
    for guest in guests:
        if guest.kills:
            yield Flag("out-of-memory", out_of_memory_words(guest.name, guest.kills, memory_mib))
    # Where there is no direct I/O, drivers say what becomes of writes by themselves.
    concerned = {*asked, *(["disk writes"] if buffered and "disk" in asked else [])}
    for guest in guests:
        yield from _policy_flags(guest, concerned, elapsed_ns)
    before, after = frequencies_hz
    if before > 0 and abs(after / before - 1) > _FREQUENCY:
        text = f"{before / 1e9:.2f} GHz before the trial, {after / 1e9:.2f} GHz after it"
        yield Flag("frequency-changed", text, fatal=False)
    if steal.blind and steal.stopped_ns is not None:
        stopped = steal.stopped_ns / steal.capacity_ns
        text = f"the tested guest was stopped for {stopped:.0%} of its time, which it sees little or nothing of"
        yield Flag("guest-blind", text, fatal=False)
    if cached is not None:
        yield Flag("disk-cached", cached, fatal=False)


def out_of_memory_words(name: str, kills: int, memory_mib: int) -> str:
    """Who was killed where."""
    processes = "a process" if kills == 1 else f"{kills} processes"
    return f"the host's kernel killed {processes} of the {name} guest at its memory limit of {memory_mib} MiB"


def _policy_flags(guest: GuestConditions, concerned: Collection[str], elapsed_ns: int) -> Iterator[Flag]:
    # A reservation is brought about by a weight (policies.py), which is judged as such.
    by_weight = guest.applied.declared.weight is not None
    for reason in guest.applied.no_effect:
        knob = reason.split(":")[0]
        if knob in concerned and not (by_weight and knob == "reservation"):
            yield Flag("policy-no-effect", f"{guest.name}: {reason}", fatal=False)
    limit, received = guest.applied.declared.cpu_limit, guest.received_cpus
    if limit is None or received is None:
        return
    allowed_ns = limit * (_UNBOUND * elapsed_ns + 2 * _PERIOD_NS)
    if received * elapsed_ns > allowed_ns:
        text = f"the {guest.name} guest received {received:.2f} CPUs in spite of its limit of {limit:g}"
        yield Flag("limit-unbound", text, fatal=False)
    # Where others held it back as far, the limit had nothing to stop.
    never = guest.throttling is not None and guest.throttling.throttled == 0 and received >= _REACHED * limit
    if never and guest.unlimited_cpus is not None and guest.unlimited_cpus > _BEYOND * limit:
        text = (
            f"the {guest.name} guest would have used {guest.unlimited_cpus:.2f} CPUs, but was never stopped "
            f"at its limit of {limit:g}"
        )
        yield Flag("never-throttled", text, fatal=False)


@dataclasses.dataclass(frozen=True)
class Trial:
    """What was seen of a trial that has an answer."""

    params: Mapping[str, Any]
    where: Placement
    # benchmark, load: what they did; no load is None
    benchmark: Kind
    load: Kind | None
    block_bytes: int | None  # of the benchmark's memory, or of one operation on its disk
    seed: int
    slice_ns: int  # of the slices of work and of CPU time
    memory_mib: int
    disk: str | None  # how the tested guest's disk is reached, in words; None without one
    # policies, applied: asked for, and what became of it: of the tested and the loading guest
    policies: Given
    applied: tuple[Applied, Applied]
    answer: Answer
    load_result: LoadResult | None
    # tested, loading: CPU time from outside, over the measured span
    tested: Received
    loading: Received
    method: str  # where that comes from
    outside: Outside  # what the host's kernel counted from before the load began until it had stopped
    looks: tuple[Look, ...] = ()  # at a policy that was set by hand

    @property
    def steal(self) -> Steal:
        """Time that the tested guest's threads did not get."""
        capacity_ns = self.answer.threads * self.answer.elapsed_ns
        stopped_ns = None
        if self.benchmark.always_runs and self.tested.cpus is not None:
            stopped_ns = max(0, capacity_ns - round(self.tested.cpus * self.answer.elapsed_ns))
        return Steal(self.answer.steal_ns, self.answer.missed_ns, stopped_ns, capacity_ns)

    @property
    def guests(self) -> tuple[GuestConditions, GuestConditions]:
        threads, given, seen = self.where.capacity, self.policies, self.outside
        first = (given.tested, Demand.of(self.benchmark, threads, 100, self.tested.cpus))
        second = (given.loading, Demand.of(self.load, threads, self.params["intensity"], self.loading.cpus))

        def guest(name: str, applied: Applied, one: Claimant, other: Claimant, counts: GuestCounts) -> GuestConditions:
            return GuestConditions(
                name=name,
                applied=applied,
                received_cpus=one[1].received_cpus,
                entitled_cpus=entitled(self.where, one, other),
                unlimited_cpus=entitled_without_limit(self.where, one, other),
                throttling=counts.throttling,
                kills=counts.kills,
            )

        tested, loading = self.applied
        return guest(TESTED, tested, first, second, seen.tested), guest(LOADING, loading, second, first, seen.loading)

    def result(self) -> dict[str, Any]:
        answer, rate, steal, guests = self.answer, self.answer.rate, self.steal, self.guests
        return {
            "unit": answer.unit,
            "units": answer.units,
            "threads": answer.threads,
            "elapsed_ns": answer.elapsed_ns,
            "rate": rate,
            "value": self.benchmark.value(rate, answer.threads, self.block_bytes),
            "value_unit": self.benchmark.value_unit,
            "block_bytes": self.block_bytes,
            "seed": self.seed,
            "slices": list(answer.slices),
            "slice_ns": self.slice_ns,
            "direct": answer.direct,
            "disk": self.disk,
            "cores": self.where.capacity,
            "share": self.params["share"],
            "policy": self.params["policy"],
            "on": self.params["on"],
            "cpu": {
                TESTED: self.tested.cpus,
                LOADING: self.loading.cpus,
                "guest_seen": answer.cpu_ns / answer.elapsed_ns if answer.elapsed_ns else None,
                "method": self.method,
                "window_ns": answer.elapsed_ns,
                "tested_slices": list(self.tested.slices),
                "loading_slices": list(self.loading.slices),
            },
            "entitled": {guest.name: guest.entitled_cpus for guest in guests},
            "capacity_cpus": self.where.capacity,
            "load": self._load(),
            "policy_applied": {guest.name: self._policy(guest.applied) for guest in guests},
            "throttling": {
                guest.name: None if guest.throttling is None else dataclasses.asdict(guest.throttling)
                for guest in guests
            },
            "frequency": {"before_hz": answer.frequency_before_hz, "after_hz": answer.frequency_after_hz},
            "io_wait_share": self.outside.io_wait_share,
            "steal": {"seen_ns": steal.seen_ns, "stopped_ns": steal.stopped_ns, "blind": steal.blind},
            "out_of_memory_kills": {guest.name: guest.kills for guest in guests},
        }

    def flags(self) -> Iterator[Flag]:
        if (why := not_in_force(self.looks, self.where)) is not None:
            yield Flag("policy-not-in-force", why)
        yield from flags_of(
            guests=self.guests,
            asked=self.policies.asked,
            elapsed_ns=self.answer.elapsed_ns,
            load=self.load_result,
            steal=self.steal,
            frequencies_hz=(self.answer.frequency_before_hz, self.answer.frequency_after_hz),
            buffered=self.answer.direct is False,
            cached=self._cached(),
            memory_mib=self.memory_mib,
        )

    def histograms(self) -> dict[str, Histogram]:
        """Latencies under the benchmark's family: ``disk`` or ``wake``."""
        return {} if self.answer.latency is None else {self.benchmark.family: self.answer.latency}

    def _load(self) -> dict[str, Any] | None:
        did = self.load_result
        if did is None:
            return None
        return {
            "name": did.name,
            "unit": did.unit,
            "intensity_percent": self.params["intensity"],
            "threads": self.where.capacity,
            "rate": did.rate,
            "cpus": did.cpus,
            "error": did.error,
        }

    def _policy(self, applied: Applied) -> dict[str, Any]:
        declared = {
            field: value.given() if isinstance(value := getattr(applied.declared, field), DiskLimits) else value
            for field in applied.declared.given()
        }
        notes = self.policies.notes if applied.declared.reservation is not None else ()
        return {
            "declared": declared,
            "in_force": dict(applied.in_force),
            "no_effect": list(applied.no_effect),
            "notes": [*notes, *applied.notes],
        }

    def _cached(self) -> str | None:
        if not self.benchmark.uses_disk:
            return None
        if self.answer.direct is False:
            return "the guest's file system has no direct I/O: its page cache is not left out"
        if self.disk is not None and any(words in self.disk for words in _THROUGH_HOST_CACHE):
            return f"the host's page cache is not left out: {self.disk}"
        return None

"""From everything that was seen of a trial to its result, its flags and its histograms.

A flag says what makes a trial invalid, or has to be said with it.  That a guest was starved is a result, no flag.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from virtgauge.host.cgroup import QUOTA_PERIOD_US
from virtgauge.host.policy import Applied, DiskLimits
from virtgauge.ledger.records import Flag, Histogram
from virtgauge.specs.isolation_formatting import LOADING, TESTED
from virtgauge.suites.isolation.benchmarks import ASSUMED_CACHE_BYTES, Kind
from virtgauge.suites.isolation.by_hand import Look, not_in_force
from virtgauge.suites.isolation.kernel_work import Answer, LoadResult
from virtgauge.suites.isolation.outside import GuestCounts, Outside
from virtgauge.suites.isolation.policies import Claimant, Demand, Given, entitled, entitled_without_limit
from virtgauge.suites.isolation.testbed import TestbedSpec

_MIB = 2**20
_PERIOD_NS = QUOTA_PERIOD_US * 1000  # What a guest has saved up or used in advance is at most one of them at each end
_UNBOUND = 1.1
_BEYOND = 1.05
"""A limit that takes less than this away (beside a weight for the same share, for instance) need not stop anybody."""
_REACHED = 0.9
_FREQUENCY = 0.03
_STOPPED = 0.03
_CACHES = 4  # A block of fewer last-level caches is in part served by them
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
    counts: GuestCounts  # how often its limits stopped it, and killed its processes


def out_of_memory_text(name: str, kills: int, memory_mib: int) -> str:
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
    throttling = guest.counts.throttling
    never = throttling is not None and throttling.throttled == 0 and received >= _REACHED * limit
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
    spec: TestbedSpec
    # benchmark, load: what they did; no load is None
    benchmark: Kind
    load: Kind | None
    # block_bytes, seed, slice_ns: what the tested guest's agent was asked for; without a block None
    block_bytes: int | None
    seed: int
    slice_ns: int
    # disk, method: of the tested guest, what its disk is, where it has one, and how its CPU time is accounted
    disk: str | None
    method: str
    # policies, applied: asked for, and what became of it: of the tested and the loading guest
    policies: Given
    applied: tuple[Applied, Applied]
    answer: Answer
    load_result: LoadResult | None
    # tested_cpus, loading_cpus: CPU time from outside for each second of the measured span; None where not known
    tested_cpus: float | None
    loading_cpus: float | None
    outside: Outside  # what the host's kernel counted from before the load began until it had stopped
    looks: tuple[Look, ...] = ()  # at a policy that was set by hand
    load_block_bytes: int | None = None  # of a load of memory
    file_bytes: int | None = None  # that each thread of a disk benchmark went through
    cache_bytes: int | None = None  # the host's largest cache; None where it is not known
    cache_assumed: bool = False  # a block is of so many of it all the same
    one_core: bool = False  # both guests, though apart or on several CPUs, are on threads of one core

    @property
    def capacity_ns(self) -> int:
        """CPU time that the tested guest's threads would have used if nothing had stopped them."""
        return self.answer.threads * self.answer.elapsed_ns

    @property
    def stopped_ns(self) -> int | None:
        """What they did not get of it, counted from outside; None where that is not known."""
        if not self.benchmark.always_runs or self.tested_cpus is None:
            return None
        return max(0, self.capacity_ns - round(self.tested_cpus * self.answer.elapsed_ns))

    @property
    def blind(self) -> bool:
        """Whether the tested guest was stopped for a time that matters, and sees little or nothing of it in any way."""
        if self.stopped_ns is None or self.stopped_ns <= _STOPPED * self.capacity_ns:
            return False
        return (self.answer.steal_ns or 0) + self.answer.missed_ns < _VISIBLE * self.stopped_ns

    @property
    def guests(self) -> tuple[GuestConditions, GuestConditions]:
        where, given = self.spec.where, self.policies
        first = (given.tested, Demand.of(self.benchmark, where.capacity, 100, self.tested_cpus))
        second = (given.loading, Demand.of(self.load, where.capacity, self.params["intensity"], self.loading_cpus))

        def guest(name: str, applied: Applied, one: Claimant, other: Claimant, counts: GuestCounts) -> GuestConditions:
            due, unlimited = entitled(where, one, other), entitled_without_limit(where, one, other)
            return GuestConditions(name, applied, one[1].received_cpus, due, unlimited, counts)

        tested, loading = self.applied
        return (
            guest(TESTED, tested, first, second, self.outside.tested),
            guest(LOADING, loading, second, first, self.outside.loading),
        )

    def result(self) -> dict[str, Any]:
        answer, rate, guests, load = self.answer, self.answer.rate, self.guests, self.load_result
        capacity = self.spec.where.capacity
        return {
            "unit": answer.unit,
            "units": answer.units,
            "threads": answer.threads,
            "elapsed_ns": answer.elapsed_ns,
            "rate": rate,
            "value": self.benchmark.value(rate, answer.threads, self.block_bytes),
            "value_unit": self.benchmark.value_unit,
            "block_bytes": self.block_bytes,
            "cache_bytes": self.cache_bytes,
            "file_bytes": self.file_bytes,
            "seed": self.seed,
            "slices": list(answer.slices),
            "slice_ns": self.slice_ns,
            "direct": answer.direct,
            "disk": self.disk,
            "cores": capacity,
            "share": self.params["share"],
            "policy": self.params["policy"],
            "on": self.params["on"],
            "cpu": {
                TESTED: self.tested_cpus,
                LOADING: self.loading_cpus,
                "guest_seen": answer.cpu_ns / answer.elapsed_ns if answer.elapsed_ns else None,
                "method": self.method,
                "window_ns": answer.elapsed_ns,
            },
            "entitled": {guest.name: guest.entitled_cpus for guest in guests},
            "capacity_cpus": capacity,
            "load": None
            if load is None
            else {
                "name": load.name,
                "unit": load.unit,
                "intensity_percent": self.params["intensity"],
                "threads": capacity,
                "rate": load.rate,
                "cpus": load.cpus,
                "error": load.error,
            },
            "policy_applied": {guest.name: self._policy(guest.applied) for guest in guests},
            "throttling": {
                guest.name: None if guest.counts.throttling is None else dataclasses.asdict(guest.counts.throttling)
                for guest in guests
            },
            "frequency": {"before_hz": answer.frequency_before_hz, "after_hz": answer.frequency_after_hz},
            "io_wait_share": self.outside.io_wait_share,
            "steal": {"seen_ns": answer.steal_ns, "stopped_ns": self.stopped_ns, "blind": self.blind},
            "out_of_memory_kills": {guest.name: guest.counts.kills for guest in guests},
        }

    def flags(self) -> Iterator[Flag]:
        spec, load, answer = self.spec, self.load_result, self.answer
        if (why := not_in_force(self.looks, spec.where)) is not None:
            yield Flag("policy-not-in-force", why)
        if load is not None and load.error is not None:
            yield Flag("loader-died", f"the load {load.name} ended early: {load.error}")
        elif load is not None and not load.units:
            yield Flag("loader-died", f"the load {load.name} did nothing at all")
        for guest in self.guests:
            if guest.counts.kills:
                yield Flag("out-of-memory", out_of_memory_text(guest.name, guest.counts.kills, spec.memory_mib))
        asked = self.policies.asked
        # Where there is no direct I/O, drivers say what becomes of writes by themselves.
        concerned = {*asked, *(["disk writes"] if answer.direct is False and "disk" in asked else [])}
        for guest in self.guests:
            yield from _policy_flags(guest, concerned, answer.elapsed_ns)
        before, after = answer.frequency_before_hz, answer.frequency_after_hz
        if before > 0 and abs(after / before - 1) > _FREQUENCY:
            text = f"{before / 1e9:.2f} GHz before the trial, {after / 1e9:.2f} GHz after it"
            yield Flag("frequency-changed", text, fatal=False)
        if self.blind and self.stopped_ns is not None:
            stopped = self.stopped_ns / self.capacity_ns
            text = f"the tested guest was stopped for {stopped:.0%} of its time, which it sees little or nothing of"
            yield Flag("guest-blind", text, fatal=False)
        if self.cached is not None:
            yield Flag("disk-cached", self.cached, fatal=False)
        if self.one_core:
            text = "the CPUs of both guests are threads of one core, which they contend for as well"
            yield Flag("one-core", text, fatal=False)
        if self.cache_assumed:
            text = f"this host tells the size of no cache: {ASSUMED_CACHE_BYTES / _MIB:g} MiB stand for the largest"
            yield Flag("cache-unknown", text, fatal=False)
        if texts := [*self._fits_a_cache()]:
            yield Flag("fits-a-cache", "; ".join(texts), fatal=False)

    def histograms(self) -> dict[str, Histogram]:
        """Latencies under the benchmark's family: ``disk`` or ``wake``."""
        return {} if self.answer.latency is None else {self.benchmark.family: self.answer.latency}

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

    def _fits_a_cache(self) -> Iterator[str]:
        """Where caches may have served what was to measure, or to load, memory or a disk."""
        blocks = {"benchmark": self.block_bytes if self.benchmark.has_block else None, "load": self.load_block_bytes}
        for whose, block_bytes in blocks.items():
            if block_bytes and self.cache_bytes and block_bytes < _CACHES * self.cache_bytes:
                sizes = f"{block_bytes / _MIB:g} MiB is less than {_CACHES} times the last-level cache"
                yield f"the {whose}'s block of {sizes} of {self.cache_bytes / _MIB:g} MiB"
        if self.file_bytes:
            rounds = self.answer.units / (self.answer.threads * self.file_bytes)
            written = f"{rounds:.1f} times" if rounds > 1 else ""
            how = {"read": "just before", "write": written}.get(self.benchmark.kernel["operation"])
            if how:
                yield f"the file of {self.file_bytes / _MIB:g} MiB was written {how}: its device may have kept a part"

    @property
    def cached(self) -> str | None:
        """Why the tested guest's disk is not measured past every page cache; None where it is, or has no part."""
        if not self.benchmark.uses_disk:
            return None
        if self.answer.direct is False:
            return "the guest's file system has no direct I/O: its page cache is not left out"
        if self.disk is not None and any(words in self.disk for words in _THROUGH_HOST_CACHE):
            return f"the host's page cache is not left out: {self.disk}"
        return None

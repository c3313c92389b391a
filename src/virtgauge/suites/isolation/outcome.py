"""From everything that was seen of a trial to its result, its flags and its histograms."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from virtgauge.host.policy import Applied, DiskLimits
from virtgauge.ledger.records import Flag, Histogram
from virtgauge.suites.isolation.benchmarks import Kind
from virtgauge.suites.isolation.cpu_watch import Received
from virtgauge.suites.isolation.entitled import Demand, entitled, entitled_without_limit
from virtgauge.suites.isolation.flags import (
    Conditions,
    GuestConditions,
    LoaderCircumstances,
    Steal,
    flags_of,
)
from virtgauge.suites.isolation.kernel_work import Answer
from virtgauge.suites.isolation.loader import LoadResult
from virtgauge.suites.isolation.outside import Outside
from virtgauge.suites.isolation.placement import Placement
from virtgauge.suites.isolation.policies import Given
from virtgauge.suites.isolation.testbed import LOADING, TESTED

_THROUGH_HOST_CACHE = ("page cache", "cache=writeback")
"""How :attr:`virtgauge.platforms.base.Guest.disk` names a disk whose image is read and written through it."""


@dataclasses.dataclass(frozen=True)
class Trial:
    """What was seen of a trial that has an answer.

    Attributes:
        params: of the cell.
        where: both guests' CPUs.
        benchmark, load: what they did; no load is None.
        block_bytes: of the benchmark's memory, or of one operation on its disk.
        slice_ns: of the slices of work and of CPU time.
        memory_mib: of each guest.
        disk: how the tested guest's disk is reached, in words; None without one.
        policies, applied: asked for, and what became of it: of the tested and the loading guest.
        answer: of the benchmark.
        load_result: of the load.
        tested, loading: CPU time from outside, over the measured span.
        method: where that comes from.
        outside: what the host's kernel counted from before the load began until it had stopped.
    """

    params: Mapping[str, Any]
    where: Placement
    benchmark: Kind
    load: Kind | None
    block_bytes: int | None
    seed: int
    slice_ns: int
    memory_mib: int
    disk: str | None
    policies: Given
    applied: tuple[Applied, Applied]
    answer: Answer
    load_result: LoadResult | None
    tested: Received
    loading: Received
    method: str
    outside: Outside

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
        """The tested and the loading guest, with what each was entitled to."""
        threads, intensity = self.where.vcpus, self.params["intensity"]
        first = (self.policies.tested, Demand.of(self.benchmark, threads, 100, self.tested.cpus))
        second = (self.policies.loading, Demand.of(self.load, threads, intensity, self.loading.cpus))
        found = []
        for number, (name, one, other, counts) in enumerate(
            ((TESTED, first, second, self.outside.tested), (LOADING, second, first, self.outside.loading))
        ):
            found.append(
                GuestConditions(
                    name=name,
                    applied=self.applied[number],
                    received_cpus=one[1].received_cpus,
                    entitled_cpus=entitled(self.where, one, other),
                    unlimited_cpus=entitled_without_limit(self.where, one, other),
                    throttling=counts.throttling,
                    kills=counts.kills,
                )
            )
        return found[0], found[1]

    def result(self) -> dict[str, Any]:
        """The scalars for the ledger."""
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

    def flags(self) -> tuple[Flag, ...]:
        """What makes the trial invalid, or is to be said with it."""
        loader = None
        if self.load is not None and self.load_result is not None:
            loader = LoaderCircumstances(self.load.name, self.load_result.units, self.load_result.error)
        found = Conditions(
            guests=self.guests,
            asked=self.policies.asked,
            elapsed_ns=self.answer.elapsed_ns,
            loader=loader,
            steal=self.steal,
            frequency_before_hz=self.answer.frequency_before_hz,
            frequency_after_hz=self.answer.frequency_after_hz,
            buffered=self.answer.direct is False,
            cached=self._cached(),
            memory_mib=self.memory_mib,
        )
        return tuple(flags_of(found))

    def histograms(self) -> dict[str, Histogram]:
        """Latencies under the benchmark's family: ``disk`` or ``wake``."""
        return {} if self.answer.latency is None else {self.benchmark.family: self.answer.latency}

    def _load(self) -> dict[str, Any] | None:
        if self.load is None or self.load_result is None:
            return None
        did = self.load_result
        return {
            "name": self.load.name,
            "unit": did.unit,
            "intensity_percent": self.params["intensity"],
            "threads": self.where.vcpus,
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
        """Why the disk's figures may be those of a page cache, in words."""
        if not self.benchmark.uses_disk:
            return None
        if self.answer.direct is False:
            return "the guest's file system has no direct I/O: its page cache is not left out"
        if self.disk is not None and any(words in self.disk for words in _THROUGH_HOST_CACHE):
            return f"the host's page cache is not left out: {self.disk}"
        return None

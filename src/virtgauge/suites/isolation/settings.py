"""A plan's ``[[suite.isolation]]``: benchmarks, loads, cores, policies and shares, and how long each is measured."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from virtgauge.plan import Section
from virtgauge.specs.isolation_formatting import NOTHING
from virtgauge.suites.base import Distinct, Levels
from virtgauge.suites.isolation.benchmarks import BENCHMARKS, KINDS, LOADS, is_a_block, uses_disk
from virtgauge.suites.isolation.policies import Cores, PolicyName, placement, refusal
from virtgauge.suites.testbed import allowed_cpus

Block = Annotated[str, AfterValidator(is_a_block)]
Percent = Annotated[float, Field(gt=0, le=100)]


def _one_of(names: Sequence[str], what: str, name: str) -> str:
    if name not in names:
        raise ValueError(f"is no {what}; use one of {', '.join(names)}")
    return name


_is_a_benchmark = AfterValidator(functools.partial(_one_of, BENCHMARKS, "benchmark"))
_is_a_load = AfterValidator(functools.partial(_one_of, LOADS, "load"))
Benchmark = Annotated[str, _is_a_benchmark, Field(json_schema_extra={"enum": [*BENCHMARKS]})]
Load = Annotated[str, _is_a_load, Field(json_schema_extra={"enum": [*LOADS]})]


class IsolationSettings(Section):
    """One design: benchmarks × blocks × loads × intensities × cores × policies × receivers × shares.

    The reference of each benchmark (no load, no policy) is measured whether the design names it or not.
    """

    benchmarks: Levels[Benchmark] = ("integer", "memory-write-integer")
    """What the tested guest does; see [isolation.md](isolation.md#what-is-measured)."""
    memory_blocks: Levels[Block] = ("64MiB",)
    """Block of each thread of the memory benchmarks and of ``latency``. ``4xLLC`` is four times the last-level
    cache. Guests have memory for it also where a design that names it has no such benchmark."""
    loads: Levels[Load] = ("none", "integer", "memory-write-integer")
    """What the loading guest does; ``none`` is nothing."""
    load_memory_block: Block = "64MiB"
    """Block of each thread of a memory load."""
    load_cache_block: Block = "1xLLC"
    """Block of each thread of the load ``cache``."""
    intensities: Levels[Annotated[int, Field(ge=1, le=100)]] = (100,)
    """Per cent of every 20 ms in which a load works."""
    cores: Levels[Cores] = ("1",)
    """``1``: both guests on one CPU. ``1-apart``: each on one of its own. ``all``: both on all."""
    cpus: Distinct[Annotated[int, Field(ge=0, lt=4096)]] | None = None
    """The host's CPUs that the guests may use; all that virtgauge may use by default. With ``policy_set_by_hand`` the
    hypervisor's, by default as few as ``cores`` needs."""
    governors: Levels[Annotated[str, Field(pattern="[a-z][a-z_-]*")]] = ("as-is",)
    """Which of the host's cpufreq governors chooses the frequency, where it has any: ``performance``, ``powersave``."""
    policies: Levels[PolicyName] = ("none", "limit")
    """What binds a guest; see [policies.md](policies.md)."""
    on: Levels[Literal["tested", "loading"]] = ("tested",)
    """Which guest the policy is on."""
    shares: Levels[Percent] = (50.0,)
    """What a policy gives, in per cent of the guest's CPUs or of ``disk_full_mb_per_s``."""

    policy_set_by_hand: bool = False
    """You set the policy at the hypervisor of two [attached machines](platforms/attached.md#which-suites), as the run
    prints it: one policy, receiver, share and ``cores``, in every cell. Each trial checks from inside that it is in
    force. With ``policies = ["none"]``, the same two machines without one."""

    warmup_s: Annotated[float, Field(ge=0, le=600)] = 1.0
    """Time before the measured part of a trial."""
    seconds: Annotated[float, Field(ge=0.2, le=3600)] = 5.0
    """Measured time of each trial."""
    slice_ms: Annotated[int, Field(ge=10, le=60_000)] = 100
    """Length of a slice, for distributions within a trial. A CPU quota is given anew every 100 ms: a slice of whole
    periods holds as much of it wherever it begins, and does not show that the guest is stopped within; one of 10 ms
    does. Rates of any other length beat with the period."""
    wake_period_us: Annotated[int, Field(ge=10, le=1_000_000)] = 1000
    """From one wake-up of the benchmark ``wake`` to the next."""

    memory_mib: Annotated[int, Field(ge=64, le=2**24)] | None = None
    """Memory of each guest; what the largest block needs by default."""
    disk_file_mib: Annotated[int, Field(ge=1, le=2**20)] = 256
    """Size of each thread's own file."""
    disk_mib: Annotated[int, Field(ge=16, le=2**24)] | None = None
    """Size of each guest's disk. By default what the files of all its threads need, or no disk.

    Designs with the same ``disk_mib`` and ``memory_mib`` share their guests.
    """
    disk_sequential_kib: Annotated[int, Field(ge=4, le=2**20, multiple_of=4)] = 64
    """Size of an operation of the sequential disk benchmarks."""
    disk_random_kib: Annotated[int, Field(ge=4, le=2**20, multiple_of=4)] = 4
    """Size of an operation of the random disk benchmarks."""
    disk_full_mb_per_s: Annotated[float, Field(gt=0, le=10**6)] = 100.0
    """What a ``disk-limit`` of 100 % means, in each direction."""

    @property
    def host_cpus(self) -> tuple[int, ...]:
        if self.cpus is not None:
            return tuple(sorted(self.cpus))
        return tuple(range(1 + ("1-apart" in self.cores))) if self.policy_set_by_hand else allowed_cpus()

    @property
    def uses_disk(self) -> bool:
        return any(map(uses_disk, (*self.benchmarks, *self.loads)))

    def blocks(self) -> Iterator[str]:
        """Every block of memory that they need or are to have memory for, by its name; some more than once."""
        if "memory_blocks" in self.model_fields_set or any(KINDS[name].has_block for name in self.benchmarks):
            yield from self.memory_blocks
        for name in self.loads:
            if (block := self.block_of_load(name)) is not None:
                yield block

    def block_of_load(self, name: str) -> str | None:
        """A load's block of memory; None where it needs none."""
        family = KINDS[name].family if name != NOTHING else ""
        return {"memory": self.load_memory_block, "cache": self.load_cache_block}.get(family)

    def _problems(self) -> Iterator[str]:
        missing = [] if self.policy_set_by_hand else sorted(set(self.host_cpus) - set(allowed_cpus()))
        if missing or not self.host_cpus:
            yield f"cpus: this machine has the CPUs {list(allowed_cpus())}, not {missing}; name some of these"
        for cores in self.cores:
            where = placement(cores, self.host_cpus)
            if cores == "1-apart" and where.shared and self.cpus is not None:
                yield f"cores = {cores!r}: each guest needs a CPU of its own, not only CPU {self.cpus[0]}"
            for policy in self.policies:
                for share in self.shares:
                    if (why := refusal(policy, share / 100, where.capacity, self.disk_full_mb_per_s * 1e6)) is not None:
                        yield f"shares: {share:g} with the policy {policy!r}: {why}"
        if self.policy_set_by_hand:
            yield from self._problems_by_hand()
        if set(self.policies) <= {NOTHING} and "shares" in self.model_fields_set:
            yield 'shares is given, but policies has nothing but "none"; add one, or leave shares out'
        does = {"tested": self.benchmarks, "loading": self.loads}
        if "disk-limit" in self.policies and not any(uses_disk(name) for on in self.on for name in does[on]):
            yield (
                'policies: "disk-limit" bounds the disk of whom it is on, and nothing there uses one; '
                "add a disk benchmark (on tested) or a disk load (on loading), or leave it out"
            )
        if all(load == NOTHING for load in self.loads) and "intensities" in self.model_fields_set:
            yield 'intensities is given, but loads has nothing but "none"; add a load, or leave it out'
        threads = max(placement(cores, self.host_cpus).capacity for cores in self.cores)
        if self.uses_disk and self.disk_mib is not None and threads * self.disk_file_mib >= self.disk_mib:
            yield (
                f"disk_mib = {self.disk_mib}: {threads} files of disk_file_mib = {self.disk_file_mib} do not fit; "
                "make the disk larger or the files smaller, or leave disk_mib out"
            )
        if self.slice_ms > self.seconds * 1000:
            yield f"slice_ms = {self.slice_ms}: a trial of {self.seconds:g} s has no slice of that length"

    def _problems_by_hand(self) -> Iterator[str]:
        for name in ("policies", "on", "shares", "cores"):
            if len(values := getattr(self, name)) > 1:
                yield (
                    f"{name} = {[*values]}: what is set by hand is one thing in a plan; name one, and give the others "
                    "plans of their own"
                )
        if chosen := [name for name in self.governors if name != "as-is"]:
            yield (
                f"governors: {chosen[0]!r} is of the machines' host, which is not reached from here; set it there, "
                "and leave governors out"
            )
        if stray := sorted({"memory_mib", "disk_mib"} & self.model_fields_set):
            yield f"{stray[0]} is given, but the machines have what they have; leave it out"
        if on_disk := [name for name in (*self.benchmarks, *self.loads) if uses_disk(name)]:
            yield f"{on_disk[0]!r} needs a disk that is given from here; leave it out"
        if of_caches := [name for name in self.blocks() if name.endswith("LLC")]:
            yield f"a block of {of_caches[0]}: the caches of the machines' host are not known; give it in MiB"

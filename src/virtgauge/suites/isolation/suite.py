"""The isolation suite: what a neighbour's load costs a guest, and what a policy on either of them saves.

The paper is Rzecki, Niedźwiecki, Sośnicki and Martyna 2014, "Experimental verification of Hyper-V performance isolation
quality level".  A cell is one benchmark in the tested guest beside one load in the loading guest, both on the same CPUs
or each on its own, with one policy on one of them: a place in the paper's four-level array.

Histograms (ns): ``wake``, how late each wake-up was (benchmark ``wake``); ``disk``, how long each operation took (disk
benchmarks).
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

from virtgauge.agent.channel import AgentError, ChannelClosedError
from virtgauge.host.lending import missing_governor
from virtgauge.host.load import available_mib
from virtgauge.host.machine import lack_of_rights
from virtgauge.host.policy import Applied, Policy, PolicyError
from virtgauge.platforms.base import Guest, Platform
from virtgauge.specs.isolation_formatting import LOADING, NOTHING, TESTED
from virtgauge.suites.answers import Running, documented, elapsed_by_clock
from virtgauge.suites.base import Cell, Measurement, Suite
from virtgauge.suites.isolation.benchmarks import KINDS, Kind, largest_cache_bytes, uses_disk
from virtgauge.suites.isolation.by_hand import LOOK_S, Look, applied, look, to_do
from virtgauge.suites.isolation.kernel_work import Answer, LoadResult, work_of
from virtgauge.suites.isolation.outcome import Trial, out_of_memory_text
from virtgauge.suites.isolation.outside import Outside, Span, received_cpus, watched
from virtgauge.suites.isolation.policies import Given, Placement, given, placement
from virtgauge.suites.isolation.settings import IsolationSettings
from virtgauge.suites.isolation.testbed import AS_IS, IsolationTestbed, TestbedSpec, testbed_of
from virtgauge.suites.testbed import Stage, Testbed

_ANSWER_S, _SHARED_ANSWER_S = 60.0, 30.0
"""For the answer of a guest, and what more it needs for each time that others have of what it has."""
_STOP_S = 120.0
"""A guest of a twentieth of a processor takes its time to finish a pass over its block and to check its results."""
_FILL_BPS, _FILL_BLOCK_S = 10e6, 0.01
"""A disk that is filled slower than so many bytes a second, and so long for each block, is given up."""
_USUAL_FILL_BPS = 100e6


class IsolationSuite(Suite):
    """See the module."""

    name = "isolation"
    Settings = IsolationSettings
    settings: IsolationSettings

    def __init__(self, settings: IsolationSettings) -> None:
        super().__init__(settings)
        self._testbeds: dict[str, TestbedSpec] = {}
        self._available_mib = available_mib()

    def missing_prerequisites(self) -> list[str]:
        s = self.settings
        ours = not s.policy_set_by_hand and set(s.policies) != {NOTHING}
        rights = lack_of_rights("the suite isolation: its policies", "CAP_DAC_OVERRIDE") if ours else None
        return [*super().missing_prerequisites(), *([] if rights is None else [rights])]

    def refusal(self, cell: Cell, platform: Platform) -> str | None:
        spec, most = self._testbeds[cell.testbed], platform.most_vcpus
        if platform.simulated:
            return _lacks_cpu(spec)
        if most is not None and spec.where.capacity > most:
            wanted = f"{spec.where.capacity} virtual processors"
            return f"cores = '{spec.cores}': {wanted}, of which {platform.label} has {most}"
        return self.lacking(cell, fills_memory=platform.fills_memory)

    def lacking(self, cell: Cell, *, fills_memory: bool = False) -> str | None:
        """What this machine lacks for a cell; memory only where blocks, or the platform, take all that guests have."""
        spec, available_mib = self._testbeds[cell.testbed], self._available_mib
        if spec.governor != AS_IS and (error := missing_governor(spec.governor)) is not None:
            return str(error)
        if (why := _lacks_cpu(spec)) is not None or spec.as_is or not (fills_memory or self._blocks(cell.params)):
            return why
        if available_mib is None or 2 * spec.memory_mib <= available_mib:
            return None
        told, remedy = f"two guests of {spec.memory_mib} MiB", "set memory_mib to less"
        if self.settings.memory_mib is None:
            told += f", for blocks of memory on {spec.where.capacity} CPUs"
            remedy = "name smaller memory_blocks, or fewer cpus"
        return f"{told}: {available_mib} MiB are available; {remedy}"

    def _blocks(self, params: Mapping[str, Any]) -> str:
        """The blocks of memory of both guests; empty where neither has one."""
        return str(params["block"]) + (self.settings.block_of_load(params["load"]) or "")

    def cells(self) -> list[Cell]:
        found: dict[str, Cell] = {}
        for (benchmark, block, cores), governor in itertools.product(self._benchmarks(), self.settings.governors):
            testbed = testbed_of(self.settings, cores, governor)
            self._testbeds[testbed.name] = testbed
            levels: list[tuple[str, int, str, str, float]] = []
            if not self._bound_by_hand:
                levels.append((NOTHING, 0, NOTHING, NOTHING, 100.0))
            levels += [
                (load, intensity, *policy)
                for load in self.settings.loads
                for intensity in ((0,) if load == NOTHING else self.settings.intensities)
                for policy in self._policies(benchmark, load)
            ]
            for load, intensity, policy, on, share in levels:
                factors = {
                    "benchmark": benchmark,
                    "block": block,
                    "load": load,
                    "intensity": str(intensity),
                    "cores": cores,
                    "policy": policy,
                    "on": on,
                    "share": f"{share:g}",
                    **({} if governor == AS_IS else {"governor": governor}),
                }
                cell = self._cell(factors, testbed)
                found.setdefault(cell.key, cell)
        return list(found.values())

    def _benchmarks(self) -> Iterator[tuple[str, str, str]]:
        s = self.settings
        for benchmark, cores in itertools.product(s.benchmarks, s.cores):
            for block in s.memory_blocks if KINDS[benchmark].has_block else ("",):
                yield benchmark, block, cores

    def _policies(self, benchmark: str, load: str) -> Iterator[tuple[str, str, float]]:
        """Policy, receiver and share; a limit of the disk only of a guest that uses it."""
        for policy in self.settings.policies:
            if policy == NOTHING:
                yield policy, NOTHING, 100.0
                continue
            for on, share in itertools.product(self.settings.on, self.settings.shares):
                if policy != "disk-limit" or uses_disk(benchmark if on == "tested" else load):
                    yield policy, on, share

    def _cell(self, factors: dict[str, str], testbed: TestbedSpec) -> Cell:
        s, share = self.settings, float(factors["share"]) / 100
        params: dict[str, Any] = {**factors, "intensity": int(factors["intensity"]), "share": share}
        expected_s = s.warmup_s + s.seconds + 0.3 + self._filled_s(params, _USUAL_FILL_BPS)
        expected_s += 2 * LOOK_S if s.policy_set_by_hand else 0
        # Generous, for a guest with a small share of the CPUs or of its disk prepares slowly.
        within_s = s.warmup_s + 2 * s.seconds + _ANSWER_S + _SHARED_ANSWER_S / share
        within_s += self._filled_s(params, _FILL_BPS, _FILL_BLOCK_S)
        pair = "pair" if testbed.as_is else ""
        return Cell(self.name, "kernel", factors, params, within_s, testbed.name, expected_s, pair)

    def _filled_s(self, params: Mapping[str, Any], bps: float, block_s: float = 0.0) -> float:
        """How long it takes to fill the files of a trial, at so many bytes a second and so long for each block."""
        settings = self.settings
        if params["policy"] == "disk-limit":
            bps = min(bps, float(params["share"]) * settings.disk_full_mb_per_s * 1e6)
        on_disk = uses_disk(params["benchmark"]) + uses_disk(params["load"])
        threads = len(settings.host_cpus) if params["cores"] == "all" else 1
        file_bytes = settings.disk_file_mib * 2**20
        blocks = file_bytes / (min(settings.disk_random_kib, settings.disk_sequential_kib) * 2**10)
        return float(on_disk * threads * (file_bytes / bps + blocks * block_s))

    @property
    def _bound_by_hand(self) -> bool:
        return self.settings.policy_set_by_hand and NOTHING not in self.settings.policies

    def to_do(self, platform: Platform) -> tuple[str, ...]:
        if not self._bound_by_hand or platform.simulated:
            return ()
        params = self.cells()[0].params
        where = placement(params["cores"], self.settings.host_cpus)
        return to_do(platform, self._given(params, where), params["on"], where)

    def _given(self, params: Mapping[str, Any], where: Placement) -> Given:
        settings, told = self.settings, (params["policy"], params["on"], params["share"])
        return given(*told, where, settings.disk_full_mb_per_s * 1e6, as_is=settings.policy_set_by_hand)

    async def set_up(self, testbed: str, stage: Stage) -> Testbed:
        made = IsolationTestbed(stage, self._testbeds[testbed])
        await made.set_up()
        return made

    async def measure(self, cell: Cell, testbed: Testbed, on_progress: Callable[[float], None]) -> Measurement:
        """Measure one cell; it raises what :meth:`Suite.measure` does.

        An AgentError is also ``out-of-memory``: a guest was killed at its memory limit; ``lost``: the loading guest is.
        """
        assert isinstance(testbed, IsolationTestbed)
        if testbed.refused is not None:
            raise AgentError("unsupported", str(testbed.refused))
        settings = self.settings
        params, where = cell.params, testbed.spec.where
        benchmark, load = KINDS[params["benchmark"]], KINDS.get(params["load"])
        seed = random.getrandbits(62)  # no part of the design

        def asked(name: str, kind: Kind, block: str, seed: int) -> dict[str, Any]:
            folder = testbed.disks[name].folder if name in testbed.disks else None
            return work_of(settings, kind, block=block, threads=where.capacity, folder=folder, seed=seed)

        work = asked(TESTED, benchmark, params["block"], seed)
        policies = self._given(params, where)
        applied, looks = await _in_force(testbed, policies, params["on"])
        before = Outside.now(testbed.tested, testbed.loading)
        warmup_ns, slice_ns = round(settings.warmup_s * 1e9), settings.slice_ms * 1_000_000
        work |= {"warmup_ns": warmup_ns, "duration_ns": round(settings.seconds * 1e9), "slice_ns": slice_ns}
        its: dict[str, Any] = {}
        if load is not None:
            its = asked(LOADING, load, settings.block_of_load(load.name) or "", seed + 1)
            its["intensity_percent"] = params["intensity"]
        async with (
            _explained(testbed, before),
            watched(testbed.tested, testbed.loading) as records,
            _loaded(testbed, load, its) as load_results,
        ):
            reply = await testbed.tested.channel.request(
                "probe", name="kernel", params=work, load=None, on_progress=on_progress
            )
        outside = Outside.now(testbed.tested, testbed.loading).since(before)
        not_here = testbed.spec.as_is or testbed.stage.platform.simulated
        cache_bytes = None if not_here else largest_cache_bytes()
        if testbed.stage.platform.peer is not None:
            outside = dataclasses.replace(outside, ticks=())  # this host is not theirs
        with documented("the result of the probe kernel"):
            answer = Answer.decode(reply.value, slice_ns)
            span = Span.of_answer(reply.value, warmup_ns, reply.sent_ns, reply.finished_ns)
            clocks = elapsed_by_clock(reply.value["clocks_start"], reply.value["clocks_end"])
        tested_cpus, loading_cpus = (received_cpus(record, span) for record in records)
        trial = Trial(
            params=params,
            spec=testbed.spec,
            benchmark=benchmark,
            load=load,
            block_bytes=work.get("block_bytes"),
            seed=seed,
            slice_ns=slice_ns,
            disk=testbed.tested.disk,
            method=testbed.tested.accounting().method,
            policies=policies,
            applied=applied,
            answer=answer,
            load_result=load_results[0] if load_results else None,
            tested_cpus=tested_cpus,
            loading_cpus=loading_cpus,
            outside=outside,
            looks=looks,
            load_block_bytes=its.get("block_bytes") if load is not None and load.family == "memory" else None,
            file_bytes=None if not_here else work.get("file_bytes"),
            cache_bytes=cache_bytes,
            one_core=load is not None and not not_here and params["cores"] != "1" and where.on_one_core,
            cache_assumed=not not_here and cache_bytes is None and "LLC" in self._blocks(params),
        )
        # Blocks and files are made between the request and the first clock reading, which is no late answer.
        prepared = benchmark.has_block or benchmark.uses_disk
        return Measurement(
            result=trial.result(),
            histograms=trial.histograms(),
            flags=tuple(trial.flags()),
            guest_clocks=clocks,
            controller_elapsed_ns=None if prepared else reply.finished_ns - reply.sent_ns,
            guest_steal_ns=answer.steal_ns,
        )


def _lacks_cpu(spec: TestbedSpec) -> str | None:
    if spec.cores != "1-apart" or not spec.where.shared:
        return None
    return f"cores = '1-apart': each guest needs a CPU of its own, and CPU {spec.where.tested[0]} is the only one here"


async def _in_force(
    testbed: IsolationTestbed, policies: Given, on: str
) -> tuple[tuple[Applied, Applied], tuple[Look, ...]]:
    """What became of both policies, set here or by hand; of one that was set by hand, what is seen of it."""
    by_hand = testbed.spec.as_is
    if not by_hand or testbed.stage.platform.simulated:  # whose hand is its truth
        tested = await _applied(TESTED, testbed.tested, policies.tested)
        both = tested, await _applied(LOADING, testbed.loading, policies.loading)
        if not by_hand:
            return both, ()
    looks = await look(testbed, policies, on)
    return applied(policies, looks, on), looks


async def _applied(name: str, guest: Guest, policy: Policy) -> Applied:
    """A policy in force. Raises AgentError: ``unsupported``, with what the platform said."""
    try:
        return await guest.apply(policy)
    except PolicyError as error:
        raise AgentError("unsupported", f"the policy of the {name} guest cannot be applied: {error}") from error


@contextlib.asynccontextmanager
async def _loaded(
    testbed: IsolationTestbed, load: Kind | None, work: Mapping[str, Any]
) -> AsyncIterator[list[LoadResult]]:
    """The load at work during the block, and what it came to after it; stopped also where the block's agent fails."""
    results: list[LoadResult] = []
    if load is None:
        yield results
        return
    beside = await Running.start(testbed.loading.channel, "kernel", work, f"the load {load.name}", within_s=None)

    async def stop() -> None:
        await beside.stop(_STOP_S)
        results.append(LoadResult.of(load.name, beside))
        if results[0].units is None:
            testbed.spoil()

    try:
        yield results
    except AgentError:
        await stop()
        raise
    await stop()


@contextlib.asynccontextmanager
async def _explained(testbed: IsolationTestbed, before: Outside) -> AsyncIterator[None]:
    """Tell why a guest was lost during the block. Raises AgentError: ``out-of-memory`` or ``lost``, where known."""
    try:
        yield
    except ChannelClosedError as error:
        since = Outside.now(testbed.tested, testbed.loading).since(before)
        for name, counts in ((TESTED, since.tested), (LOADING, since.loading)):
            if counts.kills:
                words = out_of_memory_text(name, counts.kills, testbed.spec.memory_mib)
                raise AgentError("out-of-memory", words) from error
        if not testbed.tested.channel.closed:
            raise AgentError("lost", f"the loading guest was lost: {error}") from error
        raise

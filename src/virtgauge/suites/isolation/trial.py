"""One cell of the isolation suite: both policies, the load, the benchmark, and what was seen of it from outside."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from virtgauge.agent.channel import AgentError, ChannelClosedError, Reply
from virtgauge.agent.frames import ProtocolError
from virtgauge.host.policy import Applied, PolicyError
from virtgauge.suites.answers import elapsed_by_clock
from virtgauge.suites.base import Cell, Measurement
from virtgauge.suites.isolation.benchmarks import NO_LOAD, Kind, kind_of
from virtgauge.suites.isolation.cpu_watch import Span, received, watched
from virtgauge.suites.isolation.flags import out_of_memory_words
from virtgauge.suites.isolation.kernel_work import Answer, Work, work_of
from virtgauge.suites.isolation.loader import Loader, LoadResult
from virtgauge.suites.isolation.outcome import Trial
from virtgauge.suites.isolation.outside import Outside
from virtgauge.suites.isolation.policies import Given, given
from virtgauge.suites.isolation.settings import IsolationSettings
from virtgauge.suites.isolation.testbed import LOADING, TESTED, IsolationTestbed

_ANSWER_S, _SHARED_ANSWER_S = 60.0, 30.0
"""For the answer of a guest, and what more it needs for each time that others have of what it has."""
_FILL_BPS, _FILL_BLOCK_S = 10e6, 0.01
"""A disk that is filled slower than so many bytes a second, and so long for each block, is given up."""


def timeout_s(settings: IsolationSettings, params: Mapping[str, Any]) -> float:
    """When a trial is given up: generous, for a guest with a small share of the CPUs or of its disk prepares slowly."""
    share, bps = float(params["share"]), _FILL_BPS
    if params["policy"] == "disk-limit":
        bps = min(bps, share * settings.disk_full_mb_per_s * 1e6)
    names = (str(params["benchmark"]), str(params["load"]))
    on_disk = sum(name != NO_LOAD and kind_of(name).uses_disk for name in names)
    threads = len(settings.host_cpus) if params["cores"] == "all" else 1
    file_bytes = settings.disk_file_mib * 2**20
    blocks = file_bytes / (min(settings.disk_random_kib, settings.disk_sequential_kib) * 2**10)
    fill_s = on_disk * threads * (file_bytes / bps + blocks * _FILL_BLOCK_S)
    return settings.warmup_s + 2 * settings.seconds + _ANSWER_S + _SHARED_ANSWER_S / share + fill_s


async def measure_cell(
    settings: IsolationSettings, testbed: IsolationTestbed, cell: Cell, on_progress: Callable[[float], None]
) -> Measurement:
    """Measure one cell.

    Raises:
        AgentError: there is no figure.  ``unsupported``: the platform cannot do what the policy asks for;
            ``out-of-memory``: a guest was killed at its memory limit; ``lost``: the loading guest is gone.
        ChannelClosedError, ProtocolError: the tested guest was lost, for another reason.
    """
    params, where = cell.params, testbed.spec.where
    benchmark = kind_of(params["benchmark"])
    load = None if params["load"] == NO_LOAD else kind_of(params["load"])
    seed = random.getrandbits(62)  # no part of the design
    work = _work(settings, testbed, TESTED, benchmark, params["block"], seed)
    policies = given(params["policy"], params["on"], params["share"], where, settings.disk_full_mb_per_s * 1e6)
    applied = await _applied(testbed, policies)
    before = Outside.now(testbed.tested, testbed.loading)
    warmup_ns, slice_ns = round(settings.warmup_s * 1e9), settings.slice_ms * 1_000_000
    times = {"warmup_ns": warmup_ns, "duration_ns": round(settings.seconds * 1e9), "slice_ns": slice_ns}
    async with _explained(testbed, before), watched(testbed.tested, testbed.loading) as records:
        loader = None
        if load is not None:
            its = _work(settings, testbed, LOADING, load, settings.block_of_load(load.name) or "", seed + 1)
            loader = await Loader.start(
                testbed.loading.channel, load.name, its.params | {"intensity_percent": params["intensity"]}
            )
        reply, load_result = await _probed(testbed, work.params | times, loader, on_progress)
    outside = Outside.now(testbed.tested, testbed.loading).since(before)
    try:
        answer = Answer.decode(reply.value, slice_ns)
        span = Span.of_answer(reply.value, warmup_ns, reply.sent_ns, reply.finished_ns)
        clocks = elapsed_by_clock(reply.value["clocks_start"], reply.value["clocks_end"])
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"the result of the probe kernel is not what docs/protocol.md says: {error!r}") from error
    tested, loading = (received(record, span, slice_ns) for record in records)
    trial = Trial(
        params=params,
        where=where,
        benchmark=benchmark,
        load=load,
        block_bytes=work.block_bytes,
        seed=seed,
        slice_ns=slice_ns,
        memory_mib=testbed.spec.memory_mib,
        disk=testbed.tested.disk,
        policies=policies,
        applied=applied,
        answer=answer,
        load_result=load_result,
        tested=tested,
        loading=loading,
        method=testbed.tested.accounting().method,
        outside=outside,
    )
    # Blocks and files are made between the request and the first clock reading, which is no late answer.
    prepared = benchmark.has_block or benchmark.uses_disk
    return Measurement(
        result=trial.result(),
        histograms=trial.histograms(),
        samples={},
        flags=trial.flags(),
        guest_clocks=clocks,
        controller_elapsed_ns=None if prepared else reply.finished_ns - reply.sent_ns,
        guest_steal_ns=answer.steal_ns,
    )


def _work(settings: IsolationSettings, testbed: IsolationTestbed, name: str, kind: Kind, block: str, seed: int) -> Work:
    disk = testbed.disks.get(name)
    folder = None if disk is None else disk.folder
    return work_of(settings, kind, block=block, threads=testbed.spec.where.vcpus, folder=folder, seed=seed)


async def _applied(testbed: IsolationTestbed, policies: Given) -> tuple[Applied, Applied]:
    """Both policies in force.

    Raises:
        AgentError: ``unsupported``, with what the platform said.
    """
    found = []
    for name, guest, policy in (
        (TESTED, testbed.tested, policies.tested),
        (LOADING, testbed.loading, policies.loading),
    ):
        try:
            found.append(await guest.apply(policy))
        except PolicyError as error:
            raise AgentError("unsupported", f"the policy of the {name} guest cannot be applied: {error}") from error
    return found[0], found[1]


async def _probed(
    testbed: IsolationTestbed, params: dict[str, Any], loader: Loader | None, on_progress: Callable[[float], None]
) -> tuple[Reply, LoadResult | None]:
    """The benchmark's answer, and what the load came to, which is stopped also where there is no answer."""
    try:
        reply = await testbed.tested.channel.request(
            "probe", name="kernel", params=params, load=None, on_progress=on_progress
        )
    except AgentError:
        if loader is not None and not (await loader.stop()).told:
            testbed.spoil()
        raise
    if loader is None:
        return reply, None
    result = await loader.stop()
    if not result.told:
        testbed.spoil()
    return reply, result


@contextlib.asynccontextmanager
async def _explained(testbed: IsolationTestbed, before: Outside) -> AsyncIterator[None]:
    """Tell why a guest was lost during the block, where that is known.

    Raises:
        AgentError: ``out-of-memory`` or ``lost``.
    """
    try:
        yield
    except ChannelClosedError as error:
        since = Outside.now(testbed.tested, testbed.loading).since(before)
        for name, counts in ((TESTED, since.tested), (LOADING, since.loading)):
            if counts.kills:
                words = out_of_memory_words(name, counts.kills, testbed.spec.memory_mib)
                raise AgentError("out-of-memory", words) from error
        if not testbed.tested.channel.closed:
            raise AgentError("lost", f"the loading guest was lost: {error}") from error
        raise

"""One cell of the storage suite: an empty database, its rows, the load, and what all sides did meanwhile."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from virtgauge.agent.channel import AgentError, ChannelClosedError
from virtgauge.agent.frames import ProtocolError
from virtgauge.ledger.records import Histogram
from virtgauge.suites.base import Cell, Measurement
from virtgauge.suites.cpu_record import CpuRecord, recorded
from virtgauge.suites.storage.calibration import client_limit_per_s
from virtgauge.suites.storage.client import UNUSABLE, StoreError, Stream
from virtgauge.suites.storage.disk_probe import probe_disk, watch_disk
from virtgauge.suites.storage.flags import Circumstances, flags_of
from virtgauge.suites.storage.laboratory import StorageBench, Target
from virtgauge.suites.storage.loads import data_of, preload_of, streams_of
from virtgauge.suites.storage.outcomes import FlushCount, Measured
from virtgauge.suites.storage.settings import READS, StorageSettings

PREPARE_S = 900.0
"""The longest that preloading may take on the host."""


async def measure_load(
    settings: StorageSettings, bench: StorageBench, cell: Cell, on_progress: Callable[[float], None]
) -> Measurement:
    """Measure a cell of plain operations, or the mixed load.

    Raises:
        StoreError: there is no figure: the database is not there, full, stuck, or not ours to write to.
    """
    data, streams = data_of(settings), streams_of(settings, cell.params)
    preload = preload_of(settings, cell.params)
    target = (await bench.target(cell.params)).with_options(cell.params["options"])
    # Of a mixture, no closed loop says what the client can.
    calibration_s = settings.calibration_s if len(streams) == 1 else 0.0
    await client_limit_per_s(bench, target, data, streams[0], calibration_s)
    reads = cell.params["operation"] in READS
    async with filled(bench, target, data, index=cell.params["index"], preload=preload, reads=reads):
        on_progress(0.3)
        disk_before = await probe_disk(target, settings.disk_probe_s)
        flushes_before = await flushes_of(target)
        async with recorded(lambda: bench.stage.accounting().cpu_ns) as (record,):
            measured = await target.client.measure(data, streams, warmup_s=settings.warmup_s, seconds=settings.seconds)
        refuse_unusable(measured)
        on_progress(0.9)
        flushes = await flushes_since(target, flushes_before)
        disk = await watch_disk(target, settings.disk_probe_s, disk_before)
    reached = measured.operations_per_s
    limit = await client_limit_per_s(bench, target, data, streams[0], calibration_s, reached_per_s=reached)
    written = sum(
        result.operations
        for stream, result in zip(streams, measured.streams, strict=True)
        if stream.operation == "write"
    )
    found = Circumstances(
        measured=measured,
        client_limit_per_s=limit,
        profile=target.profile,
        written=written,
        waiting=sum(stream.clients * stream.pipeline for stream in streams if stream.operation == "write"),
        flushes=None if flushes is None else flushes.total,
        uncounted=target.uncounted,
        period_ms=settings.period_ms,
        disk=disk,
    )
    # From before the warm-up to after the end was counted; as many a second are supposed in all of it.
    counted_share = settings.seconds / (settings.seconds + settings.warmup_s)
    result = described(target) | {
        **figures(measured),
        **cpu_figures(record, measured, target),
        "client_limit_per_s": limit,
        "flushes": None if flushes is None else flushes.total,
        "flushes_per_operation": None if flushes is None or not written else flushes.total * counted_share / written,
        "mean_flush_ns": None if flushes is None else flushes.mean_ns,
        **disk.figures(),
        "preload": preload,
        "sensors": settings.sensors,
    }
    return Measurement(result, histograms_of(streams, measured), {}, tuple(flags_of(found)))


@contextlib.asynccontextmanager
async def filled(
    bench: StorageBench, target: Target, data: Mapping[str, Any], *, index: bool, preload: int, reads: bool
) -> AsyncIterator[None]:
    """The database with a table of these rows alone, for the block.

    What is only read stays as it is: such a table is kept for the next trial, unless the server is somebody else's.
    Any other is made for the block and dropped in its end.

    Raises:
        StoreError: ``exists`` where there is a table already that is not ours; it has not been touched.
    """
    kept = reads and bench.keeps_tables
    rows = (json.dumps([target.client.store, data], sort_keys=True), index, preload)
    if not kept or bench.kept_rows != rows:
        bench.kept_rows = None
        await target.client.prepare(data, index=index, drop=target.may_drop, preload=preload, within_s=PREPARE_S)
    try:
        yield
    except BaseException:
        bench.kept_rows = None
        # The failure is what matters; of a server that is gone the table cannot be dropped.
        with contextlib.suppress(AgentError, ChannelClosedError, ProtocolError, TimeoutError):
            await target.client.drop()
        raise
    if kept:
        bench.kept_rows = rows
    elif not target.embedded:  # of which the next trial begins with a new file
        await target.client.drop()


async def flushes_of(target: Target) -> FlushCount | None:
    """Flushes counted so far; None where nobody counts."""
    if target.inside is None or target.counters is None:
        return None
    return await target.inside.flushes(target.counters)


async def flushes_since(target: Target, before: FlushCount | None) -> FlushCount | None:
    """Those counted since then; None where nobody counts."""
    now = await flushes_of(target)
    return None if now is None or before is None else now.since(before)


def refuse_unusable(measured: Measured) -> None:
    """Let failures be errors that leave no figure.

    Raises:
        StoreError: of the first of them.
    """
    for stream in measured.streams:
        if stream.errors and stream.first_error_kind in UNUSABLE:
            words = f"{stream.errors} operations failed, the first with: {stream.first_error}"
            raise StoreError(str(stream.first_error_kind), words)


def cpu_figures(record: CpuRecord, measured: Measured, target: Target) -> dict[str, float | None]:
    """CPU time per operation of client and guest, and of the server where it is what the guest runs."""
    operations = measured.operations
    start = measured.started_monotonic_ns
    if target.embedded:  # by the guest's own clock, which may be another; its answer came just after the end
        start = measured.finished_ns - measured.elapsed_ns
    guest_ns = None if target.inside is None else record.between(start, start + measured.elapsed_ns)
    guest = None if guest_ns is None or not operations else guest_ns / operations
    return {
        "client_cpu_ns_per_operation": measured.cpu_ns / operations if operations else None,
        "guest_cpu_ns_per_operation": guest,
        "server_cpu_ns_per_operation": None if target.embedded else guest,
    }


def described(target: Target) -> dict[str, Any]:
    """Which database at which settings."""
    profile = target.profile
    return {
        "database": target.label,
        "embedded": target.embedded,
        "profile": None if profile is None else profile.name,
        "settings": {} if profile is None else dict(profile.settings),
        "reported_settings": dict(target.reported.get("settings") or {}),
    }


def figures(measured: Measured) -> dict[str, Any]:
    """The scalars of a measured span, all its loads together."""
    rows = sum(stream.rows for stream in measured.streams)
    seconds = measured.elapsed_ns / 1e9
    slices = [stream.slices for stream in measured.streams]
    return {
        "elapsed_ns": measured.elapsed_ns,
        "operations": measured.operations,
        "rows": rows,
        "operations_per_s": measured.operations_per_s if seconds else None,
        "rows_per_s": rows / seconds if seconds else None,
        "errors": sum(stream.errors for stream in measured.streams),
        "wrong": sum(stream.wrong for stream in measured.streams),
        "unstarted": sum(stream.unstarted for stream in measured.streams),
        "per_client": [count for stream in measured.streams for count in stream.per_client],
        "slices": [sum(at) for at in zip(*slices, strict=False)],
    }


def histograms_of(streams: Sequence[Stream], measured: Measured) -> dict[str, Histogram]:
    """Service and response time; of several loads, each under its operation as well."""
    found: dict[str, Histogram] = {}
    for stream, result in zip(streams, measured.streams, strict=True):
        suffix = "" if len(streams) == 1 else f"/{stream.operation}"
        for name, histogram in (("service", result.service), ("response", result.response)):
            if histogram is not None:
                found[name + suffix] = histogram
    return found

"""One trial: its loads, what is measured beside it, and what makes it invalid."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any

from virtgauge.agent.channel import AgentError, ChannelClosedError
from virtgauge.agent.messages import ProtocolError
from virtgauge.ledger.records import Flag, Histogram
from virtgauge.specs.storage_formatting import QUERIES
from virtgauge.suites.base import Cell, Measurement
from virtgauge.suites.storage.client import LEAST_OPERATIONS, FlushCount, Measured, StoreError, Stream, StreamResult
from virtgauge.suites.storage.flushes import DiskWatch, probe_disk, watch_disk
from virtgauge.suites.storage.laboratory import StorageTestbed, Target, near_the_limit
from virtgauge.suites.storage.settings import READS, StorageSettings
from virtgauge.suites.testbed import CpuRecord, recorded

_FEWER = 0.9  # Some of the flushes may have been counted before the first acknowledgement
PREPARE_S = 900.0  # The longest that preloading may take on the host
RUN_IN_S = 45.0
"""Expected of each design for running a server on Java in, which takes a minute or so, and designs may share one."""
_RUN_IN_EACH_S, _STILL_GAINS, _LONGEST_RUN_IN_S = 2.0, 1.2, 90.0
"""Of one kind of operation, by one client: it leaves a processor to the compiler.  Cassandra was 2 to 3 times as fast
in the fourth round as in the first, and then steady; beside 16 clients on two processors it gained for two minutes.
A tenth is what two seconds of multi-writes differ by: it had most run-ins last for the whole time."""
_LEFT_SHARE = 0.1  # What earlier tables left may be so much of what the files grew by
_UNITS = 20  # So many times what a database extends its files by, they have to grow: that is at most 5 % too much
_LATE_RUNS = 10  # So many runs of late readings in a table, and hardly ever are fewer than half of them there
_PLENTY = 8  # Times the least answers of all clients, and whatever one of them has makes no difference
_COUNT_S = 60.0  # Likewise to count what is there, without which a trial is as good


def data_of(settings: StorageSettings, params: Mapping[str, Any]) -> dict[str, Any]:
    """The deterministic readings of a cell, and the order in which they arrive."""
    data = {"seed": settings.seed, "sensors": settings.sensors, "step_ms": 1000}
    share = params["late_share"]
    return data | ({"late": {"share": share, "by": settings.late_by, "run": settings.late_run}} if share else {})


def values_of(settings: StorageSettings, operation: str) -> int:
    """Readings in a statement."""
    return 1 if operation.startswith("single-") or operation == "last-value" else settings.values


def preload_of(settings: StorageSettings, params: Mapping[str, Any]) -> int:
    """Readings of every sensor that are there before; writes begin with an empty table."""
    return settings.preload if (params["of"] or params["operation"]) in (*READS, "mixed") else 0


def streams_of(settings: StorageSettings, params: Mapping[str, Any]) -> list[Stream]:
    """The loads of a cell of plain operations, or of the mixed one."""
    if params["operation"] != "mixed":
        kind, _, rate = params["loop"].partition(":")
        loop = open_loop(float(rate)) if kind == "open" else {"kind": "closed"}
        return [stream_of(settings, params, params["operation"], loop)]
    mixed, preload = settings.mixed, settings.preload
    steady = {"kind": "open", "rate_per_s": mixed.writes_per_s, "arrivals": mixed.arrivals}
    bursts = {"kind": "burst", "every_ms": mixed.burst_every_ms, "size": mixed.burst_reads}
    return [
        Stream("write", 1, params["clients"], steady, preload=preload),
        Stream("read", settings.values, mixed.readers, bursts, preload=preload),
    ]


def stream_of(settings: StorageSettings, params: Mapping[str, Any], operation: str, loop: Mapping[str, Any]) -> Stream:
    """One operation by the cell's clients."""
    return Stream(
        operation=operation if operation in QUERIES else operation.partition("-")[2],
        values=values_of(settings, operation),
        clients=params["clients"],
        loop=loop,
        pipeline=settings.pipeline if params["write_mode"] == "pipelined" else 1,
        preload=preload_of(settings, params),
    )


def open_loop(rate_per_s: float) -> dict[str, Any]:
    """So many operations a second, independent of one another."""
    return {"kind": "open", "rate_per_s": rate_per_s, "arrivals": "poisson"}


def _flags(
    settings: StorageSettings,
    target: Target,
    measured: Measured,
    limit_per_s: float | None,
    flushes: FlushCount | None,
    disk: DiskWatch,
) -> Iterator[Flag]:
    """Every flag that applies, by the client's own limit and the flushes counted; None where that is not known."""
    answers = [*answer_flags(measured.streams)]
    yield from answers or window_flags(measured)  # what failed had few answers for that reason
    reached = measured.operations_per_s
    if near_the_limit(reached, limit_per_s):
        text = f"{reached:,.0f} of the client's own {limit_per_s:,.0f} operations/s"
        yield Flag("client-limited", f"{text}: the database may be faster", fatal=False)
    written = sum(one.answered for one in measured.writes)
    if written:
        yield from _flush_flags(target, settings, measured, written, flushes)
    # What waits for no flush does not notice a change of the disk.
    yield from disk.flags(waits=target.waits and written > 0)


def late_flags(
    settings: StorageSettings, params: Mapping[str, Any], late_across: float | None, rows_each: float
) -> Iterator[Flag]:
    """Where the readings were too few for the late ones among them that the cell is named after.

    Args:
        late_across: the share of the rows written that was late across statements; None where nothing was written.
        rows_each: rows that each writing client wrote, of a sensor of its own.
    """
    if not (share := params["late_share"]):
        return
    period, preload = settings.late_run / share, settings.preload
    if late_across is None:  # what is read: any sensor's readings, all of which have arrived
        needed = min(period, _LATE_RUNS * period / settings.sensors)
        few, found = preload < needed, f"{preload:,} of each sensor"
    else:
        found = f"{rows_each:,.0f} of a sensor, of which {late_across:.2%} came after an earlier statement's"
        needed = 2 * period * math.ceil(settings.late_by / period)  # so that half of it has its run, and that came
        # What is late by less is late within a statement as well, which is not counted.
        by_statements = params["operation"] == "mixed" or settings.late_by >= values_of(settings, params["operation"])
        few = late_across < share / 2 if by_statements else rows_each < needed
    if few:
        text = f"late_share = {share:g} is not met by so few readings ({found}): with late_run = {settings.late_run} it"
        yield Flag("few-late", f"{text} takes {needed:,.0f} of each; make late_run and late_by shorter")


def answer_flags(streams: Sequence[StreamResult]) -> Iterator[Flag]:
    """Wrong answers, failures, and nothing at all."""
    wrong, errors = (sum(getattr(stream, name) for stream in streams) for name in ("wrong", "errors"))
    if wrong:
        said = next((stream.first_error for stream in streams if stream.wrong and stream.first_error), None)
        detail = f"{wrong} reads returned other readings than were written" + (f": {said}" if said else "")
        yield Flag("wrong-answer", detail)
    if errors:
        said = next((stream.first_error for stream in streams if stream.errors and stream.first_error), "unnamed")
        yield Flag("errors", f"{errors} operations failed, the first with: {said}")
    if any(not stream.operations and not sum(stream.slices) for stream in streams) and not wrong and not errors:
        yield Flag("empty", "not a single operation was done in the time measured; make seconds longer")


def window_flags(measured: Measured) -> Iterator[Flag]:
    """Where a client of a closed loop had too few answers for a rate, though the time was lengthened for them.

    Were only a trial without any left out, those that happened to hold one would make the median too high.
    """
    for one in measured.streams:
        stream, fewest, needed = one.stream, min(one.per_client), LEAST_OPERATIONS * one.stream.pipeline
        if stream.is_closed and one.operations < _PLENTY * needed * stream.clients and fewest < needed:
            took = measured.elapsed_ns / 1e9
            asked = math.ceil(took * needed / (fewest or 1))
            text = f"a client had {fewest} answers in {took:.3g} s, of the {needed} needed"
            yield Flag("short-window", f"{text} for a rate: set seconds = {asked}, or have fewer clients or values")


def _flush_flags(
    target: Target, settings: StorageSettings, measured: Measured, written: int, flushes: FlushCount | None
) -> Iterator[Flag]:
    profile = target.profile
    if profile is None:
        return
    if target.uncounted is not None:
        text = f"{target.uncounted}: whether {profile.name} flushes as its level says was not verified"
        yield Flag("flushes-uncounted", text, fatal=False)
    if flushes is None:
        return
    counted, periods = flushes.total, (measured.elapsed_ns / 1e6 + settings.warmup_s * 1e3) / settings.period_ms
    # How many writes may wait for one flush together.
    waiting = sum(one.stream.clients * one.stream.pipeline for one in measured.writes)
    if profile.flushes_each_write:
        if counted < _FEWER * written / waiting - 1:
            text = (
                f"{counted} flushes for {written} writes, of which at most {waiting} could wait for one "
                f"together: {profile.name} does not flush before it acknowledges"
            )
            yield Flag("flushes", text)
    elif counted > written / 2 and counted > 10 + 4 * periods:
        text = f"{counted} flushes for {written} writes: {profile.name} flushes more than its level says"
        yield Flag("flushes", text)


async def measure_load(
    settings: StorageSettings, testbed: StorageTestbed, cell: Cell, on_progress: Callable[[float], None]
) -> Measurement:
    """Measure a cell of plain operations, or the mixed load.
    Raises StoreError: there is no figure: the database is not there, full, stuck, or not ours to write to.
    """
    params, data, streams = cell.params, data_of(settings, cell.params), streams_of(settings, cell.params)
    target = await testbed.target(params)
    # Of a mixture, no closed loop says what the client can.
    calibration_s = settings.calibration_s if len(streams) == 1 else 0.0
    await testbed.client_limit_per_s(target, data, streams[0], calibration_s)
    async with filled(settings, testbed, target, params):
        on_progress(0.3)
        disk_before = await probe_disk(target, settings.disk_probe_s)
        flushes_before = await flushes_of(target)
        async with recorded(lambda: testbed.stage.accounting().cpu_ns) as (record,):
            measured = await target.client.measure(data, streams, warmup_s=settings.warmup_s, seconds=settings.seconds)
        measured.refuse_unusable()
        on_progress(0.9)
        flushes_after = await flushes_of(target)
        flushes = flushes_after.since(flushes_before) if flushes_after and flushes_before else None
        disk = await watch_disk(target, settings.disk_probe_s, disk_before)
        writers = sum(one.stream.clients for one in measured.writes)
        stored = await stored_bytes(testbed, target, writers)
    reached = measured.operations_per_s
    limit = await testbed.client_limit_per_s(target, data, streams[0], calibration_s, reached_per_s=reached)
    written, rows_written, late_rows = (
        sum(getattr(one, name) for one in measured.writes) for name in ("answered", "rows", "late_rows")
    )
    late_across = late_rows / rows_written if rows_written and params["late_share"] else None
    flags = [*_flags(settings, target, measured, limit, flushes, disk)]
    if rows_written or not writers:  # of which nothing at all has a flag of its own
        flags += late_flags(settings, params, late_across, rows_written / max(writers, 1))
    result = described(target) | {
        **figures(measured),
        **cpu_figures(record, measured, target),
        "server_cpus": await testbed.server_cpus(),
        "client_limit_per_s": limit,
        "flushes": None if flushes is None else flushes.total,
        "flushes_per_operation": None if flushes is None or not written else flushes.total / written,
        "mean_flush_ns": None if flushes is None else flushes.mean_ns,
        "late_across": late_across,
        **disk.figures(),
        **stored,
        "preload": preload_of(settings, params),
        "sensors": settings.sensors,
    }
    return Measurement(result, histograms_of(measured), {}, tuple(flags))


@contextlib.asynccontextmanager
async def filled(
    settings: StorageSettings, testbed: StorageTestbed, target: Target, params: Mapping[str, Any]
) -> AsyncIterator[None]:
    """The database with a table of the cell's rows alone, for the block.

    What is only read stays as it is: such a table is kept for the next trial, unless the server is somebody else's.
    Any other is made for the block and dropped in its end.
    Raises StoreError: ``exists`` where there is a table already that is not ours; it has not been touched.
    """
    data, index, preload = data_of(settings, params), params["index"], preload_of(settings, params)
    kept = testbed.keeps_tables and (params["of"] or params["operation"]) in READS
    rows = (json.dumps([target.client.store, data], sort_keys=True), index, preload)
    if not kept or testbed.kept_rows != rows:
        testbed.kept_rows = None
        await _run_in(settings, testbed, target, params)
        await testbed.note_held(target)
        await target.client.prepare(data, index=index, drop=target.may_drop, preload=preload, within_s=PREPARE_S)
        if preload and target.product is not None:
            await testbed.rest(target)  # so that the first trial on it reads what the later ones do
    try:
        yield
    except BaseException:
        testbed.kept_rows = None
        if not params["crash"]:  # what was crashed may not be there, and its table goes with the testbed
            # The failure is what matters; of a server that is gone the table cannot be dropped.
            with contextlib.suppress(AgentError, ChannelClosedError, ProtocolError, TimeoutError):
                await target.client.drop()
        raise
    if kept:
        testbed.kept_rows = rows
    elif not target.embedded:  # of which the next trial drops the table when it makes its own, in the same file
        await target.client.drop()


async def _run_in(
    settings: StorageSettings, testbed: StorageTestbed, target: Target, params: Mapping[str, Any]
) -> None:
    """Load a server on Java that was just started until no kind of operation has gained in two rounds.

    Else the order of trials decides their figures: the first of each kind are of a server that is translated line by
    line, or compiles beside them (E. Barrett et al. 2017, "Virtual Machine Warmup Blows Hot and Cold", OOPSLA).
    """
    if testbed.has_run_in or target.product is None or not target.product.on_java:
        return
    data, some = data_of(settings, params), settings.values
    kinds = [(kind, values) for values in (1, some) for kind in ("write", "read")]
    kinds += [(kind, values_of(settings, kind)) for kind in QUERIES if kind in settings.operations]
    streams = [Stream(kind, values, 1, {"kind": "closed"}, preload=some) for kind, values in kinds]
    best, flat = [0.0 for _ in streams], 0
    until = time.monotonic() + _LONGEST_RUN_IN_S
    await testbed.note_held(target)
    while flat < 2 and time.monotonic() < until:
        await target.client.prepare(data, index=True, drop=target.may_drop, preload=some, within_s=PREPARE_S)
        found = [await target.client.measure(data, [one], warmup_s=0.0, seconds=_RUN_IN_EACH_S) for one in streams]
        await target.client.drop()
        for one in found:
            one.refuse_unusable()
        rates = [one.operations_per_s for one in found]
        gains = any(rate > _STILL_GAINS * before for rate, before in zip(rates, best, strict=True))
        best, flat = [max(both) for both in zip(rates, best, strict=True)], 0 if gains else flat + 1
    testbed.has_run_in = True


async def stored_bytes(testbed: StorageTestbed, target: Target, writers: int) -> dict[str, Any]:
    """What a reading takes of the files that hold the tables and indexes, after the database was brought to rest.

    So many clients wrote at a time.

    The log does not count: when all that it holds is in those files, what is left of it is a matter of how it is used
    again, in segments of megabytes; ``stored_log_bytes`` tells it.  Where there is no figure, ``stored_unknown`` says
    why.
    """
    unknown: dict[str, Any] = {"bytes_per_reading": None}
    if target.product is None:
        return unknown | {"stored_unknown": "the files of an existing server are not seen from here"}
    try:
        await testbed.rest(target)
        readings = await target.client.count(_COUNT_S)
        held = await testbed.files_of(target)
    except StoreError as error:
        return unknown | {"stored_unknown": f"{error.code}: {error.message}"}
    empty, before = testbed.held[target.files]
    grown, left = held.data_bytes - empty, before - empty
    told = {
        "stored_readings": readings,
        "stored_bytes": held.data_bytes,
        "stored_bytes_empty": empty,
        "stored_log_bytes": held.log_bytes,
    }
    unit = target.product.grows_by(str(target.reported["version"]), writers)
    if not readings or grown < _UNITS * unit:
        words = f"with {readings:,} readings the files have grown by {grown:,} bytes, less than {_UNITS} times the"
        words += f" {unit:,} by which {target.product.title} extends them; store more (preload, seconds)"
        return unknown | told | {"stored_unknown": words}
    if left > _LEFT_SHARE * grown:
        words = f"of {grown:,} bytes that the files have grown by, {left:,} were there before this table"
        return unknown | told | {"stored_unknown": f"{words}; measure it in a plan without other writes"}
    return told | {"bytes_per_reading": grown / readings}


async def flushes_of(target: Target) -> FlushCount | None:
    """Flushes counted so far; None where nobody counts."""
    if target.inside is None or target.counters is None:
        return None
    return await target.inside.flushes(target.counters)


def cpu_figures(record: CpuRecord, measured: Measured, target: Target) -> dict[str, float | None]:
    """CPU time per operation of client and guest, and of the server where it is what the guest runs."""
    operations = measured.operations_per_s * measured.elapsed_ns / 1e9  # answered in it, whenever they were due
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
        **({} if target.existing is None else {"existing": dict(target.existing)}),
    }


def figures(measured: Measured) -> dict[str, Any]:
    """The scalars of a measured span, all its loads together."""
    return {
        "elapsed_ns": measured.elapsed_ns,
        "operations": measured.operations,
        "rows": sum(stream.rows for stream in measured.streams),
        "operations_per_s": measured.operations_per_s if measured.elapsed_ns else None,
        "rows_per_s": sum(one.operations_per_s * one.stream.values for one in measured.streams)
        if measured.elapsed_ns
        else None,
        **{name: sum(getattr(one, name) for one in measured.streams) for name in ("errors", "wrong", "unstarted")},
        "per_client": [count for stream in measured.streams for count in stream.per_client],
        "slices": [sum(at) for at in zip(*(stream.slices for stream in measured.streams), strict=False)],
    }


def histograms_of(measured: Measured) -> dict[str, Histogram]:
    """Service and response time; of several loads, each under its operation as well."""
    found: dict[str, Histogram | None] = {}
    for one in measured.streams:
        suffix = "" if len(measured.streams) == 1 else f"/{one.stream.operation}"
        found |= {f"service{suffix}": one.service, f"response{suffix}": one.response}
    return {name: histogram for name, histogram in found.items() if histogram is not None}

"""Does an acknowledged write outlive a crash?  Kill what writes, start it again, and look for every row.

The client notes what was acknowledged in a file that outlives it.  Where the database is embedded, the client itself
is killed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from virtgauge.ledger.records import Flag
from virtgauge.suites.base import Cell, Measurement
from virtgauge.suites.storage.client import StoreError
from virtgauge.suites.storage.laboratory import StorageTestbed, Target
from virtgauge.suites.storage.settings import StorageSettings
from virtgauge.suites.storage.trial import data_of, described, filled, stream_of

_BEYOND_S = 60.0  # The load would go on so long; the crash ends it
_ENDED_S = 30.0
_BEGUN_S, _POLL_S = 60.0, 0.02
_NOTES_HEADER_BYTES = 24  # Of the file in which a client notes what was acknowledged; then come the notes
_AUDITED = ("acknowledged_rows", "missing_rows", "wrong_rows", "unacknowledged_rows", "first_missing", "newest_lost_ms")


async def measure_crash(
    settings: StorageSettings, testbed: StorageTestbed, cell: Cell, on_progress: Callable[[float], None]
) -> Measurement:
    """Crash what is being written to, and audit what it acknowledged. Raises StoreError: no crash, or no recovery."""
    params, data, what = cell.params, data_of(settings, cell.params), cell.params["crash"]
    simulated = testbed.stage.platform.simulated  # whose client notes nothing in a file
    target = await testbed.target(params)
    acknowledged = target.acknowledged
    assert acknowledged is not None  # of what was started here; nothing else has such cells
    streams = [stream_of(settings, params, "single-write", {"kind": "closed"})]
    async with filled(settings, testbed, target, params):
        on_progress(0.2)
        acknowledged.unlink(missing_ok=True)
        seconds = settings.crash_after_s + _BEGUN_S + _BEYOND_S
        writing = asyncio.ensure_future(
            target.client.measure(data, streams, warmup_s=0.0, seconds=seconds, acknowledged=acknowledged)
        )
        try:
            deadline = time.monotonic() + _BEGUN_S
            while not simulated and not writing.done() and time.monotonic() < deadline and not _has_notes(acknowledged):
                await asyncio.sleep(_POLL_S)
            await asyncio.wait({writing}, timeout=settings.crash_after_s)
            if writing.done():
                await writing  # it could not even begin; or it ended of itself
                raise StoreError("lost", "the load ended before the crash")
            await testbed.crash(what)
            async with asyncio.timeout(_ENDED_S + settings.timeout_ms / 1000):
                await asyncio.gather(writing, return_exceptions=True)
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
        on_progress(0.5)
        started_ns = time.monotonic_ns()
        await testbed.restart(what)
        # An embedded database has no server that would answer: it recovers when the audit opens it.
        recovered_ns = None if target.embedded else time.monotonic_ns() - started_ns
        target = await testbed.target(params)
        audited = await target.client.audit(data, streams, acknowledged)
        on_progress(0.9)
    result = described(target) | {name: audited[name] for name in _AUDITED} | {"recovery_ns": recovered_ns}
    return Measurement(result, {}, {}, tuple(_flags(target, what, audited)))


def _has_notes(acknowledged: Path) -> bool:
    return acknowledged.exists() and acknowledged.stat().st_size > _NOTES_HEADER_BYTES


def _flags(target: Target, what: str, audited: Mapping[str, Any]) -> Iterator[Flag]:
    if not audited["acknowledged_rows"]:
        yield Flag("empty", "nothing had been acknowledged before the crash")
    if wrong := audited["wrong_rows"]:
        yield Flag("wrong-answer", f"{wrong} rows are there with other values than were written")
    missing, profile = audited["missing_rows"], target.profile
    survives = profile is not None and (profile.survives_kill if what == "server" else profile.flushes_each_write)
    if missing and profile is not None and survives:
        ended = "the server was killed" if what == "server" else "the machine's power was cut"
        text = f"{missing} of {audited['acknowledged_rows']} acknowledged rows are missing after {ended}"
        yield Flag("durability", f"{text}, which {profile.name} should survive", fatal=False)

"""The client first: what it comes to against a server that stores nothing, before anything is said of a database."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from virtgauge.suites.storage.client import Stream
from virtgauge.suites.storage.laboratory import StorageBench, Target

NEAR_THE_LIMIT = 0.5
"""A database that comes to more than this part of the client's limit may be faster than what is seen of it."""
_WARMUP_SHARE = 0.2


async def client_limit_per_s(
    bench: StorageBench, target: Target, data: Mapping[str, Any], stream: Stream, seconds: float
) -> float | None:
    """Operations per second of the client alone, closed loop; None where that cannot be known.

    Measured once on a bench for each driver, options, operation, values, clients and pipeline.

    Raises:
        StoreError: the null server, or the client on it, failed.
    """
    if seconds <= 0:
        return None
    store = target.client.store or {}
    driver = "none" if target.embedded else store.get("driver")
    options = tuple(sorted((store.get("options") or {}).items()))
    key = (driver, () if target.embedded else options, stream.operation, stream.values, stream.clients, stream.pipeline)
    if key not in bench.limits:
        client = await bench.null_client(target, data)
        if client is None:
            bench.limits[key] = None
        else:
            alone = dataclasses.replace(stream, loop={"kind": "closed"})
            measured = await client.measure(data, [alone], warmup_s=_WARMUP_SHARE * seconds, seconds=seconds)
            operations = measured.streams[0].operations
            bench.limits[key] = operations * 1e9 / measured.elapsed_ns if operations else None
    return bench.limits[key]

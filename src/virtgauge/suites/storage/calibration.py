"""What the client alone can do, beside a server that answers at once and stores nothing."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Hashable, Mapping
from typing import Any

from virtgauge.host.scope import Scope
from virtgauge.specs.storage_formatting import QUERIES
from virtgauge.suites.storage.client import Stream
from virtgauge.suites.storage.laboratory import StorageTestbed, Target

NEAR_THE_LIMIT = 0.5
"""A database that comes to more than this part of the client's limit may be faster than what is seen of it."""
_WARMUP_SHARE = 0.2
_known: weakref.WeakKeyDictionary[Scope, dict[Hashable, float]] = weakref.WeakKeyDictionary()
"""Limits by run, which has a scope of its own, and by what was asked where: clients outside of the guests, and their
null servers, are the host's on every platform, and what one testbed finds holds for all."""


def near_the_limit(operations_per_s: float, client_limit_per_s: float | None) -> bool:
    """Whether a database came so near to the client's own limit that it may be faster."""
    return client_limit_per_s is not None and operations_per_s > NEAR_THE_LIMIT * client_limit_per_s


async def client_limit_per_s(
    testbed: StorageTestbed,
    target: Target,
    data: Mapping[str, Any],
    stream: Stream,
    seconds: float,
    *,
    reached_per_s: float = 0.0,
) -> float | None:
    """Operations per second of the client alone, closed loop; None where that cannot be known, or is to take 0 seconds.

    Measured once in a run for each place, driver, options, operation, values, clients and pipeline; and once more on
    each testbed whose database has come near to it, for it may have been found at a bad moment.

    Raises StoreError: the null server, or the client on it, failed.
    """
    if seconds <= 0:
        return None
    if stream.operation in QUERIES:  # their answers are as long as that of a single read, and null servers find nothing
        stream = dataclasses.replace(stream, operation="read", values=1)
    store: Mapping[str, Any] = {"driver": "none", "options": {}} if target.embedded else target.client.store
    driver, options = store["driver"], tuple(sorted(store["options"].items()))
    key = (testbed.client_place, driver, options, stream.operation, stream.values, stream.clients, stream.pipeline)
    known = _known.setdefault(testbed.stage.scope, {})
    doubted = near_the_limit(reached_per_s, known.get(key)) and key not in testbed.calibrated
    if key not in known or doubted:
        if (client := await testbed.null_client(target, data)) is not None:
            alone = dataclasses.replace(stream, loop={"kind": "closed"})
            measured = await client.measure(data, [alone], warmup_s=_WARMUP_SHARE * seconds, seconds=seconds)
            if measured.operations_per_s and not any(one.errors for one in measured.streams):
                known[key] = max(measured.operations_per_s, known.get(key, 0.0))
        testbed.calibrated.add(key)
    return known.get(key)

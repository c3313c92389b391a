"""What the client alone can do, beside a server that answers at once and stores nothing."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
import weakref
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

from virtgauge.agent.channel import Channel
from virtgauge.host.scope import Scope
from virtgauge.suites.loads import Running
from virtgauge.suites.storage.client import Sensorstore, StoreError, Stream
from virtgauge.suites.storage.laboratory import StorageTestbed, Target
from virtgauge.suites.storage.settings import QUERIES

_READY_S, _POLL_S = 10.0, 0.02
NEAR_THE_LIMIT = 0.5
"""A database that comes to more than this part of the client's limit may be faster than what is seen of it."""
_WARMUP_SHARE = 0.2
_known: weakref.WeakKeyDictionary[Scope, dict[Hashable, float]] = weakref.WeakKeyDictionary()
"""Limits by run, which has a scope of its own, and by what was asked where: clients outside of the guests, and their
null servers, are the host's on every platform, and what one testbed finds holds for all."""


class NullServer:
    """A server of a driver's protocol that answers at once and stores nothing, in a peer of its own within the lab.

    Its answers follow from the data, so it is started for each.
    """

    def __init__(self, agent: Channel, program: Path, protocol: str, address: str, port: int) -> None:
        self._agent, self._program = agent, program
        self._specification = {"protocol": protocol, "address": address, "port": port}
        self._data: Any = None
        self._load: Running | None = None

    async def client(self, client: Sensorstore, data: Any) -> Sensorstore:
        """The same client, talking to the null server, which answers with this data.

        Raises:
            StoreError: it does not answer in time.
        """
        place = {name: self._specification[name] for name in ("address", "port")}
        here = client.on({**(client.store or {}), **place, "uri": None})
        if self._load is not None and data == self._data:
            return here
        await self.stop()
        argv = [str(self._program), "null", json.dumps({**self._specification, "data": data})]
        self._load = await Running.start(self._agent, "program", {"argv": argv}, "the null server")
        self._data = data
        deadline = time.monotonic() + _READY_S
        while True:
            try:
                await here.about()
                return here
            except StoreError as error:
                if error.code != "refused" or time.monotonic() > deadline:
                    await self.stop()
                    raise StoreError("client", f"the null server does not answer: {error.message}") from error
            await asyncio.sleep(_POLL_S)

    async def stop(self) -> None:
        """End it.  Idempotent."""
        load, self._load = self._load, None
        if load is not None:
            await load.stop()


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
    """Operations per second of the client alone, closed loop; None where that cannot be known.

    Measured once in a run for each place, driver, options, operation, values, clients and pipeline; and once more on
    each testbed whose database has come near to it, for it may have been found at a bad moment.

    Args:
        data: what reads are answered from.
        seconds: of measuring; 0 for not at all.
        reached_per_s: what the database has come to.

    Raises:
        StoreError: the null server, or the client on it, failed.
    """
    if seconds <= 0:
        return None
    if stream.operation in QUERIES:  # their answers are as long as that of a single read, and null servers find nothing
        stream = dataclasses.replace(stream, operation="read", values=1)
    store = target.client.store or {}
    options = () if target.embedded else tuple(sorted((store.get("options") or {}).items()))
    driver = "none" if target.embedded else store.get("driver")
    key = (testbed.client_place, driver, options, stream.operation, stream.values, stream.clients, stream.pipeline)
    known = _known.setdefault(testbed.stage.scope, {})
    doubted = near_the_limit(reached_per_s, known.get(key)) and key not in testbed.calibrated
    if key not in known or doubted:
        if (client := await testbed.null_client(target, data)) is not None:
            alone = dataclasses.replace(stream, loop={"kind": "closed"})
            measured = await client.measure(data, [alone], warmup_s=_WARMUP_SHARE * seconds, seconds=seconds)
            if measured.operations:
                known[key] = max(measured.operations_per_s, known.get(key, 0.0))
        testbed.calibrated.add(key)
    return known.get(key)

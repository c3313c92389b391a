"""A server of a driver's protocol that answers at once and stores nothing: what the client alone can do."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

from virtgauge.agent.channel import Channel
from virtgauge.network.namespace import Namespace
from virtgauge.platforms.base import LaunchError
from virtgauge.suites.bench import Stage
from virtgauge.suites.storage.client import Sensorstore, StoreError

PROTOCOLS = {
    "postgres": "postgres",
    "questdb": "postgres",
    "mongo": "mongo",
    "cassandra": "cassandra",
    "influxdb": "http",
    "victoriametrics": "http",
}
"""What a null server speaks, by driver."""

_READY_S, _POLL_S, _SHORT_S = 10.0, 0.02, 30.0


class NullServer:
    """One, in a peer of its own within the lab.  Its answers follow from the data, so it is started for each."""

    def __init__(self, agent: Channel, program: Path, protocol: str, address: str, port: int) -> None:
        self._agent, self._program = agent, program
        self._specification = {"protocol": protocol, "address": address, "port": port}
        self._data: Any = None
        self._load: int | None = None

    @classmethod
    async def launch(
        cls, stage: Stage, lab: Namespace, program: Path, driver: str, address: str, port: int
    ) -> NullServer | None:
        """Launch the peer; None for a driver that has no null server.

        Raises:
            StoreError: it did not come up.
        """
        protocol = PROTOCOLS.get(driver)
        if protocol is None:
            return None
        try:
            peer = await stage.launch_peer("null", lab=lab)
        except LaunchError as error:
            raise StoreError("client", f"the peer of the null server did not come up: {error}") from error
        return cls(peer.channel, program, protocol, address, port)

    async def client(self, client: Sensorstore, data: Any) -> Sensorstore:
        """The same client, talking to the null server, which answers with this data.

        Raises:
            StoreError: it does not answer in time.
        """
        specification = self._specification
        address, port = specification["address"], specification["port"]
        here = client.on({**(client.store or {}), "address": address, "port": port, "uri": None})
        if self._load is not None and data == self._data:
            return here
        await self.stop()
        argv = [str(self._program), "null", json.dumps({**specification, "data": data})]
        reply = await self._agent.request("load_start", name="program", params={"argv": argv}, timeout_s=_SHORT_S)
        self._load, self._data = int(reply.value["load"]), data
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
            await self._agent.request("load_stop", load=load, timeout_s=_SHORT_S)

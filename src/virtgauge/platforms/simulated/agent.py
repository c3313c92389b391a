"""An agent inside the controller's own process: speaks the real protocol, and invents its samples.

It measures nothing and takes no time, so that statistics can be tested over thousands of trials; and it breaks in
every way that :class:`~virtgauge.platforms.simulated.truth.Fault` names, so that the controller's answers can be.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from virtgauge.agent.channel import PROTOCOL_VERSION
from virtgauge.agent.frames import FrameDecoder, ProtocolError, encode
from virtgauge.platforms.simulated.forwarding import ForwardingDevice, ForwardingTruth
from virtgauge.platforms.simulated.packet_trial import packet_trial
from virtgauge.platforms.simulated.storage import StorageDevice, StorageTruth
from virtgauge.platforms.simulated.storage_commands import StorageCommands
from virtgauge.platforms.simulated.truth import Distribution, Fault, distribution_message

_MOST_SAMPLES = 20_000
"""A simulated trial draws no more values than this, whatever was asked: the rest would say the same again."""


class SimulatedAgent:
    """One guest's agent.

    Args:
        truth: distribution by function, with ``*`` for any other.
        load_factor: what the CPU-bound load multiplies the values with.
        forwarding: the device that answers ``packet_trial``.
        storage: the database that answers the load generator, which is all that can be run.
    """

    def __init__(
        self,
        *,
        truth: Mapping[str, Distribution],
        load_factor: float,
        forwarding: ForwardingTruth,
        storage: StorageTruth,
        faults: Sequence[Fault],
        sha256: str,
        seed: int,
    ) -> None:
        self._truth, self._load_factor, self._faults, self._sha256 = truth, load_factor, faults, sha256
        self._random = np.random.default_rng(seed)
        self._guest_factors = {name: truth[name].guest_factor(self._random) for name in sorted(truth)}
        self._forwarding = ForwardingDevice(forwarding, seed)
        self._storage = StorageCommands(StorageDevice(storage, seed))
        self._sequence = 0
        self._writer: asyncio.StreamWriter | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer until the stream ends."""
        self._writer = writer
        decoder = FrameDecoder()
        with contextlib.suppress(ConnectionError, ProtocolError):
            while data := await reader.read(65536):
                for message in decoder.feed(data):
                    if not await self._answer(message):
                        return
        writer.close()

    async def _answer(self, message: dict[str, Any]) -> bool:
        """Answer one message; False ends the session."""
        kind = message["type"]
        if kind == "hello":
            await self._send(
                {
                    "type": "welcome",
                    "protocol": PROTOCOL_VERSION,
                    "token": message["token"],
                    "agent_version": "simulated",
                    "agent_sha256": self._sha256,
                    "pid": 1,
                    "init": False,
                }
            )
        elif kind == "facts":
            await self._result(message, {"agent_version": "simulated", "agent_sha256": self._sha256})
        elif kind == "probe":
            return await self._probe(message)
        elif kind == "run":
            for answered, value in self._storage.run(message):
                await self._result(answered, value)
        elif kind == "shutdown":
            await self._result(message, {})
            assert self._writer is not None
            self._writer.close()
            return False
        return True

    async def _probe(self, message: dict[str, Any]) -> bool:
        function = message["params"].get("function", message["name"])
        fault = self._fault(function)
        if fault == "hang":
            return True
        if fault in {"crash", "garbage"}:
            assert self._writer is not None
            self._writer.write(b"\x00\x00\x10\x00half" if fault == "crash" else self._random.bytes(4096))
            self._writer.close()
            return False
        if fault in {"refuse", "unsupported"}:
            code = "internal" if fault == "refuse" else "unsupported"
            await self._send(
                {"type": "error", "id": message["id"], "code": code, "message": "simulated", "errno": None}
            )
            return True
        start = _clocks(0)
        await self._send({"type": "started", "id": message["id"], "clocks": start})
        if message["name"] == "packet_trial":
            await self._result(message, packet_trial(self._forwarding, message["params"]))
            return True
        await self._report(message, function, start, drift_ns=2_000_000 if fault == "clock-drift" else 0)
        return True

    async def _report(self, message: dict[str, Any], function: str, start: dict[str, Any], drift_ns: int) -> None:
        params = message["params"]
        name = function if function in self._truth else "*"
        loaded = message.get("load") is not None
        factor = self._guest_factors[name] * (self._load_factor if loaded else 1.0)
        n = int(params["samples"])
        values = self._truth[name].draw(min(n, _MOST_SAMPLES), factor, self._random)
        distribution = distribution_message(values)
        if n > len(values) and n % len(values) == 0:  # each drawn value stands for as many as were asked
            counts = np.frombuffer(distribution["counts"], dtype="<u8") * np.uint64(n // len(values))
            distribution |= {"counts": counts.tobytes(), "n": n}
        kept = values[: int(params["reservoir"])]
        await self._send(
            {"type": "samples", "id": message["id"], "series": "reservoir", "values": kept.astype("<i8").tobytes()}
        )
        await self._result(
            message,
            {
                "function": function,
                "distribution": distribution,
                "requested": n,
                "method": "simulated",
                "clocks_start": start,
                "clocks_end": _clocks(drift_ns),
                "usage": {"cpu_ns": 0, "steal_ns": None, "elapsed_ns": 0},
            },
        )

    def _fault(self, function: str) -> str | None:
        for fault in self._faults:
            concerned = fault.kind != "no-launch" and fault.function in {None, function}
            if concerned and self._random.random() < fault.probability:
                return fault.kind
        return None

    async def _result(self, message: dict[str, Any], value: dict[str, Any]) -> None:
        await self._send({"type": "result", "id": message["id"], "value": value})

    async def _send(self, message: dict[str, Any]) -> None:
        assert self._writer is not None
        self._writer.write(encode(message, self._sequence))
        self._sequence += 1
        await self._writer.drain()


def _clocks(drift_ns: int) -> dict[str, Any]:
    now = time.monotonic_ns()
    return {"monotonic_ns": now, "monotonic_raw_ns": now + drift_ns, "tsc_ns": None, "bracket_ns": 0}

"""An agent inside the controller's own process: speaks the real protocol, and invents its samples.

It measures nothing and takes no time, so that statistics can be tested over thousands of trials; and it breaks in
every way that :class:`~virtgauge.platforms.simulated.truth.Fault` names, so that the controller's answers can be.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from virtgauge.agent.channel import PROTOCOL_VERSION, AgentError
from virtgauge.agent.frames import FrameDecoder, ProtocolError, encode
from virtgauge.platforms.simulated.bandwidth import LOADS, BandwidthEnd
from virtgauge.platforms.simulated.forwarding import ForwardingDevice, ForwardingTruth
from virtgauge.platforms.simulated.isolation import Work, work_name
from virtgauge.platforms.simulated.neighbours import Load, Tenant, kernel_trial, load_result
from virtgauge.platforms.simulated.storage import StorageCommands, StorageDevice, StorageTruth
from virtgauge.platforms.simulated.truth import (
    BurstMachine,
    Distribution,
    Fault,
    cycle_fields,
    cycles_of,
    distribution_message,
    lognormal,
)

_ANSWERS = {
    "refuse": ("internal", None),
    "unsupported": ("unsupported", None),
    "wrong-result": ("wrong-result", None),
    "disk-full": ("os", errno.ENOSPC),
    "peer-lost": ("peer-lost", None),
    "peer-version": ("peer-version", None),
    "no-answer": ("no-answer", None),
    "clock-step": ("clock-step", None),
}
"""Faults that are nothing but an error answer: its code and errno."""
_OF_PROBES = {"hang", "crash", "garbage", "clock-drift", "clock-ahead", "out-of-memory", "killed", *_ANSWERS}
_OF_LOADS = {"loader-dies", "loader-idle", "loader-lost", "out-of-memory", "killed"}
_MOST_SAMPLES = 20_000
"""A simulated trial draws no more values than this, whatever was asked: the rest would say the same again."""

_REQUEST_NS, _SETTLING_NS = 200_000, 100_000_000
"""What a request takes on a machine whose time passes, and what a load needs to settle."""


class SimulatedAgent:
    """One guest's agent."""

    def __init__(
        self,
        *,
        truth: Mapping[str, Distribution],  # by function, with ``*`` for any other
        load_factor: float,  # what the CPU-bound load multiplies the values with
        setting_factors: Mapping[str, float],  # what levels of settings multiply them with
        forwarding: ForwardingTruth,  # of the device that answers ``packet_trial``
        storage: StorageTruth,  # of the database that answers the load generator, which is all that can be run
        tenant: Tenant,  # the guest's place on the machine that its kernels work on
        bandwidth: BandwidthEnd,  # the guest's end of a path whose bandwidth is estimated
        machine: BurstMachine | None,  # whose bursts lengthen what is timed; None: all is done in no time
        faults: Sequence[Fault],
        sha256: str,
        boot_id: str | None,  # of its kernel; None where it does not tell
        seed: int,
    ) -> None:
        self._truth, self._load_factor, self._faults, self._sha256 = truth, load_factor, faults, sha256
        self._setting_factors = setting_factors
        self._random = np.random.default_rng(seed)
        self._guest_factors = {name: lognormal(truth[name].guest_sigma, self._random) for name in sorted(truth)}
        self._forwarding = ForwardingDevice(forwarding, seed)
        self._storage = StorageCommands(StorageDevice(storage, seed))
        self._tenant, self._bandwidth, self._machine = tenant, bandwidth, machine
        self._boot_id, self._sequence = boot_id, 0
        self._writer: asyncio.StreamWriter  # there from the beginning of :meth:`serve`

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
            kernel = {} if self._boot_id is None else {"boot_id": self._boot_id}
            await self._result(message, {"agent_version": "simulated", "agent_sha256": self._sha256} | kernel)
        elif kind == "probe":
            return await self._probe(message)
        elif kind == "run":
            if (estimated := self._bandwidth.run(message)) is not None:
                await self._result(message, estimated)
                return True
            for answered, value in self._storage.run(message):
                await self._result(answered, value)
        elif kind in {"load_start", "load_stop"}:
            await self._load(message)
        elif kind == "shutdown":
            await self._result(message, {})
            self._hang_up()
            return False
        return True

    async def _probe(self, message: dict[str, Any]) -> bool:
        params = message["params"]
        function = work_name(params) if message["name"] == "kernel" else params.get("function", message["name"])
        function = params["estimator"] if message["name"] == "bandwidth" else function
        fault = self._fault(function, _OF_PROBES)
        if fault == "hang":
            return True
        if fault in {"crash", "garbage"}:
            self._writer.write(b"\x00\x00\x10\x00half" if fault == "crash" else self._random.bytes(4096))
            self._hang_up()
            return False
        if fault in {"out-of-memory", "killed"}:
            self._tenant.kill()
        if fault == "killed":
            self._hang_up()
            return False
        if fault in _ANSWERS:
            code, errno_ = _ANSWERS[fault]
            await self._refuse(message, AgentError(code, "simulated", errno_))
            return True
        start = _clocks()
        await self._send({"type": "started", "id": message["id"], "clocks": start})
        if message["name"] == "packet_trial":
            await self._result(message, self._forwarding.packet_trial(params))
            return True
        size_ns = next((round(one.size_ms * 1e6) for one in self._faults if one.kind == fault), 0)
        off = {fault: size_ns} if fault in {"clock-drift", "clock-ahead"} else {}
        try:
            if message["name"] == "bandwidth":
                value = self._bandwidth.probe(params)
            elif message["name"] == "kernel":
                value = kernel_trial(self._tenant, params)
            else:
                await self._report(message, function, start, off)
                return True
        except AgentError as failure:
            await self._refuse(message, failure)
        else:
            await self._result(message, value | {"clocks_start": start, "clocks_end": _clocks(off)})
        return True

    async def _report(
        self, message: dict[str, Any], function: str, start: dict[str, Any], off: Mapping[str, int]
    ) -> None:
        params = message["params"]
        name = function if function in self._truth else "*"
        loaded = message.get("load") is not None
        factor = self._guest_factors[name] * (self._load_factor if loaded else 1.0)
        for setting in ("policy", "class", "idle_states"):
            factor *= self._setting_factors.get(params.get(setting), 1.0)
        cycles = message["name"] == "cycle"
        n, elapsed_ns = (cycles_of(params) if cycles else int(params["samples"])), 0
        values = self._truth[name].draw(min(n, _MOST_SAMPLES), factor, self._random)
        if self._machine is not None:
            values, elapsed_ns = self._lengthened(self._machine, values, params, loaded)
            n = len(values)
        if not cycles:
            kept = values[: int(params["reservoir"])].astype("<i8").tobytes()
            await self._send({"type": "samples", "id": message["id"], "series": "reservoir", "values": kept})
        await self._result(
            message,
            {
                **(cycle_fields(values, params) if cycles else {"function": function, "requested": n}),
                "distribution": distribution_message(values, total=n),
                "method": "simulated",
                "clocks_start": start,
                "clocks_end": _clocks(off),
                "usage": {"cpu_ns": 0, "steal_ns": None, "elapsed_ns": elapsed_ns},
            },
        )

    def _lengthened(
        self, machine: BurstMachine, values: npt.NDArray[np.int64], params: Mapping[str, Any], loaded: bool
    ) -> tuple[npt.NDArray[np.int64], int]:
        """Values (ps) as they are on a machine with bursts, as many as are measured in time, and the time (ns)."""
        machine.pass_time(_REQUEST_NS + loaded * _SETTLING_NS)
        before_ns = machine.snapshot().taken_at
        lasting_ns = int(params.get("target_ns", 0)) + values / 1000
        lengthened_ns = machine.work(lasting_ns, float(params["max_ns"]))
        elapsed_ns = machine.snapshot().taken_at - before_ns
        return values[: len(lengthened_ns)] + np.rint(lengthened_ns * 1000).astype(np.int64), elapsed_ns

    async def _load(self, message: dict[str, Any]) -> None:
        """Start or stop a load: of a path, or a kernel."""
        try:
            if message["type"] == "load_stop":
                told = self._bandwidth.stop(message["load"]) or load_result(self._tenant.stop())
            elif message["name"] in LOADS:
                told = {"load": self._bandwidth.start(message["name"], message["params"])}
            elif message["name"] == "kernel":
                work = Work.from_params(message["params"], ("intensity_percent",))
                self._tenant.start(Load(work, self._fault(work.name, _OF_LOADS), self._hang_up))
                told = {"load": 1}
            else:
                raise AgentError("unsupported", f"the simulation has no load {message['name']!r}")
        except AgentError as failure:
            await self._refuse(message, failure)
        else:
            await self._result(message, told)

    def _fault(self, function: str, kinds: Collection[str]) -> str | None:
        for fault in self._faults:
            concerned = fault.kind in kinds and fault.function in {None, function}
            if concerned and self._random.random() < fault.probability:
                return fault.kind
        return None

    async def _result(self, message: dict[str, Any], value: dict[str, Any]) -> None:
        await self._send({"type": "result", "id": message["id"], "value": value})

    async def _refuse(self, message: dict[str, Any], why: AgentError) -> None:
        await self._send(
            {"type": "error", "id": message["id"], "code": why.code, "message": why.message, "errno": why.errno}
        )

    def _hang_up(self) -> None:
        self._writer.close()

    async def _send(self, message: dict[str, Any]) -> None:
        self._writer.write(encode(message, self._sequence))
        self._sequence += 1
        await self._writer.drain()


def _clocks(off: Mapping[str, int] | None = None) -> dict[str, Any]:
    """What the clocks say; faults that they suffer are given with their sizes (ns)."""
    told = off or {}
    now = time.monotonic_ns() + told.get("clock-ahead", 0)
    return {
        "monotonic_ns": now,
        "monotonic_raw_ns": now + told.get("clock-drift", 0),
        "tsc_ns": None,
        "bracket_ns": 0,
    }

"""An agent inside the controller's own process: speaks the real protocol, and invents its samples by a plan's settings.

It measures nothing and takes no time, so that statistics can be tested over thousands of trials; and it breaks in
every way that :class:`Fault` names, so that the controller's answers can be.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import time
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal, get_args

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from virtgauge.agent.channel import PROTOCOL_VERSION, AgentError
from virtgauge.agent.messages import FrameDecoder, ProtocolError, encode
from virtgauge.host.process import boot_id
from virtgauge.plan import Section
from virtgauge.platforms.simulated.answers import cycle_fields, cycles_of, distribution_message
from virtgauge.platforms.simulated.bandwidth import LOADS, BandwidthEnd, BandwidthTruth, SimulatedLink
from virtgauge.platforms.simulated.forwarding import ForwardingDevice, ForwardingTruth
from virtgauge.platforms.simulated.isolation import IsolationTruth, Work, work_name
from virtgauge.platforms.simulated.neighbours import Load, Tenant, kernel_trial, load_result
from virtgauge.platforms.simulated.storage import StorageDevice, StorageTruth
from virtgauge.platforms.simulated.truth import BurstMachine, Bursts, Distribution, Positive, Share, lognormal

GuestFault = Literal["hang", "crash", "garbage", "no-launch", "clock-drift", "clock-ahead"]
AnswerFault = Literal["refuse", "unsupported", "wrong-result", "disk-full"]
EstimateFault = Literal["peer-lost", "peer-version", "no-answer", "clock-step"]
MemoryFault = Literal["out-of-memory", "killed"]
LoadFault = Literal["loader-dies", "loader-idle", "loader-lost"]
_ANSWERS: dict[str, tuple[str, int | None]] = {
    **{kind: (kind, None) for kind in (*get_args(AnswerFault), *get_args(EstimateFault))},
    **{"refuse": ("internal", None), "disk-full": ("os", errno.ENOSPC)},
}
"""Faults that are nothing but an error answer: its code and errno."""
_OF_PROBES = {*get_args(GuestFault), *get_args(MemoryFault), *_ANSWERS} - {"no-launch"}
_OF_LOADS = {*get_args(LoadFault), *get_args(MemoryFault)}
_MOST_SAMPLES = 20_000
"""A simulated trial draws no more values than this, whatever was asked: the rest would say the same again."""
_REQUEST_NS, _SETTLING_NS = 200_000, 250_000_000
"""What a request takes on a machine whose time passes, and what a load needs to settle, as the agent has it."""


class Fault(Section):
    """Something that goes wrong.

    ``hang`` never answers; ``crash`` ends the stream inside a frame; ``garbage`` sends random bytes; ``refuse``
    answers with an error; ``no-launch``: the guest does not start; ``clock-drift``: its clocks disagree;
    ``clock-ahead``: they agree, and count more than passes outside. Of the agent's kernels: ``wrong-result`` and
    ``disk-full`` answer with an error; ``out-of-memory``: a process of the guest is killed at its memory limit;
    ``killed``: the agent is. Of bandwidth estimates: ``peer-lost``, ``peer-version``, ``no-answer`` and
    ``clock-step`` answer with an error. Of kernels as loads: ``loader-dies`` ends half-way through the trial and
    says so; ``loader-idle`` does nothing and does not say so; ``loader-lost`` ends half-way, with its guest.
    """

    kind: Literal[GuestFault, AnswerFault, EstimateFault, MemoryFault, LoadFault]
    """What happens; see above."""
    function: str | None = None
    """Only in trials of this function, kernel (``memory-write-simd``) or estimator."""
    probability: Share = 1.0
    """Per trial (``no-launch``: per launch; faults of a load: per start of a load)."""
    size_ms: float = 2.0
    """How far clocks are off at the end of a trial; where they stood still, it is negative."""
    first_guests: Annotated[int, Field(ge=0)] = 0
    """Only in that many guests, counted from the first; 0 means all."""


class Change(Section):
    """From a guest on, other settings hold: what happens to a host in the middle of a run."""

    from_guest: Annotated[int, Field(ge=1)]
    """That guest, counted from 1 as they are launched."""
    settings: dict[str, Any]
    """What holds from there on, instead of the same settings of the platform."""


class SimulatedSettings(Section):
    """No platform at all: an agent with a known truth, to try plans and to test that reports tell that truth."""

    seed: Annotated[int, Field(ge=0)] = 0
    """Of all that is drawn. Two platforms with the same seed and truth give the same values."""
    truth: dict[str, Distribution] = Field(default_factory=lambda: {"*": Distribution(median_ns=25.0)})
    """Distribution by function; ``*`` stands for every function that is not named."""
    load_factor: Positive = 1.0
    """The CPU-bound load multiplies every value by this."""
    setting_factors: dict[str, Positive] = Field(default_factory=dict)
    """The level of a setting (``fifo``, ``shallow``) multiplies every value of a sleep or a cycle by this."""
    forwarding: ForwardingTruth = ForwardingTruth()
    """A guest as a forwarding device."""
    storage: StorageTruth = StorageTruth()
    """The database in a guest."""
    isolation: IsolationTruth = IsolationTruth()
    """The machine that a guest and its neighbour share."""
    bandwidth: BandwidthTruth = BandwidthTruth()
    """The network path of a guest."""
    bursts: Bursts | None = None
    """What others take of the machine while clocks and sleeps are measured; none: all is done in no time."""
    faults: tuple[Fault, ...] = ()
    """What goes wrong, and how often."""
    changes: tuple[Change, ...] = ()
    """What is different from some guest on."""
    virtual: bool | None = None
    """Whether its guests tell of a kernel of their own (``true``) or of this machine's; none: they do not tell. Where a
    change says other than the platform, other guests than the plan's answer."""
    usable: bool = True
    """``false``: the platform reports itself as unusable."""
    emulated: bool = False
    """``true``: the figures are labelled emulated."""

    @model_validator(mode="after")
    def _changes_hold(self) -> SimulatedSettings:
        for change in self.changes:
            self.at(change.from_guest)
        return self

    def at(self, guest: int) -> SimulatedSettings:
        """The settings of a guest, by its number, with the faults that befall it."""
        changed = {name: one for c in self.changes if guest >= c.from_guest for name, one in c.settings.items()}
        own = self.model_validate(self.model_dump(exclude={"changes"}) | changed) if changed else self
        faults = tuple(fault for fault in own.faults if not fault.first_guests or guest <= fault.first_guests)
        return own.model_copy(update={"faults": faults})


class SimulatedAgent:
    """One guest's agent."""

    def __init__(
        self,
        settings: SimulatedSettings,
        tenant: Tenant,  # the guest's place on the machine that its kernels work on
        link: SimulatedLink,  # the path whose bandwidth is estimated
        machine: BurstMachine | None,  # whose bursts lengthen what is timed; None: all is done in no time
        sha256: str,
        seed: int,
    ) -> None:
        self._settings, self._tenant, self._machine, self._sha256 = settings, tenant, machine, sha256
        self._random = np.random.default_rng(seed)
        truth = settings.truth
        self._guest_factors = {name: lognormal(truth[name].guest_sigma, self._random) for name in sorted(truth)}
        self._forwarding = ForwardingDevice(settings.forwarding, seed)
        self._storage = StorageDevice(settings.storage, seed)
        self._bandwidth = BandwidthEnd(link)
        self._sequence = 0
        self._writer: asyncio.StreamWriter  # there from the beginning of :meth:`serve`

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        decoder = FrameDecoder()
        with contextlib.suppress(ConnectionError, ProtocolError):
            while data := await reader.read(65536):
                for message in decoder.feed(data):
                    try:
                        goes_on = await self._answer(message)
                    except AgentError as why:
                        told = {"code": why.code, "message": why.message, "errno": why.errno}
                        await self._send({"type": "error", "id": message["id"], **told})
                    else:
                        if not goes_on:
                            return
        writer.close()

    async def _answer(self, message: dict[str, Any]) -> bool:
        """Answer one message; False ends the session.  Raises AgentError: that is the answer."""
        own = {"agent_version": "simulated", "agent_sha256": self._sha256}
        match message["type"]:
            case "hello":
                known = {"protocol": PROTOCOL_VERSION, "token": message["token"], "pid": 1, "init": False}
                await self._send({"type": "welcome", **own, **known})
            case "facts":
                virtual = self._settings.virtual
                kernel = {} if virtual is None else {"boot_id": "simulated" if virtual else boot_id()}
                await self._result(message, own | kernel)
            case "probe":
                return await self._probe(message)
            case "run":
                if (estimated := self._bandwidth.run(message)) is not None:
                    await self._result(message, estimated)
                    return True
                for answered, value in self._storage.run(message):
                    await self._result(answered, value)
            case "load_start":
                await self._result(message, {"load": self._start_load(message["name"], message["params"])})
            case "load_stop":
                await self._result(message, self._bandwidth.stop(message["load"]) or load_result(self._tenant.stop()))
            case "shutdown":
                await self._result(message, {})
                self._writer.close()
                return False
        return True

    async def _probe(self, message: dict[str, Any]) -> bool:
        params, probe = message["params"], message["name"]
        function = params.get("function", probe)
        if probe in {"kernel", "bandwidth"}:
            function = work_name(params) if probe == "kernel" else params["estimator"]
        fault = self._fault(function, _OF_PROBES)
        if fault == "hang":
            return True
        if fault in {"out-of-memory", "killed"}:
            self._tenant.kill()
        if fault in {"crash", "garbage"}:
            self._writer.write(b"\x00\x00\x10\x00half" if fault == "crash" else self._random.bytes(4096))
        if fault in {"crash", "garbage", "killed"}:
            self._writer.close()
            return False
        if fault in _ANSWERS:
            code, errno_ = _ANSWERS[fault]
            raise AgentError(code, "simulated", errno_)
        start = _clocks()
        await self._send({"type": "started", "id": message["id"], "clocks": start})
        size_ns = next((round(one.size_ms * 1e6) for one in self._settings.faults if one.kind == fault), 0)
        match probe:
            case "packet_trial":
                await self._result(message, self._forwarding.packet_trial(params))
                return True
            case "bandwidth":
                value = self._bandwidth.probe(params)
            case "kernel":
                value = kernel_trial(self._tenant, params)
            case _:
                value, samples = self._timed(message, function)
                if probe != "cycle":
                    kept = samples[: int(params["reservoir"])].astype("<i8").tobytes()
                    await self._send({"type": "samples", "id": message["id"], "series": "reservoir", "values": kept})
        await self._result(message, value | {"clocks_start": start, "clocks_end": _clocks(fault, size_ns)})
        return True

    def _timed(self, message: dict[str, Any], function: str) -> tuple[dict[str, Any], npt.NDArray[np.int64]]:
        """A trial of clock reads, sleeps or cycles, without the clocks, and its values (ps)."""
        params = message["params"]
        name = function if function in self._settings.truth else "*"
        loaded, cycles = message.get("load") is not None, message["name"] == "cycle"
        factor = self._guest_factors[name] * (self._settings.load_factor if loaded else 1.0)
        for setting in ("policy", "class", "idle_states"):
            factor *= self._settings.setting_factors.get(params.get(setting), 1.0)
        n = cycles_of(params) if cycles else int(params["samples"])
        elapsed_ns = _least_ns(params)
        values = self._settings.truth[name].draw(min(n, _MOST_SAMPLES), factor, self._random)
        if self._machine is not None:
            values, elapsed_ns = self._lengthened(self._machine, values, params, loaded)
            n = len(values)
        value = {
            **(cycle_fields(values, params) if cycles else {"function": function, "requested": n}),
            "distribution": distribution_message(values, total=n),
            "method": "simulated",
            "usage": {"cpu_ns": 0, "steal_ns": None, "elapsed_ns": elapsed_ns},
        }
        return value, values

    def _lengthened(
        self, machine: BurstMachine, values: npt.NDArray[np.int64], params: Mapping[str, Any], loaded: bool
    ) -> tuple[npt.NDArray[np.int64], int]:
        """Values (ps) as they are on a machine with bursts, as many as are measured in time, and the time (ns)."""
        machine.pass_time(_REQUEST_NS + loaded * _SETTLING_NS)
        before_ns = machine.snapshot().taken_at
        lasting_ns = int(params.get("target_ns", 0)) + values / 1000
        lengthened_ns = machine.work(lasting_ns, float(params["max_ns"]))
        elapsed_ns = machine.snapshot().taken_at - before_ns
        if (rest_ns := _least_ns(params) - elapsed_ns) > 0:
            machine.pass_time(rest_ns)
            elapsed_ns += rest_ns
        return values[: len(lengthened_ns)] + np.rint(lengthened_ns * 1000).astype(np.int64), elapsed_ns

    def _start_load(self, name: str, params: Mapping[str, Any]) -> int:
        """Start a load of a path, or a kernel; its number."""
        if name in LOADS:
            return self._bandwidth.start(name, params)
        if name != "kernel":
            raise AgentError("unsupported", f"the simulation has no load {name!r}")
        work = Work.from_params(params, ("intensity_percent",))
        self._tenant.start(Load(work, self._fault(work.name, _OF_LOADS), self._writer.close))
        return 1

    def _fault(self, function: str, kinds: Collection[str]) -> str | None:
        for fault in self._settings.faults:
            concerned = fault.kind in kinds and fault.function in {None, function}
            if concerned and self._random.random() < fault.probability:
                return fault.kind
        return None

    async def _result(self, message: Mapping[str, Any], value: dict[str, Any]) -> None:
        await self._send({"type": "result", "id": message["id"], "value": value})

    async def _send(self, message: dict[str, Any]) -> None:
        self._writer.write(encode(message, self._sequence))
        self._sequence += 1
        await self._writer.drain()


def _clocks(fault: str | None = None, size_ns: int = 0) -> dict[str, Any]:
    """What the clocks say; with a fault of theirs, off by its size."""
    now = time.monotonic_ns() + size_ns * (fault == "clock-ahead")
    raw_ns = now + size_ns * (fault == "clock-drift")
    return {"monotonic_ns": now, "monotonic_raw_ns": raw_ns, "tsc_ns": None, "bracket_ns": 0}


def _least_ns(params: Mapping[str, Any]) -> int:
    """For how long a trial goes on at least; what it reads once it has its samples would say the same again."""
    return min(int(params.get("least_ns", 0)), int(params["max_ns"]))

"""What delays and loses frames between the router and the receiver: a namespace that frames pass on their way.

There the kernel's netem does it at both interfaces of a bridge, or the agent's link emulator moves every frame itself.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, Protocol

from virtgauge.agent.channel import AgentError, Channel
from virtgauge.network.bridge import LinuxBridge
from virtgauge.network.links import connect
from virtgauge.network.namespace import Namespace
from virtgauge.network.nic import NetworkError, Nic
from virtgauge.network.shaper import Impairment, has_netem, impair
from virtgauge.network.switch import Rule
from virtgauge.platforms.base import LaunchError
from virtgauge.suites.bandwidth.bench import EMULATOR, RECEIVER, BenchSpec
from virtgauge.suites.bandwidth.loads import Running
from virtgauge.suites.bandwidth.path import Conditions
from virtgauge.suites.bandwidth.placement import Placement
from virtgauge.suites.bench import Stage

_NEAR, _FAR = "eth0", "far"
_SHORTEST_BYTES = 64
_LEAST_QUEUE_BYTES = 4 * 2**20
_SLACK = 2.0
"""What is held beside a full path's worth of the delay: trains come faster than the path's capacity for a moment."""
_NO_NETEM = "this kernel has no netem; leave link out, so that the agent's own emulator stands in"


class Ends(Protocol):
    """The receiver, as the laboratory addresses it."""

    @property
    def mac(self) -> str:
        """Of the receiver."""
        ...

    @property
    def gateway_mac(self) -> str:
        """Of the router."""
        ...


class Link(abc.ABC):
    """See the module.

    Attributes:
        kind: for the record.
        namespace: that frames pass.
        far_port: its interface towards the receiver.
    """

    kind: str
    far_port = _FAR

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace

    @abc.abstractmethod
    async def begin(self, conditions: Conditions) -> None:
        """Delay and lose as these say, from now on.

        Raises:
            AgentError: that cannot be.
            ChannelClosedError, ProtocolError: the emulator is gone.
        """

    @abc.abstractmethod
    async def end(self) -> int | None:
        """Let frames pass no more; how late the frames were let go (99 % no later), in ns, where that is known.

        Raises:
            AgentError: it had ended before.
        """


class NetemLink(Link):
    """By the kernel, at both interfaces of a bridge."""

    kind = "netem"

    def __init__(self, namespace: Namespace, ends: Ends) -> None:
        super().__init__(namespace)
        self._ends = ends
        self._bridge = LinuxBridge(namespace)

    def join(self) -> None:
        """Bridge both interfaces, once the receiver has its own."""
        if not self._bridge.bridges:
            self._bridge.add_bridge("br0", [_NEAR, _FAR])
            rules = [Rule(_NEAR, self._ends.mac, _FAR), Rule(_FAR, self._ends.gateway_mac, _NEAR)]
            self._bridge.add_rules(rules)

    async def begin(self, conditions: Conditions) -> None:
        try:
            self.join()
            there, back = impairments(conditions)
            impair(self.namespace, _FAR, there)
            impair(self.namespace, _NEAR, back)
        except NetworkError as error:
            raise AgentError("unsupported", str(error)) from error

    async def end(self) -> int | None:
        return None


class EmulatedLink(Link):
    """By an agent that takes every frame from one interface, and hands it to the other when it is due."""

    kind = "emulator"

    def __init__(self, namespace: Namespace, channel: Channel, cpu: int | None) -> None:
        super().__init__(namespace)
        self._channel, self._cpu = channel, cpu
        self._running: Running | None = None

    async def begin(self, conditions: Conditions) -> None:
        params = emulation(conditions) | {"from": _NEAR, "to": _FAR, "cpu": self._cpu}
        self._running = await Running.start(self._channel, "link_emulator", params, "the link emulator")

    async def end(self) -> int | None:
        running, self._running = self._running, None
        if running is None:
            return None
        await running.stop()
        if running.silence is not None:
            raise AgentError("lost", f"the link emulator: {running.silence}")
        return lateness_p99_ns(running.answer)


def impairments(conditions: Conditions) -> tuple[Impairment, Impairment]:
    """Of the way there and of the way back: half of the delay each, and the loss on the way there."""
    each_us = round(conditions.delay_ms * 1000 / 2)
    frames = queue_bytes(conditions) // _SHORTEST_BYTES
    return Impairment(each_us, conditions.loss, frames), Impairment(each_us, 0.0, frames)


def emulation(conditions: Conditions) -> dict[str, Any]:
    """The same as the agent's load ``link_emulator`` takes it; the rate is the shaper's, in front of it."""
    return {
        "rate_bps": None,
        "delay_ns": round(conditions.delay_ms * 1e6 / 2),
        "loss": conditions.loss,
        "queue_bytes": queue_bytes(conditions),
        "both": True,
        "fifo": None,
        "seed": 1,
    }


def queue_bytes(conditions: Conditions) -> int:
    """What is under way at most: a full path's worth of the delay, and more."""
    held = conditions.capacity_bps / 8 * conditions.delay_ms / 2e3
    return _LEAST_QUEUE_BYTES + round(_SLACK * held)


def lateness_p99_ns(answer: Mapping[str, Any]) -> int | None:
    """How late the emulator let frames go; None where it let none go."""
    lateness = answer.get("lateness")
    return None if lateness is None else int(lateness["p99_ns"])


async def make_link(stage: Stage, spec: BenchSpec, router: Namespace, ends: Ends, where: Placement) -> Link | None:
    """The link that a bench needs, joined to the router; None where it needs none.

    Raises:
        LaunchError: netem was asked for, and this kernel has none; or the emulator did not come up.
        NetworkError: something of it cannot be made.
    """
    if spec.link == "none":
        return None
    namespace = Namespace(stage.scope, stage.name("link"))
    stage.at_end(namespace.close)
    connect(router, namespace, [Nic(port=RECEIVER, mac="02:76:67:0b:04:01")])
    if spec.link != "emulator" and has_netem(namespace):
        return NetemLink(namespace, ends)
    if spec.link == "netem":
        raise LaunchError("network", _NO_NETEM)
    cpus = None if where.others is None else (where.others,)
    agent = await stage.launch_peer(EMULATOR, lab=namespace, cpus=cpus)
    return EmulatedLink(namespace, agent.channel, where.others)

"""What delays and loses frames between the router and the receiver: a namespace that frames pass on their way.

There the kernel's netem does it at both interfaces of a bridge, or the agent's link emulator moves every frame itself.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any

from virtgauge.agent.channel import AgentError, Channel
from virtgauge.network.links import connect
from virtgauge.network.namespace import Namespace
from virtgauge.network.nic import NetworkError, Nic
from virtgauge.network.shaper import Impairment, has_netem, impair
from virtgauge.network.switch import LinuxBridge, Rule
from virtgauge.platforms.base import LaunchError
from virtgauge.suites.answers import documented
from virtgauge.suites.bandwidth.path import Conditions
from virtgauge.suites.bandwidth.testbed import EMULATOR, RECEIVER, RECEIVER_END, Placement, TestbedSpec
from virtgauge.suites.loads import Running
from virtgauge.suites.testbed import Stage

_NEAR, _FAR = "eth0", "far"
_SHORTEST_BYTES = 64
_LEAST_QUEUE_BYTES = 4 * 2**20
_SLACK = 2.0
"""What is held beside a full path's worth of the delay: trains come faster than the path's capacity for a moment."""
_OVERRUN = ("missed", "dropped_queue", "dropped_offloaded", "refused")


Told = tuple[int | None, int]
"""What a link tells of itself in the end: how late it let frames go, 99 of 100 no later (None where that is not known),
and how many frames it lost itself, because they came faster than it takes them."""


def told_by_emulator(answer: Mapping[str, Any]) -> Told:
    """From what the load ``link_emulator`` came to."""
    ways = [way for way in (answer, answer["back"]) if way is not None]
    lateness = answer["lateness"]
    overrun = sum(int(way[name]) for way in ways for name in _OVERRUN)
    return None if lateness is None else int(lateness["p99_ns"]), overrun


class Link(abc.ABC):
    """See the module.

    Attributes:
        namespace: that frames pass.
    """

    kind: str
    remote_port = _FAR  # its interface towards the receiver

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
    async def end(self) -> Told:
        """Let frames pass no more; what it tells of itself. Raises AgentError: it had ended before."""


class NetemLink(Link):
    """By the kernel, at both interfaces of a bridge."""

    kind = "netem"

    def __init__(self, namespace: Namespace) -> None:
        super().__init__(namespace)
        self._bridge = LinuxBridge(namespace)

    async def begin(self, conditions: Conditions) -> None:
        try:
            if not self._bridge.bridges:  # once the receiver has its interface
                self._bridge.add_bridge("br0", [_NEAR, _FAR])
                rules = [Rule(_NEAR, RECEIVER_END.mac, _FAR), Rule(_FAR, RECEIVER_END.gateway_mac, _NEAR)]
                self._bridge.add_rules(rules)
            there, back = impairments(conditions)
            impair(self.namespace, _FAR, there)
            impair(self.namespace, _NEAR, back)
        except NetworkError as error:
            raise AgentError("unsupported", str(error)) from error

    async def end(self) -> Told:
        return None, 0


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

    async def end(self) -> Told:
        running, self._running = self._running, None
        if running is None:
            return None, 0
        await running.stop()
        if running.silence is not None:
            raise AgentError("lost", f"the link emulator: {running.silence}")
        with documented("the link emulator's end"):
            return told_by_emulator(running.answer)


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


async def make_link(stage: Stage, spec: TestbedSpec, router: Namespace, where: Placement) -> Link | None:
    """The link that a testbed needs, joined to the router; None where it needs none.

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
        return NetemLink(namespace)
    if spec.link == "netem":
        words = "this kernel has no netem; leave link out to use the agent's own emulator"
        raise LaunchError("network", words)
    cpus = None if where.others is None else (where.others,)
    agent = await stage.launch_peer(EMULATOR, lab=namespace, cpus=cpus)
    return EmulatedLink(namespace, agent.channel, where.others)

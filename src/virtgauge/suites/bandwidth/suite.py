"""The bandwidth suite: what an estimator in a guest finds of a shaped path, by which timing, and what is true.

The paper is Kirova, Karpov, Siemens, Zander, Vasylenko, Kachan and Maksymov 2019, "Impact of modern virtualization
methods on timing precision and performance of high-speed applications", sections 2.2 and 3.3.  A cell is one estimator
with one timing on one path; a trial is so many complete searches of it, and their median.

Histograms: ``gap``, achieved gap by planned one (permille); ``lateness``, of each burst (ns).
"""

from __future__ import annotations

import contextlib
import itertools
import random
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from virtgauge.agent.channel import AgentError, ChannelClosedError
from virtgauge.agent.messages import ProtocolError
from virtgauge.host.machine import NETWORK, lack_of_rights
from virtgauge.specs.bandwidth_formatting import AS_IS, PRECISE, SYSTEM
from virtgauge.suites.bandwidth import program
from virtgauge.suites.bandwidth.laboratory import set_up_laboratory
from virtgauge.suites.bandwidth.outcome import Answer, Trial
from virtgauge.suites.bandwidth.settings import BandwidthSettings, Timing
from virtgauge.suites.bandwidth.testbed import LISTENER_PORT, BandwidthTestbed, Conditions
from virtgauge.suites.base import Cell, Measurement, Suite
from virtgauge.suites.testbed import Stage, Testbed

_FACTORS = ("estimator", "timing", "through", "capacity_mbps", "cross_mbps", "traffic", "delay_ms", "loss", "pacing")
_SET_UP_S, _SEARCH_S = 120.0, 30.0
"""For the calibration and all that is around it, and for each search: a path that is hard to tell takes many trains."""


class BandwidthSuite(Suite):
    """See the module."""

    name = "bandwidth"
    Settings = BandwidthSettings
    settings: BandwidthSettings

    def needs(self) -> tuple[str, ...]:
        return ("bandwidth", "shim") if "shim" in self.settings.through else ()

    def missing_prerequisites(self) -> list[str]:
        missing = program.missing_prerequisite() if "shim" in self.settings.through else None
        lacking = super().missing_prerequisites()
        return lacking if missing is None else [*lacking, f"the bandwidth suite's cells through shim: {missing}"]

    def lacking(self, cell: Cell) -> str | None:
        return None if cell.as_is else lack_of_rights("the suite bandwidth", *NETWORK)

    def cells(self) -> list[Cell]:
        s = self.settings
        design = itertools.product(
            s.estimators, s.swaps(), s.capacities_mbps, s.traffics(), s.delays_ms, s.losses, s.pacings
        )
        return [
            self._cell(dict(zip(_FACTORS, (estimator, *swap, capacity, *traffic, *others), strict=True)))
            for estimator, swap, capacity, traffic, *others in design
        ]

    def _cell(self, params: dict[str, Any]) -> Cell:
        testbed = self._testbed(self.settings.link if params["delay_ms"] > 0 or params["loss"] > 0 else None)
        factors = {name: f"{level:g}" if isinstance(level, float) else level for name, level in params.items()}
        # Generous, for an emulated sender is slow.
        timeout_s = _SET_UP_S + self.settings.estimates * _SEARCH_S + 2 * self.settings.capacity_s
        expected_s = 1 + 0.5 * self.settings.estimates + 2 * self.settings.capacity_s
        pair = "pair" if self.settings.as_is else ""
        return Cell(self.name, "estimate", factors, params, timeout_s, testbed, expected_s, pair)

    async def set_up(self, testbed: str, stage: Stage) -> Testbed:
        link_kind = self.settings.link if testbed == self._testbed(self.settings.link) else None
        return await set_up_laboratory(stage, self.settings, link_kind)

    def _testbed(self, link_kind: str | None) -> str:
        """The name of a testbed: all that testbeds differ in."""
        s = self.settings
        through, priority = "shim" if "shim" in s.through else "inside", "other" if s.fifo is None else "fifo"
        if s.as_is:
            return f"bandwidth-{AS_IS}"
        return f"bandwidth-{s.receiver}-{link_kind or 'none'}-{through}-{priority}-{s.memory_mib or 0}"

    async def measure(self, cell: Cell, testbed: Testbed, on_progress: Callable[[float], None]) -> Measurement:
        """Measure one cell.
        Raises AgentError: there is neither an estimate nor a refusal.  ``unsupported``: the guest cannot send so;
        ``peer-lost``, ``peer-version``: the listener is not there, or is another; ``clock-step``: a clock was set
        meanwhile; ``lost``: somebody beside the tested guest is gone.  ChannelClosedError, ProtocolError: the tested
        guest was lost.
        """
        assert isinstance(testbed, BandwidthTestbed)
        settings = self.settings
        conditions, path = conditions_of(settings, cell.params), testbed.path
        token, seed = secrets.token_hex(16), random.getrandbits(62)  # no part of the design
        params = estimate_params(settings, cell.params, token, testbed.address)
        async with testbed.explained():
            await path.set(conditions)
            try:
                before_bps = await path.measured_bps(settings.capacity_s)
                async with (
                    testbed.listening(token) as listener,
                    testbed.crossing(conditions, settings.cross_packet_bytes, seed),
                    path.counting() as count,
                ):
                    answer = await testbed.unless_lost(_estimated(testbed, cell, params, on_progress))
                after_bps = await path.measured_bps(settings.capacity_s)
            except (AgentError, ChannelClosedError, ProtocolError):
                with contextlib.suppress(AgentError, ChannelClosedError, ProtocolError):
                    await path.rest()  # what is at work for this trial shall not be so in the next
                raise
            link = await path.rest()
        found = answer.found
        began_ns = 0 if found is None else answer.finished_ns - found.duration_ns
        foreign_packets = listener.answer.get("foreign_packets")
        trial = Trial(
            params=cell.params,
            conditions=conditions,
            packet_bytes=settings.packet_bytes,
            receiver="peer" if cell.as_is else settings.receiver,
            answer=answer,
            counted=count(began_ns, answer.finished_ns),
            before_bps=before_bps,
            after_bps=after_bps,
            link=link,
            foreign_packets=None if foreign_packets is None else int(foreign_packets),
        )
        return Measurement(
            result=trial.result(),
            histograms=trial.histograms(),
            samples={},
            flags=tuple(trial.flags()),
            guest_clocks=answer.clocks,
            controller_elapsed_ns=None,  # it calibrates between the request and its first clock reading
            guest_steal_ns=answer.steal_ns,
        )


def conditions_of(settings: BandwidthSettings, params: Mapping[str, Any]) -> Conditions:
    """What a design and one of its cells say of the path."""
    return Conditions(
        capacity_bps=None if params["capacity_mbps"] == AS_IS else params["capacity_mbps"] * 1e6,
        shaper=settings.shaper,
        burst_us=settings.burst_us,
        queue_ms=settings.queue_ms,
        cross_bps=params["cross_mbps"] * 1e6,
        traffic=params["traffic"],
        delay_ms=params["delay_ms"],
        loss=params["loss"],
    )


def estimate_params(settings: BandwidthSettings, params: Mapping[str, Any], token: str, address: str) -> dict[str, Any]:
    """What the agent's probe ``bandwidth`` is asked for (docs/protocol.md).

    A program has the timing that its calls have: the system's, whatever serves them.
    """
    estimator = params["estimator"]
    timing = Timing(SYSTEM, SYSTEM) if params["through"] == "shim" else Timing.named(params["timing"])
    lowest, highest = (settings.lowest_mbps, settings.highest_mbps) if estimator == "kite2" else (None, None)
    return {
        "listener": address,
        "port": LISTENER_PORT,
        "token": token,
        "estimator": estimator,
        "settings": {"first_gap_us": settings.first_gap_us} if estimator == "yaz-original" else {},
        "clock": timing.clock,
        "sleep": timing.sleep,
        "pacing": params["pacing"],
        "instants": settings.estimates,
        "packet_bytes": settings.packet_bytes,
        "cpu": None,
        "fifo": settings.fifo,
        "lowest_bps": None if lowest is None else lowest * 1e6,
        "highest_bps": None if highest is None else highest * 1e6,
    }


async def _estimated(
    testbed: BandwidthTestbed, cell: Cell, params: dict[str, Any], on_progress: Callable[[float], None]
) -> Answer:
    channel = testbed.guest.channel
    if cell.params["through"] == "inside":
        asking = program.ask(channel, params, on_progress)
    else:
        preload = cell.params["timing"] == PRECISE
        asking = program.run(channel, params, preload=preload, within_s=cell.timeout_s)
    try:
        return await asking
    except AgentError as error:
        # A way of sending, or a priority, may be unknown to the guest; whatever else failed may succeed the next time.
        asked = (cell.params["pacing"], cell.params["through"], params["fifo"])
        if error.code == "unsupported" and asked == ("auto", "inside", None):
            raise AgentError("not-possible", error.message) from error
        raise

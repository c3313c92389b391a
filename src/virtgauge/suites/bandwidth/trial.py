"""One cell of the suite: the path, the listener and the others at work, the estimate, and what was counted of it."""

from __future__ import annotations

import contextlib
import random
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from virtgauge.agent.channel import AgentError, ChannelClosedError
from virtgauge.agent.frames import ProtocolError
from virtgauge.suites.bandwidth import inside, program
from virtgauge.suites.bandwidth.answer import Answer
from virtgauge.suites.bandwidth.outcome import Trial
from virtgauge.suites.bandwidth.path import Conditions
from virtgauge.suites.bandwidth.settings import BandwidthSettings
from virtgauge.suites.bandwidth.testbed import LISTENER_PORT, BandwidthTestbed
from virtgauge.suites.bandwidth.timing import HPTIME, SYSTEM, Timing
from virtgauge.suites.base import Cell, Measurement

_TOKEN_BYTES = 16
_SET_UP_S, _SEARCH_S = 120.0, 30.0
"""For the calibration and all that is around it, and for each search: a path that is hard to tell takes many trains."""


def timeout_s(settings: BandwidthSettings) -> float:
    """When a trial is given up; generous, for an emulated sender is slow."""
    return _SET_UP_S + settings.estimates * _SEARCH_S + 2 * settings.capacity_s


async def measure_cell(
    settings: BandwidthSettings, testbed: BandwidthTestbed, cell: Cell, on_progress: Callable[[float], None]
) -> Measurement:
    """Measure one cell.

    Raises:
        AgentError: there is neither an estimate nor a refusal.  ``unsupported``: the guest cannot send so;
            ``peer-lost``, ``peer-version``: the listener is not there, or is another; ``clock-step``: a clock was set
            meanwhile; ``lost``: somebody beside the tested guest is gone.
        ChannelClosedError, ProtocolError: the tested guest was lost.
    """
    conditions, path = conditions_of(settings, cell.params), testbed.path
    token, seed = secrets.token_hex(_TOKEN_BYTES), random.getrandbits(62)  # no part of the design
    params = estimate_params(settings, cell.params, testbed.address.listener, token)
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
        receiver=testbed.spec.receiver,
        answer=answer,
        counted=count.over(began_ns, answer.finished_ns),
        before_bps=before_bps,
        after_bps=after_bps,
        link=link,
        foreign_packets=None if foreign_packets is None else int(foreign_packets),
    )
    return Measurement(
        result=trial.result(),
        histograms=trial.histograms(),
        samples={},
        flags=trial.flags(),
        guest_clocks=answer.clocks,
        controller_elapsed_ns=None,  # it calibrates between the request and its first clock reading
        guest_steal_ns=answer.steal_ns,
    )


def conditions_of(settings: BandwidthSettings, params: Mapping[str, Any]) -> Conditions:
    """What a design and one of its cells say of the path."""
    return Conditions(
        capacity_bps=params["capacity_mbps"] * 1e6,
        shaper=settings.shaper,
        burst_us=settings.burst_us,
        queue_ms=settings.queue_ms,
        cross_bps=params["cross_mbps"] * 1e6,
        traffic=params["traffic"],
        delay_ms=params["delay_ms"],
        loss=params["loss"],
    )


def estimate_params(
    settings: BandwidthSettings, params: Mapping[str, Any], listener: str, token: str
) -> dict[str, Any]:
    """What the agent's probe ``bandwidth`` is asked for (docs/protocol.md).

    A program has the timing that its calls have: the system's, whatever serves them.
    """
    estimator = params["estimator"]
    timing = Timing(SYSTEM, SYSTEM) if params["through"] == "shim" else Timing.named(params["timing"])
    lowest, highest = (settings.lowest_mbps, settings.highest_mbps) if estimator == "kite2" else (None, None)
    return {
        "listener": listener,
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
    channel = testbed.tested.channel
    if cell.params["through"] == "inside":
        asking = inside.ask(channel, params, on_progress)
    else:
        preload = cell.params["timing"] == HPTIME
        asking = program.run(channel, params, preload=preload, within_s=cell.timeout_s)
    try:
        return await asking
    except AgentError as error:
        # A way of sending, or a priority, may be unknown to the guest; whatever else failed may succeed the next time.
        asked = (cell.params["pacing"], cell.params["through"], params["fifo"])
        if error.code == "unsupported" and asked == ("auto", "inside", None):
            raise AgentError("not-possible", error.message) from error
        raise

"""An estimate by the agent itself: its probe ``bandwidth``, with clock and sleep chosen inside (docs/protocol.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from virtgauge.agent.channel import AgentError, Channel, Reply
from virtgauge.agent.frames import ProtocolError
from virtgauge.suites.answers import elapsed_by_clock
from virtgauge.suites.bandwidth.answer import Answer, Found, Refused, histogram

_NO_ANSWER = "no-answer"


async def ask(channel: Channel, params: Mapping[str, Any], on_progress: Callable[[float], None]) -> Answer:
    """Have it estimated.

    Args:
        channel: of the guest.
        params: of the probe.
        on_progress: is told the share that is done.

    Raises:
        AgentError: there is no estimate, and no refusal either.
        ChannelClosedError, ProtocolError: the guest was lost.
    """
    try:
        reply = await channel.request(
            "probe", name="bandwidth", params=dict(params), load=None, on_progress=on_progress
        )
    except AgentError as error:
        if error.code != _NO_ANSWER:
            raise
        return Answer.of_silence(error.message)
    try:
        return decode(reply)
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(
            f"the result of the probe bandwidth is not what docs/protocol.md says: {error!r}"
        ) from error


def decode(reply: Reply) -> Answer:
    """Read the probe's result.

    Raises:
        KeyError, TypeError, ValueError: it is none.
    """
    value = reply.value
    outcome, refusal, paced = value["outcome"], value["refusal"], value["limits"]["max_paced_bps"]
    return Answer(
        found=None if outcome is None else Found.decode(outcome),
        refused=None if refusal is None else Refused.decode(refusal),
        silence=None,
        method=str(value["method"]),
        stamp=None if value["stamp"] is None else str(value["stamp"]),
        max_paced_bps=None if paced is None else float(paced),
        sent_bytes=int(value["tally"]["bytes"]),
        gaps=histogram(value["gaps"]),
        lateness=histogram(value["lateness"]),
        hptime_fallback_reason=value["hptime_fallback_reason"],
        usage=dict(value["usage"]),
        clocks=elapsed_by_clock(value["clocks_start"], value["clocks_end"]),
        finished_ns=reply.finished_ns,
    )

"""How an estimate is made: by the agent's probe ``bandwidth``, or by the estimator's own program.

The probe has clock and sleep chosen inside (docs/protocol.md).  The program makes plain system calls, as it is or under
hptime's shim.  So did the paper: the tools were not changed, and the timing was that of a library loaded before any
other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from virtgauge.agent.channel import AgentError, Channel, Reply
from virtgauge.errors import UnavailableError
from virtgauge.extras import find_native
from virtgauge.shim import find_library, summed
from virtgauge.suites.answers import documented, elapsed_by_clock
from virtgauge.suites.bandwidth.outcome import Answer

ENVIRONMENT_VARIABLE = "VIRTGAUGE_BANDWIDTH_DYNAMIC"

_TOKEN = "VIRTGAUGE_BANDWIDTH_TOKEN"
_CODES = {"invalid": "bad-request", "peer_lost": "peer-lost", "protocol": "peer-version", "clock_step": "clock-step"}
"""The agent's codes by the program's kinds of failure, where they are spelt otherwise."""


async def ask(channel: Channel, params: Mapping[str, Any], on_progress: Callable[[float], None]) -> Answer:
    """Have it estimated by the agent.
    Raises AgentError: there is no estimate, and no refusal either; ChannelClosedError, ProtocolError: the guest was
    lost.
    """
    try:
        reply = await channel.request(
            "probe", name="bandwidth", params=dict(params), load=None, on_progress=on_progress
        )
    except AgentError as error:
        if error.code != "no-answer":
            raise
        return Answer.of_silence(error.message)
    value = reply.value
    with documented("the result of the probe bandwidth"):
        return Answer.decode(
            value,
            reply.finished_ns,
            value["refusal"],
            hptime_fallback_reason=value["hptime_fallback_reason"],
            usage=dict(value["usage"]),
            clocks=elapsed_by_clock(value["clocks_start"], value["clocks_end"]),
        )


def find_program() -> Path:
    """The program that is linked dynamically: ``$VIRTGAUGE_BANDWIDTH_DYNAMIC``, then the one inside the package.
    Raises UnavailableError: neither exists.
    """
    what = "the estimator that a library can be preloaded over"
    return find_native("bandwidth-dynamic", ENVIRONMENT_VARIABLE, what, "a built one", "bandwidth")


def missing_prerequisite() -> str | None:
    """Why nothing can be estimated by the program here, in words; None where it can."""
    try:
        find_program(), find_library()
    except UnavailableError as error:
        return f"{error.message} (to enable it: {error.remedy})" if error.remedy else error.message
    return None


def shared_folders() -> list[Path]:
    """Folders of the host that a guest has to see, where program and library are here."""
    return [] if missing_prerequisite() else sorted({find_program().parent, find_library().parent})


async def run(channel: Channel, params: Mapping[str, Any], *, preload: bool, within_s: float) -> Answer:
    """Have it estimated by the program, under the shim or as it is, with the parameters as its words.

    Raises: as :func:`ask`.
    """
    if (missing := missing_prerequisite()) is not None:
        raise AgentError("unsupported", missing)
    environment = {_TOKEN: str(params["token"])}  # arguments are for everybody to see
    if preload:
        environment |= {"LD_PRELOAD": str(find_library()), "HPTIME_STATS": "2"}  # that is, to standard error
    options = {
        **{name.replace("_", "-"): params[name] for name in ("port", "estimator", "instants", "packet_bytes")},
        **{name: params[name] for name in ("clock", "sleep", "cpu", "fifo")},
        "settings": json.dumps(params["settings"]),
        "method": None if params["pacing"] == "auto" else params["pacing"],
        "lowest": params["lowest_bps"],
        "highest": params["highest_bps"],
    }
    words = [word for name, value in options.items() if value is not None for word in (f"--{name}", str(value))]
    reply = await channel.request(
        "run",
        argv=[str(find_program()), "estimate", str(params["listener"]), *words],
        env=environment,
        timeout_ms=round(within_s * channel.timeout_factor * 1000),
        output_limit=2_000_000,
        timeout_s=within_s + 30.0,
    )
    return _decode(reply, preload=preload)


def _decode(reply: Reply, *, preload: bool) -> Answer:
    ended = reply.value
    errors = bytes(ended["stderr"]).decode(errors="replace")
    if ended["timed_out"]:
        raise AgentError("timeout", "the estimator's program was not done in time")
    try:
        last = json.loads(bytes(ended["stdout"]).splitlines()[-1])
        kind = last.get("kind")
    except (IndexError, ValueError, AttributeError):
        how = f"signal {ended['signal']}" if ended["signal"] is not None else f"status {ended['exit_code']}"
        raise AgentError("program", f"the estimator's program ended with {how}: {errors.strip()[-400:]}") from None
    with documented("what the estimator's program said", "docs/bandwidth.md"):
        failed = last["event"] == "error"
        if failed and kind == "no_answer":
            return Answer.of_silence(str(last["message"]))
        if failed and kind != "cannot_pace":
            raise AgentError(_CODES.get(kind, str(kind)), str(last["message"]))
        preloaded, reasons = None, []
        if preload:  # the library tells on standard error when the program ends
            told = summed(0, 0, errors)
            served, passed, reasons = sum(told.served.values()), sum(told.passed.values()), list(told.reasons)
            preloaded = {"served": served, "passed": passed, "reasons": reasons}
        return Answer.decode(
            last,
            reply.finished_ns,
            last if failed else None,
            hptime_fallback_reason="; ".join(reasons) or None,
            preloaded=preloaded,
        )

"""An estimate by the estimator's own program, which makes plain system calls: as it is, or under hptime's shim.

So did the paper: the tools were not changed, and the timing was that of a library loaded before any other.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import virtgauge
from virtgauge.agent.channel import AgentError, Channel, Reply
from virtgauge.agent.frames import ProtocolError
from virtgauge.errors import UnavailableError
from virtgauge.host.native_file import how_to_build
from virtgauge.shim.library import find_library
from virtgauge.shim.session import summed
from virtgauge.suites.bandwidth.answer import Answer, Found, Preloaded, Refused, histogram

ENVIRONMENT_VARIABLE = "VIRTGAUGE_BANDWIDTH_DYNAMIC"

_TOKEN = "VIRTGAUGE_BANDWIDTH_TOKEN"
_OUTPUT_LIMIT = 2_000_000
_ANSWER_S = 30.0
_TO_STANDARD_ERROR = "2"
_CODES = {
    "invalid": "bad-request",
    "peer_lost": "peer-lost",
    "protocol": "peer-version",
    "clock_step": "clock-step",
}
"""The agent's codes by the program's kinds of failure, where they are spelt otherwise."""


def find_program() -> Path:
    """The program that is linked dynamically: ``$VIRTGAUGE_BANDWIDTH_DYNAMIC``, then the one inside the package.

    Raises:
        UnavailableError: neither exists.
    """
    override = os.environ.get(ENVIRONMENT_VARIABLE)
    path = Path(override) if override else Path(virtgauge.__file__).parent / "native" / "bandwidth-dynamic"
    if not path.is_file():
        raise UnavailableError(
            f"the estimator that a library can be preloaded over is missing: {path}",
            how_to_build("bandwidth", ENVIRONMENT_VARIABLE, "a built one"),
        )
    return path.resolve()


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
    """Have it estimated.

    Args:
        channel: of the guest.
        params: of the agent's probe ``bandwidth``, which are made the program's words.
        preload: put the shim over it.
        within_s: after which it is killed.

    Raises:
        AgentError: there is no estimate, and no refusal either.
        ChannelClosedError, ProtocolError: the guest was lost.
    """
    if (missing := missing_prerequisite()) is not None:
        raise AgentError("unsupported", missing)
    environment = {_TOKEN: str(params["token"])}  # arguments are for everybody to see
    if preload:
        environment |= {"LD_PRELOAD": str(find_library()), "HPTIME_STATS": _TO_STANDARD_ERROR}
    reply = await channel.request(
        "run",
        argv=[str(find_program()), *words(params)],
        env=environment,
        timeout_ms=round(within_s * 1000),
        output_limit=_OUTPUT_LIMIT,
        timeout_s=within_s + _ANSWER_S,
    )
    return decode(reply, preload=preload)


def words(params: Mapping[str, Any]) -> list[str]:
    """The program's words for parameters of the probe."""
    said = ["estimate", str(params["listener"])]
    options = {
        "port": params["port"],
        "estimator": params["estimator"],
        "settings": json.dumps(params["settings"]),
        "instants": params["instants"],
        "packet-bytes": params["packet_bytes"],
        "clock": params["clock"],
        "sleep": params["sleep"],
        "method": None if params["pacing"] == "auto" else params["pacing"],
        "lowest": params["lowest_bps"],
        "highest": params["highest_bps"],
        "cpu": params["cpu"],
        "fifo": params["fifo"],
    }
    for option, value in options.items():
        said += [] if value is None else [f"--{option}", str(value)]
    return said


def decode(reply: Reply, *, preload: bool) -> Answer:
    """Read what the program has said.

    Raises:
        AgentError: that it failed.
        ProtocolError: something else.
    """
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
    try:
        if last["event"] == "error" and kind != "cannot_pace":
            if kind == "no_answer":
                return Answer.of_silence(str(last["message"]))
            raise AgentError(_CODES.get(kind, str(kind)), str(last["message"]))
        return _answer(last, reply.finished_ns, _preloaded(errors) if preload else None)
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(
            f"what the estimator's program said is not what docs/bandwidth.md says: {error!r}"
        ) from error


def _answer(last: Mapping[str, Any], finished_ns: int, preloaded: Preloaded | None) -> Answer:
    refused = last["event"] == "error"
    paced = last["limits"]["max_paced_bps"]
    reasons = preloaded.reasons if preloaded is not None else ()
    return Answer(
        found=None if refused else Found.decode(last["outcome"]),
        refused=Refused.decode(last) if refused else None,
        silence=None,
        method=str(last["method"]),
        stamp=None if last["stamp"] is None else str(last["stamp"]),
        max_paced_bps=None if paced is None else float(paced),
        sent_bytes=int(last["tally"]["bytes"]),
        gaps=histogram(last["gaps"]),
        lateness=histogram(last["lateness"]),
        hptime_fallback_reason="; ".join(reasons) or None,
        usage=None,
        clocks=(),
        finished_ns=finished_ns,
        preloaded=preloaded,
    )


def _preloaded(errors: str) -> Preloaded:
    """What the library has told on standard error when the program ended."""
    report = summed(0, 0, errors)
    return Preloaded(sum(report.served.values()), sum(report.passed.values()), report.reasons)

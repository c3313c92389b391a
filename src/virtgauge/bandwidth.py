"""The native estimator of available bandwidth: where its program is, how it is run, what it answers."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from virtgauge.analysis.packets import ETHERNET_BYTES, SHAPER_BYTES, occupied_bps
from virtgauge.errors import UnavailableError, UsageError, VirtgaugeError
from virtgauge.extras import find_native
from virtgauge.host.process import child_setup

ENVIRONMENT_VARIABLE = "VIRTGAUGE_BANDWIDTH"
Event = dict[str, Any]
_END_S = 10.0  # How long the program may take to say goodbye to the other end; it looks for a request every 50 ms
_WRONG_USAGE = 2
_ERRORS = {"invalid": UsageError, "unsupported": UnavailableError}
"""By the program's ``kind``; all others are work that failed."""


def find_bandwidth() -> Path:
    """Find the estimator: ``$VIRTGAUGE_BANDWIDTH``, then the one inside the installed package.
    Raises UnavailableError: neither exists.
    """
    return find_native("bandwidth", ENVIRONMENT_VARIABLE, "the bandwidth estimator", "a built one", "bandwidth")


@contextlib.contextmanager
def running(words: Sequence[str]) -> Iterator[Iterator[Event]]:
    """Run the program; gives its events, one map each, until it ends.

    The program is told to end, and waited for, however the block is left; it dies with this process.
    Raises UsageError: a value was refused; UnavailableError: the program is missing, or the machine cannot do what was
    asked for (pace a rate, …); VirtgaugeError: it failed otherwise: no listener, another version, no answer …;
    KeyboardInterrupt: it was told to end by somebody else, as a terminal tells all its processes.
    """
    command = [str(find_bandwidth()), *words]
    with tempfile.TemporaryFile() as complaints:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints, preexec_fn=child_setup()
            )
        except OSError as error:
            raise UnavailableError(f"{command[0]}: cannot be started: {error.strerror}") from error
        assert process.stdout is not None
        try:
            with _ending_by_signal():
                yield _events(process, process.stdout, complaints)
        finally:
            process.terminate()  # so that it says goodbye to the other end; one that has ended does not mind
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()


def _events(process: subprocess.Popen[bytes], lines: IO[bytes], complaints: IO[bytes]) -> Iterator[Event]:
    for line in lines:
        try:
            event: Event = json.loads(line)
        except ValueError:
            raise VirtgaugeError(
                f"the bandwidth estimator said what is no JSON: {line[:80]!r}",
                "reinstall the package, or in a source tree: virtgauge provision bandwidth",
            ) from None
        if event.get("event") == "error":
            process.wait()
            raise failure(event)
        yield event
    if status := process.wait():
        complaints.seek(0)
        said = complaints.read().decode(errors="replace").strip().partition("\n")[0].removeprefix("bandwidth: ")
        kind = UsageError if status == _WRONG_USAGE else VirtgaugeError
        raise kind(said or f"the bandwidth estimator ended with status {status} and said nothing")


def failure(event: Event) -> BaseException:
    """The error for the program's last word, whose message has what to do after its last semicolon."""
    kind, message = str(event.get("kind")), str(event.get("message"))
    if kind == "cancelled":
        return KeyboardInterrupt()
    if kind == "cannot_pace":
        happened, _, remedy = message.partition("; shortly before, ")
        advice = f"shortly before, {remedy}" if remedy else "choose a lower rate, or a faster way of sending (--pacing)"
        return UnavailableError(happened, advice)
    happened, _, remedy = message.rpartition("; ")
    error = _ERRORS.get(kind, VirtgaugeError)
    return error(happened, remedy) if happened else error(message)


@contextlib.contextmanager
def _ending_by_signal() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block as Ctrl-C does, so that the program is told to end, too."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def summary(session: Event, result: Event) -> dict[str, Any]:
    """An estimate by the program's events of these names; rates in bit/s of IP packets, but for the last two."""
    outcome, timing = result["outcome"], result["timing"]
    found, packet_bytes = outcome["estimate"], outcome["trace"][-1]["stream"]["packet_bytes"]
    return {
        "estimator": result["settings"]["estimator"],
        "available_bps": found["available_bps"],  # the median of its searches
        # low_bps, high_bps: the interval of that median
        "low_bps": found["low_bps"],
        "high_bps": found["high_bps"],
        "confidence": found["confidence"],  # how often such an interval is meant to hold the truth
        "lower_bound": found["lower_bound"],  # it ended at the highest rate that is tried; the truth may be higher
        "packet_bytes": packet_bytes,  # length of the IP packets that it was found with
        "searches": len(outcome["instants"]),  # complete ones
        # all that were sent; ``discarded`` of them were not what was asked for, ``stalled`` of these because the sender
        # was interrupted
        "streams": len(outcome["trace"]),
        "discarded": outcome["discarded"],
        "stalled": outcome["stalled"],
        # sent_bytes, duration_ns: what it cost, in bytes of IP packets and in time
        "sent_bytes": outcome["bytes"],
        "duration_ns": outcome["duration_ns"],
        "foreign_packets": outcome["foreign_packets"],  # packets of others that the listener ignored
        # clock, sleep, method: by which packets were timed and bursts handed over
        "clock": timing["clock"],
        "sleep": timing["sleep"],
        "method": session["method"],
        "hptime_fallback_reason": timing["hptime_fallback_reason"],  # why hptime's clock is the system's here
        "user_stamps": session["no_kernel_stamps"],  # why the listener's program stamps packets and not its kernel
        "layer": "ip",
        # the same on an Ethernet wire, and as Linux's HTB and TBF count
        "wire_bps": occupied_bps(found["available_bps"], packet_bytes, ETHERNET_BYTES),
        "shaper_bps": occupied_bps(found["available_bps"], packet_bytes, SHAPER_BYTES),
    }

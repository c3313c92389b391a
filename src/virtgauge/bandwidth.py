"""The native estimator of available bandwidth: where its program is, how it is run, what it answers."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Self

from virtgauge.analysis.bandwidth import ETHERNET_BYTES, SHAPER_BYTES, occupied_bps
from virtgauge.errors import UnavailableError, UsageError, VirtgaugeError
from virtgauge.extras import find_native
from virtgauge.host.process import child_setup

ENVIRONMENT_VARIABLE = "VIRTGAUGE_BANDWIDTH"
Event = dict[str, Any]
_END_S = 10.0  # How long the program may take to say goodbye to the other end; it looks for a request every 50 ms
_WRONG_USAGE = 2
_ERRORS: dict[str, type[VirtgaugeError]] = {
    "invalid": UsageError,
    "unsupported": UnavailableError,
    "cannot_pace": UnavailableError,
}
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
            _end(process)
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

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Tell it to end, so that it says goodbye to the other end; kill it if it does not."""
    process.terminate()  # which a process that has ended does not mind
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@dataclasses.dataclass(frozen=True)
class Estimate:
    """An available bandwidth; rates in bit/s of IP packets."""

    estimator: str
    available_bps: float  # the median of its searches
    # low_bps, high_bps: the interval of that median
    low_bps: float
    high_bps: float
    confidence: float  # how often such an interval is meant to hold the truth
    lower_bound: bool  # it ended at the highest rate that the estimator tries; the truth may be higher
    packet_bytes: int  # length of the IP packets that it was found with
    searches: int  # complete ones
    # all that were sent; ``discarded`` of them were not what was asked for, ``stalled`` of these because the sender
    # was interrupted
    streams: int
    discarded: int
    stalled: int
    # sent_bytes, duration_ns: what it cost, in bytes of IP packets and in time
    sent_bytes: int
    duration_ns: int
    foreign_packets: int  # packets of others that the listener ignored
    # clock, sleep, method: by which packets were timed and bursts handed over
    clock: str
    sleep: str
    method: str
    hptime_fallback_reason: str | None  # why hptime's clock is the system's here; None where it is not
    user_stamps: str | None  # why the listener's program stamps packets and not its kernel; None where the kernel does

    @classmethod
    def of(cls, session: Event, result: Event) -> Self:
        """From the program's events of these names."""
        outcome = result["outcome"]
        told = {**result["settings"], **session, **result["timing"], **outcome, **outcome["estimate"]}
        told |= {
            "packet_bytes": outcome["trace"][-1]["stream"]["packet_bytes"],
            "searches": len(outcome["instants"]),
            "streams": len(outcome["trace"]),
            "sent_bytes": outcome["bytes"],
            "user_stamps": session["no_kernel_stamps"],
        }
        return cls(**{field.name: told[field.name] for field in dataclasses.fields(cls)})

    @property
    def wire_bps(self) -> float:
        """The same on an Ethernet wire."""
        return occupied_bps(self.available_bps, self.packet_bytes, ETHERNET_BYTES)

    @property
    def shaper_bps(self) -> float:
        """The same as Linux's HTB and TBF count."""
        return occupied_bps(self.available_bps, self.packet_bytes, SHAPER_BYTES)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        layers = {"layer": "ip", "wire_bps": self.wire_bps, "shaper_bps": self.shaper_bps}
        return dataclasses.asdict(self) | layers

"""One run of the native program: its lines of JSON as they come, its failures as errors, and no process left behind."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO, Any

from virtgauge.bandwidth.binary import find_bandwidth
from virtgauge.errors import UnavailableError, UsageError, VirtgaugeError
from virtgauge.host.process import child_setup

Event = dict[str, Any]

_END_S = 10.0
"""How long the program may take to say goodbye to the other end; it looks for a request every 50 ms."""

_WRONG_USAGE = 2

_ERRORS: dict[str, type[VirtgaugeError]] = {
    "invalid": UsageError,
    "unsupported": UnavailableError,
    "cannot_pace": UnavailableError,
}
"""By the program's ``kind``; all others are work that failed."""


@contextlib.contextmanager
def running(words: Sequence[str]) -> Iterator[Iterator[Event]]:
    """Run the program; gives its events, one map each, until it ends.

    The program is told to end, and waited for, however the block is left; it dies with this process.

    Raises:
        UsageError: a value was refused.
        UnavailableError: the program is missing, or the machine cannot do what was asked for (pace a rate, …).
        VirtgaugeError: it failed otherwise: no listener, another version, no answer …
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
    assert process.stdout is not None
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
    if process.poll() is None:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    process.stdout.close()

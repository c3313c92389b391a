"""A server of runs within a test: in a thread of its own, asked by plain HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import http.client
import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from synthetic import arm_record, cells, timer_histogram, trial

from virtgauge.ledger.records import ArmRecord
from virtgauge.ledger.store import Ledger
from virtgauge.serve.access import Access
from virtgauge.serve.server import Server

HOST = arm_record("host", "host", "Host", "reference")
TIMERS = list(cells(timers=("rdtsc", "clock_gettime"), sleeps=(), loads=("idle",)))
EVIL = '</script><script>window.pwned=1</script><img src=x onerror="window.pwned=2">\'"><svg onload=window.pwned=3>'


@contextlib.contextmanager
def served(*folders: Path, token: str | None = None, ask_every_s: float = 0.0) -> Iterator[str]:
    """Serve these folders; gives the address."""
    address: list[str] = []
    begun = threading.Event()
    stop: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def run() -> None:
        server = Server(folders, Access(token, frozenset({"localhost"})), ask_every_s)
        ended = asyncio.Event()
        address.append(f"http://127.0.0.1:{server.listen('127.0.0.1', 0)}")
        stop.append((asyncio.get_running_loop(), ended))
        begun.set()
        await ended.wait()
        await server.close()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    assert begun.wait(10)
    try:
        yield address[0]
    finally:
        loop, ended = stop[0]
        loop.call_soon_threadsafe(ended.set)
        thread.join(10)
        assert not thread.is_alive()


class Answer:
    """Status, headers and text of an answer."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status, self.headers = response.status, response.headers
        self.text = response.read().decode()


def ask(address: str, path: str = "/", method: str = "GET", headers: Mapping[str, str] | None = None) -> Answer:
    """One request, as it is: nothing follows a redirect, nothing is added but Host."""
    place = address.removeprefix("http://")
    connection = http.client.HTTPConnection(place, timeout=30)
    try:
        sent = {"Host": place} | dict(headers or {})
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in sent.items():
            connection.putheader(name, value)
        connection.endheaders()
        return Answer(connection.getresponse())
    finally:
        connection.close()


def pages_of(address: str, headers: Mapping[str, str] | None = None) -> list[str]:
    """The paths of the runs in the list, in its order."""
    return re.findall(r'href="(/run/[0-9a-f]{16})"', ask(address, "/", headers=headers).text)


@contextlib.contextmanager
def under_way(folder: Path) -> Iterator[None]:
    """A controller at work on a run, as far as its lock says."""
    descriptor = os.open(folder / "controller.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def add_block(ledger: Ledger, block: int, medians: Mapping[str, float], rng: Any, arms: Sequence[ArmRecord]) -> None:
    """One repetition of the timers; a median of the clock's cost for each arm, in ns."""
    for arm in arms:
        for probe, factors in TIMERS:
            ledger.add_trial(trial(arm, probe, factors, block), {probe: timer_histogram(rng, medians[arm.name])})


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of change of every file below a folder."""
    return {
        str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }

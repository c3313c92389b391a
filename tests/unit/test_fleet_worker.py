"""The process that watches over a fleet's worker: starts a killed one again, and ends with whoever started it."""

import asyncio
import math
import os
import signal
import socket
import subprocess
import threading

import pytest

from virtgauge.errors import ExitCode, UnavailableError, UsageError
from virtgauge.fleet import workers as processes
from virtgauge.fleet.cluster import TlsFiles
from virtgauge.fleet.messages import BatchAnswer, Enrolment, ForeignMessageError, Refusal, pack, unpack
from virtgauge.fleet.workers import facing, read_credentials, serve

FILES = TlsFiles("ca", "certificate", "key")


@pytest.fixture
def workers(monkeypatch):
    """Stands for the workers: shell scripts, one after the other; the last of them again and again."""
    started = []

    def start_as(*scripts):
        def start(work):
            script = scripts[min(len(started), len(scripts) - 1)]
            started.append(subprocess.Popen(["sh", "-c", script]))
            return started[-1].pid

        monkeypatch.setattr(processes, "_start", start)
        return started

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield start_as
    for number, handler in handlers.items():
        signal.signal(number, handler)
    for process in started:
        process.returncode = 0  # reaped by the code under test


def served(lifeline=None):
    return serve("tls://127.0.0.1:1", "north", FILES, listen=None, lifeline=lifeline)


def test_a_killed_worker_is_started_again(workers, capfd):
    started = workers("kill -9 $$", "exit 0")
    assert served() == 0
    assert len(started) == 2
    assert "the worker north was ended by SIGKILL; started again" in capfd.readouterr().err


def test_a_worker_that_is_always_killed_is_given_up(workers, capfd):
    started = workers("kill -9 $$")
    assert served() == ExitCode.FAILED
    assert len(started) == 5
    assert "given up" in capfd.readouterr().err


def test_a_worker_that_cannot_work_is_not_started_again(workers):
    started = workers("exit 3")
    assert served() == ExitCode.UNAVAILABLE
    assert len(started) == 1


class Connections:
    """Stands for the workers of one process: each loses its scheduler, or cannot reach it; then this process is told
    to end."""

    def __init__(self, *fates):
        self.fates, self.http_server = list(fates), self
        self.closed = 0

    def made(self, *_):
        return self

    def __await__(self):
        if isinstance(self.fates[0], Exception):
            raise self.fates.pop(0)
        return asyncio.sleep(0).__await__()

    def stop(self):
        """Of the server."""

    async def finished(self):
        if self.fates.pop(0) == "told to end":
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()

    async def close(self, reason):
        self.closed += 1


@pytest.mark.parametrize(
    ("seek_s", "fates", "code", "closed"),
    [
        (math.inf, ["lost", TimeoutError(), ConnectionError(), "lost", "told to end"], ExitCode.OK, 5),
        (0, ["lost"], 75, 1),  # of a run that may have ended without its lifeline telling
    ],
)
async def test_a_scheduler_that_was_lost_is_sought_until_the_end(
    seek_s, fates, code, closed, private_state, monkeypatch
):
    connections = Connections(*fates)
    monkeypatch.setattr(processes, "make_worker", connections.made)
    monkeypatch.setattr(processes, "_PAUSE_S", 0.01)
    served = processes._serve("tls://127.0.0.1:1", "north", FILES, None, seek_s=seek_s)
    assert await asyncio.wait_for(served, 20) == code
    assert (connections.fates, connections.closed) == ([], closed)


async def test_a_scheduler_whose_name_is_not_known_for_a_while_is_sought_further(private_state, monkeypatch):
    """As when the machine that knows names is down with it: a batch under way is not ended for that."""
    connections, addresses = Connections("lost", "told to end"), iter(["127.0.0.1", None, None, "127.0.0.1"])

    def facing(_):
        if (address := next(addresses)) is None:
            raise socket.gaierror("no such name")
        return address

    monkeypatch.setattr(processes, "facing", facing)
    monkeypatch.setattr(processes, "make_worker", connections.made)
    monkeypatch.setattr(processes, "_PAUSE_S", 0.01)
    served = processes._serve("tls://scheduler:1", "north", FILES, None, seek_s=math.inf)
    assert await asyncio.wait_for(served, 20) == ExitCode.OK
    assert (connections.fates, connections.closed, [*addresses]) == ([], 2, [])


async def test_a_worker_ends_while_a_name_is_looked_up(private_state, monkeypatch):
    answered, asked = threading.Event(), threading.Event()

    def facing(_):
        asked.set()
        answered.wait(60)
        return "127.0.0.1"

    monkeypatch.setattr(processes, "facing", facing)
    served = asyncio.ensure_future(processes._serve("tls://scheduler:1", "north", FILES, None, seek_s=math.inf))
    while not asked.is_set():
        await asyncio.sleep(0.01)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await asyncio.wait_for(served, 20) == ExitCode.OK
    answered.set()


async def test_a_scheduler_that_never_was_there_is_not_sought_for_ever(private_state, monkeypatch):
    connections = Connections(TimeoutError("nobody"))
    monkeypatch.setattr(processes, "make_worker", connections.made)
    with pytest.raises(UnavailableError, match="cannot be reached: nobody"):
        await processes._serve("tls://127.0.0.1:1", "north", FILES, None, seek_s=math.inf)


def test_a_signal_ends_worker_and_watcher(workers):
    started = workers("exec sleep 60")
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
    assert served() == ExitCode.OK
    assert len(started) == 1


def test_the_end_of_the_lifeline_ends_worker_and_watcher(workers):
    started = workers("exec sleep 60")
    ours, theirs = os.pipe()
    threading.Timer(0.2, os.close, (theirs,)).start()
    assert served(lifeline=ours) == ExitCode.OK
    assert len(started) == 1
    os.close(ours)


@pytest.mark.parametrize("line", ["", "no json\n", '{"ca": "x"}\n', "[]\n"])
def test_credentials_that_are_none_are_refused(line):
    with pytest.raises(UsageError, match="no credentials"):
        read_credentials(line)


def test_the_address_that_faces_the_scheduler_is_found_without_sending_anything():
    assert facing("tls://127.0.0.1:8786") == "127.0.0.1"
    for address in ("tls://nowhere", "tls://nowhere:port", "tls://nowhere:65536", "tls://a..b:8786"):
        with pytest.raises(UsageError, match="--scheduler"):
            facing(address)


def test_words_of_a_worker_steer_no_terminal():
    refusal = unpack(pack(Refusal("clear\x1b[2J", "bell\a")), [BatchAnswer, Refusal], "the worker")
    assert refusal == Refusal("clear�[2J", "bell�")
    with pytest.raises(ForeignMessageError, match="cannot be read"):
        unpack(pack(Refusal("a", "b")).replace(b"remedy", b"malady"), [Enrolment, Refusal], "the worker")

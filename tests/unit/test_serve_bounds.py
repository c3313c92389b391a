"""What the server of runs takes at most: connections, time, memory, and nothing while nobody looks."""

import asyncio
import contextlib
import gc
import os
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from served_runs import HOST, add_block, ask, pages_of, served
from synthetic import cells, manifest, synthetic_ledger
from tornado.iostream import IOStream

from virtgauge.errors import VirtgaugeError
from virtgauge.ledger.store import LEDGER_NAME, Ledger
from virtgauge.serve import reports, server
from virtgauge.serve.runs import find_runs

pytestmark = pytest.mark.slow

FEW = list(cells(timers=("rdtsc",), sleeps=(), loads=("idle",)))


@pytest.fixture
def runs(tmp_path):
    synthetic_ledger(tmp_path / "runs" / "whole", blocks=2, design=FEW).close()
    return tmp_path / "runs"


def connected(address):
    host, _, port = address.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def end_of(connection):
    """Read until the server closes it; how many bytes came."""
    came = 0
    with contextlib.suppress(ConnectionError):
        while some := connection.recv(2**20):
            came += len(some)
    return came


def test_who_comes_last_is_served_however_many_hold_connections(runs, monkeypatch):
    monkeypatch.setattr(server, "_MOST_CONNECTIONS", 8)
    with served(runs) as address, contextlib.ExitStack() as crowd:
        silent = [crowd.enter_context(connected(address)) for _ in range(20)]
        assert ask(address).status == 200
        assert [end_of(one) for one in silent[:12]] == [0] * 12  # they made room
        silent[-1].settimeout(0.1)
        with pytest.raises(TimeoutError):
            silent[-1].recv(1)


@pytest.mark.parametrize("header", ["", "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: y"], ids=["idle", "half a header"])
def test_who_says_nothing_more_is_let_go(runs, monkeypatch, header):
    assert server._IDLE_S == 120
    monkeypatch.setattr(server, "_IDLE_S", 0.3)
    with served(runs) as address, connected(address) as connection:
        connection.sendall(b"HEAD / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" + header.encode())
        began = time.monotonic()
        assert end_of(connection) > 0
        assert time.monotonic() - began < 20


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "made"])
def test_who_does_not_take_an_answer_is_let_go(runs, monkeypatch, stored):
    monkeypatch.setattr(server, "_ANSWER_S", 0.5)
    page = b"x" * 2**26
    if stored:
        (runs / "whole" / "report.html").write_bytes(page)
    else:
        monkeypatch.setattr(reports.ReportBuilder, "kept", lambda *_: page)
    with served(runs) as address, connected(address) as connection:
        (path,) = pages_of(address)
        connection.sendall(f"GET {path}/report HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        time.sleep(1.5)
        assert 0 < end_of(connection) < len(page)
        assert ask(address).status == 200


def test_of_who_has_gone_nothing_is_kept(runs):
    """A limit on an answer's time outlives a quick client by minutes: thousands of them would fill the memory."""
    with served(runs) as address:
        for _ in range(100):
            assert ask(address).status == 200
        give_up = time.monotonic() + 10
        while (held := sum(isinstance(one, IOStream) for one in gc.get_objects())) > 10 and time.monotonic() < give_up:
            gc.collect()
        assert held <= 10


def test_without_a_viewer_no_ledger_is_read(tmp_path, monkeypatch):
    with (
        Ledger.create(tmp_path / "now", manifest([HOST])) as ledger,
        served(tmp_path, ask_every_s=0.05) as address,
    ):
        (path,) = pages_of(address)
        assert ask(address, path).status == 200
        opened = []
        with monkeypatch.context() as patch:
            own = sqlite3.connect
            patch.setattr(sqlite3, "connect", lambda *words, **more: opened.append(words) or own(*words, **more))
            for block in range(5):
                add_block(ledger, block, {"host": 20.0}, np.random.default_rng(1), [HOST])
                time.sleep(0.1)
            assert opened == []
            assert ask(address, path).status == 200
            assert opened


def test_the_server_and_what_makes_reports_have_the_lowest_priority(runs):
    words = [sys.executable, "-m", "virtgauge.cli", "serve", str(runs)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            address = process.stdout.readline().strip().rstrip("/")
            assert address.startswith("http://127.0.0.1:")
            (path,) = pages_of(address)
            assert ask(address, path).status == 200
            priorities = {
                int(stat.read_text().rpartition(")")[2].split()[16])
                for stat in Path(f"/proc/{process.pid}/task").glob("*/stat")
            }
            assert priorities == {19}
        finally:
            process.terminate()
        assert process.wait(30) == 0
    said = "import os; from virtgauge.serve import reports; reports.main()"
    made = subprocess.run(
        [sys.executable, "-c", f"{said}; print(os.nice(0))", str(runs / "whole")], capture_output=True, check=True
    )
    assert made.stdout.endswith(b"19\n")


@pytest.mark.parametrize(
    ("bound", "build", "words"),
    [
        ("_MEMORY = 4 * 2**30", "bytearray(4 * 2**30)", "MemoryError"),
        ("_PROCESSOR_S = 1", "exec('while True: pass')", "the report cannot be made: -(9|24)"),
        ("LARGEST_PAGE = 1000", "'x' * 2000", "the page has"),
    ],
    ids=["memory", "processor time", "length"],
)
def test_making_a_report_is_bounded(runs, tmp_path, monkeypatch, bound, build, words):
    """By the process that makes it, with its own bounds made small."""
    program = tmp_path / "python"
    program.write_text(
        f"#!{sys.executable}\n"
        "import sys\n"
        "from virtgauge import report\n"
        "from virtgauge.serve import reports\n"
        f"reports.{bound}\n"
        f"report.build, report.render_html = lambda ledger: None, lambda built: {build}\n"
        "sys.argv[1:] = sys.argv[-1:]\n"
        "reports.main()\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    (run,) = find_runs([runs]).values()
    with pytest.raises(VirtgaugeError, match=words):
        asyncio.run(reports.ReportBuilder().build(run))
    assert (runs / "whole" / LEDGER_NAME).exists()

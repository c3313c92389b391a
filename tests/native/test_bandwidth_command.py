"""`virtgauge bandwidth` over real sockets: a shaped path of known capacity, and everything that may go wrong on one."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sampled import sampled

from virtgauge.bandwidth import find_bandwidth
from virtgauge.errors import ExitCode
from virtgauge.host.process import ProcessIdentity, tree_pids

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "virtgauge.cli", "bandwidth"]
TRIES = 6
CAPACITY_BPS = 100e6

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def paths() -> Iterator[Any]:
    """The benchmarks' shaped path."""
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield importlib.import_module("bandwidth_path")
    sys.path.remove(str(ROOT / "benchmarks"))
    del sys.modules["bandwidth_path"]


@pytest.fixture
def path(root: None, paths: Any) -> Iterator[Any]:
    with paths.shaped_path(CAPACITY_BPS) as path:
        yield path


@contextlib.contextmanager
def listening(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command listening on the loopback, and its port."""
    words = [*COMMAND, "listen", "--address", "127.0.0.1", "--port", "0", "--json", *options]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = json.loads(process.stdout.readline())["address"]
            yield process, address.rpartition(":")[2]
        finally:
            process.terminate()


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=240)


def estimated(path: Any, *options: str) -> tuple[dict[str, Any], Any]:
    """An estimate by the command, and the truth meanwhile; a machine that is kept from it may refuse some tries."""
    before_others = ("--fifo", "50", "--cpu", str(min(os.sched_getaffinity(0))))
    words = path.words("sender", *COMMAND, "estimate", "10.3.0.1", "--json", "--quiet", *before_others, *options)
    refusals = []
    for _ in range(TRIES):
        with path.counting() as counted:
            done = subprocess.run(words, capture_output=True, text=True, timeout=240)
        if done.returncode == 0:
            return json.loads(done.stdout), counted[0]
        assert done.returncode in (ExitCode.FAILED, ExitCode.UNAVAILABLE), done.stderr
        assert "→" in done.stderr or "answer" in done.stderr
        refusals.append(done.stderr)
    raise AssertionError("\n".join(refusals))


@pytest.mark.full
@pytest.mark.alone
@pytest.mark.timeout(900)
@pytest.mark.parametrize("share", [0.5, 0.0])
def test_an_estimate_is_what_the_shaper_leaves(path: Any, share: float) -> None:
    errors = []
    program = find_bandwidth()
    with path.listener(program), path.cross_traffic(program, share * CAPACITY_BPS):
        for _ in range(TRIES):
            found, truth = estimated(path, "--estimator", "kite2")
            assert share * CAPACITY_BPS / 2 <= truth.cross_bps <= share * CAPACITY_BPS * 1.1
            assert found["low_bps"] <= found["high_bps"]
            assert (found["estimator"], found["layer"], found["lower_bound"]) == ("kite2", "ip", False)
            assert found["sent_bytes"] > 0
            errors.append(found["available_bps"] / truth.available_bps - 1)
            if abs(errors[-1]) < 0.1:
                return
    raise AssertionError(f"none of {errors} is within 10 %")


@pytest.mark.alone
@pytest.mark.timeout(600)
def test_foreign_packets_are_counted_and_change_nothing(path: Any) -> None:
    script = (
        "import socket, time\n"
        "sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "while True: sock.sendto(b'x' * 100, ('10.3.0.1', 8763)); time.sleep(0.005)"
    )
    words = path.words("others", sys.executable, "-c", script)
    with path.listener(find_bandwidth()), subprocess.Popen(words) as stranger:
        try:
            found, _ = estimated(path, "--estimator", "kite2", "--searches", "2")
        finally:
            stranger.kill()
    assert found["foreign_packets"] > 0
    assert found["available_bps"] < 1.1 * CAPACITY_BPS


def test_a_wrong_token_is_refused_at_both_ends() -> None:
    with listening("--token", "1" * 32) as (listener, port):
        for token in ((), ("--token", "2" * 32)):
            refused = run("estimate", "127.0.0.1", "--port", port, *token, "--quiet")
            assert refused.returncode == ExitCode.USAGE
            assert "asks for a token" in refused.stderr
            assert "→" in refused.stderr and "--token" in refused.stderr
            assert listener.stdout is not None
            told = json.loads(listener.stdout.readline())
            assert (told["event"], told["reason"]) == ("refused", "it does not know the token")


@pytest.mark.full
def test_nobody_listening_another_program_and_a_rate_out_of_reach_are_told_with_a_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n" * 8)
                with contextlib.suppress(OSError):
                    while connection.recv(4096):
                        pass

        answering = threading.Thread(target=answer)
        answering.start()
        stranger = run("estimate", "127.0.0.1", "--port", port, "--quiet")
        answering.join()
    assert (stranger.returncode, "virtgauge bandwidth listen" in stranger.stderr) == (ExitCode.FAILED, True)
    nobody = run("estimate", "127.0.0.1", "--port", port, "--quiet")
    assert (nobody.returncode, "nothing listens" in nobody.stderr, "→" in nobody.stderr) == (
        ExitCode.FAILED,
        True,
        True,
    )
    unknown = run("estimate", "no-such-host.invalid", "--quiet")
    assert (unknown.returncode, "no known host" in unknown.stderr) == (ExitCode.FAILED, True)
    unpaced = run("estimate", "127.0.0.1", "--rate", "1000G", "--quiet")
    assert (unpaced.returncode, "cannot pace 1000000.0 Mbit/s" in unpaced.stderr) == (ExitCode.UNAVAILABLE, True)
    assert not unpaced.stdout


@contextlib.contextmanager
def estimating(port: str) -> Iterator[subprocess.Popen[str]]:
    """The command in the middle of an estimate that would last for minutes: ten thousand searches of 50 ms a train."""
    words = [*COMMAND, "estimate", "127.0.0.1", "--port", port, "--estimator", "yaz-original", "--searches", "10000"]
    with subprocess.Popen(
        [*words, "--progress", "json"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            while json.loads(process.stderr.readline())["event"] != "session":
                pass
            yield process
        finally:
            process.kill()


STRANGER = """
import json, socket, struct, sys, time

target, third = "10.3.0.1", "10.1.0.1"
own = "10.2.0.1"
seen = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
seen.bind(("eth0", 0))
seen.settimeout(0.2)
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)

def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    return ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF

def begin(source, port):
    \"\"\"A first packet of TCP, which nobody here goes on with.\"\"\"
    head = struct.pack("!HHIIBBHHH", port, 8763, 1, 0, 5 << 4, 2, 1024, 0, 0)
    pseudo = socket.inet_aton(source) + socket.inet_aton(target) + struct.pack("!BBH", 0, 6, len(head))
    head = head[:16] + struct.pack("!H", checksum(pseudo + head)) + head[18:]
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(head), 1, 0, 64, 6, 0, *map(socket.inet_aton, (source, target)))
    raw.sendto(ip + head, (target, 0))

for number in range(50):
    begin(own, 20000 + number)
    begin(third, 30000 + number)
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind((own, 40000))
said = [b"", b"x", bytes(16), bytes(1400), bytes.fromhex(sys.argv[1]) * 40, b"\\x00\\x00\\x00\\x05\\x81\\xa4type"]
for _ in range(20):
    for one in said:
        udp.sendto(one, (target, 8763))
        time.sleep(0.005)
came, ends = [], time.monotonic() + 8
while time.monotonic() < ends:
    try:
        frame = seen.recv(65536)
    except TimeoutError:
        continue
    if frame[12:14] == b"\\x08\\x00" and frame[26:30] == socket.inet_aton(target):
        length = struct.unpack("!H", frame[16:18])[0]
        tcp = frame[34:]
        data = length - 20 - 4 * (tcp[12] >> 4) if frame[23] == 6 else None
        came.append([frame[23], data])
print(json.dumps(came))
"""


@pytest.mark.timeout(120)
def test_a_listener_sends_nothing_to_who_has_not_completed_a_handshake(path: Any) -> None:
    """Beyond the kernel's own answers, without content: half-open connections, also in another's name, and UDP."""
    token = "12" * 16
    with path.listener(find_bandwidth()) as listener:
        words = path.words("others", sys.executable, "-c", STRANGER, token)
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
        came = json.loads(done.stdout)
        assert [0 for protocol, _ in came if protocol == socket.IPPROTO_TCP]  # the kernel's half of the handshake
        assert {data for protocol, data in came if protocol == socket.IPPROTO_TCP} == {0}
        assert {protocol for protocol, _ in came} <= {socket.IPPROTO_TCP, socket.IPPROTO_ICMP}
        delivered = path.words("router", "cat", "/sys/class/net/sender/statistics/tx_bytes")
        # To the third address the kernel's first answers only: no more bytes than came in its name, twice over.
        assert int(subprocess.run(delivered, capture_output=True, text=True, check=True).stdout) < 50 * 2 * 60 + 5000
        listener.send_signal(signal.SIGTERM)
        assert "opened" not in (listener.stdout.read() if listener.stdout else "")


def test_a_listener_that_vanishes_ends_the_estimate_with_a_word() -> None:
    with listening() as (listener, port), estimating(port) as process:
        (own,) = [pid for pid in tree_pids(listener.pid) if pid != listener.pid]
        os.kill(own, signal.SIGKILL)
        told = process.communicate(timeout=120)[1]
        assert process.returncode == ExitCode.FAILED
        assert "vanished" in told and "→" in told


@pytest.mark.parametrize("number", sampled([signal.SIGINT, signal.SIGKILL], [signal.SIGTERM]))
def test_an_interrupted_estimate_leaves_no_process_and_a_free_listener(number: signal.Signals) -> None:
    with listening() as (listener, port):
        with estimating(port) as process:
            children = [ProcessIdentity.of(pid) for pid in tree_pids(process.pid) if pid != process.pid]
            assert children
            process.send_signal(number)
            status = process.wait(60)
            assert status == (-number if number == signal.SIGKILL else ExitCode.INTERRUPTED)
        deadline = time.monotonic() + 60
        while any(child is not None and child.alive() for child in children):
            assert time.monotonic() < deadline, "the estimator outlived its command"
            time.sleep(0.05)
        assert listener.stdout is not None
        events = [json.loads(listener.stdout.readline()) for _ in range(2)]
        assert [event["event"] for event in events] == ["opened", "closed"]


def test_a_listener_that_is_told_to_end_ends_well() -> None:
    with listening() as (listener, _):
        children = [ProcessIdentity.of(pid) for pid in tree_pids(listener.pid) if pid != listener.pid]
        listener.send_signal(signal.SIGINT)
        assert listener.wait(60) == ExitCode.OK
        assert not any(child is not None and child.alive() for child in children)


@pytest.mark.alone
@pytest.mark.timeout(600)
def test_the_pacing_sweep_names_the_highest_paced_rate_of_each_way() -> None:
    shown = run("pacing-sweep", "--duration-ms", "20", "--json")
    assert shown.returncode == 0, shown.stderr
    document = json.loads(shown.stdout)
    assert {rung["method"] for rung in document["rungs"]} | document["unsupported"].keys() == {
        "send",
        "sendmmsg",
        "gso",
    }
    for rung in document["rungs"]:
        paced = rung["paced"]
        assert paced is None or (paced["paced"] and paced["achieved_bps"] <= rung["flat_out"]["achieved_bps"])
    best = max((rung["paced"]["achieved_bps"] for rung in document["rungs"] if rung["paced"]), default=0.0)
    assert document["max_paced_bps"] == best
    table = run("pacing-sweep", "--duration-ms", "5", "--methods", "send")
    assert "max paced: the highest rate" in table.stdout

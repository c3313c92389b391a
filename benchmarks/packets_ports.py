"""Frames a second that one processor sends by each port, beside trafgen and iperf3; the tester's own latency and pace.

Needs root: it makes two network namespaces, and takes them away again.  trafgen is in Debian's package netsniff-ng.

Examples:
  python benchmarks/packets_ports.py
  python benchmarks/packets_ports.py --rounds 9 --seconds 5
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmark import ROOT, BenchmarkError, Outcome, figure, main, progress, ratios, said, spread

PORTS = ("xdp_live", "af_xdp", "af_packet")
RATES_KPPS = (10, 100, 500)
_PAYLOAD = 18  # of UDP, in a frame of 64 bytes with its check sequence
_NOBODY = "02:00:00:00:00:02"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5, help="turns of every sender")
    parser.add_argument("--seconds", type=float, default=3.0, help="time of each turn")


@dataclasses.dataclass(frozen=True)
class Lab:
    """The sender's namespace, where ``a0`` leads to the receiver's ``b0``, and the program that sends."""

    sender: str
    receiver: str
    tester: Path
    receiver_mac: str

    def run(self, *words: str, timeout: float = 120.0) -> subprocess.CompletedProcess[str]:
        return _run("ip", "netns", "exec", self.sender, *words, timeout=timeout)

    def test(self, *words: str) -> dict[str, Any]:
        """What the tester answers."""
        answer: dict[str, Any] = json.loads(self.run(str(self.tester), *words).stdout)
        return answer


def measure(arguments: argparse.Namespace) -> Outcome:
    rounds = 1 if arguments.quick else arguments.rounds
    seconds = 0.5 if arguments.quick else arguments.seconds
    for program in ("trafgen", "iperf3", "ip", "ethtool"):
        if shutil.which(program) is None:
            raise BenchmarkError(f"{program} is missing; apt-get install netsniff-ng iperf3 iproute2 ethtool")
    if os.geteuid() != 0:
        raise BenchmarkError("this makes network namespaces and must run as root")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the namespaces are taken away
    tester = _built()
    cpus = sorted(os.sched_getaffinity(0))
    tx, rx = cpus[0], cpus[-1]  # trafgen binds itself to the first
    values: dict[str, Any] = {"dropped": {}, "routed": {}, "loop": {}, "pace": {}}
    with _lab(tester) as lab:
        for turn in range(rounds):
            progress(f"round {turn + 1} of {rounds}")
            with _dropping(lab):
                _turn(lab, values["dropped"], _NOBODY, seconds, tx, ("trafgen",))
            _turn(lab, values["routed"], lab.receiver_mac, seconds, tx, ("trafgen", "iperf3"))
    with _loop(tester) as lab:
        for turn in range(rounds):
            progress(f"loop, round {turn + 1} of {rounds}")
            for port in PORTS:
                for rate in RATES_KPPS:
                    words = ("a0", "b0", _NOBODY, str(rate * 1000), str(seconds), str(tx), str(rx))
                    values["loop"].setdefault(f"{port} {rate}", []).append(lab.test("loop", port, *words))
    return _outcome(values, seconds, len(cpus))


def _turn(lab: Lab, found: dict[str, list[float]], mac: str, seconds: float, cpu: int, peers: tuple[str, ...]) -> None:
    """One turn of each sender: frames for each second of CPU time."""
    for port in PORTS:
        deferred_s = _deferred_s(cpu)
        answer = lab.test("send", port, "a0", mac, "0", str(seconds), str(cpu))
        cpu_s = answer["tx_cpu_ns"] / 1e9 + _deferred_s(cpu) - deferred_s
        found.setdefault(port, []).append(answer["sent"] / cpu_s)
    if "trafgen" in peers:
        found.setdefault("trafgen", []).append(_trafgen(lab, mac, seconds, cpu))
    if "iperf3" in peers:
        found.setdefault("iperf3 -u", []).append(_iperf3(lab, seconds, cpu))


def _trafgen(lab: Lab, mac: str, seconds: float, cpu: int) -> float:
    octets = ",".join(f"0x{octet}" for octet in mac.split(":"))
    frame = (
        f"{{ {octets}, 0x02,0,0,0,0,1, 0x08,0, 0x45,0,c16(46),0,0,0x40,0,64,17,csumip(14,33), 10,0,0,1, 10,1,0,2, "
        f"c16(9),c16(9),c16(26),0,0, fill(0x41,{_PAYLOAD}) }}"
    )
    with tempfile.NamedTemporaryFile("w", suffix=".cfg") as file:
        file.write(frame)
        file.flush()
        before = _sent(lab)
        words = ("trafgen", "-o", "a0", "-i", file.name, "-P", "1", "-Q", "-q", "-n", "0")
        cpu_s = _cpu_seconds(lab, ("timeout", "-s", "INT", str(seconds), *words), cpu)
        return (_sent(lab) - before) / cpu_s


def _iperf3(lab: Lab, seconds: float, cpu: int) -> float:
    server = subprocess.Popen(
        ["ip", "netns", "exec", lab.receiver, "iperf3", "-s", "-1", "-B", "10.0.0.254"], stdout=subprocess.DEVNULL
    )
    try:
        time.sleep(0.3)
        before = _sent(lab)
        words = ("iperf3", "-c", "10.0.0.254", "-u", "-b", "0", "-l", str(_PAYLOAD), "-t", str(max(1, round(seconds))))
        cpu_s = _cpu_seconds(lab, ("taskset", "-c", str(cpu), *words), cpu)
        return (_sent(lab) - before) / cpu_s
    finally:
        server.kill()
        server.wait()


def _cpu_seconds(lab: Lab, words: tuple[str, ...], cpu: int) -> float:
    """CPU time of a program and its children; those of this process that ended meanwhile are its only ones."""
    before, deferred_s = os.times(), _deferred_s(cpu)
    try:
        lab.run(*words)
    except subprocess.CalledProcessError as error:
        if error.returncode != 124:  # by which `timeout` tells that it ended the program
            raise BenchmarkError(f"{' '.join(words)}: {error.stderr.strip()}") from error
    after = os.times()
    own_s = after.children_user + after.children_system - before.children_user - before.children_system
    return own_s + _deferred_s(cpu) - deferred_s


def _deferred_s(cpu: int) -> float:
    """CPU time of the kernel's thread that does a device's work where a busy processor puts it off."""
    for status in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):  # a process that has just ended
            if status.read_text().strip() == f"ksoftirqd/{cpu}":
                return int((status.parent / "schedstat").read_text().split()[0]) / 1e9
    return 0.0


def _sent(lab: Lab) -> int:
    table = lab.run("cat", "/proc/net/dev").stdout
    line = next(line for line in table.splitlines() if line.strip().startswith("a0:"))
    return int(line.split(":")[1].split()[9])


@contextlib.contextmanager
def _lab(tester: Path) -> Iterator[Lab]:
    """A sender, and a router that knows a way for its frames: to the end of a pair where nobody listens."""
    sender, receiver = (f"vgbench-{os.getpid()}-{end}" for end in ("a", "b"))
    with _namespaces(sender, receiver):
        _ip(sender, f"link add name a0 type veth peer name b0 netns {receiver}")
        _ip(sender, "address add 10.0.0.1/24 dev a0")
        _ip(receiver, "address add 10.0.0.254/24 dev b0")
        _ip(receiver, "link add name sink type veth peer name hole")
        _ip(receiver, "address add 10.1.0.1/24 dev sink")
        _ip(receiver, "neighbour add 10.1.0.2 lladdr 02:00:00:00:00:03 dev sink")
        for namespace, port in (
            (sender, "lo"),
            (sender, "a0"),
            (receiver, "b0"),
            (receiver, "sink"),
            (receiver, "hole"),
        ):
            _ip(namespace, f"link set dev {port} up")
        # What lets live frames enter b0: it polls, instead of being called for each frame.
        _run("ip", "netns", "exec", receiver, "ethtool", "-K", "b0", "gro", "on")
        _run("ip", "netns", "exec", receiver, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
        mac = _run("ip", "netns", "exec", receiver, "cat", "/sys/class/net/b0/address").stdout.strip()
        yield Lab(sender, receiver, tester, mac)


@contextlib.contextmanager
def _loop(tester: Path) -> Iterator[Lab]:
    """Both ends of a pair in one namespace."""
    name = f"vgbench-{os.getpid()}-loop"
    with _namespaces(name):
        _ip(name, "link add name a0 type veth peer name b0")
        for port in ("a0", "b0"):
            _ip(name, f"link set dev {port} up")
        yield Lab(name, name, tester, _NOBODY)


@contextlib.contextmanager
def _namespaces(*names: str) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for name in names:
            _run("ip", "netns", "add", name)
            stack.callback(_run, "ip", "netns", "del", name)
            _run("ip", "netns", "exec", name, "sysctl", "-q", "-w", "net.ipv6.conf.default.disable_ipv6=1")
        yield


@contextlib.contextmanager
def _dropping(lab: Lab) -> Iterator[None]:
    """An XDP program drops all that comes to the receiver."""
    words = ["ip", "netns", "exec", lab.receiver, str(lab.tester), "drop", "b0"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None and program.stdin is not None
        if not program.stdout.readline():
            raise BenchmarkError("the program that drops frames could not be attached; see above")
        try:
            yield
        finally:
            program.stdin.close()


def _ip(namespace: str, words: str) -> None:
    _run("ip", "-n", namespace, *words.split())


def _run(*words: str, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, check=True, text=True, timeout=timeout, capture_output=True)


def _outcome(values: dict[str, Any], seconds: float, cpus: int) -> Outcome:
    rows = []
    for where, title in (("dropped", "into an XDP drop"), ("routed", "into a router")):
        for sender, figures in values[where].items():
            times = ratios(figures, values[where]["trafgen"])
            rows.append([f"{sender}, {title}", spread(figures, scale=1e-6), spread(times), "", "", ""])
    for name, answers in values["loop"].items():
        port, rate = name.split()
        lost = sum(answer["sent"] - answer["received"] for answer in answers)
        gap_ns = 1e6 / int(rate)

        def median(key: str, answers: list[dict[str, Any]] = answers) -> float:
            return statistics.median(answer[key] for answer in answers)

        errors = [median("gap_p1_ns") - gap_ns, median("gap_p50_ns") - gap_ns, median("gap_p99_ns") - gap_ns]
        rows.append(
            [
                f"{port}, {rate} kpps through a bare loop",
                "",
                "",
                f"{figure(median('latency_p50_ns') / 1e3)} / {figure(median('latency_p99_ns') / 1e3)}",
                " / ".join(f"{error:+.0f}" for error in errors),
                str(lost),
            ]
        )
    trafgen = (said("trafgen", "--version") or "unknown").splitlines()[0]
    iperf3 = (said("iperf3", "--version") or "unknown").splitlines()[0]
    return Outcome(
        columns=("sender", "Mframes per CPU second", "beside trafgen", "latency p50/p99, µs", "gap error, ns", "lost"),
        rows=rows,
        meaning="What one processor sends in frames of 64 bytes, and what the tester adds itself to what it measures.",
        peers={"trafgen": trafgen, "iperf3": iperf3},
        notes=[
            f"Medians (and ranges) of turns of {seconds:g} s, the senders taking turns; ratios are of the same round.",
            "CPU seconds are the sender's and ksoftirqd's: the receiving device's work is done in one of them.",
            "The loop's latency is a virtual pair's and the tester's own; the gap error is given as p1 / p50 / p99.",
            f"Two processors for sender and receiver of the loop, of {cpus}.",
        ],
        values=values,
    )


def _built() -> Path:
    target = Path(os.environ.get("CARGO_TARGET_DIR") or Path.home() / ".cache" / "virtgauge" / "target")
    words = ["cargo", "build", "--release", "--locked", "--package", "packets", "--example", "tester"]
    environment = os.environ | {"CARGO_TARGET_DIR": str(target)}
    try:
        done = subprocess.run(
            [*words, "--message-format", "json-render-diagnostics"],
            cwd=ROOT / "native",
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise BenchmarkError("cargo is not on PATH; install Rust with rustup, then try again") from None
    if done.returncode != 0:
        raise BenchmarkError("the tester could not be built; what cargo said stands above")
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    return next(Path(message["executable"]) for message in messages if message.get("executable"))


if __name__ == "__main__":
    main(measure, __doc__, options)

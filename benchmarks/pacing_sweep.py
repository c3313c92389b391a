"""The highest rate that each way of sending paces honestly, beside what `iperf3 -u` sends in the same run.

As root it makes two network namespaces, joined by a virtual pair for AF_XDP, and takes them away again; the sockets
send over the loopback of one of them, and so does iperf3.  Without root, there is the loopback only.

Examples:
  python benchmarks/pacing_sweep.py
  python benchmarks/pacing_sweep.py --rounds 9 --duration-ms 200
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from bandwidth_path import PACKET_BYTES, ended
from benchmark import BenchmarkError, Outcome, figure, main, progress, ratios, said, spread

_PAYLOAD = PACKET_BYTES - 28  # of UDP over IPv4
_NOBODY = "02:00:00:00:00:02"
_LINK = ("--interface", "a0", "--destination-mac", _NOBODY)


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5, help="sweeps, and runs of iperf3 between them")
    parser.add_argument("--duration-ms", type=int, default=100, help="time of each try of the pacing sweep")
    parser.add_argument("--seconds", type=int, default=3, help="time of each run of iperf3")


def measure(arguments: argparse.Namespace) -> Outcome:
    from virtgauge.bandwidth import find_bandwidth

    rounds, duration_ms, seconds = arguments.rounds, arguments.duration_ms, arguments.seconds
    if arguments.quick:
        rounds, duration_ms, seconds = 1, 10, 1
    if shutil.which("iperf3") is None:
        raise BenchmarkError("iperf3 is missing; apt-get install iperf3, or virtgauge provision packages --for testing")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the namespaces are taken away
    rungs: dict[str, list[dict[str, Any]]] = {}
    peers: list[dict[str, float]] = []
    unsupported: dict[str, str] = {}
    with _place() as (inside, link):
        command = [*inside, str(find_bandwidth()), "pacing-sweep", "--duration-ms", str(duration_ms), *link]
        for turn in range(rounds):
            progress(f"round {turn + 1} of {rounds}")
            for event in _events(command):
                if event["event"] == "rung":
                    rungs.setdefault(event["rung"]["method"], []).append(event["rung"])
                elif event["event"] == "unsupported":
                    unsupported[event["method"]] = event["reason"]
            peers.append(_iperf3(inside, seconds))
    return _outcome(rungs, peers, unsupported, duration_ms, seconds)


@contextlib.contextmanager
def _place() -> Iterator[tuple[list[str], Sequence[str]]]:
    """Words that begin a command there, and those that name the link for AF_XDP."""
    if os.geteuid() != 0:
        yield [], ()
        return
    near, far = (f"vgladder-{os.getpid()}-{end}" for end in ("near", "far"))
    with contextlib.ExitStack() as stack:
        for name in (near, far):
            _run("ip", "netns", "add", name)
            stack.callback(_run, "ip", "netns", "del", name)
        _run("ip", "-n", near, "link", "add", "name", "a0", "type", "veth", "peer", "name", "b0", "netns", far)
        for name, interface in ((near, "lo"), (near, "a0"), (far, "b0")):
            _run("ip", "-n", name, "link", "set", "dev", interface, "up")
        yield ["ip", "netns", "exec", near], _LINK


def _events(command: Sequence[str]) -> list[dict[str, Any]]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchmarkError(done.stderr.strip())
    return [json.loads(line) for line in done.stdout.splitlines()]


def _iperf3(inside: Sequence[str], seconds: int) -> dict[str, float]:
    """One run as fast as it can; its rate in bit/s of IP packets, and the share of packets that came."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    server = [*inside, "iperf3", "-s", "-1", "-B", "127.0.0.1", "-p", port]
    client = [*inside, "iperf3", "-c", "127.0.0.1", "-p", port, "-u", "-b", "0", "-l", str(_PAYLOAD), "-J"]
    with ended(subprocess.Popen(server, stdout=subprocess.DEVNULL)):
        time.sleep(0.5)
        done = subprocess.run([*client, "-t", str(seconds)], capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    if done.returncode or "error" in found:
        raise BenchmarkError(f"iperf3: {found.get('error') or done.stderr.strip()}")
    stream = found["end"]["streams"][0]["udp"]
    return {
        "bps": stream["bytes"] / _PAYLOAD * PACKET_BYTES * 8 / stream["seconds"],
        "received_share": 1 - stream["lost_percent"] / 100,
        "cpu_share": found["end"]["cpu_utilization_percent"]["host_total"] / 100,
    }


def _outcome(
    rungs: dict[str, list[dict[str, Any]]],
    peers: list[dict[str, float]],
    unsupported: dict[str, str],
    duration_ms: int,
    seconds: int,
) -> Outcome:
    rows = []
    sent_bps = [peer["bps"] for peer in peers]
    for method, found in rungs.items():
        honest = [rung["paced"]["achieved_bps"] if rung["paced"] else 0.0 for rung in found]
        gaps = [rung["paced"]["gaps"] for rung in found if rung["paced"] and rung["paced"]["gaps"]]
        shares = [rung["paced"]["cpu_share"] for rung in found if rung["paced"]]
        rows.append(
            [
                f"{method}, in bursts of {found[0]['flat_out']['burst']}",
                spread(honest, scale=1e-9),
                spread([rung["flat_out"]["achieved_bps"] for rung in found], scale=1e-9),
                spread(ratios(honest, sent_bps)),
                _microseconds(gaps, "p50_ns") + " / " + _microseconds(gaps, "p99_ns"),
                f"{statistics.median(shares):.0%}" if shares and None not in shares else "",
            ]
        )
    cpu = statistics.median(peer["cpu_share"] for peer in peers)
    rows.append(["iperf3 -u -b 0", "(does not pace)", spread(sent_bps, scale=1e-9), "1", "", f"{cpu:.0%}"])
    came = statistics.median(peer["received_share"] for peer in peers)
    iperf3 = (said("iperf3", "--version") or "unknown").splitlines()[0]
    return Outcome(
        columns=("sent by", "honest, Gbit/s", "flat out, Gbit/s", "honest beside iperf3", "gap p50/p99, µs", "CPU"),
        rows=rows,
        meaning="Up to which rate a stream leaves as it was asked for: within 1 %, and at most 1 of 100 bursts late.",
        peers={"iperf3": iperf3},
        notes=[
            f"Medians (and ranges) of rounds; ratios are of the same round. IP packets of {PACKET_BYTES} B.",
            f"Each try of the pacing sweep sends for {duration_ms} ms, iperf3 for {seconds} s; "
            f"{came:.1%} of its packets came, and it looks at no gap.",
            "The gaps are those between bursts at the highest honest rate; waiting awake counts as CPU time.",
            "send, sendmmsg and gso send over a loopback; af_xdp and xdp_live into a virtual pair, where nobody reads.",
            *(f"{method}: not possible here: {reason}" for method, reason in unsupported.items()),
        ],
        values={"rungs": rungs, "iperf3": peers},
    )


def _microseconds(gaps: Sequence[dict[str, Any]], quantile: str) -> str:
    return figure(statistics.median(gap[quantile] for gap in gaps) / 1e3) if gaps else "–"


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=60)


if __name__ == "__main__":
    main(measure, __doc__, options)

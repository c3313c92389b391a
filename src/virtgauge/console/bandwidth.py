"""``virtgauge bandwidth``: estimate what a path between two machines carries beside what it carries now."""

from __future__ import annotations

import enum
import json
import re
from contextlib import closing, suppress
from typing import Annotated

import typer
from rich.console import Console

from virtgauge.console.displays import ProgressStyle
from virtgauge.console.terminal import output
from virtgauge.errors import UsageError

app = typer.Typer(
    name="bandwidth",
    help="Estimate the available bandwidth between two machines: one listens, the other estimates.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

PORT = 8763
"""Of TCP and of UDP, as in native/bandwidth."""


class Estimator(enum.StrEnum):
    """Which estimator; docs/bandwidth.md tells them apart."""

    KITE2 = "kite2"
    YAZ_ORIGINAL = "yaz-original"


class Clock(enum.StrEnum):
    """What the time is read from."""

    HPTIME = "hptime"
    SYSTEM = "system"
    GETTIMEOFDAY = "gettimeofday"


class Sleep(enum.StrEnum):
    """How the sender waits."""

    HPTIME = "hptime"
    SYSTEM = "system"
    USLEEP = "usleep"


class Pacing(enum.StrEnum):
    """How bursts are handed to the kernel."""

    AUTO = "auto"
    SEND = "send"
    SENDMMSG = "sendmmsg"
    GSO = "gso"


Host = Annotated[str, typer.Argument(metavar="HOST", help="The machine that listens: a name or an address.")]
Port = Annotated[int, typer.Option(min=1, max=65535, help="The listener's port, of TCP and UDP.")]
Token = Annotated[
    str | None,
    typer.Option(envvar="VIRTGAUGE_BANDWIDTH_TOKEN", help="32 hexadecimal digits that both ends must know."),
]
ClockOption = Annotated[Clock, typer.Option(help="What the sender reads the time from.")]
SleepOption = Annotated[Sleep, typer.Option(help="How the sender waits.")]
PacketBytes = Annotated[int | None, typer.Option(min=64, max=9000, help="Length of the IP packets; 1500 by default.")]
Cpu = Annotated[int | None, typer.Option(min=0, help="Processor of the sending thread.")]
Fifo = Annotated[
    int | None, typer.Option(min=1, max=99, help="Its real-time priority (SCHED_FIFO); helps on a busy machine.")
]
Rate = Annotated[
    str | None, typer.Option(metavar="RATE", help="Refuse unless this machine can pace so much: 300M, 1.5G.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Progress = Annotated[
    ProgressStyle, typer.Option(help="auto: a bar on a terminal, lines elsewhere; json: one object a line.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]


@app.command(
    epilog="Examples: virtgauge bandwidth listen, "
    "virtgauge bandwidth listen --address 10.0.0.2 --token $(openssl rand -hex 16)"
)
def listen(
    address: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "0.0.0.0",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of TCP and UDP; 0 for any that is free.")] = PORT,
    token: Token = None,
    sessions: Annotated[int | None, typer.Option(min=1, help="End after so many estimates.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Stamp what estimators send to this machine, one after the other, until Ctrl-C.

    Without a token everybody who reaches the port may have packets stamped here.  Nothing is sent to an address that
    has not completed a TCP handshake, and packets that do not hold the session's own token are counted and ignored.
    """
    from virtgauge.bandwidth import running
    from virtgauge.console.bandwidth_formatting import listener_line

    words = ["listen", "--address", address, "--port", str(port), *_token(token)]
    if sessions is not None:
        words += ["--sessions", str(sessions)]
    # To be ended is how it ends.
    with suppress(KeyboardInterrupt), running(words) as events:
        for event in events:
            print(json.dumps(event) if as_json else listener_line(event), flush=True)


@app.command(
    epilog="Examples: virtgauge bandwidth estimate 10.0.0.2, "
    "virtgauge bandwidth estimate server --estimator yaz-original --clock system --sleep system --json"
)
def estimate(
    host: Host,
    port: Port = PORT,
    token: Token = None,
    estimator: Annotated[Estimator, typer.Option(help="docs/bandwidth.md tells them apart.")] = Estimator.KITE2,
    clock: ClockOption = Clock.HPTIME,
    sleep: SleepOption = Sleep.HPTIME,
    pacing: Annotated[
        Pacing, typer.Option(help="How bursts are handed over; auto: by what is fastest here. Single packets by send.")
    ] = Pacing.AUTO,
    rate: Rate = None,
    lowest: Annotated[
        str | None, typer.Option(metavar="RATE", help="The lowest rate that is tried; of kite2 only.")
    ] = None,
    highest: Annotated[
        str | None,
        typer.Option(metavar="RATE", help="The highest; yaz-original ends at 300M by default."),
    ] = None,
    searches: Annotated[
        int | None,
        typer.Option(min=1, max=10_000, help="Complete searches; as many of 10 to 30 as it takes by default."),
    ] = None,
    packet_bytes: PacketBytes = None,
    cpu: Cpu = None,
    fifo: Fifo = None,
    as_json: AsJson = False,
    progress: Progress = ProgressStyle.AUTO,
    quiet: Quiet = False,
) -> None:
    """Estimate the available bandwidth of the path to a machine on which `virtgauge bandwidth listen` runs.

    Rates are of IP packets, in bit/s.  Before it calls anybody, it measures on its own loopback what this machine can
    pace, and it refuses to answer where that does not suffice.
    """
    from virtgauge.bandwidth import Estimate, Event, running
    from virtgauge.console.bandwidth_formatting import create_watcher, estimate_text

    words = ["estimate", host, "--port", str(port), *_token(token)]
    words += _searching(estimator, packet_bytes, lowest, highest, searches)
    words += _sending(clock, sleep, packet_bytes, cpu, fifo)
    words += [] if pacing is Pacing.AUTO else ["--method", pacing.value]
    words += [] if rate is None else ["--rate", repr(_rate("--rate", rate))]
    told: dict[str, Event] = {}
    with closing(create_watcher(ProgressStyle.NONE if quiet else progress)) as watcher, running(words) as events:
        for event in events:
            told[event["event"]] = event
            watcher.show(event)
    found = Estimate.of(told["session"], told["result"])
    if as_json:
        print(json.dumps(found.as_dict() | told["result"] | {"session": told["session"], "pacing": told.get("pacing")}))
        return
    for line in estimate_text(found):
        print(line)


@app.command(epilog="Examples: virtgauge bandwidth pacing-sweep, virtgauge bandwidth pacing-sweep 10.0.0.2 --rate 1G")
def pacing_sweep(
    host: Annotated[
        str | None, typer.Argument(metavar="HOST", help="Fill the path to this listener; the loopback by default.")
    ] = None,
    port: Port = PORT,
    token: Token = None,
    methods: Annotated[str, typer.Option(help="Ways of sending, with commas between them.")] = "send,sendmmsg,gso",
    duration_ms: Annotated[int, typer.Option(min=1, max=10_000, help="How long each try sends.")] = 100,
    clock: ClockOption = Clock.HPTIME,
    sleep: SleepOption = Sleep.HPTIME,
    rate: Rate = None,
    packet_bytes: PacketBytes = None,
    cpu: Cpu = None,
    fifo: Fifo = None,
    as_json: AsJson = False,
) -> None:
    """Find the highest rate that this machine paces, by each way of sending.

    A rate is paced that is kept within 1 % and of whose bursts at most one in a hundred leaves late.
    """
    from virtgauge.bandwidth import Rung, running
    from virtgauge.console.bandwidth_formatting import sweep_table

    words = ["pacing-sweep", *([] if host is None else [host, "--port", str(port), *_token(token)])]
    words += ["--methods", methods, "--duration-ms", str(duration_ms)]
    words += _sending(clock, sleep, packet_bytes, cpu, fifo)
    words += [] if rate is None else ["--rate", repr(_rate("--rate", rate))]
    with Console(stderr=True).status("sending as fast as each way allows …"), running(words) as events:
        told = list(events)
    rungs = [event["rung"] for event in told if event["event"] == "rung"]
    impossible = {event["method"]: event["reason"] for event in told if event["event"] == "unsupported"}
    if as_json:
        print(json.dumps(told[-1] | {"rungs": rungs, "unsupported": impossible}))
        return
    output().print(sweep_table([Rung.of(rung) for rung in rungs]))
    print("max paced: the highest rate that is kept within 1 %, with at most one in a hundred bursts late")
    for method, reason in impossible.items():
        print(f"{method}: not possible here: {reason}")


def _token(token: str | None) -> list[str]:
    if token is None:
        return []
    if not re.fullmatch(r"[0-9A-Fa-f]{32}", token):
        raise UsageError("--token: is not 32 hexadecimal digits", "`openssl rand -hex 16` draws one")
    return ["--token", token]


def _sending(clock: Clock, sleep: Sleep, packet_bytes: int | None, cpu: int | None, fifo: int | None) -> list[str]:
    words = ["--clock", clock.value, "--sleep", sleep.value]
    words += [] if packet_bytes is None else ["--packet-bytes", str(packet_bytes)]
    words += [] if cpu is None else ["--cpu", str(cpu)]
    return words if fifo is None else [*words, "--fifo", str(fifo)]


def _rate(option: str, text: str) -> float:
    from virtgauge.analysis.bandwidth import rate_bps

    try:
        return rate_bps(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}", "bit/s, or with k, M or G, which are decimal") from None


def _searching(
    estimator: Estimator, packet_bytes: int | None, lowest: str | None, highest: str | None, searches: int | None
) -> list[str]:
    """What is tried, and how often; refused here where it is clear that the estimator would refuse it."""
    words = ["--estimator", estimator.value]
    if estimator is Estimator.YAZ_ORIGINAL and packet_bytes is not None:
        raise UsageError("--packet-bytes: yaz-original begins with 1500 B and halves by itself", "leave it out")
    if searches is not None:
        words += ["--instants", str(searches)]
    if lowest is not None:
        if estimator is not Estimator.KITE2:
            raise UsageError(f"--lowest: {estimator.value} has no lowest rate", "leave it out, or use kite2")
        words += ["--lowest", repr(_rate("--lowest", lowest))]
    if highest is not None:
        bps = _rate("--highest", highest)
        if bps <= 0:
            raise UsageError("--highest: is no rate", "such as 300M or 1.5G")
        words += ["--highest", repr(bps)]
    return words

"""``virtgauge bandwidth``: estimate what a path between two machines carries beside what it carries now."""

from __future__ import annotations

import enum
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from virtgauge.analysis.packets import rate_bps, rate_text
from virtgauge.bandwidth import Event, running, summary
from virtgauge.console.displays import ProgressStyle, live_bar, output
from virtgauge.console.options import AsJson, NoProgress, Progress
from virtgauge.errors import UsageError, printable

app = typer.Typer(
    name="bandwidth",
    help="Estimate the available bandwidth between two machines: one listens, the other estimates.",
    no_args_is_help=True,
)

PORT = 8763  # Of TCP and of UDP, as in native/bandwidth

Estimator = enum.StrEnum("Estimator", {"KITE2": "kite2", "YAZ_ORIGINAL": "yaz-original"})
Clock = enum.StrEnum("Clock", "HPTIME SYSTEM GETTIMEOFDAY")
Sleep = enum.StrEnum("Sleep", "HPTIME SYSTEM USLEEP")
Pacing = enum.StrEnum("Pacing", "AUTO SEND SENDMMSG GSO")

Host = Annotated[str, typer.Argument(metavar="HOST", help="The machine that listens: a name or an address.")]
Port = Annotated[int, typer.Option(min=1, max=65535, help="The listener's port, of TCP and UDP.")]
Token = Annotated[
    str | None, typer.Option(envvar="VIRTGAUGE_BANDWIDTH_TOKEN", help="32 hexadecimal digits that both ends must know.")
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
    words = ["listen", *_options(address=address, port=port, token=_checked(token), sessions=sessions)]
    # To be ended is how it ends.
    with suppress(KeyboardInterrupt), running(words) as events:
        for event in events:
            print(json.dumps(event) if as_json else printable(listener_line(event)), flush=True)


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
        str | None, typer.Option(metavar="RATE", help="The highest; yaz-original ends at 300M by default.")
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
    quiet: NoProgress = False,
) -> None:
    """Estimate the available bandwidth of the path to a machine on which `virtgauge bandwidth listen` runs.

    Rates are of IP packets, in bit/s.  Before it calls anybody, it measures on its own loopback what this machine can
    pace, and it refuses to answer where that does not suffice.
    """
    # Refused here where it is clear that the estimator would refuse it.
    if estimator is Estimator.YAZ_ORIGINAL and packet_bytes is not None:
        raise UsageError("--packet-bytes: yaz-original begins with 1500 B and halves by itself", "leave it out")
    if estimator is not Estimator.KITE2 and lowest is not None:
        raise UsageError(f"--lowest: {estimator.value} has no lowest rate", "leave it out, or use kite2")
    highest_bps = _rate("--highest", highest)
    if highest_bps is not None and highest_bps <= 0:
        raise UsageError("--highest: is no rate", "such as 300M or 1.5G")
    words = ["estimate", host, *_options(port=port, token=_checked(token), estimator=estimator, instants=searches)]
    words += _options(lowest=_rate("--lowest", lowest), highest=highest_bps, clock=clock, sleep=sleep)
    words += _options(packet_bytes=packet_bytes, cpu=cpu, fifo=fifo, rate=_rate("--rate", rate))
    words += [] if pacing is Pacing.AUTO else ["--method", pacing.value]
    told: dict[str, Event] = {}
    with _watching(ProgressStyle.NONE if quiet else progress) as show, running(words) as events:
        for event in events:
            told[event["event"]] = event
            show(event)
    found = summary(told["session"], told["result"])
    if as_json:
        print(json.dumps(found | told["result"] | {"session": told["session"], "pacing": told.get("pacing")}))
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
    words = ["pacing-sweep", *([] if host is None else [host, *_options(port=port, token=_checked(token))])]
    words += _options(methods=methods, duration_ms=duration_ms, clock=clock, sleep=sleep)
    words += _options(packet_bytes=packet_bytes, cpu=cpu, fifo=fifo, rate=_rate("--rate", rate))
    with Console(stderr=True).status("sending as fast as each way allows …"), running(words) as events:
        told = list(events)
    rungs = [event["rung"] for event in told if event["event"] == "rung"]
    impossible = {event["method"]: event["reason"] for event in told if event["event"] == "unsupported"}
    if as_json:
        print(json.dumps(told[-1] | {"rungs": rungs, "unsupported": impossible}))
        return
    output().print(sweep_table(rungs))
    print("max paced: the highest rate that is kept within 1 %, with at most one in a hundred bursts late")
    for method, reason in impossible.items():
        print(printable(f"{method}: not possible here: {reason}"))


def _options(**given: object) -> list[str]:
    """Options as the program takes them; what is None was not given."""
    pairs = (("--" + name.replace("_", "-"), str(value)) for name, value in given.items() if value is not None)
    return [word for pair in pairs for word in pair]


def _checked(token: str | None) -> str | None:
    if token is not None and not re.fullmatch(r"[0-9A-Fa-f]{32}", token):
        raise UsageError("--token: is not 32 hexadecimal digits", "`openssl rand -hex 16` draws one")
    return token


def _rate(option: str, text: str | None) -> float | None:
    try:
        return None if text is None else rate_bps(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}", "bit/s, or with k, M or G, which are decimal") from None


_LINE_EVERY_S = 2.0


@contextmanager
def _watching(style: ProgressStyle) -> Iterator[Callable[[Event], None]]:
    """What is to be shown each event of an estimate, on standard error."""
    style, bar = style.resolved(), live_bar(Console(stderr=True))
    last = time.monotonic()

    def line(text: str) -> None:
        nonlocal last
        last = time.monotonic()
        print(text, file=sys.stderr, flush=True)

    def show(event: Event) -> None:
        kind = event["event"]
        if style is ProgressStyle.JSON and kind != "result":
            line(json.dumps(event))
        elif style is ProgressStyle.BAR and kind == "session":
            bar.update(bar.task_ids[0], description=f"connected to {event['peer']}")
        elif style is ProgressStyle.BAR and kind == "progress":
            done, total = event["instants_done"], event["instants"]
            bar.update(bar.task_ids[0], total=total, completed=done, description=_progress_text(event))
        elif style is ProgressStyle.LINES and kind == "session":
            line(f"connected to {event['peer']}")
        elif style is ProgressStyle.LINES and kind == "pacing":
            line(_pacing_text(event))
        elif style is ProgressStyle.LINES and kind == "progress" and time.monotonic() - last >= _LINE_EVERY_S:
            line(f"{event['instants_done']} of {event['instants']} searches, {_progress_text(event)}")

    bar.add_task("measuring what this machine can pace", total=None)
    with bar if style is ProgressStyle.BAR else nullcontext():
        yield show


def _pacing_text(event: Event) -> str:
    """What is known of this machine before it calls anybody."""
    if event["pacing"] is None:
        reason = event.get("reason") or "no rate was kept on its loopback"
        return f"what this machine can pace is seen of each stream: {reason}"
    return f"this machine paces up to {rate_text(event['pacing']['max_paced_bps'])} on its loopback"


def _progress_text(event: Event) -> str:
    sent = f"{event['streams']} streams, {event['bytes'] / 1e6:.1f} MB sent"
    rate = event["rate_bps"]
    return sent if rate is None else f"{sent}; {rate_text(rate)}: {event['verdict']}"


def listener_line(event: Event) -> str:
    """What happened at a listener."""
    match event["event"]:
        case "listening":
            return f"listening on {event['address']}, TCP and UDP; Ctrl-C ends it"
        case "opened":
            stamps = event["no_kernel_stamps"]
            by = "" if stamps is None else f"; this program stamps its packets, not the kernel: {stamps}"
            return f"{event['peer']}: estimates{by}"
        case "closed":
            ignored = sum(event["ignored"].values())
            others = f", {ignored:,} foreign ignored" if ignored else ""
            dropped = f", {event['overflowed']:,} dropped by this machine" if event["overflowed"] else ""
            counted = f"{event['streams']:,} streams, {event['packets']:,} packets{others}{dropped}"
            return f"{event['peer']}: {event['reason']}; {counted}"
        case "refused":
            return f"{event['peer']}: refused: {event['reason']}"
    return json.dumps(event)


def estimate_text(found: Event) -> Iterator[str]:
    """An estimate, line by line."""
    at_least = "at least " if found["lower_bound"] else ""
    interval = f"{found['confidence']:.0%} interval {rate_text(found['low_bps'])} to {rate_text(found['high_bps'])}"
    yield f"available bandwidth: {at_least}{rate_text(found['available_bps'])} of IP packets ({interval})"
    yield (
        f"  with packets of {found['packet_bytes']} B that is {rate_text(found['wire_bps'])} of an Ethernet wire, "
        f"and {rate_text(found['shaper_bps'])} as Linux's shapers count"
    )
    cost = f"sent {found['sent_bytes'] / 1e6:.1f} MB in {found['duration_ns'] / 1e9:.1f} s"
    discarded = f"{found['discarded']} of them discarded ({found['stalled']} interrupted)"
    yield f"  {found['estimator']}: {found['searches']} searches, {found['streams']} streams, {discarded}; {cost}"
    stamped = "by the listener's kernel" if found["user_stamps"] is None else "by the listener's program"
    sent = f"clock {found['clock']}, sleep {found['sleep']}, bursts by {found['method']}"
    yield f"  {sent}; packets are stamped {stamped}"
    if found["lower_bound"]:
        yield f"  it is the highest rate that {found['estimator']} tries here; raise it with --highest"
    if found["hptime_fallback_reason"] is not None and "hptime" in (found["clock"], found["sleep"]):
        yield f"  hptime uses the system's clock here: {found['hptime_fallback_reason']}"
    if found["user_stamps"] is not None:
        yield f"  the listener's kernel does not stamp packets: {found['user_stamps']}"
    if found["foreign_packets"]:
        yield f"  {found['foreign_packets']:,} foreign packets came to the listener and were ignored"


def sweep_table(rungs: Sequence[Event]) -> Table:
    """The pacing sweep, a row for each way of sending; how late is the 99th percentile, too.

    Rates are of IP packets, flat out and the highest that is paced; gaps and lateness are between bursts at that rate.
    """
    table = Table("sent by", box=None, pad_edge=False)
    for column in ("burst", "flat out", "max paced", "gap p50/p99, µs", "late, µs", "CPU"):
        table.add_column(column, justify="right", no_wrap=True)
    for rung in rungs:
        flat_out, paced = rung["flat_out"], rung["paced"] or {}
        gaps, lateness, cpu_share = paced.get("gaps") or {}, paced.get("lateness") or {}, paced.get("cpu_share")
        table.add_row(
            rung["method"],
            str(flat_out["burst"]),
            rate_text(flat_out["achieved_bps"]),
            rate_text(paced["achieved_bps"]) if paced.get("achieved_bps") else "none",
            f"{_microseconds(gaps.get('p50_ns'))} / {_microseconds(gaps.get('p99_ns'))}",
            _microseconds(lateness.get("p99_ns")),
            "" if cpu_share is None else f"{cpu_share:.0%}",
        )
    return table


def _microseconds(time_ns: int | None) -> str:
    return "–" if time_ns is None else f"{time_ns / 1e3:.1f}"

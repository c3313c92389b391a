"""What ``virtgauge bandwidth`` shows: progress, events of a listener, an estimate, a pacing sweep."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TextIO

from rich.console import Console
from rich.progress import TaskID
from rich.table import Table

from virtgauge.analysis.bandwidth import rate_text
from virtgauge.bandwidth import Estimate, Event, Rung
from virtgauge.console.displays import ProgressStyle, live_bar

_LINE_EVERY_S = 2.0


class Watcher:
    """Is shown each event of an estimate; this one shows nothing."""

    def show(self, event: Event) -> None:
        """Show an event."""

    def close(self) -> None:
        """Show no more."""


def create_watcher(style: ProgressStyle) -> Watcher:
    """The one for a style; all of it goes to standard error."""
    match style.resolved():
        case ProgressStyle.BAR:
            return BarWatcher(Console(stderr=True))
        case ProgressStyle.LINES:
            return LinesWatcher(sys.stderr)
        case ProgressStyle.JSON:
            return JsonWatcher(sys.stderr)
    return Watcher()


class BarWatcher(Watcher):
    """A live bar of the searches."""

    def __init__(self, console: Console) -> None:
        self._progress = live_bar(console)
        self._task: TaskID = self._progress.add_task("measuring what this machine can pace", total=None)
        self._progress.start()

    def show(self, event: Event) -> None:
        match event["event"]:
            case "session":
                self._progress.update(self._task, description=f"connected to {event['peer']}")
            case "progress":
                self._progress.update(
                    self._task,
                    total=event["instants"],
                    completed=event["instants_done"],
                    description=progress_words(event),
                )

    def close(self) -> None:
        self._progress.stop()


class LinesWatcher(Watcher):
    """Plain lines, one every two seconds at most."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last = time.monotonic()

    def show(self, event: Event) -> None:
        match event["event"]:
            case "pacing":
                self._line(pacing_words(event))
            case "session":
                self._line(f"connected to {event['peer']}")
            case "progress" if time.monotonic() - self._last >= _LINE_EVERY_S:
                self._line(f"{event['instants_done']} of {event['instants']} searches, {progress_words(event)}")

    def _line(self, text: str) -> None:
        self._last = time.monotonic()
        print(text, file=self._stream, flush=True)


class JsonWatcher(Watcher):
    """The program's own events but its result, which is printed."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def show(self, event: Event) -> None:
        if event["event"] != "result":
            print(json.dumps(event), file=self._stream, flush=True)


def pacing_words(event: Event) -> str:
    """What is known of this machine before it calls anybody."""
    if event["pacing"] is None:
        reason = event.get("reason") or "no rate was kept on its loopback"
        return f"what this machine can pace is seen of each stream: {reason}"
    return f"this machine paces up to {rate_text(event['pacing']['max_paced_bps'])} on its loopback"


def progress_words(event: Event) -> str:
    """Where an estimate stands."""
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


def estimate_text(found: Estimate) -> Iterator[str]:
    """An estimate, line by line."""
    at_least = "at least " if found.lower_bound else ""
    interval = f"{found.confidence:.0%} interval {rate_text(found.low_bps)} to {rate_text(found.high_bps)}"
    yield f"available bandwidth: {at_least}{rate_text(found.available_bps)} of IP packets ({interval})"
    yield (
        f"  with packets of {found.packet_bytes} B that is {rate_text(found.wire_bps)} of an Ethernet wire, "
        f"and {rate_text(found.shaper_bps)} as Linux's shapers count"
    )
    cost = f"sent {found.sent_bytes / 1e6:.1f} MB in {found.duration_ns / 1e9:.1f} s"
    discarded = f"{found.discarded} of them discarded ({found.stalled} interrupted)"
    yield f"  {found.estimator}: {found.searches} searches, {found.streams} streams, {discarded}; {cost}"
    stamped = "by the listener's kernel" if found.user_stamps is None else "by the listener's program"
    yield f"  clock {found.clock}, sleep {found.sleep}, bursts by {found.method}; packets are stamped {stamped}"
    if found.lower_bound:
        yield f"  it is the highest rate that {found.estimator} tries here; raise it with --highest"
    if found.hptime_fallback_reason is not None and "hptime" in (found.clock, found.sleep):
        yield f"  hptime uses the system's clock here: {found.hptime_fallback_reason}"
    if found.user_stamps is not None:
        yield f"  the listener's kernel does not stamp packets: {found.user_stamps}"
    if found.foreign_packets:
        yield f"  {found.foreign_packets:,} foreign packets came to the listener and were ignored"


def sweep_table(rungs: Sequence[Rung]) -> Table:
    """The pacing sweep, a row for each way of sending; how late is the 99th percentile, too."""
    table = Table("sent by", box=None, pad_edge=False)
    for column in ("burst", "flat out", "max paced", "gap p50/p99, µs", "late, µs", "CPU"):
        table.add_column(column, justify="right", no_wrap=True)
    for rung in rungs:
        table.add_row(
            rung.method,
            str(rung.burst),
            rate_text(rung.flat_out_bps),
            rate_text(rung.max_paced_bps) if rung.max_paced_bps else "none",
            f"{_microseconds(rung.gap_p50_ns)} / {_microseconds(rung.gap_p99_ns)}",
            _microseconds(rung.late_p99_ns),
            "" if rung.cpu_share is None else f"{rung.cpu_share:.0%}",
        )
    return table


def _microseconds(time_ns: int | None) -> str:
    return "–" if time_ns is None else f"{time_ns / 1e3:.1f}"

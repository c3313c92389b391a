"""Progress: lines for logs, objects for scripts, a bar for people, the remaining time in words."""

import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest
from rich.cells import cell_len
from rich.console import Console

from virtgauge.console.displays import BarDisplay, JsonDisplay, LinesDisplay, output
from virtgauge.execution.progress import GuestStarting, Notice, RunEnded, RunStarted, TrialEnded, TrialProgress
from virtgauge.results.quantities import running_time

EVENTS = [
    RunStarted("r1", 2, 0),
    Notice("skipped gvisor: no runsc"),
    GuestStarting("host", 0),
    TrialProgress("b0000/host/x", 0.5),
    TrialEnded("b0000/host/x", "host", "invalid", "foreign-load: 4%", 1, 2, 75.0),
    TrialEnded("b0000/host/y", "host", "valid", None, 2, 2, 0.0),
    RunEnded(True, 1, 1, 12.0),
]


def test_lines_tell_what_matters_and_nothing_else():
    stream = io.StringIO()
    display = LinesDisplay(stream)
    for event in EVENTS:
        display.show(event)
    assert stream.getvalue().splitlines() == [
        "r1: 2 trials to do",
        "skipped gvisor: no runsc",
        "b0000/host/x: invalid: foreign-load: 4%",
        "2/2 trials, 0 s left; not valid: foreign-load ×1",
    ]


def invalid(number, reason, cell="x"):
    return TrialEnded(f"b0000/host/{cell}{number}", "host", "invalid", reason, number, 300, 75.0)


REPEATED = [
    RunStarted("r1", 300, 0),
    GuestStarting("host", 0),
    *(invalid(n, f"steal: {n} % of the time") for n in range(1, 38)),
    *(invalid(n, "foreign-load: 4 %") for n in range(38, 40)),
    RunEnded(True, 261, 39, 12.0),
]


def bar_text(events, width):
    stream = io.StringIO()
    display = BarDisplay(Console(file=stream, force_terminal=True, width=width))
    for event in events:
        display.show(event)
    display.close()
    return stream.getvalue()


def test_a_reason_is_told_once_and_then_counted_by_the_lines():
    stream = io.StringIO()
    display = LinesDisplay(stream)
    for event in [*REPEATED, TrialEnded("b0000/host/y", "host", "valid", None, 300, 300, 0.0)]:
        display.show(event)
    lines = stream.getvalue().splitlines()
    assert lines[1:3] == [
        "b0000/host/x1: invalid: steal: 1 % of the time",
        "b0000/host/x38: invalid: foreign-load: 4 %",
    ]
    assert lines[3:] == ["300/300 trials, 0 s left; not valid: steal ×37, foreign-load ×2"]


def test_a_reason_is_told_once_and_then_counted_by_the_bar():
    shown = bar_text(REPEATED, 80)
    assert shown.count("of the time") == 1
    assert "not valid: steal ×37, foreign-load ×2" in shown


def test_what_a_platform_cannot_do_is_told_for_each_reason_and_counted_together_where_it_changes():
    stream = io.StringIO()
    display = LinesDisplay(stream)
    display._last = float("-inf")
    reasons = ["no SCHED_FIFO: refused", "no timer slack: not taken", "no timer slack: not taken"]
    for number, reason in enumerate(reasons):
        display.show(TrialEnded(f"c{number}", "g", "unsupported", reason, number + 1, 4, 1.0))
    display.show(TrialEnded("c3", "g", "valid", None, 4, 4, 0.0))
    assert stream.getvalue().splitlines()[1:] == [
        "1/4 trials, 1 s left; not valid: unsupported ×1",
        "c1: unsupported: no timer slack: not taken",
        "4/4 trials, 0 s left; not valid: unsupported ×3",
    ]


def test_errors_that_all_differ_are_counted_together_in_the_end():
    shown = bar_text([REPEATED[0], *(invalid(n, f"error number {n}") for n in range(1, 30)), REPEATED[-1]], 80)
    assert "other reasons ×21" in shown
    assert shown.count("invalid: ") == 9


def test_json_keeps_every_reason():
    stream = io.StringIO()
    display = JsonDisplay(stream)
    for event in REPEATED:
        display.show(event)
    assert len([o for o in map(json.loads, stream.getvalue().splitlines()) if o.get("reason")]) == 39


SCRIPT = """
import time
from rich.console import Console
from virtgauge.console.displays import BarDisplay
from virtgauge.results.quantities import running_time
from virtgauge.execution.progress import GuestStarting, RunStarted, TrialEnded, TrialProgress
display = BarDisplay(Console(stderr=True))
key = "b0003/qemu-microvm/timing/sleep_lateness/function=usleep,target_ns=100000,slack=default,load=cpu"
for event in (
    RunStarted("r1", 1200, 0),
    GuestStarting("qemu-microvm", 3),
    TrialEnded(key, "qemu-microvm", "invalid", "steal: 12 % of the time", 1130, 1200, 4321.0),
    TrialEnded(key, "qemu-microvm", "invalid", "foreign-load: 4 %", 1130, 1200, 4321.0),
    TrialProgress(key, 0.5),
):
    display.show(event)
display._progress.refresh()
display.close()
"""


def frames(columns):
    """What is written to a terminal so wide, row by row, without what steers it."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdin=theirs, stdout=theirs, stderr=theirs, env=environment | {"TERM": "xterm"}
    )
    os.close(theirs)
    written = b""
    try:
        while chunk := os.read(ours, 65536):
            written += chunk
    except OSError:  # the end of what a terminal gives, once nobody writes to it any more
        pass
    finally:
        os.close(ours)
    assert child.wait(timeout=30) == 0
    return [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", row) for row in re.split(r"[\r\n]+", written.decode())]


@pytest.mark.parametrize(("columns", "named"), [(80, False), (120, True)])
def test_on_a_terminal_the_bar_with_count_and_time_left_takes_one_row(columns, named):
    rows = frames(columns)
    bars = [row for row in rows if "1130/1200" in row]
    assert bars
    assert all(cell_len(row) <= columns for row in rows)
    assert all("1 h 12 min left" in row for row in bars)
    assert any("b0003/qemu-microvm" in row for row in rows) is named
    assert any("qemu-microvm" in row for row in bars)


def test_json_is_an_object_a_line_with_the_kind_of_event():
    stream = io.StringIO()
    display = JsonDisplay(stream)
    for event in EVENTS:
        display.show(event)
    objects = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [o["event"] for o in objects] == [
        "run-started", "notice", "guest-starting", "trial-progress", "trial-ended", "trial-ended", "run-ended",
    ]  # fmt: skip
    assert objects[4]["remaining_s"] == 75.0


def test_the_bar_shows_trials_remaining_time_and_warnings_without_reading_markup():
    stream = io.StringIO()
    display = BarDisplay(Console(file=stream, force_terminal=True, width=120))
    for event in [*EVENTS[:2], Notice("[bold]host[/bold]"), *EVENTS[2:5]]:
        display.show(event)
    display.close()
    shown = stream.getvalue()
    assert "1/2" in shown
    assert "1 min 15 s left" in shown
    assert "foreign-load" in shown
    assert "[bold]host[/bold]" in shown


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "…"), (0, "0 s"), (59.6, "1 min 00 s"), (75, "1 min 15 s"), (3700, "1 h 01 min")]
)
def test_durations_read_as_people_say_them(seconds, text):
    assert running_time(seconds) == text


def measures(stdout, **environment):
    command = [sys.executable, "-m", "virtgauge.cli", "measures"]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, env=os.environ | environment)


@pytest.mark.slow
def test_who_stops_reading_ends_a_command_quietly_and_a_full_disk_is_told():
    ours, theirs = os.pipe()
    os.close(ours)
    try:
        closed = measures(theirs)
    finally:
        os.close(theirs)
    assert (closed.returncode, closed.stderr) == (141, "")
    with open("/dev/full", "w") as full:
        refused = measures(full)
    assert refused.returncode == 1
    assert refused.stderr.startswith("virtgauge: cannot write to standard output: ")
    assert "No space left on device\n  → free some space" in refused.stderr


@pytest.mark.parametrize(("columns", "width"), [(None, 300), ("100", 100)])
def test_outside_a_terminal_a_line_is_as_long_as_columns_says(monkeypatch, columns, width):
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert output(300).width == width

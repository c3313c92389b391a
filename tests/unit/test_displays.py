"""Progress: lines for logs, objects for scripts, a bar for people, the remaining time in words."""

import io
import json

import pytest
from rich.console import Console

from virtgauge.console.displays import BarDisplay, JsonDisplay, LinesDisplay, duration_text
from virtgauge.execution.progress import GuestStarting, Notice, RunEnded, RunStarted, TrialEnded, TrialProgress

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
        "2/2 trials, 0 s left",
    ]


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
    assert duration_text(seconds) == text

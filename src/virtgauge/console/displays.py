"""How a run's progress is shown: a live bar, plain lines, JSON lines for scripts, or nothing.

All of it goes to standard error, so that standard output holds results only.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import sys
import time
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, SpinnerColumn, TaskID, TextColumn
from rich.text import Text

from virtgauge.execution.progress import (
    GuestStarting,
    Notice,
    ProgressDisplay,
    ProgressEvent,
    RunEnded,
    RunStarted,
    TrialEnded,
    TrialProgress,
)

_LINE_EVERY_S = 10.0
_JSON_PROGRESS_EVERY_S = 1.0


class ProgressStyle(enum.StrEnum):
    """``--progress``: auto is a bar on a terminal and lines elsewhere."""

    AUTO = "auto"
    BAR = "bar"
    LINES = "lines"
    JSON = "json"
    NONE = "none"

    def resolved(self) -> ProgressStyle:
        """What auto stands for here; every other stands for itself."""
        if self is not ProgressStyle.AUTO:
            return self
        return ProgressStyle.BAR if sys.stderr.isatty() else ProgressStyle.LINES


def create_display(style: ProgressStyle) -> ProgressDisplay:
    """The display for a style."""
    match style.resolved():
        case ProgressStyle.BAR:
            return BarDisplay(Console(stderr=True))
        case ProgressStyle.LINES:
            return LinesDisplay(sys.stderr)
        case ProgressStyle.JSON:
            return JsonDisplay(sys.stderr)
    return ProgressDisplay()


def duration_text(seconds: float | None) -> str:
    """A remaining time as a person says it."""
    if seconds is None:
        return "…"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def live_bar(console: Console, *columns: ProgressColumn) -> Progress:
    """A bar with the steps done, further columns, and the step under way."""
    return Progress(
        SpinnerColumn(),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        *columns,
        TextColumn("{task.description}", style="dim", markup=False),
        console=console,
        transient=True,
        refresh_per_second=1,  # this machine is being measured, and agents tell of progress no more often
    )


class BarDisplay(ProgressDisplay):
    """A live bar with the trial under way and the remaining time."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = live_bar(console, TextColumn("{task.fields[remaining]} left"))
        self._task: TaskID | None = None

    def show(self, event: ProgressEvent) -> None:
        match event:
            case RunStarted():
                self._task = self._progress.add_task(
                    "", total=event.trials_total, completed=event.trials_done, remaining="…"
                )
                self._progress.start()
            case GuestStarting():
                self._describe(f"starting {event.arm}, repetition {event.block + 1}")
            case TrialProgress():
                self._describe(event.key + (f" {event.done:.0%}" if event.done else ""))
            case TrialEnded():
                if self._task is not None:
                    remaining = duration_text(event.remaining_s)
                    self._progress.update(
                        self._task, completed=event.trials_done, total=event.trials_total, remaining=remaining
                    )
                if event.reason:
                    self._console.print(Text(f"{event.key}: {event.status}: {event.reason}", style="yellow"))
            case Notice():
                self._console.print(Text(event.text, style="yellow" if event.warning else ""))
            case RunEnded():
                self.close()

    def close(self) -> None:
        self._progress.stop()

    def _describe(self, text: str) -> None:
        if self._task is not None:
            self._progress.update(self._task, description=text)


class LinesDisplay(ProgressDisplay):
    """Plain lines: warnings at once, progress every ten seconds."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last = time.monotonic()

    def show(self, event: ProgressEvent) -> None:
        match event:
            case RunStarted():
                self._line(f"{event.run}: {event.trials_total - event.trials_done} trials to do")
            case TrialEnded():
                if event.reason:
                    self._line(f"{event.key}: {event.status}: {event.reason}")
                if time.monotonic() - self._last >= _LINE_EVERY_S or event.trials_done == event.trials_total:
                    self._last = time.monotonic()
                    remaining = duration_text(event.remaining_s)
                    self._line(f"{event.trials_done}/{event.trials_total} trials, {remaining} left")
            case Notice():
                self._line(event.text)
            case _:
                pass

    def _line(self, text: str) -> None:
        print(text, file=self._stream, flush=True)


class JsonDisplay(ProgressDisplay):
    """One JSON object a line; ``event`` names its kind, the other fields are those of the event."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last_progress = 0.0

    def show(self, event: ProgressEvent) -> None:
        if isinstance(event, TrialProgress):
            if time.monotonic() - self._last_progress < _JSON_PROGRESS_EVERY_S:
                return
            self._last_progress = time.monotonic()
        name = "".join(f"-{c.lower()}" if c.isupper() else c for c in type(event).__name__).lstrip("-")
        print(json.dumps({"event": name} | dataclasses.asdict(event)), file=self._stream, flush=True)

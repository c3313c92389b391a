"""How a run's progress is shown: a live bar, plain lines, JSON lines for scripts, or nothing.

All of it goes to standard error, so that standard output holds results only.
"""

from __future__ import annotations

import dataclasses
import enum
import io
import json
import os
import sys
import textwrap
import time
from collections import Counter
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn
from rich.table import Column
from rich.text import Text

from virtgauge.errors import ClosedPipeError, printable, unwritable
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
from virtgauge.ledger.records import TrialStatus
from virtgauge.results.quantities import running_time

_UNBROKEN = 100_000  # Columns of what is no terminal: no line is broken, so that paths can be cut out
WIDE = 120  # Columns from which on a bar names the trial under way
_BESIDE_BAR, _BESIDE_DESCRIPTION = 50, 64  # Columns for spinner, count and time, besides the bar or what is behind it
_LONGEST_KIND, _MOST_KINDS = 40, 8
_LINE_EVERY_S = 10.0
_JSON_PROGRESS_EVERY_S = 1.0


def output(width: int = _UNBROKEN) -> Console:
    """Standard output: as wide as a terminal is, or as COLUMNS says; else, in a file or a pipe, of that width."""
    return Console() if sys.stdout.isatty() or os.environ.get("COLUMNS") else Console(width=width)


class _Output(io.FileIO):
    """Standard output of which a failure is told like any other: that nobody reads on, or that there is no room."""

    def write(self, content: Any) -> int:
        try:
            return super().write(content)
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())  # for what is in buffers yet
            if isinstance(error, BrokenPipeError):
                raise ClosedPipeError from None
            raise unwritable(f"cannot write to standard output: {error}", error, "write to a file with --out") from None


def watched_output() -> TextIO:
    """What is to be ``sys.stdout``; a write to it raises ClosedPipeError or another VirtgaugeError."""
    plain = sys.stdout
    try:
        buffer = io.BufferedWriter(_Output(plain.fileno(), "wb", closefd=False))
    except (AttributeError, OSError):  # there is none, or none of the system's
        return plain
    by_line, through = bool(plain.line_buffering), bool(getattr(plain, "write_through", False))
    return io.TextIOWrapper(buffer, plain.encoding, plain.errors, line_buffering=by_line, write_through=through)


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


def live_bar(console: Console, *columns: ProgressColumn) -> Progress:
    """A bar with the steps done, further columns, and the step under way; in one row of a terminal of 80 columns."""
    return Progress(
        SpinnerColumn(),
        BarColumn(bar_width=max(min(30, console.width - _BESIDE_BAR), 5)),
        MofNCompleteColumn(),
        *columns,
        TextColumn("{task.description}", style="dim", markup=False, table_column=Column(no_wrap=True)),
        console=console,
        transient=True,
        refresh_per_second=1,  # this machine is being measured, and agents tell of progress no more often
    )


class InvalidTrials:
    """Counts why trials were not valid, so that each kind of reason is told in full once only."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._counts: Counter[str] = Counter()

    def add(self, event: TrialEnded, *, wide: bool) -> str:
        """Note a trial; what to tell of one that is not valid for a reason of a new kind, with its cell if ``wide``."""
        if not event.reason:
            return ""
        kind = textwrap.shorten(event.reason.partition(":")[0], _LONGEST_KIND, placeholder=" …")
        new = kind not in self._told
        if new and len(self._told) >= _MOST_KINDS:
            kind, new = "other reasons", "other reasons" not in self._told
        self._told.add(kind)
        # What a platform cannot do has a reason for each of its cells, which are told once and counted together.
        self._counts["unsupported" if event.status == TrialStatus.UNSUPPORTED else kind] += 1
        return f"{event.key if wide else event.arm}: {event.status}: {event.reason}" if new else ""

    def __str__(self) -> str:
        """``steal ×37, foreign-load ×2``; empty without any."""
        return ", ".join(f"{kind} ×{number}" for kind, number in self._counts.most_common())


class BarDisplay(ProgressDisplay):
    """A live bar with the remaining time, the platform under way and, on a wide terminal, the trial."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = live_bar(console, TextColumn("{task.fields[remaining]} left"))
        self._task = self._progress.add_task("", remaining=running_time(None))
        self._arm = ""
        self._invalid = InvalidTrials()

    def show(self, event: ProgressEvent) -> None:
        match event:
            case RunStarted():
                if event.about:
                    self._print(f"it takes {event.about}", warning=False)
                self._advance(event)
                self._progress.start()
            case GuestStarting():
                self._arm = event.arm
                self._describe(f"starting {event.arm}, repetition {event.block + 1}", f"starting {event.arm}")
            case TrialProgress():
                self._describe(event.key + (f" {event.done:.0%}" if event.done else ""), self._arm)
            case TrialEnded():
                self._advance(event)
                if told := self._invalid.add(event, wide=self._wide):
                    self._print(told, warning=True)
            case Notice():
                self._print(event.text, warning=event.warning)
            case RunEnded():
                self.close()
                if str(self._invalid):
                    self._print(f"not valid: {self._invalid}", warning=True)

    def close(self) -> None:
        self._progress.stop()

    @property
    def _wide(self) -> bool:
        return self._console.width >= WIDE

    def _advance(self, event: RunStarted | TrialEnded) -> None:
        remaining = running_time(event.remaining_s)
        self._progress.update(self._task, completed=event.trials_done, total=event.trials_total, remaining=remaining)

    def _print(self, text: str, *, warning: bool) -> None:
        self._console.print(Text(printable(text, lines=True), style="yellow" if warning else ""))

    def _describe(self, wide: str, narrow: str) -> None:
        """What is under way, and how many trials were not valid, as far as there is room for them."""
        parts = [wide if self._wide else narrow, *([str(self._invalid)] if str(self._invalid) else [])]
        text = Text(" · ".join(parts))
        text.truncate(max(self._console.width - _BESIDE_DESCRIPTION, 1), overflow="ellipsis")
        self._progress.update(self._task, description=text.plain)


class LinesDisplay(ProgressDisplay):
    """Plain lines: warnings at once and repeated ones counted, progress every ten seconds."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last = time.monotonic()
        self._invalid = InvalidTrials()
        self._counted = ""
        self._wide = not stream.isatty() or Console(file=stream).width >= WIDE

    def show(self, event: ProgressEvent) -> None:
        match event:
            case RunStarted():
                about = f", {event.about}" if event.about else ""
                self._line(f"{event.run}: {event.trials_total - event.trials_done} trials to do{about}")
            case TrialEnded():
                if told := self._invalid.add(event, wide=self._wide):
                    self._line(told)
                if time.monotonic() - self._last >= _LINE_EVERY_S or event.trials_done == event.trials_total:
                    self._last = time.monotonic()
                    remaining = running_time(event.remaining_s)
                    counted, self._counted = self._counted, str(self._invalid)
                    invalid = f"; not valid: {self._counted}" if self._counted != counted else ""
                    self._line(f"{event.trials_done}/{event.trials_total} trials, {remaining} left{invalid}")
            case Notice():
                self._line(event.text)

    def _line(self, text: str) -> None:
        print(printable(text, lines=True), file=self._stream, flush=True)


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

"""What a set-up tells the person who waits: the present activity, and one line per step at its end."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
from collections.abc import Callable, Iterable, Iterator
from typing import Self

from rich.console import Console
from rich.progress import Progress as LiveProgress
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from virtgauge.errors import printable


class State(enum.StrEnum):
    """How a step of a set-up ended."""

    OK = "ok"  # it was there, whole
    MADE = "made"  # it is there now
    SKIPPED = "skipped"  # it could not be had; the rest goes on without it


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The end of one step."""

    step: str
    state: State
    detail: str  # what is there, or the reason why it is not; one line
    fix: str | None = None  # the command (or step) that would help; None where nothing is wrong, or known to help
    elapsed_s: float | None = None  # how long it took; None where nobody measured it

    def line(self) -> str:
        fix = f" ({self.fix})" if self.fix else ""
        elapsed = f" [{self.elapsed_s:.0f} s]" if self.elapsed_s is not None and self.elapsed_s >= 0.5 else ""
        return f"{self.step:<10} " + " ".join(f"{self.state}: {self.detail}{fix}{elapsed}".split())


Progress = Callable[[str], None]  # Is told what a step is doing now, in place of what it did before


def silence(_text: str) -> None:
    """Show nothing: for callers that show progress of their own, or none."""


class SetUpDisplay:
    """Shows a set-up on standard error: on a terminal a line for each step under way, and one for each that ended.

    Elsewhere the lines of the ended steps alone.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._live = LiveProgress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            refresh_per_second=2,
            disable=not self._console.is_terminal,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[Progress]:
        task = self._live.add_task(f"{name:<10} looking …")
        try:
            yield lambda text: self._live.update(task, description=f"{name:<10} {text} …")
        finally:
            self._live.remove_task(task)

    def show(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            self._console.print(printable(outcome.line(), lines=True), markup=False, highlight=False, soft_wrap=True)

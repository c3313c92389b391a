"""What a set-up tells the person who waits: the present activity, and one line per step at its end."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import sys
from collections.abc import Iterator
from typing import Protocol

from rich.console import Console
from rich.status import Status
from rich.text import Text


class State(enum.StrEnum):
    """How a step of a set-up ended."""

    OK = "ok"  # it was there, whole
    MADE = "made"  # it is there now
    SKIPPED = "skipped"  # it could not be had; the rest goes on without it


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The end of one step.

    Attributes:
        step: the step's short name.
        state: how it ended.
        detail: what is there, or the reason why it is not; one line.
        fix: the command (or step) that would help; None when nothing is wrong or nothing is known to help.
    """

    step: str
    state: State
    detail: str
    fix: str | None = None

    def line(self) -> str:
        """The outcome as one line of text."""
        fix = f" ({self.fix})" if self.fix else ""
        return f"{self.step:<10} " + " ".join(f"{self.state}: {self.detail}{fix}".split())


class Progress(Protocol):
    """Where a step says what it is doing."""

    def activity(self, text: str) -> None:
        """Say what is done now; replaces what was said before."""


class Silence:
    """For callers that show progress of their own, or none."""

    def activity(self, text: str) -> None:
        """Say nothing."""


class PlainProgress:
    """One line per activity, for logs and pipes."""

    def __init__(self, step: str) -> None:
        self._step = step

    def activity(self, text: str) -> None:
        """Print the activity."""
        print(f"{self._step:<10} {text} …", file=sys.stderr, flush=True)


class TerminalProgress:
    """A line on a terminal that is overwritten."""

    def __init__(self, step: str, status: Status) -> None:
        self._step = step
        self._status = status

    def activity(self, text: str) -> None:
        """Show the activity beside the spinner."""
        self._status.update(Text(f"{self._step:<10} {text} …"))


@contextlib.contextmanager
def showing(step: str) -> Iterator[Progress]:
    """Progress of one step on standard error: a spinner on a terminal, plain lines elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield PlainProgress(step)
        return
    with console.status(Text(f"{step:<10} looking …")) as status:
        yield TerminalProgress(step, status)

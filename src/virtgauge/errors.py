"""Errors that a person reads: what happened, where, and what to do next.

Every error that virtgauge raises on purpose derives from :class:`VirtgaugeError`, and carries the exit
code with which the command ends.  Anything else that reaches the top is a defect.
"""

from __future__ import annotations

import difflib
import enum
from collections.abc import Iterable


class ExitCode(enum.IntEnum):
    """The few exit codes of the command; documented in the README."""

    OK = 0
    FAILED = 1  # the work could not be done (a platform failed, no trial was valid, …)
    USAGE = 2  # a wrong option, plan or path; nothing was started
    UNAVAILABLE = 3  # nothing of what was asked can be measured on this machine
    NOT_MET = 4  # measured, and a requirement is not met
    UNDECIDED = 5  # measured, none failed, and a requirement is neither met nor failed
    DEFECT = 70  # an error in virtgauge itself
    INTERRUPTED = 130  # Ctrl-C or SIGTERM; `virtgauge resume` goes on


class VirtgaugeError(Exception):
    """What happened, and optionally the remedy, in words for the user."""

    exit_code: ExitCode = ExitCode.FAILED

    def __init__(self, message: str, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}\n  → {self.remedy}" if self.remedy else self.message


class UsageError(VirtgaugeError):
    """Input that was refused before anything was started."""

    exit_code = ExitCode.USAGE


class UnavailableError(VirtgaugeError):
    """This machine cannot do what was asked."""

    exit_code = ExitCode.UNAVAILABLE


def nearest(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'quick'?`` for a misspelt name, nothing where no known one is near."""
    close = closest(name, known)
    return f"; did you mean {close!r}?" if close else ""


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that a misspelt one is near, if there is one."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)


def printable(text: str) -> str:
    """Without control characters: a name must not steer the terminal."""
    return "".join(character if character.isprintable() else "�" for character in text)

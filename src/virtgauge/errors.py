"""Errors that a person reads: what happened, where, and what to do next.

Every error that virtgauge raises on purpose derives from :class:`VirtgaugeError`, and carries the exit
code with which the command ends.  Anything else that reaches the top is a defect.
"""

from __future__ import annotations

import difflib
import enum
import errno
import sys
import traceback
import unicodedata
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
    CLOSED_PIPE = 141  # whoever read standard output has read enough, as of other programs that SIGPIPE ends


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


class ClosedPipeError(VirtgaugeError):
    """Whoever reads standard output wants no more of it: nothing to be told."""

    exit_code = ExitCode.CLOSED_PIPE

    def __init__(self) -> None:
        super().__init__("")


def unwritable(message: str, error: OSError, remedy: str) -> VirtgaugeError:
    """The error for a place that cannot be written: it is a wrong one, unless there is no room."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return VirtgaugeError(message, "free some space there, and start the command again")
    return UsageError(message, remedy)


def nearest(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'quick'?`` for a misspelt name, nothing where no known one is near."""
    close = closest(name, known)
    return f"; did you mean {close!r}?" if close else ""


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name that a misspelt one is near, if there is one."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1)), None)


def printable(text: str, longest: int | None = None, *, lines: bool = False) -> str:
    """Without what could steer a terminal or turn the direction of writing, and at most so many characters.

    Control characters, bidirectional marks and whatever else does not print become a visible mark; ``lines`` keeps the
    ends of lines and tabs.
    """
    cut = text if longest is None or len(text) <= longest else text[: longest - 1] + "…"
    return cut if cut.isprintable() else cut.translate(_LINES if lines else _ONE_LINE)


def tell(error: Exception) -> ExitCode:
    """Say on standard error why a command ends, of a defect with its trace; returns the exit code."""
    if isinstance(error, ClosedPipeError):
        return error.exit_code
    if isinstance(error, VirtgaugeError):
        text, code = str(error), error.exit_code
    else:
        text = "this is a defect of virtgauge itself; please report it with the lines above"
        print(printable("".join(traceback.format_exception(error)), lines=True), end="", file=sys.stderr)
        code = ExitCode.DEFECT
    print(f"virtgauge: {printable(text, lines=True)}", file=sys.stderr, flush=True)
    return code


class _Shown(dict[int, str]):
    """What stands for a character, by its number."""

    def __missing__(self, number: int) -> str:
        one = chr(number)
        self[number] = one if one.isprintable() or unicodedata.category(one) == "Zs" else "�"
        return self[number]


_ONE_LINE, _LINES = _Shown(), _Shown({ord(one): one for one in "\n\t"})

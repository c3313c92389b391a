"""Standard output as a console: as wide as a terminal is, and without a width where lines go to a file or a pipe."""

from __future__ import annotations

import sys

from rich.console import Console

_UNBROKEN = 100_000
"""Columns of what is no terminal: no line is broken there, so that paths and commands can be cut out of it."""


def output() -> Console:
    """A console on standard output."""
    return Console() if sys.stdout.isatty() else Console(width=_UNBROKEN)

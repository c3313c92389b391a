"""Waiting for what happens, and not for a time: the machine of a test pauses."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(what: str, seen: Callable[[], object], within: float = 60.0) -> None:
    """Wait until it is so; fail, naming ``what``, where it is not within so many seconds."""
    give_up = time.monotonic() + within
    while not seen():
        assert time.monotonic() < give_up, f"{what} did not come within {within} s"
        time.sleep(0.05)

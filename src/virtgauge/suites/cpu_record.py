"""CPU time of guests over a span that is known only afterwards: read at short intervals meanwhile."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable

import numpy as np

_EVERY_S = 0.02
_READING_SHARE = 0.1
"""Of the time may go into reading: where a hypervisor's toolstack has to be asked, that is work beside the guests."""


class CpuRecord:
    """Readings of an account of CPU time, which is None where it is not known; it begins with one."""

    def __init__(self, cpu_ns: Callable[[], int | None]) -> None:
        self._cpu_ns = cpu_ns
        self._times: list[int] = []
        self._charged: list[int] = []
        self.read()

    def read(self) -> None:
        charged = self._cpu_ns()
        if charged is not None:
            self._times.append(time.monotonic_ns())
            self._charged.append(charged)

    def between(self, start_ns: int, end_ns: int) -> int | None:
        """CPU time from one moment of CLOCK_MONOTONIC to another, between readings by their straight line.

        None where the account is not known, or the moments lie outside of what was read.
        """
        if len(self._times) < 2 or not self._times[0] <= start_ns <= end_ns <= self._times[-1]:
            return None
        # Relative to the first, so that nothing is lost to a float's 53 bits.
        times = np.array(self._times, dtype=np.int64) - self._times[0]
        charged = np.array(self._charged, dtype=np.int64) - self._charged[0]
        moments = np.array([start_ns, end_ns], dtype=np.int64) - self._times[0]
        first, last = np.interp(moments, times, charged)
        return round(float(last - first))

    @property
    def total_ns(self) -> int | None:
        """CPU time from the first reading to the last; None where the account is not known."""
        return self._charged[-1] - self._charged[0] if len(self._charged) > 1 else None


@contextlib.asynccontextmanager
async def recorded(*accounts: Callable[[], int | None], every_s: float = _EVERY_S) -> AsyncIterator[list[CpuRecord]]:
    """A record of each account, kept during the block; all are read at the same moments, and last at its end.

    A thread reads them: it takes half as long to wake up as the event loop, beside guests that are being measured.
    Accounts that take long to read are read less often, so that reading takes a tenth of the time at most.
    """
    records = [CpuRecord(cpu_ns) for cpu_ns in accounts]
    block = threading.Lock()  # held by it; an Event would wake the thread up by way of two more objects

    def keep() -> None:
        pause_s = every_s
        while not block.acquire(timeout=pause_s):
            began = time.monotonic()
            for record in records:
                record.read()
            pause_s = max(every_s, (time.monotonic() - began) / _READING_SHARE)

    thread = threading.Thread(target=keep, name="cpu record", daemon=True)
    block.acquire()
    thread.start()
    try:
        yield records
    finally:
        block.release()
        thread.join()
        for record in records:
            record.read()

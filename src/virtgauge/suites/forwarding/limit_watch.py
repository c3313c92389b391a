"""Whether the CPU limit that the guests of a laboratory were given holds while they forward.

Where guests share the host's kernel, what routes their frames may not be theirs at all, and a kernel thread that is
theirs may be exempt from the quota (Linux 6.18 and later).  Then the load vector matters less than the plan means.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence

from virtgauge.host.cgroup import QUOTA_PERIOD_US
from virtgauge.platforms.base import Guest

_PERIOD_NS = QUOTA_PERIOD_US * 1000
"""A guest may use up to two of them in a span that begins in the middle of one."""
_BEYOND = 1.5
"""Times what is allowed is beyond what slices and rounding explain."""


class LimitWatch:
    """Compares what guests used with what they may.

    Attributes:
        unbound: why the limit is not in force, in words; None while nothing shows that.
    """

    def __init__(self, guests: Sequence[Guest], limit: float | None) -> None:
        """Watch guests with a limit in whole CPUs each; without one there is nothing to watch."""
        self._guests, self._limit = guests, limit
        reasons = [guest.confinement().unbound for guest in guests] if limit is not None else []
        self.unbound: str | None = next((reason for reason in reasons if reason is not None), None)

    @contextlib.contextmanager
    def trial(self) -> Iterator[None]:
        """A trial, after which :attr:`unbound` may be known."""
        if self._limit is None or self.unbound is not None:
            yield
            return
        before, started_ns = self._used_ns(), time.monotonic_ns()
        yield
        elapsed_ns, after = time.monotonic_ns() - started_ns, self._used_ns()
        allowed_ns = self._limit * (elapsed_ns + 2 * _PERIOD_NS) * _BEYOND
        for number, (then, now) in enumerate(zip(before, after, strict=True)):
            if then is not None and now is not None and now - then > allowed_ns:
                self.unbound = (
                    f"guest {number} used {(now - then) / elapsed_ns:.2f} CPUs of its {self._limit:g}: "
                    "this kernel does not stop the threads that route for it (Linux 6.18 and later does not)"
                )

    def _used_ns(self) -> list[int | None]:
        return [guest.accounting().cpu_ns for guest in self._guests]

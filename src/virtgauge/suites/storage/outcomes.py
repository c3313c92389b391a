"""What the load generator's commands bring."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping
from typing import Any

import numpy as np

from virtgauge.ledger.records import Histogram
from virtgauge.suites.answers import histogram_of


@dataclasses.dataclass(frozen=True)
class StreamResult:
    """What one load came to in the measured time.

    Attributes:
        operations, rows, errors, wrong: statements; readings; statements that failed; reads that brought other
            readings than were written.
        first_error, first_error_kind: of the first that failed.
        service: from the beginning of a statement to its answer, in ns; None where there was none.
        response: from the intended beginning, of a load that has one.
        unstarted: statements that were due and had not begun at the end.
        per_client: statements by client.
        slices: statements that ended in each 100 ms.
    """

    operations: int
    rows: int
    errors: int
    wrong: int
    first_error: str | None
    first_error_kind: str | None
    service: Histogram | None
    response: Histogram | None
    unstarted: int
    per_client: tuple[int, ...]
    slices: tuple[int, ...]

    @classmethod
    def decode(cls, value: Mapping[str, Any]) -> StreamResult:
        """One of ``measure``'s answer.

        Raises:
            KeyError, TypeError, ValueError: it is none.
        """
        return cls(
            operations=int(value["operations"]),
            rows=int(value["rows"]),
            errors=int(value["errors"]),
            wrong=int(value["wrong"]),
            first_error=value["first_error"],
            first_error_kind=value["first_error_kind"],
            service=_histogram(value["service"]),
            response=_histogram(value["response"]),
            unstarted=int(value["unstarted"]),
            per_client=tuple(map(int, value["per_client"])),
            slices=tuple(map(int, value["slices"])),
        )


@dataclasses.dataclass(frozen=True)
class Measured:
    """What ``measure`` brought.

    Attributes:
        elapsed_ns: the measured span.
        cpu_ns: of the client, user and system, in that span.
        started_monotonic_ns: when the span began, by the CLOCK_MONOTONIC of where the client ran.
        finished_ns: when its answer had come, by the controller's.
        streams: in the order of the request.
    """

    elapsed_ns: int
    cpu_ns: int
    started_monotonic_ns: int
    finished_ns: int
    streams: tuple[StreamResult, ...]

    @property
    def operations(self) -> int:
        """Of all loads together."""
        return sum(stream.operations for stream in self.streams)

    @property
    def operations_per_s(self) -> float:
        """The same by the span; 0 where there was none."""
        return self.operations * 1e9 / self.elapsed_ns if self.elapsed_ns else 0.0


@dataclasses.dataclass(frozen=True)
class DiskProbe:
    """Small blocks written and flushed one after another on an idle disk.

    Attributes:
        flushes: how many.
        elapsed_ns: how long that took.
        bursts_per_s: flushes per second of each of its parts.
    """

    flushes: int
    elapsed_ns: float
    bursts_per_s: tuple[float, ...]

    @property
    def flushes_per_s(self) -> float:
        """Of all of it."""
        return self.flushes * 1e9 / self.elapsed_ns

    @property
    def median_per_s(self) -> float:
        """Of its bursts."""
        return statistics.median(self.bursts_per_s)

    def followed_by(self, other: DiskProbe) -> DiskProbe:
        """Both as one."""
        bursts = (*self.bursts_per_s, *other.bursts_per_s)
        return DiskProbe(self.flushes + other.flushes, self.elapsed_ns + other.elapsed_ns, bursts)


@dataclasses.dataclass(frozen=True)
class FlushCount:
    """What the flush laboratory has counted.

    Attributes:
        total: flushes.
        time_ns: how long those together took whose time was seen.
        untimed: those whose time was not.
    """

    total: int
    time_ns: int
    untimed: int

    def since(self, before: FlushCount) -> FlushCount:
        """What came to it."""
        return FlushCount(self.total - before.total, self.time_ns - before.time_ns, self.untimed - before.untimed)

    @property
    def mean_ns(self) -> float | None:
        """Of a flush; None where no time was seen."""
        timed = self.total - self.untimed
        return self.time_ns / timed if timed > 0 else None


def _histogram(value: Mapping[str, Any] | None) -> Histogram | None:
    """A histogram of sensorstore's; None where nothing was counted."""
    if value is None or int(value["n"]) == 0:
        return None
    values, counts = np.array(value["values"], dtype=np.int64), np.array(value["counts"], dtype=np.uint64)
    return histogram_of(value, values, counts)

"""A simulated database with a known truth, and the load generator that uses it.

One server works through operations whose service times are exponential; in a closed loop, so many clients keep it busy
as it can serve at once.  In an open loop it is the queue M/M/1, whose response times are exponential with the mean
S / (1 − u), u being the rate times S (Kleinrock 1975, Queueing Systems I, 3.2).  A trial takes no time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import Field

from virtgauge.agent.channel import AgentError
from virtgauge.plan import Section
from virtgauge.platforms.simulated.answers import ended, histogram
from virtgauge.platforms.simulated.truth import NotNegative, Positive, Share, Sigma, lognormal

_DRAWN = 20_000  # Per stream and trial; each stands for as many operations as it takes to make up the stream
_BURSTS = 10  # Of which a probe of the disk consists
KILL = "kill-the-server"  # A program that no real guest has: ends the load that goes on until it fails
_SPECIFICATION = "SENSORSTORE_SPECIFICATION"  # As docs/sensorstore.md has it


class StorageTruth(Section):
    """The database in a guest. Operations and levels of durability are named as in a plan."""

    service_us: dict[str, Positive] = Field(default_factory=dict)
    """Mean time of an operation without its flush, by operation; 100 by default."""
    flush_us: dict[str, NotNegative] = Field(default_factory=lambda: {"flushed": 400.0})
    """What a write waits for in addition, by level of durability; nothing by default."""
    flushes_per_write: dict[str, NotNegative] = Field(default_factory=lambda: {"flushed": 1.0})
    """Flushes counted for each write of one client, by level. Concurrent clients share them."""
    parallel: Annotated[int, Field(ge=1)] = 4
    """Clients that are served at the same time."""
    testbed_sigma: Sigma = 0.0
    """Every testbed draws a factor on all times, lognormal with median 1 and this sigma."""
    lost_share: dict[str, Share] = Field(default_factory=lambda: {"none": 0.5, "periodic": 0.05})
    """Share of the acknowledged rows that a crash loses, by level."""
    crash_rows: Annotated[int, Field(ge=0)] = 2000
    """Acknowledged rows of each client at the crash."""
    client_cpu_us: NotNegative = 5.0
    """CPU time of the client for each operation."""
    null_us: Positive = 10.0
    """The client's own time for an operation, measured against a server that stores nothing."""
    disk_flushes_per_s: Positive = 2500.0
    """Flush rate of the idle disk."""
    disk_sigma: Annotated[float, Field(ge=0, le=3)] = 0.0
    """Every burst of a disk probe draws a factor on the flush rate, lognormal with median 1 and this sigma."""
    disk_drift: Positive = 1.0
    """Factor on the flush rate between two probes."""
    bytes_per_reading: Positive = 48.0
    """What the files of its tables hold for each reading."""
    log_bytes: NotNegative = 0.0
    """What its log holds for each reading, until a checkpoint moves it into those files."""
    empty_bytes: NotNegative = 0.0
    """What they hold without any."""
    keeps_dropped: bool = False
    """Whether they keep the space of a table that was dropped, and use it for no other."""
    wrong_share: Share = 0.0
    """Share of the reads that return wrong readings."""
    failing_share: Share = 0.0
    """Share of the operations that fail."""
    failure_kind: str = "database"
    """Kind of those failures, as sensorstore reports it."""
    refuses: str | None = None
    """Kind of failure with which every attempt to prepare the table ends; none by default."""

    def mean_us(self, operation: str, values: int, level: str) -> float:
        """Mean service time of an operation with its flush."""
        name = f"{'single' if values == 1 else 'multi'}-{operation}" if operation in ("write", "read") else operation
        flush = self.flush_us.get(level, 0.0) if operation == "write" else 0.0
        return self.service_us.get(name, 100.0) + flush


class StorageDevice:
    """A database of that truth, with the load generator and the end of its server: what the agent's ``run`` reaches."""

    def __init__(self, truth: StorageTruth, seed: int) -> None:
        self.truth = truth
        self._random = np.random.default_rng(seed)
        self._factor = lognormal(truth.testbed_sigma, self._random)
        self._disk_per_s = truth.disk_flushes_per_s / truth.disk_drift
        self._flushes = self._flushing_ns = 0.0
        self._rows = self._dropped_rows = self._rested_rows = 0
        self._waiting: list[Mapping[str, Any]] = []  # requests of loads that go on until they fail

    def run(self, message: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], dict[str, Any]]]:
        """Requests that are answered now, each with its result."""
        argv = message["argv"]
        if argv[0] == KILL:
            waiting, self._waiting = self._waiting, []
            for one in waiting:
                yield one, self._ended(one)
            yield message, ended({})
        elif argv[-1] == "measure" and _specification(message)["until_failure"]:
            self._waiting.append(message)
        else:
            yield message, self._ended(message)

    def _ended(self, message: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return ended(self._answer(message["argv"][-1], _specification(message)))
        except AgentError as failure:
            return ended({"error": {"kind": failure.code, "message": failure.message}}, exit_code=1)

    def _answer(self, command: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """What ``sensorstore COMMAND`` prints.  Raises AgentError: it fails."""
        match command:
            case "about":
                return {"version": "simulated 1", "settings": {"simulated": "yes"}}
            case "prepare":
                if self.truth.refuses is not None:
                    raise AgentError(self.truth.refuses, "the simulation was told to refuse")
                self._drop()
                self._rows = int(asked["preload"]) * int(asked["data"]["sensors"])
                return {"rows": self._rows, "elapsed_ns": 0}
            case "drop":
                self._drop()
                return {}
            case "count":
                return {"rows": self._rows}
            case "files":
                held = self.truth.empty_bytes + self.truth.bytes_per_reading * self._rested_rows
                logged = self.truth.log_bytes * (self._rows + self._dropped_rows - self._rested_rows)
                return {"data_bytes": round(held), "log_bytes": round(logged), "files": 1}
            case "rest":
                self._rested_rows = self._rows + self._dropped_rows
                return {}
            case "measure":
                return self._measure(asked)
            case "audit":
                return self._audit(asked)
            case "disk":
                self._disk_per_s *= self.truth.disk_drift
                seconds = asked["duration_ms"] / 1e3
                bursts = self._disk_per_s * np.exp(self.truth.disk_sigma * self._random.standard_normal(_BURSTS))
                flushes_per_s = float(bursts.mean())
                return {
                    "flushes": round(flushes_per_s * seconds),
                    "elapsed_ns": round(seconds * 1e9),
                    "flushes_per_s": flushes_per_s,
                    "bursts_per_s": bursts.tolist(),
                }
            case "flushes":
                return {"total": round(self._flushes), "time_ns": round(self._flushing_ns), "untimed": 0}
            case _:
                return {}

    def _drop(self) -> None:
        self._dropped_rows += self._rows if self.truth.keeps_dropped else 0
        self._rows, self._rested_rows = 0, self._dropped_rows

    def _measure(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        level = asked["store"]["options"].get("level", "")
        alone = asked["store"]["driver"] == "none"
        seconds, least = asked["duration_ms"] / 1e3, asked["least_operations"]
        late = asked["data"].get("late", {}).get("share", 0.0)
        each_s = [
            least * one["clients"] * one["pipeline"] / self._closed_per_s(one, level, alone=alone)
            for one in asked["streams"]
        ]
        seconds = min(max(seconds, *each_s), seconds + asked["longer_ms"] / 1e3)
        streams = [self._stream(stream, level, seconds, late, alone=alone) for stream in asked["streams"]]
        return {
            "elapsed_ns": round(seconds * 1e9),
            "cpu_ns": round(sum(stream["operations"] for stream in streams) * self.truth.client_cpu_us * 1e3),
            "started_monotonic_ns": time.monotonic_ns(),
            "streams": streams,
        }

    def _mean_us(self, stream: Mapping[str, Any], level: str, *, alone: bool) -> float:
        truth = self.truth
        return truth.null_us if alone else truth.mean_us(stream["operation"], stream["values"], level) * self._factor

    def _closed_per_s(self, stream: Mapping[str, Any], level: str, *, alone: bool) -> float:
        """Operations per second of a stream's clients in a closed loop."""
        at_once: int = min(stream["clients"], self.truth.parallel)
        return at_once * 1e6 / self._mean_us(stream, level, alone=alone)

    def _stream(
        self, stream: Mapping[str, Any], level: str, seconds: float, late: float, *, alone: bool
    ) -> dict[str, Any]:
        truth, operation = self.truth, stream["operation"]
        mean_us = self._mean_us(stream, level, alone=alone)
        at_once = min(stream["clients"], truth.parallel)
        rate, response, unstarted = self._closed_per_s(stream, level, alone=alone), None, 0
        service = self._times(mean_us)
        if (loop := stream["loop"])["kind"] != "closed":
            burst = loop["kind"] == "burst"
            offered = float(loop["size"] * 1e3 / loop["every_ms"] if burst else loop["rate_per_s"])
            rate = min(offered, 1e6 / mean_us)
            unstarted = round((offered - rate) * seconds)
            use = offered * mean_us / 1e6
            # Beyond the capacity what is due waits ever longer: up to what the trial falls behind.
            behind_us = max(1 - 1 / use, 0.0) * seconds * 1e6
            response = service + self._random.random(_DRAWN) * behind_us
            if use < 1:
                response = self._times(mean_us / (1 - use))
        operations = round(rate * seconds)
        failed = round(truth.failing_share * operations)
        done, writes = operations - failed, operation == "write"
        rows = done * stream["values"]
        wrong = 0 if writes else round(truth.wrong_share * operations)
        if writes and not alone:
            flushes = truth.flushes_per_write.get(level, 0.0) * done / max(at_once * int(stream["pipeline"]), 1)
            self._flushes += flushes
            self._flushing_ns += flushes * truth.flush_us.get(level, 0.0) * 1e3
            self._rows += rows
        return {
            "answered": done,
            "operations": done,
            "operations_per_s": rate * done / max(operations, 1),
            "rows": rows,
            "errors": failed,
            "wrong": wrong,
            "first_error": "simulated" if failed or wrong else None,
            "first_error_kind": truth.failure_kind if failed else "wrong-answer" if wrong else None,
            "service": _histogram(service, done),
            "response": None if response is None else _histogram(response, done + unstarted),
            "late_rows": round(rows * late) if writes else 0,
            "unstarted": unstarted,
            "per_client": [done // stream["clients"]] * stream["clients"],
            "slices": [round(done / max(seconds * 10, 1))] * round(seconds * 10),
        }

    def _times(self, mean_us: float) -> npt.NDArray[np.float64]:
        return self._random.exponential(mean_us, _DRAWN)

    def _audit(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        level = asked["store"]["options"].get("level", "")
        acknowledged = sum(stream["clients"] for stream in asked["streams"]) * self.truth.crash_rows
        missing = round(self.truth.lost_share.get(level, 0.0) * acknowledged)
        return {
            "acknowledged_rows": acknowledged,
            "missing_rows": missing,
            "wrong_rows": 0,
            "unacknowledged_rows": 1,
            "first_missing": "simulated" if missing else None,
            "newest_lost_ms": 1 if missing else None,
        }


def _histogram(times_us: npt.NDArray[np.float64], total: int) -> dict[str, Any] | None:
    """As sensorstore prints it, in ns; each value stands for as many as it takes to make that many of all."""
    if total == 0:
        return None
    return histogram(np.maximum(np.rint(times_us * 1e3), 1).astype(np.int64)[:total], "ns", total=total)


def _specification(message: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(message["env"][_SPECIFICATION])
    return found

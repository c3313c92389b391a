"""sensorstore, the load generator for databases: where it is, how an agent runs it, and what its commands bring."""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from virtgauge.agent.channel import AgentError, Channel, Reply
from virtgauge.extras import find_native
from virtgauge.suites.answers import CountedHistogram, decoded, documented

ENVIRONMENT_VARIABLE = "VIRTGAUGE_SENSORSTORE"
_SPECIFICATION = "SENSORSTORE_SPECIFICATION"
_SHORT_S = 60.0  # For a command that measures nothing, beside what its own statements may take
LEAST_OPERATIONS = 8
"""Answers that each client of a closed loop is measured for, those to a pipeline as one, however long the time that was
asked for …"""
LONGER_S = 60.0  # … and for how much longer than that at most
_UNUSABLE = {"refused", "denied", "schema", "exists", "full", "lost", "timeout"}
"""Kinds of failure after which there is no figure: the database is not there, not ours, full or stuck."""


def find_sensorstore() -> Path:
    """Find it: ``$VIRTGAUGE_SENSORSTORE``, then the one in the package. Raises UnavailableError: neither exists."""
    what = "the load generator for databases"
    return find_native("sensorstore", ENVIRONMENT_VARIABLE, what, "a built sensorstore", "sensorstore")


class StoreError(AgentError):
    """A command of the load generator failed; ``code`` is its kind (``refused``, ``denied``, ``full`` …)."""


async def run(
    guest: Channel, argv: Sequence[str], within_s: float = 30.0, env: Mapping[str, str] | None = None
) -> Reply:
    """Run a program to its end, or until that has taken too long."""
    return await guest.request(
        "run",
        argv=list(argv),
        env=dict(env or {}),
        timeout_ms=round(within_s * 1000),
        output_limit=2_000_000,
        timeout_s=within_s + _SHORT_S,
    )


@dataclasses.dataclass(frozen=True)
class Stream:
    """One load: ``clients`` threads with a connection each."""

    operation: str  # ``write``, ``read``, ``last-value`` or ``window``
    values: int  # readings per statement
    clients: int
    # as the specification has it
    loop: Mapping[str, Any] = dataclasses.field(default_factory=lambda: {"kind": "closed"})
    pipeline: int = 1  # statements sent before the first answer is waited for
    preload: int = 0  # readings of each sensor that are there

    @property
    def is_closed(self) -> bool:
        """Whether each client sends its next statement when the last was answered."""
        return bool(self.loop["kind"] == "closed")


@dataclasses.dataclass(frozen=True)
class StreamResult:
    """What one load came to in the measured time."""

    stream: Stream  # the load
    answered: int  # statements answered rightly from the beginning of the warm-up on
    # operations, rows, errors, wrong: statements that count; readings; statements that failed; reads that brought other
    # readings than were written
    operations: int
    rows: int
    errors: int
    wrong: int
    # Of a closed loop by whole cycles of its clients, from the first answer in the span to the first after it, so that
    # it makes no difference where in a cycle the span begins; of others, those answered in the span.
    operations_per_s: float
    first_error: str | None
    first_error_kind: str | None
    service: CountedHistogram  # from the beginning of a statement to its answer, in ns; None where there was none
    response: CountedHistogram  # from the intended beginning, of a load that has one
    late_rows: int  # readings older than one of an earlier statement
    unstarted: int  # statements that were due and had not begun at the end
    per_client: tuple[int, ...]  # statements by client
    slices: tuple[int, ...]  # statements that ended in each 100 ms


@dataclasses.dataclass(frozen=True)
class Measured:
    """What ``measure`` brought."""

    elapsed_ns: int  # 0 where all clients had ended before the span began
    cpu_ns: int  # of the client, user and system, in that span
    started_monotonic_ns: int  # when the span began, by the CLOCK_MONOTONIC of where the client ran
    finished_ns: int  # when its answer had come, by the controller's
    streams: tuple[StreamResult, ...]  # in the order of the request

    @property
    def operations(self) -> int:
        return sum(stream.operations for stream in self.streams)

    @property
    def operations_per_s(self) -> float:
        return sum(stream.operations_per_s for stream in self.streams)

    @property
    def writes(self) -> list[StreamResult]:
        return [one for one in self.streams if one.stream.operation == "write"]

    def refuse_unusable(self) -> None:
        """Let failures be errors that leave no figure. Raises StoreError: of the first of them."""
        for stream in self.streams:
            if stream.errors and stream.first_error_kind in _UNUSABLE:
                words = f"{stream.errors} operations failed, the first with: {stream.first_error}"
                raise StoreError(str(stream.first_error_kind), words)


@dataclasses.dataclass(frozen=True)
class DiskProbe:
    """Small blocks written and flushed one after another on an idle disk."""

    flushes: int
    elapsed_ns: float  # how long that took
    bursts_per_s: tuple[float, ...]  # flushes per second of each of its parts

    @property
    def flushes_per_s(self) -> float:
        return self.flushes * 1e9 / self.elapsed_ns

    @property
    def median_per_s(self) -> float:
        return statistics.median(self.bursts_per_s)

    def followed_by(self, other: DiskProbe) -> DiskProbe:
        bursts = (*self.bursts_per_s, *other.bursts_per_s)
        return DiskProbe(self.flushes + other.flushes, self.elapsed_ns + other.elapsed_ns, bursts)


@dataclasses.dataclass(frozen=True)
class FlushCount:
    """What the flush laboratory has counted."""

    total: int  # flushes
    time_ns: int  # how long those together took whose time was seen
    untimed: int  # those whose time was not

    def since(self, before: FlushCount) -> FlushCount:
        return FlushCount(self.total - before.total, self.time_ns - before.time_ns, self.untimed - before.untimed)

    @property
    def mean_ns(self) -> float | None:
        """How long a flush takes in the mean; None where no time was seen."""
        timed = self.total - self.untimed
        return self.time_ns / timed if timed > 0 else None


@dataclasses.dataclass(frozen=True)
class Held:
    """What the file systems have given to a database's files."""

    data_bytes: int  # that hold its tables
    log_bytes: int  # of its log, which is on another disk or beside them


@dataclasses.dataclass(frozen=True)
class Sensorstore:
    """The executable, run by one agent for one database; docs/sensorstore.md describes its commands.

    Each of them raises a :class:`StoreError` where it fails, or where the database does: it is not there, does not let
    us in, has a table (``exists``) that may not be dropped …
    """

    channel: Channel
    program: Path  # the executable, as that agent sees it
    store: Mapping[str, Any]  # of the specifications: what it talks to; empty for commands that need no database
    prefix: Sequence[str] = ()  # a launcher and its arguments, for what writes to a disk itself
    timeout_factor: float = 1.0  # how many times longer than on the host things may take there

    def on(self, store: Mapping[str, Any]) -> Sensorstore:
        return dataclasses.replace(self, store=store)

    async def about(self) -> dict[str, Any]:
        """Version and settings; one attempt."""
        return await self._call("about", {}, _SHORT_S)

    async def prepare(self, data: Mapping[str, Any], *, index: bool, drop: bool, preload: int, within_s: float) -> None:
        """Make the empty table and put ``preload`` readings of each sensor there."""
        await self._call("prepare", {"index": index, "drop": drop, "data": data, "preload": preload}, within_s)

    async def drop(self) -> None:
        """Drop the table that :meth:`prepare` made."""
        await self._call("drop", {}, _SHORT_S)

    async def measure(
        self,
        data: Mapping[str, Any],
        streams: Sequence[Stream],
        *,
        warmup_s: float,
        seconds: float,
        acknowledged: Path | None = None,
    ) -> Measured:
        """Run the loads at the same time, and count after the warm-up; until one fails, if it notes what it wrote.

        Closed loops are counted for longer, by ``LONGER_S`` at most, until each client has had ``LEAST_OPERATIONS``.
        """
        waits = acknowledged is None and all(stream.is_closed for stream in streams)
        fields = {
            "data": data,
            "streams": [dataclasses.asdict(stream) for stream in streams],
            "warmup_ms": round(warmup_s * 1000),
            "duration_ms": round(seconds * 1000),
            "least_operations": LEAST_OPERATIONS if waits else 0,
            "longer_ms": round(LONGER_S * 1000),
            "acknowledged": None if acknowledged is None else str(acknowledged),
            "until_failure": acknowledged is not None,
        }
        value = await self._call("measure", fields, warmup_s + seconds + waits * LONGER_S + _SHORT_S)
        with documented("what sensorstore measured", "docs/sensorstore.md"):
            each = zip(streams, value["streams"], strict=True)
            return decoded(Measured, {**value, "streams": [{**told, "stream": stream} for stream, told in each]})

    async def audit(self, data: Mapping[str, Any], streams: Sequence[Stream], acknowledged: Path) -> dict[str, Any]:
        """Compare what is there with what was acknowledged."""
        fields = {
            "data": data,
            "streams": [dataclasses.asdict(stream) for stream in streams],
            "acknowledged": str(acknowledged),
        }
        return await self._call("audit", fields, 4 * _SHORT_S)

    async def disk(self, folder: Path, seconds: float) -> DiskProbe:
        """Flush a small block again and again on an otherwise idle disk."""
        fields = {"folder": str(folder), "duration_ms": round(seconds * 1000), "block_bytes": 4096}
        return decoded(DiskProbe, await self._call("disk", fields, seconds + _SHORT_S))

    async def count(self, within_s: float) -> int:
        """Readings in the table."""
        return int((await self._call("count", {}, within_s))["rows"])

    async def rest(self) -> None:
        """Have the database bring what it holds to rest in the files that it keeps it in."""
        await self._call("rest", {}, 4 * _SHORT_S)

    async def files(self, folders: Sequence[Path], data: Sequence[str], log: Sequence[str]) -> Held:
        """What the files in the first of these folders hold, by these patterns; the others are the log's."""
        asked: list[dict[str, Any]] = [{"data": data, "log": log}, *({"log": ["*"]} for _ in folders[1:])]
        fields = ({"folder": str(folder), **one} for folder, one in zip(folders, asked, strict=True))
        told = [await self._call("files", one, _SHORT_S) for one in fields]
        return Held(*(sum(int(one[name]) for one in told) for name in ("data_bytes", "log_bytes")))

    async def flushes(self, counters: Path) -> FlushCount:
        return decoded(FlushCount, await self._call("flushes", {"path": str(counters)}, _SHORT_S))

    async def _call(self, command: str, fields: Mapping[str, Any], within_s: float) -> dict[str, Any]:
        """What a command tells, with ``finished_ns``: when that had come, by the controller's clock."""
        within_s *= self.timeout_factor
        specification = {"store": self.store, **fields} if self.store else fields
        argv = [*self.prefix, str(self.program), command]
        env = {_SPECIFICATION: json.dumps(specification)}  # arguments are for everybody to see
        reply = await run(self.channel, argv, within_s, env)
        ended = reply.value
        if ended["timed_out"]:
            raise StoreError("timeout", f"sensorstore {command} was not done within {within_s:g} s")
        try:
            value = json.loads(bytes(ended["stdout"]))
        except ValueError:
            value = None
        if isinstance(value, dict) and "error" in value:
            raise StoreError(str(value["error"]["kind"]), self._without_secrets(str(value["error"]["message"])))
        if ended["exit_code"] != 0 or not isinstance(value, dict):
            said = bytes(ended["stderr"]).decode(errors="replace").strip()[-400:]
            how = f"signal {ended['signal']}" if ended["signal"] is not None else f"status {ended['exit_code']}"
            raise StoreError("client", f"sensorstore {command} ended with {how}: {self._without_secrets(said)}")
        return value | {"finished_ns": reply.finished_ns}

    def _without_secrets(self, text: str) -> str:
        password = str(self.store.get("password") or "")
        return text.replace(password, "…") if password else text

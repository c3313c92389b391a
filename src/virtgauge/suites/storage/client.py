"""sensorstore, the load generator for databases, by an agent."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import virtgauge
from virtgauge.agent.channel import AgentError, Channel
from virtgauge.agent.frames import ProtocolError
from virtgauge.errors import UnavailableError
from virtgauge.host.native_file import how_to_build
from virtgauge.suites.storage.outcomes import DiskProbe, FlushCount, Measured, StreamResult

# The load generator's executable: where it is (``native/sensorstore``, docs/sensorstore.md).

ENVIRONMENT_VARIABLE = "VIRTGAUGE_SENSORSTORE"


def find_sensorstore() -> Path:
    """Find it: ``$VIRTGAUGE_SENSORSTORE``, then the one inside the installed package.

    Raises:
        UnavailableError: neither exists.
    """
    override = os.environ.get(ENVIRONMENT_VARIABLE)
    path = Path(override) if override else Path(virtgauge.__file__).parent / "native" / "sensorstore"
    if not path.is_file():
        raise UnavailableError(
            f"the load generator for databases is missing: {path}",
            how_to_build("sensorstore", ENVIRONMENT_VARIABLE, "a built sensorstore"),
        )
    return path.resolve()


# The load generator as the suite uses it: ``sensorstore``, run by an agent, one command at a time.

_OUTPUT_LIMIT = 2_000_000
_SPECIFICATION = "SENSORSTORE_SPECIFICATION"
_SHORT_S = 60.0
"""For a command that measures nothing, beside what its own statements may take."""

UNUSABLE = {"refused", "denied", "schema", "exists", "full", "lost", "timeout"}
"""Kinds of failure after which there is no figure: the database is not there, not ours, full or stuck."""


class StoreError(AgentError):
    """A command of the load generator failed; ``code`` is its kind (``refused``, ``denied``, ``full`` …)."""


@dataclasses.dataclass(frozen=True)
class Stream:
    """One load: ``clients`` threads with a connection each.

    Attributes:
        operation: ``write`` or ``read``.
        values: readings per statement.
        clients: threads.
        loop: as the specification has it.
        pipeline: statements sent before the first answer is waited for.
        preload: readings of each sensor that are there.
    """

    operation: str
    values: int
    clients: int
    loop: Mapping[str, Any] = dataclasses.field(default_factory=lambda: {"kind": "closed"})
    pipeline: int = 1
    preload: int = 0


class Sensorstore:
    """The executable, run by one agent for one database; docs/sensorstore.md describes its commands.

    Attributes:
        store: what it talks to; None for commands that need no database.
    """

    def __init__(
        self,
        channel: Channel,
        program: Path,
        store: Mapping[str, Any] | None,
        *,
        prefix: Sequence[str] = (),
        timeout_factor: float = 1.0,
    ) -> None:
        """Take over where it runs.

        Args:
            channel: of the agent.
            program: the executable, as that agent sees it.
            store: of the specifications.
            prefix: a launcher and its arguments, for what writes to a disk itself.
            timeout_factor: how many times longer than on the host things may take there.
        """
        self._channel, self._program, self._prefix = channel, program, tuple(prefix)
        self._timeout_factor = timeout_factor
        self.store = store

    def on(self, store: Mapping[str, Any]) -> Sensorstore:
        """The same client with another database."""
        return Sensorstore(
            self._channel, self._program, store, prefix=self._prefix, timeout_factor=self._timeout_factor
        )

    async def about(self) -> dict[str, Any]:
        """Version and settings; one attempt.

        Raises:
            StoreError: nothing listens, or it does not let us in.
        """
        return await self._call("about", {}, _SHORT_S)

    async def prepare(self, data: Mapping[str, Any], *, index: bool, drop: bool, preload: int, within_s: float) -> int:
        """Make the empty table and put ``preload`` readings of each sensor there; how many there are.

        Raises:
            StoreError: ``exists`` where there is a table that may not be dropped; or what else the database says.
        """
        fields = {"index": index, "drop": drop, "data": data, "preload": preload}
        return int((await self._call("prepare", fields, within_s))["rows"])

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
        until_failure: bool = False,
    ) -> Measured:
        """Run the loads at the same time, and count after the warm-up.

        Raises:
            StoreError: it could not even begin.
        """
        fields = {
            "data": data,
            "streams": [dataclasses.asdict(stream) for stream in streams],
            "warmup_ms": round(warmup_s * 1000),
            "duration_ms": round(seconds * 1000),
            "acknowledged": None if acknowledged is None else str(acknowledged),
            "until_failure": until_failure,
        }
        value, finished_ns = await self._answer("measure", fields, warmup_s + seconds + _SHORT_S)
        try:
            return Measured(
                elapsed_ns=int(value["elapsed_ns"]),
                cpu_ns=int(value["cpu_ns"]),
                started_monotonic_ns=int(value["started_monotonic_ns"]),
                finished_ns=finished_ns,
                streams=tuple(StreamResult.decode(stream) for stream in value["streams"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"what sensorstore measured is not what docs/sensorstore.md says: {error!r}") from error

    async def audit(self, data: Mapping[str, Any], streams: Sequence[Stream], acknowledged: Path) -> dict[str, Any]:
        """Compare what is there with what was acknowledged.

        Raises:
            StoreError: it cannot be read.
        """
        fields = {
            "data": data,
            "streams": [dataclasses.asdict(stream) for stream in streams],
            "acknowledged": str(acknowledged),
        }
        return await self._call("audit", fields, 4 * _SHORT_S)

    async def disk(self, folder: Path, seconds: float) -> DiskProbe:
        """Flush a small block again and again on an otherwise idle disk.

        Raises:
            StoreError: the folder cannot be written.
        """
        fields = {"folder": str(folder), "duration_ms": round(seconds * 1000), "block_bytes": 4096}
        value = await self._call("disk", fields, seconds + _SHORT_S, storeless=True)
        return DiskProbe(int(value["flushes"]), float(value["elapsed_ns"]), tuple(map(float, value["bursts_per_s"])))

    async def flushes(self, counters: Path) -> FlushCount:
        """What was counted so far.

        Raises:
            StoreError: nobody counts there.
        """
        value = await self._call("flushes", {"path": str(counters)}, _SHORT_S, storeless=True)
        return FlushCount(int(value["total"]), int(value["time_ns"]), int(value["untimed"]))

    async def _call(
        self, command: str, fields: Mapping[str, Any], within_s: float, *, storeless: bool = False
    ) -> dict[str, Any]:
        return (await self._answer(command, fields, within_s, storeless=storeless))[0]

    async def _answer(
        self, command: str, fields: Mapping[str, Any], within_s: float, *, storeless: bool = False
    ) -> tuple[dict[str, Any], int]:
        within_s *= self._timeout_factor
        specification = dict(fields) if storeless else {"store": self.store, **fields}
        reply = await self._channel.request(
            "run",
            argv=[*self._prefix, str(self._program), command],
            env={_SPECIFICATION: json.dumps(specification)},  # arguments are for everybody to see
            timeout_ms=round(within_s * 1000),
            output_limit=_OUTPUT_LIMIT,
            timeout_s=within_s + _SHORT_S,
        )
        return self._decoded(command, reply.value, within_s), reply.finished_ns

    def _decoded(self, command: str, ended: Mapping[str, Any], within_s: float) -> dict[str, Any]:
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
        return value

    def _without_secrets(self, text: str) -> str:
        password = str((self.store or {}).get("password") or "")
        return text.replace(password, "…") if password else text

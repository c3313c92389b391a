"""Processes in a guest, known by a file with their number that a shell has written before it became them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from virtgauge.agent.channel import Channel
from virtgauge.platforms.attempt import log_tail
from virtgauge.suites.answers import Running
from virtgauge.suites.storage.client import Sensorstore, StoreError, run
from virtgauge.suites.storage.databases.base import Server

_NOTED = 'echo $$ >"$1"; shift; exec "$@"'
_LOGGED = 'echo $$ >"$1"; log=$2; shift 2; exec "$@" >>"$log" 2>&1 </dev/null'
# Parents before children, all by one command: none of them sees another end.
_KILL = """
tree() {
  echo "$1"
  for status in $(grep -ls "^PPid:[[:space:]]*$1\\$" /proc/[0-9]*/status); do
    child=${status#/proc/}
    tree "${child%/status}"
  done
}
kill -s KILL $(tree "$(cat "$1")")
"""
# A process that has ended is there as a zombie until the agent collects it.
_ALIVE = 'grep -qs "^State:[[:space:]]*[RSDTtIPW]" "/proc/$(cat "$1")/status"'
_POLL_S = 0.1
_LONGEST_START_S = 900.0
"""Cassandra takes four minutes in a virtual machine whose processor is emulated; what takes longer is stuck."""
_NOT_YET = {"refused", "lost", "timeout", "denied", "schema", "database"}
"""What a server that is still starting may answer."""


def noted(pid: Path) -> list[str]:
    """What an argument vector is prefixed with, so that its process's number is in a file."""
    return ["/bin/sh", "-c", _NOTED, "sh", str(pid)]


async def kill_tree(guest: Channel, pid: Path) -> bool:
    """Kill a process and all of its descendants at once; False when it had ended before."""
    return await is_alive(guest, pid) and await _does_well(guest, _KILL, pid)


async def is_alive(guest: Channel, pid: Path) -> bool:
    """Whether the process runs."""
    return await _does_well(guest, _ALIVE, pid)


async def _does_well(guest: Channel, script: str, pid: Path) -> bool:
    return bool((await run(guest, ["/bin/sh", "-c", script, "sh", str(pid)])).value["exit_code"] == 0)


async def run_well(guest: Channel, what: str, argv: Sequence[str], within_s: float = 30.0) -> None:
    """Run a program in the guest to its end. Raises StoreError: it did not end well; with what it printed."""
    ended = (await run(guest, argv, within_s)).value
    if ended["timed_out"]:
        raise StoreError("setup", f"{what} was not done within {within_s:g} s")
    if ended["exit_code"] != 0:
        printed = (bytes(ended["stderr"]) or bytes(ended["stdout"])).decode(errors="replace")
        raise StoreError("setup", f"{what}: {last_lines(printed) or 'failed in silence'}")


def last_lines(text: str) -> str:
    """The end of what something printed, in one line."""
    return " | ".join(line.strip() for line in text.strip().splitlines()[-6:] if line.strip())


class ServerProcess:
    """One server in one guest: set up, started through the flush launcher, watched, killed and started again."""

    def __init__(
        self,
        guest: Channel,
        server: Server,
        folder: Path,
        launcher: Sequence[str] = (),
        *,
        timeout_factor: float = 1.0,
        name: str = "server",
    ) -> None:
        """Prepare to run it, prefixed with the launcher; host and guest see the folder of its number and log alike."""
        self._guest, self._server, self._launcher, self._name = guest, server, tuple(launcher), f"the {name}"
        self._pid, self._log = folder / f"{name}.pid", folder / f"{name}.log"
        self._time_out_s = min(server.ready_timeout_s * timeout_factor, _LONGEST_START_S)
        self._load: Running | None = None

    async def set_up(self) -> None:
        """Run what comes before the first start. Raises StoreError: a command failed; with what it printed."""
        for argv in self._server.setup:
            await run_well(self._guest, Path(argv[0]).name, [*self._environment, *argv], self._time_out_s)

    async def start(self, client: Sensorstore) -> dict[str, Any]:
        """Start it, and wait until it serves this client: what it says of itself.
        Raises StoreError: it ended, or did not serve in time; with what it printed last.
        """
        self._pid.unlink(missing_ok=True)
        argv = ["/bin/sh", "-c", _LOGGED, "sh", str(self._pid), str(self._log), *self._launcher]
        argv += [*self._environment, *self._server.argv]
        self._load = await Running.start(self._guest, "program", {"argv": argv}, self._name)
        deadline = time.monotonic() + self._time_out_s
        while True:
            try:
                told, last = await client.about(), "another one answers at its address"
            except StoreError as error:
                if error.code not in _NOT_YET:
                    raise
                told, last = None, error.message
            begun = self._pid.exists() and self._pid.stat().st_size > 0  # the shell makes it, and then writes to it
            if begun and not await self.alive():
                raise StoreError("start", f"{self._name} ended before it served: {self.last_words()}")
            if begun and told is not None:
                return told
            if time.monotonic() > deadline:
                words = f"{self._name} did not serve within {self._time_out_s:g} s ({last})"
                raise StoreError("start", f"{words}: {self.last_words()}")
            await asyncio.sleep(_POLL_S)

    async def alive(self) -> bool:
        return await is_alive(self._guest, self._pid)

    async def kill(self) -> None:
        """End all of its processes without warning. Raises StoreError: it was no longer there."""
        if not await kill_tree(self._guest, self._pid):
            raise StoreError("lost", f"the server had ended before it was to be killed: {self.last_words()}")
        await self.stop()

    async def stop(self) -> None:
        """End it in order, or what is left of it.  Idempotent."""
        load, self._load = self._load, None
        if load is not None:
            await load.stop()

    def last_words(self) -> str:
        return last_lines(log_tail(self._log)) or "it printed nothing"

    @property
    def _environment(self) -> list[str]:
        env = self._server.env
        return ["/usr/bin/env", *(f"{name}={value}" for name, value in env.items())] if env else []

"""Processes of a guest that are known by a file with their number: written by a shell that hands its process over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from virtgauge.agent.channel import Channel
from virtgauge.suites.storage.client import StoreError

_SHORT_S = 30.0
_OUTPUT_LIMIT = 20_000

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


def noted(pid: Path) -> list[str]:
    """What an argument vector is prefixed with, so that its process's number is in a file."""
    return ["/bin/sh", "-c", _NOTED, "sh", str(pid)]


def noted_and_logged(pid: Path, log: Path) -> list[str]:
    """The same, with what it prints in another file."""
    return ["/bin/sh", "-c", _LOGGED, "sh", str(pid), str(log)]


async def kill_tree(guest: Channel, pid: Path) -> bool:
    """Kill a process and all of its descendants at once; False when it had ended before."""
    if not await is_alive(guest, pid):
        return False
    return bool((await run(guest, ["/bin/sh", "-c", _KILL, "sh", str(pid)]))["exit_code"] == 0)


async def is_alive(guest: Channel, pid: Path) -> bool:
    """Whether the process runs."""
    return bool((await run(guest, ["/bin/sh", "-c", _ALIVE, "sh", str(pid)]))["exit_code"] == 0)


async def run(guest: Channel, argv: Sequence[str], within_s: float = _SHORT_S) -> Mapping[str, Any]:
    """Run a program in the guest to its end: the agent's answer."""
    reply = await guest.request(
        "run",
        argv=list(argv),
        env={},
        timeout_ms=round(within_s * 1000),
        output_limit=_OUTPUT_LIMIT,
        timeout_s=within_s + _SHORT_S,
    )
    return reply.value


async def run_well(guest: Channel, what: str, argv: Sequence[str], within_s: float = _SHORT_S) -> None:
    """The same for one that has to end well.

    Raises:
        StoreError: it did not; with what it printed.
    """
    ended = await run(guest, argv, within_s)
    if ended["timed_out"]:
        raise StoreError("setup", f"{what} was not done within {within_s:g} s")
    if ended["exit_code"] != 0:
        printed = (bytes(ended["stderr"]) or bytes(ended["stdout"])).decode(errors="replace")
        raise StoreError("setup", f"{what}: {last_lines(printed) or 'failed in silence'}")


def last_lines(text: str, lines: int = 6) -> str:
    """The end of what something printed, in one line."""
    return " | ".join(line.strip() for line in text.strip().splitlines()[-lines:] if line.strip())

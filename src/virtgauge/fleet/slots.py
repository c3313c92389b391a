"""One slot per host: whoever measures on a host, or on several at once, has all of their slots and nobody else any.

A gang is given its slots together or not at all, so nobody ever holds one slot while waiting for another, and no
circle of waiting can come to be (E. G. Coffman, M. J. Elphick, A. Shoshani 1971, "System Deadlocks", ACM Computing
Surveys 3(2): the condition "wait for" is denied).  Whoever waits longest goes first among those whose slots meet, so
that a gang is not passed by again and again by batches of single hosts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable


class Slots:
    """The slots of a fleet's hosts, for the tasks of one event loop."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self._hosts = frozenset(hosts)
        self._taken: set[str] = set()
        self._queue: list[tuple[frozenset[str], asyncio.Future[None]]] = []

    @contextlib.asynccontextmanager
    async def claim(self, *hosts: str) -> AsyncIterator[None]:
        """Hold the slots of these hosts; waits until all of them are free at once.

        Raises:
            ValueError: no host, or one that the fleet has not.
        """
        wanted = frozenset(hosts)
        if not wanted or not wanted <= self._hosts:
            raise ValueError(f"cannot claim {sorted(wanted - self._hosts) or 'nothing'} of {sorted(self._hosts)}")
        await self._wait(wanted)
        try:
            yield
        finally:
            self._taken -= wanted
            self._grant()

    async def _wait(self, wanted: frozenset[str]) -> None:
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (wanted, granted)
        self._queue.append(place)
        self._grant()
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():  # given in the same turn of the loop
                self._taken -= wanted
            else:
                self._queue.remove(place)
            self._grant()
            raise

    def _grant(self) -> None:
        blocked = set(self._taken)
        for place in list(self._queue):
            wanted, granted = place
            if not wanted & blocked:
                self._queue.remove(place)
                self._taken |= wanted
                granted.set_result(None)
            blocked |= wanted  # those behind must not pass by on a slot that this one has or waits for

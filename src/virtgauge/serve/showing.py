"""What the pages show, kept for as long as somebody looks: one look a second, however many pages ask.

Ledgers are read in a thread, one at a time, so that the server answers meanwhile; without a request nothing is read.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic

from virtgauge.serve.live import LiveRun, RunWatch
from virtgauge.serve.overview import Overview, Overviews, State
from virtgauge.serve.reports import ReportBuilder
from virtgauge.serve.runs import FoundRun, Value, find_runs

ASK_EVERY_S = 2.0
"""How often a page asks while a run is under way.  No ledger is read more than twice as often, however many ask."""
_WATCHED = 8  # Runs whose figures are kept; of others they are read anew


class Look(Generic[Value]):
    """Something that takes time to read, read at most so often."""

    def __init__(self, read: Callable[[], Value], reading: asyncio.Lock, every_s: float) -> None:
        self._read, self._reading, self._every_s = read, reading, every_s
        self._found: tuple[float, Value] | None = None

    async def now(self) -> Value:
        """The last value if it is fresh, or something else is being read; else a new one."""
        if self._found is not None and (self._is_fresh() or self._reading.locked()):
            return self._found[1]
        async with self._reading:
            if self._found is None or not self._is_fresh():
                value = await asyncio.to_thread(self._read)
                self._found = time.monotonic(), value
            return self._found[1]

    def _is_fresh(self) -> bool:
        return self._found is not None and time.monotonic() - self._found[0] < self._every_s


class Showing:
    """The runs in some folders, which hold runs or are runs."""

    def __init__(self, folders: Sequence[Path], ask_every_s: float = ASK_EVERY_S) -> None:
        self.folders, self.ask_every_s = tuple(folders), ask_every_s
        self.port = 0
        """That the server listens at."""
        self.reports = ReportBuilder()
        self._overviews = Overviews()
        self._reading = asyncio.Lock()
        self._list: Look[dict[str, Overview]] = Look(
            lambda: self._overviews.of_all(find_runs(self.folders)), self._reading, ask_every_s / 2
        )
        self._watches: OrderedDict[str, Look[LiveRun]] = OrderedDict()

    async def overviews(self) -> list[Overview]:
        """A line for every run that is there."""
        return list((await self._list.now()).values())

    async def measuring(self) -> bool:
        """Whether any of the runs is under way."""
        return any(one.state is State.RUNNING for one in await self.overviews())

    async def find(self, run_id: str) -> FoundRun | None:
        """The run of that identifier, if it is still there."""
        overview = (await self._list.now()).get(run_id)
        return overview.run if overview is not None and overview.run.stamp() else None

    async def live(self, run_id: str) -> LiveRun | None:
        """What the page of a run shows; None when there is none, or no longer."""
        run = await self.find(run_id)
        if run is None:
            self._watches.pop(run_id, None)
            return None
        if run_id not in self._watches:
            self._watches[run_id] = Look(RunWatch(run, self._overviews).look, self._reading, self.ask_every_s / 2)
            while len(self._watches) > _WATCHED:
                self._watches.popitem(last=False)
        self._watches.move_to_end(run_id)
        return await self._watches[run_id].now()

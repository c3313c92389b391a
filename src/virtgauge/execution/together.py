"""What several arms share that are measured at the same time: the machine's CPUs, and when each row begins."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Iterable, Sequence

from virtgauge.errors import UsageError
from virtgauge.execution.schedule import Batch
from virtgauge.suites.base import Cell
from virtgauge.suites.testbed import Beside


def shares_of_cpus(arms: Sequence[str], cores: Sequence[Sequence[int]], turn: int) -> dict[str, tuple[int, ...]]:
    """CPUs for each of some arms at the same time, as many cores for all; from turn to turn each has the next one's.

    ``cores``: the CPUs that are threads of each. Where there are fewer than arms, threads are divided.
    Raises UsageError: there are fewer CPUs than arms.
    """
    cpus = tuple(itertools.chain.from_iterable(cores))
    units = [tuple(core) for core in cores] if len(cores) >= len(arms) else [(cpu,) for cpu in cpus]
    size = len(units) // len(arms)
    if not size:
        raise UsageError(
            f"at_the_same_time = true: {len(arms)} platforms ({', '.join(arms)}) and {len(cpus)} CPUs that may be used",
            "name fewer platforms (--platform; aa = false), or leave it out: they are then measured by turns",
        )
    places = [tuple(itertools.chain(*units[size * n : size * (n + 1)])) for n in range(len(arms))]
    return {arm: places[(n + turn) % len(arms)] for n, arm in enumerate(arms)}


class Gate:
    """An arm begins a block when no other is still before it: what is compared within a block was measured together.

    Who launches a guest meanwhile, or one again, holds the others up; who repeats something that was before does so,
    too.
    """

    def __init__(self, arms: Iterable[str]) -> None:
        self._at, self._moved = dict.fromkeys(arms, -1), asyncio.Event()

    async def reach(self, arm: str, block: int) -> None:
        """Wait until all the others have come as far, or have left."""
        self._move({**self._at, arm: block})
        while block > min(self._at.values()):
            await self._moved.wait()

    def leave(self, arm: str) -> None:
        """Nobody waits for it any more."""
        self._move({name: at for name, at in self._at.items() if name != arm})

    def _move(self, at: dict[str, int]) -> None:
        self._at, moved = at, self._moved
        self._moved = asyncio.Event()
        moved.set()


@dataclasses.dataclass
class AtTheSameTime:
    """What several turns share that are measured at the same time."""

    shares: dict[str, tuple[int, ...]]  # CPUs, by arm
    gate: Gate
    order: dict[tuple[int, str], int]  # of cells in a block, by their keys
    beside: Beside = dataclasses.field(default_factory=Beside)

    def ordered(self, batch: Batch, cells: Iterable[Cell]) -> list[Cell]:
        """Cells of a batch in the order that all arms have."""
        return sorted(cells, key=lambda cell: self.order.get((batch.block, cell.key), len(self.order)))

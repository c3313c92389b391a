"""The order of a run: randomized blocks; and what arms share that are measured at the same time.

A block is one independent repetition.  For each testbed of the design, in random order, it has a fresh one of every
arm, in random order, so that slow drift of the machine falls on all arms alike and the arms of a block can be
compared as pairs.  On a testbed, its cells follow in random order too.  The order depends on the recorded seed alone,
never on progress, so a resumed run goes on where it was.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Self

from virtgauge.errors import UsageError
from virtgauge.suites.base import Cell
from virtgauge.suites.testbed import Beside


@dataclasses.dataclass(frozen=True)
class Batch:
    """One fresh testbed: the arm it belongs to, its block, its name, and its cells in the order of measuring."""

    block: int
    arm: str
    testbed: str
    cells: tuple[Cell, ...]

    def trial_key(self, cell: Cell) -> str:
        """The name of a cell's trial in the ledger; the same for every attempt."""
        return f"b{self.block:04d}/{self.arm}/{cell.key}"


def schedule(
    seed: int,
    repetitions: int,
    arms: Sequence[str],
    cells: Sequence[Cell],
    is_for: Callable[[Cell, str], bool] = lambda cell, arm: True,
    each: int = 1,
) -> Iterator[Batch]:
    """All batches of a run, in order.

    An arm appears once for every testbed in every block; without any cell of a testbed that is for it, it has no batch.
    So many blocks as ``each`` says are made arm by arm; see :func:`turns`.
    """
    for block in range(0, repetitions, each):
        for batch in schedule_block(seed, block, arms, cells, is_for, each):
            if batch.block < repetitions:
                yield batch


def schedule_block(
    seed: int,
    block: int,
    arms: Sequence[str],
    cells: Sequence[Cell],
    is_for: Callable[[Cell, str], bool],
    each: int = 1,
) -> Iterator[Batch]:
    """The batches of one block, or of ``each`` from it on; the same however many a run has, so that it can go on."""
    by_testbed: dict[str, list[Cell]] = {}
    for cell in sorted(cells, key=lambda cell: cell.key):
        by_testbed.setdefault(cell.testbed, []).append(cell)
    # A generator of its own for every block: block 7 has the same order in a run of 8 and of 80.
    order = random.Random(f"{seed}/{block}")
    for testbed in order.sample(sorted(by_testbed), len(by_testbed)):
        for arm in order.sample(sorted(arms), len(arms)):
            for number in range(block, block + each):
                shuffled = order.sample(by_testbed[testbed], len(by_testbed[testbed]))
                if own := tuple(cell for cell in shuffled if is_for(cell, arm)):
                    yield Batch(block=number, arm=arm, testbed=testbed, cells=own)


def together(found: Iterable[list[Batch]], each: int) -> Iterator[list[list[Batch]]]:
    """Turns that can be at the same time: of all arms on testbeds of one name, in so many repetitions."""
    for _, among in itertools.groupby(found, key=lambda turn: (turn[0].block // each, turn[0].testbed)):
        yield list(among)


def turns(batches: Iterable[Batch], each: int) -> Iterator[list[Batch]]:
    """Batches that share one testbed: those of an arm in so many repetitions, whose first one is a multiple of that."""
    for _, turn in itertools.groupby(batches, key=lambda one: (one.block // each, one.arm, one.testbed)):
        yield list(turn)


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

    @classmethod
    def of(
        cls, among: Sequence[Sequence[Batch]], arms: Sequence[str], cores: Sequence[Sequence[int]], turn: int
    ) -> Self:
        """Of these turns, whose cells are in the order of the first's; CPUs as :func:`shares_of_cpus` has them."""
        order = {(batch.block, cell.key): place for batch in among[0] for place, cell in enumerate(batch.cells)}
        return cls(shares_of_cpus(arms, cores, turn), Gate(own[0].arm for own in among), order)

    def ordered(self, batch: Batch, cells: Iterable[Cell]) -> list[Cell]:
        """Cells of a batch in the order that all arms have."""
        return sorted(cells, key=lambda cell: self.order.get((batch.block, cell.key), len(self.order)))

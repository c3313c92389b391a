"""The order of a run: randomized blocks.

A block is one independent repetition.  For each testbed of the design, in random order, it has a fresh one of every
arm, in random order, so that slow drift of the machine falls on all arms alike and the arms of a block can be
compared as pairs.  On a testbed, its cells follow in random order too.  The order depends on the recorded seed alone,
never on progress, so a resumed run goes on where it was.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Sequence

from virtgauge.suites.base import Cell


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

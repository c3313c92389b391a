"""Accounts of CPU time are read all through a block, beside whatever happens in it, and last at its end."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time

import pytest

from virtgauge.suites.testbed import recorded

NEVER_S = 1e6


def counting(step: int, seen: list[int]):
    """An account that grows with every reading."""
    values = itertools.count(0, step)

    def cpu_ns() -> int:
        seen.append(value := next(values))
        return value

    return cpu_ns


async def until(reached, give_up_s=20.0):
    give_up = time.monotonic() + give_up_s
    while not reached() and time.monotonic() < give_up:
        await asyncio.sleep(0.001)
    assert reached()


async def test_all_accounts_are_read_at_intervals_during_the_block():
    one, other = [], []
    async with recorded(counting(3, one), counting(5, other), every_s=0.001) as (first, second):
        began_ns = time.monotonic_ns()
        await until(lambda: len(other) > 6)
        ended_ns = time.monotonic_ns()
    assert len(one) == len(other)
    assert (first.total_ns, second.total_ns) == (one[-1], other[-1])
    assert 0 < first.between(began_ns, ended_ns) <= first.total_ns


async def test_accounts_are_read_also_while_the_event_loop_is_held_up():
    seen = []
    async with recorded(counting(1, seen), every_s=0.001):
        give_up = time.monotonic() + 20
        while len(seen) < 4 and time.monotonic() < give_up:
            pass
    assert len(seen) >= 4


async def test_an_account_that_takes_long_to_read_is_left_alone_nine_times_as_long():
    spans = []

    def slow() -> int:
        began = time.monotonic()
        time.sleep(0.002)
        spans.append((began, time.monotonic()))
        return len(spans)

    async with recorded(slow, every_s=0.001):
        await until(lambda: len(spans) > 4)
        by_thread = spans[1:]
    for (began, ended), (next_began, _) in itertools.pairwise(by_thread):
        assert next_began - ended > 8 * (ended - began)


@pytest.mark.parametrize("failure", [None, RuntimeError])
async def test_the_last_reading_is_at_the_end_and_nothing_reads_on(failure):
    seen, before = [], threading.active_count()
    try:
        async with recorded(counting(1, seen), every_s=NEVER_S) as (record,):
            assert seen == [0]
            if failure is not None:
                raise failure
    except RuntimeError:
        assert failure is not None
    assert seen == [0, 1]
    assert record.total_ns == 1
    assert threading.active_count() == before

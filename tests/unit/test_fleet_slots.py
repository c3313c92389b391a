"""Slots: a host is never shared, gangs get all or nothing, and nobody waits in a circle or for ever."""

import asyncio
import random

import pytest

from virtgauge.fleet.batches import Slots

HOSTS = ("a", "b", "c", "d", "e")


async def test_no_host_is_shared_and_everybody_comes_to_an_end_whatever_gangs_are_claimed():
    slots, held, most = Slots(HOSTS), set(), 0
    order = random.Random(7)
    gangs = [order.sample(HOSTS, order.choice((1, 1, 2, 3))) for _ in range(400)]

    async def work(gang):
        nonlocal most
        async with slots.claim(*gang):
            assert not held & set(gang)
            held.update(gang)
            most = max(most, len(held))
            for _ in range(order.randrange(3)):
                await asyncio.sleep(0)
            held.difference_update(gang)

    await asyncio.wait_for(asyncio.gather(*(work(gang) for gang in gangs)), 30)
    assert not held
    assert most >= 4  # hosts do work side by side


async def test_a_gang_is_not_passed_by_by_batches_of_single_hosts():
    slots, order = Slots("ab"), []

    async def work(name, *hosts):
        async with slots.claim(*hosts):
            order.append(name)
            await asyncio.sleep(0)

    async with slots.claim("a"):
        waiting = [asyncio.create_task(work("gang", "a", "b"))]
        await asyncio.sleep(0)
        waiting += [asyncio.create_task(work(f"single {n}", "b")) for n in range(3)]
        await asyncio.sleep(0)
        assert order == []  # b is free, and kept for the gang that asked first
    await asyncio.gather(*waiting)
    assert order[0] == "gang"
    assert len(order) == 4


async def test_a_claim_that_is_given_up_while_waiting_blocks_nobody():
    slots = Slots("ab")
    async with slots.claim("a"):
        gang = asyncio.create_task(slots.claim("a", "b").__aenter__())
        single = asyncio.create_task(slots.claim("b").__aenter__())
        await asyncio.sleep(0)
        assert not single.done()
        gang.cancel()
        await asyncio.wait_for(single, 1)
    async with slots.claim("a"):
        pass


async def test_a_claim_that_is_cancelled_in_the_turn_in_which_it_was_given_is_free_again():
    slots = Slots("a")
    first = slots.claim("a")
    await first.__aenter__()
    second = asyncio.create_task(slots.claim("a").__aenter__())
    await asyncio.sleep(0)
    await first.__aexit__(None, None, None)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    async with asyncio.timeout(1), slots.claim("a"):
        pass


async def test_a_host_that_the_fleet_has_not_cannot_be_claimed():
    with pytest.raises(ValueError, match="z"):
        async with Slots("ab").claim("a", "z"):
            pass

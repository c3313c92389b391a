"""Loads beside a measurement: one that ended by itself, and one that does not end."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any, cast

import pytest

from virtgauge.agent.channel import AgentError, Channel
from virtgauge.suites.answers import running
from virtgauge.suites.bandwidth.laboratory import Link
from virtgauge.suites.bandwidth.testbed import BandwidthTestbed, Conditions, Path
from virtgauge.suites.testbed import Stage

CONDITIONS = Conditions(
    1e8, "tbf", burst_us=100, queue_ms=10, cross_bps=1e7, traffic="constant", delay_ms=1.0, loss=0.0
)


class Agent:
    """Starts any load, and says this when it is stopped; None: nothing, until it is waited for no longer."""

    def __init__(self, answer: dict[str, Any] | None) -> None:
        self.answer = answer

    async def request(self, kind: str, **_: object) -> SimpleNamespace:
        if kind == "load_start":
            return SimpleNamespace(value={"load": 1})
        if self.answer is None:
            raise TimeoutError
        return SimpleNamespace(value=self.answer)


def path_between(receiver: Agent, others: Agent) -> BandwidthTestbed:
    receiving, sending = SimpleNamespace(channel=receiver), SimpleNamespace(channel=others)
    stage = cast(Stage, SimpleNamespace(guests=[], peers=[]))
    return BandwidthTestbed(stage, cast(Any, receiving), cast(Any, sending), Path(), None)


async def test_a_load_that_ended_by_itself_is_no_load_and_says_why() -> None:
    with pytest.raises(AgentError, match="failed: the busy neighbour ended before it was told to: out of memory"):
        async with running(cast(Channel, Agent({"error": "out of memory"})), "kernel", {}, "the busy neighbour"):
            pass
    async with running(cast(Channel, Agent({"error": None, "units": 3})), "kernel", {}, "the busy neighbour") as load:
        pass
    assert load.answer["units"] == 3


async def test_who_sends_or_listens_on_a_path_to_no_end_fails_the_trial() -> None:
    whole, ended = Agent({"error": None}), Agent({"error": "Network is down"})
    with pytest.raises(AgentError, match="the cross traffic ended before it was told to: Network is down"):
        async with path_between(whole, ended).crossing(CONDITIONS, 1500, 1):
            pass
    with pytest.raises(AgentError, match="the listener ended before it was told to: Network is down"):
        async with path_between(ended, whole).listening("token"):
            pass
    link = Link(cast(Any, SimpleNamespace()), cast(Channel, ended), None)
    await link.begin(CONDITIONS)
    with pytest.raises(AgentError, match="the link emulator ended before it was told to: Network is down"):
        await link.end()


@pytest.mark.parametrize("fails", [False, True])
async def test_a_sender_that_does_not_end_spoils_the_testbed_whether_the_trial_failed_or_not(fails: bool) -> None:
    testbed = path_between(Agent({}), Agent(None))
    with contextlib.suppress(ZeroDivisionError):
        async with testbed.crossing(CONDITIONS, 1500, 1):
            assert not testbed.closed
            if fails:
                raise ZeroDivisionError
    assert testbed.closed

"""QEMU's monitor: a guest that QEMU has stopped is named at once, and nothing else ends a guest."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from virtgauge.agent import AgentBinary
from virtgauge.agent.channel import ChannelClosedError
from virtgauge.host.scope import Scope
from virtgauge.platforms.attempt import SocketPair
from virtgauge.platforms.base import GuestSpec, LaunchError
from virtgauge.platforms.qemu.monitor import Monitor
from virtgauge.platforms.qemu.platform import _Attempt

GREETING = {"QMP": {"version": {"qemu": {"micro": 0, "minor": 2, "major": 7}, "package": ""}, "capabilities": []}}
SOON_S = 5.0


class Qemu:
    """The other end of a monitor, which says what state its guest is in."""

    def __init__(self, state: str) -> None:
        self.state, self.asked = state, list[str]()
        self.pair = SocketPair()
        self._writer: asyncio.StreamWriter | None = None

    async def serve(self) -> None:
        reader, self._writer = await asyncio.open_connection(sock=self.pair.theirs)
        self._say(GREETING)
        while sent := await reader.read(4096):  # a command at a time, for each is answered before the next
            command = json.loads(sent)
            self.asked.append(command["execute"])
            running = self.state == "running"
            value = {"status": self.state, "running": running, "singlestep": False}
            answer = {"return": value if command["execute"] == "query-status" else {}}
            self._say(answer | {name: command[name] for name in ("id",) if name in command})

    def stop(self, state: str) -> None:
        self.state = state
        self._say({"event": "STOP", "timestamp": {"seconds": 1, "microseconds": 0}})

    def _say(self, message: dict[str, Any]) -> None:
        assert self._writer is not None
        self._writer.write(json.dumps(message).encode() + b"\r\n")


@contextlib.asynccontextmanager
async def qemu(state: str = "running") -> AsyncIterator[Qemu]:
    one = Qemu(state)
    serving = asyncio.create_task(one.serve())
    yield one
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)
    if one._writer is not None:
        one._writer.close()
    one.pair.close()


@pytest.mark.parametrize("state", ["internal-error", "io-error", "guest-panicked"])
async def test_a_guest_that_cannot_go_on_is_told_at_once(state: str) -> None:
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with qemu() as one:
        monitor = Monitor(one.pair, told.set_result)
        await monitor.connected(SOON_S)
        await asyncio.sleep(0.05)
        assert not told.done()
        one.stop(state)
        assert (await asyncio.wait_for(told, SOON_S)).startswith("QEMU has stopped the guest for ")
        monitor.abandon()


async def test_what_had_stopped_before_anyone_listened_is_told_too() -> None:
    told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    async with qemu("internal-error") as one:
        monitor = Monitor(one.pair, told.set_result)
        assert "internal error" in await asyncio.wait_for(told, SOON_S)
        monitor.abandon()


async def test_a_guest_that_is_paused_or_powers_off_is_not_given_up() -> None:
    told: list[str] = []
    async with qemu() as one:
        monitor = Monitor(one.pair, told.append)
        await monitor.connected(SOON_S)
        for state in ("paused", "shutdown", "running"):
            before = len(one.asked)
            one.stop(state)
            async with asyncio.timeout(SOON_S):
                while len(one.asked) == before:
                    await asyncio.sleep(0.01)
        assert told == []
        monitor.abandon()


async def test_a_monitor_that_does_not_answer_is_an_error_in_bounded_time() -> None:
    pair = SocketPair()
    monitor = Monitor(pair, print)
    with pytest.raises(TimeoutError):
        await monitor.connected(0.1)
    monitor.abandon()
    pair.close()


@pytest.fixture
def attempt(private_state: Path, tmp_path: Path) -> Any:
    log = tmp_path / "qemu.log"
    log.write_text("KVM internal error. Suberror: 1\nemulation failure\nRAX=0\n")
    agent = tmp_path / "agent"
    agent.touch()
    with Scope() as scope:
        yield _Attempt(GuestSpec(name="g", scope=scope, agent=AgentBinary(agent, "0" * 64)), "QEMU", log)


async def test_a_guest_that_is_stopped_while_it_boots_is_a_launch_error_that_says_why(attempt: Any) -> None:
    with contextlib.closing(SocketPair()) as pair:
        opening = asyncio.create_task(attempt.open_channel(*await pair.streams()))
        await asyncio.sleep(0.05)
        attempt.give_up("QEMU has stopped the guest for an internal error of its accelerator")
        with pytest.raises(LaunchError) as caught:
            await asyncio.wait_for(opening, SOON_S)
    assert caught.value.stage == "boot"
    assert "internal error of its accelerator (KVM internal error. Suberror: 1) before" in str(caught.value)


async def test_a_guest_that_is_stopped_in_a_trial_fails_what_waits_for_it(attempt: Any) -> None:
    class Session:
        reason = ""

        def give_up(self, reason: str) -> None:
            self.reason = reason

    attempt._channel = session = Session()
    attempt.give_up("QEMU has stopped the guest for an error of a disk's image")
    assert session.reason.startswith("QEMU has stopped the guest for an error of a disk's image (KVM internal error")


async def test_a_channel_that_is_given_up_says_why() -> None:
    from virtgauge.agent.channel import Channel

    with contextlib.closing(SocketPair()) as pair:
        channel = Channel(*await pair.streams())
        waiting = asyncio.create_task(channel.request("facts", timeout_s=60))
        await asyncio.sleep(0.05)
        channel.give_up("QEMU has stopped the guest")
        with pytest.raises(ChannelClosedError, match="QEMU has stopped the guest"):
            await asyncio.wait_for(waiting, SOON_S)
        assert channel.closed
        await channel.close()

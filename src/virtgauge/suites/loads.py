"""Loads of an agent, under way while something is measured beside them: started before it, stopped after it, heard."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from virtgauge.agent.channel import AgentError, Channel, ChannelClosedError
from virtgauge.agent.frames import ProtocolError
from virtgauge.suites.answers import documented

_START_S, _STOP_S = 30.0, 30.0


class Running:
    """A load under way."""

    def __init__(self, channel: Channel, number: int) -> None:
        self._channel, self._number = channel, number
        self.answer: Mapping[str, Any] = {}  # what it came to, once it was stopped and has told
        self.silence: str | None = None  # why it did not tell, in words; None where it did

    @classmethod
    async def start(
        cls, channel: Channel, name: str, params: Mapping[str, Any], what: str, within_s: float | None = _START_S
    ) -> Running:
        """Start a load, within some time if that is not left to the caller; it works when this returns.
        Raises AgentError: it could not be started; the message calls it ``what``.  TimeoutError: nobody knows whether
        it works, or will.  ChannelClosedError, ProtocolError: whoever was to do it is gone.
        """
        try:
            reply = await channel.request("load_start", name=name, params=dict(params), timeout_s=within_s)
        except AgentError as error:
            raise AgentError(error.code, f"{what}: {error.message}", error.errno) from error
        except TimeoutError as error:
            raise TimeoutError(f"{what} did not start within {within_s:g} s") from error
        with documented(f"the answer to load_start of {name}"):
            return cls(channel, int(reply.value["load"]))

    async def stop(self, within_s: float = _STOP_S) -> None:
        """Stop it.  One that is lost, refuses or does not answer has a :attr:`silence`."""
        try:
            self.answer = (await self._channel.request("load_stop", load=self._number, timeout_s=within_s)).value
        except TimeoutError:
            self.silence = f"it did not stop within {within_s:g} s"
        except (AgentError, ChannelClosedError, ProtocolError) as error:
            self.silence = str(error)


@contextlib.asynccontextmanager
async def running(channel: Channel, name: str, params: Mapping[str, Any], what: str) -> AsyncIterator[Running]:
    """A load during the block; afterwards it has told what it came to, or is silent.

    A block that is cancelled does not wait for it: the testbed ends then.  It raises what :meth:`Running.start` does.
    """
    load = await Running.start(channel, name, params, what)
    try:
        yield load
    except asyncio.CancelledError:
        raise
    except BaseException:
        await load.stop()
        raise
    await load.stop()

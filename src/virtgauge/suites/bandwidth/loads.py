"""Loads of the agents that a path is made with: started before an estimate, stopped after it, and heard."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from virtgauge.agent.channel import AgentError, Channel, ChannelClosedError
from virtgauge.agent.frames import ProtocolError

_START_S, _STOP_S = 30.0, 30.0


class Running:
    """A load under way.

    Attributes:
        answer: what it came to, once it was stopped and has told.
        silence: why it did not tell, in words; None where it did.
    """

    def __init__(self, channel: Channel, number: int) -> None:
        self._channel, self._number = channel, number
        self.answer: Mapping[str, Any] = {}
        self.silence: str | None = None

    @classmethod
    async def start(cls, channel: Channel, name: str, params: Mapping[str, Any], what: str) -> Running:
        """Start a load; it works when this returns.

        Args:
            channel: of whoever does it.
            name: of the load.
            params: of it.
            what: to call it in an error.

        Raises:
            AgentError: it could not be started; the message names it.
            ChannelClosedError, ProtocolError: whoever was to do it is gone.
        """
        try:
            reply = await channel.request("load_start", name=name, params=dict(params), timeout_s=_START_S)
            return cls(channel, int(reply.value["load"]))
        except AgentError as error:
            raise AgentError(error.code, f"{what}: {error.message}", error.errno) from error
        except TimeoutError as error:
            raise AgentError("timeout", f"{what} did not start within {_START_S:g} s") from error
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"load_start of {name} has no proper number of a load: {error!r}") from error

    async def stop(self) -> None:
        """Stop it.  One that is lost, refuses or does not answer has a :attr:`silence`."""
        try:
            self.answer = (await self._channel.request("load_stop", load=self._number, timeout_s=_STOP_S)).value
        except TimeoutError:
            self.silence = f"it did not stop within {_STOP_S:g} s"
        except (AgentError, ChannelClosedError, ProtocolError) as error:
            self.silence = str(error)


@contextlib.asynccontextmanager
async def running(channel: Channel, name: str, params: Mapping[str, Any], what: str) -> AsyncIterator[Running]:
    """A load during the block; afterwards it has told what it came to, or is silent.

    A block that is cancelled does not wait for it: the testbed ends then.

    Raises:
        AgentError, ChannelClosedError, ProtocolError: see :meth:`Running.start`.
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

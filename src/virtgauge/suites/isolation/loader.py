"""The load in the loading guest: started before a trial, stopped after it, and asked what it came to."""

from __future__ import annotations

import dataclasses
from typing import Any

from virtgauge.agent.channel import AgentError, Channel, ChannelClosedError
from virtgauge.agent.frames import ProtocolError

_STOP_S = 120.0
"""A guest of a twentieth of a processor takes its time to finish a pass over its block and to check its results."""


@dataclasses.dataclass(frozen=True)
class LoadResult:
    """What a load came to.

    Attributes:
        unit, units: of work; None where it did not tell.
        elapsed_ns, cpu_ns: by its own guest.
        error: why it ended before it was told to, or did not tell.
    """

    unit: str | None
    units: int | None
    elapsed_ns: int | None
    cpu_ns: int | None
    error: str | None

    @property
    def rate(self) -> float | None:
        """Units a second."""
        return self.units * 1e9 / self.elapsed_ns if self.units is not None and self.elapsed_ns else None

    @property
    def cpus(self) -> float | None:
        """CPU time a second, as its own guest counts it."""
        return self.cpu_ns / self.elapsed_ns if self.cpu_ns is not None and self.elapsed_ns else None

    @property
    def told(self) -> bool:
        """Whether it stopped and told what it had done; else it may still be at work."""
        return self.units is not None


class Loader:
    """A running load."""

    def __init__(self, channel: Channel, number: int) -> None:
        self._channel, self._number = channel, number

    @classmethod
    async def start(cls, channel: Channel, name: str, params: dict[str, Any]) -> Loader:
        """Start the agent's load ``kernel``; it works when this returns.

        Args:
            channel: of the loading guest.
            name: of the load, for errors.
            params: of the load.

        Raises:
            AgentError: it could not be started; the message names it.
            ChannelClosedError, ProtocolError: the loading guest was lost.
        """
        try:
            reply = await channel.request("load_start", name="kernel", params=params)
        except AgentError as error:
            raise AgentError(error.code, f"the load {name}: {error.message}", error.errno) from error
        try:
            return cls(channel, int(reply.value["load"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"load_start answered {reply.value!r:.80}") from error

    async def stop(self) -> LoadResult:
        """Stop it.  A guest that is lost, refuses or does not answer has a result with an error."""
        try:
            value = (await self._channel.request("load_stop", load=self._number, timeout_s=_STOP_S)).value
            return LoadResult(
                unit=str(value["unit"]),
                units=int(value["units"]),
                elapsed_ns=int(value["elapsed_ns"]),
                cpu_ns=int(value["cpu_ns"]),
                error=None if value.get("error") is None else str(value["error"]),
            )
        except TimeoutError:
            return _silent(f"it did not stop within {_STOP_S:g} s")
        except (AgentError, ChannelClosedError, ProtocolError) as error:
            return _silent(str(error))
        except (KeyError, TypeError, ValueError) as error:
            return _silent(f"its result is not what docs/protocol.md says: {error!r}")


def _silent(error: str) -> LoadResult:
    return LoadResult(None, None, None, None, error)

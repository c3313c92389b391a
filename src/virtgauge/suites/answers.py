"""What agents answer: parts of docs/protocol.md that several probes share, and loads, which tell in the end."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
from pydantic import PlainValidator, TypeAdapter

from virtgauge.agent.channel import AgentError, Channel, ChannelClosedError
from virtgauge.agent.messages import ProtocolError
from virtgauge.ledger.records import Histogram
from virtgauge.suites.base import Elapsed

_UNITS = ("ps", "ns", "permille")
_CLOCKS = {"monotonic_raw_ns": "CLOCK_MONOTONIC_RAW", "monotonic_ns": "CLOCK_MONOTONIC", "tsc_ns": "TSC"}
_Record = TypeVar("_Record")
_adapter = functools.cache(TypeAdapter)
_START_S, _STOP_S = 30.0, 30.0


@contextlib.contextmanager
def documented(what: str, where: str = "docs/protocol.md") -> Iterator[None]:
    """Read an answer in the block: what decodes one fails in its own ways where that is something else.
    Raises ProtocolError: it is not what the document says.
    """
    try:
        yield
    except (LookupError, ArithmeticError, AttributeError, TypeError, ValueError) as error:
        raise ProtocolError(f"{what} is not what {where} says: {error!r}") from error


def decoded(kind: type[_Record], value: Mapping[str, Any]) -> _Record:
    """A dataclass by the entries that have its fields' names. Raises ValueError: one is missing, or of another type."""
    record: _Record = _adapter(cast(Any, kind)).validate_python(value)
    return record


def decode_histogram(value: Mapping[str, Any]) -> Histogram:
    """A ``distribution``, its bins and counts as bytes or as lists."""
    values, counts = _numbers(value["values"]), _numbers(value["counts"])
    if len(values) != len(counts) or np.any(np.diff(values) <= 0) or np.any(counts < 0):
        raise ValueError("bins do not ascend, or count less than nothing")
    if sum(counts.tolist()) != int(value["n"]):
        raise ValueError("bins do not add up to n")
    if value["unit"] not in _UNITS:
        raise ValueError(f"the unit is {value['unit']!r}")
    if not -(2**63) <= int(value["min"]) <= int(value["max"]) < 2**63:
        raise ValueError(f"min and max are {value['min']} and {value['max']}")
    return Histogram(
        unit=str(value["unit"]),
        values=values,
        counts=counts.astype(np.uint64),
        minimum=int(value["min"]),
        maximum=int(value["max"]),
        mean=float(value["mean"]),
    )


def _counted(value: Mapping[str, Any] | None) -> Histogram | None:
    return None if value is None or int(value["n"]) == 0 else decode_histogram(value)


CountedHistogram = Annotated[Histogram | None, PlainValidator(_counted)]
"""The same as a field of what is :func:`decoded`; None where nothing was counted."""


def _numbers(value: bytes | Sequence[int]) -> npt.NDArray[np.int64]:
    numbers = np.frombuffer(value, dtype="<i8") if isinstance(value, bytes) else np.array(value, dtype=np.int64)
    return numbers.astype(np.int64)


def added_up(spans: Sequence[Sequence[Elapsed]]) -> tuple[Elapsed, ...]:
    """What passed in all spans together, by each clock that was read in all of them."""
    found = []
    for first in spans[0] if spans else ():
        each = [one for span in spans for one in span if one.clock == first.clock]
        if len(each) == len(spans):
            elapsed_ns = sum(one.elapsed_ns for one in each)
            found.append(Elapsed(first.clock, elapsed_ns, sum(one.uncertainty_ns for one in each)))
    return tuple(found)


def elapsed_by_clock(start: Mapping[str, Any], end: Mapping[str, Any]) -> tuple[Elapsed, ...]:
    """What passed between two ``clocks``, by each clock that was read both times."""
    uncertainty = float(start["bracket_ns"]) + float(end["bracket_ns"])
    return tuple(
        Elapsed(clock=clock, elapsed_ns=float(end[field]) - float(start[field]), uncertainty_ns=uncertainty)
        for field, clock in _CLOCKS.items()
        if start.get(field) is not None and end.get(field) is not None
    )


class Running:
    """A load under way."""

    def __init__(self, channel: Channel, number: int, what: str) -> None:
        self._channel, self._number, self._what = channel, number, what
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
            return cls(channel, int(reply.value["load"]), what)

    async def stop(self, within_s: float = _STOP_S) -> None:
        """Stop it.  One that is lost, refuses or does not answer has a :attr:`silence`."""
        try:
            self.answer = (await self._channel.request("load_stop", load=self._number, timeout_s=within_s)).value
        except TimeoutError:
            self.silence = f"it did not stop within {within_s:g} s"
        except (AgentError, ChannelClosedError, ProtocolError) as error:
            self.silence = str(error)

    def require_whole(self) -> None:
        """Raises AgentError: once stopped, it tells that it had ended by itself before."""
        if (error := self.answer.get("error")) is not None:
            raise AgentError("failed", f"{self._what} ended before it was told to: {error}")


@contextlib.asynccontextmanager
async def running(channel: Channel, name: str, params: Mapping[str, Any], what: str) -> AsyncIterator[Running]:
    """A load during the block; afterwards it has told what it came to, or is silent.

    A block that is cancelled does not wait for it: the testbed ends then.  It raises what :meth:`Running.start` does,
    and after the block what :meth:`Running.require_whole` does.
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
    load.require_whole()

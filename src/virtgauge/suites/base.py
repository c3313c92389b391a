"""The interface of a suite: the cells of its design, and how one cell is measured on a guest."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Self, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, BaseModel, Field

from virtgauge.ledger.records import Flag, Histogram
from virtgauge.platforms.base import Platform
from virtgauge.results.columns import Cell as TriedCell
from virtgauge.suites.testbed import Stage, Testbed

PLAIN_TESTBED = "guest"  # The testbed of cells that need a plain guest and nothing else

_Level = TypeVar("_Level")


def _differ(values: tuple[_Level, ...]) -> tuple[_Level, ...]:
    twice = [value for value in values if values.count(value) > 1]
    if twice:
        raise ValueError(f"{twice[0]!r} is named twice; name it once")
    return values


Distinct = Annotated[tuple[_Level, ...], AfterValidator(_differ)]  # Values of a plan of which none is named twice
Levels = Annotated[tuple[_Level, ...], Field(min_length=1), AfterValidator(_differ)]
"""The levels of a factor: likewise, and at least one."""


@dataclasses.dataclass(frozen=True)
class Cell:
    """One measurement with every factor but the platform and the repetition fixed."""

    suite: str
    probe: str
    factors: Mapping[str, str]  # level by factor, as text, in a fixed order: they name the cell
    params: Mapping[str, Any]  # what the suite needs to measure it
    timeout_s: float  # a trial that has not ended by then is failed and its guest is ended
    testbed: str = PLAIN_TESTBED  # cells of the same name share a testbed; see :meth:`Suite.set_up`
    expected_s: float = 1.0  # about how long a trial takes, as far as the plan alone says
    # measured on what exists already, as it is: a ``pair`` of machines (:attr:`Platform.peer`), a ``server``, or a
    # ``device`` between two interfaces of this host (:attr:`Platform.cabling`)
    as_is: str = ""
    beside_peer: bool = False  # of a machine that exists already it is measured beside the peer, else in a laboratory
    in_peace: bool = True  # False: what others take of the machine is part of what it measures, and told, not left out

    @property
    def key(self) -> str:
        levels = ",".join(f"{factor}={level}" for factor, level in self.factors.items())
        return f"{self.suite}/{self.probe}/{levels}"

    @property
    def figures_key(self) -> TriedCell:
        return TriedCell(self.suite, self.probe, tuple(self.factors.items()))


@dataclasses.dataclass(frozen=True)
class Elapsed:
    """How long a trial took by one clock, with that reading's uncertainty; both in nanoseconds."""

    clock: str
    elapsed_ns: float
    uncertainty_ns: float


@dataclasses.dataclass(frozen=True)
class Measurement:
    """What a trial brought."""

    result: dict[str, Any]  # scalars for tables; JSON-able
    histograms: dict[str, Histogram] = dataclasses.field(default_factory=dict)  # by measure
    # raw reservoirs by series
    samples: dict[str, npt.NDArray[np.int64]] = dataclasses.field(default_factory=dict)
    flags: tuple[Flag, ...] = ()  # what the suite itself found wrong or worth saying
    guest_clocks: tuple[Elapsed, ...] = ()  # the trial's duration by each of the guest's clocks
    # from request to answer by the controller's clock, which the guest's span lies within; None where it was not
    # observed
    controller_elapsed_ns: int | None = None
    guest_steal_ns: int | None = None  # steal as the guest saw it; None where it sees none


class Sliced(abc.ABC):
    """A cell that is measured slice by slice: what is kept and what is left out is decided between them."""

    @property
    @abc.abstractmethod
    def done(self) -> float:
        """How much of what is wanted was kept, from 0 to 1; from 1 on the trial is complete."""

    @abc.abstractmethod
    async def measure(self, seconds: float | None) -> Measurement:
        """Measure a further slice of what is still wanted, or all of it; it raises what :meth:`Suite.measure` does.

        It ends after so many seconds, together with the sample that is under way then.
        """

    @abc.abstractmethod
    def keep(self, slice_: Measurement) -> None:
        """Count a slice in."""

    @abc.abstractmethod
    def joined(self) -> Measurement:
        """All slices that were kept, as one measurement.  What needs an unbroken series is summed over the slices.
        Raises ProtocolError: none holds a value.
        """


class Suite(abc.ABC):
    """One of the five suites, with one factorial design."""

    name: ClassVar[str]
    Settings: ClassVar[type[BaseModel]]
    settings: BaseModel  # its section of the plan, of that type

    def __init__(self, settings: Any) -> None:
        self.settings = settings

    @classmethod
    def create(cls, settings: Mapping[str, Any]) -> Self:
        """The suite for one section of a plan. Raises pydantic.ValidationError: the section is refused."""
        return cls(cls.Settings.model_validate(settings))

    @abc.abstractmethod
    def cells(self) -> list[Cell]:
        """Every cell of the design."""

    def needs(self) -> tuple[str, ...]:
        """The parts (``provision/parts.py``) that the design needs beside the agent and its guests."""
        return ()

    def lacking(self, cell: Cell) -> str | None:
        """What this machine, or this user, lacks for a cell, in words and with the remedy; starts nothing."""
        return None

    def missing_prerequisites(self) -> list[str]:
        """What is lacking for the design, said once before a run; the cells are ``unsupported`` with the same words."""
        return [*dict.fromkeys(words for cell in self.cells() if (words := self.lacking(cell)) is not None)]

    def refusal(self, cell: Cell, platform: Platform) -> str | None:
        """Why a cell cannot be measured on a platform, and the remedy; None where it can, or may be tried."""
        return None if platform.simulated else self.lacking(cell)

    def to_do(self, platform: Platform) -> tuple[str, ...]:
        """What a person has to do at a platform before it is measured, in words."""
        return ()

    async def set_up(self, testbed: str, stage: Stage) -> Testbed:
        """Launch what the cells of one testbed are measured on: a plain guest, unless a suite says otherwise.

        Whatever two testbeds differ in has to be in their names: cells of the same name may be measured on one that
        another design of the plan set up.  The caller closes the stage, also after a failure.
        Raises LaunchError: something did not come up; AgentError, ChannelClosedError, ProtocolError, TimeoutError: an
        agent could not be brought to do its part.
        """
        return await Testbed.of_one_guest(stage)

    def sliced(self, cell: Cell, testbed: Testbed, on_progress: Callable[[float], None]) -> Sliced | None:
        """The cell slice by slice; None: only as a whole."""
        return None

    @abc.abstractmethod
    async def measure(self, cell: Cell, testbed: Testbed, on_progress: Callable[[float], None]) -> Measurement:
        """Measure one cell on its testbed.
        Raises AgentError: the agent refused or failed; code ``unsupported`` when this guest cannot do it at all.
        ChannelClosedError, ProtocolError: the guest was lost.
        """

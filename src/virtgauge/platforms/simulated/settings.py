"""What a plan says of a simulated platform: its truth in all parts, its faults, and what changes from some guest on."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from virtgauge.forms import Section
from virtgauge.platforms.simulated.bandwidth import BandwidthTruth
from virtgauge.platforms.simulated.forwarding import ForwardingTruth
from virtgauge.platforms.simulated.isolation import IsolationTruth
from virtgauge.platforms.simulated.storage import StorageTruth
from virtgauge.platforms.simulated.truth import Bursts, Distribution, Fault, Positive


class Change(Section):
    """From a guest on, other settings hold: what happens to a host in the middle of a run."""

    from_guest: Annotated[int, Field(ge=1)]
    """That guest, counted from 1 as they are launched."""
    settings: dict[str, Any]
    """What holds from there on, instead of the same settings of the platform."""


class SimulatedSettings(Section):
    """No platform at all: an agent with a known truth, to try plans and to test that reports tell that truth."""

    seed: Annotated[int, Field(ge=0)] = 0
    """Of all that is drawn. Two platforms with the same seed and truth give the same values."""
    truth: dict[str, Distribution] = Field(default_factory=lambda: {"*": Distribution(median_ns=25.0)})
    """Distribution by function; ``*`` stands for every function that is not named."""
    load_factor: Positive = 1.0
    """The CPU-bound load multiplies every value by this."""
    setting_factors: dict[str, Positive] = Field(default_factory=dict)
    """The level of a setting (``fifo``, ``shallow``) multiplies every value of a sleep or a cycle by this."""
    forwarding: ForwardingTruth = ForwardingTruth()
    """A guest as a forwarding device."""
    storage: StorageTruth = StorageTruth()
    """The database in a guest."""
    isolation: IsolationTruth = IsolationTruth()
    """The machine that a guest and its neighbour share."""
    bandwidth: BandwidthTruth = BandwidthTruth()
    """The network path of a guest."""
    bursts: Bursts | None = None
    """What others take of the machine while clocks and sleeps are measured; none: all is done in no time."""
    faults: tuple[Fault, ...] = ()
    """What goes wrong, and how often."""
    changes: tuple[Change, ...] = ()
    """What is different from some guest on."""
    virtual: bool | None = None
    """Whether its guests tell of a kernel of their own (``true``) or of this machine's; none: they do not tell. Where a
    change says other than the platform, other guests than the plan's answer."""
    usable: bool = True
    """``false``: the platform reports itself as unusable."""
    emulated: bool = False
    """``true``: the figures are labelled emulated."""

    @model_validator(mode="after")
    def _changes_hold(self) -> SimulatedSettings:
        for change in self.changes:
            self.at(change.from_guest)
        return self

    def at(self, guest: int) -> SimulatedSettings:
        """The settings of a guest, by its number, with the faults that befall it."""
        changed = {name: one for c in self.changes if guest >= c.from_guest for name, one in c.settings.items()}
        own = self.model_validate(self.model_dump(exclude={"changes"}) | changed) if changed else self
        faults = tuple(fault for fault in own.faults if not fault.first_guests or guest <= fault.first_guests)
        return own.model_copy(update={"faults": faults})

"""A plan's ``[[suite.bandwidth]]``: estimators, timings, the path that they estimate, and what else is sent on it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, TypeAdapter, WrapValidator

from virtgauge.plan import Section
from virtgauge.specs.bandwidth_formatting import AS_IS, NO_TRAFFIC, PRECISE, SYSTEM
from virtgauge.suites.base import Levels

_ORIGINAL_BYTES = 1500  # What yaz-original begins with, whatever anybody asks for
_MOST_MBPS = 34_000.0  # TBF's rate is 32 bits of bytes a second

CLOCKS = (SYSTEM, "gettimeofday", PRECISE)
SLEEPS = (SYSTEM, "usleep", PRECISE)
Rate = Annotated[float, Field(ge=1, le=_MOST_MBPS)]
_rates: TypeAdapter[float] = TypeAdapter(Rate)


def _rate_or_as_is(value: object, _: object) -> float | str:
    """A refusal speaks of the rate alone."""
    return AS_IS if value == AS_IS else _rates.validate_python(value)


Capacity = Annotated[Rate | Literal["as-is"], WrapValidator(_rate_or_as_is)]
PacketBytes = Annotated[int, Field(ge=64, le=1500)]


@dataclasses.dataclass(frozen=True)
class Timing:
    """A clock and a sleep, as the estimator names them (docs/bandwidth.md)."""

    clock: str
    sleep: str

    @classmethod
    def named(cls, name: str) -> Self:
        """``system`` and ``hptime`` are both alike; else ``CLOCK+SLEEP``. Raises ValueError: it is none."""
        if name in (SYSTEM, PRECISE):
            return cls(name, name)
        clock, plus, sleep = name.partition("+")
        if not plus or clock not in CLOCKS or sleep not in SLEEPS:
            raise ValueError(
                f"is no timing; use system, hptime, or CLOCK+SLEEP of the clocks {', '.join(CLOCKS)} "
                f"and the sleeps {', '.join(SLEEPS)}"
            )
        if clock == sleep:
            raise ValueError(f"has a shorter name; write {clock}")
        return cls(clock, sleep)

    @property
    def is_mixed(self) -> bool:
        """Whether clock and sleep are of different kinds, which a preloaded library cannot bring about."""
        return self not in (Timing(SYSTEM, SYSTEM), Timing(PRECISE, PRECISE))


def _is_a_timing(name: str) -> str:
    Timing.named(name)
    return name


TimingName = Annotated[str, AfterValidator(_is_a_timing)]


_OF_THE_PATH = frozenset(
    ("cross_mbps", "traffic", "delays_ms", "losses", "receiver", "shaper", "burst_us", "queue_ms", "link")
) | {"cross_packet_bytes", "capacity_s", "memory_mib"}
"""Keys that mean nothing where the path is as it is."""


class BandwidthSettings(Section):
    """One design: estimators × timings × through × capacities × cross traffic × delays × losses × pacings."""

    estimators: Levels[Literal["yaz-original", "kite2"]] = ("kite2",)
    """See [bandwidth.md](bandwidth.md)."""
    timings: Levels[TimingName] = (SYSTEM, PRECISE)
    """Clock and sleep of the estimator: ``system``, ``hptime``, or a mixture such as ``gettimeofday+usleep`` or
    ``hptime+system``."""
    through: Levels[Literal["inside", "shim"]] = ("inside",)
    """``inside``: the estimator itself has this timing. ``shim``: it makes plain system calls and a preloaded library
    replaces them, as in the paper; only ``system`` and ``hptime``."""
    capacities_mbps: Levels[Capacity] = (300.0,)
    """Capacity of the path as its shaper counts: 1514 B for an IP packet of 1500 B. ``as-is``, alone: the path between
    two [attached machines](platforms/attached.md#which-suites), which is not shaped; no other key of the path then."""
    cross_mbps: Levels[Annotated[float, Field(ge=0, lt=_MOST_MBPS)]] = (0.0, 150.0)
    """Rate of the cross traffic, counted likewise."""
    traffic: Levels[Literal["constant", "poisson"]] = ("constant",)
    """Gaps of the cross traffic: constant or exponential."""
    delays_ms: Levels[Annotated[float, Field(ge=0, le=10_000)]] = (0.0,)
    """Delay added to the round trip, half of it in each direction."""
    losses: Levels[Annotated[float, Field(ge=0, lt=0.5)]] = (0.0,)
    """Share of the frames that is lost on the way to the receiver, behind the shaper."""
    pacings: Levels[Literal["auto", "send", "sendmmsg", "gso"]] = ("auto",)
    """How bursts are handed to the kernel; ``auto`` takes the fastest way."""

    estimates: Annotated[int, Field(ge=1, le=1000)] = 10
    """Complete searches of a trial, whose median is its result. Fewer than 10 make a poor interval."""
    packet_bytes: PacketBytes = 1500
    """Length of the probes' IP packets."""
    first_gap_us: Annotated[int, Field(ge=1, le=999)] = 40
    """First and shortest gap of yaz-original, and so its ceiling: 40 is 300 Mbit/s, as published."""
    lowest_mbps: Annotated[float, Field(ge=0.01)] = 1.0
    """Lowest rate that kite2 tries."""
    highest_mbps: Annotated[float, Field(gt=0, le=1e6)] = 100_000.0
    """Highest rate that kite2 tries."""
    fifo: Annotated[int, Field(ge=1, le=99)] | None = None
    """Real-time priority of the estimator's sender in its guest; ordinary scheduling by default."""

    receiver: Literal["host", "guest"] = "host"
    """Where packets are stamped: by an agent on the host, or in a second guest of the platform."""
    shaper: Literal["tbf", "htb"] = "tbf"
    """The queueing discipline that gives the path its capacity."""
    burst_us: Annotated[float, Field(gt=0, le=100_000)] = 48.4
    """Depth of its token bucket, as time at full capacity; at least two packets, which the default is up to 500 Mbit/s.
    Every train passes that much at once, and a timer that is later loses rate."""
    queue_ms: Annotated[float, Field(gt=0, le=10_000)] = 10.0
    """Length of its queue, as time at full capacity; at least 64 packets."""
    link: Literal["auto", "netem", "emulator"] = "auto"
    """What delays and loses: the kernel's netem, the agent's own link emulator, or netem if the kernel has it."""
    cross_packet_bytes: PacketBytes = 1500
    """Length of the cross traffic's IP packets."""
    capacity_s: Annotated[float, Field(ge=0, le=60)] = 0.3
    """How long the path is flooded before and after each trial to measure its capacity; 0 skips it."""
    memory_mib: Annotated[int, Field(ge=64, le=2**24)] | None = None
    """Memory of each guest; the platform's own default if left out."""

    def traffics(self) -> Iterator[tuple[float, str]]:
        """Rates of the cross traffic with their kind, which is ``none`` of none."""
        for cross in (0.0,) if self.as_is else self.cross_mbps:
            for kind in self.traffic if cross else (NO_TRAFFIC,):
                yield cross, kind

    def swaps(self) -> Iterator[tuple[str, str]]:
        """Timings with the way in which they are brought about, where there is one."""
        for timing in self.timings:
            for through in self.through:
                if through == "inside" or not Timing.named(timing).is_mixed:
                    yield timing, through

    @property
    def as_is(self) -> bool:
        """Whether the path is one that exists already, of an unknown capacity."""
        return AS_IS in self.capacities_mbps

    def _problems(self) -> Iterator[str]:
        yield from self._problems_of_the_path()
        names = set(self.estimators)
        if "yaz-original" in names and self.packet_bytes != _ORIGINAL_BYTES:
            yield (
                f"packet_bytes = {self.packet_bytes}: yaz-original begins with {_ORIGINAL_BYTES} B and halves it; "
                "leave it out, or give the others a [[suite.bandwidth]] of their own"
            )
        for field, concerned in (("first_gap_us", "yaz-original"), ("lowest_mbps", "kite2"), ("highest_mbps", "kite2")):
            if field in self.model_fields_set and concerned not in names:
                yield f"{field} is given, but is of {concerned} alone; leave it out"
        if self.lowest_mbps >= self.highest_mbps:
            yield f"lowest_mbps = {self.lowest_mbps:g}: it must be below highest_mbps = {self.highest_mbps:g}"
        if not list(self.swaps()):
            yield (
                f"timings = {list(self.timings)}: a preloaded library swaps clock and sleep together; "
                f'add {SYSTEM!r} or {PRECISE!r}, or add "inside" to through'
            )

    def _problems_of_the_path(self) -> Iterator[str]:
        if self.as_is:
            if len(self.capacities_mbps) > 1:
                yield f"capacities_mbps: {AS_IS!r} stands alone; give the others a [[suite.bandwidth]] of their own"
            if stray := sorted(_OF_THE_PATH & self.model_fields_set):
                yield f"{stray[0]} is given, but a path {AS_IS!r} is neither shaped nor shared; leave it out"
            if "shim" in self.through:
                yield f'through: a path {AS_IS!r} has no guest with the program for "shim"; leave it out'
            return
        least = min(rate for rate in self.capacities_mbps if not isinstance(rate, str))
        for cross in self.cross_mbps:
            if cross >= least:
                yield (
                    f"cross_mbps = {cross:g}: nothing is left of capacities_mbps = {least:g}; "
                    "choose less, or give each capacity a [[suite.bandwidth]] of its own"
                )
        if not any(self.cross_mbps) and "traffic" in self.model_fields_set:
            yield "traffic is given, but cross_mbps has nothing but 0; add a rate, or leave traffic out"
        if self.link != "auto" and not any(self.delays_ms) and not any(self.losses):
            yield f"link = {self.link!r}: there is neither delay nor loss; leave it out, or add delays_ms"

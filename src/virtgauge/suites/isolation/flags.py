"""What makes an isolation trial invalid, or has to be said with it.  That a guest was starved is a result, no flag."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from virtgauge.host.cgroup import QUOTA_PERIOD_US
from virtgauge.host.cgroup_policy import Throttling
from virtgauge.host.policy import Applied
from virtgauge.ledger.records import Flag

_PERIOD_NS = QUOTA_PERIOD_US * 1000
"""What a guest has saved up or used in advance is at most one of them at each end."""
_UNBOUND = 1.1
_BEYOND = 1.05
"""A limit that takes less than this away (beside a weight for the same share, for instance) need not stop anybody."""
_REACHED = 0.9
_FREQUENCY = 0.03
_STOPPED = 0.03
_VISIBLE = 0.5
"""A guest that sees less than this part of the time in which it was stopped is blind to it."""


@dataclasses.dataclass(frozen=True)
class GuestConditions:
    """Under which one guest worked.

    Attributes:
        name: ``tested`` or ``loading``.
        applied: what became of its policy.
        received_cpus: CPU time a second, from outside.
        entitled_cpus, unlimited_cpus: what it was entitled to, and what it would have been without its limit.
        throttling: how often its limit stopped it.
        kills: of its processes, at its memory limit.
    """

    name: str
    applied: Applied
    received_cpus: float | None
    entitled_cpus: float | None
    unlimited_cpus: float | None
    throttling: Throttling | None
    kills: int | None


@dataclasses.dataclass(frozen=True)
class Steal:
    """Time in which the tested guest wanted to run and did not; None where it is not known.

    Attributes:
        seen_ns: as its own kernel counts stolen time.
        missed_ns: CPU time that its threads did not get, by their own kernel's account.
        stopped_ns: what they did not get, counted from outside.
        capacity_ns: what they would have used if nothing had stopped them.
    """

    seen_ns: int | None
    missed_ns: int
    stopped_ns: int | None
    capacity_ns: int

    @property
    def blind(self) -> bool:
        """Whether it was stopped for a time that matters, and sees little or nothing of it in any way."""
        if self.stopped_ns is None or self.stopped_ns <= _STOPPED * self.capacity_ns:
            return False
        return (self.seen_ns or 0) + self.missed_ns < _VISIBLE * self.stopped_ns


@dataclasses.dataclass(frozen=True)
class LoaderCircumstances:
    """What became of the load.

    Attributes:
        name: of the load.
        units: of work; None where it never told.
        error: why it ended before it was told to, or does not answer.
    """

    name: str
    units: int | None
    error: str | None


@dataclasses.dataclass(frozen=True)
class Conditions:
    """Under which a trial was made.

    Attributes:
        guests: both.
        asked: the knobs that the cell's policy asks for (``cpu_limit``, ``disk`` …).
        elapsed_ns: measured.
        loader: None without a load.
        steal: of the tested guest.
        frequency_before_hz, frequency_after_hz: of the tested guest's processor.
        buffered: whether the guests' file system has no direct I/O.
        cached: why the tested guest's disk is not measured past every page cache; None where it is, or has no part.
        memory_mib: limit of each guest's memory.
    """

    guests: tuple[GuestConditions, GuestConditions]
    asked: tuple[str, ...]
    elapsed_ns: int
    loader: LoaderCircumstances | None
    steal: Steal
    frequency_before_hz: float
    frequency_after_hz: float
    buffered: bool
    cached: str | None
    memory_mib: int


def flags_of(found: Conditions) -> Iterator[Flag]:
    """Every flag that applies."""
    yield from _fatal(found)
    for guest in found.guests:
        yield from _policy_flags(guest, found)
    before, after = found.frequency_before_hz, found.frequency_after_hz
    if before > 0 and abs(after / before - 1) > _FREQUENCY:
        text = f"{before / 1e9:.2f} GHz before the trial, {after / 1e9:.2f} GHz after it"
        yield Flag("frequency-changed", text, fatal=False)
    if found.steal.blind:
        assert found.steal.stopped_ns is not None
        stopped = found.steal.stopped_ns / found.steal.capacity_ns
        text = f"the tested guest was stopped for {stopped:.0%} of its time, which it sees little or nothing of"
        yield Flag("guest-blind", text, fatal=False)
    if found.cached is not None:
        yield Flag("disk-cached", found.cached, fatal=False)


def _fatal(found: Conditions) -> Iterator[Flag]:
    loader = found.loader
    if loader is not None and loader.error is not None:
        yield Flag("loader-died", f"the load {loader.name} ended early: {loader.error}")
    elif loader is not None and not loader.units:
        yield Flag("loader-died", f"the load {loader.name} did nothing at all")
    for guest in found.guests:
        if guest.kills:
            yield Flag("out-of-memory", out_of_memory_words(guest.name, guest.kills, found.memory_mib))


def out_of_memory_words(name: str, kills: int, memory_mib: int) -> str:
    """Who was killed where."""
    processes = "a process" if kills == 1 else f"{kills} processes"
    return f"the host's kernel killed {processes} of the {name} guest at its memory limit of {memory_mib} MiB"


def _policy_flags(guest: GuestConditions, found: Conditions) -> Iterator[Flag]:
    concerned = set(found.asked)
    if guest.applied.declared.weight is not None:
        concerned.discard("reservation")  # brought about by that weight (policies.py), which is judged as such
    if found.buffered and "disk" in concerned:
        concerned.add("disk writes")  # those that are buffered, as drivers say it
    for reason in guest.applied.no_effect:
        if reason.split(":")[0] in concerned:
            yield Flag("policy-no-effect", f"{guest.name}: {reason}", fatal=False)
    limit, received = guest.applied.declared.cpu_limit, guest.received_cpus
    if limit is None or received is None:
        return
    allowed_ns = limit * (_UNBOUND * found.elapsed_ns + 2 * _PERIOD_NS)
    if received * found.elapsed_ns > allowed_ns:
        text = f"the {guest.name} guest received {received:.2f} CPUs in spite of its limit of {limit:g}"
        yield Flag("limit-unbound", text, fatal=False)
    # Where others held it back as far, the limit had nothing to stop.
    never = guest.throttling is not None and guest.throttling.throttled == 0 and received >= _REACHED * limit
    if never and guest.unlimited_cpus is not None and guest.unlimited_cpus > _BEYOND * limit:
        text = (
            f"the {guest.name} guest would have used {guest.unlimited_cpus:.2f} CPUs, but was never stopped "
            f"at its limit of {limit:g}"
        )
        yield Flag("never-throttled", text, fatal=False)

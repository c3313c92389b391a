"""What the ledger holds: plain records, the vocabulary between measuring and analysing."""

from __future__ import annotations

import dataclasses
import enum
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from virtgauge.analysis.distribution import Distribution, merge, samples_needed


class TrialStatus(enum.StrEnum):
    """How a trial ended.  Only ``VALID`` trials enter estimates; all are kept and shown."""

    VALID = "valid"
    INVALID = "invalid"  # measured, but a validity flag says that it must not count
    FAILED = "failed"  # no figure: time-out, guest died, agent refused
    UNSUPPORTED = "unsupported"  # this guest cannot do it; not repeated


@dataclasses.dataclass(frozen=True)
class Flag:
    """Why a trial must not count (``fatal``), or what a reader should know about it."""

    name: str  # ``foreign-load``, ``steal``, ``clock-drift``, ``time-out``, ``short`` …
    detail: str  # the figure and the bound, in words
    fatal: bool = True  # makes the trial invalid


@dataclasses.dataclass(frozen=True)
class Histogram(Distribution):
    """A measure's values over one trial, on the bins of an HDR histogram (3 significant digits)."""

    minimum: int
    maximum: int
    unit: str  # of the values (``ps`` for the timing suite)


@dataclasses.dataclass(frozen=True, kw_only=True)
class GuestRecord:
    """One launched guest (or a failed launch, with ``error``)."""

    guest_id: int = 0  # row number in the ledger; 0 where it has none yet
    arm: str
    platform: str
    block: int
    launched_at: str  # ISO 8601, UTC
    ready_ns: int | None
    facts: dict[str, Any]
    error: str | None = None


@dataclasses.dataclass(frozen=True)
class TrialRecord:
    """One measurement with every factor fixed."""

    trial_id: int  # row number in the ledger
    key: str  # the same for every attempt at the same cell of the design
    suite: str  # that was measured (``timing``)
    probe: str  # of the suite (``timer_cost``)
    arm: str  # the plan's name of the platform (``host``, ``host-aa``, ``gvisor`` …)
    platform: str  # kind (``host``, ``oci``, ``qemu``, ``simulated``)
    block: int  # number of the independent repetition, from 0; arms of one block are pairs
    attempt: int  # from 1
    factors: dict[str, str]  # the levels of this cell (function, load …) except platform
    status: TrialStatus
    flags: tuple[Flag, ...]  # validity; see :class:`Flag`
    result: dict[str, Any]  # the suite's scalars (``median_ns`` …) and what it wants to remember
    accounting: dict[str, Any]  # foreign load, steal, guest CPU time, elapsed; how many raw values its file has
    error: str | None  # one line when ``status`` is FAILED or UNSUPPORTED
    guest_id: int | None
    started_at: str
    elapsed_ns: int

    @property
    def reason(self) -> str | None:
        """Why it does not count: its error, else its first fatal flag; None of one that counts."""
        return self.error or next((f"{flag.name}: {flag.detail}" for flag in self.flags if flag.fatal), None)


@dataclasses.dataclass(frozen=True)
class ArmRecord:
    """One arm of the design: a platform of the plan under its name."""

    name: str  # as in the plan; the A/A arm is named ``<reference>-aa``
    kind: str  # platform kind
    label: str  # for people: ``gVisor (runsc, systrap)``
    role: str  # ``reference``, ``aa`` (the reference once more) or ``test``
    emulated: bool  # figures are marked and never ranked
    usable: bool  # False when it was skipped; then ``reason`` says why and ``fix`` what would enable it
    reason: str
    fix: str | None
    settings: dict[str, Any]  # the platform's section of the plan, resolved
    virtual: bool | None = None  # its guests are machines with a kernel of their own; None in runs that do not say
    recognised: str = ""  # the hypervisor that its guests were found to be of, where only they could tell
    processor: str = ""  # of another computer that they were found to run on; empty where that is the run's host
    physical: bool = False  # a machine that exists already, of which nothing says that it is a guest
    functional: bool = False  # emulated, but for its guests' user code: of a KVM that steps through their kernel's

    @property
    def mark(self) -> str:
        """What its figures are marked with, as they are never ranked; empty where they count."""
        return "functional" if self.functional else "emulated" if self.emulated else ""

    @property
    def is_virtual(self) -> bool:
        """Whether its guests are virtual machines; where a run does not say, all but the host and containers are."""
        return self.kind not in ("host", "oci") if self.virtual is None else self.virtual

    @property
    def is_bare(self) -> bool:
        """Whether it is a machine with nothing around it, as a paper's host, or simulates one."""
        return self.kind == "host" or self.simulated or self.physical

    @property
    def simulated(self) -> bool:
        """Whether its machine is invented."""
        return self.kind == "simulated"

    @property
    def hypervisor(self) -> str:
        """Whose virtual machines its guests are, as libvirt's URIs call it (``vbox``); empty where none is known."""
        if self.kind == "libvirt":
            return str(self.settings.get("uri", "")).partition(":")[0].partition("+")[0]
        return self.recognised or (self.kind if self.kind in ("qemu", "xen", "uml") else "")


class Attempt(NamedTuple):
    """The little of a trial that counting needs."""

    trial_id: int
    key: str
    attempt: int
    status: TrialStatus
    block: int
    started_at: str


BLOCKS_PER_HOST = 100_000
"""The blocks of a fleet's hosts are numbered apart, so that pairs are formed within a host and hosts count as
independent: repetition r of host i is block i · 100,000 + r."""


@dataclasses.dataclass(frozen=True)
class HostRecord:
    """One host of a fleet."""

    name: str  # as in the plan
    index: int  # from 0; says which blocks are the host's
    fingerprint: dict[str, Any]  # as of a single host's run
    machine: dict[str, str | None]  # what tells it from all others: machine ID, boot ID, product UUID where it has one
    arms: tuple[str, ...]  # names of those that can be used there

    @property
    def first_block(self) -> int:
        return self.index * BLOCKS_PER_HOST

    def owns(self, block: int) -> bool:
        return block // BLOCKS_PER_HOST == self.index


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What a run is: written once, before the first trial."""

    run_id: str  # folder name of the run
    created_at: str  # ISO 8601, UTC
    tool_version: str  # of virtgauge
    plan_name: str  # the preset's or file's name
    plan_text: str  # the plan as TOML, complete with every default and the seed
    seed: int  # of the schedule
    confidence: float  # nominal confidence of the intervals, e.g. 0.95.
    agent_sha256: str  # of the agent in every guest
    fingerprint: dict[str, Any]  # the host (kernel, CPU, microcode, mitigations, memory …)
    arms: tuple[ArmRecord, ...]  # in the plan's order, skipped ones included
    hosts: tuple[HostRecord, ...] = ()  # of a fleet, in the plan's order; none where the run had one host only


@dataclasses.dataclass(frozen=True)
class EventRecord:
    """Something worth knowing that is no trial: started, resumed, a changed fingerprint accepted, interrupted."""

    at: str
    kind: str
    detail: str


# The kinds of the events with which a run ends: whole, with something missing, by a signal.
COMPLETED, INCOMPLETE, INTERRUPTED = "completed", "ended incomplete", "interrupted"
_COURSE = frozenset({"started", "resumed", INTERRUPTED, INCOMPLETE, COMPLETED})


def course_of(events: Sequence[EventRecord]) -> str:
    """Where a run stands: the kind of the last event on its course; empty before any."""
    return next((event.kind for event in reversed(events) if event.kind in _COURSE), "")


def has_finished(events: Sequence[EventRecord]) -> bool:
    """Whether a run has recorded its end."""
    return course_of(events) == COMPLETED


def moment(at: str) -> str:
    """A time as the ledger has it, for people: ``2026-03-01 10:00:00``, in UTC."""
    return at[:19].replace("T", " ")


def run_labels(runs: Iterable[tuple[str, str]]) -> list[str]:
    """What runs are called, by their names and when each was made, which is told where two have one name."""
    known = list(runs)
    names = Counter(name for name, _ in known)
    return [name if names[name] == 1 else f"{name} ({moment(made)})" for name, made in known]


def unfinished_text(runs: str, number: int = 1) -> str:
    """What a reader must know of runs that have not finished; no sentence yet."""
    return f"{runs} {'has' if number == 1 else 'have'} not finished"


SCHEDULED = "scheduled"
"""The kind of the event that says how many trials a run is to make: ``540 trials``; the last one holds."""

TESTER = "tester"  # The kind of the event that says which suite of a host has its tester on another
ONE_MACHINE = "one-machine"  # The kind of the event that several hosts of a fleet may be one machine
DOUBT = "doubt"  # The kind of the event of what a reader must know of the guests: they may not be what the plan says


STATISTICS = ("p50", "half_iqr", "mad", "p90", "p99", "p99.9", "p99.99", "min", "max", "mean")
"""Recorded beside each histogram, so that a report over many trials need not unpack any."""
TAILS = {"p90": 0.9, "p99": 0.99, "p99.9": 0.999, "p99.99": 0.9999}

NS_PER_UNIT = {"ps": 1e-3, "ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}  # Of histograms of durations


def merged(histograms: Sequence[Histogram]) -> Histogram | None:
    """All values together, of several units those of the first; None without any."""
    return merge(one for one in histograms if one.unit == histograms[0].unit) if histograms else None


def statistics_of(distribution: Distribution) -> dict[str, float | None]:
    """The :data:`STATISTICS` of values, in their unit; a quantile is None where too few values lie beyond it."""
    tails = (float(value) for value in distribution.quantiles([*TAILS.values()]))
    found: dict[str, float | None] = {
        "p50": distribution.interpolated_median,
        "half_iqr": distribution.half_iqr,
        "mad": distribution.mad,
        "min": float(distribution.minimum),
        "max": float(distribution.maximum),
        "mean": distribution.mean,
    }
    for (name, share), value in zip(TAILS.items(), tails, strict=True):
        found[name] = value if distribution.n >= samples_needed(share) else None
    return found

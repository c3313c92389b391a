"""Why a platform's clock and sleep cost what they do, and what each remedy was measured to bring.

For every platform: what the guest says of itself (hypervisor, clock source, counter, slack, idle states), what the
measured figures say about it, and one sentence that a person can act on.  An effect is the difference of two cells of
the same run, paired by block: with and without the remedy, or, where the remedy is out of the guest's reach, here and
on the reference.  Where the run holds no such pair, the cause names the cells that it would take.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from virtgauge.analysis.comparison import paired_difference
from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import ArmRecord, TrialStatus
from virtgauge.results.columns import STATUSES
from virtgauge.results.formatting import duration, exact_duration, first_of, share
from virtgauge.results.quantities import DURATION, RATIO
from virtgauge.specs.blocks import Block, Column, Finding, Row, Text, Value, table_of
from virtgauge.specs.context import Context, marked
from virtgauge.specs.timing_insights import PROBES, load_label

TRAPPED_TSC_NS = 150.0
"""A counter that takes longer to read than this is not read by the processor alone: the hypervisor traps it."""
FALLEN_BACK_SHARE = 0.5  # A clock read that costs more than this share of a system call is no longer served by the vDSO
NEGLIGIBLE_STEAL = 0.001
_MOST_NAMED = 6  # Idle states that are named

_SIGNATURES = {
    "KVMKVMKVM": "KVM",
    "TCGTCGTCGTCG": "QEMU without hardware virtualization",
    "Microsoft Hv": "Hyper-V",
    "VMwareVMware": "VMware",
    "XenVMMXenVMM": "Xen",
    "VBoxVBoxVBox": "VirtualBox",
}
_FAST_CLOCKSOURCES = {"tsc", "tsc-early", "kvm-clock", "xen", "hyperv_clocksource_tsc_page", "arch_sys_counter"}


Blocks = Mapping[int, float]  # Medians (ns) by block
Medians = Mapping[tuple[str, frozenset[tuple[str, str]]], Blocks]
"""For every probe and combination of factor levels of one arm."""

_ABSENT = {"slack": "default", "policy": "other", "idle_states": "default"}
"""The level of a factor that a cell does not name."""
_PLAIN_SLEEPS = ("usleep", "nanosleep", "clock_nanosleep")
"""Sleeps that take slack and class as the program has them, the commonest first."""
_USUAL_TARGET_NS = 100_000


class Cause(NamedTuple):
    """One thing that decides what timing costs on a platform."""

    topic: str  # ``clock source``, ``vDSO`` …
    observed: str  # what was found
    sentence: str  # what a person can do about it
    # what the remedy brings, in ns saved (negative: it costs), over repetitions; None when nothing of it was
    # measured, because there is nothing to remedy or because the run has no pair of cells for it
    effect: Estimate | None = None
    # how many times less it costs with the remedy; None without an effect, and where the remedy is in place
    factor: float | None = None
    against: str = ""  # what the effect was found by, in a clause; empty without one
    # the cells that a plan must have for the effect to be measured; None where it was, or where none would do
    needs: str | None = None

    @property
    def helps(self) -> bool:
        """Whether there is something to do, and it was shown to help."""
        return self.factor is not None and self.effect is not None and (self.effect.low or 0.0) > 0


def causes(arm: Arm) -> tuple[Cause, ...]:
    """The causes of one arm, in the order in which to look at them."""
    looks = (_hypervisor, _clock_source, _vdso, _counter, _slack, _class, _steal, _idle_states)
    return tuple(look(arm) for look in looks) if arm.facts else ()


def summary(found: Sequence[Cause]) -> str:
    """The most important thing to do, by measured effect, in one sentence; empty without causes."""
    if not found:
        return ""
    best = max((cause for cause in found if cause.helps), key=lambda cause: cause.factor or 0.0, default=None)
    if best is not None:
        return f"{best.topic[0].upper()}{best.topic[1:]} first: {best.sentence}"
    unmeasured = ", ".join(cause.topic for cause in found if cause.needs)
    return f"No remedy was shown to help here{f'; not measured: {unmeasured}' if unmeasured else ''}."


class _Pair(NamedTuple):
    """A cell and its counterpart, by block, and the levels of the first."""

    before: Blocks
    after: Blocks
    function: str
    target: str
    load: str


class Arm(NamedTuple):
    """What is known of one arm."""

    facts: Mapping[str, Any]  # of one of its guests, as the agent saw them; empty where no guest came up
    medians: Medians  # of its valid trials
    nominal: float  # confidence of the intervals
    # the reference arm's medians; empty for the reference itself
    reference: Medians
    # why the guest could not do what a level of a factor asks, in its agent's words
    refusals: Mapping[tuple[str, str], str] = {}
    # the share of its CPU time that was stolen, seen from the host and inside; None where untold
    steal: tuple[float | None, float | None] = (None, None)

    def saved(self, before: Blocks, after: Blocks) -> Estimate:
        return paired_difference(before, after, "ns", self.nominal)

    def dear(self, topic: str, observed: str, sentence: str, function: str, needs: str | None) -> Cause:
        """A cause for which reading this clock costs more than on the reference, where that was measured, too."""
        here, there = (_reading(medians, function) for medians in (self.medians, self.reference))
        if not here or not there:
            return Cause(topic, observed, f"{sentence}.", needs=needs)
        against = f"on the reference it costs {duration(_point(there))}"
        factor = _point(here) / _point(there)
        return Cause(topic, observed, f"{sentence} ({against}).", self.saved(here, there), factor, against)

    def remedied(
        self, topic: str, observed: str, found: _Pair, helps: str, helps_not: str, surely: bool = False
    ) -> Cause:
        """What a remedy of a sleep brings; ``surely``: it helps only where its interval says so, too."""
        saved = self.saved(found.before, found.after)
        open_ = surely and saved.has_interval and not saved.excludes(0)
        if saved.point is None or saved.point <= 0 or open_:
            return Cause(topic, observed, helps_not, saved)
        against = f"{found.function} of {exact_duration(float(found.target))}, {load_label(found.load)}"
        after = _point(found.after)
        factor = _point(found.before) / after if after > 0 else math.inf
        return Cause(topic, observed, helps.format(duration(saved.point)), saved, factor, against)

    def refused(self, factor: str, level: str) -> str | None:
        """Why the guest could not do this at all, in its agent's words; None where it did not say so."""
        error = self.refusals.get((factor, level))
        return f"{error.rstrip('.')}." if error else None


def _hypervisor(arm: Arm) -> Cause:
    hypervisor = arm.facts.get("hypervisor") or {}
    if not hypervisor.get("present"):
        sentence = "The processor reports no hypervisor: bare metal, or a hypervisor that hides itself."
        return Cause("hypervisor", "none seen", sentence)
    signature = str(hypervisor.get("signature") or "").strip("\0 ")
    name = _SIGNATURES.get(signature, f"signature {signature!r}" if signature else "of unknown make")
    return Cause("hypervisor", name, f"This platform runs above {name}, which influences every figure.")


def _clock_source(arm: Arm) -> Cause:
    topic, source = "clock source", arm.facts.get("clocksource") or {}
    current, available = source.get("current"), source.get("available") or []
    if current is None:
        sentence = "This kernel does not report its clock source; only the cost of a read indicates it."
        return Cause(topic, "not told", sentence)
    if current in _FAST_CLOCKSOURCES:
        return Cause(topic, current, f"{current} is read without leaving the guest; nothing to change.")
    better = next((name for name in available if name in _FAST_CLOCKSOURCES), None)
    remedy = f"boot with clocksource={better}" if better else "there is nothing better: expose the TSC to the guest"
    needs = 'timers = ["clock_gettime"], idle, here and on a reference whose clock source is fast'
    return arm.dear(topic, current, f"{current} is read through the hypervisor; {remedy}", "clock_gettime", needs)


def _vdso(arm: Arm) -> Cause:
    plain, call = (_reading(arm.medians, name) for name in ("clock_gettime", "clock_gettime_syscall"))
    if not plain or not call:
        answers = arm.facts.get("vdso")
        observed = "not told" if answers is None else "answers" if answers else "falls back to a system call"
        needs = 'timers = ["clock_gettime", "clock_gettime_syscall"], idle'
        return Cause("vDSO", observed, "Measure the clock with and without the vDSO to see what it saves.", needs=needs)
    observed = f"{duration(_point(plain))} a read, {duration(_point(call))} as a system call"
    if _point(plain) > FALLEN_BACK_SHARE * _point(call):
        sentence = "clock_gettime has fallen back to a system call: change the clock source, or read the counter"
        return arm.dear("vDSO", observed, sentence, "clock_gettime", None)
    saved = arm.saved(call, plain)
    sentence = f"The vDSO serves clock reads and saves {duration(saved.point)} each; keep seccomp and tracers off it."
    return Cause("vDSO", observed, sentence, saved, against="against a system call; already so")


def _counter(arm: Arm) -> Cause:
    topic, tsc = "time stamp counter", arm.facts.get("tsc") or {}
    measured, system = (_reading(arm.medians, name) for name in ("rdtsc", "clock_gettime"))
    cost = _point(measured) if measured else tsc.get("read_p50_ns")
    if cost is None:
        return Cause(topic, "not readable", "Programs must use the system's clock here.")
    if cost > TRAPPED_TSC_NS:
        sentence = "Every read of the counter is trapped by the hypervisor: turn TSC emulation off for this guest"
        needs = 'timers = ["rdtsc"], idle, here and on a reference that does not trap it'
        return arm.dear(topic, f"trapped: {duration(cost)} a read", sentence, "rdtsc", needs)
    if not tsc.get("invariant"):
        sentence = "The guest's CPUID lacks the flag of an invariant counter, so nothing can rely on it: pass it on."
        return Cause(topic, f"{duration(cost)} a read, not invariant", sentence)
    observed = f"{duration(cost)} a read, invariant"
    if not measured or not system:
        needs = 'timers = ["rdtsc", "clock_gettime"], idle'
        return Cause(topic, observed, "Programs that need a cheap clock can read it directly.", needs=needs)
    saved = arm.saved(system, measured)
    if saved.low is None or saved.low <= 0:
        return Cause(topic, observed, "Reading it directly was not seen to be cheaper than the system's clock.", saved)
    sentence = f"Programs that need a cheap clock can read it directly and save {duration(saved.point)} a read."
    # A choice of the program's, which loses the system's adjustments: no remedy of the platform, so without a factor.
    return Cause(topic, observed, sentence, saved, against="against clock_gettime")


def _slack(arm: Arm) -> Cause:
    topic, slack_ns = "timer slack", arm.facts.get("timer_slack_ns")
    if slack_ns is None:
        return Cause(topic, "not taken", "This kernel has no timer slack: late wake-ups have another cause.")
    observed, found = f"{duration(slack_ns)} by default", _idle_pair(arm.medians, "slack", "minimal")
    if found is not None:
        sentence = "prctl(PR_SET_TIMERSLACK, 1) lets a sleep wake {} sooner."
        helps_not = "Setting the timer slack to 1 ns was not seen to help here."
        return arm.remedied(topic, observed, found, sentence, helps_not)
    if reason := arm.refused("slack", "minimal"):
        return Cause(topic, observed, f"It cannot be changed: {reason}")
    needs = 'sleeps = ["usleep"], slacks = ["default", "minimal"], idle'
    return Cause(topic, observed, "Measure usleep with both slacks to see the effect of 1 ns.", needs=needs)


def _class(arm: Arm) -> Cause:
    topic = "scheduling class"
    # Where another program can run first, the class matters most: so the load under which it saves most.
    pairs = _pairs(arm.medians, "policy", "fifo")
    found = max(pairs, key=lambda one: _point(one.before) - _point(one.after), default=None)
    if found is not None:
        observed = f"{duration(_point(found.before))} late as SCHED_OTHER, {duration(_point(found.after))} as FIFO"
        beside = "on an idle system" if found.load == "idle" else f"beside the {load_label(found.load)}"
        sentence = f"`chrt -f 50 PROGRAM` lets a sleep wake {{}} sooner {beside}."
        return arm.remedied(topic, observed, found, sentence, f"SCHED_FIFO was not seen to help {beside}.")
    if reason := arm.refused("policy", "fifo"):
        return Cause(topic, "SCHED_OTHER only", f"SCHED_FIFO is not available in this guest: {reason}")
    needs = 'sleeps = ["usleep"], policies = ["other", "fifo"], idle and beside the CPU load'
    return Cause(topic, "SCHED_OTHER", "Measure usleep in both classes to see the effect of SCHED_FIFO.", needs=needs)


def _steal(arm: Arm) -> Cause:
    said = (
        f"seen {where}: {'not told' if most is None else f'at most {share(most)} of its CPU time in a trial'}"
        for where, most in zip(("from the host", "inside"), arm.steal, strict=True)
    )
    worst = max((value for value in arm.steal if value is not None), default=None)
    if worst is None:
        sentence = "Neither the host nor the guest counts stolen time; look at the tails instead."
    elif worst < NEGLIGIBLE_STEAL:
        sentence = "The layers below took a negligible amount."
    elif (arm.steal[0] or 0.0) >= NEGLIGIBLE_STEAL:
        sentence = "The hypervisor below the host takes CPU time from it: reserve CPU there."
    else:
        sentence = "The host takes CPU time from this guest: pin its processors to dedicated CPUs."
    return Cause("steal", "; ".join(said), sentence)


def _idle_states(arm: Arm) -> Cause:
    topic, idle = "C-states", arm.facts.get("idle")
    # Whether this kernel itself chooses between idle states.
    visible = bool(idle and idle.get("states") and idle.get("driver") not in (None, "none"))
    observed = _described(idle) if idle and visible else "not told" if idle is None else "none visible"
    found, there = (_idle_pair(medians, "idle_states", "shallow") for medians in (arm.medians, arm.reference))
    if found is not None:
        sentence = (
            "`cpupower idle-set -D 0`, or idle=poll on the kernel's command line, lets a sleep wake {} sooner; the "
            "processors then never idle."
        )
        helps_not = "Holding the idle states off was not seen to help here."
        return arm.remedied(topic, observed, found, sentence, helps_not, surely=True)
    reason = arm.refused("idle_states", "shallow")
    if not visible:
        sentence = "The host decides: no C-state is visible here."
    elif reason:
        sentence = f"Only the host can hold them off: {reason}"
    else:
        sentence = "Hold them off for one trial to see what they cost."
    if there is not None:
        saved = arm.saved(there.before, there.after)
        helps = (saved.low or 0.0) > 0
        sooner = f"lets a sleep wake {duration(saved.point)} sooner" if helps else "was not seen to help"
        sentence += f" On the reference, holding them off {sooner}."
    needs = None if reason else 'sleeps = ["usleep"], idle_states = ["default", "shallow"], idle'
    return Cause(topic, observed, sentence, needs=needs)


def _described(idle: Mapping[str, Any]) -> str:
    """``intel_idle, menu: POLL 0 µs, C1 2 µs, C6 133 µs (disabled)``."""
    names, states = [part for part in (idle["driver"], idle.get("governor")) if part], []
    for state in idle["states"]:
        latency = "" if state.get("latency_us") is None else f" {state['latency_us']} µs"
        states.append(f"{state.get('name', '')}{latency}{' (disabled)' if state.get('disabled') else ''}")
    return f"{', '.join(dict.fromkeys(names))}: {first_of(states, _MOST_NAMED, ', ')}"


def _point(blocks: Blocks) -> float:
    return statistics.median(blocks.values())


def _reading(medians: Medians, function: str) -> Blocks:
    """What reading a clock costs on an idle system; empty where it was not measured."""
    wanted = {"function": function, "load": "idle"}.items()
    return next((blocks for (name, items), blocks in medians.items() if name == "timer_cost" and wanted <= items), {})


def _pairs(medians: Medians, factor: str, after: str) -> list[_Pair]:
    """The best pair under each load: two sleeps that differ in this factor and nothing else, the others at default.

    Of several, the plainest sleep's, with the target nearest to 100 µs.
    """
    by_levels = {
        frozenset((_ABSENT | dict(items)).items()): blocks
        for (probe, items), blocks in medians.items()
        if probe == "sleep_lateness"
    }
    best: dict[str, tuple[tuple[int, float], _Pair]] = {}
    for items, blocks in by_levels.items():
        levels = dict(items)
        other = by_levels.get(frozenset((levels | {factor: after}).items()))
        function, target, load = (levels.get(name, "") for name in ("function", "target_ns", "load"))
        if other is None or not _ABSENT.items() <= items or function not in _PLAIN_SLEEPS or not target.isdigit():
            continue
        rank = _PLAIN_SLEEPS.index(function), abs(math.log(max(int(target), 1) / _USUAL_TARGET_NS))
        if load not in best or rank < best[load][0]:
            best[load] = rank, _Pair(blocks, other, function, target, load)
    return [found for _, found in best.values()]


def _idle_pair(medians: Medians, factor: str, after: str) -> _Pair | None:
    """The pair on an idle system; None when there is none."""
    return next((one for one in _pairs(medians, factor, after) if one.load == "idle"), None)


def causes_of(context: Context) -> Iterator[tuple[ArmRecord, tuple[Cause, ...]]]:
    """The causes of every arm that has medians, but of the A/A arm."""
    medians = {arm.name: _medians(context, arm.name) for arm in context.arms}
    reference, steal = medians.get(context.table.reference, {}), context.once(steal_shares)
    for arm in context.arms:
        if medians[arm.name] and arm.role != "aa":
            facts, against = context.facts.get(arm.name, {}), {} if arm.role == "reference" else reference
            stolen, refusals = steal.get(arm.name, (None, None)), _refusals(context, arm.name)
            known = Arm(facts, medians[arm.name], context.table.confidence, against, refusals, stolen)
            if found := causes(known):
                yield arm, found


def _medians(context: Context, arm: str) -> Medians:
    return {
        (cell.probe, frozenset(cell.levels)): blocks
        for cell in context.where({"probe": PROBES})
        if (blocks := context.values(f"{cell.probe}.p50", cell, arm))
    }


def _refusals(context: Context, arm: str) -> dict[tuple[str, str], str]:
    """The first error of trials that an arm does not support, by factor and level."""
    found: dict[tuple[str, str], str] = {}
    for cell in context.cells:
        if error := context.table.endings.refused(cell, arm):
            found = dict.fromkeys(cell.levels, error) | found
    return found


def steal_shares(context: Context) -> dict[str, tuple[float | None, float | None]]:
    """By arm the largest share of CPU time that a trial of a repetition lost, seen from the host and inside.

    The median over repetitions; None where it was not told.
    """
    worst: dict[tuple[str, str], dict[int, float]] = {}
    for cell, arm, places, told in context.table.accounts():
        if cell.suite != context.spec.name:
            continue
        trials = context.table.trials
        went, blocks = trials.status[places] != STATUSES.index(TrialStatus.FAILED), trials.block[places]
        # What was left out is no part of the figures, but of what happens on this machine.
        left_out = np.zeros((blocks.size, 2))
        for place, some in enumerate(told.left_out):
            if some:
                left_out[place] = _left_out(some)
        inside = (context.facts.get(arm, {}).get("cpu") or {}).get("count") or 1
        for field, steal, processors, (stolen, more) in (
            ("steal_ns", told.steal_ns, told.steal_processors, left_out.T),
            ("guest_steal_ns", told.guest_steal_ns, np.full(blocks.size, inside), np.zeros((2, 1))),
        ):
            usable = went & ~np.isnan(steal) & (processors > 0) & (told.elapsed_ns > 0)
            with np.errstate(divide="ignore", invalid="ignore"):
                shares = (steal / processors + stolen) / (told.elapsed_ns + more)
            largest = worst.setdefault((arm, field), {}) if usable.any() else {}
            for block, found in zip(blocks[usable].tolist(), shares[usable].tolist(), strict=True):
                largest[block] = max(largest.get(block, 0.0), found)
    middle = {key: statistics.median(blocks.values()) for key, blocks in worst.items()}
    return {arm: (middle.get((arm, "steal_ns")), middle.get((arm, "guest_steal_ns"))) for arm, _ in middle}


def _left_out(some: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Of what was left out of a trial the time that was stolen of it, and how long it was."""
    stolen = sum(one["share"] * one["elapsed_ns"] for one in some if one["reason"] == "steal")
    return stolen, sum(one["elapsed_ns"] for one in some)


def why(context: Context) -> Iterator[Block]:
    """The first thing to do on each platform, then the causes of each."""
    known = list(causes_of(context))
    yield from (Text((summary(found),), arm.label, "finding") for arm, found in known)
    columns = (Column("found", text=True), "time saved", "times", Column("what to do", text=True))
    for arm, found in known:
        rows = []
        for cause in found:
            place = context.place("*", arm.name, cause=cause.topic)
            saved, needs = cause.effect, f" Not measured: that needs {cause.needs}." if cause.needs else ""
            shown = (
                Finding("cause.observed", place, cause.observed),
                context.of("cause.saved", place, saved, DURATION, hint=cause.against) if saved else None,
                Value.count("cause.factor", place, cause.factor, RATIO),
                cause.sentence + needs,
            )
            rows.append(Row((cause.topic,), "", shown))
        yield from table_of(marked(arm), ("Cause",), columns, rows, folded=True)

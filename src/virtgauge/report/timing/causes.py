"""Why a platform's clock and sleep cost what they do, and what each remedy was measured to bring.

For every platform: what the guest says of itself (hypervisor, clock source, counter, slack, idle states), what the
measured figures say about it, and one sentence that a person can act on.  An effect is the difference of two cells of
the same run, paired by block: with and without the remedy, or, where the remedy is out of the guest's reach, here and
on the reference.  Where the run holds no such pair, the cause names the cells that it would take.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from virtgauge.analysis.bootstrap import median_estimate
from virtgauge.analysis.comparison import paired_difference
from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import TrialRecord, TrialStatus
from virtgauge.report.timing.idle_states import described, visible
from virtgauge.report.timing.paired_cells import Medians, Pair, cell, pair, pairs, point
from virtgauge.report.words import duration, load_label, share

TRAPPED_TSC_NS = 150.0
"""A counter that takes longer to read than this is not read by the processor alone: the hypervisor traps it."""
FALLEN_BACK_SHARE = 0.5
"""A clock read that costs more than this share of a system call is no longer served by the vDSO."""
NEGLIGIBLE_STEAL = 0.001

_SIGNATURES = {
    "KVMKVMKVM": "KVM",
    "TCGTCGTCGTCG": "QEMU without hardware virtualization",
    "Microsoft Hv": "Hyper-V",
    "VMwareVMware": "VMware",
    "XenVMMXenVMM": "Xen",
    "VBoxVBoxVBox": "VirtualBox",
}
_FAST_CLOCKSOURCES = {"tsc", "tsc-early", "kvm-clock", "xen", "hyperv_clocksource_tsc_page", "arch_sys_counter"}


@dataclasses.dataclass(frozen=True)
class Cause:
    """One thing that decides what timing costs on a platform.

    Attributes:
        topic: ``clock source``, ``vDSO`` …
        observed: what was found.
        sentence: what a person can do about it.
        effect: what the remedy brings, in ns saved (negative: it costs), over repetitions; None when nothing of it was
            measured, because there is nothing to remedy or because the run has no pair of cells for it.
        factor: how many times less it costs with the remedy; None without an effect, and where the remedy is in place.
        against: what the effect was found by, in a clause; empty without one.
        needs: the cells that a plan must have for the effect to be measured; None where it was, or where none would do.
    """

    topic: str
    observed: str
    sentence: str
    effect: Estimate | None = None
    factor: float | None = None
    against: str = ""
    needs: str | None = None

    @property
    def helps(self) -> bool:
        """Whether there is something to do, and it was shown to help."""
        return self.factor is not None and self.effect is not None and (self.effect.low or 0.0) > 0


def causes(
    facts: Mapping[str, Any],
    medians: Medians,
    trials: Sequence[TrialRecord],
    nominal: float,
    reference: Medians | None = None,
) -> tuple[Cause, ...]:
    """The causes of one arm, in the order in which to look at them.

    Args:
        facts: of one of its guests, as the agent saw them; empty where no guest came up.
        medians: of its valid trials.
        trials: all of its trials, for steal and for what the guest refused.
        nominal: confidence of the intervals.
        reference: the reference arm's medians; None for the reference itself.
    """
    if not facts:
        return ()
    arm = _Arm(facts, medians, trials, nominal, reference)
    return (
        _hypervisor(arm),
        _clock_source(arm),
        _vdso(arm),
        _counter(arm),
        _slack(arm),
        _class(arm),
        _steal(arm),
        _idle_states(arm),
    )


def summary(found: Sequence[Cause]) -> str:
    """The most important thing to do, by measured effect, in one sentence; empty without causes."""
    if not found:
        return ""
    helping = [cause for cause in found if cause.helps]
    if helping:
        best = max(helping, key=lambda cause: cause.factor or 0.0)
        return f"{best.topic[0].upper()}{best.topic[1:]} first: {best.sentence}"
    unmeasured = [cause.topic for cause in found if cause.needs]
    text = "No remedy was shown to help here"
    return f"{text}; not measured: {', '.join(unmeasured)}." if unmeasured else f"{text}."


@dataclasses.dataclass(frozen=True)
class _Arm:
    """What is known of one arm; see :func:`causes`."""

    facts: Mapping[str, Any]
    medians: Medians
    trials: Sequence[TrialRecord]
    nominal: float
    reference: Medians | None

    def against_reference(self, function: str) -> tuple[Estimate | None, float | None, str]:
        """What reading this clock costs more than on the reference, how many times, and a clause that says so."""
        here = cell(self.medians, "timer_cost", function=function, load="idle")
        there = cell(self.reference or {}, "timer_cost", function=function, load="idle")
        if not here or not there:
            return None, None, ""
        saved = paired_difference(here, there, "ns", self.nominal)
        return saved, point(here) / point(there), f"on the reference it costs {duration(point(there))}"

    def saved(self, found: Pair) -> Estimate:
        return paired_difference(found.before, found.after, "ns", self.nominal)

    def refused(self, factor: str, level: str) -> str | None:
        """Why the guest could not do this at all, in its agent's words; None where it did not say so."""
        errors = (
            t.error for t in self.trials if t.status is TrialStatus.UNSUPPORTED and t.factors.get(factor) == level
        )
        return next((f"{error.rstrip('.')}." for error in errors if error), None)


def _hypervisor(arm: _Arm) -> Cause:
    hypervisor = arm.facts.get("hypervisor") or {}
    if not hypervisor.get("present"):
        return Cause("hypervisor", "none seen", "The processor reports none: bare metal, or one that hides.")
    signature = str(hypervisor.get("signature") or "").strip("\0 ")
    name = _SIGNATURES.get(signature, f"signature {signature!r}" if signature else "of unknown make")
    return Cause("hypervisor", name, f"Whatever runs here runs above {name}; its host has a say in every figure.")


def _clock_source(arm: _Arm) -> Cause:
    source = arm.facts.get("clocksource") or {}
    current, available = source.get("current"), source.get("available") or []
    if current is None:
        sentence = "This kernel does not tell its clock source; only the cost of a read says how it keeps time."
        return Cause("clock source", "not told", sentence)
    if current in _FAST_CLOCKSOURCES:
        return Cause("clock source", current, f"{current} is read without leaving the guest; nothing to change.")
    better = next((name for name in available if name in _FAST_CLOCKSOURCES), None)
    remedy = f"boot with clocksource={better}" if better else "there is nothing better: expose the TSC to the guest"
    sentence = f"{current} is read through the hypervisor; {remedy}"
    effect, factor, against = arm.against_reference("clock_gettime")
    if effect is None:
        needs = 'timers = ["clock_gettime"], idle, here and on a reference whose clock source is fast'
        return Cause("clock source", current, f"{sentence}.", needs=needs)
    return Cause("clock source", current, f"{sentence} ({against}).", effect, factor, against)


def _vdso(arm: _Arm) -> Cause:
    plain = cell(arm.medians, "timer_cost", function="clock_gettime", load="idle")
    call = cell(arm.medians, "timer_cost", function="clock_gettime_syscall", load="idle")
    if not plain or not call:
        answers = arm.facts.get("vdso")
        observed = "not told" if answers is None else "answers" if answers else "falls back to a system call"
        needs = 'timers = ["clock_gettime", "clock_gettime_syscall"], idle'
        return Cause("vDSO", observed, "Measure the clock with and without the vDSO to see what it saves.", needs=needs)
    observed = f"{duration(point(plain))} a read, {duration(point(call))} as a system call"
    if point(plain) > FALLEN_BACK_SHARE * point(call):
        sentence = "clock_gettime has fallen back to a system call: change the clock source, or read the counter"
        effect, factor, against = arm.against_reference("clock_gettime")
        if effect is None:
            return Cause("vDSO", observed, f"{sentence}.")
        return Cause("vDSO", observed, f"{sentence} ({against}).", effect, factor, against)
    saved = paired_difference(call, plain, "ns", arm.nominal)
    sentence = f"The vDSO serves clock reads and saves {duration(saved.point)} each; keep seccomp and tracers off it."
    return Cause("vDSO", observed, sentence, saved, against="against a system call; already so")


def _counter(arm: _Arm) -> Cause:
    topic, tsc = "time stamp counter", arm.facts.get("tsc") or {}
    measured = cell(arm.medians, "timer_cost", function="rdtsc", load="idle")
    cost = point(measured) if measured else tsc.get("read_p50_ns")
    if cost is None:
        return Cause(topic, "not readable", "Programs must use the system's clock here.")
    if cost > TRAPPED_TSC_NS:
        sentence = "Every read of the counter is trapped by the hypervisor: turn TSC emulation off for this guest"
        effect, factor, against = arm.against_reference("rdtsc")
        observed = f"trapped: {duration(cost)} a read"
        if effect is None:
            needs = 'timers = ["rdtsc"], idle, here and on a reference that does not trap it'
            return Cause(topic, observed, f"{sentence}.", needs=needs)
        return Cause(topic, observed, f"{sentence} ({against}).", effect, factor, against)
    if not tsc.get("invariant"):
        sentence = "The guest is not told that the counter is invariant, so nothing can rely on it: pass the flag on."
        return Cause(topic, f"{duration(cost)} a read, not invariant", sentence)
    system = cell(arm.medians, "timer_cost", function="clock_gettime", load="idle")
    observed = f"{duration(cost)} a read, invariant"
    if not measured or not system:
        needs = 'timers = ["rdtsc", "clock_gettime"], idle'
        return Cause(topic, observed, "Programs that need a cheap clock can read it directly.", needs=needs)
    saved = paired_difference(system, measured, "ns", arm.nominal)
    if saved.low is None or saved.low <= 0:
        return Cause(topic, observed, "Reading it directly was not seen to be cheaper than the system's clock.", saved)
    sentence = f"Programs that need a cheap clock can read it directly and save {duration(saved.point)} a read."
    # A choice of the program's, which loses the system's adjustments: no remedy of the platform, so without a factor.
    return Cause(topic, observed, sentence, saved, against="against clock_gettime")


def _slack(arm: _Arm) -> Cause:
    topic, slack_ns = "timer slack", arm.facts.get("timer_slack_ns")
    if slack_ns is None:
        sentence = "This kernel takes no timer slack: late wake-ups here have another cause."
        return Cause(topic, "not taken", sentence)
    observed = f"{duration(slack_ns)} by default"
    found = pair(arm.medians, "slack", "default", "minimal", "idle")
    if found is None:
        if reason := arm.refused("slack", "minimal"):
            return Cause(topic, observed, f"It cannot be changed: {reason}")
        needs = 'sleeps = ["usleep"], slacks = ["default", "minimal"], idle'
        return Cause(topic, observed, "Measure usleep with both slacks to see what 1 ns brings.", needs=needs)
    saved = arm.saved(found)
    if saved.point is None or saved.point <= 0:
        return Cause(topic, observed, "Setting the timer slack to 1 ns was not seen to help here.", saved)
    sentence = f"prctl(PR_SET_TIMERSLACK, 1) lets a sleep wake {duration(saved.point)} sooner."
    return Cause(topic, observed, sentence, saved, found.factor, found.text)


def _class(arm: _Arm) -> Cause:
    topic = "scheduling class"
    # Where another program can run first, the class matters most: so the load under which it saves most.
    found = max(pairs(arm.medians, "policy", "other", "fifo"), key=lambda one: one.saved_ns, default=None)
    if found is None:
        if reason := arm.refused("policy", "fifo"):
            return Cause(topic, "SCHED_OTHER only", f"SCHED_FIFO is not to be had in this guest: {reason}")
        needs = 'sleeps = ["usleep"], policies = ["other", "fifo"], idle and beside the CPU load'
        return Cause(topic, "SCHED_OTHER", "Measure usleep in both classes to see what SCHED_FIFO brings.", needs=needs)
    saved = arm.saved(found)
    observed = f"{duration(point(found.before))} late as SCHED_OTHER, {duration(point(found.after))} as FIFO"
    load = found.levels.get("load", "")
    beside = "on an idle system" if load == "idle" else f"beside the {load_label(load)}"
    if saved.point is None or saved.point <= 0:
        return Cause(topic, observed, f"SCHED_FIFO was not seen to help {beside}.", saved)
    sentence = f"`chrt -f 50 PROGRAM` lets a sleep wake {duration(saved.point)} sooner {beside}."
    return Cause(topic, observed, sentence, saved, found.factor, found.text)


def _steal(arm: _Arm) -> Cause:
    outside, inside = _steal_share(arm, "steal_ns"), _steal_share(arm, "guest_steal_ns")
    said = [
        f"{name}: {'not told' if worst is None else f'at most {share(worst)} of its CPU time in a trial'}"
        for name, worst in (("seen from the host", outside), ("seen inside", inside))
    ]
    observed = "; ".join(said)
    worst = max((value for value in (outside, inside) if value is not None), default=None)
    if worst is None:
        return Cause("steal", observed, "Neither the host nor the guest counts stolen time; look at the tails instead.")
    if worst < NEGLIGIBLE_STEAL:
        return Cause("steal", observed, "The layers below took nothing worth naming.")
    if outside is not None and outside >= NEGLIGIBLE_STEAL:
        return Cause("steal", observed, "The layer below the host takes time from it: reserve CPU there.")
    return Cause("steal", observed, "The host takes time from this guest: give its processors CPUs of their own.")


def _steal_share(arm: _Arm, field: str) -> float | None:
    """Median over repetitions of the largest share of processors' time that a trial of each lost; None if untold."""
    by_block: dict[int, list[float]] = {}
    for trial in arm.trials:
        steal = trial.accounting.get(field)
        inside = (arm.facts.get("cpu") or {}).get("count") or 1
        processors = trial.accounting.get("processors") if field == "steal_ns" else inside
        if trial.status is not TrialStatus.FAILED and steal is not None and processors and trial.elapsed_ns:
            by_block.setdefault(trial.block, []).append(steal / (trial.elapsed_ns * processors))
    if not by_block:
        return None
    return median_estimate([max(shares) for shares in by_block.values()], "share", arm.nominal).point


def _idle_states(arm: _Arm) -> Cause:
    topic, observed = "C-states", described(arm.facts.get("idle"))
    found = pair(arm.medians, "idle_states", "default", "shallow", "idle")
    if found is None:
        return _unmeasured_idle_states(arm, topic, observed)
    saved = arm.saved(found)
    if saved.point is None or saved.point <= 0 or (saved.has_interval and not saved.excludes(0)):
        return Cause(topic, observed, "Holding the idle states off was not seen to help here.", saved)
    sentence = (
        "`cpupower idle-set -D 0`, or idle=poll on the kernel's command line, lets a sleep wake "
        f"{duration(saved.point)} sooner, for processors that never rest."
    )
    return Cause(topic, observed, sentence, saved, found.factor, found.text)


def _unmeasured_idle_states(arm: _Arm, topic: str, observed: str) -> Cause:
    needs: str | None = 'sleeps = ["usleep"], idle_states = ["default", "shallow"], idle'
    if not visible(arm.facts.get("idle")):
        sentence = "The host decides: no C-state is visible here."
    else:
        sentence = "Hold them off for one trial to see what they cost."
    if reason := arm.refused("idle_states", "shallow"):
        needs = None
        sentence = sentence if not visible(arm.facts.get("idle")) else f"Only the host can hold them off: {reason}"
    there = pair(arm.reference or {}, "idle_states", "default", "shallow", "idle")
    if there is None or arm.reference is None:
        return Cause(topic, observed, sentence, needs=needs)
    saved = paired_difference(there.before, there.after, "ns", arm.nominal)
    if saved.low is not None and saved.low > 0:
        sentence += f" On the reference, holding them off lets a sleep wake {duration(saved.point)} sooner."
    else:
        sentence += " On the reference, holding them off was not seen to help."
    return Cause(topic, observed, sentence, needs=needs)

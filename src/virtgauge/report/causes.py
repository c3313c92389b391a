"""Why a platform's clock and sleep cost what they do, and what each remedy was measured to bring.

For every platform: what the guest says of itself (hypervisor, clock source, counter, slack), what the measured figures
say about it, and one sentence that a person can act on.  An effect is the difference of two cells of the same run,
paired by block; where the run holds no such pair, the cause says which one would be needed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from virtgauge.analysis.bootstrap import median_estimate
from virtgauge.analysis.comparison import paired_difference
from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import TrialRecord, TrialStatus
from virtgauge.report.words import duration

Medians = Mapping[tuple[str, frozenset[tuple[str, str]]], Mapping[int, float]]
"""Median (ns) by block, for every probe and combination of factor levels of one arm."""

TRAPPED_TSC_NS = 150.0
"""A counter that takes longer to read than this is not read by the processor alone: the hypervisor traps it."""
FALLEN_BACK_SHARE = 0.5
"""A clock read that costs more than this share of a system call is no longer served by the vDSO."""

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
        effect: what the remedy brings, in ns saved (negative: it costs), over repetitions; None when nothing of it was
            measured, because there is nothing to remedy or because the run has no pair of cells for it.
        sentence: what a person can do about it.
    """

    topic: str
    observed: str
    effect: Estimate | None
    sentence: str


def causes(
    facts: Mapping[str, Any], medians: Medians, trials: Sequence[TrialRecord], nominal: float
) -> tuple[Cause, ...]:
    """The causes of one arm, in the order in which to look at them.

    Args:
        facts: of one of its guests, as the agent saw them; empty where no guest came up.
        medians: of its valid trials.
        trials: all of its trials (for steal).
        nominal: confidence of the intervals.
    """
    if not facts:
        return ()
    found = [_hypervisor(facts), _clock_source(facts), _counter(facts, medians, nominal), _vdso(medians, nominal)]
    found += [_slack(facts, medians, nominal), _class(medians, nominal), _steal(trials, nominal)]
    return tuple(cause for cause in found if cause is not None)


def _hypervisor(facts: Mapping[str, Any]) -> Cause:
    hypervisor = facts.get("hypervisor") or {}
    if not hypervisor.get("present"):
        return Cause("hypervisor", "none seen", None, "The processor reports none: bare metal, or one that hides.")
    signature = str(hypervisor.get("signature") or "").strip("\0 ")
    name = _SIGNATURES.get(signature, f"signature {signature!r}" if signature else "of unknown make")
    return Cause("hypervisor", name, None, f"Whatever runs here runs above {name}; its host has a say in every figure.")


def _clock_source(facts: Mapping[str, Any]) -> Cause:
    source = facts.get("clocksource") or {}
    current, available = source.get("current"), source.get("available") or []
    if current is None:
        sentence = "This kernel does not tell its clock source; only the cost of a read says how it keeps time."
        return Cause("clock source", "not told", None, sentence)
    if current in _FAST_CLOCKSOURCES:
        return Cause("clock source", current, None, f"{current} is read without leaving the guest; nothing to change.")
    better = next((name for name in available if name in _FAST_CLOCKSOURCES), None)
    if better is None:
        sentence = (
            f"{current} is read through the hypervisor, and there is nothing better: expose the TSC to the guest."
        )
    else:
        sentence = f"{current} is read through the hypervisor; boot with clocksource={better}."
    return Cause("clock source", current, None, sentence)


def _counter(facts: Mapping[str, Any], medians: Medians, nominal: float) -> Cause:
    tsc = facts.get("tsc") or {}
    read = _estimate(medians, nominal, "timer_cost", function="rdtsc", load="idle")
    cost = read.point if read is not None else tsc.get("read_p50_ns")
    if cost is None:
        return Cause("time stamp counter", "not readable", None, "Programs must use the system's clock here.")
    if cost > TRAPPED_TSC_NS:
        sentence = "Every read of the counter is trapped by the hypervisor: turn TSC emulation off for this guest."
        return Cause("time stamp counter", f"trapped: {duration(cost)} a read", read, sentence)
    if not tsc.get("invariant"):
        sentence = "The guest is not told that the counter is invariant, so nothing can rely on it: pass the flag on."
        return Cause("time stamp counter", f"{duration(cost)} a read, not invariant", None, sentence)
    sentence = "Programs that need a cheap clock can read it directly."
    return Cause("time stamp counter", f"{duration(cost)} a read, invariant", None, sentence)


def _vdso(medians: Medians, nominal: float) -> Cause | None:
    plain = _cell(medians, "timer_cost", function="clock_gettime", load="idle")
    call = _cell(medians, "timer_cost", function="clock_gettime_syscall", load="idle")
    if not plain or not call:
        return None
    saved = paired_difference(call, plain, "ns", nominal)
    plain_ns, call_ns = _median(plain, nominal), _median(call, nominal)
    observed = f"{duration(plain_ns)} a read, {duration(call_ns)} as a system call"
    if plain_ns > FALLEN_BACK_SHARE * call_ns:
        sentence = "clock_gettime has fallen back to a system call: change the clock source, or read the counter."
        return Cause("vDSO", observed, None, sentence)
    sentence = f"The vDSO serves clock reads and saves {duration(saved.point)} each; keep seccomp and tracers off it."
    return Cause("vDSO", observed, saved, sentence)


def _slack(facts: Mapping[str, Any], medians: Medians, nominal: float) -> Cause | None:
    default, minimal = (
        _cell(medians, "sleep_lateness", function="usleep", slack=slack, load="idle")
        for slack in ("default", "minimal")
    )
    slack_ns = facts.get("timer_slack_ns")
    if slack_ns is None:
        sentence = "This kernel takes no timer slack: late wake-ups here have another cause."
        return Cause("timer slack", "not taken", None, sentence)
    observed = f"{duration(slack_ns)} by default"
    if not default or not minimal:
        return Cause("timer slack", observed, None, "Measure usleep with both slacks to see what 1 ns brings.")
    saved = paired_difference(default, minimal, "ns", nominal)
    if saved.point is not None and saved.point > 0:
        sentence = f"prctl(PR_SET_TIMERSLACK, 1) lets a sleep wake {duration(saved.point)} sooner."
    else:
        sentence = "Setting the timer slack to 1 ns was not seen to help here."
    return Cause("timer slack", observed, saved, sentence)


def _class(medians: Medians, nominal: float) -> Cause | None:
    for load in ("cpu", "idle"):
        other, fifo = (
            _cell(medians, "sleep_lateness", function="usleep", slack="default", policy=policy, load=load)
            for policy in ("other", "fifo")
        )
        if other and fifo:
            saved = paired_difference(other, fifo, "ns", nominal)
            observed = (
                f"{duration(_median(other, nominal))} late as SCHED_OTHER, {duration(_median(fifo, nominal))} as FIFO"
            )
            beside = "beside the CPU load" if load == "cpu" else "on an idle system"
            if saved.point is not None and saved.point > 0:
                sentence = f"`chrt -f 50 PROGRAM` lets a sleep wake {duration(saved.point)} sooner {beside}."
            else:
                sentence = f"SCHED_FIFO was not seen to help {beside}."
            return Cause("scheduling class", observed, saved, sentence)
    return None


def _steal(trials: Sequence[TrialRecord], nominal: float) -> Cause | None:
    by_block: dict[int, list[float]] = {}
    for trial in trials:
        steal, processors = trial.accounting.get("steal_ns"), trial.accounting.get("processors")
        if trial.status is not TrialStatus.FAILED and steal is not None and processors and trial.elapsed_ns:
            by_block.setdefault(trial.block, []).append(steal / (trial.elapsed_ns * processors))
    if not by_block:
        return None
    share = median_estimate([max(shares) for shares in by_block.values()], "share", nominal)
    assert share.point is not None
    observed = f"at most {share.point:.1%} of the host's CPU time in a trial"
    if share.point < 0.001:
        return Cause("steal", observed, None, "The layer below this host took nothing worth naming.")
    return Cause(
        "steal",
        observed,
        None,
        "The layer below this host takes time from it: reserve CPU there.",
    )


def _cell(medians: Medians, probe: str, **levels: str) -> Mapping[int, float]:
    """Medians by block of the first cell with these levels; empty when there is none."""
    wanted = frozenset(levels.items())
    return next((blocks for (name, items), blocks in medians.items() if name == probe and wanted <= items), {})


def _estimate(medians: Medians, nominal: float, probe: str, **levels: str) -> Estimate | None:
    blocks = _cell(medians, probe, **levels)
    return median_estimate(list(blocks.values()), "ns", nominal) if blocks else None


def _median(blocks: Mapping[int, float], nominal: float) -> float:
    point = median_estimate(list(blocks.values()), "ns", nominal).point
    assert point is not None
    return point

"""Why the worst cycles were late: the causes that traces of the host's kernel name, how often, and what to do."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from virtgauge.analysis import courses
from virtgauge.analysis.spikes import MOST_PARTS
from virtgauge.results.formatting import duration
from virtgauge.results.quantities import DURATION, SHARE
from virtgauge.specs.blocks import Axis, Block, Column, Finding, Row, Value, chart_of, table_of
from virtgauge.specs.context import Context, marked
from virtgauge.specs.timing_insights import cell_label

_MOST_NAMED, _MOST_LATEST = 3, 10

# By cause what happened, in a clause, and what to do.
_WORDS = {
    courses.ABOVE: (
        "nothing ran that Linux knows of",
        "A hypervisor below: reserve the CPU there. Idle: no deep idle states (/dev/cpu_dma_latency). Firmware: look "
        "by hwlatdetect. A program by name may have held interrupts off.",
    ),
    courses.PREEMPTED: (
        "another program ran",
        "Keep it off this CPU (cpusets, isolcpus), or give the cycle a higher real-time priority. A less urgent one "
        "was in the kernel, which PREEMPT_RT interrupts.",
    ),
    courses.INTERRUPT: (
        "an interrupt was served",
        "Send it to another CPU (/proc/irq/*/smp_affinity); for softirqs the network's queues, too; nohz_full for the "
        "timer's.",
    ),
    courses.VM_EXIT: (
        "the virtual processor was out of its guest",
        "Avoid exits of that reason: huge pages, interrupts posted to the guest. Halted: kvm.halt_poll_ns, or a guest "
        "that does not halt (idle=poll).",
    ),
    courses.GUEST: (
        "its guest did something else",
        "In the guest: a higher real-time priority, CPUs that are isolated there, fewer emulated devices.",
    ),
    courses.FAULT: ("a page was missing", "Lock the memory (mlockall) and touch all of it beforehand."),
    courses.THROTTLED: (
        "it might not run",
        "A quota: raise cpu.max, or take it off. A real-time class: kernel.sched_rt_runtime_us = -1, and no runtime "
        "for the fair servers, if the cycle is known to leave time to others.",
    ),
    courses.TIMER: (
        "its timer fired late",
        "Set the timer slack to 1 ns. The kernel needs high-resolution timers (highres=on). Of another CPU: nohz_full "
        "leaves timers to others, which were late; kernel.timer_migration = 0 keeps them.",
    ),
    courses.STOPPED: ("it was stopped", "Find who sends SIGSTOP or traces the process."),
    courses.CLOCK: ("the clock jumped", "Find what sets the clock, or take another clock source; no thread was late."),
    courses.UNKNOWN: ("no cause explains half of it", "What followed what, the table of the latest cycles tells."),
    courses.UNRECORDED: (
        "not recorded",
        "A guest whose processors are no known threads of this machine is not seen from it. Overwritten: shorter "
        "trials (seconds), or name the cpus of the cycles.",
    ),
}


class _Late(NamedTuple):
    """One cycle, as the record of its trial has it."""

    cause: str
    by: str
    ns: int
    course: tuple[courses.Part, ...]  # what followed what
    inside: tuple[courses.Part, ...]  # the same by the guest's own kernel


def _late(worst: Any) -> list[_Late]:
    """What is no such record, in a run from anywhere, is left out."""
    found = []
    for one in worst if isinstance(worst, list) else ():
        told = one if isinstance(one, dict) else {}
        for part in _course([[str(told.get("cause")), told.get("by"), told.get("late_ns")]]):
            found.append(_Late(*part, _course(told.get("course")), _course(told.get("inside"))))
    return found


def _course(parts: Any) -> tuple[courses.Part, ...]:
    told = []
    for part in parts if isinstance(parts, list) else ():
        cause, by, ns = part if isinstance(part, list) and len(part) == 3 else ("", "", None)
        if cause in _WORDS and isinstance(ns, int) and 0 <= ns < 2**63:
            told.append(courses.Part(cause, str(by or ""), ns))
    return tuple(told)


def _named(part: courses.Part) -> str:
    return f"{courses.named(part.cause, part.by)} {duration(part.ns)}"


def _words(parts: tuple[courses.Part, ...]) -> str:
    """``timer 0.12 ms → preempted: hog 4.9 ms``; empty where there is none."""
    return " → ".join(map(_named, parts))


def late_causes(context: Context) -> Iterator[Block]:
    """Of each arm two tables: cells by causes, the most frequent first, and what followed what in the latest cycles."""
    columns = (Column("by", text=True), "of the worst", "share", "latest", Column("what to do", text=True))
    for arm in context.own_arms:
        rows, latest = [], list[tuple[str, _Late]]()
        for cell in context.where({"probe": ("cycle",)}):
            trials = context.table.details(cell, arm.name, (("spikes", "worst"),), _late).values()
            late = [*itertools.chain.from_iterable(trials)]
            label = cell_label(context, cell)
            latest += ((label, one) for one in late if one.course or one.inside)
            for cause, times in Counter(one.cause for one in late).most_common():
                place = context.place(cell, arm.name, cause=cause)
                own = [one for one in late if one.cause == cause]
                named = Counter(one.by for one in own if one.by).most_common(_MOST_NAMED)
                by = ", ".join(f"{name} ({number})" for name, number in named)
                figures = (
                    Finding("cycle.cause.by", place, by) if by else None,
                    Value.count("cycle.cause.times", place, times),
                    Value.count("cycle.cause.share", place, 100 * times / len(late), SHARE),
                    Value.count("cycle.cause.latest", place, max(one.ns for one in own), DURATION),
                )
                rows.append(Row((label, _WORDS[cause][0]), "", (*figures, _WORDS[cause][1])))
        yield from table_of(marked(arm), ("Cycles", "Cause"), columns, rows)
        latest.sort(key=lambda one: -one[1].ns)
        yield from _courses(marked(arm), latest[:_MOST_LATEST])


def _courses(title: str, latest: Sequence[tuple[str, _Late]]) -> Iterator[Block]:
    """A drawing of what followed what in some cycles, and a table of the same."""
    inside = any(one.inside for _, one in latest)
    texts = [Column(told, text=True) for told in ("late by", "meanwhile", "in the guest")[: 2 + inside]]
    rows = [
        Row((label,), "", (duration(one.ns), _words(one.course), _words(one.inside))[: len(texts)])
        for label, one in latest
    ]
    title = f"{title}: the latest cycles, from the deadline on"
    spans = [
        {
            **{"kind": "ours", "category": f"{place}. {duration(one.ns)}", "label": f"{place}.", "at": f"{lane},"},
            **{"lane": lane, "x": end - part.ns, "x2": end, "cause": part.cause, "t": _named(part)},
        }
        for place, (_, one) in enumerate(latest, 1)
        for lane, parts in (("the host's kernel", one.course), ("the guest's kernel", one.inside))
        if len(parts) < MOST_PARTS  # else they may be sums
        for part, end in zip(parts, itertools.accumulate(part.ns for part in parts), strict=True)
    ]
    caption = "Each bar is a cycle, by what kept its thread from running"
    caption += "; above as the host's kernel saw it, below the guest's." if inside else "."
    axes = Axis("time since the deadline", DURATION, "linear"), Axis("")
    yield from chart_of("spans", title, caption, axes, [("", spans)])
    yield from table_of(title, ("Cycles",), texts, rows, folded=True)

"""Why a thread was late: what its processor did instead, by the events that the kernel recorded meanwhile.

The time from the deadline to the wake-up is divided, from event to event, by what kept the thread from running; the
cause with the largest part is named if that is at least half of all.  The clock of the trace has to be the one that the
lateness was measured by.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from virtgauge.analysis import courses
from virtgauge.analysis.courses import UNKNOWN, UNRECORDED, Course, Followed, Part, SandboxCourse, named
from virtgauge.analysis.kernel_trace import ROUNDED_NS, WAITING, Recorded, Spike, Window, cut

NAMED_SHARE = 0.5  # Of the lateness, which a cause explains at least that is named
MOST_PARTS, _SHORTEST = 8, 100  # That are told of one; such a part of the lateness is the shortest that is told
_APART_NS = 1_000_000  # Between two spikes whose times tell a rate of the counter
_SLEWED = 5e-4  # The most by which Linux lets a clock be slewed (adjtimex(2): 500 ppm)


@dataclasses.dataclass(frozen=True)
class Attribution:
    """Why a thread was late, as far as that was recorded."""

    cause: str  # one of :data:`courses.CAUSES`
    by: str = ""  # see :class:`Part`; of what was not recorded, why
    share: float = 0.0  # of the lateness, that the cause explains; where it is unknown, that the largest part has
    course: tuple[Part, ...] = ()  # from the deadline to the wake-up, see :func:`_told`
    inside: tuple[Part, ...] = ()  # the same as the guest's own kernel saw it


_OVERWRITTEN = Attribution(UNRECORDED, "overwritten by later events")
_CLOCKS = Attribution(UNRECORDED, "clocks of guest and host not known well")


def attributions(
    lines: Iterable[str],
    spikes: Sequence[Spike],
    *,
    quota: bool = True,
    uncertain_ns: int = 0,
    lead_ns: int | None = None,
    sent: int | None = None,
) -> list[Attribution]:
    """Why each of some threads was late, by a trace, whose lines are read once.

    Args:
        quota: whether the quota of their group had run out at any time.
        uncertain_ns: by how much their times may be wrong by the clock of the trace; a cause is told that is the same
            in the middle and at both bounds.
        lead_ns: where the lines are of the time around the threads alone, from how long before each deadline.
        sent: then of how many of the threads, from the first on; None: of all.
    """
    shifts = (0, -uncertain_ns, uncertain_ns) if uncertain_ns else (0,)
    told = spikes[:sent]
    moved = [dataclasses.replace(one, over_ns=one.over_ns + shift) for shift in shifts for one in told]
    recorded, jumps = cut(lines, moved, 2 * uncertain_ns, lead_ns=lead_ns), clock_jumps(spikes)
    found = []
    for place, spike in enumerate(spikes):
        share = jumps.get(spike, 0.0) / max(spike.late_ns, 1)
        if share >= NAMED_SHARE:
            found.append(Attribution(courses.CLOCK, "", min(share, 1.0)))
        elif uncertain_ns > NAMED_SHARE * spike.late_ns:
            found.append(_CLOCKS)
        elif place >= len(told):
            found.append(Attribution(UNRECORDED, "more events than are sent"))
        else:
            windows = recorded.windows[place :: len(told)]
            found.append(_agreed([attributed(one, recorded, quota=quota) for one in windows]))
    return found


def processors(
    lines: Iterable[str], spikes: Sequence[Spike], lead_ns: int, sent: int | None = None
) -> list[int | None]:
    """Of a trace the processor of each thread: where it was woken, and ran then.

    None where these are two, as what delayed it may have been on either, where threads of that name are none or
    several, and where that was not recorded; ``lead_ns`` and ``sent`` as of :func:`attributions`.
    """
    recorded = cut(lines, spikes[:sent], lead_ns=lead_ns)
    found = [_processor(window, recorded) for window in recorded.windows]
    return found + [None] * (len(spikes) - len(found))


def _processor(window: Window, recorded: Recorded) -> int | None:
    spike, cpus = window.spike, {*_places(window).items()}
    for event in (*window.before, *window.events):
        if event.woken and event.woken.name == spike.thread and event.at_ns <= spike.over_ns:
            cpus.add((event.woken.pid, event.cpu))
    if len(cpus) != 1:
        return None
    ((_, cpu),) = cpus
    overwritten = recorded.overwritten and recorded.began_ns.get(cpu, math.inf) > spike.due_ns
    return None if overwritten else cpu


def _agreed(found: Sequence[Attribution]) -> Attribution:
    """The first, where all name the same; else what was not recorded of one of them, if that is the reason."""
    if len({(one.cause, one.by) for one in found}) == 1:
        return found[0]
    return next((one for one in found if one.cause == UNRECORDED), _CLOCKS)


def joined(outside: Attribution, inside: Attribution) -> Attribution:
    """Of a cycle of a guest what both kernels tell: its own is asked where the host's let it run, or saw nothing.

    One that was stopped took the time for that of whatever it ran.
    """
    known = inside.cause not in (UNKNOWN, UNRECORDED)
    silent = outside.cause == UNRECORDED and outside.by != _CLOCKS.by
    if known and inside.cause == courses.ABOVE and silent:
        return dataclasses.replace(inside, course=outside.course, inside=inside.course)
    if known and inside.cause != courses.ABOVE and (outside.cause == courses.GUEST or silent):
        share = outside.share or inside.share
        return Attribution(courses.GUEST, named(inside.cause, inside.by), share, outside.course, inside.course)
    return dataclasses.replace(outside, inside=inside.course)


def attributed(window: Window, recorded: Recorded, *, quota: bool) -> Attribution:
    """Why one thread was late; see :func:`attributions`."""
    if not window.whole:
        return Attribution(UNRECORDED, "more events than are kept")
    spike, places = window.spike, _places(window)
    if len(places) > 1 and not spike.sandbox:
        return Attribution(UNRECORDED, "several threads of that name")
    cpus = [*recorded.began_ns] if spike.sandbox and places else [*places.values()]
    began_ns = max((recorded.began_ns.get(cpu, math.inf) for cpu in cpus), default=math.inf)
    if recorded.overwritten and began_ns > spike.due_ns:
        return _OVERWRITTEN
    if not (places or spike.vcpu) and any(spike.concerns(name, pid) for pid, name in recorded.names.items()):
        return Attribution(UNKNOWN, "switch not recorded")
    if not places:
        return Attribution(UNRECORDED, "no thread of that name was seen")
    if spike.sandbox:
        course: Followed = SandboxCourse(window, places, recorded.names, quota=quota)
    else:
        course = Course(window, *next(iter(places.items())), recorded.names, quota=quota)
    parts = course.parts()
    if recorded.overwritten and course.unwoken:  # in the ring of another processor
        return _OVERWRITTEN
    causes, each = Counter[str](), Counter[tuple[str, str]]()
    for cause, by, ns in parts:
        causes[cause] += ns
        each[cause, by] += ns
    told = tuple(_told(parts))
    cause, explained_ns = causes.most_common(1)[0]
    share = explained_ns / max(spike.late_ns, 1)
    if cause == UNKNOWN or share < NAMED_SHARE:
        return Attribution(UNKNOWN, "", share, told)
    return Attribution(cause, next(by for (of, by), _ in each.most_common() if of == cause), share, told)


def _told(parts: Sequence[Part]) -> list[Part]:
    """Parts in their order, those that are too short with the one before; of too many their sums, the largest first."""
    least_ns = sum(part.ns for part in parts) // _SHORTEST
    found = list[Part]()
    for cause, by, ns in parts:
        if found and (ns < least_ns or (cause, by) == found[-1][:2]):
            found[-1] = found[-1]._replace(ns=found[-1].ns + ns)
        elif len(found) == 1 and found[0].ns < least_ns:
            found[0] = Part(cause, by, ns + found[0].ns)
        else:
            found.append(Part(cause, by, ns))
    if len(found) <= MOST_PARTS and max(part.ns for part in parts) >= least_ns:
        return found
    sums = Counter[tuple[str, str]]()
    for cause, by, ns in parts:
        sums[cause, by] += ns
    return [Part(cause, by, ns) for (cause, by), ns in sums.most_common(MOST_PARTS)]


def clock_jumps(spikes: Sequence[Spike]) -> dict[Spike, float]:
    """By how many nanoseconds the clock got ahead of the counter at spikes, beyond what slewing can explain.

    The counter's rate is the median between neighbouring spikes; without three such pairs nothing is said.
    """
    ordered = sorted(spikes, key=lambda one: one.over_ns)
    apart = [(one.over_ns - last.over_ns, one.counter - last.counter) for last, one in itertools.pairwise(ordered)]
    rates = [ticks / ns for ns, ticks in apart if ns >= _APART_NS and ticks > 0]
    if len(rates) < 3:
        return {}
    rate = statistics.median(rates)
    jumps = [ns - ticks / rate - _SLEWED * ns for ns, ticks in apart]
    return {one: jump for one, jump in zip(ordered[1:], jumps, strict=True) if jump > 0}


def _places(window: Window) -> dict[int, int]:
    """The processors of the threads of that name that ran when the late one had woken; another run may have such.

    Of a sandbox, where each of its threads was first.
    Where none was seen to run, those that were sent away: some kernels record no switch from an idle thread.
    """
    spike = window.spike
    if spike.sandbox:
        seen_on = dict[int, int]()
        for event in (*window.before, *window.events):
            switched = (event.switch.left.pid, event.switch.came.pid) if event.switch else ()
            for pid in spike.sandbox.intersection((event.pid, *switched)):
                seen_on.setdefault(pid, event.cpu)
        return seen_on
    if spike.vcpu:
        on = [window.vcpu_on, *(event.cpu for event in window.events if event.pid == spike.vcpu)]
        on += [event.cpu for event in window.events if event.switch and event.switch.came.pid == spike.vcpu]
        cpu = next((one for one in on if one is not None), None)
        return {} if cpu is None else {spike.vcpu: cpu}
    places, sent_away = dict[int, int](), dict[int, int]()  # by pid
    for event in (*window.before, *window.events):
        switch = event.switch
        if switch and switch.left.name == spike.thread and event.at_ns + ROUNDED_NS <= spike.over_ns:
            places.pop(switch.left.pid, None)
            if switch.state == WAITING:
                sent_away[switch.left.pid] = event.cpu
        if switch and switch.came.name == spike.thread:
            places[switch.came.pid] = event.cpu
    return places or sent_away

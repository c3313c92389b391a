"""One sentence for each resource on each arm: isolated, partly, not at all, and by how much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from virtgauge.analysis.comparison import aa_band
from virtgauge.analysis.estimate import Estimate
from virtgauge.report.isolation.model import Cell, Degree, Interference, Key, ResourceSentence
from virtgauge.report.isolation.vocabulary import (
    BOTH,
    DISK_LIMIT,
    LIMIT,
    LOADING,
    NOTHING,
    RESERVATION,
    SHORT_CORES,
    TESTED,
    WEIGHT,
    Resource,
    amount,
)
from virtgauge.report.words import duration

ISOLATED_FROM = 0.95
"""Kept of what was promised: from here on a resource counts as isolated."""
FAIR_SHARE, FAIR_INTERVAL = 0.6, 0.75
"""A guest that keeps no more than this is not isolated: half is what a fair share gives two guests without a policy.
The second bounds the upper end of the interval."""

_STRENGTH = (
    *((policy, on) for on in (TESTED, LOADING) for policy in (BOTH, RESERVATION, WEIGHT)),
    *((LIMIT, TESTED), (LIMIT, LOADING), (NOTHING, NOTHING)),
)
_OF_DISKS = ((DISK_LIMIT, LOADING), (DISK_LIMIT, TESTED))
"""Policies and who has them, that which should protect the tested guest best first."""


def degree_of(kept: Estimate, aa: Estimate | None = None) -> Degree:
    """How well a resource is kept apart.

    Args:
        kept: of what was promised.
        aa: ratio of identical arms in the same cell: what lies within its band is no difference.
    """
    if kept.point is None:
        return Degree.OPEN
    low = kept.point if kept.low is None else kept.low
    high = kept.point if kept.high is None else kept.high
    band = aa_band(aa) or 1.0
    if low >= ISOLATED_FROM or (kept.point >= ISOLATED_FROM and (high >= 1 or kept.point * band >= 1)):
        return Degree.ISOLATED
    return Degree.NOT if kept.point <= FAIR_SHARE or high < FAIR_INTERVAL else Degree.PARTLY


def resource_sentences(
    interference: Sequence[Interference],
    cells: Sequence[Cell],
    aa_ratios: Mapping[Key, Estimate],
    arms: Sequence[str],
) -> tuple[ResourceSentence, ...]:
    """Every resource on every arm, in the order of :class:`Resource`; what was not measured says why.

    Args:
        interference: of the run.
        cells: the same run's.
        aa_ratios: of the work of identical arms, by cell.
        arms: to tell of, by name.
    """
    by_key = {cell.key: cell for cell in cells}
    return tuple(_sentence(arm, resource, interference, by_key, aa_ratios) for arm in arms for resource in Resource)


def _sentence(
    arm: str,
    resource: Resource,
    interference: Sequence[Interference],
    cells: Mapping[Key, Cell],
    aa_ratios: Mapping[Key, Estimate],
) -> ResourceSentence:
    own = [one for one in interference if one.arm == arm and one.key.resource is resource]
    measured = [one for one in own if one.kept.point is not None]
    if not measured:
        reason = _why_open(arm, resource, own, cells)
        return ResourceSentence(arm, resource, Degree.OPEN, reason, Estimate.missing("ratio", reason), None)
    order = (*_OF_DISKS, *_STRENGTH) if resource is Resource.DISK else _STRENGTH
    tried = {(one.key.policy, one.key.on) for one in measured}
    policy = next((place for place in order if place in tried), (NOTHING, NOTHING))
    worst = _worst(measured, policy)
    assert worst is not None
    degree = degree_of(worst.kept, aa_ratios.get(worst.key))
    text = _kept_words(worst, cells[worst.key])
    free = _worst(measured, (NOTHING, NOTHING))
    if free is not None and policy != (NOTHING, NOTHING):
        text += f"; without a policy {amount(free.kept, resource)}"
    return ResourceSentence(arm, resource, degree, f"{text}.", worst.kept, worst.key)


def _worst(measured: Sequence[Interference], policy: tuple[str, str]) -> Interference | None:
    own = [one for one in measured if (one.key.policy, one.key.on) == policy]
    return min(own, key=lambda one: one.kept.point or 0.0, default=None)


def _why_open(arm: str, resource: Resource, own: Sequence[Interference], cells: Mapping[Key, Cell]) -> str:
    if own:
        return own[-1].kept.method
    tried = [series for key, cell in cells.items() if key.resource is resource and (series := cell.of(arm))]
    missing = [series.missing for series in tried if series.missing]
    if missing and len(missing) == len(tried):
        return missing[-1]
    return f"the plan has no {'load beside it' if tried else 'benchmark of it'}"


def _kept_words(worst: Interference, cell: Cell) -> str:
    """``with limit and reservation of 50 % on the tested guest, memory write … keeps 98 % (97–99 %) of …``."""
    key = worst.key
    under = "" if key.free else f"with {key.policy_label}, "
    beside = f"beside {key.load_label} ({SHORT_CORES.get(key.cores, key.cores)})"
    if key.resource is Resource.WAKE:
        series = cell.of(worst.arm)
        late = duration(series.latency_p99_ns.point) if series else "–"
        return f"{under}the p99 of wake-ups is {late} late {beside}, {amount(worst.kept, key.resource)} as without"
    of = "its unloaded work" if key.free or key.resource is Resource.DISK else "what is promised"
    return f"{under}{key.benchmark_label} keeps {amount(worst.kept)} of {of} {beside}"

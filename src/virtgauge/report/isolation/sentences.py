"""One sentence for each resource on each arm: isolated, partly, not at all, and by how much."""

from __future__ import annotations

import dataclasses
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
    wake_tail: float,
) -> tuple[ResourceSentence, ...]:
    """Every resource on every arm, in the order of :class:`Resource`; what was not measured says why.

    Args:
        interference: of the run.
        cells: the same run's.
        aa_ratios: of the work of identical arms, by cell.
        arms: to tell of, by name.
        wake_tail: quantile of the lateness that stands for waking up.
    """
    by_key = {cell.key: cell for cell in cells}
    teller = _Teller(interference, by_key, aa_ratios, wake_tail)
    return tuple(teller.sentence(arm, resource) for arm in arms for resource in Resource)


@dataclasses.dataclass(frozen=True)
class _Teller:
    """What sentences are made of; see :func:`resource_sentences`."""

    interference: Sequence[Interference]
    cells: Mapping[Key, Cell]
    aa_ratios: Mapping[Key, Estimate]
    wake_tail: float

    def sentence(self, arm: str, resource: Resource) -> ResourceSentence:
        """One resource on one arm, by the worst of its benchmarks and placements."""
        own = [one for one in self.interference if one.arm == arm and one.key.resource is resource]
        measured = [one for one in own if one.kept.point is not None]
        if not measured:
            reason = _why_open(arm, resource, own, self.cells)
            return ResourceSentence(arm, resource, Degree.OPEN, reason, Estimate.missing("ratio", reason), None)
        groups: dict[tuple[str, str, str], list[Interference]] = {}
        for one in measured:
            groups.setdefault((one.key.benchmark, one.key.block, one.key.cores), []).append(one)
        worst = min((_worst(group, _best_policy(group, resource)) for group in groups.values()), key=_kept)
        key = worst.key
        text = self._kept_words(worst)
        free = [one for one in groups[key.benchmark, key.block, key.cores] if one.key.free]
        if free and not key.free:
            text += f"; without a policy {amount(min(free, key=_kept).kept, resource)}"
        degree = degree_of(worst.kept, self.aa_ratios.get(key))
        return ResourceSentence(arm, resource, degree, f"{text}.", worst.kept, key)

    def _kept_words(self, worst: Interference) -> str:
        """``with limit and reservation of 50 % on the tested guest, memory write … keeps 98 % (97–99 %) of …``."""
        key = worst.key
        under = "" if key.free else f"with {key.policy_label}, "
        beside = f"beside {key.load_label} ({SHORT_CORES.get(key.cores, key.cores)})"
        if key.resource is Resource.WAKE:
            late = amount(worst.kept, key.resource)
            return f"{under}wake-ups are {late} as without the load at their p{self.wake_tail * 100:.0f}, {beside}"
        of = "its unloaded work" if key.free or key.resource is Resource.DISK else "what is promised"
        return f"{under}{key.benchmark_label} keeps {amount(worst.kept)} of {of} {beside}"


def _best_policy(group: Sequence[Interference], resource: Resource) -> tuple[str, str]:
    """That which should protect the tested guest best of those that were tried."""
    tried = {(one.key.policy, one.key.on) for one in group}
    order = (*_OF_DISKS, *_STRENGTH) if resource is Resource.DISK else _STRENGTH
    return next((place for place in order if place in tried), (NOTHING, NOTHING))


def _worst(group: Sequence[Interference], policy: tuple[str, str]) -> Interference:
    own = [one for one in group if (one.key.policy, one.key.on) == policy]
    return min(own or group, key=_kept)


def _kept(one: Interference) -> float:
    return one.kept.point or 0.0


def _why_open(arm: str, resource: Resource, own: Sequence[Interference], cells: Mapping[Key, Cell]) -> str:
    if own:
        return own[-1].kept.method
    tried = [series for key, cell in cells.items() if key.resource is resource and (series := cell.of(arm))]
    missing = [series.missing for series in tried if series.missing]
    if missing and len(missing) == len(tried):
        return missing[-1]
    return f"the plan has no {'load beside it' if tried else 'benchmark of it'}"

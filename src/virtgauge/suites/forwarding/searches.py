"""Searches: trials on a device until the highest load is known at which no guest loses too much."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from virtgauge.suites.forwarding.trial import Offer, TrialResult

NO_DROP = 0.0  # The loss ratio of the no-drop rate (NDR)
PARTIAL_DROP = 0.005  # The loss ratio of the partial-drop rate (PDR)


@dataclasses.dataclass(frozen=True)
class Limits:
    """Loads between which is searched, frames per second of all flows together; the lower one is above 0."""

    min_pps: float
    max_pps: float


@dataclasses.dataclass(frozen=True)
class Throughput:
    """The highest load with at most this loss ratio in every guest."""

    loss_ratio: float  # 0 for NDR
    # what the device forwarded at that load; None when even the lowest load lost more, or the search had no end
    rate_pps: float | None
    lower_pps: float | None  # the load itself, which passed; None as above
    upper_pps: float | None  # the nearest higher load that did not pass; None when the highest passed, or without end
    reason: str = ""  # why a figure is missing


@dataclasses.dataclass(frozen=True)
class LossPoint:
    """One trial, as a point of the loss curve."""

    rate_pps: float
    duration_s: float
    received_pps: float
    loss_ratio: float
    worst_loss_ratio: float
    stretched: bool
    late: int = 0  # frames that the tester sent late
    overrun: int = 0  # frames that came back, and that the tester itself lost

    @property
    def may_be_testers(self) -> bool:
        """Whether the tester may have lost all that was lost: by sending late in a stall, or on receipt."""
        lost = round(self.loss_ratio * self.rate_pps * self.duration_s)
        return not self.stretched and 0 < lost <= self.late + self.overrun


@dataclasses.dataclass(frozen=True)
class SearchResult:
    """What a search found."""

    method: str
    # ndr, pdr: no-drop rate, and with 0.5 % of loss
    ndr: Throughput
    pdr: Throughput
    maximum_receive_pps: float | None  # highest rate at which frames came back in any trial; None without a trial
    points: tuple[LossPoint, ...]
    failure: str = ""  # why it did not come to an end, and found neither rate

    @property
    def measuring_s(self) -> float:
        return sum(point.duration_s for point in self.points)

    @property
    def stretched(self) -> int:
        return sum(point.stretched for point in self.points)


class SearchError(Exception):
    """The search could not come to an end."""


class Search(abc.ABC):
    """A method with its parameters."""

    name: ClassVar[str]

    @abc.abstractmethod
    async def find(self, offer: Offer, limits: Limits, loss_ratios: Sequence[float]) -> list[Throughput]:
        """The throughput for each loss ratio (ascending), in that order.
        Raises SearchError: it did not come to an end.
        """

    @abc.abstractmethod
    def longest_s(self, limits: Limits) -> float:
        """Seconds of offered load that it never needs more than: what time-outs are reckoned from."""

    async def run(self, offer: Offer, limits: Limits) -> SearchResult:
        """NDR, PDR, the maximum receive rate and the loss curve; what was tried, too, where it came to no end."""
        points: list[LossPoint] = []
        names = [field.name for field in dataclasses.fields(LossPoint)]

        async def recorded(rate_pps: float, duration_s: float) -> TrialResult:
            trial = await offer(rate_pps, duration_s)
            points.append(LossPoint(**{name: getattr(trial, name) for name in names}))
            return trial

        failure = ""
        try:
            ndr, pdr = await self.find(recorded, limits, (NO_DROP, PARTIAL_DROP))
        except SearchError as error:
            failure = str(error)
            ndr, pdr = (Throughput(ratio, None, None, None, failure) for ratio in (NO_DROP, PARTIAL_DROP))
        received = max((point.received_pps for point in points), default=None)
        return SearchResult(self.name, ndr, pdr, received, tuple(points), failure)


@dataclasses.dataclass(frozen=True)
class Rfc2544Search(Search):
    """Bisection with long trials (RFC 2544, section 26.1): one trial, of 60 s as a rule, decides about a load.

    A single rare stall of a software device fails a trial at any load whose frames it cannot queue, so that the result
    can be a fraction of what the device forwards.  That is why it is not the default here.
    """

    name: ClassVar[str] = "rfc2544"

    trial_s: float = 60.0
    resolution: float = 0.005  # relative distance of the bounds at which the search ends

    async def find(self, offer: Offer, limits: Limits, loss_ratios: Sequence[float]) -> list[Throughput]:
        trials: list[TrialResult] = []
        return [await self._bisect(offer, limits, ratio, trials) for ratio in loss_ratios]

    def longest_s(self, limits: Limits) -> float:
        # Halvings of the whole range until its parts are as narrow as the resolution of the lowest load.
        bisections = math.ceil(math.log2(limits.max_pps / (limits.min_pps * self.resolution)))
        return 2 * self.trial_s * (2 + bisections)

    async def _bisect(self, offer: Offer, limits: Limits, loss_ratio: float, trials: list[TrialResult]) -> Throughput:
        """Bisect between what earlier trials, made for another loss ratio, already decide."""
        if not trials:
            trials.append(await offer(limits.max_pps, self.trial_s))
        upper: float | None = min((t.rate_pps for t in trials if not t.passes(loss_ratio)), default=None)
        passed = [t for t in trials if t.passes(loss_ratio) and (upper is None or t.rate_pps < upper)]
        best = max(passed, key=lambda trial: trial.rate_pps, default=None)
        while upper is not None:
            low = best.rate_pps if best else 0.0
            if upper - low <= self.resolution * upper or upper <= limits.min_pps:
                break
            trial = await offer(max((low + upper) / 2, limits.min_pps), self.trial_s)
            trials.append(trial)
            if trial.passes(loss_ratio):
                best = trial
            else:
                upper = trial.rate_pps
        return decided(loss_ratio, best, upper, limits)


def decided(loss_ratio: float, best: TrialResult | None, upper_pps: float | None, limits: Limits) -> Throughput:
    """The throughput when the best trial that passed and the bound above it are known."""
    if best is None:
        reason = f"a guest lost more than {loss_ratio:.1%}, or sending stretched, down to {limits.min_pps:g} frames/s"
        return Throughput(loss_ratio, None, None, upper_pps, reason)
    forwarded = best.rate_pps * (1 - min(best.worst_loss_ratio, loss_ratio))
    return Throughput(loss_ratio, forwarded, best.rate_pps, upper_pps)


@dataclasses.dataclass(frozen=True)
class Tst009Search(Search):
    """Binary search with loss verification (ETSI GS NFV-TST 009, clause 12.3).

    The loads are a grid.  A trial with loss is repeated before it is believed: only loss in every repetition is the
    device's; loss that does not come again was transient, and the load counts as carried.
    """

    name: ClassVar[str] = "tst009"

    trial_s: float = 60.0
    resolution: float = 0.005  # relative step of the grid
    verifications: int = 2  # how often a trial with loss is repeated at most

    async def find(self, offer: Offer, limits: Limits, loss_ratios: Sequence[float]) -> list[Throughput]:
        grid = self._grid(limits)
        best: TrialResult | None = None
        lowest, found = -1, []
        for ratio in loss_ratios:  # what passed with little loss has passed with more: the next search starts above it
            upper = len(grid)
            left, right = lowest + 1, len(grid) - 1
            while left <= right:
                middle = (left + right) // 2
                trial = await self._verified(offer, grid[middle], ratio)
                if trial is None:
                    upper, right = middle, middle - 1
                else:
                    best, lowest, left = trial, middle, middle + 1
            found.append(decided(ratio, best, grid[upper] if upper < len(grid) else None, limits))
        return found

    def longest_s(self, limits: Limits) -> float:
        depth = math.ceil(math.log2(len(self._grid(limits)) + 1))
        return 2 * depth * self.trial_s * (1 + self.verifications)

    async def _verified(self, offer: Offer, rate_pps: float, loss_ratio: float) -> TrialResult | None:
        """A trial that passed, the first or one of its repetitions; None when all failed."""
        for _ in range(1 + self.verifications):
            trial = await offer(rate_pps, self.trial_s)
            if trial.passes(loss_ratio):
                return trial
        return None

    def _grid(self, limits: Limits) -> list[float]:
        """Loads to choose from, ascending; each is lower than the next by the resolution."""
        ratio = 1 - self.resolution
        count = math.floor(math.log(limits.min_pps / limits.max_pps, ratio))
        between = [limits.max_pps * ratio**index for index in range(count, -1, -1)]
        return [limits.min_pps, *between] if between[0] > limits.min_pps else between


async def find_worst(
    vectors: Mapping[str, Offer],
    search: Search,
    limits: Limits,
    *,
    challenge_s: float,
    on_vector: Callable[[int], None] = lambda _: None,
) -> tuple[str, SearchResult, tuple[str, ...]]:
    """The load vector by which the device forwards least, its search, and the vectors that were searched, in order.

    A platform should be compared at its worst working point (Batalla et al. 2016, section 3.1), and which one that is
    depends on the platform.  Each vector is first challenged with the lowest throughput found so far: only one that
    does not carry it can be worse, and only then its own search is made.  Those expected to be bad go first.

    Two of at most three trials, each ``challenge_s`` long, spare a search; ``on_vector`` is told how many vectors are
    decided.  A search that does not come to an end is the last, and what is returned: the worst vector is not known.
    """
    name, worst, searched = "", None, []
    for done, (challenger, offer) in enumerate(vectors.items()):
        on_vector(done)
        if worst is not None and await _carries(offer, worst.ndr.rate_pps, challenge_s):
            continue
        searched.append(challenger)
        result = await search.run(offer, limits)
        if result.failure:
            return challenger, result, tuple(searched)
        if worst is None or (result.ndr.rate_pps or 0.0) < (worst.ndr.rate_pps or 0.0):
            name, worst = challenger, result
    assert worst is not None
    return name, worst, tuple(searched)


async def _carries(offer: Offer, rate_pps: float | None, duration_s: float) -> bool:
    """Whether two of three trials pass; a vector by which nothing was carried is matched by every other."""
    if rate_pps is None:
        return True
    passed = 0
    for made in range(1, 4):
        passed += (await offer(rate_pps, duration_s)).passes(0.0)
        if passed == 2 or made - passed == 2:
            break
    return passed == 2

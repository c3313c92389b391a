"""A plan's duration before it is run, and a plan made to fit into a time; what is left out of it is named."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from virtgauge.analysis.bounds import decisive_count, fewest_values, sign_test_count
from virtgauge.analysis.estimate import attainable_confidence
from virtgauge.errors import UsageError
from virtgauge.execution.prepare import Design, check_plan
from virtgauge.execution.remaining import RemainingTime, RememberedCosts, costs_file
from virtgauge.execution.schedule import schedule, turns
from virtgauge.ledger.records import ArmRecord
from virtgauge.plan.model import Plan, without_platforms
from virtgauge.results.quantities import running_time
from virtgauge.suites.base import Cell


def duration_of(plan: Plan, design: Design, arms: Sequence[ArmRecord]) -> RemainingTime:
    """What a plan's run takes on these platforms, from its first trial on."""
    usable = {arm.name: arm for arm in arms if arm.usable}
    clock = RemainingTime(usable, RememberedCosts(costs_file()), at_the_same_time=plan.at_the_same_time)
    each = plan.repetitions_per_guest

    def takes_time(cell: Cell, name: str) -> bool:
        platform = design.platforms[plan.reference if usable[name].role == "aa" else name]
        return design.is_for(cell, usable[name]) and design.refusal(cell, platform) is None

    batches = schedule(0, plan.repetitions, list(usable), design.cells, takes_time, each)
    for turn in turns(batches, each):
        clock.expect(turn[0].arm, turn[0].testbed, [cell for batch in turn for cell in batch.cells])
    return clock


@dataclasses.dataclass(frozen=True)
class Fitted:
    """A plan that fits."""

    plan: Plan
    left_out: tuple[str, ...] = ()  # what the given plan has and this one has not, in words


def fitted(plan: Plan, source: str, arms: Sequence[ArmRecord], minutes: float) -> Fitted:
    """The most of a plan that can be measured in so many minutes.

    What goes first: repetitions beyond the least that have an interval of the plan's confidence; platforms whose
    processor is emulated, which decide nothing; levels between the ends of numeric factors, one at a time, the last of
    them after all others, for a line needs three; designs, the last one of a suite.  Each time it is the smallest that
    suffices, else the largest; and what there is room for in the end is put back, what went last
    before what went first.  What a requirement needs stays, and no repetition is added beyond that time.
    Raises UsageError: even the least takes longer.
    """
    search = _Search(plan, source, arms, 60 * minutes)
    search.cut(search.emulated)
    search.cut(lambda: search.inner_levels(3))
    search.cut(lambda: search.inner_levels(2))
    search.cut(search.designs)
    if not search.fits(search.plan):
        raise UsageError(
            f"--minutes {minutes:g}: the least of {source} takes about {running_time(search.seconds(search.plan))}",
            f"give {math.ceil(search.seconds(search.plan) / 60)} minutes, or fewer platforms (--platform)",
        )
    search.put_back()
    fit, budget = search.with_more_repetitions(), plan.budget
    if budget is not None:
        ended = min(budget.minutes or minutes, minutes)
        fit = fit.model_copy(update={"budget": budget.model_copy(update={"minutes": ended})})
    fewer = plan.repetitions - fit.repetitions
    repetitions = [f"{fewer} of {plan.repetitions} repetitions"] if fewer else []
    return Fitted(fit, (*repetitions, *search.left_out()))


@dataclasses.dataclass(frozen=True)
class _Cut:
    """A level of a design's factor; the whole design, without a key; a platform, without a suite."""

    suite: str = ""
    index: int = 0
    key: str = ""
    level: float = 0
    platform: str = ""


class _Search:
    def __init__(self, plan: Plan, source: str, arms: Sequence[ArmRecord], limit_s: float) -> None:
        self._given, self._source, self._arms, self._limit_s = plan, source, arms, limit_s
        self._cuts: dict[_Cut, int] = {}  # and the stage in which each went, counted from the first
        self._parts: dict[str, tuple[float, int]] = {}
        self._least = plan.repetitions if self.fits(plan) else self._fewest_repetitions()
        self.plan = self._without([])

    def seconds(self, plan: Plan) -> float:
        kept = {section.name for section in plan.platform}
        arms = [arm for arm in self._arms if arm.role == "aa" or arm.name in kept]
        return duration_of(plan, check_plan(plan, self._source), arms).expected

    def fits(self, plan: Plan) -> bool:
        """Not where it is no plan, or lacks what its requirements need."""
        return self._cost(plan) <= self._limit_s

    def _cost(self, plan: Plan) -> float:
        try:
            return self.seconds(plan)
        except UsageError:  # PlanError is one
            return math.inf

    def _fewest_repetitions(self) -> int:
        """As few as an interval of the median of all of them needs."""
        budget, nominal = self._given.budget, self._given.confidence

        def wanted(number: int) -> float:
            return nominal if budget is None else budget.claims_confidence(nominal, number)

        least = next(number for number in itertools.count(1) if attainable_confidence(number) >= wanted(number))
        decisive = sign_test_count if budget is None else decisive_count
        for one in self._given.requirements:
            if one.over_s is None:
                least = max(least, fewest_values(one.confidence or nominal, decisive))
        return min(least, self._given.repetitions)

    def with_more_repetitions(self) -> Plan:
        """As many as there is time for, now that it is known what is measured."""
        of_one = self.seconds(self.plan) / self._least
        number = min(max(int(self._limit_s / of_one), self._least), self._given.repetitions) if of_one else self._least
        return self.plan.model_copy(update={"repetitions": number})

    def _without(self, cuts: Collection[_Cut]) -> Plan:
        """The given plan, with fewest repetitions, without these."""
        platforms, suite = {one.platform for one in cuts}, {}
        for name, designs in self._given.suite.items():
            of_suite = [one for one in cuts if one.suite == name]
            whole = {one.index for one in of_suite if not one.key}
            left = (self._design(design, index, of_suite) for index, design in enumerate(designs) if index not in whole)
            suite[name] = tuple(found for one in left if (found := without_platforms(one, platforms)) is not None)
        kept = tuple(section for section in self._given.platform if section.name not in platforms)
        return self._given.model_copy(update={"repetitions": self._least, "platform": kept, "suite": suite})

    @staticmethod
    def _design(design: dict[str, Any], index: int, cuts: Sequence[_Cut]) -> dict[str, Any]:
        gone = {(one.key, one.level) for one in cuts if one.index == index}
        keys = {key for key, _ in gone}
        return design | {key: [one for one in design[key] if (key, one) not in gone] for key in keys}

    def cut(self, among: Callable[[], Iterator[_Cut]]) -> None:
        """Leave out one after the other until it fits: the smallest that suffices, else the largest that saves."""
        stage = max(self._cuts.values(), default=0) + 1
        while (now := self._cost(self.plan)) > self._limit_s:
            saved = {one: self._saves(one) for one in among()}
            enough = sorted((one for one in saved if saved[one] >= now - self._limit_s), key=saved.__getitem__)
            rest = sorted((one for one in saved if one not in enough), key=saved.__getitem__, reverse=True)
            for one in (*enough, *rest):
                smaller = self._without([*self._cuts, one])
                if self._cost(smaller) < now:
                    self._cuts[one] = stage
                    self.plan = smaller
                    break
            else:
                return

    def put_back(self) -> None:
        """What there is room for after all: of what is worth most, which went last, the largest first."""
        for one in sorted(self._cuts, key=lambda one: (self._cuts[one], self._saves(one)), reverse=True):
            others = {other: stage for other, stage in self._cuts.items() if other != one}
            if self.fits(larger := self._without(others)):
                self._cuts, self.plan = others, larger

    def _saves(self, cut: _Cut) -> float:
        """About how many seconds: of a design as if it were alone."""
        if cut.platform:
            without = self._cost(self._without([cut]))
            return self._cost(self._without([])) - without if without < math.inf else 0.0
        design = self._given.suite[cut.suite][cut.index]
        others = [one for one in self._cuts if one.suite == cut.suite and one != cut]
        before = self._part(cut.suite, self._design(design, cut.index, others))
        return before[0] - (self._part(cut.suite, self._design(design, cut.index, [*others, cut]))[0] if cut.key else 0)

    def _part(self, suite: str, design: dict[str, Any]) -> tuple[float, int]:
        """Seconds and cells of a design alone; infinite where there is no such design."""
        platforms = {one.platform for one in self._cuts}
        if (name := f"{suite} {design} {platforms}") not in self._parts:
            left = without_platforms(design, platforms)
            there = {} if left is None else {suite: (left,)}
            plan = self.plan.model_copy(update={"suite": there, "require": (), "profile": (), "budget": None})
            cost = self._cost(plan) if there else 0.0
            self._parts[name] = cost, len(check_plan(plan, self._source).cells) if there and cost < math.inf else 0
        return self._parts[name]

    def emulated(self) -> Iterator[_Cut]:
        cut = {one.platform for one in self._cuts}
        for arm in self._arms:
            if arm.usable and arm.emulated and arm.role == "test" and arm.name not in cut:
                yield _Cut(platform=arm.name)

    def inner_levels(self, least: int) -> Iterator[_Cut]:
        """Of the numeric factors with most levels, if more than so many, that which is nearest to its neighbours."""
        found: dict[int, list[_Cut]] = {}
        for name, designs in self._given.suite.items():
            of_suite = [one for one in self._cuts if one.suite == name]
            for index, given in enumerate(designs):
                design = self._design(given, index, of_suite)
                for key, levels in design.items():
                    numeric = isinstance(levels, list | tuple) and all(isinstance(one, int | float) for one in levels)
                    if numeric and len(levels) > least:
                        ordered = sorted(levels)
                        gaps = {ordered[at]: ordered[at + 1] - ordered[at - 1] for at in range(1, len(ordered) - 1)}
                        cut = _Cut(name, index, key, min(gaps, key=gaps.__getitem__))
                        thinner = self._part(name, self._design(given, index, [*of_suite, cut]))
                        # as many cells: no factor, but what each trial does, and conclusions are drawn along it
                        if thinner[0] < math.inf and thinner[1] < self._part(name, design)[1]:
                            found.setdefault(len(levels), []).append(cut)
        yield from found[max(found)] if found else ()

    def designs(self) -> Iterator[_Cut]:
        for name, designs in self._given.suite.items():
            cut = {one.index for one in self._cuts if one.suite == name and not one.key}
            left = [index for index in range(len(designs)) if index not in cut]
            if len(left) > 1:
                yield _Cut(name, left[-1])

    def left_out(self) -> Iterator[str]:
        """``suite.storage[2] (databases mongodb; clients 1, 16)``, in the plan's order."""
        for arm in self._arms:
            if any(one.platform == arm.name for one in self._cuts):
                yield f"platform {arm.name}: {arm.mark}, which decides nothing"
        for name, designs in self._given.suite.items():
            for index, design in enumerate(designs):
                cuts = [one for one in self._cuts if (one.suite, one.index) == (name, index)]
                if any(not one.key for one in cuts):
                    levels = "; ".join(
                        f"{key} {', '.join(map(str, one))}"
                        for key, one in design.items()
                        if isinstance(one, list | tuple) and key != "platforms"
                    )
                    yield f"suite.{name}[{index}] ({levels})"
                    continue
                for key in dict.fromkeys(one.key for one in cuts):
                    gone = sorted(one.level for one in cuts if one.key == key)
                    yield f"suite.{name}[{index}].{key} = {', '.join(f'{one:g}' for one in gone)}"

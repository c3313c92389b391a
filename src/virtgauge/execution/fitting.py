"""A plan's duration before it is run, and a plan made to fit into a time; what is left out of it is named."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from virtgauge.analysis.bounds import fewest_values
from virtgauge.analysis.estimate import attainable_confidence
from virtgauge.errors import UsageError
from virtgauge.execution.prepare import Design, check_plan
from virtgauge.execution.progress import duration_text
from virtgauge.execution.remaining import RemainingTime, RememberedCosts, costs_file
from virtgauge.ledger.records import ArmRecord
from virtgauge.plan.model import Plan
from virtgauge.plan.schedule import schedule


def duration_of(plan: Plan, design: Design, arms: Sequence[ArmRecord]) -> RemainingTime:
    """What a plan's run takes on these platforms, from its first trial on."""
    usable = {arm.name: arm for arm in arms if arm.usable}
    clock = RemainingTime(usable, RememberedCosts(costs_file()))
    batches = schedule(
        0, plan.repetitions, list(usable), design.cells, lambda cell, arm: design.is_for(cell, usable[arm])
    )
    for batch in batches:
        clock.expect(batch.arm, batch.testbed, batch.cells)
    return clock


@dataclasses.dataclass(frozen=True)
class Fitted:
    """A plan that fits."""

    plan: Plan
    left_out: tuple[str, ...] = ()  # what the given plan has and this one has not, in words


def fitted(plan: Plan, source: str, arms: Sequence[ArmRecord], minutes: float) -> Fitted:
    """The most of a plan that can be measured in so many minutes.

    What goes first: repetitions beyond the least that have an interval of the plan's confidence; platforms whose
    processor is emulated, which decide nothing; every other level between the ends of numeric factors; designs, of the
    last ones of all suites that which takes longest.  What a requirement needs stays, and no repetition is added beyond
    that time.

    Raises:
        UsageError: even the least takes longer.
    """
    search = _Search(plan, source, arms, 60 * minutes)
    for stage in (search.fewer_repetitions, search.without_emulated, search.fewer_levels, search.fewer_designs):
        if search.fits():
            break
        stage()
    if not search.fits():
        raise UsageError(
            f"--minutes {minutes:g}: the least of {source} takes about {duration_text(search.seconds(search.plan))}",
            f"give {math.ceil(search.seconds(search.plan) / 60)} minutes, or fewer platforms (--platform)",
        )
    search.more_repetitions(plan.repetitions)
    fit, budget = search.plan, plan.budget
    if budget is not None:
        ended = min(budget.minutes or minutes, minutes)
        fit = fit.model_copy(update={"budget": budget.model_copy(update={"minutes": ended})})
    return Fitted(fit, search.left_out())


class _Search:
    def __init__(self, plan: Plan, source: str, arms: Sequence[ArmRecord], limit_s: float) -> None:
        self._given, self._source, self._arms, self._limit_s = plan, source, arms, limit_s
        self.plan = plan
        self._words: list[str] = []

    def seconds(self, plan: Plan) -> float:
        kept = {section.name for section in plan.platform}
        arms = [arm for arm in self._arms if arm.role == "aa" or arm.name in kept]
        return duration_of(plan, check_plan(plan, self._source), arms).expected

    def _cost(self, plan: Plan) -> float:
        """Its seconds; infinite where it is no plan, or lacks what its requirements need."""
        try:
            return self.seconds(plan)
        except UsageError:  # PlanError is one
            return math.inf

    def fits(self) -> bool:
        return self.seconds(self.plan) <= self._limit_s

    def left_out(self) -> tuple[str, ...]:
        fewer = self._given.repetitions - self.plan.repetitions
        repetitions = [f"{fewer} of {self._given.repetitions} repetitions"] if fewer else []
        return (*repetitions, *self._words)

    def fewer_repetitions(self) -> None:
        """As few as an interval of the median of all of them needs."""
        budget, confidence = self._given.budget, self._given.confidence
        if budget is not None:
            confidence = budget.claims_confidence(confidence, self._given.repetitions)
        least = next(number for number in itertools.count(1) if attainable_confidence(number) >= confidence)
        if self._given.requirements:
            least = max(least, fewest_values(confidence))
        least = min(least, self._given.repetitions)
        self.plan = self.plan.model_copy(update={"repetitions": least})

    def more_repetitions(self, most: int) -> None:
        """As many as there is time for, once it is known what is measured."""
        of_one = self.seconds(self.plan) / self.plan.repetitions
        number = min(max(int(self._limit_s / of_one), self.plan.repetitions), most) if of_one else most
        self.plan = self.plan.model_copy(update={"repetitions": number})

    def without_emulated(self) -> None:
        for arm in self._arms:
            if arm.usable and arm.emulated and arm.role == "test" and not self.fits():
                kept = tuple(section for section in self.plan.platform if section.name != arm.name)
                suite = {
                    name: tuple(left for one in designs if (left := _without(one, arm.name)))
                    for name, designs in self.plan.suite.items()
                }
                self._take({"platform": kept, "suite": suite}, f"platform {arm.name}: emulated, which decides nothing")

    def fewer_levels(self) -> None:
        """Thin the factor whose thinning saves most, until it fits or every one has its two ends left."""
        while not self.fits():
            found = sorted(self._thinner(), key=lambda one: self._cost(one[0]))
            if not any(self._take({"suite": plan.suite}, words) for plan, words in found):
                return

    def _thinner(self) -> Iterator[tuple[Plan, str]]:
        whole = len(check_plan(self.plan, self._source).cells)
        for name, designs in self.plan.suite.items():
            for index, design in enumerate(designs):
                for key, levels in design.items():
                    if _is_numeric(levels) and len(levels) > 2:
                        ordered = sorted(levels)
                        kept = [*ordered[:-1:2], ordered[-1]] if len(levels) > 3 else [ordered[0], ordered[-1]]
                        gone = ", ".join(f"{one:g}" for one in ordered if one not in kept)
                        thinner = self._with_design(name, index, design | {key: kept})
                        if self._cost(thinner) == math.inf or len(check_plan(thinner, self._source).cells) == whole:
                            continue  # no factor, but what each trial does: conclusions are drawn along it
                        yield thinner, f"suite.{name}[{index}].{key} = {gone}"

    def fewer_designs(self) -> None:
        while not self.fits():
            last = [(name, len(designs) - 1) for name, designs in self.plan.suite.items() if len(designs) > 1]
            found = sorted(((self._with_design(*one, None), one) for one in last), key=lambda one: self._cost(one[0]))
            if not any(self._take({"suite": plan.suite}, self._told(*one)) for plan, one in found):
                return

    def _told(self, name: str, index: int) -> str:
        """``suite.storage[2] (databases mongodb; clients 1, 16)``."""
        levels = "; ".join(
            f"{key} {', '.join(map(str, one))}"
            for key, one in self.plan.suite[name][index].items()
            if isinstance(one, list | tuple) and key != "platforms"
        )
        return f"suite.{name}[{index}] ({levels})"

    def _with_design(self, name: str, index: int, design: dict[str, Any] | None) -> Plan:
        designs = list(self.plan.suite[name])
        designs[index : index + 1] = [] if design is None else [design]
        return self.plan.model_copy(update={"suite": {**self.plan.suite, name: tuple(designs)}})

    def _take(self, changes: dict[str, Any], words: str) -> bool:
        """Leave something out, if it saves time and what is left is a plan that has all that its requirements need."""
        smaller = self.plan.model_copy(update=changes)
        saves = 0 < self._cost(smaller) < self._cost(self.plan)
        if saves:
            self.plan = smaller
            self._words.append(words)
        return saves


def _is_numeric(levels: Any) -> bool:
    return isinstance(levels, list | tuple) and all(isinstance(one, int | float) for one in levels)


def _without(design: dict[str, Any], platform: str) -> dict[str, Any]:
    """A design without a platform; empty where it was for that one alone."""
    if design.get("platforms") is None:
        return design
    left = [name for name in design["platforms"] if name != platform]
    return design | {"platforms": left} if left else {}

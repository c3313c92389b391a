"""Where a figure changes over the runs of an archive, by how much, and what was recorded that changed with it."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from virtgauge.analysis import change_points
from virtgauge.analysis.change_points import exceeding, step_limit
from virtgauge.analysis.running_steps import window_beside
from virtgauge.analysis.shift import shift_estimate
from virtgauge.report.settings import OF_EVERY_RUN
from virtgauge.results.measure import Measure
from virtgauge.results.quantities import SIZE

Values = npt.NDArray[np.float64]
Facts = Mapping[str, str]  # What was recorded of a run beside its figures, by name

CONFIDENCE = 0.95  # Of a step's interval, and that one which is told is none of chance
NEAR = 2  # Runs from a step, within which what changed with it did
LEAST_DAYS = 4  # On which the runs of one side of a step are to be made, lest it be one of days
_IMPLIED = {"kernel version": "kernel", "agent (SHA-256)": "virtgauge"}  # What is no news beside what else changed
_NO_HOST = frozenset({"plan", "virtgauge", "agent (SHA-256)", "hypervisor steal ticks"})  # What no machine is told by
_RETURNS = 3  # So often a fact is again what it was before, until a host's runs are said to alternate
_LONGEST = 40  # Characters of a fact, beyond which only the words of it are told that changed
_ALIKE, _LEAST_ALIKE = 0.3, 20  # Correlation of neighbouring runs that is told, in series of so many


@dataclasses.dataclass(frozen=True)
class Step(change_points.Step):
    """A change of level, and what else changed there."""

    direction: str  # see :meth:`virtgauge.results.measure.Better.says`
    beside: tuple[str, ...]  # what else changed there: ``kernel 6.1.0 → 6.18.0``
    days: int  # on which the runs of that side were made that has fewer of them
    as_reference: bool = False  # whether the reference changes there too, by a factor that may be the same

    @property
    def is_of_few_days(self) -> bool:
        """Whether it may be of days rather than of what was changed between them."""
        return self.days < LEAST_DAYS

    @property
    def remarks(self) -> tuple[str, ...]:
        """What there is to say of it beside its size."""
        reference = ("as the reference does",) if self.as_reference else ()
        days = (f"the runs on one side are of fewer than {LEAST_DAYS} days",) if self.is_of_few_days else ()
        return *reference, *days, *self.beside

    def is_of(self, other: Step) -> bool:
        """Whether another step may be of the same size: they go the same way, and their intervals meet."""
        ends = (self.size.low, self.size.high, other.size.low, other.size.high)
        if self.size.unit != other.size.unit or self.grows != other.grows or None in ends:
            return False
        low, high, others_low, others_high = (float(end or 0.0) for end in ends)
        return low <= others_high and others_low <= high


@dataclasses.dataclass(frozen=True, eq=False)
class Course:
    """The runs that have a figure."""

    measure: Measure
    in_plan: str  # what the plan calls the platform
    levels: Values  # of each run, in the measure's base unit
    dates: Sequence[str]  # of them
    facts: Sequence[Facts]  # of their host; empty where none were kept

    @property
    def by_ratio(self) -> bool:
        """Whether all are positive: then a change is a factor."""
        return bool((self.levels > 0).all())

    @property
    def scaled(self) -> Values:
        """The levels on a scale on which a change is a difference."""
        return np.log(self.levels) if self.by_ratio else self.levels


def kept_steps(of: Course, found: Sequence[int], equivalent: float) -> tuple[Step, ...]:
    """The steps that exceed what runs differ by anyway and what does not matter, and whose intervals exclude none.

    ``found`` are the places of the last runs before each; ``equivalent`` is the largest share that does not matter.
    """
    levels, by_ratio = of.scaled, of.by_ratio

    def step(start: int, place: int, stop: int) -> tuple[Step, float]:
        parts = window_beside(place, start, stop)
        before, after = (levels[part].tolist() for part in parts)
        size = shift_estimate(before, after, of.measure.quantity.unit, CONFIDENCE)
        small = math.log1p(equivalent) if by_ratio else equivalent * abs(float(np.median(before)))
        limit = max(step_limit([*before, *after], len(before), len(after)), small, 1e-12)
        shown = size.mapped(math.exp, "ratio") if by_ratio else size
        days = min(len(set(of.dates[part])) for part in parts)
        made = Step(place - 1, shown, of.measure.better.says((size.point or 0.0) > 0), (), days)
        return made, abs(size.point or 0.0) / limit if size.excludes(0.0) else 0.0

    kept = exceeding(found, levels.size, step)
    return tuple(dataclasses.replace(one, beside=tuple(_beside(of, one.after))) for one in kept)


def _beside(of: Course, cut: int) -> Iterator[str]:
    """What was of one kind before a step and is of another after it, and changed at that place or next to it."""
    near = of.facts[max(cut - NEAR, 0) : cut + NEAR + 2]
    told = set[str]()
    for name in dict.fromkeys(name for facts in near for name in facts):
        others = ": " in name and not name.startswith(f"{of.in_plan}: ")
        if others or name in OF_EVERY_RUN or _IMPLIED.get(name) in told or len({one.get(name) for one in near}) < 2:
            continue
        windows = (of.facts[part] for part in window_beside(cut + 1, 0, len(of.facts)))
        before, after = (Counter(facts.get(name) for facts in part).most_common(1)[0][0] for part in windows)
        if before != after and before is not None and after is not None:
            told.add(name)
            yield f"{name} {_difference(*(fact_text(name, value) for value in (before, after)))}"


def fact_text(name: str, value: str) -> str:
    """As it is told: of the memory only what keeps from boot to boot."""
    if name == "memory bytes" and value.isdecimal():
        return SIZE.text(float(value[:30]))
    return value or "unknown"


def _difference(before: str, after: str) -> str:
    """``6.1.0 → 6.18.0``; of long texts the words that went and came: ``−quiet +mitigations=off``."""
    if max(len(before), len(after)) <= _LONGEST:
        return f"{before} → {after}"
    old, new = before.split(), after.split()
    words = [f"−{word}" for word in old if word not in new] + [f"+{word}" for word in new if word not in old]
    text = " ".join(words) or "in another order"
    return text if len(text) <= 4 * _LONGEST else f"{text[: 4 * _LONGEST]} …"


def alternating(facts: Sequence[Facts]) -> Iterator[str]:
    """What is one thing and another in turns over the runs of a host: ``memory bytes (16 GiB, 32 GiB)``.

    A machine that was started anew never has the same boot ID again.
    """
    for name in dict.fromkeys(name for one in facts for name in one):
        values = [fact_text(name, one[name]) for one in facts if name in one]
        seen, returns = dict.fromkeys(values[:1]), 0
        for last, value in itertools.pairwise(values):
            returns += value != last and value in seen
            seen[value] = None
        if name not in _NO_HOST and ": " not in name and returns >= (1 if name == "boot id" else _RETURNS):
            yield f"{name} ({', '.join(value[:_LONGEST] for value in [*seen][:3])}{', …' if len(seen) > 3 else ''})"


def are_alike(levels: Values, cuts: Sequence[int]) -> bool:
    """Whether neighbours are, beside the levels between the steps, as runs of a drift are."""
    parts = np.split(levels, [cut + 1 for cut in cuts])
    left = np.concatenate([part - np.median(part) for part in parts])
    spread = float((left**2).sum())
    return levels.size >= _LEAST_ALIKE and spread > 0 and float((left[1:] * left[:-1]).sum()) / spread > _ALIKE

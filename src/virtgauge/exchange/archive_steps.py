"""A figure over the runs of an archive: where it changes, by how much, and what was recorded that changed with it."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from virtgauge.analysis.change_points import exceeding, step_limit
from virtgauge.analysis.estimate import Estimate, Values
from virtgauge.analysis.running_steps import LEAST, window_beside
from virtgauge.report import series
from virtgauge.report.series import Step, step_between
from virtgauge.report.settings import OF_EVERY_RUN
from virtgauge.results.columns import Cell
from virtgauge.results.quantities import SIZE
from virtgauge.specs.suites import cell_name

Facts = Mapping[str, str]  # What was recorded of a run beside its figures, by name

CONFIDENCE = 0.95  # Of a step's interval, and that one which is told is none of chance
NEAR = 2  # Runs from a step, within which what changed with it did
_DRIFT = 3  # Steps one after the other the same way, which may be a slow change
_IMPLIED = {"kernel version": "kernel", "agent (SHA-256)": "virtgauge"}  # What is no news beside what else changed
_NO_HOST = frozenset({"plan", "virtgauge", "agent (SHA-256)", "hypervisor steal ticks"})  # What no machine is told by
_RETURNS = 3  # So often a fact is again what it was before, until a host's runs are said to alternate
_LONGEST = 40  # Characters of a fact, beyond which only the words of it are told that changed
_ALIKE, _LEAST_ALIKE = 0.3, 20  # Correlation of neighbouring runs that is told, in series of so many


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Series(series.Series):
    """One figure over the runs of an archive that have it."""

    levels: Values  # of each run, in the measure's base unit
    ends: Sequence[tuple[float | None, float | None, float | None, int]]  # low, high, confidence and repetitions
    dates: Sequence[str]  # of the runs
    facts: Sequence[Facts]  # of their host; empty where none were kept
    host: str  # its name, else its processor
    of: Mapping[str, Any]  # what else it is one series by: the cell's settings, platform, processor, arm in the plan
    emulated: bool
    is_reference: bool  # whether others are compared with it
    alike: bool = False  # whether neighbouring runs differ less than others do
    ended: bool = False  # whether the newest runs have none of it

    @property
    def by_ratio(self) -> bool:
        """Whether all are positive: then a change is a factor."""
        return bool((self.levels > 0).all())

    @property
    def scaled(self) -> Values:
        """The levels on a scale on which a change is a difference."""
        return np.log(self.levels) if self.by_ratio else self.levels

    def level(self, place: int) -> Estimate:
        low, high, confidence, number = self.ends[place]
        unit, how = self.measure.quantity.unit, "median of the repetitions"
        return Estimate(float(self.levels[place]), low, high, confidence, number, unit, how)

    @property
    def drift(self) -> tuple[Step, ...]:
        """Three steps or more, one after the other, that go the same way; none where there are fewer."""
        ways = (tuple(own) for _, own in itertools.groupby(self.steps, key=lambda step: step.grows))
        longest = max(ways, key=len, default=())
        return longest if len(longest) >= _DRIFT else ()

    @property
    def text(self) -> str:
        """``Guest on Xeon, Timer cost: rdtscp, timer_cost.p50``."""
        mark = " (emulated)" if self.emulated and "emulated" not in self.arm.lower() else ""
        return f"{self.arm}{mark} on {self.host}, {cell_name(self.cell)}, {self.measure.name}"

    @property
    def figure(self) -> tuple[str, Cell]:
        """What it is of, on whatever host and platform."""
        return self.measure.full_name, self.cell

    @property
    def apart(self) -> dict[str, str]:
        """What it is one series by beside that, in words."""
        emulated = "yes" if self.emulated else "no"
        return {"host": self.host, **{name: str(value) for name, value in self.of.items()}, "emulated": emulated}

    @property
    def pause(self) -> int:
        """So many runs of the archive without it say that it has ended."""
        return max(LEAST, 2 * max((later - one for one, later in itertools.pairwise(self.runs)), default=1))


def with_steps(one: Series, found: Sequence[int], equivalent: float) -> Series:
    """The series with those steps that exceed what runs differ by and what does not matter, and exclude no change.

    ``found`` are the places of the last runs before each; ``equivalent`` is the largest share that does not matter.
    """
    levels, by_ratio = one.scaled, one.by_ratio

    def step(start: int, place: int, stop: int) -> tuple[Step, float]:
        parts = window_beside(place, start, stop)
        before, after = (levels[part].tolist() for part in parts)
        noise = step_limit([*before, *after], len(before), len(after))
        made, excess = step_between(one.measure, place, (before, after), by_ratio, noise, equivalent, CONFIDENCE)
        days = min(len(set(one.dates[part])) for part in parts)
        return dataclasses.replace(made, days=days), excess if made.size.excludes(1.0 if by_ratio else 0.0) else 0.0

    kept = exceeding(found, levels.size, step)
    return dataclasses.replace(
        one,
        steps=tuple(dataclasses.replace(step, beside=tuple(_beside(one, step.after))) for step in kept),
        doubtful=len(found) - len(kept),
        alike=bool(kept) and _are_alike(levels, [step.after for step in kept]),
    )


def _beside(of: Series, cut: int) -> Iterator[str]:
    """What was of one kind before a step and is of another after it, and changed at that place or next to it."""
    near = of.facts[max(cut - NEAR, 0) : cut + NEAR + 2]
    told = set[str]()
    for name in dict.fromkeys(name for facts in near for name in facts):
        others = ": " in name and not name.startswith(f"{of.of['arm']}: ")
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


def _are_alike(levels: Values, cuts: Sequence[int]) -> bool:
    """Whether neighbours are, beside the levels between the steps, as runs of a drift are."""
    parts = np.split(levels, [cut + 1 for cut in cuts])
    left = np.concatenate([part - np.median(part) for part in parts])
    spread = float((left**2).sum())
    return levels.size >= _LEAST_ALIKE and spread > 0 and float((left[1:] * left[:-1]).sum()) / spread > _ALIKE

"""How long the rest of a run takes, from what its parts have cost: in this run, in earlier ones, or by the plan.

A run is batches (a fresh testbed, then trials on it).  The cost of a batch is that of its testbed, which is launched
and closed, and of each of its trials.  Both depend on the platform above all: an emulated guest may take twenty times
as long as the host.  So a part that was met in this run counts as it was; one that was not, as earlier runs on this
machine remember it, scaled by how far this run is from them; else as the plan declares it, by how far others of its
kind of platform and suite were from what their plans declared.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from virtgauge.folders import cache_root, write_whole
from virtgauge.ledger.records import ArmRecord
from virtgauge.results.quantities import running_time
from virtgauge.suites.base import Cell

_MOST_REMEMBERED = 20_000
_UNSEEN_SHARE = 0.2
"""Of a run's trials: while fewer are done, nothing is said before every platform was met or is remembered."""
_MET_SHARE = 0.3  # Of the cells that are measured on a platform: from here on the others can be told from them
_INVENTED = 0.005  # Of the time that a trial would take, where its machine is invented
_RATIOS = (0.7, 5.0)  # Of what trials take to what they declare, as far as a whole run is believed to tell of others
_MOST_REPEATS = 1.3  # Of a trial, that are expected by what an earlier run needed; more was something of that run
_KNOWN_SHARE = 0.9  # Of a run's trials: from here on what is expected of them is told as measured
_TESTBED_S, _EMULATED_TESTBED_S = 0.7, 8.0  # To launch and close a guest of which nothing at all is known
_EMULATED_FACTOR = 3.0  # By which trials of an emulated guest take longer, likewise; most end by the clock


def costs_file() -> Path:
    """Where costs are remembered: below the cache, and like all there of no loss."""
    return cache_root() / "durations.json"


class RememberedCosts:
    """Seconds by part, of earlier runs on this machine; a file that cannot be read or written is an empty one.

    Without a path nothing is remembered.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._seconds: dict[str, float] = {}
        if path is not None:
            with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
                found = json.loads(path.read_text(encoding="utf-8"))
                self._seconds = {str(key): float(value) for key, value in found.items() if float(value) >= 0}

    def get(self, key: str) -> float | None:
        """How many seconds a part took; None where it was never met."""
        return self._seconds.get(key)

    def keep(self, seconds: Mapping[str, float]) -> None:
        """Remember these instead of what was known of the same parts; the parts met longest ago are forgotten."""
        if self._path is None or not seconds:
            return
        kept = {key: value for key, value in self._seconds.items() if key not in seconds}
        kept |= {key: float(f"{value:.3g}") for key, value in seconds.items()}
        self._seconds = dict(list(kept.items())[-_MOST_REMEMBERED:])
        with contextlib.suppress(OSError):
            write_whole(self._path, json.dumps(self._seconds, separators=(",", ":")).encode())


class RemainingTime:
    """Follows a run and expects what is left of it."""

    def __init__(
        self, arms: Mapping[str, ArmRecord], remembered: RememberedCosts, *, at_the_same_time: bool = False
    ) -> None:
        self._arms, self._remembered, self._at_the_same_time = arms, remembered, at_the_same_time
        self._platforms = {name: _platform_key(record) for name, record in arms.items()}
        self._cells: dict[str, Cell] = {}
        self._open_trials: Counter[tuple[str, str]] = Counter()
        self._open_batches: Counter[tuple[str, str]] = Counter()
        self._launched: dict[tuple[str, str], float] = {}
        self._testbeds: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        self._worth_keeping: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        self._trials: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
        self._priors: dict[tuple[str, str], float] = {}
        self._sums: defaultdict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        self._attempts = self._over = self._batches = 0
        self._shown = False

    def expect(self, arm: str, testbed: str, cells: Iterable[Cell]) -> None:
        self._open_batches[arm, testbed] += 1
        for cell in cells:
            self._cells[cell.key] = cell
            self._open_trials[arm, cell.key] += 1

    def launched(self, arm: str, testbed: str, seconds: float) -> None:
        """A testbed is up, so many seconds after it was asked for."""
        self._launched[arm, testbed] = seconds

    def trial(self, arm: str, cell: Cell, seconds: float, *, over: bool, failed: bool = False) -> None:
        """A trial has ended; ``over``: it is not repeated; ``failed``: what it took is no measure of others."""
        prior = self._prior(arm, cell)
        if not failed:
            self._worth_keeping[arm, cell.key].append(seconds)
        self._trials[arm, cell.key].append(seconds)
        for group in ((arm, cell.suite), (arm, ""), ("", cell.suite), ("", "")):
            self._sums[group][0] += seconds
            self._sums[group][1] += prior
            self._sums[group][2] += 1
        self._attempts += 1
        if over:
            self._over += 1
            self._open_trials[arm, cell.key] -= 1

    def dropped(self, arm: str, cell: Cell) -> None:
        """A trial will not be made: its guest did not come up, or it was refused, which no time was expected for."""
        if self._open_trials[arm, cell.key] > 0:
            self._open_trials[arm, cell.key] -= 1

    def closed(self, arm: str, testbed: str, seconds: float) -> None:
        """A testbed is gone, which has taken so long besides its trials; another may follow for what is repeated."""
        self._launched.pop((arm, testbed), None)
        self._testbeds[arm, testbed].append(seconds)

    def over(self, arm: str, testbed: str) -> None:
        self._batches += 1
        self._open_batches[arm, testbed] -= 1

    def given_up(self, arm: str) -> None:
        """Nothing more will be measured on a platform."""
        for left in (self._open_trials, self._open_batches):
            for key in left:
                if key[0] == arm:
                    left[key] = 0

    def keep(self, *, whole: bool = True) -> None:
        """Remember what this run has cost, for the next; of kinds of parts only what a ``whole`` run has met."""
        trials = {
            self._trial_key(arm, self._cells[key]): statistics.median(seconds)
            for (arm, key), seconds in self._worth_keeping.items()
        }
        testbeds = {
            self._testbed_key(arm, testbed): statistics.median(seconds)
            for (arm, testbed), seconds in self._testbeds.items()
        }
        self._remembered.keep(trials | testbeds | (self._ratios() | self._repeats() if whole else {}))

    def _ratios(self) -> dict[str, float]:
        """Of what was measured to what its plan declares, by kind of platform and suite; a kind's median testbed."""
        sums: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        testbeds: defaultdict[str, list[float]] = defaultdict(list)
        for (arm, key), seconds in self._worth_keeping.items():
            cell = self._cells[key]
            sums[self._ratio_key(arm, cell.suite)].append((statistics.median(seconds), cell.expected_s))
        for (arm, _), seconds in self._testbeds.items():
            testbeds[self._ratio_key(arm, "")] += seconds
        ratios = {key: sum(one for one, _ in pairs) / sum(one for _, one in pairs) for key, pairs in sums.items()}
        found = {key: min(max(ratio, _RATIOS[0]), _RATIOS[1]) for key, ratio in ratios.items()}
        return found | {key: statistics.median(seconds) for key, seconds in testbeds.items()}

    def _repeats(self) -> dict[str, float]:
        """How often a trial is made, and a testbed launched, before it counts."""
        if not (self._over and self._batches):
            return {}
        return {
            "attempts": self._attempts / self._over,
            "launches": sum(map(len, self._testbeds.values())) / self._batches,
        }

    @property
    def seconds(self) -> float | None:
        """What is left of the run; None while too little is known of a platform to say."""
        left = sum(number for number in self._open_trials.values() if number > 0)
        unseen = left and self._over / (self._over + left) < _UNSEEN_SHARE
        if not self._shown and unseen and not self._every_platform_is_known():
            return None
        self._shown = True
        return self.expected

    @property
    def expected(self) -> float:
        """Seconds to the end of the run, as well as they can be told by now."""
        met, before = self._repeats(), self._remembered.get
        again, launches = (
            max(met.get(name) or min(before(name) or 1.0, _MOST_REPEATS), 1.0) for name in ("attempts", "launches")
        )
        found = defaultdict[str, float](float)  # by arm
        for (arm, cell), number in self._open_trials.items():
            if number > 0:
                found[arm] += again * number * self._cost(arm, cell)
        for (arm, testbed), number in self._open_batches.items():
            if number > 0:
                found[arm] += launches * number * self._testbed(arm, testbed)
        for (arm, _), seconds in self._launched.items():
            found[arm] -= seconds
        return max(max(found.values(), default=0.0) if self._at_the_same_time else sum(found.values()), 0.0)

    def __str__(self) -> str:
        """``about 12 min 30 s, as its parts took on this machine before``."""
        open_trials = [(key, number) for key, number in self._open_trials.items() if number > 0]
        whole = sum(number for _, number in open_trials)
        if not whole:
            return "no time: nothing is left that takes any"

        def share(key: Callable[[str, Cell], str]) -> float:
            known = (self._remembered.get(key(arm, self._cells[cell])) is not None for (arm, cell), _ in open_trials)
            return sum(number for is_known, (_, number) in zip(known, open_trials, strict=True) if is_known) / whole

        exact, of_kind = share(self._trial_key), share(lambda arm, cell: self._ratio_key(arm, cell.suite))
        unknown = f"{1 - max(exact, of_kind):.0%} of the trials"
        basis = f"a guess by the plan's settings: of {unknown} none like them was made on this machine before"
        if all(arm.simulated for arm in self._arms.values()):
            basis = "for invented machines take no time of their own"
        elif exact > _KNOWN_SHARE:
            basis = "as its parts took on this machine before"
        elif of_kind > _KNOWN_SHARE:
            basis = "by what others of their kind took on this machine before"
        return f"about {running_time(self.expected)}, {basis}"

    def _every_platform_is_known(self) -> bool:
        """Whether each was met in a good part of what is to be done on it, or is remembered in all of it."""
        planned, met = Counter(arm for arm, _ in self._open_trials), Counter(arm for arm, _ in self._trials)
        left = {arm for (arm, _), number in self._open_trials.items() if number > 0}
        unmet = {arm for arm in left if met[arm] < _MET_SHARE * planned[arm]}
        return all(
            self._remembered.get(key) is not None
            for arm in unmet
            for key in (
                *(self._testbed_key(arm, testbed) for name, testbed in self._open_batches if name == arm),
                *(self._trial_key(arm, self._cells[cell]) for name, cell in self._open_trials if name == arm),
            )
        )

    def _cost(self, arm: str, key: str) -> float:
        if met := self._trials.get((arm, key)):
            return statistics.fmean(met)
        return self._unmet(arm, self._cells[key])

    def _unmet(self, arm: str, cell: Cell) -> float:
        """Of a cell that was not met yet: as others were on the platform in the suite, or what is closest to that.

        Half-way between what it was expected to take beside those, and what they took alike: expectations are coarse.
        """
        prior = self._prior(arm, cell)
        for group in ((arm, cell.suite), (arm, ""), ("", cell.suite), ("", "")):
            seconds, expected, number = self._sums.get(group, (0.0, 0.0, 0.0))
            if expected > 0:
                in_proportion = prior * seconds / expected
                known = self._remembered.get(self._trial_key(arm, cell)) is not None or not group[0]
                return in_proportion if known else math.sqrt(in_proportion * seconds / number)
        return prior

    def _prior(self, arm: str, cell: Cell) -> float:
        """A trial's cost before this run has met it."""
        if (arm, cell.key) not in self._priors:
            remembered = self._remembered.get(self._trial_key(arm, cell))
            ratio = self._remembered.get(self._ratio_key(arm, cell.suite))
            if self._arms[arm].simulated:
                ratio = _INVENTED
            declared = cell.expected_s * (ratio or (_EMULATED_FACTOR if self._arms[arm].emulated else 1.0))
            self._priors[arm, cell.key] = declared if remembered is None else remembered
        return self._priors[arm, cell.key]

    def _testbed(self, arm: str, testbed: str) -> float:
        if met := self._testbeds.get((arm, testbed)):
            return statistics.fmean(met)
        known = self._remembered.get(self._testbed_key(arm, testbed))
        if known is None:
            own = [seconds for (name, _), all_ in self._testbeds.items() if name == arm for seconds in all_]
            if self._arms[arm].simulated:
                return 0.0
            unmet = _EMULATED_TESTBED_S if self._arms[arm].emulated else _TESTBED_S
            known = statistics.fmean(own) if own else self._remembered.get(self._ratio_key(arm, "")) or unmet
        return max(known, self._launched.get((arm, testbed), 0.0))

    def _trial_key(self, arm: str, cell: Cell) -> str:
        params = json.dumps(dict(cell.params), sort_keys=True, default=str)
        return _digest(self._platforms[arm], cell.key, cell.testbed, params, f"{cell.expected_s:g}/{cell.timeout_s:g}")

    def _ratio_key(self, arm: str, suite: str) -> str:
        """Of a kind of platform, and a suite; without one, of its testbeds."""
        record = self._arms[arm]
        return _digest("ratio", record.kind, str(record.settings.get("runtime")), str(record.emulated), suite)

    def _testbed_key(self, arm: str, testbed: str) -> str:
        return _digest(self._platforms[arm], testbed)


@dataclasses.dataclass
class Stopwatch:
    """Seconds since it was made, and those of them that were given to something else."""

    elsewhere: float = 0.0
    _began: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._began

    @property
    def own(self) -> float:
        return self.elapsed - self.elsewhere


def _platform_key(record: ArmRecord) -> str:
    """The same for a platform of the same settings under any name, and for the A/A arm of the reference."""
    settings = {name: value for name, value in record.settings.items() if name != "found"}
    return f"{record.kind} {record.emulated} {json.dumps(settings, sort_keys=True, default=str)}"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]

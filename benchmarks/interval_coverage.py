"""How often intervals hold the truth, and how often a difference is called that is none, on simulated repetitions.

Examples:
  python benchmarks/interval_coverage.py               every estimator and shape 10,000 times, into docs/coverage.md
  python benchmarks/interval_coverage.py --runs 500    fewer, printed only

The estimators are those of the report, called as it calls them.  Each repetition is a trial of correlated samples, of
which :class:`Distribution` takes a quantile; its truth is the median over all simulated repetitions, hundred thousands,
except where the simulation itself is told it (a factor, a difference, a device's capacity).
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from virtgauge.analysis import bounds, comparison, ranks, shift
from virtgauge.analysis.aligned_ranks import aligned_rank_anova, anova
from virtgauge.analysis.change_points import segments, step_limit
from virtgauge.analysis.distribution import Distribution
from virtgauge.analysis.estimate import Estimate, median_estimate
from virtgauge.analysis.storage import CHANCE, disk_changed
from virtgauge.suites.forwarding.searches import Limits, Rfc2544Search
from virtgauge.suites.forwarding.trial import FlowResult, TrialResult
from virtgauge.suites.storage.knee import LatencyPoint, find_knee

PAGE = Path(__file__).resolve().parents[1] / "docs" / "coverage.md"
RUNS = 10_000
SEED = 20_260_119
LEVEL = 0.05
LEAST = 0.93  # What an interval that states 95 % must be found to hold
_SAMPLES = 100  # of a trial
_COLUMNS = 24  # repetitions of a run
_PERMUTATIONS = 999
_RESOLUTION = 0.00504  # of the searches: 0.5 % of the load above

Values = npt.NDArray[np.float64]
_Found = TypeVar("_Found")


@dataclasses.dataclass(frozen=True)
class Row:
    """One estimator on one shape."""

    estimator: str
    shape: str
    stated: float  # coverage, or the largest share of false findings
    found: float
    false: bool  # whether the shares are of false findings
    runs: int

    @property
    def holds(self) -> bool:
        if self.false:  # what stands at its level exactly lies above it in every second simulation
            return self.found <= self.stated + 2 * (self.stated * (1 - self.stated) / self.runs) ** 0.5
        return self.found >= self.stated - (0.95 - LEAST)


def bimodal(rng: np.random.Generator, trials: int) -> Values:
    """Sleeps that wake by either of two ways, in ns; how often by which one differs by guest."""
    late = rng.random((trials, _SAMPLES)) < rng.beta(3, 4, (trials, 1))
    return np.where(late, 110e3, 60e3) * np.exp(rng.normal(0, 0.05, (trials, _SAMPLES)))


def autocorrelated(rng: np.random.Generator, trials: int) -> Values:
    """Noise of which a sample shares 95 % with the one before, beside a guest's own level."""
    noise = np.empty((trials, _SAMPLES))
    noise[:, 0] = rng.normal(0, 1, trials)
    for place in range(1, _SAMPLES):
        noise[:, place] = 0.95 * noise[:, place - 1] + np.sqrt(1 - 0.95**2) * rng.normal(0, 1, trials)
    return 1e3 * np.exp(0.2 * noise + rng.normal(0, 0.05, (trials, 1)))


def bursts(rng: np.random.Generator, trials: int) -> Values:
    """Every third trial loses the processor for a stretch of its samples."""
    begin, length = rng.integers(0, _SAMPLES, (trials, 1)), rng.geometric(1 / 40, (trials, 1))
    place = np.arange(_SAMPLES)
    stolen = (rng.random((trials, 1)) < 1 / 3) & (place >= begin) & (place < begin + length)
    calm = 1e3 * np.exp(rng.normal(0, 0.1, (trials, _SAMPLES)) + rng.normal(0, 0.03, (trials, 1)))
    return calm + stolen * rng.exponential(4e3, (trials, _SAMPLES))


def coarse(rng: np.random.Generator, trials: int) -> Values:
    """A clock that advances every 10 ns reads what takes about 45."""
    return 10 * np.floor(45 * np.exp(rng.normal(0, 0.1, (trials, 1))) / 10 + rng.random((trials, _SAMPLES)))


SHAPES: dict[str, Callable[[np.random.Generator, int], Values]] = {
    "bimodal sleeps": bimodal,
    "autocorrelated noise": autocorrelated,
    "steal bursts": bursts,
    "coarse clock": coarse,
}


_DELTA = "Cliff's δ of 10 and 10"
NOTES = {
    _DELTA: "near ±1, where almost every value of one side lies above almost every one of the other, ten repetitions\n"
    "say little of the few that do not, and the interval is too narrow."
}
"""Why an estimator misses what it states."""


def rows_of(shape: str, runs: int, seed: int = SEED) -> list[Row]:
    """Every estimator on one shape."""
    rng = np.random.default_rng([seed, [*SHAPES].index(shape)])
    figures = _repetitions(SHAPES[shape], rng, runs)
    checks = {**_intervals(figures, rng), **_decisions(figures[0], rng), **_within_guests(figures[0], rng)}
    return [
        Row(name, shape, stated, float(np.mean([*outcomes])), false, runs)
        for name, (stated, false, outcomes) in checks.items()
    ]


def _repetitions(draw: Callable[[np.random.Generator, int], Values], rng: np.random.Generator, runs: int) -> Values:
    """Median and 90th percentile of every repetition, in ns: shape (2, runs, repetitions)."""
    figures = [
        Distribution.of(trial).quantiles([0.5, 0.9])
        for _ in range(runs)
        for trial in np.rint(draw(rng, _COLUMNS)).astype(np.int64)
    ]
    return np.moveaxis(np.array(figures).reshape(runs, _COLUMNS, 2), 2, 0)


Check = tuple[float, bool, Iterator[bool]]  # What is stated, whether of false findings, and each run's outcome


def _holds(estimate: Estimate, truth: float) -> bool:
    """Whether the interval, its ends included, holds the truth; ends that are tied with it differ by rounding."""
    assert estimate.low is not None and estimate.high is not None
    slack = 1e-9 * abs(truth)
    return estimate.low - slack <= truth <= estimate.high + slack


def _medians(figures: Values, truth: float) -> Iterator[bool]:
    return (_holds(median_estimate(run.tolist(), "ns", 0.95), truth) for run in figures)


def _blocks(values: Values) -> dict[int, float]:
    return dict(enumerate(values.tolist()))


def _intervals(figures: Values, rng: np.random.Generator) -> dict[str, Check]:
    p50, p90 = figures
    middle, tail = float(np.median(p50)), float(np.median(p90))
    day = np.exp(rng.normal(0, 0.2, (len(p50), 12)))  # what a block's arms have in common
    one, other = p50[:, :12] * day, p50[:, 12:] * day
    checks: dict[str, Check] = {}
    for n in (3, 5, 6, 12, 24):
        stated = min(0.95, 1 - 2 * 0.5**n)
        checks[f"median, {n} repetitions"] = (
            stated,
            False,
            _medians(p50[:, :n], middle),
        )
    pairs = [(_blocks(a), _blocks(b)) for a, b in zip(one, other, strict=True)]
    tenfold = [_two_runs(run) for run in p50]
    every = p50.ravel()
    higher = float(np.sign(1.1 * every[:4000, None] - every[-4000:]).mean())
    checks |= {
        "quantile (p90), 12 repetitions": (
            0.95,
            False,
            _medians(p90[:, :12], tail),
        ),
        "median, at 1 to 24 repetitions at once": (
            0.95,
            False,
            (
                all(
                    not bounds.median_at_any_time(run[:n].tolist(), "ns", 0.95).excludes(middle)
                    for n in range(bounds.fewest_values(0.95), _COLUMNS + 1)
                )
                for run in p50
            ),
        ),
        "ratio in 12 blocks": (
            0.95,
            False,
            (_holds(comparison.paired_ratio({k: 1.3 * v for k, v in b.items()}, a, 0.95), 1.3) for a, b in pairs),
        ),
        "difference in 12 blocks": (
            0.95,
            False,
            (_holds(comparison.paired_difference(b, a, "ns", 0.95), 0.0) for a, b in pairs),
        ),
        "change within 12 blocks of a run": (
            0.95,
            False,
            (_holds(shift.paired_shifted(a, b, "ns", 0.95).ratio, 1.0) for a, b in pairs),
        ),
        "change between runs of 10": (
            0.95,
            False,
            (_holds(shift.shifted(a, [1.3 * value for value in b], "ns", 0.95).ratio, 1.3) for a, b in tenfold),
        ),
        _DELTA: (
            0.95,
            False,
            (
                _holds(
                    ranks.stratified_delta([({k: 1.1 * v for k, v in enumerate(a)}, dict(enumerate(b)))], 0.95), higher
                )
                for a, b in tenfold
            ),
        ),
        "no-drop rate (NDR), 10 searches, to their 0.5 %": (
            0.95,
            False,
            (_of_searches(run[:10] / middle, _no_drop) for run in p50),
        ),
        "knee, 10 searches, to their 0.5 %": (0.95, False, (_of_searches(run[:10] / middle, _knee) for run in p50)),
    }
    return checks


def _two_runs(run: Values) -> tuple[list[float], list[float]]:
    return run[:10].tolist(), run[10:20].tolist()


def _of_searches(levels: Values, search: Callable[[float], float]) -> bool:
    """Whether the interval of what is found holds the median capacity: 100,000, divided by each repetition's level.

    A search finds the highest load that passed, so that the capacity lies above it by up to the search's resolution.
    """
    found = median_estimate([search(1e5 / level) for level in levels], "1/s", 0.95)
    assert found.low is not None and found.high is not None
    return found.low <= 1e5 <= found.high * (1 + _RESOLUTION)


def _no_drop(capacity: float) -> float:
    async def offer(rate_pps: float, duration_s: float) -> TrialResult:
        sent = round(rate_pps * duration_s)
        flow = FlowResult(sent, max(0, sent - round(capacity * duration_s)))
        return TrialResult(rate_pps, duration_s, duration_s, (flow,))

    found = _run(Rfc2544Search(trial_s=1.0).find(offer, Limits(1e3, 1e6), [0.0]))[0].rate_pps
    assert found is not None
    return float(found)


def _knee(capacity: float) -> float:
    async def measure(rate: float) -> LatencyPoint:
        return LatencyPoint(rate, min(rate, capacity), None, None, None, rate <= capacity)

    found = _run(find_knee(measure, 1.1e5, 10)).rate_per_s
    assert found is not None
    return found


def _run(coroutine: Coroutine[Any, Any, _Found]) -> _Found:
    """What a coroutine that waits for nothing returns; an event loop for each would take most of the time."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        found: _Found = end.value
        return found
    raise AssertionError("it waited")


def _decisions(p50: Values, rng: np.random.Generator) -> dict[str, Check]:
    truth = float(np.median(p50))
    below = np.nextafter(truth, 0)
    return {
        "verdict of 12 repetitions": (LEVEL, True, (_wrong(run[:12], truth, below) for run in p50)),
        "verdicts in sequence, up to 24": (
            LEVEL,
            True,
            (any(_wrong(run[:n], truth, below, any_time=True) for n in range(1, _COLUMNS + 1)) for run in p50),
        ),
        "difference from the reference, 8 blocks": (LEVEL, True, (_differs(run) for run in p50)),
        "any of 3 pairs of platforms, 6 blocks (Bonferroni)": (LEVEL, True, (_any_pair(run) for run in p50)),
        "any of 5 changes between runs (Benjamini–Hochberg)": (
            LEVEL,
            True,
            (_any_change(p50[(run + np.arange(5)) % len(p50), :16]) for run in range(len(p50))),
        ),
        "platforms by guests (Kruskal–Wallis)": (LEVEL, True, (_platforms(run, rng) for run in p50)),
        "any interaction (aligned ranks, Holm)": (LEVEL, True, (_interaction(run, rng) for run in p50)),
        "change point, 8 runs of 3": (LEVEL, True, (_changes(run, 0.0, rng) for run in p50)),
        "change point where days differ": (LEVEL, True, (_changes(run, 0.1, rng) for run in p50)),
        "another disk, 12 bursts each": (CHANCE, True, (disk_changed(run[:12], run[12:]) for run in p50)),
    }


def _wrong(run: Values, truth: float, below: float, *, any_time: bool = False) -> bool:
    """Whether a bound that is just met is said to fail, or one that is just missed to pass."""

    def outcome(at_most: float) -> bounds.Outcome:
        bound = bounds.Bound(at_most=at_most)
        return bounds.decide(run.tolist(), bound, "ns", 0.95, any_time_valid=any_time).outcome

    return outcome(truth) is bounds.Outcome.FAIL or outcome(below) is bounds.Outcome.PASS


def _differs(run: Values) -> bool:
    base, again, test = (_blocks(part) for part in run.reshape(3, 8))
    identical = comparison.paired_ratio(again, base, 0.95)
    return comparison.compare(test, base, identical, "ns", 0.95).distinguishable


def _any_pair(run: Values) -> bool:
    nominal = 1 - LEVEL / 3
    base, again, second, third = (_blocks(part) for part in run.reshape(4, 6))
    identical = comparison.paired_ratio(again, base, nominal)
    return any(
        comparison.judge_ratio(comparison.paired_ratio(one, other, nominal), identical, nominal)[0]
        is not comparison.Judgement.INCONCLUSIVE
        for one, other in ((second, base), (third, base), (third, second))
    )


def _any_change(cells: Values) -> bool:
    found = [shift.shifted(cell[:8].tolist(), cell[8:].tolist(), "ns", 0.95) for cell in cells]
    p_values = shift.benjamini_hochberg([change.p for change in found if change.p is not None])
    held = sum(p <= LEVEL for p in p_values)
    against = shift.Bounds(1.0, 0.0, 0.0, LEVEL, len(found), held)  # no band to hide behind
    differing = (shift.Outcome.HIGHER, shift.Outcome.LOWER)
    return any(shift.judge(change, p, against).outcome in differing for change, p in zip(found, p_values, strict=True))


def _platforms(run: Values, rng: np.random.Generator) -> bool:
    """Three equal platforms, four guests of each, two cells; a guest's cells share its level."""
    values = run.reshape(3, 2, 4) * np.exp(rng.normal(0, 0.2, (3, 1, 4)))
    units = ranks.unit_ranks([[_blocks(cell) for cell in platform] for platform in values])
    return ranks.kruskal_wallis(units).p < LEVEL


def _interaction(run: Values, rng: np.random.Generator) -> bool:
    """Two functions on three equal platforms, four guests of each."""
    logs = np.log(run.reshape(2, 3, 4)) + rng.normal(0, 0.2, (1, 3, 4))
    both = zip(aligned_rank_anova(logs, [1]), anova(logs, [1]), strict=True)
    return min(ranks.holm([max(by_ranks.p, by_values.p) for by_ranks, by_values in both])) < LEVEL


def _changes(run: Values, day: float, rng: np.random.Generator) -> bool:
    """Whether a series of runs that does not change is cut, and by more than its runs differ anyway."""
    groups = np.log(run.reshape(8, 3)) + rng.normal(0, day, (8, 1)) * (day > 0)
    cuts = segments([*groups], LEVEL, SEED, _PERMUTATIONS)
    levels = np.median(groups, axis=1).tolist()
    ends = [0, *(cut + 1 for cut in cuts), 8]
    for begin, at, end in zip(ends, ends[1:], ends[2:], strict=False):
        step = shift.shift_estimate(groups[begin:at].ravel().tolist(), groups[at:end].ravel().tolist(), "log", 0.95)
        if abs(step.point or 0.0) > step_limit(levels, at - begin, end - at):
            return True
    return False


def _within_guests(p50: Values, rng: np.random.Generator) -> dict[str, Check]:
    return {
        "function within 6 guests (sign test)": (LEVEL, True, (_within(run, 2, rng) for run in p50)),
        "load within 4 guests (Friedman)": (LEVEL, True, (_within(run, 3, rng) for run in p50)),
        "function × platform where guests differ in it": (LEVEL, True, (_crossed(run, rng) for run in p50)),
    }


def _within(run: Values, levels: int, rng: np.random.Generator) -> bool:
    """A factor without effect, on guests that differ altogether and in each of its levels, in two cells of each."""
    values = run.reshape(levels, 2, -1)
    guests = values.shape[2]
    values = values * np.exp(rng.normal(0, 0.2, guests) + rng.normal(0, 0.2, (levels, 1, guests)))
    units = ranks.ranks_within_units([[_blocks(cell) for cell in level] for level in values])
    return ranks.kruskal_wallis(units, blocked=True).p < LEVEL


def _crossed(run: Values, rng: np.random.Generator) -> bool:
    """Two functions on two equal platforms under two loads, three guests of each, which differ in each function."""
    logs = np.log(run.reshape(2, 2, 2, 3)) + rng.normal(0, 0.2, (2, 2, 1, 3))
    both = zip(aligned_rank_anova(logs, [1]), anova(logs, [1]), strict=True)
    return any(max(by_ranks.p, one.p) < LEVEL for by_ranks, one in both if one.factors == (0, 1))


def page(rows: list[Row], seconds: float) -> str:
    """The document."""
    missed = [row for row in rows if not row.holds]
    lines = [
        "# How often the intervals hold",
        "",
        "Made by `python benchmarks/interval_coverage.py`; do not edit. "
        f"{rows[0].runs:,} simulated runs of each estimator and shape, seed {SEED}, {seconds / 60:.0f} minutes on two "
        "cores.",
        "",
        "Each repetition is a trial of correlated samples, and what is estimated is known: the median over all",
        "simulated repetitions, or what the simulation was told (a factor, a capacity). The estimators are the",
        "report's.",
        f"An interval that states 95 % has to hold in {100 * LEAST:.0f} % or more; few repetitions state less, and are "
        "held to that.",
        "False findings are held to their level and twice the error of the simulation. Of a family that is corrected,",
        "the share is of runs with any false finding. A search for a rate ends up to 0.5 % below the capacity (its",
        "resolution): its interval is held to the capacity with that much room above.",
        "",
        "Repetitions are independent here. Where they drift together, every interval holds less often than it",
        "states: of 12 repetitions with a correlation of 0.5 from one to the next, the median's at 95 % holds",
        "about 83 %. A run's blocks are random and hold all arms, so that drift cancels in ratios, and identical",
        "arms (A/A) show what is left of it. NDR is found here by bisection, of a device that loses all above its",
        "capacity; MLRsearch, random loss and the judgement of papers' conclusions are not simulated.",
        "",
    ]
    for false, heading in ((False, "Coverage of intervals"), (True, "False findings of decisions")):
        stated = "at most" if false else "stated"
        lines += [
            f"## {heading}",
            "",
            f"| estimator | {stated} | {' | '.join(SHAPES)} |",
            "|---|" + "--:|" * (1 + len(SHAPES)),
        ]
        names = dict.fromkeys(row.estimator for row in rows if row.false is false)
        for name in names:
            own = {row.shape: row for row in rows if row.estimator == name}
            cells = [f"{100 * own[shape].found:.2f} %" + ("" if own[shape].holds else " ✗") for shape in SHAPES]
            lines.append(f"| {name} | {100 * next(iter(own.values())).stated:g} % | {' | '.join(cells)} |")
        lines.append("")
    lines += [f"{name}: {note}\n" for name, note in NOTES.items() if any(row.estimator == name for row in missed)]
    lines.append(
        f"✗ marks {len(missed)} of {len(rows)} that miss what they state." if missed else "All hold what they state."
    )
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS, help=f"of each estimator and shape; {RUNS} are published")
    arguments = parser.parse_args()
    begin = time.monotonic()
    with multiprocessing.Pool(2) as pool:
        found = pool.starmap(rows_of, [(shape, arguments.runs) for shape in SHAPES], chunksize=1)
    rows = [row for part in found for row in part]
    text = page(rows, time.monotonic() - begin)
    print(text)
    if arguments.runs >= RUNS:
        PAGE.write_text(text, encoding="utf-8")
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

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
import itertools
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import claims_coverage
import numpy as np
import numpy.typing as npt
import rare_coverage
import search_coverage

from virtgauge.analysis import bounds, comparison, ranks, shift
from virtgauge.analysis.aligned_ranks import aligned_rank_anova, anova
from virtgauge.analysis.change_points import segments, step_limit
from virtgauge.analysis.critical_rate import LossCount, loss_ratio
from virtgauge.analysis.distribution import Distribution
from virtgauge.analysis.estimate import Estimate, median_estimate
from virtgauge.analysis.resources import CHANCE, disk_changed

PAGE = Path(__file__).resolve().parents[1] / "docs" / "coverage.md"
RUNS = 10_000
SEED = 20_260_119
LEVEL = 0.05
LEAST = 0.93  # What an interval that states 95 % must be found to hold
_SAMPLES = 100  # of a trial
_COLUMNS = 24  # repetitions of a run
_PERMUTATIONS = 999
_SEARCHED = 40  # MLRsearch takes so long that there is one run of so many

Values = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Row:
    """One estimator on one shape."""

    estimator: str
    shape: str
    stated: float  # coverage, or the largest share of false findings
    found: float
    false: bool  # whether the shares are of false findings
    runs: int
    width: float | None = None  # of the interval, on the average; where that is worth telling

    @property
    def holds(self) -> bool:
        if self.false:  # what stands at its level exactly lies above it in every second simulation
            return self.found <= self.stated + 2 * (self.stated * (1 - self.stated) / self.runs) ** 0.5
        error = 2 * (self.stated * (1 - self.stated) / self.runs) ** 0.5 if self.runs < RUNS / 10 else 0.0
        return self.found >= self.stated - (0.95 - LEAST) - error


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

COLUMNS = (*SHAPES, *rare_coverage.PROCESSES)

_BEGIN = """\
# How often the intervals hold

Made by `python benchmarks/interval_coverage.py`; do not edit. {runs:,} simulated runs of each estimator and shape, \
seed {seed}, {minutes:.0f} minutes on two cores.

Each repetition is a trial of correlated samples, and what is estimated is known: the median over all
simulated repetitions, or what the simulation was told (a factor, a capacity). The estimators are the
report's.
An interval that states 95 % has to hold in {least:.0f} % or more; few repetitions state less, and are held to that.
False findings are held to their level and twice the error of the simulation. Of a family that is corrected,
the share is of runs with any false finding. A search for a rate ends up to 0.5 % below the capacity (its
resolution): its interval is held to the capacity with that much room above.

Of MLRsearch, which takes 60 trials, one run of {part} is made, and held to as much less as twice the error of that. Its
device stalls once in five seconds and loses one of a million frames besides, or its capacity varies by 1 % from trial
to trial. PDR allows 0.5 % of loss, and may be found so much above the capacity.

Of rare events, {runs:,} times 8 hours are watched, in which 16 clusters are expected, and beyond the limit 1.6; or 60
hours with as many an hour, in which a bound has to hold at each of 239 looks. Of the level that is exceeded once in 80
hours, {sized:,} times some 120 peaks tell, where they do (of how many is said). The bounds of a verdict are one-sided,
at 95 % each, so that both together state 90 %, and have to hold in {both:.0f} %. Bursts are of five events on average,
and the largest is the peak. Drift begins with none and ends at twice the mean rate: the rate and the level are those at
the mean rate of what was watched, and nothing bounds what follows. Interrupts of one length, which a cycle meets
anywhere in them, have the sharply bounded tail, of which no level is to be told.

A conclusion of a paper stands exactly at its bound here, so that to confirm it is as false as to contradict it: the
share is of both together, of twelve repetitions, or of any of the looks of a replay; equal figures stand in no order,
and of these only the confirmed ones are false. Figures of a coarse clock are tied
at the bound: they keep it, or, where more is claimed than the same, do not, and only the other verdict is false. At
the looks of a replay one run of {looked} is judged; rank tests at the first two of its four, for more guests take long.

Repetitions are independent here. Where they drift together, every interval holds less often than it
states: of 12 repetitions with a correlation of 0.5 from one to the next, the median's at 95 % holds
about 83 %. A run's blocks are random and hold all arms, so that drift cancels in ratios, and identical
arms (A/A) show what is left of it.
"""
_END = """\
## What is not in the tables

- The median's interval is that of every measure of every suite: a quantile, a rate, an error, a share; also of hosts of
  a fleet, of runs in a series, and of the live page. A ratio's is that of every comparison with a reference.
- The critical rate of a soak takes seconds, so that thousands of runs would take hours:
  `benchmarks/critical_coverage.py` counts 240, in [forwarding.md](forwarding.md).
- The estimators of available bandwidth give intervals of their own for the median of a search's instants. A report
  counts how many of them hold the counted truth: *hold the truth*.
- Extremes (minimum, maximum) and quantiles of all samples together have no interval, and say so. The smallest share
  that reaches a *q* is where the lower ends of q's intervals do.
- A bound on every repetition is no estimate: one beyond it fails.
- That a frame loss exceeds a ratio is a binomial test at 5 %, which searches take as it is.
- Conclusions about two arms are held back further by identical arms (A/A): without them, as here, they are least
  careful.
"""


def rows_of(shape: str, runs: int, seed: int = SEED) -> list[Row]:
    """Every estimator on one shape, or on one process of rare events."""
    rng = np.random.default_rng([seed, COLUMNS.index(shape)])
    checks: dict[str, Check] = {}
    if shape in SHAPES:
        figures = _repetitions(SHAPES[shape], rng, runs)
        checks |= {**_intervals(figures, rng), **_decisions(figures[0], rng), **_within_guests(figures[0], rng)}
        checks |= _claims(figures[0], rng)
    else:
        checks |= rare_coverage.checks(shape, runs, rng)
    rows = []
    for name, (stated, false, outcomes) in checks.items():
        found = np.array([*outcomes], dtype=np.float64)
        share, *width = np.atleast_1d(found.mean(axis=0)).tolist()
        rows.append(Row(name, shape, stated, share, false, len(found), *width))
    return rows


def _repetitions(draw: Callable[[np.random.Generator, int], Values], rng: np.random.Generator, runs: int) -> Values:
    """Median and 90th percentile of every repetition, in ns: shape (2, runs, repetitions)."""
    figures = [
        Distribution.of(trial).quantiles([0.5, 0.9])
        for _ in range(runs)
        for trial in np.rint(draw(rng, _COLUMNS)).astype(np.int64)
    ]
    return np.moveaxis(np.array(figures).reshape(runs, _COLUMNS, 2), 2, 0)


Check = tuple[float, bool, Iterable[bool | tuple[bool, float]]]
"""What is stated, whether of false findings, and each run's outcome, of some intervals with their width."""


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
        "q in 12 blocks": (
            0.95,
            False,
            (_holds(median_estimate(_q(run), "ratio", 0.95), 1.0) for run in p50),
        ),
        "loss ratio of a soak of 12 trials": (
            0.95,
            False,
            (
                _holds(loss_ratio(trials, 0.95), ratio)
                for trials, ratio in (_soaked(run[:12], float(p50.mean()), rng) for run in p50)
            ),
        ),
    }
    for factor, sizes in itertools.product((1.1, 1.5), ((5, 5), (10, 10), (30, 30), (20, 5))):
        higher = float(np.sign(factor * p50[:4000, :1] - p50[None, -4000:, -1]).mean())
        name = f"Cliff's δ of {sizes[0]} and {sizes[1]}, {factor:g} × as high"
        checks[name] = (0.95, False, _deltas(factor, higher, sizes, p50, rng))
    levels = p50[:, : search_coverage.SEARCHES] / middle
    for name, search in (("no-drop rate (NDR)", search_coverage.no_drop), ("knee", search_coverage.knee)):
        checks[f"{name}, 10 searches, to their 0.5 %"] = (0.95, False, _searched(search, levels))
    for name, device in (("stalls", search_coverage.stalling), ("varies", search_coverage.varying)):
        ndr, pdr = search_coverage.mlr_outcomes(device, levels[:: min(_SEARCHED, len(levels) // 4)], rng)
        checks[f"NDR by MLRsearch, device {name}, 10 searches"] = (0.95, False, ndr)
        checks[f"PDR by MLRsearch, device {name}, 10 searches"] = (0.95, False, pdr)
    return checks


def _deltas(
    factor: float, truth: float, sizes: tuple[int, int], p50: Values, rng: np.random.Generator
) -> Iterator[tuple[bool, float]]:
    for _ in p50:
        one, other = (p50.ravel()[rng.integers(0, p50.size, size)] for size in sizes)
        found = ranks.stratified_delta([(_blocks(factor * one), _blocks(other))], 0.95)
        assert found.low is not None and found.high is not None
        yield _holds(found, truth), found.high - found.low


def _searched(search: Callable[[float], float], levels: Values) -> Iterator[bool]:
    return (search_coverage.holds_capacity([search(search_coverage.CAPACITY / one) for one in run]) for run in levels)


def _two_runs(run: Values) -> tuple[list[float], list[float]]:
    return run[:10].tolist(), run[10:20].tolist()


def _q(run: Values) -> list[float]:
    """Work beside the reference's in each block, of a guest that is promised half and gets it."""
    share = 0.5
    return [share * work / reference / share for work, reference in run.reshape(12, 2)]


def _soaked(run: Values, mean: float, rng: np.random.Generator) -> tuple[list[LossCount], float]:
    """Trials of a soak, whose losses are as uneven as the shape, and the ratio in the long run."""
    sent, lost = 1_000_000, rng.poisson(20 * run / mean)
    return [LossCount(1e5, 10.0, sent, int(one)) for one in lost], 20 / sent


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
        "no change said of a change by the margin, 10 and 10": (LEVEL, True, (_no_change(run) for run in p50)),
        "identical arms said to differ, 20 cells of 6 blocks": (
            comparison.AA_ALARM,
            True,
            (_alarm(p50[(run + np.arange(10)) % len(p50)].reshape(20, 2, 6)) for run in range(len(p50))),
        ),
        "another disk, 12 bursts each": (CHANCE, True, (disk_changed(run[:12], run[12:]) for run in p50)),
    }


def _claims(p50: Values, rng: np.random.Generator) -> dict[str, Check]:
    truth, tied = float(np.median(p50)), bool(np.mean(p50[:, 0] == p50[:, 1]) > 0.1)
    return {
        title: (
            # Each look has its share of the chance, whether all of them are judged here or not.
            LEVEL if len(looks) == 1 else LEVEL * len(looks) / len(claims_coverage.LOOKS),
            True,
            map(
                claims_coverage.false_verdicts(name, looks, truth, tied),
                claims_coverage.runs_of(p50, name, looks, rng),
            ),
        )
        for title, (name, looks) in claims_coverage.ROWS.items()
    }


def _no_change(run: Values) -> bool:
    margin = 0.05
    first, second = _two_runs(run)
    change = shift.shifted(first, [(1 + margin + 1e-6) * value for value in second], "ns", 0.95)
    against = shift.Bounds(1.0, margin, 0.0, LEVEL, 1, 0)
    return shift.judge(change, change.p, against).outcome is shift.Outcome.EQUIVALENT


def _alarm(cells: Values) -> bool:
    ratios = [comparison.paired_ratio(_blocks(one), _blocks(other), 0.95) for one, other in cells]
    return comparison.agreement(ratios).ok is False


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
    units = ranks.unit_ranks([[{"": _blocks(cell)} for cell in platform] for platform in values])
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
    guests = rng.spawn(1)[0]  # of its own, so that what is drawn after it stays the same
    return {
        "function within 6 guests (sign test)": (LEVEL, True, (_within(run, 2, rng) for run in p50)),
        "load within 4 guests (Friedman)": (LEVEL, True, (_within(run, 3, rng) for run in p50)),
        "function × platform where guests differ in it": (LEVEL, True, (_crossed(run, rng) for run in p50)),
        "function × load, 4 × 3, 10 guests, one load 5 times as noisy": (
            LEVEL,
            True,
            (_noisy(p50[(run + np.arange(5)) % len(p50)], guests) for run in range(len(p50))),
        ),
    }


def _within(run: Values, levels: int, rng: np.random.Generator) -> bool:
    """A factor without effect, on guests that differ altogether and in each of its levels, in two cells of each."""
    values = run.reshape(levels, 2, -1)
    guests = values.shape[2]
    values = values * np.exp(rng.normal(0, 0.2, guests) + rng.normal(0, 0.2, (levels, 1, guests)))
    units = ranks.ranks_within_units([[{"": _blocks(cell)} for cell in level] for level in values])
    return ranks.kruskal_wallis(units, blocked=True).p < LEVEL


def _crossed(run: Values, rng: np.random.Generator) -> bool:
    """Two functions on two equal platforms under two loads, three guests of each, which differ in each function."""
    logs = np.log(run.reshape(2, 2, 2, 3)) + rng.normal(0, 0.2, (2, 2, 1, 3))
    both = zip(aligned_rank_anova(logs, [1]), anova(logs, [1]), strict=True)
    return any(max(by_ranks.p, one.p) < LEVEL for by_ranks, one in both if one.factors == (0, 1))


def _noisy(runs: Values, rng: np.random.Generator) -> bool:
    """Four functions under three loads in each of ten guests: a load that spreads more, but alike for all functions."""
    logs = np.log(runs.reshape(4, 3, 10)) * np.array([1, 1, 5])[:, None] + rng.normal(0, 0.2, 10)
    both = (analysis(logs, (), [(0, 1)])[0].p for analysis in (aligned_rank_anova, anova))
    return max(both) < LEVEL


_HEADINGS = ("Coverage of intervals", "False findings of decisions", "False verdicts on papers' conclusions")
_RARE = "Coverage of rare events"


def _heading(row: Row) -> str:
    if row.shape in rare_coverage.PROCESSES:
        return _RARE
    return _HEADINGS[2 if row.estimator in claims_coverage.ROWS else 1 if row.false else 0]


def _cell(row: Row) -> str:
    width = "" if row.width is None else f" (width {row.width:.2f})"
    told = f" (of {row.runs:,})" if row.shape in rare_coverage.PROCESSES and "level" in row.estimator else ""
    return f"{100 * row.found:.2f} %{width}{told}" + ("" if row.holds else " ✗")


def page(rows: list[Row], seconds: float) -> str:
    """The document."""
    missed = sum(not row.holds for row in rows)
    begin = _BEGIN.format(
        runs=rows[0].runs,
        seed=SEED,
        minutes=seconds / 60,
        least=100 * LEAST,
        part=_SEARCHED,
        looked=claims_coverage.PART,
        sized=rows[0].runs // rare_coverage.SIZED,
        both=100 * (LEAST - 0.05),
    )
    lines = [begin]
    for heading in (*_HEADINGS, _RARE):
        of_table = [row for row in rows if _heading(row) == heading]
        columns = list(dict.fromkeys(row.shape for row in of_table))
        stated = "at most" if of_table[0].false else "stated"
        lines += [
            f"## {heading}",
            "",
            f"| estimator | {stated} | {' | '.join(columns)} |",
            "|---|" + "--:|" * (1 + len(columns)),
        ]
        for name in dict.fromkeys(row.estimator for row in of_table):
            own = {row.shape: row for row in of_table if row.estimator == name}
            cells = " | ".join(_cell(own[column]) for column in columns)
            lines.append(f"| {name} | {100 * next(iter(own.values())).stated:g} % | {cells} |")
        lines.append("")
    lines.append(_END)
    lines.append(
        f"✗ marks {missed} of {len(rows)} that miss what they state." if missed else "All hold what they state."
    )
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS, help=f"of each estimator and shape; {RUNS} are published")
    arguments = parser.parse_args()
    begin = time.monotonic()
    with multiprocessing.Pool(2) as pool:
        found = pool.starmap(rows_of, [(shape, arguments.runs) for shape in COLUMNS], chunksize=1)
    rows = [row for part in found for row in part]
    text = page(rows, time.monotonic() - begin)
    print(text)
    if arguments.runs >= RUNS:
        PAGE.write_text(text, encoding="utf-8")
    return 0 if all(row.holds for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Time to a decided verdict: repetitions added until it is decided, against a fixed number of them.

Drawn figures with a known truth stand for the repetitions, and virtgauge's own judgement decides on them.  A fixed
count has to be chosen for the nearest margin that one wants to decide, and is spent on every platform; adding
repetitions ends as soon as the interval allows.  Beside both stands what is often done: looking at an ordinary interval
after each repetition and stopping when it pleases.  Its mistakes are counted where the true figure lies just beyond.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence

import numpy as np
from benchmark import Outcome as Found
from benchmark import figure, main, progress

from virtgauge.analysis.bounds import Bound, Outcome, decide

BOUND = Bound(at_most=1.0)
CONFIDENCE = 0.95
SPREAD = 0.05
"""Of repetitions, as a standard deviation of logarithms."""
MARGINS = (0.5, 0.2, 0.1, 0.05, 0.02)
FIXED = 30
BUDGET = 200
JUST_BEYOND = 1e-6

Rule = Callable[[Sequence[float]], tuple[Outcome, int]]
"""From the figures of as many repetitions as there may be to the verdict, and how many it took."""


def fixed(values: Sequence[float]) -> tuple[Outcome, int]:
    """All of a fixed number, judged once."""
    return decide(values[:FIXED], BOUND, "", CONFIDENCE).outcome, FIXED


def added(values: Sequence[float], *, any_time_valid: bool, first: int) -> tuple[Outcome, int]:
    """One after the other, judged after each."""
    for n in range(first, len(values) + 1):
        outcome = decide(values[:n], BOUND, "", CONFIDENCE, any_time_valid=any_time_valid).outcome
        if outcome is not Outcome.INCONCLUSIVE:
            return outcome, n
    return Outcome.INCONCLUSIVE, len(values)


RULES: dict[str, Rule] = {
    f"fixed, {FIXED}": fixed,
    "added until decided": lambda values: added(values, any_time_valid=True, first=8),
    "ordinary interval, looked at each time": lambda values: added(values, any_time_valid=False, first=6),
}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=400, help="drawn runs for each margin (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the figures (default %(default)s)")


def measure(arguments: argparse.Namespace) -> Found:
    runs = 20 if arguments.quick else arguments.runs
    random = np.random.default_rng(arguments.seed)
    taken: dict[tuple[str, float], list[int]] = {}
    decided: dict[tuple[str, float], float] = {}
    wrong: dict[str, float] = {}
    for margin in MARGINS:
        progress(f"margin {margin:.0%}")
        drawn = (1 - margin) * np.exp(SPREAD * random.standard_normal((runs, BUDGET)))
        for name, rule in RULES.items():
            ended = [rule(list(map(float, row))) for row in drawn]
            taken[name, margin] = [n for _, n in ended]
            decided[name, margin] = sum(outcome is Outcome.PASS for outcome, _ in ended) / runs
    progress("the true figure just beyond the bound")
    drawn = (1 + JUST_BEYOND) * np.exp(SPREAD * random.standard_normal((runs, BUDGET)))
    for name, rule in RULES.items():
        wrong[name] = sum(rule(list(map(float, row)))[0] is Outcome.PASS for row in drawn) / runs
    rows = [
        [
            name,
            *(_cell(taken[name, margin], decided[name, margin]) for margin in MARGINS),
            f"{wrong[name]:.1%}",
        ]
        for name in RULES
    ]
    return Found(
        columns=["repetitions", *(f"margin {margin:.0%}" for margin in MARGINS), "passed though beyond"],
        rows=rows,
        meaning=(
            "Repetitions that a verdict took (mean, and as a ratio to the fixed count) with the share of runs that it "
            "was decided in, by how far the true figure lies within the bound; and how often a figure just beyond it "
            f"passed, of which {1 - CONFIDENCE:.0%} are allowed."
        ),
        notes=[
            f"repetitions spread by {SPREAD:.0%}; {runs} drawn runs for each margin, at most {BUDGET} repetitions each",
            "a repetition's time cancels: the ratios are those of time as well",
        ],
        values={name: {f"{margin:g}": taken[name, margin] for margin in MARGINS} for name in RULES},
    )


def _cell(taken: Sequence[int], share: float) -> str:
    mean = statistics.mean(taken)
    return f"{figure(mean)} ({mean / FIXED:.2f}×), {share:.0%}"


if __name__ == "__main__":
    main(measure, __doc__ or "", options)

"""Whether an arm's figures are in random order over a run; if not, an interval over all of it is of no part of it."""

from __future__ import annotations

import functools
import math
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from virtgauge.analysis.change_points import candidate_of
from virtgauge.analysis.ranks import midranks
from virtgauge.results.measure import Better
from virtgauge.results.table import ResultTable
from virtgauge.specs.suites import headline_measures

_CHANCE = 0.05  # How often at most a run of exchangeable repetitions is said to be ordered, over all its arms
_FEWEST = 8  # Repetitions below which no order of them is rare enough
_GROUPS, _PERMUTATIONS = 40, 1999  # Neighbouring repetitions are taken together to so many groups: it bounds the time
_FIRST_PERMUTATIONS, _CLEARLY_CHANCE = 199, 0.1  # Where so few show so large a p, which is usual, more are not made


def course_caveats(table: ResultTable) -> Iterator[str]:
    """For each arm whose repetitions are not exchangeable: from where to where they differ, and in what.

    A repetition's place is its mean rank over all cells and headline measures, better ones higher, and by each measure
    the mean of its figures, each as a part of its cell's median: a factor of two is then told from a trifle, and a
    measure that changes alone from the others. What the cells of a repetition have in common is kept, because
    repetitions are permuted as wholes.
    """
    arms = [] if table.manifest.hosts else [arm.name for arm in table.arms if arm.usable]
    for arm in arms:
        blocks, places = _places(table, arm)
        if len(blocks) < _FEWEST:
            continue
        groups = np.array_split(np.array(blocks), min(len(blocks), _GROUPS))
        ask = functools.partial(candidate_of, list(places.values()), len(groups), table.manifest.seed)
        # Of so many families each has its own most extreme order, so that no p is below their number by the orders'.
        families = 2 * len(places)
        if ask(_FIRST_PERMUTATIONS)[1].p > _CLEARLY_CHANCE + families / (1 + _FIRST_PERMUTATIONS):
            continue
        index, found = ask(max(_PERMUTATIONS, math.ceil(1.5 * families * len(arms) / _CHANCE)))
        if found.p > _CHANCE / len(arms):
            continue
        starts = np.cumsum([0, *(len(group) for group in groups)])
        first, last = starts[found.start], starts[found.stop]
        if not found.start:  # what differs from the beginning is what the rest changed from
            first, last = last, len(blocks)
        better = (found.statistic > 0) == (found.start > 0)
        until = "on" if last == len(blocks) else f"to {blocks[last - 1] + 1}"
        yield (
            f"The figures of {arm} are not in random order (p = {found.p:.2g}; {list(places)[index]}): from repetition "
            f"{blocks[first] + 1} {until} they are {'better' if better else 'worse'}. A step, a drift or slow waves: "
            "the test does not tell which, and a figure over the whole run is of neither part."
        )


def _places(table: ResultTable, arm: str) -> tuple[list[int], dict[str, npt.NDArray[np.float64]]]:
    """The repetitions that have every figure that most have, ascending, and the places of each, by what has them."""
    columns = []
    for measure in headline_measures():
        for cell in table.cells(measure.suite):
            if values := table.values(measure, cell, arm):
                columns.append((measure, values))
    most = max((len(values) for _, values in columns), default=0)
    full = [(measure, values) for measure, values in columns if len(values) == most]
    blocks = sorted(set.intersection(*(set(values) for _, values in full))) if full else []
    ranks, parts = [], defaultdict(list)
    for measure, values in full:
        figures = np.array([values[block] for block in blocks])
        better = -figures if measure.better is Better.LOWER else figures
        ranks.append(midranks(better))
        parts[measure.full_name].append(better / (abs(np.median(figures)) or 1.0))
    places = {"all figures together": midranks(np.mean(ranks, axis=0))} if ranks else {}
    return blocks, places | {name: np.mean(of_cells, axis=0) for name, of_cells in parts.items()}

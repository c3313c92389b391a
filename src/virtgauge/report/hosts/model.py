"""Each host's figures and ratios to the reference, and whether hosts differ in what virtualization costs.

The ratio is formed within a host's own repetitions, so a faster host is no difference; hosts are compared by their
log-ratios, by Kruskal–Wallis (:mod:`virtgauge.analysis.ranks`), adjusted by Holm over everything compared.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from virtgauge.analysis.bootstrap import median_estimate
from virtgauge.analysis.comparison import paired_ratio
from virtgauge.analysis.estimate import Estimate
from virtgauge.analysis.ranks import holm, kruskal_wallis, least_attainable_p
from virtgauge.ledger.records import BLOCKS_PER_HOST, TESTER, ArmRecord, HostRecord, Manifest, TrialStatus
from virtgauge.measures.catalogue import headline_measures
from virtgauge.results.columns import STATUSES, Cell
from virtgauge.results.measure import Measure
from virtgauge.results.table import ResultTable

CellName = Callable[[str, str, Mapping[str, str]], str]


@dataclasses.dataclass(frozen=True)
class HostSummary:
    """One host of the fleet.

    Attributes:
        name: as in the plan.
        processor, kernel: of its fingerprint; empty where they are not known.
        trials: number by status.
        repetitions: with a valid trial.
        measured: it is more than a tester's.
        missing: names of the arms that cannot be used there.
    """

    name: str
    processor: str
    kernel: str
    trials: dict[str, int]
    repetitions: int
    measured: bool
    missing: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class HostFigure:
    """One host's figure of an arm in a cell.

    Attributes:
        estimate: over its repetitions, in the measure's base unit.
        ratio: to the reference on the same host; None of the reference itself.
    """

    host: str
    estimate: Estimate
    ratio: Estimate | None


@dataclasses.dataclass(frozen=True)
class HostTest:
    """Whether hosts differ in a ratio.

    Attributes:
        h, df, p: of Kruskal–Wallis on the paired log-ratios; None where the test cannot be made.
        p_adjusted: by Holm, over all tests of the run; None likewise.
        differ: whether they do at the run's confidence; None where nothing can be said, then ``reason`` says why.
    """

    h: float | None
    df: int | None
    p: float | None
    p_adjusted: float | None
    differ: bool | None
    reason: str


@dataclasses.dataclass(frozen=True)
class HostRow:
    """A headline measure of one arm in one cell, on every host.

    Attributes:
        measure: its full name.
        unit: the base unit of the estimates.
        cell: its name for people.
        arm: name of the arm.
        figures: of the hosts that have one, in the plan's order.
        test: None of the reference, which has no ratio.
    """

    measure: str
    unit: str
    cell: str
    arm: str
    figures: tuple[HostFigure, ...]
    test: HostTest | None


@dataclasses.dataclass(frozen=True)
class HostFindings:
    """Everything that is said of the hosts of a fleet.

    Attributes:
        testers: which suites have their tester on another host, in words.
    """

    hosts: tuple[HostSummary, ...]
    testers: tuple[str, ...]
    rows: tuple[HostRow, ...]

    @property
    def tested(self) -> int:
        """Rows of which can be said whether hosts differ."""
        return sum(row.test is not None and row.test.differ is not None for row in self.rows)

    @property
    def differing(self) -> tuple[HostRow, ...]:
        """Those in which they do."""
        return tuple(row for row in self.rows if row.test is not None and row.test.differ)


def hosts_of(table: ResultTable, manifest: Manifest, cell_name: CellName) -> HostFindings | None:
    """What a fleet's ledger says of its hosts; None of the run of one host.

    Args:
        table: of the run's figures.
        manifest: the run's, with its arms told apart.
        cell_name: what to call suite, probe and levels.
    """
    if not manifest.hosts:
        return None
    summaries = tuple(_summary(host, manifest.arms, table) for host in manifest.hosts)
    untested = list(_rows(table, manifest, cell_name))
    testers = tuple(event.detail for event in table.ledger.events() if event.kind == TESTER)
    return HostFindings(summaries, testers, tuple(_adjusted(untested, 1 - manifest.confidence)))


def _summary(host: HostRecord, arms: Sequence[ArmRecord], table: ResultTable) -> HostSummary:
    trials = table.trials
    own = (trials.block >= host.first_block) & (trials.block < host.first_block + BLOCKS_PER_HOST)
    statuses = np.bincount(trials.status[own], minlength=len(STATUSES)).tolist()
    valid = own & (trials.status == STATUSES.index(TrialStatus.VALID))
    identity = host.fingerprint.get("identity", {})
    return HostSummary(
        name=host.name,
        processor=str(identity.get("cpu_model") or ""),
        kernel=str(identity.get("kernel_release") or ""),
        trials={status.value: n for status, n in sorted(zip(STATUSES, statuses, strict=True)) if n},
        repetitions=np.unique(trials.block[valid]).size,
        measured=bool(host.arms),
        missing=tuple(arm.name for arm in arms if host.arms and arm.usable and arm.name not in host.arms),
    )


def _rows(table: ResultTable, manifest: Manifest, cell_name: CellName) -> Iterator[HostRow]:
    arms = [arm for arm in manifest.arms if arm.usable]
    for measure in headline_measures():
        for cell in table.cells(measure.suite):
            base = table.values(measure, cell, table.reference)
            for arm in arms:
                row = _row(measure, cell, arm, table, base, manifest, cell_name)
                if row.figures:
                    yield row


def _row(
    measure: Measure,
    cell: Cell,
    arm: ArmRecord,
    table: ResultTable,
    reference: Mapping[int, float],
    manifest: Manifest,
    cell_name: CellName,
) -> HostRow:
    found = table.values(measure, cell, arm.name)
    unit, nominal = measure.quantity.unit, manifest.confidence
    compared = arm.role != "reference"
    figures, groups = [], []
    for host in manifest.hosts:
        own = {block: value for block, value in found.items() if host.owns(block)}
        if own:
            base = {block: value for block, value in reference.items() if host.owns(block)}
            ratio = paired_ratio(own, base, nominal) if compared else None
            figures.append(HostFigure(host.name, median_estimate(list(own.values()), unit, nominal), ratio))
            groups.append(_log_ratios(own, base))
    test = _test(groups, 1 - nominal) if compared else None
    name = cell_name(cell.suite, cell.probe, cell.factors)
    return HostRow(measure.full_name, unit, name, arm.name, tuple(figures), test)


def _log_ratios(test: Mapping[int, float], reference: Mapping[int, float]) -> list[float] | None:
    """None where a figure is not positive, so that there is no ratio."""
    pairs = [(test[block], reference[block]) for block in sorted(test.keys() & reference.keys())]
    if any(mine <= 0 or base <= 0 for mine, base in pairs):
        return None
    return [math.log(mine / base) for mine, base in pairs]


def _test(groups: Sequence[list[float] | None], level: float) -> HostTest:
    """Kruskal–Wallis, unadjusted yet."""

    def untestable(reason: str) -> HostTest:
        return HostTest(None, None, None, None, None, reason)

    if any(group is None for group in groups):
        return untestable("a ratio needs positive figures")
    compared = [np.asarray(group, dtype=np.float64) for group in groups if group]
    if len(compared) < 2:
        return untestable("fewer than two hosts have repetitions of both platforms")
    if least_attainable_p([len(group) for group in compared]) > level:
        return untestable("too few repetitions for any difference between hosts to be shown")
    found = kruskal_wallis(compared)
    return HostTest(found.h, found.df, found.p, None, None, "")


def _adjusted(rows: Sequence[HostRow], level: float) -> Iterator[HostRow]:
    """The same rows with their verdicts, which rest on all of the tests together."""
    adjusted = iter(holm([row.test.p for row in rows if row.test is not None and row.test.p is not None]))
    for row in rows:
        if row.test is None or row.test.p is None:
            yield row
        else:
            p = next(adjusted)
            reason = "the hosts' ratios differ" if p < level else "no difference between the hosts' ratios was shown"
            test = dataclasses.replace(row.test, p_adjusted=p, differ=p < level, reason=reason)
            yield dataclasses.replace(row, test=test)

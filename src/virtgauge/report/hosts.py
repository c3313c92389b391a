"""Hosts of a fleet as a factor: what each found, and whether they differ in what virtualization costs.

The ratio is formed within a host's own repetitions, so a faster host is no difference; hosts are compared by their
log-ratios, by Kruskal–Wallis (:mod:`virtgauge.analysis.ranks`), adjusted by Holm over everything compared.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from virtgauge.analysis.comparison import paired_ratio
from virtgauge.analysis.estimate import Estimate, median_estimate
from virtgauge.analysis.ranks import holm, kruskal_wallis, least_attainable_p
from virtgauge.ledger.records import BLOCKS_PER_HOST, TESTER, ArmRecord, HostRecord, Manifest, TrialStatus
from virtgauge.results.columns import STATUSES, Cell
from virtgauge.results.formatting import NONE, count, p_value, ratio, ratio_interval
from virtgauge.results.measure import Measure
from virtgauge.results.quantities import COUNT, FACTOR, RATIO
from virtgauge.results.table import ResultTable
from virtgauge.specs import blocks
from virtgauge.specs.suites import headline_measures

_NOTE = (
    "Ratios are to the reference on the same host, within its own repetitions: a faster host is no difference. Hosts "
    "are compared by the logarithms of these ratios (Kruskal–Wallis), adjusted by Holm for all comparisons of this "
    "section. Everywhere else in this report the repetitions of all hosts stand together."
)


@dataclasses.dataclass(frozen=True)
class HostSummary:
    """One host of the fleet."""

    name: str  # as in the plan
    # processor, kernel: of its fingerprint; empty where they are not known
    processor: str
    kernel: str
    trials: dict[str, int]  # number by status
    repetitions: int  # with a valid trial
    measured: bool  # it is more than a tester's
    missing: tuple[str, ...]  # labels of the arms that cannot be used there


@dataclasses.dataclass(frozen=True)
class HostTest:
    """Whether hosts differ in a ratio."""

    reason: str = ""  # why nothing can be said; empty where something can
    # h, df, p: of Kruskal–Wallis on the paired log-ratios; None where the test cannot be made
    h: float | None = None
    df: int | None = None
    p: float | None = None
    p_adjusted: float | None = None  # by Holm, over all tests of the run; None likewise
    differ: bool | None = None  # whether they do at the run's confidence; None likewise

    @property
    def text(self) -> str:
        """``differ, p = 0.003``, or why nothing can be said."""
        if self.p_adjusted is None:
            return self.reason
        return f"{'differ' if self.differ else 'no difference shown'}, {p_value(self.p_adjusted)}"


@dataclasses.dataclass(frozen=True)
class HostRow:
    """A headline measure of one arm in one cell, on every host."""

    measure: Measure
    cell: Cell
    name: str  # of the cell, for people
    arm: ArmRecord
    estimates: Mapping[str, Estimate]  # by host, over its repetitions, in the measure's base unit
    ratios: Mapping[str, Estimate]  # to the reference on the same host; none of the reference itself
    test: HostTest | None  # None of the reference, which has no ratio


@dataclasses.dataclass(frozen=True)
class HostFindings:
    """Everything that is said of the hosts of a fleet."""

    hosts: tuple[HostSummary, ...]
    testers: tuple[str, ...]  # which suites have their tester on another host, in words
    rows: tuple[HostRow, ...]

    @property
    def tested(self) -> int:
        """Rows of which can be said whether hosts differ."""
        return sum(row.test is not None and row.test.differ is not None for row in self.rows)

    @property
    def differing(self) -> tuple[HostRow, ...]:
        """The rows in which hosts differ."""
        return tuple(row for row in self.rows if row.test is not None and row.test.differ)

    @property
    def caveats(self) -> Iterator[str]:
        """What a reader must know before the figures, in which the hosts stand together."""
        if self.differing:
            yield (
                f"Hosts differ in {len(self.differing)} of {self.tested} comparisons: figures of all hosts together do "
                "not stand for each of them (see Hosts)."
            )

    @property
    def section(self) -> blocks.Section:
        return blocks.Section("hosts", "Hosts", tuple(self._blocks()))

    def _blocks(self) -> Iterator[blocks.Block]:
        yield blocks.Text((self._sentence(),), "Hosts", "finding")
        yield from blocks.table_of("", ("Host",), _HOST_COLUMNS, map(_host_row, self.hosts))
        yield blocks.Text((*(f"{words}." for words in self.testers), _NOTE))
        yield from self._chart()
        names = [host.name for host in self.hosts]
        columns = [blocks.Column(title, name) for name in names for title in ("figure", "to the reference")]
        for measure in sorted({row.measure.full_name for row in self.rows}):
            own = [row for row in self.rows if row.measure.full_name == measure]
            rows = [blocks.Row((row.name,), row.arm.name, tuple(_figures(row, names))) for row in own]
            folded = not any(row.test and row.test.differ for row in own)
            more = blocks.Column("between hosts", text=True)
            yield from blocks.table_of(measure, ("Measured",), [*columns, more], rows, folded=folded)

    def _sentence(self) -> str:
        hosts = count(len(self.hosts), "host")
        if not self.tested:
            return f"{hosts}; whether they differ cannot be said with the repetitions at hand."
        if not self.differing:
            return f"{hosts}; no difference between them was shown in any of {self.tested} comparisons."
        said = f"they differ in {len(self.differing)} of {self.tested} comparisons"
        return f"{hosts}; {said}, so one ratio does not stand for all."

    def _chart(self) -> Iterator[blocks.Chart]:
        """Every ratio of every host; none where only one was measured."""
        hosts = [host.name for host in self.hosts if host.measured]
        panels: dict[str, list[dict[str, object]]] = {}
        for row in self.rows if len(hosts) > 1 else ():
            marks = panels.setdefault(row.measure.full_name, [])
            for host, found in row.ratios.items():
                if found.point is not None and found.point > 0:
                    told = {"t": ratio(found), "interval": ratio_interval(found), "at": row.name}
                    at = {"x": found.point, "low": found.low, "high": found.high}
                    place = {"category": host, "place": hosts.index(host), "arm": row.arm.name, "label": row.arm.label}
                    marks.append({"kind": "ours"} | place | at | told)
        yield from blocks.chart_of(
            *("dots", "Ratio to the reference, host by host"),
            "Each mark is a cell on one host: the median of its repetitions' ratios to the reference there, with its "
            "interval. 1 is the reference itself.",
            (blocks.Axis("times the reference's", FACTOR), blocks.Axis("")),
            panels.items(),
        )


_HOST_COLUMNS = (
    *(blocks.Column("processor", text=True), blocks.Column("kernel", text=True)),
    *("repetitions", "valid", "not valid", blocks.Column("platforms it lacks", text=True)),
)


def _host_row(host: HostSummary) -> blocks.Row:
    place, valid = blocks.Place("run", f"*;+host={host.name}"), host.trials.get("valid", 0)
    counts = {"repetitions": host.repetitions, "valid": valid, "not_valid": sum(host.trials.values()) - valid}
    shown = (blocks.Value.count(f"host.{name}", place, number, COUNT) for name, number in counts.items())
    lacks = ", ".join(host.missing) or NONE if host.measured else "not measured: tester only"
    return blocks.Row((host.name,), "", (host.processor or NONE, host.kernel or NONE, *shown, lacks))


def _figures(row: HostRow, hosts: Sequence[str]) -> Iterator[blocks.Shown]:
    for host in hosts:
        place = blocks.Place(row.measure.suite, f"{row.cell.text};+host={host}", row.arm.name)
        for name, found, quantity in (
            (row.measure.name, row.estimates.get(host), row.measure.quantity),
            (f"{row.measure.name}.ratio", row.ratios.get(host), RATIO),
        ):
            yield None if found is None else blocks.Value(name, place, found, quantity)
    yield row.test.text if row.test else NONE


def hosts_of(table: ResultTable, manifest: Manifest, names: Mapping[Cell, str]) -> HostFindings | None:
    """What a fleet's ledger says of its hosts, of arms that are told apart and cells by name; None of one host."""
    if not manifest.hosts:
        return None
    hosts = tuple(_summary(host, manifest.arms, table) for host in manifest.hosts)
    testers = tuple(event.detail for event in table.ledger.events() if event.kind == TESTER)
    untested = []
    for measure in headline_measures():
        for cell in table.cells(measure.suite):
            rows = (_row(measure, cell, names[cell], arm, table, manifest) for arm in manifest.arms if arm.usable)
            untested += [row for row in rows if row.estimates]
    return HostFindings(hosts, testers, tuple(_adjusted(untested, 1 - manifest.confidence)))


def _summary(host: HostRecord, arms: Sequence[ArmRecord], table: ResultTable) -> HostSummary:
    trials = table.trials
    own = (trials.block >= host.first_block) & (trials.block < host.first_block + BLOCKS_PER_HOST)
    valid = own & (trials.status == STATUSES.index(TrialStatus.VALID))
    identity = host.fingerprint.get("identity", {})
    return HostSummary(
        name=host.name,
        processor=str(identity.get("cpu_model") or ""),
        kernel=str(identity.get("kernel_release") or ""),
        trials=trials.statuses(own),
        repetitions=np.unique(trials.block[valid]).size,
        measured=bool(host.arms),
        missing=tuple(arm.label for arm in arms if host.arms and arm.usable and arm.name not in host.arms),
    )


def _row(measure: Measure, cell: Cell, name: str, arm: ArmRecord, table: ResultTable, manifest: Manifest) -> HostRow:
    found, reference = (table.values(measure, cell, one) for one in (arm.name, table.reference))
    compared, nominal = arm.role != "reference", manifest.confidence
    estimates, ratios, groups = {}, {}, []
    for host in manifest.hosts:
        if own := {block: value for block, value in found.items() if host.owns(block)}:
            base = {block: value for block, value in reference.items() if host.owns(block)}
            estimates[host.name] = median_estimate([*own.values()], measure.quantity.unit, nominal)
            groups.append([(own[block], base[block]) for block in sorted(own.keys() & base.keys())])
            if compared:
                ratios[host.name] = paired_ratio(own, base, nominal)
    test = _test(groups, 1 - nominal) if compared else None
    return HostRow(measure, cell, name, arm, estimates, ratios, test)


def _test(groups: Sequence[Sequence[tuple[float, float]]], level: float) -> HostTest:
    """Kruskal–Wallis on each host's pairs of a figure and the reference's, of two hosts exact, unadjusted yet."""
    if any(value <= 0 for group in groups for pair in group for value in pair):
        return HostTest("a ratio needs positive figures")
    compared = [np.array([math.log(mine / base) for mine, base in group]) for group in groups if group]
    if len(compared) < 2:
        return HostTest("fewer than two hosts have repetitions of both platforms")
    if least_attainable_p([len(group) for group in compared]) > level:
        return HostTest("too few repetitions for any difference between hosts to be shown")
    found = kruskal_wallis(compared, exact=True)
    return HostTest("", found.h, found.df, found.p)


def _adjusted(rows: Sequence[HostRow], level: float) -> Iterator[HostRow]:
    """The same rows with their verdicts, which rest on all of the tests together."""
    adjusted = iter(holm([row.test.p for row in rows if row.test is not None and row.test.p is not None]))
    for row in rows:
        if row.test is not None and row.test.p is not None:
            p = next(adjusted)
            row = dataclasses.replace(row, test=dataclasses.replace(row.test, p_adjusted=p, differ=p < level))
        yield row

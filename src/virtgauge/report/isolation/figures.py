"""The isolation suite's figures, as Vega-Lite specifications, and the rows behind their panels.

Performance and efficiency against the declared share in the paper's form (Rzecki et al. 2014, figures 1 to 4); then
what a neighbour costs: the interference matrix, how all falls as a load grows, 100-ms slices, and latencies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import ArmRecord
from virtgauge.report.arms import row_labels
from virtgauge.report.charts import Drawn, Made, Row, drawn, figure_of_rows
from virtgauge.report.isolation import charts
from virtgauge.report.isolation.guides import due_line, published_rows
from virtgauge.report.isolation.heat_map import matrix
from virtgauge.report.isolation.model import SLICE_SHARES, Cell, IsolationFindings, Key, Series
from virtgauge.report.isolation.vocabulary import (
    DISK_LIMIT,
    LATENCY,
    LOADING,
    NOTHING,
    OF_THE_CORES,
    SHORT_CORES,
    TESTED,
    WAKE,
    Resource,
    load_words,
    percent,
    policy_name,
    policy_words,
    short_benchmark,
)
from virtgauge.report.words import NONE, duration, duration_interval, share

Panels = Mapping[str, list[Row]]
Setting = tuple[str, str, float]
"""Policy, the guest that has it, and its share."""

_MIDDLE = 0.5
_PUBLISHED = (
    " Crosses and dotted lines: what the paper states, measured on other hardware; diamonds with energy saving."
)
_FIGURE_WORDS = {
    (TESTED, False): "In the manner of the paper’s Figures 1 and 3.",
    (LOADING, False): "In the manner of the paper’s Figure 2: the loading guest has the policy, and the line falls to "
    "what it leaves. Without a load everything may be given to the tested guest.",
    (TESTED, True): "In the manner of the paper’s Figure 4.",
    (LOADING, True): "As the paper’s Figure 4, with the policy on the loading guest.",
}


def draw(found: IsolationFindings, arms: Sequence[ArmRecord]) -> Drawn:
    """Every figure for which there is something to draw.

    Args:
        found: by the suite.
        arms: of the manifest.
    """
    return drawn(_Drawing(found, arms).figures())


class _Drawing:
    def __init__(self, found: IsolationFindings, arms: Sequence[ArmRecord]) -> None:
        self._found, self._arms, self._labels = found, arms, row_labels(arms)
        self._cells = [
            cell for cell in found.cells if _is_told(cell.key) and any(series.missing is None for series in cell.series)
        ]
        self._aa = {arm.name for arm in arms if arm.role == "aa"}
        self._several_cores = len({cell.key.cores for cell in self._cells}) > 1
        self._several_blocks = len({cell.key.block for cell in self._cells} - {""}) > 1
        self._made = 0

    def figures(self) -> Iterator[Made]:
        """In the paper's order, then ours."""
        policies = list(dict.fromkeys((cell.key.policy, cell.key.on) for cell in self._cells if not cell.key.free))
        for policy, on in policies:
            for resource in (*OF_THE_CORES, Resource.DISK):
                yield from self._against_share(policy, on, resource, "relative")
                yield from self._against_share(policy, on, resource, "q")
        settings = self._settings()
        for setting in settings:
            yield from self._matrix(setting)
        yield from self._pressure()
        for setting in settings:
            yield from self._slices(setting)
        for setting in settings:
            yield from self._latencies(setting)
            yield from self._memory_latencies(setting)

    def _settings(self) -> list[Setting]:
        """No policy, and every policy at the share nearest to a half: enough to see what it is for."""
        shares: dict[tuple[str, str], list[float]] = {}
        for cell in self._cells:
            shares.setdefault((cell.key.policy, cell.key.on), []).append(cell.key.share)
        return [
            (policy, on, min(tried, key=lambda share: abs(share - _MIDDLE))) for (policy, on), tried in shares.items()
        ]

    def _finished(
        self, title: str, caption: str, panels: Panels, spec: Callable[[list[Row]], dict[str, Any]]
    ) -> Iterator[Made]:
        """A figure without the panels that would hold nothing of ours."""
        name = f"isolation-{self._made + 1}"
        made = figure_of_rows(name, title, caption, panels, spec, ours=("ours",), published=_PUBLISHED)
        if made is not None:
            self._made += 1
            yield made

    # -- the paper's figures -------------------------------------------------------------------------

    def _against_share(
        self, policy: str, on: str, resource: Resource, quantity: Literal["relative", "q"]
    ) -> Iterator[Made]:
        own = [
            cell
            for cell in self._cells
            if (cell.key.policy, cell.key.on) == (policy, on)
            and cell.key.resource is resource
            and cell.key.intensity in (0, 100)
        ]
        if quantity == "q":
            # Nobody else being there, what is left beside the loading guest's share is not all that may be had.
            own = [cell for cell in own if not (on == LOADING and cell.key.alone)]
        groups: dict[str, list[Cell]] = {}
        for cell in own:
            name = f"{self._benchmark(cell.key)}, {cell.key.load_label}{self._cores(cell.key)}"
            groups.setdefault(name, []).append(cell)
        panels: dict[str, list[Row]] = {}
        for name, group in groups.items():
            if len({cell.key.share for cell in group}) < 2:  # a single share is no curve
                continue
            rows = panels.setdefault(name, [])
            for cell in group:
                for series in cell.series:
                    estimate = getattr(series, quantity)
                    if estimate.point is not None:
                        told = {"x": cell.key.share, "at": percent(cell.key.share)}
                        rows.append(self._of_arm(series) | told | _share_figure(estimate))
            rows += [] if policy == DISK_LIMIT else due_line(on, quantity)
            rows += published_rows(group[0].key, quantity)
        what = "Performance" if quantity == "relative" else "Efficiency q"
        titles = {"relative": "of the reference’s rate", "q": "q"}
        line = "" if policy == DISK_LIMIT else " Solid line: what was declared."
        yield from self._finished(
            f"{what} against the declared share, {resource.value}: {policy_name(policy)} on the {on} guest",
            f"{_FIGURE_WORDS[on, resource is Resource.DISK]}{line}",
            panels,
            lambda rows: charts.lines(self._arms, rows, f"declared for the {on} guest", titles[quantity]),
        )

    # -- ours ----------------------------------------------------------------------------------------

    def _matrix(self, setting: Setting) -> Iterator[Made]:
        strongest: dict[str, int] = {}
        for one in self._found.interference:
            strongest[one.key.load] = max(strongest.get(one.key.load, 0), one.key.intensity)
        own = [
            one
            for one in self._found.interference
            if _setting(one.key) == setting
            and _is_told(one.key)
            and one.key.intensity == strongest[one.key.load]
            and one.kept.point is not None
        ]
        panels: dict[str, list[Row]] = {}
        for arm in (arm for arm in self._arms if arm.role != "aa"):
            for one in (one for one in own if one.arm == arm.name):
                emulated = " (emulated)" if arm.emulated and "emulated" not in arm.label else ""
                rows = panels.setdefault(f"{self._labels[arm.name]}{emulated}{self._cores(one.key)}", [])
                point = one.kept.point or 0.0
                rows.append(
                    {
                        "kind": "ours",
                        "benchmark": _broken(self._benchmark(one.key)),
                        "load": _broken(_load(one.key)),
                        "lost": round(1 - point, 4),
                        "figure": f"{point:.0%}".replace("%", " %"),
                        "t": f"{one.key.benchmark_label} beside {one.key.load_label}",
                        "interval": _share_interval(one.kept),
                    }
                )
        promised = setting[0] not in (NOTHING, DISK_LIMIT)
        yield from self._finished(
            f"What a neighbour costs: {policy_words(*setting)}",
            "What the benchmark on the left keeps, beside the load below, of what it does without it."
            + (" Of CPU time, memory and caches: of no more than the share that is meant for it." if promised else ""),
            panels,
            matrix,
        )

    def _pressure(self) -> Iterator[Made]:
        panels: dict[str, list[Row]] = {}
        for one in self._found.pressure:
            policy = "" if one.key.free else f", {one.key.policy_label}"
            name = f"{self._benchmark(one.key)} beside {load_words(one.key.load)}{policy}{self._cores(one.key)}"
            rows = panels.setdefault(name, due_line("", "q"))
            for point in one.points:
                if point.ratio.point is not None:
                    told = {"x": point.intensity / 100, "at": _pressure_words(point.intensity, point.loading_cpus)}
                    rows.append(self._of(one.arm) | told | _share_figure(point.ratio))
        yield from self._finished(
            "Under growing pressure",
            "What the benchmark keeps of what it does without the load, as the load works more of the time.",
            panels,
            lambda rows: charts.lines(self._arms, rows, "of the time in which the load works", "kept"),
        )

    def _slices(self, setting: Setting) -> Iterator[Made]:
        panels: dict[str, list[Row]] = {}
        for cell, series in self._of_setting(setting):
            # Every wake-up is timed by itself; slices of their number tell nothing.
            if series.slice_quantiles is None or cell.key.benchmark == WAKE:
                continue
            told = {
                f"p{round(at * 100)}": value for at, value in zip(SLICE_SHARES, series.slice_quantiles, strict=True)
            }
            words = " · ".join(f"{value * 100:.0f}" for value in told.values()) + " % of the reference’s rate"
            rows = panels.setdefault(f"{self._benchmark(cell.key)}{self._cores(cell.key)}", [])
            rows.append(self._of_arm(series) | self._beside(cell.key) | told | {"t": words})
            promised = None if cell.key.free else cell.key.promised
            if promised is not None and cell.key.resource in OF_THE_CORES:
                due = {"kind": "guide", "x": promised, "t": f"meant for the tested guest: {percent(promised)}"}
                rows += [] if due in rows else [due]
        yield from self._finished(
            f"From one tenth of a second to the next: {policy_words(*setting)}",
            "Rates of 100 ms: tick, the median; broad, half of them; thin, from the 5th to the 95th of 100."
            + (
                ""
                if setting[0] == DISK_LIMIT
                else " Dashed: the share of the cores that is meant for the tested guest."
            ),
            panels,
            lambda rows: charts.slices(self._arms, rows),
        )

    def _latencies(self, setting: Setting) -> Iterator[Made]:
        panels: dict[str, list[Row]] = {}
        for cell, series in self._of_setting(setting):
            middle, far = series.latency_p50_ns, series.latency_p99_ns
            if middle.point is None:
                continue
            words = f"p50 {duration(middle.point)} ({duration_interval(middle)})"
            words += f", p99 {duration(far.point)} ({duration_interval(far)})" if far.point is not None else ""
            what = "wake-up lateness" if cell.key.benchmark == WAKE else self._benchmark(cell.key)
            rows = panels.setdefault(f"{what}{self._cores(cell.key)}", [])
            # A line of half the operations' scatter would hide the one to the p99; the interval is told.
            told = {"x": middle.point, "far": far.point, "t": words}
            rows.append(self._of_arm(series) | self._beside(cell.key) | told)
        yield from self._finished(
            f"Latency under load: {policy_words(*setting)}",
            "Filled: the median of the operations, or of how late wake-ups are; hollow: their p99. Logarithmic.",
            panels,
            lambda rows: charts.durations(self._arms, rows),
        )

    def _memory_latencies(self, setting: Setting) -> Iterator[Made]:
        panels: dict[str, list[Row]] = {}
        for cell, series in self._of_setting(setting):
            if cell.key.benchmark == LATENCY and series.value.point is not None:
                value = series.value
                told = {"x": value.point, "low": value.low, "high": value.high}
                words = f"{duration(value.point)} ({duration_interval(value)})"
                rows = panels.setdefault(f"{self._benchmark(cell.key)}{self._cores(cell.key)}", [])
                rows.append(self._of_arm(series) | self._beside(cell.key) | told | {"t": words})
        yield from self._finished(
            f"Memory latency under load: {policy_words(*setting)}",
            "Time of one load that waits for the one before, with what it waited for the processor. Logarithmic.",
            panels,
            lambda rows: charts.durations(self._arms, rows),
        )

    # -- rows ----------------------------------------------------------------------------------------

    def _of_setting(self, setting: Setting) -> Iterator[tuple[Cell, Series]]:
        """Series with figures beside loads that work all the time, or beside none."""
        for cell in self._cells:
            if _setting(cell.key) == setting and cell.key.intensity in (0, 100):
                yield from ((cell, series) for series in cell.series if series.missing is None)

    def _of_arm(self, series: Series) -> Row:
        return self._of(series.arm)

    def _of(self, arm: str) -> Row:
        return {"kind": "other" if arm in self._aa else "ours", "arm": arm, "label": self._labels[arm]}

    def _beside(self, key: Key) -> Row:
        return {"category": _broken(_load(key)), "at": key.load_label}

    def _benchmark(self, key: Key) -> str:
        """Short; of memory with its block where there are several."""
        return short_benchmark(key.benchmark, key.block if self._several_blocks else "")

    def _cores(self, key: Key) -> str:
        return f" · {SHORT_CORES.get(key.cores, key.cores)}" if self._several_cores else ""


def _is_told(key: Key) -> bool:
    """A bound for the disk is told of where a disk is measured; the tables have the rest."""
    return key.policy != DISK_LIMIT or key.resource is Resource.DISK


def _setting(key: Key) -> Setting:
    return key.policy, key.on, key.share


def _load(key: Key) -> str:
    return key.load_label if key.alone else key.load_label.removesuffix(" load")


def _broken(words: str) -> str:
    """In two lines of an axis, where it is long."""
    return re.sub(r" (?=\(|write with )", "|", words, count=1)


def _pressure_words(intensity: int, cpus: Estimate) -> str:
    took = "" if cpus.point is None else f", {cpus.point:.2f} CPUs taken"
    return f"{intensity} % of the time{took}"


def _share_figure(estimate: Estimate) -> Row:
    return {
        "y": estimate.point,
        "low": estimate.low,
        "high": estimate.high,
        "t": share(estimate.point),
        "interval": _share_interval(estimate),
    }


def _share_interval(estimate: Estimate) -> str:
    return f"{share(estimate.low)} to {share(estimate.high)}" if estimate.has_interval else NONE

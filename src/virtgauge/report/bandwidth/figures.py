"""The bandwidth suite's figures, as Vega-Lite specifications, and the rows behind their panels.

The paper's first: medians and spreads against the cross traffic (Kirova et al. 2019, figure 16), and the instant
estimates themselves (figures 17 to 19).  Then errors against the counted truth, what the timing does, and how well
bursts leave when they should.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from virtgauge.analysis.estimate import Estimate
from virtgauge.ledger.records import ArmRecord
from virtgauge.measures.quantities import significant
from virtgauge.report.arms import row_labels
from virtgauge.report.bandwidth import charts
from virtgauge.report.bandwidth import vocabulary as say
from virtgauge.report.bandwidth.keys import Key, Link, Path
from virtgauge.report.bandwidth.model import BandwidthFindings, Cell, Curve, Pacing, Series
from virtgauge.report.bandwidth.published import HOST, is_about, published_figures
from virtgauge.report.charts import Drawn, Figure, Made, Panel, PanelData, Row, drawn, figure_of_rows

Panels = Mapping[str, list[Row]]

_LEAST_LEVELS = 3
"""Amounts of cross traffic that make a curve; fewer are drawn as strips of the instant estimates."""
_OURS = ("ours", "raw", "curve", "refused")
"""Kinds of rows that make a panel worth drawing."""
_PLATFORMS = {"host": HOST, "qemu": "QEMU"}
_REFUSED = " Hollow triangles: no estimate, the highest rate that could be paced."
_PUBLISHED = " Crosses: what the paper states, measured on other hardware."
_TRUTH = " Dotted line: what was available, counted."


def draw(found: BandwidthFindings, arms: Sequence[ArmRecord]) -> Drawn:
    """Every figure for which there is something to draw.

    Args:
        found: by the suite.
        arms: of the manifest.
    """
    return drawn(_Drawing(found, arms).figures())


class _Drawing:
    def __init__(self, found: BandwidthFindings, arms: Sequence[ArmRecord]) -> None:
        self._found, self._arms, self._labels = found, arms, row_labels(arms)
        self._arm_of = {arm.name: arm for arm in arms}
        self._cells = [cell for cell in found.cells if any(series.missing is None for series in cell.series)]
        self._several_estimators = len({cell.key.estimator for cell in self._cells}) > 1
        self._made = 0

    def figures(self) -> Iterator[Made]:
        """In the paper's order, then ours."""
        for link, traffic, cells in self._groups():
            levels = {cell.key.path.cross_mbps for cell in cells}
            if len(levels) >= _LEAST_LEVELS:
                yield from self._against_cross(link, traffic, cells, "median_mbps")
                yield from self._against_cross(link, traffic, cells, "half_iqr_mbps")
        for path, cells in self._paths():
            yield from self._strips(path, cells)
        yield from self._errors()
        yield from self._effects()
        yield from self._gaps()
        yield from self._lateness()

    def _groups(self) -> Iterator[tuple[Link, str, list[Cell]]]:
        """Cells by link and kind of cross traffic; those without any belong to every kind."""
        links: dict[Link, list[Cell]] = {}
        for cell in self._cells:
            links.setdefault(cell.key.path.link, []).append(cell)
        for link, cells in sorted(links.items(), key=lambda one: (one[0].capacity_mbps, one[0].delay_ms, one[0].loss)):
            kinds = list(dict.fromkeys(cell.key.path.traffic for cell in cells if not cell.key.path.free))
            for kind in kinds:
                yield link, kind, [cell for cell in cells if cell.key.path.free or cell.key.path.traffic == kind]

    def _paths(self) -> Iterator[tuple[Path, list[Cell]]]:
        """Paths whose link has few amounts of cross traffic."""
        levels: dict[Link, set[float]] = {}
        for cell in self._cells:
            levels.setdefault(cell.key.path.link, set()).add(cell.key.path.cross_mbps)
        paths: dict[Path, list[Cell]] = {}
        for cell in self._cells:
            if len(levels[cell.key.path.link]) < _LEAST_LEVELS:
                paths.setdefault(cell.key.path, []).append(cell)
        yield from sorted(paths.items(), key=lambda one: one[0].rank)

    def _finished(
        self, title: str, caption: str, panels: Panels, spec: Callable[[list[Row]], dict[str, Any]]
    ) -> Iterator[Made]:
        """A figure without the panels that would hold nothing of ours."""
        refused = any(row["kind"] == "refused" for rows in panels.values() for row in rows)
        caption += _REFUSED if refused else ""
        made = figure_of_rows(self._name(), title, caption, panels, spec, ours=_OURS, published=_PUBLISHED)
        if made is not None:
            yield made

    def _name(self) -> str:
        """What the data of the next figure begins with."""
        self._made += 1
        return f"bandwidth-{self._made}"

    # -- the paper's figures -------------------------------------------------------------------------

    def _against_cross(
        self, link: Link, traffic: str, cells: Sequence[Cell], field: Literal["median_mbps", "half_iqr_mbps"]
    ) -> Iterator[Made]:
        panels: dict[str, list[Row]] = {}
        for cell in cells:
            rows = panels.setdefault(self._panel(cell.key), [])
            for series in cell.series:
                rows += self._cross_rows(cell, series, field)
        is_median = field == "median_mbps"
        for name, rows in panels.items():
            own = [cell for cell in cells if self._panel(cell.key) == name]
            rows += _truth_line(own) if is_median else []
        what = "Medians" if is_median else "Variance"
        yield from self._finished(
            f"{what} of the estimates against {traffic} cross traffic: {link.label}",
            "In the manner of the paper’s Figure 16 "
            + ("(a)." + _TRUTH if is_median else "(b): half the interquartile range, which it calls MAD."),
            panels,
            lambda rows: charts.against_cross(
                self._arms, rows, "estimate, Mbit/s" if is_median else "half the IQR, Mbit/s"
            ),
        )

    def _cross_rows(self, cell: Cell, series: Series, field: str) -> Iterator[Row]:
        estimate: Estimate = getattr(series, field)
        cross = cell.key.path.cross_mbps
        if estimate.point is not None:
            yield self._of(series.arm) | {
                "kind": "other" if self._arm_of[series.arm].role == "aa" else "ours",
                "x": cross,
                "at": cell.key.path.cross_label,
                "y": _short(estimate.point),
                "low": _short(estimate.low),
                "high": _short(estimate.high),
                "t": f"{significant(estimate.point, 4)} Mbit/s",
                "interval": _ends(estimate),
            }
        elif field == "median_mbps" and series.refused and series.honest_mbps.point is not None:
            yield self._of(series.arm) | _refused(cross, series.honest_mbps.point)

    def _strips(self, path: Path, cells: Sequence[Cell]) -> Iterator[Made]:
        drawn = {series.arm for cell in cells for series in cell.series if series.instants_mbps or series.refused}
        present = [arm.name for arm in self._arms if arm.name in drawn]
        panels: dict[str, list[Row]] = {}
        for cell in cells:
            rows = panels.setdefault(self._panel(cell.key), [])
            for series in cell.series:
                if series.arm in present:
                    rows += self._strip(cell.key, series, present.index(series.arm))
            truth = next((one.truth_mbps.point for one in cell.series if one.truth_mbps.point is not None), None)
            if truth is not None:
                rows.append({"kind": "truth", "y": _short(truth), "t": say.rate(truth)})
        yield from self._finished(
            f"Instant estimates: {path.label}",
            "In the manner of the paper’s Figures 17 to 19: the searches of all repetitions; bold, the median over "
            "repetitions." + _TRUTH,
            panels,
            lambda rows: charts.strips(self._arms, rows, present),
        )

    def _strip(self, key: Key, series: Series, place: int) -> Iterator[Row]:
        own = self._of(series.arm)
        number = len(series.instants_mbps)
        for at, value in enumerate(series.instants_mbps):
            # Even steps within the strip spread the values without hiding one behind another.
            x = round(place + 0.08 + 0.84 * (at + 0.5) / number, 4)
            yield own | {"kind": "raw", "x": x, "y": value, "t": say.rate(value)}
        if series.median_mbps.point is not None:
            median = _short(series.median_mbps.point)
            ends = {"x": place + 0.05, "x2": place + 0.95}
            yield own | ends | {"kind": "median", "y": median, "t": f"median {say.rate(median)}"}
        elif series.refused and series.honest_mbps.point is not None:
            yield own | _refused(place + 0.5, series.honest_mbps.point)
        for figure in published_figures():
            arm = self._arm_of[series.arm]
            if arm.role != "aa" and is_about(figure, key) and figure.platform == _PLATFORMS.get(arm.kind):
                told = f"{figure.tool}, {figure.timing}, {figure.platform}: {say.rate(figure.median_mbps)}"
                yield {"kind": "published", "x": place + 0.5, "y": figure.median_mbps, "t": told}

    # -- ours ----------------------------------------------------------------------------------------

    def _errors(self) -> Iterator[Made]:
        panels: dict[str, list[Row]] = {}
        for cell in self._cells:
            rows = panels.setdefault(cell.key.arrangement, [])
            for series in cell.series:
                if series.error.point is not None:
                    rows.append(self._signed(series.arm, cell.key, series.error, "%") | {"hollow": False})
        yield from self._finished(
            "Signed error against the counted truth",
            "Per cent of what was available, with its interval over repetitions; right of 0 is too much. Beyond 1 % "
            "the axis is logarithmic.",
            panels,
            lambda rows: charts.signed(self._arms, rows, "error, %"),
        )

    def _effects(self) -> Iterator[Made]:
        panels: dict[str, list[Row]] = {}
        for one in self._found.effects:
            estimate = one.error.estimate
            if estimate.point is not None:
                versus = f"{say.timing_words(one.key.timing)} against {say.timing_words(one.base)}"
                name = f"{versus}, {say.THROUGH_WORDS.get(one.key.through, one.key.through)}"
                panels.setdefault(name, []).append(
                    self._signed(one.arm, one.key, estimate, "points") | {"hollow": not one.error.distinguishable}
                )
        yield from self._finished(
            "What precise timing does to the error",
            "Error without its sign, less that with the other timing in the same repetition, in points of per cent: "
            "left of 0 precise timing helps. Filled: the interval excludes 0 and the effect exceeds what identical "
            "arms (A/A) differ by.",
            panels,
            lambda rows: charts.signed(self._arms, rows, "points of per cent"),
        )

    def _signed(self, arm: str, key: Key, estimate: Estimate, unit: str) -> Row:
        interval = say.points_interval(estimate)
        estimator = f"{key.estimator}: " if self._several_estimators else ""
        return self._of(arm) | {
            "kind": "ours",
            "category": f"{estimator}{key.path.link.label}|{key.path.cross_label}{key.pacing_label}",
            "at": f"{key.estimator}, {key.path.label}",
            "x": _short(estimate.point),
            "low": _short(estimate.low),
            "high": _short(estimate.high),
            "t": f"{say.points(estimate.point)} {unit}",
            "interval": f"{interval} {unit}" if estimate.has_interval else "none",
        }

    def _gaps(self) -> Iterator[Made]:
        panels: dict[str, list[Row]] = {}
        for one, curve in self._curves("gap"):
            rows = panels.setdefault(_pacing_panel(one), [])
            for value, share in zip(curve.values, curve.shares, strict=True):
                if value > 0:
                    told = {"t": f"{significant(value)} × as planned", "s": _one_in(share)}
                    rows.append(self._of(one.arm) | {"kind": "curve", "x": value, "y": share} | told)
            rows.append(self._of(one.arm) | {"kind": "mean", "x": curve.mean, "t": f"{significant(curve.mean)} ×"})
        values = [value for _, curve in self._curves("gap") for value in curve.values]
        shares = [share for _, curve in self._curves("gap") for share in curve.shares]
        yield from self._finished(
            "Achieved gaps between bursts",
            "How often the time between two bursts is longer than so many times what was planned (P(X > x)); all "
            "repetitions and rates together. A steep fall at 1 × is good pacing.",
            panels,
            lambda _: charts.gap_curves(self._arms, values, shares),
        )

    def _lateness(self) -> Iterator[Made]:
        panels: dict[str, list[Row]] = {}
        for one, curve in self._curves("lateness"):
            data = {"arm": one.arm, "x": curve.values, "y": curve.shares, "mean": curve.mean}
            panels.setdefault(_pacing_panel(one), []).append(data)
        if not panels:
            return
        curves = [curve for _, curve in self._curves("lateness")]
        values = [value for curve in curves for value in curve.values]
        spec = charts.lateness_curves(self._arms, values, [share for curve in curves for share in curve.shares])
        name = self._name()
        names = {panel: f"{name}-{place}" for place, panel in enumerate(panels)}
        yield (
            Figure(
                "How late bursts leave",
                "From a burst’s due time to its handover to the kernel: P(X > x), all repetitions and rates together.",
                spec,
                tuple(Panel(panel, data) for panel, data in names.items()),
            ),
            {data: PanelData("curves", panels[panel]) for panel, data in names.items()},
        )

    def _curves(self, field: Literal["gap", "lateness"]) -> Iterator[tuple[Pacing, Curve]]:
        for one in self._found.pacing:
            curve: Curve | None = getattr(one, field)
            if curve is not None:
                yield one, curve

    def _panel(self, key: Key) -> str:
        name = f"{key.arrangement}{key.pacing_label}"
        return f"{key.estimator}: {name}" if self._several_estimators else name

    def _of(self, arm: str) -> Row:
        return {"arm": arm, "label": self._labels[arm]}


def _truth_line(cells: Sequence[Cell]) -> Iterator[Row]:
    """What was available over the cross traffic: of the first arm that tells it, for all have the same path."""
    for cell in cells:
        truth = next((one.truth_mbps.point for one in cell.series if one.truth_mbps.point is not None), None)
        if truth is not None:
            yield {"kind": "guide", "across": cell.key.path.cross_mbps, "up": _short(truth), "t": say.rate(truth)}


def _refused(across: float, honest_mbps: float) -> Row:
    return {"kind": "refused", "across": across, "up": _short(honest_mbps), "t": f"more than {say.rate(honest_mbps)}"}


def _pacing_panel(one: Pacing) -> str:
    return f"{one.arrangement}, by {one.method}"


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.5g}")


def _ends(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return "none"
    return f"{significant(estimate.low, 4)} – {significant(estimate.high, 4)}"


def _one_in(share: float) -> str:
    return f"{significant(share * 100)} %" if share >= 0.1 else f"1 in {significant(1 / share)}"

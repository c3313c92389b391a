"""The storage suite's figures in the paper's form, and the rows behind their panels.

Reads with and without an index (van der Veen et al. 2012, figures 3 and 4), one client (5 to 8), many clients (9 to
12); then what durability costs, the distribution of service times, and the response against the offered rate.
Panels are of one level of durability each, so that nothing is compared across levels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from virtgauge.ledger.records import ArmRecord
from virtgauge.report.arms import row_labels
from virtgauge.report.charts import Drawn, Figure, Made, Panel, PanelData, Row, drawn, figure_of_rows
from virtgauge.report.storage import charts
from virtgauge.report.storage.model import Cell, Key, PaperCell, Series, StorageFindings
from virtgauge.report.storage.paper_cells import MOST_CLIENTS, paper_cells
from virtgauge.report.storage.tables import Place, places_of
from virtgauge.report.storage.vocabulary import (
    KNEE,
    MULTI_READ,
    MULTI_WRITE,
    OPERATION_WORDS,
    PAPER_LEVELS,
    PLAIN,
    SHORT_LEVELS,
    SINGLE_READ,
    SINGLE_WRITE,
    WRITES,
    clients_words,
    database_title,
    rate,
    rate_interval,
    short_device,
    strength_of,
    unit_of,
)
from virtgauge.report.words import duration, duration_interval

_ONE_CLIENT = {SINGLE_WRITE: "Figure 5", SINGLE_READ: "Figure 6", MULTI_WRITE: "Figure 7", MULTI_READ: "Figure 8"}
_MANY_CLIENTS = {SINGLE_WRITE: "Figure 9", SINGLE_READ: "Figure 10", MULTI_WRITE: "Figure 11", MULTI_READ: "Figure 12"}
_SHAPES = {"physical": "M-1,-1L1,1M-1,1L1,-1", "virtual": "diamond"}
_PUBLISHED = (
    " Crosses: the paper’s physical server, diamonds: its virtual one, both at the paper’s level of "
    "durability and on other hardware."
)


def draw(found: StorageFindings, arms: Sequence[ArmRecord]) -> Drawn:
    """Every figure for which there is something to draw.

    Args:
        found: by the suite.
        arms: of the manifest.
    """
    return drawn(_Drawing(found, arms).figures())


class _Drawing:
    def __init__(self, found: StorageFindings, arms: Sequence[ArmRecord]) -> None:
        self._arms, self._labels = arms, row_labels(arms)
        self._cells = [cell for cell in found.cells if any(series.missing is None for series in cell.series)]
        plain = [cell for cell in self._cells if cell.key.operation in PLAIN]
        self._closed = [cell for cell in plain if cell.key.closed and cell.key.write_mode == "default"]
        self._usual = [cell for cell in self._closed if cell.key.index]
        self._open = [cell for cell in plain if cell.key.offered_per_s is not None]
        self._places = places_of(self._usual)
        self._aa = {arm.name for arm in arms if arm.role == "aa"}
        self._made = 0

    def figures(self) -> Iterator[Made]:
        """In the paper's order, then ours."""
        yield from self._indexes()
        for operation, number in _ONE_CLIENT.items():
            yield from self._one_client(operation, number)
        for operation, number in _MANY_CLIENTS.items():
            yield from self._many_clients(operation, number)
        yield from self._levels()
        for operation in PLAIN:
            yield from self._distribution(operation)
        yield from self._offered()

    def _dots(self, operation: str) -> Callable[[list[Row]], dict[str, Any]]:
        return lambda rows: charts.dots(self._arms, rows, unit_of(operation))

    def _of(self, operation: str) -> list[Cell]:
        """Of an operation; reads wait for no flush, so of each database at one level: where most clients were tried."""
        own = [cell for cell in self._usual if cell.key.operation == operation]
        if operation in WRITES:
            return own
        chosen = {}
        for database in dict.fromkeys(cell.key.database for cell in own):
            cells = [cell for cell in own if cell.key.database == database]
            tried = {place: sum(_at(cell.key, database, place) for cell in cells) for place in places_of(cells)}
            chosen[database] = max(tried, key=tried.__getitem__)
        return [cell for cell in own if _at(cell.key, cell.key.database, chosen[cell.key.database])]

    def _finished(
        self, title: str, caption: str, panels: Mapping[str, list[Row]], spec: Callable[[list[Row]], dict[str, Any]]
    ) -> Iterator[Made]:
        """A figure without the panels that would hold nothing of ours."""
        name = f"storage-{self._made + 1}"
        made = figure_of_rows(name, title, caption, panels, spec, ours=("ours", "other"), published=_PUBLISHED)
        if made is not None:
            self._made += 1
            yield made

    # -- the paper's figures -------------------------------------------------------------------------

    def _indexes(self) -> Iterator[Made]:
        for operation in (SINGLE_READ, MULTI_READ):
            own = [cell for cell in self._closed if cell.key.operation == operation]
            panels: dict[str, list[Row]] = {}
            for database, place in self._panels(own):
                cells = [cell for cell in own if _at(cell.key, database, place)]
                fewest = min(cell.key.clients for cell in cells)
                compared = [cell for cell in cells if cell.key.clients == fewest]
                if {cell.key.index for cell in compared} == {True, False}:
                    panels[self._panel_title(database, place)] = [
                        row
                        | {"category": f"{'with' if cell.key.index else 'without'} index", "place": not cell.key.index}
                        for cell in compared
                        for row in self._rates(cell, "x")
                    ]
            yield from self._finished(
                f"{OPERATION_WORDS[operation].capitalize()} with and without an index",
                "One client. In the manner of the paper’s Figures 3 and 4.",
                panels,
                self._dots(operation),
            )

    def _one_client(self, operation: str, number: str) -> Iterator[Made]:
        own = [cell for cell in self._of(operation) if cell.key.clients == 1]
        databases = list(dict.fromkeys(database_title(cell.key.database) for cell in self._usual))
        panels: dict[str, list[Row]] = {}
        for place in self._places:
            rows = [
                row | {"category": (name := database_title(cell.key.database)), "place": databases.index(name)}
                for cell in own
                if (cell.key.durability, cell.key.flushes) == place
                for row in self._rates(cell, "x")
            ]
            present = list(dict.fromkeys(row["category"] for row in rows))
            rows += [
                self._published(paper, "x") | {"category": paper.database, "place": databases.index(paper.database)}
                for paper in _published_cells(operation, place, many=False)
                if paper.database in present
            ]
            panels[self._place_title(place)] = rows
        yield from self._finished(
            f"One client, {OPERATION_WORDS[operation]}",
            f"A panel for each level of durability. In the manner of the paper’s {number}."
            + (" Rows, not statements, are counted." if unit_of(operation) == "rows/s" else ""),
            panels,
            self._dots(operation),
        )

    def _many_clients(self, operation: str, number: str) -> Iterator[Made]:
        own = self._of(operation)
        panels: dict[str, list[Row]] = {}
        for database, place in self._panels(own):
            cells = [cell for cell in own if _at(cell.key, database, place)]
            if len({cell.key.clients for cell in cells}) < 2:
                continue
            rows = [
                row | {"x": cell.key.clients, "at": clients_words(cell.key.clients)}
                for cell in cells
                for row in self._rates(cell, "y")
            ]
            for many in (False, True):
                rows += [
                    self._published(paper, "y") | {"x": MOST_CLIENTS if many else 1, "name": ""}
                    for paper in _published_cells(operation, place, many=many)
                    if paper.database == database_title(database)
                ]
            panels[self._panel_title(database, place)] = rows
        yield from self._finished(
            f"Many clients, {OPERATION_WORDS[operation]}",
            f"{unit_of(operation).capitalize()} of all clients together. In the manner of the paper’s {number}.",
            panels,
            lambda rows: charts.lines(
                self._arms, rows, x="clients", y="rate", x_title="clients", y_title=unit_of(operation)
            ),
        )

    # -- ours ----------------------------------------------------------------------------------------

    def _levels(self) -> Iterator[Made]:
        own = [cell for cell in self._usual if cell.key.operation == SINGLE_WRITE and cell.key.clients == 1]
        panels: dict[str, list[Row]] = {}
        for database in dict.fromkeys(cell.key.database for cell in own):
            for flushes in dict.fromkeys(cell.key.flushes for cell in own if cell.key.database == database):
                cells = [c for c in own if (c.key.database, c.key.flushes) == (database, flushes)]
                if len(cells) > 1:
                    panels[f"{database_title(database)}{short_device(flushes)}"] = [
                        row
                        | {
                            "category": SHORT_LEVELS.get(level := cell.key.durability, level),
                            "place": strength_of(level),
                        }
                        for cell in cells
                        for row in self._rates(cell, "x")
                    ]
        yield from self._finished(
            "What durability costs",
            "Single writes of one client at every level of durability, the weakest on top.",
            panels,
            self._dots(SINGLE_WRITE),
        )

    def _distribution(self, operation: str) -> Iterator[Made]:
        own = self._of(operation)
        panels: list[Panel] = []
        data: dict[str, PanelData] = {}
        values: list[float] = []
        shares: list[float] = []
        for database, place in self._panels(own):
            cell = min((c for c in own if _at(c.key, database, place)), key=lambda cell: cell.key.clients)
            curves = [(series.arm, series.curve) for series in cell.series if series.curve is not None]
            if curves:
                name = f"storage-ccdf-{operation}-{len(panels)}"
                panels.append(Panel(self._panel_title(database, place), name))
                rows = [{"arm": arm, "x": curve.values_ns, "y": curve.shares} for arm, curve in curves]
                data[name] = PanelData("curves", rows)
                values += [value for _, curve in curves for value in (curve.values_ns[0], curve.values_ns[-1])]
                shares += [curve.shares[-1] for _, curve in curves]
        if panels:
            caption = "How often a statement takes longer than the time below, from sending to the answer; one client."
            title = f"Service time, {OPERATION_WORDS[operation]}: distribution"
            yield Figure(title, caption, charts.curves(self._arms, values, shares), tuple(panels)), data

    def _offered(self) -> Iterator[Made]:
        """Of open loops the p99 of the response; of knees what their searches offered."""
        panels: dict[str, list[Row]] = {}
        for cell in self._open:
            panels.setdefault(self._offered_title(cell.key, cell.key.operation), []).extend(self._responses(cell))
        for cell in self._cells:
            if cell.key.operation == KNEE:
                panels.setdefault(self._offered_title(cell.key, cell.key.of), []).extend(self._knees(cell))
        yield from self._finished(
            "Latency against the offered rate",
            "p99 of the response, from the intended start, so that operations that wait for those before count with "
            "their wait. Solid rules: the knee, the highest rate at which the objective is met; dotted: the objective.",
            panels,
            lambda rows: charts.lines(
                self._arms, rows, x="offered", y="time", x_title="operations/s offered", y_title="p99 of the response"
            ),
        )

    def _offered_title(self, key: Key, operation: str) -> str:
        what = OPERATION_WORDS.get(operation, operation)
        return f"{self._panel_title(key.database, (key.durability, key.flushes))}, {what}, {clients_words(key.clients)}"

    def _responses(self, cell: Cell) -> Iterator[Row]:
        for series in cell.series:
            latency = series.response.get("")
            if latency is not None and latency.p99.point is not None:
                yield self._of_arm(series) | {
                    "x": cell.key.offered_per_s,
                    "at": f"{rate(cell.key.offered_per_s)} offered",
                    "y": latency.p99.point,
                    "low": latency.p99.low,
                    "high": latency.p99.high,
                    "t": duration(latency.p99.point),
                    "interval": duration_interval(latency.p99),
                }

    def _knees(self, cell: Cell) -> Iterator[Row]:
        for series in cell.series:
            for step in series.steps:
                told = {"at": f"{rate(step.offered_per_s)} offered", "t": duration(step.p99_ns), "interval": ""}
                # Off the line, for steps of several repetitions lie side by side.
                yield self._of_arm(series) | {"kind": "other", "x": step.offered_per_s, "y": step.p99_ns} | told
            knee, bound = series.knee_per_s.point, series.objective_ns.point
            if knee is not None:
                yield self._of_arm(series) | {"kind": "rule", "x": knee, "t": rate(knee)}
            if bound is not None:
                yield {"kind": "bound", "y": bound, "t": duration(bound)}

    # -- rows ----------------------------------------------------------------------------------------

    def _panels(self, cells: Sequence[Cell]) -> list[tuple[str, Place]]:
        """Databases at each level, the strongest level first."""
        return [
            (database, place)
            for place in places_of(cells)
            for database in dict.fromkeys(c.key.database for c in cells if _at(c.key, c.key.database, place))
        ]

    def _place_title(self, place: Place) -> str:
        return f"{SHORT_LEVELS.get(place[0], place[0])}{short_device(place[1])}"

    def _panel_title(self, database: str, place: Place) -> str:
        several = len(self._places) > 1
        return f"{database_title(database)}{f', {self._place_title(place)}' if several else ''}"

    def _rates(self, cell: Cell, channel: str) -> Iterator[Row]:
        for series in cell.series:
            if series.rate.point is not None:
                yield self._of_arm(series) | {
                    channel: float(f"{series.rate.point:.5g}"),
                    "low": series.rate.low,
                    "high": series.rate.high,
                    "t": rate(series.rate.point),
                    "interval": rate_interval(series.rate),
                    "why": series.explanation.limit.value if series.explanation else "",
                }

    def _of_arm(self, series: Series) -> Row:
        return {
            "kind": "ours",
            "arm": series.arm,
            "label": self._labels[series.arm],
            "hollow": series.arm in self._aa,
        }

    def _published(self, paper: PaperCell, channel: str) -> Row:
        told = f"{paper.database}, {paper.server}: {rate(paper.per_s)}"
        return {
            "kind": "published",
            "arm": charts.PAPER_LANE,
            channel: paper.per_s,
            "shape": _SHAPES[paper.server],
            "t": told,
        }


def _at(key: Key, database: str, place: Place) -> bool:
    return key.database == database and (key.durability, key.flushes) == place


def _published_cells(operation: str, place: Place, *, many: bool) -> Iterator[PaperCell]:
    """The paper's figures that belong into a panel: writes at the level that it had them at, reads at any."""
    for paper in paper_cells():
        fits = paper.operation == "read" or PAPER_LEVELS[paper.database] == place[0]
        if paper.name == operation and paper.many_clients == many and fits:
            yield paper

"""The figures that the paper's conclusions are tested on: those of its own tables, and a run's."""

from __future__ import annotations

import abc
import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

from virtgauge.analysis.bootstrap import median_estimate
from virtgauge.analysis.comparison import paired_ratio
from virtgauge.analysis.estimate import Estimate
from virtgauge.analysis.storage.durability_share import spread
from virtgauge.report.storage.model import Key, PaperCell
from virtgauge.report.storage.paper_cells import Places, paper_cells
from virtgauge.report.storage.results import Results
from virtgauge.report.storage.vocabulary import PAPER_LEVELS, PLAIN, database_title, flush_words

_RATIO = "ratio"
_NOT_PRINTED = "the paper prints no figures of this"


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a figure stands, in the paper's terms; ``clients`` is ``1`` or ``many``."""

    database: str
    operation: str
    server: str
    clients: str

    def at(self, **levels: str) -> Place:
        """The same but for these levels."""
        return dataclasses.replace(self, **levels)

    def level(self, factor: str) -> str:
        """The factor's level here, in words."""
        level = str(getattr(self, factor))
        return {"1": "1 client", "many": "many clients"}.get(level, level)

    def words(self, without: str = "") -> str:
        """``MongoDB, single-write, physical, 1 client`` without a factor that is told elsewhere."""
        names = [name for name in ("database", "operation", "server", "clients") if name != without]
        return ", ".join(self.level(name) for name in names if getattr(self, name))


class Figures(abc.ABC):
    """Figures by their place, and how they compare."""

    @abc.abstractmethod
    def rates(self, place: Place) -> Mapping[int, float]:
        """By repetition; empty where there is none."""

    @abc.abstractmethod
    def estimate(self, values: Sequence[float]) -> Estimate:
        """Of a quantity that was formed repetition by repetition."""

    @abc.abstractmethod
    def why_none(self, place: Place) -> str:
        """Why there is no figure at a place."""

    @property
    def lacking(self) -> Mapping[str, str]:
        """Servers that there are no figures of at all, by the reason."""
        return {}

    def middle(self, place: Place) -> float | None:
        """The median over repetitions."""
        rates = self.rates(place)
        return statistics.median(rates.values()) if rates else None

    def ratio(self, of: Place, to: Place) -> Estimate:
        """Of two figures, formed within each repetition."""
        first, second = self.rates(of), self.rates(to)
        for place, rates in ((of, first), (to, second)):
            if not rates:
                return Estimate.missing(_RATIO, self.why_none(place))
        return self.estimate([first[block] / second[block] for block in sorted(first.keys() & second.keys())])

    def spread(self, place: Place, databases: Sequence[str]) -> Estimate:
        """Fastest over slowest database, formed within each repetition."""
        places = [place.at(database=name) for name in databases]
        rates = [self.rates(one) for one in places]
        for one, found in zip(places, rates, strict=True):
            if not found:
                return Estimate.missing(_RATIO, self.why_none(one))
        blocks = sorted(set.intersection(*(set(one) for one in rates)))
        return self.estimate([spread([one[block] for one in rates]) for block in blocks])

    def around(self, place: Place, clients: int) -> tuple[Estimate, Estimate]:
        """From one client to so many, and from so many to the most."""
        missing = Estimate.missing(_RATIO, _NOT_PRINTED)
        return missing, missing

    def with_index(self, place: Place) -> Estimate:
        """With an index over without."""
        return Estimate.missing(_RATIO, _NOT_PRINTED)

    def server_effects_by_index(self, place: Place) -> tuple[Estimate, Estimate]:
        """Virtual over physical, with an index and without."""
        missing = Estimate.missing(_RATIO, _NOT_PRINTED)
        return missing, missing

    def quick_flushes(self, place: Place) -> tuple[Estimate, str]:
        """Where flushes complete at once over where they wait for a disk's turn, and what was compared."""
        return Estimate.missing(_RATIO, "the paper has one disk; it supposes this"), ""


class PaperFigures(Figures):
    """Of Tables IV and V: one figure a cell, taken as exact."""

    def __init__(self) -> None:
        self._cells = {_place_of(cell): cell.per_s for cell in paper_cells()}

    def rates(self, place: Place) -> Mapping[int, float]:
        """The one figure."""
        return {0: self._cells[place]} if place in self._cells else {}

    def estimate(self, values: Sequence[float]) -> Estimate:
        """The value, as an interval without width."""
        return Estimate(values[0], values[0], values[0], None, 1, _RATIO, "of the paper’s table")

    def why_none(self, place: Place) -> str:
        """The tables have every cell."""
        return _NOT_PRINTED


class OurFigures(Figures):
    """Of a run.

    Args:
        places: which results stand for the paper's cells.
        results: of the run.
        nominal: the confidence wanted.
        level: at which every database's writes are taken; None takes each at the level that the paper had it at.
    """

    def __init__(self, places: Places, results: Results, nominal: float, level: str | None = None) -> None:
        self._places, self._results, self._nominal, self._level = places, results, nominal, level
        self._cells = {_place_of(cell): cell for cell in paper_cells()}
        self._emulated = {server for server, stand in places.stands.items() if stand.arm.emulated}

    def rates(self, place: Place) -> Mapping[int, float]:
        """Of the result that stands for the paper's cell; none of an emulated processor."""
        cell = self._cells.get(place)
        if cell is None or place.server in self._emulated or not self._is_a_stand(place.server):
            return {}
        level = self._level if cell.operation == "write" else None
        return self._places.rates(cell, level)

    def estimate(self, values: Sequence[float]) -> Estimate:
        """Median with its interval; formed of logarithms, as ratios are."""
        if not values:
            return Estimate.missing(_RATIO, "no repetition has both")
        logs = [math.log(value) for value in values]
        return median_estimate(logs, "log", self._nominal).mapped(math.exp, _RATIO)

    @property
    def lacking(self) -> Mapping[str, str]:
        """A container is no virtual machine, and an emulated one decides nothing."""
        found = {}
        for server, words in (("physical", "physical server"), ("virtual", "virtual machine")):
            if server in self._emulated:
                found[f"the only {words} of this run is emulated, which decides nothing"] = server
            elif not self._is_a_stand(server):
                found[f"this run has no {words} that decides anything"] = server
        return found

    def why_none(self, place: Place) -> str:
        """In the order in which one would ask."""
        reason = next((reason for reason, server in self.lacking.items() if server == place.server), None)
        if reason is not None:
            return reason
        if place.clients == "many" and self._places.many is None:
            return "this run has one client only"
        return f"{place.words()} was not measured" + (f" {self._at(place)}" if "write" in place.operation else "")

    def _at(self, place: Place) -> str:
        return f"at the level “{self._level or PAPER_LEVELS[place.database]}”"

    def _is_a_stand(self, server: str) -> bool:
        """A container is no virtual machine: what the paper says of those is not tested on it."""
        stand = self._places.stands.get(server)
        return stand is not None and (server == "physical" or stand.arm.kind != "oci")

    # -- what the paper's tables do not have ---------------------------------------------------------

    def around(self, place: Place, clients: int) -> tuple[Estimate, Estimate]:
        """From one client to so many, and from so many to the most that were measured."""
        by_clients = {key.clients: key for key in self._alike(place, index=True)}
        most = max(by_clients, default=0)
        if not {1, clients} <= by_clients.keys() or most <= clients:
            missing = Estimate.missing(_RATIO, f"1, {clients} and more clients are needed")
            return missing, missing
        low, at, high = (self._of(by_clients[number], place) for number in (1, clients, most))
        return paired_ratio(at, low, self._nominal), paired_ratio(high, at, self._nominal)

    def with_index(self, place: Place) -> Estimate:
        """At the level that the paper had the database at, or for reads at any."""
        pair = self._index_pair(place)
        if pair is None:
            return Estimate.missing(_RATIO, self._why_no_index(place))
        return paired_ratio(*pair, self._nominal)

    def server_effects_by_index(self, place: Place) -> tuple[Estimate, Estimate]:
        """From the two pairs."""
        virtual, physical = (self._index_pair(place.at(server=server)) for server in ("virtual", "physical"))
        if virtual is None or physical is None:
            lacking = place.at(server="virtual" if virtual is None else "physical")
            missing = Estimate.missing(_RATIO, self._why_no_index(lacking))
            return missing, missing
        with_index, without = (
            paired_ratio(one, other, self._nominal) for one, other in zip(virtual, physical, strict=True)
        )
        return with_index, without

    def quick_flushes(self, place: Place) -> tuple[Estimate, str]:
        """The same database on the same arm, flushed before each acknowledgement."""
        keys = {
            key.flushes: key
            for key in self._alike(place, index=True, any_flushes=True)
            if key.clients == 1 and key.durability == "flushed"
        }
        slow = next((name for name in keys if name.startswith("rotational")), None)
        quick = next((name for name in ("at-once", *keys) if name in keys and not name.startswith("rotational")), None)
        if slow is None or quick is None:
            why = f"{place.database} was not measured with a rotational flush profile and a quicker one"
            return Estimate.missing(_RATIO, why), ""
        what = f"{place.database}, {flush_words(quick)} ÷ {flush_words(slow)}"
        return paired_ratio(self._of(keys[quick], place), self._of(keys[slow], place), self._nominal), what

    def _of(self, key: Key, place: Place) -> dict[int, float]:
        return self._results.rates(key, self._places.stands[place.server].arm.name)

    def _alike(self, place: Place, *, index: bool, any_flushes: bool = False) -> list[Key]:
        """Closed-loop results of a place's database, operation and server, whatever their clients."""
        cell = self._cells.get(place.at(clients="1"))
        if cell is None or place.server in self._emulated or not self._is_a_stand(place.server):
            return []
        known = self._places.key(cell, self._level if cell.operation == "write" else None)
        return [
            key
            for key in self._results.keys
            if key.operation == place.operation
            and key.operation in PLAIN
            and database_title(key.database) == place.database
            and (key.index, key.loop, key.write_mode) == (index, "closed", "default")
            and self._of(key, place)
            and (any_flushes or (known and (key.durability, key.flushes) == (known.durability, known.flushes)))
        ]

    def _index_pair(self, place: Place) -> tuple[dict[int, float], dict[int, float]] | None:
        pairs = {
            index: next((key for key in self._alike(place, index=index) if key.clients == 1), None)
            for index in (True, False)
        }
        with_index, without = pairs[True], pairs[False]
        if with_index is None or without is None:
            return None
        return self._of(with_index, place), self._of(without, place)

    def _why_no_index(self, place: Place) -> str:
        if place.server in self._emulated or not self._is_a_stand(place.server):
            return self.why_none(place)
        return "not measured both with an index and without"


def _place_of(cell: PaperCell) -> Place:
    return Place(cell.database, cell.name, cell.server, "many" if cell.many_clients else "1")


def grouped_ratio(ratios: Sequence[Estimate]) -> Estimate:
    """By what factor, up or down, several figures change on the average: the mean of the logarithms' sizes."""

    def mean(sizes: Sequence[float]) -> float:
        return math.exp(statistics.fmean(sizes))

    points = [abs(math.log(one.point)) for one in ratios if one.point]
    ends = [_size_ends(one) for one in ratios]
    known = [one for one in ends if one is not None]
    if len(known) < len(ratios):
        return Estimate.bare(mean(points), _RATIO, "one of them has no interval", len(ratios))
    low, high = mean([one[0] for one in known]), mean([one[1] for one in known])
    return Estimate(mean(points), low, high, ratios[0].confidence, len(ratios), _RATIO, "mean of |log| over cells")


def _size_ends(one: Estimate) -> tuple[float, float] | None:
    """Smallest and largest |log| within an interval."""
    if not one.low or not one.high:
        return None
    low, high = math.log(one.low), math.log(one.high)
    return (0.0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))

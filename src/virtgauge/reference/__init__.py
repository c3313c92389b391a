"""What four papers published, as data with its citation.

Drawn beside what virtgauge measures, always labelled as another machine's; nothing is ever tuned to it.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import math
import re
from importlib import resources
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, model_validator


@dataclasses.dataclass(frozen=True)
class Source:
    """A paper that figures were taken from."""

    authors: str
    year: int
    title: str
    venue: str

    @property
    def short(self) -> str:
        """``Kirova et al. 2019``, ``van der Veen et al. 2012``."""
        first = self.authors.split(",")[0].split()
        return f"{' '.join(name for name in first if not name.endswith('.'))} et al. {self.year}"

    @property
    def citation(self) -> str:
        return f"{self.authors}: {self.title}. {self.venue}, {self.year}."


TIMING = Source(
    "V. Kirova, K. Karpov, E. Siemens, I. Zander, O. Vasylenko, D. Kachan, S. Maksymov",
    2019,
    "Impact of Modern Virtualization Methods on Timing Precision and Performance of High-Speed Applications",
    "Future Internet 11, 179",
)
FORWARDING = Source(
    "J. M. Batalla, K. Sienkiewicz, W. Latoszek, P. Krawiec, C. X. Mavromoustakis, G. Mastorakis",
    2016,
    "Validation of virtualization platforms for I-IoT purposes",
    "The Journal of Supercomputing",
)
STORAGE = Source(
    "J. S. van der Veen, B. van der Waaij, R. J. Meijer",
    2012,
    "Sensor Data Storage Performance: SQL or NoSQL, Physical or Virtual",
    "IEEE International Conference on Cloud Computing",
)
ISOLATION = Source(
    "K. Rzecki, M. Niedźwiecki, T. Sośnicki, A. Martyna",
    2014,
    "Experimental Verification of Hyper-V Performance Isolation Quality Level",
    "Computer Science (AGH)",
)


@dataclasses.dataclass(frozen=True)
class Table:
    """One published table."""

    source: Source  # the paper
    place: str  # where in the paper
    rows: tuple[dict[str, str], ...]  # column name to text; an empty text is a figure that the paper does not give


_PLACES: dict[str, tuple[Source, str]] = {
    "timer_cost": (TIMING, "Table 1"),
    "sleep_miss": (TIMING, "Table 2"),
    "bandwidth": (TIMING, "section 3.3"),
    "forwarding": (FORWARDING, "section 4"),
    "storage_ops": (STORAGE, "Tables IV and V"),
    "isolation": (ISOLATION, "section 6"),
}

NAMES = tuple(_PLACES)


@functools.cache
def table(name: str) -> Table:
    """A published table by its file's name, one of :data:`NAMES`. Raises KeyError: there is no such table."""
    source, place = _PLACES[name]
    text = resources.files(__package__).joinpath(f"{name}.csv").read_text(encoding="utf-8")
    return Table(source, place, tuple(csv.DictReader(text.splitlines())))


# -- what the papers state, as figures -------------------------------------------------------------------


class _Row(BaseModel, frozen=True):
    """A row of a table; an alias is the column's name."""

    @classmethod
    @functools.cache
    def all_of(cls, name: str) -> tuple[Self, ...]:
        """The rows of a table, in its order."""
        given = ({column: text for column, text in row.items() if text} for row in table(name).rows)
        return tuple(map(cls.model_validate, given))


class TimingFigure(_Row):
    """One row of the timing paper's Table 1 or 2, in nanoseconds.

    ``half_iqr_ns`` is what the paper calls MAD (section 2.3).
    """

    function: str
    platform: str
    load: str
    median_ns: float
    half_iqr_ns: float = Field(alias="mad_ns")
    min_ns: float
    max_ns: float


timing_figures = TimingFigure.all_of  # ``timer_cost`` or ``sleep_miss``


class BandwidthFigure(_Row):
    """What the timing paper's text states of estimators, as it calls them; rates in Mbit/s."""

    tool: str
    timing: str
    platform: str
    capacity: float = Field(alias="capacity_mbps")
    cross: float = Field(alias="cross_traffic_mbps")
    median: float = Field(alias="median_mbps")
    half_iqr: float | None = Field(None, alias="mad_mbps")
    note: str = ""

    @property
    def error(self) -> float:
        """The error of the median, as a share of what was available."""
        return self.median / (self.capacity - self.cross) - 1


bandwidth_figures = functools.partial(BandwidthFigure.all_of, "bandwidth")


_BASE_UNITS = {"us": 1e3, "Mbit/s": 1e6, "ratio": 1.0}


class ForwardingFigure(_Row):
    """What the forwarding paper's text states in figures, in ns, bit/s or as a ratio."""

    platform: str
    nic: str  # its interfaces; of a figure about two platforms another word
    quantity: str
    condition: str
    unit: str  # as the paper has it: ``us``, ``Mbit/s``, ``ratio``
    # low, high: its bounds; None where the paper gives none
    low: float | None = None
    high: float | None = None

    @model_validator(mode="before")
    @classmethod
    def _in_base_units(cls, row: dict[str, str]) -> dict[str, str | float]:
        return row | {end: float(row[end]) * _BASE_UNITS[row["unit"]] for end in ("low", "high") if end in row}

    @property
    def sizes(self) -> tuple[float, float]:
        """Of frames that it is about: ``64 B frame``, ``below 512 B frame``, ``1024 B frame or larger``, or all."""
        found = re.search(r"(\d+) B frame", self.condition)
        if found is None:
            return 0.0, math.inf
        size = float(found[1])
        if self.condition.startswith("below"):
            return 0.0, size - 1
        return size, math.inf if "or larger" in self.condition else size

    @property
    def load(self) -> float | None:
        """The load in bit/s at which it holds; None: the throughput."""
        found = re.search(r"at (\d+) Mbit/s", self.condition)
        return float(found[1]) * 1e6 if found else None


forwarding_figures = functools.partial(ForwardingFigure.all_of, "forwarding")


class StorageFigure(_Row):
    """A figure of the storage paper's Table IV or V, in operations (of many values: rows) per second."""

    database: str
    server: str
    values: int = Field(alias="values_per_statement")
    operation: str
    many_clients: Annotated[bool, BeforeValidator(lambda text: text == "many")] = Field(alias="clients")
    per_s: float = Field(alias="operations_per_second")

    @property
    def name(self) -> str:
        """Our name of the operation: ``multi-read``."""
        return f"{'single' if self.values == 1 else 'multi'}-{self.operation}"

    @property
    def clients(self) -> str:
        """``1 client``, ``many clients``."""
        return "many clients" if self.many_clients else "1 client"

    @property
    def text(self) -> str:
        """``MongoDB/physical/single-write/many/1``."""
        clients = "many" if self.many_clients else "one"
        return f"{self.database}/{self.server}/{self.name}/{clients}/{self.values}"


def storage_figures() -> list[StorageFigure]:
    """All 48, Table IV before Table V."""
    return sorted(StorageFigure.all_of("storage_ops"), key=lambda one: one.values)


_SHARES = {
    "for declared limits below": (0.0, 0.699),
    "too high at low declared limits": (0.0, 0.5),
    "falls to 80 % at high declared limits": (0.5, 1.0),
}
"""The shares that a note speaks of; where the text says low or high, a half of them (ours)."""
_Percent = Annotated[float, AfterValidator(lambda percent: percent / 100)]


class IsolationFigure(_Row):
    """What the isolation paper's text states in figures; shares and efficiencies 0 … 1 and beyond."""

    processor: str
    energy_saving: bool
    benchmark: str
    load: str
    left: _Percent | None = Field(None, alias="declared_percent")  # by what is declared, for the tested guest
    # q_low, q_high: as stated; None where one end or both are not
    q_low: _Percent | None = Field(None, alias="q_low_percent")
    q_high: _Percent | None = Field(None, alias="q_high_percent")
    note: str = ""

    @property
    def on(self) -> str:
        """The guest that has limit and reservation."""
        return "loading" if self.note.startswith("loading VM holds limit and reservation") else "tested"

    @property
    def share(self) -> float | None:
        """Declared; None for a statement about many."""
        if self.left is None or self._many:
            return None
        return 1 - self.left if self.on == "loading" else self.left

    @property
    def shares(self) -> tuple[float, float]:
        """The least and the greatest declared share that it is about."""
        return self._many or ((0.0, 1.0) if self.share is None else (self.share, self.share))

    @property
    def _many(self) -> tuple[float, float] | None:
        return next((ends for words, ends in _SHARES.items() if self.note.startswith(words)), None)


isolation_figures = functools.partial(IsolationFigure.all_of, "isolation")

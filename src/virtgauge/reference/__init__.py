"""What four papers published, as data with its citation.

Drawn beside what virtgauge measures, always labelled as another machine's; nothing is ever tuned to it.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
from importlib import resources


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

    name: str  # of the file, without ``.csv``
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
    """A published table.

    Args:
        name: one of :data:`NAMES`.

    Raises:
        KeyError: there is no such table.
    """
    source, place = _PLACES[name]
    text = resources.files(__package__).joinpath(f"{name}.csv").read_text(encoding="utf-8")
    return Table(name, source, place, tuple(csv.DictReader(text.splitlines())))


def _number(text: str, units: float = 1.0) -> float | None:
    return float(text) / units if text else None


# -- what the papers state, as figures -------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class TimingFigure:
    """One row of the timing paper's Table 1 or 2, in nanoseconds.

    ``half_iqr_ns`` is what the paper calls MAD (section 2.3).
    """

    function: str
    platform: str
    load: str
    median_ns: float
    half_iqr_ns: float
    min_ns: float
    max_ns: float


@functools.cache
def timing_figures(name: str) -> tuple[TimingFigure, ...]:
    """The timing paper's Table 1 (``timer_cost``) or 2 (``sleep_miss``)."""
    numbers = ("median_ns", "mad_ns", "min_ns", "max_ns")
    return tuple(
        TimingFigure(row["function"], row["platform"], row["load"], *(float(row[one]) for one in numbers))
        for row in table(name).rows
    )


@dataclasses.dataclass(frozen=True)
class BandwidthFigure:
    """What the timing paper's text states of estimators, as it calls them; rates in Mbit/s."""

    tool: str
    timing: str
    platform: str
    capacity: float
    cross: float
    median: float
    half_iqr: float | None
    note: str

    @property
    def error(self) -> float:
        """Of the median, as a share of what was available."""
        return self.median / (self.capacity - self.cross) - 1


@functools.cache
def bandwidth_figures() -> tuple[BandwidthFigure, ...]:
    """In the order of the table."""
    return tuple(
        BandwidthFigure(
            *(row["tool"], row["timing"], row["platform"]),
            capacity=float(row["capacity_mbps"]),
            cross=float(row["cross_traffic_mbps"]),
            median=float(row["median_mbps"]),
            half_iqr=_number(row["mad_mbps"]),
            note=row["note"],
        )
        for row in table("bandwidth").rows
    )


@dataclasses.dataclass(frozen=True)
class StorageFigure:
    """A figure of the storage paper's Table IV or V, in operations (of many values: rows) per second."""

    database: str
    server: str
    values: int
    operation: str
    many_clients: bool
    per_s: float

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


@functools.cache
def storage_figures() -> tuple[StorageFigure, ...]:
    """All 48, Table IV before Table V."""
    found = [
        StorageFigure(
            *(row["database"], row["server"], int(row["values_per_statement"]), row["operation"]),
            *(row["clients"] == "many", float(row["operations_per_second"])),
        )
        for row in table("storage_ops").rows
    ]
    return tuple(sorted(found, key=lambda one: one.values))


_SHARES = {
    "for declared limits below": (0.0, 0.699),
    "too high at low declared limits": (0.0, 0.5),
    "falls to 80 % at high declared limits": (0.5, 1.0),
}
"""The shares that a note speaks of; where the text says low or high, a half of them (ours)."""


@dataclasses.dataclass(frozen=True)
class IsolationFigure:
    """What the isolation paper's text states in figures; shares and efficiencies 0 … 1 and beyond."""

    processor: str
    energy_saving: bool
    benchmark: str
    load: str
    on: str  # the guest that has limit and reservation
    share: float | None  # declared; None for a statement about many
    shares: tuple[float, float]  # the least and the greatest declared share that it is about
    # q_low, q_high: as stated; None where one end or both are not
    q_low: float | None
    q_high: float | None
    note: str


@functools.cache
def isolation_figures() -> tuple[IsolationFigure, ...]:
    """In the order of the table."""
    found = []
    for row in table("isolation").rows:
        on_loading = row["note"].startswith("loading VM holds limit and reservation")
        share = _number(row["declared_percent"], 100)
        if on_loading and share is not None:
            share = 1 - share  # the table has the share that is left for the tested guest
        many = next((ends for words, ends in _SHARES.items() if row["note"].startswith(words)), None)
        share = share if many is None else None
        low, high = (_number(row[name], 100) for name in ("q_low_percent", "q_high_percent"))
        of = row["processor"], row["energy_saving"] == "on", row["benchmark"], row["load"]
        shares = many or ((0.0, 1.0) if share is None else (share, share))
        found.append(IsolationFigure(*of, "loading" if on_loading else "tested", share, shares, low, high, row["note"]))
    return tuple(found)

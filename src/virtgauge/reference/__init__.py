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
    """One published table.

    Attributes:
        name: of the file, without ``.csv``.
        source: the paper.
        place: where in the paper.
        rows: column name to text; an empty text is a figure that the paper does not give.
    """

    name: str
    source: Source
    place: str
    rows: tuple[dict[str, str], ...]


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


@functools.cache
def timing_figures(name: str) -> tuple[TimingFigure, ...]:
    """The timing paper's Table 1 (``timer_cost``) or 2 (``sleep_miss``) as numbers."""
    return tuple(
        TimingFigure(
            row["function"],
            row["platform"],
            row["load"],
            float(row["median_ns"]),
            float(row["mad_ns"]),
            float(row["min_ns"]),
            float(row["max_ns"]),
        )
        for row in table(name).rows
    )

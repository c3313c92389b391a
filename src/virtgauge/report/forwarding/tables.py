"""The forwarding suite's tables as rows ready to be shown, in the page and in the terminal alike."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from virtgauge.ledger.records import ArmRecord
from virtgauge.measures.quantities import significant
from virtgauge.report.forwarding.headlines import NOTABLE_FLAGS, highlights
from virtgauge.report.forwarding.model import (
    Cell,
    Design,
    ForwardingFindings,
    GuestFigures,
    InterfaceRatio,
    LossAccount,
    Series,
    TesterFigures,
)
from virtgauge.report.forwarding.rates import bit_rate
from virtgauge.report.words import duration

_USUAL_LOADS = (10.0, 50.0, 90.0, 100.0)
_NUMBER = re.compile(r"(guest |in|out)\d+")


@dataclasses.dataclass(frozen=True)
class GlanceRow:
    """One platform.

    Attributes:
        lines: its series at each J (as text), in the order of the table's frame sizes; None where it was not tried.
        flags: its counts of notable flags.
    """

    arm: ArmRecord
    lines: tuple[tuple[str, tuple[Series | None, ...]], ...]
    flags: dict[str, int]


@dataclasses.dataclass(frozen=True)
class Glance:
    """The table at a glance: platforms at the highest and the lowest J × frame sizes."""

    sizes: tuple[int, ...]
    rows: tuple[GlanceRow, ...]
    design: str


@dataclasses.dataclass(frozen=True)
class DetailTable:
    """All cells of one frame size in one design.

    Attributes:
        loads: parts of the throughput in whose columns latency stands.
        rows: each cell and arm; the first of a cell is marked.
        bursts: whether any result has back-to-back frames.
        left_out: number of load vectors that a short form leaves out.
    """

    title: str
    loads: tuple[float, ...]
    rows: tuple[tuple[bool, Cell, ArmRecord, Series], ...]
    bursts: bool
    left_out: int = 0


@dataclasses.dataclass(frozen=True)
class GuestTable:
    """Each guest's own figures in one cell."""

    title: str
    loads: tuple[str, ...]
    rows: tuple[tuple[bool, ArmRecord, GuestFigures], ...]


@dataclasses.dataclass(frozen=True)
class PlaceLine:
    """Frames that were dropped at places of one kind: ``guest … IP layer``, of so many guests."""

    place: str
    places: int
    frames: int
    share: float


@dataclasses.dataclass(frozen=True)
class AccountRow:
    """One arm's lost frames."""

    arm: ArmRecord
    account: LossAccount
    lines: tuple[PlaceLine, ...]


@dataclasses.dataclass(frozen=True)
class InterfaceTable:
    """The comparison of two arms that differ in their interfaces alone."""

    paravirtual: ArmRecord
    emulated: ArmRecord
    rows: tuple[tuple[Cell, InterfaceRatio], ...]


def glance(found: ForwardingFindings, arms: Sequence[ArmRecord]) -> Glance:
    """The table at a glance; without rows when nothing can be shown."""
    cells = highlights(found.cells)
    if not cells:
        return Glance((), (), "")
    sizes = tuple(sorted({cell.frame_bytes for cell in cells}))
    fairnesses = dict.fromkeys(f"{cell.jain:.3f}" for cell in cells)
    placed = {(f"{cell.jain:.3f}", cell.frame_bytes): cell for cell in cells}
    rows = []
    for arm in arms:
        lines = []
        for jain in fairnesses:
            own = [placed.get((jain, size)) for size in sizes]
            lines.append((jain, tuple(cell.of(arm.name) if cell else None for cell in own)))
        rows.append(GlanceRow(arm, tuple(lines), notable(found.flags.get(arm.name, {}))))
    return Glance(sizes, tuple(rows), cells[0].design.label)


def notable(flags: Mapping[str, int]) -> dict[str, int]:
    """The counts of flags that stand in the table at a glance, zeros among them."""
    return {name: flags.get(name, 0) for name in NOTABLE_FLAGS}


def detail(found: ForwardingFindings, arms: Sequence[ArmRecord], *, most_vectors: int = 100) -> list[DetailTable]:
    """Every cell, by design and frame size.

    Args:
        found, arms: what to show, and the order of the arms.
        most_vectors: of more load vectors than this, the paper's are left out but for the lowest and the highest J.
    """
    groups: dict[tuple[Design, int], list[Cell]] = {}
    for cell in found.cells:
        groups.setdefault((cell.design, cell.frame_bytes), []).append(cell)
    tables = []
    for (design, size), cells in groups.items():
        shown = cells if len(cells) <= most_vectors else _ends(cells)
        rows = []
        for cell in shown:
            own = [(arm, series) for arm in arms if (series := cell.of(arm.name)) is not None]
            rows += [(place == 0, cell, arm, series) for place, (arm, series) in enumerate(own)]
        tables.append(
            DetailTable(
                title=f"{size} B frames · {design.label}",
                loads=_shown_loads([series for _, _, _, series in rows]),
                rows=tuple(rows),
                bursts=any(series.burst_frames.n for _, _, _, series in rows),
                left_out=len(cells) - len(shown),
            )
        )
    return tables


def _ends(cells: Sequence[Cell]) -> list[Cell]:
    paper = [cell for cell in cells if cell.two_level]
    return [cell for cell in cells if cell not in paper[1:-1]]


def _shown_loads(series: Sequence[Series]) -> tuple[float, ...]:
    measured = {level.load_percent for one in series for level in one.latency}
    usual = tuple(load for load in _USUAL_LOADS if load in measured)
    return usual or tuple(sorted(measured)[:4])


def guests(found: ForwardingFindings, arms: Sequence[ArmRecord]) -> list[GuestTable]:
    """Each guest's own figures, in the cells of a first look."""
    tables = []
    for cell in highlights(found.cells):
        rows = []
        for arm in arms:
            series = cell.of(arm.name)
            own = series.guests if series else ()
            rows += [(place == 0, arm, one) for place, one in enumerate(own)]
        if rows:
            loads = [load for load in ("10", "50", "90", "100") if any(load in one.mean_ns for _, _, one in rows)]
            tables.append(GuestTable(f"{cell.frame_bytes} B · {cell.vector_label}", tuple(loads), tuple(rows)))
    return tables


def accounts(found: ForwardingFindings, arms: Sequence[ArmRecord]) -> list[AccountRow]:
    """Where every arm's lost frames went, places of one kind together."""
    rows = []
    for arm in arms:
        account = found.accounts.get(arm.name)
        if account is not None and account.trials:
            frames: Counter[str] = Counter()
            number: Counter[str] = Counter()
            for place, dropped in account.places.items():
                kind = _NUMBER.sub(r"\1…", place)
                frames[kind] += dropped
                number[kind] += 1
            total = max(account.lost, 1)
            lines = [PlaceLine(kind, number[kind], n, n / total) for kind, n in frames.most_common()]
            rows.append(AccountRow(arm, account, tuple(lines)))
    return rows


def interface_tables(found: ForwardingFindings, arms: Sequence[ArmRecord]) -> list[InterfaceTable]:
    """Para-virtual against emulated interfaces, a table for each pair of arms."""
    by_name = {arm.name: arm for arm in arms}
    groups: dict[tuple[str, str], list[tuple[Cell, InterfaceRatio]]] = {}
    for ratio in found.interfaces:
        if ratio.throughput.point is not None:
            groups.setdefault((ratio.paravirtual, ratio.emulated), []).append((found.cells[ratio.cell], ratio))
    return [InterfaceTable(by_name[one], by_name[other], tuple(rows)) for (one, other), rows in groups.items()]


def tester_words(tester: TesterFigures) -> list[str]:
    """``xdp_live``, ``itself 1.50 µs``: what stands below the tester's limit."""
    latency = tester.latency_mean_ns.point
    return [", ".join(tester.ports)] * bool(tester.ports) + ([] if latency is None else [f"itself {duration(latency)}"])


def published_words(low: float | None, high: float | None, unit: str) -> str:
    """A published figure with its bounds: ``more than 80 µs``, ``5×``."""
    if low is not None and high is not None:
        return in_unit(low, unit) if low == high else f"{in_unit(low, unit)} to {in_unit(high, unit)}"
    if low is not None:
        return f"more than {in_unit(low, unit)}"
    return "–" if high is None else f"up to {in_unit(high, unit)}"


def in_unit(value: float | None, unit: str) -> str:
    """A figure of the paper's table in a person's unit."""
    if value is None:
        return "–"
    if unit == "us":
        return duration(value * 1e3)
    return bit_rate(value) if unit == "Mbit/s" else f"{significant(value)}×"

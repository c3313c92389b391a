"""A run's figures in the timing paper's terms: its two clocks, its two sleeps, its loads and its platforms."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from virtgauge.ledger.records import ArmRecord
from virtgauge.report.timing.factors import Place, Repetitions

FUNCTIONS = {"rdtscp": "TSC", "clock_gettime": "System Call", "usleep": "uSleep", "highpertimer": "HPTSleep"}
LOADS = {"idle": "Idle System", "cpu": "CPU-bound", "io": "IO/network-bound"}
TABLES = {"timer_cost": "timer_cost", "sleep_lateness": "sleep_miss"}
"""The paper's table of each probe."""
STATISTICS = {"median": "p50", "half_iqr": "half_iqr", "max": "max", "min": "min", "p90": "p90", "p99.9": "p99.9"}
"""Ours, by the paper's parameter."""

_KINDS = {"qemu": "QEMU", "xen": "Xen"}
_SCHEMES = {"qemu": "QEMU", "xen": "Xen", "vbox": "VBox", "esx": "ESXi"}
_PLAIN_RUNTIMES = ("runc", "crun", "youki")
_TARGET_NS = 1e6
"""Of the paper's sleeps, of which it says no length; where several were measured, the nearest one is taken."""


def paper_platform(arm: ArmRecord) -> str | None:
    """What the paper calls a platform of this kind; None for one that it does not have."""
    if arm.role == "reference" and arm.kind in ("host", "simulated"):
        return "Host OS"
    if arm.kind == "libvirt":
        return _SCHEMES.get(str(arm.settings.get("uri", "")).partition(":")[0].partition("+")[0])
    return _KINDS.get(arm.kind)


def is_virtual(arm: ArmRecord) -> bool:
    """Whether code runs on anything but the host's own kernel; a plain container does not."""
    return arm.kind not in ("host", "oci") or (arm.kind == "oci" and arm.settings.get("runtime") not in _PLAIN_RUNTIMES)


class RunFigures:
    """Statistics by table, function, arm, load and block.

    Args:
        cells: of the run, by table and by :data:`~virtgauge.report.timing.factors.Place` in the paper's terms.
        arms: of the manifest.
        nominal: the confidence wanted.
    """

    def __init__(
        self, cells: Mapping[str, Mapping[Place, Repetitions]], arms: Sequence[ArmRecord], nominal: float
    ) -> None:
        self._cells, self.nominal = cells, nominal
        measured = {place[1] for table in cells.values() for place in table}
        own = [arm for arm in arms if arm.name in measured]
        self.judged = tuple(arm for arm in own if arm.role != "aa" and not arm.emulated)
        """Arms whose figures decide."""
        self.emulated = tuple(arm for arm in own if arm.emulated)
        self._aa = next((arm.name for arm in own if arm.role == "aa"), None)
        self.reference = next((arm for arm in self.judged if arm.role == "reference"), None)

    def named(self, platform: str) -> tuple[ArmRecord, ...]:
        """Arms that are a platform of the paper's."""
        return tuple(arm for arm in self.judged if paper_platform(arm) == platform)

    def of_the_paper(self, ignoring: Sequence[str] = ()) -> tuple[ArmRecord, ...]:
        """Arms that are any platform of the paper's, but for some."""
        return tuple(arm for arm in self.judged if paper_platform(arm) not in (None, *ignoring))

    def table(self, name: str, arms: Sequence[ArmRecord]) -> dict[Place, Repetitions]:
        """All cells of some arms."""
        names = {arm.name for arm in arms}
        return {place: found for place, found in self._cells.get(name, {}).items() if place[1] in names}

    def levels(self, table: str, axis: int) -> list[str]:
        """Functions (0) or loads (2) that were measured, in the paper's order."""
        order = list(FUNCTIONS.values()) if axis == 0 else list(LOADS.values())
        there = {place[axis] for place in self._cells.get(table, {})}
        return [level for level in order if level in there]

    def values(self, table: str, place: Place, parameter: str) -> dict[int, float]:
        """By block; empty where there is none."""
        statistic = STATISTICS[parameter]
        found = self._cells.get(table, {}).get(place, {})
        return {block: value for block, figures in found.items() if (value := figures.get(statistic)) is not None}

    def between_identical(self, table: str, place: Place, parameter: str) -> tuple[dict[int, float], dict[int, float]]:
        """The A/A arm's figures and the reference's at a place, by which a comparison of two arms is guarded."""
        if self._aa is None or self.reference is None:
            return {}, {}
        function, _, load = place
        return (
            self.values(table, (function, self._aa, load), parameter),
            self.values(table, (function, self.reference.name, load), parameter),
        )


def in_the_papers_terms(
    cells: Mapping[tuple[str, str, tuple[tuple[str, str], ...]], Mapping[str, Repetitions]],
) -> dict[str, dict[Place, Repetitions]]:
    """The cells that are the paper's: its functions with a program's default slack and class, and of one length.

    Args:
        cells: repetitions by suite, probe and factors, and by arm.
    """
    chosen: dict[str, dict[Place, tuple[float, Repetitions]]] = {}
    for probe, factors, arm, repetitions in _comparable(cells):
        place = (FUNCTIONS[factors["function"]], arm, LOADS[factors["load"]])
        target = factors.get("target_ns", "")
        distance = abs(math.log(int(target) / _TARGET_NS)) if target.isdigit() and int(target) else 0.0
        table = chosen.setdefault(TABLES[probe], {})
        if place not in table or distance < table[place][0]:
            table[place] = distance, repetitions
    return {name: {place: found for place, (_, found) in table.items()} for name, table in chosen.items()}


def _comparable(
    cells: Mapping[tuple[str, str, tuple[tuple[str, str], ...]], Mapping[str, Repetitions]],
) -> Iterator[tuple[str, dict[str, str], str, Repetitions]]:
    for (_, probe, items), arms in cells.items():
        factors = dict(items)
        usual = (
            factors.get("slack", "default") in ("default", "own")
            and factors.get("policy", "other") == "other"
            and factors.get("idle_states", "default") == "default"
        )
        known = factors.get("function") in FUNCTIONS and factors.get("load") in LOADS
        if probe in TABLES and usual and known:
            for arm, repetitions in arms.items():
                if repetitions:
                    yield probe, factors, arm, repetitions

"""What the isolation suite varies: benchmarks, loads, policies and cores in words, and what a policy promises."""

from __future__ import annotations

import dataclasses
import enum
import re

from virtgauge.analysis.estimate import Estimate
from virtgauge.results import formatting
from virtgauge.results.columns import Cell
from virtgauge.results.formatting import NONE
from virtgauge.results.quantities import SHARE
from virtgauge.specs.model import Factor

NOTHING = "none"  # Level of the factors ``load``, ``policy`` and ``on``
TESTED, LOADING = "tested", "loading"  # The two guests, and levels of ``on``
LATENCY, WAKE = "latency", "wake"
FULL_TIME = ("0", "100")  # Levels of ``intensity`` of no load, and of one that works all the time
_CORES = {"1": "one shared core", "1-apart": "a core each", "all": "all cores"}
_BENCHMARKS = {"integer": "integer", "floating": "floating point", LATENCY: "memory latency", WAKE: "waking up"}
_LOADS = {NOTHING: "no load", "floating": "floating-point load"}
_ELEMENTS = {"integer": "integers", "float": "floats", "simd": "SIMD"}


class Policy(enum.StrEnum):
    """What bounds a guest: levels of the factor ``policy``, which is also :data:`NOTHING`."""

    LIMIT = "limit"
    RESERVATION = "reservation"
    BOTH = "limit+reservation"
    WEIGHT = "weight"
    DISK_LIMIT = "disk-limit"


_POLICIES = {NOTHING: "no policy", Policy.BOTH: "limit and reservation", Policy.DISK_LIMIT: "disk limit"}


class Resource(enum.StrEnum):
    """What guests of one host share."""

    CPU = "CPU time"
    MEMORY = "memory bandwidth"
    CACHE = "cache and memory latency"
    DISK = "disk"
    WAKE = "wake-up latency"


OF_THE_CORES = (Resource.CPU, Resource.MEMORY, Resource.CACHE)  # What a share of the cores promises something of


def resource_of(benchmark: str) -> Resource:
    """The resource that a benchmark, or a cell's level of that factor, is about."""
    if benchmark.startswith("memory-"):
        return Resource.MEMORY
    if benchmark.startswith("disk-"):
        return Resource.DISK
    return {LATENCY: Resource.CACHE, WAKE: Resource.WAKE}.get(benchmark.partition(" ")[0], Resource.CPU)


def about(cell: Cell) -> Resource:
    """The resource that a cell is about."""
    return resource_of(cell.factors["benchmark"])


def promised(cell: Cell) -> float | None:
    """Share of the cores that is meant for the tested guest: that declared, or what the loading one leaves.

    None where no share of the cores is declared: under a disk limit, or beside a guest that holds all of them.
    """
    factors = cell.factors
    share = float(factors["share"]) / 100
    if factors["policy"] == Policy.DISK_LIMIT:
        return None
    if factors["on"] == LOADING:
        return 1 - share if share < 1 else None
    return share if factors["on"] == TESTED else 1.0


def cores_text(level: str) -> str:
    """``one shared core``."""
    return _CORES.get(level, level)


def benchmark_text(level: str) -> str:
    """A benchmark and its block: ``memory write (SIMD, 64 MiB)``."""
    benchmark, _, block = level.partition(" ")
    said = _BENCHMARKS.get(benchmark) or _work_text(benchmark)
    if not block:
        return said
    block = re.sub(r"(?<=\d)x(?=LLC)", " × ", block).replace("LLC", "last-level cache")
    block = re.sub(r"(?<=\d)(?=[KMG]i?B)", " ", block)
    return f"{said[:-1]}, {block})" if said.endswith(")") else f"{said} ({block})"


def load_text(load: str) -> str:
    """``no load``, ``memory write (integers) load``."""
    return _LOADS.get(load) or f"{_work_text(load)} load"


def intensity_text(level: str) -> str:
    """``at 50 %``; empty of no load and of one that works all the time."""
    return "" if level in FULL_TIME else f"at {level} %"


def _work_text(name: str) -> str:
    """``memory write (SIMD)``, ``disk random write with flush``."""
    kind, *parts = name.split("-")
    if kind == "memory" and len(parts) == 2:
        return f"memory {parts[0]} ({_ELEMENTS.get(parts[1], parts[1])})"
    if kind == "disk" and len(parts) >= 2:
        return f"disk {parts[0]} {' with '.join(parts[1:])}"
    return name


def policy_text(policy: str) -> str:
    """``limit and reservation``."""
    return _POLICIES.get(policy, policy)


def percent(share: float) -> str:
    """A part of 1: ``50 %``, ``7.5 %``, ``57.8 %``."""
    return f"{share * 100:.3g} %"


def beside(cell: Cell) -> str:
    """``memory write (integers) load at 50 %``."""
    return " ".join(filter(None, (load_text(cell.factors["load"]), intensity_text(cell.factors["intensity"]))))


def under(cell: Cell) -> str:
    """``no policy``, ``limit and reservation of 50 % on the tested guest``."""
    said = policy_text(cell.factors["policy"])
    if cell.factors["policy"] == NOTHING:
        return said
    return f"{said} of {percent(float(cell.factors['share']) / 100)} on the {cell.factors['on']} guest"


def benchmark_of(cell: Cell) -> str:
    """A cell's benchmark with its block: ``latency 4xLLC``."""
    return f"{cell.factors['benchmark']} {cell.factors.get('block', '')}".strip()


def kept_text(kept: Estimate, resource: Resource) -> str:
    """A ratio of work: ``98 % (97–99 %)``; of waking up how much later, ``12.0× as late (11.2–12.8×)``."""
    if kept.point is None:
        return NONE
    if resource is Resource.WAKE:
        late = inverse(kept)
        said = f"{formatting.ratio(late)} as late"
        return f"{said} ({formatting.ratio_interval(late)})" if late.has_interval else said
    said = f"{_per_cent(kept.point)} %"
    if kept.low is None or kept.high is None:
        return said
    return f"{said} ({_per_cent(kept.low)}–{_per_cent(kept.high)} %)"


def inverse(kept: Estimate) -> Estimate:
    """Of a ratio of work that of lateness: the ends change places."""
    turned = dataclasses.replace(kept, low=kept.high, high=kept.low)
    return turned.mapped(lambda value: 1 / value, "ratio")


def _per_cent(part: float) -> str:
    return f"{part * 100:.1f}" if part < 0.0995 else f"{part * 100:.0f}"


FACTORS = (
    Factor("benchmark", "", ("integer", "floating"), text=benchmark_text, of=benchmark_of),
    Factor("block", text=lambda level: ""),  # the benchmark has it
    Factor("cores", "", tuple(_CORES), text=cores_text),
    Factor("policy", "", (NOTHING, *Policy), text=policy_text),
    Factor(
        *("share", "declared share"),
        text=lambda level: percent(float(level) / 100) if level else "",
        of=lambda cell: "" if cell.factors["policy"] == NOTHING else cell.factors["share"],
        quantity=SHARE,
    ),
    Factor("on", "", (NOTHING, TESTED, LOADING), NOTHING, lambda level: f"on the {level} guest" * (level != NOTHING)),
    Factor("load", "beside", (NOTHING,), text=load_text),
    Factor("governor", usual="as-is"),
    Factor("intensity", "of the time in which the load works", text=intensity_text, quantity=SHARE),
)

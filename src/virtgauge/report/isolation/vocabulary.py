"""Benchmarks, loads, policies and numbers of cores in words, and values in a person's units."""

from __future__ import annotations

import dataclasses
import enum
import re

from virtgauge.analysis.estimate import Estimate
from virtgauge.report import words
from virtgauge.report.words import NONE, duration, duration_interval

NOTHING = "none"
"""Level of the factors ``load``, ``policy`` and ``on``."""
TESTED, LOADING = "tested", "loading"
"""The guests of a bench, and levels of ``on``."""
LATENCY, WAKE = "latency", "wake"
DISK = "disk-"
MEMORY = "memory-"

LIMIT, RESERVATION, BOTH, WEIGHT, DISK_LIMIT = "limit", "reservation", "limit+reservation", "weight", "disk-limit"
POLICIES = (NOTHING, LIMIT, RESERVATION, BOTH, WEIGHT, DISK_LIMIT)
CORES = ("1", "1-apart", "all")

BENCHMARK_ORDER = ("integer", "floating", MEMORY, LATENCY, DISK, WAKE)
"""What benchmarks' names begin with, in the order of tables."""

_BENCHMARKS = {
    "integer": "integer",
    "floating": "floating point",
    LATENCY: "memory latency",
    WAKE: "waking up",
}
_LOADS = {
    NOTHING: "no load",
    "cache": "cache load",
    "fork": "fork load",
    "flush": "flush load",
    "integer": "integer load",
    "floating": "floating-point load",
}
CORES_WORDS = {
    "1": "1 vCPU each on one shared core",
    "1-apart": "1 vCPU each on cores of their own",
    "all": "all cores shared",
}
SHORT_CORES = {"1": "one shared core", "1-apart": "a core each", "all": "all cores"}
_POLICY_WORDS = {
    NOTHING: "no policy",
    LIMIT: "limit",
    RESERVATION: "reservation",
    BOTH: "limit and reservation",
    WEIGHT: "weight",
    DISK_LIMIT: "disk limit",
}
_ELEMENTS = {"integer": "integers", "float": "floats", "simd": "SIMD"}


class Resource(enum.StrEnum):
    """What guests of one host share."""

    CPU = "CPU time"
    MEMORY = "memory bandwidth"
    CACHE = "cache and memory latency"
    DISK = "disk"
    WAKE = "wake-up latency"


OF_THE_CORES = (Resource.CPU, Resource.MEMORY, Resource.CACHE)
"""What a share of the cores promises something of."""


def resource_of(benchmark: str) -> Resource:
    """The resource that a benchmark is about."""
    if benchmark.startswith(MEMORY):
        return Resource.MEMORY
    if benchmark.startswith(DISK):
        return Resource.DISK
    return {LATENCY: Resource.CACHE, WAKE: Resource.WAKE}.get(benchmark, Resource.CPU)


def benchmark_words(benchmark: str, block: str = "") -> str:
    """``memory write (SIMD, 64 MiB)``."""
    said = _BENCHMARKS.get(benchmark) or _work_words(benchmark)
    if not block:
        return said
    return f"{said[:-1]}, {block_words(block)})" if said.endswith(")") else f"{said} ({block_words(block)})"


def short_benchmark(benchmark: str, block: str = "") -> str:
    """The same without what the name stands for: ``integer``."""
    words = benchmark_words(benchmark, block)
    return words.partition(" (")[0] if resource_of(benchmark) is Resource.CPU else words


def block_words(block: str) -> str:
    """``64 MiB``, ``4 × last-level cache``."""
    block = re.sub(r"(?<=\d)x(?=LLC)", " × ", block).replace("LLC", "last-level cache")
    return re.sub(r"(?<=\d)(?=[KMG]i?B)", " ", block)


def load_words(load: str, intensity: int = 100) -> str:
    """``no load``, ``memory write (integers) load at 50 %``."""
    said = _LOADS.get(load) or f"{_work_words(load)} load"
    return said if load == NOTHING or intensity == 100 else f"{said} at {intensity} %"


def _work_words(name: str) -> str:
    """``memory write (SIMD)``, ``disk random write with flush``."""
    kind, *parts = name.split("-")
    if kind == "memory" and len(parts) == 2:
        return f"memory {parts[0]} ({_ELEMENTS.get(parts[1], parts[1])})"
    if kind == "disk" and len(parts) >= 2:
        return f"disk {parts[0]} {' with '.join(parts[1:])}"
    return name


def policy_name(policy: str) -> str:
    """``limit and reservation``."""
    return _POLICY_WORDS.get(policy, policy)


def policy_words(policy: str, on: str, share: float) -> str:
    """``no policy``, ``limit and reservation of 50 % on the tested guest``."""
    said = policy_name(policy)
    return said if policy == NOTHING else f"{said} of {percent(share)} on the {on} guest"


def percent(share: float) -> str:
    """``50 %``, ``7.5 %``, ``57.8 %``."""
    return f"{share * 100:.3g} %"


def figure(point: float | None, unit: str) -> str:
    """``4,210 DMIPS``, ``81.2 ns``; a dash for None."""
    if point is None:
        return NONE
    return duration(point) if unit == "ns" else f"{words.amount(point)} {unit}"


def interval(estimate: Estimate) -> str:
    """``4,100–4,300``; a dash without one."""
    if estimate.low is None or estimate.high is None:
        return NONE
    if estimate.unit == "ns":
        return duration_interval(estimate)
    return f"{words.amount(estimate.low)}–{words.amount(estimate.high)}"


def kept(estimate: Estimate, resource: Resource | None = None) -> str:
    """A ratio in per cent: ``98 %``; of waking up how much later, ``12.0× as late``; a dash when missing."""
    if estimate.point is None:
        return NONE
    if resource is Resource.WAKE:
        return f"{words.ratio(_inverse(estimate))} as late"
    return f"{_per_cent(estimate.point)} %"


def kept_interval(estimate: Estimate, resource: Resource | None = None) -> str:
    """``97–99 %``, ``11.2–12.8×``; a dash without one."""
    if estimate.low is None or estimate.high is None:
        return NONE
    if resource is Resource.WAKE:
        return words.ratio_interval(_inverse(estimate))
    return f"{_per_cent(estimate.low)}–{_per_cent(estimate.high)} %"


def amount(estimate: Estimate, resource: Resource | None = None) -> str:
    """``98 % (97–99 %)``."""
    said = kept(estimate, resource)
    return f"{said} ({kept_interval(estimate, resource)})" if estimate.has_interval else said


def _inverse(estimate: Estimate) -> Estimate:
    """Of work that of lateness: the ends change places."""
    turned = dataclasses.replace(estimate, low=estimate.high, high=estimate.low)
    return turned.mapped(lambda value: 1 / value, "ratio")


def _per_cent(part: float) -> str:
    return f"{part * 100:.1f}" if part < 0.0995 else f"{part * 100:.0f}"


def capitalized(text: str) -> str:
    """With a capital letter, and the rest as it is."""
    return text[:1].upper() + text[1:]

"""The papers' own figures as claims need them, and what the same tests find on these.

Timing and storage have tables; of bandwidth and isolation the text states figures; of forwarding none can be used.
A figure is taken as it is, one of storage as what rounds to it: all of its tables' have two digits.  Where only one end
of a range is stated the other is open.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping

from virtgauge import reference
from virtgauge.claims.engine import judge
from virtgauge.claims.figures import Figure, Figures, exact, told
from virtgauge.claims.model import ClaimFile, Level, Printed, Range, claim_file
from virtgauge.claims.verdicts import CheckedClaim, ClaimCheck, Hearing
from virtgauge.reference import BandwidthFigure

SOURCES: Mapping[str, tuple[reference.Source, str]] = {
    "timing": (reference.TIMING, "clocks and sleeps"),
    "bandwidth": (reference.TIMING, "available bandwidth"),
    "forwarding": (reference.FORWARDING, "packet forwarding"),
    "storage": (reference.STORAGE, "sensor-data storage"),
    "isolation": (reference.ISOLATION, "performance isolation"),
}
"""The paper that each suite is about, and the subject in a few words."""
RESOURCES = {"dhrystone": "cpu", "CPU": "cpu", "RAM read/write": "memory", "RAM write": "memory-write"}
"""What the isolation paper's benchmarks and loads use, as claims call it where the paper does not."""


@functools.cache
def on_paper(suite: str) -> tuple[CheckedClaim, ...]:
    """Every claim of a suite's paper, on that paper's own figures."""
    figures = paper_figures(suite)
    return tuple(judge(claim, figures) for claim in figures.file.claim)


def check_claims(suite: str, run: Mapping[str, Figures], at_one_level: Figures | None = None) -> tuple[ClaimCheck, ...]:
    """Every claim of a suite's paper, on the paper's figures and on a run's: by the arm judged, or of all together.

    ``at_one_level`` are, of storage, figures of all databases at one level of durability.
    """
    return tuple(
        ClaimCheck(
            paper,
            tuple(Hearing(arm, judge(claim, figures)) for arm, figures in run.items()),
            judge(claim, at_one_level) if at_one_level is not None and claim.at_one_level else None,
        )
        for claim, paper in zip(claim_file(suite).claim, on_paper(suite), strict=True)
    )


def paper_figures(suite: str) -> Figures:
    """A paper's own figures, in the terms of its claims."""
    return Figures(claim_file(suite), tuple(_PAPERS[suite](claim_file(suite))))


def _timing(file: ClaimFile) -> Iterator[Figure]:
    for name, row in ((one, row) for one in ("timer_cost", "sleep_miss") for row in reference.timing_figures(one)):
        known = {"median": row.median_ns, "half_iqr": row.half_iqr_ns, "max": row.max_ns, "min": row.min_ns}
        ends = {measure: (value, value) for measure, value in known.items()}
        # The quantiles that the tables lack lie between the median and the maximum.
        ends |= {quantile: (row.median_ns, row.max_ns) for quantile in ("p90", "p99.9")}
        levels: dict[str, Level] = {"table": name, "function": row.function, "platform": row.platform, "load": row.load}
        facts: dict[str, Level] = {"of_the_paper": True, "virtual_or_host": True}
        for measure, (low, high) in ends.items():
            yield Figure(measure, levels, exact(low, "ns", high), {}, facts, row.platform, row.platform)


def _storage(file: ClaimFile) -> Iterator[Figure]:
    for one in reference.storage_figures():
        levels: dict[str, Level] = {"database": one.database, "operation": one.name, "server": one.server}
        leading = 10 ** math.floor(math.log10(one.per_s))
        half = 0.0499999 * leading  # of a unit of the second digit, without the ends; below 1,000 lies 990
        low = one.per_s - (half / 10 if one.per_s == leading else half)
        estimate = dataclasses.replace(exact(one.per_s, "op/s"), low=low, high=one.per_s + half)
        yield Figure("rate", {**levels, "clients": one.clients}, estimate, arm=one.server)


def _bandwidth(file: ClaimFile) -> Iterator[Figure]:
    off = {(*_path(one), one.timing): abs(one.error) for one in reference.bandwidth_figures()}
    for one in reference.bandwidth_figures():
        precise, host = one.timing == "HighPerTimer", one.platform == "Host OS"
        system = off.get((*_path(one), "System Call"))
        values = {
            "median_mbps": one.median,
            "sent_mbps": one.median,
            "half_iqr_mbps": one.half_iqr,
            "error": one.error,
            "off": abs(one.error),
            "gain": system - abs(one.error) if precise and system is not None else None,
        }
        levels: dict[str, Level] = {
            "estimator": one.tool,
            "timing": "hptime" if precise else "system",
            "link": f"{one.capacity / 1000:g} Gbit/s",
            "cross": one.cross,
        }
        facts: dict[str, Level] = {
            "tool": one.tool.lower(),
            "capacity_mbps": one.capacity,
            "platform": ("own", "reference") if host else "own",
            "kind": "host" if host else "virtual",
            "hypervisor": "" if host else "qemu",
        }
        for measure, found in values.items():
            if found is not None:
                estimate = exact(found, file.measures[measure].unit)
                yield Figure(measure, levels, estimate, facts=facts, arm=one.platform, label=one.platform)


def _path(one: BandwidthFigure) -> tuple[str | float, ...]:
    return one.tool, one.platform, one.capacity, one.cross


def _isolation(file: ClaimFile) -> Iterator[Figure]:
    for one in reference.isolation_figures():
        low, high = one.q_low, one.q_high
        if low is None and high is None:
            continue
        least, most = one.shares
        within = Range(at_least=least or -math.inf, at_most=most if most < 1 else math.inf)
        levels: dict[str, Level] = {
            "benchmark": one.benchmark,
            "load": one.load,
            "policy": "limit+reservation",
            "on": one.on,
            "share": within if one.share is None else one.share,
        }
        facts: dict[str, Level] = {
            "resource": RESOURCES.get(one.benchmark, one.benchmark),
            "beside": RESOURCES.get(one.load, one.load),
            "energy_saving": one.energy_saving,
            "hypervisor": "hyperv",
            "cores": ("1", "1-apart", "all"),  # the text does not say of which a figure is
        }
        bottom, top = -math.inf if low is None else low, math.inf if high is None else high
        yield Figure("q", levels, exact(bottom, "share", top), facts=facts)
        yield Figure("loss", levels, exact(1 - top, "share", 1 - bottom), facts=facts)
        if low is not None and high is not None:
            several = [at for step in range(1, 20) if within.includes(at := step / 20)]
            for at in several if one.share is None else [one.share]:
                left = 1 - at if one.on == "loading" else at
                estimate = exact(round(low * left, 9), "share", round(high * left, 9))
                yield Figure("relative", {**levels, "share": at}, estimate, facts=facts)


_PAPERS: Mapping[str, Callable[[ClaimFile], Iterator[Figure]]] = {
    "timing": _timing,
    "bandwidth": _bandwidth,
    "forwarding": lambda file: iter(()),
    "storage": _storage,
    "isolation": _isolation,
}


def printed_beside_table(suite: str) -> list[tuple[Printed, str, bool]]:
    """Figures that the text prints, the same of the paper's table, and whether they round to one another."""
    file, figures = claim_file(suite), paper_figures(suite)
    rows = []
    for printed in file.printed:
        (found,) = figures.select(printed.measure, printed.cells)
        number, unit = printed.text.split()
        decimals = len(number.partition(".")[2])
        value = found.point / {"ns": 1.0, "µs": 1e3, "ms": 1e6}[unit]
        same = abs(value - float(number)) <= 0.5 * 10**-decimals * (1 + 1e-9)
        rows.append((printed, told(found.estimate, "ns"), same))
    return rows

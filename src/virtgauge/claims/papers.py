"""The papers' own figures as claims need them, and what the same tests find on these.

Timing and storage have tables; of bandwidth and isolation the text states figures; of forwarding none can be used.
A figure is taken as it is.  Where only one end of a range is stated the other is open.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping

from virtgauge.claims.engine import judge
from virtgauge.claims.figures import Figure, Figures, exact, told
from virtgauge.claims.model import ClaimFile, Level, Printed, Range, claim_file
from virtgauge.claims.verdicts import CheckedClaim, ClaimCheck, Hearing
from virtgauge.reference import FORWARDING, ISOLATION, STORAGE, TIMING, Source, table, timing_figures

SOURCES: Mapping[str, tuple[Source, str]] = {
    "timing": (TIMING, "clocks and sleeps"),
    "bandwidth": (TIMING, "available bandwidth"),
    "forwarding": (FORWARDING, "packet forwarding"),
    "storage": (STORAGE, "sensor-data storage"),
    "isolation": (ISOLATION, "performance isolation"),
}
"""The paper that each suite is about, and the subject in a few words."""


@functools.cache
def on_paper(suite: str) -> tuple[CheckedClaim, ...]:
    """Every claim of a suite's paper, on that paper's own figures."""
    figures = paper_figures(suite)
    return tuple(judge(claim, figures) for claim in figures.file.claim)


def check_claims(suite: str, run: Mapping[str, Figures], at_one_level: Figures | None = None) -> tuple[ClaimCheck, ...]:
    """Every claim of a suite's paper, on the paper's figures and on a run's.

    Args:
        run: figures by the arm that is judged by them, or all of a run's under an empty name.
        at_one_level: of storage, figures of all databases at one level of durability.
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
    for name, row in ((one, row) for one in ("timer_cost", "sleep_miss") for row in timing_figures(one)):
        known = {"median": row.median_ns, "half_iqr": row.half_iqr_ns, "max": row.max_ns, "min": row.min_ns}
        ends = {measure: (value, value) for measure, value in known.items()}
        # The quantiles that the tables lack lie between the median and the maximum.
        ends |= {quantile: (row.median_ns, row.max_ns) for quantile in ("p90", "p99.9")}
        levels: dict[str, Level] = {"table": name, "function": row.function, "platform": row.platform, "load": row.load}
        facts: dict[str, Level] = {"of_the_paper": True, "virtual_or_host": True}
        for measure, (low, high) in ends.items():
            yield Figure(measure, levels, exact(low, "ns", high), {}, facts, row.platform, row.platform)


def _storage(file: ClaimFile) -> Iterator[Figure]:
    for row in table("storage_ops").rows:
        many = "multi" if row["values_per_statement"] != "1" else "single"
        levels: dict[str, Level] = {
            "database": row["database"],
            "operation": f"{many}-{row['operation']}",
            "server": row["server"],
            "clients": "many clients" if row["clients"] == "many" else "1 client",
        }
        yield Figure("rate", levels, exact(float(row["operations_per_second"]), "op/s"), arm=row["server"])


def _bandwidth(file: ClaimFile) -> Iterator[Figure]:
    rows = table("bandwidth").rows
    off = {_place(row): _error(row) for row in rows}
    for row in rows:
        value = float(row["median_mbps"])
        precise = row["timing"] == "HighPerTimer"
        system = off.get((*_place(row)[:-1], "System Call"))
        values = {
            "median_mbps": value,
            "sent_mbps": value,
            "half_iqr_mbps": float(row["mad_mbps"]) if row["mad_mbps"] else None,
            "error": _error(row),
            "off": abs(_error(row)),
            "gain": abs(system) - abs(_error(row)) if precise and system is not None else None,
        }
        host = row["platform"] == "Host OS"
        levels: dict[str, Level] = {
            "estimator": row["tool"],
            "timing": "hptime" if precise else "system",
            "link": f"{float(row['capacity_mbps']) / 1000:g} Gbit/s",
            "cross": float(row["cross_traffic_mbps"]),
        }
        facts: dict[str, Level] = {
            "tool": row["tool"].lower(),
            "capacity_mbps": float(row["capacity_mbps"]),
            "platform": ("own", "reference") if host else "own",
            "kind": "host" if host else "virtual",
        }
        for measure, found in values.items():
            if found is not None:
                estimate = exact(found, file.measures[measure].unit)
                yield Figure(measure, levels, estimate, facts=facts, arm=row["platform"], label=row["platform"])


def _place(row: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(row[name] for name in ("tool", "platform", "capacity_mbps", "cross_traffic_mbps", "timing"))


def _error(row: Mapping[str, str]) -> float:
    return float(row["median_mbps"]) / (float(row["capacity_mbps"]) - float(row["cross_traffic_mbps"])) - 1


_RESOURCES = {"dhrystone": "cpu", "CPU": "cpu", "RAM read/write": "memory", "RAM write": "memory-write"}
_SHARES = {  # where the text says low or high, a half of them (ours)
    "for declared limits below": Range(at_most=0.699),
    "too high at low declared limits": Range(at_most=0.5),
    "falls to 80 % at high declared limits": Range(at_least=0.5),
}


def _isolation(file: ClaimFile) -> Iterator[Figure]:
    for row in table("isolation").rows:
        beside = row["note"].startswith("loading VM holds")
        ranged = next((found for words, found in _SHARES.items() if row["note"].startswith(words)), None)
        declared = float(row["declared_percent"]) / 100 if row["declared_percent"] else None
        if beside and declared is not None:
            declared = 1 - declared  # the table has the share that is left for the tested guest
        share: Level = ranged or (Range() if declared is None else declared)
        low = float(row["q_low_percent"]) / 100 if row["q_low_percent"] else None
        high = float(row["q_high_percent"]) / 100 if row["q_high_percent"] else None
        if low is None and high is None:
            continue
        levels: dict[str, Level] = {
            "benchmark": row["benchmark"],
            "load": row["load"],
            "policy": "limit+reservation",
            "on": "loading" if beside else "tested",
            "share": share,
        }
        facts: dict[str, Level] = {
            "resource": _RESOURCES.get(row["benchmark"], row["benchmark"]),
            "beside": _RESOURCES.get(row["load"], row["load"]),
            "energy_saving": row["energy_saving"] == "on",
        }
        bottom, top = -math.inf if low is None else low, math.inf if high is None else high
        yield Figure("q", levels, exact(bottom, "share", top), facts=facts)
        yield Figure("loss", levels, exact(1 - top, "share", 1 - bottom), facts=facts)
        if low is not None and high is not None:
            for at in [share] if isinstance(share, float) else [step / 20 for step in range(1, 20)]:
                if not isinstance(share, Range) or share.includes(at):
                    left = 1 - at if beside else at
                    ends = round(low * left, 9), round(high * left, 9)
                    yield Figure("relative", {**levels, "share": at}, exact(ends[0], "share", ends[1]), facts=facts)


_PAPERS: Mapping[str, Callable[[ClaimFile], Iterator[Figure]]] = {
    "timing": _timing,
    "bandwidth": _bandwidth,
    "forwarding": lambda file: iter(()),
    "storage": _storage,
    "isolation": _isolation,
}


# -- figures of the text -----------------------------------------------------------------------------


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

"""Databases, operations and levels of durability in words, and rates in a person's units."""

from __future__ import annotations

from virtgauge.analysis.estimate import Estimate
from virtgauge.measures.quantities import significant
from virtgauge.report.words import NONE, amount, exact_duration

LEVELS = ("none", "os", "periodic", "flushed")
"""Of durability, the weakest first."""
LEVEL_WORDS = {
    "none": "lost with the server’s process",
    "os": "in the operating system",
    "periodic": "flushed periodically",
    "flushed": "flushed before each acknowledgement",
    "as-configured": "as the server is configured",
}
SHORT_LEVELS = {
    "none": "none",
    "os": "in the OS",
    "periodic": "periodic",
    "flushed": "flushed",
    "as-configured": "as configured",
}

SINGLE_WRITE, SINGLE_READ, MULTI_WRITE, MULTI_READ = "single-write", "single-read", "multi-write", "multi-read"
PLAIN = (SINGLE_WRITE, SINGLE_READ, MULTI_WRITE, MULTI_READ)
MIXED, KNEE, CRASH = "mixed", "knee", "crash"
OPERATIONS = (*PLAIN, MIXED, KNEE, CRASH)
WRITES = (SINGLE_WRITE, MULTI_WRITE)
OPERATION_WORDS = {
    SINGLE_WRITE: "single writes",
    SINGLE_READ: "single reads",
    MULTI_WRITE: "multiple writes",
    MULTI_READ: "multiple reads",
    MIXED: "mixed load",
    KNEE: "knee",
    CRASH: "kill -9",
}

DATABASES = {
    "postgresql": "PostgreSQL",
    "mongodb": "MongoDB",
    "cassandra": "Cassandra",
    "sqlite": "SQLite",
    "duckdb": "DuckDB",
    "influxdb": "InfluxDB",
    "victoriametrics": "VictoriaMetrics",
    "questdb": "QuestDB",
}
PAPER_LEVELS = {"PostgreSQL": "flushed", "Cassandra": "periodic", "MongoDB": "none"}
"""At which the paper ran each with the defaults of 2012: PostgreSQL 9.1 flushes at each commit, Cassandra 1.0 every ten
seconds, and MongoDB's Java driver 2.7 does not wait for an answer."""


def database_title(name: str) -> str:
    """``PostgreSQL`` for ``postgresql``; a server of the plan's own keeps its name."""
    return DATABASES.get(name, name)


def strength_of(level: str) -> int:
    """Place of a level of durability from the weakest on; levels that are not known stand behind all others."""
    return LEVELS.index(level) if level in LEVELS else len(LEVELS)


def level_words(level: str, flushes: str = "as-is") -> str:
    """``flushed before each acknowledgement, flushes of a 7200 rpm disk``."""
    words = LEVEL_WORDS.get(level, level or "level not known")
    return f"{words}{device_words(flushes)}"


def device_words(flushes: str) -> str:
    """What follows a level: ``, flushes of a 7200 rpm disk``; nothing where it is the disk that is there."""
    return "" if flushes in ("as-is", "as-configured") else f", {flush_words(flushes)}"


def short_device(flushes: str) -> str:
    """The same where there is little room: ``, 7200 rpm``."""
    name, _, value = flushes.partition(":")
    return f", {value} rpm" if name == "rotational" else device_words(flushes)


def flush_words(profile: str) -> str:
    """``flushes of a 7200 rpm disk``."""
    name, _, value = profile.partition(":")
    if name == "rotational":
        return f"flushes of a {value} rpm disk"
    if name == "latency" and value:
        return f"flushes of {exact_duration(float(value) * 1e3)}"
    return {"at-once": "flushes at once", "as-is": "flushes of this disk", "as-configured": "its own flushes"}.get(
        profile, profile
    )


def rate(per_s: float | None) -> str:
    """``14,600/s``; a dash for None."""
    return NONE if per_s is None else f"{short_amount(per_s)}/s"


def short_amount(value: float) -> str:
    """``930``, ``14,600``, ``1.23 M``: three significant digits."""
    return f"{significant(value / 1e6)} M" if value >= 999_500 else amount(value)


def rate_interval(estimate: Estimate) -> str:
    """``14,300–14,900/s``; a dash without an interval."""
    if estimate.low is None or estimate.high is None:
        return NONE
    return f"{short_amount(estimate.low)}–{short_amount(estimate.high)}/s"


def clients_words(number: int) -> str:
    """``1 client``."""
    return f"{number} client{'' if number == 1 else 's'}"


def unit_of(operation: str) -> str:
    """What a rate of an operation counts."""
    return "rows/s" if operation in (MULTI_WRITE, MULTI_READ) else "operations/s"

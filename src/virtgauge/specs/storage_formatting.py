"""Databases, operations and levels of durability in words."""

from __future__ import annotations

from virtgauge.results.formatting import exact_duration

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
SINGLE, MULTI, WRITES = (SINGLE_WRITE, SINGLE_READ), (MULTI_WRITE, MULTI_READ), (SINGLE_WRITE, MULTI_WRITE)
PLAIN = (SINGLE_WRITE, SINGLE_READ, MULTI_WRITE, MULTI_READ)
CLOSED = ("closed",)
USUAL = {"operation": PLAIN, "loop": CLOSED, "index": ("yes",), "write_mode": ("default",)}
"""Cells of the paper's kind: each client waits for its answer, with an index, written in the database's usual way."""
OPERATION_WORDS = {
    SINGLE_WRITE: "single writes",
    SINGLE_READ: "single reads",
    MULTI_WRITE: "multiple writes",
    MULTI_READ: "multiple reads",
    "mixed": "mixed load",
    "knee": "knee",
    "crash": "kill -9",
}
DATABASES = {
    "postgresql": "PostgreSQL",
    "mariadb": "MariaDB",
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


def strength_of(level: str) -> int:
    """Place of a level of durability from the weakest on; levels that are not known stand behind all others."""
    return LEVELS.index(level) if level in LEVELS else len(LEVELS)


def clients_words(number: int) -> str:
    """``1 client``."""
    return f"{number} client{'' if number == 1 else 's'}"


def flush_words(profile: str) -> str:
    """``flushes of a 7200 rpm disk``; empty of the disk that is there."""
    name, _, value = profile.partition(":")
    if name == "rotational":
        return f"flushes of a {value} rpm disk"
    if name == "latency" and value:
        return f"flushes of {exact_duration(float(value) * 1e3)}"
    return {"at-once": "flushes at once", "as-is": "", "as-configured": ""}.get(profile, profile)


def level_words(level: str, flushes: str) -> str:
    """``flushed before each acknowledgement, flushes of a 7200 rpm disk``."""
    return ", ".join(filter(None, (LEVEL_WORDS.get(level, level or "level not known"), flush_words(flushes))))

"""What the storage suite varies, in words: databases, levels of durability, operations, and devices."""

from __future__ import annotations

from virtgauge.results.formatting import count, exact_duration
from virtgauge.specs.model import Factor

LEVELS = ("none", "os", "periodic", "flushed")  # Of durability, the weakest first
AS_CONFIGURED = "as-configured"
"""Level and flush profile of a server that is there already: nothing here decides about them."""
LEVEL_WORDS = {
    "none": "lost with the server’s process",
    "os": "in the operating system",
    "periodic": "flushed periodically",
    "flushed": "flushed before each acknowledgement",
    AS_CONFIGURED: "as the server is configured",
}
SHORT_LEVELS = {
    "none": "none",
    "os": "in the OS",
    "periodic": "periodic",
    "flushed": "flushed",
    AS_CONFIGURED: "as configured",
}
SINGLE_WRITE, SINGLE_READ, MULTI_WRITE, MULTI_READ = "single-write", "single-read", "multi-write", "multi-read"
SINGLE, MULTI, WRITES = (SINGLE_WRITE, SINGLE_READ), (MULTI_WRITE, MULTI_READ), (SINGLE_WRITE, MULTI_WRITE)
PAPERS = (SINGLE_WRITE, SINGLE_READ, MULTI_WRITE, MULTI_READ)
QUERIES = ("last-value", "window")  # What the database finds out itself, of what reads would bring
PLAIN = (*PAPERS, *QUERIES)
CLOSED = ("closed",)
USUAL = {"operation": PLAIN, "loop": CLOSED, "index": ("yes",), "write_mode": ("default",), "late": ("",)}
"""Cells of the paper's kind: each client waits for its answer, with an index, written in the database's usual way."""
OPERATION_TEXTS = {
    SINGLE_WRITE: "single writes",
    SINGLE_READ: "single reads",
    MULTI_WRITE: "multiple writes",
    MULTI_READ: "multiple reads",
    "last-value": "last values",
    "window": "windows",
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


def flush_text(profile: str) -> str:
    """``flushes of a 7200 rpm disk without seeks``; empty of the disk that is there."""
    name, _, value = profile.partition(":")
    if name == "rotational":
        return f"flushes of a {value} rpm disk without seeks"
    if name == "rotational-seek":
        rpm, _, seek_us = value.partition(":")
        return f"flushes of a {rpm} rpm disk with seeks of {exact_duration(float(seek_us) * 1e3)}"
    if name == "latency" and value:
        return f"flushes of {exact_duration(float(value) * 1e3)}"
    return {"at-once": "flushes at once", "as-is": "", AS_CONFIGURED: ""}.get(profile, profile)


def log_text(place: str) -> str:
    """``commit log on a disk of its own``; empty of one that is on the data's."""
    return "commit log on a disk of its own" if place == "separate" else ""


def late_text(level: str) -> str:
    """``5 % late by 2000 readings in runs of 600``; empty where none is late."""
    part, by, *run = level.split(":") if level else ("", "")
    runs = f" in runs of {run[0]}" if run else ""
    return f"{100 * float(part):g} % late by {by} readings{runs}" if level else ""


FACTORS = (
    Factor("database", text=lambda level: DATABASES.get(level, level)),
    Factor("durability", "level", tuple(reversed(LEVELS)), text=lambda level: SHORT_LEVELS.get(level, level)),
    Factor("flushes", "flush profile", usual="as-is", text=flush_text),
    Factor(
        *("operation", "", (*PLAIN, "mixed", "knee", "crash")),
        text=lambda level: OPERATION_TEXTS.get(level, level),
        of=lambda cell: cell.factors.get("operation", cell.probe),
    ),
    Factor(
        "of",
        text=lambda level: OPERATION_TEXTS.get(level, level),
        of=lambda cell: cell.factors.get("of") or cell.factors.get("crash") or "",
    ),
    Factor("clients", text=lambda level: count(int(level or 1), "client")),
    Factor("values", usual="1", text=lambda level: f"{level} values" if level != "1" else ""),
    Factor("index", "index", ("yes", "no"), "yes", lambda level: "with index" if level == "yes" else "without index"),
    Factor(
        *("loop", "", (), "closed"),
        lambda level: f"{float(level.partition(':')[2]):,.0f}/s offered" if level.startswith("open:") else "",
    ),
    Factor("write_mode", "written by", usual="default"),
    Factor("late", "late readings", text=late_text),
    Factor("commit_log", "commit log", ("same", "separate"), "same", log_text),
)

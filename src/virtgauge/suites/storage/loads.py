"""What a cell asks of the load generator: data, rows that are there before, streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from virtgauge.suites.storage.client import Stream
from virtgauge.suites.storage.settings import READS, StorageSettings

_STEP_MS = 1000


def data_of(settings: StorageSettings) -> dict[str, Any]:
    """The deterministic readings of a design."""
    return {"seed": settings.seed, "sensors": settings.sensors, "step_ms": _STEP_MS}


def values_of(settings: StorageSettings, operation: str) -> int:
    """Readings in a statement."""
    return 1 if operation.startswith("single-") else settings.values


def preload_of(settings: StorageSettings, params: Mapping[str, Any]) -> int:
    """Readings of every sensor that are there before; writes begin with an empty table."""
    operation = params["of"] or params["operation"]
    return settings.preload if operation in (*READS, "mixed") else 0


def streams_of(settings: StorageSettings, params: Mapping[str, Any]) -> list[Stream]:
    """The loads of a cell of plain operations, or of the mixed one."""
    if params["operation"] == "mixed":
        return _mixed(settings, params["clients"])
    return [stream_of(settings, params, params["operation"], loop_of(params["loop"]))]


def stream_of(settings: StorageSettings, params: Mapping[str, Any], operation: str, loop: Mapping[str, Any]) -> Stream:
    """One operation by the cell's clients."""
    return Stream(
        operation=operation.partition("-")[2],
        values=values_of(settings, operation),
        clients=params["clients"],
        loop=loop,
        pipeline=settings.pipeline if params["write_mode"] == "pipelined" else 1,
        preload=preload_of(settings, params),
    )


def open_loop(rate_per_s: float) -> dict[str, Any]:
    """So many operations a second, independent of one another."""
    return {"kind": "open", "rate_per_s": rate_per_s, "arrivals": "poisson"}


def loop_of(text: str) -> dict[str, Any]:
    """A loop of the plan as a specification has it."""
    kind, _, rate = text.partition(":")
    return open_loop(float(rate)) if kind == "open" else {"kind": "closed"}


def _mixed(settings: StorageSettings, writers: int) -> list[Stream]:
    mixed, preload = settings.mixed, settings.preload
    steady = {"kind": "open", "rate_per_s": mixed.writes_per_s, "arrivals": mixed.arrivals}
    bursts = {"kind": "burst", "every_ms": mixed.burst_every_ms, "size": mixed.burst_reads}
    return [
        Stream("write", 1, writers, steady, preload=preload),
        Stream("read", settings.values, mixed.readers, bursts, preload=preload),
    ]

"""What explains a measured rate, from what was counted beside it, in words."""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Mapping
from typing import Any

from virtgauge.analysis.storage.limits import (
    CLIENT_NEAR,
    Explanation,
    Limit,
    Load,
    explain,
    flush_limit_per_s,
    round_trip_parts,
)
from virtgauge.ledger.records import TrialRecord
from virtgauge.measures.quantities import significant
from virtgauge.report.storage.model import Key
from virtgauge.report.storage.results import settings_of
from virtgauge.report.storage.vocabulary import PLAIN, flush_words, rate
from virtgauge.report.words import duration, share

_UNACKNOWLEDGED = re.compile(r"\bw ?:? ?0\b|unacknowledged")
_SERVES_SEVERAL = 1.5
"""Operations that a flush serves, from which on it is called a group commit."""


@dataclasses.dataclass(frozen=True)
class Reasoned:
    """An explanation, what it was reckoned from, and its words."""

    load: Load
    explanation: Explanation
    words: tuple[str, ...]


def explained(
    key: Key, counted: Mapping[int, TrialRecord], facts: Mapping[str, Any], service_ns: Mapping[int, float]
) -> Reasoned | None:
    """What explains the rate of a cell on one arm; None where nothing was measured, or nothing of that kind.

    Args:
        key: of the cell.
        counted: valid results, by block.
        facts: of the arm's guest.
        service_ns: mean, by block.
    """

    def middle(field: str) -> float | None:
        found = [trial.result.get(field) for trial in counted.values()]
        numbers = [float(value) for value in found if isinstance(value, int | float)]
        return statistics.median(numbers) if numbers else None

    per_s = middle("operations_per_s")
    if key.operation not in PLAIN or not key.closed or per_s is None:
        return None
    load = Load(
        operations_per_s=per_s,
        clients=key.clients,
        acknowledged=not (key.writes and fire_and_forget(settings_of(counted))),
        flushes_per_operation=middle("flushes_per_operation") if key.writes else None,
        flush_limit_per_s=flush_limit_per_s(key.flushes, middle("disk_before_per_s")),
        client_limit_per_s=middle("client_limit_per_s"),
        server_cpu_ns=middle("server_cpu_ns_per_operation"),
        client_cpu_ns=middle("client_cpu_ns_per_operation"),
        server_cpus=middle("server_cpus") or (facts.get("cpu") or {}).get("count"),
        service_ns=statistics.median(service_ns.values()) if service_ns else None,
    )
    explanation = explain(load)
    return Reasoned(load, explanation, tuple(_words(key, load, explanation)))


def fire_and_forget(settings: Mapping[str, str]) -> bool:
    """Whether these settings let a client go on without any answer."""
    return any(_UNACKNOWLEDGED.search(value.lower()) for value in settings.values())


def _words(key: Key, load: Load, found: Explanation) -> list[str]:
    said = []
    flushes = found.shares.get("flushes")
    per_s = (load.flushes_per_operation or 0.0) * load.operations_per_s
    match found.limit:
        case Limit.SENDING:
            said.append("Nobody waits for an answer: the rate is of sending, not of storing")
        case Limit.FLUSHES:
            said.append(f"{rate(per_s)} flushes of {rate(load.flush_limit_per_s)} that {_device(key)} completes")
        case Limit.CLIENT:
            said.append(
                f"{share(found.shares['client'])} of what this client reaches against a server that stores nothing "
                f"({rate(load.client_limit_per_s)}): the client’s own limit is near"
            )
        case Limit.SERVER_CPU:
            said.append(f"the server’s CPU time ({duration(load.server_cpu_ns)} an operation) fills what it may use")
        case Limit.ROUND_TRIP:
            said.append(f"one client waits {duration(load.service_ns)} for each answer: {_parts(load)}")
        case Limit.NONE_FOUND:
            busy = ", ".join(f"{name} {share(used)}" for name, used in found.shares.items())
            said.append(f"nothing that was counted is at its limit{f' ({busy})' if busy else ''}")
    if found.limit is not Limit.CLIENT and found.shares.get("client", 0) >= CLIENT_NEAR:
        said.append(f"also {share(found.shares['client'])} of the client’s own limit")
    if key.writes and found.operations_per_flush:
        said.append(_group(found.operations_per_flush, key))
    elif key.writes and load.flushes_per_operation == 0:
        said.append("no flush was counted")
    if found.limit is not Limit.FLUSHES and flushes is not None and flushes >= 0.01:
        said.append(f"flushes use {share(flushes)} of what {_device(key)} completes")
    return [f"{sentence[0].upper()}{sentence[1:]}." for sentence in said]


def _group(per_flush: float, key: Key) -> str:
    what = "statements" if key.many_values else "writes"
    if per_flush >= _SERVES_SEVERAL:
        how = "group commit" if key.clients > 1 and key.durability == "flushed" else "flushed later, together"
        return f"{significant(per_flush)} {what} to a flush ({how})"
    return f"{significant(1 / per_flush)} flushes to a {what[:-1]}"


def _device(key: Key) -> str:
    return "the disk" if key.flushes == "as-is" else f"a device with {flush_words(key.flushes)}"


def _parts(load: Load) -> str:
    words = {
        "flush": "flushing",
        "server CPU": "the server’s CPU",
        "client CPU": "the client’s CPU",
        "rest": "network, waking up and locks",
    }
    parts = sorted(round_trip_parts(load).items(), key=lambda part: -part[1])
    return ", ".join(f"{words[name]} {share(used)}" for name, used in parts)

"""Writing a thousand readings in one statement: each database's ways of doing it, in turns."""

from __future__ import annotations

import argparse

from benchmark import BenchmarkError, Outcome, main, progress, spread
from storage_server import Rate, measured, serving

from virtgauge.suites.storage.databases.base import Durability

_WAYS: dict[str, dict[str, tuple[dict[str, str], int]]] = {
    "postgresql": {
        "COPY, binary": ({"write_mode": "copy"}, 1),
        "INSERT of arrays (unnest)": ({"write_mode": "unnest"}, 1),
        "one concatenated INSERT": ({"write_mode": "values"}, 1),
    },
    "mongodb": {"insert of many": ({}, 1), "insert of many, 4 under way": ({}, 4)},
    "cassandra": {"unlogged batch": ({}, 1), "unlogged batch, 4 under way": ({}, 4)},
    "sqlite": {"prepared, one transaction": ({}, 1)},
    "duckdb": {"appender": ({}, 1)},
}
"""Options of sensorstore's driver, and statements under way at once."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--repeats", type=int, default=5, help="of each, in turns")
    parser.add_argument("--databases", nargs="+", choices=list(_WAYS), default=list(_WAYS))


def measure(arguments: argparse.Namespace) -> Outcome:
    seconds, repeats = (0.5, 1) if arguments.quick else (arguments.seconds, arguments.repeats)
    rows, values, labels, missing = [], {}, [], []
    for name in arguments.databases:
        try:
            with serving(name, Durability.FLUSHED) as server:
                labels.append(server.label)
                found: dict[str, list[Rate]] = {way: [] for way in _WAYS[name]}
                for repeat in range(repeats):
                    for way, (settings, pipeline) in _WAYS[name].items():
                        store = {**server.store, "options": {**server.store.get("options", {}), **settings}}
                        rate = measured(
                            store, operation="write", values=1000, clients=1, seconds=seconds, pipeline=pipeline
                        )
                        found[way].append(rate)
                    progress(f"{name}: {repeat + 1}/{repeats}")
                for way, rates in found.items():
                    values[f"{name}: {way}"] = [vars(rate) for rate in rates]
                    rows.append([server.database.title, way, *_columns(rates)])
        except BenchmarkError as error:
            missing.append(f"{name} is missing: {error}")
    return Outcome(
        columns=("database", "way", "readings/s", "client CPU, ns/reading"),
        rows=rows,
        meaning="One client, a thousand readings of one sensor in a statement, flushed before each acknowledgement.",
        peers={"servers": ", ".join(labels)},
        notes=[f"{seconds:g} s each, {repeats} times in turns, each on an empty table with its index.", *missing],
        values=values,
    )


def _columns(rates: list[Rate]) -> list[str]:
    return [spread([rate.per_s * 1000 for rate in rates]), spread([rate.cpu_us for rate in rates])]


if __name__ == "__main__":
    main(measure, __doc__ or "", options)

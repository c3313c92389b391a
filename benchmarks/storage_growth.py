"""How the cost of an operation grows with what is stored: from a hundred thousand readings to ten million."""

from __future__ import annotations

import argparse

from benchmark import BenchmarkError, Outcome, figure, main, progress
from storage_server import client, measured, serving

from virtgauge.suites.storage.databases.base import Durability

_SENSORS = 100
_DATABASES = ("sqlite", "duckdb", "postgresql", "mongodb")
_OPERATIONS = {
    "single write": ("write", 1),
    "single read": ("read", 1),
    "1000-row write": ("write", 1000),
    "1000-row read": ("read", 1000),
}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--rows", type=int, nargs="+", default=[10**5, 10**6, 10**7], help="stored before")
    parser.add_argument("--databases", nargs="+", choices=_DATABASES, default=list(_DATABASES))


def measure(arguments: argparse.Namespace) -> Outcome:
    seconds = 0.5 if arguments.quick else arguments.seconds
    sizes = arguments.rows[:1] if arguments.quick else arguments.rows
    rows, values, labels, missing = [], {}, [], []
    for name in arguments.databases:
        try:
            # In the operating system where there is such a level: a disk's flushes would hide what is looked for.
            with serving(name, _level(name)) as server:
                labels.append(server.label)
                for size in sizes:
                    data = {"seed": 1, "sensors": _SENSORS, "step_ms": 1000}
                    preload = size // _SENSORS
                    prepared = {"index": True, "drop": True, "data": data, "preload": preload}
                    took = client("prepare", {"store": server.store, **prepared})["elapsed_ns"] * 1e-9
                    progress(f"{name}: {size} readings in {took:.1f} s")
                    microseconds = []
                    # Reads first, so that they find what was loaded and nothing else.
                    for label in sorted(_OPERATIONS, key=lambda label: _OPERATIONS[label][0]):
                        operation, count = _OPERATIONS[label]
                        rate = measured(
                            server.store,
                            operation=operation,
                            values=count,
                            clients=1,
                            seconds=seconds,
                            preload=preload if operation == "read" or count == 1 else preload + 10**7,
                            sensors=_SENSORS,
                            prepare=False,
                        )
                        microseconds.append((label, 1e6 / rate.per_s))
                    times = dict(microseconds)
                    values[f"{name}, {size}"] = times | {"loading_s": took}
                    cells = [figure(times[label]) for label in _OPERATIONS]
                    rows.append([server.database.title, f"10^{len(str(size)) - 1}", *cells, figure(size / took)])
        except BenchmarkError as error:
            missing.append(f"{name} is missing, or ended early: {error}")
    return Outcome(
        columns=("database", "stored", *(f"{label}, µs" for label in _OPERATIONS), "loading, readings/s"),
        rows=rows,
        meaning="Time of one operation by one client, by how many readings are stored; loading builds the index too.",
        peers={"servers": ", ".join(labels)},
        notes=[
            f"{_SENSORS} sensors, {seconds:g} s each, once; acknowledged by the operating system where the database "
            "has that level (DuckDB has, by leaving its flushes out), else flushed every 100 ms.",
            *missing,
        ],
        values=values,
    )


def _level(name: str) -> Durability:
    return Durability.PERIODIC if name == "mongodb" else Durability.OS


if __name__ == "__main__":
    main(measure, __doc__ or "", options)

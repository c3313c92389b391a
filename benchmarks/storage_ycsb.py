"""Operations per second and client CPU for each on MongoDB and Cassandra: our client beside go-ycsb, in turns."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmark import Outcome, main
from go_ycsb import VERSION, driven, find_go_ycsb
from storage_server import Rate, Serving, compared, compared_columns, in_turns, measured, serving

from virtgauge.suites.storage.databases.base import Durability

_LEVELS = {
    "mongodb": (Durability.PERIODIC, Durability.FLUSHED),
    "cassandra": (Durability.PERIODIC, Durability.FLUSHED),
}
_RECORDS = 100_000


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--repeats", type=int, default=5, help="of each, ours and go-ycsb's in turns")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8], help="connections")
    parser.add_argument("--databases", nargs="+", choices=list(_LEVELS), default=list(_LEVELS))


def measure(arguments: argparse.Namespace) -> Outcome:
    program = find_go_ycsb()
    seconds, repeats = (1.0, 1) if arguments.quick else (arguments.seconds, arguments.repeats)
    rows, values, labels = [], {}, []
    for name in arguments.databases:
        for durability in _LEVELS[name]:
            with serving(name, durability) as server:
                labels.append(server.label)
                measured(server.store, operation="write", values=1, clients=1, seconds=0.1)  # makes the keyspace
                # Reads do not depend on durability.
                for operation in ("read", "write") if durability is _LEVELS[name][0] else ("write",):
                    for clients in arguments.clients:
                        ours, theirs = _in_turns(program, server, operation, clients, seconds, repeats)
                        plural = "s" if clients > 1 else ""
                        what = f"{server.database.title}, {operation}, {clients} client{plural}, {server.level}"
                        values[what] = {"ours": [vars(one) for one in ours], "ycsb": [vars(one) for one in theirs]}
                        rows.append(compared(what, ours, theirs))
    return Outcome(
        columns=compared_columns("go-ycsb"),
        rows=rows,
        meaning="One row in a statement, in a closed loop; CPU time is the client's own, user and system.",
        peers={"go-ycsb": VERSION, "servers": ", ".join(dict.fromkeys(labels))},
        notes=[
            f"{seconds:g} s each, {repeats} times in turns; the same server and durability, TCP on loopback, about "
            f"{_RECORDS} rows for reads.",
            "go-ycsb's rows have a text key and one field of eight characters; ours a sensor, a timestamp and a value. "
            "Its CPU time includes its start and its report.",
            "Our client checks every answer's count, order and values; go-ycsb does not look at what it gets.",
        ],
        values=values,
    )


def _in_turns(
    program: Path, server: Serving, operation: str, clients: int, seconds: float, repeats: int
) -> tuple[list[Rate], list[Rate]]:
    preload = _RECORDS // 16 if operation == "read" else 0
    return in_turns(
        lambda: measured(
            server.store, operation=operation, values=1, clients=clients, seconds=seconds, preload=preload
        ),
        lambda: driven(program, server, operation, clients, seconds, _RECORDS),
        repeats,
        f"{server.database.name}, {operation}, {clients}",
    )


if __name__ == "__main__":
    main(measure, __doc__ or "", options)

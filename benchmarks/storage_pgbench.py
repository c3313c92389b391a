"""Operations per second and client CPU for each on PostgreSQL: our client beside pgbench, same server, in turns."""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
import uuid
from pathlib import Path

from benchmark import BenchmarkError, Outcome, main, said
from storage_server import Rate, Serving, client, compared, compared_columns, cpu_of, in_turns, measured, serving

from virtgauge.provision.packages import find_postgresql
from virtgauge.suites.storage.databases.base import Durability

_PRELOAD = 100_000

_SCRIPTS = {
    "read": """\\set ts {first} + 1000 * random(0, {last})
SELECT ts, value FROM virtgauge_readings WHERE sensor = '{sensor}' AND ts = :ts;
""",
    "write": """\\set ts random(1, 1000000000000)
\\set value random(1, 1000000)
INSERT INTO virtgauge_readings (sensor, ts, value) VALUES ('{sensor}', :ts, :value);
""",
}
"""The same statements on the same table as sensorstore's, prepared once by either client."""


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--repeats", type=int, default=5, help="of each, ours and pgbench's in turns")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8], help="connections")


def measure(arguments: argparse.Namespace) -> Outcome:
    folder = find_postgresql()
    pgbench = shutil.which("pgbench") or (str(folder / "pgbench") if folder else None)
    if pgbench is None or not Path(pgbench).exists():
        raise BenchmarkError("pgbench is not installed (apt-get install postgresql-contrib or postgresql)")
    seconds, repeats = (1.0, 1) if arguments.quick else (arguments.seconds, arguments.repeats)
    rows, values = [], {}
    for durability, operations in ((Durability.OS, ("read", "write")), (Durability.FLUSHED, ("write",))):
        with serving("postgresql", durability) as server:
            label, level = server.label, server.level
            for operation in operations:
                for clients in arguments.clients:
                    ours, theirs = _in_turns(server, pgbench, operation, clients, seconds, repeats)
                    name = f"single {operation}, {clients} client{'s' if clients > 1 else ''}, {level}"
                    values[name] = {"ours": [vars(one) for one in ours], "pgbench": [vars(one) for one in theirs]}
                    rows.append(compared(name, ours, theirs))
    return Outcome(
        columns=compared_columns("pgbench"),
        rows=rows,
        meaning="Statements of one reading each, in a closed loop; CPU time is the client's own, user and system.",
        peers={"pgbench": said(pgbench, "--version") or "unknown", "server": label},
        notes=[
            f"{seconds:g} s each, {repeats} times in turns; prepared statements, TCP on loopback, the same table with "
            "the same index. pgbench runs a thread for every client up to the number of processors.",
            "Our client checks every answer's count, order and values; pgbench does not look at what it gets.",
            "Reads are of one sensor: pgbench's variables are numbers, and cannot choose among identifiers. Its writes "
            "are of one sensor too; ours of one for each client.",
        ],
        values=values,
    )


def _in_turns(
    server: Serving, pgbench: str, operation: str, clients: int, seconds: float, repeats: int
) -> tuple[list[Rate], list[Rate]]:
    # One sensor for reads, because pgbench's variables are numbers and cannot choose among identifiers.
    sensors, preload = (1, _PRELOAD) if operation == "read" else (clients, 0)
    data = {"seed": 1, "sensors": sensors, "step_ms": 1000}

    def ours() -> Rate:
        return measured(
            server.store,
            operation=operation,
            sensors=sensors,
            values=1,
            clients=clients,
            seconds=seconds,
            preload=preload,
        )

    def theirs() -> Rate:
        prepared = {"index": True, "drop": True, "data": data, "preload": preload}
        client("prepare", {"store": server.store, **prepared})
        return _pgbench(server, pgbench, operation, clients, seconds)

    return in_turns(ours, theirs, repeats, f"{operation}, {clients} clients")


_FIRST = "SELECT sensor, min(ts) FROM virtgauge_readings GROUP BY sensor"


def _pgbench(server: Serving, pgbench: str, operation: str, clients: int, seconds: float) -> Rate:
    """One run of pgbench with a script of the same statements."""
    layout = server.layout
    connection = ["-h", layout.address, "-p", str(layout.port), "-U", "virtgauge"]
    environment = {"PGPASSWORD": layout.password}
    psql = shutil.which("psql")
    if psql is None:
        raise BenchmarkError("psql is not installed")
    found = cpu_of([psql, *connection, "-AtF,", "-c", _FIRST, "postgres"], environment)[0].strip()
    sensor, _, first = found.partition(",")
    text = _SCRIPTS[operation].format(sensor=sensor or str(uuid.uuid4()), first=first, last=_PRELOAD - 1)
    with tempfile.TemporaryDirectory(prefix="virtgauge-benchmark-") as folder:
        script = Path(folder) / "script.sql"
        script.write_text(text)
        argv = [pgbench, *connection, "-n", "-M", "prepared", "-f", str(script), "-T", str(max(1, round(seconds)))]
        argv += ["-c", str(clients), "-j", str(min(clients, 2)), "postgres"]
        printed, cpu_s = cpu_of(argv, environment)
    rate = re.search(r"tps = ([0-9.]+)", printed)
    done = re.search(r"transactions actually processed: (\d+)", printed)
    failed = re.search(r"number of failed transactions: (\d+)", printed)
    if rate is None or done is None or (failed is not None and int(failed[1]) > 0):
        raise BenchmarkError(f"pgbench failed: {printed[-300:]}")
    return Rate(float(rate[1]), cpu_s * 1e6 / int(done[1]))


if __name__ == "__main__":
    main(measure, __doc__ or "", options)

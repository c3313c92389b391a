"""go-ycsb, a peer of the storage benchmarks: built from its published module, with the databases that are compared."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmark import BenchmarkError, progress
from storage_server import Rate, Serving, cpu_of

from virtgauge.folders import cache_root

VERSION = "v1.0.1"
_MODULE = "github.com/pingcap/go-ycsb"
_DATABASES = ("basic", "cassandra", "mongodb", "pg")
_BUILD_S = 900
_runs = itertools.count()
_TRIAL = 100
"""Operations of each client in a short run."""


def find_go_ycsb() -> Path:
    """The program, built when it is not in the cache yet.

    Go checks the module against its checksum database.  The drivers that are not compared are left out of the build,
    because some need libraries of their own; nothing else of its source is changed.

    Raises:
        BenchmarkError: there is no Go, or it cannot be built.
    """
    program = cache_root() / "benchmarks" / f"go-ycsb-{VERSION}"
    if program.is_file():
        return program
    go = shutil.which("go")
    if go is None:
        raise BenchmarkError("go-ycsb is built by Go, which is not on PATH")
    progress(f"building go-ycsb {VERSION}")
    with tempfile.TemporaryDirectory(prefix="virtgauge-benchmark-") as folder:
        source = Path(folder) / "go-ycsb"
        found = json.loads(_done([go, "mod", "download", "-json", f"{_MODULE}@{VERSION}"], Path(folder)))
        shutil.copytree(found["Dir"], source, copy_function=shutil.copyfile)
        source.chmod(0o755)
        main = source / "cmd" / "go-ycsb" / "main.go"
        main.parent.chmod(0o755)
        text = main.read_text()
        for name in re.findall(rf'_ "{_MODULE}/db/(\w+)"', text):
            if name not in _DATABASES:
                text = text.replace(f'_ "{_MODULE}/db/{name}"', "")
        main.write_text(text)
        built = Path(folder) / "built"
        _done([go, "build", "-o", str(built), "./cmd/go-ycsb"], source)
        program.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(built, partial := program.with_suffix(".partial"))
        partial.replace(program)
    return program


def _done(argv: list[str], folder: Path) -> str:
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=_BUILD_S, check=False)
    if done.returncode != 0:
        raise BenchmarkError(f"{' '.join(argv[1:3])}: {done.stderr[-400:]}")
    return done.stdout


def driven(program: Path, server: Serving, operation: str, clients: int, seconds: float, records: int) -> Rate:
    """Rows with one field of eight bytes, written or read by their key, one in a statement.

    Raises:
        BenchmarkError: it failed, or had errors.
    """
    name, settings = _connection(server)
    workload = {
        "workload": "core",
        "recordcount": records,
        "fieldcount": 1,
        "fieldlength": 8,
        "threadcount": clients,
        "requestdistribution": "uniform",
        "dropdata": "true",
        "debug.pprof": "127.0.0.1:0",
    }
    if operation == "read":
        _run(program, "load", name, {**workload, **settings, "threadcount": 8})
        workload |= {"dropdata": "false", "readproportion": 1, "updateproportion": 0}
    else:
        workload |= {"recordcount": 1, "readproportion": 0, "updateproportion": 0, "insertproportion": 1}
    # It knows a number of operations only, and no time: a short run tells how many fill it.
    trial = _rate(*_run(program, "run", name, {**workload, **settings, "operationcount": _TRIAL * clients}), operation)
    workload["operationcount"] = max(_TRIAL * clients, round(trial.per_s * seconds))
    return _rate(*_run(program, "run", name, {**workload, **settings}), operation)


def _run(program: Path, command: str, name: str, settings: dict[str, object]) -> tuple[str, float]:
    if settings.get("insertproportion"):
        settings = {**settings, "keyprefix": f"run{next(_runs)}-"}  # it starts anew at the same keys
    words = [word for key, value in settings.items() for word in ("-p", f"{key}={value}")]
    return cpu_of([str(program), command, name, *words])


def _rate(printed: str, cpu_s: float, operation: str) -> Rate:
    if "_ERROR" in printed:
        raise BenchmarkError(f"go-ycsb had errors: {printed[-300:]}")
    kind = "READ" if operation == "read" else "INSERT"
    lines = re.findall(rf"^{kind} +- Takes\(s\): [0-9.]+, Count: (\d+), OPS: ([0-9.]+)", printed, re.MULTILINE)
    if not lines:
        raise BenchmarkError(f"go-ycsb says nothing of its {kind}s: {printed[-300:]}")
    count, per_s = int(lines[-1][0]), float(lines[-1][1])
    return Rate(per_s, cpu_s * 1e6 / count)


def _connection(server: Serving) -> tuple[str, dict[str, object]]:
    """The database as go-ycsb calls it, and how it gets there; durability is the server's, or in the address."""
    store, layout = server.store, server.layout
    match server.database.name:
        case "mongodb":
            concern = {"w1": "w=1&journal=false", "j": "w=1&journal=true"}[store["options"]["write_concern"]]
            return "mongodb", {"mongodb.url": f"{store['uri']}&{concern}"}
        case "cassandra":
            address = f"{layout.address}:{layout.port}"
            return "cassandra", {
                "cassandra.cluster": address,
                "cassandra.keyspace": store["database"],
                "cassandra.username": store.get("user") or "",
                "cassandra.password": store.get("password") or "",
            }
        case name:
            raise BenchmarkError(f"go-ycsb is not compared on {name}")

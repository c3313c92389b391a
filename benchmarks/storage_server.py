"""A database server for the storage benchmarks, set up as in a run but on loopback, and our client to it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import resource
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmark import BenchmarkError, progress, ratios, spread

from virtgauge.host.mounts import make_disk_image, mount_disk_image, unmount_disk_image
from virtgauge.host.scope import Scope
from virtgauge.suites.storage.client import find_sensorstore
from virtgauge.suites.storage.databases import account, database
from virtgauge.suites.storage.databases.base import Database, Durability, Found, Instance, Missing, Profile

ADDRESS = "127.0.0.1"
_STOP_S = 30.0
_DISK_MIB = 6144


@dataclasses.dataclass(frozen=True)
class Serving:
    """A database that answers.

    Attributes:
        database: its description.
        label: with its version.
        layout: address, port and password among others.
        store: as sensorstore's specifications have it.
        level: of durability, in the database's own words.
    """

    database: Database
    label: str
    layout: Instance
    store: dict[str, Any]
    level: str


@contextlib.contextmanager
def serving(name: str, durability: Durability) -> Iterator[Serving]:
    """Start a database with one of its profiles on an empty folder of a real disk; nothing of it is left at the end.

    Raises:
        BenchmarkError: it is missing, has no such level, or does not serve.
    """
    product = database(name)
    found = product.find()
    if isinstance(found, Missing):
        raise BenchmarkError(f"{product.title}: {found.reason} ({found.fix})")
    profile = product.levels()[durability]
    if isinstance(profile, str):
        raise BenchmarkError(f"{product.title} cannot be {durability}: {profile}")
    with Scope() as scope, contextlib.ExitStack() as removal:
        layout = _instance(product, found, profile, scope, removal)
        store = product.store(layout)
        if product.embedded:
            layout.data.mkdir()
        else:
            server = product.server(layout)
            server.write(layout.account)
            environment = {**os.environ, **server.env}
            for argv in server.setup:
                _set_up(argv, environment)
            with (log_file := layout.config / "log").open("wb") as log:
                process = subprocess.Popen(
                    server.argv,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            removal.callback(_stop, process)
            _wait(store, process, server.ready_timeout_s, log_file)
        yield Serving(product, product.label(found), layout, store, profile.name)


def _instance(
    product: Database, found: Found, profile: Profile, scope: Scope, removal: contextlib.ExitStack
) -> Instance:
    """A data disk of its own, as in a run, and a folder for the configuration."""
    config, data = scope.folder / "config", scope.folder / "data"
    config.mkdir(mode=0o755)
    image = scope.scratch_folder("server") / "disk"
    make_disk_image(image, _DISK_MIB)
    mount_disk_image(image, data)
    removal.callback(unmount_disk_image, data)
    with socket.socket() as probe:
        probe.bind((ADDRESS, 0))
        port = int(probe.getsockname()[1])
    return Instance(
        found=found,
        profile=profile,
        config=config,
        data=data / product.name,
        address=ADDRESS,
        port=port,
        password=secrets.token_hex(16),
        account=account(),
    )


def _set_up(argv: Sequence[str], environment: dict[str, str]) -> None:
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchmarkError(f"{argv[0]}: {(done.stderr or done.stdout)[-400:]}")


def _wait(store: dict[str, Any], process: subprocess.Popen[bytes], within_s: float, log: Path) -> None:
    deadline = time.monotonic() + 3 * within_s
    while True:
        try:
            client("about", {"store": store})
            return
        except BenchmarkError as error:
            if process.poll() is not None or time.monotonic() > deadline:
                raise BenchmarkError(f"the server does not serve: {error}\n{log.read_text()[-2000:]}") from error
        time.sleep(0.2)


def _stop(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)  # sessions are closed: PostgreSQL would wait for them
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def client(command: str, specification: dict[str, Any]) -> dict[str, Any]:
    """One command of sensorstore.

    Raises:
        BenchmarkError: it failed; with what it said.
    """
    done = subprocess.run(
        [find_sensorstore(), command, json.dumps(specification)], capture_output=True, text=True, check=False
    )
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise BenchmarkError(f"sensorstore {command}: {done.stderr.strip()[-300:] or done.returncode}") from None
    if "error" in answer:
        raise BenchmarkError(f"sensorstore {command}: {answer['error']['message']}")
    return answer


@dataclasses.dataclass(frozen=True)
class Rate:
    """What a client achieved.

    Attributes:
        per_s: operations a second.
        cpu_us: CPU time of the client for each.
    """

    per_s: float
    cpu_us: float


def measured(
    store: dict[str, Any],
    *,
    operation: str,
    values: int,
    clients: int,
    seconds: float,
    preload: int = 0,
    sensors: int = 16,
    index: bool = True,
    pipeline: int = 1,
    prepare: bool = True,
) -> Rate:
    """Our client on an empty table, or on one of ``preload`` readings of each sensor."""
    data = {"seed": 1, "sensors": sensors, "step_ms": 1000}
    if prepare:
        client("prepare", {"store": store, "index": index, "drop": True, "data": data, "preload": preload})
    stream = {"operation": operation, "values": values, "clients": clients, "pipeline": pipeline, "preload": preload}
    specification = {"store": store, "data": data, "streams": [stream | {"loop": {"kind": "closed"}}]}
    timed = {"warmup_ms": 500, "duration_ms": round(seconds * 1000), "acknowledged": None, "until_failure": False}
    found = client("measure", specification | timed)
    (result,) = found["streams"]
    if result["errors"] or result["wrong"]:
        raise BenchmarkError(
            f"{operation}: {result['errors']} errors, {result['wrong']} wrong: {result['first_error']}"
        )
    operations = result["operations"]
    return Rate(operations / found["elapsed_ns"] * 1e9, found["cpu_ns"] / 1000 / operations)


def in_turns(
    ours: Callable[[], Rate], theirs: Callable[[], Rate], repeats: int, what: str
) -> tuple[list[Rate], list[Rate]]:
    """Our client and a peer's one after the other, the peer's first in every other turn."""
    mine: list[Rate] = []
    peers: list[Rate] = []
    for repeat in range(repeats):
        turns = [(ours, mine), (theirs, peers)]
        for measure, rates in turns if repeat % 2 else reversed(turns):
            rates.append(measure())
        progress(f"{what}: {repeat + 1}/{repeats}")
    return mine, peers


def compared_columns(peer: str) -> tuple[str, ...]:
    """Of the table that :func:`compared` makes rows of."""
    rate = ("ours, op/s", f"{peer}, op/s", f"ours / {peer}")
    return ("operation", *rate, "ours, CPU µs/op", f"{peer}, CPU µs/op", f"ours / {peer}")


def compared(operation: str, ours: Sequence[Rate], theirs: Sequence[Rate]) -> list[str]:
    """A row of what both clients achieved at an operation."""
    row = [operation]
    for mine, peers in (
        ([one.per_s for one in ours], [one.per_s for one in theirs]),
        ([one.cpu_us for one in ours], [one.cpu_us for one in theirs]),
    ):
        row += [spread(mine), spread(peers), spread(ratios(mine, peers))]
    return row


def cpu_of(argv: Sequence[str], environment: dict[str, str] | None = None) -> tuple[str, float]:
    """Run a peer's client to its end: what it printed, and the CPU seconds that it and its children took.

    Raises:
        BenchmarkError: it failed.
    """
    progress(" ".join(Path(word).name if "/" in word else word for word in argv[:6]))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        argv, env={**os.environ, **(environment or {})}, capture_output=True, text=True, timeout=120, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise BenchmarkError(f"{argv[0]}: {(done.stderr or done.stdout)[-400:]}")
    return done.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

"""Each database as it really is: its profiles serve, flush, and lose what their level says, and nothing else."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from suites.database_servers import DATA, RunningServer, answer_of, running, stream, until_ended

from virtgauge.suites.storage.databases import DATABASES
from virtgauge.suites.storage.databases.base import FIRST_PERIOD_MS, Durability, Profile

pytestmark = pytest.mark.slow

# Cassandra takes long to start: one level of it, the others by the same settings.
LEVELS = [
    (name, durability)
    for name, product in DATABASES.items()
    for durability, level in product.levels().items()
    if not product.embedded and isinstance(level, Profile)
    if name != "cassandra" or durability is Durability.FLUSHED
]
STRICTEST = {name: (name, durability) for name, durability in LEVELS}.values()
"""The last of each server, which `make test` meets; all of them `make test-all`."""
SAMPLED = [pytest.param(level, marks=[] if level in STRICTEST else pytest.mark.full) for level in LEVELS]


@pytest.fixture(scope="module", params=SAMPLED, ids=lambda level: f"{level[0]}-{level[1]}")
def server(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    name, durability = request.param
    with running(DATABASES[name], durability) as server:
        yield server


def test_a_server_runs_as_its_own_user_and_listens_only_where_it_was_told(server: RunningServer) -> None:
    whom = server.layout.account
    status = Path(f"/proc/{server.processes()[0]}/status").read_text()
    if whom is not None:
        assert f"Uid:\t{whom.pw_uid}\t{whom.pw_uid}\t{whom.pw_uid}" in status
    listening = subprocess.run(["ss", "-Htlnp"], capture_output=True, text=True, check=True).stdout
    own = [line for line in listening.splitlines() if f"pid={server.processes()[0]}," in line]
    assert own
    assert all(server.layout.address in line.split()[3] for line in own)


def test_what_is_written_is_read_again_and_checked(server: RunningServer) -> None:
    server.prepare(preload=1000)
    result, _ = server.measure(stream("read", values=1000, preload=1000), duration_ms=200)
    assert result["operations"] > 0
    assert (result["errors"], result["wrong"]) == (0, 0), result["first_error"]


def test_last_values_and_windows_are_found_by_the_database_and_are_right(server: RunningServer) -> None:
    server.prepare(preload=1000)
    for operation, values in (("last-value", 1), ("window", 2), ("window", 500), ("window", 1000)):
        result, _ = server.measure(stream(operation, values=values, preload=1000), duration_ms=200)
        assert (result["errors"], result["wrong"]) == (0, 0), f"{operation} of {values}: {result['first_error']}"
        assert result["operations"] > 0 and result["rows"] == values * result["operations"]


def test_what_is_stored_is_counted_and_is_in_its_files(server: RunningServer) -> None:
    server.prepare(preload=1000)
    stored = answer_of("count", {"store": server.store})
    assert stored == {"rows": 1000 * DATA["sensors"]}
    held = answer_of("files", {"folder": str(server.layout.data)})
    in_files = server.profile.durability is not Durability.NONE  # else in memory alone, perhaps
    assert held["allocated_bytes"] > (10 * stored["rows"] if in_files else 0)  # of 32 bytes each, if not compressed


def test_what_is_stored_is_brought_to_rest_in_the_files_of_tables(server: RunningServer) -> None:
    """So that a reading takes about as much where there are twice as many, whatever the log holds."""
    grown = []
    for preload in (0, 25_000, 50_000):
        server.prepare(preload)
        grown.append(server.held_at_rest()["data_bytes"])
    rows, unit = 25_000 * DATA["sensors"], server.product.allocation_unit
    once, twice = (held - grown[0] for held in grown[1:])
    print(f"{server.product.name} {server.profile.name}: {once / rows:.1f} {twice / rows / 2:.1f} B, {unit} B steps")
    assert 0 < twice < 200 * 2 * rows + unit * 8
    assert server.product.name != "questdb" or 2 * once - twice < unit, "what does not grow with the readings"
    if once >= 20 * unit:
        assert 1 < once / rows < 200
        assert server.product.name == "mongodb" or twice == pytest.approx(2 * once, rel=0.4)


def test_readings_that_arrive_late_are_each_found_once(server: RunningServer) -> None:
    """As many as were written, and read in the order of time whatever their order of arrival."""
    late = DATA | {"late": {"share": 0.05, "by": 100, "run": 20}}
    server.prepare(preload=1000, data=late)
    result, _ = server.measure(stream("read", values=1000, preload=1000), duration_ms=200)
    assert result["operations"] > 0
    assert (result["errors"], result["wrong"]) == (0, 0), result["first_error"]
    what = stream("write", values=10, preload=1000)
    result, _ = server.measure(what, duration_ms=200, data=late, acknowledged=server.acknowledged)
    audit = answer_of(
        "audit",
        {"store": server.store, "data": late, "streams": [what], "acknowledged": str(server.acknowledged)},
    )
    assert audit["acknowledged_rows"] >= result["rows"] > 0
    assert (audit["missing_rows"], audit["wrong_rows"]) == (0, 0), audit


def test_a_level_flushes_as_it_says(server: RunningServer) -> None:
    server.prepare()
    result, flushes = server.measure(stream("write"))
    assert result["errors"] == 0, result["first_error"]
    if server.profile.flushes_each_write:
        assert flushes >= result["operations"]
    elif server.profile.durability is Durability.OS:
        assert flushes < result["operations"] / 100  # at times, for a file of its own
    else:
        assert flushes < result["operations"] / 4


def test_what_is_dropped_right_after_a_write_is_gone(server: RunningServer) -> None:
    server.prepare()
    written, _ = server.measure(stream("write"), duration_ms=1000)
    assert written["operations"] > 0
    assert "error" not in answer_of("drop", {"store": server.store})
    server.prepare(preload=100)  # which counts what is there
    assert "error" not in answer_of("drop", {"store": server.store})


def test_a_wrong_password_is_denied(server: RunningServer) -> None:
    store = dict(server.store)
    for field in ("uri", "password"):
        if store.get(field):
            store[field] = store[field].replace(server.layout.password, "wrong")
    answer = answer_of("about", {"store": store})
    if store == server.store:
        assert "error" not in answer  # it knows no passwords
    else:
        assert answer["error"]["kind"] == "denied"


def test_what_was_acknowledged_outlives_a_kill_where_the_level_says_so(server: RunningServer) -> None:
    server.prepare()
    audit = server.kill_while_writing()
    assert audit["acknowledged_rows"] > 0
    assert audit["wrong_rows"] == 0
    if server.profile.survives_kill:
        assert audit["missing_rows"] == 0
    elif server.profile.durability is Durability.PERIODIC:
        assert (audit["oldest_lost_ms"] or 0) <= FIRST_PERIOD_MS + 1000  # the machine may be busy


def test_a_data_folder_in_use_is_refused(server: RunningServer) -> None:
    with pytest.raises(subprocess.CalledProcessError) as refusal:
        server.set_up()
    assert b"already holds something" in refusal.value.stderr
    assert "error" not in answer_of("about", {"store": server.store})


def test_a_server_ends_when_it_is_told_to_and_leaves_no_process(server: RunningServer) -> None:
    processes = server.processes()
    server.stop()
    until_ended(processes)  # what counts the flushes of a static program ends after it
    with socket.socket() as probe:
        assert probe.connect_ex((server.layout.address, server.layout.port)) != 0

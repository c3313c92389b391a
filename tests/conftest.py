"""What every test shares: a state folder, an agent, and the machine, which some need to themselves."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

from virtgauge.agent import ENVIRONMENT_VARIABLE, find_agent
from virtgauge.ledger import files, store

# How long an example takes says how busy the machine is, and nothing of what is tested.
hypothesis.settings.register_profile("virtgauge", deadline=None)
hypothesis.settings.load_profile("virtgauge")


SESSION = "VIRTGAUGE_TESTS"
"""Names the folder that the processes of one pytest share."""


def pytest_configure(config: pytest.Config) -> None:
    """Each process of pytest gets a state folder of its own: a run in one never occupies the machine for others.

    Its path is short: a Unix socket's may have 107 bytes.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None:
        os.environ[SESSION] = tempfile.mkdtemp(prefix="vgtests-")
    os.environ.pop("COLUMNS", None)  # which xdist sets for its workers
    os.environ["VIRTGAUGE_STATE"] = f"{os.environ[SESSION]}/{worker or 'state'}"


def pytest_unconfigure(config: pytest.Config) -> None:
    gc.unfreeze()  # else DuckDB says at the end that it leaks what was frozen
    if "PYTEST_XDIST_WORKER" not in os.environ:
        shutil.rmtree(os.environ[SESSION], ignore_errors=True)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What boots comes first, what needs the machine to itself last; a file stays whole, as its tests share servers."""
    last: dict[Path, int] = {}
    for item in items:
        rank = 2 if item.get_closest_marker("alone") else 0 if item.get_closest_marker("slow") else 1
        last[item.path] = max(rank, last.get(item.path, 0))
    items.sort(key=lambda item: last[item.path])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test marked `alone` waits until no other process of this pytest has a test under way, and holds them up.

    Outermost, so that neither a time-out nor a duration counts the wait.
    """
    with _machine(fcntl.LOCK_EX if item.get_closest_marker("alone") else fcntl.LOCK_SH):
        return (yield)


@contextlib.contextmanager
def _machine(how: int) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        turn, machine = (stack.enter_context(Path(os.environ[SESSION], name).open("w")) for name in ("turn", "machine"))
        fcntl.flock(turn, fcntl.LOCK_EX)  # whoever waits is next, however many share the machine meanwhile
        fcntl.flock(machine, how)
        fcntl.flock(turn, fcntl.LOCK_UN)
        yield


def pytest_collection_finish() -> None:
    """Whatever was imported stays: a collection of garbage need not go through it (statsmodels does one a call)."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def ledgers_that_wait_for_no_disk():
    """What flushes protect from, a power cut, is nothing that a test could see; runs of their own process do flush."""
    durable = store.Ledger.open.__func__

    def opened(cls, folder):
        ledger = durable(cls, folder)
        ledger._db.execute("PRAGMA synchronous = OFF")
        return ledger

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store.Ledger, "open", classmethod(opened))
        patch.setattr(files, "sync", lambda path: None)
        yield


@pytest.fixture(autouse=True)
def _nothing_is_provided(monkeypatch):
    """A test's run measures with what is there: `make test` has provided it."""
    monkeypatch.setenv("VIRTGAUGE_NO_PROVISION", "1")


@pytest.fixture
def private_state(tmp_path, monkeypatch):
    """Scopes and locks below the test's own folder, so that tests disturb neither one another nor a real run."""
    folder = tmp_path / "state"
    monkeypatch.setenv("VIRTGAUGE_STATE", str(folder))
    return folder


@contextlib.contextmanager
def _some_agent(folder, patch):
    agent = folder / "virtgauge-agent"
    agent.write_bytes(b"an agent that is never executed")
    patch.setenv(ENVIRONMENT_VARIABLE, str(agent))
    find_agent.cache_clear()
    yield agent
    find_agent.cache_clear()


@pytest.fixture
def any_agent(tmp_path, monkeypatch):
    """Some file as the agent: simulated guests only ever name its hash."""
    with _some_agent(tmp_path, monkeypatch) as agent:
        yield agent


@pytest.fixture(scope="module")
def simulated_machine(tmp_path_factory):
    """State and agent for a simulated run that several tests of a module look at; a folder for it."""
    folder = tmp_path_factory.mktemp("simulated")
    with pytest.MonkeyPatch.context() as patch, _some_agent(folder, patch):
        patch.setenv("VIRTGAUGE_STATE", str(folder / "state"))
        yield folder


@pytest.fixture
def root():
    """A machine without root must say so (VIRTGAUGE_ALLOW_MISSING=root), or this fails: nothing passes unseen."""
    if os.geteuid() != 0:
        assert "root" in os.environ.get("VIRTGAUGE_ALLOW_MISSING", "").split(","), "mounts and interfaces need root"
        pytest.skip("no root, as allowed")

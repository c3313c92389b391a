"""What every test shares: a state folder and an agent of its own, and a look at what a test left behind."""

from __future__ import annotations

import contextlib
import gc
import os

import hypothesis
import pytest

from virtgauge.agent import binary
from virtgauge.ledger import store

# How long an example takes says how busy the machine is, and nothing of what is tested.
hypothesis.settings.register_profile("virtgauge", deadline=None)
hypothesis.settings.load_profile("virtgauge")


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
        patch.setattr(store, "_sync", lambda path: None)
        yield


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
    patch.setenv(binary.ENVIRONMENT_VARIABLE, str(agent))
    binary.find_agent.cache_clear()
    yield agent
    binary.find_agent.cache_clear()


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

"""What every test shares: a state folder and an agent of its own, and a look at what a test left behind."""

from __future__ import annotations

import os

import pytest

from virtgauge.agent import binary


@pytest.fixture
def private_state(tmp_path, monkeypatch):
    """Scopes and locks below the test's own folder, so that tests disturb neither one another nor a real run."""
    folder = tmp_path / "state"
    monkeypatch.setenv("VIRTGAUGE_STATE", str(folder))
    return folder


@pytest.fixture
def any_agent(tmp_path, monkeypatch):
    """Some file as the agent: simulated guests only ever name its hash."""
    agent = tmp_path / "virtgauge-agent"
    agent.write_bytes(b"an agent that is never executed")
    monkeypatch.setenv(binary.ENVIRONMENT_VARIABLE, str(agent))
    binary.find_agent.cache_clear()
    yield agent
    binary.find_agent.cache_clear()


@pytest.fixture
def root():
    """A machine without root must say so (VIRTGAUGE_ALLOW_MISSING=root), or this fails: nothing passes unseen."""
    if os.geteuid() != 0:
        assert "root" in os.environ.get("VIRTGAUGE_ALLOW_MISSING", "").split(","), "mounts and interfaces need root"
        pytest.skip("no root, as allowed")

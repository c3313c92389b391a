"""The host as a platform: a plain process in a cgroup that only counts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from platforms import guest_checks as check
from platforms.conftest import burnt_share, running

from virtgauge.host.cgroup import Cgroup, Hierarchies
from virtgauge.host.scope import Scope
from virtgauge.platforms.base import GuestSpec, LaunchError
from virtgauge.platforms.local import HostPlatform

pytestmark = pytest.mark.slow
Spec = Callable[..., GuestSpec]


async def test_it_answers_counts_and_is_gone(spec: Spec) -> None:
    facts = await check.check_a_guest_answers_and_is_gone(HostPlatform(), spec())
    assert facts["init"] is False


async def test_it_is_always_usable() -> None:
    assert (await HostPlatform().probe()).usable


async def test_accounting_from_outside_agrees_with_the_load_inside(spec: Spec) -> None:
    async with running(HostPlatform(), spec()) as guest:
        outside, inside = await burnt_share(guest, 1.0, 1)
    assert outside == pytest.approx(inside, abs=0.1)
    assert outside > 0.1


async def test_without_cgroups_the_process_tree_is_counted(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scope, "cgroup", lambda _, name, **_options: Cgroup(name, Hierarchies(v1={}, v2=None)))
    async with running(HostPlatform(), spec()) as guest:
        assert guest.accounting().method == "/proc"
        outside, inside = await burnt_share(guest, 1.0, 1)
    assert outside == pytest.approx(inside, abs=0.1)


async def test_it_can_be_confined_to_some_processors(spec: Spec) -> None:
    async with running(HostPlatform(), spec(vcpus=1)) as guest:
        outside, _ = await burnt_share(guest, 1.0, 4)
    assert outside < 1.15


async def test_the_cpu_controller_is_not_joined(spec: Spec) -> None:
    async with running(HostPlatform(), spec()) as guest:
        memberships = (await guest.channel.facts())["cgroup"].splitlines()
    for line in memberships:
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(",") and "cpuacct" not in controllers.split(","):
            assert "virtgauge" not in path


@pytest.mark.parametrize(
    ("script", "stage", "words"),
    [
        ("exit 3", "boot", "the agent exited with status 3"),
        ("echo woe >&2; kill -9 $$", "boot", "woe"),
        ("head -c 100000 /dev/zero; sleep 60", "handshake", "frame"),
        ("echo garbage; sleep 60", "handshake", "frame"),
        ("sleep 60", "handshake", "no agent answered within"),
    ],
)
async def test_a_broken_agent_is_a_launch_error(
    spec: Spec, tmp_path: Path, script: str, stage: str, words: str
) -> None:
    await check.check_a_broken_agent_is_a_launch_error(HostPlatform(), spec, tmp_path, script, stage, words)


async def test_an_agent_that_cannot_be_executed_is_a_launch_error(spec: Spec, agent: object, tmp_path: Path) -> None:
    path = tmp_path / "no-agent"
    path.write_text("not executable")
    from virtgauge.agent import AgentBinary

    with pytest.raises(LaunchError, match=r"start: .*no-agent"):
        await HostPlatform().launch(spec(agent=AgentBinary(path, "0" * 64)))


async def test_cancelling_leaves_nothing(spec: Spec) -> None:
    await check.check_cancelling_leaves_nothing(HostPlatform(), spec, 0.0)
    await check.check_cancelling_leaves_nothing(HostPlatform(), spec, 0.005)


async def test_a_killed_guest_ends_the_channel(spec: Spec) -> None:
    await check.check_a_killed_guest_ends_the_channel(HostPlatform(), spec())


def test_a_killed_controller_is_reclaimed(private_state: Path) -> None:
    check.check_a_killed_controller_is_reclaimed("host", "{}")

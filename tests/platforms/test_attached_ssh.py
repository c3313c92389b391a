"""Machines attached by ssh: a real sshd on loopback, and what may go wrong on the way and on the remote side."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import asyncssh
import pytest
from platforms import guest_checks as check
from platforms.attached_checks import Spec, attached, gone, guest_of, refused, remote_folders
from platforms.conftest import undisturbed
from platforms.delaying_relay import delaying_relay
from platforms.ssh_server import SshServer, ssh_server

from virtgauge.agent import AgentBinary, find_agent
from virtgauge.agent.channel import ChannelClosedError
from virtgauge.execution.validity import clock_flags
from virtgauge.ledger.records import Flag
from virtgauge.plan.model import ValidityLimits
from virtgauge.platforms.attached import platform as attached_guest
from virtgauge.platforms.attached import ssh
from virtgauge.platforms.base import GuestSpec, LaunchError
from virtgauge.suites.answers import elapsed_by_clock

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("root")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("ssh") / "server") as server:
        yield server


@pytest.fixture(autouse=True)
def known(request: pytest.FixtureRequest) -> None:
    if "server" in request.fixturenames:
        request.getfixturevalue("server").trust()


async def test_it_answers_from_a_private_folder_and_is_gone(server: SshServer, spec: Spec) -> None:
    asked = spec()
    async with guest_of(attached(server), asked) as guest:
        assert not guest.accounting().of_this_machine
        (folder,) = remote_folders(asked.scope.tag)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        facts = await guest.channel.facts()
        assert facts["agent_sha256"] == asked.agent.sha256
        assert facts["init"] is False
        account = guest.accounting()
        assert account.cpu_ns is None
        assert "not known" in account.method
        assert not account.of_this_machine
    await guest.close()
    with pytest.raises(ChannelClosedError):
        await guest.channel.facts()


async def test_each_launch_is_a_fresh_process(server: SshServer, spec: Spec) -> None:
    pids = set()
    for _ in range(2):
        async with guest_of(attached(server), spec()) as guest:
            pids.add(guest.channel.welcome["pid"])
    assert len(pids) == 2


async def test_its_probe_names_what_answers(server: SshServer) -> None:
    platform = attached(server)
    found = await platform.probe()
    assert found.usable
    assert not platform.emulated
    assert found.details["machine"] == "x86_64"
    assert found.details["host_key"] == asyncssh.read_public_key(server.folder / "host_key.pub").get_fingerprint()


async def test_it_lives_as_long_as_its_controller_lets_itself_be_heard(
    server: SshServer, spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network that fails tells nobody: the agent ends when nothing has come for the time of its lease."""
    monkeypatch.setattr(ssh, "LEASE_S", 3)  # longer than this process may stand still
    monkeypatch.setattr(attached_guest, "_RENEWAL_S", 0.25)
    asked = spec()
    async with guest_of(attached(server), asked) as guest:
        await asyncio.sleep(4)
        assert (await guest.channel.facts())["init"] is False
        guest._renewal.cancel()
        assert await gone(asked.scope.tag)
        with pytest.raises(ChannelClosedError):
            await guest.channel.facts()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=1777", "none", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


async def test_a_full_disk_is_a_failed_copy_and_leaves_nothing_on_it(
    server: SshServer, spec: Spec, small_disk: Path
) -> None:
    with pytest.raises(LaunchError, match="No space left on device") as caught:
        await attached(server, folder=str(small_disk)).launch(spec())
    assert caught.value.stage == "copy"
    assert str(small_disk) in str(caught.value)
    assert list(small_disk.iterdir()) == []


async def test_a_folder_that_is_not_there_is_named(server: SshServer, spec: Spec) -> None:
    with pytest.raises(LaunchError, match="no folder can be made in /nowhere"):
        await attached(server, folder="/nowhere").launch(spec())


async def test_where_programs_may_not_be_started_it_is_said_or_another_folder_taken(
    tmp_path: Path, spec: Spec, small_disk: Path
) -> None:
    subprocess.run(["mount", "-o", "remount,noexec", str(small_disk)], check=True)
    with ssh_server(tmp_path / "server", "127.0.0.1", (), f"SetEnv TMPDIR={small_disk}") as server:
        with pytest.raises(LaunchError, match="noexec"):
            await attached(server, folder=str(small_disk)).launch(spec())
        asked = spec()
        async with guest_of(attached(server), asked):
            assert [path.parent for path in remote_folders(asked.scope.tag)] == [Path("/var/tmp")]
    assert list(small_disk.iterdir()) == []


async def test_what_a_login_prints_is_no_part_of_the_channel(tmp_path: Path, spec: Spec) -> None:
    noise = 'ForceCommand echo Welcome; echo to this machine; eval "$SSH_ORIGINAL_COMMAND"'
    with ssh_server(tmp_path / "server", "127.0.0.1", (), noise) as server:
        async with guest_of(attached(server), spec()) as guest:
            assert (await guest.channel.facts())["kernel"]["sysname"] == "Linux"


async def test_a_login_that_runs_no_command_is_told(tmp_path: Path, spec: Spec) -> None:
    closed = "ForceCommand echo This account is closed"
    with (
        ssh_server(tmp_path / "server", "127.0.0.1", (), closed) as server,
        pytest.raises(LaunchError, match="said nothing that we asked"),
    ):
        await attached(server).launch(spec())


async def test_it_goes_through_a_jump_host(server: SshServer, spec: Spec, tmp_path: Path) -> None:
    with ssh_server(tmp_path / "server") as inner:
        inner.known_hosts.write_text(inner.known_hosts.read_text() + server.known_hosts.read_text())
        inner.folder.joinpath("authorized_keys").write_text((server.folder / "user_key.pub").read_text())
        through = attached(
            inner,
            identity_file=str(server.identity),
            jump_host=f"{server.user}@{server.address}:{server.port}",
        )
        async with guest_of(through, spec()) as guest:
            assert (await guest.channel.facts())["init"] is False
            assert server.sessions()
        wrong = attached(inner, identity_file=str(server.identity), jump_host=f"{server.address}:1")
        assert "the jump host" in (await wrong.probe()).reason


@pytest.mark.parametrize(("script", "works"), [('shift; exec "$@"', True), ("echo sudo: no >&2; exit 1", False)])
async def test_sudo_starts_it_or_is_told(tmp_path: Path, spec: Spec, script: str, works: bool) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "sudo").write_text(f"#!/bin/sh\n{script}\n")
    (programs / "sudo").chmod(0o755)
    with ssh_server(tmp_path / "server", "127.0.0.1", (), f"SetEnv PATH={programs}:/usr/bin:/bin") as server:
        platform = attached(server, sudo=True)
        if works:
            async with guest_of(platform, spec()) as guest:
                assert (await guest.channel.facts())["uid"] == 0
        else:
            await refused(platform, spec, "sudo", "NOPASSWD")


async def broken(
    server: SshServer, asked: GuestSpec, sha256: str | None, script: str, tmp_path: Path, within_s: float = 30.0
) -> LaunchError:
    path = tmp_path / "broken"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    find_agent.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VIRTGAUGE_AGENT", str(path))
        found = find_agent()
    find_agent.cache_clear()
    changed = GuestSpec(
        name=asked.name,
        scope=asked.scope,
        agent=AgentBinary(path, sha256 or found.sha256),
        ready_timeout_s=within_s,
    )
    with pytest.raises(LaunchError) as caught:
        await attached(server).launch(changed)
    assert await gone(asked.scope.tag)
    return caught.value


async def test_a_file_that_is_not_what_was_sent_is_not_run(server: SshServer, spec: Spec, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    error = await broken(server, spec(), "0" * 64, f"touch {ran}", tmp_path)
    assert "is not the agent that was sent" in str(error)
    assert not ran.exists()


@pytest.mark.parametrize(
    ("script", "stage", "words"),
    [
        ("echo woe >&2; exit 3", "boot", "the agent exited with status 3"),
        ("head -c 100000 /dev/zero; cat > /dev/null", "handshake", "frame"),
        ("exec cat > /dev/null", "handshake", "no agent answered within"),
    ],
)
async def test_a_broken_agent_is_a_launch_error(
    server: SshServer, spec: Spec, tmp_path: Path, script: str, stage: str, words: str
) -> None:
    within_s = 5.0 if "answered within" in words else 30.0  # with the login and the copy
    error = await broken(server, spec(), None, script, tmp_path, within_s)
    assert error.stage == stage
    assert words in str(error)


async def test_a_connection_that_is_lost_in_a_trial_ends_both_sides(server: SshServer, spec: Spec) -> None:
    asked = spec()
    async with guest_of(attached(server), asked) as guest:
        waiting = asyncio.create_task(guest.channel.request("probe", name="sleep_lateness", params=check.LONG_SLEEPS))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        for pid in server.sessions():
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(ChannelClosedError):
            await asyncio.wait_for(waiting, 20)
        assert guest.channel.closed
        assert await gone(asked.scope.tag)


async def test_an_agent_that_hangs_is_killed_and_its_folder_removed(server: SshServer, spec: Spec) -> None:
    asked = spec()
    async with guest_of(attached(server), asked) as guest:
        os.kill(guest.channel.welcome["pid"], signal.SIGSTOP)


async def test_cancelling_leaves_nothing(server: SshServer, spec: Spec) -> None:
    for after_s in (0.1, 0.3):
        asked = spec()
        await check.check_cancelling_leaves_nothing(attached(server), lambda asked=asked: asked, after_s)
        assert await gone(asked.scope.tag)


def test_a_killed_controller_is_reclaimed(server: SshServer, private_state: Path) -> None:
    import json

    tag = check.check_a_killed_controller_is_reclaimed("attached", json.dumps(server.settings()), remote_side_s=30.0)
    assert asyncio.run(gone(tag))


async def test_its_clock_is_bounded_by_request_and_answer_over_a_slow_network(server: SshServer, spec: Spec) -> None:
    """A tenth of a second each way: the guest's span lies within the controller's, and is no fault of its clock."""
    async with delaying_relay(server.address, server.port, 0.1) as port:
        server.known_hosts.write_text(server.known_hosts.read_text().replace(str(server.port), str(port)))
        guest = await attached(server, port=port).launch(spec())

        async def flags() -> list[Flag]:
            params = {"function": "clock_gettime", "samples": 20_000, "max_ns": 10**9, "reservoir": 10, "seed": 1}
            reply = await guest.channel.request("probe", name="timer_cost", params=params, timeout_s=60)
            clocks = elapsed_by_clock(reply.value["clocks_start"], reply.value["clocks_end"])
            outside = reply.finished_ns - reply.sent_ns
            assert outside > clocks[0].elapsed_ns + 200_000_000
            return clock_flags(clocks, outside, ValidityLimits())

        try:
            await undisturbed(flags, lambda found: found == [])
        finally:
            await guest.close()


@pytest.mark.parametrize("asked", [{"cpu_limit": 0.5}, {"host_root": True}, {"vcpus": 1}, {"memory_mib": 256}])
async def test_what_it_cannot_be_given_is_refused_before_anything_is_started(
    server: SshServer, spec: Spec, asked: dict[str, object]
) -> None:
    with pytest.raises(LaunchError, match="an attached machine has no interfaces"):
        await attached(server, port=1).launch(spec(**asked))  # where nobody would answer

"""Logins by ssh that are refused, by either side, and those that are not: keys, agents, known hosts, names."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import asyncssh
import pytest
from platforms.attached_checks import Spec, attached, gone, guest_of, refused
from platforms.conftest import require
from platforms.ssh_server import SshServer, ssh_server

from virtgauge.platforms import create
from virtgauge.platforms.attached import ssh
from virtgauge.platforms.base import Availability

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("root")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    with ssh_server(tmp_path_factory.mktemp("ssh") / "server") as server:
        yield server


@pytest.fixture(autouse=True)
def known(request: pytest.FixtureRequest) -> None:
    if "server" in request.fixturenames:
        request.getfixturevalue("server").trust()


async def test_an_unknown_host_is_refused_with_its_fingerprint_and_the_remedy(server: SshServer, spec: Spec) -> None:
    server.known_hosts.write_text("")
    shown = asyncssh.read_public_key(server.folder / "host_key.pub").get_fingerprint()
    await refused(attached(server), spec, "not a known host", shown, f"ssh -o UserKnownHostsFile={server.known_hosts}")


async def test_a_missing_file_of_known_hosts_knows_nobody(server: SshServer, spec: Spec, tmp_path: Path) -> None:
    await refused(attached(server, known_hosts=str(tmp_path / "none")), spec, "not a known host")


async def test_a_changed_host_key_is_refused_with_both_and_the_remedy(server: SshServer, spec: Spec) -> None:
    other = asyncssh.generate_private_key("ssh-ed25519").convert_to_public()
    server.trust(other)
    shown = asyncssh.read_public_key(server.folder / "host_key.pub").get_fingerprint()
    text = await refused(attached(server), spec, "has changed", shown, other.get_fingerprint(), "ssh-keygen -R")
    assert f"[{server.address}]:{server.port}" in text


async def test_a_refused_key_is_told_with_the_command_that_must_work(
    server: SshServer, spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    stranger = tmp_path / "key"
    asyncssh.generate_private_key("ssh-ed25519").write_private_key(stranger)
    await refused(
        attached(server, identity_file=str(stranger)), spec, "refuses the login", "authorized_keys", str(server.port)
    )


async def test_a_key_file_that_is_not_there_is_named(server: SshServer, spec: Spec, tmp_path: Path) -> None:
    await refused(attached(server, identity_file=str(tmp_path / "none")), spec, str(tmp_path / "none"))


async def test_a_key_with_a_passphrase_is_taken_from_the_agent_only(
    server: SshServer, spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = tmp_path / "locked"
    key = asyncssh.read_private_key(server.identity)
    key.write_private_key(locked, "pkcs8-pem", passphrase="secret")
    locked.chmod(0o600)
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    await refused(attached(server, identity_file=str(locked)), spec, "ssh-add")
    socket = tmp_path / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.DEVNULL) as agent:
        try:
            while not socket.exists():
                assert agent.poll() is None
                time.sleep(0.01)
            monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
            subprocess.run(["ssh-add", "-q", str(server.identity)], check=True)
            monkeypatch.setenv("HOME", str(tmp_path))  # which has no keys of its own
            settings = server.settings()
            del settings["identity_file"]
            assert (await create("attached", settings).probe()).usable
        finally:
            agent.terminate()


async def test_a_closed_port_and_a_name_that_is_none_are_told_apart(server: SshServer, spec: Spec) -> None:
    await refused(attached(server, port=1), spec, "cannot be reached", "Connection refused")
    await refused(attached(server, host="no-such-machine.invalid"), spec, "cannot be resolved")


async def test_a_machine_that_never_answers_is_given_up(
    server: SshServer, spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "CONNECT_S", 0.5)
    silent = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    async with silent:
        port = silent.sockets[0].getsockname()[1]
        await refused(attached(server, port=port), spec, "did not answer within 0.5 s")


@pytest.mark.lab
@pytest.mark.parametrize("shell", ["tcsh", "fish", "dash"])
async def test_the_login_shell_may_be_any(shell: str, spec: Spec, tmp_path: Path) -> None:
    """Of root, for this server alone: it has an /etc/passwd of its own."""
    program = shutil.which(shell)
    require(Availability(program is not None, f"{shell} is missing", "virtgauge provision packages --for labs"), shell)
    passwd = tmp_path / "passwd"
    lines = [line.rsplit(":", 1) for line in Path("/etc/passwd").read_text().splitlines()]
    passwd.write_text("".join(f"{line}:{program if line.startswith('root:') else old}\n" for line, old in lines))
    private = ("unshare", "--mount", "--propagation", "private", "sh", "-c")
    setup = 'mount --bind "$1" /etc/passwd; shift; exec "$@"'
    with ssh_server(tmp_path / "server", enter=(*private, setup, "sh", str(passwd))) as server:
        async with asyncssh.connect(
            server.address,
            server.port,
            username="root",
            client_keys=[str(server.identity)],
            known_hosts=str(server.known_hosts),
            config=None,
        ) as login:
            said = await login.run("ps -o comm= -p $fish_pid" if shell == "fish" else "echo $0")
            assert shell in str(said.stdout)
        asked = spec()
        async with guest_of(attached(server), asked) as guest:
            assert (await guest.channel.facts())["agent_sha256"] == asked.agent.sha256
        assert await gone(asked.scope.tag)

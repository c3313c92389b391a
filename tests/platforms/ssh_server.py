"""A real sshd of a test's own, on a high port of an address, with its own host key and one user's key."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pwd
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import asyncssh


@dataclasses.dataclass(frozen=True)
class SshServer:
    """A running server and what a plan needs to reach it."""

    address: str
    port: int
    process: subprocess.Popen[bytes]
    folder: Path
    identity: Path
    known_hosts: Path

    @property
    def user(self) -> str:
        return pwd.getpwuid(os.geteuid()).pw_name

    def settings(self, **changes: object) -> dict[str, object]:
        """A plan's section, less its name and kind."""
        return {
            "via": "ssh",
            "host": self.address,
            "port": self.port,
            "user": self.user,
            "identity_file": str(self.identity),
            "known_hosts": str(self.known_hosts),
        } | changes

    def trust(self, key: asyncssh.SSHKey | None = None) -> None:
        """Write the known hosts: this server with its own key, or another one."""
        shown = key or asyncssh.read_public_key(self.folder / "host_key.pub")
        text = shown.export_public_key().decode()
        self.known_hosts.write_text(f"[{self.address}]:{self.port} {text}")

    def sessions(self) -> list[int]:
        """Its children: one or two processes a connection."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(pid) for pid in children.split()]


def find_sshd() -> str | None:
    return shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/sbin")


@contextlib.contextmanager
def ssh_server(
    folder: Path, address: str = "127.0.0.1", enter: tuple[str, ...] = (), *options: str
) -> Iterator[SshServer]:
    """A server that lets in one key.

    Args:
        folder: of its keys and configuration; below one that only this user can write.
        address: to listen on.
        enter: command words before sshd's (``ip netns exec NAME``).
        options: further lines of its configuration.
    """
    program = find_sshd()
    assert program is not None, "OpenSSH's server is missing; `virtgauge provision packages --for testing`"
    folder.mkdir(mode=0o700)
    for name in ("host_key", "user_key"):
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(folder / name)
        (folder / name).chmod(0o600)
        key.write_public_key(folder / f"{name}.pub")
    shutil.copy(folder / "user_key.pub", folder / "authorized_keys")
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # of its privilege separation
    port = _free_port(address) if not enter else 2222
    lines = (
        f"ListenAddress {address}",
        f"Port {port}",
        f"HostKey {folder}/host_key",
        f"AuthorizedKeysFile {folder}/authorized_keys",
        f"PidFile {folder}/pid",
        "UsePAM no",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "PermitRootLogin prohibit-password",
        "StrictModes no",
        "LogLevel ERROR",
        *options,
    )
    (folder / "config").write_text("\n".join(lines) + "\n")
    with (folder / "log").open("wb") as log:
        # by its whole path, which it needs to start itself anew for each connection
        command = [*enter, program, "-D", "-e", "-f", str(folder / "config")]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    server = SshServer(address, port, process, folder, folder / "user_key", folder / "known_hosts")
    try:
        server.trust()
        _wait_until_it_listens(server)
        yield server
    finally:
        for pid in server.sessions():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        process.terminate()
        process.wait(30)


def _free_port(address: str) -> int:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def _wait_until_it_listens(server: SshServer) -> None:
    listening = re.compile(rf":{server.port:04X} [0-9A-F]{{8}}:0000 0A")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert server.process.poll() is None, (server.folder / "log").read_text()
        if listening.search(Path(f"/proc/{server.process.pid}/net/tcp").read_text()):  # of its own network
            return
        time.sleep(0.02)
    raise AssertionError("sshd does not listen")

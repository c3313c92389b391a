"""A connection to an ssh server: the user's keys, agent, configuration and known hosts, and refusals in words."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import shlex
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncssh

from virtgauge.platforms.attached.settings import AttachedSettings, Hop

CONNECT_S = 15.0
_KEEPALIVE_S, _KEEPALIVES = 15, 3
"""A far machine that has vanished is noticed after as many unanswered questions, which its ssh server answers."""
_SYSTEM_KNOWN_HOSTS = Path("/etc/ssh/ssh_known_hosts")
_PASSWORDLESS = "gssapi-with-mic,hostbased,publickey"


class SshError(Exception):
    """The machine cannot be reached, or one side refuses the other; ``remedy`` is what to do."""

    def __init__(self, message: str, remedy: str | None = None) -> None:
        super().__init__(f"{message}\n  → {remedy}" if remedy else message)
        self.message, self.remedy = message, remedy


@dataclasses.dataclass(frozen=True)
class Connected:
    """A connection past the login.

    Attributes:
        connection: to the machine.
        host_key: fingerprint of its key, for the record.
        server: what its ssh server calls itself.
    """

    connection: asyncssh.SSHClientConnection
    host_key: str
    server: str


@contextlib.asynccontextmanager
async def connected(settings: AttachedSettings) -> AsyncIterator[Connected]:
    """A connection to the machine of the settings, through its jump host where it has one; closed at the end.

    Raises:
        SshError: it cannot be had; nobody is ever asked for a password, and no unknown host is trusted.
    """
    assert settings.host is not None
    async with contextlib.AsyncExitStack() as open_connections:
        tunnel = None
        if settings.jump_host is not None:
            tunnel = await _connect(Hop.parse(settings.jump_host), settings, None, "the jump host ")
            open_connections.push_async_callback(_close, tunnel)
        connection = await _connect(Hop(settings.host, settings.user, settings.port), settings, tunnel, "")
        open_connections.push_async_callback(_close, connection)
        key = connection.get_server_host_key()
        yield Connected(
            connection=connection,
            host_key="" if key is None else key.get_fingerprint(),
            server=str(connection.get_extra_info("server_version", "")),
        )


async def _close(connection: asyncssh.SSHClientConnection) -> None:
    """Say goodbye, for at most a second; the far side sees the end of the connection in any case."""
    connection.close()
    try:
        async with asyncio.timeout(1.0):
            await connection.wait_closed()
    except TimeoutError:
        pass
    finally:
        connection.abort()


async def _connect(
    hop: Hop, settings: AttachedSettings, tunnel: asyncssh.SSHClientConnection | None, what: str
) -> asyncssh.SSHClientConnection:
    target = _Target(hop, settings, what)
    try:
        return await target.connect(tunnel)
    except asyncssh.HostKeyNotVerifiable as error:
        raise target.distrusted(error) from error
    except asyncssh.PermissionDenied as error:
        raise SshError(
            f"{target} refuses the login of {target.user}: {error.reason}",
            f"`{target.command()} true` must work without a question: put your public key into ~/.ssh/authorized_keys "
            "there, add the key to your agent (ssh-add), or name it by identity_file",
        ) from error
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError, asyncssh.ConfigParseError, ValueError) as error:
        raise SshError(f"{target}: {error}", "correct identity_file, known_hosts or ~/.ssh/config") from error
    except TimeoutError as error:
        words = f"{target} did not answer within {CONNECT_S:g} s"
        raise SshError(words, "check host and port, and that no firewall drops the connection") from error
    except socket.gaierror as error:
        raise SshError(f"{target}: the name cannot be resolved: {error.strerror}", "check host in the plan") from error
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise SshError(f"{target} cannot be reached: {reason}", "check host and port, and that sshd runs") from error
    except (asyncssh.DisconnectError, asyncssh.ChannelOpenError) as error:
        raise SshError(f"{target}: {error.reason}", f"try `{target.command('-v')} true`") from error


class _Target:
    """One server to connect to, and how to speak of it."""

    def __init__(self, hop: Hop, settings: AttachedSettings, what: str) -> None:
        self._hop, self._what, self._seen = hop, what, _HostKeys()
        self._wanted: dict[str, Any] = {
            "port": hop.port or (),
            "username": hop.user or (),
            "client_keys": () if settings.identity_file is None else [str(settings.identity_file.expanduser())],
            "preferred_auth": _PASSWORDLESS,
            "connect_timeout": CONNECT_S,
            "login_timeout": CONNECT_S,
            "keepalive_interval": _KEEPALIVE_S,
            "keepalive_count_max": _KEEPALIVES,
        }
        try:  # what the user's own ssh configuration says of this host
            resolved = asyncssh.SSHClientConnectionOptions(host=hop.host, **self._wanted)
        except (OSError, ValueError, asyncssh.Error) as error:
            remedy = (
                "correct identity_file, or ~/.ssh/config; a key with a passphrase belongs into your agent (ssh-add)"
            )
            raise SshError(f"{what}{hop.host}: {error}", remedy) from error
        self.host, self.port, self.user = str(resolved.host), int(resolved.port), str(resolved.username)
        self._files = _known_hosts(settings, resolved.known_hosts)
        # Never None: that would trust whoever answers.
        self._known = [str(path) for path in self._files if os.access(path, os.R_OK)] or b"\n"

    def __str__(self) -> str:
        return f"{self._what}{self.host} (port {self.port})"

    async def connect(self, tunnel: asyncssh.SSHClientConnection | None) -> asyncssh.SSHClientConnection:
        chosen = self._wanted if tunnel is None else self._wanted | {"tunnel": tunnel}
        return await asyncssh.connect(
            self._hop.host, client_factory=lambda: self._seen, known_hosts=self._known, **chosen
        )

    def command(self, *options: str) -> str:
        """The same login by ssh, for a person to try."""
        words = ["ssh", *options, "-p", str(self.port), f"{self.user}@{self.host}"]
        return shlex.join(words)

    def distrusted(self, error: asyncssh.HostKeyNotVerifiable) -> SshError:
        """What is wrong with the host's key: changed, unknown, revoked, and the remedy of each."""
        host, port, offered = self.host, self.port, self._seen.offered
        shown = "" if offered is None else f"{offered.get_algorithm()} {offered.get_fingerprint()}"
        name = host if port == 22 else f"[{host}]:{port}"
        known = asyncssh.match_known_hosts(self._known, host, "", port if port != 22 else None)
        file = next((path for path in self._files if path.exists()), self._files[0])
        if "revoked" in error.reason:
            return SshError(f"{self}: its host key {shown} is marked as revoked in {file}", "do not connect to it")
        if known[0]:
            expected = ", ".join(key.get_fingerprint() for key in known[0])
            return SshError(
                f"the host key of {self} has changed: it shows {shown}, known is {expected} ({file}); either it was "
                "installed anew, or somebody else answers in its place",
                f"ask its administrator; if the new key is right: ssh-keygen -R {shlex.quote(name)} -f {file}, "
                f"then {self.command('-o', f'UserKnownHostsFile={file}')}",
            )
        return SshError(
            f"{self} is not a known host: it shows {shown}, and {file} does not name it",
            f"compare the fingerprint, then log in once: {self.command('-o', f'UserKnownHostsFile={file}')}",
        )


def _known_hosts(settings: AttachedSettings, configured: object) -> list[Path]:
    """The files of known hosts: those of the plan, else of the user's ssh configuration, else where ssh has them."""
    if settings.known_hosts is not None:
        return [settings.known_hosts.expanduser()]
    if isinstance(configured, list) and configured:
        return [Path(str(path)).expanduser() for path in configured]
    return [Path("~/.ssh/known_hosts").expanduser(), _SYSTEM_KNOWN_HOSTS]


class _HostKeys(asyncssh.SSHClient):
    """Remembers the key that no known host has, and trusts none."""

    offered: asyncssh.SSHKey | None = None

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.offered = key
        return False

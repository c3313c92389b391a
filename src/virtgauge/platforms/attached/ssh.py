"""Machines by ssh."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncssh

from virtgauge.agent.channel import Channel
from virtgauge.errors import VirtgaugeError
from virtgauge.plan import Hop
from virtgauge.platforms.attached.platform import LEASE_S, AttachedGuest, MachineSettings
from virtgauge.platforms.attached.remote_shell import BASES, Placement, PlacementError, removal_command
from virtgauge.platforms.attempt import LaunchAttempt, PipePair, log_tail
from virtgauge.platforms.base import Availability, Guest, GuestSpec, LaunchError

CONNECT_S = 15.0
_KEEPALIVE_S, _KEEPALIVES = 15, 3
"""A remote machine that has vanished is noticed after as many unanswered questions, which its ssh server answers."""
_LOOK_S = 20.0
_END_S = 3.0
_SETTLE_S, _CLOSE_S = 0.5, 1.0
_SUDO_REMEDY = "allow it without a password there (NOPASSWD in sudoers), log in as root, or leave sudo out"


class SshError(VirtgaugeError):
    """The machine cannot be reached, or one side refuses the other."""


@contextlib.asynccontextmanager
async def connected(settings: MachineSettings) -> AsyncIterator[asyncssh.SSHClientConnection]:
    """A connection to the machine of the settings, through its jump host where it has one; closed at the end.
    Raises SshError: it cannot be had; nobody is ever asked for a password, and no unknown host is trusted.
    """
    assert settings.host is not None
    async with contextlib.AsyncExitStack() as open_connections:
        tunnel = None
        if settings.jump_host is not None:
            tunnel = await _connect(Hop.parse(settings.jump_host), settings, None, "the jump host ")
            open_connections.push_async_callback(_close, tunnel)
        connection = await _connect(Hop(settings.host, settings.user, settings.port), settings, tunnel, "")
        open_connections.push_async_callback(_close, connection)
        yield connection


async def _close(connection: asyncssh.SSHClientConnection) -> None:
    """Say goodbye, for at most a second; the remote side sees the end of the connection in any case."""
    connection.close()
    try:
        async with asyncio.timeout(1.0):
            await connection.wait_closed()
    except TimeoutError:
        pass
    finally:
        connection.abort()


async def _connect(
    hop: Hop, settings: MachineSettings, tunnel: asyncssh.SSHClientConnection | None, what: str
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

    def __init__(self, hop: Hop, settings: MachineSettings, what: str) -> None:
        self._hop, self._what, self._seen = hop, what, _HostKeys()
        self._wanted: dict[str, Any] = {
            "port": hop.port or (),
            "username": hop.user or (),
            "client_keys": () if settings.identity_file is None else [str(settings.identity_file.expanduser())],
            "preferred_auth": "gssapi-with-mic,hostbased,publickey",
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
        return shlex.join(["ssh", *options, "-p", str(self.port), f"{self.user}@{self.host}"])

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


def _known_hosts(settings: MachineSettings, configured: object) -> list[Path]:
    """The files of known hosts: those of the plan, else of the user's ssh configuration, else where ssh has them."""
    if settings.known_hosts is not None:
        return [settings.known_hosts.expanduser()]
    if isinstance(configured, list) and configured:
        return [Path(str(path)).expanduser() for path in configured]
    return [Path("~/.ssh/known_hosts").expanduser(), Path("/etc/ssh/ssh_known_hosts")]


class _HostKeys(asyncssh.SSHClient):
    """Remembers the key that no known host has, and trusts none."""

    offered: asyncssh.SSHKey | None = None

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.offered = key
        return False


class SshAttempt(LaunchAttempt):
    """An attempt whose guest is a command of an ssh session."""

    process: asyncssh.SSHClientProcess[bytes] | None = None
    pipes: PipePair | None = None

    def end_of_process(self) -> str | None:
        if self.process is None or not self.process.is_closing():
            return None
        code = self.process.returncode
        if code is None:
            return "the ssh connection was lost"
        return f"the agent was killed by signal {-code}" if code < 0 else f"the agent exited with status {code}"

    async def settle(self) -> None:
        await self.wait_closed(_SETTLE_S)

    async def wait_closed(self, within_s: float) -> None:
        """Wait for the command to end and its files here to be closed; no longer than that."""
        if self.process is not None:
            with contextlib.suppress(TimeoutError, asyncssh.Error):
                async with asyncio.timeout(within_s):
                    await self.process.wait_closed()


async def look(settings: MachineSettings) -> Availability:
    """Log in and look around; nothing is copied.  Raises SshError: the login fails."""
    try:
        async with asyncio.timeout(_LOOK_S * 2), connected(settings) as there:
            found = await there.run("exec uname -srm", check=False, timeout=_LOOK_S)
            sudo = await there.run("exec sudo -n true", check=False) if settings.sudo else None
    except (asyncssh.Error, OSError, TimeoutError) as error:
        return Availability(False, f"{settings.host}: the login works, a command does not: {error}")
    system, _, rest = str(found.stdout).strip().partition(" ")
    release, _, machine = rest.rpartition(" ")
    key = there.get_server_host_key()
    details = {"kernel": release, "machine": machine, "host_key": "" if key is None else key.get_fingerprint()}
    details["ssh_server"] = str(there.get_extra_info("server_version", ""))
    if (system, machine) != ("Linux", "x86_64"):
        reason = f"{settings.host} is a {system} on {machine}: the agent is a program for Linux on x86-64"
        return Availability(False, reason, details=details)
    if sudo is not None and sudo.exit_status != 0:
        words = str(sudo.stderr).strip() or f"status {sudo.exit_status}"
        return Availability(False, f"{settings.host}: sudo does not start a program: {words}", _SUDO_REMEDY)
    return Availability(True, f"{settings.host} answers by ssh ({release})", details=details)


async def launch(settings: MachineSettings, spec: GuestSpec, label: str) -> Guest:
    """Start an agent there.  Raises LaunchError: naming what failed; nothing is left on either side."""
    async with contextlib.AsyncExitStack() as held:
        folder = spec.scope.guest_folder(spec.name)
        held.callback(shutil.rmtree, folder, ignore_errors=True)
        attempt = SshAttempt(spec, log := folder / "agent.log")
        try:
            async with asyncio.timeout(attempt.remaining_s):
                there = await held.enter_async_context(connected(settings))
                reader, writer, remote_folder = await _start(there, settings, attempt, held, log)
        except SshError as error:
            raise LaunchError("ssh", str(error)) from error
        except PlacementError as error:
            raise attempt.failure("copy", str(error)) from error
        except TimeoutError as error:
            words = f"{settings.host} had not taken the agent within {spec.ready_timeout_s:g} s"
            raise attempt.failure("copy", words) from error
        except (asyncssh.Error, OSError) as error:
            raise attempt.failure("ssh", f"{settings.host}: {error}") from error
        try:
            channel = await attempt.open_channel(reader, writer)
        except LaunchError as error:
            if settings.sudo and "sudo:" in log_tail(log):
                raise attempt.failure("sudo", f"sudo did not start the agent\n  → {_SUDO_REMEDY}") from error
            raise
        held.push_async_callback(_end, there, attempt, channel, remote_folder)
        return AttachedGuest(channel=channel, ready_ns=attempt.ready_ns(), label=label, held=held.pop_all())


async def _start(
    connection: asyncssh.SSHClientConnection,
    settings: MachineSettings,
    attempt: SshAttempt,
    held: contextlib.AsyncExitStack,
    log: Path,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str]:
    """Put the agent into the first folder that takes it, and start it there; its streams and the folder."""
    reasons: list[str] = []
    spec = attempt.spec
    held.push_async_callback(attempt.wait_closed, _CLOSE_S)  # after the pipes were closed, which end the remote side
    for base in BASES if settings.folder is None else (settings.folder,):
        placement = Placement(spec.agent, base, spec.scope.tag, settings.sudo, LEASE_S)
        pipes = attempt.pipes = PipePair()
        held.callback(pipes.close)
        reader, writer = await pipes.streams()
        attempt.process = await _run(connection, placement.command(), pipes, log)
        try:
            return reader, writer, await placement.carry_out(reader, writer)
        except PlacementError as error:
            await attempt.settle()
            said = log_tail(log).splitlines()
            reasons.append(f"{error} ({said[-1].strip()})" if said else str(error))
            pipes.close()
            if not error.elsewhere:
                break
    remedy = 'make room there, or name a folder in which programs may be started: folder = "/path"'
    raise PlacementError(f"{settings.host}: {'; '.join(dict.fromkeys(reasons))}\n  → {remedy}")


async def _run(
    connection: asyncssh.SSHClientConnection, command: str, pipes: PipePair, log: Path
) -> asyncssh.SSHClientProcess[bytes]:
    """Run a command there with the guest's ends of the pipes; its errors go to the log."""
    # As files and not as numbers: whoever closes them, and however often, closes nothing else.
    with contextlib.ExitStack() as undo:
        source = undo.enter_context(os.fdopen(os.dup(pipes.guest_stdin), "rb", buffering=0))
        target = undo.enter_context(os.fdopen(os.dup(pipes.guest_stdout), "wb", buffering=0))
        process = await connection.create_process(command, stdin=source, stdout=target, stderr=str(log), encoding=None)
        undo.pop_all()
    pipes.close_guest_ends()
    return process


async def _end(connection: asyncssh.SSHClientConnection, attempt: SshAttempt, channel: Channel, folder: str) -> None:
    """Wait for the agent and its folder to be gone; what does not go by itself is killed and removed."""
    assert attempt.process is not None
    assert attempt.pipes is not None
    attempt.pipes.close()  # the end of the stream, for an agent that was not asked to end
    with contextlib.suppress(asyncssh.Error, OSError, TimeoutError):
        try:
            async with asyncio.timeout(_END_S):
                await attempt.process.wait_closed()
        except TimeoutError:
            pid = channel.welcome.get("pid")  # as the other side said it: of one that is no number only the folder goes
            async with asyncio.timeout(_END_S):
                await connection.run(removal_command(folder, pid if isinstance(pid, int) else 0), check=False)

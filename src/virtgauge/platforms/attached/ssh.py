"""The agent on a machine that is reached by ssh: copied, checked, run over the session, removed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from pathlib import Path

import asyncssh

from virtgauge.agent.channel import Channel
from virtgauge.platforms.attached.far_shell import Placement, PlacementError, bases, removal_command
from virtgauge.platforms.attached.guest import LEASE_S, AttachedGuest
from virtgauge.platforms.attached.settings import AttachedSettings
from virtgauge.platforms.attached.ssh_connection import SshError, connected
from virtgauge.platforms.attempt import LaunchAttempt, log_tail
from virtgauge.platforms.base import Availability, Guest, GuestSpec, LaunchError
from virtgauge.platforms.streams import PipePair

_LOOK_S = 20.0
_END_S = 3.0
_SETTLE_S, _CLOSE_S = 0.5, 1.0
_SUDO_REMEDY = "allow it without a password there (NOPASSWD in sudoers), log in as root, or leave sudo out"


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


async def look(settings: AttachedSettings) -> Availability:
    """Log in and look around; nothing is copied."""
    try:
        async with asyncio.timeout(_LOOK_S * 2), connected(settings) as there:
            found = await there.connection.run("exec uname -srm", check=False, timeout=_LOOK_S)
            sudo = await there.connection.run("exec sudo -n true", check=False) if settings.sudo else None
    except SshError as error:
        return Availability(False, error.message, error.remedy)
    except (asyncssh.Error, OSError, TimeoutError) as error:
        return Availability(False, f"{settings.host}: the login works, a command does not: {error}")
    system, _, rest = str(found.stdout).strip().partition(" ")
    release, _, machine = rest.rpartition(" ")
    details = {"kernel": release, "machine": machine, "host_key": there.host_key, "ssh_server": there.server}
    if (system, machine) != ("Linux", "x86_64"):
        reason = f"{settings.host} is a {system} on {machine}: the agent is a program for Linux on x86-64"
        return Availability(False, reason, details=details)
    if sudo is not None and sudo.exit_status != 0:
        words = str(sudo.stderr).strip() or f"status {sudo.exit_status}"
        return Availability(False, f"{settings.host}: sudo does not start a program: {words}", _SUDO_REMEDY)
    return Availability(True, f"{settings.host} answers by ssh ({release})", details=details)


async def launch(settings: AttachedSettings, spec: GuestSpec, label: str) -> Guest:
    """Start an agent there.

    Raises:
        LaunchError: naming what failed; nothing is left on either side.
    """
    async with contextlib.AsyncExitStack() as held:
        folder = spec.scope.guest_folder(spec.name)
        held.callback(shutil.rmtree, folder, ignore_errors=True)
        attempt = SshAttempt(spec, log := folder / "agent.log")
        try:
            async with asyncio.timeout(attempt.remaining_s):
                there = await held.enter_async_context(connected(settings))
                reader, writer, far_folder = await _start(there.connection, settings, attempt, held, log)
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
        held.push_async_callback(_end, there.connection, attempt, channel, far_folder)
        return AttachedGuest(channel=channel, ready_ns=attempt.ready_ns(), label=label, held=held.pop_all())


async def _start(
    connection: asyncssh.SSHClientConnection,
    settings: AttachedSettings,
    attempt: SshAttempt,
    held: contextlib.AsyncExitStack,
    log: Path,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, str]:
    """Put the agent into the first folder that takes it, and start it there; its streams and the folder."""
    reasons: list[str] = []
    spec = attempt.spec
    held.push_async_callback(attempt.wait_closed, _CLOSE_S)  # after the pipes were closed, which end the far side
    for base in bases(settings.folder):
        placement = Placement(spec.agent, base, spec.scope.tag, settings.sudo, LEASE_S)
        pipes = attempt.pipes = PipePair()
        held.callback(pipes.close)
        reader, writer = await pipes.streams()
        attempt.process = await _run(connection, placement.command(), pipes, log)
        try:
            return reader, writer, await placement.carry_out(reader, writer)
        except PlacementError as error:
            await attempt.settle()
            reasons.append(f"{error}{_last_line(log)}")
            pipes.close()
            if not error.elsewhere:
                break
    raise PlacementError(_no_folder(reasons, settings))


def _no_folder(reasons: list[str], settings: AttachedSettings) -> str:
    remedy = 'make room there, or name a folder in which programs may be started: folder = "/path"'
    return f"{settings.host}: " + "; ".join(dict.fromkeys(reasons)) + f"\n  → {remedy}"


def _last_line(log: Path) -> str:
    lines = log_tail(log).splitlines()
    return f" ({lines[-1].strip()})" if lines else ""


async def _run(
    connection: asyncssh.SSHClientConnection, command: str, pipes: PipePair, log: Path
) -> asyncssh.SSHClientProcess[bytes]:
    """Run a command there with the guest's ends of the pipes; its errors go to the log."""
    # As files and not as numbers: whoever closes them, and however often, closes nothing else.
    source = os.fdopen(os.dup(pipes.guest_stdin), "rb", buffering=0)
    target = os.fdopen(os.dup(pipes.guest_stdout), "wb", buffering=0)
    try:
        process = await connection.create_process(command, stdin=source, stdout=target, stderr=str(log), encoding=None)
    except BaseException:
        source.close()
        target.close()
        raise
    pipes.close_guest_ends()
    return process


async def _end(
    connection: asyncssh.SSHClientConnection,
    attempt: SshAttempt,
    channel: Channel,
    folder: str,
) -> None:
    """Wait for the agent and its folder to be gone; what does not go by itself is killed and removed."""
    assert attempt.process is not None
    assert attempt.pipes is not None
    attempt.pipes.close()  # the end of the stream, for an agent that was not asked to end
    with contextlib.suppress(asyncssh.Error, OSError, TimeoutError):
        try:
            async with asyncio.timeout(_END_S):
                await attempt.process.wait_closed()
        except TimeoutError:
            async with asyncio.timeout(_END_S):
                await connection.run(removal_command(folder, int(channel.welcome["pid"])), check=False)

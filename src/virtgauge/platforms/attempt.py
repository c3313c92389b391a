"""A launch that is under way: the streams to the agent, its bound in time, and what is told when it fails."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import time
import tty
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from virtgauge.agent.channel import AgentError, Channel, ChannelClosedError, HandshakeError
from virtgauge.agent.messages import ProtocolError
from virtgauge.errors import printable
from virtgauge.host.process import child_setup, end_process, wait_for_exit
from virtgauge.network import Nic
from virtgauge.platforms.base import Guest, GuestSpec, LaunchError

WRITE_BACK_S = 30.0  # How long a guest with a disk may take to power off: it writes back what it was not asked to flush

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def file_streams(reading: int, writing: int, closing: contextlib.ExitStack) -> Streams:
    """Streams over two descriptors, which are theirs from now on, until ``closing`` is closed."""
    with contextlib.ExitStack() as undo:
        source = undo.enter_context(os.fdopen(reading, "rb", buffering=0))
        target = undo.enter_context(os.fdopen(writing, "wb", buffering=0))
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
        incoming, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
        undo.callback(incoming.close)
        # a reader's protocol also for writing: it is the one that knows when the transport is closed
        outgoing, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), target
        )
        undo.pop_all()
    closing.callback(outgoing.close)
    closing.callback(incoming.close)
    return reader, asyncio.StreamWriter(outgoing, protocol, None, loop)


async def terminal_streams(terminal: Path | str, closing: contextlib.ExitStack) -> Streams:
    """Streams over a terminal that passes every byte.  Raises OSError: it cannot be opened."""
    descriptor = os.open(terminal, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    with _closing(descriptor) as undo:
        tty.setraw(descriptor)
        writing = os.dup(descriptor)
        undo.pop_all()
    return await file_streams(descriptor, writing, closing)


class LaunchedGuest(Guest):
    """A guest whose end undoes what its launch has made.

    Closing asks the agent to end, for at most a second and a half, and then removes by force, whatever happens:
    removal is synchronous, so that a cancelled task or a closing event loop cannot leave half of it undone.
    """

    def __init__(
        self,
        *,
        channel: Channel,
        ready_ns: int,
        label: str,
        removal: contextlib.ExitStack,  # undoes everything that launching made, last first
        # waits for the guest to end by itself after the agent has said goodbye
        before_removal: Callable[[], Awaitable[object]] | None = None,
        disk: str | None = None,
    ) -> None:
        self.channel, self.ready_ns, self.label, self.disk = channel, ready_ns, label, disk
        self._removal, self._before_removal = removal, before_removal

    async def close(self) -> None:
        removal, self._removal = self._removal, contextlib.ExitStack()
        before, self._before_removal = self._before_removal, None
        with removal:
            await self.channel.shutdown(1.5)
            if before is not None:
                await before()


def _closing(*descriptors: int) -> contextlib.ExitStack:
    """Closes them, unless they were taken out before."""
    stack = contextlib.ExitStack()
    for descriptor in descriptors:
        stack.callback(os.close, descriptor)
    return stack


class PipePair:
    """Two pipes: the guest's standard input and output, and the controller's ends of them.

    The guest's ends (``guest_stdin``, ``guest_stdout``) are handed to the child and closed by :meth:`close_guest_ends`
    as soon as it has them, so that the end of the guest is the end of the stream.
    """

    def __init__(self) -> None:
        self.guest_stdin, writing = os.pipe()
        reading, self.guest_stdout = os.pipe()
        self._ours = reading, writing
        self._guest_ends = _closing(self.guest_stdin, self.guest_stdout)
        self._own_ends = _closing(reading, writing)

    async def streams(self) -> Streams:
        """Reader of what the guest writes, writer of what it reads."""
        self._own_ends.pop_all()  # they are the streams' from now on
        return await file_streams(*self._ours, self._own_ends)

    def close_guest_ends(self) -> None:
        self._guest_ends.close()

    def close(self) -> None:
        """Close everything still open; idempotent."""
        self._own_ends.close()
        self._guest_ends.close()


class SocketPair:
    """A connected pair of Unix sockets: one end inherited by a child, one for the controller."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._own_end = contextlib.ExitStack()
        self._own_end.callback(self.ours.close)

    async def streams(self) -> Streams:
        reader, writer = await asyncio.open_connection(sock=self.ours)
        self._own_end.pop_all()
        self._own_end.callback(writer.transport.close)
        return reader, writer

    def close(self) -> None:
        """Close both ends; idempotent."""
        self._own_end.close()
        self.theirs.close()


class TerminalPair:
    """A terminal that passes every byte: its end is a child's, and what was typed comes from the controller."""

    def __init__(self) -> None:
        self._ours, theirs = os.openpty()
        self.theirs = os.fdopen(theirs, "r+b", buffering=0)
        tty.setraw(theirs)
        self._own_end = _closing(self._ours)

    async def streams(self) -> Streams:
        self._own_end.pop_all()  # it is the streams' from now on
        return await file_streams(self._ours, os.dup(self._ours), self._own_end)

    def close(self) -> None:
        """Close both ends; idempotent."""
        self._own_end.close()
        self.theirs.close()


class LaunchAttempt:
    """What a launch needs to tell a failure well: when it began, until when it may last, and where output goes."""

    def __init__(self, spec: GuestSpec, *logs: Path) -> None:
        self.spec = spec
        self.logs = logs
        self.started_ns = time.monotonic_ns()

    def end_of_process(self) -> str | None:
        """How the guest's main process ended, in words; None while it runs, or where it is no process of this host."""
        return None

    async def settle(self) -> None:
        """Give a dying process a moment, so that its end can be named rather than the broken stream."""

    def note(self, noise: bytes) -> None:
        """Keep in the last of the logs what else is on the line that is the agent's channel, until that is removed."""
        with contextlib.suppress(OSError), self.logs[-1].open("ab") as log:
            log.write(noise)

    @property
    def remaining_s(self) -> float:
        """Of the time the guest may take to become ready; at least a little, so that a bound is never zero."""
        return max(0.1, self.spec.ready_timeout_s - (time.monotonic_ns() - self.started_ns) / 1e9)

    async def open_channel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Channel:
        """Shake hands with the agent.  Raises LaunchError: the guest died, said something else, or nothing in time."""
        try:
            return await Channel.open(reader, writer, self.spec.agent.sha256, self.remaining_s, self.spec.roots)
        except (ChannelClosedError, HandshakeError, ProtocolError, OSError) as error:
            if isinstance(error, (ChannelClosedError, OSError)):
                await self.settle()
            ended = self.end_of_process()
            if ended is not None:
                raise self.failure("boot", f"{ended} before its agent answered") from error
            raise self.failure("handshake", str(error)) from error

    async def configure_network(self, channel: Channel, nics: Sequence[Nic]) -> None:
        """Have the agent set up the interfaces of a guest with a network stack of its own, and its forwarding.
        Raises LaunchError: it could not.
        """
        if not nics and not self.spec.forwarding:
            return
        interfaces = [nic.request() for nic in nics]
        try:
            await channel.request(
                "network", interfaces=interfaces, forwarding=self.spec.forwarding, timeout_s=self.remaining_s
            )
        except (AgentError, ChannelClosedError, ProtocolError, TimeoutError) as error:
            raise self.failure("network", f"the guest's interfaces cannot be configured: {error}") from error

    def failure(self, stage: str, message: str) -> LaunchError:
        """The error for a failed stage, with what the guest printed last."""
        return LaunchError(stage, message, "\n".join(tail for log in self.logs if (tail := log_tail(log))))

    def ready_ns(self) -> int:
        return time.monotonic_ns() - self.started_ns

    def given(self, channel: Channel, label: str, removal: contextlib.ExitStack) -> dict[str, Any]:
        """What every :class:`LaunchedGuest` takes, of one that is ready now; ``removal`` passes to it."""
        return {"channel": channel, "ready_ns": self.ready_ns(), "label": label, "removal": removal.pop_all()}


class ProcessAttempt(LaunchAttempt):
    """An attempt whose guest is a child of the controller."""

    def __init__(self, spec: GuestSpec, what: str, *logs: Path) -> None:
        super().__init__(spec, *logs)
        self.what = what  # to call it in an error
        self.process: subprocess.Popen[bytes] | None = None

    def start(
        self,
        command: Sequence[str],
        removal: contextlib.ExitStack,
        *,
        log: Path,  # takes its messages, and its output where that has no place of its own
        steps: Iterable[Callable[[], None]],  # taken in the process before its program, as the way into a cgroup
        cpus: Collection[int] | None = None,  # that it may use; the specification's without it
        environment: dict[str, str] | None = None,  # the scope's without it
        stdin: int = subprocess.DEVNULL,
        stdout: int | None = None,
        descriptors: tuple[int, ...] = (),  # that it inherits besides
    ) -> subprocess.Popen[bytes]:
        """Start the guest's process, in the guest's folder.  Raises LaunchError: it does not start."""
        try:
            with log.open("ab") as messages:
                process = subprocess.Popen(
                    command,
                    stdin=stdin,
                    stdout=messages if stdout is None else stdout,
                    stderr=messages,
                    env=environment or self.spec.scope.environment(),
                    cwd=log.parent,
                    preexec_fn=child_setup(*steps, cpus=cpus or self.spec.cpus),
                    pass_fds=descriptors,
                    start_new_session=True,  # a Ctrl-C in the terminal is for the controller
                )
        except (OSError, subprocess.SubprocessError) as error:
            raise LaunchError("start", f"{command[0]}: {error}") from error
        self.process = process
        removal.callback(end_process, process)
        return process

    def end_of_process(self) -> str | None:
        code = None if self.process is None else self.process.poll()
        return None if code is None else f"{self.what} {ending(code)}"

    async def settle(self) -> None:
        if self.process is not None:
            await wait_for_exit(self.process, 0.5)


def ending(code: int) -> str:
    """A return code of subprocess in words."""
    return f"was killed by signal {-code}" if code < 0 else f"exited with status {code}"


def log_tail(path: Path) -> str:
    """The last lines of a log, without what could steer a terminal; empty when there is none."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 4096))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(printable(line.expandtabs()) for line in text.splitlines()[-25:])

"""Machines that call the controller: what they are given, where they call, and the guests that they become.

Where a machine's agent calls: everybody else gets nothing, and holds nobody up.

Whoever connects is sent nothing before it has spoken TLS, and no application data before it has shown the one
certificate that is let in.  Handshakes run side by side, each for a few seconds at most; when too many are under way,
the oldest makes room, because the right one takes milliseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import shlex
import socket
import ssl
from collections import Counter
from pathlib import Path

from virtgauge.agent import AgentBinary
from virtgauge.agent.channel import Channel, ChannelClosedError, HandshakeError
from virtgauge.agent.messages import ProtocolError
from virtgauge.errors import VirtgaugeError
from virtgauge.host.scope import Scope
from virtgauge.platforms.attached.credentials import Credentials, write_secret
from virtgauge.platforms.attached.platform import AttachedGuest, Endpoint, MachineSettings
from virtgauge.platforms.attempt import LaunchAttempt
from virtgauge.platforms.base import Availability, Guest, GuestSpec, LaunchError

KIT_NAME, IDENTITY_NAME = "dial-in.sh", "identity.pem"

# POSIX, as the machine may have nothing but busybox.  The agent follows the last line of the script.
_SCRIPT = """\
#!/bin/sh
# Starts the agent of virtgauge, which calls the controller at {controller}, and removes it at the end.
# The identity in here is a secret, and of no use after {expires} (UTC).
set -u
umask 077
d=
gone() {{ test -z "$d" || rm -rf -- "$d"; }}
trap gone EXIT
trap 'exit 1' HUP INT TERM
test "$(uname -s)-$(uname -m)" = Linux-x86_64 || {{ echo "the agent is a program for Linux on x86-64" >&2; exit 1; }}
for b in ${{1:-}} "${{TMPDIR:-/tmp}}" /var/tmp /dev/shm "${{HOME:-/root}}"; do
    d=$(mktemp -d "$b/virtgauge.dial-in.XXXXXX" 2>/dev/null) || {{ d=; continue; }}
    if tail -n +{lines} "$0" > "$d/agent" && chmod 500 "$d/agent" && "$d/agent" --version > /dev/null; then break; fi
    rm -rf -- "$d"; d=
done
test -n "$d" || {{ echo "no folder takes the agent and may start programs; name one: sh $0 FOLDER" >&2; exit 1; }}
a=$(CDPATH= cd -- "$d" && pwd) && cd "$a" && d=$a || exit 1
h=$(sha256sum "$d/agent" || openssl dgst -sha256 -r "$d/agent")
test "${{h%% *}}" = {sha256} || {{ echo "the copy of this file is damaged" >&2; exit 1; }}
cat > "$d/identity" <<'{end}'
{identity}{end}
"$d/agent" --dial {controller} --identity "$d/identity" &
p=$!
trap 'kill "$p"; wait "$p"; exit 1' HUP INT TERM
wait "$p"
exit $?
"""
HANDSHAKE_S = 5.0
_MOST_HANDSHAKES = 64
KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 60_000),  # ms that what was sent may stay unconfirmed
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
)
"""A way that fails is noticed by the kernel: after 30 s of silence it asks every 10 s, three times."""
_REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "showed no certificate",
    "CERTIFICATE_VERIFY_FAILED": "showed a certificate that is not of this run",
    "TLSV1_ALERT_UNKNOWN_CA": "did not accept our certificate (it has the identity of another run)",
    "SSLV3_ALERT_BAD_CERTIFICATE": "did not accept our certificate (it has the identity of another run)",
    "TLSV1_ALERT_DECRYPT_ERROR": "did not accept our certificate (it has the identity of another run)",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "finds our certificate expired (is its clock right?)",
    "UNSUPPORTED_PROTOCOL": "spoke an older TLS than 1.3",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "did not accept our certificate",
}


def write_kit(folder: Path, agent: AgentBinary, credentials: Credentials, controller: Endpoint) -> Path:
    """Write the script, and the identity alone for a machine that has the agent already; both secret.
    Returns the script.  Raises OSError: they cannot be written, or are there already.
    """
    expires = datetime.datetime.fromtimestamp(credentials.expires, datetime.UTC)
    script = _SCRIPT.format(
        controller=shlex.quote(str(controller)),
        expires=f"{expires:%Y-%m-%d %H:%M}",
        lines="@LINES@",
        sha256=agent.sha256,
        identity=credentials.identity(),
        end="virtgauge-end-of-identity",
    )
    script = script.replace("@LINES@", str(script.count("\n") + 1))
    write_secret(folder / IDENTITY_NAME, credentials.identity())
    path = folder / KIT_NAME
    write_secret(path, script.encode() + agent.path.read_bytes())
    return path


class RefusedCallers(Counter[str]):
    """Connections that were refused, by what they did."""

    def words(self) -> str | None:
        """The refused calls for people; None where there were none."""
        each = ", ".join(f"{count} {reason}" for reason, count in self.most_common())
        return f"calls of others that were refused: {each}" if each else None


class Listener:
    """Waits for the agent of one launch."""

    def __init__(self, endpoint: Endpoint, credentials: Credentials, refused_callers: RefusedCallers) -> None:
        """Begin to listen; ``refused_callers`` gets whoever is refused.
        Raises OSError: the address is not this machine's, or the port is taken.
        """
        self._context, self._expected = credentials.context(), credentials.agent_certificate()
        self._refused_callers = refused_callers
        self._arrived: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
        self._handshakes: dict[asyncio.Task[None], None] = {}  # in the order of their beginning
        family = socket.AF_INET6 if ":" in endpoint.address else socket.AF_INET
        self._socket = socket.create_server(
            (endpoint.address, endpoint.port), family=family, backlog=256, reuse_port=False
        )
        self._socket.setblocking(False)
        self._door = asyncio.create_task(self._answer())

    async def arrival(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The streams of the next agent that has proved to be ours; cancel it to wait no longer."""
        return await self._arrived.get()

    async def aclose(self) -> None:
        """Listen no longer; whoever has not been taken is turned away."""
        unfinished = [self._door, *self._handshakes]
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        self._socket.close()
        while not self._arrived.empty():
            _, writer = self._arrived.get_nowait()
            writer.transport.abort()

    async def _answer(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._socket)
            except OSError:  # gone again before it was accepted, or no descriptor is left
                await asyncio.sleep(0.05)
                continue
            if len(self._handshakes) >= _MOST_HANDSHAKES:
                oldest = next(iter(self._handshakes))
                self._handshakes.pop(oldest)
                oldest.cancel()
                self._refused_callers["made room for others"] += 1
            task = asyncio.create_task(self._shake_hands(connection))
            self._handshakes[task] = None
            task.add_done_callback(lambda done: self._handshakes.pop(done, None))

    async def _shake_hands(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=2**20)
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            connection.setblocking(False)
            for option in KEEPALIVE:
                connection.setsockopt(*option)
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol, connection, ssl=self._context, ssl_handshake_timeout=HANDSHAKE_S
            )
        except (OSError, TimeoutError) as error:  # an SSLError is an OSError
            connection.close()
            self._refused_callers[_reason(error)] += 1
            return
        shown: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        if shown is None or shown.getpeercert(binary_form=True) != self._expected:
            transport.abort()
            self._refused_callers["showed a certificate that is not of this run"] += 1
            return
        self._arrived.put_nowait((reader, asyncio.StreamWriter(transport, protocol, reader, loop)))


def _reason(error: BaseException) -> str:
    if isinstance(error, ssl.SSLError):
        return _REASONS.get(error.reason or "", "did not speak TLS")
    if isinstance(error, (TimeoutError, ConnectionAbortedError)):
        return f"said nothing that counts within {HANDSHAKE_S:g} s"
    return "hung up"


class DialIn:
    """The controller's side of one machine, for one run."""

    def __init__(self, settings: MachineSettings) -> None:
        assert settings.listen is not None
        self._settings = settings
        self._endpoint = Endpoint.parse(settings.listen)
        self._credentials: Credentials | None = None
        self._waited = False
        self._guest = asyncio.Lock()  # is held while there is one
        self.refused_callers = RefusedCallers()  # who else has called, by what they did

    async def look(self) -> Availability:
        """Whether it can be listened here; whether the machine will call, only the run can tell.
        Raises VirtgaugeError: it cannot, or the credentials of the plan cannot be used.
        """
        if self._settings.credentials is not None:
            Credentials.load(self._settings.credentials.expanduser())
        try:
            async with contextlib.aclosing(Listener(self._endpoint, Credentials.make(), RefusedCallers())):
                pass
        except OSError as error:
            raise self._no_listening(error) from error
        return Availability(
            True,
            f"listens on {self._endpoint}; whether the machine calls {self._settings.dialled}, only the run can tell",
        )

    def begin(self, scope: Scope, agent: AgentBinary) -> str:
        """Make or read the credentials; returns what a person has to do now.
        Raises VirtgaugeError: those of the plan cannot be used, or the new ones cannot be written.
        """
        dialled = self._settings.dialled
        if self._settings.credentials is not None:
            path = self._settings.credentials.expanduser()
            self._credentials = Credentials.load(path)
            return f"waiting for calls on {self._endpoint} with the credentials of {path}"
        self._credentials = Credentials.make()
        called = self._endpoint
        try:
            folder = scope.guest_folder(f"dial-in-{called.address.replace(':', '-')}-{called.port}")
            kit = write_kit(folder, agent, self._credentials, dialled)
        except OSError as error:
            words = f"what starts the agent on the machine cannot be written below {scope.folder}: {error.strerror}"
            raise VirtgaugeError(
                words, "make room there; two machines cannot call the same address and port"
            ) from error
        return (
            f"start the agent on the machine that shall call {dialled}: copy {kit} there (it is secret) and run "
            f"`sh {kit.name}`; or, where this agent is already: "
            f"`virtgauge-agent --dial {dialled} --identity FILE` with {folder / IDENTITY_NAME}"
        )

    async def launch(self, spec: GuestSpec, label: str) -> Guest:
        """Wait for the machine's next call.  Raises LaunchError: it does not call, or its agent is another one."""
        if self._credentials is None:
            raise LaunchError("dial-in", "no credentials were made: a run makes them when it begins")
        if self._guest.locked():
            raise LaunchError("dial-in", "the machine has a guest already, and can have one at a time")
        # A person may have to start it first; after that it calls within seconds, or is not there.
        patience_s = spec.ready_timeout_s if self._waited else max(self._settings.wait_s, spec.ready_timeout_s)
        attempt = LaunchAttempt(spec)
        async with contextlib.AsyncExitStack() as held:
            await held.enter_async_context(self._guest)
            try:
                async with (
                    asyncio.timeout(patience_s),
                    contextlib.aclosing(Listener(self._endpoint, self._credentials, self.refused_callers)) as listener,
                ):
                    channel = await self._conversation(listener, spec)
            except TimeoutError as error:
                self._waited = True
                raise LaunchError("dial-in", self._silence(patience_s)) from error
            except OSError as error:
                raise LaunchError("listen", str(self._no_listening(error))) from error
            self._waited = True
            return AttachedGuest(channel=channel, ready_ns=attempt.ready_ns(), label=label, held=held.pop_all())

    async def _conversation(self, listener: Listener, spec: GuestSpec) -> Channel:
        while True:
            reader, writer = await listener.arrival()
            try:
                return await Channel.open(reader, writer, spec.agent.sha256, spec.ready_timeout_s, spec.roots)
            except ChannelClosedError:  # it has calls to spare
                continue
            except (HandshakeError, ProtocolError) as error:
                raise LaunchError(
                    "handshake",
                    f"the agent that called is not the one of this virtgauge: {error}\n"
                    f"  → give the machine this one: {spec.agent.path}",
                ) from error

    def _silence(self, waited_s: float) -> str:
        refused, dialled = self.refused_callers.words(), self._settings.dialled
        return (
            f"no agent has called {dialled} within {waited_s:g} s"
            + (f"; {refused}" if refused else "")
            + "\n  → start it there as said at the beginning of the run; from there "
            + f"`nc -vz {dialled.address} {dialled.port}` must connect while the run waits "
            + "(a firewall, a NAT without forwarding, another network?); wait_s in the plan is how long to wait"
        )

    def _no_listening(self, error: OSError) -> VirtgaugeError:
        words = f"cannot listen on {self._endpoint}: {error.strerror or error}"
        return VirtgaugeError(words, "name an address of this machine and a free port as listen")

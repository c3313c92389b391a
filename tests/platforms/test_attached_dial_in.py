"""Machines whose agent dials in: real TLS on loopback, and everybody else who may call."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import os
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from platforms import guest_checks as check
from platforms.conftest import running
from platforms.recording_relay import RecordingRelay

from virtgauge.agent import AgentBinary
from virtgauge.agent.channel import ChannelClosedError
from virtgauge.host.scope import Scope
from virtgauge.platforms.attached.credentials import Credentials, write_secret
from virtgauge.platforms.attached.dial_in import HANDSHAKE_S
from virtgauge.platforms.attached.platform import AttachedPlatform, AttachedSettings
from virtgauge.platforms.base import GuestSpec, LaunchError

pytestmark = pytest.mark.slow
Spec = Callable[..., GuestSpec]


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclasses.dataclass(frozen=True)
class Run:
    """A platform as a run has it, and the files that it made for the machine."""

    platform: AttachedPlatform
    words: str
    folder: Path
    port: int

    @property
    def identity(self) -> Path:
        return self.folder / "identity.pem"

    @property
    def kit(self) -> Path:
        return self.folder / "dial-in.sh"


async def begun(scope: Scope, agent: AgentBinary, port: int, **changes: Any) -> Run:
    platform = AttachedPlatform(AttachedSettings(via="dial-in", listen=f"127.0.0.1:{port}", **changes))
    (words,) = await platform.begin(scope, agent)
    return Run(platform, words, scope.folder / f"dial-in-127.0.0.1-{port}", port)


@pytest.fixture
async def run(scope: Scope, agent: AgentBinary, port: int) -> Run:
    return await begun(scope, agent, port)


@contextlib.contextmanager
def dialling(agent: AgentBinary, run: Run, *options: str, port: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """An agent that calls; ended at the end, unless it has by itself."""
    command = [str(agent.path), "--dial", f"127.0.0.1:{port or run.port}", "--identity", str(run.identity), *options]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


async def ended(process: subprocess.Popen[bytes], within_s: float = 20.0) -> int:
    for _ in range(int(within_s / 0.05)):
        if process.poll() is not None:
            return process.returncode
        await asyncio.sleep(0.05)
    raise AssertionError("it still runs")


def kit_folders() -> list[Path]:
    return [path for base in ("/tmp", "/var/tmp", "/dev/shm") for path in Path(base).glob("virtgauge.dial-in.*")]


async def test_one_file_starts_it_and_each_guest_is_a_fresh_process(run: Run, spec: Spec, tmp_path: Path) -> None:
    assert f"copy {run.kit}" in run.words
    assert run.kit.stat().st_mode & 0o777 == run.identity.stat().st_mode & 0o777 == 0o600
    before, pids = set(kit_folders()), set()
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(["sh", str(run.kit)], stdin=subprocess.DEVNULL, env=environment) as kit:
        for _ in range(3):
            guest = await run.platform.launch(spec())
            (folder,) = tmp_path.glob("virtgauge.dial-in.*")
            assert folder.stat().st_mode & 0o777 == 0o700
            facts = await guest.channel.facts()
            assert facts["agent_sha256"] == guest.channel.welcome["agent_sha256"]
            assert guest.accounting().cpu_ns is None
            pids.add(guest.channel.welcome["pid"])
            await guest.close()
        assert len(pids) == 3
        kit.terminate()
        await ended(kit)
    assert list(tmp_path.glob("virtgauge.dial-in.*")) == []
    assert set(kit_folders()) == before


async def test_nothing_of_a_guest_stays_open_here(run: Run, spec: Spec, agent: AgentBinary) -> None:
    with dialling(agent, run):
        async with running(run.platform, spec()) as guest:
            params = {"function": "rdtscp", "samples": 10_000, "max_ns": 10**10, "reservoir": 100_000, "seed": 1}
            reply = await guest.channel.request("probe", name="timer_cost", params=params, timeout_s=60)
            assert reply.value["distribution"]["n"] == 10_000
            assert len(reply.samples["reservoir"]) == 10_000


def everything(connection: socket.socket) -> bytes:
    """What comes until the other side closes."""
    connection.settimeout(20)
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while data := connection.recv(65536):
            received += data
    return received


def hang_up(address: tuple[str, int], _identity: Path) -> bytes:
    """As a port scan does."""
    with socket.create_connection(address):
        return b""


def talk_http(address: tuple[str, int], _identity: Path) -> bytes:
    with socket.create_connection(address) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        return without_alerts(everything(connection))


def without_alerts(records: bytes) -> bytes:
    """What is left of TLS records after the alerts (type 21), which tell a stranger only that it is one."""
    left = b""
    while len(records) >= 5:
        length = int.from_bytes(records[3:5], "big")
        left += b"" if records[0] == 21 else records[: 5 + length]
        records = records[5 + length :]
    return left + records


def talk_tls(address: tuple[str, int], certificate: Path | None, version: ssl.TLSVersion) -> bytes:
    """What application data a client gets that trusts everybody."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = version
    if certificate is not None:
        context.load_cert_chain(certificate)
    with (
        contextlib.suppress(ssl.SSLError, ConnectionError),
        socket.create_connection(address, timeout=20) as connection,
        context.wrap_socket(connection) as secure,
    ):
        return secure.recv(65536)
    return b""


def without_certificate(address: tuple[str, int], _identity: Path) -> bytes:
    return talk_tls(address, None, ssl.TLSVersion.TLSv1_3)


def with_an_older_tls(address: tuple[str, int], identity: Path) -> bytes:
    return talk_tls(address, identity, ssl.TLSVersion.TLSv1_2)


def with_another_runs_certificate(address: tuple[str, int], identity: Path) -> bytes:
    other = identity.with_name("other.pem")
    other.unlink(missing_ok=True)
    write_secret(other, Credentials.make().agent)
    return talk_tls(address, other, ssl.TLSVersion.TLSv1_3)


@pytest.mark.parametrize(
    ("stranger", "counted"),
    [
        (hang_up, "hung up"),
        (talk_http, "did not speak TLS"),
        (without_certificate, "showed no certificate"),
        (with_an_older_tls, "spoke an older TLS than 1.3"),
        (with_another_runs_certificate, "showed a certificate that is not of this run"),
    ],
)
async def test_a_stranger_gets_nothing_is_counted_and_holds_nobody_up(
    run: Run, spec: Spec, agent: AgentBinary, stranger: Callable[[tuple[str, int], Path], bytes], counted: str
) -> None:
    launch = asyncio.create_task(run.platform.launch(spec()))
    await asyncio.sleep(0.2)
    assert await asyncio.to_thread(stranger, ("127.0.0.1", run.port), run.identity) == b""
    for _ in range(100):
        if run.platform.remarks():
            break
        await asyncio.sleep(0.05)
    assert not launch.done()
    with dialling(agent, run):
        guest = await asyncio.wait_for(launch, 20)
        assert (await guest.channel.facts())["agent_sha256"] == agent.sha256
        with pytest.raises(ConnectionRefusedError):  # it has its guest: nobody listens any more
            socket.create_connection(("127.0.0.1", run.port), timeout=5).close()
        await guest.close()
    (remark,) = run.platform.remarks()
    assert f"1 {counted}" in remark


async def test_a_crowd_of_silent_strangers_does_not_keep_the_guest_out(
    run: Run, spec: Spec, agent: AgentBinary
) -> None:
    launch = asyncio.create_task(run.platform.launch(spec()))
    await asyncio.sleep(0.2)
    with contextlib.ExitStack() as crowd:
        for _ in range(200):
            crowd.enter_context(socket.create_connection(("127.0.0.1", run.port)))
            await asyncio.sleep(0)
        with dialling(agent, run):
            guest = await asyncio.wait_for(launch, 20)
            await guest.close()
    (remark,) = run.platform.remarks()
    assert "made room for others" in remark


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02\x00\x01"], ids=["nothing", "half a greeting"])
async def test_a_caller_that_says_nothing_is_dropped_after_five_seconds(run: Run, spec: Spec, said: bytes) -> None:
    launch = asyncio.create_task(run.platform.launch(spec()))
    await asyncio.sleep(0.2)

    def silent() -> tuple[bytes, float]:
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", run.port)) as connection:
            connection.sendall(said)
            return without_alerts(everything(connection)), time.monotonic() - began

    came, took_s = await asyncio.to_thread(silent)
    assert came == b""
    assert HANDSHAKE_S == 5 <= took_s + 0.1
    assert not launch.done()
    launch.cancel()
    await asyncio.gather(launch, return_exceptions=True)
    (remark,) = run.platform.remarks()
    assert "1 said nothing that counts within 5 s" in remark


def test_the_controllers_key_is_on_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "_get_default_tempdir", lambda: pytest.fail("a file was made"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    Credentials.make().context()


async def test_a_replayed_session_gets_no_conversation(run: Run, spec: Spec, agent: AgentBinary) -> None:
    """What a real agent sent in a whole session, sent once more by somebody who has listened."""
    async with RecordingRelay(run.port) as relay:
        with dialling(agent, run, port=relay.port):
            guest = await run.platform.launch(spec())
            await guest.channel.facts()
            await guest.close()
    recorded = relay.sent[0] if len(relay.sent[0]) > 1000 else max(relay.sent, key=len)
    assert len(recorded) > 1000
    launch = asyncio.create_task(run.platform.launch(spec()))
    await asyncio.sleep(0.2)

    def replay() -> None:
        with socket.create_connection(("127.0.0.1", run.port)) as connection:
            connection.sendall(recorded)
            everything(connection)

    await asyncio.to_thread(replay)
    await asyncio.sleep(0.2)
    assert not launch.done()
    assert run.platform.remarks()
    launch.cancel()
    await asyncio.gather(launch, return_exceptions=True)


async def test_an_identity_of_another_run_is_told_on_the_machine(
    run: Run, spec: Spec, agent: AgentBinary, tmp_path: Path
) -> None:
    other = dataclasses.replace(run, folder=tmp_path)
    write_secret(other.identity, Credentials.make().identity())
    launch = asyncio.create_task(run.platform.launch(spec()))
    await asyncio.sleep(0.2)
    with dialling(agent, other, "--attempt", "new") as process:
        assert await ended(process) == 5
        assert process.stderr is not None
        assert b"no controller of this identity" in process.stderr.read()
    assert not launch.done()
    launch.cancel()
    await asyncio.gather(launch, return_exceptions=True)
    assert "identity of another run" in run.platform.remarks()[0]


async def test_a_machine_that_never_calls_is_told_with_what_to_do(
    scope: Scope, agent: AgentBinary, spec: Spec, port: int
) -> None:
    run = await begun(scope, agent, port, wait_s=1)
    asked = spec(ready_timeout_s=0.5)
    launch = asyncio.create_task(run.platform.launch(asked))
    await asyncio.sleep(0.2)
    hang_up(("127.0.0.1", port), run.identity)
    with pytest.raises(LaunchError, match="no agent has called") as caught:
        await launch
    assert f"nc -vz 127.0.0.1 {port}" in str(caught.value)
    assert "1 hung up" in str(caught.value)
    socket.create_server(("127.0.0.1", port)).close()  # nobody listens any more


async def test_a_call_that_is_lost_in_a_trial_fails_it_and_the_machine_calls_again(
    run: Run, spec: Spec, agent: AgentBinary
) -> None:
    with dialling(agent, run):
        guest = await run.platform.launch(spec())
        waiting = asyncio.create_task(guest.channel.request("probe", name="sleep_lateness", params=check.LONG_SLEEPS))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        os.kill(guest.channel.welcome["pid"], signal.SIGKILL)
        with pytest.raises(ChannelClosedError):
            await asyncio.wait_for(waiting, 20)
        await guest.close()
        again = await run.platform.launch(spec())
        assert again.channel.welcome["pid"] != guest.channel.welcome["pid"]
        await again.close()


async def test_an_agent_that_is_there_first_calls_until_the_controller_is(
    run: Run, spec: Spec, agent: AgentBinary
) -> None:
    with dialling(agent, run):
        await asyncio.sleep(1.0)
        guest = await asyncio.wait_for(run.platform.launch(spec()), 20)
        await guest.close()


async def test_an_agent_whose_controller_is_lost_ends_by_itself(run: Run, spec: Spec, agent: AgentBinary) -> None:
    with dialling(agent, run, "--patience", "1") as process:
        guest = await run.platform.launch(spec())
        await guest.close()
        assert await ended(process, 30) == 0
        assert process.stderr is not None
        assert b"no controller has answered for 1 s" in process.stderr.read()


async def test_an_agent_of_another_version_is_refused_with_the_remedy(run: Run, spec: Spec, agent: AgentBinary) -> None:
    with dialling(agent, run):
        newer = AgentBinary(agent.path, "0" * 64)
        with pytest.raises(LaunchError, match="not the one of this virtgauge") as caught:
            await run.platform.launch(spec(agent=newer))
    assert caught.value.stage == "handshake"
    assert str(agent.path) in str(caught.value)


async def test_a_port_that_is_taken_is_told_before_anything_is_started(run: Run, spec: Spec) -> None:
    with socket.create_server(("127.0.0.1", run.port)):
        found = await run.platform.probe()
        assert not found.usable
        assert f"127.0.0.1:{run.port}" in found.reason
        with pytest.raises(LaunchError, match="cannot listen"):
            await run.platform.launch(spec())
    assert (await run.platform.probe()).usable


async def test_a_second_guest_of_one_machine_is_refused(run: Run, spec: Spec, agent: AgentBinary) -> None:
    with dialling(agent, run):
        guest = await run.platform.launch(spec())
        with pytest.raises(LaunchError, match="one at a time"):
            await run.platform.launch(spec())
        await guest.close()


async def test_cancelling_leaves_nothing_listening(run: Run, spec: Spec) -> None:
    for after_s in (0.0, 0.05, 0.2):
        launch = asyncio.create_task(run.platform.launch(spec()))
        await asyncio.sleep(after_s)
        launch.cancel()
        await asyncio.gather(launch, return_exceptions=True)
        socket.create_server(("127.0.0.1", run.port)).close()


async def test_prepared_credentials_serve_until_they_expire(
    scope: Scope, agent: AgentBinary, spec: Spec, port: int, tmp_path: Path
) -> None:
    credentials = Credentials.make(datetime.timedelta(hours=1))
    credentials.save(tmp_path / "credentials.json")
    write_secret(tmp_path / "identity.pem", credentials.identity())
    run = dataclasses.replace(
        await begun(scope, agent, port, credentials=tmp_path / "credentials.json"), folder=tmp_path
    )
    with dialling(agent, run):
        guest = await run.platform.launch(spec())
        await guest.close()
    text = (tmp_path / "identity.pem").read_text()
    (tmp_path / "identity.pem").write_text(re.sub(r"expires \d+", "expires 1", text))
    with dialling(agent, run) as process:
        assert await ended(process) == 0
        assert process.stderr is not None
        assert b"the identity has expired" in process.stderr.read()

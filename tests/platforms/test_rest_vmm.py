"""The launch that Firecracker and Cloud Hypervisor share, with a program in their place: no KVM is needed for that.

Its guest is the real agent on the monitor's terminal; what the real monitors do with the same calls is tried by hand
(docs/platforms/microvms.md).
"""

from __future__ import annotations

import fcntl
import json
import shlex
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import stand_in_monitor
from platforms import guest_checks as check
from platforms.conftest import running, traces

from virtgauge.agent import find_agent
from virtgauge.host.mounts import make_disk_image
from virtgauge.host.policy import Policy
from virtgauge.host.scope import Scope
from virtgauge.network import Nic
from virtgauge.network.links import disconnect, keep_tap
from virtgauge.network.namespace import Namespace
from virtgauge.platforms import boot_probe, create
from virtgauge.platforms.base import Disk, GuestSpec, LaunchError
from virtgauge.platforms.rest_vmm.platform import FirecrackerPlatform, RestVmmGuest, RestVmmPlatform

pytestmark = pytest.mark.slow
Spec = Callable[..., GuestSpec]
Monitor = Callable[..., RestVmmPlatform]
KINDS = ["firecracker", "cloud-hypervisor"]
SETTINGS = {"vcpus": 1}


class JudgedFirecracker(FirecrackerPlatform):
    """One whose guests are known to boot."""

    def __init__(self, settings: RestVmmPlatform.Settings | None = None) -> None:
        super().__init__(settings)
        self._judged = True


@pytest.fixture
def monitor(tmp_path: Path, private_state: Path, monkeypatch: pytest.MonkeyPatch) -> Monitor:
    """Puts a program in a monitor's place on PATH, whose conduct is one word of the stand-in's."""
    kernel = tmp_path / "vmlinux"
    kernel.write_bytes(b"no kernel")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(boot_probe, "_kvm_missing", lambda device: None)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")

    def put(kind: str, conduct: str = "boots") -> RestVmmPlatform:
        words = [
            sys.executable,
            stand_in_monitor.__file__,
            kind,
            conduct,
            str(tmp_path / "calls"),
            str(find_agent().path),
        ]
        program = tmp_path / "bin" / kind
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        program.chmod(0o755)
        platform = create(kind, {**SETTINGS, "kernel": str(kernel)})
        assert isinstance(platform, RestVmmPlatform)
        return platform

    return put


def calls(tmp_path: Path) -> list[tuple[str, str, dict[str, object] | None]]:
    return [tuple(json.loads(line)) for line in (tmp_path / "calls").read_text().splitlines()]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_guest_answers_on_the_monitors_terminal_counts_and_is_gone(
    monitor: Monitor, spec: Spec, kind: str
) -> None:
    platform = monitor(kind)
    found = await platform.probe()
    assert found.usable, found.reason
    assert found.details["version"] == stand_in_monitor.VERSIONS[kind]
    assert found.details["kernel_sha256"]
    await check.check_a_guest_answers_and_is_gone(platform, spec())


@pytest.mark.parametrize("kind", KINDS)
async def test_it_is_told_of_its_disks_and_of_taps_that_are_in_the_lab_and_gone_afterwards(
    monitor: Monitor, spec: Spec, tmp_path: Path, kind: str
) -> None:
    platform = monitor(kind)
    asked = spec()
    disk = Disk(asked.scope.scratch_folder("disk") / "disk.img", asked.scope.folder / "data")
    make_disk_image(disk.image, 16)
    with Namespace(asked.scope, "lab") as lab:
        nic = Nic("west", "52:54:00:00:00:01", mtu=1400)
        wanted = spec(disks=(disk,), lab=lab, nics=(nic,))
        with pytest.raises(LaunchError, match="interfaces cannot be configured"):
            await platform.launch(
                wanted
            )  # the agent is where the stand-in is, where it may not, and has no such interface
        told = json.dumps(calls(tmp_path))
        assert "/dev/loop" in told
        assert '"west"' in told
        assert "52:54:00:00:00:01" in told
        assert "west" not in lab.interfaces()


@pytest.mark.parametrize(
    ("conduct", "stage", "words"),
    [
        ("dies", "api", "exited with status 1 at PUT"),
        ("refuses", "api", "answered 400: (Error from API: )?Start microvm error"),
        ("dies at the start", "api", "exited with status 148 at PUT"),
        ("says nothing", "api", "does not answer PUT .*in time"),
        ("speaks no HTTP", "api", "no HTTP"),
        ("never listens", "api", "does not answer PUT .*in time"),
        ("never boots", "handshake", "no agent answered within"),
        ("panics", "boot", "exited with status 0 before its agent answered"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
async def test_whatever_goes_wrong_is_a_bounded_launch_error_that_says_what(
    monitor: Monitor, spec: Spec, kind: str, conduct: str, stage: str, words: str
) -> None:
    platform = monitor(kind, conduct)
    platform._judged = True
    within_s = {"says nothing": 2.0, "never listens": 2.0, "never boots": 5.0}  # the last has taken all calls by then
    asked = spec(ready_timeout_s=within_s.get(conduct, 30.0))
    with pytest.raises(LaunchError, match=words) as caught:
        await platform.launch(asked)
    assert caught.value.stage == stage
    if conduct == "dies":
        assert "Failed to open /dev/kvm" in caught.value.log_tail
    if conduct == "panics":
        assert "Kernel panic" in caught.value.log_tail
    assert traces(f"{asked.scope.tag}/{asked.name}") == []


@pytest.mark.parametrize("kind", KINDS)
async def test_a_failure_is_the_probes_reason_with_a_remedy(monitor: Monitor, kind: str) -> None:
    found = await monitor(kind, "dies").probe()
    assert not found.usable
    assert found.reason.startswith(f"{stand_in_monitor.VERSIONS[kind]}: no guest boots")
    assert found.fix is not None
    found = await monitor(kind, "no version").probe()
    assert (found.usable, "--version` fails" in found.reason) == (False, True)


@pytest.mark.parametrize("kind", KINDS)
async def test_without_the_program_doctor_says_where_it_is_had(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("virtgauge.platforms.boot_probe.find_program", lambda name: None)
    found = await create(kind, {}).probe()
    assert "is not installed" in found.reason
    assert found.fix is not None and f"`{kind}`" in found.fix


async def test_the_hosts_programs_are_refused_before_anything_is_started(
    monitor: Monitor, spec: Spec, tmp_path: Path
) -> None:
    platform = monitor("firecracker")
    with pytest.raises(LaunchError, match=r"host's programs: Firecracker"):
        await platform.launch(spec(host_root=True))
    assert not (tmp_path / "calls").exists()


async def test_a_limit_is_of_the_monitors_whole_process(monitor: Monitor, spec: Spec) -> None:
    platform = monitor("firecracker")
    platform._judged = True
    async with running(platform, spec()) as guest:
        assert isinstance(guest, RestVmmGuest)
        applied = await guest.apply(Policy(cpu_limit=0.5))
    assert any("Firecracker's own threads together, 0.5 of a CPU for each" in note for note in applied.notes)


async def test_cancelling_leaves_nothing(monitor: Monitor, spec: Spec) -> None:
    platform = monitor("cloud-hypervisor")
    platform._judged = True
    await check.check_cancelling_leaves_nothing(platform, spec, 0.3)


async def test_a_killed_guest_ends_the_channel(monitor: Monitor, spec: Spec) -> None:
    platform = monitor("firecracker")
    platform._judged = True
    await check.check_a_killed_guest_ends_the_channel(platform, spec())


async def test_a_killed_controller_is_reclaimed(monitor: Monitor) -> None:
    settings = {**SETTINGS, "kernel": str(monitor("firecracker").settings.kernel)}
    register = {"judged": "platforms.test_rest_vmm:JudgedFirecracker"}
    check.check_a_killed_controller_is_reclaimed("judged", json.dumps(settings), register=register)


async def test_a_tap_that_is_opened_by_its_name_stays_until_it_is_disconnected(scope: Scope) -> None:
    """As both monitors open theirs: with a header of offloads, which decides about the interface's own."""
    with Namespace(scope, "lab") as lab:
        keep_tap(lab, Nic("west", "52:54:00:00:00:01", mtu=1400))
        for _ in range(2):
            lab.run(open_by_name)
        assert "west" in lab.interfaces()
        disconnect(lab, ["west"])
        assert "west" not in lab.interfaces()


def open_by_name() -> None:
    with open("/dev/net/tun", "r+b", buffering=0) as tap:
        fcntl.ioctl(tap, 0x400454CA, struct.pack("16sH22x", b"west", 0x0002 | 0x1000 | 0x4000))
        fcntl.ioctl(tap, 0x400454D0, 0x01 | 0x02 | 0x04)  # TUNSETOFFLOAD: checksums, segments of TCP

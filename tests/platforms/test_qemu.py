"""Virtual machines: booted for real, by whatever accelerator works here."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import os
import stat
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
from platforms import guest_checks as check
from platforms.conftest import burnt_share, require, running, traces, undisturbed
from platforms.disk_checks import check_an_image_is_the_root, root_image
from platforms.qemu_releases import RELEASES, qemu_of

from virtgauge.agent import AgentBinary
from virtgauge.image.contents import archive
from virtgauge.platforms.base import GuestSpec, LaunchError
from virtgauge.platforms.qemu import platform as qemu
from virtgauge.platforms.qemu.platform import QemuGuest, QemuPlatform
from virtgauge.provision.kernel import find_kernel

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
Spec = Callable[..., GuestSpec]


@pytest_asyncio.fixture(params=["microvm", "q35"])
async def platform(request: pytest.FixtureRequest, private_state: Path) -> AsyncIterator[QemuPlatform]:
    platform = QemuPlatform(QemuPlatform.Settings(machine=request.param))
    require(await platform.probe(), "qemu")
    yield platform


@pytest_asyncio.fixture
async def microvm(private_state: Path) -> AsyncIterator[QemuPlatform]:
    platform = QemuPlatform()
    require(await platform.probe(), "qemu")
    yield platform


async def test_it_answers_counts_and_is_gone(platform: QemuPlatform, spec: Spec) -> None:
    facts = await check.check_a_guest_answers_and_is_gone(platform, spec(vcpus=1))
    assert facts["init"] is True
    cpu = facts["cpu"]
    assert isinstance(cpu, dict)
    assert cpu["count"] == 1
    emulated = platform.label.endswith("emulated)")
    hypervisor = facts["hypervisor"]
    assert isinstance(hypervisor, dict)
    assert (hypervisor["signature"] == "TCGTCGTCGTCG") is emulated
    clocksource = facts["clocksource"]
    assert isinstance(clocksource, dict)
    assert str(clocksource["current"]).startswith(("tsc", "kvm-clock")), "no clock of an emulated chip"


@pytest.mark.full
@pytest.mark.parametrize("machine", ["microvm", "q35"])
async def test_the_real_time_kernel_boots_and_its_results_say_so(machine: str, private_state: Path, spec: Spec) -> None:
    platform = QemuPlatform(QemuPlatform.Settings(machine=machine, accelerator="tcg", kernel="rt"))
    found = await platform.probe()
    require(found, "kernel-rt")
    facts = await check.check_a_guest_answers_and_is_gone(platform, spec(vcpus=1))
    kernel = facts["kernel"]
    assert isinstance(kernel, dict)
    assert "PREEMPT_RT" in kernel["version"]
    assert kernel["release"].endswith("-rt-amd64")
    assert found.details["kernel_release"] == kernel["release"]
    assert platform.describe()["kernel"] == "rt"


async def test_an_emulated_guests_clock_runs_at_the_rate_of_the_hosts_counter(
    microvm: QemuPlatform, spec: Spec
) -> None:
    params = {"function": "rdtscp", "samples": 1, "max_ns": 10**9, "reservoir": 1, "seed": 1}

    async def passed_and_counted_ns() -> tuple[float, float]:
        first = await guest.channel.request("probe", name="timer_cost", params=params, timeout_s=60)
        await asyncio.sleep(3)
        second = await guest.channel.request("probe", name="timer_cost", params=params, timeout_s=60)
        begin, end = first.value["clocks_end"], second.value["clocks_end"]
        counted_ns = (end["tsc"] - begin["tsc"]) / guest.boot.tsc_khz * 1e6
        assert counted_ns > 2.9e9
        return end["monotonic_raw_ns"] - begin["monotonic_raw_ns"], counted_ns

    async with running(microvm, spec()) as guest:
        assert isinstance(guest, QemuGuest)
        if guest.boot.tsc_khz is None:
            assert guest.boot.accelerator == "kvm", "the host's TSC is not invariant"
            return
        # A pause may fall into a reading.
        await undisturbed(passed_and_counted_ns, lambda found: found[0] == pytest.approx(found[1], rel=300e-6))


@pytest.mark.full
async def test_accounting_covers_the_virtual_processors(microvm: QemuPlatform, spec: Spec) -> None:
    async with running(microvm, spec()) as guest:
        idle, _ = await burnt_share(guest, 1.0, 0)
        outside, _ = await burnt_share(guest, 2.0, 1)
    assert idle + 0.1 < outside < 2.2


async def test_a_guest_that_hangs_at_boot_is_a_bounded_launch_error(microvm: QemuPlatform, spec: Spec) -> None:
    asked = spec(ready_timeout_s=0.3)
    with pytest.raises(LaunchError, match="no agent answered within"):
        await microvm.launch(asked)
    assert traces(f"{asked.scope.tag}/{asked.name}") == []


async def test_a_kernel_panic_is_a_launch_error_with_the_console(
    microvm: QemuPlatform, spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "no-init"
    path.write_text("this is no program")
    path.chmod(0o755)
    asked = spec(agent=AgentBinary(path, "0" * 64))
    monkeypatch.setitem(qemu._tsc_khz, asked.agent.sha256, qemu._tsc_khz.get(spec().agent.sha256))
    with pytest.raises(LaunchError) as caught:
        await microvm.launch(asked)
    assert caught.value.stage == "boot"
    assert "Kernel panic" in caught.value.log_tail
    assert traces(f"{asked.scope.tag}/{asked.name}") == []


@pytest.mark.lab
@pytest.mark.parametrize("release", RELEASES)
async def test_the_default_machine_of_a_newer_release_boots_each_time(
    release: str, private_state: Path, spec: Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A PC's interrupt controller that nobody sets up ended one boot in ten with QEMU 10 and 11."""
    program = qemu_of(release)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    platform = QemuPlatform(QemuPlatform.Settings(accelerator="tcg"))
    found = await platform.probe()
    assert found.usable, found.reason
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    assert f"version {found.details['qemu']}" in said
    for _ in range(24):
        async with running(platform, spec()) as guest:
            assert await guest.channel.facts(30.0)
    assert platform.remarks() == ()


async def test_cancelling_leaves_nothing(microvm: QemuPlatform, spec: Spec) -> None:
    await check.check_cancelling_leaves_nothing(microvm, spec, 0.5)


async def test_a_killed_guest_ends_the_channel(microvm: QemuPlatform, spec: Spec) -> None:
    await check.check_a_killed_guest_ends_the_channel(microvm, spec())


async def test_a_killed_controller_is_reclaimed(microvm: QemuPlatform) -> None:
    check.check_a_killed_controller_is_reclaimed("qemu", json.dumps({"machine": "microvm"}))


async def test_an_emulated_guest_is_labelled_so(private_state: Path) -> None:
    platform = QemuPlatform(QemuPlatform.Settings(accelerator="tcg"))
    found = await platform.probe()
    require(found, "qemu")
    assert platform.emulated
    assert "emulated" in platform.label
    assert platform.describe()["accelerator"] == "tcg"


async def test_kvm_is_judged_by_a_boot_and_its_failure_has_a_reason(private_state: Path) -> None:
    platform = QemuPlatform(QemuPlatform.Settings(accelerator="kvm"))
    require(await QemuPlatform(QemuPlatform.Settings(accelerator="tcg")).probe(), "qemu")
    found = await platform.probe()
    assert not platform.emulated
    if found.usable:
        assert "boots in" in found.reason
    else:
        assert found.reason.startswith("kvm: ")
        assert found.fix is not None


async def test_an_own_kernel_initrd_and_words_are_what_boots(private_state: Path, spec: Spec, tmp_path: Path) -> None:
    """The cache's kernel by its path, with words, and an initrd, packed, with a program that the guest then has."""
    cached = find_kernel()
    assert cached is not None
    program = archive([("own-program", stat.S_IFREG | 0o755, spec().agent.path.read_bytes())])
    initrd = tmp_path / "initrd.gz"
    initrd.write_bytes(gzip.compress(program) + b"\0")
    settings = QemuPlatform.Settings(
        accelerator="tcg",
        kernel=cached.image,
        kernel_modules=cached.modules,
        initrd=initrd,
        kernel_words=("own.word=1", "nokaslr"),
        boot_timeout_s=120,
    )
    platform = QemuPlatform(settings)
    found = await platform.probe()
    require(found, "qemu")
    async with running(platform, spec()) as guest:
        facts = await guest.channel.facts()
        said = await guest.channel.request(
            "run", argv=["/own-program", "--version"], env={}, timeout_ms=60_000, output_limit=4096, timeout_s=80
        )
    assert facts["cmdline"].endswith(" own.word=1 nokaslr")
    assert facts["kernel"]["release"] == found.details["kernel_release"] == cached.release
    assert found.details["kernel_sha256"] == hashlib.sha256(cached.image.read_bytes()).hexdigest()
    assert said.value["stdout"].startswith(b"virtgauge-agent ")


@pytest.mark.parametrize("format", ["raw", "qcow2"])
async def test_a_disk_image_is_the_root_that_the_agent_answers_from(
    private_state: Path, spec: Spec, tmp_path: Path, root: None, format: str
) -> None:
    """The image is for reading: what a guest writes is gone with it."""
    image = root_image(tmp_path, spec().agent.path, format)
    platform = QemuPlatform(QemuPlatform.Settings(accelerator="tcg", disk_image=image))
    require(await platform.probe(), "qemu")
    await check_an_image_is_the_root(platform, spec(), image)
    with pytest.raises(LaunchError, match="needs this machine's programs"):
        await platform.launch(spec(host_root=True))


async def test_an_image_that_is_no_root_is_told_before_a_run(private_state: Path, tmp_path: Path, root: None) -> None:
    (tmp_path / "no-image").write_bytes(b"x" * 65536)
    subprocess.run(["mke2fs", "-q", tmp_path / "empty", "1M"], check=True)
    for name, said in (("no-image", "cannot be mounted for reading"), ("empty", "has no /usr in its root")):
        found = await QemuPlatform(QemuPlatform.Settings(accelerator="tcg", disk_image=tmp_path / name)).probe()
        assert not found.usable
        assert said in found.reason


async def test_a_machine_without_qemu_or_kernel_is_unavailable_and_no_crash(
    private_state: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = await QemuPlatform().probe()
    assert not found.usable
    monkeypatch.setenv("PATH", str(tmp_path))
    found = await QemuPlatform().probe()
    assert (found.usable, found.reason, found.fix) == (
        False,
        "QEMU is not installed",
        "apt install qemu-system-x86",
    )

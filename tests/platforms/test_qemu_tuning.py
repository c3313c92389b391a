"""Emulated QEMU guests with production settings: each is seen to be in force, and one that is not is noticed."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from platforms.conftest import require, running, traces
from platforms.disk_checks import disk
from platforms.network_checks import check_a_guest_answers_from_its_lab_only, mac

from virtgauge.host.scope import Scope
from virtgauge.network import Nic
from virtgauge.network.namespace import Namespace
from virtgauge.platforms.base import GuestSpec, LaunchError
from virtgauge.platforms.qemu.monitor import InForce
from virtgauge.platforms.qemu.platform import QemuGuest, QemuPlatform

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
Spec = Callable[..., GuestSpec]
MEMORY_MIB = 256
HUGE_PAGES = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")


def platform(machine: str = "q35", vcpus: int = 1, **tuning: Any) -> QemuPlatform:
    return QemuPlatform(
        QemuPlatform.Settings(machine=machine, accelerator="tcg", vcpus=vcpus, memory_mib=MEMORY_MIB, tuning=tuning)
    )


@pytest.fixture(autouse=True)
async def usable(private_state: Path) -> None:
    require(await platform().probe(), "qemu")


@contextlib.asynccontextmanager
async def in_a_lab(under_test: QemuPlatform, scope: Scope, spec: Spec, name: str) -> AsyncIterator[QemuGuest]:
    """A guest with a disk and an interface, whose every setting is said to be in force as it was asked for."""
    with Namespace(scope, f"lab-{name}") as lab:
        asked = spec(nics=(Nic("gp0", mac(1)),), lab=lab, disks=(disk(scope, 64, name),))
        async with running(under_test, asked) as guest:
            assert isinstance(guest, QemuGuest)
            assert {one.removeprefix("tuning.") for one in guest.in_force} == under_test.settings.tuning.given().keys()
            yield guest


def test_the_machine_has_two_cpus() -> None:
    """What the tests below pin to."""
    assert {0, 1} <= os.sched_getaffinity(0)


async def test_threads_memory_disks_and_clocks_are_as_a_plan_asks(scope: Scope, spec: Spec) -> None:
    under_test = platform(
        cpu_model="max",
        cpu_flags=["-x2apic", "+pdpe1gb"],
        sockets=1,
        cores=1,
        vcpu_cpus=[1],
        emulator_cpus=[0],
        iothread_cpus=[0],
        vcpu_scheduling="fifo:3",
        memory_prealloc=True,
        memory_locked=True,
        numa_node=0,
        disk_cache="directsync",
        disk_aio="native",
        disk_iothread=True,
        disk_discard=False,
        disk_queues=1,
        nic_mergeable=False,
        nic_tx="timer",
        hpet=False,
        pit=True,
        rtc_lost_ticks="slew",
    )
    async with in_a_lab(under_test, scope, spec, "one") as guest:
        pid = guest._process.pid
        threads = [int(one) for one in os.listdir(f"/proc/{pid}/task")]
        (vcpu,) = [one for one in threads if os.sched_getscheduler(one) & 0xFF == os.SCHED_FIFO]
        assert os.sched_getparam(vcpu).sched_priority == 3
        assert os.sched_getaffinity(vcpu) == {1}
        assert all(os.sched_getaffinity(one) == {0} for one in threads if one != vcpu)
        status = Path(f"/proc/{pid}/status").read_text()
        assert int(status.partition("VmLck:")[2].split()[0]) >= MEMORY_MIB * 1024
        assert "/[aio]" in Path(f"/proc/{pid}/maps").read_text()
        assert guest.confinement().cpus == (0, 1)
        facts = await guest.channel.facts()
        assert "directsync" in (guest.disk or "")
        clocks = facts["clocksource"]
        assert isinstance(clocks, dict)
        assert "hpet" not in str(clocks)


async def test_a_microvm_has_other_disks_and_topology(scope: Scope, spec: Spec) -> None:
    under_test = platform(
        "microvm", 2, sockets=2, disk_cache="unsafe", disk_aio="io_uring", disk_discard=True, pit=True, numa_node=0,
        rtc_lost_ticks="discard",
    )  # fmt: skip
    async with in_a_lab(under_test, scope, spec, "two") as guest:
        assert guest.in_force["tuning.disk_aio"] == "io_uring"


@pytest.mark.parametrize("aio", ["threads", "io_uring", "native"])
async def test_each_way_to_a_disk_is_told_apart_with_and_without_a_thread_of_its_own(
    scope: Scope, spec: Spec, aio: str
) -> None:
    for number, iothread in enumerate((False, True)):
        async with in_a_lab(platform(disk_aio=aio, disk_iothread=iothread), scope, spec, f"disk{number}"):
            pass


async def test_frames_of_a_macvtap_stay_in_the_lab(spec: Spec) -> None:
    await check_a_guest_answers_from_its_lab_only(platform(nic_backend="macvtap"), spec())


async def test_a_link_of_several_queues_carries_frames(spec: Spec) -> None:
    await check_a_guest_answers_from_its_lab_only(platform(vcpus=2, nic_queues=2), spec())


async def test_as_many_sockets_as_interfaces(scope: Scope, spec: Spec, tmp_path: Path) -> None:
    paths = [tmp_path / "one", tmp_path / "two"]
    with contextlib.ExitStack() as open_:
        for path in paths:
            open_.enter_context(socket.socket(socket.AF_UNIX)).bind(str(path))
        lab = open_.enter_context(Namespace(scope, "lab"))
        asked = spec(nics=(Nic("gp0", mac(1)),), lab=lab)
        with pytest.raises(LaunchError, match="names 2 sockets, and the suite gives the guest 1 interfaces"):
            await platform(vhost_user=paths)._launch(asked, "tcg")


async def test_huge_pages_are_in_force_or_refused_with_their_number(scope: Scope, spec: Spec) -> None:
    under_test = platform(hugepages="2M")
    if int(HUGE_PAGES.read_text()) >= MEMORY_MIB // 2:
        async with in_a_lab(under_test, scope, spec, "huge") as guest:
            assert guest.in_force == {"tuning.hugepages": "2M"}
        return
    found = await under_test.probe()
    assert not found.usable
    assert f"{MEMORY_MIB // 2} pages are needed" in found.reason
    assert "nr_hugepages" in str(found.fix)


async def test_a_feature_that_the_processor_does_not_have_is_noticed(spec: Spec) -> None:
    """QEMU warns and goes on without it."""
    asked = spec()
    under_test = platform(cpu_flags=["+avx512f"])
    with pytest.raises(LaunchError, match=r"asked for cpu_flags = \+avx512f, in force is -avx512f") as caught:
        await under_test._launch(asked, "tcg")
    assert caught.value.stage == "tuning"
    assert traces(f"{asked.scope.tag}/{asked.name}") == []


async def test_a_model_of_which_features_are_missing_is_noticed(spec: Spec) -> None:
    with pytest.raises(LaunchError, match=r"in force is Skylake-Server without .*avx512"):
        await platform(cpu_model="Skylake-Server")._launch(spec(), "tcg")


async def test_a_thread_that_was_not_placed_is_noticed(spec: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: object) -> None:
        pass

    monkeypatch.setattr(InForce, "place_threads", nothing)
    with pytest.raises(LaunchError) as caught:
        await platform(vcpu_cpus=[1], vcpu_scheduling="fifo:1", emulator_cpus=[0])._launch(spec(), "tcg")
    assert "asked for vcpu_cpus = 1, in force is 0,1" in str(caught.value)
    assert "asked for vcpu_scheduling = fifo:1, in force is other" in str(caught.value)
    assert "asked for emulator_cpus = 0, in force is 0 1" in str(caught.value)


async def test_a_suite_that_confines_the_guest_elsewhere_is_not_overruled(spec: Spec) -> None:
    with pytest.raises(LaunchError, match="the suite confines the guest to"):
        await platform(vcpu_cpus=[1])._launch(spec(cpus=(0,)), "tcg")


async def test_what_this_machine_lacks_is_refused_before_a_guest_is_started(spec: Spec) -> None:
    found = await platform(vhost=True, halt_poll_ns=0).probe()
    assert not found.usable
    assert "tuning.halt_poll_ns = 0: only KVM has it" in found.reason
    if not os.path.exists("/dev/vhost-net"):
        assert "tuning.vhost = true: there is no /dev/vhost-net" in found.reason
        assert "modprobe vhost_net" in str(found.fix)

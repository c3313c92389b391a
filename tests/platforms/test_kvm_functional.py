"""Real KVM guests, on every machine whose /dev/kvm boots a small kernel: everything about them but their figures.

Where KVM has no hardware virtualization (PVM), a boot takes minutes: the tests that change nothing share a guest.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from platforms import guest_checks as check
from platforms.conftest import burnt_share, require, traces
from platforms.network_checks import mac, peer, pings

from virtgauge.agent import find_agent
from virtgauge.agent.channel import ChannelClosedError
from virtgauge.host.policy import Policy
from virtgauge.host.scope import Scope
from virtgauge.ledger.records import TrialStatus
from virtgauge.ledger.store import Ledger
from virtgauge.network import Neighbour, Nic
from virtgauge.network.namespace import Namespace
from virtgauge.network.switch import LinuxBridge, Rule
from virtgauge.platforms.base import GuestSpec
from virtgauge.platforms.boot_probe import is_functional
from virtgauge.platforms.qemu.platform import QemuGuest, QemuPlatform

pytestmark = [pytest.mark.lab, pytest.mark.timeout(3000), pytest.mark.asyncio(loop_scope="module")]
Spec = Callable[..., GuestSpec]
KERNEL = "VIRTGAUGE_KVM_KERNEL"
BESIDE = Path(__file__).parents[3] / "shared" / "guests" / "kvm-functional" / "vmlinux"
READS = {"function": "rdtsc", "samples": 100_000, "max_ns": 10**10, "reservoir": 100, "seed": 1}


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    """Of a guest with the small kernel; skipped where there is none, or no KVM."""
    kernel = Path(os.environ.get(KERNEL, BESIDE))
    if not kernel.is_file():
        pytest.skip(f"there is no kernel for it at {kernel}; {KERNEL} names one")
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        pytest.skip("this user has no /dev/kvm")
    return {
        "machine": "microvm-noacpi",
        "accelerator": "kvm",
        "kernel": str(kernel),
        "vcpus": 1,
        "memory_mib": 128,
        "boot_timeout_s": 900.0,
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def platform(settings: dict[str, Any]) -> QemuPlatform:
    platform = QemuPlatform(QemuPlatform.Settings.model_validate(settings))
    require(await platform.probe(), "kvm")
    return platform


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guest(platform: QemuPlatform) -> AsyncIterator[QemuGuest]:
    with Scope() as scope:
        guest = await platform.launch(GuestSpec(name="shared", scope=scope, agent=find_agent()))
        assert isinstance(guest, QemuGuest)
        yield guest
        await guest.close()
        assert traces(f"{scope.tag}/shared") == []


def has_hardware_virtualization() -> bool:
    flags = Path("/proc/cpuinfo").read_text().split()
    return bool({"vmx", "svm"} & set(flags))


async def test_it_is_usable_and_functional_where_the_processor_has_no_virtualization(platform: QemuPlatform) -> None:
    found = await platform.probe()
    assert found.usable
    assert platform.functional is is_functional(found) is not has_hardware_virtualization()
    assert platform.emulated is platform.functional
    assert platform.label == f"QEMU microvm-noacpi ({'kvm, functional' if platform.functional else 'kvm'})"
    assert float(found.details["system_call_us"]) > 0
    assert ("mean nothing" in found.reason) is platform.functional
    assert len(found.details["kernel_sha256"]) == 64


async def test_it_is_a_kvm_guest_with_the_kernel_that_was_asked_for(platform: QemuPlatform, guest: QemuGuest) -> None:
    facts = await guest.channel.facts()
    assert facts["hypervisor"]["signature"].startswith("KVMKVMKVM")
    assert "kvm-clock" in facts["clocksource"]["available"]
    assert facts["init"] is True
    assert facts["cpu"]["count"] == 1
    found = await platform.probe()
    assert facts["kernel"]["release"] == found.details["kernel_release"]


async def test_its_user_code_reads_the_counter_natively(guest: QemuGuest) -> None:
    reply = await guest.channel.request("probe", name="timer_cost", params=READS, timeout_s=60)
    assert reply.value["distribution"]["n"] == READS["samples"]
    assert reply.value["backward"] == 0
    before = guest.accounting().cpu_ns
    assert before is not None
    assert before > 0


async def test_a_policy_bounds_it_and_is_lifted_again(guest: QemuGuest) -> None:
    applied = await guest.apply(Policy(cpu_limit=0.3))
    assert applied.in_force
    before = guest.throttling()
    used, _ = await burnt_share(guest, 3.0, threads=1)
    after = guest.throttling()
    assert before is not None
    assert after is not None
    assert used < 0.4
    assert after.since(before).throttled > 0
    assert (await guest.apply(Policy())).in_force == {}


async def test_two_at_once_answer_from_their_lab_and_one_that_crashes_leaves_the_other(
    platform: QemuPlatform, spec: Spec, scope: Scope
) -> None:
    asked = []
    with contextlib.ExitStack() as stack, Namespace(scope, "lab") as lab:
        for number in (1, 2):
            nic = Nic(
                f"gp{number}",
                mac(number),
                (f"10.11.{number}.1/24",),
                neighbours=(Neighbour(f"10.11.{number}.2", mac(7)),),
            )
            asked.append(spec(nics=(nic,), lab=lab))
        outside = [
            stack.enter_context(
                peer(
                    scope,
                    lab,
                    f"peer{number}",
                    Nic(
                        f"pp{number}",
                        mac(7),
                        (f"10.11.{number}.2/24",),
                        neighbours=(Neighbour(f"10.11.{number}.1", mac(number)),),
                    ),
                )
            )
            for number in (1, 2)
        ]
        launches = [asyncio.create_task(platform.launch(one)) for one in asked]
        first, second = await asyncio.gather(*launches)
        switch = stack.enter_context(contextlib.closing(LinuxBridge(lab)))
        for number in (1, 2):
            switch.add_bridge(f"br{number}", (f"gp{number}", f"pp{number}"))
            switch.add_rules(
                [Rule(f"pp{number}", mac(number), f"gp{number}"), Rule(f"gp{number}", mac(7), f"pp{number}")]
            )
        try:
            for number in (1, 2):
                assert await asyncio.to_thread(pings, outside[number - 1], f"10.11.{number}.1")
            waiting = asyncio.create_task(
                first.channel.request("probe", name="sleep_lateness", params=check.LONG_SLEEPS)
            )
            await asyncio.sleep(1.0)
            assert not waiting.done()
            await first.crash()
            with pytest.raises(ChannelClosedError):
                await asyncio.wait_for(waiting, 10)
            await first.close()
            assert traces(f"{scope.tag}/{asked[0].name}") == []
            assert (await second.channel.facts())["agent_sha256"] == asked[1].agent.sha256
        finally:
            await asyncio.gather(first.close(), second.close())
    assert traces(f"{scope.tag}/g") == []


async def test_a_killed_controller_is_reclaimed(
    platform: QemuPlatform, settings: dict[str, Any], private_state: Path
) -> None:
    check.check_a_killed_controller_is_reclaimed("qemu", json.dumps(settings))


def lost_kernel() -> bytes:
    """One that QEMU starts (PVH), and that goes on at once where the machine has neither memory nor device.

    No KVM can run or emulate what is not there, whether it has hardware virtualization or not.
    """
    code = b"\xb8" + struct.pack("<I", 0xD000_0000) + b"\xff\xe0"  # mov eax, …; jmp eax
    entry, at = 0x10_0000, 64 + 2 * 56
    note = struct.pack("<III4sI", 4, 4, 18, b"Xen\0", entry)  # XEN_ELFNOTE_PHYS32_ENTRY
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, entry, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    head += struct.pack("<IIQQQQQQ", 1, 5, at, entry, entry, len(code), len(code), 16)
    head += struct.pack("<IIQQQQQQ", 4, 4, at + len(code), entry + 64, entry + 64, len(note), len(note), 4)
    return (head + code + note).ljust(4096, b"\0")


async def test_a_kvm_that_cannot_go_on_is_told_at_once_by_qemu_itself(tmp_path: Path, private_state: Path) -> None:
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        pytest.skip("this user has no /dev/kvm")
    (tmp_path / "vmlinux").write_bytes(lost_kernel())
    bound_s = 300.0
    platform = QemuPlatform(
        QemuPlatform.Settings(
            machine="microvm-noacpi",
            accelerator="kvm",
            kernel=tmp_path / "vmlinux",
            vcpus=1,
            memory_mib=128,
            boot_timeout_s=bound_s,
        )
    )
    began = time.monotonic()
    found = await platform.probe()
    assert not found.usable
    assert "QEMU has stopped the guest for an internal error of its accelerator (KVM internal error" in found.reason
    assert "Code=" not in found.reason
    assert time.monotonic() - began < bound_s / 4


PLAN = """
name = "kvm"
seed = 3
repetitions = 1
attempts = 1
[[platform]]
name = "host"
kind = "host"
[[platform]]
name = "kvm"
kind = "qemu"
{settings}
[[suite.timing]]
loads = ["idle"]
timers = ["rdtsc"]
reads = 100_000
sleeps = []
[validity]
foreign_load = 1.0
steal = 1.0
clock_ppm = 1_000_000.0
"""


@pytest.fixture
def plan(settings: dict[str, Any], tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "plan.toml"
    path.write_text(PLAN.format(settings="\n".join(f"{key} = {json.dumps(value)}" for key, value in settings.items())))
    yield path


def virtgauge(*arguments: object) -> str:
    command = [sys.executable, "-m", "virtgauge.cli", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2900, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_doctor_names_it_and_a_run_measures_it_without_ranking_it(
    platform: QemuPlatform, plan: Path, tmp_path: Path, private_state: Path
) -> None:
    doctor = json.loads(virtgauge("doctor", "--plan", plan, "--json"))["platforms"]
    (told,) = [one for one in doctor if one["name"] == "kvm"]
    assert (told["usable"], told["functional"]) == (True, platform.functional)
    virtgauge("run", plan, "--out", tmp_path / "run")
    with Ledger.open(tmp_path / "run") as ledger:
        (arm,) = [arm for arm in ledger.manifest().arms if arm.name == "kvm"]
        trials = [trial for trial in ledger.trials() if trial.arm == "kvm"]
        (guest,) = [guest for guest in ledger.guests() if guest.arm == "kvm"]
    assert [trial.status for trial in trials] == [TrialStatus.VALID]
    assert arm.mark == ("functional" if platform.functional else "")
    found = arm.settings["found"]
    assert guest.facts["kernel"]["release"] == found["kernel_release"]
    assert guest.facts["hypervisor"]["signature"].startswith("KVMKVMKVM")
    shown = virtgauge("report", tmp_path / "run", "--format", "text") if platform.functional else "functional"
    assert "functional" in shown

"""Whether a guest is emulated, where only the guest can tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from suites.simulated_runs import execute, plan_of, report_of, simulated

from virtgauge.execution.progress import Notice
from virtgauge.ledger.store import Ledger
from virtgauge.platforms import create
from virtgauge.platforms.base import emulation_told
from virtgauge.platforms.libvirt.platform import LibvirtPlatform, LibvirtSettings
from virtgauge.platforms.simulated.platform import SimulatedPlatform

TCG = {"hypervisor": {"present": True, "signature": "TCGTCGTCGTCG"}, "cpu": {"model": "QEMU Virtual CPU version 2.5+"}}
HIDDEN = {"hypervisor": {"present": False, "signature": None}, "cpu": {"model": "QEMU Virtual CPU version 2.5+"}}
KVM = {"hypervisor": {"present": True, "signature": "KVMKVMKVM"}, "cpu": {"model": "QEMU Virtual CPU version 2.5+"}}


@pytest.mark.parametrize(
    ("facts", "certain"),
    [
        (TCG, True),
        ({"hypervisor": {"signature": "TCGTCGTCGTCG"}}, True),
        ({"cpu": {"model": "QEMU TCG CPU version 2.5+"}}, True),
        (HIDDEN, False),
        (KVM, None),
        ({"hypervisor": {"signature": "VMwareVMware"}, "cpu": {"model": "Intel(R) Xeon(R) Gold"}}, None),
        ({"hypervisor": None, "cpu": None}, None),
        ({}, None),
    ],
)
def test_the_signature_and_the_name_of_the_processor_tell(facts: dict[str, Any], certain: bool | None) -> None:
    found = emulation_told(facts)
    assert (None if found is None else found.certain) is certain


def test_who_knows_already_asks_no_guest() -> None:
    """An accelerator is chosen, and an attached machine or ESXi is not."""
    assert create("qemu", {"accelerator": "tcg"}).emulation(TCG) is None
    assert create("host", {}).emulation(TCG) is None
    assert LibvirtPlatform(LibvirtSettings(accelerator="kvm")).emulation(TCG) is None
    for platform in (create("attached", {"via": "ssh", "host": "far"}), create("libvirt", {"uri": "xen:///"})):
        found = platform.emulation(TCG)
        assert found is not None
        assert found.certain


@pytest.fixture
def telling(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the guests of one simulated platform, and of no other, say of themselves: the list's only item."""
    said: list[dict[str, Any]] = [{}]

    def emulation(platform: SimulatedPlatform, facts: dict[str, Any]) -> Any:
        assert facts["agent_version"] == "simulated"
        return emulation_told(said[0]) if platform.describe()["seed"] == 7 else None

    monkeypatch.setattr(SimulatedPlatform, "emulation", emulation)
    return said


def test_an_arm_whose_guests_are_emulated_is_marked_and_not_ranked(
    telling: list[dict[str, Any]], tmp_path: Path
) -> None:
    telling[0] = TCG
    plan = plan_of(simulated("host", seed=1), simulated("far", seed=7), repetitions=2)
    complete, recorder = execute(plan, tmp_path / "run")
    assert complete
    with Ledger.open(tmp_path / "run") as ledger:
        assert {arm.name: arm.emulated for arm in ledger.manifest().arms} == {"host": False, "far": True}
        (remark,) = [event for event in ledger.events() if "TCGTCGTCGTCG" in event.detail]
    assert remark.detail.startswith("far: ")
    notices = [event.text for event in recorder.events if isinstance(event, Notice)]
    assert notices.count(remark.detail) == 1
    assert report_of(tmp_path / "run").arm("far").record.emulated


def test_the_identical_arm_is_marked_with_its_reference(telling: list[dict[str, Any]], tmp_path: Path) -> None:
    telling[0] = TCG
    execute(plan_of(simulated("far", seed=7), aa=True, repetitions=1), tmp_path / "run")
    with Ledger.open(tmp_path / "run") as ledger:
        assert {arm.name: arm.emulated for arm in ledger.manifest().arms} == {"far": True, "far-aa": True}


def test_a_suspicion_is_said_and_marks_nothing(telling: list[dict[str, Any]], tmp_path: Path) -> None:
    telling[0] = HIDDEN
    execute(plan_of(simulated("host", seed=1), simulated("far", seed=7), repetitions=1), tmp_path / "run")
    with Ledger.open(tmp_path / "run") as ledger:
        assert not any(arm.emulated for arm in ledger.manifest().arms)
        assert [event for event in ledger.events() if "no figure is marked" in event.detail]

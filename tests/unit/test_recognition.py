"""Whose virtual machine an attached guest is, as its own facts tell it, and for which platform of a paper it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from suites.simulated_runs import execute, plan_of, simulated
from synthetic import arm_record

from virtgauge.ledger.store import Ledger
from virtgauge.platforms import create
from virtgauge.platforms.base import hypervisor_told
from virtgauge.platforms.simulated.platform import SimulatedPlatform
from virtgauge.specs.timing_paper import paper_platform


def facts(
    signature: str = "", product: str = "", type_: str | None = None, present: bool = True, controls: bool = False
) -> dict[str, Any]:
    told = {"present": present, "signature": signature, "product": product, "type": type_, "controls": controls}
    return {"hypervisor": told}


@pytest.mark.parametrize(
    ("said", "hypervisor"),
    [
        (facts("KVMKVMKVM\0\0\0", "Standard PC (Q35 + ICH9, 2009)"), "qemu"),
        (facts("KVMKVMKVM", "VirtualBox"), "vbox"),  # its interface for guests that are Linux is KVM's
        (facts("VBoxVBoxVBox"), "vbox"),
        (facts("Microsoft Hv", "Virtual Machine"), "hyperv"),
        (facts("Microsoft Hv", "Standard PC (i440FX + PIIX, 1996)"), "qemu"),  # KVM with Hyper-V's interfaces
        (facts("VMwareVMware", "VMware Virtual Platform"), "esx"),
        (facts("XenVMMXenVMM", "HVM domU"), "xen"),
        (facts(present=False, type_="xen"), "xen"),
        (facts("KVMKVMKVM", "Google Compute Engine"), "kvm"),  # which is none of the papers' platforms
        (facts("KVMKVMKVM", "c6i.large"), "kvm"),
        (facts("Microsoft Hv", "KVM"), ""),
        (facts(present=False, type_="xen", controls=True), ""),  # dom0 is no guest
        (facts("NewHypervisr"), ""),
        (facts(present=False, product="VMware Virtual Platform"), ""),
        ({}, ""),
        ({"hypervisor": None}, ""),
    ],
)
def test_the_firmware_and_the_signature_tell(said: dict[str, Any], hypervisor: str) -> None:
    assert hypervisor_told(said) == hypervisor


def test_a_machine_with_this_kernel_is_no_guest_of_anything() -> None:
    attached = create("attached", {"via": "ssh", "host": "far"})
    here = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert attached.recognised(facts("VMwareVMware") | {"boot_id": "another"}) == "esx"
    assert attached.recognised(facts("VMwareVMware") | {"boot_id": here}) == ""
    assert create("oci", {"runtime": "runc"}).recognised(facts("VMwareVMware")) == ""


def test_an_arm_stands_for_what_its_guests_are_recognised_as(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest has it, so that claims about the paper's ESXi are decided by a machine that is reached by ssh."""

    def recognised(platform: SimulatedPlatform, said: dict[str, Any]) -> str:
        return "esx" if platform.describe()["seed"] == 7 else ""

    monkeypatch.setattr(SimulatedPlatform, "recognised", recognised)
    complete, _ = execute(plan_of(simulated("host", seed=1), simulated("far", seed=7), repetitions=2), tmp_path / "run")
    assert complete
    with Ledger.open(tmp_path / "run") as ledger:
        arms = {arm.name: arm for arm in ledger.manifest().arms}
        remarks = [event.detail for event in ledger.events() if "virtual machine of esx" in event.detail]
    assert (arms["far"].hypervisor, arms["far"].is_virtual, paper_platform(arms["far"])) == ("esx", True, "ESXi")
    assert arms["host"].hypervisor == ""
    assert len(remarks) == 1


@pytest.mark.parametrize(
    ("kind", "settings", "hypervisor", "platform"),
    [
        ("qemu", {}, "qemu", "QEMU"),
        ("xen", {}, "xen", "Xen"),
        ("uml", {}, "uml", None),
        ("oci", {"runtime": "runc"}, "", None),
        ("attached", {}, "", None),
        ("libvirt", {"uri": "vbox:///session"}, "vbox", "VBox"),
        ("libvirt", {"uri": "esx+ssh://root@far/"}, "esx", "ESXi"),
    ],
)
def test_other_arms_are_known_by_their_kind(kind: str, settings: Any, hypervisor: str, platform: str | None) -> None:
    arm = arm_record("one", kind, "One", settings=settings)
    assert (arm.hypervisor, paper_platform(arm)) == (hypervisor, platform)

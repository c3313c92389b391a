"""Whose virtual machine an attached guest is, as its own facts tell it, and for which platform of a paper it stands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from suites.simulated_runs import execute, plan_of, report_of, simulated
from synthetic import arm_record

from virtgauge.host.machine import fingerprint
from virtgauge.ledger.store import Ledger
from virtgauge.platforms import create
from virtgauge.platforms.base import Emulation, Guest, Platform, Recognition, hypervisor_told
from virtgauge.platforms.simulated.platform import SimulatedPlatform
from virtgauge.specs.storage_stand import stands
from virtgauge.specs.timing_paper import paper_platform
from virtgauge.suites.testbed import Stage


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
        (facts("VMwareVMware", "VMware Virtual Platform"), "vmware"),  # ESXi, Workstation and Fusion alike
        (facts("Microsoft Hv", "VMware20,1"), "vmware"),
        (facts("XenVMMXenVMM", "HVM domU"), "xen"),
        (facts(present=False, type_="xen"), "xen"),
        (facts("KVMKVMKVM", "Google Compute Engine"), "kvm"),  # which is none of the papers' platforms
        (facts("KVMKVMKVM", "c6i.large"), "kvm"),
        (facts("KVMKVMKVM", "KVM"), "qemu"),  # Red Hat's
        (facts("Microsoft Hv", "KVM"), "qemu"),  # with Hyper-V's interfaces
        (facts("KVMKVMKVM", "KVM Server of somebody"), "kvm"),
        (facts(present=False, type_="xen", controls=True), ""),  # dom0 is no guest
        (facts("NewHypervisr"), ""),
        (facts(present=False, product="VMware Virtual Platform"), ""),
        ({}, ""),
        ({"hypervisor": None}, ""),
    ],
)
def test_the_firmware_and_the_signature_tell(said: dict[str, Any], hypervisor: str) -> None:
    assert hypervisor_told(said) == hypervisor


HERE = fingerprint()
ANOTHER = {"boot_id": "another", "cpu": {"model": "Another CPU @ 2.10GHz"}}
OWN = {"boot_id": HERE["context"]["boot_id"]}
ALIKE = {"boot_id": "another", "cpu": {"model": HERE["identity"]["cpu_model"]}}


def attached(**settings: Any) -> Platform:
    return create("attached", {"via": "ssh", "host": "far", **settings})


def test_a_machine_with_this_kernel_is_no_guest_of_anything_and_no_other_computer() -> None:
    own = OWN | {"cpu": ANOTHER["cpu"]}
    assert attached().recognised(facts("XenVMMXenVMM") | ANOTHER).hypervisor == "xen"
    assert attached().recognised(facts("XenVMMXenVMM") | own) == Recognition()
    assert create("oci", {"runtime": "runc"}).recognised(facts("XenVMMXenVMM") | ANOTHER) == Recognition()


@pytest.mark.parametrize(("kind", "its_own"), [("host", OWN), ("qemu", ANOTHER), ("uml", ANOTHER)])
def test_a_guest_with_the_kernel_of_another_kind_of_platform_is_doubted(kind: str, its_own: dict[str, Any]) -> None:
    """The host's agent runs this machine's kernel, also where this machine is virtual; a virtual machine its own."""
    platform, others = create(kind, {}), ANOTHER if its_own is OWN else OWN
    assert platform.recognised(its_own) == platform.recognised({}) == Recognition()
    assert "swapped?" in platform.recognised(others).doubts[0]


def test_another_computer_is_told_by_the_model_of_its_processor() -> None:
    assert attached().recognised(facts("XenVMMXenVMM") | ANOTHER).processor == "Another CPU @ 2.10GHz"
    assert attached().recognised(facts("XenVMMXenVMM") | ALIKE).processor == ""
    assert attached().recognised(facts("XenVMMXenVMM") | {"boot_id": "another"}).processor != "", "it may be any"


def test_a_machine_without_a_hypervisor_is_physical() -> None:
    assert attached().recognised(facts(present=False) | ANOTHER).physical
    assert not attached().recognised(facts("NewHypervisr") | ANOTHER).physical
    assert not attached().recognised(facts(present=False, type_="xen", controls=True) | ANOTHER).physical
    assert not attached().recognised(ANOTHER).physical, "nothing is known"


def test_vmwares_products_are_told_apart_by_the_plan_alone() -> None:
    said = facts("VMwareVMware") | ANOTHER
    untold, told = (one.recognised(said) for one in (attached(), attached(hypervisor="esxi", core_mhz=2100)))
    assert (untold.hypervisor, told.hypervisor) == ("vmware", "esx")
    assert 'hypervisor = "esxi"' in untold.doubts[0] and not told.doubts
    assert paper_platform(arm_record("one", "attached", "One", recognised="vmware")) is None


@pytest.mark.parametrize(
    ("planned", "signature", "contradicted"),
    [("xen", "XenVMMXenVMM", False), ("xen", "VMwareVMware", True), ("hyper-v", "", True), ("virtualbox", "?", True)],
)
def test_a_plan_that_names_another_hypervisor_is_contradicted(planned: str, signature: str, contradicted: bool) -> None:
    found = attached(hypervisor=planned).recognised(facts(signature, present=bool(signature)) | ANOTHER)
    assert bool(found.doubts) is contradicted
    assert all(f'the plan says hypervisor = "{planned}"' in doubt for doubt in found.doubts)


Telling = Callable[[dict[int, Recognition]], None]


@pytest.fixture
def telling(monkeypatch: pytest.MonkeyPatch) -> Telling:
    """Lets simulated platforms be recognised, by their seeds."""

    def tell(said: dict[int, Recognition]) -> None:
        def recognised(platform: SimulatedPlatform, facts: dict[str, Any]) -> Recognition:
            return said.get(platform.describe()["seed"], Recognition())

        monkeypatch.setattr(SimulatedPlatform, "recognised", recognised)

    return tell


def test_an_arm_stands_for_what_its_guests_are_recognised_as(telling: Telling, tmp_path: Path) -> None:
    """The manifest has it, so that claims about the paper's ESXi are decided by a machine that is reached by ssh."""
    telling({7: Recognition("esx", "Another CPU", doubts=("it is doubtful",))})
    complete, _ = execute(plan_of(simulated("host", seed=1), simulated("far", seed=7), repetitions=2), tmp_path / "run")
    assert complete
    with Ledger.open(tmp_path / "run") as ledger:
        arms = {arm.name: arm for arm in ledger.manifest().arms}
        remarks = [event.detail for event in ledger.events() if event.detail.startswith("far: ")]
    assert (arms["far"].hypervisor, arms["far"].is_virtual, paper_platform(arms["far"])) == ("esx", True, "ESXi")
    assert (arms["far"].processor, arms["host"].processor, arms["host"].hypervisor) == ("Another CPU", "", "")
    said = "its guest says that it is a virtual machine of esx on Another CPU, for which it stands from now on"
    assert remarks == ["far: it is doubtful", f"far: {said}"]
    assert "far: it is doubtful" in report_of(tmp_path / "run").caveats


def test_both_of_a_pair_are_asked(telling: Telling, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second says that it is of another hypervisor, and that it is emulated."""
    peer = SimulatedPlatform(SimulatedPlatform.Settings(seed=9))
    monkeypatch.setattr(SimulatedPlatform, "peer", peer)
    telling({7: Recognition("xen"), 9: Recognition("vbox")})
    monkeypatch.setattr(
        SimulatedPlatform, "emulation", lambda platform, facts: Emulation(True, "it says so") if facts == PEER else None
    )
    launch = Stage.launch

    async def launch_both(stage: Stage, name: str = "", **wanted: Any) -> Guest:
        guest = await launch(stage, name, **wanted)
        second = await stage.launch_second("second")
        monkeypatch.setattr(second.channel, "facts", peer_facts)
        return guest

    monkeypatch.setattr(Stage, "launch", launch_both)
    execute(plan_of(simulated("pair", seed=7), repetitions=1), tmp_path / "run")
    with Ledger.open(tmp_path / "run") as ledger:
        (arm,) = ledger.manifest().arms
        remarks = [event.detail for event in ledger.events() if event.detail.startswith("pair: ")]
    assert arm.emulated and arm.hypervisor == "xen"
    assert "a virtual machine of xen, and its peer that it is a virtual machine of vbox" in " ".join(remarks)


PEER: dict[str, Any] = {"hostname": "peer"}


async def peer_facts() -> dict[str, Any]:
    return PEER


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


def test_a_physical_reference_is_the_papers_host() -> None:
    fields = {"role": "reference", "settings": {}, "virtual": False}
    physical, unknown = (arm_record("one", "attached", "One", physical=yes, **fields) for yes in (True, False))
    assert (paper_platform(physical), paper_platform(unknown)) == ("Host OS", None)
    guest = arm_record("guest", "attached", "Guest", recognised="esx", virtual=True)
    assert stands([physical, guest, arm_record("host", "host", "Host")])["physical"][0] is physical


def test_of_virtual_machines_the_one_with_most_of_the_papers_figures_stands_for_its_virtual_server() -> None:
    small, large = arm_record("uml", "uml", "UML", virtual=True), arm_record("xen", "xen", "Xen", virtual=True)
    arms = [arm_record("host", "host", "Host", role="reference"), small, large]
    assert stands(arms, lambda arm: {"uml": 4, "xen": 24}[arm.name])["virtual"][0] is large

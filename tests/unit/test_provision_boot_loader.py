from __future__ import annotations

from pathlib import Path

import pytest
from provision_machine import VERSION, Machine

from virtgauge.provision.boot_loader import find_boot_loader, provision_boot_loader
from virtgauge.provision.progress import State, silence

pytestmark = pytest.mark.slow

PROGRAM = b"#!/bin/sh\nexit 0\n"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
PACKAGES = {
    "grub-common": {"usr/bin/grub-mkimage": PROGRAM, "usr/sbin/grub-install": b"installs"},
    "grub-pc-bin": {"usr/lib/grub/i386-pc/boot.img": b"boots"},
    "grub-efi-amd64-signed": {"usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed": b"signed grub"},
    "shim-signed": {"usr/lib/shim/shimx64.efi.signed": b"signed shim"},
    "mtools": {"usr/bin/mtools": PROGRAM},
    "xorriso": {"usr/bin/xorriso": PROGRAM},
    "libisoburn1t64": {f"{LIBRARIES}/libisoburn.so.1": b"burns"},
    "libburn4": {f"{LIBRARIES}/libburn.so.4": b"is burnt with"},
}
DEPENDS = {name: ["libc6"] for name in PACKAGES} | {
    "xorriso": ["libc6", "libisoburn1t64"],
    "libisoburn1t64": ["libc6", "libburn4"],
    "grub-common": ["libc6", "gettext-base"],
}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path, monkeypatch)
    for package, files in PACKAGES.items():
        machine.build_package(package, files)
        machine.add_dependencies(package, DEPENDS[package])
    return machine


def test_the_packages_and_the_libraries_of_their_programs_are_extracted(machine: Machine) -> None:
    assert find_boot_loader() is None
    outcome = provision_boot_loader(silence)
    assert (outcome.state, outcome.detail) == (State.MADE, f"grub-common {VERSION}")
    found = find_boot_loader()
    assert found is not None
    assert found.shim.read_bytes() == b"signed shim"
    assert found.efi_grub.read_bytes() == b"signed grub"
    assert (found.bios_modules / "boot.img").read_bytes() == b"boots"
    assert {name.split()[0] for name in found.packages} == set(PACKAGES)
    assert (found.folder / LIBRARIES / "libburn.so.4").exists()
    assert not (found.folder / "usr/sbin/grub-install").exists()
    found.run("mcopy")


def test_nothing_is_installed_and_a_second_time_nobody_is_asked(machine: Machine) -> None:
    provision_boot_loader(silence)
    asked = machine.calls
    assert not any("install" in call.split() for call in asked)
    assert provision_boot_loader(silence).state is State.OK
    assert machine.calls == asked


def test_what_rots_in_the_cache_is_fetched_anew(machine: Machine) -> None:
    provision_boot_loader(silence)
    found = find_boot_loader()
    assert found is not None
    found.shim.write_bytes(b"Signed shim")
    assert provision_boot_loader(silence).state is State.MADE
    again = find_boot_loader()
    assert again is not None
    assert again.shim.read_bytes() == b"signed shim"


def test_a_package_without_what_is_needed_is_told_and_nothing_stays(machine: Machine) -> None:
    (machine.archive / f"shim-signed_{VERSION}_amd64.deb").unlink()
    (machine.folder / "trees/shim-signed/usr/lib/shim/shimx64.efi.signed").unlink()
    machine.build_package("shim-signed", {"usr/lib/shim/another": b""})
    outcome = provision_boot_loader(silence)
    assert outcome.state is State.SKIPPED
    assert "shimx64.efi.signed" in outcome.detail
    assert find_boot_loader() is None
    assert list((machine.cache / "boot-loader").iterdir()) == []


def test_ubuntus_name_of_the_shim_is_known(machine: Machine) -> None:
    tree = machine.folder / "trees/shim-signed/usr/lib/shim"
    (tree / "shimx64.efi.signed").rename(tree / "shimx64.efi.signed.latest")
    machine.build_package("shim-signed", {})
    assert provision_boot_loader(silence).state is State.MADE
    found = find_boot_loader()
    assert found is not None
    assert found.shim.read_bytes() == b"signed shim"

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from provision_machine import VERSION, Machine
from xen_lab import packages
from xen_lab.packages import find_lab_parts, find_xen, provision_xen

from virtgauge.errors import UnavailableError
from virtgauge.provision.kernel import GuestKernel
from virtgauge.provision.progress import State, silence

PACKAGES = {
    "xen-hypervisor-4.99-amd64": {"boot/xen-4.99-amd64.gz": gzip.compress(b"a hypervisor")},
    "xen-utils-4.99": {"usr/lib/xen-4.99/bin/xl": b"xl"},
    "xen-utils-common": {"etc/xen/scripts/vif-bridge": b"a script", "etc/init.d/xen": b"not kept"},
    "xenstore-utils": {"usr/bin/xenstore-read": b"read"},
    "libxenlight": {"usr/lib/x86_64-linux-gnu/libxenlight.so": b"a library"},
    "libyajl2": {"usr/lib/x86_64-linux-gnu/libyajl.so.2": b"a library of the library"},
}
DEPENDS = {
    "xen-system-amd64": ["xen-hypervisor-4.99-amd64", "xen-hypervisor-common", "xen-utils-4.99"],
    "xen-utils-4.99": ["libc6", "python3", "libxenlight"],
    "libxenlight": ["libc6", "libyajl2"],
    "libyajl2": ["libc6"],
}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path, monkeypatch)
    for package, files in PACKAGES.items():
        machine.build_package(package, files)
    for package, names in DEPENDS.items():
        machine.add_dependencies(package, names)
    return machine


def test_an_empty_cache_has_no_xen_and_asking_downloads_none(machine: Machine) -> None:
    assert find_xen() is None
    assert machine.calls == []


def test_the_current_xen_is_extracted_with_its_own_libraries_and_installed_nowhere(machine: Machine) -> None:
    outcome = provision_xen(silence)
    assert (outcome.state, outcome.detail) == (State.MADE, f"xen-hypervisor-4.99-amd64 {VERSION}")
    xen = find_xen()
    assert xen is not None
    assert (xen.version, xen.image.read_bytes()) == ("4.99", b"a hypervisor")
    assert (xen.programs[0] / "xl").is_file()
    assert (xen.programs[1] / "xenstore-read").is_file()
    assert (xen.folder / "etc/xen/scripts/vif-bridge").is_file()
    assert not (xen.folder / "etc/init.d").exists()
    assert {path.name for path in xen.folder.rglob("*.so*")} == {"libxenlight.so", "libyajl.so.2"}
    assert not any(" install " in call for call in machine.calls)
    assert not any("libc6" in call for call in machine.calls)


def test_a_xen_in_the_cache_is_kept_and_a_damaged_one_fetched_again(machine: Machine) -> None:
    provision_xen(silence)
    assert provision_xen(silence).state is State.OK
    xen = find_xen()
    assert xen is not None
    xen.image.write_bytes(b"a hypervisog")
    assert provision_xen(silence).state is State.MADE


def test_a_distribution_without_xen_is_skipped_with_the_reason(machine: Machine) -> None:
    (machine.archive / "xen-system-amd64.depends").unlink()
    outcome = provision_xen(silence)
    assert outcome.state is State.SKIPPED
    assert "xen-system-amd64" in outcome.detail
    assert find_xen() is None


def test_a_package_without_an_image_is_told_and_leaves_nothing(machine: Machine) -> None:
    machine.build_package("xen-hypervisor-4.99-amd64", {"usr/share/doc": b"no image"})
    (machine.folder / "trees/xen-hypervisor-4.99-amd64/boot/xen-4.99-amd64.gz").unlink()
    machine.build_package("xen-hypervisor-4.99-amd64", {})
    outcome = provision_xen(silence)
    assert outcome.state is State.SKIPPED
    assert "0 images" in outcome.detail
    assert find_xen() is None


def test_missing_parts_of_the_lab_name_the_command_that_gets_them(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(packages, "find_kernel", lambda: GuestKernel("6.1", Path(), Path(), "linux 6.1"))
    for which, remedy in ((lambda name: f"/usr/bin/{name}", "make xen-lab"), (lambda _: None, "apt install")):
        monkeypatch.setattr("shutil.which", which)
        with pytest.raises(UnavailableError) as caught:
            find_lab_parts()
        assert remedy in str(caught.value.remedy)

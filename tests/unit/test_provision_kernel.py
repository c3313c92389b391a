from __future__ import annotations

import lzma
import os
import subprocess
import sys
from pathlib import Path

import pytest
from provision_machine import KERNEL, RELEASE, VERSION, Machine, module

from virtgauge.provision.kernel import find_kernel, module_dependencies, provision_kernel
from virtgauge.provision.progress import State, silence

pytestmark = pytest.mark.slow

TREE = f"lib/modules/{RELEASE}/kernel"
FILES = {
    f"boot/vmlinuz-{RELEASE}": b"image",
    f"lib/modules/{RELEASE}/modules.builtin": b"kernel/drivers/char/random.ko\n",
    f"{TREE}/drivers/net/virtio_net.ko": module("net_failover", "phy-odd"),
    f"{TREE}/drivers/net/net_failover.ko": module("failover"),
    f"{TREE}/net/core/failover.ko": module(),
    f"{TREE}/drivers/pci/phy_odd.ko": module("random"),
    f"{TREE}/drivers/gpu/drm/i915.ko": module(),
    f"{TREE}/drivers/net/wireless/radio.ko": module(),
}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def kept_modules() -> set[str]:
    kernel = find_kernel()
    assert kernel is not None
    return {path.name for path in kernel.modules.rglob("*.ko")}


def test_an_empty_cache_has_no_kernel_and_asking_downloads_none(machine: Machine) -> None:
    assert find_kernel() is None
    assert machine.calls == []


def test_the_kernel_that_the_meta_package_depends_on_is_extracted(machine: Machine) -> None:
    machine.add_kernel(FILES)
    outcome = provision_kernel(silence)
    assert (outcome.state, outcome.detail) == (State.MADE, f"{KERNEL} {VERSION}")
    kernel = find_kernel()
    assert kernel is not None
    assert (kernel.release, kernel.package) == (RELEASE, f"{KERNEL} {VERSION}")
    assert kernel.image.read_bytes() == b"image"
    assert (kernel.modules / "modules.builtin").exists()


def test_the_real_time_kernel_is_one_of_its_own_beside_the_generic_one(machine: Machine) -> None:
    machine.add_kernel(FILES)
    real_time = {name.replace("-amd64", "-rt-amd64"): content for name, content in FILES.items()}
    package = "linux-image-6.1.0-99-rt-amd64"
    machine.add_kernel(real_time, package=package, meta="linux-image-rt-amd64")
    outcome = provision_kernel(silence, "kernel-rt")
    assert (outcome.state, outcome.detail) == (State.MADE, f"{package} {VERSION}")
    assert find_kernel() is None
    provision_kernel(silence)
    found = [find_kernel(part) for part in ("kernel", "kernel-rt")]
    assert [kernel and kernel.release for kernel in found] == [RELEASE, "6.1.0-99-rt-amd64"]


def test_drivers_of_real_hardware_are_left_out_unless_a_kept_module_needs_them(machine: Machine) -> None:
    machine.add_kernel(FILES)
    provision_kernel(silence)
    assert kept_modules() == {"virtio_net.ko", "net_failover.ko", "failover.ko", "phy_odd.ko"}


def test_a_second_set_up_asks_nobody(machine: Machine) -> None:
    machine.add_kernel(FILES)
    provision_kernel(silence)
    asked = machine.calls
    assert provision_kernel(silence).state is State.OK
    assert machine.calls == asked


def test_compressed_modules_below_usr_come_out_uncompressed(machine: Machine) -> None:
    plain = module()
    machine.add_kernel(
        {
            f"boot/vmlinuz-{RELEASE}": b"image",
            f"usr/lib/modules/{RELEASE}/kernel/fs/9p/9p.ko.xz": lzma.compress(module("netfs", body=b"9p")),
            f"usr/lib/modules/{RELEASE}/kernel/drivers/odd/netfs.ko.xz": lzma.compress(plain),
        }
    )
    assert provision_kernel(silence).state is State.MADE
    kernel = find_kernel()
    assert kernel is not None
    assert next(kernel.modules.rglob("netfs.ko")).read_bytes() == plain
    assert kept_modules() == {"9p.ko", "netfs.ko"}


@pytest.mark.parametrize("content", [b"imagE", b"im"], ids=["other content, same size", "truncated"])
def test_a_rotten_image_is_noticed_and_made_anew(machine: Machine, content: bytes) -> None:
    machine.add_kernel(FILES)
    provision_kernel(silence)
    kernel = find_kernel()
    assert kernel is not None
    kernel.image.write_bytes(content)
    assert provision_kernel(silence).state is State.MADE
    assert kernel.image.read_bytes() == b"image"


def test_a_kernel_with_a_file_gone_is_not_offered(machine: Machine) -> None:
    machine.add_kernel(FILES)
    provision_kernel(silence)
    kernel = find_kernel()
    assert kernel is not None
    next(kernel.modules.rglob("failover.ko")).unlink()
    assert find_kernel() is None


@pytest.mark.parametrize("manifest", ["", "{", "[]", '{"facts": {}, "files": {"vmlinuz": 3}}'])
def test_an_unreadable_manifest_is_a_kernel_that_is_not_there(machine: Machine, manifest: str) -> None:
    machine.add_kernel(FILES)
    provision_kernel(silence)
    kernel = find_kernel()
    assert kernel is not None
    (kernel.image.parent / "manifest.json").write_text(manifest)
    assert find_kernel() is None
    assert provision_kernel(silence).state is State.MADE


def test_a_download_that_breaks_leaves_nothing_and_says_why(machine: Machine) -> None:
    machine.add_kernel(FILES)
    (machine.folder / "breaks").touch()
    outcome = provision_kernel(silence)
    assert outcome.state is State.SKIPPED
    assert "connection reset by peer" in outcome.detail
    assert find_kernel() is None
    assert list((machine.cache / "kernel").iterdir()) == []


def test_what_a_killed_set_up_left_is_swept_by_the_next(machine: Machine) -> None:
    machine.add_kernel(FILES)
    leftover = machine.cache / "kernel" / ".partial-dead" / "unpacked"
    leftover.mkdir(parents=True)
    provision_kernel(silence)
    assert [path.name for path in (machine.cache / "kernel").iterdir()] == [f"{KERNEL}_{VERSION}"]


def test_lists_are_refreshed_once_when_they_do_not_know_the_kernel(machine: Machine) -> None:
    machine.add_kernel(FILES, listed=False)
    assert provision_kernel(silence).state is State.MADE
    assert machine.calls == ["apt-get update", f"apt-get download {KERNEL}"]


def test_without_root_the_lists_are_refreshed_in_the_users_cache(machine: Machine) -> None:
    machine.as_root(False)
    machine.add_kernel(FILES, listed=False)
    assert provision_kernel(silence).state is State.MADE
    assert all(f"Dir::State::Lists={machine.cache}/apt/lists" in call for call in machine.calls)


def test_a_full_disk_is_called_one(machine: Machine) -> None:
    machine.add_kernel(FILES)
    (machine.programs / "dpkg-deb").unlink()
    machine.add_program("dpkg-deb", "#!/bin/sh\necho 'tar: ./boot: Cannot write: No space left on device'\nexit 2\n")
    outcome = provision_kernel(silence)
    assert outcome.state is State.SKIPPED
    assert outcome.detail == f"no space left on the disk of {machine.cache}"
    assert outcome.fix is not None
    assert "XDG_CACHE_HOME" in outcome.fix


def test_a_package_without_modules_is_refused(machine: Machine) -> None:
    machine.add_kernel({f"boot/vmlinuz-{RELEASE}": b"image"})
    outcome = provision_kernel(silence)
    assert outcome.state is State.SKIPPED
    assert "0 module trees" in outcome.detail
    assert find_kernel() is None


def test_two_set_ups_at_once_download_once(machine: Machine) -> None:
    machine.add_kernel(FILES)
    (machine.folder / "slow").touch()
    command = [sys.executable, "-m", "virtgauge.cli", "provision", "kernel"]
    both = [subprocess.Popen(command, env=os.environ, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        said = sorted(process.communicate(timeout=200)[1].split()[1] for process in both)
    finally:
        for process in both:
            process.kill()
    assert said == ["made:", "ok:"]
    assert [call for call in machine.calls if "download" in call] == [f"apt-get download {KERNEL}"]


def test_modules_needed_are_read_from_the_module_itself() -> None:
    assert module_dependencies(module("virtio", "net-failover")) == ["virtio", "net_failover"]
    assert module_dependencies(module()) == []
    assert module_dependencies(b"no module") == []


def test_a_kernel_whose_modules_an_older_list_chose_is_fetched_anew(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.add_kernel(FILES)
    with monkeypatch.context() as older:
        older.setattr("virtgauge.provision.kernel._KEPT", "another list")
        assert provision_kernel(silence).state is State.MADE
    assert provision_kernel(silence).state is State.MADE
    assert provision_kernel(silence).state is State.OK


def test_what_is_there_serves_where_the_new_modules_cannot_be_had(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.add_kernel(FILES)
    with monkeypatch.context() as older:
        older.setattr("virtgauge.provision.kernel._KEPT", "another list")
        provision_kernel(silence)
    (machine.folder / "breaks").touch()
    outcome = provision_kernel(silence)
    assert outcome.state is State.SKIPPED
    kernel = find_kernel()
    assert kernel is not None
    assert kernel.image.read_bytes() == b"image"

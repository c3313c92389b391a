"""A guest kernel of the user's own: what a plan may say of it, what is booted, and what is recorded of that."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import struct
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from virtgauge.agent import AgentBinary
from virtgauge.errors import UnavailableError
from virtgauge.platforms import guest_kernel
from virtgauge.platforms.base import LaunchError
from virtgauge.platforms.boot_files import initramfs_with
from virtgauge.platforms.guest_kernel import OwnKernel, files_to_boot, kernel_of, release_of
from virtgauge.platforms.qemu.platform import QemuPlatform


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(guest_kernel, "_MODULES", tmp_path / "lib-modules")


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "vmlinux"
    path.write_bytes(b"\x7fELF.....Linux version %s (%s@%s)\0Linux version 6.12.9-own (me@here) (gcc) #1\n\0")
    return path


def refusal(**settings: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        OwnKernel(**settings)
    return str(caught.value)


def test_what_cannot_be_booted_is_refused_with_field_value_and_remedy(tmp_path: Path, kernel: Path) -> None:
    absent = tmp_path / "absent"
    for field in ("kernel", "initrd"):
        said = refusal(**{field: absent})
        assert field in said
        assert f"{absent} is no file: give the path" in said
    assert "is no folder" in refusal(kernel=kernel, kernel_modules=kernel)
    assert "name the kernel, too" in refusal(kernel_modules=tmp_path)
    assert "list each word by itself" in refusal(kernel_words=["a b"])
    assert "leave it out" in refusal(kernel_words=["virtgauge.channel=serial:/dev/ttyS0"])
    assert "boot_timeout_s" in refusal(boot_timeout_s=0)


def test_a_path_is_of_the_folder_that_the_command_is_started_in(kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(kernel.parent)
    assert OwnKernel(kernel=Path("vmlinux")).kernel == kernel


def test_each_result_says_what_was_booted(tmp_path: Path, kernel: Path) -> None:
    initrd = tmp_path / "initrd"
    initrd.write_bytes(b"an archive")
    found = kernel_of(OwnKernel(kernel=kernel, initrd=initrd, kernel_words=("nohz=off", "quiet")))
    assert found.record() == {
        "kernel": str(kernel),
        "kernel_sha256": hashlib.sha256(kernel.read_bytes()).hexdigest(),
        "kernel_release": "6.12.9-own",
        "initrd": str(initrd),
        "initrd_sha256": hashlib.sha256(b"an archive").hexdigest(),
        "kernel_words": "nohz=off quiet",
    }


def test_a_boots_verdict_is_of_one_kernel_initrd_and_command_line(tmp_path: Path, kernel: Path) -> None:
    initrd = tmp_path / "initrd"
    initrd.write_bytes(b"an archive")
    keys = {kernel_of(OwnKernel(kernel=kernel)).key, kernel_of(OwnKernel(kernel=kernel, initrd=initrd)).key}
    keys.add(kernel_of(OwnKernel(kernel=kernel, kernel_words=("quiet",))).key)
    kernel.write_bytes(b"another")
    keys.add(kernel_of(OwnKernel(kernel=kernel)).key)
    assert len(keys) == 4


def test_its_modules_are_those_that_are_installed_for_its_release(tmp_path: Path, kernel: Path) -> None:
    assert kernel_of(OwnKernel(kernel=kernel)).modules is None
    installed = tmp_path / "lib-modules" / "6.12.9-own"
    installed.mkdir(parents=True)
    assert kernel_of(OwnKernel(kernel=kernel)).modules == installed
    assert kernel_of(OwnKernel(kernel=kernel, kernel_modules=tmp_path)).modules == tmp_path


def test_the_release_of_a_packed_kernel_is_in_its_header(tmp_path: Path) -> None:
    image = bytearray(4096)
    image[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", image, 0x20E, 0x700)
    image[0x900:0x930] = b"6.1.0-49-rt-amd64 (debian-kernel@lists) #1 SMP".ljust(0x30, b"\0")
    path = tmp_path / "vmlinuz"
    path.write_bytes(image)
    assert release_of(path) == "6.1.0-49-rt-amd64"
    path.write_bytes(b"no kernel at all")
    assert release_of(path) is None


def test_without_any_kernel_the_command_that_provides_one_is_named(kernel: Path) -> None:
    with pytest.raises(UnavailableError) as caught:
        kernel_of(OwnKernel())
    assert caught.value.remedy == "virtgauge provision kernel"
    settings = OwnKernel(kernel=kernel)
    kernel.unlink()
    with pytest.raises(UnavailableError, match=r"vmlinux: No such file"):
        kernel_of(settings)


def test_what_a_guest_is_handed_is_there_or_its_launch_fails_with_the_reason(tmp_path: Path, kernel: Path) -> None:
    path = tmp_path / "agent"
    path.write_bytes(b"an agent")
    agent, settings = AgentBinary(path, "0" * 64), OwnKernel(kernel=kernel, kernel_words=("quiet",))
    booted, image, initramfs, modules = files_to_boot(settings, agent, ["virtio_pci"])
    assert (booted.words, image, modules) == (("quiet",), kernel, []), "an ELF file is booted as it is"
    assert initramfs.is_file()
    kernel.unlink()
    for lost in (OwnKernel(), settings):
        with pytest.raises(LaunchError) as caught:
            files_to_boot(lost, agent, [])
        assert caught.value.stage == "start"


def test_settings_that_a_plan_does_not_give_are_not_recorded(kernel: Path) -> None:
    plain = QemuPlatform().describe()
    assert not plain.keys() & OwnKernel.model_fields.keys()
    own = QemuPlatform(QemuPlatform.Settings(kernel=kernel, kernel_words=("quiet",))).describe()
    assert (own["kernel"], own["kernel_words"]) == (str(kernel), ["quiet"])


def test_the_agent_is_appended_to_an_own_initrd_where_the_kernel_looks_for_it(tmp_path: Path) -> None:
    """Each archive begins at a multiple of four bytes, zeros before it."""
    path = tmp_path / "agent"
    path.write_bytes(b"an agent")
    own = tmp_path / "initrd"
    own.write_bytes(gzip.compress(b"something that is no multiple of four") + b"\0")
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "own-driver.ko.xz").write_bytes(lzma.compress(b"\0depends=\0driver\0"))
    built, names = initramfs_with(AgentBinary(path, "0" * 64), modules, ["own_driver"], own)
    content = built.read_bytes()
    assert names == ["own_driver"]
    assert content.startswith(own.read_bytes())
    rest = content[len(own.read_bytes()) :].lstrip(b"\0")
    assert rest.startswith(b"070701")
    assert (len(content) - len(rest)) % 4 == 0
    assert b"modules/own_driver.ko\0" in rest
    assert b"\0depends=\0driver\0" in rest, "a module is loaded as it is, and so not compressed"
    alone, names = initramfs_with(AgentBinary(path, "0" * 64), None, ["own_driver"])
    assert names == []
    assert b"own_driver" not in alone.read_bytes()

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import image_parts as parts
import pyarrow
import pytest

from virtgauge.errors import UnavailableError, UsageError
from virtgauge.image.contents import DRIVERS, Contents, DialChannel, SerialChannel, contents_of, digest_of


def entries(contents: Contents) -> dict[str, tuple[int, bytes]]:
    """Mode and content by name, read from the archive as the kernel does."""
    plain = pyarrow.CompressedInputStream(io.BytesIO(contents.initramfs), "zstd").read()
    found, place = {}, 0
    while True:
        assert plain[place : place + 6] == b"070701"
        fields = [int(plain[place + 6 + 8 * n : place + 14 + 8 * n], 16) for n in range(13)]
        mode, mtime, size, name_size = fields[1], fields[5], fields[6], fields[11]
        name = plain[place + 110 : place + 110 + name_size - 1].decode()
        begin = (place + 110 + name_size + 3) // 4 * 4
        assert mtime == 0
        if name == "TRAILER!!!":
            return found
        found[name] = (mode, plain[begin : begin + size])
        place = (begin + size + 3) // 4 * 4


def test_the_first_root_file_system_holds_the_agent_as_init_and_every_driver(tmp_path: Path) -> None:
    found = entries(parts.contents(tmp_path))
    assert found["init"] == (0o100755, b"agent" * 1000)
    modules = {name.removeprefix("modules/").removesuffix(".ko") for name in found if name.endswith(".ko")}
    assert modules == set(DRIVERS)


def test_the_drivers_are_those_of_every_hypervisor() -> None:
    wanted = {
        *("virtio_pci", "virtio_net", "virtio_blk", "virtio_scsi", "virtio_console", "e1000", "e1000e", "vmxnet3"),
        *("vmw_pvscsi", "hv_vmbus", "hv_netvsc", "hv_storvsc", "xen_netfront", "xen_blkfront", "tulip", "pcnet32"),
        *("ahci", "ata_piix", "sd_mod"),
    }
    assert wanted <= set(DRIVERS)


def test_the_same_parts_are_the_same_contents_in_any_folder(tmp_path: Path) -> None:
    made = []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        made.append(parts.contents(tmp_path / name))
    assert made[0] == made[1]


def test_any_other_part_is_another_image(tmp_path: Path) -> None:
    kernel, loader = parts.kernel(tmp_path), parts.boot_loader()
    first = contents_of(kernel, parts.agent(tmp_path), SerialChannel(), loader)
    line = contents_of(kernel, parts.agent(tmp_path), SerialChannel("/dev/ttyS1"), loader)
    newer = contents_of(kernel, parts.agent(tmp_path, b"another"), SerialChannel(), loader)
    kernel.image.write_bytes(b"another")
    rebuilt = contents_of(kernel, parts.agent(tmp_path), SerialChannel(), loader)
    assert len({first.digest, line.digest, newer.digest, rebuilt.digest}) == 4
    assert first.identifier("disk") != newer.identifier("disk")
    assert first.identifier("disk") != first.identifier("file")
    assert first.identifier("disk").version == 4


def test_the_record_tells_what_it_was_made_of(tmp_path: Path) -> None:
    made = parts.contents(tmp_path)
    record = json.loads(made.record_text())
    assert record["kernel"] == "linux-image-6.1.0-99-amd64 6.1.199-1"
    assert record["agent_sha256"] == "a" * 64
    assert record["channel"] == {"kind": "serial", "device": "/dev/ttyS0"}
    assert record["digest"] == made.digest == digest_of(record, made.kernel, made.initramfs)
    assert str(tmp_path) not in made.record_text().decode()


def test_the_command_line_has_drivers_found_and_the_channel_on_a_line_without_messages(tmp_path: Path) -> None:
    words = parts.contents(tmp_path).command_line.split()
    assert "virtgauge.modules=auto" in words
    assert "virtgauge.channel=serial:/dev/ttyS0" in words
    assert not any(word.startswith("console=ttyS") for word in words)


def test_a_kernel_without_a_driver_is_refused_with_what_to_do(tmp_path: Path) -> None:
    kernel = parts.kernel(tmp_path)
    (kernel.modules / "kernel" / "vmxnet3.ko").unlink()
    with pytest.raises(UnavailableError, match="'vmxnet3'") as caught:
        contents_of(kernel, parts.agent(tmp_path), SerialChannel(), parts.boot_loader())
    assert caught.value.remedy == "run `virtgauge provision kernel`"


IDENTITY = b"virtgauge identity 1\nexpires 99999999999\n-----BEGIN CERTIFICATE-----\n"


def test_an_identity_is_in_the_image_for_root_only_and_not_in_its_record(tmp_path: Path) -> None:
    channel = DialChannel("192.0.2.1:7443", IDENTITY, "192.0.2.10/24", gateway="192.0.2.254", nic="52:54:00:00:00:01")
    made = parts.contents(tmp_path, channel)
    assert entries(made)["identity.pem"] == (0o100600, IDENTITY)
    assert "BEGIN" not in made.record_text().decode()
    assert "BEGIN" not in repr(channel)
    words = made.command_line.split()
    assert "virtgauge.channel=dial:192.0.2.1:7443" in words
    assert words[-4:] == [
        "virtgauge.address=192.0.2.10/24",
        "virtgauge.patience=3600",
        "virtgauge.gateway=192.0.2.254",
        "virtgauge.nic=52:54:00:00:00:01",
    ]
    (tmp_path / "another").mkdir()
    another = DialChannel("192.0.2.1:7443", IDENTITY + b"x", "192.0.2.10/24")
    assert parts.contents(tmp_path / "another", another).digest != made.digest


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("controller", "controller:7443", "--dial"),
        ("controller", "192.0.2.1:0", "--dial"),
        ("controller", "192.0.2.1:7443 quiet", "--dial"),
        ("identity", b"-----BEGIN PRIVATE KEY-----", "no identity"),
        ("identity", b"virtgauge identity 1\nexpires 5\n", "expired"),
        ("address", "192.0.2.10", "--address"),
        ("gateway", "gateway", "--gateway"),
        ("nic", "eth0", "--nic"),
        ("patience_s", 5, "--patience"),
    ],
)
def test_a_call_that_cannot_be_is_refused_by_its_option(field: str, value: Any, words: str) -> None:
    good = {"controller": "192.0.2.1:7443", "identity": IDENTITY, "address": "192.0.2.10/24"}
    DialChannel(**good)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=words):
        DialChannel(**good | {field: value})


@pytest.mark.parametrize("device", ["ttyS0", "/dev/sda", "/dev/ttyS0 quiet", "/dev/../ttyS0", ""])
def test_what_is_no_serial_line_is_refused(device: str) -> None:
    with pytest.raises(UsageError, match="no serial line"):
        SerialChannel(device)

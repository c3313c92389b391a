"""Other hypervisors' formats: as their specifications say, as qemu-img reads them, and the same each time."""

from __future__ import annotations

import hashlib
import json
import struct
import subprocess
import tarfile
import uuid
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import image_parts as parts
import pytest

from virtgauge.image import formats
from virtgauge.image.build import _CONVERSIONS
from virtgauge.image.contents import Contents
from virtgauge.image.disk import make_disk

MAKERS: dict[str, tuple[str, Callable[[Path, Path, Contents], None]]] = {
    "qcow2": ("qcow2", _CONVERSIONS[formats.Format.QCOW2]),
    "vmdk": ("vmdk", formats.make_vmdk),
    "stream.vmdk": ("vmdk", lambda *given: formats.make_vmdk(*given, *formats.STREAM)),
    "vhd": ("vpc", formats.make_vhd),
    "vhdx": ("vhdx", formats.make_vhdx),
    "vdi": ("vdi", formats.make_vdi),
}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Contents:
    return parts.contents(tmp_path_factory.mktemp("parts"))


@pytest.fixture(scope="module")
def raw(small: Contents, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("raw")
    make_disk(folder / "disk.raw", small, parts.boot_loader(), folder)
    return folder / "disk.raw"


@pytest.fixture(scope="module")
def made(small: Contents, raw: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("formats")

    def image(name: str) -> Path:
        path = folder / f"image.{name}"
        if not path.exists():
            MAKERS[name][1](raw, path, small)
        return path

    return image


def qemu_img(*arguments: str | Path) -> str:
    return subprocess.run(["qemu-img", *arguments], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("name", MAKERS)
def test_qemu_img_finds_it_whole_and_the_same_disk(name: str, made: Callable[[str], Path], raw: Path) -> None:
    image, driver = made(name), MAKERS[name][0]
    told = json.loads(qemu_img("info", "--output=json", image))
    assert (told["format"], told["virtual-size"]) == (driver, raw.stat().st_size)
    if driver != "vpc":  # has nothing to check
        assert "No errors were found" in qemu_img("check", "-f", driver, image)
    assert "identical" in qemu_img("compare", "-f", driver, "-F", "raw", image, raw)


@pytest.mark.parametrize("name", MAKERS)
def test_the_same_disk_is_the_same_file_whatever_its_name(
    name: str, made: Callable[[str], Path], raw: Path, small: Contents, tmp_path: Path
) -> None:
    MAKERS[name][1](raw, tmp_path / "another-name", small)
    assert (tmp_path / "another-name").read_bytes() == made(name).read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["another-name"]


def test_a_vhd_ends_with_its_footer_and_begins_with_a_copy(made: Callable[[str], Path], raw: Path) -> None:
    image = made("vhd").read_bytes()
    footer = image[-512:]
    assert footer == image[:512]
    cookie, _, version, _, time = struct.unpack_from(">8sIIQI", footer)
    assert (cookie, version, time) == (b"conectix", 0x10000, 0)
    (size,) = struct.unpack_from(">Q", footer, 48)
    assert size == raw.stat().st_size
    blank = footer[:64] + bytes(4) + footer[68:]
    assert struct.unpack_from(">I", footer, 64)[0] == ~sum(blank) & 0xFFFFFFFF


def test_the_checksum_of_a_vhdx_is_castagnolis() -> None:
    assert formats.crc32c(b"123456789") == 0xE3069283
    assert formats.crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4


def test_a_vhdx_has_two_good_headers_the_second_in_force_and_no_log(made: Callable[[str], Path]) -> None:
    image = made("vhdx").read_bytes()
    assert image[:8] == b"vhdxfile"
    for sequence, place in ((1, 0x10000), (2, 0x20000)):
        header = image[place : place + 4096]
        signature, checksum, number = struct.unpack_from("<4sIQ", header)
        assert (signature, number) == (b"head", sequence)
        assert checksum == formats.crc32c(header[:4] + bytes(4) + header[8:])
        assert header[48:64] == bytes(16)
        length, offset = struct.unpack_from("<IQ", header, 68)
        assert image[offset : offset + length] == bytes(length)


def test_a_vdi_has_uuids_of_its_contents(made: Callable[[str], Path], small: Contents) -> None:
    image = made("vdi").read_bytes()
    assert struct.unpack_from("<II", image, 64) == (0xBEDA107F, 0x10001)
    assert uuid.UUID(bytes_le=image[392:408]) == small.identifier("VDI")


@pytest.mark.parametrize(("name", "kind"), [("vmdk", "monolithicSparse"), ("stream.vmdk", "streamOptimized")])
def test_a_vmdk_describes_itself(name: str, kind: str, made: Callable[[str], Path], raw: Path) -> None:
    image = made(name).read_bytes()
    magic, version = struct.unpack_from("<4sI", image)
    assert (magic, version) == (b"KDMV", 3 if kind == "streamOptimized" else 1)
    descriptor = image[512 : 512 + 20 * 512].rstrip(b"\0").decode()
    assert f'createType="{kind}"' in descriptor
    assert f'RW {raw.stat().st_size // 512} SPARSE "virtgauge.vmdk"' in descriptor
    identifier = next(line for line in descriptor.splitlines() if line.startswith("CID="))
    assert identifier not in ("CID=ffffffff", "CID=fffffffe")
    assert len(identifier) == len("CID=00000000")


def test_a_content_identifier_shorter_than_eight_digits_is_replaced_whole(
    raw: Path, small: Contents, made: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_few_digits(source: Path, target: Path, driver: str, *options: str) -> None:
        original(source, target, driver, *options)
        image = bytearray(target.read_bytes())
        begin = image.index(b"CID=")
        end = image.index(b"\n", begin)
        room = image[512 : 512 + 20 * 512]
        shorter = bytes(room).replace(bytes(image[begin:end]), b"CID=7", 1)
        image[512 : 512 + 20 * 512] = shorter.ljust(len(room), b"\0")
        target.write_bytes(image)

    original = formats.convert
    monkeypatch.setattr(formats, "convert", with_few_digits)
    formats.make_vmdk(raw, tmp_path / "disk", small)
    assert (tmp_path / "disk").read_bytes() == made("vmdk").read_bytes()


OVF = "{http://schemas.dmtf.org/ovf/envelope/1}"
RASD = "{http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData}"


@pytest.fixture(scope="module")
def archive(raw: Path, small: Contents, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ova") / "image.ova"
    formats.make_ova(raw, path, small)
    return path


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as opened:
        assert all((m.mtime, m.uid, m.gid, m.uname, m.mode) == (0, 0, 0, "", 0o644) for m in opened.getmembers())
        return {member.name: opened.extractfile(member).read() for member in opened.getmembers()}  # type: ignore[union-attr]


def test_an_ova_begins_with_its_descriptor_and_its_manifest_fits(archive: Path) -> None:
    found = members(archive)
    assert list(found) == ["virtgauge.ovf", "virtgauge.mf", "virtgauge-disk1.vmdk"]
    assert archive.read_bytes()[257:263] == b"ustar\0"
    for name in ("virtgauge.ovf", "virtgauge-disk1.vmdk"):
        assert f"SHA256({name})= {hashlib.sha256(found[name]).hexdigest()}" in found["virtgauge.mf"].decode()


def test_an_ovas_descriptor_names_disk_and_hardware_in_the_order_of_the_schema(archive: Path, raw: Path) -> None:
    found = members(archive)
    envelope = ET.fromstring(found["virtgauge.ovf"])
    file = envelope.find(f"{OVF}References/{OVF}File")
    disk = envelope.find(f"{OVF}DiskSection/{OVF}Disk")
    assert file is not None
    assert disk is not None
    assert int(file.attrib[f"{OVF}size"]) == len(found["virtgauge-disk1.vmdk"])
    assert int(disk.attrib[f"{OVF}capacity"]) == raw.stat().st_size
    items = envelope.findall(f".//{OVF}Item")
    assert sorted(int(item.findtext(f"{RASD}ResourceType") or 0) for item in items) == [3, 4, 6, 10, 17]
    for item in items:
        fields = [field.tag for field in item]
        assert fields == sorted(fields)


def test_the_same_contents_are_the_same_ova(archive: Path, raw: Path, small: Contents, tmp_path: Path) -> None:
    formats.make_ova(raw, tmp_path / "another.ova", small)
    assert (tmp_path / "another.ova").read_bytes() == archive.read_bytes()
    assert len(list(tmp_path.iterdir())) == 1

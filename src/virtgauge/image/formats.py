"""The formats of an image: raw disks, and those of other hypervisors, most of them written by qemu-img.

VDI (VirtualBox): VirtualBox, src/VBox/Storage/VDICore.h (VDIHEADER1).
VHD (Virtual PC, Azure, generation 1 of Hyper-V): Microsoft, Virtual Hard Disk Image Format Specification 1.0: "Hard
Disk Footer Format".
VHDX (Hyper-V): Microsoft, [MS-VHDX] Virtual Hard Disk v2 File Format: 2.2.2 Headers, 2.3 Log, 2.6.2.4 Virtual Disk ID.
VMDK (VMware; sparse in one file, or compressed as a stream for an OVA): VMware, Virtual Disk Format 5.0 (technical
note), "The Disk Descriptor File" and "Hosted Sparse Extents".
OVA (a virtual machine with its disk in one file, for ESXi and VirtualBox to import): DMTF, Open Virtualization Format
Specification 1.1 (DSP0243); resource types by CIM (DSP0004, RASD).
"""

from __future__ import annotations

import enum
import hashlib
import io
import json
import re
import shutil
import struct
import subprocess
import tarfile
import uuid
from pathlib import Path
from typing import BinaryIO

from virtgauge.errors import UnavailableError, UsageError, VirtgaugeError
from virtgauge.host.process import ran
from virtgauge.image.contents import NAME, Contents
from virtgauge.provision.cache import no_space


class Format(enum.StrEnum):
    """What an image may be."""

    RAW = "raw"
    ISO = "iso"
    QCOW2 = "qcow2"
    VMDK = "vmdk"
    VHD = "vhd"
    VHDX = "vhdx"
    VDI = "vdi"
    OVA = "ova"


def format_of(path: Path) -> Format:
    """The format that a file's name asks for.  Raises UsageError: none."""
    suffix = path.suffix.lower().removeprefix(".")
    named = {"img": Format.RAW} | {entry.value: entry for entry in Format}
    if suffix not in named:
        raise UsageError(f"the name {path.name!r} tells no format", f"give --format: {', '.join(Format)}")
    return named[suffix]


_BOUND_S = 300.0


def find_qemu_img() -> Path:
    """The program.  Raises UnavailableError: it is not installed."""
    found = shutil.which("qemu-img")
    if found is None:
        raise UnavailableError(
            "qemu-img is not installed, and writes every format but raw and iso",
            "sudo apt-get install --no-install-recommends qemu-utils",
        )
    return Path(found)


def convert(source: Path, target: Path, driver: str, *options: str, compress: bool = False) -> None:
    """Write a raw disk in another format, by QEMU's driver.  Raises VirtgaugeError: it failed, or the disk was full."""
    words = [*(["-c"] if compress else ()), *(["-o", ",".join(options)] if options else ())]
    # One writer: several would lay the parts down in the order in which they happen to be ready.  Some formats hold the
    # name that they are given.
    _run(target.parent, "convert", "-m", "1", "-f", "raw", "-O", driver, *words, str(source), target.name)


def driver_of(image: Path) -> str:
    """QEMU's driver of an image, by its content.  Raises VirtgaugeError: it cannot be read."""
    return str(json.loads(_run(image.parent, "info", "--output=json", image.name))["format"])


def check(image: Path, driver: str) -> None:
    """Have an image's own structure checked.  Raises VirtgaugeError: it is damaged."""
    if driver not in ("raw", "vpc"):  # these have nothing to check
        _run(image.parent, "check", "-q", "-f", driver, image.name)


def to_raw(image: Path, driver: str, target: Path) -> None:
    """Write an image's disk as it is for a guest.  Raises VirtgaugeError: it cannot be read, or the disk was full."""
    _run(target.parent, "convert", "-f", driver, "-O", "raw", str(image.absolute()), target.name)


def _run(folder: Path, *arguments: str) -> str:
    program = find_qemu_img()
    try:
        done = ran([program, *arguments], timeout_s=_BOUND_S, cwd=folder)
    except subprocess.TimeoutExpired:
        raise VirtgaugeError(f"qemu-img {arguments[0]} did not end within {_BOUND_S:g} s", "try again") from None
    if done.returncode == 0:
        return done.stdout
    said = (done.stderr or done.stdout).strip().splitlines()
    if any("No space left" in line for line in said):
        raise no_space(folder)
    raise VirtgaugeError(f"qemu-img {arguments[0]}: {said[-1] if said else f'status {done.returncode}'}")


_IMAGE, _SNAPSHOT = 392, 408  # Where the header has the UUIDs of the image and of its latest change


def make_vdi(raw: Path, target: Path, contents: Contents) -> None:
    """Write a disk that grows."""
    convert(raw, target, "vdi")
    with target.open("r+b") as file:
        _write(file, _IMAGE, contents.identifier("VDI").bytes_le)
        _write(file, _SNAPSHOT, contents.identifier("VDI snapshot").bytes_le)


_FOOTER = 512
_TIME, _CHECKSUM, _IDENTIFIER = 24, 64, 68


def make_vhd(raw: Path, target: Path, contents: Contents) -> None:
    """Write a disk that grows, exactly as long as the raw one."""
    convert(raw, target, "vpc", "subformat=dynamic", "force_size=on")
    with target.open("r+b") as file:
        footer = bytearray(file.read(_FOOTER))  # a dynamic disk begins with a copy of it
        struct.pack_into(">I", footer, _TIME, 0)
        footer[_IDENTIFIER : _IDENTIFIER + 16] = contents.identifier("VHD").bytes
        struct.pack_into(">I", footer, _CHECKSUM, checksum(bytes(footer)))
        for place in ((0, 0), (-_FOOTER, 2)):
            file.seek(*place)
            file.write(footer)


def checksum(footer: bytes) -> int:
    """The one's complement of the sum of a footer's bytes, less the checksum's own."""
    return ~(sum(footer) - sum(footer[_CHECKSUM : _CHECKSUM + 4])) & 0xFFFFFFFF


_HEADERS = (0x10000, 0x20000)
_HEADER_BYTES = 4096
_REGIONS = 0x30000
_METADATA = uuid.UUID("8b7ca206-4790-4b9a-b8fe-575f050f886e")
_DISK_ID = uuid.UUID("beca12ab-b2e6-4523-93ef-c309e000c746")


def make_vhdx(raw: Path, target: Path, contents: Contents) -> None:
    """Write a disk that grows, by blocks of 1 MiB."""
    convert(raw, target, "vhdx", "subformat=dynamic", "block_size=1M")
    with target.open("r+b") as file:
        for sequence, place in enumerate(_HEADERS, start=1):
            header = bytearray(_read(file, place, _HEADER_BYTES))
            assert header[:4] == b"head"
            assert header[48:64] == bytes(16), "qemu-img has left a log to replay"
            struct.pack_into("<Q", header, 8, sequence)
            header[16:32] = contents.identifier("VHDX file").bytes_le
            header[32:48] = contents.identifier("VHDX data").bytes_le
            header[4:8] = bytes(4)
            struct.pack_into("<I", header, 4, crc32c(bytes(header)))
            _write(file, place, bytes(header))
        # No header names a log that counts; but qemu-img leaves in its place what it once held.
        length, offset = struct.unpack("<IQ", _read(file, _HEADERS[0] + 68, 12))
        _write(file, offset, bytes(length))
        _write(file, _disk_id_place(file), contents.identifier("VHDX disk").bytes_le)


def _disk_id_place(file: BinaryIO) -> int:
    """Where the metadata have the disk's own identifier (page 83 of SCSI's inquiry)."""
    region = _entry(_read(file, _REGIONS, 0x10000), 8, 16, _METADATA)
    (metadata,) = struct.unpack_from("<Q", region, 16)
    item = _entry(_read(file, metadata, 0x10000), 10, 32, _DISK_ID)
    return int(metadata + struct.unpack_from("<I", item, 16)[0])


def _entry(table: bytes, count_at: int, first: int, kind: uuid.UUID) -> bytes:
    """The entry of a kind in a table of entries of 32 bytes that begin with their kind."""
    (count,) = struct.unpack_from("<H", table, count_at)
    entries = (table[first + 32 * number :][:32] for number in range(count))
    return next(entry for entry in entries if entry[:16] == kind.bytes_le)


def _read(file: BinaryIO, place: int, length: int) -> bytes:
    file.seek(place)
    return file.read(length)


def _write(file: BinaryIO, place: int, content: bytes) -> None:
    file.seek(place)
    file.write(content)


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli; RFC 3720, appendix B.4), by which the format checks its headers."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


_DESCRIPTOR = slice(512, 512 + 20 * 512)  # Where qemu-img has the descriptor: the 20 sectors behind the header


# As an OVA holds it, and as ESXi imports it
STREAM = ("subformat=streamOptimized", "adapter_type=lsilogic", "hwversion=7")


def make_vmdk(raw: Path, target: Path, contents: Contents, *options: str) -> None:
    """Write a disk for Workstation, Fusion and VirtualBox (``monolithicSparse``), unless the options say otherwise."""
    options = options or ("subformat=monolithicSparse",)
    written = target.parent / f"{NAME}.vmdk"  # the descriptor holds the name, and the same inputs are the same bytes
    convert(raw, written, "vmdk", *options)
    with written.open("r+b") as file:
        room = file.read(_DESCRIPTOR.stop)[_DESCRIPTOR]
        text, _, _ = room.partition(b"\0")  # behind it may be the end of a longer one, of a number with more digits
        # what tells this content from another; the highest number means that there is none
        content_id = b"CID=%08x" % (contents.number("VMDK") % 0xFFFFFFFE)
        descriptor, found = re.subn(rb"(?m)^CID=[0-9a-f]+$", content_id, text, count=1)
        assert found == 1
        file.seek(_DESCRIPTOR.start)
        file.write(descriptor.ljust(len(room), b"\0"))
    written.rename(target)


MEMORY_MIB = 512
VCPUS = 2

# Both hypervisors know these two devices by these names, and choose others (VMXNET 3, PVSCSI) by a setting afterwards.
_CONTROLLER = "lsilogic"
_NETWORK_CARD = "E1000"

_ENVELOPE = """<?xml version="1.0" encoding="UTF-8"?>
<Envelope xmlns="http://schemas.dmtf.org/ovf/envelope/1" xmlns:ovf="http://schemas.dmtf.org/ovf/envelope/1"
 xmlns:rasd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData"
 xmlns:vssd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_VirtualSystemSettingData"
 xmlns:vmw="http://www.vmware.com/schema/ovf">
 <References>
  <File ovf:id="file1" ovf:href={disk} ovf:size="{size}"/>
 </References>
 <DiskSection>
  <Info>The disk that the guest starts from</Info>
  <Disk ovf:diskId="disk1" ovf:fileRef="file1" ovf:capacity="{capacity}" ovf:capacityAllocationUnits="byte"
   ovf:format="http://www.vmware.com/interfaces/specifications/vmdk.html#streamOptimized"/>
 </DiskSection>
 <NetworkSection>
  <Info>The network that is measured, or that the agent calls through</Info>
  <Network ovf:name="VM Network"><Description>Any network</Description></Network>
 </NetworkSection>
 <VirtualSystem ovf:id={name}>
  <Info>A guest of virtgauge</Info>
  <Name>{plain_name}</Name>
  <AnnotationSection>
   <Info>What it is</Info>
   <Annotation>{annotation}</Annotation>
  </AnnotationSection>
  <OperatingSystemSection ovf:id="101" vmw:osType="otherLinux64Guest">
   <Info>Linux, 64 bit</Info>
  </OperatingSystemSection>
  <VirtualHardwareSection>
   <Info>Virtual hardware</Info>
   <System>
    <vssd:ElementName>Virtual hardware family</vssd:ElementName>
    <vssd:InstanceID>0</vssd:InstanceID>
    <vssd:VirtualSystemIdentifier>{plain_name}</vssd:VirtualSystemIdentifier>
    <vssd:VirtualSystemType>vmx-10</vssd:VirtualSystemType>
   </System>
{items}  </VirtualHardwareSection>
 </VirtualSystem>
</Envelope>
"""


def make_ova(raw: Path, target: Path, contents: Contents) -> None:
    """Write the archive: descriptor, manifest of hashes, disk."""
    disk = target.parent / f"{NAME}-disk1.vmdk"
    make_vmdk(raw, disk, contents, *STREAM)
    content = disk.read_bytes()
    descriptor = _descriptor(disk.name, len(content), raw.stat().st_size, contents).encode()
    hashed = ((f"{NAME}.ovf", descriptor), (disk.name, content))
    manifest = "".join(f"SHA256({name})= {hashlib.sha256(part).hexdigest()}\n" for name, part in hashed).encode()
    disk.unlink()
    with tarfile.open(target, "w", format=tarfile.USTAR_FORMAT) as archive:
        for name, part in (hashed[0], (f"{NAME}.mf", manifest), hashed[1]):
            member = tarfile.TarInfo(name)  # of nobody, and of no time
            member.size = len(part)
            archive.addfile(member, io.BytesIO(part))


def _descriptor(disk: str, size: int, capacity: int, contents: Contents) -> str:
    from xml.sax.saxutils import quoteattr  # takes the clients of HTTP with it, for which no other command should wait

    items = (
        _item(1, 3, f"{VCPUS} virtual CPUs", AllocationUnits="hertz * 10^6", VirtualQuantity=VCPUS),
        _item(2, 4, f"{MEMORY_MIB} MB of memory", AllocationUnits="byte * 2^20", VirtualQuantity=MEMORY_MIB),
        _item(3, 6, "SCSI controller 0", Address=0, ResourceSubType=_CONTROLLER),
        _item(4, 17, "Hard disk 1", AddressOnParent=0, HostResource="ovf:/disk/disk1", Parent=3),
        _item(
            5,
            10,
            "Network adapter 1",
            AddressOnParent=7,
            AutomaticAllocation="true",
            Connection="VM Network",
            ResourceSubType=_NETWORK_CARD,
        ),
    )
    return _ENVELOPE.format(
        disk=quoteattr(disk),
        size=size,
        capacity=capacity,
        name=quoteattr(NAME),
        plain_name=NAME,
        annotation=f"image {contents.digest[:16]}, agent {contents.record['agent_sha256'][:16]}",
        items="".join(items),
    )


def _item(number: int, kind: int, name: str, **fields: object) -> str:
    """One piece of hardware; its fields in the order of the alphabet, which the schema demands."""
    every = {"ElementName": name, "InstanceID": number, "ResourceType": kind} | fields
    lines = (f"    <rasd:{field}>{value}</rasd:{field}>\n" for field, value in sorted(every.items()))
    return f"   <Item>\n{''.join(lines)}   </Item>\n"

"""An OVA: a virtual machine with its disk in one file, for ESXi and VirtualBox to import.

Source: DMTF, Open Virtualization Format Specification 1.1 (DSP0243); resource types by CIM (DSP0004, RASD).
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path
from xml.sax.saxutils import quoteattr

from virtgauge.image.contents import NAME, Contents
from virtgauge.image.vmdk import make_stream

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
    make_stream(raw, disk, contents)
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

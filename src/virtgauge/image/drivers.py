"""The drivers that an image carries: whatever a hypervisor of the papers, or of their readers, shows a guest."""

from __future__ import annotations

from collections.abc import Mapping

DRIVERS: Mapping[str, tuple[str, ...]] = {
    "virtio": (
        *("virtio_pci", "virtio_mmio", "virtio_net", "virtio_blk", "virtio_scsi", "virtio_console"),
        *("9p", "9pnet_virtio"),  # folders of the host, as the platform `qemu` gives them
    ),
    "Intel network cards, emulated by all": ("e1000", "e1000e"),
    "VMware ESXi": ("vmxnet3", "vmw_pvscsi", "mptspi", "mptsas"),
    "Hyper-V": ("hv_vmbus", "hv_netvsc", "hv_storvsc", "tulip"),  # tulip: generation 1's "legacy" adapter
    "Xen": ("xen_netfront", "xen_blkfront"),
    "VirtualBox": ("pcnet32",),
    "disks": ("ahci", "ata_piix", "sd_mod", "nvme"),
    "file systems": ("ext4", "crc32c_generic"),
}
"""Module names by what they are for; what these depend on comes with them."""


def driver_names() -> tuple[str, ...]:
    """All of them."""
    return tuple(name for names in DRIVERS.values() for name in names)

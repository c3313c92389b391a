"""A plan's section of kind ``libvirt``."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from virtgauge.platforms.attached.settings import Endpoint
from virtgauge.platforms.libvirt.domain_xml import LIBVIRTS_OWN
from virtgauge.platforms.libvirt.drivers import Target, target_of

DEFAULT_MEMORY_MIB = 512
_MAC = re.compile(r"[0-9a-f][02468ace](:[0-9a-f]{2}){5}")
"""Of one device: the lowest bit of the first byte would make it a group's."""
_OF_A_CALL = ("listen", "credentials", "management")


def _named(value: str) -> str:
    if not value.removeprefix(LIBVIRTS_OWN).strip() or not value.isprintable():
        raise ValueError(f"{value!r} names no network of the hypervisor: br0, VM Network, {LIBVIRTS_OWN}default …")
    return value


NetworkName = Annotated[str, AfterValidator(_named)]
"""A network of the hypervisor, or of libvirt."""

_FORMATS = {".iso": "raw", ".raw": "raw", ".img": "raw", ".qcow2": "qcow2", ".vmdk": "vmdk", ".vhdx": "vhdx"} | {
    ".vdi": "vdi"
}


class LibvirtSettings(BaseModel):
    """Guests that libvirt starts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    uri: str = "qemu:///system"
    """The connection: qemu:///system, qemu:///session, xen:///, lxc:///, vbox:///session, esx://, hyperv://."""
    image: Annotated[str, Field(min_length=1)] | None = None
    """An image of `virtgauge image`, by the path that the hypervisor knows (for ESXi: ``[datastore]
    folder/file.vmdk``). QEMU and Xen on this machine boot a kernel directly and need none."""
    machine: Literal["q35", "pc", "xenpvh", "xenpv"] | None = None
    """QEMU: q35 or pc. Xen: xenpvh or xenpv."""
    accelerator: Literal["auto", "kvm", "tcg"] = "auto"
    """QEMU: ``auto`` uses kvm if libvirt offers it and a guest boots with it, else tcg."""
    vcpus: Annotated[int, Field(ge=1, le=255)] | None = None
    """2 by default, or 1 where this machine has no more."""
    memory_mib: Annotated[int, Field(ge=128)] = DEFAULT_MEMORY_MIB
    """Memory of a guest."""
    nic_model: Literal["virtio", "e1000", "vmxnet3", "netvsc", "xen", "veth"] | None = None
    """Model of a guest's network interfaces; the hypervisor's usual one by default."""
    networks: tuple[NetworkName, ...] = ()
    """The hypervisor's networks (bridges, port groups, virtual switches) for a guest's interfaces, in order.
    ``network:NAME`` is a network of libvirt. QEMU and LXC on this machine need none."""

    listen: str | None = None
    """Address and port of this machine that the agent of an image calls, if there is no serial line to the
    hypervisor."""
    credentials: Path | None = None
    """The folder made by `virtgauge attach prepare` that the image was built with."""
    management: NetworkName | None = None
    """The hypervisor's network for that call, written as in ``networks``. The guest gets an interface there in front of
    those that a suite needs."""
    management_mac: str | None = None
    """Hardware address of that interface: if the image was built with ``--nic``, or the network admits no other. By
    default it is derived from ``uri`` and ``listen``, and so the same for every guest."""
    wait_s: Annotated[float, Field(ge=1, le=3600)] = 120.0
    """How long the agent of an image may take to call after the guest was started."""

    @property
    def target(self) -> Target:
        """What the URI names."""
        return target_of(self.uri)

    @property
    def image_format(self) -> str:
        """By the image's suffix; raw where it has none that is known."""
        return _FORMATS.get(PurePosixPath(self.image or "").suffix.lower(), "raw")

    @field_validator("listen")
    @classmethod
    def _is_an_endpoint(cls, value: str | None) -> str | None:
        return None if value is None else str(Endpoint.parse(value))

    @field_validator("management_mac")
    @classmethod
    def _is_a_hardware_address(cls, value: str | None) -> str | None:
        if value is not None and not _MAC.fullmatch(value := value.lower()):
            raise ValueError("give the hardware address of one device, as 52:54:00:00:00:01")
        return value

    @model_validator(mode="after")
    def _the_driver_has_it(self) -> Self:
        driver = self.target.driver
        if self.machine is not None and self.machine not in driver.machines:
            there = f"choose one of: {', '.join(driver.machines)}" if driver.machines else "leave it out"
            raise ValueError(f"machine = {self.machine!r} is none of {driver.title}: {there}")
        if self.nic_model is not None and self.nic_model not in driver.nic_models:
            raise ValueError(
                f"nic_model = {self.nic_model!r} is none of {driver.title}: "
                f"choose one of: {', '.join(driver.nic_models)}"
            )
        if self.accelerator != "auto" and driver.scheme != "qemu":
            raise ValueError(f"accelerator is QEMU's, and {driver.title} has none: leave it out")
        if self.image is not None and driver.image_format is None:
            raise ValueError(f"{driver.title} boots no image: leave image out")
        given = [field for field in _OF_A_CALL if getattr(self, field) is not None]
        if given and (missing := [field for field in _OF_A_CALL if field not in given]):
            raise ValueError(
                f"{', '.join(given)} without {', '.join(missing)}: listen (where the agent of an image calls), "
                "credentials (that the image was built with) and management (the hypervisor's network by which it "
                "calls: a bridge, a port group, a virtual switch, or network:default) go together"
            )
        if given and self.image is None:
            raise ValueError(f"{given[0]} means nothing without image: only the agent of an image calls")
        if not given and self.management_mac is not None:
            raise ValueError("management_mac means nothing without management: it is that interface's")
        if self.networks and driver.in_lab:
            raise ValueError(
                f"the interfaces of {driver.title} on this machine are put into the lab: leave networks out"
            )
        return self

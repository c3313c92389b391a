"""What a guest boots directly: the kernel in the cache, an initramfs with the agent, and what both are told."""

from __future__ import annotations

from virtgauge.platforms.base import GuestSpec, LaunchError
from virtgauge.platforms.guest_root import root_of
from virtgauge.platforms.initramfs import ModuleError, build_initramfs, canonical, module_closure
from virtgauge.platforms.libvirt.domain_xml import KernelBoot
from virtgauge.platforms.libvirt.drivers import Driver
from virtgauge.platforms.qemu.command import LONGEST_COMMAND_LINE, NIC_MODULES, Boot
from virtgauge.platforms.qemu.platform import host_tsc_khz
from virtgauge.platforms.qemu.storage import DISK_MODULES, ROOT_MODULES, drive_of
from virtgauge.provision.cache import cache_root
from virtgauge.provision.kernel import find_kernel

_XEN_NIC_MODULES = {"xen": "xen_netfront"}


async def kernel_boot(spec: GuestSpec, driver: Driver, accelerator: str | None, nic_model: str | None) -> KernelBoot:
    """Kernel, initramfs and command line of a guest.

    Args:
        spec: of the guest.
        driver: that boots it.
        accelerator: of QEMU.
        nic_model: by the plan's name; None for a guest without interfaces.

    Raises:
        LaunchError: there is no kernel, or it lacks a module.
    """
    kernel = find_kernel()
    if kernel is None:
        raise LaunchError("start", "the guest kernel is missing; `virtgauge doctor` tells more")
    names = driver.kernel_modules
    if nic_model is not None:
        names += ((NIC_MODULES | _XEN_NIC_MODULES)[nic_model],)
    if spec.disk is not None:
        names += DISK_MODULES
    if spec.host_root:
        names += ROOT_MODULES
    try:
        modules = module_closure(kernel.modules, names)
        initramfs = build_initramfs(spec.agent, modules, cache_root() / "initramfs")
    except (OSError, ModuleError) as error:
        raise LaunchError("initramfs", str(error)) from error
    loaded = [canonical(path.stem) for path in modules]
    if driver.scheme == "qemu":
        line = Boot(
            binary=kernel.image,
            machine="q35",
            accelerator=accelerator or "tcg",
            vcpus=1,
            memory_mib=1,
            kernel=kernel.image,
            initramfs=initramfs,
            modules=loaded,
            tsc_khz=await host_tsc_khz(spec) if accelerator == "tcg" else None,
            nic_model=nic_model,
            drive=drive_of(spec),
            root=root_of(spec),
        ).kernel_command_line()
    else:
        line = f"console=hvc0 quiet panic=-1 ipv6.disable=1 virtgauge.modules={','.join(loaded)}"
        line += " virtgauge.channel=serial:/dev/hvc0"
    if len(line) > LONGEST_COMMAND_LINE:
        raise LaunchError("start", f"the kernel would cut its command line of {len(line)} bytes: share fewer folders")
    return KernelBoot(kernel=kernel.image, initramfs=initramfs, command_line=line)

"""The kernel that virtual machines boot, and its modules: the distribution's own, extracted and never installed."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import lzma
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from virtgauge.folders import cache_root
from virtgauge.host.process import output_of, text_of
from virtgauge.provision.cache import Facts, ProvisionError, provided, staged, whole_folder
from virtgauge.provision.packages import Apt
from virtgauge.provision.progress import Outcome, Progress

META_PACKAGES = {
    "kernel": ("linux-image-{architecture}", "linux-image-virtual"),
    "kernel-rt": ("linux-image-rt-{architecture}",),
}
"""By the part's name, what depends on its current kernel: of the generic one Debian's name, then Ubuntu's.  The
real-time one (PREEMPT_RT) is Debian's; Ubuntu has it for subscribers only."""

KEPT_FOLDERS = (
    *("arch", "block", "crypto", "fs", "lib", "mm", "net", "virt"),
    *("drivers/block", "drivers/char", "drivers/dax", "drivers/firmware", "drivers/hv", "drivers/md"),
    *("drivers/message/fusion", "drivers/net/bonding", "drivers/net/ethernet/dec/tulip"),
    *("drivers/net/ethernet/intel/e1000", "drivers/net/ethernet/intel/e1000e", "drivers/net/hyperv"),
    *("drivers/net/ipvlan", "drivers/net/macvlan", "drivers/net/vmxnet3", "drivers/net/vxlan", "drivers/net/wireguard"),
    *("drivers/net/xen-netback", "drivers/nvme", "drivers/ptp", "drivers/vhost", "drivers/virtio", "drivers/xen"),
)
"""Modules that a guest may use: everything but the drivers of hardware that no virtual machine is given."""

KEPT_DRIVERS = ("drivers/ata", "drivers/net", "drivers/net/ethernet/amd", "drivers/scsi")
"""Folders whose own modules are kept, without their subfolders: ahci; virtio_net, veth, tun; pcnet32; virtio_scsi …"""

_KEPT = hashlib.sha256("\n".join((*KEPT_FOLDERS, "", *KEPT_DRIVERS)).encode()).hexdigest()[:16]
"""Tells a kernel in the cache whose modules an earlier version of these lists chose."""


@dataclasses.dataclass(frozen=True)
class GuestKernel:
    """An extracted kernel."""

    release: str  # as ``uname -r`` will say in the guest, for instance ``6.1.0-56-amd64``
    image: Path
    # a folder that holds the release's ``*.ko`` files, uncompressed, anywhere below it. Every module that one of them
    # depends on is there too, or built in (``modules.builtin`` names those).
    modules: Path
    package: str  # package and version it came from, for the record (``linux-image-6.1.0-56-amd64 6.1.192-2``)


def find_kernel(part: str = "kernel") -> GuestKernel | None:
    """The kernel of a part in the cache, if its files are there; None when there is none.  Downloads nothing."""
    found = whole_folder(part)
    if found is None:
        return None
    folder, facts = found
    return GuestKernel(facts["release"], folder / "vmlinuz", folder / "modules", _named(facts))


def provision_kernel(progress: Progress, part: str = "kernel") -> Outcome:
    """Put a kernel into the cache: keep the one there if every hash fits, else fetch the distribution's current one."""
    # The modules of one that an earlier version fetched were chosen otherwise.
    fetch = functools.partial(_fetch, part)
    return provided(part, "the kernel", part, progress, fetch, _named, lambda facts: facts.get("kept") == _KEPT)


def _named(facts: Facts) -> str:
    return f"{facts['package']} {facts['version']}"


def _fetch(part: str, progress: Progress) -> Facts:
    progress("asking for the current kernel package")
    apt = Apt(progress, part)
    package, *companions = _kernel_packages(apt, META_PACKAGES[part])
    facts = {"package": package, "version": apt.version(package), "kept": _KEPT}
    final = cache_root() / part / f"{package}_{facts['version']}".replace("/", "_")
    with staged(final, facts) as folder:
        unpacked = folder / "unpacked"
        for name in (package, *companions):
            apt.extract(name, unpacked, facts)
        facts["release"] = arrange(unpacked, folder)
        shutil.rmtree(unpacked)
    return facts


def _kernel_packages(apt: Apt, metas: Sequence[str]) -> list[str]:
    """The package with the image, then those with modules apart from it (Ubuntu splits them)."""
    architecture = (output_of(["dpkg", "--print-architecture"]) or "amd64").strip()
    reason: ProvisionError | None = None
    for meta in metas:
        try:
            depends = apt.dependencies(meta.format(architecture=architecture))
        except ProvisionError as error:
            reason = reason or error
            continue
        images = [name for name in depends if re.match(r"linux-image-\d", name) and "unsigned" not in name]
        if images:
            modules = [name for name in apt.dependencies(images[0]) if re.match(r"linux-modules-\d", name)]
            return [images[0], *modules]
    raise reason or ProvisionError("no package list names a kernel", "check /etc/apt/sources.list")


def arrange(unpacked: Path, folder: Path) -> str:
    """Move ``vmlinuz`` and the ``modules`` in use out of an unpacked package to a folder; returns the kernel's release.
    Raises ProvisionError: the package holds no image, or no modules.
    """
    images = list((unpacked / "boot").glob("vmlinuz-*"))
    # Debian 13 has the modules below usr/, as /lib is a link there.
    trees = [tree for root in ("lib", "usr/lib") for tree in (unpacked / root / "modules").glob("*/kernel")]
    if len(images) != 1 or len(trees) != 1:
        raise ProvisionError(
            f"the kernel package holds {len(images)} images and {len(trees)} module trees instead of one each",
            "report this with the name of the distribution",
        )
    images[0].rename(folder / "vmlinuz")
    (folder / "vmlinuz").chmod(0o644)  # Ubuntu's is for root only
    modules = folder / "modules"
    modules.mkdir()
    for listing in trees[0].parent.glob("modules.*"):
        listing.rename(modules / listing.name)
    for module in modules_in_use(trees[0]):
        target = modules / "kernel" / module.relative_to(trees[0]).with_suffix("")
        target = target if target.suffix == ".ko" else target.with_suffix(".ko")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(module_content(module))
    return images[0].name.removeprefix("vmlinuz-")


def modules_in_use(tree: Path) -> list[Path]:
    """The modules to keep of a ``kernel/`` tree: those of the kept folders, and whatever they depend on."""
    everything = {module_name(path): path for path in sorted(tree.rglob("*.ko*"))}
    kept: dict[str, Path] = {}
    pending = [name for name, path in everything.items() if _is_kept(path.relative_to(tree))]
    while pending:
        name = pending.pop()
        if name in kept or name not in everything:  # what is not a module is built in
            continue
        kept[name] = everything[name]
        pending += module_dependencies(module_content(kept[name]))
    return sorted(kept.values())


def module_dependencies(content: bytes) -> list[str]:
    """Names of the modules that a module says it needs: the ``depends=`` entry of its ``.modinfo`` section."""
    found = re.search(rb"\0depends=([^\0]*)\0", content)
    return [canonical(name.decode()) for name in found[1].split(b",") if name] if found else []


def module_content(path: Path) -> bytes:
    """A module as the kernel loads it: Debian 13 compresses with xz, Ubuntu with zstd.
    Raises ProvisionError: it cannot be decompressed here.
    """
    if path.suffix == ".xz":
        return lzma.decompress(path.read_bytes())
    if path.suffix == ".zst":
        from pyarrow import CompressedInputStream, OSFile  # slow to import, and needed on Ubuntu only

        with CompressedInputStream(OSFile(str(path)), "zstd") as stream:
            return bytes(stream.read())
    return path.read_bytes()


def _is_kept(path: Path) -> bool:
    folder = str(path.parent)
    return folder in KEPT_DRIVERS or any(folder == kept or folder.startswith(f"{kept}/") for kept in KEPT_FOLDERS)


class ModuleError(Exception):
    """A module, or one that it depends on, is not there."""


def module_closure(folder: Path, names: Sequence[str]) -> list[Path]:
    """The files of modules and of all that they depend on, in an order in which they can be loaded.

    The folder holds ``*.ko`` files anywhere below it, compressed or not; what the kernel has built in (by its
    ``modules.builtin``) needs no file and is left out.  In names, dashes and underscores are the same.
    Raises ModuleError: one of them is missing, or they depend on each other in a circle.
    """
    files = {module_name(path): path for path in sorted(folder.rglob("*.ko*"))}
    listed = (text_of(folder / "modules.builtin") or "").splitlines()
    built_in = {canonical(Path(line).stem) for line in listed if line}
    ordered: list[Path] = []

    def visit(name: str, wanted_by: tuple[str, ...]) -> None:
        if name in wanted_by:
            raise ModuleError(f"modules depend on each other: {' → '.join((*wanted_by, name))}")
        if name in built_in:
            return
        path = files.get(name)
        if path is None:
            needed = f" (needed by {wanted_by[-1]})" if wanted_by else ""
            raise ModuleError(f"the kernel has no module {name!r}{needed} below {folder}")
        if path in ordered:
            return
        for dependency in module_dependencies(module_content(path)):
            visit(dependency, (*wanted_by, name))
        ordered.append(path)

    for name in names:
        visit(canonical(name), ())
    return ordered


def canonical(name: str) -> str:
    """A module's name as the kernel reports it."""
    return name.replace("-", "_")


def module_name(path: Path) -> str:
    """The name of a module by its file, ``NAME.ko`` or compressed."""
    return canonical(path.name.partition(".ko")[0])

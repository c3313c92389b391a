"""What a guest boots: the kernel in the cache, or the plan's own kernel, initrd and words."""

from __future__ import annotations

import dataclasses
import os
import re
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from virtgauge.agent import AgentBinary
from virtgauge.errors import UnavailableError
from virtgauge.folders import cache_root
from virtgauge.plan import Section
from virtgauge.platforms.base import GuestSpec, stage
from virtgauge.platforms.boot_files import direct_kernel, initramfs_with
from virtgauge.provision.cache import sha256_of
from virtgauge.provision.kernel import find_kernel

REAL_TIME = Path("rt")  # In place of a kernel's path
_MODULES = Path("/lib/modules")  # Where distributions install those of each release


def _absolute(value: Path) -> Path:
    return Path(os.path.expanduser(value)).absolute()  # which says nothing of a user that is not there


def _readable_file(value: Path) -> Path:
    path = _absolute(value)
    if not os.path.isfile(path):
        raise ValueError(f"{path} is no file: give the path of one, as of the folder that virtgauge is started in")
    if not os.access(path, os.R_OK):
        raise ValueError(f"{path} cannot be read by this user: chmod a+r, or start virtgauge as root")
    return path


def _folder(value: Path) -> Path:
    path = _absolute(value)
    if not os.path.isdir(path):
        raise ValueError(f"{path} is no folder: give one with the kernel's modules, such as /lib/modules/RELEASE")
    return path


def _word(value: str) -> str:
    if not re.fullmatch(r"[!-~]+", value):
        raise ValueError(f"{value!r} is not one word of printable ASCII: list each word by itself")
    if value.startswith("virtgauge."):
        raise ValueError(f"{value!r} is a word for the agent, which virtgauge gives itself: leave it out")
    return value


ReadableFile = Annotated[Path, AfterValidator(_readable_file)]
KernelFile = Annotated[Path, AfterValidator(lambda value: value if value == REAL_TIME else _readable_file(value))]
ModulesFolder = Annotated[Path, AfterValidator(_folder)]


class OwnKernel(Section):
    """The keys of a plan for a kernel of the user's own; a base of a platform's ``Settings``."""

    kernel: KernelFile | None = None
    """A guest kernel of your own, by its path on this machine (relative to the folder that virtgauge is started in), or
    ``rt``: the real-time one of `virtgauge provision kernel --flavour rt`. By default the one of
    `virtgauge provision kernel`."""
    kernel_modules: ModulesFolder | None = None
    """The folder of its modules; by default /lib/modules/RELEASE, or none where that is not there: then it must have
    built in what it needs to reach the agent."""
    initrd: ReadableFile | None = None
    """A first root file system (initramfs) of your own, to which the agent is appended: its files are there, its /init
    is not run."""
    kernel_words: tuple[Annotated[str, AfterValidator(_word)], ...] = ()
    """Further words for the kernel's command line. They come last, and so win over virtgauge's own."""
    boot_timeout_s: Annotated[float, Field(ge=1, le=3600)] | None = None
    """How long a guest may take until its agent answers, in place of the usual bounds."""

    def _problems(self) -> Iterator[str]:
        if self.kernel_modules is not None and self.kernel in (None, REAL_TIME):
            yield "kernel_modules means nothing without a kernel of your own: name the kernel, too"

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts (``provision/parts.py``) that bring the kernel; none for one that is there already."""
        return {None: ("kernel",), REAL_TIME: ("kernel-rt",)}.get(self.kernel, ())

    def patient(self, spec: GuestSpec) -> GuestSpec:
        """The specification with the plan's bound for a boot, if it has one."""
        if self.boot_timeout_s is None:
            return spec
        return dataclasses.replace(spec, ready_timeout_s=self.boot_timeout_s)

    def described(self, *others: str) -> dict[str, Any]:
        """All settings for the record; of these keys, and of ``others``, those that the plan gives."""
        return self.model_dump(mode="json", exclude={*OwnKernel.model_fields, *others} - self.model_fields_set)


@dataclasses.dataclass(frozen=True)
class BootedKernel:
    """What a platform's guests boot."""

    image: Path
    sha256: str  # of that file
    # as ``uname -r`` will say in the guest; None where the file does not tell
    release: str | None
    modules: Path | None  # a folder that holds its modules anywhere below it; None where all is built in
    source: str  # package and version that it came from, or the path that the plan gave
    initrd: Path | None = None  # the plan's own, to which the agent is appended
    initrd_sha256: str | None = None
    words: tuple[str, ...] = ()  # the plan's own

    def record(self) -> dict[str, str]:
        """For each result: what was booted, by names that do not change."""
        told = {
            "kernel": self.source,
            "kernel_sha256": self.sha256,
            "kernel_release": self.release,
            "initrd": self.initrd and str(self.initrd),
            "initrd_sha256": self.initrd_sha256,
            "kernel_words": " ".join(self.words),
        }
        return {name: value for name, value in told.items() if value}

    @property
    def key(self) -> tuple[str, ...]:
        """What a boot's verdict depends on (:func:`virtgauge.platforms.boot_probe.judge`)."""
        return (self.sha256, str(self.modules), self.initrd_sha256 or "", *self.words)


def kernel_of(settings: OwnKernel) -> BootedKernel:
    """The plan's own kernel, else the one in the cache, with the plan's initrd and words.
    Raises UnavailableError: the plan names none, and none is in the cache; or a file cannot be read any more.
    """
    try:
        initrd_sha256 = None if settings.initrd is None else sha256_of(settings.initrd)
        if settings.kernel is not None and settings.kernel != REAL_TIME:
            release = release_of(settings.kernel)
            installed = None if release is None else _MODULES / release
            modules = settings.kernel_modules or (installed if installed is not None and installed.is_dir() else None)
            image, source = settings.kernel, str(settings.kernel)
        else:
            found = find_kernel(*settings.parts)
            if found is None:
                kind, flavour = (" real-time", " --flavour rt") if settings.kernel else ("", "")
                words = f"there is no{kind} guest kernel in the cache"
                raise UnavailableError(words, f"virtgauge provision kernel{flavour}")
            image, release, modules, source = found.image, found.release, found.modules, found.package
        return BootedKernel(
            image, sha256_of(image), release, modules, source, settings.initrd, initrd_sha256, settings.kernel_words
        )
    except OSError as error:
        raise UnavailableError(
            f"{error.filename}: {error.strerror}", "give the path of a file that is there"
        ) from error


def files_to_boot(
    settings: OwnKernel, agent: AgentBinary, names: Sequence[str]
) -> tuple[BootedKernel, Path, Path, list[str]]:
    """What is booted, its file without the compressed shell, the initramfs, and its modules in their order.
    Raises LaunchError: there is no kernel, it lacks one of the modules, or the cache cannot be written.
    """
    with stage("start", UnavailableError), stage("initramfs", OSError):
        kernel = kernel_of(settings)
        initramfs, modules = initramfs_with(agent, kernel.modules, names, kernel.initrd)
        return kernel, direct_kernel(kernel.image, cache_root() / "vmlinux"), initramfs, modules


def release_of(image: Path) -> str | None:
    """A kernel's release as its file tells it: a bzImage by its header, others by their banner; None where none does.
    Raises OSError: it cannot be read.
    """
    content = image.read_bytes()
    if content[0x202:0x206] == b"HdrS":  # Documentation/arch/x86/boot.rst: kernel_version
        start = 0x200 + struct.unpack_from("<H", content, 0x20E)[0]
        found = re.match(rb"(\S+) ", content[start : start + 256])
    else:
        found = re.search(rb"Linux version (\d[^\s%]*) ", content)
    return found[1].decode(errors="replace") if found else None

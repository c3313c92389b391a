"""What can be provisioned, by name: each part is looked for, and fetched or built where it is missing.

The native programs and the pages' drawing library are brought by a wheel; a checkout builds them by the scripts in its
folder ``setup``.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import virtgauge
from virtgauge.errors import UsageError, nearest
from virtgauge.provision.boot_loader import find_boot_loader, provision_boot_loader
from virtgauge.provision.cache import ProvisionError
from virtgauge.provision.databases import DUCKDB, SERVERS
from virtgauge.provision.ganesha import find_ganesha, provision_ganesha
from virtgauge.provision.kernel import find_kernel, provision_kernel
from virtgauge.provision.packages import NEEDS, OF_DATABASES, provision_packages
from virtgauge.provision.progress import Outcome, Progress, SetUpDisplay, State
from virtgauge.provision.registries import OBJECT_STORE, RUNSC
from virtgauge.provision.tools import end_running, run_logged, start_log

_PACKAGE = Path(virtgauge.__file__).parent
FOLDER = _PACKAGE / "native"  # Where the native programs are, in a wheel and in a checkout

PROGRAMS: dict[str, tuple[str, tuple[str, ...]]] = {
    "agent": ("the agent", ("virtgauge-agent",)),
    "sensorstore": ("the load generator for databases", ("sensorstore",)),
    "flushes": ("the flush laboratory", ("virtgauge-flushes", "libvirtgauge_flushes.so")),
    "bandwidth": ("the bandwidth estimator", ("bandwidth", "bandwidth-dynamic")),
    "shim": ("the shim for unmodified programs", ("libhptime_preload.so",)),
    "uml_registers": ("the registers of User Mode Linux", ("libuml_registers.so",)),
    "page": ("the drawing library of reports", ("vega-embed.js",)),
}
"""By the part: its title, and the files that it brings."""


def _files(part: str) -> list[Path]:
    return [FOLDER / name for name in PROGRAMS[part][1]]


def is_checkout() -> bool:
    """Whether this package runs from a source tree, where the programs may be older than their sources."""
    root = _PACKAGE.parents[1]
    return (root / "setup" / "agent.py").is_file() and (root / "native" / "Cargo.toml").is_file()


def is_built(part: str) -> bool:
    """Whether all files of a part are there."""
    return all(file.is_file() for file in _files(part))


def provision_programs(part: str, progress: Progress) -> Outcome:
    """Build a part, unless it is of the present sources."""
    if not is_checkout():
        if is_built(part):
            return Outcome(part, State.OK, "of this package")
        return Outcome(part, State.SKIPPED, "missing in this package", "install virtgauge again")
    if is_built(part) and shutil.which("cargo") is None:
        return Outcome(part, State.OK, "built before; without cargo it is not compared with its sources")
    progress("building from source" if not is_built(part) else "comparing with its sources")
    before = _stamps(part)
    start_log(part)
    script = _PACKAGE.parents[1] / "setup" / f"{part}.py"
    try:
        run_logged([sys.executable, script], log=part)
    except ProvisionError as error:
        return Outcome(part, State.SKIPPED, error.message, error.remedy)
    return Outcome(part, State.OK if _stamps(part) == before else State.MADE, ", ".join(PROGRAMS[part][1]))


def _stamps(part: str) -> list[tuple[int, int] | None]:
    return [(file.stat().st_mtime_ns, file.stat().st_size) if file.is_file() else None for file in _files(part)]


class Lane(enum.Enum):
    """What a part mostly waits for; parts of different lanes are provided at the same time."""

    INSTALL = enum.auto()  # the package manager, which serves one at a time
    FETCH = enum.auto()  # the network
    BUILD = enum.auto()  # the processors


@dataclasses.dataclass(frozen=True)
class Part:
    """Something that a plan may need beside Python."""

    name: str  # as it is asked for, and as its line of progress begins
    title: str
    lane: Lane  # what it waits for
    find: Callable[[], object]  # a quick look, for milliseconds: what is there, or nothing
    # fetches or builds it, unless it is there whole; None for a package, which is installed with others
    provide: Callable[[Progress], Outcome] | None = None
    after: tuple[str, ...] = ()  # parts that have to be there before

    def present(self) -> bool:
        return bool(self.find())

    @property
    def early(self) -> bool:
        """It is had within seconds, so that first figures may wait for it; the agent, which all of them need, too."""
        return self.name in ("linker", "agent", "runc", "crun", "bubblewrap")


def _built(name: str) -> Part:
    build, after = functools.partial(provision_programs, name), ("linker",) if is_checkout() else ()
    return Part(name, PROGRAMS[name][0], Lane.BUILD, functools.partial(is_built, name), build, after)


PARTS: dict[str, Part] = {
    part.name: part
    for part in (
        *(Part(name, need.title, Lane.INSTALL, need.present) for name, need in NEEDS.items()),
        *map(_built, PROGRAMS),
        Part("kernel", "a guest kernel", Lane.FETCH, find_kernel, provision_kernel),
        Part(
            *("kernel-rt", "a real-time guest kernel (PREEMPT_RT)", Lane.FETCH),
            functools.partial(find_kernel, "kernel-rt"),
            functools.partial(provision_kernel, part="kernel-rt"),
        ),
        Part("gvisor", "gVisor", Lane.BUILD, RUNSC.find, RUNSC.provision),
        Part("ganesha", "nfs-ganesha", Lane.FETCH, find_ganesha, provision_ganesha),
        Part("image", "a boot loader", Lane.FETCH, find_boot_loader, provision_boot_loader, ("qemu-img",)),
        Part("store", "an object store", Lane.BUILD, OBJECT_STORE.find, OBJECT_STORE.provision),
        *(Part(one.name, one.title, Lane.FETCH, one.find, one.provision, one.after) for one in (DUCKDB, *SERVERS)),
    )
}

GROUPS: dict[str, tuple[str, ...]] = {
    "packages": ("qemu", "uml", "qemu-img", "runc", "bubblewrap", "openvswitch"),
    "guests": ("packages", "kernel", "gvisor", "ganesha", "image", "duckdb"),
    "native": tuple(PROGRAMS),
    "databases": (*OF_DATABASES, DUCKDB.name, *(product.name for product in SERVERS)),
    "testing": ("guests", "native", "c++", "iperf3", "sshd", "libvirt-schemas", "qemu-user", "ovmf", "chromium"),
    "libvirt": ("libvirt-headers", "libvirtd", "libvirt-qemu", "libvirt-lxc"),
    "labs": ("tcsh", "fish", "mmdebstrap", "store", "kernel-rt"),
}
"""Names for several parts, or for other groups."""


def named(words: Iterable[str]) -> list[Part]:
    """The parts of these names and groups, with what has to come before each, in that order and each once.
    Raises UsageError: there is no part or group of a name.
    """
    found: dict[str, Part] = {}
    for word in words:
        if word in GROUPS:
            found |= {part.name: part for part in named(GROUPS[word])}
        elif word in PARTS:
            part = PARTS[word]
            if part.provide is None or not part.present():
                found |= {before.name: before for before in named(part.after)}
            found[part.name] = part
        else:
            hint = nearest(word, (*PARTS, *GROUPS))
            raise UsageError(f"there is no part {word!r} to provide{hint}", "virtgauge provision --list")
    return list(found.values())


_AT_ONCE = {Lane.INSTALL: 1, Lane.FETCH: 2, Lane.BUILD: 2}
"""Two builds: each waits for downloads at its beginning, and for single threads at its end."""


Work = Callable[[Progress], Sequence[Outcome]]


def provide(parts: Iterable[Part], display: SetUpDisplay) -> list[Outcome]:
    """Fetch and build what is missing, and tell of each when it ends; the outcomes, one or more a part, in that order.
    Raises KeyboardInterrupt: interrupted; the programs under way were ended.
    """
    import asyncio  # here, for every command imports this module

    try:
        return asyncio.run(_provide(list(parts), display))
    except BaseException:
        end_running()
        raise


async def _provide(parts: Sequence[Part], display: SetUpDisplay) -> list[Outcome]:
    import asyncio

    lanes = {lane: asyncio.Semaphore(number) for lane, number in _AT_ONCE.items()}
    ended = {part.name: asyncio.Event() for part in parts}
    outcomes: list[Outcome] = []

    async def run(name: str, together: Sequence[str], lane: Lane, after: Sequence[str], work: Work) -> None:
        for part in after:
            if part in ended:
                await ended[part].wait()
        async with lanes[lane]:
            began = time.monotonic()
            with display.step(name) as progress:
                try:
                    made = await asyncio.to_thread(work, progress)
                except asyncio.CancelledError:
                    end_running()
                    raise
            made = [dataclasses.replace(outcome, elapsed_s=time.monotonic() - began) for outcome in made]
            display.show(made)
            outcomes.extend(made)
        for part in together:
            ended[part].set()

    packages = [part.name for part in parts if part.provide is None]
    async with asyncio.TaskGroup() as group:
        if packages:  # in one line of progress
            install = functools.partial(provision_packages, names=packages)
            group.create_task(run("packages", packages, Lane.INSTALL, (), install))
        for part in parts:
            if (one := part.provide) is not None:
                work = functools.partial(lambda one, progress: [one(progress)], one)
                group.create_task(run(part.name, [part.name], part.lane, part.after, work))
    return outcomes

"""Containers and sandboxes: any runtime with the OCI command line (runc, crun, runsc = gVisor, youki …)."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from virtgauge.agent import find_agent
from virtgauge.host.machine import AS_ROOT, USER_NAMESPACES, lacking
from virtgauge.host.mounts import detach_below
from virtgauge.host.process import ProcessIdentity, find_program, ran, wait_for_end, wait_for_exit
from virtgauge.host.reclaim import RUNTIME_FILE, RUNTIME_STATE
from virtgauge.plan import Section
from virtgauge.platforms.attempt import PipePair, ProcessAttempt, ending
from virtgauge.platforms.base import Availability, Guest, GuestSpec, LaunchError, stage
from virtgauge.platforms.boot_probe import BootedPlatform, boots, said_version
from virtgauge.platforms.local import LocalGuest, Routing, guest_namespace, mounted_disks, require_limit
from virtgauge.platforms.oci.bundle import Overlay, write_bundle
from virtgauge.provision.registries import RUNSC


@dataclasses.dataclass(frozen=True)
class _Profile:
    label: str
    overlay: Overlay
    options: tuple[str, ...] = ()
    isolated: tuple[str, ...] = ()  # further options for a guest without interfaces
    networked: tuple[str, ...] = ()  # and for one with them
    own_kernel: bool = False  # forwarding is switched on inside, and not in the namespace
    sandbox: bool = False  # that kernel and its programs are processes of the host
    rootless: bool = True  # an ordinary user can have one, in a user namespace
    sets_cpus: bool = True  # can confine the container to CPUs; else it inherits those of its creator
    disk_bypass: str | None = None  # what of a disk's traffic does not meet its bounds
    fix: str | None = None
    part: str | None = None  # that brings it


_OVERLAY_OPTIONS = {Overlay.RUNTIME: ("--overlay2=all:memory",), Overlay.RUNTIME_ROOT: ("--overlay2=root:memory",)}

_BY_CONTAINERD = (
    "start a container by containerd (`ctr run --runtime io.containerd.kata.v2`), and measure it with "
    'kind = "attached"; docs/platforms/microvms.md'
)

# gVisor takes the interfaces of its namespace over, with addresses, routes and permanent neighbours; without a network
# it still has its loopback.  Its stack would send many frames as one segment, which the link's other end would see.
# The overlay mounts name the host's folders, which a runtime with a kernel of its own does not see.
_PROFILES = {
    "runc": _Profile("container (runc)", Overlay.MOUNTS, fix="apt install runc", part="runc"),
    "crun": _Profile("container (crun)", Overlay.MOUNTS, fix="apt install crun", part="crun"),
    "youki": _Profile("container (youki)", Overlay.MOUNTS),
    "kata-runtime": _Profile("Kata Containers", Overlay.NONE, own_kernel=True, rootless=False, fix=_BY_CONTAINERD),
    "runsc": _Profile(
        "gVisor (runsc, systrap)",
        Overlay.RUNTIME,
        ("--platform=systrap",),
        isolated=("--network=none",),
        networked=("--network=sandbox", "--gso=false", "--software-gso=false", "--rx-checksum-offload=false"),
        own_kernel=True,
        sandbox=True,
        rootless=False,
        disk_bypass="gVisor opens no file of the host for direct I/O, so that only flushes and what the host's page "
        "cache has not got meet the bounds",
        sets_cpus=False,  # under cgroup v1 it leaves the cpuset's parents empty, and fails
        fix="install Go (apt install golang-go), then: virtgauge provision gvisor; or put runsc on PATH",
        part="gvisor",
    ),
}


class OciPlatform(BootedPlatform):
    """The agent as the only process of a container, on pipes.

    Its root filesystem is the host's system folders under a private overlay; its network namespace is new
    and has the loopback and the guest's interfaces only.
    """

    kind: ClassVar[str] = "oci"
    timeout_factor = 3.0

    class Settings(Section):
        """Containers and sandboxes that an OCI runtime starts (runc, crun, runsc = gVisor …)."""

        runtime: Annotated[str, Field(min_length=1)] = "runc"
        """Name on PATH, or path, of an OCI runtime."""
        options: tuple[str, ...] = ()
        """Global options of the runtime. They follow virtgauge's own and override them."""
        vcpus: Annotated[int, Field(ge=1)] | None = None
        """CPU limit in whole processors; none by default."""
        memory_mib: Annotated[int, Field(ge=16)] | None = None
        """Memory limit; none by default."""

    settings: Settings

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(settings)
        name = Path(self.settings.runtime).name
        self._profile = _PROFILES.get(name, _Profile(f"container ({name})", Overlay.NONE))

    @property
    def label(self) -> str:
        return self._profile.label

    def needs(self) -> tuple[str, ...]:
        return () if self._profile.part is None else (self._profile.part,)

    async def _examine(self, details: dict[str, str]) -> Availability:
        runtime = self._find_runtime()
        if runtime is None:
            return Availability(False, f"the runtime {self.settings.runtime} is not installed", self._profile.fix)
        if os.geteuid() != 0 and not self._profile.rootless:
            return Availability(False, f"{self._profile.label} needs root here{lacking('CAP_SYS_ADMIN')}", AS_ROOT)
        said = await said_version(runtime)
        if said is None:
            return Availability(False, f"`{runtime} --version` fails: it is no OCI runtime, or it does not run here")
        # a runsc made by the plain Go tool does not know its version; its folder in the cache does
        own = runtime.parent.name == RUNSC.version
        version = f"runsc {RUNSC.version}" if own else said.splitlines()[0].strip()
        details.update(runtime=str(runtime), version=version)
        if (reason := without_commands(said)) is not None:
            return Availability(False, reason, _BY_CONTAINERD, details=details)
        try:
            await boots(self.launch, "probe", find_agent(), bound_s=10.0)
        except LaunchError as error:
            reason, fix = why_not(str(error), rootless=os.geteuid() != 0)
            return Availability(False, reason, fix, details=details)
        return Availability(True, f"{version}: a container starts", details=details)

    async def launch(self, spec: GuestSpec) -> Guest:
        runtime = self._find_runtime()
        if runtime is None:
            raise LaunchError("start", f"the runtime {self.settings.runtime} is not installed")
        with contextlib.ExitStack() as removal:
            folder = spec.scope.guest_folder(spec.name)
            removal.callback(shutil.rmtree, folder, ignore_errors=True)
            removal.callback(detach_below, folder)
            disk = mounted_disks(spec, removal)
            if disk is not None and self._profile.disk_bypass is not None:
                disk += ", behind the host's page cache"
            shares = (*spec.shares, *spec.disk_shares)
            overlay = self._profile.overlay
            if overlay is Overlay.RUNTIME and any(share.writable for share in shares):
                overlay = Overlay.RUNTIME_ROOT  # memory above every mount would keep what is written to a share, too
            namespace = guest_namespace(spec, removal)
            routing = Routing(spec, None if self._profile.own_kernel else namespace)
            cgroup = spec.scope.cgroup(spec.name)
            removal.callback(cgroup.remove)
            removal.callback(cgroup.kill_all)
            pipes = PipePair()
            removal.callback(pipes.close)
            vcpus = spec.vcpus or self.settings.vcpus
            container = _Container(runtime, self._options(spec, overlay), folder, spec)
            with stage("bundle", OSError):
                container.bundle.mkdir()
                write_bundle(
                    container.bundle,
                    agent=spec.agent.path,
                    environment=spec.scope.environment(),
                    cgroup_path=f"/{cgroup.name}",
                    overlay=overlay,
                    cpu_limit=float(vcpus) if spec.cpu_limit is None and vcpus else spec.cpu_limit,
                    memory_mib=spec.memory_mib or self.settings.memory_mib,
                    cpus=spec.cpus if self._profile.sets_cpus else None,
                    network_namespace=None if namespace is None else namespace.path,
                    shares=shares,
                    capabilities=spec.capabilities,
                    rootless=os.geteuid() != 0,
                )
            container.register()
            removal.callback(container.delete)
            await container.create(pipes)
            require_limit(spec, cgroup)
            routing.charge_to(cgroup, removal)
            await container.call(["start", container.name])
            channel = await container.open_channel(*await pipes.streams())
            if self._profile.own_kernel:
                await container.configure_network(channel, ())
            return LocalGuest(
                cgroup=cgroup,
                pid=container.init.pid if container.init else None,
                before_removal=container.settle,
                unbound=routing.unbound,
                disk=disk,
                disk_place=spec.disks[0].folder if spec.disks else None,
                disk_bypass=self._profile.disk_bypass,
                sandbox=self._profile.sandbox,
                **container.given(channel, self.label, removal),
            )

    def _find_runtime(self) -> Path | None:
        if self.settings.runtime == "runsc":
            return RUNSC.find()
        found = find_program(self.settings.runtime)
        return found.resolve() if found else None

    def _options(self, spec: GuestSpec, overlay: Overlay) -> tuple[str, ...]:
        profile = self._profile
        network = profile.networked if spec.nics else profile.isolated
        return (*profile.options, *_OVERLAY_OPTIONS.get(overlay, ()), *network, *self.settings.options)


class _Container(ProcessAttempt):
    """A container, whose first process is a child of the runtime, and the runtime one of the controller."""

    def __init__(self, runtime: Path, options: tuple[str, ...], folder: Path, spec: GuestSpec) -> None:
        super().__init__(spec, str(runtime), folder / "container.log")
        self.folder = folder
        self.bundle = folder / "bundle"
        self.name = f"{spec.scope.tag}-{spec.name}"
        self.init: ProcessIdentity | None = None
        self._state = folder / RUNTIME_STATE
        self._command = [str(runtime), *options, "--root", str(self._state)]

    def register(self) -> None:
        """Leave word of the container for the reclaim after a kill -9, before there is one."""
        (self.folder / RUNTIME_FILE).write_text(json.dumps({"command": self._command, "container": self.name}))

    async def create(self, pipes: PipePair) -> None:
        """Create the container with the guest's ends of the pipes as its standard input and output."""
        pid_file = self.folder / "pid"
        arguments = ["create", "--bundle", str(self.bundle), "--pid-file", str(pid_file), self.name]
        await self.call(arguments, stdin=pipes.guest_stdin, stdout=pipes.guest_stdout)
        pipes.close_guest_ends()
        with contextlib.suppress(OSError, ValueError):
            self.init = ProcessIdentity.of(int(pid_file.read_text()))

    def delete(self) -> None:
        """Kill and forget the container; whatever remains is in its cgroup, which is emptied next."""
        if not self._state.is_dir():
            return
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            ran([*self._command, "delete", "--force", self.name], timeout_s=5.0, env=self.spec.scope.environment())

    def end_of_process(self) -> str | None:
        return "the container's first process ended" if self.init is None or not self.init.alive() else None

    async def settle(self) -> None:
        """Let the container end by itself: deleting a live one makes runtimes poll at a tenth of a second."""
        if self.init is not None:
            await wait_for_end(self.init, 1.0)

    async def call(
        self, arguments: list[str], *, stdin: int = subprocess.DEVNULL, stdout: int = subprocess.DEVNULL
    ) -> None:
        """Have the runtime do something.  Raises LaunchError: it does not, or not in time."""
        with contextlib.ExitStack() as ended:
            command = [*self._command, *arguments]
            process = self.start(command, ended, log=self.logs[0], steps=(), stdin=stdin, stdout=stdout)
            code = await wait_for_exit(process, self.remaining_s)
        if code != 0:
            how = "did not finish in time" if code is None else ending(code)
            raise self.failure(arguments[0], f"{self.what} {how}")


def without_commands(said: str) -> str | None:
    """Why a runtime of Kata Containers cannot be told to create a container, from what it says of its version.

    Its first version had OCI's commands; since the second, ``kata-runtime`` is for administration, and containerd
    speaks to ``containerd-shim-kata-v2`` by ttrpc (Kata's docs/design/architecture/history.md).
    """
    found = re.match(r"kata-runtime\s*: (\d+)\.|Kata Containers containerd shim\b", said)
    if found is None or found[1] in ("0", "1"):
        return None
    version = said.splitlines()[0].strip()
    return f"{version}: Kata Containers has no OCI commands since 2.0; containerd starts its containers"


def why_not(said: str, *, rootless: bool = False) -> tuple[str, str | None]:
    """Why a container does not start, from what its runtime said, and the remedy where it is known."""
    if rootless:
        told = "; ".join(line.strip() for line in said.splitlines()[:3])
        return f"a rootless container does not start{lacking('CAP_SYS_ADMIN')}: {told}", f"{AS_ROOT}, {USER_NAMESPACES}"
    if "hybrid mode" in said:  # crun
        reason = "crun does not know this host's control groups, v1 beside v2 (hybrid)"
        return reason, "boot with systemd.unified_cgroup_hierarchy=1, or use runc"
    if any(words in said.lower() for words in ("permission denied", "operation not permitted")):
        reason = "this machine lets root not make containers (missing capabilities)"
        return reason, "run virtgauge on the host, or in a privileged container (docker run --privileged)"
    return f"a container does not start: {'; '.join(line.strip() for line in said.splitlines()[:3])}", None

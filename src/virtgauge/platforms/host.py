"""The host itself as a platform: the agent as a plain process.  The reference that the others are compared with."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import shutil
import subprocess
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from virtgauge.host.cgroup import Cgroup
from virtgauge.host.process import wait_for_exit
from virtgauge.platforms.attempt import PipePair, ProcessAttempt
from virtgauge.platforms.base import Availability, Guest, GuestSpec, Platform
from virtgauge.platforms.local import LocalGuest, Routing, guest_namespace, mounted_disk, require_limit

_EXIT_S = 0.5


class HostPlatform(Platform):
    """The agent as a child of the controller, in a session and a cgroup of its own.

    The cgroup only counts, unless a limit is asked for: the process is scheduled as any other of this machine.  With
    interfaces it is in a network namespace of its own, and sees no others; with a lab alone it is in the lab's.
    """

    kind: ClassVar[str] = "host"
    is_host = True
    timeout_factor = 1.0

    class Settings(BaseModel):
        """This machine, without a guest."""

        model_config = ConfigDict(extra="forbid", frozen=True)

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or self.Settings()

    @property
    def label(self) -> str:
        return "host"

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind}

    async def probe(self) -> Availability:
        return Availability(usable=True, reason="this machine", details={"kernel": os.uname().release})

    async def launch(self, spec: GuestSpec) -> Guest:
        """Start the agent; ``spec.vcpus`` confines it to that many CPUs, ``spec.memory_mib`` has no effect here."""
        with contextlib.ExitStack() as removal:
            started = await start_agent(spec, removal)
            channel = await started.attempt.open_channel(started.reader, started.writer)

            async def wait() -> None:
                await wait_for_exit(started.process, _EXIT_S)

            return LocalGuest(
                channel=channel,
                ready_ns=started.attempt.ready_ns(),
                label=self.label,
                cgroup=started.cgroup,
                pid=started.process.pid,
                removal=removal.pop_all(),
                before_removal=wait,
                unbound=started.unbound,
                disk=started.disk,
                disk_folder=None if spec.disk is None else spec.disk.folder,
            )


@dataclasses.dataclass(frozen=True)
class StartedAgent:
    """An agent of this machine that nobody has spoken to yet.

    Attributes:
        attempt: at launching it.
        process: its only one.
        reader, writer: of its channel.
        cgroup: that it is in.
        unbound, disk: as :class:`LocalGuest` has them.
    """

    attempt: ProcessAttempt
    process: subprocess.Popen[bytes]
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    cgroup: Cgroup
    unbound: str | None
    disk: str | None


async def start_agent(spec: GuestSpec, removal: contextlib.ExitStack) -> StartedAgent:
    """Start the agent as a process, with everything that the specification says.

    Args:
        spec: of the guest.
        removal: gets what ends it and removes everything made for it.

    Raises:
        LaunchError: it does not start.
    """
    cpus = spec.cpus
    if cpus is None and spec.vcpus is not None:
        cpus = tuple(sorted(os.sched_getaffinity(0)))[: spec.vcpus]
    folder = spec.scope.guest_folder(spec.name)
    removal.callback(shutil.rmtree, folder, ignore_errors=True)
    disk = mounted_disk(spec, removal)
    namespace = guest_namespace(spec, removal) or spec.lab
    routing = Routing(spec, namespace)
    cgroup = spec.scope.cgroup(spec.name, cpu_limit=spec.cpu_limit)
    removal.callback(cgroup.remove)
    removal.callback(cgroup.kill_all)
    attempt = ProcessAttempt(spec, "the agent", log_file := folder / "agent.log")
    pipes = PipePair()
    removal.callback(pipes.close)
    with contextlib.ExitStack() as entrances:
        steps = [entrances.enter_context(cgroup.entrance())]
        require_limit(spec, cgroup)
        if namespace is not None:
            steps.append(entrances.enter_context(namespace.entrance()))
        process = attempt.start(
            [str(spec.agent.path)],
            removal,
            log=log_file,
            steps=steps,
            cpus=cpus,
            stdin=pipes.guest_stdin,
            stdout=pipes.guest_stdout,
        )
    pipes.close_guest_ends()
    routing.charge_to(cgroup, removal)
    reader, writer = await pipes.streams()
    return StartedAgent(attempt, process, reader, writer, cgroup, routing.unbound, disk)

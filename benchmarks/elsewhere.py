"""Platforms for agent_ready.py that need something beside them: an ssh server, an agent that calls, libvirt, an image.

What stands there is of this machine, so that its network costs nothing: an sshd and a libvirtd of the benchmark's own.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from benchmark import BenchmarkError
from by_hand import scratch

from virtgauge.agent import find_agent
from virtgauge.errors import VirtgaugeError
from virtgauge.host.process import end_process
from virtgauge.image.build import build, find_ingredients
from virtgauge.image.contents import SerialChannel
from virtgauge.image.formats import Format
from virtgauge.platforms import create
from virtgauge.platforms.attached.credentials import Credentials, write_secret
from virtgauge.platforms.base import Platform
from virtgauge.provision.progress import silence

TESTS = Path(__file__).resolve().parent.parent / "tests"

Place = Callable[[], AbstractContextManager[Platform]]
"""Makes a platform, with what it needs around it."""


def plain(kind: str, settings: dict[str, Any]) -> Place:
    """A platform that needs nothing."""

    @contextlib.contextmanager
    def place() -> Iterator[Platform]:
        yield create(kind, settings)

    return place


@contextlib.contextmanager
def by_ssh() -> Iterator[Platform]:
    """This machine, by ssh to a server of the benchmark's own."""
    _tests()
    from platforms.ssh_server import find_sshd, ssh_server

    if find_sshd() is None:
        raise BenchmarkError("OpenSSH's server is missing")
    with scratch() as folder, ssh_server(folder / "sshd") as server:
        yield create("attached", server.settings())


@contextlib.contextmanager
def by_a_call() -> Iterator[Platform]:
    """This machine, whose agent calls over TLS as soon as somebody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{free.getsockname()[1]}"
    with scratch() as folder:
        credentials = Credentials.make()
        credentials.save(folder / "credentials.json")
        write_secret(folder / "identity.pem", credentials.identity())
        caller = subprocess.Popen(
            [find_agent().path, "--dial", listen, "--identity", folder / "identity.pem"],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            settings = {"via": "dial-in", "listen": listen, "credentials": str(folder / "credentials.json")}
            yield create("attached", settings)
        finally:
            end_process(caller)


def by_libvirt(scheme: str, settings: dict[str, Any]) -> Place:
    """A driver of a libvirtd of the benchmark's own."""

    @contextlib.contextmanager
    def place() -> Iterator[Platform]:
        _tests()
        from platforms.libvirt_daemon import private_libvirtd

        if not shutil.which("libvirtd", path="/usr/sbin:/usr/bin"):
            raise BenchmarkError("libvirtd is missing")
        with private_libvirtd() as daemon:
            path = "system" if scheme == "qemu" else ""
            yield create("libvirt", {"uri": f"{scheme}+unix:///{path}?socket={daemon}", **settings})

    return place


@contextlib.contextmanager
def by_image() -> Iterator[Platform]:
    """The image that boots anywhere, in QEMU, with its agent on the serial line."""
    _tests()
    from platforms.image_machines import ImageMachines

    with scratch() as folder:
        path = folder / "image.raw"
        try:
            build(find_ingredients(SerialChannel(), Format.RAW), Format.RAW, path, silence)
        except VirtgaugeError as error:
            raise BenchmarkError(str(error)) from error
        yield ImageMachines(ImageMachines.Settings(image=path, devices="KVM"))


def _tests() -> None:
    """What the tests bring up for themselves is the same here."""
    if str(TESTS) not in sys.path:
        sys.path.insert(0, str(TESTS))

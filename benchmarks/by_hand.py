"""The peers of agent_ready.py: the same runtimes started by hand, with the least program that can say it runs."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmark import FOLDER, BenchmarkError

from virtgauge.agent import AgentBinary
from virtgauge.folders import cache_root
from virtgauge.host.mounts import detach_below
from virtgauge.platforms.boot_files import build_initramfs
from virtgauge.platforms.qemu.command import MACHINES, Boot
from virtgauge.platforms.uml import UmlBoot

_BOUND_S = 60.0


@dataclasses.dataclass(frozen=True)
class Start:
    """One start by hand, from before the fork; ns."""

    line_ns: int
    exit_ns: int


def start(argv: Sequence[str | Path], line: bytes, folder: Path | None = None) -> Start:
    """Start a program and wait for a line on its standard output, then for its end.

    Raises:
        BenchmarkError: it ended without the line, or took too long.
    """
    with tempfile.TemporaryFile() as complaints:
        began = time.monotonic_ns()
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints, cwd=folder
        )
        try:
            said = _read_until(process, line)
            line_ns = time.monotonic_ns() - began
            process.wait(_BOUND_S)
            exit_ns = time.monotonic_ns() - began
        except subprocess.TimeoutExpired as error:
            raise BenchmarkError(f"{argv[0]} did not end by itself") from error
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        if line not in said:
            complaints.seek(0)
            tail = (said + complaints.read())[-500:].decode(errors="replace")
            raise BenchmarkError(f"{' '.join(map(str, argv))} never said {line!r}: {tail}")
    return Start(line_ns, exit_ns)


def _read_until(process: subprocess.Popen[bytes], line: bytes) -> bytes:
    assert process.stdout is not None
    said, descriptor, deadline = b"", process.stdout.fileno(), time.monotonic() + _BOUND_S
    while line not in said and select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
        data = os.read(descriptor, 65536)
        if not data:
            break
        said += data
    return said


def first_line_program() -> Path:
    """The program that says ``running`` and ends, compiled into the cache.

    Raises:
        BenchmarkError: there is no C compiler.
    """
    source, target = FOLDER / "first_line.c", cache_root() / "benchmarks" / "first_line"
    if not target.is_file() or target.stat().st_mtime < source.stat().st_mtime:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise BenchmarkError("the peers' program cannot be compiled: apt install gcc")
        target.parent.mkdir(parents=True, exist_ok=True)
        flags = ("-Os", "-static", "-nostdlib", "-ffreestanding", "-fno-stack-protector")
        subprocess.run([compiler, *flags, str(source), "-o", str(target)], check=True)
    return target


class Container:
    """``RUNTIME run`` of a bundle made by ``RUNTIME spec``: its defaults, and the program alone as root file system."""

    def __init__(self, runtime: Path, options: Sequence[str], program: Path, folder: Path) -> None:
        self._runtime = [str(runtime), *options, "--root", str(folder / "state")]
        self._bundle = folder / "bundle"
        (self._bundle / "rootfs").mkdir(parents=True)
        shutil.copy(program, self._bundle / "rootfs" / "first_line")
        subprocess.run([str(runtime), "spec"], cwd=self._bundle, check=True, stdout=subprocess.DEVNULL)
        config = json.loads((self._bundle / "config.json").read_text())
        config["process"] |= {"args": ["/first_line"], "terminal": False}
        config["process"].pop("rlimits", None)  # raising one needs a capability that a container's root may lack
        (self._bundle / "config.json").write_text(json.dumps(config))
        self._name = f"virtgauge-benchmark-{os.getpid()}"

    def start(self) -> Start:
        """Run the container to its end."""
        try:
            return start([*self._runtime, "run", "--bundle", str(self._bundle), self._name], b"running\n")
        except BenchmarkError:
            subprocess.run([*self._runtime, "delete", "--force", self._name], capture_output=True, check=False)
            raise


class VirtualMachine:
    """QEMU with the program as the first process, its serial console on a pipe, and no other device."""

    def __init__(self, boot: Boot, kernel: Path, program: Path) -> None:
        """Args:
        boot: what virtgauge itself started: machine, accelerator, size and clock are the same.
        kernel: the image to boot.
        """
        content = AgentBinary(program, "")  # an initramfs holds an executable as /init, whichever it is
        initramfs = build_initramfs(content, [], cache_root() / "benchmarks")
        words = [word for word in boot.kernel_command_line().split() if not word.startswith("virtgauge.")]
        accelerated = "host,migratable=no" if boot.accelerator == "kvm" else "max"
        self._command = [
            str(boot.binary),
            *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
            *("-machine", MACHINES[boot.machine].argument),
            *("-accel", "kvm" if boot.accelerator == "kvm" else "tcg,thread=multi", "-cpu", accelerated),
            *("-smp", str(boot.vcpus), "-m", f"{boot.memory_mib}M"),
            *("-kernel", str(kernel), "-initrd", str(initramfs), "-append", " ".join(words)),
            *("-serial", "stdio"),
        ]

    def start(self) -> Start:
        """Boot it, to its end."""
        return start(self._command, b"running")


class UserModeLinux:
    """The kernel with the program as the first process, its console on a pipe, and no other device."""

    def __init__(self, boot: UmlBoot, program: Path, folder: Path) -> None:
        """Args:
        boot: what virtgauge itself started: kernel and memory are the same.
        folder: for the kernel's state.
        """
        initramfs = build_initramfs(AgentBinary(program, ""), [], cache_root() / "benchmarks")
        self._command = [
            str(boot.binary),
            *(f"mem={boot.memory_mib}M", f"initrd={initramfs}"),
            *(f"umid=benchmark-{os.getpid()}", f"uml_dir={folder}"),
            *("con=null", "con0=null,fd:1", "ssl=null", "quiet", "panic=-1", "noreboot"),
        ]

    def start(self) -> Start:
        """Boot it, to its end."""
        return start(self._command, b"running")


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder for a peer's bundles and state."""
    with tempfile.TemporaryDirectory(prefix="virtgauge-benchmark-") as folder:
        try:
            yield Path(folder)
        finally:
            detach_below(Path(folder))  # runsc leaves its empty network namespace mounted in its state

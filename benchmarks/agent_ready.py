"""Time until a guest's agent is ready, beside the same runtime started by hand.

Examples:
  python benchmarks/agent_ready.py
  python benchmarks/agent_ready.py --pairs 30 --platform runc

Ours and the peers take turns in one run.  Ours is Platform.launch, until the agent in the guest has answered the
handshake.  A peer starts a static program of two system calls (first_line.c), until its line has arrived.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from benchmark import BenchmarkError, Outcome, main, progress, ratios, spread
from by_hand import Container, Start, UserModeLinux, VirtualMachine, first_line_program, scratch, start
from elsewhere import Place, by_a_call, by_image, by_libvirt, by_ssh, plain

from virtgauge.agent import find_agent
from virtgauge.host.scope import Scope
from virtgauge.platforms.attached.platform import AttachedPlatform, AttachedSettings
from virtgauge.platforms.base import Guest, GuestSpec, LaunchError, Platform
from virtgauge.platforms.qemu.platform import QemuGuest
from virtgauge.platforms.uml import UmlGuest
from virtgauge.provision.kernel import find_kernel
from virtgauge.provision.registries import RUNSC

_MS = 1e-6
_HOW = (
    "Ours: `ready_ns`, to the agent's welcome, its whole handshake included. By hand: from before the "
    "fork until the program's line has arrived; to its end: until the runtime has cleaned up and exited.",
    "By hand, containers are what `RUNTIME spec` and `RUNTIME run` make of the program alone (no system folders, no "
    "overlay); virtual machines have the same machine type, size and kernel words, but no device except the serial "
    "console; User Mode Linux has its console alone.",
    "Attached is this machine itself, by ssh over its loopback (login, copy and check of the agent included; by hand a "
    "program that is there already) and by TLS (until its agent's next call: it rests 0.1 s after a guest, longer the "
    "longer nobody listens). libvirt is a libvirtd of the benchmark's own; the image boots in QEMU by BIOS and GRUB. "
    "Beside these, nothing.",
)


@dataclasses.dataclass(frozen=True)
class Peer:
    """A start by hand, and what to call it."""

    label: str
    start: Callable[[], Start]


Peers = Callable[[Platform, Guest, Path, Path], list[Peer]]
"""Makes the peers of a guest that runs, of the minimal program, in a folder for what they need."""


@dataclasses.dataclass(frozen=True)
class Subject:
    """A platform, and how its peers are made: from a guest that already ran, so that both are given the same."""

    name: str
    place: Place
    peers: Peers


@dataclasses.dataclass
class Series:
    """The times of one subject, ns; a position is one pair."""

    label: str
    ready_ns: list[int] = dataclasses.field(default_factory=list)
    call_ns: list[int] = dataclasses.field(default_factory=list)
    peers: dict[str, list[Start]] = dataclasses.field(default_factory=dict)

    def rows(self) -> list[list[str]]:
        """One row a peer, or one alone."""
        if not self.peers:
            return [[self.label, spread(self.ready_ns, scale=_MS), "–", "–", "–", "–"]]
        return [
            [
                self.label,
                spread(self.ready_ns, scale=_MS),
                peer,
                spread([start.line_ns for start in starts], scale=_MS),
                spread(ratios(self.ready_ns, [start.line_ns for start in starts])),
                spread([start.exit_ns for start in starts], scale=_MS),
            ]
            for peer, starts in self.peers.items()
        ]

    def ours_beside(self) -> str:
        """The pair that was measured last, for who watches."""
        peers = "; ".join(f"{name} {starts[-1].line_ns * _MS:.1f} ms" for name, starts in self.peers.items())
        return f"ours {self.ready_ns[-1] * _MS:.1f} ms; {peers}"


def _host_peers(_platform: Platform, _guest: Guest, program: Path, _folder: Path) -> list[Peer]:
    agent = find_agent().path
    return [
        Peer("fork and exec of a minimal program", lambda: start([program], b"running\n")),
        Peer("the agent's own --version", lambda: start([agent, "--version"], b"virtgauge-agent")),
    ]


def _container_peers(runtime: Callable[[], Path | None], *options: str) -> Peers:
    def peers(_platform: Platform, _guest: Guest, program: Path, folder: Path) -> list[Peer]:
        path = runtime()
        assert path is not None  # a guest of it has just run
        return [Peer(f"{path.name} run", Container(path, options, program, folder).start)]

    return peers


def _machine_peers(_platform: Platform, guest: Guest, program: Path, _folder: Path) -> list[Peer]:
    assert isinstance(guest, QemuGuest)
    packaged = find_kernel()
    assert packaged is not None
    return [
        Peer("the same kernel (ELF), minimal init", VirtualMachine(guest.boot, guest.boot.kernel, program).start),
        Peer("as packaged (bzImage), minimal init", VirtualMachine(guest.boot, packaged.image, program).start),
    ]


def _uml_peers(_platform: Platform, guest: Guest, program: Path, folder: Path) -> list[Peer]:
    assert isinstance(guest, UmlGuest)
    return [Peer("linux.uml, minimal init", UserModeLinux(guest.boot, program, folder).start)]


def _ssh_peers(platform: Platform, _guest: Guest, program: Path, _folder: Path) -> list[Peer]:
    assert isinstance(platform, AttachedPlatform)
    return [Peer("ssh, a minimal program that is there", _by_login(platform.settings, program))]


def _by_login(settings: AttachedSettings, program: Path) -> Callable[[], Start]:
    """OpenSSH's own client, with the keys of the platform's settings."""
    options = ("-F", "none", "-o", f"UserKnownHostsFile={settings.known_hosts}", "-o", "BatchMode=yes")
    far = ("-i", str(settings.identity_file), "-p", str(settings.port), f"{settings.user}@{settings.host}")
    return lambda: start(["ssh", *options, *far, str(program)], b"running\n")


def _no_peers(_platform: Platform, _guest: Guest, _program: Path, _folder: Path) -> list[Peer]:
    return []


def _runc() -> Path | None:
    found = shutil.which("runc")
    return Path(found).resolve() if found else None


SUBJECTS = (
    Subject("host", plain("host", {}), _host_peers),
    Subject("runc", plain("oci", {"runtime": "runc"}), _container_peers(_runc)),
    Subject(
        "runsc",
        plain("oci", {"runtime": "runsc"}),
        _container_peers(RUNSC.find, "--platform=systrap", "--network=none", "--overlay2=all:memory"),
    ),
    Subject("uml", plain("uml", {}), _uml_peers),
    Subject("qemu-tcg", plain("qemu", {"machine": "microvm", "accelerator": "tcg"}), _machine_peers),
    Subject("attached-ssh", by_ssh, _ssh_peers),
    Subject("attached-dial-in", by_a_call, _no_peers),
    Subject("libvirt-lxc", by_libvirt("lxc", {}), _no_peers),
    Subject("libvirt-qemu-tcg", by_libvirt("qemu", {"accelerator": "tcg"}), _no_peers),
    Subject("image-tcg", by_image, _no_peers),
)


def options(parser: argparse.ArgumentParser) -> None:
    names = [subject.name for subject in SUBJECTS]
    parser.add_argument("--pairs", type=int, default=15, help="measured pairs a platform, after one to warm up")
    parser.add_argument("--platform", action="append", choices=names, help="only this one; may be repeated")


def measure(arguments: argparse.Namespace) -> Outcome:
    if os.geteuid() != 0:
        raise BenchmarkError("containers need root: run this as root (sudo)")
    program = first_line_program()
    pairs = 2 if arguments.quick else arguments.pairs
    subjects = [s for s in SUBJECTS if not arguments.platform or s.name in arguments.platform]
    return asyncio.run(_measure(subjects, program, pairs))


async def _measure(subjects: list[Subject], program: Path, pairs: int) -> Outcome:
    measured: list[Series] = []
    skipped: list[str] = []
    peers: dict[str, str] = {}
    for subject in subjects:
        try:
            with subject.place() as platform:
                availability = await platform.probe()
                if not availability.usable:
                    raise BenchmarkError(availability.reason)
                peers |= _versions(availability.details)
                measured.append(await _paired(subject, platform, program, pairs))
        except (AssertionError, ImportError, LaunchError, BenchmarkError) as error:
            skipped.append(f"{subject.name} is missing: {str(error).splitlines()[0]}")
            progress(skipped[-1])
    if not measured:
        raise BenchmarkError("; ".join(skipped))
    return Outcome(
        columns=("platform", "ours: agent ready, ms", "by hand", "first line, ms", "ratio", "by hand to its end, ms"),
        rows=[row for series in measured for row in series.rows()],
        meaning="How much later a guest can be measured than the bare runtime could have said its first line.",
        peers=peers | {"minimal program": f"first_line.c ({program.stat().st_size} bytes, static)"},
        notes=[
            f"{pairs} pairs a platform after one to warm up; ours and each peer by turns.",
            *_HOW,
            f"The call of `launch` as a whole takes {spread(_rest_of_calls(measured), scale=_MS)} ms longer: folder "
            "and cgroup before, monitor after.",
            *skipped,
        ],
        values={series.label: dataclasses.asdict(series) for series in measured},
    )


def _rest_of_calls(measured: list[Series]) -> list[int]:
    return [call - ready for series in measured for call, ready in zip(series.call_ns, series.ready_ns, strict=True)]


async def _paired(subject: Subject, platform: Platform, program: Path, pairs: int) -> Series:
    """Ours and the peers by turns.  The first round warms caches up and tells the peers what to start."""
    with Scope() as scope, scratch() as folder:

        async def ours(
            name: str, then: Callable[[Guest], list[Peer]] = lambda _: []
        ) -> tuple[int, int, str, list[Peer]]:
            spec = GuestSpec(name=name, scope=scope, agent=find_agent())
            began = time.monotonic_ns()
            guest = await platform.launch(spec)
            call_ns = time.monotonic_ns() - began
            try:
                return guest.ready_ns, call_ns, guest.label, then(guest)
            finally:
                await guest.close()

        await platform.begin(scope, find_agent())
        *_, label, peers = await ours("warm-up", lambda guest: subject.peers(platform, guest, program, folder))
        for peer in peers:
            peer.start()
        series = Series(label, peers={peer.label: [] for peer in peers})
        for pair in range(1, pairs + 1):
            ready_ns, call_ns, *_ = await ours(f"pair-{pair}")
            series.ready_ns.append(ready_ns)
            series.call_ns.append(call_ns)
            for peer in peers:
                series.peers[peer.label].append(peer.start())
            progress(f"{subject.name} {pair}/{pairs}: {series.ours_beside()}")
    return series


def _versions(details: dict[str, str]) -> dict[str, str]:
    """Runtime, QEMU and kernel as a platform's probe found them."""
    found = {}
    if version := details.get("version"):
        name, _, number = version.replace("version ", "").partition(" ")
        found[name] = number
    if qemu := details.get("qemu"):
        found |= {"QEMU": qemu, "guest kernel": details["kernel"]}
    return found


if __name__ == "__main__":
    main(measure, __doc__, options)

"""Whether guests of a kind really boot here, found by booting one, and remembered until the machine boots again.

``/dev/kvm`` may exist and be useless: nested and paravirtual KVMs abort on a register or hang a stock kernel.  Nothing
but a boot tells.  One may also boot guests and be good for no figure: a KVM without hardware virtualization keeps a
guest apart by page tables alone (PVM), runs its user code natively, and steps through the code of a kernel that was not
written for it.  The duration of a system call in the guest tells.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import dataclasses
import hashlib
import os
import re
import shutil
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from pydantic import TypeAdapter

from virtgauge.agent import AgentBinary
from virtgauge.agent.channel import AgentError, ChannelClosedError
from virtgauge.agent.messages import ProtocolError
from virtgauge.errors import UnavailableError, VirtgaugeError
from virtgauge.folders import cache_root, write_whole
from virtgauge.host.process import boot_id, find_program, output_of, text_of
from virtgauge.host.scope import Scope
from virtgauge.platforms.base import Availability, Guest, GuestSpec, LaunchError, Platform

KVM_BOUND_S = 5.0  # A guest with hardware virtualization boots in a fraction of this; one that has not by then hangs
TCG_BOUND_S = 45.0  # An emulated guest takes two seconds on an idle machine and many more on a busy one
FUNCTIONAL_NS = 50_000.0
"""A system call of a guest that takes longer was stepped through: with hardware virtualization it takes some 0.1 µs."""
_SYSTEM_CALLS = {"function": "clock_gettime_syscall", "samples": 20_000, "max_ns": 5 * 10**8, "reservoir": 0, "seed": 1}
"""So many that one turn of other processes on the same core does not make their mean long."""
_BY_PAGE_TABLES = (
    "the processor offers neither VT-x nor AMD-V here: this KVM (by page tables, PVM) steps through the code of a "
    "kernel that was not written for it"
)
_PREPARED = "set kernel to one that boots there, and boot_timeout_s: docs/platforms/kvm.md"
_FUNCTIONAL = "functional"
_VERDICT = TypeAdapter(Availability)


async def said_version(program: Path) -> str | None:
    """What ``PROGRAM --version`` prints; None where it cannot be started, fails, or says nothing in time."""
    said = await asyncio.to_thread(output_of, [program, "--version"], timeout_s=5.0)
    return (said or "").strip() or None


def installed(program: str, title: str, remedy: str) -> Path:
    """The path of a program.  Raises UnavailableError: it is nowhere on PATH."""
    if (found := find_program(program)) is None:
        raise UnavailableError(f"{title} is not installed", remedy)
    return found


async def version_of(program: Path, pattern: str, remedy: str) -> str:
    """What a pattern, or its group, finds in what a program says of its version.  Raises UnavailableError: nothing."""
    found = re.search(pattern, await said_version(program) or "")
    if found is None:
        raise UnavailableError(f"`{program} --version` fails: it does not run here", remedy)
    return found[found.lastindex or 0]


@dataclasses.dataclass(frozen=True)
class Booted:
    """A guest that booted and was ended again."""

    ready_ns: int  # until its agent answered
    system_call_ns: float | None = None  # of one in the guest, the mean; None where it was not asked
    details: Mapping[str, str] = dataclasses.field(default_factory=dict)  # how it had to be started, worth recording


async def judge(
    accelerator: str,  # ``kvm``, ``tcg``, or the kind of a platform whose guests need neither
    key: tuple[str, ...],  # everything else on which the answer depends: versions, hashes, machine type
    boot: Callable[[float], Awaitable[Booted]],  # a guest within so many seconds
    *,
    bound_s: float | None = None,  # the plan's own; None for the usual one
    kvm: Path = Path("/dev/kvm"),
) -> Availability:
    """Boot once, or remember having done so.

    A failure of KVM is remembered, too, or every run would pay for it; any other is tried again each time.  The details
    say whether KVM serves to try things out only (:func:`is_functional`).
    """
    if accelerator == "kvm" and (missing := _kvm_missing(kvm)) is not None:
        return missing
    bound_s = bound_s or (KVM_BOUND_S if accelerator == "kvm" else TCG_BOUND_S)
    identity = "\0".join((boot_id(), accelerator, *key, f"{bound_s:g}"))
    record = _folder() / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"
    with contextlib.suppress(OSError, ValueError):  # it is not there, or not whole
        return _VERDICT.validate_json(record.read_bytes())
    try:
        verdict = _verdict(await boot(bound_s))
    except LaunchError as error:
        reason = f"no guest boots: {_one_line(error)}"
        if error.stage == "disk_image":  # says nothing of KVM, and is not to be remembered of it
            return Availability(False, reason)
        if accelerator == "kvm" and (flags := _flags()) and not flags & {"vmx", "svm"}:
            verdict = Availability(False, f"{reason}; {_BY_PAGE_TABLES}", _PREPARED)
        else:
            verdict = Availability(False, reason)
    if verdict.usable or accelerator == "kvm":
        with contextlib.suppress(OSError):  # a cache that cannot be written costs the next run a few seconds, no more
            write_whole(record, _VERDICT.dump_json(verdict))
    return verdict


def _verdict(booted: Booted) -> Availability:
    said, details = f"a guest boots in {booted.ready_ns / 1e9:.1f} s", dict(booted.details)
    if (call_ns := booted.system_call_ns) is not None:
        details["system_call_us"] = f"{call_ns / 1e3:.2f}"
        if call_ns >= FUNCTIONAL_NS:
            details["figures"] = _FUNCTIONAL
            said += f"; its system calls take {call_ns / 1e6:.2g} ms, for KVM steps through its kernel: "
            said += "its figures mean nothing"
    return Availability(True, said, details=details)


def is_functional(availability: Availability) -> bool:
    """Whether guests boot, but serve to try things out only: their kernel is stepped through."""
    return availability.details.get("figures") == _FUNCTIONAL


def _flags() -> set[str]:
    """What this machine's processor says that it can do; empty where it does not say."""
    found = re.search(r"^flags\s*:(.*)$", text_of(Path("/proc/cpuinfo")) or "", re.MULTILINE)
    return set(found[1].split()) if found else set()


async def boots(
    launch: Callable[[GuestSpec], Awaitable[Guest]],
    name: str,
    agent: AgentBinary,
    bound_s: float,
    *,
    system_calls: bool = False,  # find out how long one takes in the guest
) -> Booted:
    """Boot a guest and end it.  Raises LaunchError: it was not ready in time."""
    with Scope() as scope:
        guest = await launch(GuestSpec(name=name, scope=scope, agent=agent, ready_timeout_s=bound_s))
        try:
            return Booted(guest.ready_ns, await _system_call_ns(guest, bound_s) if system_calls else None)
        finally:
            await guest.close()


async def _system_call_ns(guest: Guest, bound_s: float) -> float:
    try:
        reply = await guest.channel.request("probe", name="timer_cost", params=_SYSTEM_CALLS, timeout_s=bound_s)
        return float(reply.value["distribution"]["mean"]) / 1e3
    except (AgentError, ChannelClosedError, ProtocolError, TimeoutError, LookupError, TypeError, ValueError) as error:
        raise LaunchError("system calls", f"a loop of system calls does not end: {error}") from error


class BootedPlatform(Platform):
    """A platform that is probed by booting a guest."""

    async def probe(self) -> Availability:
        details: dict[str, str] = {}
        try:
            return await self._examine(details)
        except VirtgaugeError as error:
            return Availability(False, error.message, error.remedy, details)

    @abc.abstractmethod
    async def _examine(self, details: dict[str, str]) -> Availability:
        """Boot a guest, or remember that one booted; what is known before goes into ``details``.
        Raises VirtgaugeError: something is missing.
        """

    async def _require_guests(self) -> None:
        """Raises LaunchError: none boots."""
        if not (found := await self.probe()).usable:
            raise LaunchError("probe", found.reason)


class AcceleratedPlatform(BootedPlatform):
    """Virtual machines with hardware virtualization (kvm) or without (tcg, labelled "emulated").

    Which of them is known after :meth:`probe`, where a plan says ``auto``; and only then, whether KVM is a functional
    one.
    """

    def __init__(self, accelerator: str) -> None:
        self._asked = accelerator
        self._accelerator: str | None = None if accelerator == "auto" else accelerator

    @property
    def _vcpus(self) -> int:
        """Of a guest: the plan's, else 2, or 1 where the host has no more."""
        return int(self.settings.vcpus or min(2, os.cpu_count() or 1))

    @property
    def emulated(self) -> bool:
        return self._accelerator == "tcg" or self.functional

    @property
    def _suffix(self) -> str:
        kvm = " (kvm, functional)" if self.functional else " (kvm)"
        return {"kvm": kvm, "tcg": " (tcg, emulated)"}.get(self._accelerator or "", "")

    async def _choose(self, judged: Callable[[str], Awaitable[Availability]], details: dict[str, str]) -> Availability:
        """Take the first accelerator with which a guest boots, KVM before emulation.

        A functional KVM is taken only where KVM was asked for: an emulated guest does the same sooner.
        """
        verdicts: dict[str, Availability] = {}
        for accelerator in ("kvm", "tcg") if self._asked == "auto" else (self._asked,):
            verdicts[accelerator] = await judged(accelerator)
            functional = accelerator == "kvm" and is_functional(verdicts[accelerator])
            if verdicts[accelerator].usable and not (functional and self._asked == "auto"):
                self._accelerator, self.functional = accelerator, functional
                break
        kvm, tcg = verdicts.get("kvm"), verdicts.get("tcg")
        if kvm is not None and self._accelerator == "kvm" and kvm.usable:
            reason = f"kvm{' (functional)' if self.functional else ''}: {kvm.reason}"
            return Availability(True, reason, details=details | kvm.details | {"accelerator": "kvm"})
        if tcg is None:
            assert kvm is not None
            fix = kvm.fix or 'set accelerator = "tcg" to measure an emulated guest instead'
            return Availability(False, f"kvm: {kvm.reason}", fix, details=details)
        return Availability(
            tcg.usable,
            f"tcg (emulated): {tcg.reason}" + (f"; kvm: {kvm.reason}" if kvm else ""),
            tcg.fix or (kvm.fix if kvm else None),
            details=details | {"accelerator": "tcg"} | ({"kvm": kvm.reason} if kvm else {}),
        )


def forget() -> None:
    """Forget all verdicts, so that the next question is answered by a boot."""
    shutil.rmtree(_folder(), ignore_errors=True)


def _kvm_missing(device: Path) -> Availability | None:
    if not device.exists():
        return Availability(False, f"there is no {device}", "enable virtualization in the firmware, and `modprobe kvm`")
    if not os.access(device, os.R_OK | os.W_OK):
        return Availability(False, f"{device} is not accessible", "sudo usermod -aG kvm $USER, then log in again")
    return None


def _folder() -> Path:
    return cache_root() / "qemu-boots"


def _one_line(error: LaunchError) -> str:
    message = str(error).splitlines()[0]
    lines = error.log_tail.strip().splitlines()
    telling = [line for line in lines if "error" in line.lower() or "panic" in line.lower()]
    if not telling and "error" not in message.lower():  # after an error inside KVM the last line is of bytes
        telling = lines[-1:]
    return "; ".join([message, *telling[:1]])

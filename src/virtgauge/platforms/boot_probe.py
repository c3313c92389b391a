"""Whether guests of a kind really boot here, found by booting one, and remembered until the machine boots again.

``/dev/kvm`` may exist and be useless: nested and paravirtual KVMs abort on a register or hang a stock kernel.  Nothing
but a boot tells.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

from virtgauge.agent.binary import AgentBinary
from virtgauge.host.process import boot_id
from virtgauge.host.scope import Scope
from virtgauge.platforms.base import Availability, Guest, GuestSpec, LaunchError, Platform
from virtgauge.platforms.boot_files import write_whole
from virtgauge.provision.cache import cache_root

_BOUND_S = 5.0


async def said_version(program: Path) -> str | None:
    """What ``PROGRAM --version`` prints; None where it cannot be started, fails, or says nothing in time."""
    try:
        process = await asyncio.create_subprocess_exec(
            program, "--version", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError:
        return None
    try:
        output, _ = await asyncio.wait_for(process.communicate(), _BOUND_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        return None
    return output.decode(errors="replace").strip() or None if process.returncode == 0 else None


KVM_BOUND_S = 5.0  # A guest with hardware virtualization boots in a fraction of this; one that has not by then hangs
TCG_BOUND_S = 45.0  # An emulated guest takes two seconds on an idle machine and many more on a busy one

_KVM_DEVICE = Path("/dev/kvm")


async def judge(
    accelerator: str,  # ``kvm``, ``tcg``, or the kind of a platform whose guests need neither
    key: tuple[str, ...],  # everything else on which the answer depends: versions, hashes, machine type
    boot: Callable[[float], Awaitable[int]],  # a guest within so many seconds; the nanoseconds until it was ready
    *,
    kvm: Path = _KVM_DEVICE,
) -> Availability:
    """Boot once, or remember having done so.

    A failure of KVM is remembered, too, or every run would pay for it; any other is tried again each time.
    """
    if accelerator == "kvm" and (missing := _kvm_missing(kvm)) is not None:
        return missing
    record = _record(accelerator, key)
    remembered = _read(record)
    if remembered is not None:
        return remembered
    bound_s = KVM_BOUND_S if accelerator == "kvm" else TCG_BOUND_S
    try:
        ready_ns = await boot(bound_s)
        verdict = Availability(True, f"a guest boots in {ready_ns / 1e9:.1f} s")
    except LaunchError as error:
        verdict = Availability(False, f"no guest boots: {_one_line(error)}")
    if verdict.usable or accelerator == "kvm":
        _write(record, verdict)
    return verdict


async def boots(launch: Callable[[GuestSpec], Awaitable[Guest]], name: str, agent: AgentBinary, bound_s: float) -> int:
    """Boot a guest and end it; the nanoseconds until it was ready.  Raises LaunchError: it was not, in time."""
    with Scope() as scope:
        guest = await launch(GuestSpec(name=name, scope=scope, agent=agent, ready_timeout_s=bound_s))
        await guest.close()
        return guest.ready_ns


def usual_vcpus() -> int:
    """Of a virtual machine that a plan does not say more of: 2, or 1 where the host has no more."""
    return min(2, os.cpu_count() or 1)


class AcceleratedPlatform(Platform):
    """Virtual machines with hardware virtualization (kvm) or without (tcg, labelled "emulated").

    Which of them is known after :meth:`probe`, where a plan says ``auto``.
    """

    def __init__(self, accelerator: str) -> None:
        self._asked = accelerator
        self._accelerator: str | None = None if accelerator == "auto" else accelerator

    @property
    def emulated(self) -> bool:
        return self._accelerator == "tcg"

    @property
    def _suffix(self) -> str:
        return {"kvm": " (kvm)", "tcg": " (tcg, emulated)"}.get(self._accelerator or "", "")

    async def _choose(self, judged: Callable[[str], Awaitable[Availability]], details: dict[str, str]) -> Availability:
        """Take the first accelerator with which a guest boots, KVM before emulation."""
        verdicts: dict[str, Availability] = {}
        for accelerator in ("kvm", "tcg") if self._asked == "auto" else (self._asked,):
            verdicts[accelerator] = await judged(accelerator)
            if verdicts[accelerator].usable:
                self._accelerator = accelerator
                break
        kvm, tcg = verdicts.get("kvm"), verdicts.get("tcg")
        if kvm is not None and kvm.usable:
            return Availability(True, f"kvm: {kvm.reason}", details=details | {"accelerator": "kvm"})
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


def _record(accelerator: str, key: tuple[str, ...]) -> Path:
    text = "\0".join((boot_id(), accelerator, *key))
    return _folder() / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


def _read(record: Path) -> Availability | None:
    try:
        value = json.loads(record.read_text())
        return Availability(usable=bool(value["usable"]), reason=str(value["reason"]), fix=value["fix"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(record: Path, verdict: Availability) -> None:
    try:
        write_whole(record, json.dumps(dataclasses.asdict(verdict)).encode())
    except OSError:
        return  # a cache that cannot be written costs the next run a few seconds, no more


def _one_line(error: LaunchError) -> str:
    message = str(error).splitlines()[0]
    lines = error.log_tail.strip().splitlines()
    telling = [line for line in lines if "error" in line.lower() or "panic" in line.lower()] or lines[-1:]
    return "; ".join([message, *telling[:1]])

"""Whether a guest's processor is simulated in software, as far as the guest itself can tell."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

_TCG_SIGNATURE = "TCGTCGTCGTCG"
"""What QEMU's Tiny Code Generator answers to CPUID leaf 0x40000000 (``target/i386/cpu.c``); KVM has its own."""
_TCG_MODEL = "QEMU TCG CPU"
"""Of QEMU's processor ``max``, which has this name without hardware virtualization only."""
_GENERIC_MODEL = "QEMU Virtual CPU"
"""Of ``qemu64`` and ``kvm64``'s kin, with and without hardware virtualization."""


@dataclasses.dataclass(frozen=True)
class Emulation:
    """What a guest says of its processor.

    Attributes:
        certain: it is simulated; otherwise it may be.
        words: what says so.
    """

    certain: bool
    words: str


def emulation_told(facts: Mapping[str, Any]) -> Emulation | None:
    """What an agent's facts say; None where nothing speaks for emulation, which is no proof that there is none.

    Args:
        facts: ``hypervisor`` and ``cpu`` of them.
    """
    signature = str((facts.get("hypervisor") or {}).get("signature") or "").strip("\0 ")
    model = str((facts.get("cpu") or {}).get("model") or "").strip()
    if signature == _TCG_SIGNATURE:
        return Emulation(True, f"its hypervisor answers {_TCG_SIGNATURE}: QEMU without hardware virtualization")
    if model.startswith(_TCG_MODEL):
        return Emulation(True, f"its processor is {model!r}: QEMU without hardware virtualization")
    if model.startswith(_GENERIC_MODEL) and not signature:
        return Emulation(
            False, f"its processor is {model!r} and names no hypervisor: it may be QEMU without hardware virtualization"
        )
    return None

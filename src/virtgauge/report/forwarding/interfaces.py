"""What a platform's network interfaces are: the difference that the forwarding paper is about."""

from __future__ import annotations

from collections.abc import Sequence

from virtgauge.ledger.records import ArmRecord
from virtgauge.reference.forwarding_claims import Interfaces

_MODELS: dict[str, Interfaces] = {"virtio": "paravirtual", "e1000": "emulated"}
WORDS: dict[Interfaces, str] = {"paravirtual": "para-virtual interfaces", "emulated": "fully emulated interfaces"}


def interfaces_of(arm: ArmRecord) -> Interfaces | None:
    """Of a platform whose guests have interfaces of their own; None for one whose guests share the host's kernel."""
    return _MODELS.get(str(arm.settings.get("nic_model")))


def pairs(arms: Sequence[ArmRecord]) -> list[tuple[ArmRecord, ArmRecord]]:
    """Arms that differ in their interfaces alone: the para-virtual one, then the emulated one."""
    usable = [arm for arm in arms if arm.usable and arm.role != "aa"]
    found = []
    for first in usable:
        for second in usable:
            if (interfaces_of(first), interfaces_of(second)) == ("paravirtual", "emulated") and _alike(first, second):
                found.append((first, second))
    return found


def _alike(one: ArmRecord, other: ArmRecord) -> bool:
    def rest(arm: ArmRecord) -> dict[str, object]:
        return {name: value for name, value in arm.settings.items() if name not in ("nic_model", "found")}

    return one.kind == other.kind and rest(one) == rest(other)

"""Which machine a worker runs on, so that two workers never measure on one, and none answers in another's place.

Three signs, each of which can be missing: the boot ID, random for every boot and the same in all containers of a
machine; the machine ID of the installation, which a cloned disk image shares and a container may have its own of; the
product UUID of the firmware, which only root may read.  None of them is proof against somebody who wants to deceive:
that is what the certificates are for.  They find the mistakes that happen.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class MachineIdentity:
    """The signs of one machine during one boot; None where a sign cannot be read."""

    machine_id: str | None
    boot_id: str | None
    product_uuid: str | None

    @classmethod
    def read(cls, root: Path = Path("/")) -> MachineIdentity:
        """This machine's.

        Args:
            root: where ``etc``, ``proc`` and ``sys`` are; other than / only in tests.
        """
        return cls(
            machine_id=_sign(root / "etc/machine-id"),
            boot_id=_sign(root / "proc/sys/kernel/random/boot_id"),
            product_uuid=_sign(root / "sys/class/dmi/id/product_uuid"),
        )

    def shares_machine_with(self, other: MachineIdentity) -> bool:
        """Whether both are certainly one machine: of one boot, or where that is unknown, of one firmware or disk."""
        for mine, theirs in (
            (self.boot_id, other.boot_id),
            (self.product_uuid, other.product_uuid),
            (self.machine_id, other.machine_id),
        ):
            if mine is not None and theirs is not None:
                return mine == theirs
        return False

    def difference_from(self, earlier: MachineIdentity) -> str | None:
        """What shows, in words, that this is not the machine it was; None where nothing does.

        Another boot is none: a host may have been restarted.
        """
        for name, now, then in (
            ("machine ID", self.machine_id, earlier.machine_id),
            ("product UUID", self.product_uuid, earlier.product_uuid),
        ):
            if now != then:
                return f"its {name} was {then or 'unreadable'} and is {now or 'unreadable'} now"
        return None


def _sign(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip().lower() or None
    except OSError:
        return None

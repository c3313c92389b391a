"""QEMU's own bounds for a guest's disk: ``block_set_io_throttle`` of its monitor, read back by ``query-block``."""

from __future__ import annotations

from typing import Any

from qemu.qmp import QMPClient, QMPError

from virtgauge.host.policy import DiskLimits, PolicyError
from virtgauge.platforms.qemu.command import DRIVE_NAME

_FIELDS = {"read_bps": "bps_rd", "write_bps": "bps_wr", "read_iops": "iops_rd", "write_iops": "iops_wr"}


async def throttle_disk(monitor: QMPClient, limits: DiskLimits) -> dict[str, str]:
    """Bound the guest's data disk as stated, and lift every bound that is not.

    Returns:
        the bounds that QEMU says are in force, by QEMU's names; none where none was asked for.

    Raises:
        PolicyError: QEMU refuses, or something else is in force afterwards.
    """
    given = limits.given()
    wanted = {theirs: given.get(ours, 0) for ours, theirs in _FIELDS.items()}
    try:
        # Of both directions together, nothing is bounded.
        await monitor.execute("block_set_io_throttle", {"device": DRIVE_NAME, "bps": 0, "iops": 0, **wanted})
        answer: Any = await monitor.execute("query-block")
    except QMPError as error:
        raise PolicyError(f"QEMU does not bound the disk to {given}: {error}") from error
    inserted: dict[str, Any] = next((entry["inserted"] for entry in answer if entry["device"] == DRIVE_NAME), {})
    found = {name: int(inserted.get(name, 0)) for name in wanted}
    if found != wanted:
        raise PolicyError(f"QEMU was told to bound the disk to {wanted}, but says {found}")
    return {f"block_set_io_throttle {name}": str(value) for name, value in found.items() if value}

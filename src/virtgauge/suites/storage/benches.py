"""Which bench a cell needs.  Whatever two benches differ in is in the name, so that designs can share one."""

from __future__ import annotations

import dataclasses

from virtgauge.suites.storage.databases.base import Durability
from virtgauge.suites.storage.databases.registry import database
from virtgauge.suites.storage.existing import ExistingServer
from virtgauge.suites.storage.settings import StorageSettings

EMBEDDED = "embedded"


@dataclasses.dataclass(frozen=True)
class BenchSpec:
    """A guest with what is measured in it.

    Attributes:
        database: whose server it runs; None where embedded databases run in it, one after the other.
        durability: of that server.
        period_ms: of the level ``periodic``.
        flushes: flush profile; None where nothing here decides about it.
        existing: a server that is there already, in place of all that.
        disk_mib, memory_mib, vcpus: of the guest.
        timeout_ms: of an operation.
    """

    database: str | None
    durability: Durability | None
    period_ms: int
    flushes: str | None
    existing: ExistingServer | None
    disk_mib: int
    memory_mib: int | None
    vcpus: int | None
    timeout_ms: int

    @property
    def name(self) -> str:
        """Unique among differing benches."""
        if self.existing is not None:
            return f"storage-at-{self.existing.name}-{self.existing.uri}-{self.existing.table}-{self.timeout_ms}"
        what = EMBEDDED if self.database is None else f"{self.database}-{self.durability}"
        period = f"-{self.period_ms}ms" if self.durability is Durability.PERIODIC else ""
        guest = f"{self.disk_mib}-{self.memory_mib or 0}-{self.vcpus or 0}-{self.timeout_ms}"
        return f"storage-{what}{period}-{self.flushes}-{guest}"


def bench_of(settings: StorageSettings, name: str, durability: Durability, flushes: str) -> BenchSpec:
    """The bench for a database that is started here."""
    embedded = database(name).embedded
    return BenchSpec(
        database=None if embedded else name,
        durability=None if embedded else durability,
        period_ms=settings.period_ms,
        flushes=flushes,
        existing=None,
        disk_mib=settings.disk_mib,
        memory_mib=settings.memory_mib,
        vcpus=settings.vcpus,
        timeout_ms=settings.timeout_ms,
    )


def bench_at(settings: StorageSettings, server: ExistingServer) -> BenchSpec:
    """The bench for a server that is there already."""
    return BenchSpec(
        database=server.database,
        durability=None,
        period_ms=settings.period_ms,
        flushes=None,
        existing=server,
        disk_mib=settings.disk_mib,
        memory_mib=None,
        vcpus=None,
        timeout_ms=settings.timeout_ms,
    )

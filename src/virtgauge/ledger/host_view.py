"""One host of a fleet's run, as if it had been measured alone."""

from __future__ import annotations

import dataclasses
import sqlite3
from pathlib import Path
from typing import Self

from virtgauge.errors import UsageError
from virtgauge.ledger.read_only import ReadOnlyLedger
from virtgauge.ledger.records import BLOCKS_PER_HOST, GuestRecord, HostRecord, Manifest, TrialRecord


class HostLedger(ReadOnlyLedger):
    """A fleet's ledger with one host's trials and guests only."""

    def __init__(self, folder: Path, connection: sqlite3.Connection) -> None:
        super().__init__(folder, connection)
        self._host: HostRecord | None = None

    @classmethod
    def of(cls, folder: Path, name: str) -> Self:
        """Open a fleet's run for one of its hosts.

        Raises:
            UsageError: there is no run, it has one host only, or none of that name.
        """
        ledger = cls.for_command(folder)
        hosts = {host.name: host for host in super().manifest(ledger).hosts}
        if name not in hosts:
            ledger.close()
            known = f"its hosts are {', '.join(hosts)}" if hosts else f"{folder} is the run of one host"
            raise UsageError(f"--host {name}: there is no such host", known)
        host = ledger._host = hosts[name]
        ledger.blocks = host.first_block, host.first_block + BLOCKS_PER_HOST - 1
        return ledger

    def manifest(self) -> Manifest:
        """With the host's own fingerprint; platforms that it cannot use are none of its."""
        whole = super().manifest()
        if self._host is None:
            return whole
        arms = []
        for arm in whole.arms:
            lacks = arm.usable and arm.name not in self._host.arms
            reason = f"it cannot be used on host {self._host.name}"
            arms.append(dataclasses.replace(arm, usable=False, reason=reason) if lacks else arm)
        return dataclasses.replace(whole, fingerprint=self._host.fingerprint, arms=tuple(arms), hosts=())

    def trials(self, after: int = 0, at_most: int = -1) -> list[TrialRecord]:
        own = [trial for trial in super().trials(after) if self._owns(trial.block)]
        return own if at_most < 0 else own[:at_most]

    def guests(self) -> list[GuestRecord]:
        return [guest for guest in super().guests() if self._owns(guest.block)]

    def _owns(self, block: int) -> bool:
        return self._host is None or self._host.owns(block)

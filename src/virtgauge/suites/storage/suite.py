"""The storage suite: sensor data on real databases, natively and in guests, at equal durability.

The paper is van der Veen, van der Waaij and Meijer 2012, "Sensor Data Storage Performance: SQL or NoSQL, Physical or
Virtual".  A cell is one database at one level of durability, one operation (Table I's readings, one or ``values`` of
them in a statement), so many clients, with or without index, in a closed or an open loop, with flushes that cost what a
profile says.  Each cell begins with an empty database.

Histograms (ns): ``service``, from the beginning of an operation to its answer, and where operations are due at times of
their own ``response``, from when it was due; of the mixed load ``service/write``, ``service/read`` and so on.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from virtgauge.host.machine import NETWORK, lack_of_rights
from virtgauge.ledger.records import Flag
from virtgauge.platforms.local import NO_IMAGE
from virtgauge.specs.storage_formatting import AS_CONFIGURED, WRITES
from virtgauge.suites.base import Cell, Measurement, Suite
from virtgauge.suites.storage.client import LONGER_S, StoreError
from virtgauge.suites.storage.crash import measure_crash
from virtgauge.suites.storage.databases import database
from virtgauge.suites.storage.databases.base import FIRST_PERIOD_MS, Durability, Missing
from virtgauge.suites.storage.existing import refuse_passwords
from virtgauge.suites.storage.knee import measure_knee
from virtgauge.suites.storage.laboratories import set_up_testbed
from virtgauge.suites.storage.laboratory import NoTestbed, StorageTestbed, TestbedSpec, found
from virtgauge.suites.storage.settings import READS, StorageSettings
from virtgauge.suites.storage.trial import PREPARE_S, RUN_IN_S, measure_load, preload_of, values_of
from virtgauge.suites.testbed import Stage, Testbed

_STARTS_BEFORE_GIVING_UP = 3
_EACH_CELL_S = 120.0
_ALWAYS = ("sensors", "seed", "vcpus", "memory_mib", "disk_mib")
_LOADED_BY = ("seconds", "warmup_s")  # Settings by which an operation is measured
_MEASURED_BY = {
    "knee": (*_LOADED_BY, "objective_ms", "knee_steps"),
    "crash": ("crash_after_s",),
    "mixed": (*_LOADED_BY, "mixed"),
}


class StorageSuite(Suite):
    """See the module."""

    name = "storage"
    Settings = StorageSettings
    settings: StorageSettings

    def __init__(self, settings: StorageSettings) -> None:
        super().__init__(settings)
        self._testbeds: dict[str, TestbedSpec] = {}
        self._failed_starts: Counter[tuple[int, str]] = Counter()

    @classmethod
    def create(cls, settings: Mapping[str, Any]) -> Self:
        if (refusal := refuse_passwords(dict(settings))) is not None:
            error = PydanticCustomError("value_error", "{refusal}", {"refusal": refusal})
            details = InitErrorDetails(type=error, loc=("server",), input="…")
            raise ValidationError.from_exception_data(cls.name, [details])
        return super().create(settings)

    def needs(self) -> tuple[str, ...]:
        started = [database(name) for name in self.settings.databases]
        missing = [part for one in started if isinstance(one.find(), Missing) for part in one.parts]
        return ("sensorstore", *(["flushes", *missing] if started else []))

    def missing_prerequisites(self) -> list[str]:
        missing = [place for name in self.settings.databases if isinstance(place := found(name), str)]
        passwords = [server.missing_prerequisite() for server in self.settings.server]
        served = ", ".join(name for name in self.settings.databases if not database(name).embedded)
        rights = lack_of_rights(f"the suite storage: {served}", *NETWORK) if served else None
        return [words for words in (rights, *missing, *passwords) if words is not None]

    def lacking(self, cell: Cell) -> str | None:
        if cell.as_is or self._testbeds[cell.testbed].database is None:
            return None
        return lack_of_rights(f"the suite storage: {cell.factors['database']}", *NETWORK)

    def cells(self) -> list[Cell]:
        s, cells = self.settings, list[Cell]()
        for name, durability, flushes, log, operation in itertools.product(
            s.databases, s.durability, s.flushes, s.commit_log, s.operations
        ):
            where = {"database": name, "durability": durability.value, "flushes": flushes}
            where |= {"commit_log": log} if log != "same" else {}
            testbed = TestbedSpec(s, name, durability, flushes, log)
            if database(name).embedded:
                testbed = TestbedSpec(s, None, flushes=flushes)
            cells += self._cells_of(testbed, where, operation)
        for server, operation in itertools.product(s.server, s.operations):
            if operation != "crash":  # never of what was not started here
                where = {"database": server.name, "durability": AS_CONFIGURED, "flushes": AS_CONFIGURED}
                cells += self._cells_of(TestbedSpec(s, server.database, existing=server), where, operation)
        return cells

    def _cells_of(self, testbed: TestbedSpec, where: Mapping[str, str], operation: str) -> Iterator[Cell]:
        s = self.settings
        self._testbeds[testbed.name] = testbed
        measures = s.knee_steps + 1 if operation == "knee" else 1
        expected_s = 0.5 + 2 * s.disk_probe_s + 2 * s.calibration_s + measures * (s.warmup_s + s.seconds)
        runs_in = testbed.existing is None and database(where["database"]).on_java  # by the first of a server's cells
        if runs_in:
            expected_s += RUN_IN_S / (len(s.operations) * len(s.clients) * len(s.index))
        # Generous: of what hangs, an operation's own time-out tells sooner.
        each_s = s.warmup_s + s.seconds + s.timeout_ms / 1000 + 2 * s.calibration_s + LONGER_S + _EACH_CELL_S
        timeout_s = PREPARE_S * (1 + runs_in) + measures * each_s + s.crash_after_s
        # The factor that it has beside the others, the levels of that, and its loops.
        special, kinds, loops = {
            "knee": ("of", s.knee_of, ("search",)),
            "crash": ("crash", s.crash, ("closed",)),
            "mixed": ("", ("",), ("mixed",)),
        }.get(operation, ("", ("",), s.loops))
        product = testbed.existing.database if testbed.existing else where["database"]
        for clients, index, loop, mode, late, kind in itertools.product(
            s.clients, s.index, loops, s.write_modes_of(product, operation), s.late_share, kinds
        ):
            factors = {
                **where,
                "operation": operation,
                "clients": str(clients),
                "values": str(values_of(s, {"knee": kind, "crash": "single-write"}.get(operation, operation))),
                "index": "yes" if index else "no",
                "loop": loop,
                "write_mode": mode,
                **({"late": f"{late:g}:{s.late_by}:{s.late_run}"} if late else {}),
                **({special: kind} if special else {}),
            }
            params = {
                **{"of": "", "crash": "", "commit_log": "same"},
                **factors,
                "period_ms": s.period_ms if where["durability"] == Durability.PERIODIC else FIRST_PERIOD_MS,
                "clients": clients,
                "index": index,
                "late_share": late,
                "options": {} if mode in ("default", "pipelined") else {"write_mode": mode},
                # what else makes two designs of one cell differ
                **{name: getattr(s, name) for name in (*_MEASURED_BY.get(operation, _LOADED_BY), *_ALWAYS)},
                **({"pipeline": s.pipeline} if mode == "pipelined" else {}),
            }
            params["preload"] = preload_of(s, params)
            probe = "operations" if operation in (*WRITES, *READS) else operation
            server = "" if testbed.existing is None else "server"
            yield Cell(self.name, probe, factors, params, timeout_s, testbed.name, expected_s, server)

    async def set_up(self, testbed: str, stage: Stage) -> Testbed:
        """A guest with its server, disk and client; a plain guest where that cannot be, whose cells all say why."""
        spec = self._testbeds[testbed]
        key = (id(stage.platform), testbed)
        try:
            if self._failed_starts[key] >= _STARTS_BEFORE_GIVING_UP:
                words = f"given up after {_STARTS_BEFORE_GIVING_UP} starts in a row failed; see the trials before"
                raise StoreError("start", words)
            made = await set_up_testbed(stage, spec)
        except StoreError as error:
            self._failed_starts[key] += error.code != "unsupported"
            if not stage.guests:
                await stage.launch()
            return NoTestbed(stage, spec, error)
        self._failed_starts[key] = 0
        return made

    async def measure(self, cell: Cell, testbed: Testbed, on_progress: Callable[[float], None]) -> Measurement:
        """Measure one cell; where that fails, the testbed is used no further."""
        assert isinstance(testbed, StorageTestbed)
        measured = {"knee": measure_knee, "crash": measure_crash}.get(cell.params["operation"], measure_load)
        try:
            measurement = await measured(self.settings, testbed, cell, on_progress)
        except StoreError as error:
            if error.code == "unsupported":
                raise
            explained = await testbed.explain(error)
            testbed.spoil()
            raise explained from error
        if (disk := testbed.guest.disk) is None or not disk.startswith(NO_IMAGE):
            return measurement
        return dataclasses.replace(measurement, flags=(*measurement.flags, Flag("no-disk-image", disk, fatal=False)))

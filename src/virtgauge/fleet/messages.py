"""What coordinator and workers tell each other: plain data as MessagePack, checked by its receiver.

Never pickled objects of ours: an answer of another version, or of something that is no worker at all, shall be refused
in words.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import msgpack
import numpy as np
import numpy.typing as npt
from pydantic import TypeAdapter, ValidationError

from virtgauge.errors import VirtgaugeError, printable
from virtgauge.host.process import text_of
from virtgauge.ledger import rows
from virtgauge.ledger.records import ArmRecord, GuestRecord, Histogram, TrialRecord
from virtgauge.ledger.store import Ledger


@dataclasses.dataclass(frozen=True)
class MachineIdentity:
    """The signs of one machine during one boot; None where a sign cannot be read."""

    machine_id: str | None
    boot_id: str | None
    product_uuid: str | None

    @classmethod
    def read(cls, root: Path = Path("/")) -> MachineIdentity:
        """This machine's; ``root`` is where ``etc``, ``proc`` and ``sys`` are, other than / only in tests."""
        return cls(
            machine_id=_sign(root / "etc/machine-id"),
            boot_id=_sign(root / "proc/sys/kernel/random/boot_id"),
            product_uuid=_sign(root / "sys/class/dmi/id/product_uuid"),
        )

    def shares_machine_with(self, other: MachineIdentity) -> bool:
        """Whether both are certainly one machine: of one boot, or where that is unknown, of one firmware or disk."""
        signs = ((one.boot_id, one.product_uuid, one.machine_id) for one in (self, other))
        known = (mine == theirs for mine, theirs in zip(*signs, strict=True) if None not in (mine, theirs))
        return next(known, False)

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
    return (text_of(path) or "").lower() or None


FORMAT = 6  # Of all messages here; raised when one changes


class ForeignMessageError(VirtgaugeError):
    """Something answered that is no worker of this version, or not what was asked for."""


@dataclasses.dataclass(frozen=True)
class Enlistment:
    """The question who a worker is and what it can measure."""

    plan_text: str  # complete, with the seed


@dataclasses.dataclass(frozen=True)
class Assistance:
    """The question whether a worker's machine can be the tester's for the guests on another."""

    token: str  # of the fleet's run
    boot_id: str | None = None  # of the machine that was enrolled


@dataclasses.dataclass(frozen=True)
class Tester:
    """The host on which the tester of a batch is launched."""

    host: str  # what the plan calls it
    address: str  # of its server of peers
    port: int  # of that server
    secret: str  # that it wants to be told
    cpus: tuple[int, ...]  # of that machine
    cables: tuple[tuple[str, str], ...]  # interfaces, cabled to each other, of the guests' host and of the tester's


@dataclasses.dataclass(frozen=True)
class Assignment:
    """One batch for one host."""

    token: str  # of the fleet's run, 16 hexadecimal digits; the worker keeps what it measured under it
    first_block: int  # of the host
    plan_text: str  # complete, with the seed
    arms: tuple[str, ...]  # those of this host's schedule
    block: int  # of the batch in the schedule
    testbed: str  # of the batch
    arm: str  # of the batch
    keys: tuple[str, ...]  # of the trials that are wanted of that batch
    known: tuple[tuple[str, int, str], ...]  # key, attempt and status of the batch's trials that are merged already
    tester: Tester | None = None  # on another host; None where it is on this one
    boot_id: str | None = None  # of the machine that was enrolled


@dataclasses.dataclass(frozen=True)
class Signature:
    """Who answers: the worker's name, its machine, and what it measures with."""

    worker: str
    machine: MachineIdentity
    tool_version: str
    agent_sha256: str


@dataclasses.dataclass(frozen=True)
class Enrolment:
    """A worker's answer to an enlistment."""

    signature: Signature
    fingerprint: dict[str, Any]  # of its host
    arms: tuple[ArmRecord, ...]  # of the plan, usable there or not
    notices: tuple[str, ...]  # what the user should know, in words


@dataclasses.dataclass(frozen=True)
class Assisting:
    """A worker's answer to a request for assistance: peers can be launched there."""

    signature: Signature
    address: str  # of its server of peers
    port: int  # of that server
    secret: str  # that it wants to be told
    cpus: tuple[int, ...]  # of its machine


@dataclasses.dataclass(frozen=True)
class PackedTrial:
    """A trial with all that the ledger keeps of it; its ``guest_id`` is the worker's."""

    record: TrialRecord
    histograms: dict[str, tuple[str, bytes, int, int, float]]  # unit, packed bins, minimum, maximum and mean by measure
    samples: dict[str, bytes]  # little-endian 8-byte integers by series

    @classmethod
    def read(cls, ledger: Ledger, record: TrialRecord) -> Self:
        number = record.trial_id
        return cls(
            record,
            {
                measure: (found.unit, rows.pack(found), found.minimum, found.maximum, found.mean)
                for measure, found in ledger.histograms_of(number).items()
            },
            {series: values.astype("<i8").tobytes() for series, values in ledger.samples_of(number).items()},
        )

    def unpacked(self) -> tuple[TrialRecord, dict[str, Histogram], dict[str, npt.NDArray[np.int64]]]:
        """For a ledger. Raises ValueError, zlib.error: the bytes are no whole numbers, or no packed bins."""
        histograms = {measure: rows.unpack(*fields) for measure, fields in self.histograms.items()}
        samples = {series: np.frombuffer(values, dtype="<i8") for series, values in self.samples.items()}
        return self.record, histograms, samples


@dataclasses.dataclass(frozen=True)
class BatchAnswer:
    """What a batch brought."""

    signature: Signature
    trials: tuple[PackedTrial, ...]  # every attempt of the batch that the worker knows
    guests: tuple[GuestRecord, ...]  # launched for them, and those that did not come up
    notices: tuple[str, ...]  # what the user should know, in words
    events: tuple[tuple[str, str], ...]  # kind and detail, for the ledger
    # arms of which their guests' own facts, and no probe before, have told that they are emulated
    emulated: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Refusal:
    """The worker cannot, in words."""

    message: str
    remedy: str | None
    busy: bool = False  # something else is measuring there; it may be asked again
    tester_lost: bool = False  # the tester's machine does not answer it any more
    stopped: bool = False  # it was told to end what was asked for
    restarted: bool = False  # its machine is in another boot than was enrolled: it has to be enrolled again


Request = Enlistment | Assistance | Assignment
Answer = Enrolment | Assisting | BatchAnswer | Refusal


def pack(message: Request | Answer) -> bytes:
    """A message as bytes."""
    content = {"format": FORMAT, "kind": type(message).__name__, "content": dataclasses.asdict(message)}
    data: bytes = msgpack.packb(content)
    return data


_reader = functools.cache(TypeAdapter)  # To make one takes longer than to read by it


def unpack(data: object, kinds: Iterable[type], sender: str) -> Any:
    """The inverse of :func:`pack`, for whatever came of a sender (in words, for the error).
    Raises ForeignMessageError: no message of these kinds that this version could read.
    """
    try:
        value = msgpack.unpackb(data, strict_map_key=False)
        if value["format"] != FORMAT:
            raise ForeignMessageError(
                f"{sender} is of another version of virtgauge", "install the same version on every host of the fleet"
            )
        expected = {kind.__name__: kind for kind in kinds}[value["kind"]]
        return _harmless(_reader(expected).validate_python(value["content"]))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ForeignMessageError(f"{sender} answers what cannot be read: {where}: {first['msg']}") from error
    except (ValueError, TypeError, KeyError, msgpack.UnpackException) as error:
        raise ForeignMessageError(f"{sender} answers what is no message of virtgauge: {error!r}") from error


def _harmless(message: Any) -> Any:
    """The same, its words steering no terminal. Raises RowError: a ledger could not hold it."""
    if isinstance(message, Enrolment):
        rows.check_json("content", dataclasses.asdict(message))
    if isinstance(message, Refusal):
        remedy = None if message.remedy is None else printable(message.remedy)
        return dataclasses.replace(message, message=printable(message.message), remedy=remedy)
    if isinstance(message, Enrolment | BatchAnswer):
        return dataclasses.replace(message, notices=tuple(map(printable, message.notices)))
    return message

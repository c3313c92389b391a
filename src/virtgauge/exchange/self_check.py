"""What platforms did in a self-check, as a file that can be sent to others, and many such files as a table."""

from __future__ import annotations

import contextlib
import datetime
import getpass
import ipaddress
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field

from virtgauge.errors import printable
from virtgauge.exchange.imports.foreign_trial import read_json
from virtgauge.exchange.trials import reason_of
from virtgauge.ledger.records import ArmRecord, TrialStatus
from virtgauge.results.table import ResultTable

BEGIN, END = "<!-- self-checks: made by `virtgauge support merge` -->", "<!-- end of self-checks -->"
_LONGEST = 300  # characters of a text: a reason is a line, and a file comes from anybody
_MOST_REASONS = 3
_VERSIONS = ("version", "qemu", "xen", "libvirt", "hypervisor", "kernel_release")  # among what a platform has found
_EVERYWHERE = {"", "root", "host", "localhost", "linux", "debian", "ubuntu", "fedora", "user", "test"}
_SYSTEM = ("bin", "dev", "etc", "lib", "lib64", "proc", "run", "sbin", "sys", "usr")  # Folders that name nobody
_PATH = re.compile(r"(?<![\w./~])/([\w.+@-]+)(?:/[^\s:;,'\"()<>]*)?")
_V4 = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.]*\d)")
_V6 = re.compile(r"(?<![\w:])[0-9A-Fa-f:]{2,39}(?![\w:])")
_IDENTIFIERS = re.compile(
    r"(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}"  # of an interface
    r"|enx[0-9a-f]{12}"
    r"|[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
    r"|(?<!\w)[0-9a-f]{32,}(?!\w)"  # of a machine or a boot, and of a file's content
    r"|/dev/disk/by-\S+"
)

Text = Annotated[str, Field(max_length=_LONGEST)]
Number = Annotated[int, Field(ge=0, le=1_000_000)]


def _not_to_come(date: datetime.date) -> datetime.date:
    if date > datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(days=1):
        raise ValueError("lies in the future")
    return date


class Machine(BaseModel, extra="forbid", frozen=True):
    """What platforms run on; what could not be read is None."""

    kernel: Text | None
    architecture: Text | None
    distribution: Text | None
    cpu: Text | None
    cpus: Number | None
    memory_gib: Number | None
    hypervisor: Text | None  # the product that the machine is a guest of; empty on bare metal


class Suite(BaseModel, extra="forbid", frozen=True):
    """How the cells of a suite ended on a platform: as valid where one attempt was, else as the last attempt did."""

    valid: Number = 0
    invalid: Number = 0
    failed: Number = 0
    unsupported: Number = 0
    reasons: Annotated[tuple[Text, ...], Field(max_length=_MOST_REASONS)] = ()  # of those that are not valid

    @property
    def measured(self) -> int:
        """Cells that have a figure, though one may not count."""
        return self.valid + self.invalid

    @property
    def tried(self) -> int:
        return self.measured + self.failed + self.unsupported


class Platform(BaseModel, extra="forbid", frozen=True):
    """A platform: whether it can be used there, why not, and what each suite came to."""

    name: Text
    kind: Text
    label: Text
    version: Text = ""  # of what runs its guests, and of their kernel
    usable: bool
    mark: Text = ""  # ``emulated``, ``functional``, or nothing
    reason: Text = ""  # why it cannot be used
    suites: Annotated[dict[Text, Suite], Field(max_length=20)] = Field(default_factory=dict)


class SelfCheck(BaseModel, extra="forbid", frozen=True):
    """One self-check.  It names no host, user, address or serial number."""

    virtgauge_self_check: Literal[1]
    version: Text
    date: Annotated[datetime.date, AfterValidator(_not_to_come)]
    machine: Machine
    platforms: Annotated[tuple[Platform, ...], Field(max_length=100)]
    left_out: Annotated[tuple[Text, ...], Field(max_length=100)] = ()  # of the plan, to fit the time
    left_behind: Annotated[tuple[Text, ...], Field(max_length=100)] = ()  # of the run, after its end
    ended: Text = ""  # how the run ended, where not as it should


def self_check(table: ResultTable, suites: Iterable[str], left_behind: Sequence[str], ended: str) -> SelfCheck:
    """What a run says of its machine's platforms.

    Of ``suites`` that were not tried, this is said; ``left_behind`` is what the run has left on the machine, and
    ``ended`` how it ended, where not as it should.
    """
    manifest, names = table.manifest, _names()
    remarks = [event.detail for event in table.ledger.events() if event.kind == "remark"]
    return SelfCheck(
        virtgauge_self_check=1,
        version=manifest.tool_version,
        date=datetime.date.fromisoformat(manifest.created_at[:10]),
        machine=_machine(manifest.fingerprint),
        platforms=tuple(_platform(table, arm, tuple(suites), names) for arm in table.arms if arm.role != "aa"),
        left_out=tuple(_anonymous(one, names) for one in remarks if one.startswith("left out"))[:100],
        left_behind=tuple(_anonymous(one, names) for one in left_behind)[:100],
        ended=_anonymous(ended, names),
    )


def _machine(fingerprint: Mapping[str, Any]) -> Machine:
    identity, context = fingerprint.get("identity", {}), fingerprint.get("context", {})
    hypervisor = context.get("hypervisor", {})
    named = " ".join(dict.fromkeys(filter(None, (hypervisor.get("vendor"), hypervisor.get("product")))))
    memory = context.get("memory_bytes")
    return Machine(
        kernel=identity.get("kernel_release"),
        architecture=identity.get("machine"),
        distribution=context.get("distribution"),
        cpu=identity.get("cpu_model"),
        cpus=identity.get("cpu_count"),
        memory_gib=None if memory is None else round(memory / 2**30),
        hypervisor=None if (there := hypervisor.get("present")) is None else (named or "unknown") if there else "",
    )


def _platform(table: ResultTable, arm: ArmRecord, suites: Sequence[str], names: Sequence[_Name]) -> Platform:
    found = arm.settings.get("found", {})
    versions = [(key, str(found[key])) for key in _VERSIONS if found.get(key)]
    return Platform(
        name=arm.name,
        kind=arm.kind,
        label=arm.label,
        version=printable(", ".join(one if key == "version" else f"{key} {one}" for key, one in versions), _LONGEST),
        usable=arm.usable,
        mark=arm.mark,
        reason="" if arm.usable else _anonymous(arm.reason, names),
        suites={name: _suite(table, name, arm.name, names) for name in suites} if arm.usable else {},
    )


def _suite(table: ResultTable, suite: str, arm: str, names: Sequence[_Name]) -> Suite:
    counts, reasons = Counter[str](), dict[str, None]()
    for attempts in filter(None, (table.endings.attempts(cell, arm) for cell in table.cells(suite))):
        good = any(one.status is TrialStatus.VALID for one in attempts)
        counts[TrialStatus.VALID.value if good else attempts[-1].status.value] += 1
        if not good:
            reasons[_anonymous(reason_of(attempts[-1]), names)] = None
    return Suite(**counts, reasons=tuple(reasons)[:_MOST_REASONS])


_Name = tuple[re.Pattern[str], str]  # A word that tells whose machine it is, and what stands for it


def _names() -> list[_Name]:
    """The longest first, so that none hides a part of another."""
    host = os.uname().nodename
    found = {host: "HOST", host.partition(".")[0]: "HOST", os.environ.get("SUDO_USER", ""): "USER"}
    with contextlib.suppress(KeyError, OSError):  # a user whom no file knows
        found[getpass.getuser()] = "USER"
    words = sorted((word for word in found if word.lower() not in _EVERYWHERE), key=len, reverse=True)
    # A host's name takes its domain along.
    domain = {"HOST": r"(?:\.[\w-]+)*", "USER": ""}
    return [(re.compile(rf"(?<![\w-]){re.escape(one)}{domain[found[one]]}(?![\w-])"), found[one]) for one in words]


def _anonymous(text: str, names: Sequence[_Name]) -> str:
    """The first line of a text, without names of host and user, addresses, identifiers, and the user's folders."""
    line = next(iter(text.strip().splitlines()), "")
    line = _IDENTIFIERS.sub("ID", line)
    line = _PATH.sub(_without_folders, line)
    line = _V6.sub(_without_v6, _V4.sub("ADDRESS", line))
    for pattern, word in names:
        line = pattern.sub(word, line)
    return printable(line, _LONGEST)


def _without_folders(found: re.Match[str]) -> str:
    """A path by its last name alone, unless it is the system's; not even that of somebody's home."""
    if found[1] in _SYSTEM:
        return found[0]
    parts = found[0].strip("/").split("/")
    return "…" if parts[0] == "home" and len(parts) <= 2 else f"…/{parts[-1]}"


def _without_v6(found: re.Match[str]) -> str:
    text = found[0]
    word = text if text.endswith("::") else text.rstrip(":")
    with contextlib.suppress(ValueError):
        ipaddress.IPv6Address(word)
        return "ADDRESS" + text[len(word) :]
    return text


def read_self_check(path: Path) -> SelfCheck:
    """A file that a self-check wrote. Raises UsageError: naming file, field, value and remedy."""
    return read_json(path, SelfCheck, "give the file that `virtgauge self-check` wrote")[0]


def failures(platform: Platform) -> list[str]:
    """What failed on a platform, or was not reached; a suite that it does not support is none."""
    if not platform.usable:
        return []
    failed = [_because(name, one) for name, one in platform.suites.items() if one.failed]
    return failed + [f"{name} (not reached)" for name, one in platform.suites.items() if not one.tried]


def result_of(platform: Platform) -> str:
    """What came of a platform, in a line: ``works``, ``in part: not bandwidth (no interface)``, ``fails: …``.

    A trial that was measured and does not count, as one on a busy machine, has shown that the platform works.
    """
    if not platform.usable:
        return f"cannot be used: {platform.reason}"
    suites = platform.suites.items()
    if failing := failures(platform):
        return f"fails: {'; '.join(failing)}"
    if lacking := [_because(name, one) for name, one in suites if not one.measured]:
        return f"in part: not {'; not '.join(lacking)}"
    doubtful = "; ".join(_because(name, one) for name, one in suites if not one.valid)
    return f"works; does not count: {doubtful}" if doubtful else "works" if suites else "nothing was tried"


def _because(name: str, suite: Suite) -> str:
    return f"{name} ({suite.reasons[0] if suite.reasons else 'no reason was recorded'})"


def merged(checks: Iterable[SelfCheck]) -> str:
    """The self-checks as a section of Markdown: a row for each platform that can be used there.

    Of the same platform and version on the same kernel, processor and hypervisor the latest is told.
    """
    rows: dict[tuple[str, ...], tuple[SelfCheck, Platform]] = {}
    for check in sorted(checks, key=lambda one: one.date):
        machine = check.machine
        for platform in (one for one in check.platforms if one.usable):
            place = (platform.kind, platform.label, platform.version, machine.kernel, machine.cpu, machine.hypervisor)
            rows[tuple(part or "" for part in place)] = (check, platform)
    columns = ("platform", "version", "kernel of the host", "machine", "measured", "result", "date, virtgauge")
    lines = [BEGIN, "", f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for _, (check, platform) in sorted(rows.items(), key=lambda one: one[0]):
        measured = [name for name, suite in platform.suites.items() if suite.measured]
        left = f"left behind: {', '.join(check.left_behind)}" if check.left_behind else ""
        result = [f"the run {check.ended}" if check.ended else "", left, result_of(platform)]
        cells = (
            *(platform.label, platform.version or "—", check.machine.kernel or "unknown", _machine_text(check.machine)),
            *(", ".join(measured) or "nothing", "; ".join(printable(one, 150) for one in result if one)),
            f"{check.date}, {check.version}",
        )
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    return "\n".join([*lines, "", END, ""])


def _machine_text(machine: Machine) -> str:
    named = {None: "", "": ", bare metal", "unknown": ", on a hypervisor without a name"}
    below = named.get(machine.hypervisor, f", on {machine.hypervisor}")
    return f"{machine.cpus or '?'} × {machine.cpu or 'unknown processor'}{below}, {machine.distribution or 'unknown'}"


def _cell(text: str) -> str:
    """A text that comes from anybody, as a cell of a table in Markdown: it makes neither markup nor links."""
    escaped = re.sub(r"([\\|`*_\[\]<>&#!~$])", r"\\\1", printable(text, 3 * _LONGEST))
    return re.sub(r"(?<=\w)://|(?<=www)\.", lambda found: f"&#{ord(found[0][0])};{found[0][1:]}", escaped)


def spliced(document: str, section: str) -> str:
    """A document of Markdown in which what stands between the section's marks is this one; at its end without marks."""
    place = re.search(rf"(?ms)^{re.escape(BEGIN)}$.*?^{re.escape(END)}\n?", document)
    if place is None:
        return f"{document.rstrip()}\n\n{section}" if document.strip() else section
    return document[: place.start()] + section + document[place.end() :]

"""Records what other tools measured as trials of the suite ``imported``: all of an import, or nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ValidationError

from virtgauge import __version__
from virtgauge.decisions.requirements import resolve
from virtgauge.errors import UsageError
from virtgauge.exchange.imports.fio import read_fio
from virtgauge.exchange.imports.foreign_trial import Repetition
from virtgauge.exchange.imports.latencies import LATENCIES
from virtgauge.exchange.imports.pgbench import logs_together, read_pgbench
from virtgauge.exchange.imports.trex import read_trex
from virtgauge.execution.run import run_to_ourselves
from virtgauge.ledger.records import COMPLETED, ArmRecord, Flag, Histogram, Manifest, TrialRecord, TrialStatus
from virtgauge.ledger.rows import RowError, trial_row
from virtgauge.ledger.store import LEDGER_NAME, Ledger, utc_now
from virtgauge.plan.load import explain
from virtgauge.plan.model import AA_SUFFIX, PlatformSection
from virtgauge.plan.requirements import Requirement

NAME = "imported"  # Of the plan, of its platforms' kind and of the trials' suite: nothing of it was ever started here


class _RequirementsFile(BaseModel, extra="forbid"):
    require: tuple[Requirement, ...]


def read_requirements(path: Path) -> str:
    """The text of a file of ``[[require]]`` tables. Raises UsageError: it is none, or is of what no import brings."""
    try:
        text = path.read_text(encoding="utf-8")
        found = _RequirementsFile.model_validate(tomllib.loads(text)).require
    except ValidationError as error:
        raise explain(error, str(path), model=Requirement) from error
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"--require {path}: {error}", "give a TOML file of [[require]] tables") from error
    for index, required in enumerate(found):
        where = f"{path}: require[{index}]"
        if required.suite != NAME:
            raise UsageError(
                f"{where}.suite = {required.suite!r}: an import brings trials of the suite {NAME} only",
                f"`virtgauge measures {NAME}` lists what can be required of it",
            )
        if required.platforms:
            raise UsageError(
                f"{where}.platforms: platforms are imported one after another, and each is held to every requirement",
                "leave it out",
            )
    resolve(found, None, [], 0.95, str(path))
    return text


_FACTOR = re.compile(r"[a-z][a-z0-9_]{0,39}")


@dataclasses.dataclass(frozen=True)
class ImportedArm:
    """Where imported trials belong: an arm of the run, or one that is new to a run of imported trials."""

    name: str  # as a plan would have it
    label: str | None = None  # for people, of a new arm; None: its name
    emulated: bool = False  # whether a new arm's figures must not be ranked


def read_repetitions(tool: str, paths: Sequence[Path]) -> list[Repetition]:
    """What the files of one tool say, in their order. Raises UsageError: one is none of the tool's, or given twice."""
    if tool == "pgbench":
        found = [read_pgbench(together) for together in logs_together(paths)]
    else:
        read = {"fio": read_fio, "trex": read_trex, **LATENCIES}[tool]
        found = [read(path) for path in paths]
    for repetition in found:
        if any(trial.elapsed_ns >= 2**63 for trial in repetition.trials):
            name = repetition.sources[0].name
            raise UsageError(f"{name}: it took longer than 292 years; nothing was imported", "check the file's times")
    seen: dict[str, str] = {}
    for source in (source for repetition in found for source in repetition.sources):
        if source.sha256 in seen:
            raise UsageError(
                f"{source.name} is the same file as {seen[source.sha256]}; nothing was imported",
                "name each output once: a repetition that is counted twice makes intervals too narrow",
            )
        seen[source.sha256] = source.name
    return found


def import_into(
    folder: Path,
    repetitions: Sequence[Repetition],
    arm: ImportedArm,
    conditions: Mapping[str, str],
    block: int | None = None,
    *,
    new: bool = False,
    requirements: str = "",
) -> int:
    """Record repetitions as the trials of consecutive blocks; returns how many trials they are.

    Conditions are levels that the outputs do not name, by factor.  Without a block for the first repetition it is the
    first that has no trial yet of this arm and these cells.  A new run has the arm as its reference, and requirements
    as :func:`read_requirements` has them.

    Raises UsageError: there is no such arm, a file was imported before, a block is taken, a condition cannot be one, a
    figure is beyond what a ledger holds; LedgerWriteError: the disk is full, and nothing was recorded.
    """
    _check_conditions(conditions, repetitions)
    _check_figures(repetitions, conditions)
    if new and (folder / LEDGER_NAME).exists():
        raise UsageError(f"--new {folder}: it already holds a run", f"use --into {folder}, or name another folder")
    with contextlib.ExitStack() as stack:
        if new:
            reference = _new_arm(arm, ())  # refuses a name before there is a folder
            ledger = stack.enter_context(Ledger.whole(folder, _manifest(folder, reference, requirements)))
            arm = ImportedArm(arm.name)
        else:
            ledger = stack.enter_context(Ledger.open(folder))
        stack.enter_context(run_to_ourselves(folder))
        ledger.discard_unfinished_samples()  # else they would be those of a trial that is to have none
        stack.enter_context(ledger.together())
        known = ledger.trials()
        _refuse_known_files(known, repetitions)
        platform = _platform(ledger, arm)
        first = _first_block(known, arm.name, repetitions, conditions) if block is None else block
        records = list(_records(repetitions, arm.name, platform, conditions, first))
        _refuse_taken_blocks(known, [record for record, _ in records])
        for record, histograms in records:
            ledger.add_trial(record, histograms)
        names = ", ".join(source.name for repetition in repetitions for source in repetition.sources)
        ledger.add_event("imported", f"{len(records)} trials of {arm.name} from {names}")
        if new:
            ledger.add_event(COMPLETED, "")
    return len(records)


def _check_conditions(conditions: Mapping[str, str], repetitions: Sequence[Repetition]) -> None:
    own = {factor for repetition in repetitions for trial in repetition.trials for factor in trial.factors}
    for factor, level in conditions.items():
        if not _FACTOR.fullmatch(factor) or not level.isprintable() or not 0 < len(level) <= 200:
            raise UsageError(
                f"--condition {factor}={level}: is no factor and its level",
                "write factor=level: a factor of lower-case letters, digits and underscores, and a level in one line",
            )
        if factor in own:
            raise UsageError(
                f"--condition {factor}={level}: the output says itself what {factor} was", "choose another factor"
            )


def _check_figures(repetitions: Sequence[Repetition], conditions: Mapping[str, str]) -> None:
    for record, histograms in _records(repetitions, NAME, NAME, conditions, 0):
        try:
            trial_row(record, histograms)
        except RowError as error:
            names = ", ".join(source["name"] for source in record.result["sources"])
            raise UsageError(
                f"{names}: what it says of {record.probe} cannot be recorded: {error}; nothing was imported",
                "leave the file out, or measure again",
            ) from error


def _manifest(folder: Path, arm: ArmRecord, requirements: str) -> Manifest:
    plan_text = (
        "# Measured by other tools and imported: it says what is required, and cannot be run.\n"
        f'name = "{NAME}"\nreference = "{arm.name}"\naa = false\nseed = 0\n\n'
        f'[[platform]]\nname = "{arm.name}"\nkind = "{NAME}"\n\n[suite]\n{NAME} = []\n\n{requirements}'
    )
    return Manifest(
        run_id=folder.resolve().name,
        created_at=utc_now(),
        tool_version=__version__,
        plan_name=NAME,
        plan_text=plan_text,
        seed=0,
        confidence=0.95,
        agent_sha256="",
        fingerprint={},  # of this machine it would say nothing: the figures may come from any
        arms=(arm,),
    )


def _platform(ledger: Ledger, arm: ImportedArm) -> str:
    """The kind of the arm's platform; the arm is made where it may be new."""
    manifest = ledger.manifest()
    for found in manifest.arms:
        if found.name == arm.name:
            if arm.label is not None or arm.emulated:
                raise UsageError(
                    f"--arm {arm.name}: the run has it already, with its label {found.label!r}",
                    "--label and --emulated are for a new one; leave them out",
                )
            return found.kind
    if manifest.plan_name != NAME:
        names = ", ".join(one.name for one in manifest.arms)
        raise UsageError(
            f"--arm {arm.name}: the run {ledger.folder} has no such platform",
            f"use one of {names}; or import into a run of its own with --new FOLDER",
        )
    ledger.put_arm(_new_arm(arm, manifest.arms))
    return NAME


def _new_arm(arm: ImportedArm, known: Sequence[ArmRecord]) -> ArmRecord:
    role = "test" if known else "reference"
    if any(one.role == "reference" and arm.name == one.name + AA_SUFFIX for one in known):
        role = "aa"
    else:
        try:
            PlatformSection(name=arm.name, kind=NAME)
        except ValidationError as error:
            reason = str(error.errors()[0]["msg"]).removeprefix("Value error, ")
            raise UsageError(f"--arm {arm.name}: {reason}", "choose another name") from error
    return ArmRecord(
        arm.name, NAME, arm.label or arm.name, role, arm.emulated, usable=True, reason="", fix=None, settings={}
    )


def _refuse_known_files(known: Sequence[TrialRecord], repetitions: Sequence[Repetition]) -> None:
    imported = {
        source["sha256"]: trial for trial in known if trial.suite == NAME for source in trial.result.get("sources", ())
    }
    for source in (source for repetition in repetitions for source in repetition.sources):
        if source.sha256 in imported:
            trial = imported[source.sha256]
            raise UsageError(
                f"{source.name} was imported before, as repetition {trial.block} of {trial.arm}; nothing was imported",
                "a repetition that is counted twice makes intervals too narrow; measure again for another one",
            )


def _first_block(
    known: Sequence[TrialRecord], arm: str, repetitions: Sequence[Repetition], conditions: Mapping[str, str]
) -> int:
    trials = (trial for repetition in repetitions for trial in repetition.trials)
    wanted = {(trial.probe, frozenset({**trial.factors, **conditions}.items())) for trial in trials}
    taken = [
        trial.block
        for trial in known
        if trial.suite == NAME and trial.arm == arm and (trial.probe, frozenset(trial.factors.items())) in wanted
    ]
    return max(taken, default=-1) + 1


def _records(
    repetitions: Sequence[Repetition], arm: str, platform: str, conditions: Mapping[str, str], first: int
) -> Iterator[tuple[TrialRecord, dict[str, Histogram]]]:
    for block, repetition in enumerate(repetitions, start=first):
        watched = Flag("imported", f"measured by {repetition.tool}: no load, steal or clock was watched", fatal=False)
        sources = [dataclasses.asdict(source) for source in repetition.sources]
        for trial in repetition.trials:
            factors = {**trial.factors, **conditions}
            levels = ",".join(f"{factor}={level}" for factor, level in factors.items())
            record = TrialRecord(
                trial_id=0,
                key=f"b{block:04d}/{arm}/{NAME}/{trial.probe}/{levels}",
                suite=NAME,
                probe=trial.probe,
                arm=arm,
                platform=platform,
                block=block,
                attempt=1,
                factors=factors,
                status=TrialStatus.FAILED if trial.error else TrialStatus.VALID,
                flags=(*trial.flags, watched),
                result={**trial.result, "tool": repetition.tool, "sources": sources},
                accounting={},
                error=trial.error,
                guest_id=None,
                started_at=trial.started_at,
                elapsed_ns=trial.elapsed_ns,
            )
            yield record, trial.histograms


def _refuse_taken_blocks(known: Sequence[TrialRecord], records: Sequence[TrialRecord]) -> None:
    taken = {trial.key for trial in known}
    for record in records:
        if record.key in taken:
            raise UsageError(
                f"--block {record.block}: {record.arm} has a trial of it already in the cell "
                f"{json.dumps(record.factors, ensure_ascii=False)}; nothing was imported",
                "leave --block out, or tell the two apart with --condition",
            )

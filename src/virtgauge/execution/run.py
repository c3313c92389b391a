"""Starting, resuming and ending a run: everything around the runner that must happen exactly once."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import fcntl
import os
import shlex
import signal
from collections.abc import Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from virtgauge import __version__
from virtgauge.agent import AgentBinary, find_agent
from virtgauge.errors import ExitCode, UnavailableError, UsageError, VirtgaugeError, unwritable
from virtgauge.execution.fitting import Fitted, fitted
from virtgauge.execution.prepare import Arm, Design, check_plan, probe_arms, refuse_missing
from virtgauge.execution.progress import ProgressDisplay
from virtgauge.execution.runner import Runner
from virtgauge.execution.schedule import shares_of_cpus
from virtgauge.host.load import ambient_load
from virtgauge.host.machine import fingerprint
from virtgauge.host.process import closed_after
from virtgauge.host.reclaim import reclaim_dead
from virtgauge.host.scope import Scope
from virtgauge.host.tag import STATE_REMEDY, make_state_root
from virtgauge.ledger.records import COMPLETED, DOUBT, INCOMPLETE, INTERRUPTED, ArmRecord, Flag, HostRecord, Manifest
from virtgauge.ledger.store import LEDGER_NAME, Ledger, utc_now
from virtgauge.plan.load import parse_plan
from virtgauge.plan.model import AA_SUFFIX, Plan
from virtgauge.suites.testbed import allowed_cores

LOCK_NAME = "measuring.lock"  # In the folder of all scopes: held by whoever measures on this machine
_TOGETHER = (
    "All platforms were measured at the same time, each on CPUs of its own: what guests do to one another by caches, "
    "memory and clock rates is in their figures."
)
_SHARED = "intervals tell how figures vary with time, and not how guests differ"


class InterruptedRunError(VirtgaugeError):
    """Ctrl-C or SIGTERM; what had finished is in the ledger."""

    exit_code = ExitCode.INTERRUPTED


class OccupiedError(UnavailableError):
    """Something else measures here, or writes to this run."""


def new_run_folder(parent: Path, plan_name: str) -> Path:
    """A folder name for a run: the plan and the time, made unique."""
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    base = parent / f"{plan_name.replace(':', '-')}-{stamp}"
    candidates = [base, *(base.with_name(f"{base.name}-{n}") for n in range(2, 100))]
    return next(candidate for candidate in candidates if not candidate.exists())


def start_run(
    plan: Plan,
    source: str,
    folder: Path,
    display: ProgressDisplay,
    *,
    required: Collection[str] = (),
    minutes: float | None = None,
) -> bool:
    """Check, probe, and execute a plan into a new run folder; True when it is complete.
    Raises UsageError, UnavailableError: before anything is started; InterruptedRunError: by a signal; `resume_run` goes
    on.

    ``required``: platforms without which nothing is started; ``minutes``: what takes longer is left out, and told.
    """
    if plan.fleet is not None:
        raise UsageError(
            f"{source}: the plan has a [fleet]; this command measures on this machine only",
            "virtgauge fleet run; or take [fleet] out of the plan",
        )
    design = check_plan(plan, source)
    # For the record, with the bounds of its profiles: another version's may differ.
    plan = plan.model_copy(update={"require": plan.requirements, "profile": ()})
    agent = find_agent()

    async def work() -> bool:
        arms = await probe_arms(plan, design.platforms)
        refuse_missing(arms, required)
        for arm in arms:
            if not arm.record.usable and arm.record.role != "aa":
                fix = f" (to enable it: {arm.record.fix})" if arm.record.fix else ""
                display.notice(f"skipped {arm.record.name}: {arm.record.reason}{fix}")
        for words in design.undecidable():
            display.notice(words)
        await warn_of_surroundings(plan, design, arms, display)
        fit = Fitted(plan) if minutes is None else fitted(plan, source, [arm.record for arm in arms], minutes)
        kept = {section.name for section in fit.plan.platform}
        arms = [arm for arm in arms if arm.record.name.removesuffix(AA_SUFFIX) in kept]
        doubt = _at_the_same_time(fit.plan, [arm.record for arm in arms])
        manifest = manifest_of(folder.name, fit.plan, agent, (arm.record for arm in arms))
        with begun(folder, manifest, f"virtgauge {__version__}") as ledger:
            for words in fit.left_out:
                ledger.add_event("remark", f"left out to fit {minutes:g} minutes: {words}")
                display.notice(f"left out to fit {minutes:g} minutes: {words}")
            if plan.repetitions_per_guest > 1:
                ledger.add_event(DOUBT, f"Up to {plan.repetitions_per_guest} repetitions share a guest: {_SHARED}.")
            if doubt:
                ledger.add_event(DOUBT, doubt)
            own = design if minutes is None else check_plan(fit.plan, source)
            return await _execute(fit.plan, own, arms, agent, ledger, display, ())

    with machine_to_ourselves(display):
        return asyncio.run(interruptible(work(), folder))


def resume_run(folder: Path, display: ProgressDisplay, *, accept_changed_host: bool = False) -> bool:
    """Execute what is missing of a run; True when it is complete.
    Raises UsageError: no run there, or this host or agent is no longer the one that the run began with;
    UnavailableError: the reference cannot be used any more; InterruptedRunError: by a signal; may be resumed again.
    """
    with Ledger.open(folder) as ledger:
        manifest = ledger.manifest()
        if manifest.hosts:
            raise UsageError(f"{folder} is the run of a fleet", f"virtgauge fleet resume {shlex.quote(str(folder))}")
        source = f"{folder}/plan.toml"
        plan = parse_plan(manifest.plan_text, source)
        design = check_plan(plan, source)
        agent = find_agent()
        carried = _compare_host(manifest, agent, ledger, accept=accept_changed_host)

        async def work() -> bool:
            usable_then = {arm.name for arm in manifest.arms if arm.usable}
            arms = [arm for arm in await probe_arms(plan, design.platforms) if arm.record.name in usable_then]
            for arm in arms:
                if not arm.record.usable:
                    text = f"{arm.record.name} can no longer be used: {arm.record.reason}"
                    ledger.add_event("arm-lost", text)
                    display.notice(text)
            _at_the_same_time(plan, manifest.arms)
            ledger.add_event("resumed", f"virtgauge {__version__}")
            return await _execute(plan, design, arms, agent, ledger, display, carried)

        with machine_to_ourselves(display), run_to_ourselves(folder):
            ledger.discard_unfinished_samples()
            return asyncio.run(interruptible(work(), folder))


def _at_the_same_time(plan: Plan, arms: Iterable[ArmRecord]) -> str:
    """What measuring all of them at once leaves doubtful, in words; empty where a plan does not.
    Raises UsageError: this machine has too few CPUs for it.
    """
    usable = [arm for arm in arms if arm.usable]
    if not plan.at_the_same_time or not usable:
        return ""
    cores = allowed_cores()
    least = min(map(len, shares_of_cpus([arm.name for arm in usable], cores, 0).values()))
    for arm in usable:
        if (vcpus := arm.settings.get("vcpus") or 0) > least:
            raise UsageError(
                f"at_the_same_time = true: {arm.name} has {vcpus} virtual CPUs, and its share of the machine {least}",
                f"set vcpus = {least} on the platform, name fewer platforms, or leave at_the_same_time out",
            )
    return _TOGETHER + (" Some are on threads of the same core." if len(cores) < len(usable) else "")


def _unequal_turns(plan: Plan, arms: Sequence[ArmRecord], ledger: Ledger) -> str:
    """What the turns that there were leave doubtful where all arms are measured at once; empty where nothing."""
    if not plan.at_the_same_time:
        return ""
    ((last,),) = ledger.rows("SELECT max(block) FROM trials")
    turns = 0 if last is None else last // plan.repetitions_per_guest + 1
    if turns % len(arms) == 0:
        return ""
    return f"{len(arms)} platforms had turns on different CPUs, {turns} each: not all had each share equally often."


def manifest_of(
    run_id: str, plan: Plan, agent: AgentBinary, arms: Iterable[ArmRecord], hosts: Sequence[HostRecord] = ()
) -> Manifest:
    """What a run that begins now is."""
    assert plan.seed is not None
    return Manifest(
        run_id=run_id,
        created_at=utc_now(),
        tool_version=__version__,
        plan_name=plan.name,
        plan_text=plan.to_toml(),
        seed=plan.seed,
        confidence=plan.confidence,
        agent_sha256=agent.sha256,
        fingerprint=fingerprint(),
        arms=tuple(arms),
        hosts=tuple(hosts),
    )


@contextlib.contextmanager
def begun(folder: Path, manifest: Manifest, words: str) -> Iterator[Ledger]:
    """A new run's folder and ledger, which nobody else writes to."""
    with Ledger.create(folder, manifest) as ledger, run_to_ourselves(folder):
        ledger.add_event("started", words)
        yield ledger


async def warn_of_surroundings(plan: Plan, design: Design, arms: Sequence[Arm], display: ProgressDisplay) -> None:
    """Say what the suites lack here, and when this machine is busier than valid trials allow."""
    if all(arm.platform.simulated for arm in arms):
        return
    for words in design.missing_prerequisites():
        display.notice(f"skipped: {words}")
    share, busiest = await ambient_load()
    if share > plan.validity.foreign_load:
        most = f", most of it by {', '.join(busiest)}" if busiest else ""
        display.notice(
            f"this machine is not idle: {share:.0%} of its CPU time is in use{most}; "
            f"trials with more than {plan.validity.foreign_load:.0%} foreign load are invalid and repeated"
        )


async def _execute(
    plan: Plan,
    design: Design,
    arms: Sequence[Arm],
    agent: AgentBinary,
    ledger: Ledger,
    display: ProgressDisplay,
    carried: tuple[Flag, ...],
) -> bool:
    used = list({id(arm.platform): arm.platform for arm in arms if arm.record.usable}.values())
    try:
        with Scope() as scope:
            for platform in used:
                for words in await platform.begin(scope, agent):
                    display.notice(words, warning=False)
            for words in (words for arm in arms if arm.record.usable for words in design.to_do(arm)):
                display.notice(words, warning=False)
            runner = Runner(
                plan=plan,
                design=design,
                arms=arms,
                ledger=ledger,
                scope=scope,
                agent=agent,
                display=display,
                carried_flags=carried,
            )
            complete = await runner.run()
    except asyncio.CancelledError:
        ledger.add_event(INTERRUPTED, "by a signal")
        raise
    finally:
        for words in (words for platform in used for words in platform.remarks()):
            ledger.add_event("remark", words)
            display.notice(words)
    doubt = _unequal_turns(plan, [arm.record for arm in arms if arm.record.usable], ledger)
    if doubt and all(event.detail != doubt for event in ledger.events()):
        ledger.add_event(DOUBT, doubt)
    ledger.add_event(COMPLETED if complete else INCOMPLETE, "")
    return complete


def changed_facts(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """In what of its identity a host's fingerprint is no longer that of the beginning, in words."""
    before, after = then.get("identity", {}), now.get("identity", {})
    return [f"{key}: {before.get(key)!r} then, {one!r} now" for key, one in after.items() if before.get(key) != one]


def _compare_host(manifest: Manifest, agent: AgentBinary, ledger: Ledger, *, accept: bool) -> tuple[Flag, ...]:
    """Flags for trials made on a host that is no longer the one the run began with."""
    changed = changed_facts(manifest.fingerprint, fingerprint())
    if agent.sha256 != manifest.agent_sha256:
        changed.append(f"agent: {manifest.agent_sha256[:12]} then, {agent.sha256[:12]} now")
    if not changed:
        return ()
    text = "; ".join(changed)
    if not accept:
        raise UsageError(
            f"this host is not the one that the run began with: {text}",
            "start a new run, or go on with --accept-changed-host (later trials are then marked)",
        )
    ledger.add_event("changed-host", text)
    return (Flag("changed-host", text, fatal=False),)


@contextlib.contextmanager
def machine_to_ourselves(display: ProgressDisplay) -> Iterator[None]:
    """Trials never share a machine: one measuring controller at a time.

    What dead runs left on the machine is removed first, and said.
    """
    refusal = "another virtgauge run is measuring on this machine; two would disturb each other"
    with _locked(make_state_root() / LOCK_NAME, refusal, STATE_REMEDY):
        for line in reclaim_dead():
            display.notice(f"reclaimed what an earlier run left: {line}", warning=False)
        yield


def run_to_ourselves(folder: Path) -> contextlib.AbstractContextManager[None]:
    """One writer of a run's ledger at a time."""
    return _locked(folder / "controller.lock", f"another virtgauge is at work on {folder}", "use sudo, as the run did")


@contextlib.contextmanager
def _locked(path: Path, refusal: str, remedy: str) -> Iterator[None]:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise unwritable(f"{path}: cannot be written: {error.strerror}", error, remedy) from error
    with closed_after(descriptor):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OccupiedError(refusal, "wait until it has ended, or end it") from None
        yield


async def interruptible(work: Coroutine[Any, Any, bool], folder: Path, resume: str = "virtgauge resume") -> bool:
    """Run until done; the first SIGINT or SIGTERM cancels it, and its clean-up is left to finish.
    Raises InterruptedRunError: it was cancelled by a signal; names the command that goes on with the folder's run.
    """
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)

    def interrupt() -> None:
        for number in signals:
            loop.add_signal_handler(number, lambda: None)
        task.cancel()

    for number in signals:
        loop.add_signal_handler(number, interrupt)
    try:
        return await task
    except asyncio.CancelledError:
        remedy = f"{resume} {shlex.quote(str(folder))}" if (folder / LEDGER_NAME).exists() else None
        raise InterruptedRunError("interrupted; every finished trial is kept", remedy) from None
    finally:
        for number in signals:
            loop.remove_signal_handler(number)

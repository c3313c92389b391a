"""Starting, resuming and ending a fleet's run: everything around the coordinator that must happen exactly once."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import shlex
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path

from virtgauge import __version__
from virtgauge.agent import find_agent
from virtgauge.errors import UnavailableError, UsageError
from virtgauge.execution.prepare import check_plan
from virtgauge.execution.progress import ProgressDisplay
from virtgauge.execution.run import begun, interruptible, manifest_of, run_to_ourselves
from virtgauge.extras import require
from virtgauge.fleet.cluster import Cluster, TlsFiles, existing_cluster, own_cluster
from virtgauge.fleet.coordinator import Coordinator
from virtgauge.fleet.messages import Enrolment, ForeignMessageError
from virtgauge.fleet.roster import DistrustError, HostEnrolment
from virtgauge.fleet.workers import local_workers, ssh_workers
from virtgauge.ledger.records import ONE_MACHINE, TESTER, ArmRecord, HostRecord, Manifest
from virtgauge.ledger.store import Ledger
from virtgauge.plan.fleet import FleetSection, Start
from virtgauge.plan.load import parse_plan
from virtgauge.plan.model import Plan

RESUME = "virtgauge fleet resume"


def start_fleet(plan: Plan, source: str, folder: Path, display: ProgressDisplay) -> bool:
    """Check, enrol every host, and execute a plan into a new run folder; True when it is complete.
    Raises UsageError, UnavailableError, DistrustError: before anything is measured; InterruptedRunError: by a signal;
    :func:`resume_fleet` goes on.
    """
    require("fleet", "a fleet")
    fleet = plan.fleet
    if fleet is None:
        raise UsageError(f"{source}: the plan has no [fleet]", "name its hosts there; `virtgauge run` measures here")
    if plan.budget is not None and plan.budget.claims:
        raise UsageError(
            f"{source}: budget.claims: the papers' conclusions are of one host",
            "leave it out; repetitions are added for requirements",
        )
    design = check_plan(plan, source)
    # For the record, with the bounds of its profiles: another version's may differ.
    plan = plan.model_copy(update={"require": plan.requirements, "profile": ()})
    if (folder / "ledger.sqlite").exists():
        raise UsageError(f"{folder} already holds a run", f"choose another folder, or `{RESUME}` it")
    agent = find_agent()

    async def work() -> bool:
        async with _cluster(fleet, display) as cluster:
            enrolment = HostEnrolment(fleet, agent.sha256, cluster, display, plan.to_toml())
            enrolled = {host.name: await enrolment.enrol(host) for host in fleet.hosts}
            measured = {host.name for host in fleet.hosts if host.measured}
            arms = merged_arms({name: enrolment for name, enrolment in enrolled.items() if name in measured})
            hosts = _host_records(enrolled, measured, arms, display)
            manifest = manifest_of(folder.name, plan, agent, arms, hosts)
            with begun(folder, manifest, f"virtgauge {__version__}, {len(hosts)} hosts") as ledger:
                if fleet.one_machine:
                    words = "several hosts of this fleet may be one machine: a try, no comparison"
                    ledger.add_event(ONE_MACHINE, words)
                for pair in fleet.pair:
                    ledger.add_event(TESTER, pair.words)
                enrolment.token = _token(ledger.manifest())
                return await Coordinator(plan, design, ledger, hosts, enrolment).execute()

    return asyncio.run(interruptible(work(), folder, RESUME))


def resume_fleet(folder: Path, display: ProgressDisplay) -> bool:
    """Execute what is missing of a fleet's run; True when it is complete.

    A host that cannot be had is set aside, in words; the others go on.
    Raises UsageError: no fleet's run is there, or the agent here is another one; UnavailableError: no host can be had;
    InterruptedRunError: by a signal; may be resumed again.
    """
    require("fleet", "a fleet")
    with Ledger.open(folder) as ledger:
        manifest = ledger.manifest()
        source = f"{folder}/plan.toml"
        plan = parse_plan(manifest.plan_text, source)
        fleet = plan.fleet
        if fleet is None or not manifest.hosts:
            raise UsageError(f"{folder} is the run of one host", f"virtgauge resume {shlex.quote(str(folder))}")
        agent = find_agent()
        if agent.sha256 != manifest.agent_sha256:
            raise UsageError(
                f"the agent is not the one that the run began with: {manifest.agent_sha256[:12]} then, "
                f"{agent.sha256[:12]} now",
                "install that version again, or start a new run",
            )
        design = check_plan(plan, source)
        settings = {host.name: host for host in fleet.hosts}

        async def returning(host: HostRecord, enrolment: HostEnrolment) -> HostRecord | None:
            try:
                await enrolment.enrol(settings[host.name])
            except (UnavailableError, DistrustError, ForeignMessageError) as error:  # of this host alone
                ledger.add_event("host-set-aside", str(error))
                display.notice(f"host {host.name} is set aside: {error}")
                return None
            return host

        async def work() -> bool:
            async with _cluster(fleet, display) as cluster:
                enrolment = HostEnrolment(fleet, agent.sha256, cluster, display, manifest.plan_text, manifest.hosts)
                enrolment.token = _token(manifest)
                found = await asyncio.gather(*(returning(host, enrolment) for host in manifest.hosts))
                hosts = [host for host in found if host is not None]
                if not hosts:
                    raise UnavailableError("no host of this fleet can be had", "start their workers, then resume again")
                ledger.add_event("resumed", f"virtgauge {__version__}, {len(hosts)} hosts")
                return await Coordinator(plan, design, ledger, hosts, enrolment).execute()

        with run_to_ourselves(folder):
            ledger.discard_unfinished_samples()
            return asyncio.run(interruptible(work(), folder, RESUME))


def _token(manifest: Manifest) -> str:
    """What tells a run from every other on its workers, which keep what they measure under it."""
    text = "\0".join((manifest.run_id, manifest.created_at, manifest.plan_text))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@contextlib.asynccontextmanager
async def _cluster(fleet: FleetSection, display: ProgressDisplay) -> AsyncIterator[Cluster]:
    """The plan's cluster, and the workers that it starts; both end with it."""
    if fleet.start is Start.CLUSTER:
        async with existing_cluster(fleet, lambda words: display.notice(words, warning=False)) as cluster:
            yield cluster
        return
    files = TlsFiles.temporary()
    workers = local_workers if fleet.start is Start.HERE else ssh_workers
    async with (
        own_cluster(fleet.listen or "127.0.0.1", files) as (cluster, address),
        workers(fleet, address, files, display),
    ):
        yield cluster


def merged_arms(enrolled: Mapping[str, Enrolment]) -> tuple[ArmRecord, ...]:
    """The arms of a fleet: an arm is usable where any host can use it, and described by the first that can.

    Where some hosts can only emulate a platform, it is that of the others: figures of both are not one arm's.
    """
    merged = []
    for arms in zip(*(enrolment.arms for enrolment in enrolled.values()), strict=True):
        usable = sorted((arm for arm in arms if arm.usable), key=lambda arm: arm.emulated)
        merged.append(usable[0] if usable else arms[0])
    return tuple(merged)


def _host_records(
    enrolled: Mapping[str, Enrolment], measured: Collection[str], arms: Sequence[ArmRecord], display: ProgressDisplay
) -> tuple[HostRecord, ...]:
    """Every host with the arms that it can use; one that is not measured has none."""
    records = []
    for index, (name, enrolment) in enumerate(enrolled.items()):
        usable = []
        for arm, here in zip(arms, enrolment.arms, strict=True) if name in measured else ():
            reason = here.reason
            if here.usable and here.emulated != arm.emulated:
                reason = "it is emulated there, and not on every host"
            elif here.usable:
                usable.append(arm.name)
                continue
            if arm.role == "reference":
                raise UnavailableError(
                    f"host {name!r}: the reference platform {arm.name!r} cannot be used there: {reason}",
                    here.fix or "name another reference in the plan, or leave the host out",
                )
            if arm.role != "aa":
                fix = f" (to enable it: {here.fix})" if here.fix else ""
                display.notice(f"host {name}: skipped {arm.name}: {reason}{fix}")
        machine = dataclasses.asdict(enrolment.signature.machine)
        records.append(HostRecord(name, index, enrolment.fingerprint, machine, tuple(usable)))
    return tuple(records)

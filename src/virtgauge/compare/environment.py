"""What differs between the runs besides their figures; often the point of the comparison."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from virtgauge.compare.model import EnvironmentLine
from virtgauge.compare.naming import run_labels
from virtgauge.compare.runs import ReadRun
from virtgauge.compare.settings import plan_of
from virtgauge.report.trials import flattened

_OF_EVERY_BOOT = frozenset({"context boot_id"})
"""Facts that differ between any two runs and mean nothing."""


def differing_environment(runs: Sequence[ReadRun]) -> tuple[EnvironmentLine, ...]:
    """Facts in which the runs differ: host, virtgauge, plan, and the settings of arms of one name."""
    return (*_hosts(runs), *_tools(runs), *_arms(runs))


def caveats(runs: Sequence[ReadRun], across: bool) -> tuple[str, ...]:
    """What a reader must know before the figures.

    Args:
        runs: the first is the base.
        across: whether runs of different versions were asked for.
    """
    said = []
    labels = run_labels(runs)
    if across and len({run.manifest.tool_version.rsplit(".", 1)[0] for run in runs}) > 1:
        said.append(
            "The runs were measured by different versions of virtgauge: a figure of the same name may have been "
            "measured otherwise."
        )
    if len({run.manifest.agent_sha256 for run in runs}) > 1:
        said.append("The agent in the guests was not the same in all runs; a part of a change may be the agent's.")
    said += [f"{label} has not finished." for label, run in zip(labels, runs, strict=True) if not run.finished]
    without = [label for label, run in zip(labels, runs, strict=True) if run.aa is None or not run.aa.usable]
    if without:
        said.append(
            f"{', '.join(without)}: identical arms (A/A) were not measured, so no difference from it is called one."
        )
    unread = [label for label, run in zip(labels, runs, strict=True) if plan_of(run.manifest) is None]
    if unread and len(runs) > 1:
        said.append(f"{', '.join(unread)}: the plan cannot be read, so how each cell was measured was not compared.")
    if any(len(run.manifest.hosts) > 1 for run in runs):
        said.append(
            "Repetitions of a fleet's hosts are taken together: hosts that are in one run only are a part of a change."
        )
    if len({run.manifest.confidence for run in runs}) > 1:
        said.append("The runs ask for different confidence; the base run's is used.")
    return tuple(said)


def _hosts(runs: Sequence[ReadRun]) -> Iterator[EnvironmentLine]:
    hosts = [dict(flattened(run.manifest.fingerprint)) for run in runs]
    for name in dict.fromkeys(name for host in hosts for name in host):
        if name not in _OF_EVERY_BOOT:
            shown = name.removeprefix("identity ").removeprefix("context ").replace("_", " ")
            yield from _if_differing(shown, [host.get(name) for host in hosts])


def _tools(runs: Sequence[ReadRun]) -> Iterator[EnvironmentLine]:
    yield from _if_differing("virtgauge", [run.manifest.tool_version for run in runs])
    yield from _if_differing("agent (SHA-256)", [run.manifest.agent_sha256[:12] for run in runs])
    yield from _if_differing("plan", [run.manifest.plan_name for run in runs])
    yield from _if_differing("hosts", [", ".join(host.name for host in run.manifest.hosts) or None for run in runs])
    yield from _if_differing("repetitions", [str(run.repetitions) for run in runs])
    plans = [plan_of(run.manifest) for run in runs]
    if all(plan is not None for plan in plans):
        limits: list[dict[str, Any]] = [plan.validity.model_dump() for plan in plans if plan is not None]
        for name in limits[0]:
            yield from _if_differing(f"validity limit {name.replace('_', ' ')}", [f"{each[name]:g}" for each in limits])


def _arms(runs: Sequence[ReadRun]) -> Iterator[EnvironmentLine]:
    for arm in runs[0].manifest.arms:
        records = [run.arm(arm.name) for run in runs]
        if arm.role == "aa" or all(record is None for record in records[1:]):
            continue
        facts = [
            {} if record is None else {"kind": record.kind, "is": record.label} | dict(flattened(record.settings))
            for record in records
        ]
        for name in dict.fromkeys(name for each in facts for name in each):
            values = [each.get(name) for each in facts]
            if not any(record is None for record in records):
                yield from _if_differing(f"{arm.name}: {name.replace('_', ' ')}", values)


def _if_differing(what: str, values: Sequence[str | None]) -> Iterator[EnvironmentLine]:
    if len(set(values)) > 1:
        yield EnvironmentLine(what, tuple(values))

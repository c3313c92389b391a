"""A requirement on a fleet has to be met on each of its hosts."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from forwarding_results import add_result, paper_arms, result
from judged import DURATION, run_of
from synthetic import manifest

from virtgauge.analysis.bounds import Outcome
from virtgauge.decisions.requirements import resolve
from virtgauge.decisions.verdicts import Judge, Verdict
from virtgauge.ledger.records import BLOCKS_PER_HOST, Flag, HostRecord
from virtgauge.ledger.store import Ledger
from virtgauge.plan.requirements import Requirement
from virtgauge.results.table import ResultTable


def verdict(by_host: dict[str, float], *, as_fleet: bool) -> Verdict:
    """On "at most 100 ns", with eight repetitions on each host around its own figure."""
    random = np.random.default_rng(1)
    hosts = [HostRecord(name, index, {}, {}, ("host",)) for index, name in enumerate(by_host)]
    durations = {
        index * BLOCKS_PER_HOST + repetition: figure * float(1 + 0.01 * random.standard_normal())
        for index, figure in enumerate(by_host.values())
        for repetition in range(8)
    }
    required = Requirement(suite="bandwidth", measure=DURATION.name, at_most=100, unit="ns")
    requirements = resolve([required], None, ["host"], 0.95, "test")
    with tempfile.TemporaryDirectory() as folder:
        table = run_of(Path(folder) / "run", durations, hosts if as_fleet else ())
        (found,) = Judge(requirements, table, any_time_valid=False).verdicts()
        table.ledger.close()
    return found


def test_met_on_every_host_is_met() -> None:
    found = verdict({"a": 50, "b": 80}, as_fleet=True)
    assert found.outcome is Outcome.PASS
    assert [cell.host for cell in found.cells] == ["a", "b"]
    assert found.decisive is not None
    assert found.decisive.host == "b", "the host with the least margin"


def test_one_host_that_fails_is_named() -> None:
    found = verdict({"a": 50, "b": 150, "c": 50}, as_fleet=True)
    assert found.outcome is Outcome.FAIL
    assert found.decisive is not None
    assert (found.decisive.host, found.decisive.estimate.n) == ("b", 8)
    assert found.decisive.trials == tuple(range(9, 17))


def test_pooled_hosts_would_have_hidden_it() -> None:
    """What judging each host is for: over all of them the median passes."""
    assert verdict({"a": 50, "b": 150, "c": 50}, as_fleet=False).outcome is not Outcome.FAIL


@pytest.mark.parametrize(
    ("limited", "factors", "outcomes"),
    [
        ("a", (0.5, 1.0, 1.0), (Outcome.INCONCLUSIVE, Outcome.PASS, Outcome.PASS)),
        ("a", (0.5, 0.5, 1.0), (Outcome.INCONCLUSIVE, Outcome.FAIL, Outcome.PASS)),
        ("bc", (0.5, 1.0, 1.0), (Outcome.FAIL, Outcome.PASS, Outcome.PASS)),
    ],
)
def test_what_limits_one_host_says_nothing_of_another(
    tmp_path: Path, limited: str, factors: tuple[float, ...], outcomes: tuple[Outcome, ...]
) -> None:
    """On an NDR of at least 0.8, where the testers of some hosts are what limits it."""
    arm = paper_arms()[0]
    hosts = [HostRecord(name, index, {}, {}, (arm.record.name,)) for index, name in enumerate("abc")]
    ledger = Ledger.create(tmp_path / "run", manifest([arm.record], hosts=tuple(hosts)))
    for host, factor in zip(hosts, factors, strict=True):
        flags = (Flag("generator-limited", "why", fatal=False),) if host.name in limited else ()
        for repetition in range(9):  # a host that fails needs the confidence for three
            told = result(arm, 12, 64, factor * (1 + repetition / 1000))
            add_result(ledger, arm.record, "k=12", 64, host.index * BLOCKS_PER_HOST + repetition, told, flags)
    least = 0.8 * result(arm, 12, 64, 1.0)["throughput_pps"]
    required = Requirement(suite="forwarding", measure="ndr", unit="frames/s", at_least=least)
    requirements = resolve([required], None, [arm.record.name], 0.95, "test")
    (found,) = Judge(requirements, ResultTable(ledger), any_time_valid=False).verdicts()
    assert tuple(cell.outcome for cell in found.cells) == outcomes

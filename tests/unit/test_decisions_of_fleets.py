"""A requirement on a fleet has to be met on each of its hosts."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from judged import DURATION, run_of

from virtgauge.analysis.bounds import Outcome
from virtgauge.decisions.requirements import resolve
from virtgauge.decisions.verdicts import Judge, Verdict
from virtgauge.ledger.records import BLOCKS_PER_HOST, HostRecord
from virtgauge.plan.requirements import Requirement


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

"""Cycles that are made late on purpose, on the host and in guests: the host's trace names what was done. As root."""

from __future__ import annotations

import importlib
import itertools
import time
from pathlib import Path
from typing import Any

import pytest
from platforms.conftest import left_behind, require

from virtgauge.host import tracing
from virtgauge.host.process import numbered_as_traced
from virtgauge.host.reclaim import reclaim_folder
from virtgauge.host.scope import Scope
from virtgauge.platforms.base import Availability
from virtgauge.suites.spikes import Offset

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.usefixtures("root", "private_state")]

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def traceable() -> None:
    why = tracing.refused()
    require(Availability(why is None, why or ""), "tracefs")


@pytest.fixture
def injected(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The benchmark that publishes how many are named rightly."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("injected_spikes")


def test_a_trace_is_gone_with_its_trial_and_that_of_a_dead_run_is_reclaimed() -> None:
    with Scope() as scope:
        with tracing.traced(scope.folder) as trace:
            time.sleep(0.1)
            trace.stop()
            assert any(": sched_switch: " in line for line in trace.lines())
            assert tracing.instance_of(scope.tag) == trace.folder
        assert not trace.folder.exists()
        left = tracing.traced(scope.folder)
        left.__enter__()
        assert any(line.startswith("removed the trace ") for line in reclaim_folder(scope.folder))
        assert not (tracing._root(scope.folder) / tracing._instance(scope.tag)).exists()
        left.__exit__(None, None, None)


def test_only_cycles_that_what_was_done_covers_were_made_late_by_it(injected: Any) -> None:
    offsets = [Offset(at_ns, 10**12, 10**12) for at_ns in (10**12, 10**12 + 10**9)]  # the host's clock is ahead
    ms = 10**6
    cycles = [  # by the guest's clock: ms late, and woken at
        (8, 300, "a neighbour's stall"),
        (6, 106, "all of it"),
        (5, 208, "two parts, three fifths"),
        (4, 111, "a quarter"),
        (2, 105, "all of it, but too little"),
    ]
    result = {
        "worst": [{"late_ns": late * ms, "monotonic_ns": woken * ms} for late, woken, _ in cycles],
        "spikes": {"worst": [{"cause": told, "by": ""} for _, _, told in cycles]},
    }
    done = [(10**12 + begin * ms, 10**12 + end * ms) for begin, end in ((100, 108), (203, 204), (206, 208))]
    covered = [told for told, _ in injected.made_late(result, 2.5, done, offsets)]
    assert covered == ["all of it", "two parts, three fifths"]
    assert len(injected.made_late(result, 2.5, None, offsets)) == len(cycles) - 1  # no times are known


PLACES = ["host", "runc", "gvisor", "uml", "qemu"]
CASES = [*itertools.product(PLACES, ["hog", "quota", "stop"]), ("qemu", "own-hog")]


@pytest.mark.parametrize(("where", "name"), CASES)
async def test_what_makes_cycles_late_is_named(injected: Any, where: str, name: str) -> None:
    place, injection = injected.PLACES[where], injected.INJECTIONS[name]
    require(await place.platform.probe(), where)
    known = where in ("host", "runc") or numbered_as_traced()
    require(Availability(known, "processes have other numbers here than in traces"), "first-pid-namespace")
    tried = [await rightly_named(injected, place, injection)]
    if not tried[0][0]:  # a pause of the machine may have made the worst cycles late: then the next two must be right
        tried += [await rightly_named(injected, place, injection) for _ in range(2)]
    assert all(right for right, _ in tried[-2:]), tried


async def rightly_named(injected: Any, place: Any, injection: Any) -> tuple[bool, object]:
    """Whether nine of ten cycles of a trial are named for what was done, and what they are named for."""
    found: Any = []
    with Scope() as scope:
        try:
            found = await injected.causes(scope, place, injection)
            right = sum(injection.is_named(*one) for one in found) >= injected.RIGHT * len(found)
        except injected.BenchmarkError as error:
            found, right = str(error), False
        assert tracing.instance_of(scope.tag) is None
        tag = scope.tag
    assert left_behind(tag) == []
    return right, found

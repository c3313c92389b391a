"""A figure that changes within a run is told of, however many others do not."""

from types import SimpleNamespace

import numpy as np
import pytest

from virtgauge.report import course


@pytest.mark.parametrize("measures", [1, 7, 15, 20])
@pytest.mark.parametrize("seed", [1, 2])
def test_one_measure_that_steps_is_told_among_many_that_do_not(monkeypatch, measures, seed):
    places = {f"measure {n}": np.random.default_rng([seed, n]).normal(size=30) for n in range(measures)}
    places["measure 0"][15:] += 4
    monkeypatch.setattr(course, "_places", lambda table, arm: ([*range(30)], places))
    arms = [SimpleNamespace(name=name, usable=True) for name in ("host", "host-aa", "guest")]
    table = SimpleNamespace(manifest=SimpleNamespace(hosts=(), seed=seed), arms=arms)
    told = [*course.course_caveats(table)]
    assert len(told) == 3
    assert all("measure 0" in one and "from repetition 16 on" in one for one in told)

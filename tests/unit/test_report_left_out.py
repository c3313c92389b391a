"""What was left out is compared between arms where they measured the same."""

import numpy as np
import pytest

from virtgauge.report.left_out import Tallies, left_out_caveats, left_out_differing, untold_steal_caveats
from virtgauge.results.columns import Account, Cell

SECOND = 1_000_000_000


def trial(arm, load, *, kept_s, left_out_s=0.0, suite="timing", takes_s=0.1):
    """Left out and kept in takes of so many seconds."""
    one = {"reason": "steal", "share": 0.1, "elapsed_ns": int(takes_s * SECOND)}
    left_out = [one] * round(left_out_s / takes_s)
    levels = () if load is None else (("load", load),)
    told = Account.of([(int(kept_s * SECOND), 2, None, None, None, None, 0, round(kept_s / takes_s), 0, left_out)])
    return Cell(suite, "probe", levels), arm, np.array([0]), told


def test_arms_that_lose_the_same_of_each_load_do_not_differ_by_how_long_each_load_takes():
    """One tenth of idle time and half of loaded time on both arms, of which one measures longer beside the load."""
    trials = [
        trial("a", "idle", kept_s=9, left_out_s=1),
        trial("a", "cpu", kept_s=1, left_out_s=1),
        trial("b", "idle", kept_s=9, left_out_s=1),
        trial("b", "cpu", kept_s=20, left_out_s=20),
    ]
    assert left_out_differing(Tallies.of(trials)) is None


def test_the_suite_and_load_where_arms_differ_most_are_named():
    trials = [
        trial("a", "idle", kept_s=100),
        trial("b", "idle", kept_s=90, left_out_s=10),
        trial("a", "cpu", kept_s=1),
        trial("b", "cpu", kept_s=1, left_out_s=1),
        trial("a", None, kept_s=100, left_out_s=30, suite="storage"),
        trial("b", None, kept_s=100, suite="storage"),
        trial("b", None, kept_s=1, left_out_s=9, suite="forwarding"),
    ]
    worst = left_out_differing(Tallies.of(trials))
    assert (worst.suite, worst.load, worst.most.arm, worst.least.arm) == ("timing", "cpu", "b", "a")
    (_, caveat) = left_out_caveats([worst.most, worst.least], Tallies.of(trials))
    assert caveat.startswith("More was left out on b (50.0 %) than on a (0.0 %) in timing, load cpu")


def test_a_difference_that_chance_makes_in_few_takes_is_not_told():
    """4 takes of 22 on one arm, none of 18 on the other (p = 0.11); of ten times as many, it is no chance."""
    few = [trial("a", "idle", kept_s=18, left_out_s=4, takes_s=1), trial("b", "idle", kept_s=18, takes_s=1)]
    assert left_out_differing(Tallies.of(few)) is None
    many = [trial("a", "idle", kept_s=180, left_out_s=40, takes_s=1), trial("b", "idle", kept_s=180, takes_s=1)]
    assert left_out_differing(Tallies.of(many)).most.arm == "a"


def test_the_more_pairs_of_arms_are_looked_at_the_clearer_a_difference_has_to_be():
    """7 takes of 20 against none of 20 (p = 0.008), alone and among twenty other suites."""
    one = [trial("a", "idle", kept_s=13, left_out_s=7, takes_s=1), trial("b", "idle", kept_s=20, takes_s=1)]
    assert left_out_differing(Tallies.of(one)) is not None
    others = [trial(arm, None, kept_s=20, suite=f"suite-{n}") for n in range(20) for arm in "ab"]
    assert left_out_differing(Tallies.of([*one, *others])) is None


@pytest.mark.parametrize(
    ("hypervisor", "left_out_s", "warned"),
    [
        ({"present": True, "steal_ticks": 0}, 0, True),
        ({"present": True, "steal_ticks": 0}, 1, False),  # it was quiet before the run
        ({"present": True, "steal_ticks": 7}, 0, False),
        ({"present": True, "steal_ticks": None}, 0, False),  # a kernel that does not count it: the trials tell None
        ({"present": False, "steal_ticks": 0}, 0, False),
        ({"present": True}, 0, False),  # a record of an earlier version
    ],
)
def test_a_virtual_machine_that_has_never_counted_steal_is_told_of(hypervisor, left_out_s, warned):
    trials = [trial("a", "idle", kept_s=1, left_out_s=left_out_s)]
    caveats = untold_steal_caveats({"context": {"hypervisor": hypervisor}}, Tallies.of(trials))
    assert bool(caveats) is warned
    assert all("no steal since boot" in one for one in caveats)
